//! Where clients are, and which storage elements they met with failure at: what decides, beside distance and status, which
//! replica is read first.

mod failures;
mod networks;

use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Instant;

use exacat_model::{AccountName, Result, SeNumber};

use failures::Failures;
pub use networks::Network;
use networks::Networks;

/// See the module.
pub(crate) struct Places {
    networks: Networks,
    failures: Failures,
}

impl Places {
    /// With the sites of networks as a file has them.
    pub fn open(networks: Option<PathBuf>) -> Result<Arc<Self>> {
        Ok(Arc::new(Places { networks: Networks::open(networks)?, failures: Failures::default() }))
    }

    /// The site of a client, if its network is known.
    pub fn site_of(&self, client: IpAddr) -> Option<AccountName> {
        self.networks.site_of(client, Instant::now())
    }

    /// A client came back from a storage element that it could not read from.
    pub fn failed(&self, se: SeNumber, client: IpAddr) {
        self.failures.add(se, client, Instant::now());
    }

    /// Did so many meet with failure there of late that others had better try elsewhere first?
    pub fn is_doubtful(&self, se: SeNumber) -> bool {
        self.failures.are_many(se, Instant::now())
    }
}
