//! Work that waits for the disk, away from the threads of the asynchronous runtime.

use exacat_model::{Error, ErrorKind, Result};

/// Runs work that waits for the disk on a blocking thread. Without a runtime it runs here.
pub async fn on_blocking_thread<T: Send + 'static>(
    work: impl FnOnce() -> Result<T> + Send + 'static,
) -> Result<T> {
    match tokio::runtime::Handle::try_current() {
        Ok(runtime) => runtime.spawn_blocking(work).await.map_err(|error| {
            Error::new(ErrorKind::Internal, format!("internal error: work on files ended: {error}"))
        })?,
        Err(_) => work(),
    }
}
