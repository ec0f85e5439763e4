//! Plan of a repair: all findings about the damaged catalogue, and about the sources of good copies.

use exacat_store::Clock;

use super::context::Ground;
use super::history::MendedLog;
use super::runs::Runs;
use super::sources::Sources;

/// All findings about the damaged catalogue and its sources.
pub(super) struct Plan<'p> {
    pub ground: &'p Ground<'p>,
    pub sources: &'p Sources,
    pub log: &'p MendedLog,
    pub runs: &'p Runs,
    pub clock: &'p dyn Clock,
}
