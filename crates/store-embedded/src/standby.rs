//! Reads of the durable state after a failure of the log.
//!
//! The writer applies changes before they are durable. After a failed write or sync, the state in
//! memory has changes whose durability is unknown. Readers may not see them, and nearly every read
//! is of a state that has them.
//!
//! The writer therefore builds the durable state once more, like a snapshot's, from the runs and
//! the log up to the last durable change. That state replaces the other. Nothing is written any
//! more: no group, no run, no archived segment.

use std::sync::Arc;

use exacat_model::{Error, ErrorKind, Result, Revision};

use crate::identity::Layout;
use crate::snapshot::view::{BuildMemory, ReadEnd, build};
use crate::state::State;
use crate::table::RunSet;
use crate::writer::Writer;

/// Topic of the warning that reads are refused too.
const TOPIC: &str = "reads";

impl Writer {
    /// Switches readers to the durable state, once, if the log failed.
    pub(crate) fn stand_by(&mut self) {
        if self.is_standing_by || self.failure().is_none() || self.shared.check_open().is_err() {
            return;
        }
        self.is_standing_by = true;
        self.wait_until_durable();
        self.compactor.stop();
        self.archivist = None;
        let durable = self.shared.durability.written();
        if self.shared.state.read().revision == durable {
            return;
        }
        match self.durable_state(durable) {
            Ok(state) => {
                *self.shared.state.write() = state;
                tracing::warn!(
                    revision = durable.0,
                    "reads are answered from the durable state, changes are refused"
                );
            }
            Err(error) => {
                tracing::error!(%error, "the durable state cannot be read");
                self.shared.metrics.warn(TOPIC, &format!("the last changes cannot be read: {error}"));
            }
        }
    }

    /// Builds the state of runs and log up to a change. Rows that are in no run stay in memory.
    fn durable_state(&self, durable: Revision) -> Result<State> {
        let disk = &self.shared.disk;
        let layout = Layout::new(&self.settings.directory);
        let identity = layout.read_identity(&**disk)?;
        let identity =
            identity.ok_or_else(|| Error::new(ErrorKind::Corrupt, "the file CATALOGUE is missing"))?;
        let id = identity.id;
        let run_set = RunSet::look_at(Arc::clone(disk), &layout.runs(), identity)?;
        let segments = self.shared.history.list();
        let is_filtered = self.settings.under.is_some();
        let memory = BuildMemory { cache: Arc::clone(&self.shared.cache), rows_max: usize::MAX, is_filtered };
        let built =
            build(&**disk, run_set, (id, &segments), ReadEnd::Revision(durable), memory, &mut |_| Ok(()))?;
        if built.state.revision != durable {
            let what = format!("the log ends with change {}, not {}", built.state.revision.0, durable.0);
            return Err(Error::new(ErrorKind::Corrupt, what));
        }
        Ok(built.state)
    }
}
