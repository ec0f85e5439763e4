//! Plan of a repair: all findings about the damaged catalogue, and about the sources of good copies.

use exacat_store::Clock;

use super::context::RepairContext;
use super::history::RecoveredLog;
use super::runs::Runs;
use super::sources::Sources;

/// All findings about the damaged catalogue and its sources.
pub(super) struct Plan<'p> {
    pub context: &'p RepairContext<'p>,
    pub sources: &'p Sources,
    pub log: &'p RecoveredLog,
    pub runs: &'p Runs,
    pub clock: &'p dyn Clock,
}
