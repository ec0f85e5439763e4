//! Agent: makes the accesses of a run, and reports their ends.
//!
//! [`Agent::run`] asks a service for items, begins each at its time, reads through a cache, and brings the
//! results back. It keeps them until the service has them durably.

mod access;
mod dial;
mod http;
pub mod limits;
mod link;
mod outbox;
mod place;
mod schedule;
mod settings;
mod summary;
mod work;
mod xrdcp;
mod xrootd;

pub use dial::trusting;
pub use settings::{
    AccessTime, AgentSettings, CacheSettings, DriverKind, ProgressSink, ReadMethod, TokenUse,
};
pub use summary::{AgentSummary, TimesUs};

use exacat_model::Result;
use tokio::sync::watch;

use http::HttpDriver;
use link::HttpLink;
use work::Work;
use xrdcp::XrdcpDriver;
use xrootd::XrootdDriver;

/// Agent of a run.
pub struct Agent;

impl Agent {
    /// Works until the run ends, or until `stop` becomes true.
    ///
    /// # Errors
    /// The settings are wrong, the service refuses the agent, or it did not answer for too long.
    pub async fn run(settings: AgentSettings, stop: watch::Receiver<bool>) -> Result<AgentSummary> {
        settings.check()?;
        let token = settings.token.clone();
        let link = HttpLink::new(&settings.service, &settings.run, token, settings.tls.clone())?;
        match settings.driver {
            DriverKind::Xrootd => {
                let driver = XrootdDriver::new(&settings.cache, settings.in_flight)?;
                Work::new(settings, link, driver).run(stop).await
            }
            DriverKind::Http => {
                let driver = HttpDriver::new(&settings.cache, settings.in_flight)?;
                Work::new(settings, link, driver).run(stop).await
            }
            DriverKind::Xrdcp => {
                let driver = XrdcpDriver::new(&settings.cache)?;
                Work::new(settings, link, driver).run(stop).await
            }
        }
    }
}
