//! Metrics of a replay service at one moment.

use std::borrow::Cow;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use exacat_replay::both_sides::intake::IntakeCounts;
use exacat_replay::run::shapes::RunState;
use exacat_store::Sample;

use super::both_sides::BothSides;
use super::metric_table as table;
use super::runs::Runs;

/// States of runs.
const STATES: [RunState; 5] =
    [RunState::Planned, RunState::Running, RunState::Paused, RunState::Done, RunState::Stopped];

/// Counts of the service itself.
pub(crate) struct Counts {
    began: Instant,
    pub connections: AtomicU64,
    pub refused: AtomicU64,
}

impl Default for Counts {
    fn default() -> Self {
        Counts { began: Instant::now(), connections: AtomicU64::new(0), refused: AtomicU64::new(0) }
    }
}

/// Returns the values of all metrics.
pub(crate) fn samples(runs: &Runs, sides: &BothSides, counts: &Counts) -> Vec<Sample> {
    let load = |of: &AtomicU64| of.load(Ordering::Relaxed);
    let IntakeCounts { datagrams, lost, garbage, bad_records, .. } = sides.counts();
    let mut samples = vec![
        table::UP.is(counts.began.elapsed().as_secs()),
        table::BUILD.of(env!("CARGO_PKG_VERSION"), 1),
        table::DATAGRAMS.is(datagrams),
        table::DATAGRAMS_LOST.is(lost),
        table::DATAGRAMS_BAD.is(garbage + bad_records),
        table::CONNECTIONS.is(load(&counts.connections)),
        table::CONNECTIONS_REFUSED.is(load(&counts.refused)),
    ];
    let mut faults = 0;
    for (name, run) in runs.all() {
        let label = || -> Cow<'static, str> { name.clone().into() };
        let now = run.clock().now();
        faults += run.faults();
        run.read(|live| {
            let (state, _) = live.state();
            let handing_out = live.handing_out();
            samples.extend(
                STATES.map(|of| table::STATE.with([label(), of.name().into()], u64::from(of == state))),
            );
            samples.extend([
                table::PLANNED.of(label(), live.queue().items()),
                table::ENDED.of(label(), live.queue().counters().ended),
                table::FAILED.of(label(), live.tally().errors()),
                table::IN_FLIGHT.of(label(), handing_out.in_flight),
                table::READ.of(label(), live.tally().bytes()),
                table::ELAPSED.of(label(), live.elapsed_us(now) / 1_000_000),
                table::AGENTS.of(label(), handing_out.agents),
                table::EXPIRED.of(label(), handing_out.leases_expired),
                table::LATE.of(label(), handing_out.late_results),
                table::REFUSED.of(label(), handing_out.refused_results),
            ]);
        });
        let (caches, origins) = sides.views(&name, &run);
        for cache in caches {
            let kinds =
                [("hit", cache.bytes_hit), ("miss", cache.bytes_miss), ("bypass", cache.bytes_bypass)];
            samples.extend(kinds.map(|(kind, bytes)| {
                table::CACHE.with([label(), cache.name.clone().into(), kind.into()], bytes)
            }));
        }
        samples.extend(
            origins.into_iter().map(|of| table::ORIGIN.with([label(), of.name.into()], of.bytes_out)),
        );
    }
    samples.push(table::JOURNAL_FAULTS.is(faults));
    samples
}

#[cfg(test)]
mod tests {
    use exacat_store::metric_rows;

    use super::*;

    /// Returns the page of the metrics for the reference.
    fn page() -> String {
        let head = "# Metrics of a replay service\n\n\
                    A replay service answers `GET /metrics` on its HTTP address, in the text format 0.0.4. The \
                    request\nshows the token of the service. Names end in the base unit. Figures of runs are \
                    gauges: they go on\nafter a restart. Counters begin with the process.\n\n";
        format!("{head}{}", metric_rows(table::METRICS))
    }

    /// Property: each name follows the rules of Prometheus.
    #[test]
    fn names_of_metrics_end_in_their_units() {
        for metric in table::METRICS {
            let name = metric.name;
            assert!(name.starts_with("exacat_replay_") && !metric.help.ends_with('.'), "{name}");
            for base in ["seconds", "bytes"] {
                let unit = metric.unit.base().map(|(unit, _)| unit);
                assert_eq!(unit == Some(base), name.ends_with(&format!("_{base}")), "{name}: {unit:?}");
            }
        }
    }

    /// Property: the page of the reference is that of the table. `EXACAT_WRITE_REFERENCE=1` writes it.
    #[test]
    fn page_of_the_reference_is_current() {
        let path =
            std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/reference/replay-metrics.md");
        if std::env::var_os("EXACAT_WRITE_REFERENCE").is_some() {
            std::fs::write(&path, page()).unwrap();
        }
        assert_eq!(std::fs::read_to_string(&path).unwrap_or_default(), page(), "{}", path.display());
    }
}
