//! Statistics of the cluster's nodes: attempts, failures, response times, repeated and speculative
//! statements. The driver reports every attempt; nothing is stored per attempt.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use exacat_activity::Distribution;
use exacat_store::{Buckets, Sample};
use parking_lot::RwLock;
use scylla::errors::{DbError, RequestAttemptError, RequestError};
use scylla::observability::history::{AttemptId, HistoryListener, RequestId, SpeculativeId};
use scylla::policies::retry::RetryDecision;

use crate::limits::{NODES_SHOWN_MAX, UNRESPONSIVE_AFTER, UNRESPONSIVE_TRIED_EVERY};
use crate::metric_table as table;

/// Bits of an attempt's id for its node. The other bits are the time it began.
const NODE_BITS: u32 = 8;
/// Classes of response times between a time and its double.
const STEPS: usize = 4;
/// Classes in all: times up to 2^35 µs, far beyond any limit.
const SLOTS: usize = 36 * STEPS;

/// Answers between two computations of the usual response time.
const RECENT_LOOKED_AT: u64 = 256;
/// Answers after which earlier ones count half.
const RECENT_HALVED: u64 = 8192;

/// Histogram of response times: counts, in classes a quarter of an octave wide.
#[derive(Debug)]
struct Times([AtomicU64; SLOTS]);

impl Default for Times {
    fn default() -> Self {
        Times(std::array::from_fn(|_| AtomicU64::new(0)))
    }
}

fn slot(micros: u64) -> usize {
    let micros = micros.max(1);
    let octave = micros.ilog2() as usize;
    // The two bits after the leading one.
    let step = if octave >= 2 { (micros >> (octave - 2)) as usize & (STEPS - 1) } else { 0 };
    (octave * STEPS + step).min(SLOTS - 1)
}

/// Returns the longest time of a slot.
fn longest(slot: usize) -> u64 {
    let (octave, step) = (slot / STEPS, (slot % STEPS) as u64);
    if octave < 2 { (2 << octave) - 1 } else { ((STEPS as u64 + step + 1) << (octave - 2)) - 1 }
}

impl Times {
    fn add(&self, micros: u64) {
        if let Some(count) = self.0.get(slot(micros)) {
            count.fetch_add(1, Relaxed);
        }
    }

    /// Halves the weight of all earlier times.
    fn halve(&self) {
        for count in &self.0 {
            let now = count.load(Relaxed);
            count.fetch_sub(now - now / 2, Relaxed);
        }
    }

    /// Returns a time that `share` of a thousand answers did not exceed.
    fn of_thousand(&self, share: u64) -> u64 {
        let counts: Vec<u64> = self.0.iter().map(|count| count.load(Relaxed)).collect();
        let all: u64 = counts.iter().sum();
        let mut left = (all * share).div_ceil(1000);
        for (slot, count) in counts.into_iter().enumerate() {
            if count > 0 && count >= left {
                return longest(slot);
            }
            left -= count.min(left);
        }
        0
    }
}

/// One node, as this server sees it.
#[derive(Debug)]
struct Node {
    address: SocketAddr,
    asked: AtomicU64,
    failed: AtomicU64,
    times: Distribution,
    /// Time of the first statement after its last answer, in µs; 0 if none waits.
    waiting_since: AtomicU64,
    /// Time of the last statement that was sent although the node seemed unresponsive.
    tried: AtomicU64,
}

impl Node {
    fn at(address: SocketAddr) -> Self {
        Node {
            address,
            asked: AtomicU64::new(0),
            failed: AtomicU64::new(0),
            times: Distribution::default(),
            waiting_since: AtomicU64::new(0),
            tried: AtomicU64::new(0),
        }
    }

    /// Says whether it got a statement and has not answered for a while.
    fn is_unresponsive(&self, now: u64) -> bool {
        let since = self.waiting_since.load(Relaxed);
        since != 0 && now.saturating_sub(since) > micros(UNRESPONSIVE_AFTER)
    }
}

fn micros(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}

/// All nodes, as this server sees them.
#[derive(Debug)]
pub(crate) struct Nodes {
    began: Instant,
    nodes: RwLock<Vec<Node>>,
    all: Distribution,
    /// Times of the last some thousand answers, and their 99th percentile.
    recent: Times,
    recent_count: AtomicU64,
    usual_us: AtomicU64,
    requests: AtomicU64,
    speculative: AtomicU64,
    retried: AtomicU64,
    errors: [AtomicU64; AttemptFailure::ALL.len()],
}

impl Default for Nodes {
    fn default() -> Self {
        Nodes {
            began: Instant::now(),
            nodes: RwLock::default(),
            all: Distribution::default(),
            recent: Times::default(),
            recent_count: AtomicU64::new(0),
            usual_us: AtomicU64::new(0),
            requests: AtomicU64::new(0),
            speculative: AtomicU64::new(0),
            retried: AtomicU64::new(0),
            errors: Default::default(),
        }
    }
}

impl Nodes {
    fn now(&self) -> u64 {
        u64::try_from(self.began.elapsed().as_micros()).unwrap_or(u64::MAX) & (u64::MAX >> NODE_BITS)
    }

    /// Returns the node's place in the list. Nodes beyond the limit get the place after the last,
    /// which no node has: one entry for several would make responsive nodes look unresponsive.
    fn place(&self, address: SocketAddr) -> usize {
        let find = |nodes: &[Node]| nodes.iter().position(|node| node.address == address);
        if let Some(place) = find(&self.nodes.read()) {
            return place;
        }
        let mut nodes = self.nodes.write();
        if let Some(place) = find(&nodes) {
            return place;
        }
        if nodes.len() == NODES_SHOWN_MAX {
            return NODES_SHOWN_MAX;
        }
        nodes.push(Node::at(address));
        nodes.len() - 1
    }

    fn ended(&self, attempt: AttemptId, failed: bool) {
        let place = attempt.0 & ((1 << NODE_BITS) - 1);
        let micros = self.now().saturating_sub((attempt.0 >> NODE_BITS) as u64);
        self.all.record(micros, 1);
        self.recent.add(micros);
        let count = self.recent_count.fetch_add(1, Relaxed) + 1;
        if count.is_multiple_of(RECENT_LOOKED_AT) {
            self.usual_us.store(self.recent.of_thousand(990), Relaxed);
        }
        if count.is_multiple_of(RECENT_HALVED) {
            self.recent.halve();
        }
        if let Some(node) = self.nodes.read().get(place) {
            node.times.record(micros, 1);
            // An error is an answer too: the node is responsive.
            node.waiting_since.store(0, Relaxed);
            node.failed.fetch_add(u64::from(failed), Relaxed);
        }
    }

    /// 99th percentile of recent response times; none after too few answers.
    pub(crate) fn usual(&self) -> Option<Duration> {
        match self.usual_us.load(Relaxed) {
            0 => None,
            micros => Some(Duration::from_micros(micros)),
        }
    }

    /// Sets the usual response time, for tests.
    #[cfg(test)]
    pub(crate) fn seem(&self, usual: Duration) {
        self.usual_us.store(micros(usual), Relaxed);
    }

    fn see<T>(&self, address: SocketAddr, of: impl FnOnce(&Node, u64) -> T) -> Option<T> {
        let nodes = self.nodes.read();
        nodes.iter().find(|node| node.address == address).map(|node| of(node, self.now()))
    }

    /// Says whether this node got a statement and has answered nothing for a while.
    pub(crate) fn is_unresponsive(&self, address: SocketAddr) -> bool {
        self.see(address, Node::is_unresponsive).unwrap_or(false)
    }

    /// Like [`Self::is_unresponsive`], but lets a statement through every `UNRESPONSIVE_TRIED_EVERY` (5 s).
    pub(crate) fn to_be_avoided(&self, address: SocketAddr) -> bool {
        let avoided = self.see(address, |node, now| {
            if !node.is_unresponsive(now) {
                return false;
            }
            let tried = node.tried.load(Relaxed).max(node.waiting_since.load(Relaxed));
            let its_turn = now.saturating_sub(tried) > micros(UNRESPONSIVE_TRIED_EVERY);
            !(its_turn
                && node.tried.compare_exchange(node.tried.load(Relaxed), now, Relaxed, Relaxed).is_ok())
        });
        avoided.unwrap_or(false)
    }

    /// Metrics of all nodes together.
    pub(crate) fn metrics(&self) -> Vec<Sample> {
        let load = |value: &AtomicU64| value.load(Relaxed);
        let unresponsive = self.nodes.read().iter().filter(|node| node.is_unresponsive(self.now())).count();
        let mut list = vec![
            table::DRIVER_STATEMENTS.is(load(&self.requests)),
            table::RETRIED.is(load(&self.retried)),
            table::SPECULATIVE.is(load(&self.speculative)),
            table::UNRESPONSIVE.is(unresponsive as u64),
            table::ANSWERS.in_buckets(None, Buckets::of_times(&self.all.now())),
        ];
        let errors = AttemptFailure::ALL.iter().zip(&self.errors);
        list.extend(errors.map(|((_, name), count)| table::STATEMENT_ERRORS.of(*name, load(count))));
        list
    }

    /// Metrics of each node that ever got a statement.
    pub(crate) fn metrics_of_each(&self) -> Vec<Sample> {
        let of = |node: &Node| {
            let name = node.address.to_string();
            let times = Buckets::of_times(&node.times.now());
            [
                table::NODE_STATEMENTS.of(name.clone(), node.asked.load(Relaxed)),
                table::NODE_FAILURES.of(name.clone(), node.failed.load(Relaxed)),
                table::NODE_TIME.in_buckets(Some(name.into()), times),
            ]
        };
        self.nodes.read().iter().flat_map(of).collect()
    }

    fn failed(&self, failure: AttemptFailure) {
        self.errors[failure as usize].fetch_add(1, Relaxed);
    }
}

/// Reasons of failures, as an operator acts on them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum AttemptFailure {
    /// Replicas did not answer the coordinator in time.
    TimedOut,
    /// Too few replicas are alive.
    Unavailable,
    /// A node has too much to do.
    Overloaded,
    /// The connection broke.
    Connection,
    Other,
    /// No answer within the time of a statement.
    GaveUp,
}

impl AttemptFailure {
    const ALL: [(AttemptFailure, &'static str); 6] = [
        (AttemptFailure::TimedOut, "timed_out"),
        (AttemptFailure::Unavailable, "unavailable"),
        (AttemptFailure::Overloaded, "overloaded"),
        (AttemptFailure::Connection, "connection"),
        (AttemptFailure::Other, "other"),
        (AttemptFailure::GaveUp, "gave_up"),
    ];

    fn of(error: &RequestAttemptError) -> Self {
        match error {
            RequestAttemptError::DbError(error, _) => match error {
                DbError::ReadTimeout { .. } | DbError::WriteTimeout { .. } => AttemptFailure::TimedOut,
                DbError::Unavailable { .. } | DbError::IsBootstrapping => AttemptFailure::Unavailable,
                DbError::Overloaded | DbError::RateLimitReached { .. } => AttemptFailure::Overloaded,
                _ => AttemptFailure::Other,
            },
            RequestAttemptError::BrokenConnectionError(_) => AttemptFailure::Connection,
            RequestAttemptError::UnableToAllocStreamId => AttemptFailure::Overloaded,
            _ => AttemptFailure::Other,
        }
    }
}

// The driver does not report the end of an attempt that lost against a speculative one. Such an
// attempt counts as asked, and has no time.
impl HistoryListener for Nodes {
    fn log_request_start(&self) -> RequestId {
        self.requests.fetch_add(1, Relaxed);
        RequestId(0)
    }

    fn log_request_success(&self, _: RequestId) {}

    fn log_request_error(&self, _: RequestId, error: &RequestError) {
        if let RequestError::RequestTimeout(_) = error {
            self.failed(AttemptFailure::GaveUp);
        }
    }

    fn log_new_speculative_fiber(&self, _: RequestId) -> SpeculativeId {
        self.speculative.fetch_add(1, Relaxed);
        SpeculativeId(0)
    }

    fn log_attempt_start(&self, _: RequestId, _: Option<SpeculativeId>, node: SocketAddr) -> AttemptId {
        let place = self.place(node);
        if let Some(node) = self.nodes.read().get(place) {
            node.asked.fetch_add(1, Relaxed);
            let _ = node.waiting_since.compare_exchange(0, self.now().max(1), Relaxed, Relaxed);
        }
        AttemptId((self.now() as usize) << NODE_BITS | place)
    }

    fn log_attempt_success(&self, attempt: AttemptId) {
        self.ended(attempt, false);
    }

    fn log_attempt_error(&self, attempt: AttemptId, error: &RequestAttemptError, decision: &RetryDecision) {
        self.ended(attempt, true);
        self.failed(AttemptFailure::of(error));
        if matches!(decision, RetryDecision::RetrySameTarget(_) | RetryDecision::RetryNextTarget(_)) {
            self.retried.fetch_add(1, Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;

    #[test]
    fn times_are_told_apart_by_a_quarter_of_an_octave() {
        for micros in (1..5000).chain([1 << 20, (1 << 30) + 7, 1 << 34]) {
            let (this, longest) = (slot(micros), longest(slot(micros)));
            assert!(longest >= micros && longest <= micros + micros / 4 + 2, "{micros}: {longest}");
            assert!(slot(longest) == this && slot(longest + 1) > this, "{micros}");
        }
        assert_eq!(slot(u64::MAX), SLOTS - 1);
        let times = Times::default();
        assert_eq!(times.of_thousand(990), 0);
        for micros in 1..=1000 {
            times.add(micros);
        }
        assert!((500..=625).contains(&times.of_thousand(500)), "{}", times.of_thousand(500));
        assert!((990..=1024).contains(&times.of_thousand(990)), "{}", times.of_thousand(990));
    }

    #[test]
    fn what_is_usual_follows_what_was_lately() {
        let nodes = Nodes { began: Instant::now() - Duration::from_secs(100), ..Nodes::default() };
        let answer = |took: Duration| {
            let began = nodes.now() - micros(took);
            nodes.ended(AttemptId((began as usize) << NODE_BITS), false);
        };
        assert_eq!(nodes.usual(), None);
        (0..RECENT_LOOKED_AT).for_each(|_| answer(Duration::from_millis(200)));
        assert!(nodes.usual().unwrap() >= Duration::from_millis(200));
        (0..10 * RECENT_HALVED).for_each(|_| answer(Duration::from_millis(2)));
        let usual = nodes.usual().unwrap();
        assert!(usual >= Duration::from_millis(2) && usual < Duration::from_millis(100), "{usual:?}");
    }

    /// Goal: an unresponsive node is avoided after a while, gets a chance now and then, and is like
    /// the others once it answers.
    #[test]
    fn who_answers_nothing_is_avoided() {
        let nodes = Nodes { began: Instant::now() - Duration::from_secs(100), ..Nodes::default() };
        let address = SocketAddr::from(([10, 0, 0, 1], 9042));
        assert!(!nodes.to_be_avoided(address), "nobody asked it");
        let first = nodes.log_attempt_start(RequestId(0), None, address);
        assert!(!nodes.is_unresponsive(address), "just asked");
        let since = |ago: Duration| {
            let nodes = nodes.nodes.read();
            nodes[0].waiting_since.store(micros(Duration::from_secs(100) - ago), Relaxed);
        };
        since(UNRESPONSIVE_AFTER + Duration::from_millis(50));
        assert!(nodes.is_unresponsive(address) && nodes.to_be_avoided(address));
        since(UNRESPONSIVE_TRIED_EVERY + Duration::from_millis(50));
        assert!(!nodes.to_be_avoided(address), "it is given a chance");
        assert!(nodes.to_be_avoided(address) && nodes.is_unresponsive(address), "once");
        nodes.log_attempt_success(first);
        assert!(!nodes.is_unresponsive(address) && !nodes.to_be_avoided(address));
    }

    /// Goal: the metrics match the attempts, and list no more nodes than the limit.
    #[test]
    fn attempts_are_counted_by_node() {
        let nodes = Nodes::default();
        let address = |number: usize| SocketAddr::from(([10, 0, (number >> 8) as u8, number as u8], 9042));
        for number in 0..NODES_SHOWN_MAX + 2 {
            let request = nodes.log_request_start();
            let attempt = nodes.log_attempt_start(request, None, address(number));
            nodes.log_attempt_success(attempt);
        }
        let attempt = nodes.log_attempt_start(RequestId(0), None, address(3));
        let error = RequestAttemptError::UnableToAllocStreamId;
        nodes.log_attempt_error(attempt, &error, &RetryDecision::RetryNextTarget(None));
        nodes.log_new_speculative_fiber(RequestId(0));
        let metrics: Vec<(String, u64)> =
            nodes.metrics().iter().chain(&nodes.metrics_of_each()).flat_map(Sample::shown).collect();
        let figure = |name: &str| metrics.iter().find(|(this, _)| this == name).unwrap().1;
        let listed =
            metrics.iter().filter(|(name, _)| name.ends_with("_us_p99") && name.starts_with("node_"));
        assert_eq!(listed.count(), NODES_SHOWN_MAX);
        assert_eq!((figure("node_10_0_0_3_9042_statements"), figure("node_10_0_0_3_9042_failed")), (2, 1));
        assert_eq!((figure("node_10_0_0_63_9042_statements"), figure("node_10_0_0_63_9042_failed")), (1, 0));
        assert_eq!(figure("statements"), NODES_SHOWN_MAX as u64 + 2);
        assert_eq!((figure("statements_retried"), figure("statements_speculative")), (1, 1));
        assert_eq!((figure("statement_errors_overloaded"), figure("statement_errors_other")), (1, 0));
    }

    #[test]
    fn unresponsive_node_beyond_the_list_leaves_the_listed_ones_alone() {
        let nodes = Nodes { began: Instant::now() - Duration::from_secs(100), ..Nodes::default() };
        let address = |number: usize| SocketAddr::from(([10, 0, 0, number as u8], 9042));
        for number in 0..NODES_SHOWN_MAX {
            let attempt = nodes.log_attempt_start(RequestId(0), None, address(number));
            nodes.log_attempt_success(attempt);
        }
        nodes.log_attempt_start(RequestId(0), None, address(NODES_SHOWN_MAX));
        let waiting = |node: &Node| node.waiting_since.load(Relaxed) != 0;
        assert!(!nodes.nodes.read().iter().any(waiting), "only the node that is not listed was asked");
        assert!(!nodes.is_unresponsive(address(NODES_SHOWN_MAX - 1)));
    }
}
