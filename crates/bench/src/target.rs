//! Target of a measurement: the catalogue in this process, or a server over the network.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use exacat_catalogue::{Caller, Catalogue, Settings};
use exacat_client::{Client, ClientSettings, Credentials, Endpoint};
use exacat_model::{Answer, Error, ErrorKind, Operation};
use exacat_store::{Store, SystemClock};
use exacat_store_embedded::{EmbeddedSettings, EmbeddedStore};

use super::process::{own_cpu_s, process_cpu_s, process_memory_bytes};

/// Time limit for a started server's first answer.
const START_LIMIT: Duration = Duration::from_secs(60);

/// Catalogue that gets the operations.
pub enum Target {
    /// In this process: no network, no frames.
    InProcess {
        /// The rules over an embedded store.
        catalogue: Arc<Catalogue>,
        /// An admin.
        caller: Box<Caller>,
    },
    /// Server in a process of its own, over its Unix socket or TCP.
    Network {
        /// Clients, with one connection each.
        clients: Vec<Client>,
        /// Process of the server, if this program started it.
        pid: Option<u32>,
    },
}

impl Target {
    /// Name in the table.
    pub fn name(&self) -> &'static str {
        match self {
            Target::InProcess { .. } => "in process",
            Target::Network { .. } => "network",
        }
    }

    /// Sends one operation.
    pub async fn call(&self, lane: usize, operation: Operation) -> Result<Answer, Error> {
        match self {
            Target::InProcess { catalogue, caller } => {
                catalogue.execute(caller, catalogue.new_operation_id()?, operation).await
            }
            Target::Network { clients, .. } => clients[lane % clients.len()].call(operation).await,
        }
    }

    /// CPU time of both sides so far, seconds.
    pub fn cpu_s(&self) -> f64 {
        let server = match self {
            Target::Network { pid: Some(pid), .. } => process_cpu_s(&pid.to_string()),
            _ => 0.0,
        };
        own_cpu_s() + server
    }

    /// Resident memory of the process with the state, bytes.
    pub fn memory_bytes(&self) -> u64 {
        match self {
            Target::InProcess { .. } => process_memory_bytes("self"),
            Target::Network { pid: Some(pid), .. } => process_memory_bytes(&pid.to_string()),
            Target::Network { pid: None, .. } => 0,
        }
    }
}

/// Opens the embedded store in `directory` in this process.
pub(crate) async fn open_in_process(directory: &Path) -> Result<Target, Error> {
    let clock = Arc::new(SystemClock);
    let settings = EmbeddedSettings { directory: directory.to_owned(), ..EmbeddedSettings::default() };
    let store: Arc<dyn Store> = tokio::task::spawn_blocking({
        let clock = clock.clone();
        move || EmbeddedStore::open(settings, clock)
    })
    .await
    .map_err(|error| Error::new(ErrorKind::Internal, error.to_string()))??;
    let catalogue = Catalogue::open(store, clock, Settings::default()).await?;
    let caller = catalogue.caller_named(&exacat_model::AccountName::parse("admin")?).await?;
    Ok(Target::InProcess { catalogue, caller: Box::new(caller) })
}

fn failed(error: std::io::Error) -> Error {
    Error::new(ErrorKind::Unavailable, format!("cannot start a server: {error}"))
}

/// Server started for the measurement; ends when dropped.
pub(crate) struct StartedServer {
    child: Child,
    data: PathBuf,
}

impl StartedServer {
    /// Starts this binary as a server in `data`, and waits until it answers. Returns the time that
    /// took.
    pub(crate) async fn start(data: &Path) -> Result<(Self, Duration), Error> {
        Self::start_with(data, &[]).await
    }

    /// Starts the server with more arguments.
    pub(crate) async fn start_with(data: &Path, more: &[&str]) -> Result<(Self, Duration), Error> {
        Self::start_program(&std::env::current_exe().map_err(failed)?, data, more).await
    }

    /// Starts a server of another program.
    pub(crate) async fn start_program(
        binary: &Path,
        data: &Path,
        more: &[&str],
    ) -> Result<(Self, Duration), Error> {
        let start = Instant::now();
        let child = Command::new(binary)
            .args(["serve", "--listen", "127.0.0.1:0", "--data"])
            .arg(data)
            .args(more)
            .env("EXACAT_LOG", "warn")
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .spawn()
            .map_err(failed)?;
        let mut server = StartedServer { child, data: data.to_owned() };
        while server.connect().await.is_err() {
            if let Some(status) = server.child.try_wait().map_err(failed)? {
                return Err(Error::new(
                    ErrorKind::Unavailable,
                    format!("the server ended at once: {status}"),
                ));
            }
            if start.elapsed() > START_LIMIT {
                return Err(Error::new(ErrorKind::Unavailable, "the server does not answer"));
            }
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
        Ok((server, start.elapsed()))
    }

    /// CPU time of the server so far, seconds.
    pub(crate) fn cpu_s(&self) -> f64 {
        process_cpu_s(&self.child.id().to_string())
    }

    /// Number of its process.
    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Data directory of the server.
    pub(crate) fn data(&self) -> &Path {
        &self.data
    }

    /// Socket of the server on this machine.
    pub(crate) fn socket(&self) -> PathBuf {
        self.data.join("exacat.sock")
    }

    /// Opens one connection to it.
    pub(crate) async fn connect(&self) -> Result<Client, Error> {
        let target = exacat_client::Target::new(vec![Endpoint::Unix(self.socket())])?;
        Client::connect(target, Credentials::local(), ClientSettings::default()).await
    }

    /// Makes a target with so many connections.
    pub(crate) async fn target(&self, connections: usize) -> Result<Target, Error> {
        let mut clients = Vec::new();
        let start = Instant::now();
        while clients.len() < connections {
            match self.connect().await {
                Ok(client) => clients.push(client),
                // The server is still closing those of the measurement before.
                Err(error) if error.kind == ErrorKind::Busy && start.elapsed() < START_LIMIT => {
                    tokio::time::sleep(Duration::from_millis(2)).await;
                }
                Err(error) => return Err(error),
            }
        }
        Ok(Target::Network { clients, pid: Some(self.child.id()) })
    }

    /// Ends it without warning, as a power cut would.
    pub(crate) fn kill(mut self) -> Result<(), Error> {
        self.end()
    }

    fn end(&mut self) -> Result<(), Error> {
        let failed = |error: std::io::Error| {
            Error::new(ErrorKind::Internal, format!("cannot end the server: {error}"))
        };
        self.child.kill().map_err(failed)?;
        self.child.wait().map_err(failed)?;
        Ok(())
    }
}

impl Drop for StartedServer {
    fn drop(&mut self) {
        // `kill` may have ended it already; the error means just that.
        let _ = self.end();
    }
}
