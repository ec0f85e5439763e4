//! The default engine, first stage: an append-only log, and in memory the state it describes.
//!
//! **The log is the truth; everything else is a view of it.** A request is *decided* against the state
//! (`decide`), its effects are *applied* to the state (`state::apply`) and appended to the log (`record`,
//! `segment`, `log`), all by one thread (`writer`); another (`committer`) syncs once for many requests and then answers. Readers
//! (`store`, `state::read`, `state::walk`) look at the state and answer when what they saw is durable
//! (`durability`); old changes are read from the log again (`history`), whose sealed segments a thread in the background
//! compresses, and removes when they are not to be kept any longer (`archive`). Opening (`open`) loads the last checkpoint (`checkpoint`) and applies the log after it; it never
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
//! DIRECTORY/log/REVISION.log          segments, named by their first revision
//! DIRECTORY/log/REVISION.logz         segments that are sealed and compressed
//! DIRECTORY/checkpoints/REVISION.checkpoint
//! ```
#![forbid(unsafe_code)]

mod archive;
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
mod segment_reader;
mod settings;
mod state;
mod store;
mod table;
mod writer;

pub use inspect::{Inspection, read_manifest, read_run, read_segment};
pub use settings::{EmbeddedSettings, HistoryKept};
pub use store::EmbeddedStore;

#[cfg(test)]
mod tests;
