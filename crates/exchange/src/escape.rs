//! Two reversible escapes of exported text: of a field in a TSV row, and of an item in a list in a
//! field.
//!
//! A TSV field writes tab, line feed, carriage return and backslash as `\t`, `\n`, `\r` and `\\`. A
//! list (of replicas, checksums, tags) puts a backslash before each `|`, `;` and backslash inside
//! an item. They nest: the list is escaped first. Listings that are no exports are read without
//! either, because a backslash in them is only a backslash.

use std::borrow::Cow;

/// Appends `text` as a TSV field.
pub fn push_field(out: &mut Vec<u8>, text: &str) {
    let mut rest = text.as_bytes();
    // Nearly no field has one. Checking all bytes without an early exit lets the compiler check
    // many at a time.
    if !rest.iter().fold(false, |found, byte| found | (*byte < b' ') | (*byte == b'\\')) {
        return out.extend_from_slice(rest);
    }
    while let Some(at) = rest.iter().position(|byte| matches!(byte, b'\t' | b'\n' | b'\r' | b'\\')) {
        out.extend_from_slice(&rest[..at]);
        out.extend_from_slice(match rest[at] {
            b'\t' => b"\\t",
            b'\n' => b"\\n",
            b'\r' => b"\\r",
            _ => b"\\\\",
        });
        rest = &rest[at + 1..];
    }
    out.extend_from_slice(rest);
}

/// Reads a TSV field back; the reason if [`push_field`] did not write it.
pub fn read_field(field: &str) -> Result<Cow<'_, str>, &'static str> {
    if !field.contains('\\') {
        return Ok(Cow::Borrowed(field));
    }
    let mut text = String::with_capacity(field.len());
    let mut characters = field.chars();
    while let Some(character) = characters.next() {
        if character != '\\' {
            text.push(character);
            continue;
        }
        text.push(match characters.next() {
            Some('t') => '\t',
            Some('n') => '\n',
            Some('r') => '\r',
            Some('\\') => '\\',
            _ => return Err("a backslash is followed by none of t, n, r and backslash"),
        });
    }
    Ok(Cow::Owned(text))
}

/// Escapes the text from `begun` on as one item of a list.
pub(crate) fn escape_item(out: &mut String, begun: usize) {
    let special = |character| matches!(character, '|' | ';' | '\\');
    let bytes = &out.as_bytes()[begun..];
    if !bytes.iter().fold(false, |found, byte| found | special(char::from(*byte))) {
        return;
    }
    let item = out.split_off(begun);
    for character in item.chars() {
        if special(character) {
            out.push('\\');
        }
        out.push(character);
    }
}

/// Splits a list at `separators`. With `escapes`, a backslash makes the character after it literal;
/// without, it is an ordinary character. Empty items are left out.
pub fn items<'a>(list: &'a str, separators: &[char], escapes: bool) -> Vec<Cow<'a, str>> {
    if !escapes || !list.contains('\\') {
        return list.split(separators).filter(|item| !item.is_empty()).map(Cow::Borrowed).collect();
    }
    let mut found = Vec::new();
    let mut item = String::new();
    let mut characters = list.chars();
    while let Some(character) = characters.next() {
        if character == '\\' {
            item.extend(characters.next());
        } else if separators.contains(&character) {
            found.push(Cow::Owned(std::mem::take(&mut item)));
        } else {
            item.push(character);
        }
    }
    found.push(Cow::Owned(item));
    found.retain(|item: &Cow<'_, str>| !item.is_empty());
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    const ODD: [&str; 8] = ["", "plain", "a\tb\nc\rd", "\\", "\\\\t", "x|y;z\\", "żółć % ?;=&", "\\n|"];

    #[test]
    fn fields_read_back_as_they_were() {
        for text in ODD {
            let mut out = Vec::new();
            push_field(&mut out, text);
            assert!(!out.contains(&b'\t') && !out.contains(&b'\n') && !out.contains(&b'\r'));
            assert_eq!(read_field(std::str::from_utf8(&out).unwrap()).unwrap(), text);
        }
        for bad in ["\\", "a\\x", "a\\\\\\"] {
            assert!(read_field(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn lists_read_back_as_they_were() {
        let mut list = String::new();
        for text in ODD.iter().filter(|text| !text.is_empty()) {
            if !list.is_empty() {
                list.push('|');
            }
            let begun = list.len();
            list.push_str(text);
            escape_item(&mut list, begun);
        }
        let read = items(&list, &['|'], true);
        assert_eq!(read, ODD.iter().copied().filter(|text| !text.is_empty()).collect::<Vec<_>>());
        assert_eq!(items("a\\|b||c", &['|'], false), ["a\\", "b", "c"]);
        assert_eq!(items("a,b|c", &['|', ','], false), ["a", "b", "c"]);
        assert!(items("", &['|'], true).is_empty());
    }
}
