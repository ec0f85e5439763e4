//! The clock for operators: reports a jump ahead, and lets them confirm it.

use std::sync::Arc;

use exacat_model::answer::StatusPart;
use exacat_model::{Answer, Error, ErrorKind, Result};
use exacat_store::ClockJump;

use crate::Catalogue;
use crate::caller::Caller;

impl Catalogue {
    /// Returns the time by which the machine's clock is ahead of the trusted time; none if it is
    /// believed.
    pub fn clock_jump(&self) -> Option<ClockJump> {
        self.clock.jump()
    }

    /// Returns the clock's part of the status.
    pub(crate) fn clock_part(&self) -> StatusPart {
        let jump = self.clock_jump();
        let (machine, trusted) = (self.clock.now(), self.clock.trusted());
        let mut notes = vec![format!("the machine's clock says {machine}, changes are dated with {trusted}")];
        if let Some(jump) = jump {
            notes.push(format!("{jump}; if the machine's clock is right: exacat clock confirm"));
        }
        let ahead = jump.map_or(0, |jump| jump.ahead_ms() / 1000);
        let metrics = vec![("clock_ahead_seconds".to_owned(), ahead)];
        StatusPart { part: "clock".to_owned(), metrics, notes }
    }

    /// Trusts the machine's current clock, because an operator confirms it.
    pub(crate) async fn clock_confirm(&self, caller: &Caller) -> Result<Answer> {
        self.admit_writer(caller)?;
        caller.check_operator("confirming the clock")?;
        if let Some(jump) = self.clock.confirm() {
            let who = caller.name().map_or("", |name| name.as_str());
            tracing::warn!(who, machine = %jump.machine, trusted = %jump.trusted, "the clock was confirmed");
        }
        // Keep it even if it is believed already: the answer that said so may have been lost with
        // the machine.
        let clock = Arc::clone(&self.clock);
        let kept = tokio::task::spawn_blocking(move || clock.keep()).await;
        let kept = kept.map_err(|error| Error::new(ErrorKind::Internal, error.to_string()))?;
        kept.map_err(|error| {
            let message = format!(
                "the clock is believed until the next start only, for that cannot be kept in the data directory: {error}"
            );
            Error::new(ErrorKind::Unknown, message)
        })?;
        Ok(Answer::Done { revision: self.store.revision().await? })
    }
}
