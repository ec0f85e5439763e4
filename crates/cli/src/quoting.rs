//! Names and messages as text for a terminal and for a shell.

use std::fmt::{self, Write as _};

/// Text with control characters escaped, if `escape`.
#[derive(Clone, Copy)]
pub(crate) struct Shown<'a> {
    /// The text.
    pub text: &'a str,
    /// True on a terminal.
    pub escape: bool,
}

impl fmt::Display for Shown<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.escape || !self.text.contains(deceives) {
            return f.write_str(self.text);
        }
        for character in self.text.chars() {
            if deceives(character) {
                write!(f, "{}", character.escape_default())?;
            } else {
                f.write_char(character)?;
            }
        }
        Ok(())
    }
}

/// Says whether a terminal may not show this character: control characters, and those that turn the
/// direction of writing.
fn deceives(character: char) -> bool {
    character.is_control()
        || matches!(character, '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
        || matches!(character, '\u{2028}' | '\u{2029}')
}

/// Formats text for an error message: control characters escaped, whatever standard error is.
pub(crate) fn harmless(text: &str) -> Shown<'_> {
    Shown { text, escape: true }
}

/// Formats a name as a shell reads it back, for error messages: bare if it is plain, otherwise
/// quoted.
pub(crate) fn quoted(text: &str) -> String {
    let plain = |c: char| {
        c.is_ascii_alphanumeric() || "/._-+:@%,=".contains(c) || (!c.is_ascii() && c.is_alphanumeric())
    };
    if !text.is_empty() && text.chars().all(plain) {
        return text.to_owned();
    }
    if !text.contains(deceives) {
        return format!("'{}'", text.replace('\'', "'\\''"));
    }
    let mut quoted = String::from("$'");
    for character in text.chars() {
        match character {
            '\'' => quoted.push_str("\\'"),
            '\\' => quoted.push_str("\\\\"),
            '\n' => quoted.push_str("\\n"),
            '\t' => quoted.push_str("\\t"),
            other if deceives(other) => {
                let mut bytes = [0; 4];
                for byte in other.encode_utf8(&mut bytes).bytes() {
                    let _ = write!(quoted, "\\x{byte:02x}");
                }
            }
            other => quoted.push(other),
        }
    }
    quoted.push('\'');
    quoted
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_harmless_on_a_terminal() {
        let shown = |text| Shown { text, escape: true }.to_string();
        assert_eq!(shown("/a b/ż"), "/a b/ż");
        assert_eq!(shown("/a\nb\x1b[31m"), "/a\\nb\\u{1b}[31m");
        assert_eq!(shown("x\u{202e}y"), "x\\u{202e}y");
        assert_eq!(Shown { text: "a\nb", escape: false }.to_string(), "a\nb");
    }

    #[test]
    fn quoted_names_can_be_pasted_into_a_shell() {
        assert_eq!(quoted("/plain/x-1.root"), "/plain/x-1.root");
        assert_eq!(quoted("/żółć"), "/żółć");
        assert_eq!(quoted("/a b"), "'/a b'");
        assert_eq!(quoted("/it's"), "'/it'\\''s'");
        assert_eq!(quoted("/a\nb'\\"), "$'/a\\nb\\'\\\\'");
        assert_eq!(quoted("/\u{1b}"), "$'/\\x1b'");
        assert_eq!(quoted(""), "''");
        assert_eq!(quoted("/x?C=D;O=A"), "'/x?C=D;O=A'");
    }
}
