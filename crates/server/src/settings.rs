//! Settings of a server, and all its limits, each with name and reason.

use std::collections::BTreeMap;
use std::fmt;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::str::FromStr;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use exacat_disk::{Disk, RealDisk};
use exacat_model::limits::FRAME_BYTES_MAX;
use exacat_model::{AccountName, Error, Result, SnapshotName};
use exacat_store::{CLOCK_JUMP, Clock, WatchedClock};
use exacat_store_cassandra::CassandraSettings;
use exacat_store_embedded::{EmbeddedSettings, HistoryKept, StandbySettings};
use exacat_wire::native::limits::{BATCH_OPERATIONS_MAX, FRAME_BYTES_MAX_LEAST};

pub use crate::places::Network;

/// The store of the catalogue's state.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum StoreChoice {
    /// The embedded store, in the data directory.
    #[default]
    Embedded,
    /// A Cassandra or ScyllaDB cluster, shared by any number of servers.
    Cassandra(Box<CassandraSettings>),
}

/// A certificate that the operator provides.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CertificateFiles {
    /// The chain in PEM, the server's own certificate first.
    pub chain: PathBuf,
    /// Its private key in PEM.
    pub key: PathBuf,
}

/// Takes one whole line of the log of look-ups. It must not wait for long: clients wait with it.
pub type LookUpSink = Arc<dyn Fn(&[u8]) + Send + Sync>;

/// Place of the log of look-ups.
#[derive(Clone)]
pub struct LookUpLog {
    /// Its file.
    pub write: LookUpSink,
    /// Lines that could not be written so far.
    pub lost: Arc<AtomicU64>,
}

impl fmt::Debug for LookUpLog {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LookUpLog").finish_non_exhaustive()
    }
}

/// All settings of a server.
#[derive(Clone)]
pub struct ServerSettings {
    /// The data directory; made if it is missing.
    pub directory: PathBuf,
    /// The store of the catalogue's state.
    pub store: StoreChoice,
    /// Cache of the embedded store for data read from its files, in bytes.
    pub cache_bytes: u64,
    /// The part of the history that the embedded store keeps.
    pub history: HistoryKept,
    /// True if the server keeps the history of elements.
    pub elements: bool,
    /// Disk of the history of elements; a test replaces it.
    pub elements_disk: Arc<dyn Disk>,
    /// Prepares the next segment of the log of elements ahead.
    pub elements_log_ahead: bool,
    /// Archive of old days of the history of elements.
    pub elements_archive: Option<exacat_history::ArchiveSettings>,
    /// The snapshot to serve, for reading, in place of the catalogue in the data directory.
    pub snapshot: Option<SnapshotName>,
    /// Followers that must have a change before it is answered.
    pub standbys: StandbySettings,
    /// Distance of the server to its source; none if it follows none. The caller opens its store.
    pub follow: Option<Arc<exacat_follower::FollowState>>,
    /// Address of the native protocol over TLS; none disables it. Port 0 takes a free one.
    pub native: Option<SocketAddr>,
    /// True if the native protocol is spoken over the Unix socket in the data directory.
    pub socket: bool,
    /// The socket's mode. With 600 only the server's account (and root) can connect. A wider mode
    /// admits users with their uid as a subject (`uid:1000`).
    pub socket_mode: u32,
    /// Ends the server with an error when the log fails. Otherwise it continues to serve reads of
    /// durable state.
    pub exit_on_log_failure: bool,
    /// HTTP: the REST API, metrics and health; none disables it.
    pub http: Option<HttpSettings>,
    /// JAliEn's protocol, for `alien.py`; none disables it.
    pub jalien: Option<JalienSettings>,
    /// XRootD's protocol; none disables it.
    pub xrootd: Option<XrootdSettings>,
    /// Envelopes, which clients show to storage elements.
    pub envelopes: EnvelopeSettings,
    /// File with the authorities of storage elements' certificates, for HTTPS; none for the system's.
    pub storage_ca: Option<PathBuf>,
    /// File with the sites of networks; none if only clients name their sites.
    pub networks: Option<PathBuf>,
    /// Certificate to use; none for the self-signed one in the data directory.
    pub certificate: Option<CertificateFiles>,
    /// Further names and addresses in a new self-signed certificate.
    pub names: Vec<String>,
    /// The catalogue's rules.
    pub catalogue: exacat_catalogue::Settings,
    /// The server's limits.
    pub limits: Limits,
    /// The background workers.
    pub workers: WorkerSettings,
    /// The clock.
    pub clock: Arc<dyn Clock>,
    /// Traces of requests; none without a collector. They need the feature `otel`.
    pub traces: Option<TraceSettings>,
    /// Log lines that could not be written so far, for the metrics.
    pub log_lines_lost: Arc<AtomicU64>,
    /// Log of look-ups; none keeps none.
    pub look_ups: Option<LookUpLog>,
}

impl ServerSettings {
    /// Returns the mode of the local socket; none if there is no socket.
    pub(crate) fn socket_access(&self) -> u32 {
        if self.socket { self.socket_mode } else { 0 }
    }

    /// Returns the defaults, with the data in `directory`.
    pub fn new(directory: impl Into<PathBuf>) -> Self {
        let loopback = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 0);
        ServerSettings {
            directory: directory.into(),
            store: StoreChoice::Embedded,
            cache_bytes: EmbeddedSettings::default().cache_bytes,
            history: HistoryKept::All,
            elements: false,
            elements_disk: Arc::new(RealDisk),
            elements_log_ahead: true,
            elements_archive: None,
            snapshot: None,
            standbys: StandbySettings::default(),
            follow: None,
            native: Some(loopback),
            socket: true,
            socket_mode: 0o600,
            exit_on_log_failure: false,
            http: Some(HttpSettings::new(loopback)),
            jalien: None,
            xrootd: None,
            envelopes: EnvelopeSettings::default(),
            storage_ca: None,
            networks: None,
            certificate: None,
            names: Vec::new(),
            catalogue: exacat_catalogue::Settings::default(),
            limits: Limits::default(),
            workers: WorkerSettings::default(),
            clock: Arc::new(WatchedClock::of_system(CLOCK_JUMP)),
            traces: None,
            log_lines_lost: Arc::default(),
            look_ups: None,
        }
    }
}

/// Settings of HTTP.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HttpSettings {
    /// Address. Port 0 takes a free one.
    pub address: SocketAddr,
    /// Networks whose clients may speak plain HTTP; all others speak HTTPS.
    pub plain: Vec<Network>,
    /// Origins (`https://HOST[:PORT]`) of web pages that may use the API, beside our own.
    pub origins: Vec<String>,
    /// Authorities of accepted client certificates: a file, or a directory as grids have it; none
    /// for those of JAliEn's protocol, or no certificates without it.
    pub authorities: Option<PathBuf>,
    /// File with users of certificate subjects, beside those in accounts.
    pub map: Option<PathBuf>,
}

impl HttpSettings {
    /// Returns the defaults, at `address`: HTTPS only.
    pub fn new(address: SocketAddr) -> Self {
        HttpSettings { address, plain: Vec::new(), origins: Vec::new(), authorities: None, map: None }
    }
}

/// Settings of traces.
#[derive(Clone, Debug, PartialEq)]
pub struct TraceSettings {
    /// URL of the collector, which speaks OTLP over HTTP.
    pub url: String,
    /// Part of the requests that are sampled, from 0 to 1, if their clients do not decide.
    pub ratio: f64,
}

/// Settings of JAliEn's protocol.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JalienSettings {
    /// Address. Port 0 takes a free one.
    pub address: SocketAddr,
    /// Authorities of accepted certificates: a file, or a directory as grids have it; none for our
    /// own tokens only.
    pub authorities: Option<PathBuf>,
    /// File with users of certificate subjects, beside those in accounts.
    pub map: Option<PathBuf>,
    /// Default home of users: `{user}` stands for the name, `{initial}` for its first letter.
    pub home: String,
    /// Longest lifetime of a token, in seconds.
    pub token_seconds_max: u64,
}

impl JalienSettings {
    /// Returns the defaults, at `address`.
    pub fn new(address: SocketAddr) -> Self {
        JalienSettings {
            address,
            authorities: None,
            map: None,
            home: "/alice/cern.ch/user/{initial}/{user}".to_owned(),
            token_seconds_max: 31 * 24 * 3600,
        }
    }
}

/// Settings of envelopes, which clients show to storage elements.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EnvelopeSettings {
    /// Issuer URL in envelopes, under which storage elements find the public keys. None for the
    /// address of JAliEn's protocol, or else that of XRootD.
    pub issuer: Option<String>,
    /// Lifetime of an envelope, in seconds.
    pub seconds: u64,
}

impl Default for EnvelopeSettings {
    fn default() -> Self {
        EnvelopeSettings { issuer: None, seconds: 3600 }
    }
}

/// Settings of XRootD's protocol.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct XrootdSettings {
    /// Address. Port 0 takes a free one.
    pub address: SocketAddr,
    /// Name that redirections back to this server use; none for the address that the client used.
    pub name: Option<String>,
    /// Networks whose clients are trusted to name their account.
    pub trusted: Vec<Network>,
    /// Servers that report checksums of uploads in place of the servers with the files.
    pub checksums: Vec<ChecksumServer>,
}

impl XrootdSettings {
    /// Returns the defaults, at `address`.
    pub fn new(address: SocketAddr) -> Self {
        XrootdSettings { address, name: None, trusted: Vec::new(), checksums: Vec::new() }
    }
}

/// A second server of a storage element, over the same files. It reports their checksums if the
/// first server sends clients to the catalogue for them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChecksumServer {
    /// Host and port of the first server, as in PFNs.
    pub of: (String, u16),
    /// Host and port of the second server.
    pub at: (String, u16),
}

impl ChecksumServer {
    /// True if it is the second server of this one.
    pub fn is_for(&self, host: &str, port: u16) -> bool {
        self.of.1 == port && self.of.0.eq_ignore_ascii_case(host)
    }
}

impl FromStr for ChecksumServer {
    type Err = Error;

    /// Parses `HOST:PORT=HOST:PORT`.
    fn from_str(text: &str) -> Result<Self> {
        let bad = || {
            let shown: String = text.chars().take(200).collect();
            Error::invalid(format!("not HOST:PORT=HOST:PORT (as se1:1094=se1:1095): {shown:?}"))
        };
        let address = |text: &str| -> Option<(String, u16)> {
            let (host, port) = text.rsplit_once(':')?;
            let port = port.parse().ok().filter(|port| *port != 0)?;
            let bare = !host.contains(':') || (host.starts_with('[') && host.ends_with(']'));
            (!host.is_empty() && bare).then(|| (host.to_owned(), port))
        };
        let (of, at) = text.split_once('=').ok_or_else(bad)?;
        Ok(ChecksumServer { of: address(of).ok_or_else(bad)?, at: address(at).ok_or_else(bad)? })
    }
}

/// Limits of the server. Everything that it holds or waits for has one.
#[derive(Clone, Debug)]
pub struct Limits {
    /// Network connections of all protocols at once; one more gets `busy` and is closed. A quarter
    /// is kept for clients that have shown credentials.
    pub connections_max: usize,
    /// Connections of the local socket at once.
    pub connections_local_max: usize,
    /// Network connections of clients without credentials, including anonymous ones.
    pub connections_unauthenticated_max: usize,
    /// Network connections without credentials of one address (for IPv6: of one /64 network).
    pub connections_unauthenticated_per_address_max: usize,
    /// HTTP connections beyond all other slots, which may read metrics and health only; one more is
    /// closed.
    pub metrics_connections_max: usize,
    /// Bytes of one frame after authentication; announced in the handshake.
    pub frame_bytes_max: usize,
    /// Unanswered requests of one connection; announced in the handshake, one more is `busy`.
    pub requests_per_connection_max: usize,
    /// Unanswered requests of one user, over all its connections.
    pub requests_per_user_max: usize,
    /// Unanswered requests in total.
    pub requests_max: usize,
    /// Bytes of one connection's unanswered requests, as received.
    pub request_bytes_per_connection_max: usize,
    /// Bytes of all unanswered requests, as received.
    pub request_bytes_max: usize,
    /// Unanswered writes of values of elements of one user, over all its connections. They count here, and
    /// not among the other requests: neither kind starves the other.
    pub element_writes_per_user_max: usize,
    /// Unanswered writes of values of elements in total.
    pub element_writes_max: usize,
    /// Bytes of all unanswered writes of values of elements, as received and as inflated.
    pub element_bytes_max: usize,
    /// Items of all running look-ups, the bound of the fast lane.
    pub lookup_items_max: usize,
    /// Most items of a look-up; larger ones use the lane of heavy reads.
    pub lookup_items_per_request_max: usize,
    /// Most items of pipelined look-ups that one call of the catalogue answers together.
    pub coalesced_items_max: usize,
    /// Most items of a small write; larger ones use the lane of bulk writes.
    pub write_items_per_request_max: usize,
    /// Heavy reads (pages of listings, finds, histories) that run at once.
    pub heavy_slots: usize,
    /// Heavy reads in the queue, of all users; one more is `busy`.
    pub heavy_queue_max: usize,
    /// Heavy reads in the queue, of one user.
    pub heavy_queue_per_user_max: usize,
    /// Bulk writes that run at once.
    pub bulk_slots: usize,
    /// Bulk writes in the queue, of all users.
    pub bulk_queue_max: usize,
    /// Bulk writes in the queue, of one user.
    pub bulk_queue_per_user_max: usize,
    /// Checks of the whole catalogue at once.
    pub audits_max: usize,
    /// Requests that wait for a change to happen.
    pub waits_max: usize,
    /// Streams open on one connection.
    pub streams_per_connection_max: usize,
    /// Streams open on all connections.
    pub streams_max: usize,
    /// Weights of users in the lanes; others have weight 1.
    pub user_weights: BTreeMap<AccountName, u32>,
    /// Bytes of long answers that the server is making or that clients have not read, over all
    /// connections and protocols. Beyond that each connection continues with one small part at a
    /// time.
    pub unread_bytes_max: usize,
    /// Items of such a small part.
    pub small_part_items_max: u32,
    /// Unread bytes that a native connection may hold without room among `unread_bytes_max`.
    pub own_unread_bytes_max: usize,
    /// Unread bytes of one connection at which the server stops reading from it and stops making
    /// answers. One answer of each running request may come on top.
    pub output_bytes_max: usize,
    /// Time in which a client must read `output_progress_bytes` of its waiting answers, or it is
    /// disconnected.
    pub output_stall: Duration,
    /// Bytes that a client must read in that time, or all that wait.
    pub output_progress_bytes: usize,
    /// Time from accepting a connection to the end of authentication, including TLS.
    pub handshake_time: Duration,
    /// Time after which a connection without traffic and requests in flight is closed; announced in
    /// the handshake.
    pub idle_time: Duration,
    /// Longest deadline of a request, and the default.
    pub deadline_max: Duration,
    /// Longest time between checks of credentials. The next request checks them too once this
    /// server knows that an account or a token changed. For a change by this server that is at
    /// once. On a cluster, after a change by another server, reads may continue for this time;
    /// writes are judged at the commit.
    pub revalidate: Duration,
    /// Unanswered requests of one JAliEn connection; the server does not read further ones.
    pub jalien_requests_max: usize,
    /// Bytes of these requests.
    pub jalien_request_bytes_max: usize,
    /// Time after which a JAliEn connection without requests is closed; pings do not count.
    pub jalien_idle_time: Duration,
    /// Longest life of a JAliEn connection; the client's certificate may end it earlier.
    pub jalien_session_time: Duration,
    /// Unanswered requests of one XRootD connection; the server does not read further ones.
    pub xrootd_requests_max: usize,
    /// Directory listings at once on one XRootD connection; the client must wait with one more.
    pub xrootd_listings_max: usize,
    /// Files being written over XRootD, of all clients; the client must wait with one more.
    pub xrootd_uploads_max: usize,
    /// Time after which an XRootD connection without requests is closed.
    pub xrootd_idle_time: Duration,
    /// Time that a stop waits for requests in flight.
    pub stop_time: Duration,
    /// Duration above which a request is logged.
    pub slow_request: Duration,
    /// Time after which a page of a long list, a bulk write or a check is kept as slow.
    pub slow_long_request: Duration,
    /// Bytes of the files with the server's activity, minute by minute; the oldest are removed. 0
    /// keeps the activity in memory only.
    pub activity_bytes_max: u64,
    /// Age at which these files keep a tenth of the samples. Files that take more than half of the bytes
    /// are thinned before.
    pub activity_whole_for: Duration,
}

/// Age at which the samples of the activity on disk are thinned by default: yesterday's requests are still
/// looked at one by one.
const ACTIVITY_WHOLE_FOR_DEFAULT: Duration = Duration::from_secs(24 * 3600);

/// Most past states that are open at once. Each has a memtable of rows, a page cache of 64 MiB, and the
/// directories and accounts of its time in memory.
pub(crate) const PAST_STATES_MAX: usize = 2;
/// Time after its last use at which a past state is let go: a person looks around for minutes.
pub(crate) const PAST_IDLE: Duration = Duration::from_secs(300);
/// Most requests that wait for a past state to be made. Making one takes seconds, and they wait in turn.
pub(crate) const PAST_WAITING_MAX: usize = 32;
/// Most points by which an open past state is known, so that finding it again takes no look at the history.
pub(crate) const PAST_POINTS_MAX: usize = 8;
/// Most threads of the heavy lane by default, whatever the machine has.
const HEAVY_SLOTS_DEFAULT_MAX: usize = 16;

impl Default for Limits {
    fn default() -> Self {
        let processors = std::thread::available_parallelism().map_or(2, usize::from);
        Limits {
            connections_max: 4096,
            connections_local_max: 128,
            connections_unauthenticated_max: 1024,
            connections_unauthenticated_per_address_max: 256,
            metrics_connections_max: 64,
            frame_bytes_max: FRAME_BYTES_MAX,
            requests_per_connection_max: 4096,
            requests_per_user_max: 16_384,
            requests_max: 65_536,
            request_bytes_per_connection_max: 64 << 20,
            request_bytes_max: 1 << 30,
            element_writes_per_user_max: 4096,
            element_writes_max: 16_384,
            element_bytes_max: 512 << 20,
            lookup_items_max: 1 << 18,
            lookup_items_per_request_max: 1024,
            coalesced_items_max: 256,
            write_items_per_request_max: 32,
            heavy_slots: processors.clamp(1, HEAVY_SLOTS_DEFAULT_MAX),
            heavy_queue_max: 4096,
            heavy_queue_per_user_max: 512,
            bulk_slots: 32,
            bulk_queue_max: 1024,
            bulk_queue_per_user_max: 256,
            audits_max: 1,
            waits_max: 1024,
            streams_per_connection_max: 64,
            streams_max: 4096,
            user_weights: BTreeMap::new(),
            unread_bytes_max: 256 << 20,
            small_part_items_max: 50,
            own_unread_bytes_max: 64 << 10,
            output_bytes_max: 4 << 20,
            output_stall: Duration::from_secs(60),
            output_progress_bytes: 16 << 10,
            handshake_time: Duration::from_secs(10),
            idle_time: Duration::from_secs(300),
            deadline_max: Duration::from_secs(3600),
            revalidate: Duration::from_secs(5),
            jalien_requests_max: 256,
            jalien_request_bytes_max: 4 << 20,
            jalien_idle_time: Duration::from_secs(900),
            jalien_session_time: Duration::from_secs(2 * 24 * 3600),
            xrootd_requests_max: 256,
            xrootd_listings_max: 16,
            xrootd_uploads_max: 10_000,
            xrootd_idle_time: Duration::from_secs(3600),
            stop_time: Duration::from_secs(10),
            slow_request: Duration::from_secs(1),
            slow_long_request: Duration::from_secs(10),
            activity_bytes_max: 256 << 20,
            activity_whole_for: ACTIVITY_WHOLE_FOR_DEFAULT,
        }
    }
}

impl Limits {
    /// Refuses limits under which the server could serve nothing, or that contradict the
    /// protocol's.
    pub fn check(&self) -> Result<()> {
        let at_least_one = [
            ("connections_max", self.connections_max),
            ("connections_local_max", self.connections_local_max),
            ("connections_unauthenticated_max", self.connections_unauthenticated_max),
            ("connections_unauthenticated_per_address_max", self.connections_unauthenticated_per_address_max),
            ("metrics_connections_max", self.metrics_connections_max),
            ("requests_per_connection_max", self.requests_per_connection_max),
            ("requests_per_user_max", self.requests_per_user_max),
            ("requests_max", self.requests_max),
            ("request_bytes_per_connection_max", self.request_bytes_per_connection_max),
            ("request_bytes_max", self.request_bytes_max),
            ("element_writes_per_user_max", self.element_writes_per_user_max),
            ("element_writes_max", self.element_writes_max),
            ("element_bytes_max", self.element_bytes_max),
            ("lookup_items_max", self.lookup_items_max),
            ("lookup_items_per_request_max", self.lookup_items_per_request_max),
            ("coalesced_items_max", self.coalesced_items_max),
            ("heavy_slots", self.heavy_slots),
            ("heavy_queue_max", self.heavy_queue_max),
            ("heavy_queue_per_user_max", self.heavy_queue_per_user_max),
            ("bulk_slots", self.bulk_slots),
            ("bulk_queue_max", self.bulk_queue_max),
            ("bulk_queue_per_user_max", self.bulk_queue_per_user_max),
            ("audits_max", self.audits_max),
            ("unread_bytes_max", self.unread_bytes_max),
            ("small_part_items_max", self.small_part_items_max as usize),
            ("own_unread_bytes_max", self.own_unread_bytes_max),
            ("output_bytes_max", self.output_bytes_max),
            ("output_progress_bytes", self.output_progress_bytes),
            ("jalien_requests_max", self.jalien_requests_max),
            ("jalien_request_bytes_max", self.jalien_request_bytes_max),
            ("xrootd_requests_max", self.xrootd_requests_max),
            ("xrootd_listings_max", self.xrootd_listings_max),
            ("xrootd_uploads_max", self.xrootd_uploads_max),
        ];
        for (name, value) in at_least_one {
            if value == 0 {
                return Err(Error::invalid(format!("the limit {name} is 0: nothing could be served")));
            }
        }
        if self.lookup_items_per_request_max > self.lookup_items_max {
            return Err(Error::invalid(format!(
                "the limit lookup_items_per_request_max is {}, above lookup_items_max, {}: such a look-up could never \
                 be done",
                self.lookup_items_per_request_max, self.lookup_items_max
            )));
        }
        if !(FRAME_BYTES_MAX_LEAST..=FRAME_BYTES_MAX).contains(&self.frame_bytes_max) {
            return Err(Error::invalid(format!(
                "the limit frame_bytes_max is {}, it must be from {FRAME_BYTES_MAX_LEAST} to {FRAME_BYTES_MAX}",
                self.frame_bytes_max
            )));
        }
        for (name, value) in [
            ("output_stall", self.output_stall),
            ("handshake_time", self.handshake_time),
            ("idle_time", self.idle_time),
            ("deadline_max", self.deadline_max),
            ("jalien_idle_time", self.jalien_idle_time),
            ("jalien_session_time", self.jalien_session_time),
            ("xrootd_idle_time", self.xrootd_idle_time),
        ] {
            if value.is_zero() || value > Duration::from_secs(30 * 24 * 3600) {
                return Err(Error::invalid(format!(
                    "the limit {name} is {value:?}, it must be above 0 and at most 30 days"
                )));
            }
        }
        if let Some((user, _)) = self.user_weights.iter().find(|(_, weight)| **weight == 0) {
            return Err(Error::invalid(format!("the weight of user {user} is 0, it must be at least 1")));
        }
        Ok(())
    }

    /// Returns the number of items really looked up together: not more than the bounds that all of
    /// them must pass at once.
    pub(crate) fn coalesced_items(&self) -> usize {
        self.coalesced_items_max
            .min(self.requests_per_user_max)
            .min(self.requests_max)
            .min(self.lookup_items_max)
    }

    /// Returns the most operations in one batch frame: the protocol's own limit.
    pub fn batch_operations_max(&self) -> usize {
        BATCH_OPERATIONS_MAX
    }
}

/// Settings of the background workers.
#[derive(Clone, Debug)]
pub struct WorkerSettings {
    /// True if they run at all. A test that sets the clock runs their steps itself.
    pub enabled: bool,
    /// Interval between two checks for due work.
    pub interval: Duration,
    /// Longest wait after errors: the interval, doubled with every further error, up to this.
    pub back_off_max: Duration,
    /// Longest duration of a step; a longer one is abandoned and counts as an error.
    pub step_time_max: Duration,
}

impl Default for WorkerSettings {
    fn default() -> Self {
        WorkerSettings {
            enabled: true,
            interval: Duration::from_secs(5),
            back_off_max: Duration::from_secs(300),
            step_time_max: Duration::from_secs(120),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn defaults_pass_the_check() {
        Limits::default().check().unwrap();
    }

    #[test]
    fn checksum_server_is_read_from_two_addresses() {
        let server: ChecksumServer = "se1:1094=[::1]:1095".parse().unwrap();
        assert_eq!(server.at, ("[::1]".to_owned(), 1095));
        assert!(server.is_for("SE1", 1094) && !server.is_for("se1", 1095) && !server.is_for("se2", 1094));
        for bad in ["", "se1:1094", "se1=se2", "se1:0=se1:1", "se1:1=:2", "::1:1=se:2", "se1:1=se1:99999"] {
            assert!(bad.parse::<ChecksumServer>().unwrap_err().message.contains("HOST:PORT"), "{bad}");
        }
    }

    #[test]
    fn limits_that_serve_nothing_are_refused_by_name() {
        let refused = Limits { heavy_slots: 0, ..Limits::default() }.check().unwrap_err();
        assert!(refused.message.contains("heavy_slots"), "{refused}");
        for frame_bytes_max in [FRAME_BYTES_MAX_LEAST - 1, FRAME_BYTES_MAX + 1] {
            let refused = Limits { frame_bytes_max, ..Limits::default() }.check().unwrap_err();
            assert!(refused.message.contains("frame_bytes_max"), "{refused}");
        }
        for frame_bytes_max in [FRAME_BYTES_MAX_LEAST, FRAME_BYTES_MAX] {
            Limits { frame_bytes_max, ..Limits::default() }.check().unwrap();
        }
        let refused = Limits { lookup_items_max: 1023, ..Limits::default() }.check().unwrap_err();
        assert!(refused.message.contains("lookup_items_per_request_max"), "{refused}");
        Limits { lookup_items_max: 1024, ..Limits::default() }.check().unwrap();
        let refused = Limits { idle_time: Duration::ZERO, ..Limits::default() }.check().unwrap_err();
        assert!(refused.message.contains("idle_time"), "{refused}");
        let user_weights = BTreeMap::from([(AccountName::parse("slow").unwrap(), 0)]);
        let refused = Limits { user_weights, ..Limits::default() }.check().unwrap_err();
        assert!(refused.message.contains("slow"), "{refused}");
    }
}
