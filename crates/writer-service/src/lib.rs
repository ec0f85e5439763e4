//! The writer service on a machine: its sockets, its threads for the disks, its links to other services,
//! and the catalogue that it certifies files into. The rules of the service are those of `exacat-writer`.
//!
//! Bytes pass through it in this order:
//!
//! - [`Server`] opens the volumes, listens, and owns everything else.
//! - `connection` reads frames and chunks of a producer, and writes what is to be sent.
//! - `hub` has the state machine under one lock, and distributes its outputs.
//! - `disks` does the works of the volumes: four threads for bytes, one for each index.
//! - `http` shows its state and the content of files; [`Remote`] is its client.
//! - `content` puts files together from their parts, and [`StageOut`] copies them elsewhere.
//! - `elsewhere` finds the service that has a file, for readers who ask another one.
//! - [`Catalogue`] books a file when it is opened, and commits it when it is whole.
//!
//! `takeover` runs a service of another machine that is gone, where the volumes are on a shared file system.
//! [`Discovery`] finds the other services, [`Peers`] has the links to them, and [`Trust`] decides which peers
//! are services. [`ProducerAuthorities`] judges the certificates of producers.
#![forbid(unsafe_code)]

mod carrier;
mod catalogue;
mod certificates;
mod certifying;
mod clock;
mod connection;
mod content;
mod discovery;
mod disks;
mod elsewhere;
mod http;
mod hub;
mod identity;
pub mod limits;
mod measured_disk;
mod measures;
mod merge;
mod metric_table;
mod metrics;
mod opening;
mod outgoing;
mod peers;
mod producers;
mod remote;
mod server;
mod settings;
pub mod shapes;
mod shown;
mod stage_out;
mod subjects;
mod takeover;
mod trust;
mod view;

pub use carrier::{Carrier, DirectoryCarrier, Load, ProgramCarrier, carrier_of};
pub use catalogue::{
    Booking, Catalogue, CertificateHolder, CommitFailure, Credential, Readable, StagedReplica,
};
pub use certifying::{CatalogueSettings, ClientCatalogue};
pub use discovery::{Discovery, DiscoveryCounters, DiscoverySettings, Found, MulticastSettings};
pub use exacat_http::HttpClientSettings as RemoteSettings;
pub use exacat_writer::RemovalPolicy;
pub use merge::{Merged, merge};
pub use metrics::page as metrics_page;
pub use peers::{PeerStatus, Peers, PeersSettings, UnansweredAddress};
pub use producers::ProducerAuthorities;
pub use remote::{Remote, RemoteContent};
pub use server::{Listeners, Server};
pub use settings::{LinkSettings, ServerSettings, SharedVolumes};
pub use stage_out::{StageOut, target_of};
pub use takeover::Takeover;
pub use trust::{IdentityFiles, PlainNetworks, Trust};
