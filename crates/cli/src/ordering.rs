//! Sorts items that come in pages, with bounded memory.

use std::cmp::Ordering;

use exacat_model::Error;
use exacat_model::answer::Stat;

use crate::args::{OrderArgs, SortArg};
use crate::failure::Failure;

/// Maximum items sorted at once. They are held in memory.
const SORTED_MAX: usize = 200_000;

/// Compares two entries by a key, and by name where the keys are equal. Unknown sizes come first.
pub(crate) fn entries(key: SortArg, a: &Stat, b: &Stat) -> Ordering {
    let by_key = match key {
        SortArg::Name => Ordering::Equal,
        SortArg::Size => a.entry.size().cmp(&b.entry.size()),
        SortArg::Time => a.entry.modified.cmp(&b.entry.modified),
    };
    by_key.then_with(|| a.lfn.cmp(&b.lfn))
}

/// The first items in an order, up to a limit.
pub(crate) struct Sorted<T, F> {
    items: Vec<T>,
    compare: F,
    reverse: bool,
    limit: Option<usize>,
}

impl<T, F: Fn(&T, &T) -> Ordering> Sorted<T, F> {
    /// Makes a sorter for these options; none if they request the order of the catalogue.
    pub(crate) fn wanted(order: &OrderArgs, compare: impl FnOnce(SortArg) -> F) -> Option<Self> {
        let key = order.sort.or(order.reverse.then_some(SortArg::Name))?;
        let limit = order.limit.map(|limit| usize::try_from(limit).unwrap_or(usize::MAX));
        Some(Sorted { items: Vec::new(), compare: compare(key), reverse: order.reverse, limit })
    }

    /// Adds items. Refuses more than it can sort.
    pub(crate) fn add(&mut self, items: impl IntoIterator<Item = T>) -> Result<(), Failure> {
        for item in items {
            self.items.push(item);
            if self.items.len() <= SORTED_MAX {
                continue;
            }
            match self.limit {
                // The limit is small, so this is rare.
                Some(limit) if limit <= SORTED_MAX / 2 => self.cut(limit),
                _ => {
                    let error = Error::limit("the number of entries to sort", self.items.len(), SORTED_MAX);
                    let hint = format!("give --limit NUMBER, at most {}", SORTED_MAX / 2);
                    return Err(Failure::Catalogue { subject: None, error, hint: Some(hint) });
                }
            }
        }
        Ok(())
    }

    fn cut(&mut self, limit: usize) {
        let (compare, reverse) = (&self.compare, self.reverse);
        self.items.sort_by(|a, b| if reverse { compare(b, a) } else { compare(a, b) });
        self.items.truncate(limit);
    }

    /// Returns the items in order.
    pub(crate) fn end(mut self) -> Vec<T> {
        self.cut(self.limit.unwrap_or(usize::MAX));
        self.items
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sorted(order: OrderArgs, numbers: impl IntoIterator<Item = u64>) -> Result<Vec<u64>, Failure> {
        let mut sorted = Sorted::wanted(&order, |_| |a: &u64, b: &u64| a.cmp(b)).unwrap();
        sorted.add(numbers)?;
        Ok(sorted.end())
    }

    #[test]
    fn first_items_of_many_are_kept_and_too_many_are_refused() {
        let order = |reverse, limit| OrderArgs { sort: Some(SortArg::Name), reverse, limit };
        assert_eq!(sorted(order(false, None), [3, 1, 2]).unwrap(), [1, 2, 3]);
        assert_eq!(sorted(order(true, Some(2)), [3, 1, 2]).unwrap(), [3, 2]);
        let many = SORTED_MAX as u64 * 2 + 1;
        assert_eq!(sorted(order(true, Some(2)), 0..many).unwrap(), [many - 1, many - 2]);
        assert_eq!(sorted(order(false, Some(2)), (0..many).rev()).unwrap(), [0, 1]);
        assert!(sorted(order(false, None), 0..many).is_err());
        assert!(sorted(order(false, Some(many)), 0..many).is_err());
        let unsorted = OrderArgs { limit: Some(3), ..OrderArgs::default() };
        assert!(Sorted::wanted(&unsorted, |_| |a: &u64, b: &u64| a.cmp(b)).is_none());
    }
}
