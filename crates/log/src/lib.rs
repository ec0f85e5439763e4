//! An append-only log: records in segments that are allocated beforehand, and the evidence of how far
//! it was durable.
//!
//! A record belongs to one request and has numbered changes, whose content this crate does not know.
//! Records of several requests form a commit group: one write, one sync. `docs/internals/log-format.md`
//! has every byte.
//!
//! - [`record`] encodes records, and [`segment`] judges the end of a file of them.
//! - [`Log`] appends, and prepares the next segment in the background.
//! - [`log_end`] keeps the evidence beside the log, and cuts off an end that was never durable.
//! - [`replay`] reads the whole log; [`SegmentReader`] reads single records, plain or archived.
//! - [`moment`] is the label of a snapshot of a log that is not the catalogue's.
//! - [`chain`] is a log whose records have one content each, as those beside the catalogue.
//! - [`content_log`] opens and appends to such a log.
//! - [`archive`] is the compressed form of a segment.
#![forbid(unsafe_code)]

pub mod archive;
pub mod chain;
pub mod content_log;
mod limits;
mod log;
pub mod log_end;
pub mod moment;
mod prepared;
pub mod record;
pub mod replay;
pub mod segment;
mod segment_file;
mod segment_reader;

pub use limits::{
    COMMIT_GROUP_BYTES_MAX, COPY_PIECE_BYTES, CUTS_KEPT_MAX, GROUP_WRITTEN_BYTES_MAX, INDEX_EVERY_BYTES,
    RECORD_BYTES_MAX, RECORD_SPLIT_BYTES,
};
pub use log::{Log, LogPlace, LogSettings, OpenedLog};
pub use prepared::Preparation;
pub use segment_file::{Form, Segment};
pub use segment_reader::SegmentReader;
