//! The request that the current thread works on.

use std::cell::{Cell, RefCell};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use pin_project_lite::pin_project;

use crate::activity::{Activity, IS_ON, Owner};
use crate::state::RequestState;

thread_local! {
    static CURRENT: RefCell<Option<Arc<Activity>>> = const { RefCell::new(None) };
    /// Set if another thread works on the request now.
    static IS_ELSEWHERE: Cell<bool> = const { Cell::new(false) };
}

/// Returns the request that the thread works on.
fn current() -> Option<Arc<Activity>> {
    CURRENT.with_borrow(Clone::clone)
}

/// Returns the identity of the request that the thread works on.
pub fn owner() -> Option<Owner> {
    CURRENT.with_borrow(|current| current.as_ref().and_then(|activity| activity.owner().cloned()))
}

/// Enters a state of the current request. Returns the one before.
fn enter(state: RequestState) -> Option<RequestState> {
    CURRENT.with_borrow(|current| current.as_ref().map(|activity| activity.enter(state)))
}

/// Returns the state of the current request.
fn state() -> Option<RequestState> {
    CURRENT.with_borrow(|current| current.as_ref().map(|activity| activity.state()))
}

/// Restores the request of before, also after a panic.
struct Restored(Option<Arc<Activity>>);

impl Drop for Restored {
    fn drop(&mut self) {
        CURRENT.set(self.0.take());
    }
}

/// Runs `work` for a request.
fn within<T>(activity: &Arc<Activity>, work: impl FnOnce() -> T) -> T {
    let _restored = Restored(CURRENT.replace(Some(Arc::clone(activity))));
    work()
}

/// Enters a phase on the processor.
pub fn phase(state: RequestState) {
    enter(state);
}

/// Runs `work`, which blocks the thread, in a state.
pub fn blocking<T>(state: RequestState, work: impl FnOnce() -> T) -> T {
    let before = enter(state);
    let result = work();
    if let Some(before) = before {
        enter(before);
    }
    result
}

/// Divides the wait `from`, which just ended: see [`Activity::split`].
pub fn split(from: RequestState, parts: &[(RequestState, Duration)]) {
    CURRENT.with_borrow(|current| {
        if let Some(activity) = current {
            activity.split(from, parts);
        }
    });
}

/// Runs work that was [`handed`] to this thread, for its request, beginning in a phase.
pub fn at_work<T>(activity: Option<Arc<Activity>>, phase: RequestState, work: impl FnOnce() -> T) -> T {
    let Some(activity) = activity else { return work() };
    activity.enter(phase);
    let result = within(&activity, work);
    activity.enter(RequestState::Scheduler);
    result
}

pin_project! {
    /// A future that works for a request: see [`tracked`].
    pub struct Tracked<F> {
        activity: Arc<Activity>,
        // Phase before a wait without a name.
        phase: Option<RequestState>,
        #[pin]
        future: F,
    }
}

/// Makes a request the current one while a future is polled. A wait without a name is unaccounted.
pub fn tracked<F: Future>(activity: Arc<Activity>, future: F) -> Tracked<F> {
    Tracked { activity, phase: None, future }
}

impl<F: Future> Future for Tracked<F> {
    type Output = F::Output;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<F::Output> {
        let this = self.project();
        if !IS_ON {
            return this.future.poll(context);
        }
        if let Some(phase) = this.phase.take() {
            this.activity.enter(phase);
        }
        IS_ELSEWHERE.set(false);
        let polled = within(this.activity, || this.future.poll(context));
        if polled.is_pending() && !IS_ELSEWHERE.replace(false) {
            let state = this.activity.state();
            if state.is_on_cpu() {
                this.activity.enter(RequestState::Unaccounted);
                *this.phase = Some(state);
            }
        }
        polled
    }
}

pin_project! {
    /// A wait with a name: see [`on`].
    pub struct Waiting<F> {
        state: RequestState,
        // Phase before the wait.
        phase: Option<RequestState>,
        #[pin]
        future: F,
    }
}

/// Waits for a future in a state. One that is ready at once takes no time; a wait inside it that has a
/// name keeps that name, because it is closer to the cause.
pub fn on<F: Future>(state: RequestState, future: F) -> Waiting<F> {
    Waiting { state, phase: None, future }
}

/// Waits for work that another thread begins now: in the state from here on. It may be over before the
/// future is polled, because the other thread took the processor.
pub fn on_from_now<F: Future>(state: RequestState, future: F) -> Waiting<F> {
    Waiting { state, phase: enter(state), future }
}

impl<F: Future> Future for Waiting<F> {
    type Output = F::Output;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<F::Output> {
        let this = self.project();
        let polled = this.future.poll(context);
        if polled.is_ready() {
            if let Some(phase) = this.phase.take() {
                enter(phase);
            }
        } else if let Some(now) = state()
            && now.is_on_cpu()
        {
            this.phase.get_or_insert(now);
            enter(*this.state);
        }
        polled
    }
}

pin_project! {
    /// Work on another thread: see [`handed`].
    pub struct Handed<F> {
        phase: Option<RequestState>,
        #[pin]
        future: F,
    }
}

/// Waits for work on another thread, which runs for the same request there. The time until it begins,
/// and from its end to here, is a wait for a thread.
pub fn handed<F: Future>(start: impl FnOnce(Option<Arc<Activity>>) -> F) -> Handed<F> {
    // Before the work begins: afterwards the other thread changes the state.
    let phase = enter(RequestState::Scheduler);
    Handed { phase, future: start(current()) }
}

impl<F: Future> Future for Handed<F> {
    type Output = F::Output;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<F::Output> {
        let this = self.project();
        let polled = this.future.poll(context);
        if polled.is_pending() {
            IS_ELSEWHERE.set(true);
        } else if let Some(phase) = this.phase.take() {
            enter(phase);
        }
        polled
    }
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use super::*;
    use RequestState::{Admission, Execute, LogSync, PageRead, Scheduler, Unaccounted};

    fn ms(activity: &Activity, state: RequestState) -> u64 {
        activity.so_far()[state as usize] / 1_000_000
    }

    fn begun() -> Arc<Activity> {
        let activity = Arc::new(Activity::default());
        activity.begin(Execute, Instant::now());
        activity
    }

    /// Polls a future a second time after `pause`.
    fn polled_twice<T>(future: impl Future<Output = T>, pause: Duration) -> T {
        let mut future = std::pin::pin!(future);
        let mut context = Context::from_waker(std::task::Waker::noop());
        assert!(future.as_mut().poll(&mut context).is_pending());
        pass(pause);
        match future.as_mut().poll(&mut context) {
            Poll::Ready(value) => value,
            Poll::Pending => panic!("still pending"),
        }
    }

    fn pending_once() -> impl Future<Output = ()> {
        let mut is_second = false;
        std::future::poll_fn(move |_| match std::mem::replace(&mut is_second, true) {
            true => Poll::Ready(()),
            false => Poll::Pending,
        })
    }

    const PAUSE: Duration = Duration::from_millis(20);

    fn pass(time: Duration) {
        let began = Instant::now();
        while began.elapsed() < time {
            std::thread::yield_now();
        }
    }

    /// Work of another thread that is over at the first look is a wait like any other.
    #[test]
    fn work_of_another_thread_is_a_wait_from_its_beginning() {
        let activity = begun();
        let mut work = std::pin::pin!(tracked(Arc::clone(&activity), async {
            let waits = on_from_now(RequestState::CommitQueue, std::future::ready(()));
            pass(PAUSE);
            waits.await;
        }));
        assert!(work.as_mut().poll(&mut Context::from_waker(std::task::Waker::noop())).is_ready());
        assert!(ms(&activity, RequestState::CommitQueue) >= 19);
        assert_eq!(activity.state(), Execute);
    }

    #[test]
    fn wait_has_the_name_that_the_code_gives_it() {
        let activity = begun();
        polled_twice(tracked(Arc::clone(&activity), on(Admission, pending_once())), PAUSE);
        assert!(ms(&activity, Admission) >= 19);
        assert_eq!(ms(&activity, Unaccounted), 0);
        assert_eq!(activity.state(), Execute);
        assert!(current().is_none(), "only while it is polled");
    }

    #[test]
    fn wait_without_a_name_is_unaccounted() {
        let activity = begun();
        polled_twice(tracked(Arc::clone(&activity), pending_once()), PAUSE);
        assert!(ms(&activity, Unaccounted) >= 19);
        assert_eq!(activity.state(), Execute);
    }

    #[test]
    fn inner_wait_goes_back_to_the_outer_one() {
        let activity = begun();
        within(&activity, || {
            blocking(LogSync, || {
                blocking(PageRead, || assert_eq!(activity.state(), PageRead));
                assert_eq!(activity.state(), LogSync);
            });
        });
        assert_eq!(activity.state(), Execute);
        // Without a request there is nothing to record.
        assert_eq!(blocking(PageRead, || 7), 7);
    }

    /// Waits inside a wait keep their names. Where one of several ends and others go on, the outer
    /// name counts.
    #[test]
    fn waits_inside_a_wait_keep_their_names() {
        let activity = begun();
        let reads = async {
            let (mut first, mut second) =
                (Box::pin(on(PageRead, pending_once())), Box::pin(on(PageRead, pending_once())));
            let mut polls = 0;
            std::future::poll_fn(|context| {
                polls += 1;
                let is_first_done = first.as_mut().poll(context).is_ready();
                match polls {
                    1 => {
                        assert!(!is_first_done);
                        assert!(second.as_mut().poll(context).is_pending());
                        assert_eq!(activity.state(), PageRead);
                    }
                    _ => assert_eq!(activity.state(), Execute, "the first ended, the second waits"),
                }
                Poll::<()>::Pending
            })
            .await;
        };
        let outer = tracked(Arc::clone(&activity), on(Admission, reads));
        let mut outer = std::pin::pin!(outer);
        let mut context = Context::from_waker(std::task::Waker::noop());
        assert!(outer.as_mut().poll(&mut context).is_pending());
        assert_eq!(activity.state(), PageRead);
        assert!(outer.as_mut().poll(&mut context).is_pending());
        assert_eq!(activity.state(), Admission);
    }

    /// A thread that takes over the work records its own states, however early it begins; before and
    /// after it the request waits for a thread.
    #[test]
    fn handed_work_is_recorded_by_its_thread() {
        let activity = begun();
        let start = |current: Option<Arc<Activity>>| {
            let its = current.unwrap();
            assert_eq!(its.state(), Scheduler);
            its.enter(Execute);
            pending_once()
        };
        let work = async { handed(start).await };
        polled_twice(tracked(Arc::clone(&activity), work), PAUSE);
        assert!(ms(&activity, Execute) >= 19, "not unaccounted, although the first future waited");
        assert_eq!(ms(&activity, Unaccounted), 0);
    }

    #[test]
    fn panic_leaves_no_request_behind() {
        let activity = begun();
        let panicked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            within(&activity, || panic!("expected"));
        }));
        assert!(panicked.is_err());
        assert!(current().is_none());
    }
}
