//! Truthful errors of operations with several store requests: a failure after the first request
//! must not say that nothing was done.
//!
//! A store's `Unavailable` is about one request. Missing directories, long lists and merges take
//! further requests. So the operation counts the changes of all of them, and its error is about the
//! whole.

use std::cell::Cell;
use std::future::Future;

use exacat_model::{Error, ErrorKind, Result};
use exacat_store::Outcome;

tokio::task_local! {
    /// Changes that the running operation has made so far.
    static CHANGES: Cell<u64>;
}

/// Counts the changes of one request of the operation.
pub(crate) fn count(outcomes: &[Outcome]) {
    let applied = outcomes.iter().filter(|outcome| matches!(outcome, Outcome::Applied { .. })).count();
    // A request outside of an operation reports its own error, so it is not counted.
    let _outside = CHANGES.try_with(|changes| changes.set(changes.get() + applied as u64));
}

/// Carries out an operation. If it fails for a temporary reason after some of its changes were
/// made, the error says so.
pub(crate) async fn truthful<T>(operation: impl Future<Output = Result<T>>) -> Result<T> {
    CHANGES
        .scope(Cell::new(0), async {
            let result = operation.await;
            match CHANGES.with(Cell::get) {
                0 => result,
                changes => result.map_err(|error| partly_done(error, changes)),
            }
        })
        .await
}

/// Returns the error of an operation that made some of its changes.
fn partly_done(error: Error, changes: u64) -> Error {
    match error.kind {
        ErrorKind::Unavailable | ErrorKind::Busy => Error::new(
            ErrorKind::Unknown,
            format!(
                "only a part was done ({changes} changes, such as directories on the way); retry it to complete it: {}",
                error.message
            ),
        ),
        _ => error,
    }
}
