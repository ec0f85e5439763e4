//! Throttles: an operator limits the items that a user, a group, or everybody may ask for in a second.
//!
//! A throttle has a clock that says when its next item is due. A request that comes before that waits,
//! and moves the clock by its items. Beyond a bound of the wait it is refused. An idle throttle lets the
//! items of one second through at once. A request is never split, so one with many items passes, and
//! those behind it pay for it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use exacat_catalogue::Caller;
use exacat_model::answer::Throttle;
use exacat_model::operation::Owner;
use exacat_model::{Error, ErrorKind, Operation, QuotaOf, Result};
use parking_lot::Mutex;

/// Most throttles of a server.
pub const THROTTLES_MAX: usize = 64;
/// Longest wait for a turn. A request whose turn is later is refused.
pub const THROTTLE_WAIT_MAX: Duration = Duration::from_secs(10);
/// Items that an idle throttle lets through at once are those of this time.
const BURST: Duration = Duration::from_secs(1);

/// The throttles of a server.
#[derive(Debug, Default)]
pub struct Throttles {
    /// True if there is any, so that requests of a server without throttles look no further.
    any: AtomicBool,
    all: Mutex<Vec<One>>,
}

#[derive(Debug)]
struct One {
    owner: Option<Owner>,
    /// Account of `owner`.
    account: Option<QuotaOf>,
    items_per_second: u32,
    /// Time at which the next item is due.
    due: Instant,
    counts: Arc<Counts>,
}

#[derive(Debug, Default)]
struct Counts {
    waiting: AtomicU64,
    delayed: AtomicU64,
    refused: AtomicU64,
}

/// A wait for a turn; dropping it ends the wait.
#[derive(Debug)]
pub struct Waiting {
    /// Time of the turn.
    pub until: Instant,
    counts: Vec<Arc<Counts>>,
}

impl Drop for Waiting {
    fn drop(&mut self) {
        for counts in &self.counts {
            counts.waiting.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

impl One {
    fn limits(&self, caller: &Caller) -> bool {
        match self.account {
            Some(QuotaOf::User(id)) => caller.user() == Some(id),
            Some(QuotaOf::Group(id)) => caller.is_in(id),
            // Operators must be able to look at an overloaded server.
            None => !caller.is_operator(),
        }
    }

    fn charge(&mut self, items: u64, now: Instant) {
        let nanos = u128::from(items) * 1_000_000_000 / u128::from(self.items_per_second.max(1));
        let time = Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX));
        let from = now.checked_sub(BURST).map_or(self.due, |idle| self.due.max(idle));
        self.due = from.checked_add(time).unwrap_or(from);
    }
}

impl Throttles {
    /// Sets the throttle of an owner, or ends it.
    pub fn set(
        &self,
        owner: Option<Owner>,
        account: Option<QuotaOf>,
        items_per_second: Option<u32>,
    ) -> Result<()> {
        let mut all = self.all.lock();
        let place = all.iter().position(|one| one.owner == owner);
        match (items_per_second, place) {
            (None, None) => return Err(Error::not_found("there is no such throttle on this server")),
            (None, Some(place)) => drop(all.remove(place)),
            (Some(items_per_second), Some(place)) => {
                let one = &mut all[place];
                // The debt of the former rate is forgotten.
                (one.account, one.items_per_second, one.due) = (account, items_per_second, Instant::now());
            }
            (Some(_), None) if all.len() >= THROTTLES_MAX => {
                return Err(Error::limit(
                    "the number of throttles of a server",
                    all.len() + 1,
                    THROTTLES_MAX,
                ));
            }
            (Some(items_per_second), None) => {
                let now = Instant::now();
                let due = now.checked_sub(BURST).unwrap_or(now);
                all.push(One { owner, account, items_per_second, due, counts: Arc::default() });
            }
        }
        self.any.store(!all.is_empty(), Ordering::Relaxed);
        Ok(())
    }

    /// Lists the throttles, in the order in which they were set.
    pub fn list(&self) -> Vec<Throttle> {
        let load = |count: &AtomicU64| count.load(Ordering::Relaxed);
        let shown = |one: &One| Throttle {
            owner: one.owner.clone(),
            items_per_second: one.items_per_second,
            waiting: load(&one.counts.waiting),
            delayed: load(&one.counts.delayed),
            refused: load(&one.counts.refused),
        };
        self.all.lock().iter().map(shown).collect()
    }

    /// True if a throttle limits the caller.
    pub fn concern(&self, caller: &Caller) -> bool {
        self.any.load(Ordering::Relaxed) && self.all.lock().iter().any(|one| one.limits(caller))
    }

    /// Gives a request of so many items its turn: none if it is now. Refuses it if the turn is after
    /// `deadline`, or too late.
    pub fn enter(&self, caller: &Caller, items: u64, deadline: Instant) -> Result<Option<Waiting>> {
        let now = Instant::now();
        let mut all = self.all.lock();
        let mut limiting: Vec<&mut One> = all.iter_mut().filter(|one| one.limits(caller)).collect();
        let Some(slowest) = limiting.iter().max_by_key(|one| one.due) else { return Ok(None) };
        let until = slowest.due;
        if until > deadline.min(now + THROTTLE_WAIT_MAX) {
            slowest.counts.refused.fetch_add(1, Ordering::Relaxed);
            let who = slowest.owner.as_ref().map_or_else(
                || "everybody".to_owned(),
                |owner| match owner {
                    Owner::User(name) => format!("the user {name}"),
                    Owner::Group(name) => format!("the group {name}"),
                },
            );
            let why = format!(
                "an operator limits {who} to {} items a second on this server: send it again later, or use \
                 another server",
                slowest.items_per_second
            );
            return Err(Error::new(ErrorKind::Busy, why));
        }
        let delaying = limiting.iter().filter(|one| one.due > now);
        let counts: Vec<Arc<Counts>> = delaying.map(|one| Arc::clone(&one.counts)).collect();
        limiting.iter_mut().for_each(|one| one.charge(items, now));
        if until <= now {
            return Ok(None);
        }
        for counts in &counts {
            counts.waiting.fetch_add(1, Ordering::Relaxed);
            counts.delayed.fetch_add(1, Ordering::Relaxed);
        }
        Ok(Some(Waiting { until, counts }))
    }

    /// Charges items of an answer, which nobody knew before.
    pub fn charge(&self, caller: &Caller, items: u64) {
        let now = Instant::now();
        self.all.lock().iter_mut().filter(|one| one.limits(caller)).for_each(|one| one.charge(items, now));
    }
}

/// True if an operation is about the server itself, so that no throttle delays it.
pub(crate) fn is_about_the_server(operation: &Operation) -> bool {
    matches!(
        operation,
        Operation::Whoami
            | Operation::Status
            | Operation::Sessions
            | Operation::SessionKill { .. }
            | Operation::SlowRequests
            | Operation::Activity { .. }
            | Operation::ClockConfirm
            | Operation::ThrottleSet { .. }
            | Operation::ThrottleList
            | Operation::FeedCreate { .. }
            | Operation::FeedList { .. }
            | Operation::FeedControl { .. }
            | Operation::Drain { .. }
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use exacat_model::{AccountName, GroupId, Lfn, Role, User, UserId};

    fn name(text: &str) -> AccountName {
        AccountName::parse(text).unwrap()
    }

    fn caller(id: u32, group: u32, roles: &[Role]) -> Caller {
        let user = User {
            id: UserId(id),
            name: name("u"),
            group: GroupId(group),
            groups: Vec::new(),
            roles: roles.to_vec(),
            may_become: Vec::new(),
            subjects: Vec::new(),
            home: None,
            disabled: false,
        };
        Caller::of(&user, Lfn::root(), true)
    }

    fn of_user(id: u32) -> (Option<Owner>, Option<QuotaOf>) {
        (Some(Owner::User(name(&format!("u{id}")))), Some(QuotaOf::User(UserId(id))))
    }

    fn later(seconds: u64) -> Instant {
        Instant::now() + Duration::from_secs(seconds)
    }

    /// An idle throttle lets the items of one second through, then delays by the rate, and refuses beyond
    /// its bound and beyond the deadline. What it refuses costs nothing.
    #[test]
    fn throttle_delays_and_then_refuses() {
        let throttles = Throttles::default();
        let (slow, other) = (caller(1, 1, &[]), caller(2, 1, &[]));
        let (owner, account) = of_user(1);
        assert!(!throttles.concern(&slow));
        throttles.set(owner.clone(), account, Some(10)).unwrap();
        assert!(throttles.concern(&slow) && !throttles.concern(&other));
        assert!(throttles.enter(&slow, 10, later(60)).unwrap().is_none(), "a second's worth");
        assert!(throttles.enter(&other, 1000, later(60)).unwrap().is_none());
        assert!(throttles.enter(&slow, 50, later(60)).unwrap().is_none(), "the clock is now");
        let waiting = throttles.enter(&slow, 40, later(60)).unwrap().unwrap();
        let wait = waiting.until - Instant::now();
        assert!((4..=5).contains(&wait.as_secs()), "{wait:?}");
        assert_eq!((throttles.list()[0].waiting, throttles.list()[0].delayed), (1, 1));
        let error = throttles.enter(&slow, 1, later(6)).unwrap_err();
        assert!(
            error.kind == ErrorKind::Busy && error.message.contains("the user u1 to 10 items"),
            "{error}"
        );
        let next = throttles.enter(&slow, 20, later(60)).unwrap().unwrap();
        assert!(next.until - waiting.until == Duration::from_secs(4), "the refused one cost nothing");
        assert!(throttles.enter(&slow, 1, later(60)).is_err(), "11 s are beyond the bound");
        drop((waiting, next));
        let shown = &throttles.list()[0];
        assert_eq!((shown.waiting, shown.delayed, shown.refused), (0, 2, 2));
        throttles.set(owner.clone(), account, Some(20)).unwrap();
        assert!(throttles.enter(&slow, 1, later(60)).unwrap().is_none(), "the debt is forgotten");
        throttles.set(owner.clone(), None, None).unwrap();
        assert!(!throttles.concern(&slow) && throttles.list().is_empty());
        assert_eq!(throttles.set(owner, None, None).unwrap_err().kind, ErrorKind::NotFound);
    }

    /// The members of a group, and everybody but operators, share a throttle. The slowest of several counts.
    #[test]
    fn several_throttles_limit_together() {
        let throttles = Throttles::default();
        let group = (Some(Owner::Group(name("g"))), Some(QuotaOf::Group(GroupId(7))));
        throttles.set(group.0, group.1, Some(1)).unwrap();
        throttles.set(None, None, Some(1000)).unwrap();
        let (one, two) = (caller(1, 7, &[]), caller(2, 7, &[]));
        let (stranger, operator) = (caller(3, 8, &[]), caller(4, 8, &[Role::Operator]));
        assert!(throttles.enter(&one, 6, later(60)).unwrap().is_none());
        let wait = throttles.enter(&two, 1, later(60)).unwrap().unwrap().until - Instant::now();
        assert!((4..=5).contains(&wait.as_secs()), "{wait:?}");
        assert!(throttles.enter(&stranger, 500, later(60)).unwrap().is_none());
        throttles.charge(&stranger, 4000);
        assert!(throttles.enter(&stranger, 1, later(60)).unwrap().is_some(), "rows of an answer count");
        assert!(!throttles.concern(&operator) && throttles.concern(&Caller::anonymous()));
        assert!(throttles.list().iter().any(|one| one.owner.is_none() && one.delayed == 1));
    }

    #[test]
    fn throttles_are_few() {
        let throttles = Throttles::default();
        for id in 0..THROTTLES_MAX as u32 {
            let (owner, account) = of_user(id);
            throttles.set(owner, account, Some(1)).unwrap();
        }
        let (owner, account) = of_user(THROTTLES_MAX as u32);
        assert_eq!(throttles.set(owner, account, Some(1)).unwrap_err().kind, ErrorKind::Limit);
        let (owner, account) = of_user(0);
        throttles.set(owner, account, Some(u32::MAX)).unwrap();
        throttles.charge(&caller(0, 1, &[]), u64::MAX);
    }
}
