//! The default engine: a log, and sorted runs of packed pages.
//!
//! **The log is the truth; everything else is a view of it.** One thread (`writer`) does three
//! things with a request:
//!
//! - It *decides* the request against the state by the rules of the contract ([`exacat_store::rules`]).
//! - It *applies* the effects to the state (`state::apply`).
//! - It appends the effects to the log (`record`, `segment`, `log`).
//!
//! A second thread (`committer`) syncs once for many requests and then answers them.
//!
//! ```text
//!  requests ─► writer: decide, apply, encode ─► committer: one write, one sync ─► answers
//!                          │
//!                          ▼ rows (keyspace)
//!                     memtable ── full ──► compactor: run (pages, filters, GUID index) ─► merged runs ─► …
//!                          ▲                  ▲              named by the manifest
//!  reads ──────────────────┴──────────────────┘
//! ```
//! The state (`state`) keeps small tables in memory: directories, accounts, records, upload
//! reservations. Entries and the rest are rows of one table (`table`). The newest rows are in
//! memory (`memtable`), the others in sorted runs (`run`) of pages (`page`). The compactor thread
//! (`compactor`) writes and merges the runs.
//!
//! Readers (`store`, `state::read`, `state::resolve`) look rows up (`state::lookup`). They answer once
//! the state that they saw is durable (`durability`). Old changes are read from the log again
//! (`history`). A background thread compresses sealed log segments and removes those beyond the
//! retention (`archive`).
//!
//! Opening (`recovery`) loads the runs in the manifest and applies the log after them. It never decides
//! again. All disk access uses one narrow trait (`disk`).
//!
//! ```text
//! DIRECTORY/CATALOGUE                 identity of the catalogue, and the layout's version
//! DIRECTORY/LOCK                      lock against a second process
//! DIRECTORY/log/REVISION.log          log segments, named by their first revision
//! DIRECTORY/log/REVISION.logz         sealed and compressed log segments
//! DIRECTORY/log/END                   how far the log was durable a moment ago
//! DIRECTORY/log/cut-…                 ends of the log that formed no whole commit group
//! DIRECTORY/runs/NUMBER.run           sorted runs
//! DIRECTORY/runs/manifest             the runs that count, and the revision up to which they are complete
//! DIRECTORY/snapshots/NAME/           hard links of segments and runs, as they were
//! DIRECTORY/load/                     files of a bulk load while they are sorted
//! DIRECTORY/operations/               sorted operation ids of the log, while their process lives
//! DIRECTORY/FOLLOWS                   source of a follower
//! DIRECTORY/PROMOTED                  source of a follower before it was promoted
//! DIRECTORY/SUPERSEDED                server that was promoted in place of this one
//! DIRECTORY/copying/                  files of a copy of the source, until they are whole
//! DIRECTORY/replaced/NUMBER/          replaced copy: the catalogue before a restore
//! ```
#![forbid(unsafe_code)]

mod answering;
mod archive;
mod blocking;
mod changes;
mod checked_text;
mod command;
mod committer;
mod compactor;
mod companion;
mod decode;
mod defect;
mod durability;
mod filtered;
mod follow;
mod history;
mod identity;
mod inspect;
mod keyspace;
mod load;
mod log_end_check;
mod manifest;
mod memtable;
mod metric_table;
mod metrics;
mod older;
mod page;
mod recovery;
mod repair;
mod replay;
mod run;
mod settings;
mod shared;
mod snapshot;
mod standby;
mod standbys;
mod state;
mod store;
mod table;
mod takeover;
mod writer;

pub use blocking::on_blocking_thread;
pub use companion::{COMPANION, Companion, CompanionRestore, FinishPart};
pub use decode::{read_manifest, read_page, read_row, read_run, read_segment, read_text};
pub use filtered::{
    FilteredDifference, FilteredInside, FilteredMark, FilteredReached, FilteredRows, FilteredStep,
};
pub use follow::{FileInTransit, FollowerFiles, Following, offset_after};
pub use inspect::Inspection;
pub use load::{LoadSettings, Loader};
pub use metric_table::METRICS;
pub use repair::{RepairOptions, RepairProgress, Repaired};
pub use settings::{EmbeddedSettings, HistoryKept};
pub use snapshot::{BackupInfo, BackupSource, Cloned, RestorePoint, RestoreProgress, Restored};
pub use standbys::StandbySettings;
pub use store::EmbeddedStore;

#[cfg(test)]
mod tests;
