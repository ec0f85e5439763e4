//! Waits until followers have the changes of a source durably too, before anybody sees them.
//!
//! A change is durable here first, so followers can fetch it. It counts once enough followers said that
//! they have it. If they are away, the operator's choice decides: changes wait for them, or the source goes
//! on alone after some time and says so.

use std::time::{Duration, Instant};

use exacat_model::Revision;
use parking_lot::{Condvar, Mutex};

/// Maximum number of followers whose durable changes a source remembers.
const STANDBYS_REMEMBERED_MAX: usize = 64;

/// Time after which a change that waits for standbys is told to the operator.
pub(crate) const LATE: Duration = Duration::from_secs(5);

/// Number of standbys, and what to do without them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StandbySettings {
    /// Followers that must have a change durably before it is answered; 0 for none.
    pub acks: usize,
    /// Time after which a change is answered without them; none waits for ever.
    pub go_on: Option<Duration>,
}

/// Result of a wait for standbys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Awaited {
    /// Enough standbys have the change; true if the source went on without them before.
    Acknowledged { was_alone: bool },
    /// They do not have it yet, after [`LATE`].
    Late,
    /// The source goes on without them; true if it begins to.
    Alone { begins: bool },
    /// The store closes before they have it.
    GivenUp,
}

#[derive(Default)]
struct Acks {
    /// The last durable change of each follower.
    durable: Vec<([u8; 16], Revision)>,
    /// True while the source goes on alone.
    alone: bool,
    /// True once changes wait: before, the server makes what a standby needs to sign in.
    required: bool,
    /// True once the store closes.
    given_up: bool,
}

/// Standbys of a store.
#[derive(Default)]
pub(crate) struct Standbys {
    settings: StandbySettings,
    acks: Mutex<Acks>,
    changed: Condvar,
}

impl Standbys {
    pub(crate) fn new(settings: StandbySettings) -> Self {
        Standbys { settings, ..Standbys::default() }
    }

    /// True if changes wait for followers.
    pub(crate) fn are_needed(&self) -> bool {
        self.settings.acks > 0
    }

    /// Lets changes wait for followers from now on.
    pub(crate) fn require(&self) {
        self.acks.lock().required = true;
    }

    /// Notes that a follower has everything up to this change durably.
    pub(crate) fn acknowledge(&self, id: [u8; 16], durable: Revision) {
        let mut acks = self.acks.lock();
        match acks.durable.iter_mut().find(|(one, _)| *one == id) {
            Some((_, known)) if *known >= durable => return,
            Some((_, known)) => *known = durable,
            None => {
                if acks.durable.len() >= STANDBYS_REMEMBERED_MAX {
                    acks.durable.remove(0);
                }
                acks.durable.push((id, durable));
            }
        }
        self.changed.notify_all();
    }

    /// Returns the last change that enough followers have.
    fn covered(&self, acks: &Acks) -> Revision {
        let mut durable: Vec<Revision> = acks.durable.iter().map(|(_, durable)| *durable).collect();
        durable.sort_unstable_by(|one, other| other.cmp(one));
        durable.get(self.settings.acks.saturating_sub(1)).copied().unwrap_or(Revision(0))
    }

    /// Waits until enough followers have this change. Without a limit of the operator it returns after some
    /// time, once.
    pub(crate) fn wait_for(&self, revision: Revision, once: Option<Duration>) -> Awaited {
        let until = self.settings.go_on.or(once).and_then(|time| Instant::now().checked_add(time));
        let mut acks = self.acks.lock();
        loop {
            if !acks.required {
                return Awaited::Acknowledged { was_alone: false };
            }
            if self.covered(&acks) >= revision {
                let was_alone = std::mem::take(&mut acks.alone);
                return Awaited::Acknowledged { was_alone };
            }
            if acks.given_up {
                return Awaited::GivenUp;
            }
            if acks.alone {
                return Awaited::Alone { begins: false };
            }
            let Some(until) = until else {
                self.changed.wait(&mut acks);
                continue;
            };
            if self.changed.wait_until(&mut acks, until).timed_out() && self.covered(&acks) < revision {
                if self.settings.go_on.is_none() {
                    return Awaited::Late;
                }
                acks.alone = true;
                return Awaited::Alone { begins: true };
            }
        }
    }

    /// Ends all waits, because the store closes.
    pub(crate) fn give_up(&self) {
        self.acks.lock().given_up = true;
        self.changed.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn standbys(acks: usize, go_on: Option<Duration>) -> Standbys {
        let standbys = Standbys::new(StandbySettings { acks, go_on });
        standbys.require();
        standbys
    }

    /// Property: a change counts once as many followers as needed have it, and not before.
    #[test]
    fn change_counts_once_enough_followers_have_it() {
        let two = standbys(2, Some(Duration::ZERO));
        two.acknowledge([1; 16], Revision(9));
        two.acknowledge([2; 16], Revision(4));
        assert_eq!(two.wait_for(Revision(4), None), Awaited::Acknowledged { was_alone: false });
        assert_eq!(two.wait_for(Revision(5), None), Awaited::Alone { begins: true });
        assert_eq!(two.wait_for(Revision(6), None), Awaited::Alone { begins: false });
        two.acknowledge([2; 16], Revision(3));
        assert_eq!(two.wait_for(Revision(6), None), Awaited::Alone { begins: false }, "never back");
        two.acknowledge([2; 16], Revision(7));
        assert_eq!(two.wait_for(Revision(7), None), Awaited::Acknowledged { was_alone: true });
    }

    /// Property: a wait without a limit ends when the store closes.
    #[test]
    fn wait_ends_when_the_store_closes() {
        let one = standbys(1, None);
        std::thread::scope(|scope| {
            let waiting = scope.spawn(|| one.wait_for(Revision(1), None));
            one.give_up();
            assert_eq!(waiting.join().unwrap(), Awaited::GivenUp);
        });
        assert_eq!(one.wait_for(Revision(1), None), Awaited::GivenUp);
    }

    /// Property: a wait without a limit is told once, and goes on.
    #[test]
    fn long_wait_is_told_once() {
        let one = standbys(1, None);
        assert_eq!(one.wait_for(Revision(1), Some(Duration::ZERO)), Awaited::Late);
        one.acknowledge([1; 16], Revision(1));
        let acknowledged = Awaited::Acknowledged { was_alone: false };
        assert_eq!(one.wait_for(Revision(1), Some(Duration::ZERO)), acknowledged);
    }

    /// Property: the number of remembered followers has a limit, at its edge.
    #[test]
    fn standbys_beyond_the_limit_are_forgotten_oldest_first() {
        let one = standbys(1, Some(Duration::ZERO));
        for number in 0..=STANDBYS_REMEMBERED_MAX {
            one.acknowledge([number as u8; 16], Revision(1));
        }
        assert_eq!(one.acks.lock().durable.len(), STANDBYS_REMEMBERED_MAX);
        assert_eq!(one.acks.lock().durable[0].0, [1; 16]);
    }
}
