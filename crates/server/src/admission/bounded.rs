//! A count with a bound: so many of something at once, and not one more.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

/// Counts what is held at once, and refuses what would go beyond the bound.
#[derive(Debug)]
pub struct Bounded {
    max: usize,
    now: AtomicUsize,
    refused: AtomicU64,
}

impl Bounded {
    /// At most `max` at once.
    pub fn new(max: usize) -> Arc<Self> {
        Arc::new(Bounded { max, now: AtomicUsize::new(0), refused: AtomicU64::new(0) })
    }

    /// Takes `count`, given back when the result is dropped; none if there is no room for all of them.
    pub fn take(self: &Arc<Self>, count: usize) -> Option<Held> {
        let taken = self.now.fetch_update(Ordering::AcqRel, Ordering::Relaxed, |now| {
            now.checked_add(count).filter(|then| *then <= self.max)
        });
        match taken {
            Ok(_) => Some(Held { of: Arc::clone(self), count }),
            Err(_) => {
                self.refused.fetch_add(1, Ordering::Relaxed);
                None
            }
        }
    }

    /// How many are held now.
    pub fn now(&self) -> usize {
        self.now.load(Ordering::Acquire)
    }

    /// How many may be held.
    pub fn max(&self) -> usize {
        self.max
    }

    /// How often it refused.
    pub fn refused(&self) -> u64 {
        self.refused.load(Ordering::Relaxed)
    }
}

/// A part of a [`Bounded`]; given back when dropped.
#[derive(Debug)]
pub struct Held {
    of: Arc<Bounded>,
    count: usize,
}

impl Drop for Held {
    fn drop(&mut self) {
        self.of.now.fetch_sub(self.count, Ordering::AcqRel);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exactly_the_bound_is_given_and_what_is_dropped_is_given_again() {
        let bounded = Bounded::new(10);
        let seven = bounded.take(7).unwrap();
        let three = bounded.take(3).unwrap();
        assert!(bounded.take(1).is_none());
        assert_eq!((bounded.now(), bounded.refused()), (10, 1));
        drop(seven);
        assert!(bounded.take(8).is_none());
        let again = bounded.take(7).unwrap();
        drop((three, again));
        assert_eq!(bounded.now(), 0);
        assert!(bounded.take(usize::MAX).is_none());
        assert!(bounded.take(0).is_some());
    }
}
