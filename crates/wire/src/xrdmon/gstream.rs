//! The g-stream of a cache: a line of JSON that says who sends, then a line for each closed file.

use serde::Deserialize;

use super::fstream::Head;

/// First line of a datagram.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct Header {
    /// `g` for records, `=` for the identity of the sender.
    pub code: String,
    /// Number of the datagram, modulo 1000: a gap is a loss.
    pub pseq: u32,
    /// Start of the server, in seconds since 1970.
    pub stod: u64,
    /// Number of the server. An identity tells its name.
    pub sid: u64,
    /// Name of the server; none in most records.
    pub src: Option<Source>,
    /// Kind of the records.
    pub gs: Option<Stream>,
}

/// Kind of the records of a datagram.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct Stream {
    /// `C` for those of a cache's files. Each kind has numbers of its own.
    #[serde(rename = "type")]
    pub kind: String,
}

/// Name of a server.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct Source {
    /// Site.
    pub site: String,
    /// Host.
    pub host: String,
    /// Port.
    pub port: u32,
    /// Instance.
    pub inst: String,
    /// Version.
    pub ver: String,
}

/// A file session of a cache that ended: one for all clients that had the file open together.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct FileClose {
    /// Always `file_close`.
    pub event: String,
    /// Name of the file.
    pub lfn: String,
    /// Bytes of the file.
    pub size: u64,
    /// Bytes of a block.
    pub blk_size: u64,
    /// Blocks of the file.
    pub n_blks: u64,
    /// Blocks in the cache.
    pub n_blks_done: u64,
    /// Sessions of the file so far.
    pub access_cnt: u64,
    /// Begin, in seconds since 1970.
    pub attach_t: u64,
    /// End, in seconds since 1970.
    pub detach_t: u64,
    /// Origins that bytes came from.
    pub remotes: Vec<String>,
    /// Bytes that clients got from the cache. With prefetch also of a file that was cold.
    pub b_hit: u64,
    /// Bytes that clients got, and the cache did not have. It fetched whole blocks for them.
    pub b_miss: u64,
    /// Bytes that went by the cache.
    pub b_bypass: u64,
    /// Bytes written to disk; from release 5.7.2 on.
    pub b_todisk: Option<u64>,
    /// Bytes fetched ahead; from release 5.7.2 on.
    pub b_prefetch: Option<u64>,
    /// Errors of checksums. Release 5.5.3 miscounts them.
    pub n_cks_errs: u64,
}

/// A line of a datagram.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Line {
    /// Sender, and the number of the datagram.
    Header(Box<Header>),
    /// A file session.
    FileClose(Box<FileClose>),
    /// A record of another kind.
    Other,
}

impl FileClose {
    /// Returns the bytes that clients asked for.
    pub fn bytes_asked(&self) -> u64 {
        self.b_hit.saturating_add(self.b_miss).saturating_add(self.b_bypass)
    }
}

/// Reads a line. Zero bytes at its ends belong to datagrams.
///
/// # Errors
/// It is no record of a g-stream.
pub fn parse_line(line: &[u8]) -> Result<Line, &'static str> {
    let text = std::str::from_utf8(line).map_err(|_| "it is not UTF-8")?;
    let text = text.trim_matches(|one: char| one == '\0' || one.is_ascii_whitespace());
    let value: serde_json::Value = serde_json::from_str(text).map_err(|_| "it is no JSON")?;
    let bad = |_| "a field of the record has the wrong type";
    if value.get("code").is_some() {
        return serde_json::from_value(value).map(|header| Line::Header(Box::new(header))).map_err(bad);
    }
    match value.get("event").and_then(|event| event.as_str()) {
        Some("file_close") => {
            let record: FileClose = serde_json::from_value(value).map_err(bad)?;
            if record.lfn.is_empty() {
                return Err("the record names no file");
            }
            Ok(Line::FileClose(Box::new(record)))
        }
        Some(_) => Ok(Line::Other),
        None => Err("it is no record of a g-stream"),
    }
}

/// Bytes of the head of a binary datagram, and the bits of the number of a server.
const BINARY_HEAD_BYTES: usize = 24;
const SERVER_BITS: u64 = (1 << 48) - 1;

/// Head of a binary datagram (`xrootd.monitor … pfc`). The lines behind it are the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BinaryHead {
    /// Number of the server.
    pub server: u64,
    /// Kind of the records: `C` for those of a cache's files.
    pub kind: u8,
}

/// Returns the head and the lines of a binary datagram.
///
/// # Errors
/// It is no binary datagram of a g-stream, or is cut off.
pub fn of_binary(datagram: &[u8]) -> Result<(BinaryHead, &[u8]), &'static str> {
    let head = Head::read(datagram).ok_or("the datagram is too short")?;
    if head.code != b'g' {
        return Err("the datagram is not of a g-stream");
    }
    let whole = datagram.get(..usize::from(head.length)).ok_or("the datagram is cut off")?;
    let (begin, lines) = whole.split_at_checked(BINARY_HEAD_BYTES).ok_or("the datagram is too short")?;
    let id = begin.last_chunk().map(|id| u64::from_be_bytes(*id)).unwrap_or_default();
    Ok((BinaryHead { server: id & SERVER_BITS, kind: (id >> 56) as u8 }, lines))
}

/// Returns the lines of a datagram.
pub fn lines(datagram: &[u8]) -> impl Iterator<Item = &[u8]> {
    let datagram = datagram.strip_suffix(b"\0").unwrap_or(datagram);
    datagram.split(|byte| *byte == b'\n').filter(|line| !line.trim_ascii().is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    const DATAGRAM: &[u8] = b"{\"code\":\"g\",\"pseq\":  2,\"stod\":17,\"sid\":166,\"src\":{\"site\":\"A\",\"port\":1094},\
\"gs\":{\"type\":\"C\",\"tbeg\":1,\"tend\":2}}
{\"event\":\"file_close\",\"lfn\":\"/d/f\",\"size\":67108864,\"blk_size\":1048576,\"n_blks\":64,\"n_blks_done\":1,\
\"access_cnt\":1,\"attach_t\":1795423971,\"detach_t\":1795423972,\"remotes\":[\"o:1094\"],\"b_hit\":1,\"b_miss\":4096,\
\"b_bypass\":3,\"n_cks_errs\":0}
\0";

    #[test]
    fn records_are_read() {
        let read: Vec<Line> = lines(DATAGRAM).map(|line| parse_line(line).unwrap()).collect();
        let [Line::Header(header), Line::FileClose(record)] = &read[..] else { panic!("{read:?}") };
        assert_eq!((header.pseq, header.sid, header.src.as_ref().unwrap().site.as_str()), (2, 166, "A"));
        assert_eq!(header.gs.as_ref().unwrap().kind, "C");
        assert_eq!((record.bytes_asked(), record.attach_t, record.b_todisk), (4100, 1_795_423_971, None));
        let with_new = br#"{"event":"file_close","lfn":"/d","b_todisk":7,"unknown":[1]}"#;
        let Ok(Line::FileClose(record)) = parse_line(with_new) else { panic!() };
        assert_eq!((record.b_todisk, record.size), (Some(7), 0));
        assert_eq!(parse_line(br#"{"event":"open"}"#), Ok(Line::Other));
    }

    /// Property: the binary head has the server and the kind, and a cut datagram is an error.
    #[test]
    fn binary_heads_are_read() {
        let lines = b"{\"event\":\"x\"}\n\0";
        let length = (BINARY_HEAD_BYTES + lines.len()) as u16;
        let id = (u64::from(b'C') << 56 | 77).to_be_bytes();
        let bytes = [&[b'g', 5][..], &length.to_be_bytes(), &[0; 12], &id, lines].concat();
        assert_eq!(of_binary(&bytes), Ok((BinaryHead { server: 77, kind: b'C' }, &lines[..])));
        for at in 0..bytes.len() {
            assert!(of_binary(&bytes[..at]).is_err(), "cut at {at}");
        }
        let short = [&[b'g', 5, 0, 20][..], &[0; 20]].concat();
        assert!(of_binary(&short).is_err());
        assert!(of_binary(&[&[b'f'][..], &bytes[1..]].concat()).is_err());
    }

    /// Property: anything else is an error, whatever the bytes.
    #[test]
    fn garbage_is_refused() {
        let bad: [&[u8]; 8] = [
            b"",
            b"{",
            b"[]",
            b"1",
            b"\xff\0",
            br#"{"event":"file_close"}"#,
            br#"{"event":"file_close","lfn":"/d","size":-1}"#,
            br#"{"code":"g","pseq":"x"}"#,
        ];
        for line in bad {
            assert!(parse_line(line).is_err(), "{}", String::from_utf8_lossy(line));
        }
        let line = lines(DATAGRAM).nth(1).unwrap();
        for at in 0..line.len() {
            assert!(parse_line(&line[..at]).is_err(), "cut at {at}");
        }
    }
}
