//! A lane: a bounded number of slots for long work. The user who has used the slots least comes
//! next.
//!
//! Each user has a clock that runs while the user's work occupies slots, slower with more weight. A
//! free slot goes to the waiting user whose clock is furthest behind. So a user with many requests
//! gets as much as one with few, and no more. A user who comes (back) starts at the clock of the
//! lane: idling saves up nothing. The duration of work is not known before. So the lane charges an
//! estimate at the start, to keep one user from taking all free slots at once. It charges the
//! difference at the end.
//!
//! The queue is bounded, in total and per user; beyond that, [`Lane::enter`] refuses at once.

use std::collections::{HashMap, VecDeque};
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use exacat_model::UserId;
use parking_lot::Mutex;
use tokio::sync::oneshot;
use tokio::time::Instant;

/// Charge for work before its duration is known: 1 ms.
const ESTIMATE_NS: u64 = 1_000_000;

/// The owner of a share; anonymous callers share one.
pub type UserKey = Option<UserId>;

/// A fair, bounded lane; the module describes it.
#[derive(Debug)]
pub struct Lane {
    slots: usize,
    queue_max: usize,
    queue_per_user_max: usize,
    refused: AtomicU64,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    running: usize,
    waiting: usize,
    next_ticket: u64,
    /// Clock of the user who was served last, at that time; new users start there.
    clock_ns: u64,
    users: HashMap<UserKey, Share>,
}

#[derive(Debug, Default)]
struct Share {
    clock_ns: u64,
    running: usize,
    queue: VecDeque<Waiter>,
}

#[derive(Debug)]
struct Waiter {
    ticket: u64,
    weight: u32,
    turn: oneshot::Sender<()>,
}

/// Kind of a step. The queue's bound may refuse new work. The next step of admitted work is bounded
/// where that work was admitted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// New work.
    First,
    /// The next page of a stream.
    Next,
}

impl Lane {
    /// Makes a lane with so many slots and bounds of its queue, in total and per user.
    pub fn new(slots: usize, queue_max: usize, queue_per_user_max: usize) -> Arc<Self> {
        Arc::new(Lane {
            slots,
            queue_max,
            queue_per_user_max,
            refused: AtomicU64::new(0),
            state: Mutex::new(State::default()),
        })
    }

    /// Requests a slot; none if the queue is full. Await the result for the turn; drop it to give
    /// up.
    pub fn enter(self: &Arc<Self>, user: UserKey, weight: u32, step: Step) -> Option<Entered> {
        let weight = weight.max(1);
        let mut state = self.state.lock();
        let free = state.running < self.slots && state.waiting == 0;
        // A further page is never refused: its request was admitted with the first one.
        if !free && step == Step::First {
            let own = state.users.get(&user).map_or(0, |share| share.queue.len());
            if state.waiting >= self.queue_max || own >= self.queue_per_user_max {
                self.refused.fetch_add(1, Ordering::Relaxed);
                return None;
            }
        }
        // Also with a free slot the request passes through the queue: one code path, one order.
        let ticket = state.next_ticket;
        state.next_ticket += 1;
        state.waiting += 1;
        let lane_clock = state.clock_ns;
        let share = state.users.entry(user).or_default();
        // A user who returns must not profit from the time spent idle.
        if share.running == 0 && share.queue.is_empty() {
            share.clock_ns = share.clock_ns.max(lane_clock);
        }
        let (turn, receiver) = oneshot::channel();
        share.queue.push_back(Waiter { ticket, weight, turn });
        self.serve(&mut state);
        drop(state);
        Some(Entered {
            place: Some(LanePlace { lane: Arc::clone(self), user, weight, ticket }),
            turn: receiver,
        })
    }

    /// Gives free slots to the users furthest behind.
    fn serve(&self, state: &mut State) {
        while state.running < self.slots && state.waiting > 0 {
            // With equal clocks, the oldest request is next.
            let next = state
                .users
                .iter()
                .filter(|(_, share)| !share.queue.is_empty())
                .min_by_key(|(_, share)| (share.clock_ns, share.queue.front().map(|waiter| waiter.ticket)))
                .map(|(user, _)| *user);
            let Some(share) = next.and_then(|user| state.users.get_mut(&user)) else {
                return;
            };
            let Some(waiter) = share.queue.pop_front() else {
                return;
            };
            state.waiting -= 1;
            // The clock of the lane never goes back, or a returning user would get a lead.
            state.clock_ns = state.clock_ns.max(share.clock_ns);
            // A waiter that gives up removes itself from the queue under the same lock. So the
            // waiter chosen here still exists.
            if waiter.turn.send(()).is_ok() {
                // Charge now: otherwise one user could take all free slots at once.
                share.clock_ns += ESTIMATE_NS / u64::from(waiter.weight);
                share.running += 1;
                state.running += 1;
            }
        }
    }

    fn leave(&self, user: UserKey, weight: u32, used: Duration) {
        // Half of the range: the sum with a clock cannot overflow.
        let used_ns = u64::try_from(used.as_nanos()).unwrap_or(u64::MAX / 2);
        let mut state = self.state.lock();
        state.running -= 1;
        if let Some(share) = state.users.get_mut(&user) {
            share.running -= 1;
            // Replace the estimate by the time really used.
            let estimate = ESTIMATE_NS / u64::from(weight);
            share.clock_ns = (share.clock_ns + used_ns / u64::from(weight)).saturating_sub(estimate);
        }
        self.forget_if_idle(&mut state, user);
        self.serve(&mut state);
    }

    fn give_up(&self, user: UserKey, ticket: u64) -> bool {
        let mut state = self.state.lock();
        let Some(share) = state.users.get_mut(&user) else {
            return false;
        };
        let Some(position) = share.queue.iter().position(|waiter| waiter.ticket == ticket) else {
            // The lane granted the turn meanwhile; the caller must give back a slot, not a place.
            return false;
        };
        share.queue.remove(position);
        state.waiting -= 1;
        self.forget_if_idle(&mut state, user);
        true
    }

    /// Drops the share of an idle user whose clock is not ahead of the lane's. A new share would
    /// start at the lane's clock anyway. A share that is ahead stays until the lane has
    /// caught up. There are never more of those than users served since.
    fn forget_if_idle(&self, state: &mut State, user: UserKey) {
        let clock_ns = state.clock_ns;
        let idle = |share: &Share| share.running == 0 && share.queue.is_empty();
        if state.users.values().all(idle) {
            // Nobody waits, so nobody is treated unfairly by clocks that start at 0 again.
            state.users.clear();
            state.clock_ns = 0;
        } else if state.users.get(&user).is_some_and(idle) {
            state.users.retain(|_, share| !idle(share) || share.clock_ns > clock_ns);
        }
    }

    /// Returns the numbers of running and waiting work.
    pub fn metrics(&self) -> (usize, usize) {
        let state = self.state.lock();
        (state.running, state.waiting)
    }

    /// Returns the number of refusals.
    pub fn refused(&self) -> u64 {
        self.refused.load(Ordering::Relaxed)
    }
}

/// A place in the queue or, once granted, a slot. Dropping it gives it back in either state.
#[derive(Debug)]
struct LanePlace {
    lane: Arc<Lane>,
    user: UserKey,
    weight: u32,
    ticket: u64,
}

/// A place in a lane's queue. Resolves to the [`Turn`].
#[derive(Debug)]
pub struct Entered {
    place: Option<LanePlace>,
    turn: oneshot::Receiver<()>,
}

impl Future for Entered {
    type Output = Turn;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Turn> {
        match Pin::new(&mut self.turn).poll(context) {
            // The sender is dropped only when its waiter leaves the queue, and this one has not.
            Poll::Ready(_) => match self.place.take() {
                Some(place) => Poll::Ready(Turn { place: Some(place), since: Instant::now() }),
                None => Poll::Pending,
            },
            Poll::Pending => Poll::Pending,
        }
    }
}

impl Drop for Entered {
    fn drop(&mut self) {
        if let Some(place) = self.place.take()
            && !place.lane.give_up(place.user, place.ticket)
        {
            // The turn was granted, but nobody took it.
            place.lane.leave(place.user, place.weight, Duration::ZERO);
        }
    }
}

/// A slot. Dropping it charges its user and gives it back.
#[derive(Debug)]
pub struct Turn {
    place: Option<LanePlace>,
    since: Instant,
}

impl Drop for Turn {
    fn drop(&mut self) {
        if let Some(place) = self.place.take() {
            place.lane.leave(place.user, place.weight, self.since.elapsed());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures::FutureExt;

    const ONE: UserKey = Some(UserId(1));
    const TWO: UserKey = Some(UserId(2));

    fn enter(lane: &Arc<Lane>, user: UserKey) -> Entered {
        lane.enter(user, 1, Step::First).unwrap()
    }

    fn turn(entered: &mut Entered) -> Option<Turn> {
        entered.now_or_never()
    }

    #[test]
    fn slots_are_bounded_and_given_on() {
        let lane = Lane::new(2, 10, 10);
        let mut all: Vec<Entered> = (0..4).map(|_| enter(&lane, ONE)).collect();
        let mut turns: Vec<Option<Turn>> = all.iter_mut().map(turn).collect();
        assert_eq!(turns.iter().map(Option::is_some).collect::<Vec<_>>(), [true, true, false, false]);
        assert_eq!(lane.metrics(), (2, 2));
        turns[0] = None;
        assert!(turn(&mut all[2]).is_some());
        assert_eq!(lane.metrics(), (2, 0), "the third's slot went to the fourth");
        drop((all, turns));
        assert_eq!(lane.metrics(), (0, 0));
    }

    #[test]
    fn a_newcomer_comes_before_the_rest_of_a_long_queue() {
        let lane = Lane::new(1, 100, 100);
        let mut first = enter(&lane, ONE);
        let running = turn(&mut first).unwrap();
        let mut crowd: Vec<Entered> = (0..50).map(|_| enter(&lane, ONE)).collect();
        let mut newcomer = enter(&lane, TWO);
        drop(running);
        assert!(turn(&mut newcomer).is_some(), "one who has used nothing comes before one who has");
        assert!(turn(&mut crowd[0]).is_some());
    }

    /// Serves so many of those that wait, one after the other, each for ten milliseconds. Returns
    /// the users in the order in which they were served.
    async fn served(mut waiting: Vec<(u32, Entered)>, count: usize) -> Vec<u32> {
        let mut served = Vec::new();
        while served.len() < count {
            let next =
                waiting.iter_mut().enumerate().find_map(|(at, (_, entered))| Some((at, turn(entered)?)));
            let (at, turn) = next.expect("somebody's turn");
            tokio::time::advance(Duration::from_millis(10)).await;
            drop(turn);
            served.push(waiting.remove(at).0);
        }
        served
    }

    #[tokio::test(start_paused = true)]
    async fn two_users_share_evenly_whatever_each_asks_for() {
        let lane = Lane::new(1, 1000, 1000);
        let mut waiting: Vec<(u32, Entered)> = (0..100).map(|_| (1, enter(&lane, ONE))).collect();
        waiting.extend((0..10).map(|_| (2, enter(&lane, TWO))));
        let served = served(waiting, 110).await;
        let last_of_two = served.iter().rposition(|user| *user == 2).unwrap();
        assert!(last_of_two <= 22, "served in the order {served:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn weight_gives_more_turns() {
        let lane = Lane::new(1, 1000, 1000);
        let mut waiting: Vec<(u32, Entered)> = Vec::new();
        for _ in 0..100 {
            waiting.push((1, enter(&lane, ONE)));
            waiting.push((2, lane.enter(TWO, 3, Step::First).unwrap()));
        }
        let of_two = served(waiting, 80).await.iter().filter(|user| **user == 2).count();
        assert!((57..=63).contains(&of_two), "{of_two} of 80 for the one that counts three times");
    }

    #[test]
    fn the_queue_is_bounded_in_all_and_by_user() {
        let lane = Lane::new(1, 3, 2);
        let mut running = enter(&lane, ONE);
        let _turn = turn(&mut running).unwrap();
        let _waiting = [enter(&lane, ONE), enter(&lane, ONE)];
        assert!(lane.enter(ONE, 1, Step::First).is_none(), "two of one user wait already");
        let _third = enter(&lane, TWO);
        assert!(lane.enter(TWO, 1, Step::First).is_none(), "three wait already");
        assert_eq!(lane.refused(), 2);
        assert!(lane.enter(ONE, 1, Step::Next).is_some(), "what was taken on goes on");
    }

    #[test]
    fn one_who_gives_up_leaves_no_trace() {
        let lane = Lane::new(1, 10, 10);
        let mut first = enter(&lane, ONE);
        let running = turn(&mut first).unwrap();
        let second = enter(&lane, ONE);
        let third = enter(&lane, TWO);
        drop(second);
        assert_eq!(lane.metrics(), (1, 1));
        drop(running);
        assert_eq!(lane.metrics(), (1, 0), "granted, not yet seen");
        drop(third);
        assert_eq!(lane.metrics(), (0, 0), "a slot granted to one who went is free again");
        assert!(lane.state.lock().users.is_empty());
    }
}
