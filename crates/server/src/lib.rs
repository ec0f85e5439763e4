//! The server: faces, authentication, admission, metrics, background work, and a clean shutdown.
//!
//! Start with [`Server::start`], which makes and runs all parts, and `service`, which all faces
//! share. A face translates between a protocol and the catalogue's operations and has no rules of
//! its own. [`settings`] has all limits.

mod access;
mod activity;
pub mod admission;
mod answer_errors;
mod beside;
mod cancel;
mod completion;
mod contents;
mod data_disk;
mod data_server;
mod directory;
mod elements;
mod encoded_items;
mod ended;
mod envelopes;
pub mod faces;
mod feeds;
mod following;
mod frames;
mod gauges;
mod instruments;
pub mod issuers;
mod life;
mod look_ups;
mod machine;
mod metric_table;
mod open_files;
mod paced;
mod past;
mod peer;
mod phase;
mod places;
mod process;
mod randomness;
pub mod reference;
pub mod report;
mod requester;
mod scrape;
mod server_states;
mod servers;
mod service;
pub mod settings;
mod status_metrics;
mod tls;
#[cfg(feature = "otel")]
mod traces;
mod uploads;
mod visits;
mod workers;

pub use activity::{RequestIdentity, current_request};
pub use beside::ElementsBeside;
pub use life::{Addresses, RunningServer, Server, StopHandle};
pub use look_ups::LOOK_UPS_HEAD;
pub use open_files::{OPEN_FILES_KEPT, connections_within, raise_open_files};
pub use settings::{
    CertificateFiles, ChecksumServer, EnvelopeSettings, HttpSettings, JalienSettings, Limits, LookUpLog,
    LookUpSink, Network, ServerSettings, StoreChoice, TraceSettings, WorkerSettings, XrootdSettings,
};
pub use tls::{certificate_config, trusting};
