//! A list that grows without moving what it has: a million entries at new places would hold up writers.

/// Entries of a piece.
const PIECE: usize = 8192;

/// Entries by number, in pieces.
#[derive(Clone, Debug)]
pub(crate) struct Pieces<T> {
    pieces: Vec<Vec<T>>,
    length: usize,
}

impl<T> Default for Pieces<T> {
    fn default() -> Self {
        Pieces { pieces: Vec::new(), length: 0 }
    }
}

impl<T: Default> Pieces<T> {
    /// Returns the number of entries.
    pub(crate) fn len(&self) -> usize {
        self.length
    }

    /// Returns an entry.
    pub(crate) fn get(&self, at: usize) -> Option<&T> {
        self.pieces.get(at / PIECE)?.get(at % PIECE).filter(|_| at < self.length)
    }

    /// Returns an entry, after entries up to it were added.
    pub(crate) fn reach(&mut self, at: usize) -> &mut T {
        while self.pieces.len() <= at / PIECE {
            self.pieces.push(std::iter::repeat_with(T::default).take(PIECE).collect());
        }
        self.length = self.length.max(at + 1);
        &mut self.pieces[at / PIECE][at % PIECE]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Entries are those of a plain list, also at the ends of pieces.
    #[test]
    fn entries_are_those_of_a_list() {
        let mut pieces = Pieces::<u32>::default();
        assert_eq!((pieces.len(), pieces.get(0)), (0, None));
        for at in [0, PIECE - 1, PIECE, 3 * PIECE + 1, 5] {
            *pieces.reach(at) = at as u32 + 1;
        }
        assert_eq!(pieces.len(), 3 * PIECE + 2);
        assert_eq!(pieces.get(3 * PIECE + 2), None);
        let set: Vec<usize> = (0..pieces.len()).filter(|at| *pieces.get(*at).unwrap() != 0).collect();
        assert_eq!(set, [0, 5, PIECE - 1, PIECE, 3 * PIECE + 1]);
    }
}
