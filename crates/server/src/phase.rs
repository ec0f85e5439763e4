//! Phases of a server's life.

/// The phases of a server's life.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Phase {
    /// The server serves all requests.
    Serving,
    /// The server accepts nothing new, and finishes requests in flight.
    Stopping,
    /// The time for that is over.
    Ended,
}
