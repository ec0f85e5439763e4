//! Percent-encoding of URLs (RFC 3986): paths, their components, and queries.

use exacat_model::{Error, Lfn};

/// Bytes that a path has unescaped: the unreserved ones of RFC 3986, and the separator.
const PLAIN: [bool; 256] = {
    let mut table = [false; 256];
    let mut byte = 0;
    while byte < 128 {
        table[byte] =
            (byte as u8).is_ascii_alphanumeric() || matches!(byte as u8, b'-' | b'.' | b'_' | b'~' | b'/');
        byte += 1;
    }
    table
};

const HEX: &[u8; 16] = b"0123456789ABCDEF";

/// Appends a path or name, percent-encoded. Slashes stay.
pub fn push_encoded(out: &mut Vec<u8>, text: &str) {
    let mut rest = text.as_bytes();
    while let Some(at) = rest.iter().position(|byte| !PLAIN[usize::from(*byte)]) {
        let (plain, behind) = rest.split_at(at);
        out.extend_from_slice(plain);
        let Some((byte, behind)) = behind.split_first() else { return };
        out.extend_from_slice(&[b'%', HEX[usize::from(byte >> 4)], HEX[usize::from(byte & 15)]]);
        rest = behind;
    }
    out.extend_from_slice(rest);
}

/// Decodes `%XX`, once; in a query `+` is a blank. The error is the reason: the rest of a sentence about
/// the text.
pub fn decode(text: &str, plus_is_blank: bool) -> Result<String, &'static str> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let [first, behind @ ..] = rest {
        rest = behind;
        match first {
            b'%' => {
                let digit =
                    |byte: &u8| char::from(*byte).to_digit(16).and_then(|digit| u8::try_from(digit).ok());
                let [high, low, after @ ..] = behind else { return Err("ends in an incomplete escape") };
                let (Some(high), Some(low)) = (digit(high), digit(low)) else {
                    return Err("has '%' without two hex digits: encode '%' as %25");
                };
                bytes.push(high << 4 | low);
                rest = after;
            }
            b'+' if plus_is_blank => bytes.push(b' '),
            other => bytes.push(*other),
        }
    }
    String::from_utf8(bytes).map_err(|_| "is not UTF-8 after decoding")
}

/// Returns the LFN that the path of a URL of the REST API names. Refuses an encoded slash, which would
/// be a part of a name, and no name has one.
pub fn lfn(path: &str) -> exacat_model::Result<Lfn> {
    if path.as_bytes().windows(3).any(|part| part.eq_ignore_ascii_case(b"%2f")) {
        return Err(Error::invalid("a component of the path has an encoded slash (%2F), which no name has"));
    }
    let text = decode(path, false).map_err(|why| Error::invalid(format!("the text {path:.100?} {why}")))?;
    Lfn::parse(&text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn path_of_a_url_is_decoded_by_components() {
        assert_eq!(lfn("/a%20b//c/").unwrap().to_string(), "/a b/c");
        assert_eq!(lfn("/%252F").unwrap().to_string(), "/%2F");
        for bad in ["/a%2fb", "/a%2Fb", "/a/../b", "/a/%2e%2e/b", "/a/./b", "/a%00", "/%ff", "a", "/%"] {
            assert!(lfn(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn text_is_decoded_once() {
        assert_eq!(decode("/a%20b%2520", false).unwrap(), "/a b%20");
        assert_eq!(decode("a+b", true).unwrap(), "a b");
        assert_eq!(decode("a+b", false).unwrap(), "a+b");
        for bad in ["%", "%1", "%zz", "%ff", "%c3"] {
            assert!(decode(bad, false).is_err(), "{bad}");
        }
    }

    #[test]
    fn encoded_text_decodes_to_itself() {
        let text: String = (0..300).filter_map(char::from_u32).collect();
        let mut encoded = Vec::new();
        push_encoded(&mut encoded, &text);
        assert!(encoded.is_ascii() && !encoded.contains(&b' '));
        assert_eq!(decode(std::str::from_utf8(&encoded).unwrap(), false).unwrap(), text);
    }
}
