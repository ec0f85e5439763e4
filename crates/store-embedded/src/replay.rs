//! Replays the log: passes its records and changes to a receiver.

use std::sync::Arc;

use exacat_disk::Disk;
use exacat_log::Segment;
use exacat_log::log_end::LogEnd;
use exacat_log::record::Head;
use exacat_log::replay::{Receiver, undecodable};
use exacat_log::segment::{CatalogueId, Header};
use exacat_model::codec::DecodeError;
use exacat_model::{Change, Error, Revision};

use crate::changes::read_changes;

/// Receiver of a log's content.
pub(crate) trait Replay {
    /// Receives the begin of a segment; `digest` is that of the state before it.
    fn segment(&mut self, file: &str, header: &Header) -> Result<(), Error>;

    /// Receives the head of a record; `bytes` is the length of its body.
    fn record(&mut self, file: &str, offset: u64, head: Head, bytes: usize) -> Result<(), Error>;

    /// Receives a change of the record.
    fn change(&mut self, file: &str, offset: u64, change: Change) -> Result<(), Error>;
}

/// Reads the log after a change to its end. That change is the last of a record, or 0.
pub(crate) fn replay(
    disk: &dyn Disk,
    catalogue: CatalogueId,
    segments: &[Arc<Segment>],
    after: Revision,
    into: &mut impl Replay,
) -> Result<Option<LogEnd>, Error> {
    let from = Revision(after.0.saturating_add(1));
    exacat_log::replay::replay(disk, catalogue, segments, after, &mut Changes { from, into })
}

/// Receiver of records that decodes their changes, except those before a revision.
struct Changes<'a, R> {
    from: Revision,
    into: &'a mut R,
}

impl<R: Replay> Receiver for Changes<'_, R> {
    fn segment(&mut self, file: &str, header: &Header) -> Result<(), Error> {
        self.into.segment(file, header)
    }

    fn record(&mut self, file: &str, offset: u64, head: Head, body: &[u8]) -> Result<(), Error> {
        self.into.record(file, offset, head, body.len())?;
        read_changes(body, self.from, |change, _| {
            self.into.change(file, offset, change)?;
            Ok(true)
        })
        .map_err(|why| match why {
            Why::Refused(error) => error,
            Why::Undecodable(error) => undecodable(file, offset, &error),
        })
    }
}

/// Reasons why a record was not taken completely.
enum Why {
    Refused(Error),
    Undecodable(DecodeError),
}

impl From<Error> for Why {
    fn from(error: Error) -> Self {
        Why::Refused(error)
    }
}

impl From<DecodeError> for Why {
    fn from(error: DecodeError) -> Self {
        Why::Undecodable(error)
    }
}
