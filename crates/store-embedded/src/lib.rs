//! The default engine: a log, and sorted runs of packed pages.
//!
//! **The log is the truth; everything else is a view of it.** A request is *decided* against the state (`decide`), its
//! effects are *applied* to the state (`state::apply`) and appended to the log (`record`, `segment`, `log`), all by one
//! thread (`writer`); another (`committer`) syncs once for many requests and then answers.
//!
//! ```text
//!  requests ─► writer: decide, apply, encode ─► committer: one write, one sync ─► answers
//!                          │
//!                          ▼ rows (keyspace)
//!                     memtable ── full ──► merger: run (pages, filters, GUID index) ─► merged runs ─► …
//!                          ▲                  ▲              named by the manifest
//!  reads ──────────────────┴──────────────────┘
//! ```
//! The state (`state`) keeps in memory what is few: directories, accounts, records, bookings; entries and the rest are rows of
//! one table (`table`): the newest in memory (`memtable`), the others in runs (`run`) of pages (`page`), which a thread writes
//! and merges (`merger`). Readers (`store`, `state::read`, `state::walk`) look things up (`state::lookup`) and answer when what
//! they saw is durable (`durability`); old changes are read from the log again (`history`), whose sealed segments a thread in
//! the background compresses, and removes when they are not to be kept any longer (`archive`). Opening (`open`) reads what the
//! manifest names, and applies the log after it; it never decides again. All disk access goes through one narrow trait
//! (`disk`).
//!
//! ```text
//! DIRECTORY/CATALOGUE                 whose it is, and the layout's version
//! DIRECTORY/LOCK                      one process at a time
//! DIRECTORY/log/REVISION.log          segments, named by their first revision
//! DIRECTORY/log/REVISION.logz         segments that are sealed and compressed
//! DIRECTORY/log/END                   how far the log was durable, a moment ago
//! DIRECTORY/log/cut-…                 ends of the log that formed no whole commit group
//! DIRECTORY/runs/NUMBER.run           runs
//! DIRECTORY/runs/manifest             which of them count, and up to which revision they have everything
//! DIRECTORY/snapshots/NAME/           hard links of both, as they were
//! DIRECTORY/load/                     files that wait to be loaded, while they are being sorted
//! DIRECTORY/operations/               sorted operation ids of the log, while the process that needed them lives
//! DIRECTORY/set-aside/NUMBER/         what a restore took the place of
//! ```
#![forbid(unsafe_code)]

mod archive;
mod checked_text;
mod checkpoint;
mod committer;
mod decide;
mod decode;
mod defect;
pub mod disk;
mod durability;
mod figures;
mod header;
mod history;
mod identity;
mod inspect;
mod keyspace;
mod load;
mod log;
mod log_end;
mod manifest;
mod memtable;
mod merger;
mod older;
mod open;
mod page;
mod prepared;
mod record;
mod repair;
mod run;
mod segment;
mod segment_reader;
mod settings;
mod snapshot;
mod standby;
mod state;
mod store;
mod table;
mod takeover;
mod writer;

pub use decode::{read_page, read_row, read_text};
pub use inspect::{Inspection, read_manifest, read_run, read_segment};
pub use load::{LoadSettings, Loader};
pub use repair::{RepairOptions, RepairProgress, Repaired};
pub use settings::{EmbeddedSettings, HistoryKept};
pub use snapshot::{BackupInfo, BackupSource, Cloned, RestorePoint, RestoreProgress, Restored};
pub use store::EmbeddedStore;

#[cfg(test)]
mod tests;
