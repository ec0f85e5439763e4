//! Activity of a server: its requests, and where the time between two moments went.

use crate::account::AccountName;
use crate::canonical_struct;
use crate::time::TimeMs;

/// A request that a server works on, or that took long.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RequestShown {
    /// Its number, since the start of the server.
    pub id: u64,
    /// Name of its operation.
    pub operation: String,
    /// Number of its items.
    pub items: u64,
    /// Its user; none if anonymous.
    pub user: Option<AccountName>,
    /// Address of its client; empty for a process on the server's machine.
    pub client: String,
    /// First path that it names; empty if none.
    pub subject: String,
    /// Time of its receipt.
    pub began: TimeMs,
    /// Microseconds from its receipt, to now or to its end.
    pub life_us: u64,
    /// Present state; `ended` for one that ended.
    pub state: String,
    /// Microseconds in each state that it was in; the sum is its life.
    pub states: Vec<(String, u64)>,
}

canonical_struct!(RequestShown {
    id,
    operation,
    items,
    user,
    client,
    subject,
    began,
    life_us,
    state,
    states
});

/// Activity of one server between two moments.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Period {
    /// Its beginning: the last moment that the server kept, at or before the one that was asked for.
    pub from: TimeMs,
    /// Its end.
    pub to: TimeMs,
    /// Number of times that the server was started in it.
    pub starts: u64,
    /// Processors that the server may use.
    pub processors: u64,
    /// Number of samples of the requests in progress; one is taken each second.
    pub samples: u64,
    /// Operations that ended, by the time in them.
    pub operations: Vec<OperationPeriod>,
    /// Waits, and phases on a processor, by the time in them.
    pub states: Vec<StatePeriod>,
    /// Threads of the server, by role.
    pub threads: Vec<ThreadPeriod>,
    /// Metrics of the server and of its store, at the beginning and at the end.
    pub metrics: Vec<MetricPeriod>,
    /// Users with most requests in progress.
    pub users: Vec<SampleShare>,
    /// Clients with most requests in progress.
    pub clients: Vec<SampleShare>,
    /// Directories with most requests in progress.
    pub directories: Vec<SampleShare>,
    /// Requests of most time, whole.
    pub slow: Vec<RequestShown>,
    /// Findings, in words.
    pub findings: Vec<String>,
}

canonical_struct!(Period {
    from,
    to,
    starts,
    processors,
    samples,
    operations,
    states,
    threads,
    metrics,
    users,
    clients,
    directories,
    slow,
    findings
});

impl Period {
    /// Returns the length, in seconds.
    pub fn seconds(&self) -> f64 {
        self.to.0.saturating_sub(self.from.0) as f64 / 1000.0
    }

    /// Returns how much a metric increased; none if it is not known, or decreased.
    pub fn increase(&self, metric: &str) -> Option<u64> {
        let found = self.metrics.iter().find(|one| one.name == metric)?;
        found.to.checked_sub(found.from)
    }

    /// Returns the mean of what was counted in the period, from its sum and its number; none if nothing was.
    pub fn mean(&self, sum: &str, number: &str) -> Option<f64> {
        let number = self.increase(number).filter(|number| *number > 0)?;
        Some(self.increase(sum)? as f64 / number as f64)
    }
}

/// Requests of one operation that ended in a period.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OperationPeriod {
    /// Name of the operation.
    pub name: String,
    /// Number of requests.
    pub requests: u64,
    /// Number of those that failed.
    pub failed: u64,
    /// Number of their items.
    pub items: u64,
    /// Microseconds of their lives; requests carried out together count once.
    pub life_us: u64,
    /// Median of the time from receipt to answer, in microseconds. The three are ends of buckets, at
    /// most 15 % too long.
    pub p50_us: u64,
    /// 99th percentile.
    pub p99_us: u64,
    /// Longest time.
    pub max_us: u64,
    /// Microseconds in each state; the sum is `life_us`.
    pub states: Vec<(String, u64)>,
}

canonical_struct!(OperationPeriod { name, requests, failed, items, life_us, p50_us, p99_us, max_us, states });

/// Time of ended requests in one state.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StatePeriod {
    /// Name of the state.
    pub state: String,
    /// Its class.
    pub class: String,
    /// Number of requests that were in it; 0 for a phase on a processor, where it is not counted.
    pub requests: u64,
    /// Microseconds in it.
    pub time_us: u64,
    /// 99th percentile of the time of a request in it, in microseconds.
    pub p99_us: u64,
    /// Longest such time.
    pub max_us: u64,
}

canonical_struct!(StatePeriod { state, class, requests, time_us, p99_us, max_us });

/// Threads of one role.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ThreadPeriod {
    /// Role, the name of the threads.
    pub role: String,
    /// Number of threads at the end.
    pub threads: u64,
    /// Microseconds on a processor, by the kernel's counters.
    pub cpu_us: u64,
    /// Microseconds in which they could run, and no processor was free.
    pub queue_us: u64,
    /// Microseconds in which they waited for something else.
    pub wait_us: u64,
    /// Times at which one of them was put on a processor.
    pub stretches: u64,
    /// Length of the stretches on a processor, in microseconds: mean of a thread in a second.
    pub on: Stretches,
    /// The same of the stretches off it, in the queue or waiting.
    pub off: Stretches,
}

canonical_struct!(ThreadPeriod { role, threads, cpu_us, queue_us, wait_us, stretches, on, off });

/// Distribution of lengths of time, in microseconds: ends of buckets, at most 15 % too long.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stretches {
    /// Median.
    pub p50_us: u64,
    /// 99th percentile.
    pub p99_us: u64,
    /// Longest.
    pub max_us: u64,
}

canonical_struct!(Stretches { p50_us, p99_us, max_us });

/// A metric at the two ends of a period.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MetricPeriod {
    /// Name, with the unit last.
    pub name: String,
    /// Value at the beginning; 0 if the server was started in the period.
    pub from: u64,
    /// Value at the end.
    pub to: u64,
}

canonical_struct!(MetricPeriod { name, from, to });

/// Part of a user, a client or a directory in the requests in progress.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SampleShare {
    /// Name; empty if there is none, as for a client on the server's machine.
    pub name: String,
    /// Requests in progress, summed over the samples. Requests that waited at their client's wish do
    /// not count. One is about a second of a request.
    pub requests: u64,
    /// State that most of them were in.
    pub state: String,
}

canonical_struct!(SampleShare { name, requests, state });
