//! The vocabulary of the catalogue: its types, and how they are read, printed, checked and encoded.
//!
//! This crate has no I/O, no clock and no randomness: each function depends only on its input.
//! Every other crate uses these types. None of them depends on a store, a protocol or a session.

pub mod account;
pub mod answer;
mod arguments;
pub mod change;
pub mod checksum;
pub mod codec;
pub mod consistency;
mod cursor;
pub mod element;
pub mod entry;
pub mod error;
pub mod expansion;
pub mod feed;
pub mod guid;
mod hex;
pub mod history;
pub mod lfn;
pub mod limits;
mod measured;
pub mod mutation;
pub mod operation;
mod operation_table;
pub mod past;
pub mod period;
pub mod pfn;
pub mod query;
pub mod registry;
pub mod se;
pub mod snapshot;
pub mod tag;
pub mod time;
pub mod timeline;
mod whereis;

pub use account::{AccountName, Group, GroupId, Mode, Quota, QuotaOf, Role, Token, TokenId, User, UserId};
pub use answer::{Answer, Audit, Finding};
pub use change::{Change, Deletion, Effect, FieldChange, Previous, TrashItem};
pub use checksum::{Checksum, ChecksumAlgorithm, Checksums};
pub use consistency::Consistency;
pub use cursor::Cursor;
pub use entry::{
    At, Body, DirId, Entry, EntryId, File, Kind, Location, Replica, ReplicaState, Revision, Usage,
};
pub use error::{Error, ErrorKind, Result};
pub use feed::{AfterRestore, Feed, FeedAction, FeedName, FeedSpec, FeedStart, FeedState};
pub use guid::Guid;
pub use history::{FieldRef, FieldType, FieldValue, GroupName, GroupSettings, TimeNs};
pub use lfn::{Lfn, Name};
pub use measured::Measured;
pub use mutation::{
    DeletionId, Edit, Expect, ExpectRecord, Fingerprint, Mutation, NewBody, NewEntry, OperationId,
    PurgeTarget, Reservation, ReservedReplica, TrashId,
};
pub use operation::{FileRef, Operation};
pub use past::{Past, PastPoint};
pub use pfn::Pfn;
pub use query::{Comparison, Filter, Matcher, Pattern, TagExpression};
pub use registry::{Record, RecordKey, RecordKind};
pub use se::{Se, SeName, SeNumber, SeStatus};
pub use snapshot::{
    BackupProgress, Difference, EntryAt, Snapshot, SnapshotCheck, SnapshotElements, SnapshotName,
};
pub use tag::{Tag, TagKey, TagValue};
pub use time::{Civil, TimeMs};
pub use timeline::{HasRevision, LogPosition, OnTimeline, Timeline, TimelineId, TimelineTag, Timelines};
