//! Requests of a server, and where its time went.

use std::collections::BTreeMap;

use exacat_model::period::{
    OperationPeriod, Period, RequestShown, SampleShare, StatePeriod, Stretches, ThreadPeriod,
};
use exacat_model::{AccountName, TimeMs};
use serde::Serialize;
use utoipa::ToSchema;

use super::entries::Shown;

/// A request that a server works on, or that took long.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Request)]
pub struct RequestOut<'a> {
    /// Number of the request since the start of the server.
    pub id: u64,
    /// Operation.
    pub operation: &'a str,
    /// Number of its items.
    pub items: u64,
    /// User; left out if anonymous.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub user: Option<&'a str>,
    /// Address of the client; left out for a process on the server's machine.
    #[serde(skip_serializing_if = "str::is_empty")]
    pub client: &'a str,
    /// First path that it names; left out if none.
    #[serde(skip_serializing_if = "str::is_empty")]
    pub subject: &'a str,
    /// Time of its receipt.
    #[schema(value_type = String, format = "date-time")]
    pub began: Shown<TimeMs>,
    /// Microseconds since its receipt, or to its end.
    pub life_us: u64,
    /// Present state; `ended` for one that ended.
    pub state: &'a str,
    /// Microseconds in each state that it was in; the sum is its life.
    pub states: BTreeMap<&'a str, u64>,
}

/// Converts a request of a server.
pub fn request(shown: &RequestShown) -> RequestOut<'_> {
    RequestOut {
        id: shown.id,
        operation: &shown.operation,
        items: shown.items,
        user: shown.user.as_ref().map(AccountName::as_str),
        client: &shown.client,
        subject: &shown.subject,
        began: Shown(shown.began),
        life_us: shown.life_us,
        state: &shown.state,
        states: shown.states.iter().map(|(state, us)| (state.as_str(), *us)).collect(),
    }
}

/// Activity of a server between two moments.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Period)]
pub struct PeriodOut<'a> {
    /// Beginning: the last kept moment at or before the one that was asked for.
    #[schema(value_type = String, format = "date-time")]
    pub from: Shown<TimeMs>,
    /// End.
    #[schema(value_type = String, format = "date-time")]
    pub to: Shown<TimeMs>,
    /// Length in seconds.
    pub seconds: f64,
    /// Number of times that the server was started in it.
    pub starts: u64,
    /// Processors that the server may use.
    pub processors: u64,
    /// Number of samples of the requests in progress, one each second.
    pub samples: u64,
    /// Operations, by the time in them.
    pub operations: Vec<OperationPeriodOut<'a>>,
    /// States of requests, by the time in them.
    pub states: Vec<StatePeriodOut<'a>>,
    /// Threads of the server, by role.
    pub threads: Vec<ThreadPeriodOut<'a>>,
    /// Metrics of the server and of its store, at both ends.
    pub metrics: BTreeMap<&'a str, MetricPeriodOut>,
    /// Users with most requests in progress.
    pub users: Vec<SampleShareOut<'a>>,
    /// Clients with most requests in progress.
    pub clients: Vec<SampleShareOut<'a>>,
    /// Directories with most requests in progress.
    pub directories: Vec<SampleShareOut<'a>>,
    /// Slow requests of most time.
    pub slow: Vec<RequestOut<'a>>,
    /// Findings, in words.
    pub findings: &'a [String],
}

/// Requests of one operation in a period.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = OperationPeriod)]
pub struct OperationPeriodOut<'a> {
    /// Operation.
    pub operation: &'a str,
    /// Requests that ended.
    pub requests: u64,
    /// Those that failed.
    pub failed: u64,
    /// Their items.
    pub items: u64,
    /// Microseconds of their lives; requests carried out together count once.
    pub life_us: u64,
    /// Median of the time from receipt to answer, at most 15 % too long, as the next two.
    pub p50_us: u64,
    /// 99th percentile.
    pub p99_us: u64,
    /// Longest time.
    pub max_us: u64,
    /// Microseconds in each state; the sum is `life_us`.
    pub states: BTreeMap<&'a str, u64>,
}

/// Time of the requests of a period in one state.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = StatePeriod)]
pub struct StatePeriodOut<'a> {
    /// State.
    pub state: &'a str,
    /// Its class.
    pub class: &'a str,
    /// Requests that were in it; 0 for a phase on a processor, where they are not counted.
    pub requests: u64,
    /// Microseconds in it.
    pub time_us: u64,
    /// 99th percentile of a request's time in it.
    pub p99_us: u64,
    /// Longest such time.
    pub max_us: u64,
}

/// Threads of one role in a period.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = ThreadPeriod)]
pub struct ThreadPeriodOut<'a> {
    /// Role.
    pub role: &'a str,
    /// Threads at the end.
    pub threads: u64,
    /// Microseconds on a processor.
    pub cpu_us: u64,
    /// Microseconds in which they were ready, and no processor was free.
    pub queue_us: u64,
    /// Microseconds in which they waited for something else.
    pub wait_us: u64,
    /// Times at which one of them was put on a processor.
    pub stretches: u64,
    /// Length of the stretches on a processor: mean of a thread in a second.
    pub on: StretchesOut,
    /// The same of the stretches off it, in the queue or waiting.
    pub off: StretchesOut,
}

/// Distribution of lengths of time: ends of buckets, at most 15 % too long.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Stretches)]
pub struct StretchesOut {
    /// Median in microseconds.
    pub p50_us: u64,
    /// 99th percentile.
    pub p99_us: u64,
    /// Longest.
    pub max_us: u64,
}

/// A metric at both ends of a period.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = MetricPeriod)]
pub struct MetricPeriodOut {
    /// At the beginning; 0 if the server was started in the period.
    pub from: u64,
    /// At the end.
    pub to: u64,
}

/// Part of a user, client or directory in the requests in progress.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = SampleShare)]
pub struct SampleShareOut<'a> {
    /// Name; empty if there is none, as for a client on the server's machine.
    pub name: &'a str,
    /// Requests in progress, summed over the samples.
    pub requests: u64,
    /// State that most of them were in.
    pub state: &'a str,
}

/// Converts the activity of a server between two moments.
pub fn period(period: &Period) -> PeriodOut<'_> {
    let metrics =
        period.metrics.iter().map(|one| (one.name.as_str(), MetricPeriodOut { from: one.from, to: one.to }));
    PeriodOut {
        from: Shown(period.from),
        to: Shown(period.to),
        seconds: period.seconds(),
        starts: period.starts,
        processors: period.processors,
        samples: period.samples,
        operations: period.operations.iter().map(operation).collect(),
        states: period.states.iter().map(state).collect(),
        threads: period.threads.iter().map(thread).collect(),
        metrics: metrics.collect(),
        users: period.users.iter().map(share).collect(),
        clients: period.clients.iter().map(share).collect(),
        directories: period.directories.iter().map(share).collect(),
        slow: period.slow.iter().map(request).collect(),
        findings: &period.findings,
    }
}

fn operation(one: &OperationPeriod) -> OperationPeriodOut<'_> {
    OperationPeriodOut {
        operation: &one.name,
        requests: one.requests,
        failed: one.failed,
        items: one.items,
        life_us: one.life_us,
        p50_us: one.p50_us,
        p99_us: one.p99_us,
        max_us: one.max_us,
        states: one.states.iter().map(|(state, us)| (state.as_str(), *us)).collect(),
    }
}

fn state(one: &StatePeriod) -> StatePeriodOut<'_> {
    StatePeriodOut {
        state: &one.state,
        class: &one.class,
        requests: one.requests,
        time_us: one.time_us,
        p99_us: one.p99_us,
        max_us: one.max_us,
    }
}

fn thread(one: &ThreadPeriod) -> ThreadPeriodOut<'_> {
    ThreadPeriodOut {
        role: &one.role,
        threads: one.threads,
        cpu_us: one.cpu_us,
        queue_us: one.queue_us,
        wait_us: one.wait_us,
        stretches: one.stretches,
        on: stretches(&one.on),
        off: stretches(&one.off),
    }
}

fn stretches(one: &Stretches) -> StretchesOut {
    StretchesOut { p50_us: one.p50_us, p99_us: one.p99_us, max_us: one.max_us }
}

fn share(one: &SampleShare) -> SampleShareOut<'_> {
    SampleShareOut { name: &one.name, requests: one.requests, state: &one.state }
}
