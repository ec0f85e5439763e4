//! The state of one request, and the time it spent in each.

use std::any::Any;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use crate::state::RequestState;

/// False in the build without states, which shows what they cost.
pub const IS_ON: bool = !cfg!(feature = "off");

/// Bits of the word that hold the number of the state.
const STATE_BITS: u32 = 5;
/// Value of the time bits while no request runs.
const AT_REST: u64 = 0;

/// Returns the nanoseconds from a moment in the life of the process to `at`; at least 1.
fn nanos(at: Instant) -> u64 {
    static ORIGIN: OnceLock<Instant> = OnceLock::new();
    let origin = *ORIGIN.get_or_init(|| at.checked_sub(Duration::from_secs(1)).unwrap_or(at));
    u64::try_from(at.saturating_duration_since(origin).as_nanos()).unwrap_or(u64::MAX).max(1)
}

/// Times in each state, in nanoseconds, by the number of the state.
pub type Times = [u64; RequestState::COUNT];

/// The identity of a request, for the code that made it.
pub type Owner = Arc<dyn Any + Send + Sync>;

/// The present state of a request, and the times of the states before.
///
/// One word has the state and its beginning, so that a sampler reads both at once. Threads that work
/// on one request one after the other may all change it. The first fields are all that a look-up changes,
/// which is in the first states only: with the counts of an `Arc` they fill one line of the cache.
#[derive(Debug, Default)]
#[repr(C)]
pub struct Activity {
    /// State in the low bits; nanoseconds of its beginning above.
    word: AtomicU64,
    began: AtomicU64,
    /// A bit for each state that may have time.
    used: AtomicU32,
    times: [AtomicU64; RequestState::COUNT],
    owner: Option<Owner>,
}

fn word(state: RequestState, since: u64) -> u64 {
    since << STATE_BITS | state as u64
}

fn state_of(word: u64) -> RequestState {
    RequestState::at((word & ((1 << STATE_BITS) - 1)) as usize)
}

/// Returns the numbers of the bits that are set.
fn bits(mut of: u32) -> impl Iterator<Item = usize> {
    std::iter::from_fn(move || {
        let next = (of != 0).then(|| of.trailing_zeros() as usize);
        of &= of.wrapping_sub(1);
        next
    })
}

// Each state has a bit.
const _: () = assert!(RequestState::COUNT <= u32::BITS as usize);

impl Activity {
    /// Makes the states of a request with this identity.
    pub fn of(owner: Owner) -> Self {
        Activity { owner: Some(owner), ..Activity::default() }
    }

    /// Returns the identity that the request was made with.
    pub fn owner(&self) -> Option<&Owner> {
        self.owner.as_ref()
    }

    /// Begins a request that was received at `since`. An activity may serve one request after another.
    pub fn begin(&self, state: RequestState, since: Instant) {
        if IS_ON {
            self.start((state, since), state, since);
        }
    }

    /// Begins a request that was in the state `first` from `since` until now.
    pub fn begin_after(&self, first: RequestState, since: Instant, state: RequestState) {
        if IS_ON {
            self.start((first, since), state, Instant::now());
        }
    }

    fn start(&self, (first, since): (RequestState, Instant), state: RequestState, now: Instant) {
        let since = nanos(since);
        let now = nanos(now).max(since);
        // Plain writes: no other thread works on the request yet.
        for state in bits(self.used.load(Ordering::Relaxed)) {
            self.times[state].store(0, Ordering::Relaxed);
        }
        self.used.store(1 << first as u32, Ordering::Relaxed);
        self.times[first as usize].store(now - since, Ordering::Relaxed);
        self.began.store(since, Ordering::Relaxed);
        self.word.store(word(state, now), Ordering::Relaxed);
    }

    /// Enters a state, and returns the one before.
    pub fn enter(&self, state: RequestState) -> RequestState {
        if IS_ON { self.enter_at(state, Instant::now()) } else { state }
    }

    /// Enters a state at a time that the caller has read.
    pub fn enter_at(&self, state: RequestState, now: Instant) -> RequestState {
        if !IS_ON {
            return state;
        }
        let now = nanos(now);
        let before = self.word.swap(word(state, now), Ordering::Relaxed);
        let (old, since) = (state_of(before), before >> STATE_BITS);
        if since != AT_REST {
            self.add(old, now.saturating_sub(since));
        }
        old
    }

    /// Adds time to a state.
    fn add(&self, state: RequestState, time: u64) {
        let bit = 1 << state as u32;
        if self.used.load(Ordering::Relaxed) & bit == 0 {
            self.used.fetch_or(bit, Ordering::Relaxed);
        }
        self.times[state as usize].fetch_add(time, Ordering::Relaxed);
    }

    /// Returns the times of the states that ended.
    fn times(&self) -> Times {
        let mut times = Times::default();
        for state in bits(self.used.load(Ordering::Relaxed)) {
            times[state] = self.times[state].load(Ordering::Relaxed);
        }
        times
    }

    /// Ends the request. Returns its times and its life, which is their sum.
    pub fn end(&self, now: Instant) -> (Times, u64) {
        let now = nanos(now);
        let last = self.word.swap(word(RequestState::Unaccounted, AT_REST), Ordering::Relaxed);
        let mut times = self.times();
        if last >> STATE_BITS != AT_REST {
            times[state_of(last) as usize] += now.saturating_sub(last >> STATE_BITS);
        }
        (times, now.saturating_sub(self.began.load(Ordering::Relaxed)))
    }

    /// Returns the present state.
    pub fn state(&self) -> RequestState {
        state_of(self.word.load(Ordering::Relaxed))
    }

    /// Returns the present state, its duration so far, and the life so far; none while no request runs.
    pub fn now(&self) -> Option<(RequestState, Duration, Duration)> {
        let (word, began) = (self.word.load(Ordering::Relaxed), self.began.load(Ordering::Relaxed));
        let (now, since) = (nanos(Instant::now()), word >> STATE_BITS);
        (since != AT_REST).then(|| {
            let passed = |since| Duration::from_nanos(now.saturating_sub(since));
            (state_of(word), passed(since), passed(began))
        })
    }

    /// Returns the times so far, the present state's included.
    pub fn so_far(&self) -> Times {
        let mut times = self.times();
        if let Some((state, time, _)) = self.now() {
            times[state as usize] += u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        }
        times
    }

    /// Divides a wait that just ended: takes time from the state `from` and gives it to others. Never
    /// takes more than there is, so that the sum stays.
    pub fn split(&self, from: RequestState, parts: &[(RequestState, Duration)]) {
        let mut left = self.times[from as usize].load(Ordering::Relaxed);
        for (state, time) in parts {
            let part = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX).min(left);
            left -= part;
            self.times[from as usize].fetch_sub(part, Ordering::Relaxed);
            self.add(*state, part);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use RequestState::{CommitQueue, Decode, Execute, LogSync, PageRead};

    fn at(start: Instant, ms: u64) -> Instant {
        start + Duration::from_millis(ms)
    }

    #[test]
    fn times_of_the_states_are_the_life() {
        let (activity, start) = (Activity::default(), Instant::now());
        // An activity serves one request after the other: nothing of the first is in the second.
        for _ in 0..2 {
            activity.begin(Decode, start);
            assert_eq!(activity.enter_at(Execute, at(start, 1)), Decode);
            assert_eq!(activity.enter_at(PageRead, at(start, 3)), Execute);
            assert_eq!(activity.enter_at(Execute, at(start, 7)), PageRead);
            let (times, life) = activity.end(at(start, 15));
            assert_eq!(life, 15_000_000);
            assert_eq!(times.iter().sum::<u64>(), life);
            let ms = |state| times[state as usize] / 1_000_000;
            assert_eq!([ms(Decode), ms(Execute), ms(PageRead)], [1, 10, 4]);
            assert!(activity.now().is_none());
        }
    }

    /// The time before a request begins to be worked on is that of its first state.
    #[test]
    fn request_begins_after_its_first_state() {
        let (activity, now) = (Activity::default(), Instant::now());
        activity.begin(PageRead, now);
        activity.enter(Execute);
        let since = now.checked_sub(Duration::from_millis(100)).unwrap();
        activity.begin_after(Decode, since, Execute);
        let times = activity.so_far();
        assert!((100_000_000..60_000_000_000).contains(&times[Decode as usize]), "{times:?}");
        assert_eq!((activity.state(), times[PageRead as usize]), (Execute, 0));
        let (times, life) = activity.end(Instant::now() + Duration::from_millis(5));
        assert_eq!(times.iter().sum::<u64>(), life);
        assert!(times[Execute as usize] >= 5_000_000, "{times:?}");
    }

    /// Parts that are longer than the wait are cut, so that the sum stays.
    #[test]
    fn split_keeps_the_sum() {
        let (activity, start) = (Activity::default(), Instant::now());
        activity.begin(CommitQueue, start);
        activity.enter_at(Execute, at(start, 10));
        let sync = [(LogSync, Duration::from_millis(4)), (PageRead, Duration::from_millis(100))];
        activity.split(CommitQueue, &sync);
        let (times, life) = activity.end(at(start, 11));
        assert_eq!(times.iter().sum::<u64>(), life);
        let ms = |state| times[state as usize] / 1_000_000;
        assert_eq!([ms(CommitQueue), ms(LogSync), ms(PageRead), ms(Execute)], [0, 4, 6, 1]);
    }
}
