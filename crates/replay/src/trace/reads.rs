//! Bytes of a file that an access reads.

use std::fmt::{self, Write as _};

use crate::limits::{RANGES_MAX, SIZE_MAX};

/// Some bytes of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ReadRange {
    /// First byte.
    pub offset: u64,
    /// Number of bytes.
    pub length: u64,
}

/// The bytes that an access reads. In a trace it is `-`, `LENGTH/STEP`, or `OFFSET+LENGTH,…`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub enum Reads {
    /// The file from its begin to its end.
    #[default]
    Whole,
    /// So many bytes at each multiple of a step.
    Strided {
        /// Bytes of each read.
        length: u64,
        /// From the begin of one to that of the next.
        step: u64,
    },
    /// Some ranges, in the order in which they are read.
    Ranges(Box<[ReadRange]>),
}

impl Reads {
    /// Reads the text of a trace.
    ///
    /// # Errors
    /// Says what is wrong.
    pub fn parse(text: &str) -> Result<Reads, &'static str> {
        let number = |text: &str| -> Result<u64, &'static str> {
            let is_number = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
            let number = text.parse::<u64>().ok().filter(|number| is_number && *number <= SIZE_MAX);
            number.ok_or("a place of a read is no number of bytes")
        };
        if matches!(text, "" | "-") {
            return Ok(Reads::Whole);
        }
        if let Some((length, step)) = text.split_once('/') {
            let (length, step) = (number(length)?, number(step)?);
            return match length > 0 && length <= step {
                true => Ok(Reads::Strided { length, step }),
                false => Err("the length of reads is 0, or longer than their step"),
            };
        }
        let mut ranges = Vec::new();
        for range in text.split(',') {
            if ranges.len() == RANGES_MAX {
                return Err("an access has more ranges than a vector read has");
            }
            let (offset, length) = range.split_once('+').ok_or("a range is OFFSET+LENGTH")?;
            let (offset, length) = (number(offset)?, number(length)?);
            if length == 0 || offset + length > SIZE_MAX {
                return Err("a range is empty, or ends behind the largest file");
            }
            ranges.push(ReadRange { offset, length });
        }
        Ok(Reads::Ranges(ranges.into()))
    }

    /// Returns the ranges in a file of this size, cut at its end.
    pub fn ranges(&self, size: u64) -> Vec<ReadRange> {
        match self {
            Reads::Whole if size == 0 => Vec::new(),
            Reads::Whole => vec![ReadRange { offset: 0, length: size }],
            Reads::Strided { length, step } => {
                // A small step in a large file would be no vector read any more: its reads are coarser then.
                let steps = size.div_ceil((*step).max(1));
                let every = steps.div_ceil(RANGES_MAX as u64).max(1);
                let (length, step) = (length * every, step * every);
                let at = (0..).map(|number| number * step).take_while(|offset| *offset < size);
                at.map(|offset| ReadRange { offset, length: length.min(size - offset) }).collect()
            }
            Reads::Ranges(ranges) => {
                let within = ranges.iter().filter(|range| range.offset < size);
                within
                    .map(|range| ReadRange { length: range.length.min(size - range.offset), ..*range })
                    .collect()
            }
        }
    }

    /// Returns the number of bytes asked for in a file of this size.
    pub fn bytes(&self, size: u64) -> u64 {
        match self {
            Reads::Whole => size,
            other => other.ranges(size).iter().map(|range| range.length).sum(),
        }
    }

    /// Returns the bytes of the blocks that are touched, as a cache of blocks fetches them.
    pub fn block_bytes(&self, size: u64, block: u64) -> u64 {
        if *self == Reads::Whole {
            return size;
        }
        let block = block.max(1);
        let mut blocks: Vec<(u64, u64)> = self
            .ranges(size)
            .iter()
            .map(|range| (range.offset / block, (range.offset + range.length).div_ceil(block)))
            .collect();
        blocks.sort_unstable();
        let (mut bytes, mut next) = (0, 0);
        for (from, to) in blocks {
            let from = from.max(next);
            if from < to {
                bytes += (to * block).min(size) - from * block;
                next = to;
            }
        }
        bytes
    }
}

impl fmt::Display for Reads {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Reads::Whole => f.write_char('-'),
            Reads::Strided { length, step } => write!(f, "{length}/{step}"),
            Reads::Ranges(ranges) => {
                for (at, range) in ranges.iter().enumerate() {
                    let comma = if at > 0 { "," } else { "" };
                    write!(f, "{comma}{}+{}", range.offset, range.length)?;
                }
                Ok(())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_come_back_and_bad_ones_are_refused() {
        for text in ["-", "1/1", "1048576/5242880", "0+1", "5+10,0+3,5+10"] {
            assert_eq!(Reads::parse(text).unwrap().to_string(), text);
        }
        assert_eq!(Reads::parse("").unwrap(), Reads::Whole);
        let most = vec!["0+1"; RANGES_MAX].join(",");
        assert!(Reads::parse(&most).is_ok() && Reads::parse(&format!("{most},0+1")).is_err());
        let end = format!("{}+1", SIZE_MAX - 1);
        assert!(Reads::parse(&end).is_ok() && Reads::parse(&format!("{SIZE_MAX}+1")).is_err());
        for bad in
            ["0/5", "6/5", "x", "1+", "+1", "1+0", "1,2", "1/2/3", "-1+2", "1++2", "99999999999999999999+1"]
        {
            assert!(Reads::parse(bad).is_err(), "{bad}");
        }
    }

    /// Property: reads end at the end of the file; blocks that are touched twice count once.
    #[test]
    fn bytes_are_those_within_the_file() {
        let bytes = |text: &str, size| Reads::parse(text).unwrap().bytes(size);
        assert_eq!((bytes("-", 7), bytes("-", 0), bytes("10+5", 10), bytes("8+5", 10)), (7, 0, 0, 2));
        assert_eq!((bytes("2/5", 10), bytes("2/5", 11), bytes("2/5", 0)), (4, 5, 0));
        let blocks = |text: &str, size| Reads::parse(text).unwrap().block_bytes(size, 4);
        assert_eq!(
            (blocks("-", 7), blocks("1+1,2+1", 7), blocks("3+2", 7), blocks("6+1,0+1", 7)),
            (7, 4, 7, 7)
        );
        assert_eq!(blocks("5+1,1+6", 100), 8);
        let fine = Reads::Strided { length: 1, step: 4 };
        let ranges = fine.ranges(1 << 30);
        assert!(ranges.len() <= RANGES_MAX, "{}", ranges.len());
        assert_eq!(fine.bytes(1 << 30), 1 << 28);
    }
}
