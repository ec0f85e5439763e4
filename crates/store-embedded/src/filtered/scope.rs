//! The directory of a filtered follower, and the places that belong to it.
//!
//! The state has the directories above it too, each with the next one only. So every directory in the tree
//! of the state is above it, the directory itself, or below it.

use exacat_model::{At, DirId, Lfn};

use crate::state::State;

/// Relation of a place to the directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Within {
    /// The directory itself, or below it.
    Inside,
    /// On the way to it.
    Above,
    /// Elsewhere, or in a directory that the state does not have in its tree.
    Outside,
}

/// The directory of a filtered follower.
#[derive(Clone, Debug)]
pub(crate) struct Scope {
    /// Names on the way to it; the last one is its own.
    names: Vec<Box<str>>,
}

impl Scope {
    pub(super) fn new(under: &Lfn) -> Self {
        Scope { names: under.components().map(Box::from).collect() }
    }

    /// Judges a place.
    pub(super) fn judge(&self, state: &State, at: &At) -> Within {
        // Most changes of a source are elsewhere, and end here.
        if state.directory(at.parent).is_none() || !state.is_alive(at.parent) {
            return Within::Outside;
        }
        let depth = state.depth(at.parent);
        match self.names.get(depth) {
            None => Within::Inside,
            Some(name) if **name != *at.name.as_str() => Within::Outside,
            Some(_) if depth + 1 == self.names.len() => Within::Inside,
            Some(_) => Within::Above,
        }
    }

    /// Returns the one name that counts in a directory; none if all do.
    pub(super) fn only(&self, state: &State, directory: DirId) -> Option<&str> {
        self.names.get(state.depth(directory)).map(|name| &**name)
    }
}
