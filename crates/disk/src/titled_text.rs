//! Small text files that a person may look into: a title with a version, lines of a name and a value, and
//! their checksum.
//!
//! ```text
//! exacat history, layout 1
//! id 0123456789abcdef0123456789abcdef
//! crc 01234567
//! ```
//! The version is read before the checksum: a newer release may write other lines.

use std::fmt::Display;

/// Returns a text of these lines.
pub fn titled_text(title: &str, version: u32, lines: &[(&str, &dyn Display)]) -> String {
    let mut text = format!("{title} {version}\n");
    for (name, value) in lines {
        text.push_str(&format!("{name} {value}\n"));
    }
    let sum = crc32fast::hash(text.as_bytes());
    text.push_str(&format!("crc {sum:08x}\n"));
    text
}

/// Lines of a text whose checksum is right.
pub struct TitledLines<'a>(std::str::Lines<'a>);

impl<'a> TitledLines<'a> {
    /// Checks the title, that this release reads the version, and the checksum.
    ///
    /// # Errors
    /// Says what is wrong, for a message that names the file.
    pub fn of(text: &'a str, title: &str, newest: u32) -> Result<Self, &'static str> {
        let (first, rest) = text.split_once('\n').ok_or("it is cut off")?;
        let version = first.strip_prefix(title).and_then(|version| version.strip_prefix(' '));
        let version: Option<u32> = version.and_then(|version| version.parse().ok());
        if version.ok_or("its first line is another one's")? > newest {
            return Err("its version is that of a newer release: use it");
        }
        let body = rest.strip_suffix('\n').and_then(|rest| Some(&rest[..rest.rfind('\n')? + 1]));
        let body = body.ok_or("it is cut off")?;
        let checked = &text[..first.len() + 1 + body.len()];
        let sum = format!("crc {:08x}\n", crc32fast::hash(checked.as_bytes()));
        if text[checked.len()..] == sum {
            Ok(TitledLines(body.lines()))
        } else {
            Err("it fails its checksum")
        }
    }

    /// Returns the value of the next line, which has this name.
    ///
    /// # Errors
    /// There is no such line.
    pub fn next(&mut self, name: &str) -> Result<&'a str, &'static str> {
        let value = self.0.next().and_then(|line| line.strip_prefix(name)?.strip_prefix(' '));
        value.ok_or("a line is missing")
    }

    /// Returns the number of the next line.
    ///
    /// # Errors
    /// There is no such line, or no number in it.
    pub fn number(&mut self, name: &str) -> Result<u64, &'static str> {
        self.next(name)?.parse().map_err(|_| "a line has no number")
    }

    /// Returns the 32 hexadecimal digits of the next line.
    ///
    /// # Errors
    /// There is no such line, or no such number in it.
    pub fn id(&mut self, name: &str) -> Result<[u8; 16], &'static str> {
        let id = u128::from_str_radix(self.next(name)?, 16).map_err(|_| "a line has no number")?;
        Ok(id.to_be_bytes())
    }
}

/// Displays the bytes of an id as 32 hexadecimal digits.
pub fn hex_of(id: [u8; 16]) -> String {
    format!("{:032x}", u128::from_be_bytes(id))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The text comes back as written; with any byte changed, or cut anywhere, it is refused.
    #[test]
    fn damaged_text_is_refused() {
        let id = [0xa5; 16];
        let text =
            titled_text("a title, version", 2, &[("id", &hex_of(id)), ("number", &7), ("words", &"a b")]);
        assert!(
            text.starts_with("a title, version 2\nid a5a5") && text.contains("\nwords a b\ncrc "),
            "{text}"
        );
        let read = |text: &str| -> Result<_, &'static str> {
            let mut lines = TitledLines::of(text, "a title, version", 2)?;
            Ok((lines.id("id")?, lines.number("number")?, lines.next("words")?.to_owned()))
        };
        assert_eq!(read(&text), Ok((id, 7, "a b".to_owned())));
        for at in 0..text.len() {
            let mut damaged = text.clone().into_bytes();
            damaged[at] ^= 1;
            assert!(read(&String::from_utf8(damaged).unwrap()).is_err(), "byte {at}");
            assert!(read(&text[..at]).is_err(), "cut at {at}");
        }
        assert!(read(&format!("{text}x")).is_err() && read(&text.replace("crc", "CRC")).is_err());
        assert_eq!(
            read(&titled_text("a title, version", 3, &[])).unwrap_err(),
            "its version is that of a newer release: use it"
        );
        assert!(read(&titled_text("a title, version", 2, &[("id", &hex_of(id))])).is_err(), "a line less");
    }
}
