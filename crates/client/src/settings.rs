//! What can be set about a client, and the limits of what cannot.

use std::time::Duration;

use exacat_model::{Consistency, Error, Result};

/// The client's own limits. Those of the protocol are in [`exacat_wire::native::limits`].
pub mod limits {
    /// Connections of one client.
    pub const CONNECTIONS_MAX: usize = 64;
    /// Endpoints of one target.
    pub const ENDPOINTS_MAX: usize = 64;
    /// Bytes of encoded requests that wait for the driver of a connection; callers beyond it wait in order.
    /// The driver writes as many at a time. A frame fits that is as long as a frame may be.
    pub const OUTPUT_BYTES_MAX: usize = exacat_wire::native::limits::FRAME_BYTES_MAX;
    /// Bytes the driver gives to one write.
    pub const WRITE_BYTES: usize = 256 << 10;
    /// Callers the driver wakes before it lets them run. The queue of a runtime's thread holds 256 tasks.
    pub const WAKES_MAX: usize = 32;
    /// Bytes the driver reads at once.
    pub const READ_BYTES: usize = 128 << 10;
    /// Bytes of the file of certificates to trust.
    pub const CERTIFICATE_FILE_BYTES_MAX: u64 = 16 << 20;
}

/// What can be set about a client. The defaults suit interactive use as well as bulk jobs.
#[derive(Clone, Debug)]
pub struct ClientSettings {
    /// Who it says it is, for the server's log: program and version.
    pub name: String,
    /// How many connections; calls go over them in turn. One carries all that two cores can ask.
    pub connections: usize,
    /// Requests of one connection not answered yet, at most, if the server does not set less. Further calls
    /// wait. Calls that are coalesced count one by one.
    pub requests_in_flight_max: usize,
    /// How long a call is asked again and waited for before it fails, unless the call says otherwise; and how
    /// long a stream tries to get a connection back.
    pub deadline: Duration,
    /// From opening a connection to the end of authentication; then the next endpoint is tried.
    pub connect_timeout: Duration,
    /// A ping is sent when nothing came or went for so long, or sooner if the server asks for it.
    pub ping_after: Duration,
    /// A server from which nothing came for so long is taken for dead: longer than `ping_after`.
    pub dead_after: Duration,
    /// How long closing waits for what is in flight.
    pub close_timeout: Duration,
    /// The first pause before asking again; each further one is twice as long at most, at random.
    pub backoff_min: Duration,
    /// The longest pause before asking again.
    pub backoff_max: Duration,
    /// Pages of a stream that are sent ahead of what was taken.
    pub stream_credit: u32,
    /// Items of one page of a listing, for the calls that do not say.
    pub page_items: u32,
    /// Concurrent small look-ups put into one frame, at most; 1 for never.
    pub coalesced_calls_max: usize,
    /// How old the state may be that answers are of; none for what the server takes by default. A server that does not know of this answers of
    /// the last state.
    pub consistency: Option<Consistency>,
}

impl Default for ClientSettings {
    fn default() -> Self {
        ClientSettings {
            name: concat!("exacat-client/", env!("CARGO_PKG_VERSION")).to_owned(),
            connections: 1,
            requests_in_flight_max: 1024,
            deadline: Duration::from_secs(30),
            connect_timeout: Duration::from_secs(5),
            ping_after: Duration::from_secs(10),
            dead_after: Duration::from_secs(30),
            close_timeout: Duration::from_secs(5),
            backoff_min: Duration::from_millis(10),
            backoff_max: Duration::from_secs(1),
            stream_credit: 8,
            page_items: 1000,
            coalesced_calls_max: 128,
            consistency: None,
        }
    }
}

impl ClientSettings {
    /// Refuses what would never work.
    pub(crate) fn check(&self) -> Result<()> {
        let between = |what: &str, value: usize, max: usize| {
            if value == 0 {
                Err(Error::invalid(format!("{what} is 0, at least 1 is needed")))
            } else if value > max {
                Err(Error::limit(what, value, max))
            } else {
                Ok(())
            }
        };
        between("the number of connections", self.connections, limits::CONNECTIONS_MAX)?;
        between("requests in flight", self.requests_in_flight_max, tokio::sync::Semaphore::MAX_PERMITS)?;
        between(
            "the credit of a stream",
            self.stream_credit as usize,
            exacat_wire::native::limits::CREDIT_MAX as usize,
        )?;
        between("the items of a page", self.page_items as usize, exacat_model::limits::PAGE_ITEMS_MAX)?;
        between(
            "the number of coalesced calls",
            self.coalesced_calls_max,
            exacat_wire::native::limits::BATCH_OPERATIONS_MAX,
        )?;
        if self.dead_after <= self.ping_after {
            return Err(Error::invalid("a server would be taken for dead before it is pinged"));
        }
        if self.ping_after.is_zero() || self.backoff_min.is_zero() || self.backoff_max < self.backoff_min {
            return Err(Error::invalid("a pause between pings or attempts is too short"));
        }
        Ok(())
    }
}
