//! Certificate of a file: its chunks, taken from one or several parts, each once and in order.

use std::fmt;

use exacat_wire::writer::limits::PARTS_MAX;
use exacat_wire::writer::{
    ByteRange, ChunkRecord, Close, Description, FileId, PartOwner, PartShare, WriterId,
};

use crate::chunks::share_a_place;
use crate::limits::SEGMENTS_MAX;
use crate::origin::PartOrigin;
use crate::sums::{ADLER32_OF_NOTHING, adler32_of_both};

/// Bytes of a file that one part has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Segment {
    /// The part.
    pub part: PartOwner,
    /// The bytes. They have the same place in the part as in the file.
    pub range: ByteRange,
}

/// Proof that a file is whole.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Certificate {
    /// The file.
    pub file: FileId,
    /// Producer of the file.
    pub writer: WriterId,
    /// Account of the catalogue that will own the file.
    pub owner: String,
    /// Content of the file.
    pub description: Description,
    /// Bytes.
    pub length: u64,
    /// Number of events.
    pub events: u64,
    /// Adler-32 of all bytes.
    pub adler32: u32,
    /// Chunks that are durable in several parts.
    pub duplicates: u64,
    /// The bytes, in order and without gap.
    pub segments: Vec<Segment>,
}

impl Certificate {
    /// Returns the bytes that each part has a share of, by the parts' epochs.
    pub fn shares(&self) -> Vec<PartShare> {
        let mut shares: Vec<PartShare> = Vec::new();
        for segment in &self.segments {
            let bytes = segment.range.to - segment.range.from;
            match shares.iter_mut().find(|share| share.part == segment.part) {
                Some(share) => share.bytes += bytes,
                None => shares.push(PartShare { part: segment.part, bytes }),
            }
        }
        shares.sort_by_key(|share| share.part.epoch);
        shares.truncate(PARTS_MAX);
        shares
    }
}

/// Reason why a file is not certified.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NotWhole {
    /// No known part has these bytes. Another part may have them.
    Missing(ByteRange),
    /// Two parts have different chunks at one place.
    Conflict {
        /// Place in the file.
        offset: u64,
        /// Epochs of the parts.
        epochs: [u32; 2],
    },
    /// The parts are in order, but the file is not the one that the producer closed.
    Differs(&'static str),
}

impl fmt::Display for NotWhole {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            NotWhole::Missing(range) => write!(f, "bytes {} to {} are missing", range.from, range.to),
            NotWhole::Conflict { offset, epochs: [one, other] } => {
                write!(f, "parts {one} and {other} have different bytes at {offset}")
            }
            NotWhole::Differs(what) => write!(f, "the {what} of the file is not that of its producer"),
        }
    }
}

/// Assembles a file from the chunks of its parts, which are in ascending order of their epochs.
pub fn assemble(
    close: &Close,
    origin: &PartOrigin,
    parts: &[(PartOwner, &[ChunkRecord])],
) -> Result<Certificate, NotWhole> {
    let mut all: Vec<(ChunkRecord, PartOwner)> = Vec::new();
    for (part, chunks) in parts {
        all.extend(chunks.iter().map(|chunk| (*chunk, *part)));
    }
    all.sort_by_key(|(chunk, part)| (chunk.offset, part.epoch));
    let mut certificate = Certificate {
        file: close.file,
        writer: origin.writer,
        owner: origin.owner.clone(),
        description: origin.description.clone(),
        length: 0,
        events: 0,
        adler32: ADLER32_OF_NOTHING,
        duplicates: 0,
        segments: Vec::new(),
    };
    let mut last: Option<(ChunkRecord, PartOwner)> = None;
    let mut count = 0;
    for (chunk, part) in all {
        if let Some((before, of)) = last {
            if before == chunk {
                certificate.duplicates += 1;
                continue;
            }
            if share_a_place(&before, &chunk) {
                return Err(NotWhole::Conflict { offset: chunk.offset, epochs: [of.epoch, part.epoch] });
            }
        }
        if chunk.offset > certificate.length {
            return Err(NotWhole::Missing(ByteRange { from: certificate.length, to: chunk.offset }));
        }
        if chunk.sequence != count {
            return Err(NotWhole::Differs("sequence of chunks"));
        }
        count += 1;
        certificate.add(&chunk, part);
        last = Some((chunk, part));
    }
    if certificate.length < close.length {
        return Err(NotWhole::Missing(ByteRange { from: certificate.length, to: close.length }));
    }
    if certificate.segments.len() > SEGMENTS_MAX {
        return Err(NotWhole::Differs("number of pieces"));
    }
    for (is_right, what) in [
        (certificate.length == close.length, "length"),
        (count == close.chunks, "number of chunks"),
        (certificate.events == close.events, "number of events"),
        (certificate.adler32 == close.adler32, "checksum"),
    ] {
        if !is_right {
            return Err(NotWhole::Differs(what));
        }
    }
    Ok(certificate)
}

impl Certificate {
    fn add(&mut self, chunk: &ChunkRecord, part: PartOwner) {
        match self.segments.last_mut() {
            Some(segment) if segment.part == part => segment.range.to = chunk.end(),
            _ => {
                self.segments.push(Segment { part, range: ByteRange { from: chunk.offset, to: chunk.end() } })
            }
        }
        self.adler32 = adler32_of_both(self.adler32, chunk.adler32, u64::from(chunk.length));
        self.events += u64::from(chunk.events);
        self.length = chunk.end();
    }
}

#[cfg(test)]
mod tests {
    use exacat_model::Lfn;
    use exacat_wire::writer::ServiceId;

    use super::*;
    use crate::sums::{adler32, crc32c};

    const CONTENT: &[u8] = b"one two three four five six seven eight nine ten";

    fn part(epoch: u32) -> PartOwner {
        PartOwner { epoch, service: ServiceId([epoch as u8; 16]) }
    }

    fn origin() -> PartOrigin {
        let lfn = Lfn::parse("/a").unwrap();
        let description = Description { run: String::new(), stream: String::new(), lfn, tags: Vec::new() };
        PartOrigin { writer: WriterId([1; 16]), stream: 0, owner: "daq".to_owned(), begun: 0, description }
    }

    /// Cuts the content into chunks of five bytes.
    fn chunks() -> Vec<ChunkRecord> {
        let cut = CONTENT.chunks(5).enumerate();
        let record = |(at, bytes): (usize, &[u8])| ChunkRecord {
            sequence: at as u64,
            offset: 5 * at as u64,
            length: bytes.len() as u32,
            events: 1,
            crc32c: crc32c(bytes),
            adler32: adler32(bytes),
        };
        cut.map(record).collect()
    }

    fn close() -> Close {
        let chunks = chunks().len() as u64;
        Close {
            file: FileId([9; 16]),
            epoch: 3,
            length: CONTENT.len() as u64,
            chunks,
            events: chunks,
            adler32: adler32(CONTENT),
            parts: vec![part(1), part(3)],
        }
    }

    /// Property: every distribution of the chunks over parts that has each at least once gives the same
    /// file, and counts the others.
    #[test]
    fn file_in_any_distribution_over_parts_is_whole() {
        let all = chunks();
        let mut random = fastrand::Rng::with_seed(5);
        for _ in 0..200 {
            let mut parts: Vec<(PartOwner, Vec<ChunkRecord>)> =
                (1..4).map(|at| (part(at), Vec::new())).collect();
            let mut copies = 0;
            for chunk in &all {
                let mask = random.usize(1..8);
                for (at, part) in parts.iter_mut().enumerate().filter(|(at, _)| mask & 1 << at != 0) {
                    part.1.push(*chunk);
                    copies += u64::from(at < 3);
                }
            }
            let parts: Vec<_> = parts.iter().map(|(part, chunks)| (*part, chunks.as_slice())).collect();
            let certificate = assemble(&close(), &origin(), &parts).unwrap();
            assert_eq!(certificate.duplicates, copies - all.len() as u64);
            assert_eq!((certificate.length, certificate.adler32), (48, adler32(CONTENT)));
            let joined = certificate.segments.windows(2).all(|pair| pair[0].range.to == pair[1].range.from);
            assert!(joined && certificate.segments[0].range.from == 0);
            assert_eq!(certificate.shares().iter().map(|share| share.bytes).sum::<u64>(), 48);
        }
    }

    #[test]
    fn file_with_a_gap_a_conflict_or_another_sum_is_not_whole() {
        let all = chunks();
        let judge = |close: &Close, chunks: &[ChunkRecord], second: &[ChunkRecord]| {
            assemble(close, &origin(), &[(part(1), chunks), (part(2), second)]).map(|_| ())
        };
        let missing = |from, to| Err(NotWhole::Missing(ByteRange { from, to }));
        assert_eq!(judge(&close(), &all, &[]), Ok(()));
        assert_eq!(judge(&close(), &all[1..], &[]), missing(0, 5));
        assert_eq!(judge(&close(), &all[..3], &all[4..]), missing(15, 20));
        assert_eq!(judge(&close(), &all[..9], &[]), missing(45, 48));
        let mut other = all[3];
        other.crc32c ^= 1;
        let conflict = Err(NotWhole::Conflict { offset: 15, epochs: [1, 2] });
        assert_eq!(judge(&close(), &all, &[other]), conflict);
        let differs = |what| Err(NotWhole::Differs(what));
        assert_eq!(judge(&Close { adler32: 5, ..close() }, &all, &[]), differs("checksum"));
        assert_eq!(judge(&Close { events: 5, ..close() }, &all, &[]), differs("number of events"));
        assert_eq!(judge(&Close { length: 45, ..close() }, &all, &[]), differs("length"));
        assert_eq!(judge(&Close { chunks: 9, ..close() }, &all, &[]), differs("number of chunks"));
    }
}
