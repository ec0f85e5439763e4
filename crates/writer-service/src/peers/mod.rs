//! Links to the other writer services: one connection to each, made again when it ends.
//!
//! A service sends on the connections that it made, and receives on those that it accepted as well as on
//! those. So two services have one connection in each direction, and never choose between two.

mod greeting;
mod link;
mod queue;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Instant;

use exacat_wire::writer::limits::SERVICES_MAX;
use exacat_wire::writer::{Frame, ServiceId, Table, encode};
use parking_lot::Mutex;
use tokio::io::AsyncWriteExt;
use tokio::net::lookup_host;
use tokio::runtime::Handle;
use tokio::sync::mpsc;
use tokio::task::{AbortHandle, JoinSet};
use tokio::time::timeout;

use crate::discovery::Found;
use crate::limits::{LINKS_STOP_MAX, NAME_ADDRESSES_MAX, OWN_ADDRESS_LASTS, PROBES_MAX, RESOLUTION_MAX};
use crate::trust::Trust;
use greeting::{Greeted, Greeter};
use link::{Link, Source, Surroundings};

pub use link::PeerStatus;

/// Settings of the links.
#[derive(Clone, Debug)]
pub struct PeersSettings {
    /// This service.
    pub service: ServiceId,
    /// Its name, for the logs of the others.
    pub name: String,
    /// Trust between services.
    pub trust: Trust,
}

/// An address, found without its service, at which none answers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnansweredAddress {
    /// The address.
    pub address: SocketAddr,
    /// Reason.
    pub reason: String,
}

struct LinkEntry {
    link: Arc<Link>,
    task: AbortHandle,
    heard: Instant,
    /// False as long as only announcements name the service.
    is_confirmed: bool,
}

#[derive(Default)]
struct PeersState {
    links: BTreeMap<ServiceId, LinkEntry>,
    /// Addresses that are being asked for their service.
    probes: BTreeSet<SocketAddr>,
    /// Addresses of this service, and the time of the discovery.
    own: BTreeMap<SocketAddr, Instant>,
    unanswered: BTreeMap<SocketAddr, String>,
    /// Last table, encoded.
    table: Option<Arc<[u8]>>,
    tasks: JoinSet<()>,
    is_stopped: bool,
}

struct Shared {
    greeter: Greeter,
    runtime: Handle,
    sink: mpsc::Sender<(ServiceId, Frame)>,
    state: Mutex<PeersState>,
}

/// Links to the other services. Clones are of the same links, which go on until [`Peers::stop`].
#[derive(Clone)]
pub struct Peers(Arc<Shared>);

impl fmt::Debug for Peers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.status()).finish()
    }
}

impl Peers {
    /// Begins without any link, on the runtime of the caller. Tables, part-queries, part-reports and
    /// certified frames of the others go to `sink`. While it is full, the links read no more.
    pub fn start(settings: PeersSettings, sink: mpsc::Sender<(ServiceId, Frame)>) -> Peers {
        let PeersSettings { service, name, trust } = settings;
        let (greeter, runtime) = (Greeter { service, name, trust }, Handle::current());
        Peers(Arc::new(Shared { greeter, runtime, sink, state: Mutex::default() }))
    }

    /// Takes what the discovery found. Does not block.
    pub fn found(&self, found: Found) {
        match found.service {
            Some(service) => self.0.learn(service, &found.address.to_string(), Source::Announcement),
            None => self.0.probe(found.address),
        }
    }

    /// Sends a frame to a service. It may be lost: the sender repeats what matters.
    pub fn tell(&self, service: ServiceId, frame: &Frame) {
        let link = self.0.state.lock().links.get(&service).map(|entry| Arc::clone(&entry.link));
        if let Some(link) = link {
            link.tell(frame);
        }
    }

    /// Sends the table to all services, and learns their addresses from it.
    pub fn gossip(&self, table: Table) {
        self.0.learn_table(&table);
        let mut bytes = Vec::new();
        encode(&mut bytes, &Frame::Table(table));
        let bytes: Arc<[u8]> = bytes.into();
        let mut state = self.0.state.lock();
        state.table = Some(Arc::clone(&bytes));
        let links: Vec<Arc<Link>> = state.links.values().map(|entry| Arc::clone(&entry.link)).collect();
        drop(state);
        links.iter().for_each(|link| link.set_table(Arc::clone(&bytes)));
    }

    /// Returns the states of all links.
    pub fn status(&self) -> Vec<PeerStatus> {
        self.0.state.lock().links.values().map(|entry| entry.link.status()).collect()
    }

    /// Returns the addresses of seeds at which no service answers.
    pub fn unanswered(&self) -> Vec<UnansweredAddress> {
        let state = self.0.state.lock();
        let of = |(address, reason): (&SocketAddr, &String)| UnansweredAddress {
            address: *address,
            reason: reason.clone(),
        };
        state.unanswered.iter().map(of).collect()
    }

    /// Ends all tasks and connections. Frames in the queues are lost.
    pub async fn stop(&self) {
        let mut tasks = {
            let mut state = self.0.state.lock();
            state.is_stopped = true;
            state.links.clear();
            std::mem::take(&mut state.tasks)
        };
        tasks.abort_all();
        let ended = async { while tasks.join_next().await.is_some() {} };
        if timeout(LINKS_STOP_MAX, ended).await.is_err() {
            tracing::warn!("internal error: links between writer services did not end");
        }
    }
}

impl PeersState {
    fn spawn(&mut self, runtime: &Handle, task: impl Future<Output = ()> + Send + 'static) -> AbortHandle {
        // Tasks that have ended.
        while self.tasks.try_join_next().is_some() {}
        self.tasks.spawn_on(task, runtime)
    }

    /// Makes room for one more link. A service that only announcements name gives way, the one that was
    /// heard least recently first.
    fn has_room(&mut self, is_confirmed: bool) -> bool {
        // This service is the last one.
        if self.links.len() < SERVICES_MAX - 1 {
            return true;
        }
        let unconfirmed = self.links.iter().filter(|(_, entry)| !entry.is_confirmed);
        let oldest = unconfirmed.min_by_key(|(_, entry)| entry.heard).map(|(service, _)| *service);
        match oldest.and_then(|oldest| self.links.remove(&oldest)) {
            Some(entry) => {
                entry.task.abort();
                true
            }
            None => {
                if is_confirmed {
                    tracing::warn!("more than {SERVICES_MAX} writer services; no link to the others");
                }
                false
            }
        }
    }
}

impl Shared {
    /// Learns an address of a service.
    fn learn(self: &Arc<Self>, service: ServiceId, address: &str, source: Source) {
        if service == self.greeter.service || address.is_empty() {
            return;
        }
        let is_confirmed = source != Source::Announcement;
        let mut state = self.state.lock();
        if state.is_stopped {
            return;
        }
        if let Some(entry) = state.links.get_mut(&service) {
            entry.heard = Instant::now();
            entry.is_confirmed |= is_confirmed;
            entry.link.add_address(address, source);
        } else if state.has_room(is_confirmed) {
            let link = Arc::new(Link::new(service));
            link.add_address(address, source);
            let task = state.spawn(&self.runtime, Arc::clone(&link).run(Arc::clone(self)));
            state.links.insert(service, LinkEntry { link, task, heard: Instant::now(), is_confirmed });
        }
    }

    fn learn_table(self: &Arc<Self>, table: &Table) {
        table.0.iter().for_each(|record| self.learn(record.service, &record.address, Source::Table));
    }

    /// Asks an address for its service, unless that is known.
    fn probe(self: &Arc<Self>, address: SocketAddr) {
        let mut state = self.state.lock();
        let is_own = state.own.get(&address).is_some_and(|since| since.elapsed() < OWN_ADDRESS_LASTS);
        let is_linked = state.links.values().any(|entry| {
            let status = entry.link.status();
            status.is_connected && status.address == Some(address)
        });
        let is_full = state.probes.len() >= PROBES_MAX;
        if state.is_stopped || is_own || is_linked || is_full || !state.probes.insert(address) {
            return;
        }
        let shared = Arc::clone(self);
        state.spawn(&self.runtime, async move {
            let greeted = shared.greeter.greet(address).await;
            shared.probed(address, greeted).await;
        });
    }

    async fn probed(self: &Arc<Self>, address: SocketAddr, greeted: Result<Greeted, String>) {
        match greeted {
            Ok(mut greeted) => {
                {
                    let mut state = self.state.lock();
                    state.probes.remove(&address);
                    state.unanswered.remove(&address);
                    state.own.retain(|_, since| since.elapsed() < OWN_ADDRESS_LASTS);
                    if greeted.service == self.greeter.service {
                        state.own.insert(address, Instant::now());
                    }
                }
                self.learn(greeted.service, &address.to_string(), Source::Greeting);
                let mut goodbye = Vec::new();
                encode(&mut goodbye, &Frame::Goodbye { reason: "the service is known now".to_owned() });
                // The peer has no use for a failure here.
                let _ = greeted.stream.write_all(&goodbye).await;
                let _ = greeted.stream.shutdown().await;
            }
            Err(reason) => {
                let mut state = self.state.lock();
                state.probes.remove(&address);
                if state.unanswered.len() >= SERVICES_MAX {
                    state.unanswered.pop_first();
                }
                // An address that is tried for hours is not told each time.
                if state.unanswered.insert(address, reason.clone()).as_ref() != Some(&reason) {
                    drop(state);
                    tracing::warn!(%address, reason, "no writer service answers at the address of a seed");
                }
            }
        }
    }
}

impl Surroundings for Shared {
    async fn greet(&self, address: String) -> Result<Greeted, String> {
        let addresses: Vec<SocketAddr> = match timeout(RESOLUTION_MAX, lookup_host(&address)).await {
            Ok(Ok(addresses)) => addresses.take(NAME_ADDRESSES_MAX).collect(),
            Ok(Err(error)) => return Err(error.to_string()),
            Err(_) => return Err(format!("not resolved within {} s", RESOLUTION_MAX.as_secs())),
        };
        let mut last = Err("the name has no address".to_owned());
        for address in addresses {
            last = self.greeter.greet(address).await;
            if last.is_ok() {
                break;
            }
        }
        last
    }

    fn found_other(self: &Arc<Self>, service: ServiceId, address: String) {
        self.learn(service, &address, Source::Greeting);
    }

    fn table(&self) -> Option<Arc<[u8]>> {
        self.state.lock().table.clone()
    }

    async fn received(self: &Arc<Self>, service: ServiceId, frame: Frame) -> bool {
        if let Frame::Table(table) = &frame {
            self.learn_table(table);
        }
        self.sink.send((service, frame)).await.is_ok()
    }
}
