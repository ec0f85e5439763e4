//! Numbers of a service that only grow.

use exacat_wire::writer::{Frame, RefusalClass};

/// Numbers that only grow, from the start of the service.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Chunks that arrived whole.
    pub chunks: u64,
    /// Their bytes.
    pub chunk_bytes: u64,
    /// Their events.
    pub events: u64,
    /// Chunks that were here already.
    pub duplicates: u64,
    /// Chunks at a place that has another one.
    pub conflicts: u64,
    /// Bytes that became durable.
    pub durable_bytes: u64,
    /// Syncs of parts.
    pub syncs: u64,
    /// Commit groups of the indices.
    pub commits: u64,
    /// Acknowledgements.
    pub acknowledgements: u64,
    /// Refusals: retry elsewhere.
    pub refused_retry: u64,
    /// Refusals: conflict.
    pub refused_conflict: u64,
    /// Refusals: bad request.
    pub refused_bad: u64,
    /// Parts that began.
    pub parts: u64,
    /// Parts that ended by a fault of the disk.
    pub part_faults: u64,
    /// Files that became certified.
    pub certified_files: u64,
    /// Files that failed.
    pub failed_files: u64,
    /// Files whose removal was ordered.
    pub removed_files: u64,
}

impl Counters {
    /// Counts a frame that goes to a producer.
    pub(super) fn note(&mut self, frame: &Frame) {
        match frame {
            Frame::Ack(_) => self.acknowledgements += 1,
            Frame::Refusal(refusal) => match refusal.class {
                RefusalClass::RetryElsewhere => self.refused_retry += 1,
                RefusalClass::Conflict => self.refused_conflict += 1,
                RefusalClass::BadRequest => self.refused_bad += 1,
            },
            _ => {}
        }
    }
}
