//! Replay service: its listener, its runs, and what time brings to them.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use exacat_http::HttpClient;
use exacat_model::{Error, ErrorKind, Result};
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::JoinSet;

use super::access::Access;
use super::both_sides::BothSides;
use super::clock::{MachineClock, ReplayClock};
use super::paths::Paths;
use super::reports::Reports;
use super::runs::Runs;
use crate::collector::{Collector, CollectorSettings};
use crate::limits::TICK;

/// Settings of a service.
pub struct ReplayServerSettings {
    /// Directory of its runs.
    pub directory: PathBuf,
    /// Trace of new runs.
    pub trace: Option<PathBuf>,
    /// Address of its HTTP.
    pub listen: SocketAddr,
    /// Its certificate; none for plain HTTP.
    pub tls: Option<Arc<rustls::ServerConfig>>,
    /// Token of operators, which agents may show too; none lets everybody in.
    pub token: Option<String>,
    /// Token that is for agents only.
    pub agent_token: Option<String>,
    /// Address for the records of caches; none takes none.
    pub collect: Option<SocketAddr>,
    /// Origins whose counters are read.
    pub origins: Vec<HttpClient>,
}

/// Service that runs.
pub struct ReplayServer {
    address: SocketAddr,
    collect: Option<SocketAddr>,
    runs: usize,
    end: watch::Sender<bool>,
    tasks: JoinSet<()>,
}

fn unavailable(what: String) -> Error {
    Error::new(ErrorKind::Unavailable, what)
}

impl ReplayServer {
    /// Opens the runs, and begins to serve.
    ///
    /// # Errors
    /// A file is damaged, or an address is in use.
    pub async fn start(settings: ReplayServerSettings) -> Result<Self> {
        let clock: Arc<dyn ReplayClock> = Arc::new(MachineClock::default());
        let (directory, trace) = (settings.directory.clone(), settings.trace.clone());
        let opened =
            tokio::task::spawn_blocking(move || Runs::open(&directory, trace.as_deref(), clock)).await;
        let runs = Arc::new(opened.map_err(|error| Error::new(ErrorKind::Internal, error.to_string()))??);
        let cannot = |address: SocketAddr| {
            move |error: std::io::Error| unavailable(format!("cannot listen at {address}: {error}"))
        };
        let listener = TcpListener::bind(settings.listen).await.map_err(cannot(settings.listen))?;
        let address = listener.local_addr().map_err(cannot(settings.listen))?;
        let sides = Arc::new(BothSides::new(settings.collect.is_some(), settings.origins));
        let (end, is_ending) = watch::channel(false);
        let mut tasks = JoinSet::new();
        let mut collect = None;
        if let Some(at) = settings.collect {
            let started = Collector::start(CollectorSettings::new(at)).await?;
            collect = started.0.addresses().first().copied();
            tasks.spawn(Arc::clone(&sides).collect(started, Arc::clone(&runs), is_ending.clone()));
        }
        tasks.spawn(Arc::clone(&sides).ask_origins(Arc::clone(&runs), is_ending.clone()));
        tasks.spawn(tick(Arc::clone(&runs), Arc::clone(&sides), is_ending.clone()));
        let access = Access::new(settings.token, settings.agent_token, settings.tls.is_some());
        let count = runs.all().len();
        let paths = Arc::new(Paths::new(runs, Arc::new(Reports::new(sides)), access));
        tasks.spawn(exacat_http::serve(paths, listener, settings.tls, is_ending));
        Ok(ReplayServer { address, collect, runs: count, end, tasks })
    }

    /// Returns the address of its HTTP.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Returns the address for the records of caches.
    pub fn collects_at(&self) -> Option<SocketAddr> {
        self.collect
    }

    /// Returns the number of runs that it found.
    pub fn runs(&self) -> usize {
        self.runs
    }

    /// Ends the service. Results that were answered are durable.
    pub async fn stop(mut self) {
        self.end.send_replace(true);
        while self.tasks.join_next().await.is_some() {}
    }
}

/// Ends leases that ran out, judges stop conditions, and keeps what caches and origins told.
async fn tick(runs: Arc<Runs>, sides: Arc<BothSides>, mut is_ending: watch::Receiver<bool>) {
    let mut ticks = tokio::time::interval(TICK);
    ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            _ = ticks.tick() => {}
            _ = is_ending.changed() => break,
        }
        for (name, run) in runs.all() {
            if let Err(error) = run.tick().await {
                tracing::error!(run = name, %error, "the run cannot go on: restart the service");
            }
        }
        sides.keep(&runs).await;
    }
    sides.keep(&runs).await;
}

/// Time that requests to origins take at most.
pub const ORIGIN_TIME: Duration = Duration::from_secs(5);
