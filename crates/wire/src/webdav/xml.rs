//! Characters and names of XML 1.0, and the escaping of text.

/// Namespace of the prefix `xml`, which no document needs to declare.
pub(super) const XML_NAMESPACE: &str = "http://www.w3.org/XML/1998/namespace";
/// Namespace of declarations; nothing else may have it.
pub(super) const XMLNS_NAMESPACE: &str = "http://www.w3.org/2000/xmlns/";

/// Start of every document that the server writes.
pub(super) const DECLARATION: &[u8] = b"<?xml version=\"1.0\" encoding=\"utf-8\"?>\n";

/// Says whether XML 1.0 allows a character in a document.
pub(super) fn is_char(letter: char) -> bool {
    matches!(letter, '\t' | '\n' | '\r' | ' '..='\u{D7FF}' | '\u{E000}'..='\u{FFFD}' | '\u{10000}'..)
}

/// Says whether a byte is white space of XML.
pub(super) fn is_blank(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t' | b'\n' | b'\r')
}

fn begins_name(letter: char) -> bool {
    matches!(letter, 'A'..='Z' | '_' | 'a'..='z'
        | '\u{C0}'..='\u{D6}' | '\u{D8}'..='\u{F6}' | '\u{F8}'..='\u{2FF}' | '\u{370}'..='\u{37D}'
        | '\u{37F}'..='\u{1FFF}' | '\u{200C}'..='\u{200D}' | '\u{2070}'..='\u{218F}'
        | '\u{2C00}'..='\u{2FEF}' | '\u{3001}'..='\u{D7FF}' | '\u{F900}'..='\u{FDCF}'
        | '\u{FDF0}'..='\u{FFFD}' | '\u{10000}'..='\u{EFFFF}')
}

fn continues_name(letter: char) -> bool {
    begins_name(letter)
        || matches!(letter, '-' | '.' | '0'..='9' | '\u{B7}' | '\u{300}'..='\u{36F}'
            | '\u{203F}'..='\u{2040}')
}

/// Says whether a text is a name without a colon, as prefixes and local names are.
pub(super) fn is_name(text: &str) -> bool {
    text.chars().next().is_some_and(begins_name) && text.chars().all(continues_name)
}

/// Bytes that need attention in text. `EF` begins the two characters at the end of the first plane
/// that XML forbids.
const SPECIAL: [bool; 256] = {
    let mut table = [false; 256];
    let mut byte = 0;
    while byte < 0x20 {
        table[byte] = true;
        byte += 1;
    }
    table[b'&' as usize] = true;
    table[b'<' as usize] = true;
    table[b'>' as usize] = true;
    table[b'"' as usize] = true;
    table[0xEF] = true;
    table
};

/// Bytes of the replacement character U+FFFD.
const REPLACEMENT: &[u8] = "\u{FFFD}".as_bytes();

/// Appends text as the content of an element. Replaces characters that XML forbids by U+FFFD.
pub(super) fn push_text(out: &mut Vec<u8>, text: &str) {
    push_escaped(out, text, false);
}

/// Appends text as the value of an attribute in double quotes, as [`push_text`] does.
pub(super) fn push_attribute(out: &mut Vec<u8>, text: &str) {
    push_escaped(out, text, true);
}

fn push_escaped(out: &mut Vec<u8>, text: &str, is_attribute: bool) {
    let mut rest = text.as_bytes();
    while let Some(at) = rest.iter().position(|byte| SPECIAL[usize::from(*byte)]) {
        let (plain, behind) = rest.split_at(at);
        out.extend_from_slice(plain);
        let (replacement, taken): (&[u8], usize) = match behind {
            [b'&', ..] => (b"&amp;", 1),
            [b'<', ..] => (b"&lt;", 1),
            [b'>', ..] => (b"&gt;", 1),
            [b'"', ..] if is_attribute => (b"&quot;", 1),
            // Readers turn unescaped line ends into `\n`, and white space in attributes into blanks.
            [b'\r', ..] => (b"&#13;", 1),
            [b'\n', ..] if is_attribute => (b"&#10;", 1),
            [b'\t', ..] if is_attribute => (b"&#9;", 1),
            [same @ (b'"' | b'\n' | b'\t'), ..] => (std::slice::from_ref(same), 1),
            [0xEF, 0xBF, 0xBE | 0xBF, ..] => (REPLACEMENT, 3),
            [same @ 0xEF, ..] => (std::slice::from_ref(same), 1),
            _ => (REPLACEMENT, 1),
        };
        out.extend_from_slice(replacement);
        rest = behind.get(taken..).unwrap_or_default();
    }
    out.extend_from_slice(rest);
}

/// Appends a number in decimal.
pub(super) fn push_number(out: &mut Vec<u8>, number: u64) {
    let mut digits = [0; 20];
    let mut left = number;
    let mut count = 0;
    for digit in digits.iter_mut().rev() {
        *digit = b'0' + (left % 10) as u8;
        left /= 10;
        count += 1;
        if left == 0 {
            break;
        }
    }
    out.extend_from_slice(&digits[digits.len() - count..]);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(raw: &str) -> String {
        let mut out = Vec::new();
        push_text(&mut out, raw);
        String::from_utf8(out).unwrap()
    }

    fn attribute(raw: &str) -> String {
        let mut out = Vec::new();
        push_attribute(&mut out, raw);
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn special_characters_are_escaped_and_forbidden_ones_replaced() {
        assert_eq!(text("a<b>&\"'\t\n\r"), "a&lt;b&gt;&amp;\"'\t\n&#13;");
        assert_eq!(attribute("a<b>&\"'\t\n\r"), "a&lt;b&gt;&amp;&quot;'&#9;&#10;&#13;");
        for text in [text as fn(&str) -> String, attribute] {
            assert_eq!(text("\0a\u{1}\u{1F}b\u{FFFE}\u{FFFF}"), "\u{FFFD}a\u{FFFD}\u{FFFD}b\u{FFFD}\u{FFFD}");
            let kept = "\u{7F}\u{85}\u{2028}\u{202E}\u{F000}\u{FEFF}\u{FFFD}\u{10FFFF}żółć";
            assert_eq!(text(kept), kept);
            assert_eq!(text(""), "");
        }
    }

    /// Goal: the table of bytes and the rule for characters agree on every character.
    #[test]
    fn every_character_is_written_as_one_that_xml_allows() {
        for letter in (0..=0x10FFFF).filter_map(char::from_u32) {
            let written = text(&letter.to_string());
            assert!(written.chars().all(is_char), "{letter:?}");
            assert_eq!(written == "\u{FFFD}", !is_char(letter) || letter == '\u{FFFD}', "{letter:?}");
        }
    }

    #[test]
    fn names_begin_with_a_letter_and_have_no_colon() {
        for good in ["a", "_", "a-b.c", "prop0", "żółć", "名前", "a\u{301}"] {
            assert!(is_name(good), "{good}");
        }
        for bad in ["", "0", "-a", ".a", "a:b", ":a", "a b", "a/", "a\u{D7}", "\u{301}a", "a<"] {
            assert!(!is_name(bad), "{bad}");
        }
    }

    #[test]
    fn numbers_print_in_decimal() {
        for number in [0, 7, 10, 1_234_567_890, u64::MAX] {
            let mut out = Vec::new();
            push_number(&mut out, number);
            assert_eq!(out, number.to_string().into_bytes());
        }
    }
}
