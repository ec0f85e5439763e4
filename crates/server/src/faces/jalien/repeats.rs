//! Repeated requests after a broken connection. A client reconnects and sends its unanswered
//! requests again. It does not mark them as repeats, and does not return to its directory.
//!
//! The server keeps the possibly unanswered requests of a broken connection for a moment, with
//! their operation ids and the client's state. If the same client's next connection starts with one
//! of them, it is that request again. It gets the old id, so that it runs once, and the old state.
//! Only requests at the start of a connection count, and only while they follow in the old order. A
//! program that starts anew requests the list of commands first, which is never a repeat.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

use exacat_model::{AccountName, Lfn, OperationId};
use parking_lot::Mutex;
use sha2::{Digest, Sha256};

/// Time in which a client reconnects, if at all.
const KEPT: Duration = Duration::from_secs(60);
/// Time after which a sent answer has arrived.
const ARRIVED: Duration = Duration::from_secs(10);
/// Most broken connections that are kept.
const BROKEN_MAX: usize = 1024;
/// Most requests of one connection whose answers may not have arrived. The client sends up to 64
/// before it reads.
const REQUESTS_MAX: usize = 128;

/// Digest of a request's text, because requests can be long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Said([u8; 16]);

impl Said {
    /// Returns the digest of a text.
    pub(crate) fn of(text: &str) -> Self {
        let mut short = [0u8; 16];
        short.copy_from_slice(&Sha256::digest(text.as_bytes())[..16]);
        Said(short)
    }
}

/// Identity of a client: its certificate and its user agent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Client {
    pub certificate: [u8; 32],
    pub agent: Arc<str>,
}

/// State of a client that its requests depend on, besides their text.
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
    /// State of the client; none until the request starts.
    standing: Option<Standing>,
    answered: Option<Instant>,
}

/// The requests of one connection whose answers may not have arrived.
#[derive(Debug, Default)]
pub(super) struct Unsure {
    made: VecDeque<Made>,
}

impl Unsure {
    /// Registers a request.
    pub(crate) fn ask(&mut self, said: Said, id: OperationId) {
        // A client that sends more has read all answers, unless it sent several requests at once.
        if self.made.iter().all(|made| made.answered.is_some()) {
            self.made.clear();
        }
        if self.made.len() >= REQUESTS_MAX {
            self.made.pop_front();
        }
        self.made.push_back(Made { said, id, standing: None, answered: None });
    }

    /// Notes the answer to the oldest unanswered request, which was made from `standing`.
    pub(crate) fn answered(&mut self, standing: Standing) {
        if let Some(made) = self.made.iter_mut().find(|made| made.answered.is_none()) {
            made.answered = Some(Instant::now());
            made.standing = Some(standing);
        }
    }
}

/// A broken connection.
#[derive(Debug)]
struct Broken {
    client: Client,
    when: Instant,
    made: VecDeque<Made>,
    /// State of the client at the end.
    standing: Standing,
}

/// Connections that broke recently.
#[derive(Debug, Default)]
pub(super) struct Repeats(Mutex<VecDeque<Broken>>);

impl Repeats {
    /// Keeps the possibly unanswered requests of a broken connection.
    pub(crate) fn broke(&self, client: Client, unsure: Unsure, standing: Standing) {
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

    /// Returns the earlier request that the first request of a connection repeats, and those after
    /// it. Returns each only once.
    pub(crate) fn resume(&self, client: &Client, said: Said) -> Option<Resumed> {
        let mut all = self.0.lock();
        all.retain(|broken| broken.when.elapsed() < KEPT);
        let is_it =
            |broken: &Broken| broken.client == *client && broken.made.iter().any(|made| made.said == said);
        let index = all.iter().rposition(is_it)?;
        let broken = all.remove(index)?;
        // The last match: of a request made twice, the first was surely answered.
        let at = broken.made.iter().rposition(|made| made.said == said)?;
        let mut rest: VecDeque<Made> = broken.made.into_iter().skip(at).collect();
        let first = rest.pop_front()?;
        Some(Resumed { id: first.id, standing: first.standing.unwrap_or(broken.standing), rest })
    }
}

/// A repeated request, and those that may follow it.
#[derive(Debug)]
pub(super) struct Resumed {
    /// The original operation id.
    pub id: OperationId,
    /// The original state of the client.
    pub standing: Standing,
    rest: VecDeque<Made>,
}

impl Resumed {
    /// Returns the id of the next request, if it is a repeat too.
    pub(crate) fn next(&mut self, said: Said) -> Option<OperationId> {
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
