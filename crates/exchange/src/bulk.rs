//! Loading in bulk: what a catalogue that is opened in this process can do for the plain files of a listing.
//!
//! Files are taken as the listing is read, and loaded when it is; what turns out not to be plain then is read a second
//! time and asked for in the ordinary way, as it would have been at first.

use std::future::Future;

use exacat_model::Error;
use exacat_model::operation::NewFile;

/// Takes files, and loads them.
pub trait Bulk: Send + Sync + 'static {
    /// Takes those of `files` at the places `which`, to be loaded; each is known by its line. Gives for each whether it was
    /// taken; what is not must be asked for. Directories that are missing are made.
    fn take(
        &self,
        files: &[NewFile],
        which: &[(usize, u64)],
    ) -> impl Future<Output = Result<Vec<bool>, Error>> + Send;

    /// Loads what was taken; gives how many files were made. `left` is told the lines of the others, about which nothing was
    /// done.
    fn load(&self, left: impl FnMut(u64) + Send + 'static)
    -> impl Future<Output = Result<u64, Error>> + Send;
}

/// Takes nothing: everything goes the ordinary way.
#[derive(Clone, Copy, Debug)]
pub struct OneByOne;

impl Bulk for OneByOne {
    async fn take(&self, _: &[NewFile], which: &[(usize, u64)]) -> Result<Vec<bool>, Error> {
        Ok(vec![false; which.len()])
    }

    async fn load(&self, _: impl FnMut(u64) + Send + 'static) -> Result<u64, Error> {
        Ok(0)
    }
}

/// A set of lines: a bit for each line up to the last of them.
#[derive(Clone, Debug, Default)]
pub(crate) struct Lines {
    bits: Vec<u64>,
    count: u64,
}

impl Lines {
    pub fn insert(&mut self, line: u64) {
        let (word, bit) = ((line / 64) as usize, 1 << (line % 64));
        if self.bits.len() <= word {
            self.bits.resize(word + 1, 0);
        }
        self.count += u64::from(self.bits[word] & bit == 0);
        self.bits[word] |= bit;
    }

    pub fn contains(&self, line: u64) -> bool {
        self.bits.get((line / 64) as usize).is_some_and(|word| word & 1 << (line % 64) != 0)
    }

    pub fn is_empty(&self) -> bool {
        self.count == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_a_set() {
        let mut lines = Lines::default();
        assert!(lines.is_empty() && !lines.contains(0) && !lines.contains(u64::MAX));
        for line in [1, 63, 64, 1000, 64] {
            lines.insert(line);
        }
        assert_eq!((0..2000).filter(|line| lines.contains(*line)).collect::<Vec<_>>(), [1, 63, 64, 1000]);
        assert_eq!(lines.count, 4);
    }
}
