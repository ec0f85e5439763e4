//! Followers: stores that repeat the log of another one, their source, byte for byte.
//!
//! A follower begins with a copy of files that the source fixes, and then appends the records of the
//! source's log. It applies them as a replay does, so its state is the source's at that revision. Its
//! segments have the headers, the offsets and the bytes of the source's; another follower can therefore
//! follow it in turn. The sorted runs of both differ.
//!
//! * `frames`: the form of a piece of the log between the two
//! * `piece`: reading pieces of a log
//! * `fixed`: fixing the files of a store
//! * `append`: the writer of a follower
//! * `tail`: the end of a follower's log after a power cut
//! * `marker`: the file FOLLOWS, which says that a directory is a follower's
//! * `files`: receiving a copy, and switching to it

mod append;
mod files;
mod fixed;
mod frames;
mod marker;
mod piece;
mod tail;

pub use files::{FileInTransit, FollowerFiles};
pub(crate) use fixed::Fixed;
pub use marker::Following;
pub(crate) use marker::{check, is_superseded_by, supersede, superseded};
pub use piece::offset_after;
pub(crate) use piece::piece;
pub(crate) use tail::cut_tail;
