//! The server's metrics at one moment, for Prometheus and for `exacat status`.

use std::sync::atomic::Ordering;
use std::time::Duration;

use exacat_catalogue::Catalogue;
use exacat_model::answer::{StatusPart, Throttle};
use exacat_model::{Consistency, Error, ErrorKind, Result, SeStatus, TimeMs};
use exacat_store::{Buckets, Sample};
use exacat_wire::json;

use crate::activity::{Moment, Sampler};
use crate::contents::Sample as Contents;
use crate::data_disk::DataDisk;
use crate::elements;
use crate::feeds;
use crate::machine::Disk;
use crate::metric_table as table;
use crate::service::Service;
use crate::status_metrics::thread_io;

/// Time in which the store must give its metrics. Without them a scrape has only those of the server.
const STORE_TIME: Duration = Duration::from_secs(2);
/// Most owners whose usage is kept over time.
const OWNERS_KEPT_MAX: usize = 1000;
/// Most storage elements with metrics of their own: each has eight series.
const SES_SHOWN_MAX: usize = 256;

/// Waits for an answer of the store, but not long: a scrape has other metrics too.
async fn in_time<T>(answer: impl Future<Output = Result<T>>) -> Result<T> {
    let too_late =
        |_| Error::new(ErrorKind::Unavailable, format!("it does not answer within {STORE_TIME:?}"));
    tokio::time::timeout(STORE_TIME, answer).await.map_err(too_late)?
}

impl Service {
    /// Returns the present values of the gauges.
    fn gauges(&self) -> Vec<Sample> {
        // The log has its own count, because it is there before the server.
        let lost = self.log_lines_lost.get().map_or(0, |lost| lost.load(Ordering::Relaxed));
        self.instruments.counts.log_lines_lost.store(lost, Ordering::Relaxed);
        let lost = self.look_ups.get().map_or(0, |log| log.lost.load(Ordering::Relaxed));
        self.instruments.counts.look_up_lines_lost.store(lost, Ordering::Relaxed);
        let admission = &self.admission;
        let mut samples = vec![
            table::UP.is(self.started.elapsed().as_secs()),
            table::SERVING.is(u64::from(self.is_serving())),
            table::OUTPUT.is(self.instruments.output_bytes.load(Ordering::Relaxed)),
            table::UNWRITTEN.is(self.history.unwritten()),
            table::USERS.is(admission.users() as u64),
            table::DRAINED.is(u64::from(self.is_drained())),
            table::PAST_STATES.is(self.past.open_states() as u64),
        ];
        let bounds = [
            ("connections", &admission.connections.network),
            ("connections-local", &admission.connections.local),
            ("connections-unauthenticated", &admission.connections.strangers),
            ("requests", &admission.requests),
            ("request-bytes", &admission.request_bytes),
            ("element-writes", &admission.element_writes),
            ("element-bytes", &admission.element_bytes),
            ("lookup-items", &admission.lookup_items),
            ("streams", &admission.streams),
            ("unread-bytes", &admission.unread_bytes),
            ("waits", &admission.waits),
            ("audits", &admission.audits),
        ];
        samples.extend(bounds.map(|(name, bound)| table::HELD.of(name, bound.now() as u64)));
        samples.extend(bounds.map(|(name, bound)| table::HELD_MAX.of(name, bound.max() as u64)));
        samples.extend(bounds.map(|(name, bound)| table::REFUSED.of(name, bound.refused())));
        let lanes = [("heavy", &admission.heavy), ("bulk", &admission.bulk)];
        samples.extend(lanes.map(|(name, lane)| table::LANE_RUNNING.of(name, lane.metrics().0 as u64)));
        samples.extend(lanes.map(|(name, lane)| table::LANE_WAITING.of(name, lane.metrics().1 as u64)));
        samples.extend(lanes.map(|(name, lane)| table::LANE_REFUSED.of(name, lane.refused())));
        let throttles = admission.throttles.list();
        let sum = |of: fn(&Throttle) -> u64| throttles.iter().map(of).sum::<u64>();
        samples.extend([
            table::THROTTLES.is(throttles.len() as u64),
            table::THROTTLED.of("waited", sum(|one| one.delayed)),
            table::THROTTLED.of("refused", sum(|one| one.refused)),
        ]);
        let ahead = self.catalogue.clock_jump().map_or(0, |jump| jump.ahead_ms() / 1000);
        samples.push(table::CLOCK_AHEAD.is(ahead));
        let data_disk = self.servers.get().and_then(|servers| servers.data_disk.as_ref());
        samples.extend(data_disk.into_iter().flat_map(DataDisk::samples));
        samples
    }

    /// Returns the gauges and the counters, by their names in a status.
    fn own_metrics(&self) -> Vec<(String, u64)> {
        let samples = self.gauges().into_iter().chain(self.instruments.counts.samples());
        samples.flat_map(|sample| sample.shown()).collect()
    }

    /// Returns the server's own parts of the status.
    pub(crate) async fn status_parts(&self) -> Vec<StatusPart> {
        let metrics = self.own_metrics();
        let mut notes =
            vec![format!("exacat {}, catalogue {}", env!("CARGO_PKG_VERSION"), self.catalogue_id)];
        if self.is_drained() {
            notes.push(
                "drained: it refuses requests of network clients until exacat drain --resume".to_owned(),
            );
        }
        let mut parts = vec![
            StatusPart { part: "server".to_owned(), metrics, notes },
            self.instruments.operations_part(),
            self.workers.part(),
        ];
        if let Some(history) = self.elements.get() {
            let figures = history.figures();
            let metrics = elements::samples(&figures).iter().flat_map(Sample::shown).collect();
            let notes = figures.problems.into_iter().chain(figures.nearly_full).collect();
            parts.push(StatusPart { part: "history".to_owned(), metrics, notes });
        }
        parts.extend(feeds::status_part(self.feeds.get()).await);
        parts.extend(self.following_parts());
        parts
    }

    /// Returns the store's own metrics; none if it gives none now.
    pub(crate) async fn store_metrics(&self) -> Vec<(String, u64)> {
        match self.catalogue.store().status().await {
            Ok(status) => {
                let mut metrics = status.named();
                metrics.push(("entries".to_owned(), status.entries));
                metrics.push(("revision".to_owned(), status.revision.0));
                metrics
            }
            Err(_) => Vec::new(),
        }
    }

    /// Returns the sums of the server at this moment.
    pub(crate) fn moment(&self, sampler: &mut Sampler, now: TimeMs) -> Moment {
        sampler.read(now, &self.instruments, &self.board, self.own_metrics())
    }

    /// Returns all metrics for Prometheus.
    pub(crate) async fn samples(&self) -> Vec<Sample> {
        let mut samples = self.instruments.samples();
        samples.extend(self.board.totals.samples(&self.board.in_states()));
        samples.extend(self.gauges());
        samples.extend(
            self.elements.get().into_iter().flat_map(|history| elements::samples(&history.figures())),
        );
        let is_ready = self.closed_to_network().is_none() && self.catalogue.store().failure().is_none();
        samples.push(table::READY.is(u64::from(is_ready)));
        samples.push(table::BUILD.of(env!("CARGO_PKG_VERSION"), 1));
        samples.extend(self.workers.samples());
        samples.extend(feeds::samples(self.feeds.get()).await);
        samples.extend(self.following_samples());
        samples.extend(crate::process::samples());
        if let Some(servers) = self.servers.get() {
            let disk = Disk::of(servers.data());
            samples.extend([table::DATA_DISK.is(disk.size), table::DATA_DISK_FREE.is(disk.free)]);
        }
        let last = self.history.last().unwrap_or_default();
        for thread in &last.threads {
            let role = || thread.role.clone();
            samples.push(table::THREADS.of(role(), thread.threads));
            samples.push(table::THREAD_CPU.of(role(), thread.cpu_us));
            samples.push(table::THREAD_QUEUE.of(role(), thread.queue_us));
            samples.push(table::THREAD_WAIT.of(role(), thread.wait_us));
            let of_io = thread_io(&thread.role);
            let io = last.metrics.iter().find(|(name, _)| *name == of_io);
            samples.extend(io.map(|(_, us)| table::THREAD_IO.of(role(), *us)));
            for (metric, times) in [(&table::THREAD_ON, &thread.on.0), (&table::THREAD_OFF, &thread.off.0)] {
                samples.push(metric.in_buckets(Some(role().into()), Buckets::of_times(times)));
            }
        }
        let keys_age = self.issuers.get().and_then(|issuers| issuers.keys_age_ms(self.catalogue.now()));
        samples.extend(keys_age.map(|age| table::ISSUER_KEYS_AGE.is(age)));
        // On a cluster a scrape costs no read of the log head while the last one is fresh.
        let catalogue = self.catalogue.bounded_to(Some(Consistency::Quorum));
        match in_time(catalogue.store().status()).await {
            Ok(status) => {
                samples.extend([
                    table::STORE_ENTRIES.is(status.entries),
                    table::STORE_REVISION.is(status.revision.0),
                    table::STORE_WARNINGS.is(status.warnings.len() as u64),
                ]);
                samples.extend(status.metrics);
            }
            Err(error) => tracing::warn!(%error, "the store gives no metrics"),
        }
        // Sums show the last changes, which may wait for standbys. The warnings above do not.
        match in_time(self.of_catalogue(catalogue)).await {
            Ok(of_catalogue) => samples.extend(of_catalogue),
            Err(error) => tracing::warn!(%error, "the catalogue gives no sums"),
        }
        samples
    }

    /// Returns the contents of the catalogue now.
    pub(crate) async fn contents_now(&self, now: TimeMs) -> Result<Contents> {
        let catalogue = self.catalogue.bounded_to(Some(Consistency::Quorum));
        let sums = catalogue.sums(SES_SHOWN_MAX).await?;
        let owners = catalogue.limited_usage(OWNERS_KEPT_MAX).await?;
        Ok(Contents {
            at: now,
            entries: catalogue.store().status().await?.entries,
            whole: sums.tree,
            ses: sums.ses.into_iter().map(|one| (one.se.name.to_string(), one.replicas)).collect(),
            owners: owners.into_iter().map(|(owner, usage)| (json::owner(&owner), usage)).collect(),
        })
    }

    /// Returns the metrics of the catalogue's contents.
    async fn of_catalogue(&self, catalogue: &Catalogue) -> Result<Vec<Sample>> {
        let small = |value: u128| u64::try_from(value).unwrap_or(u64::MAX);
        let sums = catalogue.sums(SES_SHOWN_MAX).await?;
        let mut samples = vec![
            table::FILES.is(sums.tree.files),
            table::REPLICAS.is(sums.tree.replicas),
            table::FILE_BYTES.is(small(sums.tree.bytes + sums.tree.member_bytes)),
            table::REPLICA_BYTES.is(small(sums.tree.replica_bytes)),
        ];
        for one in sums.ses {
            let name = one.se.name.to_string();
            samples.extend([
                table::SE_FILES.of(name.clone(), one.replicas.replicas),
                table::SE_BYTES.of(name.clone(), small(one.replicas.replica_bytes)),
                table::SE_DELETIONS.of(name.clone(), one.deletions.replicas),
                table::SE_DELETION_BYTES.of(name.clone(), small(one.deletions.replica_bytes)),
                table::SE_ONLINE.of(name.clone(), u64::from(one.se.status == SeStatus::Online)),
            ]);
            let visited = self.instruments.visits.of(one.se.number);
            let redirects = |protocol: &'static str, count| {
                table::SE_REDIRECTS.with([name.clone().into(), protocol.into()], count)
            };
            samples.push(redirects("xrootd", visited.by_xrootd));
            samples.push(redirects("http", visited.by_http));
            samples.push(table::SE_FAILURES.of(name, visited.failures));
        }
        Ok(samples)
    }
}
