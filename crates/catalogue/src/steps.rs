//! Operations of several store requests: a failure after the first of them must not say that
//! nothing was done.
//!
//! A store's `Unavailable` is about one request. Missing directories, long lists and merges take
//! further requests, so the operation counts the changes of all of them, and its error is about the
//! whole.

use std::cell::Cell;
use std::future::Future;

use exacat_model::{Error, ErrorKind, Result};
use exacat_store::Outcome;

tokio::task_local! {
    /// Changes that the operation being carried out has made so far.
    static CHANGES: Cell<u64>;
}

/// Counts what a request of the operation did.
pub(crate) fn count(outcomes: &[Outcome]) {
    let applied = outcomes.iter().filter(|outcome| matches!(outcome, Outcome::Applied { .. })).count();
    // What is applied outside of an operation has an error of its own.
    let _outside = CHANGES.try_with(|changes| changes.set(changes.get() + applied as u64));
}

/// Carries out an operation. If it fails for a reason that passes after some of its changes were
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

/// An error of an operation of which some changes were made.
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
