//! Notifier of the archive thread.

use std::time::Duration;

use parking_lot::{Condvar, Mutex};

/// Wakes the thread, or ends it.
#[derive(Default)]
pub(crate) struct Notifier {
    state: Mutex<Notified>,
    changed: Condvar,
}

#[derive(Default)]
struct Notified {
    is_pending: bool,
    ended: bool,
    /// Set while the thread has nothing to do.
    resting: bool,
}

impl Notifier {
    /// Wakes the thread, because there may be work.
    pub(crate) fn notify(&self) {
        self.state.lock().is_pending = true;
        self.changed.notify_all();
    }

    /// Ends the thread.
    pub(crate) fn end(&self) {
        self.state.lock().ended = true;
        self.changed.notify_all();
    }

    pub(crate) fn is_ended(&self) -> bool {
        self.state.lock().ended
    }

    /// Waits for a wake-up for up to `time`; true if the thread was woken or ended.
    pub(crate) fn wait(&self, time: Duration) -> bool {
        let mut notified = self.state.lock();
        notified.resting = true;
        self.changed.notify_all();
        self.changed.wait_while_for(&mut notified, |notified| !notified.is_pending && !notified.ended, time);
        notified.resting = false;
        std::mem::take(&mut notified.is_pending) || notified.ended
    }

    /// Waits until the thread has nothing to do.
    #[cfg(test)]
    pub(crate) fn wait_until_resting(&self) {
        let mut notified = self.state.lock();
        let busy = |notified: &mut Notified| notified.is_pending || !notified.resting;
        let waited = self.changed.wait_while_for(&mut notified, busy, Duration::from_secs(60));
        assert!(!waited.timed_out(), "the archive does not come to rest");
    }
}
