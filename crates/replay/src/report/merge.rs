//! Figures that add up, in any order.

/// Figures of one kind. Sums of sums are the same in any order.
pub(crate) trait Merge: Default {
    /// Adds the figures of another.
    fn merge(&mut self, other: &Self);
}

impl Merge for u64 {
    fn merge(&mut self, other: &u64) {
        *self = self.saturating_add(*other);
    }
}
