//! Settings of an agent.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use exacat_model::{Error, Result};

use super::limits::{
    IN_FLIGHT_MAX, PAGE_BYTES, PREFETCH_MAX, READ_BYTES_MAX, READS_AHEAD_MAX, REDIRECTS_MAX,
};
use super::summary::AgentSummary;

/// Way in which an agent reads.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum DriverKind {
    /// The protocol of XRootD, in this process.
    #[default]
    Xrootd,
    /// The program `xrdcp`, a process for each access. It reads whole files only.
    Xrdcp,
    /// HTTP or HTTPS, in this process.
    Http,
}

impl DriverKind {
    /// Returns the name, as the service knows it.
    pub fn name(self) -> &'static str {
        match self {
            DriverKind::Xrootd => "xrootd",
            DriverKind::Xrdcp => "xrdcp",
            DriverKind::Http => "http",
        }
    }
}

/// Request by which an agent reads single pieces of a file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ReadMethod {
    /// Plain reads.
    #[default]
    Plain,
    /// Pages with checksums, as `xrdcp` reads since version 5. A server that has none is read plainly.
    Pages,
}

/// Way in which a token is shown to a cache.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TokenUse {
    /// In the login, over TLS only. HTTP always has a header for it.
    #[default]
    Login,
    /// In the path, also without TLS: anyone on the network can read it.
    Path,
}

/// Cache that an agent reads from.
#[derive(Clone)]
pub struct CacheSettings {
    /// Its address, `root://HOST:PORT` or `https://HOST:PORT`; a path behind it precedes all names.
    pub address: String,
    /// Bearer token for it.
    pub token: Option<String>,
    /// Way in which the token is shown.
    pub token_use: TokenUse,
    /// Further hosts that the token is shown to if the cache redirects there. `.example.org` stands for
    /// all hosts of a domain.
    pub token_hosts: Vec<String>,
    /// Trust in the certificates of caches; none if no connection can be protected.
    pub tls: Option<Arc<rustls::ClientConfig>>,
    /// Most redirections of one access.
    pub redirects_max: u32,
    /// Request for single pieces.
    pub method: ReadMethod,
    /// Bytes of one read.
    pub read_bytes: u32,
    /// Reads of one access that are under way at once.
    pub reads_ahead: usize,
    /// True if each access has a new connection, as a job has; else connections are used again.
    pub is_connected_anew: bool,
    /// True if the bytes must be those of [`Content`](exacat_replay::content::Content).
    pub verify_content: bool,
    /// Program that the driver `xrdcp` runs.
    pub program: PathBuf,
}

impl CacheSettings {
    /// Makes the usual settings of a cache at an address.
    pub fn new(address: impl Into<String>) -> Self {
        CacheSettings {
            address: address.into(),
            token: None,
            token_use: TokenUse::Login,
            token_hosts: Vec::new(),
            tls: None,
            redirects_max: REDIRECTS_MAX,
            method: ReadMethod::Plain,
            read_bytes: 1 << 20,
            reads_ahead: 4,
            is_connected_anew: false,
            verify_content: false,
            program: PathBuf::from("xrdcp"),
        }
    }
}

/// Longest time of an access: a fixed time, and one for each byte.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AccessTime {
    /// Fixed time.
    pub base: Duration,
    /// Bytes for which a second is added.
    pub bytes_per_second: u64,
}

impl Default for AccessTime {
    /// Returns the times of the tests at SC18: 10 s, and a second for each megabyte.
    fn default() -> Self {
        AccessTime { base: Duration::from_secs(10), bytes_per_second: 1_000_000 }
    }
}

impl AccessTime {
    /// Returns the longest time of an access to so many bytes.
    pub fn of(&self, bytes: u64) -> Duration {
        let rate = self.bytes_per_second.max(1);
        let rest = Duration::from_nanos(bytes % rate * 1_000_000_000 / rate);
        self.base.saturating_add(Duration::from_secs(bytes / rate)).saturating_add(rest)
    }
}

/// Receiver of summaries while an agent works.
pub type ProgressSink = Arc<dyn Fn(&AgentSummary) + Send + Sync>;

/// Settings of an agent.
#[derive(Clone)]
pub struct AgentSettings {
    /// Address of the service, `http://HOST:PORT` or `https://HOST:PORT`.
    pub service: String,
    /// Name of the run.
    pub run: String,
    /// Name of the agent, unique among all of the run.
    pub name: String,
    /// Token of the agent at the service.
    pub token: Option<String>,
    /// Trust in the certificate of the service, for `https`.
    pub tls: Option<Arc<rustls::ClientConfig>>,
    /// The cache.
    pub cache: CacheSettings,
    /// Way in which the agent reads.
    pub driver: DriverKind,
    /// Most accesses at once. For `xrdcp` these are processes.
    pub in_flight: usize,
    /// Most items that wait for their time.
    pub prefetch: usize,
    /// Longest time of an access.
    pub access_time: AccessTime,
    /// Time for which the agent asks again while the service does not answer.
    pub service_patience: Duration,
    /// Time for the last results to reach the service when the agent is stopped.
    pub finish_time: Duration,
    /// Time between two summaries.
    pub progress_every: Duration,
    /// Receiver of the summaries.
    pub progress: Option<ProgressSink>,
}

impl AgentSettings {
    /// Makes the usual settings of an agent.
    pub fn new(
        service: impl Into<String>,
        run: impl Into<String>,
        name: impl Into<String>,
        cache: CacheSettings,
    ) -> Self {
        AgentSettings {
            service: service.into(),
            run: run.into(),
            name: name.into(),
            token: None,
            tls: None,
            cache,
            driver: DriverKind::Xrootd,
            in_flight: 64,
            prefetch: 5000,
            access_time: AccessTime::default(),
            service_patience: Duration::from_secs(600),
            finish_time: Duration::from_secs(10),
            progress_every: Duration::from_secs(10),
            progress: None,
        }
    }

    /// Refuses numbers outside of their limits.
    pub(crate) fn check(&self) -> Result<()> {
        let within = |what: &str, value: usize, max: usize| match value {
            0 => Err(Error::invalid(format!("{what} is 0"))),
            _ if value > max => Err(Error::limit(what, value, max)),
            _ => Ok(()),
        };
        within("the number of accesses at once", self.in_flight, IN_FLIGHT_MAX)?;
        within("the number of items that wait", self.prefetch, PREFETCH_MAX)?;
        within("the number of reads ahead", self.cache.reads_ahead, READS_AHEAD_MAX)?;
        within("the bytes of a read", self.cache.read_bytes as usize, READ_BYTES_MAX as usize)?;
        if self.cache.method == ReadMethod::Pages && !self.cache.read_bytes.is_multiple_of(PAGE_BYTES) {
            return Err(Error::invalid(format!(
                "the bytes of a read of pages are a multiple of {PAGE_BYTES}"
            )));
        }
        if self.name.is_empty() || self.run.is_empty() {
            return Err(Error::invalid("an agent needs a name and the name of a run"));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_of_an_access_grows_with_its_bytes() {
        let time = AccessTime::default();
        assert_eq!(time.of(0), Duration::from_secs(10));
        assert_eq!(time.of(2_500_000), Duration::from_millis(12_500));
        let most = AccessTime { base: Duration::MAX, bytes_per_second: 0 };
        assert_eq!(most.of(u64::MAX), Duration::MAX);
    }

    /// Property: each number is taken up to its limit, and refused above it.
    #[test]
    fn numbers_outside_of_their_limits_are_refused() {
        let settings = || AgentSettings::new("http://s:1", "r", "a", CacheSettings::new("root://c"));
        assert!(settings().check().is_ok());
        let set = |change: &dyn Fn(&mut AgentSettings)| {
            let mut settings = settings();
            change(&mut settings);
            settings.check().is_ok()
        };
        assert!(set(&|s| s.in_flight = IN_FLIGHT_MAX) && !set(&|s| s.in_flight = IN_FLIGHT_MAX + 1));
        assert!(set(&|s| s.prefetch = PREFETCH_MAX) && !set(&|s| s.prefetch = PREFETCH_MAX + 1));
        assert!(set(&|s| s.cache.reads_ahead = READS_AHEAD_MAX));
        assert!(!set(&|s| s.cache.reads_ahead = READS_AHEAD_MAX + 1));
        assert!(set(&|s| s.cache.read_bytes = READ_BYTES_MAX));
        assert!(!set(&|s| s.cache.read_bytes = READ_BYTES_MAX + 1));
        let pages = |bytes| {
            set(&|s| {
                s.cache.method = ReadMethod::Pages;
                s.cache.read_bytes = bytes;
            })
        };
        assert!(pages(PAGE_BYTES) && !pages(PAGE_BYTES + 1));
        assert!(!set(&|s| s.in_flight = 0) && !set(&|s| s.cache.read_bytes = 0));
        assert!(!set(&|s| s.name.clear()) && !set(&|s| s.run.clear()));
    }
}
