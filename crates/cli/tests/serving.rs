//! Configuration of the service on the command line, and the bench that starts one.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "a test fails by panicking, and says what it skipped or counted"
)]

mod service;

use serde_json::json;
use service::{Service, exacat};

/// Checks that the service does not start with this option, and prints the reason.
fn refused(service: &Service, option: &str, value: &str, words: &str) {
    let data = format!("{}-{value}", service.file("elsewhere", ""));
    let mut serve = exacat();
    serve.args(["serve", "--listen", "127.0.0.1:0", option, value, "--data"]).arg(data);
    let ended = serve.output().unwrap();
    let said = String::from_utf8_lossy(&ended.stderr);
    assert!(!ended.status.success() && said.contains(words), "{option} {value}: {said}");
}

#[test]
fn anonymous_reads_if_configured() {
    let service = Service::start_with(&["--anonymous-reads"]);
    service.ok("mkdir -p /demo/sim");
    assert_eq!(service.over_tls(None, "ls /demo").ok(), "sim\n");
    assert_eq!(service.over_tls(None, "--json whoami").json()[0]["anonymous"], true);
    service.over_tls(None, "mkdir /demo/x").fails(17);
    service.ok("chmod 700 /demo/sim");
    service.over_tls(None, "ls /demo/sim").fails(16);
}

#[test]
fn the_history_is_kept_as_configured() {
    let service = Service::start_with(&["--history-keep", "30d"]);
    service.ok("mkdir -p /demo/sim");
    let status = service.json("status");
    let store = status.iter().find(|part| part["part"] == "store").unwrap();
    for (metric, value) in
        [("history_oldest_revision", json!(1)), ("log_files", json!(1)), ("log_compressed_bytes", json!(0))]
    {
        assert_eq!(store["metrics"][metric], value, "{metric}");
    }
    assert!(store["metrics"]["log_plain_bytes"].as_u64().unwrap() > 0);
    for (kept, words) in [("12h", "30d, 4w, 100GiB"), ("0d", "0 days"), ("1k", "two of them at least")] {
        refused(&service, "--history-keep", kept, words);
    }
}

#[test]
fn the_cache_is_as_large_as_configured() {
    let service = Service::start_with(&["--cache", "64MiB"]);
    let status = service.json("status");
    let store = status.iter().find(|part| part["part"] == "store").unwrap();
    assert_eq!(store["metrics"]["memory_cache_bytes_max"], json!(64 << 20));
    for (cache, words) in [("1k", "1048576 at least"), ("much", "not a size")] {
        refused(&service, "--cache", cache, words);
    }
}

#[test]
fn the_bench_of_the_engine_serves_what_it_filled() {
    let place = tempfile::tempdir().unwrap();
    let mut bench = exacat();
    bench.args([
        "bench",
        "--engine",
        "--entries",
        "10k",
        "--cache",
        "16MiB",
        "--only",
        "whereis",
        "--directory",
    ]);
    let ended = bench.arg(place.path()).output().unwrap();
    let said = String::from_utf8_lossy(&ended.stdout);
    for line in ["create in batches", "4 KiB overwritten and synced", "whereis, uniform", "whereis, hot set"]
    {
        assert!(ended.status.success() && said.contains(line), "{line} is missing in {said}");
    }
    assert_eq!(std::fs::read_dir(place.path()).unwrap().count(), 0, "it leaves nothing");
}

/// The bench adds up the states of the server's requests; nearly all of their time has a name.
#[test]
fn the_bench_accounts_for_the_time_of_requests() {
    let place = tempfile::tempdir().unwrap();
    let mut bench = exacat();
    bench.args(["--json", "bench", "--network", "--entries", "2k", "--only", "whereis, single, 4 x 256"]);
    let ended = bench.arg("--directory").arg(place.path()).output().unwrap();
    let said = String::from_utf8_lossy(&ended.stdout);
    assert!(ended.status.success(), "{said}{}", String::from_utf8_lossy(&ended.stderr));
    let rows = said.lines().map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap());
    let states = rows.filter(|row| row.get("unaccounted_share").is_some()).collect::<Vec<_>>();
    assert_eq!(states.len(), 1, "{said}");
    let value = |name: &str| states[0][name].as_u64().unwrap();
    assert!(value("life_us") > 0 && value("life_us").abs_diff(value("states_us")) < 1000, "{states:?}");
}

/// The bench asks servers of two programs in turns; of one and the same program both do the same.
#[test]
fn the_bench_compares_two_programs() {
    let place = tempfile::tempdir().unwrap();
    let mut bench = exacat();
    bench.args([
        "--json",
        "bench",
        "--entries",
        "2k",
        "--only",
        "single",
        "--beside",
        env!("CARGO_BIN_EXE_exacat"),
    ]);
    let ended = bench.arg("--directory").arg(place.path()).output().unwrap();
    let said = String::from_utf8_lossy(&ended.stdout);
    assert!(ended.status.success(), "{said}{}", String::from_utf8_lossy(&ended.stderr));
    let rows = said.lines().map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap());
    let rows = rows.collect::<Vec<_>>();
    assert_eq!(rows.len(), 3, "{said}");
    for row in &rows {
        let of =
            |value: &serde_json::Value| ["from", "median", "to"].map(|name| value[name].as_f64().unwrap());
        for [from, median, to] in [of(&row["rate"]), of(&row["cpu"])] {
            assert!(0.1 < from && from <= median && median <= to && to < 10.0, "{row}");
        }
        assert!(row["other_cpu_us"].as_f64().unwrap() > 0.0, "{row}");
    }
    assert_eq!(std::fs::read_dir(place.path()).unwrap().count(), 0, "it leaves nothing");
}
