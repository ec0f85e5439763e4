//! The power fails at any moment: what was answered is there, and what is there was sent.

use exacat_testkit::rounds;
use exacat_testkit::simulated::{Fault, Random};

use super::model::random_line;
use super::*;

/// Opens a history, which may itself lose the power; then again without a fault.
fn recover(disk: &SimulatedDisk, random: &mut Random) -> (SimulatedDisk, History) {
    let mut image = disk.image(random);
    for _ in 0..2 {
        if random.chance(2) {
            image.set_fault(Some(Fault::PowerCut(image.operations() + 1 + random.next(30))));
            let opened = open(&image);
            drop(opened);
            image = image.image(random);
        }
    }
    let history = open(&image).unwrap_or_else(|error| panic!("after a power cut: {error}"));
    (image, history)
}

/// After a power cut at any operation of the disk, every answered value is there, and nothing else than
/// what was sent.
#[test]
fn answered_values_survive_power_cuts() {
    for seed in 0..40 * rounds() {
        let mut random = Random(seed);
        let disk = SimulatedDisk::new();
        let history = open(&disk).unwrap();
        let group = make_group(&history, "g");
        disk.set_fault(Some(Fault::PowerCut(disk.operations() + 1 + random.next(150))));
        let (mut answered, mut sent) = (Values::new(), Values::new());
        for _ in 0..40 {
            let (mut body, before) = (String::new(), sent.clone());
            for _ in 0..1 + random.next(40) {
                random_line(&mut random, &mut body, &mut sent);
            }
            if write(&history, &group, &body).is_err() {
                // One batch in flight: its values may be there or not, each of its own.
                answered = before;
                break;
            }
            answered = sent.clone();
            if random.chance(8) {
                let _fails_without_power = history.flush();
            }
        }
        drop(group);
        drop(history);
        let (image, history) = recover(&disk, &mut random);
        let group = history.group(&GroupName::parse("g").unwrap()).unwrap();
        let found = read(&group);
        for (key, value) in &answered {
            let read = found.get(key);
            assert!(read == Some(value) || read == sent.get(key), "seed {seed}: {key:?} is lost: {read:?}");
        }
        for (key, value) in &found {
            let is_sent = sent.get(key) == Some(value) || answered.get(key) == Some(value);
            assert!(is_sent, "seed {seed}: {key:?} is invented: {value:?}");
        }
        // It goes on, and what it answers now is there after another opening.
        write(&history, &group, "after v=1 1").unwrap();
        let values = read(&group);
        drop(group);
        drop(history);
        let history = open(&image).unwrap();
        let group = history.group(&GroupName::parse("g").unwrap()).unwrap();
        assert_eq!(read(&group), values, "seed {seed}");
        check_latest(&group, &values);
    }
}

/// After a failed sync nothing more is answered, and an opening finds what was answered before.
#[test]
fn failed_sync_ends_all_answers() {
    let disk = SimulatedDisk::new();
    let history = open(&disk).unwrap();
    let group = make_group(&history, "g");
    write(&history, &group, "ev v=1 1").unwrap();
    // Write and sync of the next commit group: each of them fails once.
    for operation in 1..=2 {
        let image = disk.image(&mut Random(0));
        let history = open(&image).unwrap();
        let group = history.group(&GroupName::parse("g").unwrap()).unwrap();
        image.set_fault(Some(Fault::Once(image.operations() + operation, std::io::ErrorKind::Other)));
        assert!(write(&history, &group, "ev v=2 2").is_err());
        image.set_fault(None);
        let error = write(&history, &group, "ev v=3 3").unwrap_err();
        assert!(error.message.contains("could not be written"), "{error}");
        assert_eq!(read(&group).len(), 1, "what was not answered is not visible");
        drop(group);
        drop(history);
        let history = open(&image.image(&mut Random(operation))).unwrap();
        let group = history.group(&GroupName::parse("g").unwrap()).unwrap();
        assert!(read(&group).contains_key(&("ev".into(), "v".into(), 1)));
        assert!(!read(&group).contains_key(&("ev".into(), "v".into(), 3)));
    }
}

/// On a full disk batches are refused, and taken again once there is space. Nothing answered is lost.
#[test]
fn full_disk_refuses_and_goes_on() {
    let disk = SimulatedDisk::new();
    let history = open(&disk).unwrap();
    let group = make_group(&history, "g");
    disk.set_full(true);
    let (mut taken, mut refused) = (0, 0);
    for number in 0..600 {
        let body: String =
            (0..20).map(|element| format!("ev,e=n{number}x{element} v=1 {number}\n")).collect();
        if element_room(&group, 20) && write(&history, &group, &body).is_ok() {
            taken += 20;
        } else {
            refused += 1;
        }
    }
    assert!(refused > 0, "the disk was never full");
    disk.set_full(false);
    write(&history, &group, "after v=1 1").unwrap();
    let count = read(&group).len();
    assert!(count > taken, "{count} of {taken}");
    drop(group);
    drop(history);
    let history = open(&disk).unwrap();
    assert_eq!(read(&history.group(&GroupName::parse("g").unwrap()).unwrap()).len(), count);
}

/// While memtables are flushed, elements that arrive meanwhile are whole in every image of the disk: it
/// opens, and has all that was answered before.
#[test]
fn new_elements_during_flushes_are_whole() {
    for seed in 0..4 * rounds() {
        let disk = SimulatedDisk::new();
        let history = open(&disk).unwrap();
        let group = make_group(&history, "g");
        let answered = parking_lot::Mutex::new(Vec::new());
        let ended = std::sync::atomic::AtomicBool::new(false);
        let images = std::thread::scope(|scope| {
            for writer in 0..2 {
                let (history, group, answered, ended) = (&history, &group, &answered, &ended);
                scope.spawn(move || {
                    for number in 0..400 {
                        if ended.load(std::sync::atomic::Ordering::Relaxed) {
                            return;
                        }
                        let key = format!("w{writer},e={number}");
                        write(history, group, &format!("{key} v={number} 1")).unwrap();
                        answered.lock().push(key);
                    }
                });
            }
            let mut images = Vec::new();
            for round in 0..12 {
                history.flush().unwrap();
                let before = answered.lock().clone();
                images.push((disk.image(&mut Random(seed * 100 + round)), before));
            }
            ended.store(true, std::sync::atomic::Ordering::Relaxed);
            images
        });
        for (image, before) in images {
            let history = open(&image).unwrap_or_else(|error| panic!("seed {seed}: {error}"));
            let found = read(&history.group(&GroupName::parse("g").unwrap()).unwrap());
            for key in before {
                assert!(found.contains_key(&(key.clone(), "v".into(), 1)), "seed {seed}: {key} is lost");
            }
        }
    }
}

/// A history closes although the disk has no space for runs, and its log has all that was answered.
#[test]
fn history_closes_without_space_for_runs() {
    let disk = SimulatedDisk::new();
    let history =
        History::open_on(disk.shared(), HistorySettings { memtable_bytes: 1000, ..settings() }).unwrap();
    let group = make_group(&history, "g");
    disk.refuse_runs(true);
    let answered = std::thread::scope(|scope| {
        let writer = scope.spawn(|| {
            let lines =
                (0..).map(|number| (number, format!("ev,e=n{} v=1 {number}\n", number % 9).repeat(20)));
            let written = lines.take_while(|(_, body)| write(&history, &group, body).is_ok());
            written.last().map(|(number, _)| number)
        });
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        runtime.block_on(exacat_testkit::waiting::eventually("memtables wait", || {
            history.shared.flushes.lock().waiting.len() >= crate::limits::FROZEN_MAX
        }));
        history.close();
        writer.join().unwrap()
    });
    drop(group);
    drop(history);
    disk.refuse_runs(false);
    let history = open(&disk).unwrap();
    let found = read(&history.group(&GroupName::parse("g").unwrap()).unwrap());
    assert!(found.len() as i64 > answered.unwrap(), "{} values, {answered:?} answered", found.len());
}

fn element_room(group: &Arc<Group>, more: usize) -> bool {
    group.names.read().element_count() + more <= 900
}
