//! The f-stream of a server: binary records of opens, transfers and closes. All numbers are big-endian.

/// Bytes of the head of a datagram, and of a record.
const HEAD_BYTES: usize = 8;

/// Head of every binary datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Head {
    /// Kind of the datagram: `f` for records of files.
    pub code: u8,
    /// Number of the datagram, modulo 256.
    pub pseq: u8,
    /// Bytes of the datagram, the head included.
    pub length: u16,
    /// Start of the server, in seconds since 1970.
    pub started: u32,
}

/// Bytes of a file that a client moved.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Moved {
    /// By reads.
    pub read: u64,
    /// By vector reads.
    pub readv: u64,
    /// By writes.
    pub written: u64,
}

/// Numbers of operations on a file. Servers send them if they are configured to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Operations {
    /// Reads.
    pub reads: u32,
    /// Vector reads.
    pub vector_reads: u32,
    /// Writes.
    pub writes: u32,
    /// Ranges of vector reads.
    pub ranges: u64,
}

/// A record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Record<'a> {
    /// The records of the datagram are of this time, in seconds since 1970.
    Time {
        /// Begin.
        from: u32,
        /// End.
        to: u32,
        /// Number of the server; none from old releases.
        server: Option<u64>,
    },
    /// A client opened a file.
    Open {
        /// Number of the open.
        file: u32,
        /// Bytes of the file.
        size: u64,
        /// True if it may write.
        writes: bool,
        /// Number of the client; none if the server sends no clients, or no name here.
        user: Option<u32>,
        /// Name; none if the server sends it in a datagram of its own.
        name: Option<&'a str>,
    },
    /// Bytes moved so far.
    Transfer {
        /// Number of the open.
        file: u32,
        /// Bytes.
        moved: Moved,
    },
    /// A file was closed.
    Close {
        /// Number of the open.
        file: u32,
        /// Bytes of the whole open.
        moved: Moved,
        /// Operations of the whole open, if the server tells them.
        operations: Option<Operations>,
        /// True if the client went away without a close.
        forced: bool,
    },
    /// A client is gone.
    Disconnect {
        /// Number of the client.
        user: u32,
    },
    /// A record of another kind.
    Other,
}

fn bytes<const N: usize>(from: &[u8], at: usize) -> Option<[u8; N]> {
    from.get(at..at.checked_add(N)?)?.try_into().ok()
}

fn u32_at(from: &[u8], at: usize) -> Option<u32> {
    bytes(from, at).map(u32::from_be_bytes)
}

fn u64_at(from: &[u8], at: usize) -> Option<u64> {
    bytes(from, at).map(u64::from_be_bytes)
}

impl Head {
    /// Reads the head of a datagram.
    pub fn read(datagram: &[u8]) -> Option<Head> {
        let [code, pseq, high, low] = bytes(datagram, 0)?;
        let length = u16::from_be_bytes([high, low]);
        Some(Head { code, pseq, length, started: u32_at(datagram, 4)? })
    }
}

/// Records of a datagram with the code `f`.
pub struct Records<'a> {
    rest: &'a [u8],
}

/// Returns the records of a datagram.
///
/// # Errors
/// It is no datagram of an f-stream, or is cut off.
pub fn records(datagram: &[u8]) -> Result<Records<'_>, &'static str> {
    let head = Head::read(datagram).ok_or("the datagram is too short")?;
    if head.code != b'f' {
        return Err("the datagram is not of an f-stream");
    }
    let rest = datagram.get(HEAD_BYTES..usize::from(head.length)).ok_or("the datagram is cut off")?;
    Ok(Records { rest })
}

/// Flags: the name is in the record; the open may write; the client went away; operations follow; the number
/// of the server follows.
const HAS_NAME: u8 = 1;
const MAY_WRITE: u8 = 2;
const FORCED: u8 = 1;
const HAS_OPERATIONS: u8 = 2;
const HAS_SERVER: u8 = 1;
/// Bits of the number of a server.
const SERVER_BITS: u64 = (1 << 48) - 1;

fn operations(of: &[u8]) -> Option<Operations> {
    let number = |at| u32_at(of, at);
    Some(Operations {
        reads: number(32)?,
        vector_reads: number(36)?,
        writes: number(40)?,
        ranges: u64_at(of, 48)?,
    })
}

fn record(kind: u8, flags: u8, of: &[u8]) -> Option<Record<'_>> {
    let number = || u32_at(of, 4);
    let moved = || Some(Moved { read: u64_at(of, 8)?, readv: u64_at(of, 16)?, written: u64_at(of, 24)? });
    Some(match kind {
        0 => Record::Close {
            file: number()?,
            moved: moved()?,
            operations: if flags & HAS_OPERATIONS != 0 { Some(operations(of)?) } else { None },
            forced: flags & FORCED != 0,
        },
        1 => {
            let name = match flags & HAS_NAME != 0 {
                false => None,
                // Behind the number of the client, up to a zero byte.
                true => {
                    let text = of.get(20..)?;
                    let end = text.iter().position(|byte| *byte == 0).unwrap_or(text.len());
                    Some(std::str::from_utf8(&text[..end]).ok()?)
                }
            };
            let user = name.and_then(|_| u32_at(of, 16)).filter(|user| *user != 0);
            Record::Open { file: number()?, size: u64_at(of, 8)?, writes: flags & MAY_WRITE != 0, user, name }
        }
        2 => {
            let server = if flags & HAS_SERVER != 0 { Some(u64_at(of, 16)? & SERVER_BITS) } else { None };
            Record::Time { from: u32_at(of, 8)?, to: u32_at(of, 12)?, server }
        }
        3 => Record::Transfer { file: number()?, moved: moved()? },
        4 => Record::Disconnect { user: number()? },
        _ => Record::Other,
    })
}

impl<'a> Iterator for Records<'a> {
    type Item = Result<Record<'a>, &'static str>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.rest.is_empty() {
            return None;
        }
        let cut = || {
            let [kind, flags, high, low] = bytes(self.rest, 0)?;
            let length = usize::from(u16::from_be_bytes([high, low]));
            let of = self.rest.get(..length).filter(|_| length >= HEAD_BYTES)?;
            Some((kind, flags, of))
        };
        let Some((kind, flags, of)) = cut() else {
            self.rest = &[];
            return Some(Err("a record is cut off"));
        };
        self.rest = &self.rest[of.len()..];
        Some(record(kind, flags, of).ok_or("a record is shorter than its kind"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sealed(code: u8, records: &[Vec<u8>]) -> Vec<u8> {
        let body = records.concat();
        let length = (HEAD_BYTES + body.len()) as u16;
        [&[code, 7][..], &length.to_be_bytes(), &1_795_423_701_u32.to_be_bytes(), &body].concat()
    }

    fn of(kind: u8, flags: u8, body: &[u8]) -> Vec<u8> {
        let length = (4 + body.len()) as u16;
        [&[kind, flags][..], &length.to_be_bytes(), body].concat()
    }

    fn datagram() -> Vec<u8> {
        let number = 9_u32.to_be_bytes();
        let server = (77_u64 | 3 << 56).to_be_bytes();
        let time = [&[0_u8; 4][..], &100_u32.to_be_bytes(), &105_u32.to_be_bytes(), &server].concat();
        let open = [&number[..], &64_u64.to_be_bytes(), &1_u32.to_be_bytes(), b"/d/f\0\0\0\0"].concat();
        let moved = [&number[..], &1_u64.to_be_bytes(), &2_u64.to_be_bytes(), &3_u64.to_be_bytes()].concat();
        let segments = [0_u8, 2, 0, 4];
        let calls = [5_u32, 6, 7].map(u32::to_be_bytes).concat();
        let whole = [&moved[..], &calls, &segments, &8_u64.to_be_bytes(), &[0; 24]].concat();
        sealed(
            b'f',
            &[
                of(2, 1, &time),
                of(1, 1, &open),
                of(3, 0, &moved),
                of(0, 1, &moved),
                of(0, 2, &whole),
                of(2, 0, &time[..12]),
                of(4, 0, &number),
                of(77, 0, &number),
            ],
        )
    }

    #[test]
    fn records_are_read() {
        let datagram = datagram();
        assert_eq!(Head::read(&datagram).unwrap().started, 1_795_423_701);
        let read: Vec<Record> = records(&datagram).unwrap().map(Result::unwrap).collect();
        let moved = Moved { read: 1, readv: 2, written: 3 };
        let operations = Operations { reads: 5, vector_reads: 6, writes: 7, ranges: 8 };
        let expected = [
            Record::Time { from: 100, to: 105, server: Some(77) },
            Record::Open { file: 9, size: 64, writes: false, user: Some(1), name: Some("/d/f") },
            Record::Transfer { file: 9, moved },
            Record::Close { file: 9, moved, operations: None, forced: true },
            Record::Close { file: 9, moved, operations: Some(operations), forced: false },
            Record::Time { from: 100, to: 105, server: None },
            Record::Disconnect { user: 9 },
            Record::Other,
        ];
        assert_eq!(read, expected);
    }

    /// Property: no bytes make it panic or loop, and a cut datagram is an error.
    #[test]
    fn garbage_is_refused() {
        let whole = datagram();
        for at in 0..whole.len() {
            assert!(records(&whole[..at]).is_err(), "cut at {at}");
        }
        assert!(records(&sealed(b'=', &[])).is_err());
        for (at, byte) in (8..whole.len()).flat_map(|at| [0, 1, 0xff].map(|byte| (at, byte))) {
            let mut changed = whole.clone();
            changed[at] = byte;
            assert!(records(&changed).unwrap().count() <= whole.len(), "byte {at}");
        }
        let short = sealed(b'f', &[of(0, 0, &9_u32.to_be_bytes())]);
        assert_eq!(records(&short).unwrap().next(), Some(Err("a record is shorter than its kind")));
        let endless = sealed(b'f', &[vec![0, 0, 0, 0]]);
        assert_eq!(records(&endless).unwrap().collect::<Vec<_>>(), [Err("a record is cut off")]);
    }
}
