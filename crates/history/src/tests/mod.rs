//! Tests of the history as a whole, beside a plain map, on a disk that loses what was not synced.

mod crashes;
mod golden;
mod lines;
mod measured;
mod merges;
mod model;
mod moments;
mod paged;
mod ranges;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use exacat_model::{FieldValue, GroupName, GroupSettings, Result, TimeMs};
use exacat_testkit::simulated::SimulatedDisk;
use exacat_wire::influx::Precision;

use crate::engine::{History, HistorySettings};
use crate::group::Group;
use crate::ingest::{Ingest, Refused};
use crate::run::{Elements, Fields, Wanted};

/// Time of the tests' clock, in milliseconds and nanoseconds: 2026-11-25T12:00:00Z.
const NOW_MS: u64 = 1_795_608_000_000;
const NOW: i64 = NOW_MS as i64 * 1_000_000;

/// Values by element, field and time.
type Values = BTreeMap<(String, String, i64), FieldValue>;

fn settings() -> HistorySettings {
    HistorySettings {
        segment_bytes: 64 << 10,
        memtable_bytes: 64 << 10,
        log_kept_bytes: 0,
        in_background: true,
        ..HistorySettings::new(PathBuf::from("/history"), Arc::new(|| TimeMs(NOW_MS)))
    }
}

fn open(disk: &SimulatedDisk) -> Result<History> {
    History::open_on(disk.shared(), settings())
}

fn group_settings(name: &str) -> GroupSettings {
    GroupSettings::new(GroupName::parse(name).unwrap(), 1000, TimeMs(NOW_MS))
}

fn wait<T>(future: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(future)
}

fn make_group(history: &History, name: &str) -> Arc<Group> {
    wait(history.set_group(group_settings(name))).unwrap()
}

/// Writes lines, and waits for the answer.
fn write(history: &History, group: &Arc<Group>, body: &str) -> Result<Refused> {
    let (mut refused, mut place) = (Refused::default(), 0);
    loop {
        let mut ingest = Ingest::new(group, NOW);
        place = ingest.lines(body.as_bytes(), place, Precision::Nanoseconds, &mut refused);
        wait(history.commit(ingest.finish()))?;
        if place == body.len() {
            return Ok(refused);
        }
    }
}

/// Reads all values of a group.
fn read(group: &Arc<Group>) -> Values {
    let mut values = Values::new();
    let wanted = Wanted { elements: Elements::All, times: i64::MIN..=i64::MAX, fields: Fields::All };
    let mut scan = group.scan(&wanted).unwrap();
    let names = group.names.read();
    let mut last = None;
    while let Some(rows) = scan.next_rows().unwrap() {
        for row in 0..rows.rows() {
            let (element, time) = rows.key(row);
            assert!(last < Some((element, time)), "rows come in order, each once");
            last = Some((element, time));
            for (field, value) in rows.row(row) {
                let name = names.fields()[field as usize].name.to_string();
                values.insert((names.key(element).to_owned(), name, time), value.to_value());
            }
        }
    }
    values
}

/// Compares latest values with those that the map has.
fn check_latest(group: &Arc<Group>, values: &Values) {
    let mut wanted: BTreeMap<(String, String), (i64, FieldValue)> = BTreeMap::new();
    for ((element, field, time), value) in values {
        wanted.insert((element.clone(), field.clone()), (*time, value.clone()));
    }
    let mut found = BTreeMap::new();
    let count = group.names.read().element_count() as u32;
    for element in 0..count {
        let mut latest = Vec::new();
        group.latest(element, |value| latest.push(value));
        let names = group.names.read();
        for value in latest {
            let name = names.fields()[value.field as usize].name.to_string();
            found.insert((names.key(element).to_owned(), name), (value.time, value.value));
        }
    }
    assert!(found == wanted, "{:?}", first_difference(&found, &wanted));
}

/// Compares the values that held at an instant with those that the map has.
fn check_at(group: &Arc<Group>, values: &Values, time: i64) {
    let mut wanted: BTreeMap<(String, String), (i64, FieldValue)> = BTreeMap::new();
    for ((element, field, of), value) in values.iter().filter(|((_, _, of), _)| *of <= time) {
        wanted.insert((element.clone(), field.clone()), (*of, value.clone()));
    }
    let mut found = BTreeMap::new();
    let count = group.names.read().element_count() as u32;
    let mut reader = group.at_instant(time);
    for element in 0..count {
        let at = reader.of(element, |_| true).unwrap();
        let names = group.names.read();
        for value in at {
            let name = names.fields()[value.field as usize].name.to_string();
            found.insert((names.key(element).to_owned(), name), (value.time, value.value));
        }
    }
    assert!(found == wanted, "at {time}: {:?}", first_difference(&found, &wanted));
}

/// Returns the first entry that two maps have differently.
fn first_difference<K: Ord + Clone, V: PartialEq + Clone>(
    one: &BTreeMap<K, V>,
    other: &BTreeMap<K, V>,
) -> Option<(K, Option<V>, Option<V>)> {
    let keys: std::collections::BTreeSet<&K> = one.keys().chain(other.keys()).collect();
    let differs = keys.into_iter().find(|key| one.get(key) != other.get(key))?;
    Some((differs.clone(), one.get(differs).cloned(), other.get(differs).cloned()))
}
