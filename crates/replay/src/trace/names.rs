//! Names, each stored once: a trace has millions of accesses to fewer files.

use hashbrown::HashTable;
use xxhash_rust::xxh3::xxh3_64;

/// Names by numbers, and numbers by names.
#[derive(Default)]
pub struct Names {
    bytes: String,
    /// End of each name.
    ends: Vec<usize>,
    numbers: HashTable<u32>,
}

impl Names {
    /// Returns the number of a name, which is added if it is new. The second value says whether it is.
    pub fn add(&mut self, name: &str) -> (u32, bool) {
        let Names { bytes, ends, numbers } = self;
        let text = |number: u32| text_of(bytes, ends, number);
        if let Some(known) = numbers.find(xxh3_64(name.as_bytes()), |number| text(*number) == name) {
            return (*known, false);
        }
        let number = u32::try_from(ends.len()).unwrap_or(u32::MAX);
        bytes.push_str(name);
        ends.push(bytes.len());
        let (bytes, ends) = (&*bytes, &*ends);
        let hash = |number: &u32| xxh3_64(text_of(bytes, ends, *number).as_bytes());
        numbers.insert_unique(xxh3_64(name.as_bytes()), number, hash);
        (number, true)
    }

    /// Returns the number of a name; none if it was never added.
    pub fn find(&self, name: &str) -> Option<u32> {
        let is_it = |number: &u32| self.get(*number) == name;
        self.numbers.find(xxh3_64(name.as_bytes()), is_it).copied()
    }

    /// Returns a name; empty if there is none of this number.
    pub fn get(&self, number: u32) -> &str {
        text_of(&self.bytes, &self.ends, number)
    }

    /// Returns the number of names.
    pub fn len(&self) -> usize {
        self.ends.len()
    }

    /// Says whether there are none.
    pub fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }
}

fn text_of<'a>(bytes: &'a str, ends: &[usize], number: u32) -> &'a str {
    let at = number as usize;
    let begin = at.checked_sub(1).and_then(|before| ends.get(before)).copied().unwrap_or(0);
    ends.get(at).and_then(|end| bytes.get(begin..*end)).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_name_has_one_number() {
        let mut names = Names::default();
        let all: Vec<String> =
            (0..2000).map(|number| "/x".repeat(number % 40) + &number.to_string()).collect();
        for (number, name) in all.iter().enumerate() {
            assert_eq!(names.add(name), (number as u32, true));
        }
        for (number, name) in all.iter().enumerate() {
            assert_eq!(names.add(name), (number as u32, false));
            assert_eq!((names.get(number as u32), names.find(name)), (name.as_str(), Some(number as u32)));
        }
        assert_eq!((names.len(), names.get(2000), names.find("/y")), (2000, "", None));
    }
}
