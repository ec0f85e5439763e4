//! Carries out the steps of a filtered follower in the writer thread.

use exacat_model::{Error, ErrorKind, Result};

use super::step::{FilteredReached, FilteredStep};
use super::work::{FilteredWork, unavailable};
use crate::writer::Writer;

impl Writer {
    /// Carries out a step of a filtered follower. All of it is durable then.
    pub(crate) fn follow_filtered(&mut self, step: FilteredStep) -> Result<FilteredReached> {
        let Some(mut filtered) = self.filtered.take() else {
            return Err(Error::new(ErrorKind::Internal, "this store is not that of a filtered follower"));
        };
        let time = self.clock.trusted();
        let mut work =
            FilteredWork { writer: self, scope: &filtered.scope, mark: filtered.mark, time, record: None };
        let swept = if filtered.is_swept { Ok(()) } else { work.sweep() };
        filtered.is_swept = swept.is_ok();
        let reached = swept.and_then(|()| work.carry_out(step));
        work.end_record();
        filtered.mark = work.mark;
        self.wait_until_durable();
        let mark = filtered.mark;
        if self.failure().is_none() {
            filtered.positions.set(mark);
        }
        self.filtered = Some(filtered);
        match self.failure() {
            Some(why) => Err(unavailable(why.to_string())),
            None => reached.map(|reached| FilteredReached { position: mark.position, ..reached }),
        }
    }
}

impl FilteredWork<'_> {
    fn carry_out(&mut self, step: FilteredStep) -> Result<FilteredReached> {
        let mut reached = FilteredReached::default();
        match step {
            FilteredStep::Changes { changes, up_to, is_fetched } => {
                (reached.fetch, reached.rest) = self.changes(changes, up_to, is_fetched)?;
            }
            FilteredStep::Note => self.note()?,
            FilteredStep::Walked { whole } => {
                if let Some((position, source)) = whole {
                    (self.mark.position, self.mark.source) = (position, source);
                }
                self.mark.is_walking = false;
                self.note()?;
            }
            FilteredStep::Compare(rows) => {
                rows.iter().try_for_each(|rows| self.compare(rows, &mut reached))?;
            }
            FilteredStep::Rows(rows) => {
                self.mark.is_walking = true;
                for rows in rows {
                    self.rows(rows, &mut reached.inside)?;
                }
            }
        }
        Ok(reached)
    }
}
