//! Imports: every format, option and reject reason, in tables, against a real catalogue.

use crate::support::{Direct, Fixture, lfn, se_name};
use exacat_exchange::columns::Columns;
use exacat_exchange::options::{Repeats, Rest, RowKind};
use exacat_exchange::records::Format;
use exacat_exchange::{ImportOptions, Preset};
use exacat_model::operation::Existing;
use exacat_model::{Location, TagValue};

const ADLER: &str = "adler32:0a0b0c0d";

/// Returns the files, each as `lfn size checksums replicas tags`.
async fn files(catalogue: &Direct) -> Vec<String> {
    let options = exacat_exchange::export::ExportOptions {
        columns: Some(crate::support::columns_of("lfn,size,checksum,replicas,tags")),
        full: false,
        header: false,
        filter: exacat_model::Filter { kinds: vec![exacat_model::Kind::File], ..Default::default() },
        ..Default::default()
    };
    catalogue.export(&options).await.0.lines().map(|line| line.replace('\t', " ")).collect()
}

#[tokio::test]
async fn every_format_and_compression_says_the_same() {
    let tsv = format!(
        "lfn\tsize\tchecksum\tpfn\texp\n/a/b c\t12\t{ADLER}\troot://h.example//x,y\talice\n/a/d\t\t\t\t\n"
    );
    let csv = format!(
        "LFN,size,checksum,pfn,exp\r\n/a/b c,12,{ADLER},\"root://h.example//x,y\",alice\r\n\"/a/d\",,,,\r\n"
    );
    let json = format!(
        "{{\"lfn\":\"/a/b c\",\"size\":12,\"checksum\":\"{ADLER}\",\"pfn\":\"root://h.example//x,y\",\"exp\":\"alice\"}}\n{{\"lfn\":\"/a/d\",\"size\":null}}\n"
    );
    let gzip = |text: &str| {
        let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        std::io::Write::write_all(&mut encoder, text.as_bytes()).unwrap();
        encoder.finish().unwrap()
    };
    let zstd = |text: &str| zstd::encode_all(text.as_bytes(), 1).unwrap();
    let bzip2 = |text: &str| {
        let mut encoder = bzip2::write::BzEncoder::new(Vec::new(), bzip2::Compression::best());
        std::io::Write::write_all(&mut encoder, text.as_bytes()).unwrap();
        encoder.finish().unwrap()
    };
    // Two gzip members, Zstandard frames and bzip2 streams, as after appending compressed files.
    let halves = tsv.split_at(tsv.find("/a/d").unwrap());
    let listings: Vec<(&str, Vec<u8>)> = vec![
        ("a.tsv", tsv.clone().into()),
        ("a", tsv.clone().into()),
        ("a.csv", csv.clone().into()),
        ("b", csv.clone().into()),
        ("a.jsonl", json.clone().into()),
        ("c", json.clone().into()),
        ("a.tsv.gz", gzip(&tsv)),
        ("d", gzip(&tsv)),
        ("a.csv.zst", zstd(&csv)),
        ("e", zstd(&json)),
        ("f.tsv", [gzip(halves.0), gzip(halves.1)].concat()),
        ("g.tsv", [zstd(halves.0), zstd(halves.1)].concat()),
        ("a.csv.bz2", bzip2(&csv)),
        ("h", bzip2(&json)),
        ("i.tsv", [bzip2(halves.0), bzip2(""), bzip2(halves.1)].concat()),
    ];
    for (name, content) in listings {
        let catalogue = Direct::new().await;
        let fixture = Fixture::new(name, content);
        let options = fixture.options(|options| options.listing.se_auto = true);
        let report = fixture.import(&catalogue, &options).await;
        assert_eq!((report.rows, report.counts.created, report.rejected), (2, 2, 0), "{name}");
        assert_eq!(report.counts.ses_registered, 1, "{name}");
        assert_eq!(
            files(&catalogue).await,
            [format!("/a/b c 12 {ADLER} h.example=root://h.example//x,y "), "/a/d    ".to_owned()],
            "{name}"
        );
        let again = fixture.import(&catalogue, &options).await;
        assert!(again.changed_nothing() && again.counts.unchanged == 2, "{name}: {again:?}");
        let verified = fixture.verify(&catalogue, &options).await;
        assert!(verified.holds() && verified.same == 2, "{name}: {verified:?}");
        catalogue.check().await;
    }
}

/// One bad row for each reason that needs no catalogue, with the reasons that it gives.
#[tokio::test]
async fn each_bad_row_is_rejected_with_its_line_and_reason_and_the_rest_goes_in() {
    let long_name = "x".repeat(256);
    let long_pfn = format!("root://h/{}", "x".repeat(4096));
    let replicas: Vec<String> = (0..65).map(|number| format!("se{number}")).collect();
    let rows: Vec<(String, &str)> = vec![
        ("/in/good\t1\t\t\t\t".into(), ""),
        ("\t1\t\t\t\t".into(), "no-lfn"),
        ("relative\t1\t\t\t\t".into(), "bad-lfn"),
        ("/in/../x\t1\t\t\t\t".into(), "bad-lfn"),
        ("/\t1\t\t\t\t".into(), "bad-lfn"),
        ("/in/bell\u{7}\t1\t\t\t\t".into(), "control-characters"),
        ("/in/c1\u{85}\t1\t\t\t\t".into(), "control-characters"),
        (format!("/in/{long_name}\t1\t\t\t\t"), "lfn-too-long"),
        (format!("{}\t1\t\t\t\t", "/d".repeat(513)), "lfn-too-long"),
        ("/in/good\t1\t\t\t\t".into(), "duplicate"),
        ("/in//good\t1\t\t\t\t".into(), "duplicate"),
        ("/in/good/\t1\t\t\t\t".into(), "bad-kind"),
        ("/in/good/below\t1\t\t\t\t".into(), "parent-is-file"),
        ("/in\t1\t\t\t\t".into(), "parent-is-file"),
        ("/in/s1\t-1\t\t\t\t".into(), "bad-size"),
        ("/in/s2\t1.5\t\t\t\t".into(), "bad-size"),
        ("/in/s3\t1152921504606846977\t\t\t\t".into(), "bad-size"),
        ("/in/s4\t1152921504606846976\t\t\t\t".into(), ""),
        ("/in/c1\t1\talder32:00000001\t\t\t".into(), "bad-checksum"),
        ("/in/c2\t1\tadler32:1|adler32:2\t\t\t".into(), "bad-checksum"),
        ("/in/c3\t1\t ADLER32: 1 ;md5:d41d8cd98f00b204e9800998ecf8427e\t\t\t".into(), ""),
        (format!("/in/p1\t1\t\t{long_pfn}\t\t"), "bad-pfn"),
        ("/in/p2\t1\t\troot://h.example//a\u{1}\t\t".into(), "bad-pfn"),
        ("/in/p3\t1\t\t=\t\t".into(), "bad-pfn"),
        ("/in/p4\t1\t\tfile:///x\t\t".into(), "no-se"),
        ("/in/r1\t1\t\t\tA B\t".into(), "bad-replica"),
        ("/in/r2\t1\t\t\tse1/odd\t".into(), "bad-replica"),
        ("/in/r3\t1\t\t\tse1,nowhere\t".into(), "unknown-se"),
        ("/in/r4\t1\t\t\tse1=root://a/1|se1=root://a/2\t".into(), "se-twice"),
        (format!("/in/r5\t1\t\t\t{}\t", replicas.join(",")), "too-many-replicas"),
        (format!("/in/r6\t1\t\t\t{}\t", replicas[..64].join("|")), ""),
        ("/in/t1\t1\t\t\t\tok=1;1bad=2;ok=3".into(), "tag-dropped tag-dropped"),
        ("/in/m\t1\t\t\t\t\tmore".into(), "bad-row"),
        ("/in/short".into(), ""),
        ("/taken/file/below\t1\t\t\t\t".into(), "parent-is-file"),
        ("/taken/differs\t2\t\t\t\t".into(), "exists"),
        ("/taken/dir\t1\t\t\t\t".into(), "exists"),
    ];
    let names: Vec<&str> = replicas.iter().map(String::as_str).collect();
    let catalogue = Direct::with_ses(&names).await;
    let before = Fixture::new("before", "/taken/file\n/taken/dir/x\n");
    before.import(&catalogue, &ImportOptions::default()).await;
    let before = Fixture::new("before", "lfn\tsize\n/taken/differs\t1\n");
    before.import(&catalogue, &ImportOptions::default()).await;

    let mut text = b"lfn\tsize\tchecksum\tpfn\treplicas\ttags\n".to_vec();
    let mut wanted = Vec::new();
    for (index, (row, reasons)) in rows.iter().enumerate() {
        text.extend_from_slice(row.as_bytes());
        text.push(b'\n');
        wanted.extend(reasons.split_whitespace().map(|reason| format!("{} {reason}", index + 2)));
    }
    text.extend_from_slice(b"/in/\xff\t1\t\t\t\t\n/in/last\t1\t\t\t\t");
    wanted.push(format!("{} bad-row", rows.len() + 2));
    let fixture = Fixture::new("listing.tsv", text);
    let options = fixture.options(|_| {});
    let report = fixture.import(&catalogue, &options).await;
    // Rows that the catalogue refused are among those that were bad before, by line.
    assert_eq!(fixture.rejected(), wanted);
    let went_in = |reasons: &str| reasons.is_empty() || reasons.starts_with("tag") || reasons == "se-twice";
    let good = rows.iter().filter(|(_, reasons)| went_in(reasons)).count() as u64 + 1;
    assert_eq!(report.counts.created, good);
    assert_eq!((report.rejected + good, report.partial), (report.rows, 3));
    assert_eq!(report.rejects.iter().map(|(_, count)| count).sum::<u64>() as usize, wanted.len());
    catalogue.check().await;

    let again = fixture.import(&catalogue, &options).await;
    assert!(again.changed_nothing());
    assert_eq!((again.counts.unchanged, again.rejected), (good, report.rejected));
    assert_eq!(fixture.rejected(), wanted);
    // For a verification, rows that the catalogue refused are differences; rows that were never
    // sent are not.
    let verified = fixture.verify(&catalogue, &options).await;
    assert_eq!((verified.same, verified.missing, verified.different), (good, 1, 2));
}

#[tokio::test]
async fn json_rows_are_rejected_by_reason_too() {
    let rows = [
        ("{\"lfn\":\"/a/1\",\"size\":1}", ""),
        ("{\"lfn\":\"/a/2\",\"size\":1.5}", "bad-size"),
        ("{\"lfn\":\"/a/3\",\"size\":{}}", "bad-row"),
        ("{\"size\":1}", "no-lfn"),
        ("[1]", "bad-row"),
        ("{\"lfn\":", "bad-row"),
        ("{\"lfn\":\"/a/new\\nline\"}", "control-characters"),
        ("{\"lfn\":\"/a/4\",\"replicas\":[{\"state\":\"lost\"}]}", "bad-replica"),
        (
            "{\"lfn\":\"/a/5\",\"replicas\":[\"S1\",{\"se\":\"S2\",\"pfn\":\"root://x/1\",\"state\":\"suspect\"}]}",
            "",
        ),
        ("{\"lfn\":\"/a/6\",\"tags\":{\"n\":1,\"t\":{\"time\":\"2014-10-24\"},\"bad\":[]}}", "tag-dropped"),
        (
            "{\"lfn\":\"/a/7\",\"checksum\":[\"adler32:1\",\"md5:d41d8cd98f00b204e9800998ecf8427e\"],\"pfns\":[\"root://S1/x|y\"]}",
            "",
        ),
        ("{\"lfn\":\"/a/8\",\"checksum\":[1]}", "bad-row"),
    ];
    let text: String = rows.iter().map(|(row, _)| format!("{row}\n")).collect();
    let fixture = Fixture::new("listing", text);
    let catalogue = Direct::with_ses(&["S1", "S2"]).await;
    let options = fixture.options(|options| options.listing.se_map.add_rule("S1=S1").unwrap());
    fixture.import(&catalogue, &options).await;
    let wanted: Vec<String> = rows
        .iter()
        .enumerate()
        .filter(|(_, (_, reason))| !reason.is_empty())
        .map(|(index, (_, reason))| format!("{} {reason}", index + 1))
        .collect();
    assert_eq!(fixture.rejected(), wanted);
    assert_eq!(
        files(&catalogue).await,
        [
            "/a/1 1   ",
            "/a/5   S1|S2/suspect=root://x/1 ",
            "/a/6    n=1;t=2014-10-24T00:00:00Z",
            "/a/7  adler32:00000001|md5:d41d8cd98f00b204e9800998ecf8427e S1=root://S1/x\\\\|y ",
        ]
    );
    assert!(fixture.verify(&catalogue, &options).await.holds());
}

/// A listing, the options of its import, and the expected entries.
type Case = (&'static str, Box<dyn Fn(&mut ImportOptions)>, &'static [&'static str]);

#[tokio::test]
async fn columns_prefixes_and_se_rules_do_as_they_say() {
    let catalogue = Direct::with_ses(&["A", "B"]).await;
    let cases: Vec<Case> = vec![
        // A bare list of names, without and with a header.
        ("/l/1\n/l/2\n", Box::new(|_| {}), &["/l/1    ", "/l/2    "]),
        ("lfn\n/l/1\n", Box::new(|_| {}), &["/l/1    "]),
        // Relative names with a prefix.
        ("1\n/2\n", Box::new(|o| o.listing.prefix = Some(lfn("/p"))), &["/p/1    ", "/p/2    "]),
        ("1\n", Box::new(|o| o.listing.prefix = Some(lfn("/"))), &["/1    "]),
        // A header without roles; columns by name and by number.
        (
            "what,where\n/c/1,A\n",
            Box::new(|o| o.listing.columns = Some(Columns::parse("what=lfn,where=se").unwrap())),
            &["/c/1   A "],
        ),
        (
            "A;5;/c/2\n",
            Box::new(|o| {
                o.listing.format = Some(Format::Csv);
                o.listing.delimiter = Some(b';');
                o.listing.columns = Some(Columns::parse("se,size,lfn").unwrap());
            }),
            &["/c/2 5  A "],
        ),
        // A header that the user overrides; a first row that only resembles one.
        (
            "lfn\tsize\n/c/3\t7\n",
            Box::new(|o| o.listing.columns = Some(Columns::parse("lfn,tag:n").unwrap())),
            &["/c/3    n=7"],
        ),
        (
            "size\n/c/4\n",
            Box::new(|o| {
                o.listing.header = Some(false);
                o.listing.prefix = Some(lfn("/q"));
            }),
            &["/q/c/4    ", "/q/size    "],
        ),
        // Locations of files.
        ("/s/1\n", Box::new(|o| o.listing.se = Some(se_name("A"))), &["/s/1   A "]),
        (
            "lfn\tpfn\n/s/1\troot://x//1\n/s/2\t\n",
            Box::new(|o| o.listing.se = Some(se_name("A"))),
            &["/s/1   A=root://x//1 ", "/s/2    "],
        ),
        (
            "lfn\tpfns\n/s/1\troot://x//1|https://y:1/2|root://x//1\n",
            Box::new(|o| {
                o.listing.se_map.add_rule("root://x/=A").unwrap();
                o.listing.se_map.add_rule("y=B").unwrap();
            }),
            &["/s/1   A=root://x//1|B=https://y:1/2 "],
        ),
        (
            "lfn\treplicas\tpfns\n/ds/f\tid1,id2\thttps://b.example/9\n",
            Box::new(|o| {
                o.listing.se_map.add_file("id1\tA\thttps://a.example/x\t/ds\nid2\tB\nb.example=B\n").unwrap();
            }),
            &["/ds/f   A=https://a.example/x/f|B=https://b.example/9 "],
        ),
        (
            "lfn\tpfn\n/s/1\t=\n2\t=\n",
            Box::new(|o| {
                o.listing.se = Some(se_name("A"));
                o.listing.pfn_same = Some("root://x/".into());
                o.listing.prefix = Some(lfn("/p"));
            }),
            &["/p/2   A=root://x/2 ", "/p/s/1   A=root://x//s/1 "],
        ),
        (
            "lfn\tse\tpfn\n/s/1\tA\troot://who/1\n/s/2\tB\t\n",
            Box::new(|_| {}),
            &["/s/1   A=root://who/1 ", "/s/2   B "],
        ),
        (
            "lfn\treplicas\n/s/1\tA/lost=root://x/1?a=b|B/suspect\n",
            Box::new(|_| {}),
            &["/s/1   A/lost=root://x/1?a=b|B/suspect "],
        ),
        // Tags: typed as a person writes them; the rest of the columns, if requested.
        (
            "lfn\ttags\n/t/1\trun=117222;beam=pp;good=true;id=0012\n",
            Box::new(|_| {}),
            &["/t/1    beam=pp;good=true;id=0012;run=117222"],
        ),
        (
            "lfn\trun\texp\n/t/1\t5\talice\n",
            Box::new(|o| o.listing.rest = Rest::Tags),
            &["/t/1    exp=alice;run=5"],
        ),
        // Odd names are taken byte for byte.
        (
            "/o/a b\n/o/%3f?C=D;O=A&x\n/o/żółć\n/o/\"q\" 'r'\n/o/back\\slash\n",
            Box::new(|_| {}),
            &[
                "/o/\"q\" 'r'    ",
                "/o/%3f?C=D;O=A&x    ",
                "/o/a b    ",
                "/o/back\\\\slash    ",
                "/o/żółć    ",
            ],
        ),
    ];
    for (text, change, wanted) in cases {
        let fixture = Fixture::new("listing", text);
        let options = fixture.options(|options| change(options));
        let report = fixture.import(&catalogue, &options).await;
        assert_eq!(report.rejected, 0, "{text}: {report:?}");
        let verified = fixture.verify(&catalogue, &options).await;
        assert!(verified.holds() && verified.rejected == 0, "{text}: {verified:?}");
        assert_eq!(files(&catalogue).await, wanted, "{text}");
        let again = fixture.import(&catalogue, &options).await;
        assert!(again.changed_nothing(), "{text}: {again:?}");
        for top in ["/l", "/p", "/1", "/c", "/q", "/s", "/ds", "/t", "/o"] {
            if catalogue.stat(top).await.is_ok() {
                let remove =
                    exacat_model::Operation::Remove { lfn: lfn(top), recursive: true, directory: false };
                catalogue.ask(remove).await;
            }
        }
    }
    catalogue.check().await;
}

#[tokio::test]
async fn the_policy_for_what_is_there_counts() {
    let first = "lfn\tsize\treplicas\ttags\n/a/1\t5\tA\tx=1\n/a/2\t\tA\t\n";
    let second = "lfn\tsize\treplicas\ttags\n/a/1\t5\tB\tx=1\n/a/2\t7\tA\ty=2\n/a/3\t\t\t\n/a/1b\t\t\t\n";
    let contradicting = "lfn\tsize\treplicas\ttags\n/a/1\t6\tB\tx=1\n/a/2\t\t\tx=9\n";
    for (existing, created, unchanged, merged, rejected) in
        [(Existing::Refuse, 2, 0, 0, 2), (Existing::Same, 2, 0, 0, 2), (Existing::Merge, 2, 0, 2, 0)]
    {
        let catalogue = Direct::with_ses(&["A", "B"]).await;
        Fixture::new("1", first).import(&catalogue, &ImportOptions::default()).await;
        let fixture = Fixture::new("2", second);
        let options = fixture.options(|options| options.existing = existing);
        let report = fixture.import(&catalogue, &options).await;
        let counts = report.counts;
        assert_eq!(
            (counts.created, counts.unchanged, counts.merged, report.rejected),
            (created, unchanged, merged, rejected),
            "{existing:?}"
        );
        assert!(fixture.rejected().iter().all(|reject| reject.ends_with(" exists")));
        let fixture = Fixture::new("3", contradicting);
        let options = fixture.options(|options| options.existing = existing);
        let report = fixture.import(&catalogue, &options).await;
        if existing == Existing::Merge {
            assert_eq!(fixture.rejected(), ["2 exists"], "{report:?}");
            assert_eq!(report.counts.merged, 1);
        }
        catalogue.check().await;
    }
}

#[tokio::test]
async fn rows_of_one_name_merge_if_asked() {
    // Like transfers: a replica of a name appeared somewhere, often more than once.
    let mut text = "start\tname\tsize\tsrc\tdst\tseconds\tdataset\n".to_owned();
    for row in 0..3000 {
        let (name, se) = (row % 700, row % 11);
        text.push_str(&format!("1\tfile {name}\t5\tX\tSE_{se}\t2\td\n"));
    }
    text.push_str("1\tfile 0\t6\tX\tSE_0\t2\td\n");
    let catalogue = Direct::new().await;
    let fixture = Fixture::new("transfers.tsv", text);
    let mut options = Preset::named("dune-transfers").unwrap().options().unwrap();
    options.rejects = Some(fixture.rejects.clone());
    let report = fixture.import(&catalogue, &options).await;
    assert_eq!((report.counts.created, report.rejected, report.counts.ses_registered), (700, 1, 11));
    let pairs: std::collections::HashSet<_> = (0..3000).map(|row| (row % 700, row % 11)).collect();
    assert_eq!(report.counts.created + report.counts.merged, pairs.len() as u64);
    assert_eq!(report.counts.unchanged, 3000 - pairs.len() as u64);
    assert_eq!(fixture.rejected(), ["3002 exists"]);
    let stat = catalogue.stat("/dune/file 0").await.unwrap();
    assert!(stat.entry.file().unwrap().replicas.iter().all(|replica| replica.location == Location::Derived));
    let again = fixture.import(&catalogue, &options).await;
    assert!(again.changed_nothing() && again.counts.unchanged == 3000);
    let verified = fixture.verify(&catalogue, &options).await;
    assert_eq!((verified.same, verified.different), (3000, 1));
    catalogue.check().await;
}

#[tokio::test]
async fn collections_are_made_of_a_column_and_of_records() {
    let files_text = "lfn\tsize\tdataset\n/f/1\t1\tcod:1\n/f/2\t2\tcod:1\n/f/3\t3\tcms:/P/C/T\n/f/4\t4\t\n";
    let records = "{\"id\":\"cod:1\",\"title\":\"One\",\"type\":{\"primary\":\"Dataset\"},\"n_files\":2,\"date\":[\"2010\"]}\n{\"id\":\"cod:9\",\"title\":\"Empty\"}\n";
    let catalogue = Direct::new().await;
    let fixture = Fixture::new("files.tsv", files_text);
    let options = fixture.options(|options| {
        options.listing.columns = Some(Columns::parse("dataset=collection").unwrap());
        options.listing.collection_prefix = Some(lfn("/collections"));
    });
    let report = fixture.import(&catalogue, &options).await;
    let counts = report.counts;
    assert_eq!((counts.created, counts.members_added, counts.collections_made), (4, 3, 2));
    let again = fixture.import(&catalogue, &options).await;
    assert!(again.changed_nothing() && again.counts.members_unchanged == 3, "{again:?}");
    assert!(fixture.verify(&catalogue, &options).await.holds());

    let fixture = Fixture::new("records", records);
    let mut options = Preset::named("odp-datasets").unwrap().options().unwrap();
    options.listing.prefix = Some(lfn("/collections"));
    let report = fixture.import(&catalogue, &options).await;
    assert_eq!((report.counts.created, report.counts.merged, report.rejected), (1, 1, 0));
    let stat = catalogue.stat("/collections/cod:1").await.unwrap();
    assert_eq!(stat.entry.tag("type.primary"), Some(&TagValue::Text("Dataset".into())));
    assert_eq!(stat.entry.tag("n_files"), Some(&TagValue::Integer(2)));
    assert_eq!(stat.entry.tag("date"), Some(&TagValue::Text("2010".into())));
    let again = fixture.import(&catalogue, &options).await;
    assert!(again.changed_nothing() && again.counts.unchanged == 2);
    let verified = fixture.verify(&catalogue, &options).await;
    assert!(verified.holds() && verified.same == 2);

    // Rows with only memberships: of files that exist, and one that does not.
    let fixture = Fixture::new("members.tsv", "lfn\tdataset\n/f/4\tcod:9\n/f/5\tcod:9\n/f/1\tcod:1\n");
    let options = fixture.options(|options| {
        options.listing.kind = RowKind::Member;
        options.listing.columns = Some(Columns::parse("dataset=collection").unwrap());
        options.listing.collection_prefix = Some(lfn("/collections"));
        options.listing.repeats = Repeats::Reject;
    });
    let report = fixture.import(&catalogue, &options).await;
    assert_eq!((report.counts.members_added, report.counts.members_unchanged, report.rejected), (1, 1, 1));
    assert_eq!(fixture.rejected(), ["3 not-member"]);
    let verified = fixture.verify(&catalogue, &options).await;
    assert_eq!((verified.same, verified.missing), (2, 1));
    catalogue.check().await;
}

#[tokio::test]
async fn what_cannot_be_understood_at_all_is_an_error_that_says_what_to_do() {
    let catalogue = Direct::new().await;
    for (text, change, says) in [
        ("/a\t1\n", (|_| {}) as fn(&mut ImportOptions), "--columns"),
        ("a\tb\n/a\t1\n", |o| o.listing.header = Some(true), "no column is the LFN"),
        ("lfn\n/a\n", |o| o.listing.delimiter = Some(b'\n'), "delimiter"),
        ("#exacat {\"export\":2,\"columns\":[\"lfn\"]}\nlfn\n", |_| {}, "version 2"),
        ("#exacat {\"se\":{}}\nlfn\n", |_| {}, "version"),
        ("{\"lfn\":\"/a\"}\n", |o| o.listing.columns = Some(Columns::parse("lfn").unwrap()), "KEY=role"),
    ] {
        let fixture = Fixture::new("listing", text);
        let error = fixture.try_import(&catalogue, &fixture.options(change)).await.unwrap_err().to_string();
        assert!(error.contains(says), "{text}: {error}");
    }
    let fixture = Fixture::new("listing", "x");
    let missing = Fixture { listing: fixture.path("nowhere"), ..fixture };
    let error = missing.try_import(&catalogue, &missing.options(|_| {})).await.unwrap_err().to_string();
    assert!(error.contains("cannot open") && error.contains("nowhere"), "{error}");
    let fixture = Fixture::new("listing", "/a\n");
    for rows in [0, exacat_exchange::limits::BATCH_ROWS_MAX + 1] {
        let refused =
            fixture.try_import(&catalogue, &fixture.options(|options| options.batch_rows = rows)).await;
        assert!(refused.unwrap_err().to_string().contains("at once"));
    }
    // Compressed data that ends early is an error, not the end of the listing.
    let whole = zstd::encode_all("/a\n/b\n".as_bytes(), 1).unwrap();
    let fixture = Fixture::new("cut.zst", &whole[..whole.len() - 3]);
    assert!(fixture.try_import(&catalogue, &fixture.options(|_| {})).await.is_err());
}

#[tokio::test]
async fn row_with_two_pfns_on_one_se_goes_in_with_the_better_one_and_reports_the_other() {
    let catalogue = Direct::with_ses(&["A", "B"]).await;
    let cases = [
        ("A=root://a//1|A=root://a//2", "A=root://a//1"),
        ("A=gsiftp://a/1|A=srm://a/2|A=root://a//3|B", "A=root://a//3|B"),
        ("A/lost=root://a//1|A=davs://a/2", "A=davs://a/2"),
        ("A=root://a//1|A=root://a//1", "A=root://a//1"),
        ("A|A=root://a//1", "A=root://a//1"),
    ];
    let rows = cases.iter().enumerate().map(|(row, (given, _))| format!("/f{row}\t{given}\n"));
    let fixture = Fixture::new("listing.tsv", format!("lfn\treplicas\n{}", rows.collect::<String>()));
    let options = fixture.options(|_| {});
    let report = fixture.import(&catalogue, &options).await;
    assert_eq!((report.counts.created, report.rejected, report.partial), (5, 0, 3));
    assert_eq!(fixture.rejected(), ["2 se-twice", "3 se-twice", "4 se-twice"]);
    let rejects = std::fs::read_to_string(&fixture.rejects).unwrap();
    assert!(rejects.contains("kept on A: root://a//1; left out: root://a//2\t"), "{rejects}");
    assert!(rejects.contains("kept on A: root://a//3; left out:"), "{rejects}");
    let wanted: Vec<String> =
        cases.iter().enumerate().map(|(row, (_, kept))| format!("/f{row}   {kept} ")).collect();
    assert_eq!(files(&catalogue).await, wanted);
    assert!(fixture.import(&catalogue, &options).await.changed_nothing());
    assert!(fixture.verify(&catalogue, &options).await.holds());
    // The most that a row can hold makes one report of bounded length.
    let many: String = (0..10_000).map(|pfn| format!("|A=root://a//{pfn}")).collect();
    let fixture = Fixture::new("listing.tsv", format!("lfn\treplicas\n/many\t{}\n", &many[1..]));
    let report = fixture.import(&catalogue, &fixture.options(|_| {})).await;
    assert_eq!((report.counts.created, report.partial), (1, 1));
    assert!(report.rejects_shown[0].detail.ends_with("and 9991 more"), "{}", report.rejects_shown[0].detail);
}

#[tokio::test]
async fn replica_on_an_se_of_unknown_place_is_told_last_and_without_a_pfn() {
    let catalogue = Direct::new().await;
    let listing = "lfn\treplicas\n/a\taaa|web=https://w.example/a\n/b\taaa|bbb\n";
    let fixture = Fixture::new("listing.tsv", listing);
    let options = fixture.options(|options| options.listing.se_auto = true);
    assert_eq!(fixture.import(&catalogue, &options).await.counts.created, 2);
    let whereis = async |path: &str| {
        let files = vec![exacat_model::FileRef::Lfn(lfn(path))];
        let answer = catalogue.ask(exacat_model::Operation::Whereis { files, site: None }).await;
        let exacat_model::Answer::Whereis(mut found) = answer else { panic!("{answer:?}") };
        let found = found.remove(0).unwrap();
        let shown = |replica: exacat_model::answer::ReplicaAt| (replica.se.unwrap().to_string(), replica.pfn);
        found.replicas.into_iter().map(shown).collect::<Vec<_>>()
    };
    let text = |pairs: &[(&str, &str)]| -> Vec<(String, String)> {
        pairs.iter().map(|(se, pfn)| ((*se).to_owned(), (*pfn).to_owned())).collect()
    };
    assert_eq!(whereis("/a").await, text(&[("web", "https://w.example/a"), ("aaa", "")]));
    assert_eq!(whereis("/b").await, text(&[("aaa", ""), ("bbb", "")]));
    // An operator who knows the address sets it, and PFNs follow from it.
    let settings = exacat_model::operation::SeSettings {
        prefix: Some("root://aaa//store".to_owned()),
        ..exacat_testkit::settings::se("aaa")
    };
    catalogue.ask(exacat_model::Operation::SeSet(settings)).await;
    let found = whereis("/b").await;
    assert!(found[0].1.starts_with("root://aaa//store/") && found[1] == ("bbb".into(), String::new()));
}

#[tokio::test]
async fn unregistered_se_in_the_options_stops_an_import_before_its_first_row() {
    let catalogue = Direct::with_ses(&["VO::SITE::DISK"]).await;
    let fixture = Fixture::new("listing", "/a\n/b\n");
    for change in [
        (|options: &mut ImportOptions| options.listing.se = Some(se_name("VO::SITE::DISC"))) as fn(&mut _),
        |options| options.listing.se_map.add_rule("host=VO::SITE::DISC").unwrap(),
    ] {
        let options = fixture.options(change);
        let error = fixture.try_import(&catalogue, &options).await.unwrap_err().to_string();
        assert!(error.contains("VO::SITE::DISC") && error.contains("is VO::SITE::DISK meant"), "{error}");
        assert!(!fixture.rejects.exists() && !fixture.state().exists());
    }
    assert_eq!(files(&catalogue).await, Vec::<String>::new());
}

#[tokio::test]
async fn tags_above_the_limit_are_dropped_by_importance() {
    let relations: Vec<_> =
        (0..200).map(|number| serde_json::json!({ "recid": number, "type": "isChildOf" })).collect();
    let row = serde_json::json!({
        "lfn": "/set", "title": "Title", "type": { "primary": "Dataset" }, "zebra": 1, "relations": relations,
    });
    let fixture = Fixture::new("sets.jsonl", format!("{row}\n"));
    let options = fixture.options(|options| {
        options.listing.kind = RowKind::Collection;
        options.listing.rest = Rest::Tags;
    });
    let catalogue = Direct::new().await;
    let report = fixture.import(&catalogue, &options).await;
    assert_eq!((report.counts.created, report.partial), (1, 1));
    let tags = catalogue.stat("/set").await.unwrap().entry.tags;
    assert_eq!(tags.len(), exacat_model::limits::TAGS_PER_ENTRY_MAX);
    let has = |key: &str| tags.iter().any(|tag| tag.key.as_str() == key);
    assert!(has("title") && has("type.primary") && has("zebra") && has("relations.0.recid"));
    assert!(has("relations.61.type") && !has("relations.150.recid"));
    let detail = &report.rejects_shown[0].detail;
    assert!(detail.contains("relations.199.recid") && !detail.contains("title"), "{detail}");
    assert!(fixture.import(&catalogue, &options).await.changed_nothing());
}

#[tokio::test]
async fn listing_in_a_form_that_is_not_read_is_refused_with_the_command_that_helps() {
    let catalogue = Direct::new().await;
    let utf16: Vec<u8> = "lfn\tsize\n/a\t1\n".encode_utf16().flat_map(u16::to_le_bytes).collect();
    let big: Vec<u8> = "lfn\tsize\n/a\t1\n".encode_utf16().flat_map(u16::to_be_bytes).collect();
    for (content, parts) in [
        (b"\xfd7zXZ\0\0\x04".to_vec(), ["xz", "unxz --keep '"]),
        (b"PK\x03\x04\x14\0".to_vec(), ["zip", "unzip '"]),
        ([&[0xff, 0xfe], &utf16[..]].concat(), ["UTF-16", "iconv -f UTF-16 -t UTF-8 '"]),
        (utf16.clone(), ["UTF-16", "iconv"]),
        (big.clone(), ["UTF-16", "iconv"]),
        (zstd::encode_all(&utf16[..], 1).unwrap(), ["UTF-16", "iconv"]),
    ] {
        let fixture = Fixture::new("a listing", content);
        let options = fixture.options(|_| {});
        let error = fixture.try_import(&catalogue, &options).await.unwrap_err().to_string();
        assert!(parts.iter().all(|part| error.contains(part)), "{error}");
        assert!(!fixture.state().exists());
    }
}
