//! Comparison of a storage dump with the catalogue: dark and lost data, and files that differ.
//!
//! The dump and the catalogue's copies become records of one form: a path and a fact about it. They are
//! sorted by path, with bounded memory, and facts of one path are judged together. The sort is by a
//! hash of the path, since only neighbours count; listings are in the order of their paths.

mod apply;
mod classes;
mod dump;
mod guard;
mod join;
mod listings;
mod paths;
mod reading;
mod record;
mod side;
mod sorter;

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use exacat_model::{Revision, Se, SeName, TimeMs};
use tokio::sync::mpsc;

pub use apply::{Applied, adopt_dark, apply_state, state_for};
pub use classes::{Class, Earlier};
pub use dump::{DumpOptions, Form};
pub use guard::ApplyLimits;
pub use join::Counts;
pub use listings::{ClassPaths, LISTED, ListedPath, write_listing};
pub use paths::{PathRules, path_of};
pub use reading::{BadLine, DumpCounts};
pub use record::{CatalogueCopy, StoredFile, WaitingDeletion};
pub use side::{State, revision_at_time, storage_element};

use crate::catalogue::Catalogue;
use crate::error::Error;
use crate::input::{Input, refuse_utf16};
use crate::limits::{
    COMPARE_BATCHES_WAITING_MAX, COMPARE_MEMORY, COMPARE_MEMORY_MAX, COMPARE_MEMORY_MIN, COMPARE_PROGRESS_MS,
};
use crate::progress::Progress;
use classes::Judge;
use dump::DumpReader;
use join::{Joined, join};
use reading::{Reading, Shared};
use side::{Records, When, Window};
use sorter::{Order, Sorter};

/// Beginning of the window in which the dump was made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Beginning {
    /// A time.
    Time(TimeMs),
    /// A change.
    Revision(Revision),
}

/// Options of a comparison.
#[derive(Clone, Debug)]
pub struct CompareOptions {
    /// The storage element.
    pub se: SeName,
    /// Form of the dump's lines.
    pub dump: DumpOptions,
    /// Beginning of the dump's paths to remove.
    pub strip: Option<String>,
    /// Beginning to put before the rest.
    pub add: Option<String>,
    /// Beginning of the window; none if it is unknown, or given by a state.
    pub from: Option<Beginning>,
    /// Bytes of memory for sorting.
    pub memory: usize,
    /// Directory for temporary files.
    pub temporary: PathBuf,
    /// File for rejected lines.
    pub rejects: Option<PathBuf>,
    /// Collect the paths of each class for its listing.
    pub listed: bool,
    /// Collect the paths of this class for an application.
    pub applied: Option<Class>,
}

impl CompareOptions {
    /// Returns the defaults for a storage element.
    pub fn of(se: SeName, temporary: PathBuf) -> Self {
        CompareOptions {
            se,
            dump: DumpOptions::default(),
            strip: None,
            add: None,
            from: None,
            memory: COMPARE_MEMORY,
            temporary,
            rejects: None,
            listed: false,
            applied: None,
        }
    }
}

/// Result of a comparison.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CompareReport {
    /// Copies and bytes of each class.
    pub counts: Counts,
    /// Counts of the dump.
    pub dump: DumpCounts,
    /// Form of the dump's lines.
    pub form: Form,
    /// Copies in the later state, lost ones too.
    pub copies: u64,
    /// Copies that the storage should have.
    pub expected: u64,
    /// Copies that the storage has.
    pub matched: u64,
    /// Lines that repeat the path of another one.
    pub repeats: u64,
    /// Copies whose path another copy has too.
    pub shared: u64,
    /// Knowledge about the state before the dump.
    pub earlier: Earlier,
    /// Last change of the earlier state, if it is known.
    pub before: Option<Revision>,
    /// Last change of the later state.
    pub after: Revision,
    /// Notes for a person on what could not be decided, and why.
    pub notes: Vec<String>,
    /// Duration of the run.
    pub elapsed: Duration,
}

impl CompareReport {
    /// Refuses an application of a class beyond its limits.
    pub fn check_apply(&self, class: Class, limits: ApplyLimits) -> Result<(), Error> {
        guard::check_apply(class, &self.counts, &self.dump, self.expected, limits)
    }
}

/// A comparison, with the paths that it collected.
pub struct Compared {
    /// The report.
    pub report: CompareReport,
    /// The storage element.
    pub se: Se,
    /// Rules of its paths.
    pub rules: PathRules,
    /// Paths of each listed class.
    pub listed: Vec<(Class, ClassPaths)>,
    /// Paths of the class to apply.
    pub applied: Option<(Class, ClassPaths)>,
}

/// Compares a dump with a later state of the catalogue, and with an earlier one if there is one.
pub async fn compare<C: Catalogue>(
    after: &State<'_, C>,
    before: Option<&State<'_, C>>,
    input: &Input,
    options: &CompareOptions,
    mut progress: impl FnMut(&Progress) + Send,
) -> Result<Compared, Error> {
    let started = Instant::now();
    if !(COMPARE_MEMORY_MIN..=COMPARE_MEMORY_MAX).contains(&options.memory) {
        return Err(Error::options(format!(
            "the memory for sorting is between {} MiB and {} MiB",
            COMPARE_MEMORY_MIN >> 20,
            COMPARE_MEMORY_MAX >> 20
        )));
    }
    let se = storage_element(after.catalogue, &options.se).await?.se;
    let head = input.content_head()?;
    refuse_utf16(input.path(), &head)?;
    let reader = DumpReader::detect(&head, &options.dump)?;
    let form = reader.form();
    let rules = PathRules::new(&se, options.strip.as_deref(), options.add.as_deref());
    let shared = Shared::default();
    let sent = Arc::new(AtomicU64::new(0));
    let seed = random_seed()?;
    let reading = Reading {
        input: input.clone(),
        reader,
        rules: rules.clone(),
        sorter: Sorter::new(Order::Hash(seed), options.memory, &options.temporary),
        rejects: options.rejects.clone(),
        shared: shared.clone(),
    };
    let (sender, receiver) = mpsc::channel(COMPARE_BATCHES_WAITING_MAX);
    let mut sorting = tokio::task::spawn_blocking(move || reading.run(receiver));
    let shown = shared.clone();
    let sent_shown = Arc::clone(&sent);
    let total = input.size();
    let mut show = move |loading: bool| {
        let rows = shown.lines.load(Ordering::Relaxed) + sent_shown.load(Ordering::Relaxed);
        progress(&Progress {
            rows,
            rows_now: rows,
            bytes_read: shown.bytes.get(),
            bytes_total: total,
            rejected: shown.rejected.load(Ordering::Relaxed),
            loading,
            elapsed: started.elapsed(),
            ..Progress::default()
        });
    };
    let mut ticks = tokio::time::interval(Duration::from_millis(COMPARE_PROGRESS_MS));
    let sending = async {
        let sent = send(after, before, (&se, options), Records::new(sender, sent)).await;
        if sent.is_err() {
            shared.stop.store(true, Ordering::Relaxed);
        }
        sent
    };
    tokio::pin!(sending);
    let mut catalogue = None;
    let (sorter, dump) = loop {
        tokio::select! {
            sorted = &mut sorting => {
                match (catalogue.take(), sorted.map_err(|_| Error::Broken("sorting"))?) {
                    // The failure of the catalogue is the cause, that of the thread the consequence.
                    (Some(Err(error)), _) | (_, Err(error)) => return Err(error),
                    (done, Ok(sorted)) => {
                        catalogue = done;
                        break sorted;
                    }
                }
            }
            done = &mut sending, if catalogue.is_none() => catalogue = Some(done),
            _ = ticks.tick() => show(false),
        }
    };
    let sent = match catalogue {
        Some(sent) => sent?,
        None => return Err(Error::Broken("reading the catalogue")),
    };
    let judge = Judge { earlier: sent.earlier, from: sent.from, hidden: sent.hidden };
    let (collected, temporary) = ((options.listed, options.applied), options.temporary.clone());
    let mut joining =
        tokio::task::spawn_blocking(move || join(sorter.sorted()?, judge, collected, &temporary));
    let joined = loop {
        tokio::select! {
            joined = &mut joining => break joined.map_err(|_| Error::Broken("joining"))??,
            _ = ticks.tick() => show(true),
        }
    };
    guard::check_sane(&dump, (joined.matched, joined.expected), &joined.examples, options.se.as_str())?;
    let Joined { counts, matched, expected, repeats, shared, listed, applied, .. } = joined;
    let report = CompareReport {
        counts,
        dump,
        form,
        copies: sent.copies,
        expected,
        matched,
        repeats,
        shared,
        earlier: sent.earlier,
        before: sent.before,
        after: sent.after,
        notes: sent.notes,
        elapsed: started.elapsed(),
    };
    let listed = listed.into_iter().map(|(class, collector)| Ok((class, collector.paths()?)));
    let listed = listed.collect::<Result<_, Error>>()?;
    let applied =
        applied.map(|(class, collector)| Ok::<_, Error>((class, collector.paths()?))).transpose()?;
    Ok(Compared { report, se: se.clone(), rules, listed, applied })
}

fn random_seed() -> Result<u64, Error> {
    let mut seed = [0u8; 8];
    getrandom::fill(&mut seed).map_err(|_| Error::Broken("the system's source of randomness"))?;
    Ok(u64::from_le_bytes(seed))
}

/// Findings of the catalogue's side.
struct Sent {
    earlier: Earlier,
    from: Option<TimeMs>,
    before: Option<Revision>,
    after: Revision,
    copies: u64,
    hidden: bool,
    notes: Vec<String>,
}

/// Sends everything about the storage element to the sorting thread.
async fn send<C: Catalogue>(
    after: &State<'_, C>,
    before: Option<&State<'_, C>>,
    (se, options): (&Se, &CompareOptions),
    mut records: Records,
) -> Result<Sent, Error> {
    let begun = after.revision().await?;
    let from = match options.from {
        Some(Beginning::Time(time)) => Some(time),
        _ => None,
    };
    let mut sent = Sent {
        earlier: Earlier::Unknown,
        from,
        before: None,
        after: begun,
        copies: 0,
        hidden: false,
        notes: Vec::new(),
    };
    // The queue first: a copy whose deletion is done meanwhile is then known from it.
    after.in_flight(se, When::After, &mut records).await?;
    let listed = after.copies(se, When::After, &mut records).await?;
    sent.copies = listed.copies;
    sent.hidden = listed.hidden;
    if listed.hidden {
        sent.notes.push(
            "removed directories have copies that a server does not list: nothing is surely dark; compare a \
             snapshot (--after), or purge the trash"
                .to_owned(),
        );
    }
    // A listing from a server takes time, and changes meanwhile count as changes of the window.
    sent.after = after.revision().await?;
    let mut window = Window::default();
    let mut since = begun;
    if let Some(before) = before {
        let revision = before.revision().await?;
        if revision > begun {
            return Err(Error::options(format!(
                "the state before the dump (revision {}) is later than the one after it (revision {})",
                revision.0, begun.0
            )));
        }
        let earlier = storage_element(before.catalogue, &options.se).await?.se;
        before.copies(&earlier, When::Before, &mut records).await?;
        before.in_flight(&earlier, When::Before, &mut records).await?;
        window.prefix_changed = earlier.prefix != se.prefix;
        (sent.earlier, sent.before) = (Earlier::State, Some(revision));
    } else if let Some(beginning) = options.from {
        let revision = match beginning {
            Beginning::Revision(revision) if revision > begun => {
                return Err(Error::options(format!(
                    "the window begins at revision {}, after the end of the history at {}",
                    revision.0, begun.0
                )));
            }
            Beginning::Revision(revision) => Some(revision),
            Beginning::Time(time) => after.revision_at(time, begun).await?,
        };
        match revision {
            Some(revision) => {
                (sent.earlier, sent.before) = (Earlier::Changes, Some(revision));
                since = revision;
            }
            None => sent.notes.push(
                "the history does not reach back to the beginning of the window: what differs is undecided; compare \
                 with an earlier snapshot (--before)"
                    .to_owned(),
            ),
        }
    } else {
        sent.notes.push(
            "the state before the dump is unknown: what differs is undecided; give --before SNAPSHOT, or --from with \
             the time at which the dump began"
                .to_owned(),
        );
    }
    if since < sent.after {
        match after.send_touched(se, (since, sent.after), &mut records).await? {
            Some(found) => window = found.with(window),
            None => {
                sent.earlier = Earlier::Unknown;
                sent.notes.push(
                    "the history does not reach back to the beginning of the window: what differs is undecided; \
                     compare with an earlier snapshot (--before)"
                        .to_owned(),
                );
            }
        }
    }
    if window.prefix_changed {
        sent.earlier = Earlier::Unknown;
        sent.notes.push(
            "the prefix of the storage element changed during the window, and with it the paths: what differs is \
             undecided"
                .to_owned(),
        );
    }
    if window.unknown_deletions > 0 {
        sent.hidden = true;
        sent.notes.push(format!(
            "{} deletions were done during the window, and the history does not have their paths any more: nothing \
             is surely dark",
            window.unknown_deletions
        ));
    }
    records.flush().await?;
    Ok(sent)
}
