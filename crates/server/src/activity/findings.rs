//! Findings of a period, in words: where the time went, and what to look at.

use exacat_activity::{Class, RequestState};
use exacat_model::period::{OperationPeriod, Period, SampleShare};

/// Operations with less than this share of the time have no finding of their own.
const OPERATION_SHARE_MIN: f64 = 0.10;
/// Share of an operation's time from which a state is a finding.
const STATE_SHARE_MIN: f64 = 0.25;
/// Most operations with a finding.
const OPERATIONS_MAX: usize = 3;
/// Share of time without a name that is a finding.
const UNACCOUNTED_SHARE_MIN: f64 = 0.05;
/// Share of the time of threads that are ready, or run, in the queue for a processor.
const QUEUE_SHARE_MIN: f64 = 0.30;
/// Share of the processors in use from which they bound the server.
const PROCESSORS_SHARE_MIN: f64 = 0.85;
/// Share of the log's sync that the disk's own flush and write explain.
const DISK_SHARE_MIN: f64 = 0.5;
/// Share of the time in which the disk had a request.
const DISK_BUSY_SHARE_MIN: f64 = 0.85;
/// Share of requests that failed.
const FAILED_SHARE_MIN: f64 = 0.01;
/// Share of one user in the requests in progress.
const USER_SHARE_MIN: f64 = 0.50;
/// Least requests in samples for a finding about a user.
const SAMPLED_MIN: u64 = 30;
/// Share of reads of blocks that the cache answers.
const CACHE_SHARE_MIN: f64 = 0.80;
/// Least reads of blocks for a finding about the cache.
const CACHE_READS_MIN: u64 = 1000;

fn share(part: u64, of: u64) -> f64 {
    if of == 0 { 0.0 } else { part as f64 / of as f64 }
}

fn percent(share: f64) -> String {
    format!("{:.0} %", share * 100.0)
}

/// Returns a duration in a unit that suits it.
fn time(us: f64) -> String {
    match us {
        us if us < 1_000.0 => format!("{us:.0} us"),
        us if us < 1_000_000.0 => format!("{:.1} ms", us / 1_000.0),
        us => format!("{:.1} s", us / 1_000_000.0),
    }
}

/// Time of an operation without waits that its client wished.
fn busy_us(operation: &OperationPeriod) -> u64 {
    let idle = |name: &str| RequestState::named(name).is_some_and(|state| state.class() == Class::Idle);
    operation.states.iter().filter(|(name, _)| !idle(name)).map(|(_, us)| us).sum()
}

/// Returns what an operator should know of a period, the most important first.
pub(crate) fn findings(period: &Period) -> Vec<String> {
    let mut found = Vec::new();
    let total: u64 = period.operations.iter().map(busy_us).sum();
    let mut operations: Vec<(&OperationPeriod, u64)> =
        period.operations.iter().map(|one| (one, busy_us(one))).collect();
    operations.sort_by_key(|(_, busy)| std::cmp::Reverse(*busy));
    for (operation, busy) in operations.into_iter().take(OPERATIONS_MAX) {
        if share(busy, total) >= OPERATION_SHARE_MIN {
            found.extend(operation_finding(operation, busy, period));
        }
    }
    found.extend(processors(period));
    found.extend(disk(period));
    let unaccounted = period.states.iter().find(|one| one.state == RequestState::Unaccounted.name());
    if let Some(one) = unaccounted.filter(|one| share(one.time_us, total) >= UNACCOUNTED_SHARE_MIN) {
        let part = percent(share(one.time_us, total));
        found.push(format!("{part} of the time has no name: report it, because a wait has no name yet."));
    }
    found.extend(refused(period));
    found.extend(cache(period));
    found.extend(one_user(&period.users));
    if period.starts > 0 {
        found.push(format!("The server was started {} in this period.", times(period.starts)));
    }
    found
}

fn times(count: u64) -> String {
    match count {
        1 => "once".to_owned(),
        count => format!("{count} times"),
    }
}

/// Returns the state with most of an operation's time, with what to do about it.
fn operation_finding(operation: &OperationPeriod, busy: u64, period: &Period) -> Option<String> {
    let known = operation.states.iter().filter_map(|(name, us)| Some((RequestState::named(name)?, *us)));
    let (state, us) = known.filter(|(state, _)| state.class() != Class::Idle).max_by_key(|(_, us)| *us)?;
    if share(us, busy) < STATE_SHARE_MIN || state == RequestState::Unaccounted {
        return None;
    }
    let mut text =
        format!("{} of the time of {} is {}.", percent(share(us, busy)), operation.name, state.name());
    if state == RequestState::LogSync {
        text += &sync_beside_disk(period).unwrap_or_default();
    }
    text += " ";
    text += state.remedy();
    Some(text)
}

/// Compares the log's sync with the times of its disk's own requests.
fn sync_beside_disk(period: &Period) -> Option<String> {
    let sync = period.mean("sync_us_sum", "sync_us_count")?;
    let of_disk = |ms: &str, number: &str| period.mean(ms, number).map(|mean| mean * 1000.0);
    let flush = of_disk("disk_flush_ms", "disk_flushes");
    let write = of_disk("disk_write_ms", "disk_writes");
    let mut text = format!(" To write and sync a group took {} on average,", time(sync));
    text += &match (flush, write) {
        (Some(flush), _) => format!(" a flush of the disk itself {}.", time(flush)),
        (None, Some(write)) => format!(" a write of the disk itself {}; it counted no flush.", time(write)),
        (None, None) => " and the kernel has no times of the disk itself.".to_owned(),
    };
    // Of a disk without flushes the writes are all that a sync waits for.
    let own = flush.unwrap_or(0.0) + write.unwrap_or(0.0);
    if (flush.is_some() || write.is_some()) && own < sync * DISK_SHARE_MIN {
        text += " Most of it is not the disk: the file system, or a queue for a processor.";
    }
    Some(text)
}

/// Returns a finding about the data's disk.
fn disk(period: &Period) -> Option<String> {
    let in_ms = |name: &str| Some(period.increase(name)? as f64 / 1000.0 / period.seconds().max(0.001));
    let (busy, requests) = (in_ms("disk_busy_ms")?, in_ms("disk_request_ms")?);
    (busy >= DISK_BUSY_SHARE_MIN).then(|| {
        format!(
            "The disk of the data was busy {} of the time, with {requests:.1} requests at a time: see the disk's \
             times below, and what else uses it.",
            percent(busy.min(1.0))
        )
    })
}

/// Returns a finding about the processors: "the storage is slow" may be a queue for a processor.
fn processors(period: &Period) -> Option<String> {
    let cpu: u64 = period.threads.iter().map(|one| one.cpu_us).sum();
    let queue: u64 = period.threads.iter().map(|one| one.queue_us).sum();
    let used = cpu as f64 / 1e6 / period.seconds().max(0.001) / period.processors.max(1) as f64;
    let queued = share(queue, cpu + queue);
    if used >= PROCESSORS_SHARE_MIN {
        return Some(format!(
            "The server used {} of {} processors. Waits contain time in which no processor was free ({} of the \
             time that threads were ready): more processors shorten all of them.",
            percent(used),
            period.processors,
            percent(queued)
        ));
    }
    // A second of processor time, so that a server at rest has no finding.
    (queued >= QUEUE_SHARE_MIN && cpu >= 1_000_000).then(|| {
        format!(
            "Threads that were ready waited {} of the time for a processor, although the server used only {} of \
             them: other programs use this machine, and waits seem longer than their causes.",
            percent(queued),
            percent(used)
        )
    })
}

fn refused(period: &Period) -> Option<String> {
    let requests: u64 = period.operations.iter().map(|one| one.requests).sum();
    let failed: u64 = period.operations.iter().map(|one| one.failed).sum();
    let worst = period.operations.iter().max_by_key(|one| one.failed)?;
    (share(failed, requests) >= FAILED_SHARE_MIN).then(|| {
        let part = percent(share(failed, requests));
        format!(
            "{part} of the requests failed, most of them {}: see the errors in the metrics and the log.",
            worst.name
        )
    })
}

fn cache(period: &Period) -> Option<String> {
    // One of each kind of cached thing.
    let all = |end: &str| -> u64 {
        let kinds =
            period.metrics.iter().filter(|one| one.name.starts_with("cache_") && one.name.ends_with(end));
        kinds.map(|one| one.to.saturating_sub(one.from)).sum()
    };
    let (hits, misses) = (all("_hits_total"), all("_misses_total"));
    let hit = share(hits, hits + misses);
    (hits + misses >= CACHE_READS_MIN && hit < CACHE_SHARE_MIN).then(|| {
        format!("The cache answered only {} of the reads of blocks: give it more memory.", percent(hit))
    })
}

fn one_user(users: &[SampleShare]) -> Option<String> {
    let all: u64 = users.iter().map(|one| one.requests).sum();
    let first = users.first().filter(|first| !first.name.is_empty() && users.len() > 1)?;
    let part = share(first.requests, all);
    (all >= SAMPLED_MIN && part >= USER_SHARE_MIN).then(|| {
        format!(
            "{} of the requests in progress are of the user {}, mostly in {}.",
            percent(part),
            first.name,
            first.state
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use exacat_model::TimeMs;
    use exacat_model::period::{MetricPeriod, StatePeriod, ThreadPeriod};

    fn period(states: &[(&str, u64)]) -> Period {
        let states: Vec<(String, u64)> = states.iter().map(|(name, us)| ((*name).to_owned(), *us)).collect();
        let all = states.iter().map(|(state, us)| StatePeriod {
            state: state.clone(),
            time_us: *us,
            ..StatePeriod::default()
        });
        let states_of_all = all.collect();
        let life_us = states.iter().map(|(_, us)| us).sum();
        let one = OperationPeriod {
            name: "register".to_owned(),
            requests: 100,
            life_us,
            states,
            ..OperationPeriod::default()
        };
        Period {
            to: TimeMs(10_000),
            processors: 2,
            operations: vec![one],
            states: states_of_all,
            ..Period::default()
        }
    }

    fn metric(name: &str, to: u64) -> MetricPeriod {
        MetricPeriod { name: name.to_owned(), from: 0, to }
    }

    /// The state with most time is named with its share, its cause's own time, and advice. Waits that
    /// the client wished do not count.
    #[test]
    fn finding_names_the_state_of_most_time() {
        let mut slow = period(&[("log_sync", 620), ("execute", 380), ("change", 1_000_000)]);
        slow.metrics = vec![metric("sync_us_sum", 41_000), metric("sync_us_count", 10)];
        let found = findings(&slow);
        assert_eq!(found.len(), 1, "{found:?}");
        let start =
            "62 % of the time of register is log_sync. To write and sync a group took 4.1 ms on average,";
        assert!(found[0].starts_with(start), "{found:?}");
        assert!(found[0].contains("the kernel has no times of the disk itself. Compare"), "{found:?}");
        assert!(findings(&Period::default()).is_empty());
    }

    /// The log's sync stands beside the disk's own flush, or its writes where it counts no flush. A sync that
    /// they do not explain is said to be something else.
    #[test]
    fn sync_of_the_log_is_compared_with_the_disk() {
        let mut slow = period(&[("log_sync", 620), ("execute", 380)]);
        let log = [metric("sync_us_sum", 41_000), metric("sync_us_count", 10)];
        let writes = [metric("disk_writes", 10), metric("disk_write_ms", 10)];
        let flushes = |ms| [metric("disk_flushes", 20), metric("disk_flush_ms", ms)];
        let mut finding = |metrics: &[&[MetricPeriod]]| {
            slow.metrics = metrics.concat();
            findings(&slow).remove(0)
        };
        let disk = finding(&[&log, &writes, &flushes(70)]);
        assert!(
            disk.contains("took 4.1 ms on average, a flush of the disk itself 3.5 ms. Compare"),
            "{disk}"
        );
        let other = finding(&[&log, &writes, &flushes(2)]);
        assert!(other.contains("a flush of the disk itself 100 us. Most of it is not the disk"), "{other}");
        let without = finding(&[&log, &writes, &[metric("disk_flushes", 0), metric("disk_flush_ms", 0)]]);
        assert!(
            without.contains("a write of the disk itself 1.0 ms; it counted no flush. Most"),
            "{without}"
        );
        let nothing_written = finding(&[&log, &[metric("disk_writes", 0), metric("disk_write_ms", 0)]]);
        assert!(nothing_written.contains("the kernel has no times"), "{nothing_written}");
    }

    #[test]
    fn busy_disk_is_a_finding() {
        let mut one = period(&[]);
        one.metrics = vec![metric("disk_busy_ms", 8_500), metric("disk_request_ms", 31_000)];
        assert!(
            findings(&one)[0]
                .starts_with("The disk of the data was busy 85 % of the time, with 3.1 requests")
        );
        one.metrics = vec![metric("disk_busy_ms", 8_499), metric("disk_request_ms", 31_000)];
        assert!(findings(&one).is_empty());
    }

    #[test]
    fn time_without_a_name_is_a_finding() {
        let found = findings(&period(&[("execute", 90), ("unaccounted", 10)]));
        assert!(found.iter().any(|one| one.starts_with("10 % of the time has no name")), "{found:?}");
        let found = findings(&period(&[("execute", 97), ("unaccounted", 3)]));
        assert!(!found.iter().any(|one| one.contains("no name")), "{found:?}");
    }

    #[test]
    fn busy_processors_are_a_finding() {
        let threads = |cpu_us, queue_us| vec![ThreadPeriod { cpu_us, queue_us, ..ThreadPeriod::default() }];
        let busy = Period { threads: threads(19_000_000, 5_000_000), ..period(&[]) };
        assert!(findings(&busy)[0].starts_with("The server used 95 % of 2 processors"));
        let others = Period { threads: threads(4_000_000, 4_000_000), ..period(&[]) };
        assert!(findings(&others)[0].starts_with("Threads that were ready waited 50 %"));
        let quiet = Period { threads: threads(4_000_000, 100_000), ..period(&[]) };
        assert!(findings(&quiet).is_empty());
    }

    #[test]
    fn failures_cache_and_one_user_are_findings() {
        let mut bad = period(&[]);
        bad.operations[0].failed = 2;
        bad.metrics = vec![
            metric("cache_pages_hits_total", 500),
            metric("cache_blocks_hits_total", 200),
            metric("cache_pages_misses_total", 300),
        ];
        let share = |name: &str, requests| SampleShare {
            name: name.to_owned(),
            requests,
            state: "execute".to_owned(),
        };
        bad.users = vec![share("alice", 60), share("bob", 40)];
        bad.starts = 2;
        let found = findings(&bad);
        assert_eq!(found.len(), 4, "{found:?}");
        for text in [
            "2 % of the requests failed",
            "70 % of the reads of blocks",
            "60 % of the requests in progress",
            "started 2 times",
        ] {
            assert!(found.iter().any(|one| one.contains(text)), "{text}: {found:?}");
        }
    }
}
