//! Sources of traces: each form, what it leaves out, and bad rows.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

use std::io::Cursor;
use std::path::Path;

use exacat_exchange::input::{BytesRead, Input};
use exacat_exchange::reject::RejectSink;
use exacat_replay::import::{ColumnNames, Filter, ImportCounts, ImportSettings, Source, import};
use exacat_replay::trace::Trace;

/// A trace, its counts, and the reasons of rejects by line.
struct Made {
    trace: Trace,
    counts: ImportCounts,
    rejects: Vec<(u64, &'static str)>,
}

impl Made {
    /// Returns the accesses as text.
    fn rows(&self) -> Vec<String> {
        let text = |access| {
            let row = self.trace.row(access);
            let (time, name, size, site) = (row.time_us, row.name, row.size, row.site);
            format!("{time} {name} {size} {site} {}", row.reads)
        };
        self.trace.accesses().iter().map(text).collect()
    }
}

fn made(content: &[u8], settings: &ImportSettings) -> Made {
    try_made(content, settings).unwrap()
}

fn try_made(content: &[u8], settings: &ImportSettings) -> exacat_exchange::error::Result<Made> {
    let reader = Box::new(Cursor::new(content.to_vec()));
    let input = Input::of_reader(Path::new("source"), reader, None)?;
    let (mut trace, mut sink) = (Trace::new(), RejectSink::counting());
    let (read, mut told) = (BytesRead::default(), 0);
    let counts = import(&input, settings, &mut trace, &mut sink, (&read, &mut |counts| told = counts.rows))?;
    assert_eq!(told, counts.rows, "the last call of the progress has everything");
    trace.sort();
    let rejects = sink.shown().iter().map(|reject| (reject.line, reject.reason.name())).collect();
    Ok(Made { trace, counts, rejects })
}

/// Property: a table needs a time and a name; rows may come in any order, and a bad one stops nothing.
#[test]
fn tables_are_imported() {
    let table = "start\tend\turl\tsize\tclient_domain\n\
                 1608526078.5\tx\troot://h:1096//p/b\t20\tfnal.gov\n\
                 1608526077.25\tx\troot://h:1096//p/a\t10\tfnal.gov\n\
                 never\tx\troot://h//p/c\t5\tA\n\
                 1608526079\tx\troot://h//p/c\tbig\tA\n\
                 1608526079\tx\troot://h//p/c\t0\tA\n\
                 1608526079\tx\t\t5\tA\n\
                 1608526079\tx\troot://h//p/a\t11\t\n";
    let made = made(table.as_bytes(), &ImportSettings::default());
    let expected = [
        "1608526077250000 /p/a 10 fnal.gov -",
        "1608526078500000 /p/b 20 fnal.gov -",
        "1608526079000000 /p/a 10  -",
    ];
    assert_eq!(made.rows(), expected);
    assert_eq!(made.rejects, [(4, "bad-time"), (5, "bad-size"), (6, "bad-size"), (7, "no-lfn")]);
    assert_eq!(
        (made.trace.out_of_order, made.trace.differing, made.counts.taken, made.counts.rows),
        (1, 1, 3, 7)
    );
}

#[test]
fn options_fill_in_what_a_table_lacks() {
    let settings = ImportSettings {
        columns: ColumnNames::parse("when=time,3=name").unwrap(),
        size_of_unknown: Some(7),
        site_of_unknown: "HERE".to_owned(),
        below: "/top".to_owned(),
        ..ImportSettings::default()
    };
    let table = b"when,name,x,reads\n2023-11-14 22:13:20,no,\"a \"\"b\"\"\",0+2\n1700000001,no,/c,\n1700000002,no,\"d";
    let made = made(table, &settings);
    assert_eq!(made.rows(), ["1700000000000000 /top/a \"b\" 7 HERE 0+2", "1700000001000000 /c 7 HERE -"]);
    assert_eq!(made.rejects, [(4, "bad-row")]);
    let without = try_made(b"a\tb\n1\t2\n", &ImportSettings::default());
    assert!(without.err().unwrap().to_string().contains("--columns COLUMN=time"));
}

#[test]
fn traces_of_rucio_are_imported() {
    let lines = br#"{"eventType":"get_sm","scope":"mc16","filename":"f.root","filesize":5,"timeStart":1700000000.5,"localSite":"MWT2","dataset":"d"}
{"_source":{"event":"get_sm_a","scope":"mc16","filename":"g.root","filesize":"6","time_start":1700000001,"site":"MWT2"}}
{"eventType":"put_sm","scope":"mc16","filename":"out.root","filesize":5,"timeStart":1700000000}
{"eventType":"get_sm","scope":"mc16","filesize":5,"timeStart":1700000000}
{"eventType":"get_sm","scope":"mc16","filename":"f.root","filesize":null,"timeStart":1700000000}
{"eventType":"get_sm","scope":"mc16","filename":"f.root","filesize":5}
{"eventType":"get_sm","scope":"mc16","filename":"f.root","filesize":-5,"timeStart":1}
not json
[]
"#;
    let made = made(lines, &ImportSettings::default());
    assert_eq!(
        made.rows(),
        ["1700000000500000 /mc16/f.root 5 MWT2 -", "1700000001000000 /mc16/g.root 6 MWT2 -"]
    );
    let reasons: Vec<&str> = made.rejects.iter().map(|(_, reason)| *reason).collect();
    assert_eq!(reasons, ["no-lfn", "bad-size", "bad-time", "bad-size", "bad-row", "no-lfn"]);
    assert_eq!((made.counts.rows, made.counts.other), (9, 1));
    let hashed =
        ImportSettings { hashed_paths: true, below: "/atlas/rucio".to_owned(), ..ImportSettings::default() };
    let name = self::made(lines, &hashed).rows()[0].clone();
    assert!(name.contains(" /atlas/rucio/mc16/") && name.contains("/f.root "), "{name}");
}

/// Property: a session of several clients is as many accesses; one that read nothing is none.
#[test]
fn records_of_a_cache_are_imported() {
    let record = |lfn: &str, size: u64, hit: u64, miss: u64, at: u64| {
        format!(
            "{{\"event\":\"file_close\",\"lfn\":\"{lfn}\",\"size\":{size},\"attach_t\":{at},\"detach_t\":{at},\
             \"b_hit\":{hit},\"b_miss\":{miss},\"b_bypass\":0}}\n"
        )
    };
    let lines = [
        "{\"code\":\"g\",\"pseq\":  1,\"stod\":1,\"sid\":2,\"src\":{\"site\":\"SITE_B\"}}\n".to_owned(),
        record("/d/whole", 100, 0, 100, 1_700_000_000),
        record("/d/eight", 100, 700, 100, 1_700_000_001),
        record("/d/part", 100, 0, 7, 1_700_000_002),
        record("/d/nothing", 100, 0, 0, 1_700_000_003),
        "{\"event\":\"file_close\"}\n\0".to_owned(),
    ];
    let made = made(lines.concat().as_bytes(), &ImportSettings::default());
    assert_eq!(made.counts.nothing_read, 1);
    let rows = made.rows();
    assert_eq!(rows[0], "1700000000000000 /d/whole 100 SITE_B -");
    assert_eq!(rows.iter().filter(|row| row.contains("/d/eight 100 SITE_B -")).count(), 8);
    assert_eq!(rows.last().unwrap(), "1700000002000000 /d/part 100 SITE_B 0+7");
    assert_eq!(made.rejects, [(6, "bad-row")]);
}

fn datagram(records: &[Vec<u8>]) -> Vec<u8> {
    let body = records.concat();
    [&b"f\x01"[..], &((8 + body.len()) as u16).to_be_bytes(), &7_u32.to_be_bytes(), &body].concat()
}

fn record(kind: u8, flags: u8, body: &[&[u8]]) -> Vec<u8> {
    let body = body.concat();
    [&[kind, flags][..], &((4 + body.len()) as u16).to_be_bytes(), &body].concat()
}

/// Property: an open with its close is an access; a cut datagram ends the import with a reject, and what came
/// before it counts.
#[test]
fn datagrams_of_a_server_are_imported() {
    let number = |number: u32| number.to_be_bytes();
    let time = record(2, 0, &[&[0; 4], &number(1_700_000_000), &number(1_700_000_005)]);
    let open = |file: u32, name: &[u8]| {
        record(1, 1, &[&number(file), &100_u64.to_be_bytes(), &number(1), name, b"\0"])
    };
    let close = |file: u32, read: u64| {
        record(0, 0, &[&number(file), &read.to_be_bytes(), &0_u64.to_be_bytes(), &0_u64.to_be_bytes()])
    };
    let first = datagram(&[time, open(1, b"/a"), open(2, b"/b"), open(3, b"/c"), close(1, 100), close(9, 5)]);
    let second = datagram(&[close(2, 0), close(2, 7)]);
    let mut content = [first.clone(), b"=\x01\x00\x0c\x00\x00\x00\x07abcd".to_vec(), second].concat();
    let made = made(&content, &ImportSettings::default());
    assert_eq!(made.rows(), ["1700000000000000 /a 100  -", "1700000000000000 /c 100  -"]);
    assert_eq!((made.counts.nothing_read, made.rejects.len()), (1, 0));
    content.truncate(first.len() + 5);
    let cut = self::made(&content, &ImportSettings::default());
    assert_eq!(
        (cut.counts.taken, cut.rejects.len()),
        (3, 1),
        "open files are read whole, as far as anybody knows"
    );
}

#[test]
fn filters_leave_out_the_others() {
    let table = "time,name,size,site\n1,/a/x,10,A\n2,/a/y,20,B\n3,/b/x,30,A\n";
    let rows = |filter: Filter| {
        let made = made(table.as_bytes(), &ImportSettings { filter, ..ImportSettings::default() });
        assert_eq!(made.counts.filtered + made.counts.taken, 3);
        made.rows().len()
    };
    assert_eq!(rows(Filter { sites: vec!["A".to_owned()], ..Filter::default() }), 2);
    assert_eq!(rows(Filter { under: vec!["/a".to_owned()], size_min: 15, ..Filter::default() }), 1);
    assert_eq!(rows(Filter { from_us: 2_000_000, to_us: 3_000_000, ..Filter::default() }), 1);
}

/// Property: the source is told by its content, and no content makes an import panic or run on.
#[test]
fn sources_are_told_and_garbage_is_refused() {
    for (content, expected) in [
        (&b"# exacat trace 1\n"[..], Source::Trace),
        (b"{\"code\":\"g\",\"pseq\":1}\n", Source::GStream),
        (b"{\"eventType\":\"get_sm\"}", Source::Rucio),
        (b"f\x01\x00\x08\x00\x00\x00\x07", Source::FStream),
        (b"time\tname\n", Source::Tsv),
        (b"time,name\n", Source::Csv),
    ] {
        assert_eq!(Source::detect(content), expected);
    }
    let mut random = fastrand::Rng::with_seed(1);
    for round in 0..400 {
        let bytes: Vec<u8> = (0..random.usize(..300)).map(|_| random.u8(..)).collect();
        let source = Some(Source::ALL[round % Source::ALL.len()]);
        let settings = ImportSettings { source, ..ImportSettings::default() };
        if let Ok(made) = try_made(&bytes, &settings) {
            assert!(made.counts.taken <= made.counts.rows, "round {round}");
        }
    }
}
