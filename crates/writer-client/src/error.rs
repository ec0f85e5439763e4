//! Errors of the client. Each says what its caller can do.

use std::time::Duration;

use exacat_writer::Position;

/// Outcome of a call.
pub type Result<T> = std::result::Result<T, Error>;

/// Failure of a call.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// Settings that cannot work.
    #[error("{0}")]
    Settings(String),
    /// No seed answered as a writer service.
    #[error("no writer service answered within {waited:?}: {reasons}")]
    NoService {
        /// Time of the wait.
        waited: Duration,
        /// Failure of each seed.
        reasons: String,
    },
    /// An event without a byte. It was not appended.
    #[error("an event has at least 1 byte")]
    EmptyEvent,
    /// The event was not appended.
    #[error("an event of {bytes} bytes is longer than {most}, the most that this writer takes")]
    EventTooLarge {
        /// Its bytes.
        bytes: usize,
        /// Limit: 16 MiB, or less if the writer has less memory.
        most: usize,
    },
    /// The event was not appended: the services took too little for so long.
    #[error("no memory for the event within {waited:?}: {memory_bytes} bytes wait to become durable")]
    MemoryFull {
        /// Time of the wait.
        waited: Duration,
        /// Memory of the writer.
        memory_bytes: usize,
    },
    /// The event was not appended: the stream has one file, which has ended or is as long as it can be.
    #[error("the only file of the stream has ended")]
    FileEnded,
    /// The writer or stream was closed before.
    #[error("the {0} is closed")]
    Closed(&'static str),
    /// The outcome is not known: the events may become durable later.
    #[error(
        "not durable within {waited:?}: {left_bytes} bytes in {left_events} events; they may still become durable"
    )]
    FlushTimeout {
        /// Time of the wait.
        waited: Duration,
        /// Bytes before the call that are not durable.
        left_bytes: u64,
        /// Events before the call that are not durable.
        left_events: u64,
    },
    /// Events are lost, because services refused their file for good.
    #[error("{} events of {} bytes are lost: {reason}", .lost.events, .lost.bytes)]
    Lost {
        /// Lost since the last call that said so.
        lost: Position,
        /// Reason of the services.
        reason: String,
    },
}
