//! Past states that requests ask for: made one at a time, and kept open for a while.
//!
//! Making a state reads up to millions of changes. The work belongs to no request: it goes on if the client
//! goes away, and its state serves the next one that asks.

use std::sync::{Arc, Weak};
use std::time::Duration;

use exacat_activity::{RequestState, on};
use exacat_catalogue::Catalogue;
use exacat_model::{Consistency, Error, ErrorKind, Past, PastPoint, Result, Revision};
use exacat_wire::json::SeNames;
use parking_lot::Mutex;
use tokio::sync::Semaphore;
use tokio::time::{Instant, sleep_until};

use crate::admission::busy;
use crate::settings::{PAST_IDLE, PAST_POINTS_MAX, PAST_STATES_MAX, PAST_WAITING_MAX};

/// An open past state.
pub(crate) struct PastState {
    /// The catalogue as it was.
    pub catalogue: Arc<Catalogue>,
    pub revision: Revision,
    /// Names of the storage elements of that time.
    pub ses: Arc<SeNames>,
}

/// State that an operation is about.
#[derive(Clone)]
pub(crate) enum About {
    /// The present state, at a consistency level; none for the server's default.
    Present(Option<Consistency>),
    /// A past state.
    Past(Arc<PastState>),
}

impl From<Option<Consistency>> for About {
    fn from(level: Option<Consistency>) -> Self {
        About::Present(level)
    }
}

/// A state in the list, and its use.
struct Kept {
    state: Arc<PastState>,
    /// Points that it is the state at, the latest question last.
    points: Vec<PastPoint>,
    used: Instant,
}

#[derive(Default)]
struct List {
    /// The least recently used first.
    kept: Vec<Kept>,
    /// True while a task lets idle states go.
    is_watched: bool,
}

/// The past states of a server.
pub(crate) struct PastStates {
    list: Mutex<List>,
    /// Held while a state is made.
    turn: Arc<tokio::sync::Mutex<()>>,
    waiting: Semaphore,
}

impl PastStates {
    pub(crate) fn new() -> Arc<Self> {
        Arc::new(PastStates {
            list: Mutex::default(),
            turn: Arc::default(),
            waiting: Semaphore::new(PAST_WAITING_MAX),
        })
    }

    /// Returns the number of open states.
    pub(crate) fn open_states(&self) -> usize {
        self.list.lock().kept.len()
    }

    /// Returns an open state that fits, and notes its use at a point.
    fn find(&self, point: PastPoint, fits: impl Fn(&Kept) -> bool) -> Option<Arc<PastState>> {
        let mut list = self.list.lock();
        let at = list.kept.iter().position(fits)?;
        let mut found = list.kept.remove(at);
        found.used = Instant::now();
        found.points.retain(|other| *other != point);
        if found.points.len() >= PAST_POINTS_MAX {
            found.points.remove(0);
        }
        found.points.push(point);
        let state = Arc::clone(&found.state);
        list.kept.push(found);
        Some(state)
    }

    /// Returns the state that a request is about; makes it if it is not open.
    pub(crate) async fn open(
        self: &Arc<Self>,
        catalogue: &Arc<Catalogue>,
        past: Past,
    ) -> Result<Arc<PastState>> {
        let Past { point, changes_max } = past;
        if let Some(state) = self.find(point, |kept| kept.points.contains(&point)) {
            return Ok(state);
        }
        let route = catalogue.past_route(point).await?;
        let revision = route.revision;
        let known = || self.find(point, |kept| kept.state.revision == revision);
        if let Some(state) = known() {
            return Ok(state);
        }
        if route.changes > changes_max {
            let (changes, start) = (route.changes, &route.start);
            return Err(Error::new(
                ErrorKind::Limit,
                format!(
                    "the state after revision {} is {changes} changes after {start}, and the request allows {changes_max}",
                    revision.0
                ),
            ));
        }
        let place = self.waiting.try_acquire();
        let _place = place.map_err(|_| busy("past states that wait to be read"))?;
        let turn = on(RequestState::HistoryRead, Arc::clone(&self.turn).lock_owned()).await;
        if let Some(state) = known() {
            return Ok(state);
        }
        let (states, catalogue) = (Arc::clone(self), Arc::clone(catalogue));
        // A task of its own: a client that goes away must not leave the work without an owner.
        let made = tokio::spawn(async move {
            states.make_room();
            let opened = catalogue.past(revision).await?;
            let mut ses = SeNames::default();
            opened.storage_elements().iter().for_each(|se| ses.learn_one(se));
            let state = Arc::new(PastState { catalogue: opened, revision, ses: Arc::new(ses) });
            states.keep(Arc::clone(&state), point);
            drop(turn);
            Ok(state)
        });
        on(RequestState::HistoryRead, made).await.unwrap_or_else(|error| {
            Err(Error::new(
                ErrorKind::Internal,
                format!("internal error: making a past state ended: {error}"),
            ))
        })
    }

    /// Lets the least recently used states go until there is room for one more.
    fn make_room(&self) {
        let mut list = self.list.lock();
        let excess = (list.kept.len() + 1).saturating_sub(PAST_STATES_MAX);
        let gone: Vec<Kept> = list.kept.drain(..excess).collect();
        drop(list);
        drop(gone);
    }

    fn keep(self: &Arc<Self>, state: Arc<PastState>, point: PastPoint) {
        let mut list = self.list.lock();
        list.kept.push(Kept { state, points: vec![point], used: Instant::now() });
        if !std::mem::replace(&mut list.is_watched, true) {
            tokio::spawn(watch(Arc::downgrade(self)));
        }
    }

    /// Lets idle states go. Returns the time to look again; none if no state is left.
    fn let_go(&self, now: Instant) -> Option<Instant> {
        let mut list = self.list.lock();
        let (kept, gone): (Vec<Kept>, Vec<Kept>) =
            std::mem::take(&mut list.kept).into_iter().partition(|kept| kept.used + PAST_IDLE > now);
        let next = kept.iter().map(|kept| kept.used + PAST_IDLE).min();
        list.kept = kept;
        list.is_watched = next.is_some();
        drop(list);
        drop(gone);
        next
    }

    /// Returns the number of open states.
    #[cfg(test)]
    pub(crate) fn count(&self) -> usize {
        self.list.lock().kept.len()
    }
}

/// Lets states go when they were not used for long. Ends with the last one.
async fn watch(states: Weak<PastStates>) {
    let mut next = Instant::now() + PAST_IDLE;
    loop {
        sleep_until(next + Duration::from_millis(1)).await;
        let Some(states) = states.upgrade() else { return };
        match states.let_go(Instant::now()) {
            Some(later) => next = later,
            None => return,
        }
    }
}

#[cfg(test)]
mod tests {
    use exacat_model::operation::Cursor;
    use exacat_model::{Lfn, Operation, OperationId, SnapshotName};
    use exacat_store::{Store, SystemClock};
    use exacat_store_embedded::{EmbeddedSettings, EmbeddedStore};

    use super::*;

    fn at(revision: u64) -> PastPoint {
        PastPoint::Revision(Revision(revision).into())
    }

    /// Opens a catalogue with some changes; returns it with its directory.
    async fn catalogue(directories: u64) -> (tempfile::TempDir, Arc<Catalogue>) {
        let directory = tempfile::tempdir().unwrap();
        let settings = EmbeddedSettings::at(directory.path().join("store"));
        let store = EmbeddedStore::open(settings, Arc::new(SystemClock)).unwrap();
        let store: Arc<dyn Store> = store;
        let catalogue = Catalogue::open(store, Arc::new(SystemClock), exacat_catalogue::Settings::default())
            .await
            .unwrap();
        let admin =
            catalogue.caller_named(&exacat_model::AccountName::parse("admin").unwrap()).await.unwrap();
        for number in 0..directories {
            let lfns = vec![Lfn::parse(&format!("/d{number}")).unwrap()];
            let mkdir = Operation::Mkdir { lfns, parents: false, mode: None };
            catalogue.execute(&admin, catalogue.new_operation_id().unwrap(), mkdir).await.unwrap();
        }
        (directory, catalogue)
    }

    async fn end(catalogue: &Catalogue) -> u64 {
        catalogue.store().revision().await.unwrap().0
    }

    /// Limit: [`PAST_STATES_MAX`] states are open, and the least recently used one goes for one more. The
    /// same point, or another name of it, is the same state.
    #[tokio::test]
    async fn least_recently_used_state_goes_for_one_more() {
        let (_directory, catalogue) = catalogue(6).await;
        let (states, last) = (PastStates::new(), end(&catalogue).await);
        let open = |revision| {
            let (states, catalogue) = (Arc::clone(&states), Arc::clone(&catalogue));
            async move { states.open(&catalogue, Past::at(at(revision))).await.unwrap() }
        };
        let mut opened = Vec::new();
        for number in 0..PAST_STATES_MAX as u64 {
            opened.push(open(last - number).await);
        }
        assert_eq!(states.count(), PAST_STATES_MAX);
        assert!(Arc::ptr_eq(&opened[0], &open(last).await), "and it is the last used one now");
        let tag = catalogue.store().timelines().current().tag();
        let named: PastPoint = format!("{}.{tag}", last).parse().unwrap();
        let again = states.open(&catalogue, Past { point: named, changes_max: 0 }).await.unwrap();
        assert!(Arc::ptr_eq(&opened[0], &again), "an open state takes no changes to read");
        let one_more = open(last - PAST_STATES_MAX as u64).await;
        assert_eq!((states.count(), one_more.revision.0), (PAST_STATES_MAX, last - PAST_STATES_MAX as u64));
        assert!(Arc::ptr_eq(&opened[0], &open(last).await));
        assert!(!Arc::ptr_eq(&opened[1], &open(last - 1).await), "it was made anew");
        // A state that a request still reads stays whole.
        let list = Operation::List { lfn: Lfn::root(), cursor: Cursor::default(), limit: 10 };
        let admin =
            catalogue.caller_named(&exacat_model::AccountName::parse("admin").unwrap()).await.unwrap();
        opened[1].catalogue.execute(&admin, OperationId([0; 16]), list).await.unwrap();
    }

    /// A state that was not used for [`PAST_IDLE`] goes, and not a moment before.
    #[tokio::test(start_paused = true)]
    async fn idle_state_goes_after_its_time() {
        let (_directory, catalogue) = catalogue(2).await;
        let states = PastStates::new();
        let state = states.open(&catalogue, Past::at(at(end(&catalogue).await))).await.unwrap();
        let used = Instant::now();
        let weak = Arc::downgrade(&state);
        drop(state);
        assert!(states.let_go(used + PAST_IDLE - Duration::from_secs(1)).is_some());
        assert_eq!((states.count(), weak.upgrade().is_some()), (1, true));
        // The task that watches does it by itself.
        let until = Instant::now() + 2 * PAST_IDLE;
        while states.count() > 0 && Instant::now() < until {
            tokio::time::advance(Duration::from_secs(10)).await;
            tokio::task::yield_now().await;
        }
        assert!(states.count() == 0 && weak.upgrade().is_none());
        assert!(!states.list.lock().is_watched);
    }

    /// A request that allows fewer changes than needed is refused at the edge, with their number.
    #[tokio::test]
    async fn request_that_allows_too_few_changes_is_refused() {
        let (_directory, catalogue) = catalogue(5).await;
        let states = PastStates::new();
        let point = at(5);
        let open = |changes_max| states.open(&catalogue, Past { point, changes_max });
        let refused = open(4).await.err().unwrap();
        assert_eq!(refused.kind, ErrorKind::Limit);
        let wanted = "the state after revision 5 is 5 changes after the beginning of the history, and the request allows 4";
        assert_eq!((refused.message.as_str(), states.count()), (wanted, 0));
        assert_eq!(open(5).await.unwrap().revision, Revision(5));
    }

    /// Limit: [`PAST_WAITING_MAX`] requests wait for a state, one more is busy. The work of a client that
    /// went away ends with an open state.
    #[tokio::test(flavor = "multi_thread")]
    async fn requests_wait_up_to_the_limit_and_leave_nothing_behind() {
        let (_directory, catalogue) = catalogue(3).await;
        let (states, last) = (PastStates::new(), end(&catalogue).await);
        let turn = Arc::clone(&states.turn).lock_owned().await;
        let mut waiting = Vec::new();
        for number in 0..PAST_WAITING_MAX as u64 {
            let (states, catalogue) = (Arc::clone(&states), Arc::clone(&catalogue));
            let past = Past::at(at(last - number % 3));
            waiting.push(tokio::spawn(async move { states.open(&catalogue, past).await.map(drop) }));
        }
        let until = Instant::now() + Duration::from_secs(60);
        while states.waiting.available_permits() > 0 {
            assert!(Instant::now() < until, "they do not wait");
            tokio::task::yield_now().await;
        }
        let refused = states.open(&catalogue, Past::at(at(last))).await.err().unwrap();
        assert_eq!(refused.kind, ErrorKind::Busy);
        // All but the first go away.
        let first = waiting.remove(0);
        waiting.iter().for_each(tokio::task::JoinHandle::abort);
        drop(turn);
        first.await.unwrap().unwrap();
        for gone in waiting {
            // One of them may have been quick.
            let _ = gone.await;
        }
        assert_eq!(states.waiting.available_permits(), PAST_WAITING_MAX);
        states.open(&catalogue, Past::at(at(last))).await.unwrap();
        assert!(states.count() >= 1);
        let snapshots = catalogue.store().as_snapshots().unwrap();
        let name = SnapshotName::parse("s").unwrap();
        snapshots.snapshot(catalogue.new_operation_id().unwrap(), &name).await.unwrap();
    }
}
