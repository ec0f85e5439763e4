//! Real listings through the binary: imported, verified, imported again without effect, and
//! exported unchanged.
//!
//! They are in a directory beside the checkout, or in `EXACAT_REAL_DATA`. `make test` runs these
//! tests only where the listings are. Of long listings they take the first rows, with
//! `EXACAT_TEST_ROUNDS` all of them.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "a test fails by panicking, and says what it skipped or counted"
)]

mod service;

use std::collections::{BTreeMap, HashSet};
use std::io::{BufRead, BufReader, Read, Write};
use std::path::{Path, PathBuf};

use exacat_model::Checksum;
use serde_json::Value;
use service::Service;

/// Rows taken of a long listing, if not all.
const ROWS: usize = 50_000;

/// Returns the directory with real listings.
fn real_data() -> PathBuf {
    let given = std::env::var_os("EXACAT_REAL_DATA").map(PathBuf::from);
    let beside = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/data");
    let directory = given.unwrap_or(beside);
    assert!(
        directory.join("odp_files.tsv.zst").exists(),
        "there are no real listings in {} (EXACAT_REAL_DATA)",
        directory.display()
    );
    directory
}

fn all_rows() -> bool {
    std::env::var_os("EXACAT_TEST_ROUNDS").is_some()
}

fn lines(path: &Path) -> impl Iterator<Item = String> {
    let file = std::fs::File::open(path).unwrap();
    let reader: Box<dyn Read> = if path.extension().is_some_and(|extension| extension == "zst") {
        Box::new(zstd::Decoder::new(file).unwrap())
    } else {
        Box::new(file)
    };
    BufReader::new(reader).lines().map(Result::unwrap)
}

/// Makes a listing of the test's own: the first rows of a real one, or all, compressed again.
fn taken(service: &Service, data: &Path, name: &str, rows: usize) -> String {
    let rows = if all_rows() { usize::MAX } else { rows };
    let path = service.place().join(name);
    let mut out = zstd::Encoder::new(std::fs::File::create(&path).unwrap(), 1).unwrap();
    for line in lines(&data.join(name)).take(rows.saturating_add(1)) {
        out.write_all(line.as_bytes()).unwrap();
        out.write_all(b"\n").unwrap();
    }
    out.finish().unwrap();
    path.to_str().unwrap().to_owned()
}

/// Imports a listing, verifies it, and imports it again, which changes nothing. Returns the first
/// report.
fn in_verified_in_again(service: &Service, listing: &str, options: &[&str]) -> Value {
    let report = |command: &str, status: &[i32]| -> Value {
        let mut args = vec!["--json", "--timeout", "5m", command, listing];
        args.extend(options);
        let ran = service.run(&args);
        assert!(
            ran.status.is_some_and(|found| status.contains(&found)),
            "{}: {}{}",
            ran.asked,
            ran.out,
            ran.err
        );
        serde_json::from_str(&ran.out).unwrap()
    };
    let imported = report("import", &[0, 18]);
    println!("{listing}: {imported}");
    let count = |report: &Value, field: &str| report[field].as_u64().unwrap();
    let verified = report("verify", &[0]);
    assert_eq!(verified["holds"], true, "{verified}");
    assert_eq!(verified["rows"], imported["rows"]);
    let again = report("import", &[0, 18]);
    assert_eq!(again["changed"], false, "{again}");
    assert_eq!(count(&again, "rejected"), count(&imported, "rejected"), "{again}");
    assert_eq!(count(&again, "created") + count(&again, "merged"), 0, "{again}");
    imported
}

fn count(report: &Value, field: &str) -> u64 {
    report[field].as_u64().unwrap()
}

/// Reads the wanted columns of a listing by LFN.
fn rows_by_lfn(path: &Path, wanted: &[&str]) -> BTreeMap<String, Vec<String>> {
    let mut lines = lines(path);
    let header: Vec<String> = lines.next().unwrap().split('\t').map(str::to_owned).collect();
    let at: Vec<usize> =
        wanted.iter().map(|name| header.iter().position(|field| field == name).unwrap()).collect();
    lines
        .map(|line| {
            let fields: Vec<&str> = line.split('\t').collect();
            let row: Vec<String> = at.iter().map(|at| fields[*at].to_owned()).collect();
            (row[0].clone(), row)
        })
        .collect()
}

fn export(service: &Service, args: &[&str]) -> PathBuf {
    let path = service.place().join("out.tsv.zst");
    let mut all = vec!["export", "-o", path.to_str().unwrap()];
    all.extend(args);
    service.run(&all).ok();
    path
}

fn sound(service: &Service) {
    let fsck = service.run(&["--json", "--timeout", "5m", "fsck"]).json();
    assert_eq!(fsck[0]["findings_total"], 0, "{}", fsck[0]);
}

#[test]
#[ignore = "needs real listings: EXACAT_REAL_DATA=DIR make test-real"]
fn files_and_datasets_of_the_open_data_portal() {
    let data = real_data();
    let mut service = Service::start();
    let files = taken(&service, &data, "odp_files.tsv.zst", ROWS);
    let imported = in_verified_in_again(&service, &files, &["--preset", "odp-files"]);
    assert_eq!(count(&imported, "created"), count(&imported, "rows"));
    assert_eq!(count(&imported, "rejected"), 0);
    // The export returns the rows, byte for byte.
    let wanted = ["lfn", "size", "checksum", "pfn"];
    let out = export(
        &service,
        &["/eos", "--type", "f", "--columns", &wanted.join(","), "--pfn-same", "root://eospublic.cern.ch/"],
    );
    let (given, found) = (rows_by_lfn(Path::new(&files), &wanted), rows_by_lfn(&out, &wanted));
    assert_eq!(given.len() as u64, count(&imported, "rows"));
    for (lfn, row) in &given {
        assert_eq!(found.get(lfn), Some(row));
    }
    assert_eq!(found.len(), given.len());
    // Counters are the sums of the rows.
    let bytes: u128 = given.values().filter_map(|row| row[1].parse::<u128>().ok()).sum();
    let usage = &service.json1("du /eos")["usage"];
    assert_eq!((count(usage, "files"), usage["bytes"].to_string()), (given.len() as u64, bytes.to_string()));

    let datasets = taken(&service, &data, "odp_datasets.jsonl.zst", 3_000);
    let made = in_verified_in_again(&service, &datasets, &["--preset", "odp-datasets"]);
    assert!(count(&made, "created") > 0, "{made}");
    let members = in_verified_in_again(&service, &files, &["--preset", "odp-members"]);
    assert_eq!(count(&members, "members_added"), given.len() as u64, "{members}");
    let of: Vec<Value> =
        service.run(&["--json", "find", "/collections/opendata", "--type", "c"]).json().into_iter().collect();
    let in_all: u64 = of.iter().map(|collection| count(collection, "members")).sum();
    assert_eq!(in_all, given.len() as u64);
    assert!(of.iter().any(|collection| collection["tags"].as_object().is_some_and(|tags| tags.len() > 3)));
    sound(&service);

    // Everything survives the end of the process.
    service.kill();
    service.restart();
    let mut args = vec!["--json", "--timeout", "5m", "verify", &files];
    args.extend(["--preset", "odp-files"]);
    assert_eq!(service.run(&args).json()[0]["holds"], true);
}

#[test]
#[ignore = "needs real listings: EXACAT_REAL_DATA=DIR make test-real"]
fn odd_checksums_of_the_open_data_portal() {
    let data = real_data();
    let service = Service::start();
    // Both forms of one checksum, as two listings: the raw one is imported, the normalised one must
    // verify.
    let (mut raw, mut normal, mut expected) = (String::new(), String::new(), 0);
    let mut seen = HashSet::new();
    let (mut forms, mut refused) = (0, 0u64);
    for line in lines(&data.join("odp_odd_values.tsv.zst")).skip(1) {
        let fields: Vec<&str> = line.split('\t').collect();
        let [kind, uri, given, normalised] = fields[..] else { panic!("{line}") };
        if kind != "checksum_format" {
            continue;
        }
        forms += 1;
        let lfn = uri.strip_prefix("root://eospublic.cern.ch/").unwrap_or(uri);
        if Checksum::parse(given).is_err() {
            refused += 1;
        }
        raw.push_str(&format!("{lfn}\t{given}\n"));
        if !normalised.is_empty() && lfn.starts_with('/') && seen.insert(lfn.to_owned()) {
            normal.push_str(&format!("{lfn}\t{normalised}\n"));
            expected += 1;
        }
    }
    assert!(forms > 900 && expected > 100, "{forms} {expected}");
    let raw = service.file("raw.tsv", raw);
    let normal = service.file("normal.tsv", normal);
    let imported = in_verified_in_again(
        &service,
        &raw,
        &["--columns", "lfn,checksum", "--header", "no", "--prefix", "/odd"],
    );
    assert_eq!(count(&imported, "rejected"), refused, "{imported}");
    let ran = service.run(&[
        "--json",
        "verify",
        &normal,
        "--columns",
        "lfn,checksum",
        "--header",
        "no",
        "--prefix",
        "/odd",
    ]);
    let verified: Value = serde_json::from_str(&ran.out).unwrap();
    assert_eq!(count(&verified, "different"), 0, "{verified}");
    sound(&service);
}

#[test]
#[ignore = "needs real listings: EXACAT_REAL_DATA=DIR make test-real"]
fn files_of_git_annex_with_many_replicas() {
    let data = real_data();
    let service = Service::start();
    let files = taken(&service, &data, "annex_files.tsv.zst", ROWS);
    let imported = in_verified_in_again(&service, &files, &["--preset", "annex"]);
    assert!(
        count(&imported, "created") + count(&imported, "rejected") == count(&imported, "rows"),
        "{imported}"
    );
    assert!(count(&imported, "created") * 100 > count(&imported, "rows") * 99, "{imported}");
    // Every location that the listing names for a file is one of its replicas.
    let wanted = ["lfn", "size", "checksum", "replicas"];
    let given = rows_by_lfn(Path::new(&files), &wanted);
    let sample: Vec<&Vec<String>> = given.values().step_by((given.len() / 500).max(1)).collect();
    let names: Vec<&str> = sample.iter().map(|row| row[0].as_str()).collect();
    let found = service.run_with(&["--json", "stat", "-"], names.join("\n")).json();
    let mut several = 0;
    for (row, stat) in sample.iter().zip(&found) {
        assert_eq!(stat["lfn"], row[0].as_str());
        assert_eq!(stat["size"].as_u64(), row[1].parse().ok(), "{row:?}");
        let ses: HashSet<&str> = stat["replicas"]
            .as_array()
            .unwrap()
            .iter()
            .filter_map(|replica| replica["se"].as_str())
            .collect();
        for location in row[3].split(',').filter(|location| !location.is_empty()) {
            assert!(ses.contains(location), "{row:?}: {ses:?}");
        }
        several += usize::from(ses.len() > 1);
    }
    assert!(several > sample.len() / 3, "{several}");
    sound(&service);
}

#[test]
#[ignore = "needs real listings: EXACAT_REAL_DATA=DIR make test-real"]
fn bare_names() {
    let data = real_data();
    let service = Service::start();
    let names = taken(&service, &data, "lfn_lists.tsv.zst", ROWS);
    let imported = in_verified_in_again(&service, &names, &["--preset", "lfn-list"]);
    let given: HashSet<String> =
        lines(Path::new(&names)).skip(1).map(|line| line.split('\t').next().unwrap().to_owned()).collect();
    assert_eq!(count(&imported, "created"), given.len() as u64);
    let found: HashSet<String> = service.ok("find / --type f").lines().map(str::to_owned).collect();
    assert_eq!(found, given);
    sound(&service);
}

#[test]
#[ignore = "needs real listings: EXACAT_REAL_DATA=DIR make test-real"]
fn transfers_as_new_replicas() {
    let data = real_data();
    let service = Service::start();
    let transfers = taken(&service, &data, "dune_transfers.tsv.zst", ROWS);
    let imported = in_verified_in_again(&service, &transfers, &["--preset", "dune-transfers"]);
    let mut places: BTreeMap<String, HashSet<String>> = BTreeMap::new();
    for line in lines(Path::new(&transfers)).skip(1) {
        let fields: Vec<&str> = line.split('\t').collect();
        places.entry(format!("/dune/{}", fields[1])).or_default().insert(fields[4].to_owned());
    }
    let rejected = count(&imported, "rejected");
    assert!(rejected * 1000 < count(&imported, "rows"), "{imported}");
    let mut compared = 0;
    for line in service.run(&["--json", "find", "/dune", "--type", "f"]).ok().lines() {
        let entry: Value = serde_json::from_str(line).unwrap();
        let ses: HashSet<String> = entry["replicas"]
            .as_array()
            .unwrap()
            .iter()
            .map(|one| one["se"].as_str().unwrap().to_owned())
            .collect();
        let given = &places[entry["lfn"].as_str().unwrap()];
        assert!(ses.is_subset(given), "{entry}");
        if rejected == 0 {
            assert_eq!(&ses, given, "{entry}");
        }
        compared += 1;
    }
    assert_eq!(compared, places.len());
    sound(&service);
}

/// Property: each row of real tables of accesses is in the trace, or rejected with its reason, and the
/// trace reads back with the files, bytes and sites that the table has.
#[test]
#[ignore = "needs real listings: EXACAT_REAL_DATA=DIR make test-real"]
fn tables_of_accesses_become_traces() {
    let data = real_data();
    let service = Service::start();
    let reads = ("access_dune_sam_reads.tsv.zst", "client_domain=site", [2, 3, 4]);
    let transfers = ("dune_transfers.tsv.zst", "dst=site", [1, 2, 4]);
    for (name, columns, [file, size, site]) in [reads, transfers] {
        let out = service.place().join("real.trace.zst").display().to_string();
        let table = data.join(name).display().to_string();
        let made = service.run(&["--json", "replay", "import", &table, "--columns", columns, "--out", &out]);
        let made: Value = serde_json::from_str(made.ok().trim()).unwrap();
        let rows: Vec<Vec<String>> = lines(&data.join(name))
            .skip(1)
            .map(|line| line.split('\t').map(str::to_owned).collect())
            .collect();
        assert_eq!(made["accesses"], rows.len(), "{made}");
        assert_eq!(made["rejected"].as_object().unwrap().len(), 0, "{made}");
        let shown = service.run(&["--json", "replay", "show", &out]).ok();
        let shown: Value = serde_json::from_str(shown.trim()).unwrap();
        let sites: HashSet<&str> = rows.iter().map(|row| row[site].as_str()).collect();
        assert_eq!(shown["sites_total"], sites.len(), "{name}");
        let mut sizes: BTreeMap<String, u64> = BTreeMap::new();
        for row in &rows {
            // Of a URL the path counts.
            let path = row[file]
                .split_once("://")
                .map_or(row[file].as_str(), |(_, rest)| rest.split_once('/').map_or("", |(_, path)| path));
            sizes
                .entry(path.trim_start_matches('/').to_owned())
                .or_insert_with(|| row[size].parse().unwrap());
        }
        assert_eq!(shown["files"], sizes.len(), "{name}");
        assert_eq!(shown["file_bytes"].as_u64().unwrap(), sizes.values().sum::<u64>(), "{name}");
        println!("{name}: {} accesses to {} files", rows.len(), sizes.len());
    }
}
