//! Cancellation of requests whose client went away or does not want the answer any more.

use std::sync::atomic::{AtomicBool, Ordering};

use exacat_model::{Error, ErrorKind};
use tokio::sync::Notify;

/// Cancellation of work that waits or is between two pages.
#[derive(Debug, Default)]
pub(crate) struct Cancel {
    cancelled: AtomicBool,
    notify: Notify,
}

impl Cancel {
    /// Notes that nobody wants the answer any more.
    pub(crate) fn cancel(&self) {
        self.cancelled.store(true, Ordering::Release);
        self.notify.notify_waiters();
    }

    pub(crate) fn is_cancelled(&self) -> bool {
        self.cancelled.load(Ordering::Acquire)
    }

    /// Returns once it is cancelled.
    pub(crate) async fn cancelled(&self) {
        let notified = self.notify.notified();
        tokio::pin!(notified);
        notified.as_mut().enable();
        if !self.is_cancelled() {
            notified.await;
        }
    }
}

/// Returns the error of a request whose answer nobody wants any more.
pub(crate) fn cancelled() -> Error {
    Error::new(ErrorKind::Unavailable, format!("{CANCELLED}: nothing was done"))
}

/// Start of the messages of requests whose client went away or cancelled them.
pub(crate) const CANCELLED: &str = "cancelled";

/// True if a request ended because nobody wanted its answer any more.
pub(crate) fn is_cancelled(error: &Error) -> bool {
    error.kind == ErrorKind::Unavailable && error.message.starts_with(CANCELLED)
}
