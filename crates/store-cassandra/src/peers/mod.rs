//! Forwarding: of several servers that append, one does it for all.
//!
//! The log has one end, so servers that append at the same time only disturb each other. A server
//! that appends all the time has most of the needed rows cached. A server may see in the log that
//! an earlier opened one appends too. From then on it forwards its requests to that one.
//!
//! Correctness does not depend on it: an append holds or not by the log alone. This server carries
//! out a forwarded request without an answer itself, under the same operation id. If the other
//! server did it as well, the id makes one change of both. The target was always opened earlier, so
//! chains of forwarding end.

mod identity;
mod link;

use std::net::{SocketAddr, UdpSocket};
use std::sync::Arc;
use std::time::Instant;

use exacat_model::{Error, Result, TimeMs};
use parking_lot::Mutex;
use tokio::net::TcpListener;

use crate::cluster::{Cluster, failed};
use crate::engine::Engine;
use crate::intake::Intake;
use crate::limits::{LEFT_FOR, LEFT_MAX, SERVER_LISTED_EVERY};
use crate::log;
use crate::settings::PeersAt;
use identity::{Card, Identity};
pub(crate) use link::Link;

/// This server among the others.
pub(crate) struct Peers {
    /// Its number, which is in each of its groups in the log.
    pub id: u64,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// Identity shown to others; none if this server neither serves nor forwards.
    identity: Option<Arc<Identity>>,
    /// Connection to the server that carries out requests for this one.
    link: Option<Arc<Link>>,
    /// Number of a server that appends and could be the target; number of a server that is being
    /// asked to accept this one.
    seen: Option<u64>,
    meeting: Option<u64>,
    /// Servers that did not accept this one or did not answer, and until when they are not asked
    /// again.
    left: Vec<(u64, Instant)>,
}

impl Peers {
    pub fn new(now: TimeMs) -> Result<Self> {
        Ok(Peers { id: identity::new_id(now)?, state: Mutex::default() })
    }

    /// Notes that a server put a group into the log.
    pub fn saw(&self, id: u64) {
        let mut state = self.state.lock();
        let wanted = state.link.as_ref().map_or(self.id, |link| link.id);
        if state.identity.is_some() && id < wanted && state.meeting.is_none() {
            state.seen = Some(state.seen.map_or(id, |seen| seen.min(id)));
        }
    }

    /// Number of the server to connect to now. The caller connects, and reports the result with
    /// [`Self::met`].
    pub fn to_meet(&self, now: Instant) -> Option<u64> {
        let mut state = self.state.lock();
        let seen = state.seen.take()?;
        state.left.retain(|(_, until)| *until > now);
        if state.left.iter().any(|(id, _)| *id == seen) {
            return None;
        }
        state.meeting = Some(seen);
        Some(seen)
    }

    /// Records the result of connecting.
    fn met(&self, id: u64, link: Result<Option<Link>>) {
        let mut state = self.state.lock();
        state.meeting = None;
        match link {
            Ok(Some(link)) => {
                tracing::info!(id, "another server appends: it is handed the requests of this one");
                state.link = Some(Arc::new(link));
            }
            Ok(None) => state.leave(id),
            Err(error) => {
                tracing::warn!(id, %error, "another server appends, and could not be reached: this one appends too");
                state.leave(id);
            }
        }
    }

    /// Connection to the server that carries out requests for this one.
    pub fn link(&self) -> Option<Arc<Link>> {
        self.state.lock().link.clone()
    }

    /// Drops the connection to a server that does not answer.
    pub fn leave(&self, link: &Link) {
        let mut state = self.state.lock();
        if state.link.as_ref().is_some_and(|now| now.id == link.id) {
            tracing::warn!(id = link.id, "the server that appends does not answer: this one does it itself");
            state.link = None;
            state.leave(link.id);
        }
    }

    /// Connects to a server.
    pub async fn meet(&self, cluster: &Cluster, id: u64) {
        let own = self.state.lock().identity.clone();
        let link = async {
            match (own, Card::find(cluster, id).await?) {
                (Some(own), Some(card)) => Link::open(&own, &card).await.map(Some),
                _ => Ok(None),
            }
        };
        self.met(id, link.await);
    }
}

/// Begins to serve other servers and to forward to them.
pub(crate) async fn begin(engine: &Arc<Engine>, intake: &Intake) -> Result<Option<Serving>> {
    let settings = engine.settings();
    let listener = match &settings.peers {
        PeersAt::Nowhere => return Ok(None),
        PeersAt::Anywhere => TcpListener::bind((towards(&settings.hosts).await?, 0)).await,
        PeersAt::Here(address) => TcpListener::bind(address).await,
    };
    let listener = listener.map_err(|error| {
        Error::invalid(format!("other servers cannot be let in ({}): {error}", settings.peers))
    })?;
    let address = listener.local_addr().map_err(|error| failed("be shared with other servers", error))?;
    let identity = Arc::new(Identity::new(engine.peers.id)?);
    let card = identity.card(address);
    card.publish(&engine.cluster, 0).await?;
    let taking = link::take_in(listener, identity.accepting()?, intake.clone());
    engine.peers.state.lock().identity = Some(identity);
    let (engine, listed) = (engine.clone(), card.clone());
    let joining = async move {
        meet_who_appends(&engine).await;
        stay_listed(&listed, &engine.cluster).await;
    };
    let task = tokio::spawn(async move {
        tokio::select! {
            () = taking => {}
            () = joining => {}
        }
    });
    Ok(Some(Serving { card, task: AbortOnDrop(task.abort_handle()) }))
}

impl State {
    fn leave(&mut self, id: u64) {
        if self.left.len() >= LEFT_MAX {
            self.left.remove(0);
        }
        self.left.push((id, Instant::now() + LEFT_FOR));
    }
}

/// Finds the own address that the cluster's nodes see.
async fn towards(hosts: &[String]) -> Result<std::net::IpAddr> {
    let mut why = "no host is named".to_owned();
    for host in hosts {
        let nodes = match tokio::net::lookup_host(host).await {
            Ok(nodes) => nodes,
            Err(error) => {
                why = error.to_string();
                continue;
            }
        };
        for node in nodes {
            // UDP connect sends nothing: it only chooses the route.
            let own = |any: &str| -> std::io::Result<SocketAddr> {
                let socket = UdpSocket::bind(any)?;
                socket.connect(node)?;
                socket.local_addr()
            };
            match own(if node.is_ipv4() { "0.0.0.0:0" } else { "[::]:0" }) {
                Ok(own) => return Ok(own.ip()),
                Err(error) => why = error.to_string(),
            }
        }
    }
    Err(failed("be reached", why))
}

/// Connects to the server that appended last, before there is anything to forward: it will probably
/// go on.
async fn meet_who_appends(engine: &Engine) {
    match log::last_by(&engine.cluster, engine.stretch()).await {
        Ok(last) => last.into_iter().for_each(|id| engine.peers.saw(id)),
        Err(error) => tracing::debug!(%error, "who appended last could not be read"),
    }
    if let Some(id) = engine.peers.to_meet(Instant::now()) {
        engine.peers.meet(&engine.cluster, id).await;
    }
}

/// Renews this server's entry in the table.
async fn stay_listed(card: &Card, cluster: &Cluster) {
    for number in 1.. {
        tokio::time::sleep(SERVER_LISTED_EVERY).await;
        if let Err(error) = card.publish(cluster, number).await {
            tracing::warn!(%error, "other servers could not be told that this one is there");
        }
    }
}

/// A server that others may forward to.
pub(crate) struct Serving {
    card: Card,
    task: AbortOnDrop,
}

impl Serving {
    /// Accepts no server any more. Connected ones find out by themselves.
    pub async fn end(&self, engine: &Engine) {
        self.task.0.abort();
        if let Err(error) = self.card.withdraw(&engine.cluster).await {
            tracing::debug!(%error, "other servers could not be told that this one is gone: they find out");
        }
    }
}

/// A task that ends when this is dropped.
struct AbortOnDrop(tokio::task::AbortHandle);

impl Drop for AbortOnDrop {
    fn drop(&mut self) {
        self.0.abort();
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;

    fn peers(id: u64) -> Peers {
        Peers {
            id,
            state: Mutex::new(State {
                identity: Some(Arc::new(Identity::new(id).unwrap())),
                ..State::default()
            }),
        }
    }

    /// Goal: this server connects only to the first of the servers opened before it. It tries one
    /// at a time, and none again at once after a failure.
    #[test]
    fn who_was_opened_first_is_asked() {
        let peers = peers(50);
        let now = Instant::now();
        peers.saw(50);
        peers.saw(70);
        assert_eq!(peers.to_meet(now), None, "itself, and one that will ask this one");
        peers.saw(20);
        peers.saw(10);
        peers.saw(30);
        assert_eq!(peers.to_meet(now), Some(10));
        peers.saw(5);
        assert_eq!(peers.to_meet(now), None, "one is being asked");
        peers.met(10, Err(failed("be reached", "no")));
        peers.saw(10);
        assert_eq!(peers.to_meet(now), None, "it did not answer");
        peers.saw(20);
        assert_eq!(peers.to_meet(now), Some(20));
        peers.met(20, Ok(None));
        peers.saw(10);
        assert_eq!(peers.to_meet(now + LEFT_FOR + LEFT_FOR), Some(10), "later it is");
        for id in 0..2 * LEFT_MAX as u64 {
            peers.met(id, Ok(None));
        }
        assert_eq!(peers.state.lock().left.len(), LEFT_MAX);
    }

    #[test]
    fn who_has_nothing_to_do_with_others_asks_nobody() {
        let peers = peers(50);
        peers.state.lock().identity = None;
        peers.saw(10);
        assert_eq!(peers.to_meet(Instant::now()), None);
    }

    #[tokio::test]
    async fn the_own_address_is_found() {
        let own = towards(&["127.0.0.1:9042".to_owned()]).await.unwrap();
        assert!(own.is_loopback());
        assert!(towards(&["a host without a port".to_owned()]).await.is_err());
        assert!(towards(&[]).await.is_err());
    }

    #[test]
    fn who_opens_later_has_the_larger_number() {
        let now = 1_800_000_000_000;
        let id = |now| identity::new_id(TimeMs(now)).unwrap();
        assert!(id(now) < id(now + 1));
        assert!([0, now, u64::MAX].iter().all(|now| i64::try_from(id(*now)).is_ok()));
    }
}
