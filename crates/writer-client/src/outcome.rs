//! Ends of files, for the caller.

use exacat_wire::writer::FileId;
use exacat_writer::Closed;

/// Number of outcomes that a stream keeps for its caller. Older ones are dropped, and counted.
pub(crate) const OUTCOMES_MAX: usize = 4096;

/// A file, and how it ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileOutcome {
    /// Identity of the file.
    pub file: FileId,
    /// Files of the stream that were begun before it.
    pub number: u64,
    /// Name in the catalogue.
    pub lfn: String,
    /// Its end.
    pub outcome: Outcome,
}

/// End of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It is in the catalogue, whole.
    Certified {
        /// Bytes.
        bytes: u64,
        /// Events.
        events: u64,
        /// Adler-32 of all bytes.
        adler32: u32,
        /// Chunks that were durable in more than one part; the file has each once.
        duplicates: u64,
        /// Parts that it is made of.
        parts: usize,
    },
    /// It will not be in the catalogue.
    Failed {
        /// Reason of the service.
        reason: String,
    },
    /// The time was over. The file may be certified later, as long as the writer lives.
    Unknown {
        /// Reason why it is not certified yet.
        reason: String,
    },
}

impl From<Closed> for Outcome {
    fn from(closed: Closed) -> Self {
        match closed {
            Closed::Certified(of) => Outcome::Certified {
                bytes: of.length,
                events: of.events,
                adler32: of.adler32,
                duplicates: of.duplicates,
                parts: of.parts.len(),
            },
            Closed::Failed(reason) => Outcome::Failed { reason },
        }
    }
}
