//! Merges of runs: within another one, and when the power fails.

use exacat_testkit::rounds;
use exacat_testkit::simulated::{Fault, Random};

use super::*;
use crate::compaction::MergeJob;

/// Day of the rows of these tests.
const DAY: i32 = 7;
/// Flushes of the same size that are worth a merge.
const DUE: u64 = crate::MERGE_RATIO + 1;

/// Opens a history without threads: only the test merges.
fn open_alone(disk: &SimulatedDisk) -> History {
    History::open_on(disk.shared(), HistorySettings { in_background: false, ..settings() }).unwrap()
}

fn group_of(history: &History) -> Arc<Group> {
    history.group(&GroupName::parse("g").unwrap()).unwrap()
}

/// Returns a disk with a history whose flushes, of so many rows each, have no merge yet, and its values.
/// Half of the rows of a flush replace those of earlier ones.
fn flushed(flushes: &[u64], random: &mut Random) -> (SimulatedDisk, Values) {
    let disk = SimulatedDisk::new();
    let history = open(&disk).unwrap();
    let group = make_group(&history, "g");
    // As if the day was being archived: the merges are left to the test.
    history.shared.archiving.lock().insert((group.id, DAY));
    let (mut values, begin) = (Values::new(), crate::run::span_of(DAY).0);
    for (flush, rows) in flushes.iter().enumerate() {
        let mut body = String::new();
        for row in 0..*rows {
            let (element, time) = (random.next(5), begin + ((flush % 2) as u64 * 1000 + row) as i64);
            let value = random.next(1000) as i64;
            body.push_str(&format!("ev,e=n{element} v={value}i {time}\n"));
            let key = (format!("ev,e=n{element}"), "v".to_owned(), time);
            values.insert(key, FieldValue::Integer(value));
        }
        write(&history, &group, &body).unwrap();
        history.flush().unwrap();
    }
    assert_eq!(runs(&group).len(), flushes.len());
    drop(group);
    drop(history);
    (disk.image(random), values)
}

/// Returns the numbers of the runs of the day, the oldest first.
fn runs(group: &Group) -> Vec<u64> {
    let rows = group.rows.read();
    rows.runs.days().get(&DAY).map(|runs| runs.iter().map(|run| run.number).collect()).unwrap_or_default()
}

/// After a power cut at each operation of a merge every value is there, the merge is done again, and no
/// file is left over.
#[test]
fn merge_survives_power_cut_at_each_step() {
    for seed in 0..4 * rounds() {
        let mut random = Random(seed);
        let (disk, values) = flushed(&[20; DUE as usize], &mut random);
        for cut in 1.. {
            let image = disk.image(&mut random);
            let history = open_alone(&image);
            image.set_fault(Some(Fault::PowerCut(image.operations() + cut)));
            let merged = history.shared.merge_all();
            let ended = !image.is_dead();
            assert_eq!(merged.is_ok(), ended || runs(&group_of(&history)).len() == 1, "cut {cut}");
            assert!(read(&group_of(&history)) == values, "seed {seed}, cut {cut}: readers go on");
            drop(history);
            let image = image.image(&mut random);
            let history = open_alone(&image);
            let group = group_of(&history);
            let found = read(&group);
            assert!(found == values, "seed {seed}, cut {cut}: {:?}", first_difference(&found, &values));
            history.shared.merge_all().unwrap();
            assert_eq!(runs(&group).len(), 1);
            assert!(read(&group) == values, "seed {seed}, cut {cut}: merged after the opening");
            check_latest(&group, &values);
            let files = image.shared().list(&history.shared.layout.files()).unwrap();
            assert_eq!(files.iter().filter(|name| name.ends_with(".run")).count(), 1, "{files:?}");
            if ended {
                assert!(cut > 5, "the power never failed in a merge");
                break;
            }
        }
    }
}

/// A read that fails in a merge leaves the runs as they are, and the next attempt merges them.
#[test]
fn failed_read_of_a_merge_is_tried_again() {
    let mut random = Random(1);
    let (disk, values) = flushed(&[30; DUE as usize], &mut random);
    let history = open_alone(&disk);
    let group = group_of(&history);
    let before = runs(&group);
    disk.set_fault(Some(Fault::Read(disk.reads() + 3)));
    history.shared.merge_all().unwrap_err();
    assert_eq!(runs(&group), before);
    disk.set_fault(None);
    history.shared.merge_all().unwrap();
    assert_eq!(runs(&group).len(), 1);
    assert!(read(&group) == values);
}

/// Runs that are flushed during a large merge are merged in the middle of it, and their rows win.
#[test]
fn smaller_merge_is_done_within_a_larger_one() {
    let mut random = Random(2);
    let flushes = [[100; DUE as usize], [9; DUE as usize]].concat();
    let (disk, values) = flushed(&flushes, &mut random);
    let history = open_alone(&disk);
    let (group, shared) = (group_of(&history), &history.shared);
    let before = runs(&group);
    let of_day = group.rows.read().runs.days()[&DAY].clone();
    let large = MergeJob { group: Arc::clone(&group), day: DAY, runs: of_day[..DUE as usize].to_vec() };
    let mut in_work = before[..DUE as usize].iter().copied().collect();
    shared.merge_smaller(&large, &mut in_work).unwrap();
    let between = runs(&group);
    assert_eq!(between[..DUE as usize], before[..DUE as usize], "those in work stay");
    assert_eq!(between.len(), DUE as usize + 1);
    assert!(read(&group) == values);
    in_work.clear();
    shared.merge_beside(&large, &mut in_work).unwrap();
    let after = runs(&group);
    assert_eq!(after.len(), 2);
    assert_eq!(after[1], between[DUE as usize], "the newer run stays behind the larger one");
    assert!(read(&group) == values);
    // Nothing is left that is as small.
    shared.merge_smaller(&large, &mut in_work).unwrap();
    assert_eq!(runs(&group), after);
    drop(group);
    drop(history);
    let history = open_alone(&disk);
    assert!(read(&group_of(&history)) == values);
}
