//! Owners of an archive: copies are refused and change nothing, and an adoption loses and doubles no row.

use std::path::Path;

use exacat_history::run::day_of;
use exacat_history::{Adopted, Restore, Until, restore_on};
use exacat_model::ErrorKind;
use exacat_testkit::rounds;
use exacat_testkit::simulated::{Fault, Random};

use super::crashes::{flaky_rig, of_delta};
use super::flaky::Failure;
use super::*;
use crate::delta::DeltaLog;
use crate::owner::OWNER;

const ORIGINAL: &str = "/history";
const SNAPSHOT: &str = "/snapshot";
const COPY: &str = "/copy";
/// Days that the tests write to: the older ones are archived.
const DAYS: i64 = 9;

impl Rig {
    fn open_at(&self, directory: &str) -> Result<History> {
        let settings = HistorySettings {
            directory: PathBuf::from(directory),
            log_kept_bytes: 1 << 30,
            ..self.settings()
        };
        History::open_on(self.disk.shared(), settings)
    }

    fn adopt(&self, directory: &str, accepts_loss: bool) -> Result<Adopted> {
        let settings =
            HistorySettings { directory: PathBuf::from(directory), adopts: true, ..self.settings() };
        let history = History::open_on(self.disk.shared(), settings)?;
        let adopted = history.adopt_archive(accepts_loss);
        history.close();
        adopted
    }

    /// Returns all objects with their bytes.
    fn objects(&self) -> BTreeMap<String, bytes::Bytes> {
        let place = self.place();
        let listed = place.list("").unwrap().into_iter();
        listed.map(|object| (object.path.clone(), place.read_all(&object.path).unwrap())).collect()
    }

    fn place(&self) -> Place {
        Place::of(Arc::clone(&self.store), "below/here", "memory").unwrap()
    }
}

fn snapshot(history: &History) {
    history.link_ahead(Path::new(SNAPSHOT)).unwrap();
    history.pin(Path::new(SNAPSHOT), true).unwrap().finish(Path::new(ORIGINAL)).unwrap();
}

fn restore(rig: &Rig) {
    let (from, into) = (Path::new(SNAPSHOT), Path::new(COPY));
    let request = Restore { from, log_of: into, present: into, into, until: Until::Taken, copies: false };
    restore_on(&rig.disk.shared(), &request).unwrap();
}

/// Writes rows with values that only grow, so that the newest value of a key is its largest.
struct Writer {
    random: Random,
    next: u64,
}

impl Writer {
    fn new(seed: u64) -> Self {
        Writer { random: Random(seed), next: 1 }
    }

    /// Writes to random elements and days. New elements come all the time.
    fn write(&mut self, rig: &Rig, history: &History, group: &Arc<Group>, prefix: &str) -> Values {
        let (mut body, mut values) = (String::new(), Values::new());
        for _ in 0..60 {
            let named = if self.random.chance(4) { prefix } else { "ev" };
            let element = format!("{named},e={}", self.random.next(6));
            let day = self.random.next(DAYS as u64) as i64;
            let time = rig.clock.days_ago(day) + self.random.next(4) as i64 * 1_000_001;
            body.push_str(&format!("{element} v={} {time}\n", self.next));
            values.insert((element, "v".to_owned(), time), FieldValue::Float(self.next as f64));
            self.next += 1;
        }
        write(history, group, &body).unwrap();
        values
    }
}

/// Adds values; of two for one key the newer one stays.
fn add(values: &mut Values, more: &Values) {
    let number = |value: &FieldValue| if let FieldValue::Float(value) = value { *value } else { f64::NAN };
    for (key, value) in more {
        match values.get(key) {
            Some(known) if number(known) >= number(value) => {}
            _ => {
                values.insert(key.clone(), value.clone());
            }
        }
    }
}

fn first_difference(found: &Values, wanted: &Values) -> Option<String> {
    let keys: std::collections::BTreeSet<_> = found.keys().chain(wanted.keys()).collect();
    let key = keys.into_iter().find(|key| found.get(*key) != wanted.get(*key))?;
    Some(format!("{key:?}: {:?} instead of {:?}", found.get(key), wanted.get(key)))
}

fn all_of(group: &Arc<Group>) -> Values {
    read(group, &Wanted::all()).unwrap()
}

/// Leaves an archive with days that a copy of its history, made before, does not know. Returns the values
/// that the copy and the archive have, the original, open, and the writer.
fn parted(rig: &Rig, seed: u64) -> (Values, Values, History, Writer) {
    let mut writer = Writer::new(seed);
    let original = rig.open_at(ORIGINAL).unwrap();
    let group = make_group(&original, "g");
    for _ in 0..2 {
        writer.write(rig, &original, &group, "early");
    }
    original.flush().unwrap();
    original.archive_days().unwrap();
    writer.write(rig, &original, &group, "early");
    if writer.random.chance(2) {
        original.flush().unwrap();
    }
    snapshot(&original);
    let mut values = all_of(&group);
    if writer.random.chance(2) {
        rig.clock.pass_days(1);
    }
    if writer.random.chance(3) {
        original.archive_days().unwrap();
    }
    writer.write(rig, &original, &group, "late");
    if writer.random.chance(2) {
        original.flush().unwrap();
    }
    original.archive_days().unwrap();
    let archived = of_delta(rig, &group);
    add(&mut values, &archived);
    restore(rig);
    (values, archived, original, writer)
}

/// A restored history that is started beside its original is refused, for writing and reading, and changes
/// nothing. The original goes on.
#[test]
fn copy_of_a_history_is_refused_and_changes_nothing() {
    let rig = Rig::new();
    let (_, _, original, mut writer) = parted(&rig, 1);
    let before = rig.objects();
    let copy = rig.open_at(COPY).unwrap();
    let group = group_of(&copy, "g");
    writer.write(&rig, &copy, &group, "own");
    copy.flush().unwrap();
    for _ in 0..2 {
        let error = copy.archive_days().unwrap_err();
        assert_eq!(error.kind, ErrorKind::Conflict, "{error}");
        assert!(error.message.contains("another copy of this history, /history on "), "{error}");
        assert!(error.message.contains("exacat history adopt"), "{error}");
        let error = read(&group, &Wanted::all()).unwrap_err();
        assert!(error.message.contains("exacat history adopt"), "{error}");
    }
    assert!(copy.figures().problems.iter().any(|problem| problem.contains("exacat history adopt")));
    let today = Wanted { times: rig.clock.days_ago(1)..=i64::MAX, ..Wanted::all() };
    assert!(!read(&group, &today).unwrap().is_empty(), "recent days are read");
    assert_eq!(rig.objects(), before);
    let group = group_of(&original, "g");
    writer.write(&rig, &original, &group, "late");
    original.flush().unwrap();
    original.archive_days().unwrap();
    assert_ne!(rig.objects(), before);
}

/// A history that adopts has all rows of its own and of the archive, the newest of each key. The former owner
/// is refused from then on and changes nothing, and can adopt the archive back.
#[test]
fn adoption_has_the_newest_rows_of_both_sides() {
    let mut merged = 0;
    for seed in 0..8 * rounds() {
        let rig = Rig::new();
        let (mut values, archived, original, mut writer) = parted(&rig, seed);
        let copy = rig.open_at(COPY).unwrap();
        let own = writer.write(&rig, &copy, &group_of(&copy, "g"), "own");
        add(&mut values, &own);
        if writer.random.chance(2) {
            copy.flush().unwrap();
            assert!(copy.archive_days().is_err(), "seed {seed}");
        }
        drop(copy);
        let adopted = rig.adopt(COPY, false).unwrap();
        assert!(adopted.done && adopted.losses.is_empty(), "seed {seed}: {adopted:?}");
        assert_eq!(adopted.previous.unwrap().directory, ORIGINAL, "seed {seed}");
        merged += adopted.merged.len();
        let copy = rig.open_at(COPY).unwrap();
        let group = group_of(&copy, "g");
        assert_eq!(first_difference(&all_of(&group), &values), None, "seed {seed}");
        // Readers of the Delta log miss nothing that they had.
        let mut seen = of_delta(&rig, &group);
        add(&mut seen, &archived);
        assert_eq!(first_difference(&of_delta(&rig, &group), &seen), None, "seed {seed}: Delta");
        let before = rig.objects();
        let former = group_of(&original, "g");
        let later = writer.write(&rig, &original, &former, "late");
        original.flush().unwrap();
        let error = original.archive_days().unwrap_err();
        assert!(error.message.contains("another copy of this history"), "seed {seed}: {error}");
        assert!(read(&former, &Wanted::all()).is_err(), "seed {seed}");
        assert_eq!(rig.objects(), before, "seed {seed}");
        // The copy goes on.
        let own = writer.write(&rig, &copy, &group, "own");
        add(&mut values, &own);
        copy.flush().unwrap();
        copy.archive_days().unwrap();
        assert_eq!(first_difference(&all_of(&group), &values), None, "seed {seed}, archived");
        let old = day_of(rig.clock.now_ns()) - AFTER_DAYS as i32;
        let expected: Values = values
            .iter()
            .filter(|(key, _)| day_of(key.2) < old)
            .map(|(k, v)| (k.clone(), v.clone()))
            .collect();
        assert_eq!(
            first_difference(&of_delta(&rig, &group), &expected),
            None,
            "seed {seed}: Delta at the end"
        );
        drop((former, original, group, copy));
        let back = rig.adopt(ORIGINAL, false).unwrap();
        assert!(back.done, "seed {seed}: {back:?}");
        let original = rig.open_at(ORIGINAL).unwrap();
        let found = all_of(&group_of(&original, "g"));
        let lost = expected.keys().chain(later.keys()).find(|key| !found.contains_key(*key));
        assert_eq!(lost, None, "seed {seed}: a row is lost on the way back");
    }
    assert!(merged > 8, "{merged} days merged");
}

/// Whichever request of an adoption fails, before or after its effect, the adoption is done when it is
/// repeated. Until then no server opens the history, and readers of the Delta log see whole days.
#[test]
fn interrupted_adoption_is_repeated() {
    let (mut at, mut failures) = (0, 0);
    loop {
        let (rig, flaky) = flaky_rig();
        let (mut values, archived, original, mut writer) = parted(&rig, 5);
        let copy = rig.open_at(COPY).unwrap();
        let own = writer.write(&rig, &copy, &group_of(&copy, "g"), "own");
        add(&mut values, &own);
        drop(copy);
        let failure = if at % 2 == 0 { Failure::Before } else { Failure::After };
        let before = flaky.requests();
        flaky.fail(at / 2, failure, false);
        let first = rig.adopt(COPY, false);
        let is_over = flaky.requests() - before <= at / 2;
        flaky.heal();
        failures += u64::from(first.is_err());
        let group = group_of(&original, "g");
        let seen = of_delta(&rig, &group);
        let missing = archived.keys().find(|key| !seen.contains_key(*key));
        assert_eq!(missing, None, "request {at}: readers of the archive miss rows");
        if let Err(error) = rig.open_at(COPY) {
            assert!(error.message.contains("exacat history adopt"), "request {at}: {error}");
        }
        let adopted = rig.adopt(COPY, false).unwrap();
        assert!(adopted.done, "request {at}: {adopted:?}");
        let copy = rig.open_at(COPY).unwrap();
        let group = group_of(&copy, "g");
        assert_eq!(first_difference(&all_of(&group), &values), None, "request {at}");
        copy.archive_days().unwrap();
        assert_eq!(first_difference(&all_of(&group), &values), None, "request {at}, archived");
        assert!(original.archive_days().is_err(), "request {at}");
        at += 1;
        if is_over {
            break;
        }
    }
    assert!(failures > 20, "{failures} failures");
}

/// The power is cut at any operation of the disk while an archive is adopted: the adoption is repeated, and
/// has the same result.
#[test]
fn adoption_survives_power_cuts() {
    let mut cut = 0;
    for seed in 0..10 * rounds() {
        let mut random = Random(seed);
        let rig = Rig::new();
        let (mut values, _, original, mut writer) = parted(&rig, seed);
        let copy = rig.open_at(COPY).unwrap();
        let own = writer.write(&rig, &copy, &group_of(&copy, "g"), "own");
        add(&mut values, &own);
        drop((copy, original));
        rig.disk.set_fault(Some(Fault::PowerCut(rig.disk.operations() + 1 + random.next(120))));
        cut += u64::from(rig.adopt(COPY, false).is_err());
        let rig = Rig { disk: rig.disk.image(&mut random), store: rig.store, clock: rig.clock };
        let adopted = rig.adopt(COPY, false).unwrap_or_else(|error| panic!("seed {seed}: {error}"));
        assert!(adopted.done, "seed {seed}");
        let copy = rig.open_at(COPY).unwrap();
        let group = group_of(&copy, "g");
        assert_eq!(first_difference(&all_of(&group), &values), None, "seed {seed}");
        copy.archive_days().unwrap();
        assert_eq!(first_difference(&all_of(&group), &values), None, "seed {seed}, archived");
    }
    assert!(cut > 2, "{cut} cuts");
}

/// A commit that the former owner had decided before the adoption fails after it: the former owner checks
/// again, and is refused.
#[test]
fn commit_decided_before_the_adoption_fails() {
    let rig = Rig::new();
    let archive = ParquetArchive::new(rig.place());
    archive.claim(&owner(1), &[]).unwrap();
    // As the former owner has read the log.
    let mut decided = DeltaLog::read(&rig.place()).unwrap();
    let file = exacat_history::ArchivedFile {
        path: "group=g/day=2026-11-01/part-1.parquet".to_owned(),
        bytes: 1000,
        rows: 1,
        records: 1,
        digest: [0; 16],
        elements: (0, 0),
        times: (0, 0),
    };
    archive.take_over(&owner(2), TimeMs(NOW_MS)).unwrap();
    let error = decided.publish(&rig.place(), &owner(1), TimeMs(NOW_MS), &[file], 10).unwrap_err();
    assert!(error.message.contains("another copy of this history"), "{error}");
    // Had it checked before the adoption, its commit would have this name: the adoption has taken the name.
    let path = "_delta_log/00000000000000000000.json";
    assert!(!rig.place().put_new(path, bytes::Bytes::new()).unwrap());
    assert!(DeltaLog::read(&rig.place()).unwrap().live.is_empty());
}

/// An archive of an earlier release, without an owner, is taken by the history whose manifest names its
/// files, and by no other one.
#[test]
fn archive_without_an_owner_is_taken_by_its_history() {
    let rig = Rig::new();
    let (_, _, original, _) = parted(&rig, 3);
    let values = all_of(&group_of(&original, "g"));
    drop(original);
    // As an earlier release leaves them.
    let forget = |directory: &str| {
        rig.place().delete(OWNER).unwrap();
        rig.disk.shared().remove(&Path::new(directory).join("ARCHIVE")).unwrap();
    };
    forget(COPY);
    let before = rig.objects();
    let copy = rig.open_at(COPY).unwrap();
    copy.flush().unwrap();
    let error = copy.archive_days().unwrap_err();
    assert!(error.message.contains("other files than this history names"), "{error}");
    assert_eq!(rig.objects(), before);
    drop(copy);
    rig.disk.shared().remove(&Path::new(ORIGINAL).join("ARCHIVE")).unwrap();
    let original = rig.open_at(ORIGINAL).unwrap();
    assert_eq!(
        first_difference(&all_of(&group_of(&original, "g")), &values),
        None,
        "read before it is taken"
    );
    original.archive_days().unwrap();
    assert!(rig.objects().contains_key(OWNER));
    drop(original);
    // Another place is refused: the days of the history are not there.
    let other = Rig { disk: rig.disk.clone(), ..Rig::new() };
    let original = other.open_at(ORIGINAL).unwrap();
    assert!(original.archive_days().is_err());
    assert!(other.objects().is_empty());
}

/// An archive of another history is not adopted, even if nothing was archived yet.
#[test]
fn archive_of_another_history_is_not_adopted() {
    let rig = Rig::new();
    rig.open_at(ORIGINAL).unwrap().archive_days().unwrap();
    let before = rig.objects();
    assert_eq!(before.keys().collect::<Vec<_>>(), [OWNER]);
    drop(rig.open_at("/other").unwrap());
    let error = rig.adopt("/other", true).unwrap_err();
    assert!(error.message.contains("belongs to another history"), "{error}");
    assert_eq!(rig.objects(), before);
    // The owner itself has nothing to adopt.
    assert!(rig.adopt(ORIGINAL, false).unwrap().was_owner);
    assert_eq!(rig.objects(), before);
}

/// Losses are told before anything is changed: files that are gone, and groups that the history lacks. They
/// are accepted by an option only.
#[test]
fn losses_of_an_adoption_are_told_first() {
    let rig = Rig::new();
    let (mut values, _, original, _) = parted(&rig, 9);
    let other = make_group(&original, "other");
    write(&original, &other, &format!("ev v=1 {}", rig.clock.days_ago(8))).unwrap();
    original.flush().unwrap();
    original.archive_days().unwrap();
    // The original drops old days, and their files are deleted.
    wait(original.set_group(GroupSettings { retention_days: 6, ..group_settings("g") })).unwrap();
    original.remove_ended_days().unwrap();
    original.archive_days().unwrap();
    let live = rig.live();
    for path in
        rig.objects().into_keys().filter(|path| path.ends_with("parquet") && path.starts_with("group"))
    {
        if !live.contains(&path) {
            rig.place().delete(&path).unwrap();
        }
    }
    drop((other, original));
    let before = rig.objects();
    let told = rig.adopt(COPY, false).unwrap();
    assert!(!told.done, "{told:?}");
    assert!(told.losses.iter().any(|loss| loss.contains("files are gone from the archive")), "{told:?}");
    assert!(told.losses.iter().any(|loss| loss.contains("group other: 1 days")), "{told:?}");
    assert_eq!(rig.objects(), before);
    assert!(rig.open_at(COPY).is_ok(), "nothing has begun");
    let adopted = rig.adopt(COPY, true).unwrap();
    assert!(adopted.done && adopted.losses == told.losses, "{adopted:?}");
    let copy = rig.open_at(COPY).unwrap();
    let mut found = all_of(&group_of(&copy, "g"));
    let first_kept = day_of(rig.clock.now_ns()) - 6;
    found.retain(|key, _| day_of(key.2) >= first_kept);
    values.retain(|key, _| day_of(key.2) >= first_kept);
    assert_eq!(first_difference(&found, &values), None);
    copy.archive_days().unwrap();
}
