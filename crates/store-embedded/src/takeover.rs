//! Takes over the history of another catalogue, change by change. A catalogue comes here from
//! another store this way, with everything in it unchanged. The changes are not decided again. The
//! store only checks that each follows the one before, and fits the state.

use exacat_log::record::{Head, RecordWriter};
use exacat_log::{COMMIT_GROUP_BYTES_MAX, RECORD_SPLIT_BYTES};
use exacat_model::{Change, Error, ErrorKind, Fingerprint, Result};
use exacat_store::rules::Stamp;

use crate::changes::encode_effect;
use crate::command::Command;
use crate::defect::Defect;
use crate::store::EmbeddedStore;
use crate::writer::Writer;

impl EmbeddedStore {
    /// Takes over changes that follow the last change here. All of them are durable once this
    /// returns. After an error the first of them may be.
    pub async fn take_over(&self, changes: Vec<Change>) -> Result<()> {
        self.ask(|reply| Command::TakeOver { changes, reply }).await?
    }
}

impl Writer {
    /// Applies and logs changes, in one record per request.
    pub(crate) fn take_over(&mut self, changes: &[Change]) -> Result<()> {
        self.wait_until_durable();
        for of_one in changes.chunk_by(|one, next| {
            (one.operation, one.who, one.time) == (next.operation, next.who, next.time)
                && one.index < next.index
        }) {
            self.check()?;
            self.take_over_request(of_one)?;
            if self.group.bytes.len() >= COMMIT_GROUP_BYTES_MAX {
                self.flush();
            }
        }
        self.wait_until_durable();
        self.check()
    }

    fn check(&self) -> Result<()> {
        match self.failure() {
            Some(why) => Err(Error::new(ErrorKind::Unavailable, why.to_string())),
            None => Ok(()),
        }
    }

    fn take_over_request(&mut self, changes: &[Change]) -> Result<()> {
        let mut record: Option<RecordWriter> = None;
        for change in changes {
            {
                let state = self.shared.state.read();
                if change.revision.0 != state.revision.0 + 1 || change.time < state.time {
                    let why =
                        format!("change {} does not follow change {}", change.revision.0, state.revision.0);
                    drop(state);
                    self.end(record);
                    return Err(Error::new(ErrorKind::Conflict, why));
                }
            }
            encode_effect(&change.effect, &mut self.effect);
            let bytes = RecordWriter::EMPTY_BYTES + RecordWriter::bytes_of(self.effect.len());
            let long =
                record.as_ref().is_some_and(|record| record.bytes(&self.group.bytes) >= RECORD_SPLIT_BYTES);
            if long || !self.log.fits(self.group.bytes.len() + bytes) {
                self.end(record.take());
            }
            if !self.log.fits(self.group.bytes.len() + bytes) {
                self.make_space(bytes).map_err(|why| Error::new(ErrorKind::Unavailable, why))?;
            }
            let mut writer = match record.take() {
                Some(record) => record,
                None => self.begin(change),
            };
            writer.add(&mut self.group.bytes, change.index, &self.effect);
            record = Some(writer);
            let stamp = Stamp { revision: change.revision, time: change.time, who: change.who };
            let applied = self.shared.state.write().apply(stamp, &change.effect, Some(&self.effect));
            if let Err(defect) = applied {
                return Err(self.misfit(change, &defect));
            }
        }
        self.end(record);
        Ok(())
    }

    fn begin(&mut self, change: &Change) -> RecordWriter {
        if self.group.bytes.is_empty() {
            self.group.first_revision = change.revision;
        }
        self.operations.remember(change.operation, change.revision, change.time);
        let head = Head {
            first_revision: change.revision,
            time: change.time,
            operation: change.operation,
            fingerprint: Fingerprint::UNKNOWN,
            who: change.who,
            count: 0,
        };
        RecordWriter::begin(&mut self.group.bytes, head)
    }

    fn end(&mut self, record: Option<RecordWriter>) {
        if let Some(record) = record {
            record.end(&mut self.group.bytes, self.log.salt());
        }
    }

    /// Stops the store after a change that does not fit: half of it may have been applied, and no
    /// reader may see that. Nothing more is done until the store is opened again.
    fn misfit(&self, change: &Change, defect: &Defect) -> Error {
        let why = format!("change {} does not fit the state: {defect}", change.revision.0);
        self.shared.fail(&why);
        self.shared.close(&why);
        Error::new(ErrorKind::Conflict, why)
    }
}
