//! Datagrams of servers and caches, as they come over the network: in order and out of it, whole and damaged.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::print_stdout,
    reason = "a test fails by panicking, and says what it skipped"
)]

use std::net::SocketAddr;
use std::path::Path;

use exacat_replay::both_sides::events::{CacheEvent, EventKind, FileSession};
use exacat_replay::both_sides::figures::CacheAccount;
use exacat_replay::both_sides::intake::Intake;
use exacat_replay::limits::CACHED_FILES_MAX;

fn address(port: u16) -> SocketAddr {
    SocketAddr::from(([10, 0, 0, 1], port))
}

/// Makes a datagram of a cache: its number, start, server, description and lines.
fn text(pseq: u32, stod: u64, sid: u64, src: &str, lines: &[String]) -> Vec<u8> {
    let src = if src.is_empty() { String::new() } else { format!(",\"src\":{{{src}}}") };
    let head = format!(
        "{{\"code\":\"g\",\"pseq\":{pseq:>3},\"stod\":{stod},\"sid\":{sid}{src},\"gs\":{{\"type\":\"C\",\"tbeg\":1,\"tend\":2}}}}\n"
    );
    (head + &lines.join("\n") + "\0").into_bytes()
}

const CACHE: &str = "\"site\":\"A\",\"host\":\"cache1.example.org\",\"port\":1094,\"inst\":\"xc\"";

fn line(lfn: &str, accesses: u64, hit: u64, miss: u64) -> String {
    format!(
        "{{\"event\":\"file_close\",\"lfn\":\"{lfn}\",\"size\":2097152,\"blk_size\":1048576,\"n_blks\":2,\"n_blks_done\":2,\
\"access_cnt\":{accesses},\"attach_t\":100,\"detach_t\":101,\"remotes\":[],\"b_hit\":{hit},\"b_miss\":{miss},\
\"b_bypass\":0,\"n_cks_errs\":0}}"
    )
}

fn taken(intake: &mut Intake, port: u16, datagram: &[u8]) -> Vec<CacheEvent> {
    let mut events = Vec::new();
    intake.take(address(port), datagram, &mut events);
    events
}

fn names(events: &[CacheEvent]) -> Vec<(&str, &str)> {
    let name = |event: &CacheEvent| match &event.kind {
        EventKind::Record(_) => "record",
        EventKind::Session(_) => "session",
        EventKind::Sample(_) => "sample",
        EventKind::Renamed { .. } => "renamed",
        EventKind::Restarted { .. } => "restarted",
    };
    events.iter().map(|event| (&*event.server, name(event))).collect()
}

/// Property: records of several caches on one port are told apart, lost datagrams are counted by cache, and a
/// doubled one counts once.
#[test]
fn records_of_several_caches_are_told_apart() {
    let mut intake = Intake::default();
    let lines = [line("/a", 1, 0, 2_097_152), line("/b", 1, 5, 0)];
    let first = taken(&mut intake, 1, &text(998, 50, 7, CACHE, &lines));
    assert_eq!(names(&first), [("cache1.example.org:1094", "record"); 2]);
    let other = text(1, 60, 8, "\"host\":\"cache2\",\"port\":1095", &lines[..1]);
    assert_eq!(names(&taken(&mut intake, 2, &other)), [("cache2:1095", "record")]);
    let later = text(3, 50, 7, "", &lines[1..]);
    assert_eq!(names(&taken(&mut intake, 1, &later)), [("cache1.example.org:1094", "record")]);
    assert!(taken(&mut intake, 1, &later).is_empty());
    let late = text(0, 50, 7, "", &lines[1..]);
    assert_eq!(taken(&mut intake, 1, &late).len(), 1);
    let counts = intake.counts();
    assert_eq!((counts.datagrams, counts.records, counts.lost), (5, 5, 3));
    assert_eq!((counts.late, counts.doubled, counts.garbage, counts.restarts), (1, 1, 0, 0));
    let mut servers = intake.servers();
    servers.sort_by(|one, two| one.name.cmp(&two.name));
    assert_eq!((servers.len(), servers[0].site.as_str(), servers[0].started), (2, "A", 50));
}

/// Property: a cache whose headers do not name it gets its name from the identity, and a later start is a
/// restart, from whatever port.
#[test]
fn names_and_restarts_are_found_out() {
    let mut intake = Intake::default();
    let lines = [line("/a", 1, 0, 1)];
    let unnamed = taken(&mut intake, 1, &text(1, 50, 7, "", &lines));
    assert_eq!(names(&unnamed), [("10.0.0.1#7", "record")]);
    let identity = format!("{{\"code\":\"=\",\"pseq\":1,\"stod\":50,\"sid\":7,\"src\":{{{CACHE}}}}}");
    let named = taken(&mut intake, 1, identity.as_bytes());
    let from = EventKind::Renamed { from: "10.0.0.1#7".into() };
    assert_eq!(named, [CacheEvent { server: "cache1.example.org:1094".into(), kind: from }]);
    let restarted = taken(&mut intake, 9, &text(1, 90, 7, "", &lines));
    let name = "cache1.example.org:1094";
    assert_eq!(names(&restarted), [(name, "restarted"), (name, "record")]);
    // A straggler of the time before.
    assert_eq!(names(&taken(&mut intake, 1, &text(2, 50, 7, "", &lines))), [(name, "record")]);
    assert_eq!((intake.counts().restarts, intake.counts().lost), (1, 0));
    assert_eq!((intake.servers().len(), intake.servers()[0].restarts), (1, 1));
}

/// Seals a binary datagram.
fn binary(code: u8, pseq: u8, started: u32, body: &[u8]) -> Vec<u8> {
    let length = (8 + body.len()) as u16;
    [&[code, pseq][..], &length.to_be_bytes(), &started.to_be_bytes(), body].concat()
}

fn map(code: u8, pseq: u8, number: u32, text: &str) -> Vec<u8> {
    binary(code, pseq, 50, &[&number.to_be_bytes()[..], text.as_bytes()].concat())
}

/// Makes a record of an f-stream.
fn record(kind: u8, flags: u8, body: &[u8]) -> Vec<u8> {
    [&[kind, flags][..], &((4 + body.len()) as u16).to_be_bytes(), body].concat()
}

fn time(server: u64) -> Vec<u8> {
    let times = [0_u32, 200, 205].map(u32::to_be_bytes).concat();
    record(2, 1, &[&times[..], &server.to_be_bytes()].concat())
}

fn opened(file: u32, user: u32, lfn: &str) -> Vec<u8> {
    let body = [&file.to_be_bytes()[..], &64_u64.to_be_bytes(), &user.to_be_bytes(), lfn.as_bytes(), &[0]];
    record(1, 1, &body.concat())
}

fn closed(file: u32, read: u64) -> Vec<u8> {
    let moved = [read, 2, 0].map(u64::to_be_bytes).concat();
    let operations =
        [&[3_u32, 1, 0].map(u32::to_be_bytes).concat()[..], &[0; 4], &4_u64.to_be_bytes(), &[0; 24]];
    record(0, 2, &[&file.to_be_bytes()[..], &moved, &operations.concat()].concat())
}

fn sessions(events: &[CacheEvent]) -> Vec<&FileSession> {
    let session = |event| match event {
        &CacheEvent { kind: EventKind::Session(ref session), .. } => Some(&**session),
        _ => None,
    };
    events.iter().filter_map(session).collect()
}

/// Property: each open of a client is one session, with the client, the name and the bytes, from three kinds
/// of datagrams.
#[test]
fn opens_of_clients_are_put_together() {
    let mut intake = Intake::default();
    let identity = map(b'=', 0, 0, "xrootd.7:77@cache\n&site=A&port=1094&inst=xc&pgm=xrootd&ver=v5.5.3");
    assert!(taken(&mut intake, 1, &identity).is_empty());
    taken(
        &mut intake,
        1,
        &map(b'u', 0, 11, "xroot/alice.123:77@[::ffff:10.0.0.9]\n&R=v5.5.3&x=xrdcp&y=&I=4"),
    );
    taken(&mut intake, 1, &map(b'd', 1, 13, "xroot/alice.123:77@[::ffff:10.0.0.9]\n/from/map"));
    let body =
        [time(77), opened(12, 11, "/from/open"), record(1, 0, &[&[0, 0, 0, 13][..], &[0; 8]].concat())]
            .concat();
    assert!(taken(&mut intake, 1, &binary(b'f', 0, 50, &body)).is_empty());
    let body =
        [time(77), closed(12, 100), closed(13, 50), closed(14, 7), record(4, 0, &[0, 0, 0, 11])].concat();
    let events = taken(&mut intake, 1, &binary(b'f', 1, 50, &body));
    assert_eq!(names(&events), [("cache:1094", "session"); 3]);
    let found = sessions(&events);
    let lfns: Vec<Option<&str>> = found.iter().map(|session| session.lfn.as_deref()).collect();
    assert_eq!(lfns, [Some("/from/open"), Some("/from/map"), None]);
    let client = found[0].client.as_deref().unwrap();
    assert_eq!((client.user.as_str(), client.program.as_str()), ("alice", "xrdcp"));
    assert_eq!((found[0].bytes_read, found[0].bytes_vector_read, found[0].file_bytes), (100, 2, Some(64)));
    assert_eq!((found[0].opened, found[0].closed, found[2].opened), (Some(200), 205, None));
    assert_eq!(found[0].operations.map(|operations| (operations.reads, operations.ranges)), Some((3, 4)));
    let counts = intake.counts();
    assert_eq!((counts.sessions, counts.closes_without_open, counts.lost, counts.garbage), (3, 1, 0, 0));
}

#[test]
fn binary_g_streams_and_summaries_are_taken() {
    let mut intake = Intake::default();
    let server = (u64::from(b'C') << 56 | 7).to_be_bytes();
    let body = [&[0; 8][..], &server, line("/a", 1, 0, 1).as_bytes(), b"\0"].concat();
    assert_eq!(names(&taken(&mut intake, 1, &binary(b'g', 1, 50, &body))), [("10.0.0.1#7", "record")]);
    let sample = |start: u64| {
        format!(
            "<statistics tod=\"99\" ver=\"v5.5.3\" src=\"cache:1094\" tos=\"{start}\" pgm=\"xrootd\" ins=\"xc\" pid=\"7\" site=\"A\">\
<stats id=\"link\"><out>{start}</out></stats><stats id=\"cache\"><rd><hits>0></hits></rd></stats></statistics>"
        )
    };
    assert_eq!(names(&taken(&mut intake, 2, sample(50).as_bytes())), [("cache:1094", "sample")]);
    let again = taken(&mut intake, 2, sample(60).as_bytes());
    assert_eq!(names(&again), [("cache:1094", "restarted"), ("cache:1094", "sample")]);
    let EventKind::Sample(sample) = &again[1].kind else { panic!() };
    assert_eq!(sample.bytes_out, 60);
    assert_eq!((intake.counts().samples, intake.counts().restarts), (2, 1));
}

/// Property: damage costs the datagram or line that has it, is counted, and stops nothing.
#[test]
fn damaged_datagrams_are_counted() {
    let mut intake = Intake::default();
    let good = line("/a", 1, 0, 1);
    let mixed = [good.clone(), "{\"event\":".to_owned(), "no json".to_owned(), good];
    assert_eq!(taken(&mut intake, 1, &text(1, 50, 7, CACHE, &mixed)).len(), 2);
    assert_eq!((intake.counts().bad_records, intake.counts().records), (2, 2));
    let garbage: [&[u8]; 9] = [
        b"",
        b"\0",
        b"x",
        b"{",
        b"{}",
        b"<html></html>",
        b"\xff\xff\xff\xff\xff\xff\xff\xff\xff",
        &binary(b'f', 0, 50, &[0; 16])[..20],
        &binary(b'z', 0, 50, &[0; 16]),
    ];
    for bytes in garbage {
        assert!(taken(&mut intake, 1, bytes).is_empty());
    }
    let counts = intake.counts();
    assert_eq!((counts.garbage, counts.datagrams), (garbage.len() as u64, 1 + garbage.len() as u64));
    let cut = binary(b'f', 0, 50, &[time(7), vec![0, 0, 0, 0]].concat());
    taken(&mut intake, 1, &cut);
    assert_eq!(intake.counts().bad_records, 3);
}

/// Property: random changes of good datagrams neither stop the intake nor make it count more than it got.
#[test]
fn any_bytes_are_taken() {
    let mut random = fastrand::Rng::with_seed(11);
    let body = [time(77), opened(12, 11, "/f"), closed(12, 1)].concat();
    let good = [
        text(1, 50, 7, CACHE, &[line("/a", 1, 0, 1), line("/b", 2, 1, 0)]),
        binary(b'f', 0, 50, &body),
        map(b'u', 0, 11, "xroot/alice.123:77@h\n&x=y"),
        b"<statistics src=\"a:1\" tos=\"1\"><stats id=\"link\"><in>1</in></stats></statistics>".to_vec(),
    ];
    let mut intake = Intake::default();
    let mut events = 0;
    for _ in 0..20_000 {
        let mut bytes = random.choice(&good).unwrap().clone();
        for _ in 0..random.usize(1..4) {
            let at = random.usize(..bytes.len());
            bytes[at] = random.u8(..);
        }
        bytes.truncate(random.usize(..=bytes.len()));
        events += taken(&mut intake, random.u16(..), &bytes).len();
    }
    let counts = intake.counts();
    assert_eq!(counts.datagrams, 20_000);
    assert!(counts.records + counts.sessions + counts.samples <= events as u64);
}

/// Returns a sample of a real cache; none where there are none.
fn real_sample(name: &str) -> Option<String> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/facts/replay-samples").join(name);
    let text = std::fs::read_to_string(&path).ok();
    if text.is_none() {
        println!("skipped: {} is not there", path.display());
    }
    text
}

/// Property: the records of a real cache give the figures that were seen when they were taken: whole blocks
/// fetched for small reads, one record for eight clients, blocks fetched ahead.
#[test]
fn records_of_a_real_cache_give_its_figures() {
    let Some(text) = real_sample("gstream-pfc-5.5.3.jsonl") else { return };
    let mut datagrams: Vec<String> = Vec::new();
    for line in text.lines() {
        match datagrams.last_mut() {
            Some(last) if !line.starts_with("{\"code\"") => *last += &format!("{line}\n"),
            _ => datagrams.push(format!("{line}\n")),
        }
    }
    let (mut intake, mut account) = (Intake::default(), CacheAccount::new(CACHED_FILES_MAX));
    let mut asked = 0;
    for datagram in &datagrams {
        for event in taken(&mut intake, 1, format!("{datagram}\0").as_bytes()) {
            if let EventKind::Record(record) = event.kind {
                asked += record.bytes_asked();
                account.add(&record);
            }
        }
    }
    let (counts, figures) = (intake.counts(), account.figures());
    assert_eq!((counts.garbage, counts.bad_records), (0, 0));
    assert!(counts.records >= 15 && figures.sessions == counts.records && figures.bytes_asked() == asked);
    assert!(figures.bytes_fetched > figures.bytes_miss, "{figures:?}");
    assert!(!figures.is_incomplete);
}

#[test]
fn the_summary_of_a_real_cache_is_read() {
    let Some(text) = real_sample("summary-xcache-5.5.3.xml") else { return };
    let mut intake = Intake::default();
    let events = taken(&mut intake, 1, text.as_bytes());
    let [CacheEvent { server, kind: EventKind::Sample(sample) }] = &events[..] else { panic!("{events:?}") };
    assert_eq!((&**server, sample.bytes_out, sample.opens), ("cache1.example.org:1094", 6_088_084_007, 6057));
    assert_eq!((sample.origin_opens, sample.origin_open_errors, sample.user_us), (208, 1, 6_079_668));
}
