//! Sessions of people in browsers: a bounded table in memory. It has the digests of their ids, so that
//! no dump of it lets anybody in.

use std::collections::HashMap;

use exacat_model::{Result, TimeMs, UserId};
use parking_lot::Mutex;

use super::super::call::Client;
use super::secrets::{Key, key_of, secret};
use crate::admission::busy;

/// Most sessions at once; a further sign-in is refused.
const SESSIONS_MAX: usize = 10_000;
/// Most sessions of one user; a further sign-in ends the one that was used least recently.
const SESSIONS_PER_USER_MAX: usize = 20;
/// Longest time without a request.
const IDLE_MS: u64 = 3600 * 1000;
/// Longest life of a session.
const LIFE_MS: u64 = 12 * 3600 * 1000;

/// A session.
#[derive(Clone)]
pub(crate) struct Session {
    /// The caller of its requests.
    pub client: Client,
    /// Secret in its forms.
    pub csrf: String,
    /// True if the client must show its certificate with every request.
    pub needs_certificate: bool,
    is_tls: bool,
    began: TimeMs,
    used: TimeMs,
}

impl Session {
    fn is_over(&self, now: TimeMs) -> bool {
        let since = |time: TimeMs| now.0.saturating_sub(time.0);
        since(self.used) >= IDLE_MS || since(self.began) >= LIFE_MS
    }

    fn user(&self) -> Option<UserId> {
        self.client.caller().user()
    }
}

/// All sessions.
#[derive(Default)]
pub(crate) struct Sessions {
    all: Mutex<HashMap<Key, Session>>,
}

impl Sessions {
    /// Opens a session and returns its id. The id is always new.
    pub(crate) fn open(
        &self,
        client: Client,
        needs_certificate: bool,
        is_tls: bool,
        now: TimeMs,
    ) -> Result<String> {
        let id = secret()?;
        let session = Session { client, csrf: secret()?, needs_certificate, is_tls, began: now, used: now };
        let mut all = self.all.lock();
        let user = session.user();
        let own = || all.iter().filter(|(_, other)| other.user() == user);
        if own().count() >= SESSIONS_PER_USER_MAX {
            let oldest = own().min_by_key(|(_, other)| other.used).map(|(key, _)| *key);
            oldest.and_then(|key| all.remove(&key));
        }
        if all.len() >= SESSIONS_MAX {
            all.retain(|_, other| !other.is_over(now));
        }
        if all.len() >= SESSIONS_MAX {
            return Err(busy("sessions of people who are signed in"));
        }
        all.insert(key_of(&id), session);
        Ok(id)
    }

    /// Returns the session of an id, and notes its use. A session counts over the scheme that it was
    /// opened over.
    pub(crate) fn find(&self, id: &str, is_tls: bool, now: TimeMs) -> Option<(Key, Session)> {
        let key = key_of(id);
        let mut all = self.all.lock();
        let session = all.get_mut(&key).filter(|session| session.is_tls == is_tls)?;
        if session.is_over(now) {
            all.remove(&key);
            return None;
        }
        session.used = session.used.max(now);
        Some((key, session.clone()))
    }

    /// True while a session lasts. Asking does not prolong it.
    pub(crate) fn is_open(&self, key: &Key, now: TimeMs) -> bool {
        self.all.lock().get(key).is_some_and(|session| !session.is_over(now))
    }

    /// Replaces the caller of a session by the one of a new check.
    pub(crate) fn renew(&self, key: &Key, client: &Client) {
        if let Some(session) = self.all.lock().get_mut(key) {
            session.client = client.clone();
        }
    }

    /// Ends a session.
    pub(crate) fn end(&self, key: &Key) {
        self.all.lock().remove(key);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use exacat_catalogue::{Caller, Catalogue, Settings};
    use exacat_model::{AccountName, ErrorKind, GroupId, Lfn, User};
    use exacat_store::SystemClock;
    use exacat_testkit::memory::MemoryStore;

    use super::*;
    use crate::service::Service;

    async fn service() -> Arc<Service> {
        let clock = Arc::new(SystemClock);
        let store = Arc::new(MemoryStore::new(clock.clone()));
        let catalogue = Catalogue::open(store, clock, Settings::default()).await.unwrap();
        Service::alone(catalogue)
    }

    fn client(service: &Service, number: u32) -> Client {
        let user = User {
            id: UserId(number),
            name: AccountName::parse(&format!("u{number}")).unwrap(),
            group: GroupId(1),
            groups: Vec::new(),
            roles: Vec::new(),
            may_become: Vec::new(),
            subjects: Vec::new(),
            home: None,
            disabled: false,
        };
        let caller = Caller::of(&user, Lfn::root(), true);
        Client::new(service.requester(caller), service.checking(), None)
    }

    /// Property: the table has at most `SESSIONS_MAX` sessions. Those that are over make room, others do not.
    #[tokio::test]
    async fn table_is_full_at_its_bound() {
        let (service, sessions) = (service().await, Sessions::default());
        let open = |number: usize, now| {
            let user = (number / SESSIONS_PER_USER_MAX) as u32;
            sessions.open(client(&service, user), false, true, TimeMs(now))
        };
        for number in 0..SESSIONS_MAX {
            open(number, 0).unwrap();
        }
        assert_eq!(open(SESSIONS_MAX, IDLE_MS - 1).unwrap_err().kind, ErrorKind::Busy);
        let id = open(SESSIONS_MAX, IDLE_MS).unwrap();
        assert_eq!(sessions.all.lock().len(), 1);
        assert!(sessions.find(&id, true, TimeMs(IDLE_MS)).is_some());
    }

    /// Property: a user has at most `SESSIONS_PER_USER_MAX` sessions; the one that was used least recently
    /// makes room.
    #[tokio::test]
    async fn oldest_session_of_a_user_makes_room() {
        let (service, sessions) = (service().await, Sessions::default());
        let open = |user, now| sessions.open(client(&service, user), false, true, TimeMs(now)).unwrap();
        let other = open(2, 0);
        let first = open(1, 1);
        let second = open(1, 2);
        for number in 2..SESSIONS_PER_USER_MAX {
            open(1, number as u64 + 1);
        }
        assert!(sessions.find(&first, true, TimeMs(100)).is_some(), "all have a place, and this is used");
        open(1, 101);
        assert!(sessions.find(&second, true, TimeMs(101)).is_none());
        assert!(sessions.find(&first, true, TimeMs(101)).is_some());
        assert!(sessions.find(&other, true, TimeMs(101)).is_some());
        assert!(sessions.find(&first, false, TimeMs(101)).is_none(), "over the other scheme");
    }
}
