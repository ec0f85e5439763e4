//! Fields of messages with bounds: texts and lists.

use exacat_model::codec::{Decode, DecodeError, Reader};

/// Reads a text of at most `bytes_max` bytes.
pub(crate) fn text(
    reader: &mut Reader<'_>,
    bytes_max: usize,
    reason: &'static str,
) -> Result<String, DecodeError> {
    let text = reader.text()?;
    if text.len() > bytes_max { Err(reader.error(reason)) } else { Ok(text.to_owned()) }
}

/// Reads a list of at most `items_max` items.
pub(crate) fn list<T: Decode>(
    reader: &mut Reader<'_>,
    items_max: usize,
    reason: &'static str,
) -> Result<Vec<T>, DecodeError> {
    let count = reader.length()?;
    if count > items_max {
        return Err(reader.error(reason));
    }
    (0..count).map(|_| T::decode(reader)).collect()
}

/// Returns the longest start of `text` that has at most `bytes_max` bytes and ends between
/// characters.
pub(crate) fn clipped(text: &str, bytes_max: usize) -> &str {
    &text[..text.floor_char_boundary(bytes_max)]
}
