//! Golden history: the directory of a killed server must be read for ever, to the same values.
//!
//! `golden/history-v1` has the files of a history: identity, log, manifest, names, latest values and runs. If
//! this test fails, a format changed: that needs a new version of the file, and a lasting reader of this one.
//! `EXACAT_MAKE_GOLDEN=1` in the environment makes the files of a new version.

use std::path::Path;

use exacat_model::AccountName;
use exacat_model::operation::Owner;

use super::*;
use crate::check::check;

const HOUR: i64 = 3_600_000_000_000;
/// The checksum of all files, in the order of their names.
const GOLDEN_CRC: u32 = 0xfda5_0288;

fn golden_settings(directory: &Path) -> HistorySettings {
    HistorySettings {
        directory: directory.to_owned(),
        segment_bytes: 16 << 10,
        log_kept_bytes: 1 << 20,
        ..settings()
    }
}

/// Returns the batches that were written: two that are in runs, and one that only the log has.
fn batches() -> [String; 3] {
    let at = |hours: i64| NOW - hours * HOUR;
    let mut first = String::new();
    for number in 0..40 {
        let (time, text) = (at(60 - number), ["on", "off", "Störung"][number as usize % 3]);
        first += &format!(
            "hv,crate=1,slot=a\\ b v={}.5,i={}i,u={}u,ok={} {time}\n",
            number,
            -number,
            number,
            number % 2 == 0
        );
        first += &format!("hv,crate=2 state=\"{text}\" {time}\n");
    }
    let second = format!(
        "hv,crate=1,slot=a\\ b v=-1.25,extra=7i {}\ntemperature,place=żółć v=21.5 {}\n",
        at(50),
        at(3)
    );
    let third = format!("hv,crate=2 state=\"last\" {}\nnew v=1 {}\nnew v=2 {}\n", at(1), at(2), at(1));
    [first, second, third]
}

fn copy(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let to = to.join(entry.file_name());
        match entry.file_type().unwrap().is_dir() {
            true => copy(&entry.path(), &to),
            false => drop(std::fs::copy(entry.path(), to).unwrap()),
        }
    }
}

fn files_below(directory: &Path) -> Vec<PathBuf> {
    let mut files = Vec::new();
    for entry in std::fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        match path.is_dir() {
            true => files.extend(files_below(&path)),
            false => files.push(path),
        }
    }
    files.sort();
    files
}

fn make(golden: &Path) {
    let place = tempfile::tempdir().unwrap();
    let directory = place.path().join("history");
    let history = History::open(golden_settings(&directory)).unwrap();
    let gone = make_group(&history, "gone");
    write(&history, &gone, &format!("ev v=1 {NOW}\n")).unwrap();
    let group = make_group(&history, "det");
    let [first, second, third] = batches();
    for batch in [first, second] {
        write(&history, &group, &batch).unwrap();
        history.flush().unwrap();
    }
    drop((gone, group));
    // A stop writes the latest values.
    history.close();
    drop(history);
    let history = History::open(golden_settings(&directory)).unwrap();
    let group = history.group(&GroupName::parse("det").unwrap()).unwrap();
    wait(history.drop_group(&GroupName::parse("gone").unwrap())).unwrap();
    wait(history.set_group(last_settings())).unwrap();
    write(&history, &group, &third).unwrap();
    // The server is killed: the last batch is in no run.
    copy(&directory, golden);
}

fn last_settings() -> GroupSettings {
    GroupSettings {
        owner: Some(AccountName::parse("dcs").unwrap()),
        readers: vec![Owner::User(AccountName::parse("alice").unwrap())],
        retention_days: 3000,
        ..group_settings("det")
    }
}

#[test]
fn golden_history_is_read() {
    let golden = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/golden/history-v1");
    if std::env::var_os("EXACAT_MAKE_GOLDEN").is_some() {
        make(&golden);
    }
    let mut bytes = Vec::new();
    files_below(&golden).iter().for_each(|file| bytes.extend(std::fs::read(file).unwrap()));
    let hash = crc32fast::hash(&bytes);
    assert_eq!(hash, GOLDEN_CRC, "{hash:#x}: a golden file never changes");

    let place = tempfile::tempdir().unwrap();
    let (old, new) = (place.path().join("old"), place.path().join("new"));
    copy(&golden, &old);
    let checked = check(&old).unwrap();
    assert!(checked.problems.is_empty(), "{:?}", checked.problems);
    // What it must have is what a history of this release has.
    let fresh = History::open(golden_settings(&new)).unwrap();
    let group = make_group(&fresh, "det");
    batches().iter().for_each(|batch| drop(write(&fresh, &group, batch).unwrap()));
    let wanted = read(&group);
    assert_eq!(wanted.len(), 40 * 5 + 2 + 3);
    for _ in 0..2 {
        let history = History::open(golden_settings(&old)).unwrap();
        assert!(history.group(&GroupName::parse("gone").unwrap()).is_err());
        let group = history.group(&GroupName::parse("det").unwrap()).unwrap();
        assert_eq!(group.settings(), last_settings());
        assert!(read(&group) == wanted, "{:?}", first_difference(&read(&group), &wanted));
        check_latest(&group, &wanted);
        check_at(&group, &wanted, NOW - 30 * HOUR);
        // The second round reads what this release writes after it.
        history.flush().unwrap();
        history.close();
    }
}
