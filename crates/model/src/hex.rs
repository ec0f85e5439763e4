//! Converts hexadecimal digits to bytes, fast: listings have hundreds for each file.

/// Value of each byte as a digit; [`BAD`] for a byte that is none.
const VALUES: [u8; 256] = {
    let mut values = [BAD; 256];
    let mut byte = 0;
    while byte < 256 {
        values[byte] = match byte as u8 {
            digit @ b'0'..=b'9' => digit - b'0',
            digit @ b'a'..=b'f' => digit - b'a' + 10,
            digit @ b'A'..=b'F' => digit - b'A' + 10,
            _ => BAD,
        };
        byte += 1;
    }
    values
};

/// Bit that no digit has.
const BAD: u8 = 0x80;

/// Reads exactly the digits that `out` can hold, of either case. Returns false for other text;
/// `out` is then undefined.
pub(crate) fn read(digits: &[u8], out: &mut [u8]) -> bool {
    // One test at the end, instead of one per digit, finds all bad digits.
    let mut seen = 0;
    for (byte, pair) in out.iter_mut().zip(digits.chunks_exact(2)) {
        let (high, low) = (VALUES[usize::from(pair[0])], VALUES[usize::from(pair[1])]);
        seen |= high | low;
        *byte = high << 4 | low;
    }
    digits.len() == 2 * out.len() && seen & BAD == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digits_are_read_and_nothing_else() {
        let mut out = [0; 4];
        assert!(read(b"09aFAf00", &mut out) && out == [0x09, 0xaf, 0xaf, 0]);
        assert!(read(b"", &mut []));
        for bad in ["09aFAf0", "09aFAf000", "g0000000", "0000000g", "+0000000", "0000 000", "0000\u{e9}00"] {
            assert!(!read(bad.as_bytes(), &mut out), "{bad}");
        }
        for byte in 0..=255u8 {
            let as_digit = (byte as char).to_digit(16);
            let mut out = [0];
            assert_eq!(read(&[b'0', byte], &mut out), as_digit.is_some());
            if let Some(digit) = as_digit {
                assert_eq!(u32::from(out[0]), digit);
            }
        }
    }
}
