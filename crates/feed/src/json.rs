//! Writes JSON text into a buffer, without values in between.

use std::io::Write as _;

use exacat_model::{EntryId, TimeMs};

/// Adds text with the characters escaped that JSON does not permit, without quotes around it.
pub(crate) fn put_escaped(out: &mut Vec<u8>, text: &str) {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let bytes = text.as_bytes();
    let is_plain = |byte: &u8| *byte >= b' ' && *byte != b'"' && *byte != b'\\';
    if bytes.iter().all(is_plain) {
        return out.extend_from_slice(bytes);
    }
    for byte in bytes {
        match byte {
            b'"' | b'\\' => out.extend_from_slice(&[b'\\', *byte]),
            0..b' ' => {
                out.extend_from_slice(b"\\u00");
                let digit = |value: u8| DIGITS.get(usize::from(value)).copied().unwrap_or(b'0');
                out.extend_from_slice(&[digit(byte >> 4), digit(byte & 15)]);
            }
            _ => out.push(*byte),
        }
    }
}

/// Adds text in quotes.
pub(crate) fn put_text(out: &mut Vec<u8>, text: &str) {
    out.push(b'"');
    put_escaped(out, text);
    out.push(b'"');
}

/// Adds a whole number.
pub(crate) fn put_number(out: &mut Vec<u8>, mut number: u64) {
    let mut digits = [0u8; 20];
    let mut at = digits.len();
    loop {
        at -= 1;
        if let Some(digit) = digits.get_mut(at) {
            *digit = b'0' + (number % 10) as u8;
        }
        number /= 10;
        if number == 0 {
            break;
        }
    }
    out.extend_from_slice(digits.get(at..).unwrap_or_default());
}

/// Adds the text of a value, which has nothing to escape, in quotes.
pub(crate) fn put_shown(out: &mut Vec<u8>, value: impl std::fmt::Display) {
    out.push(b'"');
    put_bare(out, value);
    out.push(b'"');
}

/// Adds the text of a value, without quotes around it.
pub(crate) fn put_bare(out: &mut Vec<u8>, value: impl std::fmt::Display) {
    // Writing to memory does not fail.
    let _ = write!(out, "{value}");
}

/// Adds the identity of an entry in quotes: a GUID, or `directory:N`.
pub(crate) fn put_entry(out: &mut Vec<u8>, id: EntryId) {
    out.push(b'"');
    put_entry_bare(out, id);
    out.push(b'"');
}

/// Adds the identity of an entry, without quotes around it.
pub(crate) fn put_entry_bare(out: &mut Vec<u8>, id: EntryId) {
    match id {
        EntryId::Directory(id) => {
            out.extend_from_slice(b"directory:");
            put_number(out, id.0);
        }
        EntryId::Object(guid) => put_bare(out, guid),
    }
}

/// The text of the last time written: most events of a batch have few different ones.
#[derive(Debug, Default)]
pub(crate) struct TimeText {
    time: Option<TimeMs>,
    text: Vec<u8>,
}

impl TimeText {
    /// Adds a time in quotes.
    pub(crate) fn put(&mut self, out: &mut Vec<u8>, time: TimeMs) {
        if self.time != Some(time) {
            self.text.clear();
            put_shown(&mut self.text, time);
            self.time = Some(time);
        }
        out.extend_from_slice(&self.text);
    }
}

/// Writes the fields of an object: the commas between them.
pub(crate) struct Fields {
    is_first: bool,
}

impl Fields {
    /// Opens an object.
    pub(crate) fn open(out: &mut Vec<u8>) -> Self {
        out.push(b'{');
        Fields { is_first: true }
    }

    /// Adds a name, which has nothing to escape.
    pub(crate) fn name(&mut self, out: &mut Vec<u8>, name: &str) {
        if !std::mem::take(&mut self.is_first) {
            out.push(b',');
        }
        out.push(b'"');
        out.extend_from_slice(name.as_bytes());
        out.extend_from_slice(b"\":");
    }

    /// Closes the object.
    pub(crate) fn close(self, out: &mut Vec<u8>) {
        out.push(b'}');
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Property: each character comes back from a JSON parser, and no line break is left in a line.
    #[test]
    fn text_of_any_characters_is_read_back() {
        for character in (0..=0x2100).filter_map(char::from_u32) {
            let text = format!("a{character}b");
            let mut out = Vec::new();
            put_text(&mut out, &text);
            assert!(!out.contains(&b'\n'));
            assert_eq!(serde_json::from_slice::<String>(&out).unwrap(), text);
        }
    }

    #[test]
    fn numbers_are_written_to_their_last_digit() {
        for number in [0, 9, 10, 12_345, u64::MAX] {
            let mut out = Vec::new();
            put_number(&mut out, number);
            assert_eq!(String::from_utf8(out).unwrap(), number.to_string());
        }
    }

    #[test]
    fn time_is_written_again_when_it_changes() {
        let (mut times, mut out) = (TimeText::default(), Vec::new());
        for ms in [0, 0, 1500] {
            times.put(&mut out, TimeMs(ms));
        }
        let zero = format!("\"{}\"", TimeMs(0));
        assert_eq!(String::from_utf8(out).unwrap(), format!("{zero}{zero}\"{}\"", TimeMs(1500)));
    }
}
