//! Snapshots, restores to a time, and checks: one moment, nothing answered missing, no damage unnoticed.

use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};

use exacat_log::moment::Moment;
use exacat_testkit::rounds;
use exacat_testkit::simulated::Random;

use super::model::random_line;
use super::*;
use crate::check::{Checked, check_on};
use crate::repair::repair_on;
use crate::restore::{Restore, Until, restore_on};

const SNAPSHOT: &str = "/snapshots/one";
const RESTORED: &str = "/restored";

/// A history with a clock that the test moves.
fn open_with(disk: &SimulatedDisk, directory: &str, clock: &Arc<AtomicU64>) -> History {
    let clock = Arc::clone(clock);
    let settings = HistorySettings {
        directory: PathBuf::from(directory),
        log_kept_bytes: 1 << 30,
        now: Arc::new(move || TimeMs(clock.load(Ordering::Relaxed))),
        ..settings()
    };
    History::open_on(disk.shared(), settings).unwrap()
}

fn take(history: &History, into: &str) -> Moment {
    let into = Path::new(into);
    history.link_ahead(into).unwrap();
    let pinned = history.pin(into, false).unwrap();
    pinned.finish(Path::new("/history")).unwrap();
    pinned.moment()
}

fn restored(disk: &SimulatedDisk, until: Until, log_of: &str, into: &str) -> Result<Moment> {
    let request = Restore {
        from: Path::new(SNAPSHOT),
        log_of: Path::new(log_of),
        present: Path::new("/history"),
        into: Path::new(into),
        until,
        copies: false,
    };
    restore_on(&disk.shared(), &request)
}

fn checked(disk: &SimulatedDisk, directory: &str) -> Checked {
    check_on(&disk.shared(), Path::new(directory)).unwrap()
}

fn values_in(disk: &SimulatedDisk, directory: &str, clock: &Arc<AtomicU64>) -> Values {
    let history = open_with(disk, directory, clock);
    let group = history.group(&GroupName::parse("g").unwrap()).unwrap();
    let values = read(&group);
    check_latest(&group, &values);
    values
}

/// A restore has exactly what was answered up to the wanted time: at the snapshot, and at each later
/// time, whatever was flushed and merged between. Both the snapshot and the result pass a check.
#[test]
fn restored_history_has_what_was_answered_up_to_the_time() {
    for seed in 0..8 * rounds() {
        let mut random = Random(seed);
        let (disk, clock) = (SimulatedDisk::new(), Arc::new(AtomicU64::new(NOW_MS)));
        let history = open_with(&disk, "/history", &clock);
        let group = make_group(&history, "g");
        let mut sent = Values::new();
        let mut states = Vec::new();
        let taken_at = random.next(12);
        for step in 0..24 {
            let mut body = String::new();
            for _ in 0..1 + random.next(60) {
                random_line(&mut random, &mut body, &mut sent);
            }
            write(&history, &group, &body).unwrap();
            if random.chance(4) {
                history.flush().unwrap();
            }
            if step == taken_at {
                let moment = take(&history, SNAPSHOT);
                assert_eq!(moment.time.0, clock.load(Ordering::Relaxed));
                assert_eq!(Moment::read(&*disk.shared(), Path::new(SNAPSHOT)).unwrap(), Some(moment));
            }
            if step >= taken_at {
                states.push((clock.load(Ordering::Relaxed), sent.clone()));
            }
            clock.fetch_add(1000, Ordering::Relaxed);
        }
        if random.chance(2) {
            history.close();
        }
        drop(group);
        drop(history);
        let found = checked(&disk, SNAPSHOT);
        assert_eq!(found.problems, [""; 0], "seed {seed}");
        let (time, state) = states.remove(usize::try_from(random.next(states.len() as u64)).unwrap());
        let until = Until::Time(TimeMs(time + random.next(999)));
        restored(&disk, until, "/history", RESTORED).unwrap();
        let found = checked(&disk, RESTORED);
        assert_eq!((found.problems, found.time), (vec![], TimeMs(time)), "seed {seed}");
        assert!(values_in(&disk, RESTORED, &clock) == state, "seed {seed}: another state at {time}");
        // The snapshot alone gives its own moment.
        let at_moment = restored(&disk, Until::Taken, "/nowhere", "/again").unwrap();
        let first = states.first().filter(|(of, _)| *of == at_moment.time.0).map(|(_, first)| first);
        let first = first.unwrap_or(&state);
        assert!(values_in(&disk, "/again", &clock) == *first, "seed {seed}: another state than taken");
    }
}

/// While writers go on, a snapshot has every value that was answered before it was asked for, and none
/// that was sent after its answer.
#[test]
fn snapshot_has_one_moment_beside_writers() {
    let (disk, clock) = (SimulatedDisk::new(), Arc::new(AtomicU64::new(NOW_MS)));
    let history = open_with(&disk, "/history", &clock);
    let group = make_group(&history, "g");
    let (answered, sending) = (AtomicU64::new(0), AtomicU64::new(0));
    let (before, after) = std::thread::scope(|scope| {
        let writer = scope.spawn(|| {
            for number in 1..400u64 {
                sending.store(number, Ordering::SeqCst);
                write(&history, &group, &format!("ev,e=n{number} v={number} {number}\n")).unwrap();
                answered.store(number, Ordering::SeqCst);
            }
        });
        while answered.load(Ordering::SeqCst) < 50 && !writer.is_finished() {
            std::thread::yield_now();
        }
        let before = answered.load(Ordering::SeqCst);
        take(&history, SNAPSHOT);
        (before, sending.load(Ordering::SeqCst))
    });
    drop(group);
    drop(history);
    restored(&disk, Until::Taken, "/nowhere", RESTORED).unwrap();
    let found = values_in(&disk, RESTORED, &clock);
    let count = found.len() as u64;
    assert!(count >= before && count <= after, "{count} values, {before} answered before, {after} sent");
    for number in 1..=count {
        assert!(found.contains_key(&(format!("ev,e=n{number}"), "v".into(), number as i64)), "{number}");
    }
}

/// A restore whose log parted from the snapshot, or does not reach it any more, is refused and says so.
#[test]
fn restore_without_its_log_is_refused() {
    let (disk, clock) = (SimulatedDisk::new(), Arc::new(AtomicU64::new(NOW_MS)));
    let history = open_with(&disk, "/history", &clock);
    let group = make_group(&history, "g");
    write(&history, &group, "ev v=1 1").unwrap();
    take(&history, SNAPSHOT);
    write(&history, &group, "ev v=2 2").unwrap();
    take(&history, "/snapshots/two");
    drop(group);
    drop(history);
    let late = Until::Time(TimeMs(NOW_MS + 5));
    let early = restored(&disk, Until::Time(TimeMs(NOW_MS - 1)), "/history", "/a").unwrap_err();
    assert!(early.message.contains("earlier snapshot"), "{early}");
    let nowhere = restored(&disk, late, "/nowhere", "/b").unwrap_err();
    assert!(nowhere.message.contains("no log"), "{nowhere}");
    // Another branch: the history as it was at the snapshot, with other values after it.
    restored(&disk, Until::Taken, "/history", RESTORED).unwrap();
    let history = open_with(&disk, RESTORED, &clock);
    write(&history, &history.group(&GroupName::parse("g").unwrap()).unwrap(), "ev v=3 3").unwrap();
    drop(history);
    let request = Restore {
        from: Path::new("/snapshots/two"),
        log_of: Path::new(RESTORED),
        present: Path::new("/history"),
        into: Path::new("/c"),
        until: late,
        copies: true,
    };
    let parted = restore_on(&disk.shared(), &request).unwrap_err();
    assert!(parted.message.contains("replaced copy") || parted.message.contains("ends before"), "{parted}");
    // The first snapshot goes on in both logs.
    for log in ["/history", RESTORED] {
        let into = format!("/of{log}");
        restored(&disk, late, log, &into).unwrap();
        assert_eq!(values_in(&disk, &into, &clock).len(), 2);
    }
}

/// A changed byte in any file of a history, and a missing file, is found and told with the file's name.
#[test]
fn check_finds_each_damaged_file() {
    let (disk, clock) = (SimulatedDisk::new(), Arc::new(AtomicU64::new(NOW_MS)));
    let history = open_with(&disk, "/history", &clock);
    let group = make_group(&history, "g");
    for number in 0..40 {
        let day = i64::from(number % 3) * 86_400_000_000_000;
        write(&history, &group, &format!("ev,e=n{number} v={number},s=\"x\" {day}\n")).unwrap();
    }
    history.flush().unwrap();
    write(&history, &group, "ev,e=last v=1 1").unwrap();
    history.close();
    drop(group);
    drop(history);
    let found = checked(&disk, "/history");
    assert_eq!(found.problems, [""; 0]);
    assert_eq!((found.groups, found.elements, found.rows), (1, 41, 41));
    let mut paths = vec![PathBuf::from("/history/manifest"), PathBuf::from("/history/HISTORY")];
    for directory in ["/history/files", "/history/log"] {
        let names = disk.shared().list(Path::new(directory)).unwrap();
        paths.extend(names.iter().map(|name| Path::new(directory).join(name)));
    }
    let mut random = Random(1);
    for path in paths.iter().filter(|path| !path.ends_with("END")) {
        let shown = path.display().to_string();
        let bytes = exacat_disk::read_whole(&*disk.shared().open_to_read(path).unwrap()).unwrap();
        // Reserved space behind the records has no content yet.
        let used = bytes.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1) as u64;
        for _ in 0..8 {
            let image = disk.image(&mut random);
            let file = image.shared().open_to_write(path).unwrap();
            let at = random.next(used);
            file.write_at(&[bytes[at as usize] ^ 0x10], at).unwrap();
            file.sync().unwrap();
            match check_on(&image.shared(), Path::new("/history")) {
                Ok(found) if used < 20 => drop(found),
                Ok(found) => {
                    let told = found.problems.iter().any(|problem| problem.contains(&shown));
                    let is_log = path.extension().is_some_and(|ending| ending == "log");
                    assert!(
                        told || is_log && !found.problems.is_empty(),
                        "{shown} at {at}: {:?}",
                        found.problems
                    );
                }
                Err(error) => assert!(error.message.contains(&shown), "{shown} at {at}: {error}"),
            }
        }
        // A log without its oldest segment is one that was trimmed.
        if shown.ends_with("/log/00000000000000000001.log") {
            continue;
        }
        let image = disk.image(&mut random);
        image.shared().remove(path).unwrap();
        let missing = check_on(&image.shared(), Path::new("/history"));
        // The log begins with the first record here, so a missing manifest is as before the first flush.
        let is_told = |found: Checked| !found.problems.is_empty() || found.leftovers > 0;
        assert!(missing.is_err() || missing.is_ok_and(is_told), "{shown} removed");
    }
    let stranger = disk.image(&mut random);
    exacat_disk::write_small(&*stranger.shared(), Path::new("/history/files/notes.txt"), b"x").unwrap();
    assert!(checked(&stranger, "/history").problems[0].contains("notes.txt"));
}

/// A check of the open history reads its runs, and names the one that is damaged.
#[test]
fn check_of_the_open_history_finds_a_damaged_run() {
    let (disk, clock) = (SimulatedDisk::new(), Arc::new(AtomicU64::new(NOW_MS)));
    with_runs(&disk, &clock);
    let history = open_with(&disk, "/history", &clock);
    let found = history.check_runs();
    assert_eq!((found.groups, found.runs, found.rows, found.problems.len()), (1, 4, 61, 0), "{found:?}");
    let names = disk.shared().list(Path::new("/history/files")).unwrap();
    let run = names.iter().find(|name| name.ends_with(".run")).unwrap();
    let path = Path::new("/history/files").join(run);
    let file = disk.shared().open_to_write(&path).unwrap();
    let bytes = exacat_disk::read_whole(&*disk.shared().open_to_read(&path).unwrap()).unwrap();
    let at = bytes.len() / 3;
    file.write_at(&[bytes[at] ^ 1], at as u64).unwrap();
    let found = history.check_runs();
    assert!(found.problems.len() == 1 && found.problems[0].contains(run.as_str()), "{found:?}");
}

/// Makes a history with a run of each of three days, and its values.
fn with_runs(disk: &SimulatedDisk, clock: &Arc<AtomicU64>) -> Values {
    let history = open_with(disk, "/history", clock);
    let group = make_group(&history, "g");
    for number in 0..60 {
        let day = i64::from(number % 3) * 86_400_000_000_000;
        write(&history, &group, &format!("ev,e=n{} v={number} {}", number % 7, day + i64::from(number)))
            .unwrap();
        clock.fetch_add(1000, Ordering::Relaxed);
    }
    history.flush().unwrap();
    take(&history, SNAPSHOT);
    // Links share damage, so the source of intact files is a copy.
    let copy = Restore {
        from: Path::new(SNAPSHOT),
        log_of: Path::new("/nowhere"),
        present: Path::new("/nowhere"),
        into: Path::new("/copy"),
        until: Until::Taken,
        copies: true,
    };
    restore_on(&disk.shared(), &copy).unwrap();
    write(&history, &group, "ev,e=late v=1 5").unwrap();
    history.close();
    read(&group)
}

fn damage(disk: &SimulatedDisk, path: &Path) {
    disk.damage(path, |bytes| {
        let at = bytes.len() / 2;
        bytes[at] ^= 0x40;
    });
}

/// A damaged file is replaced by an intact copy, or a run is written anew from a whole log: nothing is
/// lost, the damaged file stays, and the history passes the check.
#[test]
fn repair_without_loss_brings_back_every_value() {
    for with_copy in [true, false] {
        for ending in [".run", ".names", ".latest"] {
            let (disk, clock) = (SimulatedDisk::new(), Arc::new(AtomicU64::new(NOW_MS)));
            let values = with_runs(&disk, &clock);
            let of_history = |path: &PathBuf| path.starts_with("/history/files");
            let path = disk.files(ending).into_iter().find(of_history).unwrap();
            damage(&disk, &path);
            assert!(!checked(&disk, "/history").problems.is_empty(), "{ending}");
            let sources = [PathBuf::from("/copy")];
            let sources = if with_copy { &sources[..] } else { &[] };
            let done = repair_on(&disk.shared(), Path::new("/history"), sources, false).unwrap();
            assert_eq!((done.problems.len(), &done.losses[..]), (1, &[][..]), "{ending}: {done:?}");
            if ending == ".names" && !with_copy {
                assert!(!done.remaining.is_empty() && done.repairs.is_empty(), "{done:?}");
                continue;
            }
            assert_eq!((done.remaining.len(), done.repairs.len()), (0, 1), "{ending}: {done:?}");
            assert_eq!(disk.shared().list(Path::new("/history/damaged")).unwrap().len(), 1);
            assert_eq!(checked(&disk, "/history").problems, [""; 0], "{ending}");
            assert!(values_in(&disk, "/history", &clock) == values, "{ending}: values are missing");
        }
    }
}

/// A damaged run without a copy and without its part of the log is given up only if the loss is accepted.
/// The loss is told with group, day, and the time before which values are missing.
#[test]
fn repair_with_loss_tells_group_day_and_time() {
    let (disk, clock) = (SimulatedDisk::new(), Arc::new(AtomicU64::new(NOW_MS)));
    let values = with_runs(&disk, &clock);
    let of_history = |path: &PathBuf| path.starts_with("/history/files");
    let path = disk.files(".run").into_iter().find(of_history).unwrap();
    damage(&disk, &path);
    for segment in disk.files(".log").iter().filter(|path| path.starts_with("/history/log")).rev().skip(1) {
        disk.vanish(segment);
    }
    let refused = repair_on(&disk.shared(), Path::new("/history"), &[], false).unwrap();
    assert!(refused.repairs.is_empty() && refused.remaining.len() == 1, "{refused:?}");
    assert!(refused.losses[0].contains("group g, day 1970-01-0"), "{refused:?}");
    let done = repair_on(&disk.shared(), Path::new("/history"), &[], true).unwrap();
    assert_eq!((&done.losses, done.remaining.len()), (&refused.losses, 0), "{done:?}");
    assert_eq!(checked(&disk, "/history").problems, [""; 0]);
    let left = values_in(&disk, "/history", &clock);
    assert!(left.len() < values.len() && left.iter().all(|(key, value)| values.get(key) == Some(value)));
}
