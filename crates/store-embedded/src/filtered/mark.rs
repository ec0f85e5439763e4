//! The position up to which the changes of the source are applied. Each record of a filtered follower's log
//! has it, as its operation id and fingerprint, so it is durable with the changes themselves.

use exacat_model::{Fingerprint, OperationId, Revision};
use parking_lot::RwLock;

use crate::durability::Durability;
use crate::history::History;

/// Position up to which the changes of the source are applied.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FilteredMark {
    /// All changes up to this one are applied.
    pub position: Revision,
    /// Hash of the identity of the source; 0 before the first copy.
    pub source: u64,
    /// True during a walk. One that was interrupted is begun again, through the whole directory.
    pub is_walking: bool,
}

impl FilteredMark {
    /// Returns the operation id of a record up to here.
    pub(super) fn operation(self) -> OperationId {
        let mut id = [0; 16];
        id[..8].copy_from_slice(&self.position.0.to_be_bytes());
        id[8] = u8::from(self.is_walking);
        OperationId(id)
    }

    /// Returns the fingerprint of a record up to here.
    pub(super) fn fingerprint(self) -> Fingerprint {
        Fingerprint(self.source)
    }

    fn of(operation: OperationId, fingerprint: Fingerprint) -> Self {
        let mut position = [0; 8];
        position.copy_from_slice(&operation.0[..8]);
        FilteredMark {
            position: Revision(u64::from_be_bytes(position)),
            source: fingerprint.0,
            is_walking: operation.0[8] != 0,
        }
    }

    /// Reads the mark of the last record.
    pub(crate) fn read(history: &History, last: Revision) -> exacat_model::Result<Self> {
        let mut mark = FilteredMark::default();
        if last > Revision(0) {
            let is_there = history.heads(last, last, |head| {
                mark = FilteredMark::of(head.operation, head.fingerprint);
                false
            })?;
            if !is_there {
                let what = "the last record of the log is gone: it says how far the source was followed";
                return Err(exacat_model::Error::new(exacat_model::ErrorKind::Corrupt, what));
            }
        }
        Ok(mark)
    }
}

/// The mark of a filtered follower, as its readers see it: all of it is durable.
pub(crate) struct Positions {
    mark: RwLock<FilteredMark>,
    /// Revisions of the source that are applied.
    pub durability: Durability,
}

impl Positions {
    pub(crate) fn new(mark: FilteredMark) -> Self {
        Positions { mark: RwLock::new(mark), durability: Durability::new(mark.position) }
    }

    pub(crate) fn mark(&self) -> FilteredMark {
        *self.mark.read()
    }

    pub(super) fn set(&self, mark: FilteredMark) {
        *self.mark.write() = mark;
        if self.durability.revision() != mark.position {
            self.durability.advance(mark.position);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mark_is_read_from_a_record_as_written() {
        for is_walking in [false, true] {
            let mark = FilteredMark { position: Revision(u64::MAX - 1), source: 77, is_walking };
            assert_eq!(FilteredMark::of(mark.operation(), mark.fingerprint()), mark);
        }
    }
}
