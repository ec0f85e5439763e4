//! A bounded count of resources in use.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

/// Counts resources in use, and refuses more than the bound.
#[derive(Debug)]
pub struct Bounded {
    max: usize,
    now: AtomicUsize,
    refused: AtomicU64,
}

impl Bounded {
    /// Makes a count of at most `max`.
    pub fn new(max: usize) -> Arc<Self> {
        Arc::new(Bounded { max, now: AtomicUsize::new(0), refused: AtomicU64::new(0) })
    }

    /// Takes `count`, and gives it back when the result is dropped. Returns none if there is no
    /// room for all of them.
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

    /// Takes none yet; [`Held::turned_out`] counts them later.
    pub fn none(self: &Arc<Self>) -> Held {
        Held { of: Arc::clone(self), count: 0 }
    }

    /// True if there is no room for even one more.
    pub fn is_full(&self) -> bool {
        self.now() >= self.max
    }

    /// Returns the number in use. Exceeds the bound only if [`Held::turned_out`] was larger than
    /// the estimate.
    pub fn now(&self) -> usize {
        self.now.load(Ordering::Acquire)
    }

    /// Returns the bound.
    pub fn max(&self) -> usize {
        self.max
    }

    /// Returns the number of refusals.
    pub fn refused(&self) -> u64 {
        self.refused.load(Ordering::Relaxed)
    }
}

/// A part of a [`Bounded`]; dropping it gives it back.
#[derive(Debug)]
pub struct Held {
    of: Arc<Bounded>,
    count: usize,
}

impl Held {
    /// Corrects the estimate to `count`, if the bound has room for that.
    pub fn fits(&mut self, count: usize) -> bool {
        match count.checked_sub(self.count) {
            Some(more) if more > 0 => match self.of.take(more) {
                // One part holds both.
                Some(mut added) => self.count += std::mem::take(&mut added.count),
                None => return false,
            },
            _ => self.turned_out(count),
        }
        true
    }

    /// Corrects the estimate to `count`. More than was taken counts too, even beyond the bound,
    /// because it is in use. Then the bound refuses more until enough is given back.
    pub fn turned_out(&mut self, count: usize) {
        match count.checked_sub(self.count) {
            Some(more) => self.of.now.fetch_add(more, Ordering::AcqRel),
            None => self.of.now.fetch_sub(self.count - count, Ordering::AcqRel),
        };
        self.count = count;
    }
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

    /// An estimate that is corrected within the bound never exceeds it, and loses nothing.
    #[test]
    fn estimate_that_does_not_fit_stays_as_it_was() {
        let bounded = Bounded::new(10);
        let (mut held, other) = (bounded.take(4).unwrap(), bounded.take(3).unwrap());
        assert!(held.fits(7) && bounded.now() == 10);
        assert!(!held.fits(8) && bounded.now() == 10);
        assert!(held.fits(2) && bounded.now() == 5);
        drop(other);
        assert!(held.fits(10) && bounded.now() == 10);
        drop(held);
        assert_eq!(bounded.now(), 0);
    }

    #[test]
    fn what_turned_out_larger_counts_beyond_the_bound_until_it_is_given_back() {
        let bounded = Bounded::new(10);
        let mut held = bounded.take(4).unwrap();
        held.turned_out(1);
        let other = bounded.take(9).unwrap();
        held.turned_out(5);
        assert_eq!(bounded.now(), 14);
        assert!(bounded.take(0).is_none());
        drop(held);
        assert!(bounded.take(1).is_some() && bounded.take(2).is_none());
        drop(other);
        assert_eq!(bounded.now(), 0);
    }
}
