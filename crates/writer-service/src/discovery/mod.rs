//! Finds the other writer services: by multicast, and by a list of seeds.
//!
//! Nothing here is believed for more than addresses. The links judge the services there.

mod heard;
mod multicast;
mod seeds;

use std::io;
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use exacat_wire::writer::limits::CLUSTER_BYTES_MAX;
use exacat_wire::writer::{Announcement, ServiceId};
use tokio::sync::watch;
use tokio::task::JoinHandle;

use crate::limits::SEEDS_MAX;

/// Settings of discovery. Without a group and without seeds it finds nobody.
#[derive(Clone, Debug)]
pub struct DiscoverySettings {
    /// This service.
    pub service: ServiceId,
    /// Name of the installation. Announcements of others are ignored.
    pub cluster: String,
    /// Number of this start, larger than that of all earlier ones.
    pub incarnation: u64,
    /// Address at which this service accepts connections. An unspecified IP address stands for that of the
    /// interface that sends.
    pub address: SocketAddr,
    /// Multicast, where there is one.
    pub multicast: Option<MulticastSettings>,
    /// HOST:PORT of services. This service may be among them.
    pub seeds: Vec<String>,
}

/// Group for announcements.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MulticastSettings {
    /// Group and port.
    pub group: SocketAddrV4,
    /// Address of the interface; none for that of the default route.
    pub interface: Option<Ipv4Addr>,
}

/// A service may be at an address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Found {
    /// The address.
    pub address: SocketAddr,
    /// The service, if it said so itself. A seed does not.
    pub service: Option<ServiceId>,
}

/// Receiver of what is found. It must not block.
pub(crate) type Finder = Arc<dyn Fn(Found) + Send + Sync>;

/// Counters of discovery, since the start.
#[derive(Debug, Default)]
pub struct DiscoveryCounters {
    /// Announcements sent.
    pub sent: AtomicU64,
    /// Announcements that could not be sent.
    pub unsent: AtomicU64,
    /// Announcements of other services of the cluster.
    pub heard: AtomicU64,
    /// Announcements of this service.
    pub own: AtomicU64,
    /// Announcements that name this service, but are not its own: two services have one identity.
    pub twins: AtomicU64,
    /// Announcements of other clusters.
    pub other_clusters: AtomicU64,
    /// Announcements of other versions.
    pub other_versions: AtomicU64,
    /// Datagrams that are no announcement.
    pub foreign: AtomicU64,
    /// Announcements above the rate of their sender.
    pub limited: AtomicU64,
    /// Times at which the group was joined again.
    pub rejoined: AtomicU64,
    /// Resolutions of seeds that failed.
    pub unresolved: AtomicU64,
}

/// Adds one to a counter.
fn count(counter: &AtomicU64) {
    counter.fetch_add(1, Ordering::Relaxed);
}

/// Discovery that runs. It ends when dropped.
pub struct Discovery {
    announced: watch::Sender<Announcement>,
    counters: Arc<DiscoveryCounters>,
    tasks: Vec<JoinHandle<()>>,
}

impl Discovery {
    /// Joins the group, and begins to look for services, on the runtime of the caller. Passes on to
    /// `finder`, which must not block.
    pub fn start(
        settings: DiscoverySettings,
        finder: impl Fn(Found) + Send + Sync + 'static,
    ) -> io::Result<Discovery> {
        let invalid = |reason: String| Err(io::Error::new(io::ErrorKind::InvalidInput, reason));
        if settings.cluster.is_empty() || settings.cluster.len() > CLUSTER_BYTES_MAX {
            return invalid(format!("the name of a cluster has 1 to {CLUSTER_BYTES_MAX} bytes"));
        }
        if settings.seeds.len() > SEEDS_MAX {
            return invalid(format!("{} seeds; at most {SEEDS_MAX}", settings.seeds.len()));
        }
        if let Some(seed) = settings.seeds.iter().find(|seed| !seeds::is_seed(seed)) {
            return invalid(format!("a seed is HOST:PORT, which {seed:?} is not"));
        }
        let finder: Finder = Arc::new(finder);
        let counters = Arc::new(DiscoveryCounters::default());
        let (announced, announcement) = watch::channel(Announcement {
            cluster: settings.cluster,
            service: settings.service,
            incarnation: settings.incarnation,
            address: settings.address,
        });
        let mut tasks = Vec::new();
        if let Some(multicast) = settings.multicast {
            let socket =
                multicast::join(multicast).map_err(|error| multicast::explained(multicast, &error))?;
            let run =
                multicast::run(multicast, socket, announcement, Arc::clone(&finder), Arc::clone(&counters));
            tasks.push(tokio::spawn(run));
        }
        for seed in settings.seeds {
            tasks.push(tokio::spawn(seeds::follow(seed, Arc::clone(&finder), Arc::clone(&counters))));
        }
        Ok(Discovery { announced, counters, tasks })
    }

    /// Announces another address of this service, at once.
    pub fn announce(&self, address: SocketAddr) {
        self.announced.send_modify(|announcement| announcement.address = address);
    }

    /// Returns the counters.
    pub fn counters(&self) -> &DiscoveryCounters {
        &self.counters
    }

    /// Ends all tasks.
    pub fn stop(&self) {
        self.tasks.iter().for_each(JoinHandle::abort);
    }
}

impl Drop for Discovery {
    fn drop(&mut self) {
        self.stop();
    }
}
