//! Encoded answers of one kind, in one buffer.

use exacat_model::codec::Encode;

/// Encoded answers of one kind, one after the other.
#[derive(Debug, Default)]
pub(crate) struct EncodedItems {
    /// The canonical bytes.
    pub bytes: Vec<u8>,
    /// End of each answer in `bytes`.
    pub ends: Vec<usize>,
}

impl EncodedItems {
    /// Appends an answer.
    pub(crate) fn push(&mut self, item: &impl Encode) {
        item.encode(&mut self.bytes);
        self.ends.push(self.bytes.len());
    }
}
