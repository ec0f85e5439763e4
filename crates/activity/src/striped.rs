//! Sums for hot paths: threads rarely share a line of the cache, so they do not wait for each other.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

/// Parts of a sum.
const STRIPES: usize = 8;

/// A part alone on its lines of the processor's cache.
#[derive(Default)]
#[repr(align(64))]
struct Stripe<T>(T);

/// A value in several parts, which a reader adds up. Each thread changes one of them.
#[derive(Default)]
pub struct Striped<T>([Stripe<T>; STRIPES]);

thread_local! {
    static STRIPE: usize = {
        static THREADS: AtomicUsize = AtomicUsize::new(0);
        THREADS.fetch_add(1, Ordering::Relaxed) % STRIPES
    };
}

impl<T> Striped<T> {
    /// Returns the part that this thread changes. Other threads may change it too.
    #[inline]
    pub fn own(&self) -> &T {
        // A thread that ends has no number any more.
        let stripe = STRIPE.try_with(|stripe| *stripe).unwrap_or(0);
        &self.0[stripe % STRIPES].0
    }

    /// Returns all parts.
    pub fn parts(&self) -> impl Iterator<Item = &T> {
        self.0.iter().map(|stripe| &stripe.0)
    }
}

impl Striped<AtomicU64> {
    /// Adds one.
    #[inline]
    pub fn increment(&self) {
        self.own().fetch_add(1, Ordering::Relaxed);
    }

    /// Returns the sum.
    pub fn now(&self) -> u64 {
        self.parts().map(|part| part.load(Ordering::Relaxed)).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn increments_of_all_threads_are_counted() {
        let counter = Striped::<AtomicU64>::default();
        std::thread::scope(|scope| {
            for _ in 0..2 * STRIPES {
                scope.spawn(|| (0..100).for_each(|_| counter.increment()));
            }
        });
        assert_eq!(counter.now(), 200 * STRIPES as u64);
        assert!(counter.parts().all(|part| part.load(Ordering::Relaxed) > 0));
    }
}
