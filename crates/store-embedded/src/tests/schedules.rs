//! Random compactions: the state is the same whatever is compacted when, and wherever that is
//! interrupted.

use std::collections::HashSet;
use std::sync::Arc;

use exacat_model::{DirId, SeNumber, UserId};
use exacat_store::{Store, UsageOf};
use exacat_testkit::memory::MemoryStore;
use parking_lot::Mutex;

use super::workload::Workload;
use super::{TestClock, assert_sound, seeds, settings};
use crate::command::Command;
use crate::run::Run;
use crate::table::RunSet;
use crate::{EmbeddedSettings, EmbeddedStore};
use exacat_testkit::simulated::{Random, SimulatedDisk};

/// Schedule of the compactor: by the run set, or random.
pub(crate) struct Schedule(Option<Mutex<Random>>);

impl Schedule {
    pub(crate) fn of(settings: &EmbeddedSettings) -> Self {
        Schedule(settings.compaction_seed.map(|seed| Mutex::new(Random(seed))))
    }

    pub(crate) fn next(&self, run_set: &RunSet, merging: &HashSet<u64>) -> Option<(Vec<Arc<Run>>, bool)> {
        let Some(random) = &self.0 else { return run_set.mergeable(merging) };
        let mut random = random.lock();
        run_set.any_neighbours(merging, |free| {
            if free < 2 || random.chance(3) {
                return None;
            }
            let begin = random.next(free as u64 - 1) as usize;
            let count = 2 + random.next((free - begin) as u64 - 1) as usize;
            Some(begin..begin + count)
        })
    }

    /// Says whether to do urgent work first, although none waits.
    pub(crate) fn interrupts(&self) -> bool {
        self.0.as_ref().is_some_and(|random| random.lock().chance(40))
    }

    /// Says whether to give the compaction up.
    pub(crate) fn gives_up(&self) -> bool {
        self.0.as_ref().is_some_and(|random| random.lock().chance(300))
    }
}

/// Returns everything about a store's state that its contract shows.
async fn seen(store: &dyn Store) -> Vec<String> {
    let mut all = Vec::new();
    for number in 1..60 {
        if let Some(page) = store.list(DirId(number), None, 1000).await.unwrap() {
            all.extend(page.items.iter().map(|entry| format!("{entry:?}")));
        }
    }
    all.extend(store.trash(None, 1000).await.unwrap().items.iter().map(|item| format!("{item:?}")));
    all.extend(
        store
            .reservations(None, 1000)
            .await
            .unwrap()
            .items
            .iter()
            .map(|reservation| format!("{reservation:?}")),
    );
    let mut of = vec![UsageOf::Directory(DirId::ROOT)];
    of.extend((0..4).map(|user| UsageOf::User(UserId(user))));
    for se in (1..4).map(SeNumber) {
        let deletions = store.deletions(se, None, 1000).await.unwrap().items;
        all.extend(deletions.iter().map(|deletion| format!("{se:?} {deletion:?}")));
        of.extend([UsageOf::Se(se), UsageOf::Deletions(se)]);
    }
    all.extend(store.usage(&of).await.unwrap().iter().map(|account| format!("{account:?}")));
    all
}

/// Goal: compaction is invisible. Method: the same requests go to the reference and to a store with
/// random freezing, compaction, interruption and giving up. All run in step, so that a seed fixes
/// everything. The whole states are compared again and again, and after reopening.
#[tokio::test]
async fn whatever_is_merged_when_the_state_is_that_of_the_reference() {
    let mut merged = 0;
    for chosen in seeds(12) {
        let seed = chosen.0;
        let mut random = Random(seed ^ 0x5eed);
        let (disk, mut workload) = (SimulatedDisk::new(), Workload::new(seed));
        let settings =
            || EmbeddedSettings { compaction_seed: Some(seed), memtable_rows: 1 << 20, ..settings() };
        let open =
            || EmbeddedStore::open_on(disk.shared(), settings(), Arc::new(TestClock::default())).unwrap();
        let (mut store, reference) = (open(), MemoryStore::new(Arc::new(TestClock::default())));
        for number in 0..60 {
            let request = workload.request();
            let outcomes = store.apply(request.clone()).await.unwrap();
            // The clocks advance independently; decisions do not depend on that.
            assert_eq!(outcomes, reference.apply(request).await.unwrap(), "request {number}");
            if random.chance(3) {
                let pending = store.ask(|reply| Command::Freeze { reply }).await.unwrap().unwrap();
                tokio::task::spawn_blocking(move || pending.wait_until_resting()).await.unwrap();
            }
            if random.chance(8) {
                compare(&*store, &reference).await;
            }
            if random.chance(25) {
                store.close().await.unwrap();
                drop(store);
                store = open();
            }
        }
        compare(&*store, &reference).await;
        assert_sound(&store).await;
        merged += store.status().await.unwrap().named_one("compactions_total").unwrap();
        let digest = store.digest().await.unwrap();
        drop(store);
        assert_eq!(open().digest().await.unwrap(), digest);
    }
    assert!(merged > 0, "nothing was merged");
}

/// Compares both, except times, which each takes from its own clock.
async fn compare(store: &dyn Store, reference: &dyn Store) {
    let without_times = |all: Vec<String>| -> Vec<String> {
        let is_time = |word: &str| word.contains("TimeMs(179");
        all.iter()
            .map(|text| text.split(", ").filter(|word| !is_time(word)).collect::<Vec<_>>().join(", "))
            .collect()
    };
    assert_eq!(without_times(seen(store).await), without_times(seen(reference).await));
}
