//! The other sides of a run: what origins and caches tell while it goes on, kept in its directory.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use exacat_disk::{RealDisk, read_text, replace_small};
use exacat_http::HttpClient;
use exacat_model::{Error, Result};
use exacat_replay::both_sides::events::{CacheRecord, EventKind};
use exacat_replay::both_sides::figures::{CacheAccount, CacheFigures};
use exacat_replay::both_sides::intake::IntakeCounts;
use exacat_replay::both_sides::origin::OriginCounters;
use exacat_replay::limits::{CACHED_FILES_MAX, CACHES_MAX, LABEL_BYTES_MAX};
use exacat_replay::report::series::{RateView, Rates};
use exacat_replay::report::views::{CacheFilesView, CacheView, OriginView};
use exacat_replay::run::live::Now;
use exacat_replay::run::shapes::{API, CinfoRequest, RunState};
use futures::future::join_all;
use hashbrown::HashMap;
use hyper::Method;
use parking_lot::Mutex;
use tokio::sync::{mpsc, watch};

use super::held_run::HeldRun;
use super::runs::Runs;
use crate::collector::{CollectedEvent, Collector};
use crate::limits::{SIDES_AFTER_US, TICK};

/// File of a run with what the other sides told.
const FILE: &str = "sides.json";
/// Name of the row with the counts of datagrams, if several caches send them.
const ALL_CACHES: &str = "(datagrams of all)";

/// Figures that the other sides of a run told.
#[derive(Clone, Debug, Default, serde::Serialize, serde::Deserialize)]
#[serde(default)]
struct RunSides {
    origins: BTreeMap<String, OriginView>,
    /// Counters of each origin up to which its figures go.
    counted: BTreeMap<String, OriginCounters>,
    caches: BTreeMap<String, CacheView>,
    /// States of the files of caches.
    files: BTreeMap<String, CacheFilesView>,
    datagrams: IntakeCounts,
}

/// Bytes of a cache over time.
struct CacheRates {
    asked: Rates,
    fetched: Rates,
}

/// A run's sides, and whether they changed since they were kept.
#[derive(Default)]
struct Held {
    sides: RunSides,
    origins: HashMap<String, Rates>,
    caches: HashMap<String, CacheRates>,
    is_changed: bool,
}

/// Caches that have sent records, whatever run they were of.
#[derive(Default)]
struct Caches {
    accounts: HashMap<Arc<str>, CacheAccount>,
    /// Counts of the collector when they were added to the runs.
    counted: IntakeCounts,
}

/// Origin whose counters are asked for.
struct AskedOrigin {
    client: HttpClient,
    /// Its last counters, if it answered. Locked while it is asked: older ones never come after newer ones.
    last: tokio::sync::Mutex<Option<OriginCounters>>,
}

/// See the module.
pub(crate) struct BothSides {
    /// Says whether records of caches are taken.
    collects: bool,
    origins: Vec<AskedOrigin>,
    caches: Mutex<Caches>,
    runs: Mutex<HashMap<String, Held>>,
    /// Locked while the files of the runs are written.
    keeping: tokio::sync::Mutex<()>,
}

/// Says whether what is told now belongs to a run: while it goes on, and for a time after its end, since
/// caches tell of a file after it is closed.
fn takes(run: &HeldRun) -> bool {
    let now = run.clock().now();
    run.read(|live| match live.state().0 {
        RunState::Running | RunState::Paused => true,
        RunState::Planned => false,
        RunState::Done | RunState::Stopped => {
            live.ended_at_us().is_some_and(|at| now.monotonic_us.saturating_sub(at) <= SIDES_AFTER_US)
        }
    })
}

/// Says whether agents name a server so: `host:port`, or its port on this machine.
fn is_named(agents_cache: &str, server: &str) -> bool {
    let place = agents_cache.split_once("://").map_or(agents_cache, |(_, rest)| rest);
    let place = place.split('/').next().unwrap_or_default();
    let (host, port) = place.rsplit_once(':').unwrap_or((place, "1094"));
    let (server_host, server_port) = server.rsplit_once(':').unwrap_or((server, ""));
    let is_here = matches!(host, "localhost" | "[::1]") || host.starts_with("127.");
    port == server_port && (is_here || host.eq_ignore_ascii_case(server_host))
}

/// Returns the caches that the agents of a run read from.
fn caches_of(run: &HeldRun) -> Vec<String> {
    run.read(|live| {
        let mut all: Vec<String> = live.queue().agents().map(|(name, ..)| name.cache.clone()).collect();
        all.sort_unstable();
        all.dedup();
        all
    })
}

/// Returns the growth of a figure.
fn grown(before: &CacheFigures, after: &CacheFigures, of: fn(&CacheFigures) -> u64) -> u64 {
    of(after).saturating_sub(of(before))
}

impl BothSides {
    pub(crate) fn new(collects: bool, origins: Vec<HttpClient>) -> Self {
        BothSides {
            collects,
            origins: origins
                .into_iter()
                .map(|client| AskedOrigin { client, last: tokio::sync::Mutex::default() })
                .collect(),
            caches: Mutex::default(),
            runs: Mutex::default(),
            keeping: tokio::sync::Mutex::default(),
        }
    }

    /// Returns the counts of the datagrams of all caches.
    pub(crate) fn counts(&self) -> IntakeCounts {
        self.caches.lock().counted
    }

    /// Returns for how many seconds records of a run that has ended may still come.
    pub(crate) fn records_may_come_s(&self, run: &HeldRun) -> u64 {
        let now = run.clock().now().monotonic_us;
        let ended = run.read(|live| live.ended_at_us());
        let since = ended.map_or(u64::MAX, |at| now.saturating_sub(at));
        if self.collects { SIDES_AFTER_US.saturating_sub(since).div_ceil(1_000_000) } else { 0 }
    }

    /// Returns the figures of caches and origins of a run.
    pub(crate) fn views(&self, name: &str, run: &HeldRun) -> (Vec<CacheView>, Vec<OriginView>) {
        let named = caches_of(run);
        let mut runs = self.runs.lock();
        let held = runs.entry(name.to_owned()).or_insert_with(|| Held::read(&run.directory));
        held.show_rates();
        let origins = held.sides.origins.values().cloned().collect();
        let by_agents = |name: &str| named.iter().find(|cache| is_named(cache, name));
        let is_first = |name: &str| by_agents(name).is_some();
        let has_first = held.sides.caches.keys().any(|name| is_first(name));
        let counts = &held.sides.datagrams;
        let with_counts = |view: CacheView| CacheView {
            datagrams: counts.datagrams,
            lost_datagrams: counts.lost,
            bad_datagrams: counts.garbage + counts.bad_records,
            ..view
        };
        let is_only = held.sides.caches.len() == 1;
        let mut caches: Vec<CacheView> = Vec::new();
        for (name, view) in &held.sides.caches {
            let shown = by_agents(name).filter(|of| *of != name);
            let view = CacheView {
                name: shown.unwrap_or(name).clone(),
                server: shown.map(|_| name.clone()),
                place: u32::from(has_first && !is_first(name)),
                ..view.clone()
            };
            caches.push(if is_only { with_counts(view) } else { view });
        }
        if !is_only && counts.datagrams > 0 {
            caches.push(with_counts(CacheView { name: ALL_CACHES.to_owned(), ..CacheView::default() }));
        }
        (caches, origins)
    }

    /// Returns the files of caches of a run.
    pub(crate) fn files(&self, name: &str, run: &HeldRun) -> Vec<CacheFilesView> {
        let mut runs = self.runs.lock();
        let held = runs.entry(name.to_owned()).or_insert_with(|| Held::read(&run.directory));
        held.sides.files.values().cloned().collect()
    }

    /// Takes the states of the files of a cache.
    ///
    /// # Errors
    /// Refuses names that are none, and too many caches.
    pub(crate) fn take_files(&self, name: &str, run: &HeldRun, request: CinfoRequest) -> Result<()> {
        let CinfoRequest { cache, mut sums } = request;
        if cache.is_empty() || cache.len() > LABEL_BYTES_MAX || cache.chars().any(char::is_control) {
            return Err(Error::invalid(format!(
                "the name of a cache has 1 to {LABEL_BYTES_MAX} bytes of text"
            )));
        }
        // Names are for the machine of the cache: the report has the numbers.
        sums.damaged_files.clear();
        let now = run.clock().now();
        let last_us = run.read(|live| live.elapsed_us(now));
        let mut runs = self.runs.lock();
        let held = runs.entry(name.to_owned()).or_insert_with(|| Held::read(&run.directory));
        let files = &mut held.sides.files;
        if files.len() >= CACHES_MAX && !files.contains_key(&cache) {
            return Err(Error::limit("the number of caches of a run", CACHES_MAX + 1, CACHES_MAX));
        }
        let new = || CacheFilesView { name: cache.clone(), first: sums.clone(), ..CacheFilesView::default() };
        let view = files.entry(cache.clone()).or_insert_with(new);
        (view.last, view.last_us) = (sums, last_us);
        held.is_changed = true;
        Ok(())
    }

    /// Passes the sides of each run that takes them on.
    fn each(&self, runs: &Runs, mut of: impl FnMut(&HeldRun, &mut Held)) {
        for (name, run) in runs.all() {
            if takes(&run) {
                let mut held = self.runs.lock();
                let held = held.entry(name).or_insert_with(|| Held::read(&run.directory));
                of(&run, held);
                held.is_changed = true;
            }
        }
    }

    /// Takes what caches send until the service ends.
    pub(crate) async fn collect(
        self: Arc<Self>,
        (collector, mut events): (Collector, mpsc::Receiver<CollectedEvent>),
        runs: Arc<Runs>,
        mut is_ending: watch::Receiver<bool>,
    ) {
        let mut ticks = tokio::time::interval(TICK);
        loop {
            tokio::select! {
                event = events.recv() => match event {
                    Some(event) => self.note_cache(&runs, event),
                    None => break,
                },
                _ = ticks.tick() => self.note_datagrams(&runs, &collector),
                _ = is_ending.changed() => break,
            }
        }
        self.note_datagrams(&runs, &collector);
        collector.stop().await;
    }

    /// Adds the datagrams since the last call, and the versions of caches.
    fn note_datagrams(&self, runs: &Runs, collector: &Collector) {
        let now = collector.counters().intake;
        let before = std::mem::replace(&mut self.caches.lock().counted, now);
        if now == before {
            return;
        }
        let servers = collector.servers();
        self.each(runs, |_, held| {
            let sum = &mut held.sides.datagrams;
            sum.datagrams += now.datagrams - before.datagrams;
            sum.lost += now.lost.saturating_sub(before.lost);
            sum.garbage += now.garbage - before.garbage;
            sum.bad_records += now.bad_records - before.bad_records;
            for server in &servers {
                if let Some(view) = held.sides.caches.get_mut(&server.name) {
                    view.version = Some(server.version.clone()).filter(|version| !version.is_empty());
                }
            }
        });
    }

    fn note_cache(&self, runs: &Runs, CollectedEvent { event, .. }: CollectedEvent) {
        let name = event.server.to_string();
        match event.kind {
            EventKind::Record(record) => {
                let (before, after) = {
                    let mut caches = self.caches.lock();
                    let new = || CacheAccount::new(CACHED_FILES_MAX);
                    let account = caches.accounts.entry(Arc::clone(&event.server)).or_insert_with(new);
                    let before = account.figures();
                    account.add(&record);
                    (before, account.figures())
                };
                self.note_record(runs, &name, &record, (&before, &after));
            }
            EventKind::Session(_) => self.each_of(runs, &name, |_, view| {
                view.requests = Some(view.requests.unwrap_or(0) + 1);
            }),
            EventKind::Renamed { from } => {
                let account = self.caches.lock().accounts.remove(&from);
                if let Some(account) = account {
                    self.caches.lock().accounts.insert(Arc::clone(&event.server), account);
                }
                self.each(runs, |_, held| {
                    if let Some(view) = held.sides.caches.remove(&*from) {
                        held.sides.caches.insert(name.clone(), CacheView { name: name.clone(), ..view });
                    }
                    if let Some(rates) = held.caches.remove(&*from) {
                        held.caches.insert(name.clone(), rates);
                    }
                });
            }
            EventKind::Restarted { .. } => self.each_of(runs, &name, |_, view| view.restarts += 1),
            EventKind::Sample(_) => {}
        }
    }

    /// Passes the view of a cache in each run that its records are of. Of several runs these are the ones
    /// whose agents read from it; all, if no agent names it.
    fn each_of(&self, runs: &Runs, name: &str, mut of: impl FnMut(&HeldRun, &mut CacheView)) {
        let names = |run: &HeldRun| caches_of(run).iter().any(|cache| is_named(cache, name));
        let taking: Vec<_> = runs.all().into_iter().filter(|(_, run)| takes(run)).collect();
        let is_split = taking.len() > 1 && taking.iter().any(|(_, run)| names(run));
        for (run_name, run) in taking {
            if is_split && !names(&run) {
                continue;
            }
            let mut held = self.runs.lock();
            let held = held.entry(run_name).or_insert_with(|| Held::read(&run.directory));
            let new = || CacheView { name: name.to_owned(), ..CacheView::default() };
            of(&run, held.sides.caches.entry(name.to_owned()).or_insert_with(new));
            held.is_changed = true;
        }
    }

    fn note_record(
        &self,
        runs: &Runs,
        name: &str,
        record: &CacheRecord,
        (before, after): (&CacheFigures, &CacheFigures),
    ) {
        let of = |of: fn(&CacheFigures) -> u64| grown(before, after, of);
        let fetched = of(|of| of.bytes_fetched);
        let (asked, bypass) = (record.bytes_asked(), record.bytes_bypass);
        let mut taken = Vec::new();
        self.each_of(runs, name, |run, view| {
            view.records += 1;
            view.records_hit += of(|of| of.sessions_hit);
            view.records_empty += of(|of| of.sessions_without_reads);
            view.access_count += 1;
            view.bytes_hit = view.bytes_hit.saturating_add(record.bytes_hit);
            view.bytes_miss = view.bytes_miss.saturating_add(record.bytes_miss);
            view.bytes_bypass = view.bytes_bypass.saturating_add(bypass);
            view.bytes_fetched = Some(view.bytes_fetched.unwrap_or(0).saturating_add(fetched));
            view.is_fetched_from_blocks |= record.bytes_to_disk.is_none();
            if let Some(bytes) = record.bytes_prefetched {
                view.bytes_prefetched = Some(view.bytes_prefetched.unwrap_or(0).saturating_add(bytes));
            }
            view.checksum_errors += record.checksum_errors;
            view.block_bytes = Some(record.block_bytes);
            let now = run.clock().now();
            let span = run.note(|live| {
                live.recent().add_cache(now.monotonic_us, asked, bypass);
                span_of(record, live.elapsed_us(now), now)
            });
            taken.push((run.name(), span));
        });
        let mut held = self.runs.lock();
        for (run, span) in taken {
            let Some(held) = held.get_mut(&run) else { continue };
            let new = || CacheRates { asked: Rates::new(), fetched: Rates::new() };
            let rates = held.caches.entry(name.to_owned()).or_insert_with(new);
            rates.asked.add(span, asked);
            rates.fetched.add(span, fetched);
        }
    }

    /// Asks the origins for their counters until the service ends.
    pub(crate) async fn ask_origins(self: Arc<Self>, runs: Arc<Runs>, mut is_ending: watch::Receiver<bool>) {
        if self.origins.is_empty() {
            return;
        }
        let mut ticks = tokio::time::interval(TICK);
        ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                _ = ticks.tick() => {}
                _ = is_ending.changed() => return,
            }
            self.ask_origins_once(&runs).await;
        }
    }

    async fn ask_origins_once(&self, runs: &Runs) {
        join_all(self.origins.iter().map(|AskedOrigin { client, last }| async move {
            let mut last = last.lock().await;
            let before = last.take();
            match client.json(Method::GET, &format!("{API}origin")).await {
                Ok(counters) => {
                    *last = Some(counters);
                    self.note_origin(runs, client.address(), before, counters);
                }
                Err(error) => tracing::debug!(%error, "an origin does not tell its counters"),
            }
        }))
        .await;
    }

    /// Asks the origins for a report of a run, which must have all that its clients have read. An origin that
    /// does not answer keeps nobody waiting for long.
    pub(crate) async fn ask_origins_for(&self, runs: &Runs, run: &HeldRun) {
        if takes(run) && tokio::time::timeout(TICK, self.ask_origins_once(runs)).await.is_err() {
            tracing::debug!("an origin does not tell its counters in time");
        }
    }

    /// Asks the origins at the start of a run, and keeps where its figures begin: they go on from there in
    /// another process, too.
    pub(crate) async fn begin(&self, runs: &Runs, name: &str, run: &HeldRun) {
        if self.origins.is_empty() {
            return;
        }
        let _ = tokio::time::timeout(TICK, self.ask_origins_once(runs)).await;
        let now = self.origins.iter().filter_map(|AskedOrigin { client, last }| {
            let last = last.try_lock().ok()?;
            last.map(|counters| (client.address().to_owned(), counters))
        });
        {
            let mut held = self.runs.lock();
            let held = held.entry(name.to_owned()).or_insert_with(|| Held::read(&run.directory));
            for (origin, counters) in now {
                held.sides.counted.entry(origin).or_insert(counters);
            }
            held.is_changed = true;
        }
        self.keep(runs).await;
    }

    fn note_origin(&self, runs: &Runs, name: &str, last: Option<OriginCounters>, now: OriginCounters) {
        self.each(runs, |run, held| {
            // A run that did not note its begin counts from the counters before these.
            let before = held.sides.counted.insert(name.to_owned(), now).or(last);
            let Some(before) = before else { return };
            let grown = |count| now.grown(&before, count);
            let (bytes, opens) = (grown(|of| of.bytes_out), grown(|of| of.opens));
            let (reads, errors) = (grown(OriginCounters::all_reads), grown(|of| of.errors.all()));
            let at = run.clock().now();
            let view = held
                .sides
                .origins
                .entry(name.to_owned())
                .or_insert_with(|| OriginView { name: name.to_owned(), ..OriginView::default() });
            view.opens += opens;
            view.reads += reads;
            view.bytes_out += bytes;
            view.errors += errors;
            let rates = held.origins.entry(name.to_owned()).or_insert_with(Rates::new);
            run.note(|live| {
                let end = live.elapsed_us(at);
                rates.add((end.saturating_sub(1_000_000), end), bytes);
                live.recent().add_origin(at.monotonic_us, bytes);
            });
        });
    }

    /// Keeps what changed in the directories of the runs.
    pub(crate) async fn keep(&self, runs: &Runs) {
        let _one_at_a_time = self.keeping.lock().await;
        for (name, run) in runs.all() {
            let text = {
                let mut held = self.runs.lock();
                let Some(held) = held.get_mut(&name).filter(|held| held.is_changed) else { continue };
                held.is_changed = false;
                held.show_rates();
                serde_json::to_vec(&held.sides)
            };
            let Ok(text) = text else { continue };
            let directory = run.directory.clone();
            let written =
                tokio::task::spawn_blocking(move || replace_small(&RealDisk, &directory, FILE, &text)).await;
            if let Ok(Err(error)) = written {
                tracing::warn!(run = name, %error, "cannot keep what caches and origins told");
            }
        }
    }
}

/// Returns the time of a record in the time of the run: the cache tells the date in seconds.
fn span_of(record: &CacheRecord, elapsed_us: u64, now: Now) -> (u64, u64) {
    let at = |seconds: u64| {
        let ago = now.date_us.saturating_sub(seconds.saturating_mul(1_000_000));
        elapsed_us.saturating_sub(ago)
    };
    let (from, to) = (at(record.attached), at(record.detached));
    (from.min(to), to)
}

impl Held {
    /// Reads what an earlier process kept. These are figures, not results: a damaged file counts as none.
    fn read(directory: &Path) -> Held {
        let text = read_text(&RealDisk, &directory.join(FILE)).ok().flatten();
        let sides = text.and_then(|text| match serde_json::from_str(&text) {
            Ok(sides) => Some(sides),
            Err(error) => {
                tracing::warn!(%error, directory = %directory.display(), "what caches told is unreadable");
                None
            }
        });
        let sides: RunSides = sides.unwrap_or_default();
        let rates = |of: &Option<RateView>| of.clone().map_or_else(Rates::new, Rates::of);
        let origins =
            sides.origins.iter().map(|(name, view)| (name.clone(), rates(&view.out_over_time))).collect();
        let of_cache = |view: &CacheView| CacheRates {
            asked: rates(&view.asked_over_time),
            fetched: rates(&view.fetched_over_time),
        };
        let caches = sides.caches.iter().map(|(name, view)| (name.clone(), of_cache(view))).collect();
        Held { sides, origins, caches, is_changed: false }
    }

    /// Puts what happened over time into the figures.
    fn show_rates(&mut self) {
        for (name, view) in &mut self.sides.origins {
            view.out_over_time = self.origins.get(name).map(Rates::view);
        }
        for (name, view) in &mut self.sides.caches {
            let rates = self.caches.get(name);
            view.asked_over_time = rates.map(|rates| rates.asked.view());
            view.fetched_over_time = rates.map(|rates| rates.fetched.view());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn caches_are_matched_by_the_names_that_agents_use() {
        for (agents, server, expected) in [
            ("root://c1.example.org:1094", "c1.example.org:1094", true),
            ("root://C1.example.org//data", "c1.example.org:1094", true),
            ("https://c1.example.org:8443/x", "c1.example.org:1094", false),
            ("root://c2.example.org:1094", "c1.example.org:1094", false),
            ("root://127.0.0.1:4321", "vm:4321", true),
            ("root://localhost:4321", "vm:4322", false),
            ("", "vm:1094", false),
        ] {
            assert_eq!(is_named(agents, server), expected, "{agents} {server}");
        }
    }

    #[test]
    fn times_of_records_are_those_of_the_run() {
        let now = Now { monotonic_us: 0, date_us: 1_000_000_000 };
        let record = CacheRecord { attached: 990, detached: 998, ..CacheRecord::default() };
        assert_eq!(span_of(&record, 20_000_000, now), (10_000_000, 18_000_000));
        // A cache whose clock is wrong, and one that had the file open before the run.
        let record = CacheRecord { attached: 1, detached: 5000, ..CacheRecord::default() };
        assert_eq!(span_of(&record, 20_000_000, now), (0, 20_000_000));
    }
}
