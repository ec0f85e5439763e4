//! Arbitrary bytes in any pieces cause no panic and give the same requests, with bounded memory;
//! every limit is tested at its edge.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

use exacat_model::ErrorKind;
use exacat_wire::xrootd::limits::{
    CONFIG_NAMES_MAX, ERROR_BYTES_MAX, LOGIN_BYTES_MAX, PATH_BYTES_MAX, PATHS_MAX, REQUEST_BYTES_MAX,
    TOKEN_BYTES_MAX,
};
use exacat_wire::xrootd::numbers::{error, query, request};
use exacat_wire::xrootd::path::{escaped, unescaped};
use exacat_wire::xrootd::{
    Credentials, Decoder, Fields, Frame, FrameError, HANDSHAKE, RawPath, Request, RequestHeader, StreamId,
    response, write_request,
};

mod random;

use random::Random;

impl Random {
    fn index(&mut self, end: u64) -> usize {
        usize::try_from(self.below(end)).unwrap()
    }

    fn bytes(&mut self, most: u64) -> Vec<u8> {
        const LIKELY: &[u8] = b"/a*?&=,% \n\0.T";
        let one = |random: &mut Self| match random.index(3) {
            0 => random.next() as u8,
            _ => LIKELY[random.index(LIKELY.len() as u64)],
        };
        (0..self.index(most + 1)).map(|_| one(self)).collect()
    }

    fn request(&mut self) -> (u16, [u8; 16], Vec<u8>) {
        let mut body = [0; 16];
        body.copy_from_slice(&[self.next().to_le_bytes(), self.next().to_le_bytes()].concat());
        // Mostly small numbers, like lengths and kinds of queries.
        for _ in 0..self.index(3) {
            let at = self.index(8) * 2;
            body[at..at + 2].copy_from_slice(&(self.index(20) as u16).to_be_bytes());
        }
        let mut carried = self.bytes(80);
        if self.index(4) == 0 {
            body[12..].copy_from_slice(b"ztn\0");
            carried.splice(0..0, *b"ztn\0\0T\0\0\0\x05");
        }
        (2995 + self.index(45) as u16, body, carried)
    }
}

fn greeted() -> Decoder {
    let mut decoder = Decoder::new();
    decoder.buffer().extend_from_slice(&HANDSHAKE);
    assert_eq!(decoder.frame(), Ok(Some(Frame::Handshake)));
    decoder.known();
    decoder
}

#[test]
fn requests_come_out_as_they_went_in_whatever_the_pieces() {
    let mut random = Random(1);
    for _ in 0..500 {
        let mut bytes = HANDSHAKE.to_vec();
        let mut expected = Vec::new();
        for number in 0..random.index(8) {
            let (request, body, carried) = random.request();
            let stream = StreamId([7, number as u8]);
            write_request(&mut bytes, stream, request, body, &carried);
            expected.push((stream, request, body, carried));
        }
        let mut decoder = Decoder::new();
        let mut found = Vec::new();
        let mut rest = bytes.as_slice();
        while !rest.is_empty() {
            let (piece, behind) = rest.split_at(1 + random.index(rest.len() as u64));
            rest = behind;
            decoder.buffer().extend_from_slice(piece);
            while let Some(frame) = decoder.frame().unwrap() {
                if let Frame::Request(header, carried) = frame {
                    // Every request is parsed or refused.
                    let _ = Request::parse(&header, &carried);
                    found.push((header.stream, header.request, header.body, carried.to_vec()));
                }
            }
        }
        assert_eq!(found, expected);
        assert_eq!(decoder.waiting(), 0);
    }
}

#[test]
fn no_bytes_make_it_panic_and_after_an_error_there_is_nothing_else() {
    let mut random = Random(2);
    for _ in 0..5000 {
        let mut decoder = if random.index(4) == 0 { Decoder::new() } else { greeted() };
        for _ in 0..random.index(6) {
            let bytes = random.bytes(100);
            decoder.buffer().extend_from_slice(&bytes);
            let mut ended = None;
            for _ in 0..100 {
                match decoder.frame() {
                    Ok(Some(Frame::Request(header, carried))) => {
                        let _ = format!("{:?}", Request::parse(&header, &carried));
                    }
                    Ok(Some(Frame::Handshake)) => {}
                    Ok(None) => break,
                    Err(error) => ended = Some(error),
                }
            }
            if let Some(error) = ended {
                assert_eq!(decoder.frame(), Err(error));
                break;
            }
        }
    }
    for _ in 0..20_000 {
        let (request, body, carried) = random.request();
        let header = RequestHeader { stream: StreamId::default(), request, body, bytes: 0 };
        if let Ok(parsed) = Request::parse(&header, &carried) {
            let _ = format!("{parsed:?}");
        }
        let text = String::from_utf8_lossy(&carried).into_owned();
        assert_eq!(unescaped(&escaped(&text)).as_deref(), Some(text.as_str()));
        assert!(!escaped(&text).contains(['&', ',', '?', ' ', '\n', '=', '#', '+']));
        let _ = (unescaped(&text), Fields(&text).bearers().count(), Fields(&text).tried().count());
    }
}

#[test]
fn what_a_request_carries_is_bounded() {
    let with = |bytes: i32| {
        let mut out = Vec::new();
        let header = RequestHeader { stream: StreamId([1, 2]), request: request::STAT, body: [0; 16], bytes };
        header.write(&mut out);
        out
    };
    let mut decoder = greeted();
    decoder.buffer().extend_from_slice(&with(REQUEST_BYTES_MAX as i32));
    assert_eq!(decoder.frame(), Ok(None), "the longest is waited for");
    decoder.buffer().extend_from_slice(&vec![b'/'; REQUEST_BYTES_MAX]);
    assert!(
        matches!(decoder.frame(), Ok(Some(Frame::Request(_, carried))) if carried.len() == REQUEST_BYTES_MAX)
    );
    decoder.buffer().extend_from_slice(&with(REQUEST_BYTES_MAX as i32 + 1));
    let too_long = FrameError::TooLong { got: REQUEST_BYTES_MAX + 1, max: REQUEST_BYTES_MAX };
    assert_eq!(decoder.frame(), Err(too_long), "before any of it was read");
    assert_eq!(decoder.broken_at().map(|header| header.stream), Some(StreamId([1, 2])));

    for bytes in [-1, i32::MIN] {
        let mut decoder = greeted();
        decoder.buffer().extend_from_slice(&with(bytes));
        assert_eq!(decoder.frame(), Err(FrameError::Negative(bytes)));
    }
    for (bytes, fine) in [(LOGIN_BYTES_MAX, true), (LOGIN_BYTES_MAX + 1, false)] {
        let mut decoder = Decoder::new();
        decoder.buffer().extend_from_slice(&HANDSHAKE);
        decoder.frame().unwrap();
        decoder.buffer().extend_from_slice(&with(bytes as i32));
        assert_eq!(decoder.frame().is_ok(), fine, "of somebody not known yet: {bytes}");
    }
}

#[test]
fn what_is_no_handshake_is_known_at_its_first_byte() {
    for (first, fine) in [(&b"GET"[..], false), (&[0x16, 3, 1], false), (&HANDSHAKE[..19], true), (b"", true)]
    {
        let mut decoder = Decoder::new();
        decoder.buffer().extend_from_slice(first);
        let expected = if fine { Ok(None) } else { Err(FrameError::Handshake) };
        assert_eq!(decoder.frame(), expected);
        assert!(decoder.broken_at().is_none());
    }
    for at in 0..HANDSHAKE.len() {
        let mut other = HANDSHAKE;
        other[at] ^= 1;
        let mut decoder = Decoder::new();
        decoder.buffer().extend_from_slice(&other[..=at]);
        assert_eq!(decoder.frame(), Err(FrameError::Handshake));
    }
}

#[test]
fn every_limit_holds_at_its_edge() {
    let parse = |request: u16, body: [u8; 16], carried: &[u8]| {
        let header = RequestHeader { stream: StreamId::default(), request, body, bytes: 0 };
        Request::parse(&header, carried).map(|_| ()).map_err(|error| error.kind)
    };
    let path = |bytes: usize| [b"/".as_slice(), &vec![b'x'; bytes - 1]].concat();
    assert!(RawPath::parse(&path(PATH_BYTES_MAX)).is_ok());
    assert_eq!(RawPath::parse(&path(PATH_BYTES_MAX + 1)).unwrap_err().kind, ErrorKind::Limit);
    let lines = |count: usize| vec!["/a"; count].join("\n").into_bytes();
    assert_eq!(parse(request::STATX, [0; 16], &lines(PATHS_MAX)), Ok(()));
    assert_eq!(parse(request::STATX, [0; 16], &lines(PATHS_MAX + 1)), Err(ErrorKind::Limit));
    let mut config = [0; 16];
    config[..2].copy_from_slice(&query::CONFIG.to_be_bytes());
    let names = |count: usize| vec!["chksum"; count].join(" ").into_bytes();
    assert_eq!(parse(request::QUERY, config, &names(CONFIG_NAMES_MAX)), Ok(()));
    assert_eq!(parse(request::QUERY, config, &names(CONFIG_NAMES_MAX + 1)), Err(ErrorKind::Limit));
    let mut ztn = [0; 16];
    ztn[12..].copy_from_slice(b"ztn\0");
    let token = |bytes: usize| {
        let length = u16::try_from(bytes).unwrap().to_be_bytes();
        [b"ztn\0\0T\0\0".as_slice(), &length, &vec![b'x'; bytes]].concat()
    };
    assert_eq!(parse(request::AUTH, ztn, &token(TOKEN_BYTES_MAX)), Ok(()));
    assert_eq!(parse(request::AUTH, ztn, &token(TOKEN_BYTES_MAX + 1)), Err(ErrorKind::Limit));
    assert!(token(TOKEN_BYTES_MAX).len() <= LOGIN_BYTES_MAX, "the longest token can be sent");
    let mut out = Vec::new();
    response::write_error(&mut out, StreamId::default(), error::NOT_FOUND, &"ä".repeat(ERROR_BYTES_MAX));
    assert_eq!(out.len(), 8 + 4 + ERROR_BYTES_MAX + 1);
    let shown = String::from_utf8(out[12..out.len() - 1].to_vec());
    assert!(shown.is_ok(), "cut between characters");
    assert_eq!(Credentials::Token("x"), Credentials::Token("x"));
}

#[test]
fn what_servers_answer_is_read_whatever_it_is() {
    use response::{FileStat, read_deferred, read_numbered, read_text};
    let stat = FileStat::read(b"43139669428338176 1000 112 1795380310 1 2 1644 nobody nogroup\0").unwrap();
    assert_eq!(stat, FileStat { size: 1000, flags: 112, modified: 1_795_380_310 });
    assert_eq!(FileStat::read(b"1 2 3 4"), Some(FileStat { size: 2, flags: 3, modified: 4 }));
    for bad in [&b""[..], b"1 2 3\0 4", b"1 -2 3 4", b"1 x 3 4", b"1 2 99999999999 4", b"\xff\xff"] {
        assert_eq!(FileStat::read(bad), None, "{bad:?}");
    }
    assert_eq!(read_numbered(b"\0\0\x0b\xbbopen denied\0 rest"), Some((3003, "open denied")));
    assert_eq!((read_numbered(b"\0\0\x0b"), read_numbered(b"\0\0\0\0\xff")), (None, None));
    let later = b"\0\0\x13\x90....\0\x01\0\0\0\0\0\x03abc";
    let (header, answer) = read_deferred(later).unwrap();
    assert_eq!((header.status, header.bytes, answer), (0, 3, &b"abc"[..]));
    for bad in [&later[..18], &later[..12], b"", b"\0\0\x13\x91....\0\x01\0\0\0\0\0\x03abc"] {
        assert!(read_deferred(bad).is_none());
    }
    assert_eq!((read_text(b""), read_text(b"\0")), (Some(""), Some("")));
    let mut random = Random(7);
    for _ in 0..2000 {
        let bytes = random.bytes(60);
        let _ = (FileStat::read(&bytes), read_numbered(&bytes), read_text(&bytes), read_deferred(&bytes));
    }
}
