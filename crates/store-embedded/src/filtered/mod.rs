//! The store of a filtered follower: one directory of another catalogue, with everything below it.
//!
//! It has a log and revisions of its own. Its changes are translated from those of the source:
//!
//! - An entry that leaves the directory is purged with everything below it.
//! - An entry that comes into it must be read from the source: the writer says which, and a walk through
//!   its rows follows. A walk through the whole directory makes the first copy, and repairs one.
//!
//! Rows are those of the present, so they may be later than the changes applied so far. No note of that is
//! necessary. An earlier change of such a row either does not find the entry at the place that it names,
//! and is skipped; or it sets fields back, and later changes set them again. In the end each field has the
//! value of its last change, or that of the row. So every change may be applied twice, too.
//!
//! * `step`: the steps of the follower, and what the store answers
//! * `state`: the state between two steps
//! * `mark`: how far the source's changes are applied, in the id of each record
//! * `scope`: which places belong to the directory
//! * `work`: writes effects, and purges entries
//! * `changes`: translates changes
//! * `follow`: carries out the steps
//! * `rows`: makes entries, members and records equal to rows of the source
//! * `compare`: compares the state with rows of the source
//! * `differences`: the fields in which two entries differ

mod changes;
mod compare;
mod differences;
mod follow;
mod mark;
mod rows;
mod scope;
mod state;
mod step;
mod work;

pub use mark::FilteredMark;
pub(crate) use mark::Positions;
pub(crate) use state::Filtered;
pub use step::{FilteredDifference, FilteredInside, FilteredReached, FilteredRows, FilteredStep};
