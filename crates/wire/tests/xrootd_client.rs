//! Client of XRootD's protocol: bytes of requests, answers in any pieces, and every limit at its edge.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

use bytes::Bytes;
use exacat_model::ErrorKind;
use exacat_wire::xrootd::client::answer::{ChecksumAnswer, LoginAnswer, OpenAnswer, ProtocolAnswer};
use exacat_wire::xrootd::client::request::{
    Login, Proof, write_auth, write_checksum, write_close, write_config, write_login, write_open,
    write_page_read, write_protocol, write_read, write_stat, write_vector_read,
};
use exacat_wire::xrootd::client::{Answer, AnswerError, Answers};
use exacat_wire::xrootd::limits::{
    ANSWER_BYTES_MAX, ERROR_BYTES_MAX, PAGE_BYTES, PATH_BYTES_MAX, SEGMENTS_MAX, SHORT_ANSWER_BYTES_MAX,
    TOKEN_BYTES_MAX,
};
use exacat_wire::xrootd::numbers::{ability, open, status};
use exacat_wire::xrootd::pages::{PAGE_HEADER_BYTES, PageError, PageHeader, paged_bytes, write_pages};
use exacat_wire::xrootd::vector::{VectorAnswer, WrongSegment};
use exacat_wire::xrootd::{
    Credentials, Decoder, FileHandle, FileRange, FileRequest, Frame, HANDSHAKE, Request, RequestHeader,
    StreamId, response,
};

mod random;

use random::Random;

const STREAM: StreamId = StreamId([1, 2]);

fn hex(text: &str) -> Vec<u8> {
    let digits: Vec<u8> =
        text.chars().filter_map(|one| one.to_digit(16)).map(|digit| u8::try_from(digit).unwrap()).collect();
    digits.chunks(2).map(|pair| pair[0] << 4 | pair[1]).collect()
}

fn written(write: impl FnOnce(&mut Vec<u8>)) -> Vec<u8> {
    let mut out = Vec::new();
    write(&mut out);
    out
}

/// Returns a request as the server's side reads it.
fn as_server(bytes: &[u8], check: impl FnOnce(Request<'_>)) -> (RequestHeader, Vec<u8>) {
    let mut decoder = Decoder::new();
    decoder.buffer().extend_from_slice(&HANDSHAKE);
    decoder.buffer().extend_from_slice(bytes);
    decoder.known();
    assert_eq!(decoder.frame(), Ok(Some(Frame::Handshake)));
    let Ok(Some(Frame::Request(header, carried))) = decoder.frame() else { panic!("no request") };
    assert_eq!((decoder.frame(), decoder.waiting()), (Ok(None), 0));
    check(Request::parse(&header, &carried).unwrap());
    (header, carried.to_vec())
}

/// Returns all answers in some bytes, fed in pieces of `piece` bytes, and the error at the end.
fn answers(bytes: &[u8], piece: usize) -> (Vec<Answer>, Option<AnswerError>) {
    let mut decoder = Answers::new();
    let mut found = Vec::new();
    for piece in bytes.chunks(piece.max(1)) {
        decoder.buffer().extend_from_slice(piece);
        loop {
            match decoder.answer() {
                Ok(Some(answer)) => found.push(answer),
                Ok(None) => break,
                Err(error) => {
                    assert_eq!(decoder.answer(), Err(error), "an error stays");
                    return (found, Some(error));
                }
            }
        }
    }
    (found, None)
}

/// Joins bodies that came in pieces.
fn joined(all: Vec<Answer>) -> Vec<Answer> {
    let mut out: Vec<Answer> = Vec::new();
    for answer in all {
        match (out.last_mut(), answer) {
            (Some(Answer::Body { stream, bytes }), Answer::Body { stream: next, bytes: more })
                if *stream == next =>
            {
                *bytes = Bytes::from([bytes.as_ref(), more.as_ref()].concat());
            }
            (_, answer) => out.push(answer),
        }
    }
    out
}

/// Property: the requests have the bytes of the protocol, as written by hand.
#[test]
fn requests_have_the_bytes_of_the_protocol() {
    let segment =
        FileRange { handle: FileHandle([0, 0, 0, 7]), length: 0x0010_0000, offset: 0x0001_0203_0405_0607 };
    let protocol = written(|out| write_protocol(out, STREAM, ability::TLS));
    assert_eq!(protocol, hex("0102 0bbe 00000511 02 03 00000000000000000000 00000000"));
    let login = Login { process: 0x1234, user: "exacat-agent", about: "xrd.rn=v5" };
    let login = written(|out| write_login(out, STREAM, &login));
    let expected = [&hex("0102 0bbf 00001234")[..], b"exacat-a", &hex("00 09 85 00 00000009"), b"xrd.rn=v5"];
    assert_eq!(login, expected.concat());
    let opened = written(|out| write_open(out, STREAM, 0x0450, "/a?x=1").unwrap());
    assert_eq!(
        opened,
        [&hex("0102 0bc2 0000 0450 000000000000000000000000 00000006")[..], b"/a?x=1"].concat()
    );
    let read = written(|out| write_read(out, STREAM, &segment));
    assert_eq!(read, hex("0102 0bc5 00000007 0001020304050607 00100000 00000000"));
    let pages = written(|out| write_page_read(out, STREAM, &segment));
    assert_eq!(pages, hex("0102 0bd6 00000007 0001020304050607 00100000 00000000"));
    let vector = written(|out| write_vector_read(out, STREAM, &[segment, segment]).unwrap());
    let one = "00000007 00100000 0001020304050607";
    assert_eq!(vector, hex(&format!("0102 0bd1 {} 00000020 {one} {one}", "00".repeat(16))));
    let close = written(|out| write_close(out, STREAM, FileHandle([9, 8, 7, 6])));
    assert_eq!(close, hex("0102 0bbb 09080706 000000000000000000000000 00000000"));
    let token = written(|out| write_auth(out, STREAM, &Proof::Token("abc")).unwrap());
    let expected = "0102 0bb8 000000000000000000000000 7a746e00 0000000e 7a746e00 00 54 0000 0004 61626300";
    assert_eq!(token, hex(expected));
}

/// Property: the server's side reads what the client's side writes.
#[test]
fn server_reads_the_requests_of_the_client() {
    as_server(&written(|out| write_protocol(out, STREAM, 2)), |request| {
        assert_eq!(request, Request::Protocol { version: 0x511, abilities: 2 });
    });
    let login = Login { process: 7, user: "agent", about: "xrd.appname=exacat&xrd.rn=v5.5.3" };
    as_server(&written(|out| write_login(out, STREAM, &login)), |request| {
        let about = "exacat v5.5.3".to_owned();
        assert_eq!(request, Request::Login { process: 7, user: "agent".to_owned(), about });
    });
    let proofs = [
        (Proof::Token("a.b-c"), Credentials::Token("a.b-c")),
        (Proof::Unix("jdoe"), Credentials::Unix("jdoe")),
        (Proof::Host, Credentials::Host),
    ];
    for (proof, credentials) in proofs {
        as_server(&written(|out| write_auth(out, STREAM, &proof).unwrap()), |request| {
            assert_eq!(request, Request::Auth(credentials));
        });
    }
    as_server(&written(|out| write_open(out, STREAM, open::READ, "//a/b?x=1").unwrap()), |request| {
        let Request::Open { options, asked } = request else { panic!("{request:?}") };
        assert_eq!((options, asked.path, asked.fields.0), (open::READ, "//a/b", "x=1"));
    });
    as_server(&written(|out| write_stat(out, STREAM, "/a").unwrap()), |request| {
        assert!(matches!(request, Request::Stat { vfs: false, asked: Some(asked) } if asked.path == "/a"));
    });
    as_server(&written(|out| write_checksum(out, STREAM, "/a?cks.type=adler32").unwrap()), |request| {
        let Request::Checksum(asked) = request else { panic!("{request:?}") };
        assert_eq!((asked.path, asked.fields.get("cks.type")), ("/a", Some("adler32")));
    });
    as_server(&written(|out| write_config(out, STREAM, "readv_ior_max role").unwrap()), |request| {
        assert_eq!(request, Request::Config { names: vec!["readv_ior_max", "role"] });
    });
    let segments = [FileRange { handle: FileHandle([1; 4]), length: 5, offset: 6 }; 3];
    let bytes = written(|out| write_vector_read(out, STREAM, &segments).unwrap());
    let (header, carried) = as_server(&bytes, |request| assert_eq!(request, Request::OfOpenFile));
    let Ok(Some(FileRequest::VectorRead(chunks))) = FileRequest::parse(&header, &carried) else { panic!() };
    let read: Vec<_> = (0..chunks.count()).filter_map(|at| chunks.get(at)).collect();
    assert_eq!((header.stream, read), (STREAM, segments.to_vec()));
    let (range, handle) = (segments[0], segments[0].handle);
    for (bytes, expected) in [
        (written(|out| write_read(out, STREAM, &range)), FileRequest::Read(range)),
        (written(|out| write_page_read(out, STREAM, &range)), FileRequest::PageRead(range)),
        (written(|out| write_close(out, STREAM, handle)), FileRequest::Close(handle)),
    ] {
        let (header, carried) = as_server(&bytes, |request| assert_eq!(request, Request::OfOpenFile));
        assert_eq!(FileRequest::parse(&header, &carried), Ok(Some(expected)));
    }
}

/// Property: a request that no server can understand, or that breaks another one, is not written.
#[test]
fn requests_beyond_the_limits_are_refused() {
    let mut out = Vec::new();
    let path = |bytes: usize| format!("/{}", "x".repeat(bytes - 1));
    assert!(write_open(&mut Vec::new(), STREAM, 0, &path(PATH_BYTES_MAX)).is_ok());
    let error = write_open(&mut out, STREAM, 0, &path(PATH_BYTES_MAX + 1)).unwrap_err();
    assert_eq!(error.kind, ErrorKind::Limit);
    for bad in ["", "a", "?/a", "/a\nb", "/a\0", "/\x7f"] {
        assert!(write_open(&mut out, STREAM, 0, bad).is_err(), "{bad:?}");
        assert!(write_stat(&mut out, STREAM, bad).is_err(), "{bad:?}");
        assert!(write_checksum(&mut out, STREAM, bad).is_err(), "{bad:?}");
    }
    let token = |bytes: usize| "x".repeat(bytes);
    let longest = token(TOKEN_BYTES_MAX - 1);
    as_server(&written(|out| write_auth(out, STREAM, &Proof::Token(&longest)).unwrap()), |request| {
        assert_eq!(request, Request::Auth(Credentials::Token(&longest)));
    });
    for bad in [token(TOKEN_BYTES_MAX), token(0), "a b".to_owned(), "a\n".to_owned()] {
        assert!(write_auth(&mut out, STREAM, &Proof::Token(&bad)).is_err(), "{bad:.9}");
    }
    for bad in ["", "a b", "a\0b"] {
        assert!(write_auth(&mut out, STREAM, &Proof::Unix(bad)).is_err(), "{bad:?}");
    }
    assert!(write_config(&mut out, STREAM, "a\nb").is_err());
    let segment = FileRange { handle: FileHandle([0; 4]), length: 1, offset: 0 };
    assert!(write_vector_read(&mut Vec::new(), STREAM, &[segment; SEGMENTS_MAX]).is_ok());
    assert!(write_vector_read(&mut out, STREAM, &[segment; SEGMENTS_MAX + 1]).is_err());
    assert!(write_vector_read(&mut out, STREAM, &[]).is_err());
    assert!(out.is_empty(), "nothing is written of a refused request");
}

/// Returns one answer of each kind, as bytes and as the decoder gives it.
fn all_kinds() -> (Vec<u8>, Vec<Answer>) {
    let stream = STREAM;
    let bytes = [
        // A greeting, and the agreement on the protocol.
        hex("0000 0000 00000008 00000511 00000001"),
        // A read in two parts.
        hex("0102 0fa0 00000003 616263 0102 0000 00000002 6465"),
        // An empty success.
        hex("0102 0000 00000000"),
        // An error with a NUL at its end, and a control character.
        hex("0102 0fa3 0000000a 00000bc3 6e6f20 1b 0a 00"),
        // Redirections: to a host and to a URL.
        hex("0102 0fa4 00000007 00000446 623f78"),
        hex("0102 0fa4 0000000f ffffffff 726f6f743a2f2f622f2f61"),
        // A wait of 3 s, and a late answer.
        hex("0102 0fa5 00000006 00000003 6f6b"),
        hex("0102 0fa6 00000004 00000007"),
        hex("0000 0fa1 00000012 00001390 00000000 0102 0000 00000002 6f6b"),
        hex("0000 0fa1 00000015 00001390 00000000 0102 0fa3 00000005 00000bbf 21"),
        // A message to the user of the client, and one of an unknown kind.
        hex("0000 0fa1 00000014 0000138a 00000000 0000 0000 00000004 68696869"),
        hex("0000 0fa1 00000002 0000"),
        // More credentials are wanted.
        hex("0102 0fa2 00000001 00"),
    ];
    let body = |stream, bytes: &'static [u8]| Answer::Body { stream, bytes: Bytes::from_static(bytes) };
    let done = Answer::Done { stream };
    let place = |port, place: &str| Answer::Redirect { stream, port, place: place.to_owned() };
    let found = vec![
        body(StreamId([0, 0]), &[0, 0, 5, 0x11, 0, 0, 0, 1]),
        Answer::Done { stream: StreamId([0, 0]) },
        body(stream, b"abcde"),
        done.clone(),
        done.clone(),
        Answer::Error { stream, number: 3011, text: "no ".to_owned() },
        place(1094, "b?x"),
        place(-1, "root://b//a"),
        Answer::Wait { stream, seconds: 3 },
        Answer::Later { stream },
        body(stream, b"ok"),
        done,
        Answer::Error { stream, number: 3007, text: "!".to_owned() },
        Answer::AuthMore { stream },
    ];
    (bytes.concat(), found)
}

/// Property: answers are the same in one piece and in any others.
#[test]
fn answers_of_each_kind_come_out_of_any_pieces() {
    let (bytes, expected) = all_kinds();
    for piece in (1..40).chain([bytes.len()]) {
        let (found, error) = answers(&bytes, piece);
        assert_eq!((joined(found), error), (expected.clone(), None), "{piece}");
    }
    let mut decoder = Answers::new();
    decoder.buffer().extend_from_slice(&bytes[..bytes.len() - 1]);
    while decoder.answer().unwrap().is_some() {}
    assert!(!decoder.is_between_answers());
    decoder.buffer().extend_from_slice(&bytes[bytes.len() - 1..]);
    assert!(decoder.answer().unwrap().is_some() && decoder.answer().unwrap().is_none());
    assert!(decoder.is_between_answers());
}

/// Property: an answer that is none ends the connection, before its body is waited for.
#[test]
fn answers_that_are_none_are_refused() {
    let of = |bytes: &str| answers(&hex(bytes), 3).1;
    let malformed = |kind| Some(AnswerError::Malformed(kind));
    assert_eq!(of("0102 0fa8 00000000"), Some(AnswerError::Unknown(4008)));
    assert_eq!(of("4854 5450 2f312e31"), Some(AnswerError::Unknown(0x5450)), "HTTP");
    assert_eq!(of("0102 0fa3 00000003 000000"), malformed(status::ERROR));
    assert_eq!(of("0102 0fa4 00000003 000000"), malformed(status::REDIRECT));
    assert_eq!(of("0102 0fa4 00000005 00000001 ff"), malformed(status::REDIRECT));
    assert_eq!(of("0102 0fa5 00000000"), malformed(status::WAIT));
    // Late answers: of another length, in each other, a wait for another one.
    assert_eq!(of("0000 0fa1 00000012 00001390 00000000 0102 0000 00000001 6f6b"), malformed(status::ATTN));
    assert_eq!(of("0000 0fa1 00000010 00001390 00000000 0000 0fa1 00000000"), malformed(status::ATTN));
    assert_eq!(of("0000 0fa1 00000010 00001390 00000000 0102 0fa6 00000000"), malformed(status::ATTN));
    assert_eq!(of("0102 0fa7 00000003 000000"), malformed(status::STATUS));
    let head = |kind: u16, bytes: usize| {
        let mut out = STREAM.0.to_vec();
        out.extend_from_slice(&kind.to_be_bytes());
        out.extend_from_slice(&u32::try_from(bytes).unwrap().to_be_bytes());
        answers(&out, 8).1
    };
    let too_long = |got: usize, max| Some(AnswerError::TooLong { got: got as u64, max });
    for kind in [status::OK, status::OKSOFAR] {
        assert_eq!(head(kind, ANSWER_BYTES_MAX), None);
        assert_eq!(head(kind, ANSWER_BYTES_MAX + 1), too_long(ANSWER_BYTES_MAX + 1, ANSWER_BYTES_MAX));
    }
    for kind in [status::ERROR, status::REDIRECT, status::WAIT, status::AUTHMORE, status::STATUS] {
        let max = SHORT_ANSWER_BYTES_MAX;
        assert_eq!(head(kind, max), None);
        assert_eq!(head(kind, max + 1), too_long(max + 1, max), "{kind}");
    }
    assert_eq!(head(status::ATTN, ANSWER_BYTES_MAX + 16), None);
    assert!(matches!(head(status::ATTN, ANSWER_BYTES_MAX + 17), Some(AnswerError::TooLong { .. })));
    assert!(matches!(head(status::OK, u32::MAX as usize), Some(AnswerError::TooLong { .. })));
}

/// Property: a text of a server is cut at its limit and has no control characters.
#[test]
fn text_of_an_error_is_bounded() {
    let text = "x".repeat(ERROR_BYTES_MAX + 1);
    let mut bytes = Vec::new();
    response::write(&mut bytes, STREAM, status::ERROR, &[b"\0\0\x0b\xbf", text.as_bytes()].concat());
    let (found, _) = answers(&bytes, 1000);
    assert!(
        matches!(&found[..], [Answer::Error { number: 3007, text, .. }] if text.len() == ERROR_BYTES_MAX)
    );
}

/// Property: pages of the bytes written by hand are read, and written the same.
#[test]
fn pages_have_the_bytes_of_the_protocol() {
    // Of `123456789` the CRC-32C is e3069283.
    let header = "0102 1e 00 00000000 0000000d 0000000000001000";
    let checksum = crc32c::crc32c(&hex(header));
    let bytes = hex(&format!("0102 0fa7 00000018 {checksum:08x} {header} e3069283 313233343536373839"));
    assert_eq!(written(|out| write_pages(out, STREAM, true, 4096, b"123456789")), bytes);
    let page = Answer::Page { stream: STREAM, offset: 4096, bytes: Bytes::from_static(b"123456789") };
    for piece in [1, 7, bytes.len()] {
        let (found, error) = answers(&bytes, piece);
        assert_eq!((found, error), (vec![page.clone(), Answer::Done { stream: STREAM }], None));
    }
}

/// Property: data comes back from pages wherever it begins; a damaged byte is noticed.
#[test]
fn pages_give_their_data_back_and_damage_is_noticed() {
    let mut random = Random(3);
    let data: Vec<u8> = (0..5 * PAGE_BYTES).map(|_| random.next() as u8).collect();
    for (offset, length) in
        [(0, 0), (0, 1), (0, 4096), (0, 4097), (1, 4095), (1, 4096), (4095, 2), (100, 9000), (8192, 16_384)]
    {
        let data = &data[..length];
        let (first, second) = data.split_at(length / 2);
        let mut bytes = Vec::new();
        write_pages(&mut bytes, STREAM, false, offset, first);
        write_pages(&mut bytes, STREAM, true, offset + first.len() as u64, second);
        let (found, error) = answers(&bytes, 1 + random.below(3000) as usize);
        assert_eq!(error, None);
        let (mut back, mut at, mut ends) = (Vec::new(), offset, 0);
        for answer in found {
            match answer {
                Answer::Page { offset, bytes, .. } => {
                    assert_eq!(offset, at);
                    at += bytes.len() as u64;
                    back.extend_from_slice(&bytes);
                }
                Answer::Done { .. } => ends += 1,
                other => panic!("{other:?}"),
            }
        }
        assert_eq!((back, ends), (data.to_vec(), 1), "{offset} {length}");
        assert_eq!(
            written(|out| write_pages(out, STREAM, true, offset, data)).len(),
            8 + PAGE_HEADER_BYTES + paged_bytes(offset, length as u64) as usize
        );
    }
    let whole = written(|out| write_pages(out, STREAM, true, 0, &data[..5000]));
    let header = 8 + PAGE_HEADER_BYTES;
    for at in 8..whole.len() {
        let mut bytes = whole.clone();
        bytes[at] ^= 1;
        let (found, error) = answers(&bytes, 4000);
        match at < header {
            true => assert_eq!(error, Some(AnswerError::Pages(PageError::Checksum)), "{at}"),
            false => {
                let offset = if at < header + 4 + PAGE_BYTES { 0 } else { PAGE_BYTES as u64 };
                assert!(found.contains(&Answer::DamagedPage { stream: STREAM, offset }), "{at}");
            }
        }
    }
}

/// Property: headers of pages with a right checksum and another content are refused, not followed.
#[test]
fn headers_of_other_pages_are_refused() {
    let sealed = |body: &str| {
        let body = hex(body);
        hex(&format!("0102 0fa7 00000018 {:08x}", crc32c::crc32c(&body)))
            .into_iter()
            .chain(body)
            .collect::<Vec<u8>>()
    };
    let other = Some(AnswerError::Pages(PageError::Other));
    let tail = "00000000 0000000d 0000000000001000";
    // A write of pages, progress, and negative numbers.
    for body in [
        format!("0102 1a 00 {tail}"),
        format!("0102 1e 02 {tail}"),
        "0102 1e 00 00000000 ffffffff 0000000000001000".to_owned(),
        "0102 1e 00 00000000 0000000d ffffffffffffffff".to_owned(),
    ] {
        assert_eq!(answers(&sealed(&body), 5).1, other, "{body}");
    }
    let malformed = Some(AnswerError::Malformed(status::STATUS));
    assert_eq!(answers(&sealed(&format!("0103 1e 00 {tail}")), 5).1, malformed, "another request");
    // Pages of no bytes, and of a checksum only.
    assert_eq!(answers(&sealed("0102 1e 00 00000000 00000004 0000000000001000"), 5).1, malformed);
    let most = paged_bytes(1, ANSWER_BYTES_MAX as u64) as usize;
    let of = |bytes: usize| {
        let header =
            PageHeader { stream: STREAM, is_last: true, bytes: u32::try_from(bytes).unwrap(), offset: 0 };
        answers(&written(|out| header.write(out)), 5).1
    };
    assert_eq!((of(most), of(0)), (None, None));
    assert!(matches!(of(most + 1), Some(AnswerError::TooLong { .. })));
}

/// Property: the segments of a vector read come out with their places, whatever the pieces.
#[test]
fn vector_read_gives_its_segments_in_any_pieces() {
    let segments: Vec<FileRange> = [(3, 100), (0, 200), (5, 0)]
        .map(|(length, offset)| FileRange { handle: FileHandle([0, 0, 0, 7]), length, offset })
        .into();
    let bytes = hex("00000007 00000003 0000000000000064 616263 00000007 00000000 00000000000000c8
         00000007 00000005 0000000000000000 6465666768");
    for piece in 1..=bytes.len() {
        let mut answer = VectorAnswer::new(segments.clone());
        let mut found: Vec<(u64, u8)> = Vec::new();
        for piece in bytes.chunks(piece) {
            assert!(!answer.is_complete());
            answer.feed(piece, |at, bytes| found.extend((at..).zip(bytes.iter().copied()))).unwrap();
        }
        assert!(answer.is_complete());
        assert_eq!(found, (100..103).chain(0..5).zip(*b"abcdefgh").collect::<Vec<_>>());
        assert_eq!(answer.feed(&bytes[..16], |_, _| {}), Err(WrongSegment), "one more");
    }
    let feed = |bytes: &str| {
        let mut answer = VectorAnswer::new(segments.clone());
        answer.feed(&hex(bytes), |_, _| {}).map(|()| answer.is_complete())
    };
    assert_eq!(feed("00000007 00000002 0000000000000064 6162"), Ok(false), "a short one");
    for bad in [
        "00000008 00000003 0000000000000064",
        "00000007 00000004 0000000000000064",
        "00000007 00000003 0000000000000065",
        "00000007 ffffffff 0000000000000064",
        "00000007 00000003 ffffffffffffffff",
    ] {
        assert_eq!(feed(bad), Err(WrongSegment), "{bad}");
    }
}

/// Property: short answers are read as servers write them, and no other bodies.
#[test]
fn short_answers_are_read() {
    let protocol = ProtocolAnswer::read(&hex("00000511 80300001 5300")).unwrap();
    assert_eq!(protocol, ProtocolAnswer { version: 0x511, roles: 0x8030_0001 });
    assert_eq!(ProtocolAnswer::read(&[0; 7]), None);
    let login = |text: &str| [&[7; 16], text.as_bytes()].concat();
    let methods = |text: &str| {
        let carried = login(text);
        let answer = LoginAnswer::read(&carried).unwrap();
        (answer.is_complete(), answer.methods().map(str::to_owned).collect::<Vec<_>>())
    };
    assert_eq!(methods(""), (true, vec![]));
    assert_eq!(methods("\0"), (true, vec![]));
    assert_eq!(methods("&P=ztn,0:4096:&P=unix\0"), (false, vec!["ztn".to_owned(), "unix".to_owned()]));
    assert!(LoginAnswer::read(b"").unwrap().is_complete(), "no id of a session");
    assert_eq!(LoginAnswer::read(&[7; 15]), None);
    assert_eq!(LoginAnswer::read(&login("\u{e9}")[..17]), None);
    let opened =
        OpenAnswer::read(&[&hex("00000003 00000000 00000000")[..], b"17 4096 48 1700000000\0"].concat());
    let stat = opened.unwrap().stat.unwrap();
    assert_eq!((opened.unwrap().handle, stat.size, stat.flags), (FileHandle([0, 0, 0, 3]), 4096, 48));
    assert_eq!(
        OpenAnswer::read(&[1, 2, 3, 4]),
        Some(OpenAnswer { handle: FileHandle([1, 2, 3, 4]), stat: None })
    );
    assert_eq!(OpenAnswer::read(&[1, 2, 3]), None);
    let sum = ChecksumAnswer::read(b"adler32 e222ea89\0").unwrap();
    assert_eq!((sum.algorithm, sum.value), ("adler32", "e222ea89"));
    for bad in [&b""[..], b"adler32", b"adler32 x", b"adler32 1 2", b"\xff 1"] {
        assert_eq!(ChecksumAnswer::read(bad), None, "{bad:?}");
    }
}

/// Property: random bytes give answers or an error, the same in any pieces.
#[test]
fn random_answers_are_the_same_in_any_pieces() {
    let mut random = Random(5);
    for _ in 0..2000 {
        let mut bytes = Vec::new();
        for _ in 0..random.below(6) {
            let carried: Vec<u8> = (0..random.below(60)).map(|_| random.next() as u8).collect();
            match random.below(4) {
                0 => write_pages(&mut bytes, STREAM, random.below(2) == 0, random.below(9000), &carried),
                1 => {
                    let mut late = hex("00001390 00000000");
                    response::write(&mut late, STREAM, 4000 + random.below(9) as u16, &carried);
                    response::write(&mut bytes, StreamId([0, 0]), status::ATTN, &late);
                }
                2 => response::write(&mut bytes, STREAM, 4000 + random.below(9) as u16, &carried),
                _ => response::write(&mut bytes, STREAM, status::OK, &carried),
            }
        }
        if random.below(3) == 0 && !bytes.is_empty() {
            let at = random.below(bytes.len() as u64) as usize;
            bytes[at] = random.next() as u8;
        }
        let (whole, error) = answers(&bytes, bytes.len());
        let (pieces, same) = answers(&bytes, 1 + random.below(20) as usize);
        assert_eq!((joined(pieces), same), (joined(whole), error));
    }
}
