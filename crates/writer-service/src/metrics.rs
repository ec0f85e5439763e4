//! Metrics of a service at one moment.

use exacat_activity::Distribution;
use exacat_store::{Buckets, Metric, Sample, metric_rows};

use crate::measures::{Calls, Measures};
use crate::metric_table as table;
use crate::shapes::{WriterStatus, WriterTable};

/// States of services, in the order of their samples.
const STATES: [&str; 4] = ["up", "draining", "read-only", "gone"];
/// Classes of HTTP statuses.
const STATUS_CLASSES: [&str; 5] = ["1xx", "2xx", "3xx", "4xx", "5xx"];

/// Returns the values of all metrics.
pub(crate) fn samples(status: &WriterStatus, services: &WriterTable, measures: &Measures) -> Vec<Sample> {
    let mut samples = of_state(status, services);
    samples.extend(of_catalogue(measures));
    samples.extend(of_machine(status, measures));
    samples
}

fn of_state(status: &WriterStatus, services: &WriterTable) -> Vec<Sample> {
    let mut samples = vec![
        table::UP.is(status.up_seconds),
        table::BUILD.of(status.version.clone(), 1),
        table::CONNECTIONS.is(status.connections),
        table::OPEN_FILES.is(status.open_files),
        table::RECEIVED.is(status.received_bytes),
        table::DURABLE.is(status.durable_bytes),
        table::CHUNKS.is(status.chunks),
        table::EVENTS.is(status.events),
        table::QUEUED.is(status.queued_bytes),
        table::BLOCKS.is(status.blocks),
        table::BLOCKS_RESERVED.is(status.blocks_reserved),
        table::BLOCKS_USED.is(status.blocks_used),
        table::CREDIT.is(status.credit_bytes),
        table::AUTHORIZING.is(status.authorizing),
        table::INDEX_COMMITS.is(status.index_commits),
        table::PART_FAULTS.is(status.part_faults),
        table::DUPLICATES.is(status.duplicates),
        table::CONFLICTS.is(status.conflicts),
    ];
    samples
        .extend(STATES[..3].iter().map(|state| table::STATE.of(*state, u64::from(status.state == *state))));
    let files = &status.files;
    let stages = [
        ("open", files.open),
        ("closed", files.closed),
        ("certified", files.certified),
        ("staged", files.staged),
        ("removed", files.removed),
        ("failed", files.failed),
    ];
    samples.extend(stages.map(|(stage, count)| table::FILES.of(stage, count)));
    let waiting = &status.waiting;
    let reasons = [
        ("commit", waiting.commit),
        ("parts", waiting.parts),
        ("missing", waiting.missing),
        ("other", waiting.other),
    ];
    samples.extend(reasons.map(|(reason, count)| table::WAITING.of(reason, count)));
    for volume in &status.volumes {
        let path = || volume.path.clone();
        samples.push(table::VOLUME_FREE.of(path(), volume.free_bytes));
        samples.push(table::VOLUME_WRITABLE.of(path(), u64::from(volume.state == "writable")));
        samples.push(table::VOLUME_READ_ONLY.of(path(), u64::from(volume.state == "read-only")));
        samples.push(table::VOLUME_BUFFERED.of(path(), volume.buffered_parts));
    }
    for state in STATES {
        let count = services.services.iter().filter(|service| service.state == state).count();
        samples.push(table::SERVICES.of(state, count as u64));
    }
    samples.push(table::TAKEOVERS.is(status.takeovers.len() as u64));
    samples
}

fn of_catalogue(measures: &Measures) -> Vec<Sample> {
    let mut samples = Vec::new();
    let calls: [(&'static Metric, &'static Metric, &'static str, &Calls); 2] = [
        (&table::BOOKINGS, &table::BOOKING_TIME, "booking", &measures.bookings),
        (&table::COMMITS, &table::COMMIT_TIME, "commit", &measures.commits),
    ];
    for (outcomes, times, name, of) in calls {
        samples.push(outcomes.of("done", of.done.get()));
        samples.push(outcomes.of("failed", of.failed.get()));
        samples.push(timed(times, &of.times));
        samples.push(table::CALLS.of(name, of.running.get()));
    }
    samples
}

fn of_machine(status: &WriterStatus, measures: &Measures) -> Vec<Sample> {
    let (disk, http, copies) = (&measures.disk, &measures.http, &measures.stage_out);
    let mut samples = vec![
        timed(&table::ACK_TIME, &measures.acknowledgements),
        timed(&table::SYNC_TIME, &disk.syncs),
        timed(&table::WRITE_TIME, &disk.writes),
        table::WRITTEN.is(disk.written_bytes.get()),
        table::READ.is(disk.read_bytes.get()),
        table::FAULTS.is(disk.faults.get()),
        table::LOST.is(status.lost_messages),
        table::REFUSED_LINKS.is(status.refused_links.count),
        table::HTTP_CONNECTIONS.is(http.connections.get()),
        table::HTTP_REFUSED.is(http.refused_connections.get()),
        table::CONTENT.is(http.content_answers.get()),
        table::CONTENT_BYTES.is(http.content_bytes.get()),
        table::CONTENT_BROKEN.is(http.content_broken.get()),
    ];
    let refusals = &status.refusals;
    let classes = [
        ("retry-elsewhere", refusals.retry_elsewhere),
        ("conflict", refusals.conflict),
        ("bad-request", refusals.bad_request),
    ];
    samples.extend(classes.map(|(name, count)| table::REFUSALS.of(name, count)));
    let answers = STATUS_CLASSES.iter().zip(&http.answers);
    samples.extend(answers.map(|(name, count)| table::HTTP_ANSWERS.of(*name, count.get())));
    samples.extend([
        table::STAGED.is(copies.copies.done.get()),
        table::STAGED_BYTES.is(copies.bytes.get()),
        table::STAGE_FAILURES.is(copies.copies.failed.get()),
        table::STAGE_RUNNING.is(copies.copies.running.get()),
        table::STAGE_WAITING.is(copies.waiting.get()),
        timed(&table::STAGE_TIME, &copies.copies.times),
    ]);
    samples
}

fn timed(metric: &'static Metric, times: &Distribution) -> Sample {
    metric.in_buckets(None, Buckets::of_times(&times.now()))
}

/// Returns the page of the metrics for the reference.
pub fn page() -> String {
    let head = "# Metrics of a writer service\n\n\
                A writer service answers `GET /metrics` on its HTTP address, in the text format 0.0.4. Names end \
                in\nthe base unit. Counters begin with the process.\n\n";
    format!("{head}{}", metric_rows(table::METRICS))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use exacat_store::metric_text;

    use super::*;
    use crate::shapes::{WriterService, WriterVolume};

    fn all() -> Vec<Sample> {
        let volume =
            WriterVolume { path: "/a \"b\"\n".to_owned(), state: "full".to_owned(), ..Default::default() };
        let status = WriterStatus { state: "up".to_owned(), volumes: vec![volume], ..Default::default() };
        let service = WriterService { state: "gone".to_owned(), ..Default::default() };
        let services = WriterTable { services: vec![service], ..Default::default() };
        let measures = Measures::default();
        measures.acknowledgements.record(700, 3);
        samples(&status, &services, &measures)
    }

    /// Property: each metric of the table has a sample, and each name follows the rules of Prometheus.
    #[test]
    fn every_metric_of_the_table_is_sampled() {
        let sampled: BTreeSet<&str> = all().iter().map(|sample| sample.metric.name).collect();
        for metric in table::METRICS {
            let name = metric.name;
            assert!(sampled.contains(name), "{name} has no sample");
            assert!(name.starts_with("exacat_writer_") && !metric.help.ends_with('.'), "{name}");
            let unit = metric.unit.base().map(|(unit, _)| unit);
            for base in ["seconds", "bytes"] {
                assert_eq!(unit == Some(base), name.ends_with(&format!("_{base}")), "{name}: {unit:?}");
            }
        }
    }

    /// Property: buckets are cumulative, labels are escaped, and a family has one head.
    #[test]
    fn text_is_that_of_prometheus() {
        let text = metric_text(table::METRICS, &all());
        assert!(text.contains("exacat_writer_volume_free_bytes{volume=\"/a \\\"b\\\"\\n\"} 0\n"), "{text}");
        assert!(text.contains("exacat_writer_acknowledgement_seconds_bucket{le=\"0.0005\"} 0\n"), "{text}");
        assert!(text.contains("exacat_writer_acknowledgement_seconds_bucket{le=\"0.001\"} 3\n"), "{text}");
        assert!(text.contains("exacat_writer_acknowledgement_seconds_bucket{le=\"+Inf\"} 3\n"), "{text}");
        assert!(text.contains("exacat_writer_acknowledgement_seconds_sum 0.0021\n"), "{text}");
        assert!(text.contains("exacat_writer_services{state=\"gone\"} 1\n"), "{text}");
        assert!(text.contains("# TYPE exacat_writer_chunks_total counter\n"), "{text}");
        let heads: Vec<&str> = text.lines().filter(|line| line.starts_with("# TYPE ")).collect();
        let distinct: BTreeSet<&str> = heads.iter().copied().collect();
        assert_eq!((heads.len(), distinct.len()), (table::METRICS.len(), table::METRICS.len()));
    }

    /// Property: the page of the reference is that of the table. `EXACAT_WRITE_REFERENCE=1` writes it.
    #[test]
    fn page_of_the_reference_is_current() {
        let path =
            std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/reference/writer-metrics.md");
        if std::env::var_os("EXACAT_WRITE_REFERENCE").is_some() {
            std::fs::write(&path, page()).unwrap();
        }
        let kept = std::fs::read_to_string(&path).unwrap_or_default();
        assert!(
            kept == page(),
            "stale: EXACAT_WRITE_REFERENCE=1 cargo test -p exacat-writer-service reference"
        );
    }
}
