//! Figures by name, for a bounded number of names, and the same whatever the order in which these come.
//!
//! If there are more names than room, those with the lowest hashes have figures of their own. Once a name
//! is left out it never comes back, so its figures are either complete or not there. All others are one
//! sum.

use std::collections::BTreeMap;

use xxhash_rust::xxh3::xxh3_128;

use super::merge::Merge;
use crate::limits::LABEL_BYTES_MAX;

/// Figures by name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ByName<V> {
    limit: usize,
    /// Names and figures by the hash of the name. Two names of one hash would be one; nothing but the
    /// report of these would be wrong.
    rows: BTreeMap<u128, (Box<str>, V)>,
    /// Sum of the names without figures of their own.
    others: V,
    has_others: bool,
}

/// Returns the first bytes of a name that is longer than a name can be.
fn cut(name: &str) -> &str {
    let mut end = name.len().min(LABEL_BYTES_MAX);
    while !name.is_char_boundary(end) {
        end -= 1;
    }
    &name[..end]
}

impl<V: Merge> ByName<V> {
    pub(crate) fn new(limit: usize) -> Self {
        ByName { limit: limit.max(1), rows: BTreeMap::new(), others: V::default(), has_others: false }
    }

    /// Returns the figures of a name, or those of all that have none of their own.
    pub(crate) fn at(&mut self, name: &str) -> &mut V {
        let name = cut(name);
        let key = xxh3_128(name.as_bytes());
        let is_known = self.rows.contains_key(&key);
        if !is_known && self.rows.len() >= self.limit {
            self.has_others = true;
            if self.rows.last_key_value().is_some_and(|(last, _)| *last < key) {
                return &mut self.others;
            }
            if let Some((_, (_, gone))) = self.rows.pop_last() {
                self.others.merge(&gone);
            }
        }
        &mut self.rows.entry(key).or_insert_with(|| (name.into(), V::default())).1
    }

    /// Adds the figures of another.
    pub(crate) fn merge(&mut self, other: &ByName<V>) {
        for (name, figures) in other.rows.values() {
            self.at(name).merge(figures);
        }
        self.others.merge(&other.others);
        self.has_others |= other.has_others;
    }

    /// Returns the names and their figures, in an order that depends on the names only.
    pub(crate) fn rows(&self) -> impl Iterator<Item = (&str, &V)> {
        self.rows.values().map(|(name, figures)| (&**name, figures))
    }

    /// Returns the sum of the names without figures of their own; none if each has its own.
    pub(crate) fn others(&self) -> Option<&V> {
        self.has_others.then_some(&self.others)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Property: any order and any split of the same additions gives the same figures; a name has all of
    /// its figures or none; the sum over everything is exact.
    #[test]
    fn figures_of_too_many_names_do_not_depend_on_order_or_split() {
        for seed in 0..50 {
            let mut random = fastrand::Rng::with_seed(seed);
            let mut adds: Vec<(String, u64)> =
                (0..200).map(|_| (format!("n{}", random.u32(..40)), random.u64(..100))).collect();
            let sum_of =
                |name: &str| adds.iter().filter(|(of, _)| of == name).map(|(_, add)| add).sum::<u64>();
            let add_all = |adds: &[(String, u64)]| {
                let mut names = ByName::<u64>::new(7);
                adds.iter().for_each(|(name, add)| *names.at(name) += add);
                names
            };
            let one = add_all(&adds);
            assert_eq!(one.rows().count(), 7);
            for (name, sum) in one.rows() {
                assert_eq!(*sum, sum_of(name), "seed {seed}");
            }
            let total: u64 = adds.iter().map(|(_, add)| add).sum();
            assert_eq!(one.rows().map(|(_, sum)| sum).sum::<u64>() + one.others().unwrap(), total);
            random.shuffle(&mut adds);
            let (left, right) = adds.split_at(random.usize(..200));
            let mut merged = add_all(left);
            merged.merge(&add_all(right));
            assert_eq!(merged, one, "seed {seed}");
        }
    }

    /// Property: at the limit each name has its own figures, one above it one name has not.
    #[test]
    fn limit_of_names_holds_at_its_edge() {
        let mut names = ByName::<u64>::new(3);
        for name in ["a", "b", "c", "a"] {
            *names.at(name) += 1;
        }
        assert_eq!((names.rows().count(), names.others()), (3, None));
        *names.at("d") += 1;
        assert_eq!(names.rows().count(), 3);
        assert!(names.others().is_some_and(|others| *others > 0));
    }

    #[test]
    fn long_names_are_cut_at_a_letter() {
        let mut names = ByName::<u64>::new(3);
        let name = format!("{}é", "x".repeat(LABEL_BYTES_MAX - 1));
        *names.at(&name) += 1;
        *names.at(&"x".repeat(LABEL_BYTES_MAX - 1)) += 1;
        *names.at(&"x".repeat(LABEL_BYTES_MAX)) += 1;
        let mut lengths: Vec<usize> = names.rows().map(|(name, _)| name.len()).collect();
        lengths.sort_unstable();
        assert_eq!(lengths, [LABEL_BYTES_MAX - 1, LABEL_BYTES_MAX]);
    }
}
