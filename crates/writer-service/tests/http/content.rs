//! Content of files: certified, still written, in parts, damaged.

use std::path::PathBuf;

use exacat_model::{ErrorKind, Lfn};
use exacat_wire::writer::FileId;
use exacat_writer::sums::adler32;
use exacat_writer_service::{Readable, Remote, RemoteContent};

use crate::rig::{OPERATOR, OWNER, Producer, Rig, STRANGER, bytes, eventually, raw, request};

const FILE: FileId = FileId([5; 16]);
const LFN: &str = "/run/5 ü";
const BLOCK: usize = 1 << 20;

async fn all(content: exacat_model::Result<RemoteContent>) -> exacat_model::Result<Vec<u8>> {
    let mut content = content?;
    let mut all = Vec::new();
    while let Some(bytes) = content.next().await? {
        all.extend_from_slice(&bytes);
    }
    Ok(all)
}

async fn read(remote: &Remote, from: u64, open: bool) -> exacat_model::Result<Vec<u8>> {
    all(remote.content(&Readable::File(FILE), from, open).await).await
}

/// Returns chunks of a file of 2 MiB and a bit: one of a whole block, and many small ones.
fn chunks() -> Vec<Vec<u8>> {
    let mut chunks = vec![bytes(1, BLOCK)];
    chunks.extend((0..64).map(|at| bytes(at, BLOCK / 64)));
    chunks.push(bytes(2, 4321));
    chunks
}

fn part_path(rig: &Rig, epoch: u32) -> PathBuf {
    rig.directory.path().join(format!("volume/parts/{FILE}-{epoch:08x}"))
}

fn flip(path: &std::path::Path, at: usize) {
    let mut content = std::fs::read(path).unwrap();
    content[at] ^= 1;
    std::fs::write(path, content).unwrap();
}

/// Property: a certified file is read whole and in ranges, by its id and its name, with its checksum.
#[tokio::test]
async fn certified_file_is_read_whole_and_in_ranges() {
    let rig = Rig::start().await;
    let chunks = chunks();
    let expected = chunks.concat();
    rig.certified(FILE, LFN, &chunks).await;
    let remote = rig.remote(OWNER);
    assert!(read(&remote, 0, false).await.unwrap() == expected);
    assert!(read(&remote, 0, true).await.unwrap() == expected, "a certified file is read as such");
    for from in [1, 4095, BLOCK as u64 - 1, BLOCK as u64, BLOCK as u64 + 17, expected.len() as u64 - 1] {
        assert!(read(&remote, from, false).await.unwrap() == expected[from as usize..], "{from}");
    }
    let named = remote.content(&Readable::Name(Lfn::parse(LFN).unwrap()), 0, false).await.unwrap();
    assert_eq!((named.file, named.length), (FILE, expected.len() as u64));
    assert_eq!(named.adler32, Some(adler32(&expected)));
    assert!(all(Ok(named)).await.unwrap() == expected);
    let path = format!("/api/v1/writer/content/{FILE}");
    let ask = |method: &str, headers: &str| {
        let request = format!(
            "{method} {path} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {OWNER}\r\n{headers}Connection: close\r\n\r\n"
        );
        let address = rig.http();
        async move { raw(address, request.as_bytes()).await }
    };
    let head = ask("HEAD", "").await;
    assert!(head.starts_with("HTTP/1.1 200") && head.ends_with("\r\n\r\n"), "{head}");
    assert!(head.contains(&format!("content-length: {}\r\n", expected.len())), "{head}");
    assert!(head.contains(&format!("digest: adler32={:08x}\r\n", adler32(&expected))), "{head}");
    let part = ask("GET", "Range: bytes=10-19\r\n").await;
    assert!(part.starts_with("HTTP/1.1 206"), "{part}");
    assert!(part.contains(&format!("content-range: bytes 10-19/{}\r\n", expected.len())), "{part}");
    let none = ask("GET", &format!("Range: bytes={}-\r\n", expected.len())).await;
    assert!(none.starts_with("HTTP/1.1 416"), "{none}");
    let other = ask("GET", "Range: bytes=10-19\r\nIf-Range: \"other\"\r\n").await;
    assert!(other.starts_with("HTTP/1.1 200"), "a range of another version is not answered");
}

/// Property: the catalogue says who may read; nobody else learns whether a file exists.
#[tokio::test]
async fn rights_of_readers_are_those_of_the_catalogue() {
    let rig = Rig::start().await;
    rig.certified(FILE, LFN, &[bytes(1, 100)]).await;
    for (token, kind) in [
        ("", ErrorKind::Unauthenticated),
        ("unknown", ErrorKind::Unauthenticated),
        (STRANGER, ErrorKind::Denied),
    ] {
        for open in [false, true] {
            assert_eq!(read(&rig.remote(token), 0, open).await.unwrap_err().kind, kind, "{token}");
            let part =
                raw(rig.http(), &request("GET", &format!("/api/v1/writer/parts/{FILE}/1"), token)).await;
            assert!(!part.starts_with("HTTP/1.1 2"), "{part}");
        }
    }
    let mut producer = Producer::connect(rig.server.address()).await;
    let open = FileId([6; 16]);
    producer.open(open, 1, 0, "/run/6").await;
    producer.chunks(open, 1, 0, 0, &[bytes(6, 10)]).await;
    for token in [OWNER, OPERATOR] {
        let content = rig.remote(token).content(&Readable::File(open), 0, true).await;
        assert_eq!(all(content).await.unwrap(), bytes(6, 10));
    }
    let stranger = rig.remote(STRANGER);
    let unknown = stranger.content(&Readable::File(FileId([7; 16])), 0, true).await.err().unwrap();
    let foreign = stranger.content(&Readable::File(open), 0, true).await.err().unwrap();
    assert_eq!((foreign.kind, foreign.message), (unknown.kind, unknown.message));
}

/// Property: of a file that is written, a reader sees what is durable, from byte 0 on, without gaps.
#[tokio::test]
async fn file_that_is_written_is_read_up_to_its_durable_end() {
    let rig = Rig::start().await;
    let remote = rig.remote(OWNER);
    let mut producer = Producer::connect(rig.server.address()).await;
    producer.open(FILE, 1, 0, LFN).await;
    producer.chunks(FILE, 1, 0, 0, &[bytes(1, 1000), bytes(2, 500)]).await;
    let begun = [bytes(1, 1000), bytes(2, 500)].concat();
    assert_eq!(read(&remote, 0, true).await.unwrap(), begun);
    assert_eq!(read(&remote, 1400, true).await.unwrap(), begun[1400..]);
    assert_eq!(read(&remote, 0, false).await.unwrap_err().kind, ErrorKind::NotFound);
    // Behind a gap: durable, and not shown.
    producer.chunks(FILE, 1, 3, 2000, &[bytes(4, 100)]).await;
    assert_eq!(read(&remote, 0, true).await.unwrap(), begun);
    let content = remote.content(&Readable::Name(Lfn::parse(LFN).unwrap()), 0, true).await.unwrap();
    assert_eq!((content.length, content.adler32), (1500, None));
}

/// Property: a file in two parts is put together, with the chunks that both have once.
#[tokio::test]
async fn file_in_two_parts_is_put_together() {
    let rig = Rig::start().await;
    let chunks: Vec<Vec<u8>> = (0..40).map(|at| bytes(at, 1000)).collect();
    let mut producer = Producer::connect(rig.server.address()).await;
    producer.open(FILE, 1, 0, LFN).await;
    producer.chunks(FILE, 1, 0, 0, &chunks[..25]).await;
    producer.open(FILE, 2, 25_000, LFN).await;
    producer.chunks(FILE, 2, 25, 25_000, &chunks[25..]).await;
    let service = rig.server.service();
    producer.close(FILE, &chunks, &[(1, service), (2, service)]).await;
    let expected = chunks.concat();
    let remote = rig.remote(OWNER);
    assert!(read(&remote, 0, false).await.unwrap() == expected);
    assert!(read(&remote, 24_999, false).await.unwrap() == expected[24_999..]);
    // A damaged second part ends the answer before its bytes, and leaves those of the first readable.
    flip(&part_path(&rig, 2), 30_000);
    let mut content = remote.content(&Readable::File(FILE), 0, false).await.unwrap();
    let (mut seen, mut error) = (Vec::new(), None);
    while error.is_none() {
        match content.next().await {
            Ok(Some(bytes)) => seen.extend_from_slice(&bytes),
            Ok(None) => break,
            Err(found) => error = Some(found),
        }
    }
    assert_eq!(error.expect("the answer ends early").kind, ErrorKind::Corrupt);
    assert!(seen.len() <= 25_000 && seen[..] == expected[..seen.len()], "{} bytes", seen.len());
    std::fs::remove_file(part_path(&rig, 1)).unwrap();
    assert_eq!(read(&remote, 0, false).await.unwrap_err().kind, ErrorKind::Corrupt);
    let metrics = raw(rig.http(), &request("GET", "/metrics", "")).await;
    assert!(metrics.contains("exacat_writer_content_broken_total 2\n"), "{metrics}");
}

/// Property: readers that take nothing hold a bounded number of places, and others are told to come again.
#[tokio::test]
async fn answers_with_content_are_bounded() {
    let rig = Rig::start().await;
    // More than the buffers of a connection take.
    let chunks: Vec<Vec<u8>> = (0..24 * 16).map(|at| bytes(at as u8, BLOCK / 16)).collect();
    rig.certified(FILE, LFN, &chunks).await;
    let remote = rig.remote(OWNER);
    let mut slow = Vec::new();
    let mut refused = None;
    for _ in 0..=exacat_writer_service::limits::CONTENT_ANSWERS_MAX {
        match remote.content(&Readable::File(FILE), 0, false).await {
            Ok(content) => slow.push(content),
            Err(error) => refused = Some(error),
        }
    }
    assert_eq!(slow.len(), exacat_writer_service::limits::CONTENT_ANSWERS_MAX);
    assert_eq!(refused.expect("one is too many").kind, ErrorKind::Busy);
    drop(slow);
    eventually("the places are free again", async || read(&remote, 0, false).await.is_ok()).await;
    let metrics = raw(rig.http(), &request("GET", "/metrics", "")).await;
    assert!(metrics.contains("exacat_writer_content_answers 0\n"), "{metrics}");
}

/// Property: parts are read by chunk ranges, and wrong requests for them change nothing.
#[tokio::test]
async fn wrong_requests_for_content_are_refused() {
    let rig = Rig::start().await;
    rig.certified(FILE, LFN, &[bytes(1, 100)]).await;
    for (path, status) in [
        (format!("content/{FILE}?open=maybe"), 400),
        (format!("content/{FILE}?x=1"), 400),
        ("content/zz".to_owned(), 400),
        ("content".to_owned(), 400),
        ("content?lfn=relative".to_owned(), 400),
        ("content?lfn=%2Fnone".to_owned(), 404),
        (format!("content/{}", FileId([1; 16])), 404),
        (format!("parts/{FILE}/x"), 400),
        (format!("parts/{FILE}/7"), 404),
        (format!("parts/{FILE}/1?from=2&to=1"), 400),
        (format!("parts/{}/1", FileId([1; 16])), 404),
        (format!("parts/{FILE}/1?from=0&to=18446744073709551615"), 200),
        (format!("parts/{FILE}/1?from=100"), 200),
    ] {
        let answer = raw(rig.http(), &request("GET", &format!("/api/v1/writer/{path}"), OWNER)).await;
        assert!(answer.starts_with(&format!("HTTP/1.1 {status} ")), "{path}: {answer}");
    }
}
