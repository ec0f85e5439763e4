//! Tables as analysts use them: exported from a snapshot, proven, and queried as the page says, by DuckDB and
//! pandas where they are installed.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::print_stderr,
    reason = "a test fails by panicking, and says what it skipped"
)]

mod service;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::{Value, json};
use service::{Ran, Service, signal};

/// Python with the packages; `python3` if the variable is not set.
const PYTHON: &str = "EXACAT_TEST_PYTHON";
/// Exit status of the program with the queries, if a package is not installed.
const NOT_INSTALLED: i32 = 77;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// A catalogue with removals by two users, and its tables in `tables` and `history`.
fn exported() -> (Service, PathBuf) {
    let service = Service::start();
    service.ok("generate --entries 3000 --seed 5");
    let files = service.ok("find /demo --type f --limit 3");
    for file in files.lines() {
        service.run(&["rm", file]).ok();
    }
    service.ok("mkdir -p /gone/below");
    service.ok("rm -r /gone");
    service.ok("snapshot create today");
    let place = service.place().join("analysis");
    std::fs::create_dir(&place).unwrap();
    let (tables, history) = (place.join("tables"), place.join("history"));
    service
        .run(&["export", "/", "--format", "parquet", "--snapshot", "today", "-o", tables.to_str().unwrap()])
        .ok();
    let history = history.to_str().unwrap();
    let of_history =
        ["export", "/", "--format", "parquet", "--snapshot", "today", "--tables", "changes", "-o", history];
    service.run(&of_history).ok();
    (service, place)
}

/// Every query of the page runs, and the answers are those of the catalogue's own commands.
#[test]
fn queries_of_the_page_answer_what_the_catalogue_answers() {
    let (service, place) = exported();
    let python = std::env::var(PYTHON).unwrap_or_else(|_| "python3".to_owned());
    let mut command = Command::new(python);
    command.arg(root().join("scripts/analytics_queries.py"));
    command.arg(root().join("docs/operating/analytics.md")).arg(&place);
    let ran = Ran::of(command, b"");
    if ran.status == Some(NOT_INSTALLED) {
        eprintln!("queries of docs/operating/analytics.md: not tried, {}", ran.err.trim());
        return;
    }
    let answers: Vec<Value> = ran.ok().lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let by = |by: &str| answers.iter().filter(|answer| answer["by"] == by).count();
    assert_eq!((by("duckdb"), by("pandas")), (6, 4));
    let answer = |part: &str| -> &Vec<Value> {
        let found = answers
            .iter()
            .find(|answer| answer["by"] == "duckdb" && answer["query"].as_str().unwrap().contains(part));
        let rows = found.unwrap()["rows"].as_array().unwrap();
        assert!(!rows.is_empty(), "{part}");
        rows
    };

    let mut of_sites: BTreeMap<String, u64> = BTreeMap::new();
    for row in answer("date_diff('year'") {
        *of_sites.entry(row["site"].as_str().unwrap().to_owned()).or_default() +=
            row["bytes"].as_u64().unwrap();
    }
    let below = |name: &str| service.json(&format!("se usage {name}"))[0].clone();
    for se in ["DEMO::FZK::SE", "DEMO::CNAF::SE"] {
        let site = se.split("::").nth(1).unwrap();
        // What was removed is in the trash, and uses its place.
        assert!(of_sites[site] <= below(se)["used"]["replica_bytes"].as_u64().unwrap(), "{se}");
    }
    let usage = &service.json("du /demo")[0]["usage"];
    let total = answer("AS month").last().unwrap()["total"].clone();
    let bytes = usage["bytes"].as_u64().unwrap() + usage["member_bytes"].as_u64().unwrap();
    assert_eq!(total, json!(bytes));
    for row in answer("of = 'directory'") {
        let name = row["name"].as_str().unwrap();
        let du = &service.json(&format!("du {name}"))[0]["usage"];
        assert_eq!((&row["files"], &row["replica_bytes"]), (&du["files"], &du["replica_bytes"]), "{name}");
    }
    let lonely = answer("copies = 1");
    let file = lonely[0]["lfn"].as_str().unwrap();
    assert_eq!(service.json1(&format!("stat {file}"))["size"], lonely[0]["size"]);
    let removed = answer("effect = 'removed'");
    assert_eq!((&removed[0]["who"], &removed[0]["removals"]), (&json!("admin"), &json!(4)));
    answer("tags['run']");
    for answer in answers.iter().filter(|answer| answer["by"] == "pandas") {
        assert!(answer["printed"].as_str().unwrap().lines().count() > 1, "{answer}");
    }
    let tables: Vec<&str> = answers.iter().filter_map(|answer| answer["table"].as_str()).collect();
    assert_eq!(tables.len(), 5, "{tables:?}");
}

/// An export is proven against its snapshot, and not against a later one; damage has status 19.
#[test]
fn export_is_checked_against_catalogue_and_damage() {
    let (mut service, place) = exported();
    let tables = place.join("tables");
    let tables = tables.to_str().unwrap();
    let check = |more: &[&str]| {
        let mut all = vec!["export", "--check", tables];
        all.extend(more);
        service.run(&all)
    };
    let said = check(&[]).ok();
    assert!(said.contains("4 tables") && said.contains(": as written\n"), "{said}");
    assert!(check(&["--snapshot", "today"]).ok().contains("and as the catalogue has it"));
    let digest = service.ok("digest --snapshot today");
    let view = service.run(&["--json", "export", "--check", tables, "--snapshot", "today"]).json().remove(0);
    assert_eq!((&view["holds"], &view["under"]), (&json!(true), &json!("/")));
    assert_eq!(view["digest"], json!(digest[..64]));
    assert_eq!(view["compared_with"], view["digest"]);
    service.ok("mkdir /later");
    service.ok("snapshot create later");
    assert!(check(&["--snapshot", "later"]).fails(19).contains("1 problem"));
    // Of the server itself, with what it is.
    let live = place.join("live");
    let all = "entries,replicas,members,usage,changes";
    let of_live = [
        "--json",
        "export",
        "/demo/data",
        "--format",
        "parquet",
        "--tables",
        all,
        "-o",
        live.to_str().unwrap(),
    ];
    let view = service.run(&of_live).json().remove(0);
    assert_eq!(view["tables"].as_array().unwrap().len(), 5);
    assert_eq!(view["revision"], view["revision_end"]);
    assert_eq!(view["digest"], service.json1("digest /demo/data")["digest"]);
    let files: Vec<&str> =
        view["tables"].as_array().unwrap().iter().map(|table| table["file"].as_str().unwrap()).collect();
    assert_eq!(
        files,
        ["entries.parquet", "replicas.parquet", "members.parquet", "usage.parquet", "changes.parquet"]
    );
    assert_eq!(service.stop(), Some(0));
    service.run(&["export", "--check", live.to_str().unwrap(), "--offline"]).ok();
    let entries = live.join("entries.parquet");
    let mut bytes = std::fs::read(&entries).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    std::fs::write(&entries, bytes).unwrap();
    let ran = service.run(&["export", "--check", live.to_str().unwrap()]);
    assert!(ran.out.contains("entries.parquet"), "{}", ran.out);
    ran.fails(19);
}

/// Wrong use is refused before any work, and names what to do.
#[test]
fn wrong_use_of_tables_is_refused() {
    let service = Service::start();
    let place = service.place().to_str().unwrap().to_owned();
    let out = format!("{place}/out");
    let refused = |arguments: &str| {
        let all: Vec<&str> = arguments.split(' ').chain(["-o", &out]).collect();
        let error = service.run(&all).fails(1);
        assert!(!Path::new(&out).exists(), "{arguments}");
        error
    };
    assert!(refused("export / --format parquet --columns lfn").contains("--columns is for listings"));
    assert!(
        refused("export / --format parquet --compression zstd").contains("--compression is for listings")
    );
    assert!(refused("export / --format parquet --tables entry").contains("entries, replicas"));
    assert!(refused("export / --format parquet --after 5").contains("--tables"));
    assert!(refused("export / --format parquet --tables changes --after x").contains("x"));
    assert!(refused("export / --tables entries").contains("--format parquet"));
    assert!(service.fails("export / --format parquet", 1).contains("-o"));
    assert!(service.fails("export / --format parquet -o -", 1).contains("-o"));
    assert_eq!(service.run(&["export"]).status, Some(1));
    service.fails(&format!("export --check {place}/none"), 11);
    assert_eq!(service.run(&["export", "/", "--check", &place]).status, Some(1));
    std::fs::write(&out, "kept").unwrap();
    let ran = service.run(&["export", "/", "--format", "parquet", "-o", &out]);
    assert!(ran.fails(1).contains("is no directory"));
    assert_eq!(std::fs::read_to_string(&out).unwrap(), "kept");
    let full = format!("{place}/full");
    std::fs::create_dir(&full).unwrap();
    std::fs::write(format!("{full}/theirs"), "kept").unwrap();
    assert!(
        service.run(&["export", "/", "--format", "parquet", "-o", &full]).fails(1).contains("is not empty")
    );
    service.fails(&format!("export /none --format parquet -o {place}/new"), 11);
    let left: Vec<String> = std::fs::read_dir(&place)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .filter(|name| name.contains("partial") || name == "new")
        .collect();
    assert_eq!(left, Vec::<String>::new());
}

/// An interrupted export leaves no directory, whole or partial.
#[test]
fn interrupted_export_of_tables_leaves_nothing() {
    let service = Service::start();
    service.ok("generate --entries 20000");
    let place = service.place().join("results");
    std::fs::create_dir(&place).unwrap();
    let out = place.join("out");
    let export = ["export", "/", "--format", "parquet", "-o", out.to_str().unwrap()];
    let mut child = service.command(&export).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    // Its temporary directory is there: it works.
    let until = std::time::Instant::now() + std::time::Duration::from_secs(60);
    while std::fs::read_dir(&place).unwrap().count() == 0 && std::time::Instant::now() < until {
        std::thread::yield_now();
    }
    signal(child.id(), "INT");
    let status = child.wait().unwrap();
    let left: Vec<_> = std::fs::read_dir(&place).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    match status.code() {
        Some(0) => assert_eq!(left, ["out"]),
        code => {
            assert_eq!(code, Some(130));
            assert_eq!(left, Vec::<std::ffi::OsString>::new());
        }
    }
}
