//! JSON text as the clients of InfluxDB know it: on one line, or indented by four blanks.

use std::io::Write as _;

/// Blanks of one level.
const INDENT: &[u8] = b"    ";

/// Writes JSON text. The caller keeps the order of calls; nothing checks it.
#[derive(Debug)]
pub(super) struct Layout {
    pub(super) out: Vec<u8>,
    is_pretty: bool,
    depth: usize,
    is_first: bool,
}

impl Layout {
    pub(super) fn new(is_pretty: bool) -> Self {
        Layout { out: Vec::new(), is_pretty, depth: 0, is_first: true }
    }

    fn new_line(&mut self) {
        if self.is_pretty {
            self.out.push(b'\n');
            for _ in 0..self.depth {
                self.out.extend_from_slice(INDENT);
            }
        }
    }

    /// Opens a list or an object.
    pub(super) fn open(&mut self, bracket: u8) {
        self.out.push(bracket);
        self.depth += 1;
        self.is_first = true;
    }

    /// Closes a list or an object.
    pub(super) fn close(&mut self, bracket: u8) {
        self.depth = self.depth.saturating_sub(1);
        if !self.is_first {
            self.new_line();
        }
        self.out.push(bracket);
        self.is_first = false;
    }

    /// Begins an item of a list.
    pub(super) fn item(&mut self) {
        if !self.is_first {
            self.out.push(b',');
        }
        self.is_first = false;
        self.new_line();
    }

    /// Begins a member of an object.
    pub(super) fn key(&mut self, name: &str) {
        self.item();
        self.text(name);
        self.out.extend_from_slice(if self.is_pretty { b": " } else { b":" });
    }

    /// Writes a text, with the escapes of Go's encoder: it also escapes what HTML has a meaning for.
    pub(super) fn text(&mut self, text: &str) {
        self.out.push(b'"');
        let mut rest = text;
        let special =
            |char: char| matches!(char, '\0'..' ' | '"' | '\\' | '<' | '>' | '&' | '\u{2028}' | '\u{2029}');
        while let Some(place) = rest.find(special) {
            self.out.extend_from_slice(&rest.as_bytes()[..place]);
            let mut chars = rest[place..].chars();
            match chars.next().unwrap_or_default() {
                '\n' => self.out.extend_from_slice(b"\\n"),
                '\r' => self.out.extend_from_slice(b"\\r"),
                '\t' => self.out.extend_from_slice(b"\\t"),
                char @ ('"' | '\\') => self.out.extend_from_slice(&[b'\\', char as u8]),
                char => self.number(format_args!("\\u{:04x}", u32::from(char))),
            }
            rest = chars.as_str();
        }
        self.out.extend_from_slice(rest.as_bytes());
        self.out.push(b'"');
    }

    /// Writes a number, or another value that has no character to escape.
    pub(super) fn number(&mut self, value: impl std::fmt::Display) {
        // A vector takes everything.
        let _ = write!(self.out, "{value}");
    }

    /// Writes a float, or null if it is no number. The form is that of Go's encoder.
    pub(super) fn float(&mut self, value: f64) {
        let size = value.abs();
        if !value.is_finite() {
            self.number("null");
        } else if size != 0.0 && !(1e-6..1e21).contains(&size) {
            let text = format!("{value:e}");
            match text.split_once('e') {
                Some((digits, power)) if !power.starts_with('-') => {
                    self.number(format_args!("{digits}e+{power}"))
                }
                _ => self.number(text),
            }
        } else {
            self.number(value);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(write: impl FnOnce(&mut Layout)) -> String {
        let mut layout = Layout::new(false);
        write(&mut layout);
        String::from_utf8(layout.out).unwrap()
    }

    /// A text is read again as it was, and has no character that HTML would take.
    #[test]
    fn texts_survive_and_are_safe_in_html() {
        let text = "a\"b\\c\n\r\t\0\u{1f}<&>\u{2028}é\u{1F600}";
        let json = written(|layout| layout.text(text));
        assert_eq!(json, "\"a\\\"b\\\\c\\n\\r\\t\\u0000\\u001f\\u003c\\u0026\\u003e\\u2028é\u{1F600}\"");
        assert_eq!(serde_json::from_str::<String>(&json).unwrap(), text);
    }

    /// Floats have the form of Go's encoder, and what is no number is null.
    #[test]
    fn floats_have_the_form_of_go() {
        for (value, text) in [
            (1.0, "1"),
            (-0.0, "-0"),
            (0.1, "0.1"),
            (829.02, "829.02"),
            (1e20, "100000000000000000000"),
            (1e21, "1e+21"),
            (1.5e300, "1.5e+300"),
            (1e-6, "0.000001"),
            (1e-7, "1e-7"),
            (5e-324, "5e-324"),
            (f64::NAN, "null"),
            (f64::NEG_INFINITY, "null"),
        ] {
            assert_eq!(written(|layout| layout.float(value)), text);
        }
    }
}
