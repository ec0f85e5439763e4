//! Counters for hot paths: threads rarely share a word, so they do not wait for each other's caches.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

/// Words of a counter.
const STRIPES: usize = 8;

/// A word alone on its line of the processor's cache.
#[derive(Default)]
#[repr(align(64))]
struct Stripe(AtomicU64);

/// Counter that is cheap to increase and slow to read.
#[derive(Default)]
pub(crate) struct Striped([Stripe; STRIPES]);

thread_local! {
    static STRIPE: usize = {
        static THREADS: AtomicUsize = AtomicUsize::new(0);
        THREADS.fetch_add(1, Ordering::Relaxed) % STRIPES
    };
}

impl Striped {
    #[inline]
    pub(crate) fn increment(&self) {
        if let Some(stripe) = STRIPE.try_with(|stripe| self.0.get(*stripe)).ok().flatten() {
            stripe.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    pub(crate) fn now(&self) -> u64 {
        self.0.iter().map(|stripe| stripe.0.load(Ordering::Relaxed)).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn increments_of_all_threads_are_counted() {
        let counter = Striped::default();
        std::thread::scope(|scope| {
            for _ in 0..2 * STRIPES {
                scope.spawn(|| (0..100).for_each(|_| counter.increment()));
            }
        });
        assert_eq!(counter.now(), 200 * STRIPES as u64);
    }
}
