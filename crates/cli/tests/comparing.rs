//! Storage dumps as operators compare them: three states, every class, what stops a mistake, and what
//! the listings are good for.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

mod service;

use std::collections::BTreeMap;

use serde_json::Value;
use service::Service;

const SE: &str = "SITE::DISK";
/// Checksum that every file here has.
const SUM: &str = "0a0b0c0d";

/// A service with `count` files of 10 bytes on one storage element, at explicit PFNs.
fn with_files(count: usize) -> Service {
    let service = Service::start();
    service.ok(&format!("se add {SE} --prefix root://h//data"));
    let mut rows = String::new();
    for number in 0..count {
        rows.push_str(&format!("/f/{number}\t10\tadler32:{SUM}\troot://h//data/x/{number}\n"));
    }
    let listing = service.file("files.tsv", rows);
    service.run(&["import", &listing, "--columns", "lfn,size,checksum,pfn", "--se", SE]).ok();
    service
}

/// Lines of a dump with these files, as path, size and checksum.
fn lines(numbers: impl IntoIterator<Item = usize>) -> String {
    numbers.into_iter().map(|number| format!("/data/x/{number},10,{SUM}\n")).collect()
}

fn bzip2_of(text: &str) -> Vec<u8> {
    let mut encoder = bzip2::write::BzEncoder::new(Vec::new(), bzip2::Compression::best());
    std::io::Write::write_all(&mut encoder, text.as_bytes()).unwrap();
    encoder.finish().unwrap()
}

fn classes(view: &Value) -> BTreeMap<String, u64> {
    let classes = view["classes"].as_array().unwrap().iter();
    classes
        .map(|class| (class["class"].as_str().unwrap().to_owned(), class["copies"].as_u64().unwrap()))
        .filter(|(_, copies)| *copies > 0)
        .collect()
}

fn compared(service: &Service, arguments: &[&str]) -> (BTreeMap<String, u64>, Value) {
    let mut all = vec!["--json", "se", "compare", SE];
    all.extend(arguments);
    let mut shown = service.run(&all).json();
    assert_eq!(shown.len(), 1);
    let view = shown.remove(0);
    (classes(&view), view)
}

fn expect(pairs: &[(&str, u64)]) -> BTreeMap<String, u64> {
    pairs.iter().map(|(class, count)| ((*class).to_owned(), *count)).collect()
}

fn revision(service: &Service) -> String {
    service.ok("-q changes --after last");
    let status = service.json("status");
    let store = status.iter().find_map(|part| part["metrics"]["revision"].as_u64());
    store.expect("a revision").to_string()
}

/// A scene with every class: files 0 to 11, of which the dump has some.
fn every_class(service: &Service) -> (String, String) {
    service.ok(&format!("replica state /f/11 {SE} lost"));
    service.ok(&format!("replica state /f/10 {SE} lost"));
    service.ok(&format!("replica rm --delete /f/9 {SE}"));
    service.ok("snapshot create before");
    let revision = revision(service);
    // Changes in the window: a copy forgotten, one added, an upload.
    service.ok(&format!("replica rm /f/8 {SE}"));
    service.ok(&format!("register /f/new --size 10 --se {SE}=root://h//data/x/new"));
    service
        .ok(&format!("upload reserve /f/up --size 10 --se {SE} --guid 5d9a8f1e-5607-11ee-90f9-6c02e09897e9"));
    let mut dump = lines([0, 1, 2, 8, 10]);
    dump.push_str(&format!("/data/x/3,11,{SUM}\n/data/x/4,10,0a0b0c0e\n/data/dark/z,7,{SUM}\n"));
    let dump = service.file("dump.csv", dump);
    service.ok("snapshot create after");
    (dump, revision)
}

/// Snapshots before and after, and the history alone, give the same classes: lost only what both had,
/// dark only what neither had.
#[test]
fn three_states_give_every_class_its_copies() {
    let service = with_files(12);
    let (dump, revision) = every_class(&service);
    // 0, 1 and 2 are the same; 5, 6 and 7 are lost; 8 and new changed; 9 is deleted.
    let expected = expect(&[
        ("same", 3),
        ("lost", 3),
        ("dark", 1),
        ("wrong-size", 1),
        ("wrong-checksum", 1),
        ("found", 1),
        ("known-lost", 1),
        ("deleted", 1),
        ("on-the-way", 2),
    ]);
    let (found, view) = compared(&service, &[&dump, "--before", "before", "--after", "after"]);
    assert_eq!(found, expected, "{view}");
    assert_eq!((&view["form"], &view["files"], &view["copies"]), (&"csv".into(), &8.into(), &11.into()));
    let (found, _) = compared(&service, &[&dump, "--before", "before"]);
    assert_eq!(found, expected, "the present catalogue is as good as a snapshot of it");
    // Without a time, nobody knows when the deletion was queued.
    let (found, _) = compared(&service, &[&dump, "--from", &revision]);
    let without = expected.iter().filter(|(class, _)| *class != "deleted");
    assert_eq!(found, without.map(|(class, count)| (class.clone(), *count)).collect());
    // Without the state before, what differs is undecided.
    let (found, view) = compared(&service, &[&dump]);
    let undecided = expect(&[("same", 3), ("known-lost", 1), ("undecided", 9)]);
    assert_eq!(found, undecided, "{view}");
    assert!(view["notes"][0].as_str().unwrap().contains("--before"), "{view}");
    let text = service.run(&["se", "compare", SE, &dump, "--before", "before"]).ok();
    assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
    assert!(text.contains("\nlost ") && text.contains("dump (csv): 8 lines, 8 files"), "{text}");
    let mut service = service;
    assert_eq!(service.stop(), Some(0));
    let (found, _) = compared(&service, &[&dump, "--offline", "--before", "before"]);
    assert_eq!(found, expected);
}

/// Each listing is input of a command: replica, import, se deleted.
#[test]
fn listings_feed_the_commands_that_mend() {
    let service = with_files(12);
    let (dump, _) = every_class(&service);
    let output = service.place().join("out");
    let out = output.to_str().unwrap();
    let run = || compared(&service, &[&dump, "--before", "before", "--output", out]);
    run();
    let listing = |name: &str| std::fs::read_to_string(output.join(name)).unwrap();
    let first = |name: &str| -> String {
        listing(name).lines().map(|line| format!("{}\n", line.split('\t').next().unwrap())).collect()
    };
    assert_eq!(listing("lost.tsv").lines().count(), 3);
    assert!(listing("lost.tsv").lines().all(|line| line.ends_with("\t10")), "{}", listing("lost.tsv"));
    assert!(listing("wrong-size.tsv").ends_with("\t/data/x/3\t10\t11\n"));
    assert!(listing("wrong-checksum.tsv").ends_with(&format!("adler32:{SUM}\tadler32:0a0b0c0e\n")));
    assert_eq!(listing("rejects.tsv"), "line\treason\trow\n");
    for name in ["lost.tsv", "dark.tsv"] {
        use std::os::unix::fs::PermissionsExt;
        let mode = std::fs::metadata(&output).unwrap().permissions().mode() & 0o777;
        assert_eq!(mode, 0o700, "{name}");
    }
    service.run_with(&["replica", "state", "-", SE, "lost"], first("lost.tsv")).ok();
    service.run_with(&["replica", "state", "-", SE, "suspect"], first("wrong-size.tsv")).ok();
    service.run_with(&["replica", "rm", "-", SE], first("wrong-checksum.tsv")).ok();
    service.run_with(&["replica", "state", "-", SE, "available"], first("found.tsv")).ok();
    service.run_with(&["se", "deleted", SE, "-"], first("deleted.tsv")).ok();
    assert_eq!(service.ok(&format!("-q se deletions {SE}")), "");
    let dark = output.join("dark.tsv");
    service.run(&["import", dark.to_str().unwrap(), "--prefix", "/dark"]).ok();
    let adopted = service.json1("stat /dark/data/dark/z");
    assert_eq!(
        (&adopted["size"], &adopted["replicas"][0]["pfn"]),
        (&7.into(), &"root://h//data/dark/z".into())
    );
    let (found, _) = run();
    // The window still begins at the snapshot, so that what was mended is on the way.
    assert_eq!((found.get("lost"), found.get("dark")), (None, None), "{found:?}");
    assert_eq!(found["known-lost"], 4);
}

/// An application is refused beyond its limits, changes each copy once, and leaves those alone that
/// changed since.
#[test]
fn application_keeps_its_limits_and_judges_copies_again() {
    let service = with_files(10);
    service.ok("snapshot create before");
    let dump = service.file("dump.csv", lines(0..7));
    service.ok("snapshot create after");
    let apply = |more: &[&str]| {
        let mut all = vec![
            "se",
            "compare",
            SE,
            dump.as_str(),
            "--before",
            "before",
            "--after",
            "after",
            "--apply",
            "lost",
        ];
        all.extend(more);
        service.run(&all)
    };
    let state = |file: &str| service.json1(&format!("stat {file}"))["replicas"][0]["state"].clone();
    let said = apply(&[]).fails(1);
    assert!(
        said.contains("3 of 10") && said.contains("--max-fraction") && said.contains("nothing was changed"),
        "{said}"
    );
    let said = apply(&["--max-fraction", "100%", "--max-count", "2"]).fails(1);
    assert!(said.contains("--max-count"), "{said}");
    assert_eq!(state("/f/7"), "available");
    // This one changes after the comparison's state: its copy is left alone.
    service.ok("chmod 600 /f/9");
    let permitted = ["--max-fraction", "30%", "--max-count", "3"];
    let text = apply(&permitted).ok();
    assert!(text.contains("applied lost: 2 changed, 0 so already, 1 changed since"), "{text}");
    assert_eq!(
        (state("/f/7"), state("/f/8"), state("/f/9")),
        ("lost".into(), "lost".into(), "available".into())
    );
    let text = apply(&permitted).ok();
    assert!(text.contains("applied lost: 0 changed, 2 so already, 1 changed since"), "{text}");
    // A removed file has no copy to mark.
    service.ok("rm /f/8");
    let text = apply(&permitted).ok();
    assert!(text.contains("0 changed, 1 so already, 2 changed since"), "{text}");
    for bad in [
        &["--max-fraction", "101%"][..],
        &["--max-fraction", "1"],
        &["--into", "/dark"],
        &["--max-count", "x"],
    ] {
        apply(bad).fails(1);
    }
}

/// Dark files are registered below a directory once, never over what the catalogue learned since, and
/// leave the storage by the ordinary way.
#[test]
fn dark_files_are_adopted_and_leave_by_the_deletion_queue() {
    let service = with_files(50);
    service.ok("snapshot create before");
    let derived = "02/16894/5d9a8f1e-5607-11ee-90f9-6c02e09897e9";
    let mut dump = lines(0..50);
    dump.push_str("/data/dark/a,1,\n/data/dark/b,2,\n");
    dump.push_str(&format!("/data/{derived},3,{SUM}\n"));
    let dump = service.file("dump.csv", dump);
    service.ok("snapshot create after");
    // Registered after the snapshot: no longer dark.
    service.ok(&format!("register -p /late/b --size 2 --se {SE}=root://h//data/dark/b"));
    let apply = |more: &[&str]| {
        let mut all = vec![
            "se",
            "compare",
            SE,
            dump.as_str(),
            "--before",
            "before",
            "--after",
            "after",
            "--apply",
            "dark",
        ];
        all.extend(more);
        service.run(&all)
    };
    assert!(apply(&[]).fails(1).contains("--into"));
    let said = apply(&["--into", "/dark"]).fails(1);
    assert!(said.contains("--max-fraction"), "{said}");
    let permitted = ["--into", "/dark", "--max-fraction", "10%"];
    let text = apply(&permitted).ok();
    assert!(text.contains("applied dark: 2 changed, 0 so already, 1 changed since"), "{text}");
    let text = apply(&permitted).ok();
    assert!(text.contains("applied dark: 0 changed, 2 so already, 1 changed since"), "{text}");
    service.fails("stat /dark/data/dark/b", 11);
    let (found, _) = compared(&service, &[&dump, "--before", "before"]);
    assert_eq!(found, expect(&[("same", 53)]));
    service.ok("rm -r /dark");
    // A server cannot list copies below a removed directory; a snapshot can.
    service.ok("snapshot create removed");
    let (found, view) = compared(&service, &[&dump, "--before", "before"]);
    assert_eq!(found, expect(&[("same", 51), ("undecided", 2)]), "{view}");
    assert!(view["notes"][0].as_str().unwrap().contains("--after"), "{view}");
    let (found, _) = compared(&service, &[&dump, "--before", "before", "--after", "removed"]);
    assert_eq!(found, expect(&[("same", 53)]));
    let item = service.json("trash ls")[0]["id"].as_str().unwrap().to_owned();
    service.ok(&format!("trash purge {item}"));
    assert_eq!(service.json(&format!("se deletions {SE}")).len(), 2);
    let (found, _) = compared(&service, &[&dump, "--before", "before"]);
    assert_eq!(found, expect(&[("same", 51), ("on-the-way", 2)]), "deletions wait");
}

/// Dumps come compressed, from a pipe, with a BOM and CRLF, and with prefixes to change.
#[test]
fn dumps_are_read_in_the_forms_they_come_in() {
    let service = with_files(5);
    service.ok("snapshot create before");
    let same = expect(&[("same", 5)]);
    let plain = lines(0..5);
    let unpacked = service.file("packed", &plain);
    assert!(std::process::Command::new("gzip").arg(&unpacked).status().unwrap().success());
    let gz = std::fs::read(format!("{unpacked}.gz")).unwrap();
    let zst = zstd::encode_all(plain.as_bytes(), 0).unwrap();
    let long = "-rw-r--r-- a b 10 2026-11-20 12:00:00 /data/x/";
    let xrdfs: String = (0..5).map(|number| format!("{long}{number}\n")).collect();
    let eos: String =
        (0..5).map(|number| format!("path=/data/x/{number} size=10 checksum={SUM}\n")).collect();
    let forms: [(&str, &[u8], &[&str]); 10] = [
        ("gz", &gz, &[]),
        ("zst", &zst, &[]),
        ("bz2", &bzip2_of(&plain), &[]),
        ("bom", "\u{feff}path,size\r\n/data/x/0,10\r\n/data/x/1,10\r\n/data/x/2,10\r\n/data/x/3,10\r\n/data/x/4,10\r\n".as_bytes(), &[]),
        ("relative", b"x/0\nx/1\nx/2\nx/3\nx/4\n", &[]),
        ("site", b"/pnfs/s/x/0\n/pnfs/s/x/1\n/pnfs/s/x/2\n/pnfs/s/x/3\n/pnfs/s/x/4\n/pnfs/t/x\n", &["--strip-prefix", "/pnfs/s"]),
        ("url", b"https://h:1/data/x/0\nroot://h2//data/x/1\n/data/x/2\n/data//x/3\n/data/x/4\n", &[]),
        ("added", b"0\n1\n2\n3\n4\n", &["--add-prefix", "/data/x"]),
        ("xrdfs", xrdfs.as_bytes(), &[]),
        ("eos", eos.as_bytes(), &[]),
    ];
    for (name, content, more) in forms {
        let path = service.file(name, content);
        let mut arguments = vec![path.as_str(), "--before", "before"];
        arguments.extend(more);
        assert_eq!(compared(&service, &arguments).0, same, "{name}");
    }
    let ran = service.run_with(&["--json", "se", "compare", SE, "-", "--before", "before"], &plain);
    assert_eq!(classes(&ran.json()[0]), same);
    // Little memory gives the same.
    let path = service.file("again", &plain);
    assert_eq!(compared(&service, &[&path, "--before", "before", "--memory", "4MiB"]).0, same);
    service.run(&["se", "compare", SE, &path, "--memory", "1MiB"]).fails(1);
    service.run(&["se", "compare", SE, &path, "--memory", "3GiB"]).fails(1);
}

/// A dump that can only be a mistake is refused with what to do, and changes nothing.
#[test]
fn wrong_dumps_are_refused_with_what_to_do() {
    let service = with_files(5);
    service.ok("snapshot create before");
    let refused = |content: &[u8], more: &[&str]| {
        let path = service.file("bad", content);
        let mut all = vec!["se", "compare", SE, path.as_str(), "--before", "before"];
        all.extend(more);
        service.run(&all).fails(1)
    };
    assert!(refused(b"", &[]).contains("it is empty"));
    assert!(refused(b"/d/\n# x\n", &[]).contains("directories"));
    let said = refused(b"/other/a\n/other/b\n", &[]);
    assert!(said.contains("\"/other/") && said.contains("--strip-prefix"), "{said}");
    let said = refused(&[0xfd, b'7', b'z', b'X', b'Z', 0, 1, 2], &[]);
    assert!(said.contains("xz") && said.contains(" | exacat"), "{said}");
    let mut cut = bzip2_of(&lines(0..5));
    cut.truncate(cut.len() - 3);
    refused(&cut, &[]);
    assert!(refused(&[0xff, 0xfe, b'/', 0, b'a', 0], &[]).contains("UTF-16"));
    let mut cut = zstd::encode_all(lines(0..5).as_bytes(), 0).unwrap();
    cut.truncate(cut.len() - 3);
    refused(&cut, &[]);
    // The last line has no end: it may be cut off, so that nothing is applied.
    let cut = lines(0..4);
    let said = refused(cut.trim_end().as_bytes(), &["--apply", "lost", "--max-fraction", "100%"]);
    assert!(said.contains("cut off"), "{said}");
    // Broken lines are reported, and stop an application unless they are permitted.
    let broken = format!("{}/data/x/4,many,\n", lines(0..4));
    let path = service.file("broken", &broken);
    let arguments = |more: &[&'static str]| {
        let mut all = vec!["se", "compare", SE, path.as_str(), "--before", "before"];
        all.extend(more);
        service.run(&all)
    };
    let ran = arguments(&["--output", "/dev/null/x"]);
    ran.fails(1);
    let ran = arguments(&[]);
    assert!(ran.out.contains("line 5: bad-size"), "{}", ran.out);
    ran.fails(18);
    let said = arguments(&["--apply", "lost", "--max-fraction", "100%"]).fails(1);
    assert!(said.contains("--max-rejects"), "{said}");
    let ran = arguments(&["--apply", "lost", "--max-fraction", "100%", "--max-rejects", "1"]);
    assert!(ran.out.contains("applied lost: 1 changed"), "{}", ran.out);
    // An old dump is not of this window.
    let old = service.file("old", lines(0..5));
    std::process::Command::new("touch").args(["-d", "2020-01-01", &old]).status().unwrap();
    let said = service.run(&["se", "compare", SE, &old, "--before", "before"]).fails(1);
    assert!(said.contains("before the window begins"), "{said}");
    let said = service.run(&["se", "compare", SE, &old, "--from", "1h"]).fails(1);
    assert!(said.contains("before the window begins"), "{said}");
    service.run(&["se", "compare", SE, &path, "--to", "2099-01-01"]).fails(1);
    service.run(&["se", "compare", SE, &path, "--before", "none"]).fails(11);
    service.run(&["se", "compare", "NO::SE", &path]).fails(11);
    service.run(&["se", "compare", SE, "/no/such/dump"]).fails(1);
    assert_eq!(service.json1("stat /f/0")["replicas"][0]["state"], "available");
}
