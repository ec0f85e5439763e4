//! Random operations of groups, on a disk that fails: what was answered is there, and what is there was sent.
//!
//! The model knows for each value which ones it may have: a write whose outcome is unknown may have happened
//! or not, and a day beyond the retention may be gone or not. Everything else is exact.

use std::io::ErrorKind as DiskError;

use exacat_history::run::{Elements, day_of, span_of};
use exacat_model::{Error, ErrorKind};
use exacat_testkit::rounds;
use exacat_testkit::simulated::{Fault, Random};

use super::model::random_line;
use super::*;

/// Names of the groups of a run.
const GROUPS: [&str; 3] = ["a", "b", "c"];
/// Retentions that groups get, in days; 0 keeps everything.
const RETENTIONS: [u32; 3] = [0, 5, 8];
/// Longest wait of a fault for its operation of the disk.
const FAULT_WITHIN: u64 = 60;

/// Values that one key may have.
#[derive(Clone, Debug, Default)]
struct Allowed {
    values: Vec<FieldValue>,
    may_be_missing: bool,
}

/// State that a group may have.
#[derive(Clone, Debug)]
struct Known {
    values: BTreeMap<(String, String, i64), Allowed>,
    /// Days of retention, of which one is in force.
    retention: Vec<u32>,
    /// Its creation or its removal has an unknown outcome.
    may_be_missing: bool,
}

impl Known {
    fn new(retention: u32, may_be_missing: bool) -> Self {
        Known { values: BTreeMap::new(), retention: vec![retention], may_be_missing }
    }

    /// Takes values in that were sent. An unknown outcome leaves the earlier ones possible.
    fn write(&mut self, sent: Values, is_known: bool) {
        for (key, value) in sent {
            let new = !self.values.contains_key(&key);
            let allowed = self.values.entry(key).or_default();
            if is_known {
                *allowed = Allowed { values: vec![value], may_be_missing: false };
            } else {
                allowed.values.push(value);
                allowed.may_be_missing |= new;
            }
        }
    }

    /// Returns the oldest time that the longest, or with `least` the shortest, possible retention keeps.
    fn cut(&self, now: i64, least: bool) -> i64 {
        let cuts = self.retention.iter().map(|days| match days {
            0 => i64::MIN,
            days => span_of(day_of(now - i64::from(*days) * DAY_NANOSECONDS)).0,
        });
        let ends = cuts.fold((i64::MAX, i64::MIN), |(min, max), cut| (min.min(cut), max.max(cut)));
        if least { ends.1 } else { ends.0 }
    }

    /// Notes that the days beyond the retention may be removed from now on.
    fn age(&mut self, now: i64) {
        let cut = self.cut(now, true);
        for ((_, _, time), allowed) in &mut self.values {
            allowed.may_be_missing |= *time < cut;
        }
    }

    /// Compares values that were read. Returns what differs.
    fn compare(&self, found: &Values) -> Option<String> {
        let is_invented = |(key, value): &(&(String, String, i64), &FieldValue)| {
            self.values.get(*key).is_none_or(|allowed| !allowed.values.contains(value))
        };
        if let Some((key, value)) = found.iter().find(is_invented) {
            return Some(format!("{key:?} is {value:?}, {:?} are allowed", self.values.get(key)));
        }
        let is_lost = |(key, allowed): &(&(String, String, i64), &Allowed)| {
            !allowed.may_be_missing && !found.contains_key(*key)
        };
        self.values.iter().find(is_lost).map(|(key, _)| format!("{key:?} is lost"))
    }

    /// Goes on with the state that was found.
    fn settle(&mut self, found: &Values, retention: u32) {
        self.may_be_missing = false;
        self.retention = vec![retention];
        self.values.retain(|key, allowed| {
            if let Some(value) = found.get(key) {
                allowed.values = vec![value.clone()];
                allowed.may_be_missing = false;
            }
            // A day that is hidden may come back with a longer retention.
            found.contains_key(key) || allowed.may_be_missing
        });
    }
}

/// A history under faults, and what is known of it.
struct Trial {
    rig: Rig,
    history: Option<History>,
    known: BTreeMap<&'static str, Known>,
    random: Random,
    seed: u64,
    /// Faults that had an effect.
    effects: u64,
}

impl Trial {
    fn new(seed: u64) -> Self {
        let rig = Rig::new();
        let history = rig.open().unwrap();
        let known = BTreeMap::new();
        Trial { rig, history: Some(history), known, random: Random(seed), seed, effects: 0 }
    }

    fn history(&self) -> &History {
        self.history.as_ref().unwrap()
    }

    fn group(&self, name: &str) -> Option<Arc<Group>> {
        self.history().group(&GroupName::parse(name).unwrap()).ok()
    }

    fn now(&self) -> i64 {
        self.rig.clock.now_ns()
    }

    fn settings_of(&self, name: &str, retention: u32) -> GroupSettings {
        GroupSettings { retention_days: retention, ..group_settings(name) }
    }

    /// Sets a fault that one of the next operations of the disk meets.
    fn arm(&mut self) {
        let disk = &self.rig.disk;
        let at = disk.operations() + 1 + self.random.next(FAULT_WITHIN);
        let fault = match self.random.next(6) {
            0 => Fault::Once(at, DiskError::Other),
            1 => Fault::Once(at, DiskError::StorageFull),
            2 => Fault::Short(at),
            3 => Fault::Read(disk.reads() + 1 + self.random.next(4 * FAULT_WITHIN)),
            4 => Fault::FlippedRead(
                disk.reads() + 1 + self.random.next(4 * FAULT_WITHIN),
                self.random.next(1 << 20),
            ),
            _ => Fault::PowerCut(at),
        };
        disk.set_fault(Some(fault));
    }

    /// Judges an error: false if nothing of the request has happened.
    fn may_have_happened(&mut self, error: &Error) -> bool {
        self.effects += 1;
        error.kind == ErrorKind::Unknown
    }

    fn write(&mut self) {
        let name = GROUPS[self.random.next(GROUPS.len() as u64) as usize];
        let (Some(group), Some(known)) = (self.group(name), self.known.get(name)) else { return };
        let (mut body, mut sent) = (String::new(), Values::new());
        let cut = known.cut(self.now(), true);
        for _ in 0..1 + self.random.next(40) {
            let (mut line, mut values) = (String::new(), Values::new());
            random_line(&mut self.random, &self.rig.clock, &mut line, &mut values);
            // Older lines are refused.
            if values.keys().all(|(_, _, time)| *time >= cut) {
                body.push_str(&line);
                sent.append(&mut values);
            }
        }
        let done = write(self.history(), &group, &body);
        let happened = done.as_ref().err().map(|error| self.may_have_happened(error));
        let known = self.known.get_mut(name).unwrap();
        match happened {
            None => known.write(sent, true),
            Some(true) => known.write(sent, false),
            Some(false) => {}
        }
    }

    fn set_group(&mut self) {
        let name = GROUPS[self.random.next(GROUPS.len() as u64) as usize];
        let retention = RETENTIONS[self.random.next(RETENTIONS.len() as u64) as usize];
        let (now, done) = (self.now(), wait(self.history().set_group(self.settings_of(name, retention))));
        let happened = done.as_ref().err().map(|error| self.may_have_happened(error));
        match (happened, self.known.get_mut(name)) {
            (Some(false), _) => {}
            (None, None) => drop(self.known.insert(name, Known::new(retention, false))),
            (Some(true), None) => drop(self.known.insert(name, Known::new(retention, true))),
            (happened, Some(known)) => {
                if happened.is_none() {
                    known.retention.clear();
                }
                known.retention.push(retention);
                known.age(now);
            }
        }
    }

    fn drop_group(&mut self) {
        let name = GROUPS[self.random.next(GROUPS.len() as u64) as usize];
        if self.group(name).is_none() {
            return;
        }
        let done = wait(self.history().drop_group(&GroupName::parse(name).unwrap()));
        match done.err().map(|error| self.may_have_happened(&error)) {
            None => drop(self.known.remove(name)),
            Some(true) => self.known.get_mut(name).unwrap().may_be_missing = true,
            Some(false) => {}
        }
    }

    /// Lets a day pass, and removes the days beyond the retention.
    fn retain(&mut self) {
        self.rig.clock.pass_days(self.random.next(2));
        let now = self.now();
        self.known.values_mut().for_each(|known| known.age(now));
        if let Err(error) = self.history().remove_ended_days() {
            let _counted = self.may_have_happened(&error);
            return;
        }
        for (name, known) in &self.known {
            let (Some(group), cut) = (self.group(name), known.cut(now, false)) else { continue };
            let found = read(&group, &Wanted::all());
            let hidden = found.ok().and_then(|found| found.into_keys().find(|(_, _, time)| *time < cut));
            assert_eq!(hidden, None, "seed {}: {name} shows a day that its retention ended", self.seed);
        }
    }

    /// Reads everything while a fault may meet the reads: they fail, or have right values.
    fn read(&mut self) {
        for (name, known) in &self.known {
            let Some(group) = self.group(name) else { continue };
            match read(&group, &Wanted::all()) {
                Ok(found) => {
                    assert_eq!(known.compare(&found), None, "seed {}, group {name}", self.seed);
                }
                Err(error) => {
                    self.effects += 1;
                    assert!(error.message.contains('/'), "seed {}: it names no file: {error}", self.seed);
                }
            }
        }
    }

    /// Opens the history again after whatever has happened, sometimes with a power cut in the opening, and
    /// compares everything.
    fn reopen(&mut self) {
        self.history = None;
        let is_dead = self.rig.disk.is_dead();
        self.rig.disk.set_fault(None);
        self.rig.disk.set_full(false);
        if is_dead || self.random.chance(2) {
            self.rig.disk = self.rig.disk.image(&mut self.random);
        }
        while self.random.chance(3) {
            let disk = &self.rig.disk;
            disk.set_fault(Some(Fault::PowerCut(disk.operations() + 1 + self.random.next(30))));
            drop(self.rig.open());
            self.rig.disk = self.rig.disk.image(&mut self.random);
        }
        let opened = self.rig.open();
        self.history = Some(opened.unwrap_or_else(|error| panic!("seed {}: {error}", self.seed)));
        self.check();
    }

    /// Compares everything, without a fault, and goes on with what was found.
    fn check(&mut self) {
        let now = self.now();
        for name in GROUPS {
            let Some(group) = self.group(name) else {
                let is_gone = self.known.remove(name).is_none_or(|known| known.may_be_missing);
                assert!(is_gone, "seed {}: the group {name} is lost", self.seed);
                continue;
            };
            let known = self.known.get_mut(name);
            let known = known.unwrap_or_else(|| panic!("seed {}: the group {name} is back", self.seed));
            known.age(now);
            let found = read(&group, &Wanted::all()).unwrap();
            assert_eq!(known.compare(&found), None, "seed {}, group {name}", self.seed);
            let retention = group.settings().retention_days;
            assert!(known.retention.contains(&retention), "seed {}: {retention}", self.seed);
            check_latest(&group, &found, known, self.seed);
            known.settle(&found, retention);
        }
    }

    fn step(&mut self) {
        match self.random.next(23) {
            0..8 => self.write(),
            8 => self.set_group(),
            9 => self.drop_group(),
            10 => self.retain(),
            11 | 12 => self.read(),
            13 | 14 => {
                if let Err(error) = self.history().flush() {
                    let _counted = self.may_have_happened(&error);
                }
            }
            15 | 16 => {
                if let Err(error) = self.history().archive_days() {
                    let _counted = self.may_have_happened(&error);
                }
            }
            17 => self.rig.disk.set_full(self.random.chance(2)),
            18..22 => self.arm(),
            _ => self.reopen(),
        }
        if self.rig.disk.is_dead() || !self.history().figures().problems.is_empty() {
            self.effects += 1;
            self.reopen();
        }
    }
}

/// Latest values are not older than those of the rows, and were sent. A value of a removed day stays latest
/// until a later one comes.
fn check_latest(group: &Arc<Group>, found: &Values, known: &Known, seed: u64) {
    let mut newest: BTreeMap<(String, String), i64> = BTreeMap::new();
    for (element, field, time) in found.keys() {
        newest.insert((element.clone(), field.clone()), *time);
    }
    for element in 0..group.names().element_count() as u32 {
        let mut latest = Vec::new();
        group.latest(element, |value| latest.push(value));
        let names = group.names();
        for value in latest {
            let field = names.fields()[value.field as usize].name.to_string();
            let key = (names.key(element).to_owned(), field, value.time);
            let allowed = known.values.get(&key);
            let is_sent = allowed.is_some_and(|allowed| allowed.values.contains(&value.value));
            assert!(is_sent, "seed {seed}: {key:?} is {:?}, {allowed:?} are allowed", value.value);
            let newer = newest.remove(&(key.0.clone(), key.1.clone())).filter(|newest| *newest > key.2);
            assert_eq!(newer, None, "seed {seed}: {key:?} is not the latest");
            if let Some(value_found) = found.get(&key) {
                assert_eq!(*value_found, value.value, "seed {seed}: {key:?}");
            }
        }
    }
    assert!(newest.is_empty(), "seed {seed}: without a latest value: {newest:?}");
}

/// Whatever the disk does while groups are made, changed, written, flushed, archived and dropped: everything
/// that was answered is there, and everything that is there was sent.
#[test]
fn history_under_faults_is_that_of_the_model() {
    let mut effects = 0;
    for seed in 0..20 * rounds() {
        let mut trial = Trial::new(seed);
        trial.set_group();
        for _ in 0..60 {
            trial.step();
        }
        trial.reopen();
        trial.history().flush().unwrap();
        trial.history().archive_days().unwrap();
        trial.check();
        effects += trial.effects;
    }
    assert!(effects > 20, "only {effects} faults had an effect");
}

/// Makes a history with everything that is stored, and closes it.
fn stored(seed: u64) -> (Rig, Values) {
    let mut random = Random(seed);
    let rig = Rig::new();
    let history = rig.open().unwrap();
    let group = make_group(&history, "a");
    let mut values = Values::new();
    for part in 0..3 {
        let mut body = String::new();
        for _ in 0..150 {
            random_line(&mut random, &rig.clock, &mut body, &mut values);
        }
        write(&history, &group, &body).unwrap();
        history.flush().unwrap();
        if part == 1 {
            history.archive_days().unwrap();
        }
    }
    let mut body = String::new();
    for _ in 0..50 {
        random_line(&mut random, &rig.clock, &mut body, &mut values);
    }
    // Without space for runs, the last rows are in the log only when the history is closed.
    rig.disk.refuse_runs(true);
    write(&history, &group, &body).unwrap();
    history.close();
    (rig, values)
}

/// Reads everything; an error must name a file of the history or an object of the archive.
fn read_damaged(history: &History, values: &Values, what: &str) -> bool {
    let group = match history.group(&GroupName::parse("a").unwrap()) {
        Ok(group) => group,
        Err(error) => panic!("{what}: the group is lost: {error}"),
    };
    let mut is_told = false;
    let names_a_file = |error: &Error| {
        let message = &error.message;
        assert!(message.contains("/history") || message.contains("group="), "{what}: no file in {message}");
    };
    match read(&group, &Wanted::all()) {
        Ok(found) => assert!(found == *values, "{what}: a wrong value was read"),
        Err(error) => {
            names_a_file(&error);
            is_told = true;
        }
    }
    let mut newest: BTreeMap<(String, String), (i64, FieldValue)> = BTreeMap::new();
    for ((element, field, time), value) in values {
        newest.insert((element.clone(), field.clone()), (*time, value.clone()));
    }
    for element in 0..group.names().element_count() as u32 {
        let mut latest = Vec::new();
        group.latest(element, |value| latest.push(value));
        let at = group.at_instant(i64::MAX).of(element, |_| true);
        is_told |= at.is_err();
        at.as_ref().err().into_iter().for_each(names_a_file);
        for value in latest.into_iter().chain(at.unwrap_or_default()) {
            let names = group.names();
            let field = names.fields()[value.field as usize].name.to_string();
            let wanted = &newest[&(names.key(element).to_owned(), field)];
            assert_eq!((value.time, &value.value), (wanted.0, &wanted.1), "{what}");
        }
    }
    is_told
}

/// One flipped bit in any stored file is told with the file's name, in the opening or by the reads, or it
/// does no harm. No read has a wrong value, and nothing is missing without an error.
#[test]
fn flipped_bit_of_any_file_is_told() {
    let (rig, values) = stored(3);
    let (mut random, mut told) = (Random(4), 0);
    let files = rig.disk.files("");
    for round in 0..150 * rounds() {
        let image = Rig { disk: rig.disk.copy(), store: Arc::clone(&rig.store), clock: rig.clock.clone() };
        let path = &files[random.next(files.len() as u64) as usize];
        let length = rig.disk.bytes(path).len() as u64;
        if length == 0 {
            continue;
        }
        // Half of the flips are in the first part, where small files have all of their content.
        let byte = if random.chance(2) { random.next(length.min(4096)) } else { random.next(length) };
        let bit = random.next(8);
        image.disk.damage(path, |bytes| bytes[byte as usize] ^= 1 << bit);
        let what = format!("round {round}, bit {bit} of byte {byte} of {}", path.display());
        match image.open() {
            Err(error) => {
                let name = path.display().to_string();
                assert!(error.message.contains(&name), "{what}: {error}");
                told += 1;
            }
            Ok(history) => told += u64::from(read_damaged(&history, &values, &what)),
        }
    }
    assert!(told > 40, "{told} flips were told");
}

/// One flipped bit on the way from the disk, at any read of an open history, fails the read with the name of
/// the file, or does no harm. The next read has everything.
#[test]
fn flipped_bit_on_read_is_told() {
    let (rig, values) = stored(5);
    let (mut random, mut told) = (Random(6), 0);
    for round in 0..60 * rounds() {
        let image = Rig { disk: rig.disk.copy(), store: Arc::clone(&rig.store), clock: rig.clock.clone() };
        let disk = &image.disk;
        let in_opening = round % 2 == 0;
        let flip = |random: &mut Random| {
            Some(Fault::FlippedRead(disk.reads() + 1 + random.next(40), random.next(1 << 20)))
        };
        if in_opening {
            disk.set_fault(flip(&mut random));
        }
        let what = format!("round {round}");
        let history = match image.open() {
            Ok(history) => history,
            Err(error) => {
                assert!(error.message.contains("/history/"), "{what}: it names no file: {error}");
                told += 1;
                disk.set_fault(None);
                image.open().unwrap_or_else(|error| panic!("{what}: after the flip: {error}"))
            }
        };
        if !in_opening {
            disk.set_fault(flip(&mut random));
        }
        told += u64::from(read_damaged(&history, &values, &what));
        disk.set_fault(None);
        assert!(!read_damaged(&history, &values, &what), "{what}: the next read fails, too");
    }
    assert!(told > 20, "{told} flips were told");
}

/// One flipped bit in any file of the archive fails a read of the whole day with the name of the file, and a
/// read of one element, if it needs that part. The day is not written anew from it: the damage would become
/// permanent.
#[test]
fn flipped_bit_of_an_archived_file_is_told() {
    let (rig, values) = stored(7);
    let place = Place::of(Arc::clone(&rig.store), "below/here", "memory").unwrap();
    let (files, mut random, mut parts) = (rig.live(), Random(8), 0);
    for round in 0..40 * rounds() {
        let path = &files[random.next(files.len() as u64) as usize];
        let whole = place.read_all(path).unwrap();
        let mut damaged = whole.to_vec();
        let (byte, bit) = (random.next(damaged.len() as u64), random.next(8));
        damaged[byte as usize] ^= 1 << bit;
        place.put(path, damaged.clone().into()).unwrap();
        let what = format!("round {round}, bit {bit} of byte {byte} of {path}");
        let image = Rig { disk: rig.disk.copy(), store: Arc::clone(&rig.store), clock: rig.clock.clone() };
        let history = image.open().unwrap();
        let group = group_of(&history, "a");
        let error = read(&group, &Wanted::all()).expect_err(&what);
        assert!(error.message.contains(path.as_str()), "{what}: no file in {error}");
        // A part is read rightly, or not at all.
        let one = Wanted { elements: Elements::one(random.next(3) as u32), ..Wanted::all() };
        match read(&group, &one) {
            Ok(found) => assert!(found.iter().all(|(key, value)| values.get(key) == Some(value)), "{what}"),
            Err(error) => {
                assert!(error.message.contains(path.as_str()), "{what}: no file in {error}");
                parts += 1;
            }
        }
        let day = path.split("day=").nth(1).unwrap().split('/').next().unwrap();
        let late = (0..9).map(|days| rig.clock.days_ago(days));
        let late = late.into_iter().find(|time| crate::day_text(day_of(*time)) == day);
        write(&history, &group, &format!("late v=1 {}\n", late.unwrap())).unwrap();
        history.flush().unwrap();
        let error = history.archive_days().expect_err(&what);
        assert!(error.message.contains(path.as_str()), "{what}: no file in {error}");
        assert_eq!(place.read_all(path).unwrap(), damaged, "{what}: the file was replaced");
        place.put(path, whole).unwrap();
        let found = read(&group, &Wanted::all()).unwrap();
        assert!(values.iter().all(|(key, value)| found.get(key) == Some(value)), "{what}: copied back");
    }
    assert!(parts > 10, "{parts} reads of one element were told");
}
