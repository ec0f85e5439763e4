//! State of a filtered follower between its steps.

use std::sync::Arc;

use exacat_model::Lfn;

use super::mark::{FilteredMark, Positions};
use super::scope::Scope;

/// State of a filtered follower in its writer.
pub(crate) struct Filtered {
    pub(super) scope: Scope,
    pub(super) mark: FilteredMark,
    pub(super) positions: Arc<Positions>,
    /// False until the trash is known to be empty: an earlier process may have been interrupted.
    pub(super) is_swept: bool,
}

impl Filtered {
    pub(crate) fn new(under: &Lfn, positions: Arc<Positions>) -> Self {
        Filtered { scope: Scope::new(under), mark: positions.mark(), positions, is_swept: false }
    }
}
