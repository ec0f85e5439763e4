//! Map with a bound: when it is full, the older half is forgotten.

use std::hash::Hash;

use hashbrown::HashMap;

/// Map of two generations.
#[derive(Debug)]
pub(super) struct Generations<K, V> {
    young: HashMap<K, V>,
    old: HashMap<K, V>,
    most: usize,
}

impl<K: Hash + Eq, V> Generations<K, V> {
    pub(super) fn new(most: usize) -> Self {
        Generations { young: HashMap::new(), old: HashMap::new(), most }
    }

    /// Inserts a value. Returns the number of those that are forgotten for it.
    pub(super) fn insert(&mut self, key: K, value: V) -> usize {
        self.old.remove(&key);
        self.young.insert(key, value);
        if self.young.len() * 2 < self.most {
            return 0;
        }
        let forgotten = std::mem::replace(&mut self.old, std::mem::take(&mut self.young));
        forgotten.len()
    }

    pub(super) fn get(&self, key: &K) -> Option<&V> {
        self.young.get(key).or_else(|| self.old.get(key))
    }

    pub(super) fn remove(&mut self, key: &K) -> Option<V> {
        self.young.remove(key).or_else(|| self.old.remove(key))
    }

    /// Returns the number of values.
    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.young.len() + self.old.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Property: there are never more values than the bound, the latest ones are there, and the others are
    /// counted.
    #[test]
    fn the_oldest_are_forgotten_and_counted() {
        let mut map = Generations::new(10);
        let mut forgotten = 0;
        for number in 0..1000 {
            forgotten += map.insert(number, number);
            assert!(map.len() <= 10 && map.len() + forgotten == number + 1);
            assert_eq!(
                (map.get(&number), map.get(&number.saturating_sub(4)).is_some()),
                (Some(&number), true)
            );
        }
        assert_eq!((map.remove(&999), map.remove(&999), map.get(&0)), (Some(999), None, None));
        assert_eq!(map.insert(998, 1), 0);
        assert_eq!((map.remove(&998), map.get(&998)), (Some(1), None));
    }
}
