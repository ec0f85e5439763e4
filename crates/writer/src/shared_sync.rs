//! Sync of a directory that many threads want at once: one sync serves all that came before it began.

use std::io;

use parking_lot::{Condvar, Mutex};

#[derive(Debug, Default)]
struct State {
    /// Syncs that have begun.
    begun: u64,
    /// Number of the last one that has ended.
    ended: u64,
    /// Kind and text of the first failure. Nothing is synced again to see whether it works now.
    failure: Option<(io::ErrorKind, String)>,
}

/// A sync that is shared.
#[derive(Debug, Default)]
pub(crate) struct SharedSync {
    state: Mutex<State>,
    changed: Condvar,
}

impl SharedSync {
    /// Returns once a sync has ended that began after this call.
    pub(crate) fn run(&self, sync: impl FnOnce() -> io::Result<()>) -> io::Result<()> {
        let mut state = self.state.lock();
        let needed = state.begun + 1;
        while state.failure.is_none() && state.ended < needed {
            if state.begun > state.ended {
                self.changed.wait(&mut state);
                continue;
            }
            state.begun += 1;
            drop(state);
            let outcome = sync();
            state = self.state.lock();
            state.ended = state.begun;
            if let Err(error) = outcome {
                state.failure = Some((error.kind(), error.to_string()));
            }
            self.changed.notify_all();
            break;
        }
        match &state.failure {
            None => Ok(()),
            Some((kind, text)) => Err(io::Error::new(*kind, text.clone())),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering};

    use super::*;

    /// Property: each caller returns after a sync that began after it came, and callers share syncs.
    #[test]
    fn a_sync_serves_those_that_came_before_it() {
        let (shared, written, synced) = (SharedSync::default(), AtomicU64::new(0), AtomicU64::new(0));
        let syncs = AtomicU64::new(0);
        std::thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| {
                    for _ in 0..200 {
                        let mine = written.fetch_add(1, Ordering::SeqCst) + 1;
                        let sync = || {
                            let seen = written.load(Ordering::SeqCst);
                            syncs.fetch_add(1, Ordering::SeqCst);
                            std::thread::yield_now();
                            synced.fetch_max(seen, Ordering::SeqCst);
                            Ok(())
                        };
                        shared.run(sync).unwrap();
                        assert!(synced.load(Ordering::SeqCst) >= mine, "the name is durable");
                    }
                });
            }
        });
        assert!(syncs.load(Ordering::SeqCst) <= 1600);
    }

    /// Property: after a failure nobody gets another answer.
    #[test]
    fn a_failure_is_final() {
        let shared = SharedSync::default();
        shared.run(|| Ok(())).unwrap();
        assert!(shared.run(|| Err(io::Error::from(io::ErrorKind::StorageFull))).is_err());
        let error = shared.run(|| panic!("never synced again")).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::StorageFull);
    }
}
