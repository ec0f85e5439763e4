//! Pieces of a bulk load, on their way to the compactor.

use exacat_model::{Revision, TimeMs};

use super::row::Placed;
use crate::state::Frozen;

/// Message to the compactor.
pub(crate) enum Piece {
    /// Rows in the order of their keys; each has the revision u64, the time u64, and the packed
    /// file.
    Rows(Vec<u8>),
    /// Memory-only state that completes the run.
    End(Box<Frozen>),
}

/// Iterates over the rows of a piece.
pub(crate) fn rows_of(mut block: &[u8]) -> impl Iterator<Item = (Revision, TimeMs, Placed<'_>)> {
    std::iter::from_fn(move || {
        let (head, rest) = block.split_first_chunk::<16>()?;
        let [a, b, c, d, e, f, g, h, time @ ..] = *head;
        let placed = Placed::read(rest)?;
        block = &rest[placed.bytes.len()..];
        let revision = Revision(u64::from_le_bytes([a, b, c, d, e, f, g, h]));
        Some((revision, TimeMs(u64::from_le_bytes(time)), placed))
    })
}
