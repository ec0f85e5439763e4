//! Reads of all kinds, stats, checksums, and what is refused.

use exacat_replay_service::origin::OriginSettings;
use exacat_wire::xrootd::numbers::{error, open, query, request};

use super::client::{Client, LISTED, LISTED_SIZE, chunk, content, origin, settings};

/// Property: each kind of read gives the bytes that follow from the name, from any place, and the counters
/// are those of the requests.
#[tokio::test]
async fn reads_give_the_bytes_of_the_file() {
    let origin = origin(OriginSettings { counts_files: true, ..settings() }).await;
    let mut client = Client::of(&origin).await;
    let handle = client.open(LISTED).await;
    let whole = content(LISTED, 0, LISTED_SIZE as usize);
    for kind in [request::READ, request::PGREAD] {
        let all = client.read(kind, handle, 0, 8 << 20).await.ok();
        assert!(all == whole, "a read ends at the end of the file");
        assert_eq!(client.read(kind, handle, 4090, 10).await.ok(), whole[4090..4100]);
        let tail = client.read(kind, handle, LISTED_SIZE as i64 - 3, 100).await.ok();
        assert_eq!(tail, whole[whole.len() - 3..]);
        assert_eq!(client.read(kind, handle, LISTED_SIZE as i64, 100).await.ok(), b"");
        assert_eq!(client.read(kind, handle, i64::MAX, 100).await.ok(), b"");
    }
    assert_eq!(client.read(request::READ, handle, 0, 0).await.ok(), b"");
    let other = client.open("//any//x.1MiB").await;
    let list = [chunk(handle, 5, 100), chunk(other, (1 << 20) - 7, 7), chunk(handle, 0, 0)].concat();
    let got = client.ask(request::READV, [0; 16], &list).await.ok();
    let other_end = content("/any/x.1MiB", (1 << 20) - 7, 7);
    let expected = [&list[..16], &whole[5..105], &list[16..32], &other_end, &list[32..]].concat();
    assert_eq!(got, expected);
    for handle in [handle, other] {
        client.read(request::CLOSE, handle, 0, 0).await.ok();
    }
    let counters = origin.counters();
    let bytes = 2 * (LISTED_SIZE + 13) + 107;
    assert_eq!((counters.reads, counters.page_reads, counters.vector_reads, counters.ranges), (6, 5, 1, 3));
    assert_eq!((counters.opens, counters.closes, counters.files_open, counters.bytes_out), (2, 2, 0, bytes));
    assert!(counters.bytes_sent > bytes);
    let mut files = origin.files().unwrap().files;
    files.sort_by(|one, two| one.name.cmp(&two.name));
    let told: Vec<(&str, u64)> = files.iter().map(|file| (file.name.as_str(), file.bytes)).collect();
    assert_eq!(told, [("/any/x.1MiB", 7), (LISTED, bytes - 7)]);
    origin.stop().await;
}

/// Property: a stat says the size, in the answer to an open too, and the checksum is that of the bytes.
#[tokio::test]
async fn stats_and_checksums_are_those_of_the_bytes() {
    let origin = origin(settings()).await;
    let mut client = Client::of(&origin).await;
    let stat = client.stat(LISTED).await.text();
    let words: Vec<&str> = stat.split(' ').collect();
    assert_eq!(words[1..4], [&LISTED_SIZE.to_string(), "48", "1700000000"]);
    assert!(words[0].parse::<i64>().is_ok());
    let opened = client.try_open(LISTED, open::READ | open::RETURN_STAT).await.ok();
    assert_eq!(opened[4..12], [0; 8]);
    assert_eq!(opened[12..], [stat.as_bytes(), &[0]].concat());
    let mut body = [0; 16];
    body[12..].copy_from_slice(&opened[..4]);
    assert_eq!(client.ask(request::STAT, body, &[]).await.text(), stat);
    assert!(client.stat("/").await.text().contains(" 51 "));
    let whole = content(LISTED, 0, LISTED_SIZE as usize);
    let sum = simd_adler32::adler32(&whole.as_slice());
    assert_eq!(client.checksum(LISTED).await.text(), format!("adler32 {sum:08x}"));
    let typed = format!("{LISTED}?cks.type=adler32");
    assert_eq!(client.checksum(&typed).await.text(), format!("adler32 {sum:08x}"));
    assert_eq!(client.checksum(&format!("{LISTED}?cks.type=md5")).await.error(), error::UNSUPPORTED);
    let mut body = [0; 16];
    body[..2].copy_from_slice(&query::CONFIG.to_be_bytes());
    let config = client.ask(request::QUERY, body, b"chksum readv_iov_max nothing").await.text();
    assert_eq!(config, "0:adler32\n1024\nnothing\n");
    client.ask(request::PING, [0; 16], &[]).await.ok();
    let place = client.ask(request::LOCATE, [0; 16], LISTED.as_bytes()).await.text();
    assert_eq!(place, format!("Sr{}", origin.address()));
    assert_eq!(client.ask(request::STATX, [0; 16], b"/list/a\n/any").await.ok(), [0, 2]);
    origin.stop().await;
}

/// Property: what is not there, not open or not read is an error with its number, and changes nothing.
#[tokio::test]
async fn other_requests_are_refused_with_their_reason() {
    let origin = origin(settings()).await;
    let mut client = Client::of(&origin).await;
    assert_eq!(client.try_open("/list/b", open::READ).await.error(), error::NOT_FOUND);
    assert_eq!(client.try_open("/any", open::READ).await.error(), error::IS_DIRECTORY);
    assert_eq!(client.stat("/list/b").await.error(), error::NOT_FOUND);
    assert_eq!(client.checksum("/list/b").await.error(), error::NOT_FOUND);
    for writing in [open::DELETE, open::NEW, open::UPDATE, open::APPEND, open::WRITE_TO] {
        assert_eq!(client.try_open(LISTED, open::READ | writing).await.error(), error::READ_ONLY);
    }
    for change in [request::RM, request::MKDIR, request::RMDIR, request::TRUNCATE] {
        assert_eq!(client.ask(change, [0; 16], b"/list/a").await.error(), error::READ_ONLY);
    }
    assert_eq!(client.ask(request::WRITE, [0; 16], b"bytes").await.error(), error::READ_ONLY);
    let handle = client.open(LISTED).await;
    client.read(request::CLOSE, handle, 0, 0).await.ok();
    for kind in [request::READ, request::PGREAD, request::CLOSE] {
        assert_eq!(client.read(kind, handle, 0, 1).await.error(), error::FILE_NOT_OPEN);
    }
    assert_eq!(client.read(request::READ, [0xff; 4], 0, 1).await.error(), error::FILE_NOT_OPEN);
    let handle = client.open(LISTED).await;
    assert_eq!(client.read(request::READ, handle, -1, 1).await.error(), error::ARG_INVALID);
    assert_eq!(client.read(request::PGREAD, handle, 0, 0).await.error(), error::ARG_INVALID);
    for bad in [chunk(handle, LISTED_SIZE as i64, 1), chunk(handle, i64::MAX, 1), chunk(handle, 0, 2 << 20)] {
        assert_eq!(client.ask(request::READV, [0; 16], &bad).await.error(), error::ARG_INVALID);
    }
    assert_eq!(client.ask(request::BIND, [0; 16], &[]).await.error(), error::UNSUPPORTED);
    assert_eq!(client.ask(request::DIRLIST, [0; 16], b"/").await.error(), error::UNSUPPORTED);
    let errors = origin.counters().errors;
    assert_eq!((errors.not_found, errors.writes, errors.not_open, errors.unsupported), (4, 10, 4, 2));
    assert_eq!((errors.bad_requests, origin.counters().bytes_out), (5, 0));
    origin.stop().await;
}

/// Property: a connection has room for the files of a cache, and a limit.
#[tokio::test]
async fn open_files_are_bounded() {
    use exacat_replay_service::origin::limits::FILES_OPEN_MAX;
    let origin = origin(settings()).await;
    let mut client = Client::of(&origin).await;
    let mut body = [0; 16];
    body[3] = open::READ as u8;
    for _ in 0..FILES_OPEN_MAX / 256 {
        for _ in 0..256 {
            client.send(request::OPEN, body, LISTED.as_bytes()).await;
        }
        for _ in 0..256 {
            client.answer().await.ok();
        }
    }
    assert_eq!(client.try_open(LISTED, open::READ).await.error(), error::OVERLOADED);
    assert_eq!(origin.counters().files_open, FILES_OPEN_MAX as u64);
    assert!(!client.read(request::READ, [0, 0, 0xff, 0xff], 0, 10).await.ok().is_empty());
    drop(client);
    while origin.counters().connections_open > 0 {
        tokio::task::yield_now().await;
    }
    assert_eq!(origin.counters().files_open, 0);
    origin.stop().await;
}
