//! Bulk load of a listing's plain files into a catalogue opened in this process.
//!
//! The import collects files as it reads the listing, and loads them at the end. Files that then
//! prove not to be plain are read a second time and registered the ordinary way. The result is the
//! same as if that had been done at first.

use std::future::Future;

use exacat_model::Error;
use exacat_model::operation::NewFile;

/// Collects files, and loads them.
pub trait Bulk: Send + Sync + 'static {
    /// Takes the files at the indices in `which`, each with its line, for the load. Returns for
    /// each whether it was taken; the caller must register the others. Makes missing directories.
    fn take(
        &self,
        files: &[NewFile],
        which: &[(usize, u64)],
    ) -> impl Future<Output = Result<Vec<bool>, Error>> + Send;

    /// Loads the taken files; returns the number of files created. Calls `left` with the lines of
    /// the others, which it left alone.
    fn load(&self, left: impl FnMut(u64) + Send + 'static)
    -> impl Future<Output = Result<u64, Error>> + Send;
}

/// A bulk load that takes nothing: all files go the ordinary way.
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

/// A set of lines: one bit for each line up to the last of them.
#[derive(Clone, Debug, Default)]
pub(crate) struct Lines {
    bits: Vec<u64>,
    count: u64,
}

impl Lines {
    pub(crate) fn insert(&mut self, line: u64) {
        let (word, bit) = ((line / 64) as usize, 1 << (line % 64));
        if self.bits.len() <= word {
            self.bits.resize(word + 1, 0);
        }
        self.count += u64::from(self.bits[word] & bit == 0);
        self.bits[word] |= bit;
    }

    pub(crate) fn contains(&self, line: u64) -> bool {
        self.bits.get((line / 64) as usize).is_some_and(|word| word & 1 << (line % 64) != 0)
    }

    pub(crate) fn is_empty(&self) -> bool {
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
