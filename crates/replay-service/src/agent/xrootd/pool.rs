//! Sessions that wait to be used again, by server.

use hashbrown::HashMap;
use parking_lot::Mutex;

use super::session::Session;
use crate::agent::limits::IDLE_MAX;
use crate::agent::place::Server;

/// Sessions that nobody uses, the last used one last.
type Idle = HashMap<Server, Vec<Session>>;

/// Pool of sessions.
pub(crate) struct Pool {
    idle: Mutex<Idle>,
    /// Most sessions in it, of all servers.
    max: usize,
}

impl Pool {
    pub(crate) fn new(max: usize) -> Self {
        Pool { idle: Mutex::default(), max }
    }

    /// Takes the session that was used last: it is the most likely one to be there still.
    pub(crate) fn take(&self, server: &Server) -> Option<Session> {
        let mut idle = self.idle.lock();
        let sessions = idle.get_mut(server)?;
        let session = sessions.pop();
        if sessions.is_empty() {
            idle.remove(server);
        }
        session.filter(|session| session.idle_since.elapsed() < IDLE_MAX)
    }

    /// Takes a session back, if it can be used again.
    pub(crate) fn give(&self, server: &Server, mut session: Session) {
        if !session.is_clean() {
            return;
        }
        session.rest();
        let now = session.idle_since;
        let mut idle = self.idle.lock();
        if idle.values().map(Vec::len).sum::<usize>() >= self.max {
            let is_fresh = |session: &Session| now - session.idle_since < IDLE_MAX;
            idle.retain(|_, sessions| {
                sessions.retain(is_fresh);
                !sessions.is_empty()
            });
            if idle.values().map(Vec::len).sum::<usize>() >= self.max {
                return;
            }
        }
        idle.entry(server.clone()).or_default().push(session);
    }
}
