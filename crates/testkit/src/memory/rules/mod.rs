//! The rules of the reference model: deciding mutations, and applying changes.
//!
//! They are written apart from [`exacat_store::rules`], which the other stores use, so that the tests
//! compare two implementations. They are slow and obvious: they copy entries, and sum up everything
//! for each quota. Facts that are not decisions are shared: refusals, new records, places.

mod checks;
mod decide;
mod edits;
mod effects;
mod judged;
mod paths;

use exacat_store::Refusal;

pub(super) use decide::decide;
pub(super) use effects::perform;
pub(super) use judged::judged_the_same;
pub(super) use paths::{locate, resolve};

/// An effect; none if the requested state holds already; or a refusal.
type Decided = Result<Option<exacat_model::Effect>, Refusal>;
