//! Results of deciding: an effect, or the reason why there is none.

use std::fmt;

use exacat_model::{Effect, Revision, TimeMs};

use crate::Refusal;

/// Revision and time of the change, if there will be one.
#[derive(Clone, Copy, Debug)]
pub struct Context {
    /// Revision of the change.
    pub revision: Revision,
    /// Time of the commit.
    pub time: TimeMs,
}

/// A contradiction: the state contradicts itself, or a change was not decided on it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Misfit(pub String);

impl Misfit {
    /// Makes a contradiction from its description.
    pub fn new(what: impl Into<String>) -> Self {
        Misfit(what.into())
    }
}

impl fmt::Display for Misfit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Reasons why there is no effect.
#[derive(Clone, Debug, PartialEq)]
pub enum Declined<E> {
    /// Everything requested is true already.
    Unchanged,
    /// A precondition does not hold.
    Refused(Refusal),
    /// The state cannot answer.
    Failed(E),
}

impl<E> From<Refusal> for Declined<E> {
    fn from(refusal: Refusal) -> Self {
        Declined::Refused(refusal)
    }
}

// The bound keeps the two conversions apart: a refusal is no failure.
impl<E: From<Misfit>> From<E> for Declined<E> {
    fn from(failure: E) -> Self {
        Declined::Failed(failure)
    }
}

/// An effect, or the reason why there is none.
pub type Decision<E> = Result<Effect, Declined<E>>;
