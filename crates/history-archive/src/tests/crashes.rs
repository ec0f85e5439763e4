//! The place fails and the power is cut between all steps: nothing is lost, and nothing counts twice.

use exacat_testkit::rounds;
use exacat_testkit::simulated::{Fault, Random};

use super::flaky::{Failure, Flaky};
use super::model::{check, random_line};
use super::*;

/// Returns a rig whose place can fail.
pub(super) fn flaky_rig() -> (Rig, Arc<Flaky>) {
    let rig = Rig::new();
    let flaky = Arc::new(Flaky::new(Arc::clone(&rig.store)));
    (Rig { store: Arc::<Flaky>::clone(&flaky), ..rig }, flaky)
}

/// Reads the live files of the archive as a reader of the Delta log does, without the history.
pub(super) fn of_delta(rig: &Rig, group: &Arc<Group>) -> Values {
    let place = Place::of(Arc::clone(&rig.store), "below/here", "memory").unwrap();
    let mut all = Values::new();
    for (path, live) in crate::delta::DeltaLog::read(&place).unwrap().live {
        let bytes = place.read_all(&path).unwrap();
        assert_eq!(bytes.len() as u64, live.bytes);
        let mut scan = files::open(bytes, group).unwrap();
        for (key, value) in read_source(group, &mut scan).unwrap() {
            assert_eq!(all.insert(key.clone(), value), None, "{key:?} is in two files, one of them {path}");
        }
    }
    all
}

fn some_lines(random: &mut Random, rig: &Rig, values: &mut Values) -> String {
    let mut body = String::new();
    for _ in 0..200 {
        random_line(random, &rig.clock, &mut body, values);
    }
    body
}

/// Whichever request to the place fails, before or after its effect: all values are there at once, and an
/// attempt after it archives them, each once for readers of the Delta log.
#[test]
fn failing_place_loses_and_doubles_nothing() {
    let (mut at, mut failures, mut checkpoints) = (1, 0, 0);
    loop {
        let (rig, flaky) = flaky_rig();
        let mut random = Random(7);
        let mut values = Values::new();
        let body = some_lines(&mut random, &rig, &mut values);
        let history = rig.open().unwrap();
        let group = make_group(&history, "g");
        write(&history, &group, &body).unwrap();
        history.flush().unwrap();
        let failure = if at % 2 == 0 { Failure::Before } else { Failure::After };
        flaky.fail(at / 2, failure, false);
        let archived = history.archive_days();
        failures += u64::from(archived.is_err());
        let is_over = flaky.requests() <= at / 2;
        flaky.heal();
        let metrics = history.archive_metrics().unwrap();
        assert_eq!(metrics.failed().is_some(), archived.is_err());
        assert!(read(&group, &Wanted::all()).unwrap() == values, "request {at}");
        checkpoints += rig.forget_commits();
        history.archive_days().unwrap();
        checkpoints += rig.forget_commits();
        assert!(read(&group, &Wanted::all()).unwrap() == values, "request {at}, repeated");
        let old = exacat_history::run::day_of(rig.clock.now_ns()) - AFTER_DAYS as i32;
        let expected: Values = values
            .iter()
            .filter(|((_, _, time), _)| exacat_history::run::day_of(*time) < old)
            .map(|(key, value)| (key.clone(), value.clone()))
            .collect();
        assert!(!expected.is_empty() && of_delta(&rig, &group) == expected, "request {at}: Delta");
        at += 1;
        if is_over {
            break;
        }
    }
    assert!(failures > 8 && checkpoints > 8, "{failures} failures, {checkpoints} commits forgotten");
}

/// The power is cut at any operation of the disk while days are archived. After an opening all values are
/// there, and after another attempt readers of the Delta log have each once.
#[test]
fn power_cuts_lose_and_double_nothing() {
    for seed in 0..30 * rounds() {
        let mut random = Random(seed);
        let rig = Rig::new();
        let mut values = Values::new();
        let history = rig.open().unwrap();
        let group = make_group(&history, "g");
        for _ in 0..2 {
            let body = some_lines(&mut random, &rig, &mut values);
            write(&history, &group, &body).unwrap();
            history.flush().unwrap();
        }
        if random.chance(2) {
            history.archive_days().unwrap();
            let body = some_lines(&mut random, &rig, &mut values);
            write(&history, &group, &body).unwrap();
        }
        rig.disk.set_fault(Some(Fault::PowerCut(rig.disk.operations() + 1 + random.next(25))));
        let _may_fail = history.archive_days();
        drop(group);
        drop(history);
        let rig = Rig { disk: rig.disk.image(&mut random), store: rig.store, clock: rig.clock };
        let history = rig.open().unwrap_or_else(|error| panic!("seed {seed}: {error}"));
        let group = group_of(&history, "g");
        assert!(read(&group, &Wanted::all()).unwrap() == values, "seed {seed}");
        check(&group, &values, &mut random, &rig.clock, seed);
        history.flush().unwrap();
        history.archive_days().unwrap();
        rig.forget_commits();
        assert!(read(&group, &Wanted::all()).unwrap() == values, "seed {seed}, archived");
        let old = exacat_history::run::day_of(rig.clock.now_ns()) - AFTER_DAYS as i32;
        let count = values.keys().filter(|key| exacat_history::run::day_of(key.2) < old).count();
        assert_eq!(of_delta(&rig, &group).len(), count, "seed {seed}: Delta");
    }
}

/// While the place is away, writes and reads of other days go on, and a read of an archived day says so.
#[test]
fn place_that_is_away_is_told() {
    let (rig, flaky) = flaky_rig();
    let history = rig.open().unwrap();
    let group = make_group(&history, "g");
    let (old, new) = (rig.clock.days_ago(8), rig.clock.now_ns());
    write(&history, &group, &format!("ev v=1 {old}\nev v=2 {new}")).unwrap();
    history.flush().unwrap();
    history.archive_days().unwrap();
    flaky.fail(0, Failure::Before, true);
    let error = read(&group, &Wanted::all()).unwrap_err();
    assert_eq!(error.kind, exacat_model::ErrorKind::Unavailable);
    assert!(error.message.contains("the connection is lost"), "{error}");
    let recent = Wanted { times: new - 1..=new, ..Wanted::all() };
    assert_eq!(read(&group, &recent).unwrap().len(), 1);
    write(&history, &group, &format!("ev v=3 {old}")).unwrap();
    history.flush().unwrap();
    assert!(history.archive_days().is_err());
    assert_eq!(history.archive_metrics().unwrap().failures.load(Ordering::Relaxed), 1);
    flaky.heal();
    history.archive_days().unwrap();
    let found = read(&group, &Wanted::all()).unwrap();
    assert_eq!(found[&("ev".into(), "v".into(), old)], FieldValue::Float(3.0), "the late row wins");
}
