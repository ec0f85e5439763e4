//! Settings of a writer service on a machine.

use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use exacat_model::{Error, Result};
use exacat_writer::RemovalPolicy;

use crate::discovery::MulticastSettings;
use crate::producers::ProducerAuthorities;
use crate::stage_out::StageOut;
use crate::trust::Trust;

/// Other services: which are trusted, and where they are looked for.
#[derive(Clone, Debug)]
pub struct LinkSettings {
    /// Trust between services.
    pub trust: Trust,
    /// Name of the installation.
    pub cluster: String,
    /// Multicast, where there is one.
    pub multicast: Option<MulticastSettings>,
    /// HOST:PORT of services.
    pub seeds: Vec<String>,
}

/// Volumes on a file system that all services have.
#[derive(Clone, Debug)]
pub struct SharedVolumes {
    /// Directory with the volumes of all services, those of this one among them.
    pub directory: PathBuf,
    /// Time without a service after which another one takes its volumes over.
    pub after: Duration,
}

impl SharedVolumes {
    /// Checks that others find the volumes of this service.
    pub(crate) fn check(&self, volumes: &[PathBuf], is_linked: bool) -> Result<()> {
        if !is_linked {
            let what =
                "shared volumes need links to other services (seeds or a group): only they tell who is gone";
            return Err(Error::invalid(what));
        }
        match volumes.iter().find(|volume| volume.parent() != Some(self.directory.as_path())) {
            None => Ok(()),
            Some(other) => Err(Error::invalid(format!(
                "{} is not a directory in {}: with shared volumes all are, so that others find them",
                other.display(),
                self.directory.display()
            ))),
        }
    }
}

/// Settings of a service.
#[derive(Clone)]
pub struct ServerSettings {
    /// Name, for logs and the table.
    pub name: String,
    /// Address to listen on.
    pub listen: SocketAddr,
    /// Host and port that producers connect to; none for the address of the listener.
    pub address: Option<String>,
    /// Directories of the volumes.
    pub volumes: Vec<PathBuf>,
    /// True to take over volumes of another service.
    pub adopt: bool,
    /// Shared file system of the volumes; none if the disks are this machine's.
    pub shared: Option<SharedVolumes>,
    /// False for a service that only ends what it has: it starts drained.
    pub takes_files: bool,
    /// Blocks of 1 MiB for the bytes of all files.
    pub blocks: usize,
    /// Age in milliseconds of bytes at which a block is written before it is full.
    pub flush_ms: u64,
    /// Silence in milliseconds after which a connection is closed.
    pub idle_ms: u32,
    /// Time in milliseconds without its producer after which a part is sealed.
    pub orphan_ms: u64,
    /// Silence in milliseconds after which another service counts as gone.
    pub gone_ms: u64,
    /// Free bytes of a volume below which it takes no file.
    pub free_bytes_min: u64,
    /// Bytes of a segment of the log of a volume's index.
    pub segment_bytes: u64,
    /// TLS of HTTP, and of the data path; none if there are plain connections only.
    pub tls: Option<Arc<rustls::ServerConfig>>,
    /// Authorities of producers; none if only tokens prove producers. The data path then has their TLS.
    pub producers: Option<ProducerAuthorities>,
    /// Links to other services; none for a service that is alone.
    pub links: Option<LinkSettings>,
    /// Says from which addresses plain connections are taken.
    pub plain_from: Arc<dyn Fn(IpAddr) -> bool + Send + Sync>,
    /// Address of HTTP; none for no HTTP. It has the TLS of the data path, and plain connections from the
    /// same networks. These networks see status, table and metrics without a token.
    pub http: Option<SocketAddr>,
    /// URL at which others find this HTTP; none for its address.
    pub http_url: Option<String>,
    /// TLS to the HTTP of other services; none for plain connections.
    pub http_trust: Option<Arc<rustls::ClientConfig>>,
    /// Rule for the removal of files that are on another storage element.
    pub removal: RemovalPolicy,
    /// Copies of certified files to another storage element.
    pub stage_out: Option<StageOut>,
}

impl ServerSettings {
    /// Returns the settings of a service with these volumes.
    pub fn new(listen: SocketAddr, volumes: Vec<PathBuf>) -> Self {
        ServerSettings {
            name: "writer".to_owned(),
            listen,
            address: None,
            volumes,
            adopt: false,
            shared: None,
            takes_files: true,
            blocks: 512,
            flush_ms: 8,
            idle_ms: 10_000,
            orphan_ms: 60_000,
            gone_ms: 3_000,
            free_bytes_min: 1 << 30,
            segment_bytes: 64 << 20,
            tls: None,
            producers: None,
            links: None,
            plain_from: Arc::new(|address| address.is_loopback()),
            http: None,
            http_url: None,
            http_trust: None,
            removal: RemovalPolicy::default(),
            stage_out: None,
        }
    }
}
