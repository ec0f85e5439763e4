//! States of a request: on a processor in a named phase, or in a named wait.
//!
//! A request is in exactly one state at any moment. Each change of state ends one stretch of time and
//! begins the next, so the times of the states add up to the life of the request by construction. Time
//! in which a request waits for something without a name is counted as such.
//!
//! The code that waits names the wait, in whatever crate it is: [`on`] for a future, [`blocking`] for
//! a call that blocks the thread. The request itself is found through the thread: [`tracked`] makes it
//! the current one while its future is polled. Code that runs for no request names waits in vain, at
//! the cost of one look at a thread's variable.
//!
//! A wait ends when the thread runs again, not when its cause is over. Delay by the scheduler is
//! therefore part of each wait; the counters of threads tell how much of it there is.

mod activity;
mod commit_times;
mod current;
mod distribution;
mod state;
mod striped;

pub use activity::{Activity, IS_ON, Owner, Times};
pub use commit_times::CommitTimes;
pub use current::{Tracked, at_work, blocking, handed, on, on_from_now, owner, phase, split, tracked};
pub use distribution::{Distribution, ForPrometheus, Recorded, TIME_BUCKETS, TIME_US_MAX, time_bucket};
pub use state::{Class, RequestState};
pub use striped::Striped;
