//! Waits for conditions, with a bound. No test pauses elsewhere.

use std::time::Duration;

/// Longest wait of a test for a condition.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// Pause between two checks of a condition.
const POLL_EVERY: Duration = Duration::from_millis(5);

/// Waits for a future. Panics after [`PATIENCE`].
pub async fn soon<T>(what: &str, future: impl Future<Output = T>) -> T {
    within(PATIENCE, what, future).await
}

/// Waits for a future. Panics after `bound`.
async fn within<T>(bound: Duration, what: &str, future: impl Future<Output = T>) -> T {
    match tokio::time::timeout(bound, future).await {
        Ok(value) => value,
        Err(_) => panic!("waited in vain for {what}"),
    }
}

/// Polls until `find` returns a value. Panics after [`PATIENCE`].
pub async fn found<T>(what: &str, find: impl AsyncFnMut() -> Option<T>) -> T {
    found_within(PATIENCE, what, find).await
}

/// Polls until `find` returns a value. Panics after `bound`.
pub async fn found_within<T>(bound: Duration, what: &str, mut find: impl AsyncFnMut() -> Option<T>) -> T {
    within(bound, what, async {
        loop {
            if let Some(value) = find().await {
                return value;
            }
            tokio::time::sleep(POLL_EVERY).await;
        }
    })
    .await
}

/// Polls until an asynchronous condition holds. Panics after [`PATIENCE`].
pub async fn eventually_so(what: &str, mut holds: impl AsyncFnMut() -> bool) {
    found(what, async || holds().await.then_some(())).await;
}

/// Polls until a condition holds. Panics after [`PATIENCE`].
pub async fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    found(what, async || holds().then_some(())).await;
}
