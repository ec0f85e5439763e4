//! A process with a history is killed again and again, with settings so small that flushes, merges and
//! archive runs happen all the time. It tells on its output what it sends and what was answered; this one
//! judges.

use std::collections::BTreeSet;
use std::io::{BufRead, BufReader, Write as _};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use exacat_testkit::rounds;
use exacat_testkit::simulated::Random;

use super::*;

/// Directory of the history that the killed process opens; this test is that process if it is set.
const DIRECTORY: &str = "EXACAT_KILLED_HISTORY";
/// Rows that were answered before, one number for each writer.
const FROM: &str = "EXACAT_KILLED_FROM";
/// Number of the first short-lived group.
const GROUPS_FROM: &str = "EXACAT_KILLED_GROUPS";
/// Kills of a default run.
const KILLS: u64 = 12;
/// Writers of the killed process, and rows of each of their batches.
const WRITERS: usize = 3;
const BATCH_ROWS: u64 = 20;
/// Short-lived groups that are kept.
const GROUPS_KEPT: usize = 5;
/// Days over which rows are spread; the older ones are archived.
const DAYS: u64 = 7;
/// Answers until the kill, at most.
const ANSWERS_MAX: u64 = 150;
/// Time after which the process ends by itself, so that a test that hangs fails.
const LIMIT: Duration = Duration::from_secs(120);

fn settings_in(directory: &Path) -> HistorySettings {
    let place = Place::open(directory.join("archive").to_str().unwrap()).unwrap();
    let archive = Arc::new(ParquetArchive::new(place).with_file_bytes(4000).with_checkpoints(2));
    HistorySettings {
        segment_bytes: 64 << 10,
        memtable_bytes: 8 << 10,
        log_kept_bytes: 0,
        archive: Some(ArchiveSettings { archive, after_days: AFTER_DAYS }),
        ..HistorySettings::new(directory.join("history"), Arc::new(|| TimeMs(NOW_MS)))
    }
}

/// Returns the time of a row: neighbours are on different days.
fn time_of(number: u64) -> i64 {
    NOW_MS as i64 * 1_000_000 - (number % DAYS) as i64 * DAY_NANOSECONDS + number as i64
}

/// Tells something to the test, in one write.
fn tell(line: &str) {
    let mut out = std::io::stdout().lock();
    let _killed_anyway = out.write_all(format!("{line}\n").as_bytes()).and_then(|()| out.flush());
}

fn write_rows(history: &History, group: &Arc<Group>, writer: usize, mut from: u64) {
    loop {
        let numbers = from + 1..=from + BATCH_ROWS;
        let lines = numbers.map(|number| format!("ev,e=w{writer} v={number}i {}\n", time_of(number)));
        let lines: String = lines.collect();
        tell(&format!("sent {writer} {}", from + BATCH_ROWS));
        write(history, group, &lines).unwrap();
        from += BATCH_ROWS;
        tell(&format!("answered {writer} {from}"));
    }
}

/// Returns the numbers of the short-lived groups.
fn numbers(history: &History) -> BTreeSet<u64> {
    let number_of = |group: &Arc<Group>| group.settings().name.as_str().strip_prefix('g')?.parse().ok();
    history.groups().iter().filter_map(number_of).collect()
}

/// Makes groups with a row each, and drops the oldest ones.
fn make_groups(history: &History, from: u64) {
    for number in from.. {
        let name = |number: u64| format!("g{number}");
        tell(&format!("making {number}"));
        let group = make_group(history, &name(number));
        write(history, &group, &format!("ev v={number}i {}\n", time_of(number))).unwrap();
        tell(&format!("made {number}"));
        for old in numbers(history).into_iter().rev().skip(GROUPS_KEPT) {
            tell(&format!("dropping {old}"));
            wait(history.drop_group(&GroupName::parse(&name(old)).unwrap())).unwrap();
            tell(&format!("dropped {old}"));
        }
    }
}

/// The process that is killed. Without its directory it does nothing.
#[test]
#[ignore = "the process that killed_history_has_every_answered_value starts"]
fn killed_process() {
    let Some(directory) = std::env::var_os(DIRECTORY) else { return };
    let history = History::open(settings_in(Path::new(&directory))).unwrap();
    let group = match history.group(&GroupName::parse("g").unwrap()) {
        Ok(group) => group,
        Err(_) => make_group(&history, "g"),
    };
    tell("open");
    std::thread::spawn(|| {
        std::thread::park_timeout(LIMIT);
        std::process::abort();
    });
    let from = std::env::var(FROM).unwrap();
    let groups_from: u64 = std::env::var(GROUPS_FROM).unwrap().parse().unwrap();
    std::thread::scope(|scope| {
        for (writer, from) in from.split(',').enumerate() {
            let (history, group) = (&history, &group);
            scope.spawn(move || write_rows(history, group, writer, from.parse().unwrap()));
        }
        scope.spawn(|| make_groups(&history, groups_from));
        loop {
            tell("archiving");
            history.archive_days().unwrap();
            history.remove_ended_days().unwrap();
            tell("archived");
        }
    });
}

/// Record of everything that the processes told so far.
#[derive(Default)]
struct Told {
    sent: [u64; WRITERS],
    answered: [u64; WRITERS],
    making: BTreeSet<u64>,
    made: BTreeSet<u64>,
    dropping: BTreeSet<u64>,
    dropped: BTreeSet<u64>,
    is_archiving: bool,
    archived: u64,
    answers: u64,
}

impl Told {
    fn take(&mut self, line: &str) {
        let mut words = line.split(' ');
        let (what, mut number) = (words.next().unwrap(), || words.next().unwrap().parse::<u64>().unwrap());
        match what {
            "sent" => {
                let writer = number() as usize;
                self.sent[writer] = self.sent[writer].max(number());
            }
            "answered" => {
                let writer = number() as usize;
                self.answered[writer] = number();
                self.answers += 1;
            }
            "making" => drop(self.making.insert(number())),
            "made" => drop(self.made.insert(number())),
            "dropping" => drop(self.dropping.insert(number())),
            "dropped" => drop(self.dropped.insert(number())),
            "archiving" => self.is_archiving = true,
            "archived" => {
                self.is_archiving = false;
                self.archived += 1;
            }
            // Lines of the test harness.
            _ => {}
        }
    }

    /// Compares a history that was opened after a kill.
    fn check(&self, history: &History, round: u64) {
        let group = group_of(history, "g");
        let found = read(&group, &Wanted::all()).unwrap();
        for writer in 0..WRITERS {
            let of_writer: BTreeMap<i64, i64> = found
                .iter()
                .filter(|((element, _, _), _)| *element == format!("ev,e=w{writer}"))
                .map(|((_, _, time), value)| match value {
                    FieldValue::Integer(number) => (*number, *time),
                    other => panic!("round {round}: {other:?}"),
                })
                .collect();
            let (count, answered, sent) = (of_writer.len() as u64, self.answered[writer], self.sent[writer]);
            assert!(count >= answered, "round {round}: {count} rows of w{writer}, {answered} were answered");
            assert!(count <= sent, "round {round}: {count} rows of w{writer}, {sent} were sent");
            for ((number, time), wanted) in of_writer.into_iter().zip(1..) {
                assert_eq!((number, time), (wanted as i64, time_of(wanted)), "round {round}: w{writer}");
            }
        }
        let present = numbers(history);
        let lost = self.made.difference(&self.dropping).find(|number| !present.contains(number));
        assert_eq!(lost, None, "round {round}: a group is lost");
        let back = present.intersection(&self.dropped).next();
        assert_eq!(back, None, "round {round}: a dropped group is back");
        assert!(present.is_subset(&self.making), "round {round}: a group is invented");
        for number in present.intersection(&self.made) {
            let found = read(&group_of(history, &format!("g{number}")), &Wanted::all()).unwrap();
            let wanted = [(("ev".into(), "v".into(), time_of(*number)), FieldValue::Integer(*number as i64))];
            assert_eq!(found, Values::from(wanted), "round {round}: group g{number}");
        }
    }
}

/// Kills a process with a history at any moment of its work, also while it opens. After each kill every
/// answered row and group is there, nothing else than what was sent, and the files are sound.
#[test]
fn killed_history_has_every_answered_value() {
    let place = tempfile::tempdir().unwrap();
    let (mut told, mut random) = (Told::default(), Random(1));
    let (mut in_archive, mut newest_file) = (0, 0);
    for round in 0..KILLS * rounds() {
        let from: Vec<String> = told.answered.iter().map(u64::to_string).collect();
        let groups_from = told.making.last().map_or(0, |last| last + 1);
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "tests::kills::killed_process", "--ignored", "--nocapture"])
            .env(DIRECTORY, place.path())
            .env(FROM, from.join(","))
            .env(GROUPS_FROM, groups_from.to_string())
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let until = told.answers + random.next(ANSWERS_MAX);
        // Every fourth kill falls into the opening.
        let in_opening = round % 4 == 3;
        let (mut killed, begun) = (false, Instant::now());
        if in_opening {
            while begun.elapsed() < Duration::from_millis(random.next(60)) {
                std::thread::yield_now();
            }
            child.kill().unwrap();
            killed = true;
        }
        // After the kill the rest of what was told is still in the pipe.
        for line in BufReader::new(child.stdout.take().unwrap()).lines() {
            told.take(&line.unwrap());
            if !killed && told.answers >= until {
                child.kill().unwrap();
                killed = true;
            }
        }
        assert!(killed, "round {round}: the process ended by itself");
        child.wait().unwrap();
        in_archive += u64::from(std::mem::take(&mut told.is_archiving));
        let directory = place.path().join("history");
        let files = std::fs::read_dir(directory.join("files"));
        for file in files.into_iter().flatten() {
            let name = file.unwrap().file_name().into_string().unwrap();
            let number = name.split('.').next().and_then(|number| number.parse::<u64>().ok());
            newest_file = newest_file.max(number.unwrap_or_default());
        }
        let history = History::open(settings_in(place.path())).unwrap();
        if history.group(&GroupName::parse("g").unwrap()).is_ok() {
            told.check(&history, round);
        } else {
            assert_eq!(told.answers, 0, "round {round}: the group is lost");
        }
        if random.chance(3) {
            history.archive_days().unwrap();
        }
        if random.chance(2) {
            history.close();
        }
        drop(history);
        let checked = exacat_history::check(&directory).unwrap();
        assert_eq!(checked.problems, Vec::<String>::new(), "round {round}");
    }
    let (answers, archived) = (told.answers, told.archived);
    assert!(told.archived > 0 && in_archive > 0, "{archived} archive runs, {in_archive} were killed");
    assert!(newest_file > answers / 10, "{newest_file} files of {answers} answers: too few flushes");
}
