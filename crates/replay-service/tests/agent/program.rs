//! Driver of the program `xrdcp`: a script stands in for it.

use std::path::{Path, PathBuf};
use std::time::Duration;

use exacat_replay::run::outcome::Outcome;
use exacat_replay::run::shapes::ReplayItem;
use exacat_replay_service::agent::{AgentSettings, DriverKind};

use crate::service::Service;
use crate::world::{item, result_of, results_of, run, settings};

const CACHE: &str = "root://cache:1094";

/// Writes a program.
fn program(directory: &Path, text: &str) -> PathBuf {
    use std::os::unix::fs::PermissionsExt;
    let path = directory.join("xrdcp");
    // A file that is open for writing cannot be run: another process may have inherited it.
    let own = directory.join("xrdcp.new");
    std::fs::write(&own, format!("#!/bin/sh\n{text}\n")).unwrap();
    std::fs::set_permissions(&own, std::fs::Permissions::from_mode(0o755)).unwrap();
    std::fs::rename(&own, &path).unwrap();
    path
}

fn by(program: PathBuf) -> impl FnOnce(&mut AgentSettings) {
    move |settings| {
        settings.driver = DriverKind::Xrdcp;
        settings.cache.program = program;
    }
}

/// Property: the program gets the options of the original test, and its codes have their classes.
#[tokio::test]
async fn program_reads_into_nothing_and_its_codes_have_classes() {
    let directory = tempfile::tempdir().unwrap();
    let told = directory.path().join("told");
    let text = format!("echo \"$@\" \"$BEARER_TOKEN\" > {}", told.display());
    let result = result_of(CACHE, item(1, "/a", 5), |settings| {
        by(program(directory.path(), &text))(settings);
        settings.cache.token = Some("t1".to_owned());
    })
    .await;
    let adler32 = item(1, "/a", 5).adler32.unwrap();
    assert_eq!((result.outcome, result.bytes, result.adler32), (Outcome::Ok, 5, Some(adler32)));
    assert_eq!((result.first_byte_us, result.number), (None, 0));
    let expected = format!("-f -N -d 0 --cksum adler32:{adler32:08x} root://cache:1094//a /dev/null t1\n");
    assert_eq!(std::fs::read_to_string(told).unwrap(), expected);
    for (text, outcome, number) in [
        ("echo 'error: [3011] no such file' >&2; exit 54", Outcome::NotFound, 3011),
        ("exit 54", Outcome::Server, 54),
        ("exit 53", Outcome::Checksum, 53),
        ("exit 51", Outcome::Connection, 51),
        ("exit 7", Outcome::Agent, 7),
        ("kill -9 $$", Outcome::Agent, 0),
    ] {
        let result = result_of(CACHE, item(1, "/a", 5), by(program(directory.path(), text))).await;
        assert_eq!((result.outcome, result.number, result.bytes), (outcome, number, 0), "{text}");
    }
    let result = result_of(CACHE, item(1, "/a", 5), by(directory.path().join("missing"))).await;
    assert_eq!(result.outcome, Outcome::Agent);
}

/// Returns the processes of this one that run, or wait to be reaped, by a text in their command line.
fn children(text: &str) -> usize {
    let is_child = |path: PathBuf| {
        let stat = std::fs::read_to_string(path.join("stat")).ok()?;
        let behind: Vec<&str> = stat.rsplit(')').next()?.split_whitespace().collect();
        let is_own = behind.get(1)?.parse::<u32>().ok()? == std::process::id();
        let command = std::fs::read_to_string(path.join("cmdline")).unwrap_or_default();
        (is_own && (command.contains(text) || behind[0] == "Z")).then_some(())
    };
    std::fs::read_dir("/proc").unwrap().filter_map(|entry| is_child(entry.ok()?.path())).count()
}

/// Property: a program that does not end is killed at the time of the access, and no process remains.
#[tokio::test]
async fn program_that_does_not_end_is_killed() {
    let directory = tempfile::tempdir().unwrap();
    let result = result_of(CACHE, item(1, "/a", 0), |settings| {
        by(program(directory.path(), "exec tail -f /dev/null"))(settings);
        settings.access_time.base = Duration::from_millis(300);
    })
    .await;
    assert_eq!(result.outcome, Outcome::Timeout);
    let gone = async {
        while children("tail\0-f\0/dev/null") > 0 {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(Duration::from_secs(20), gone).await.expect("the process is reaped");
}

/// Property: no more processes run at once than accesses are permitted.
#[tokio::test]
async fn processes_are_bounded() {
    let directory = tempfile::tempdir().unwrap();
    let place = directory.path().display().to_string();
    let text = format!(
        "cd {place}; for slot in 1 2; do if mkdir $slot 2>/dev/null; then /bin/true; rmdir $slot; exit 0; fi; \
         done; exit 99"
    );
    let items = (0..12).map(|number| item(number, "/a", 1)).collect();
    let results = results_of(CACHE, items, |settings| {
        by(program(directory.path(), &text))(settings);
        settings.in_flight = 2;
    })
    .await;
    assert!(results.iter().all(|result| result.outcome == Outcome::Ok), "{results:?}");
}

/// Property: an access of ranges reads the whole file, and the summary says so.
#[tokio::test]
async fn ranges_are_read_whole_and_counted() {
    let directory = tempfile::tempdir().unwrap();
    let service = Service::start(vec![ReplayItem { reads: "0+1".to_owned(), ..item(1, "/a", 5) }]).await;
    let mut settings = settings(&service, CACHE);
    by(program(directory.path(), "exit 0"))(&mut settings);
    let summary = run(settings).await.unwrap();
    assert_eq!((summary.read_whole, summary.bytes), (1, 5));
}
