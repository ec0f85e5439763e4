//! The default engine, first stage: an append-only log, and in memory the state it describes.
//!
//! **The log is the truth; everything else is a view of it.** A request is *decided* against the state
//! (`decide`), its effects are *applied* to the state (`state::apply`) and appended to the log (`record`,
//! `segment`, `log`), all by one thread (`writer`); another (`committer`) syncs once for many requests and then answers. Readers
//! (`store`, `state::read`, `state::walk`) look at the state and answer when what they saw is durable
//! (`durability`); old changes are read from the log again (`history`). Opening (`open`) loads the last checkpoint (`checkpoint`) and applies the log after it; it never
//! decides again. All disk access goes through one narrow trait (`disk`).
//!
//! Being built, and used by nothing yet: sorted runs of packed pages (`page`, `run`), rows too new for a run (`memtable`),
//! all of them read as one, merged, and kept through power cuts (`table`, `manifest`).
//!
//! What this stage does not do: keep less than everything in memory, or write a checkpoint or run an audit without
//! holding up the writer (readers go on): some 0.4 s and 1.5 s per million entries. The log's format and the meaning of revisions are final; what is behind the state is not.
//!
//! ```text
//! DIRECTORY/CATALOGUE                 whose it is, and the layout's version
//! DIRECTORY/LOCK                      one process at a time
//! DIRECTORY/log/REVISION.log          segments, named by their first revision; never deleted
//! DIRECTORY/runs/NUMBER.run           sorted views of it; DIRECTORY/runs/manifest names those that count
//! DIRECTORY/snapshots/NAME/           hard links of both, as they were
//! DIRECTORY/set-aside/NUMBER/         what a restore took the place of
//! ```
#![forbid(unsafe_code)]

mod checkpoint;
mod committer;
mod decide;
mod defect;
pub mod disk;
mod durability;
mod figures;
mod history;
mod identity;
mod inspect;
mod keyspace;
mod log;
mod manifest;
mod memtable;
mod merger;
mod open;
mod page;
mod record;
mod run;
mod segment;
mod settings;
mod snapshot;
mod state;
mod store;
mod table;
mod writer;

pub use inspect::{Inspection, read_manifest, read_run, read_segment};
pub use settings::EmbeddedSettings;
pub use snapshot::{BackupInfo, BackupSource, Cloned, RestorePoint, RestoreProgress, Restored};
pub use store::EmbeddedStore;

#[cfg(test)]
mod tests;
