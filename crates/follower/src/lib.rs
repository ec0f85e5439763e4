//! Followers: read-only copies of a catalogue that repeat the log of their source.
//!
//! - [`protocol`] is what the two say to each other over HTTP.
//! - [`Source`] asks a source: for its identity, its files, and its log.
//! - [`receive_copy`] receives fixed files of the source.
//! - [`follow`] appends the source's log to a store, and says why it ends.
//! - [`rows`] is what a filtered follower asks beside the log's changes: rows of the present.
//! - [`FilteredFollow`] follows one directory of a source.
//! - [`FollowState`] is how far a follower is behind, for its answers.
//! - [`Followers`] is what a source knows of its followers, and the files that it holds for them.
#![forbid(unsafe_code)]

mod comparing;
mod copying;
mod filtered;
mod followers;
mod following;
pub mod limits;
pub mod protocol;
pub mod rows;
mod source;
mod state;
mod walk;

pub use comparing::ComparisonPace;
pub use copying::receive_copy;
pub use filtered::{FilteredFollow, check_directory};
pub use followers::{FollowerSeen, Followers};
pub use following::{FollowEnd, FollowWork, Pauses, follow};
pub use source::{FilteredSource, HttpSource, Source};
pub use state::{Compared, FollowState, Lag};
