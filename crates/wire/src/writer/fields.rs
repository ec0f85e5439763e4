//! Epochs in messages.

use exacat_model::codec::{Decode, DecodeError, Reader};

/// Reads an epoch, which is never 0.
pub(super) fn epoch(reader: &mut Reader<'_>) -> Result<u32, DecodeError> {
    match u32::decode(reader)? {
        0 => Err(reader.error("an epoch is at least 1")),
        epoch => Ok(epoch),
    }
}
