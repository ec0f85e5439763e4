//! Sites of clients, and failures of storage elements. With distance and status they rank the
//! replicas.

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

/// Sites of clients and failures of storage elements.
pub(crate) struct Places {
    networks: Networks,
    failures: Failures,
}

impl Places {
    /// Opens a file with the sites of networks.
    pub(crate) fn open(networks: Option<PathBuf>) -> Result<Arc<Self>> {
        Ok(Arc::new(Places { networks: Networks::open(networks)?, failures: Failures::default() }))
    }

    /// Returns the site of a client, if its network is known.
    pub(crate) fn site_of(&self, client: IpAddr) -> Option<AccountName> {
        self.networks.site_of(client, Instant::now())
    }

    /// Records that a client could not read from a storage element.
    pub(crate) fn failed(&self, se: SeNumber, client: IpAddr) {
        self.failures.add(se, client, Instant::now());
    }

    /// True if so many clients failed there lately that others should try elsewhere first.
    pub(crate) fn is_doubtful(&self, se: SeNumber) -> bool {
        self.failures.are_many(se, Instant::now())
    }
}
