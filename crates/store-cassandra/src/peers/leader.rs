//! Leader: the one server that appends for all. This file decides which server this one forwards to.

use std::sync::Arc;
use std::time::Instant;

use exacat_model::{Result, TimeMs};
use parking_lot::Mutex;

use super::identity::{self, Identity, ServerRecord};
use super::link::Link;
use crate::cluster::Cluster;
use crate::limits::{LEFT_FOR, LEFT_MAX};

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
    leader: Leader,
    search: Search,
    /// Servers that did not accept this one or did not answer, and until when they are not asked
    /// again.
    left: Vec<(u64, Instant)>,
}

/// Server that carries out the requests of this one's clients.
#[derive(Default)]
enum Leader {
    /// This server itself.
    #[default]
    ThisServer,
    /// Another server, over this connection.
    Other(Arc<Link>),
}

/// Search for a leader that was opened earlier than the present one.
#[derive(Default)]
enum Search {
    /// No such server is known.
    #[default]
    Idle,
    /// This server appends, and could be the leader.
    Candidate(u64),
    /// This server is being asked to accept requests.
    Connecting(u64),
}

impl State {
    /// Number of the present leader.
    fn leader(&self, own: u64) -> u64 {
        match &self.leader {
            Leader::ThisServer => own,
            Leader::Other(link) => link.id,
        }
    }

    fn leave(&mut self, id: u64) {
        // A bound, for numbers come from the log, where any server writes them.
        if self.left.len() >= LEFT_MAX {
            self.left.remove(0);
        }
        self.left.push((id, Instant::now() + LEFT_FOR));
    }
}

impl Peers {
    pub(crate) fn new(now: TimeMs) -> Result<Self> {
        Ok(Peers { id: identity::new_id(now)?, state: Mutex::default() })
    }

    /// Sets the identity that this server shows to others. From then on it looks for a leader.
    pub(super) fn join(&self, identity: Arc<Identity>) {
        self.state.lock().identity = Some(identity);
    }

    /// Notes that a server put a group into the log.
    pub(crate) fn saw(&self, id: u64) {
        let mut state = self.state.lock();
        // The lower number wins: servers that see each other agree on a leader without an election.
        if state.identity.is_none() || id >= state.leader(self.id) {
            return;
        }
        // One attempt at a time. A lower number seen meanwhile is seen again with its next group.
        state.search = match state.search {
            Search::Idle => Search::Candidate(id),
            Search::Candidate(seen) => Search::Candidate(seen.min(id)),
            Search::Connecting(to) => Search::Connecting(to),
        };
    }

    /// Number of the server to connect to now. The caller connects, and reports the result with
    /// [`Self::met`].
    pub(crate) fn to_meet(&self, now: Instant) -> Option<u64> {
        let mut state = self.state.lock();
        let Search::Candidate(seen) = state.search else { return None };
        state.left.retain(|(_, until)| *until > now);
        let avoided = state.left.iter().any(|(id, _)| *id == seen);
        state.search = if avoided { Search::Idle } else { Search::Connecting(seen) };
        (!avoided).then_some(seen)
    }

    /// Records the result of connecting.
    fn met(&self, id: u64, link: Result<Option<Link>>) {
        let mut state = self.state.lock();
        state.search = Search::Idle;
        match link {
            Ok(Some(link)) => {
                tracing::info!(id, "another server appends: this one forwards its requests to it");
                state.leader = Leader::Other(Arc::new(link));
            }
            // No record of it any more: it was closed after it wrote its group.
            Ok(None) => state.leave(id),
            Err(error) => {
                tracing::warn!(id, %error, "another server appends, and could not be reached: this one appends too");
                state.leave(id);
            }
        }
    }

    /// Connection to the leader, if another server is.
    pub(crate) fn link(&self) -> Option<Arc<Link>> {
        match &self.state.lock().leader {
            Leader::ThisServer => None,
            Leader::Other(link) => Some(link.clone()),
        }
    }

    /// Drops the connection to a leader that does not answer.
    pub(crate) fn leave(&self, link: &Link) {
        let mut state = self.state.lock();
        // Requests that waited together report the same link; only the first report counts, and none
        // may drop a newer leader.
        if matches!(&state.leader, Leader::Other(now) if now.id == link.id) {
            tracing::warn!(id = link.id, "the leader does not answer: this server appends itself");
            state.leader = Leader::ThisServer;
            state.leave(link.id);
        }
    }

    /// Connects to a server.
    pub(crate) async fn meet(&self, cluster: &Cluster, id: u64) {
        let own = self.state.lock().identity.clone();
        let link = async {
            match (own, ServerRecord::find(cluster, id).await?) {
                (Some(own), Some(record)) => Link::open(&own, &record).await.map(Some),
                _ => Ok(None),
            }
        };
        self.met(id, link.await);
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;
    use crate::cluster::failed;

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

    #[test]
    fn who_opens_later_has_the_larger_number() {
        let now = 1_800_000_000_000;
        let id = |now| identity::new_id(TimeMs(now)).unwrap();
        assert!(id(now) < id(now + 1));
        assert!([0, now, u64::MAX].iter().all(|now| i64::try_from(id(*now)).is_ok()));
    }
}
