//! Tests of the archive below a history: what is written, faults and crashes between steps, a plain map
//! beside it.

mod crashes;
mod faults;
mod files;
mod flaky;
mod imports;
mod kills;
mod measured;
mod model;
mod owners;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use exacat_history::run::{DAY_NANOSECONDS, Wanted};
use exacat_history::sorted::SortedRows;
use exacat_history::{
    Archive, ArchiveOwner, ArchiveSettings, Group, History, HistorySettings, Ingest, NamedGroup, Refused,
};
use exacat_model::{FieldValue, GroupName, GroupSettings, Result, TimeMs};
use exacat_testkit::simulated::SimulatedDisk;
use exacat_wire::influx::Precision;
use object_store::ObjectStore;

use crate::archive::ParquetArchive;
use crate::place::Place;

/// Time of the tests' clock at first, in milliseconds: 2026-11-25T12:00:00Z.
const NOW_MS: u64 = 1_795_608_000_000;
/// Days after which a day is archived.
const AFTER_DAYS: u32 = 3;

/// Values by element, field and time.
type Values = BTreeMap<(String, String, i64), FieldValue>;

/// A clock that tests move.
#[derive(Clone)]
struct Clock(Arc<AtomicU64>);

impl Clock {
    fn new() -> Self {
        Clock(Arc::new(AtomicU64::new(NOW_MS)))
    }

    fn pass_days(&self, days: u64) {
        self.0.fetch_add(days * 86_400_000, Ordering::Relaxed);
    }

    fn now_ns(&self) -> i64 {
        self.0.load(Ordering::Relaxed) as i64 * 1_000_000
    }

    /// Returns a time some days ago.
    fn days_ago(&self, days: i64) -> i64 {
        self.now_ns() - days * DAY_NANOSECONDS
    }
}

/// A history with an archive: its disk, the objects, its clock.
struct Rig {
    disk: SimulatedDisk,
    store: Arc<dyn ObjectStore>,
    clock: Clock,
}

impl Rig {
    fn new() -> Self {
        let store = Arc::new(object_store::memory::InMemory::new());
        Rig { disk: SimulatedDisk::new(), store, clock: Clock::new() }
    }

    fn archive(&self) -> Arc<dyn Archive> {
        let place = Place::of(Arc::clone(&self.store), "below/here", "memory").unwrap();
        // Several files a day, and a checkpoint after each commit.
        Arc::new(ParquetArchive::new(place).with_file_bytes(4000).with_checkpoints(1))
    }

    fn settings(&self) -> HistorySettings {
        let clock = self.clock.clone();
        let now = Arc::new(move || TimeMs(clock.0.load(Ordering::Relaxed)));
        HistorySettings {
            segment_bytes: 64 << 10,
            memtable_bytes: 64 << 10,
            log_kept_bytes: 0,
            archive: Some(ArchiveSettings { archive: self.archive(), after_days: AFTER_DAYS }),
            ..HistorySettings::new(PathBuf::from("/history"), now)
        }
    }

    fn open(&self) -> Result<History> {
        History::open_on(self.disk.shared(), self.settings())
    }

    /// Removes the commits that the newest checkpoint has, as other programs may do. Returns their number.
    fn forget_commits(&self) -> usize {
        let place = Place::of(Arc::clone(&self.store), "below/here", "memory").unwrap();
        let versions = |end: &str| -> Vec<String> {
            let names = place.list("_delta_log").unwrap().into_iter();
            let mut found: Vec<String> =
                names.filter_map(|object| object.path.strip_suffix(end).map(str::to_owned)).collect();
            found.sort();
            found
        };
        let newest = versions(".checkpoint.parquet").pop().unwrap_or_default();
        let mut old = versions(".json");
        old.retain(|version| *version <= newest);
        old.iter().for_each(|version| place.delete(&format!("{version}.json")).unwrap());
        old.len()
    }

    /// Returns the files that the Delta log names.
    fn live(&self) -> Vec<String> {
        let place = Place::of(Arc::clone(&self.store), "below/here", "memory").unwrap();
        crate::delta::DeltaLog::read(&place).unwrap().live.into_keys().collect()
    }
}

/// Returns the owner of an archive that no history is behind.
pub(crate) fn owner(number: u8) -> ArchiveOwner {
    let (directory, host) = (String::from("/srv/history"), String::from("cat1"));
    ArchiveOwner { history: [1; 16], incarnation: [number; 16], since: TimeMs(NOW_MS), directory, host }
}

fn wait<T>(future: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(future)
}

fn group_settings(name: &str) -> GroupSettings {
    GroupSettings::new(GroupName::parse(name).unwrap(), 1000, TimeMs(NOW_MS))
}

fn make_group(history: &History, name: &str) -> Arc<Group> {
    wait(history.set_group(group_settings(name))).unwrap()
}

/// Returns a group as the archive takes it.
fn named(group: &Arc<Group>) -> Arc<dyn NamedGroup> {
    Arc::clone(group) as _
}

fn group_of(history: &History, name: &str) -> Arc<Group> {
    history.group(&GroupName::parse(name).unwrap()).unwrap()
}

/// Writes lines, and waits for the answer.
fn write(history: &History, group: &Arc<Group>, body: &str) -> Result<()> {
    let (mut refused, mut place) = (Refused::default(), 0);
    while place < body.len() {
        let mut ingest = Ingest::new(group, history.now_ns());
        place = ingest.lines(body.as_bytes(), place, Precision::Nanoseconds, &mut refused);
        wait(history.commit(ingest.finish()))?;
    }
    assert_eq!(refused, Refused::default());
    Ok(())
}

/// Reads values of a group.
fn read(group: &Arc<Group>, wanted: &Wanted) -> Result<Values> {
    let mut scan = group.scan(wanted)?;
    read_source(group, &mut *scan)
}

fn read_source(group: &Arc<Group>, scan: &mut dyn SortedRows) -> Result<Values> {
    let (mut values, mut last) = (Values::new(), None);
    while let Some(rows) = scan.next_rows()? {
        let names = group.names();
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
    Ok(values)
}
