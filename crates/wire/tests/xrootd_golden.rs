//! Bytes of XRootD's protocol, as recorded from real clients and servers.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

use exacat_wire::xrootd::numbers::{error, open, request, role};
use exacat_wire::xrootd::{
    Credentials, Decoder, Fields, Frame, HANDSHAKE, RawPath, Request, RequestHeader, StreamId, response,
    write_request,
};

fn hex(text: &str) -> Vec<u8> {
    let digits: Vec<u8> =
        text.chars().filter_map(|one| one.to_digit(16)).map(|digit| u8::try_from(digit).unwrap()).collect();
    digits.chunks(2).map(|pair| pair[0] << 4 | pair[1]).collect()
}

/// Returns the header and the body of a request in these bytes behind a handshake.
fn decoded(bytes: &[u8]) -> (RequestHeader, Vec<u8>) {
    let mut decoder = Decoder::new();
    decoder.buffer().extend_from_slice(&HANDSHAKE);
    decoder.buffer().extend_from_slice(bytes);
    assert_eq!(decoder.frame(), Ok(Some(Frame::Handshake)));
    let Ok(Some(Frame::Request(header, carried))) = decoder.frame() else { panic!("no request") };
    assert_eq!(decoder.frame(), Ok(None));
    (header, carried.to_vec())
}

#[test]
fn a_client_and_a_server_greet_each_other() {
    assert_eq!(HANDSHAKE.as_slice(), hex("00000000 00000000 00000000 00000004 000007dc"));
    let mut out = Vec::new();
    response::write_handshake(&mut out);
    assert_eq!(out, hex("0000 0000 00000008 00000511 00000000"), "a manager");
}

#[test]
fn the_protocol_is_agreed_on() {
    // xrdfs 5.5.3: version 5.1.1, supports TLS, a login follows.
    let bytes = hex("0000 0bbe 00000511 0203 0000 0000000000000000 00000000");
    let (header, carried) = decoded(&bytes);
    let asked = Request::parse(&header, &carried).unwrap();
    assert_eq!(asked, Request::Protocol { version: 0x511, abilities: 2 });
    let mut out = Vec::new();
    response::write_protocol(&mut out, StreamId([0, 0]), role::MANAGER);
    assert_eq!(out, hex("0000 0000 00000008 00000511 00000002"));
    out.clear();
    let roles = role::MANAGER | role::HAS_TLS | role::GO_TO_TLS | role::TLS_LOGIN;
    response::write_protocol(&mut out, StreamId([1, 2]), roles);
    assert_eq!(out, hex("0102 0000 00000008 00000511 c4000002"));
}

#[test]
fn a_client_logs_in() {
    let about = b"xrd.cc=us&xrd.tz=0&xrd.appname=xrdcp&xrd.info=&xrd.hostname=vm&xrd.rn=v5.5.3";
    let mut bytes = hex("0000 0bbf 00001234");
    bytes.extend_from_slice(b"root\0\0\0\0");
    bytes.extend_from_slice(&hex("00 01 85 00"));
    bytes.extend_from_slice(&u32::try_from(about.len()).unwrap().to_be_bytes());
    bytes.extend_from_slice(about);
    let (header, carried) = decoded(&bytes);
    let asked = Request::parse(&header, &carried).unwrap();
    let login = Request::Login { process: 0x1234, user: "root".into(), about: "xrdcp v5.5.3".into() };
    assert_eq!(asked, login);
    let mut out = Vec::new();
    response::write_login(&mut out, StreamId([0, 0]), [7; 16], "");
    assert_eq!(out, hex(&format!("0000 0000 00000010 {}", "07".repeat(16))));
    out.clear();
    response::write_login(&mut out, StreamId([0, 0]), [7; 16], "&P=ztn,0:4096:");
    assert_eq!(out[..8], hex("0000 0000 0000001f"));
    assert_eq!(&out[24..], b"&P=ztn,0:4096:\0");
}

#[test]
fn credentials_are_read_as_clients_show_them() {
    let header = |kind: &[u8; 4], carried: &[u8]| {
        let mut body = [0; 16];
        body[12..].copy_from_slice(kind);
        let bytes = i32::try_from(carried.len()).unwrap();
        RequestHeader { stream: StreamId([0, 0]), request: request::AUTH, body, bytes }
    };
    let parse = |kind: &[u8; 4], carried: &'static [u8]| Request::parse(&header(kind, carried), carried);
    let token = b"ztn\0\0T\0\0\0\x04abc\0";
    assert_eq!(parse(b"ztn\0", token), Ok(Request::Auth(Credentials::Token("abc"))));
    assert_eq!(parse(b"unix", b"unix\0jdoe users\0"), Ok(Request::Auth(Credentials::Unix("jdoe"))));
    assert_eq!(parse(b"host", b"host\0"), Ok(Request::Auth(Credentials::Host)));
    assert_eq!(parse(b"gsi\0", b"gsi\0"), Ok(Request::Auth(Credentials::Other("gsi".into()))));
    for bad in [&b""[..], b"ztn\0", b"ztn\0\0T\0\0\0\x05abc\0", b"ztn\0\0T\0\0\xff\xff", b"unix\0jdoe"] {
        assert!(parse(b"ztn\0", bad).is_err(), "{bad:?}");
    }
    assert!(!format!("{:?}", Credentials::Token("secret")).contains("secret"));
}

#[test]
fn files_are_opened_for_reading_or_for_writing() {
    let of = |options: u16| {
        let mut body = [0; 16];
        body[2..4].copy_from_slice(&options.to_be_bytes());
        let mut bytes = Vec::new();
        write_request(&mut bytes, StreamId([0, 9]), request::OPEN, body, b"//a//b?tried=h");
        let (header, carried) = decoded(&bytes);
        match Request::parse(&header, &carried).unwrap() {
            Request::Open { options, asked } => {
                assert_eq!(asked.lfn().unwrap().as_str(), "/a/b");
                assert_eq!(asked.fields.tried().collect::<Vec<_>>(), ["h"]);
                options & open::WRITING != 0
            }
            other => panic!("{other:?}"),
        }
    };
    // xrdcp, python's File.open, go-hep; then xrdcp, gfal and xrdcp --posc writing.
    assert_eq!([0x0450, 0x0440, 0x0010].map(of), [false; 3]);
    assert_eq!([0x0462, 0x1462, 0x1562].map(of), [true; 3]);
}

#[test]
fn paths_come_in_several_forms() {
    let asked = RawPath::parse(b"//a/b/?cks.type=adler32&authz=Bearer%20exa_1\0").unwrap();
    assert_eq!(asked.lfn().unwrap().as_str(), "/a/b");
    assert_eq!(asked.fields.get("cks.type"), Some("adler32"));
    assert_eq!(asked.fields.get("cks"), None);
    assert_eq!(asked.fields.bearers().collect::<Vec<_>>(), ["exa_1"]);
    let twice = Fields("authz=exa_1,Bearer%20eyJ.x.y&tried=a,b,,c");
    assert_eq!(twice.bearers().collect::<Vec<_>>(), ["exa_1", "eyJ.x.y"]);
    assert_eq!(twice.tried().collect::<Vec<_>>(), ["a", "b", "c"]);
    for bad in [&b"/a\0b"[..], b"/a/../b", b"a", b"/\xff", b""] {
        assert!(RawPath::parse(bad).and_then(|asked| asked.lfn()).is_err(), "{bad:?}");
    }
    // Text that only resembles an escape is a part of the name.
    assert_eq!(RawPath::parse(b"/%2e%2e/x").unwrap().lfn().unwrap().as_str(), "/%2e%2e/x");
}

#[test]
fn two_paths_are_told_apart_by_the_length_of_the_first() {
    let parse = |first: u16, carried: &[u8]| {
        let mut body = [0; 16];
        body[14..].copy_from_slice(&first.to_be_bytes());
        let mut bytes = Vec::new();
        write_request(&mut bytes, StreamId([0, 0]), request::MV, body, carried);
        let (header, carried) = decoded(&bytes);
        match Request::parse(&header, &carried) {
            Ok(Request::Mv { from, to }) => Ok((from.path.to_owned(), to.path.to_owned())),
            Ok(other) => panic!("{other:?}"),
            Err(error) => Err(error),
        }
    };
    assert_eq!(parse(6, b"/a b/c /d e").unwrap(), ("/a b/c".to_owned(), "/d e".to_owned()));
    assert_eq!(parse(0, b"/a /b").unwrap(), ("/a".to_owned(), "/b".to_owned()));
    for (first, bad) in
        [(2, &b"/a"[..]), (3, b"/a /b"), (0, b"/a"), (u16::MAX, b"/a /b"), (0, b""), (2, b"/a ")]
    {
        assert!(parse(first, bad).is_err(), "{first} {bad:?}");
    }
}

#[test]
fn a_locate_is_for_a_path_or_for_servers() {
    let parse = |carried: &'static [u8]| {
        let header = RequestHeader {
            stream: StreamId([0, 0]),
            request: request::LOCATE,
            body: [0; 16],
            bytes: i32::try_from(carried.len()).unwrap(),
        };
        match Request::parse(&header, carried).unwrap() {
            Request::Locate { any, asked, .. } => (any, asked.path.to_owned()),
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(parse(b"/a"), (false, "/a".to_owned()));
    assert_eq!(parse(b"*/a"), (true, "/a".to_owned()));
    assert_eq!(parse(b"*"), (true, "/".to_owned()));
}

#[test]
fn redirections_errors_and_waits_have_their_bytes() {
    let mut out = Vec::new();
    response::write_redirect_host(&mut out, StreamId([0, 3]), "se1", 1094, "authz=Bearer%20x");
    let mut expected = hex("0003 0fa4 00000018 00000446");
    expected.extend_from_slice(b"se1?authz=Bearer%20x");
    assert_eq!(out, expected);
    out.clear();
    response::write_redirect_url(&mut out, StreamId([0, 3]), "root://h//x");
    let mut expected = hex("0003 0fa4 0000000f ffffffff");
    expected.extend_from_slice(b"root://h//x");
    assert_eq!(out, expected);
    out.clear();
    response::write_error(&mut out, StreamId([0, 3]), error::NOT_FOUND, "no");
    assert_eq!(out, hex("0003 0fa3 00000007 00000bc3 6e6f00"));
    out.clear();
    response::write_wait(&mut out, StreamId([0, 3]), 3, "w");
    assert_eq!(out, hex("0003 0fa5 00000005 00000003 77"));
}

#[test]
fn a_directory_is_told_as_clients_read_it() {
    let stat = response::Stat {
        id: 5,
        size: 11,
        flags: 48,
        modified: 1000,
        created: 999,
        mode: 0o644,
        owner: "jdoe",
        group: "users",
    };
    let mut listing = response::Listing::new(true);
    assert!(listing.push("a b"));
    listing.push_stat(&stat, Some("adler32:e222ea89"));
    let part = listing.part(StreamId([0, 1]));
    assert!(listing.push("c"));
    listing.push_stat(&stat, None);
    let end = listing.finish(StreamId([0, 1]));
    assert_eq!(part[2..4], 4000u16.to_be_bytes());
    let text = [&part[8..], &end[8..]].concat();
    let line = "5 11 48 1000 999 1000 0644 jdoe users";
    let expected = format!(".\n0 0 0 0\na b\n{line} [ adler32:e222ea89 ]\nc\n{line}\0");
    assert_eq!(String::from_utf8(text).unwrap(), expected);

    let mut names = response::Listing::new(false);
    assert!(names.push("a") && names.push("b"));
    assert!(!names.push("c\n/etc"), "it would be two names");
    assert_eq!(names.finish(StreamId([0, 1]))[8..], *b"a\nb\0");
    assert_eq!(response::Listing::new(false).finish(StreamId([0, 1])), hex("0001 0000 00000000"), "nothing");
    let empty = response::Listing::new(true).finish(StreamId([0, 1]));
    assert_eq!(empty[8..], *b".\n0 0 0 0\0");
}
