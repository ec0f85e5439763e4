//! Settings of a client, and its fixed limits.

use std::time::Duration;

use exacat_model::{Consistency, Error, Past, Result};

/// Limits of the client. [`exacat_wire::native::limits`] has those of the protocol.
pub mod limits {
    /// Connections of one client.
    pub const CONNECTIONS_MAX: usize = 64;
    /// Endpoints of one target.
    pub const ENDPOINTS_MAX: usize = 64;
    /// Bytes of encoded requests that wait for the driver of a connection; further callers wait in
    /// order. The driver writes as many at a time. The longest permitted frame fits.
    pub const OUTPUT_BYTES_MAX: usize = exacat_wire::native::limits::FRAME_BYTES_MAX;
    /// Bytes of one write of the driver.
    pub const WRITE_BYTES: usize = 256 << 10;
    /// Callers that the driver wakes before it lets them run. The queue of a runtime's thread holds
    /// 256 tasks.
    pub const WAKES_MAX: usize = 32;
    /// Bytes of one read of the driver.
    pub const READ_BYTES: usize = 128 << 10;
    /// Bytes of the file of trusted certificates.
    pub const CERTIFICATE_FILE_BYTES_MAX: u64 = 16 << 20;
}

/// Settings of a client. The defaults suit interactive use as well as bulk jobs.
#[derive(Clone, Debug)]
pub struct ClientSettings {
    /// Program and version of the client, for the server's log.
    pub name: String,
    /// Number of connections, which calls use in turn. One carries all requests that two cores can
    /// make.
    pub connections: usize,
    /// Maximum unanswered requests of one connection, if the server does not set fewer. Further
    /// calls wait. Each coalesced call counts.
    pub requests_in_flight_max: usize,
    /// Time after which a call fails, including retries, unless the call has its own. Also the time
    /// in which a stream tries to reconnect.
    pub deadline: Duration,
    /// Time from opening a connection to the end of authentication; then the client tries the next
    /// endpoint.
    pub connect_timeout: Duration,
    /// Silence in both directions after which the client pings, or sooner if the server asks for
    /// it.
    pub ping_after: Duration,
    /// Silence after which the client considers the server dead; longer than `ping_after`.
    pub dead_after: Duration,
    /// Maximum time that closing waits for requests in flight.
    pub close_timeout: Duration,
    /// First pause before a retry; each further one is random, at most twice as long.
    pub backoff_min: Duration,
    /// Longest pause before a retry.
    pub backoff_max: Duration,
    /// Pages of a stream that the server may send ahead of the reader.
    pub stream_credit: u32,
    /// Items per page of a listing, for calls that do not set it.
    pub page_items: u32,
    /// Maximum concurrent small look-ups in one frame; 1 disables this.
    pub coalesced_calls_max: usize,
    /// Permitted age of the state behind answers; none for the server's default. A server without
    /// this feature answers from the last state.
    pub consistency: Option<Consistency>,
    /// Past state that every call is about; none for the present one. A server without this feature is not
    /// asked, and the call fails. The server refuses operations that cannot be about the past.
    pub past: Option<Past>,
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
            past: None,
        }
    }
}

impl ClientSettings {
    /// Refuses settings that cannot work.
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
