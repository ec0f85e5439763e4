//! The writer's part of a bulk load. It decides the sorted files one after the other, puts them
//! into the log, and passes their rows to the compactor, which makes a run of them meanwhile.
//!
//! ```text
//!   record by record:  decide · encode · add up     group full ─► committer
//!                                                   block full ─► compactor
//!   run by run:        all of it durable in the log ─► memory-only state, as rows
//!                      ─► compactor: the run counts
//! ```

use std::collections::HashSet;
use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use exacat_disk::{cannot_write, random_u64};
use exacat_log::record::{Head, RecordWriter};
use exacat_log::{COMMIT_GROUP_BYTES_MAX, RECORD_SPLIT_BYTES};
use exacat_model::limits::DEPTH_MAX;
use exacat_model::{
    DirId, Error, ErrorKind, Fingerprint, GroupId, OperationId, QuotaOf, RecordKind, Result, SeNumber, UserId,
};
use exacat_store::rules::would_exceed;
use xxhash_rust::xxh3::xxh3_128_with_seed;

use super::row::Placed;
use super::sorter::Sorted;
use super::twice::Repeated;
use super::{LoadWork, Loader, Piece, Taken, Total};
use crate::compactor::RunLoad;
use crate::defect::Defect;
use crate::run::{Cache, Reading};
use crate::settings::{LOAD_BLOCK_BYTES, LOAD_CHANGES_PER_RECORD, LOAD_SWITCHED_OFF};
use crate::state::{Gathered, Item, State};
use crate::table::{Version, View};
use crate::writer::Writer;

/// Decides whether a file is plain.
struct Judge {
    /// Runs at the begin of the load. Runs of the load itself need no search.
    version: Arc<Version>,
    cache: Arc<Cache>,
    /// Owners and groups whose files would exceed a quota, so that the order of the files matters.
    owners: HashSet<UserId>,
    groups: HashSet<GroupId>,
    repeated: Repeated,
    /// Says, by SE number, whether replicas may be put there without further checks.
    ses: Vec<bool>,
    /// True if there are upload reservations.
    reservations: bool,
    here: Here,
}

/// Directory of the present files.
struct Here {
    directory: DirId,
    /// True if files may be created in it.
    open: bool,
    /// True if it was empty at the begin of the load.
    empty: bool,
    /// Name of the file before.
    name: Vec<u8>,
    /// Sum of files in it that are not counted yet.
    gathered: Gathered,
}

impl Judge {
    fn new(state: &State, repeated: Repeated, totals: &[Total]) -> Self {
        let mut ses = vec![false; usize::from(u16::MAX) + 1];
        for record in state.records_of(RecordKind::Se) {
            if let exacat_model::Record::Se(se) = record {
                // A queued deletion there may be for a copy that a file gets.
                let plain =
                    state.accounts.ses.get(&se.number).is_none_or(|account| account.has_no_deletions());
                ses[usize::from(se.number.0)] = plain;
            }
        }
        ses[usize::from(SeNumber::NONE.0)] = false;
        let (mut owners, mut groups) = (HashSet::new(), HashSet::new());
        for total in totals {
            // A quota of a user covers all groups, and one of a group all owners, so totals are
            // summed over the other.
            let sum = |same: &dyn Fn(&Total) -> bool| {
                let mut usage = exacat_model::Usage::default();
                totals.iter().filter(|other| same(other)).for_each(|other| usage.add(&other.usage));
                usage
            };
            let of = QuotaOf::User(total.owner);
            if would_exceed(state, of, || sum(&|other| other.owner == total.owner)) {
                owners.insert(total.owner);
            }
            let of = QuotaOf::Group(total.group);
            if would_exceed(state, of, || sum(&|other| other.group == total.group)) {
                groups.insert(total.group);
            }
        }
        let here = Here {
            directory: DirId(0),
            open: false,
            empty: false,
            name: Vec::new(),
            gathered: Gathered::default(),
        };
        let reservations = state.has_reservations();
        let (version, cache) = (Arc::clone(state.table.version()), Arc::clone(state.table.cache()));
        Judge { version, cache, owners, groups, repeated, ses, reservations, here }
    }

    /// Says whether to create this file. Called once for each file.
    fn takes(&mut self, state: &mut State, file: &Placed<'_>) -> std::result::Result<bool, Defect> {
        let parent = file.parent();
        if parent != self.here.directory {
            self.count(state)?;
            self.here.directory = parent;
            self.here.open = state.is_alive(parent) && state.depth(parent) < DEPTH_MAX;
            self.here.empty = state.is_empty_directory(parent);
        } else if file.name == self.here.name {
            // The outcome depends on that of the file before.
            return Ok(false);
        }
        self.here.name.clear();
        self.here.name.extend_from_slice(file.name);
        let guid = file.guid();
        if !self.here.open
            || self.owners.contains(&file.owner())
            || self.groups.contains(&file.group())
            || !file.places().all(|(se, _)| self.ses[usize::from(se.0)])
            || self.repeated.has(guid)
            || (self.reservations && state.reservation(guid).is_some())
        {
            return Ok(false);
        }
        let reading = Reading::waiting(&self.cache);
        let view = View { active: None, frozen: &[], version: &self.version, reading };
        Ok((self.here.empty || !view.has(parent, file.name)?) && !view.has_guid(guid)?)
    }

    /// Counts the files that came into the directory so far.
    fn count(&mut self, state: &mut State) -> std::result::Result<(), Defect> {
        state.count_files(self.here.directory, &mut self.here.gathered)
    }
}

/// State of a load in progress.
struct Feed<'f> {
    sorted: Sorted,
    judge: Judge,
    who: UserId,
    left: &'f mut (dyn FnMut(u64) + Send),
    /// First operation id of the load; records count on from it.
    operation: u128,
    /// Maximum rows of one run.
    run_rows: u64,
    /// Number of files not decided yet.
    to_come: u64,
    /// Rows on their way to the compactor.
    block: Vec<u8>,
    run: Option<RunLoad>,
    /// Rows of the run so far.
    rows: u64,
}

/// Reasons why a record ended.
enum Pause {
    /// The record has its maximum number of changes.
    Record,
    /// The reserved space is too short for these bytes.
    NeedsSpace(usize),
    /// The run is full, or there are no more files.
    Run,
}

fn unreadable(error: io::Error) -> Error {
    Error::new(ErrorKind::Unavailable, format!("cannot read the sorted rows of a load: {error}"))
}

impl Writer {
    /// Carries out a load and answers it.
    pub(crate) fn load(&mut self, work: LoadWork) {
        let LoadWork { loader, who, mut left, reply } = work;
        let loaded = self.try_load(&loader, who, &mut *left);
        // The temporary files go before the answer is sent.
        drop(loader);
        let _gone = reply.send(loaded);
    }

    fn try_load(&mut self, loader: &Loader, who: UserId, left: &mut (dyn FnMut(u64) + Send)) -> Result<u64> {
        self.flush_all()?;
        let fresh = Loader::taken_of(&loader.disk, &loader.directory, loader.settings);
        let Taken { sorter, twice, totals } = std::mem::replace(&mut *loader.taken.lock(), fresh);
        let to_come = sorter.len();
        if to_come == 0 {
            return Ok(0);
        }
        let wrong = |error| cannot_write(&loader.directory, &error);
        let (sorted, repeated) = std::thread::scope(|scope| {
            let repeated = scope.spawn(|| twice.finish());
            let sorted = sorter.finish();
            (sorted, repeated.join())
        });
        let broken = || Error::new(ErrorKind::Internal, "internal error: sorting for a load ended");
        let repeated = repeated.map_err(|_| broken())?.map_err(wrong)?;
        let sorted = sorted.map_err(wrong)?;
        let judge = {
            let mut state = self.shared.state.write();
            state.switched_off = Some(LOAD_SWITCHED_OFF);
            Judge::new(&state, repeated, &totals)
        };
        // The next records' ids differ only in their random part.
        let mut random = [0; 10];
        random[..8].copy_from_slice(&random_u64()?.to_le_bytes());
        let operation = u128::from_be_bytes(OperationId::new(self.clock.trusted(), random).0);
        let run_rows = loader.settings.run_rows;
        let (block, run, rows) = (Vec::new(), None, 0);
        let mut feed = Feed { sorted, judge, who, left, operation, run_rows, to_come, block, run, rows };
        let loaded = self.feed_all(&mut feed);
        match &loaded {
            Ok(_) => self.shared.state.write().switched_off = None,
            Err(error) => {
                // The log may have changes that this state lacks. Only a new opening has all of
                // them.
                let why = format!("a load ended in its middle: {error}");
                self.shared.fail(&why);
                self.shared.close(&why);
            }
        }
        loaded
    }

    fn feed_all(&mut self, feed: &mut Feed<'_>) -> Result<u64> {
        let mut loaded = 0;
        while feed.sorted.current().is_some() {
            loop {
                match self.feed_record(feed)? {
                    Pause::Record => {}
                    Pause::NeedsSpace(bytes) => self.make_space(bytes).map_err(unavailable)?,
                    Pause::Run => break,
                }
                if self.group.bytes.len() >= COMMIT_GROUP_BYTES_MAX {
                    self.flush();
                }
            }
            loaded += feed.rows;
            self.shared.metrics.loaded.fetch_add(feed.rows, Ordering::Relaxed);
            self.end_run(feed)?;
        }
        Ok(loaded)
    }

    /// Decides files for one record, and puts it into the group.
    fn feed_record(&mut self, feed: &mut Feed<'_>) -> Result<Pause> {
        let shared = Arc::clone(&self.shared);
        let mut state = shared.state.write();
        let time = self.clock.trusted().max(state.time);
        let mut revision = state.revision;
        let mut record: Option<RecordWriter> = None;
        let (mut digest, mut count) = (0u128, 0u32);
        let pause = loop {
            let Some(file) = feed.sorted.current() else { break Pause::Run };
            if feed.rows >= feed.run_rows {
                break Pause::Run;
            }
            if count >= LOAD_CHANGES_PER_RECORD {
                break Pause::Record;
            }
            // Space for the file is checked before it is decided.
            let bytes = RecordWriter::EMPTY_BYTES + RecordWriter::bytes_of(file.bytes.len() + 32);
            let long =
                record.as_ref().is_some_and(|one| one.bytes(&self.group.bytes) + bytes >= RECORD_SPLIT_BYTES);
            if long {
                break Pause::Record;
            }
            if !self.log.fits(self.group.bytes.len() + bytes) {
                break Pause::NeedsSpace(bytes);
            }
            feed.to_come = feed.to_come.saturating_sub(1);
            if !feed.judge.takes(&mut state, &file)? {
                (feed.left)(file.number());
                feed.sorted.advance().map_err(unreadable)?;
                continue;
            }
            revision.0 += 1;
            file.effect(revision, time, &mut self.effect);
            let writer = record.get_or_insert_with(|| {
                feed.operation = feed.operation.wrapping_add(1);
                let operation = OperationId(feed.operation.to_be_bytes());
                if self.group.bytes.is_empty() {
                    self.group.first_revision = revision;
                }
                self.operations.remember(operation, revision, time);
                let (fingerprint, who) = (Fingerprint::UNKNOWN, feed.who);
                let head = Head { first_revision: revision, time, operation, fingerprint, who, count: 0 };
                RecordWriter::begin(&mut self.group.bytes, head)
            });
            writer.add(&mut self.group.bytes, count, &self.effect);
            count += 1;
            digest = digest.wrapping_add(xxh3_128_with_seed(&self.effect[1..], Item::Entry as u64));
            feed.judge.here.gathered.add(&file);
            feed.block.extend_from_slice(&revision.0.to_le_bytes());
            feed.block.extend_from_slice(&time.0.to_le_bytes());
            feed.block.extend_from_slice(file.bytes);
            feed.rows += 1;
            feed.sorted.advance().map_err(unreadable)?;
        };
        if let Some(record) = record {
            record.end(&mut self.group.bytes, self.log.salt());
            state.came(revision, time, u64::from(count), digest);
        }
        // Directories change while files come, and are written behind them.
        let resident = state.resident_changed() as u64;
        drop(state);
        if feed.block.len() >= LOAD_BLOCK_BYTES {
            self.send_block(feed, resident)?;
        }
        Ok(pause)
    }

    fn send_block(&mut self, feed: &mut Feed<'_>, resident: u64) -> Result<()> {
        if feed.block.is_empty() {
            return Ok(());
        }
        let run = match &mut feed.run {
            Some(run) => run,
            run => {
                let rows = (feed.rows + feed.to_come).min(feed.run_rows);
                run.insert(self.compactor.load(rows + resident))
            }
        };
        let next = Vec::with_capacity(feed.block.len() + feed.block.len() / 8);
        run.give(Piece::Rows(std::mem::replace(&mut feed.block, next)))
    }

    /// Completes the run, once all of it is durable in the log.
    fn end_run(&mut self, feed: &mut Feed<'_>) -> Result<()> {
        if feed.rows == 0 {
            return Ok(());
        }
        let resident = {
            let mut state = self.shared.state.write();
            feed.judge.count(&mut state)?;
            state.resident_changed() as u64
        };
        self.send_block(feed, resident)?;
        self.wait_until_durable();
        if let Some(why) = self.failure() {
            return Err(unavailable(why.to_string()));
        }
        let frozen = self.shared.state.write().freeze(&self.operations, self.frozen);
        self.frozen = frozen.revision;
        self.shared.metrics.set_operations_from(frozen.operations_from);
        feed.rows = 0;
        match feed.run.take() {
            Some(run) => run.end(Piece::End(Box::new(frozen))),
            None => Err(Error::new(ErrorKind::Internal, "a load has rows, and nobody took them")),
        }
    }
}

fn unavailable(why: String) -> Error {
    Error::new(ErrorKind::Unavailable, why)
}
