//! Of several servers that append, one does it for all: the others hand their requests to it.
//!
//! The log has one end, so servers that append at the same time only get in each other's way; and who does it all the time knows most of what is needed
//! for it. So a server that sees in the log that one which was opened before it appends too hands its requests to that one, from then on. Nothing rests on this: an append
//! holds or not by the log alone, and a request that was handed over and not answered is carried out here, under its operation id, which makes one of it if it was done
//! there as well. The one who is asked was always opened before: so requests that are handed on come to an end.

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
    /// Its number, which each of its groups in the log has.
    pub id: u64,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// What it shows to others; none if it neither serves nor asks any.
    identity: Option<Arc<Identity>>,
    /// The one who is asked.
    link: Option<Arc<Link>>,
    /// One that was seen to append and could be asked; and one that is being asked to let this one in.
    seen: Option<u64>,
    meeting: Option<u64>,
    /// Those that did not let this one in, or did not answer.
    left: Vec<(u64, Instant)>,
}

impl Peers {
    pub fn new(now: TimeMs) -> Result<Self> {
        Ok(Peers { id: identity::new_id(now)?, state: Mutex::default() })
    }

    /// That server was seen to have put a group into the log.
    pub fn saw(&self, id: u64) {
        let mut state = self.state.lock();
        let wanted = state.link.as_ref().map_or(self.id, |link| link.id);
        if state.identity.is_some() && id < wanted && state.meeting.is_none() {
            state.seen = Some(state.seen.map_or(id, |seen| seen.min(id)));
        }
    }

    /// Who should be asked to let this one in now; whoever calls this does it, and says with [`Self::met`] what came of it.
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

    /// What came of asking it.
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

    /// Who carries out requests for this server.
    pub fn link(&self) -> Option<Arc<Link>> {
        self.state.lock().link.clone()
    }

    /// It does not answer.
    pub fn leave(&self, link: &Link) {
        let mut state = self.state.lock();
        if state.link.as_ref().is_some_and(|now| now.id == link.id) {
            tracing::warn!(id = link.id, "the server that appends does not answer: this one does it itself");
            state.link = None;
            state.leave(link.id);
        }
    }

    /// Asks a server to let this one in.
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

/// Serves other servers, and asks them, from now on.
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

/// The own address that the cluster's nodes see.
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
            // Nothing is sent: it is asked which way it would go.
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

/// Whoever appended last probably goes on to: it is asked before there is anything to hand over.
async fn meet_who_appends(engine: &Engine) {
    match log::last_by(&engine.cluster, engine.stretch()).await {
        Ok(last) => last.into_iter().for_each(|id| engine.peers.saw(id)),
        Err(error) => tracing::debug!(%error, "who appended last could not be read"),
    }
    if let Some(id) = engine.peers.to_meet(Instant::now()) {
        engine.peers.meet(&engine.cluster, id).await;
    }
}

/// Says again and again that a server is there.
async fn stay_listed(card: &Card, cluster: &Cluster) {
    for number in 1.. {
        tokio::time::sleep(SERVER_LISTED_EVERY).await;
        if let Err(error) = card.publish(cluster, number).await {
            tracing::warn!(%error, "other servers could not be told that this one is there");
        }
    }
}

/// A server that others may ask.
pub(crate) struct Serving {
    card: Card,
    task: AbortOnDrop,
}

impl Serving {
    /// Lets nobody in any more. Who is in finds out.
    pub async fn end(&self, engine: &Engine) {
        self.task.0.abort();
        if let Err(error) = self.card.withdraw(&engine.cluster).await {
            tracing::debug!(%error, "other servers could not be told that this one is gone: they find out");
        }
    }
}

/// A task that ends with who has this.
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

    /// Goal: only who was opened before is asked, the first of those, one at a time, and not again at once if that failed.
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
