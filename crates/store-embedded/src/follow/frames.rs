//! Frames of a piece of a log: the headers of segments, and their records.
//!
//! | offset | bytes | frame |
//! |---|---|---|
//! | 0 | 1 | kind: 1 the header of a segment, 2 records |
//! | 1 | 3 | 0 |
//! | 4 | 4 | bytes of the content, little-endian |
//! | 8 | | the content |

use exacat_disk::fixed::u32_at;
use exacat_model::{Error, Result};

/// Bytes before the content of a frame.
const HEAD_BYTES: usize = 8;
const SEGMENT: u8 = 1;
const RECORDS: u8 = 2;

/// Content of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LogFrame<'a> {
    /// Header of the segment that begins here.
    Segment(&'a [u8]),
    /// Whole records of the segment, end marks included.
    Records(&'a [u8]),
}

/// Appends a frame.
pub(crate) fn put(out: &mut Vec<u8>, frame: LogFrame<'_>) -> Result<()> {
    let (kind, content) = match frame {
        LogFrame::Segment(content) => (SEGMENT, content),
        LogFrame::Records(content) => (RECORDS, content),
    };
    let bytes = u32::try_from(content.len()).map_err(|_| Error::invalid("a frame of 4 GiB or more"))?;
    out.extend_from_slice(&[kind, 0, 0, 0]);
    out.extend_from_slice(&bytes.to_le_bytes());
    out.extend_from_slice(content);
    Ok(())
}

/// Reads the first frame, and returns it with the bytes behind it; none at the end.
pub(crate) fn next(bytes: &[u8]) -> Result<Option<(LogFrame<'_>, &[u8])>> {
    if bytes.is_empty() {
        return Ok(None);
    }
    let bad = || Error::invalid("this is no piece of a log: a frame is cut off or of an unknown kind");
    let (head, rest) = bytes.split_at_checked(HEAD_BYTES).ok_or_else(bad)?;
    let (content, rest) = rest.split_at_checked(u32_at(head, 4) as usize).ok_or_else(bad)?;
    match head[..4] {
        [SEGMENT, 0, 0, 0] => Ok(Some((LogFrame::Segment(content), rest))),
        [RECORDS, 0, 0, 0] if !content.is_empty() => Ok(Some((LogFrame::Records(content), rest))),
        _ => Err(bad()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Property: frames are read as written, and cut off anywhere or of another kind they are refused.
    #[test]
    fn frames_are_read_as_written_or_refused() {
        let mut bytes = Vec::new();
        put(&mut bytes, LogFrame::Segment(&[7; 96])).unwrap();
        put(&mut bytes, LogFrame::Records(&[9; 40])).unwrap();
        let (first, rest) = next(&bytes).unwrap().unwrap();
        let (second, rest) = next(rest).unwrap().map(|(frame, rest)| (frame, rest.len())).unwrap();
        assert_eq!((first, second, rest), (LogFrame::Segment(&[7; 96]), LogFrame::Records(&[9; 40]), 0));
        assert_eq!(next(&[]).unwrap(), None);
        for cut in 1..HEAD_BYTES + 96 {
            assert!(next(&bytes[..cut]).is_err(), "cut at {cut}");
        }
        for at in 0..4 {
            let mut other = bytes.clone();
            other[at] ^= 0x40;
            assert!(next(&other).is_err(), "byte {at}");
        }
        assert!(next(&[RECORDS, 0, 0, 0, 0, 0, 0, 0]).is_err(), "no records");
        assert!(next(&[RECORDS, 0, 0, 0, 255, 255, 255, 255, 1]).is_err(), "a huge length");
    }
}
