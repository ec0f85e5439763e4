//! Requests that come again: a client whose connection broke connects anew and sends what it has no answer to once more,
//! without saying so and without going back to the directory it was in.
//!
//! What a connection that broke had not surely answered is kept for a moment, with the operation ids and with where the
//! client was. If the same client's next connection begins with one of those requests, it is that request again: it
//! gets the id it had, so that it is carried out once, and starts from where it was. Only what begins a
//! connection counts, and only as long as one follows the other; a program that starts anew asks for the list of
//! commands first, which is never a repeat.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

use exacat_model::{AccountName, Lfn, OperationId};
use parking_lot::Mutex;
use sha2::{Digest, Sha256};

/// A client comes back within seconds, or not at all.
const KEPT: Duration = Duration::from_secs(60);
/// An answer that was sent so long before the connection broke has arrived.
const ARRIVED: Duration = Duration::from_secs(10);
/// Connections that broke and are kept.
const BROKEN_MAX: usize = 1024;
/// Requests of one connection whose answers may not have arrived. The client sends up to 64 before it reads.
const REQUESTS_MAX: usize = 128;

/// What a request says, by a digest: requests can be long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Said([u8; 16]);

impl Said {
    /// That of a text.
    pub fn of(text: &str) -> Self {
        let mut short = [0u8; 16];
        short.copy_from_slice(&Sha256::digest(text.as_bytes())[..16]);
        Said(short)
    }
}

/// Which client: its certificate, and what it calls itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Client {
    pub certificate: [u8; 32],
    pub agent: Arc<str>,
}

/// Where a client stands: what its requests depend on beside what they say.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Standing {
    pub directory: Lfn,
    pub role: Option<AccountName>,
    pub site: Option<AccountName>,
}

/// A request of a connection.
#[derive(Clone, Debug)]
struct Made {
    said: Said,
    id: OperationId,
    /// Where the client stood; none until the request is begun.
    standing: Option<Standing>,
    answered: Option<Instant>,
}

/// The requests of one connection whose answers may not have arrived.
#[derive(Debug, Default)]
pub(super) struct Unsure {
    made: VecDeque<Made>,
}

impl Unsure {
    /// Takes a request down.
    pub fn ask(&mut self, said: Said, id: OperationId) {
        // Somebody who asks on has read what was answered, unless requests were sent in one go.
        if self.made.iter().all(|made| made.answered.is_some()) {
            self.made.clear();
        }
        if self.made.len() >= REQUESTS_MAX {
            self.made.pop_front();
        }
        self.made.push_back(Made { said, id, standing: None, answered: None });
    }

    /// The oldest request not answered was answered; it had been made from `standing`.
    pub fn answered(&mut self, standing: Standing) {
        if let Some(made) = self.made.iter_mut().find(|made| made.answered.is_none()) {
            made.answered = Some(Instant::now());
            made.standing = Some(standing);
        }
    }
}

/// A connection that broke.
#[derive(Debug)]
struct Broken {
    client: Client,
    when: Instant,
    made: VecDeque<Made>,
    /// Where the client stood at the end.
    standing: Standing,
}

/// What broke lately.
#[derive(Debug, Default)]
pub(super) struct Repeats(Mutex<VecDeque<Broken>>);

impl Repeats {
    /// Keeps what a connection had not surely answered when it broke.
    pub fn broke(&self, client: Client, unsure: Unsure, standing: Standing) {
        let now = Instant::now();
        let mut made = unsure.made;
        if made.iter().all(|made| made.answered.is_some_and(|when| now.duration_since(when) > ARRIVED)) {
            made.clear();
        }
        if made.is_empty() {
            return;
        }
        let mut broken = self.0.lock();
        broken.retain(|broken| now.duration_since(broken.when) < KEPT);
        if broken.len() >= BROKEN_MAX {
            broken.pop_front();
        }
        broken.push_back(Broken { client, when: now, made, standing });
    }

    /// The first request of a connection: is it one that came before? Then what follows it is given, too. What is given
    /// is given once.
    pub fn resume(&self, client: &Client, said: Said) -> Option<Resumed> {
        let mut all = self.0.lock();
        all.retain(|broken| broken.when.elapsed() < KEPT);
        let is_it =
            |broken: &Broken| broken.client == *client && broken.made.iter().any(|made| made.said == said);
        let index = all.iter().rposition(is_it)?;
        let broken = all.remove(index)?;
        // The last that says so: of a request that was made twice, the first was surely answered.
        let at = broken.made.iter().rposition(|made| made.said == said)?;
        let mut rest: VecDeque<Made> = broken.made.into_iter().skip(at).collect();
        let first = rest.pop_front()?;
        Some(Resumed { id: first.id, standing: first.standing.unwrap_or(broken.standing), rest })
    }
}

/// A request that came again, and what may come again after it.
#[derive(Debug)]
pub(super) struct Resumed {
    /// The operation id it had.
    pub id: OperationId,
    /// Where the client stood.
    pub standing: Standing,
    rest: VecDeque<Made>,
}

impl Resumed {
    /// The id of the next request, if it comes again too.
    pub fn next(&mut self, said: Said) -> Option<OperationId> {
        match self.rest.front() {
            Some(made) if made.said == said => self.rest.pop_front().map(|made| made.id),
            _ => {
                self.rest.clear();
                None
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn client(number: u8) -> Client {
        Client { certificate: [number; 32], agent: "alienpy".into() }
    }

    fn standing(directory: &str) -> Standing {
        Standing { directory: Lfn::parse(directory).unwrap(), role: None, site: None }
    }

    fn id(number: u8) -> OperationId {
        OperationId([number; 16])
    }

    #[test]
    fn what_was_not_answered_comes_again_once_and_from_where_it_was() {
        let repeats = Repeats::default();
        let mut unsure = Unsure::default();
        unsure.ask(Said::of("cd d"), id(1));
        unsure.answered(standing("/home"));
        unsure.ask(Said::of("rm x"), id(2));
        repeats.broke(client(1), unsure, standing("/home/d"));
        assert!(repeats.resume(&client(2), Said::of("rm x")).is_none(), "another client");
        assert!(repeats.resume(&client(1), Said::of("rm y")).is_none(), "another request");
        let resumed = repeats.resume(&client(1), Said::of("rm x")).unwrap();
        assert_eq!((resumed.id, &resumed.standing), (id(2), &standing("/home/d")));
        assert!(repeats.resume(&client(1), Said::of("rm x")).is_none(), "it was given");
    }

    #[test]
    fn requests_sent_in_one_go_come_again_in_their_order() {
        let repeats = Repeats::default();
        let mut unsure = Unsure::default();
        for (number, text) in [(1, "a"), (2, "b"), (3, "c"), (4, "d")] {
            unsure.ask(Said::of(text), id(number));
        }
        unsure.answered(standing("/1"));
        unsure.answered(standing("/2"));
        repeats.broke(client(1), unsure, standing("/3"));
        let mut resumed = repeats.resume(&client(1), Said::of("a")).unwrap();
        assert_eq!((resumed.id, &resumed.standing), (id(1), &standing("/1")));
        assert_eq!(resumed.next(Said::of("b")), Some(id(2)));
        assert_eq!(resumed.next(Said::of("x")), None);
        assert_eq!(resumed.next(Said::of("c")), None, "the row was broken");
    }

    #[test]
    fn what_was_read_is_no_repeat() {
        let repeats = Repeats::default();
        let mut unsure = Unsure::default();
        unsure.ask(Said::of("mkdir d"), id(1));
        unsure.answered(standing("/"));
        unsure.ask(Said::of("rmdir d"), id(2));
        unsure.answered(standing("/"));
        repeats.broke(client(1), unsure, standing("/"));
        assert!(repeats.resume(&client(1), Said::of("mkdir d")).is_none());
        assert_eq!(repeats.resume(&client(1), Said::of("rmdir d")).unwrap().id, id(2));
    }

    #[test]
    fn both_bounds_hold() {
        let repeats = Repeats::default();
        for number in 0..=BROKEN_MAX {
            let mut unsure = Unsure::default();
            for _ in 0..=REQUESTS_MAX {
                unsure.ask(Said::of(&number.to_string()), id(1));
            }
            assert_eq!(unsure.made.len(), REQUESTS_MAX);
            repeats.broke(client(1), unsure, standing("/"));
        }
        assert_eq!(repeats.0.lock().len(), BROKEN_MAX);
        assert!(repeats.resume(&client(1), Said::of("0")).is_none());
        assert!(repeats.resume(&client(1), Said::of("1")).is_some());
    }
}
