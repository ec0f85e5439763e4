//! The server's own gauges at one moment, for Prometheus and for `exacat status`.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use exacat_model::TimeMs;
use exacat_model::answer::StatusPart;

use crate::activity::{Moment, Sampler};
use crate::scrape::{Gauge, Scrape};
use crate::service::Service;

impl Service {
    /// Returns the present values of the gauges.
    fn gauges(&self) -> Vec<Gauge> {
        // The log has its own count, because it is there before the server.
        let lost = self.log_lines_lost.get().map_or(0, |lost| lost.load(Ordering::Relaxed));
        self.instruments.counts.log_lines_lost.store(lost, Ordering::Relaxed);
        let admission = &self.admission;
        let mut gauges = vec![
            gauge("exacat_up_seconds", "Time since the start", self.started.elapsed().as_secs()),
            gauge("exacat_serving", "1 while it serves, 0 while it stops", u64::from(self.is_serving())),
            gauge(
                "exacat_output_bytes",
                "Bytes of answers that wait for their clients to read",
                self.instruments.output_bytes.load(Ordering::Relaxed),
            ),
            gauge(
                "exacat_activity_minutes_unwritten",
                "Minutes of the server's activity that could not be written to the disk",
                self.history.unwritten(),
            ),
            gauge("exacat_users", "Users with a connection", admission.users() as u64),
        ];
        let bounds = [
            ("connections", &admission.connections.network),
            ("connections-local", &admission.connections.local),
            ("connections-unauthenticated", &admission.connections.strangers),
            ("requests", &admission.requests),
            ("request-bytes", &admission.request_bytes),
            ("lookup-items", &admission.lookup_items),
            ("streams", &admission.streams),
            ("unread-bytes", &admission.unread_bytes),
            ("waits", &admission.waits),
            ("audits", &admission.audits),
        ];
        for (name, bound) in bounds {
            gauges.push(labelled("exacat_held", "In progress, by bound", "bound", name, bound.now() as u64));
        }
        for (name, bound) in bounds {
            gauges.push(labelled("exacat_held_max", "The bounds", "bound", name, bound.max() as u64));
        }
        for (name, bound) in bounds {
            gauges.push(labelled(
                "exacat_refused_at_bound",
                "Refused because a bound was reached",
                "bound",
                name,
                bound.refused(),
            ));
        }
        let lanes = [("heavy", &admission.heavy), ("bulk", &admission.bulk)];
        for (name, lane) in lanes {
            let running = lane.metrics().0 as u64;
            gauges.push(labelled("exacat_lane_running", "Running, by lane", "lane", name, running));
        }
        for (name, lane) in lanes {
            let waiting = lane.metrics().1 as u64;
            gauges.push(labelled(
                "exacat_lane_waiting",
                "Waiting for a slot, by lane",
                "lane",
                name,
                waiting,
            ));
        }
        for (name, lane) in lanes {
            gauges.push(labelled(
                "exacat_lane_refused",
                "Refused because the queue was full, by lane",
                "lane",
                name,
                lane.refused(),
            ));
        }
        gauges.push(Gauge {
            name: "exacat_clock_ahead_seconds",
            help: "Seconds by which the machine's clock is ahead of the time that is trusted; 0 if it is believed",
            label: None,
            value: self.catalogue.clock_jump().map_or(0, |jump| jump.ahead_ms() / 1000),
        });
        gauges.extend(self.workers.gauges());
        gauges
    }

    /// Returns the server's own parts of the status.
    pub(crate) fn status_parts(&self) -> Vec<StatusPart> {
        let mut metrics: Vec<(String, u64)> = self
            .gauges()
            .into_iter()
            .filter(|gauge| !gauge.name.starts_with("exacat_worker"))
            .map(Gauge::named)
            .collect();
        metrics.extend(self.instruments.counts_metrics());
        let notes = vec![format!("exacat {}, catalogue {}", env!("CARGO_PKG_VERSION"), self.catalogue_id)];
        vec![
            StatusPart { part: "server".to_owned(), metrics, notes },
            self.instruments.operations_part(),
            self.workers.part(),
        ]
    }

    /// Returns the store's own metrics; none if it gives none now.
    pub(crate) async fn store_metrics(&self) -> Vec<(String, u64)> {
        match self.catalogue.store().status().await {
            Ok(status) => {
                let mut metrics = status.metrics;
                metrics.push(("entries".to_owned(), status.entries));
                metrics.push(("revision".to_owned(), status.revision.0));
                metrics
            }
            Err(_) => Vec::new(),
        }
    }

    /// Returns the sums of the server at this moment.
    pub(crate) fn moment(&self, sampler: &mut Sampler, now: TimeMs) -> Moment {
        let mut metrics = self.instruments.counts_metrics();
        metrics.extend(self.gauges().into_iter().map(Gauge::named));
        sampler.read(now, &self.instruments, &self.board, metrics)
    }

    /// Returns all metrics for Prometheus.
    pub(crate) async fn scrape(&self) -> Scrape {
        let store = match self.catalogue.store().status().await {
            Ok(status) => Some(status),
            Err(error) => {
                tracing::warn!(%error, "the store gives no metrics");
                None
            }
        };
        let (instruments, board) = (Arc::clone(&self.instruments), Arc::clone(&self.board));
        Scrape { instruments, board, gauges: self.gauges(), store }
    }
}

fn gauge(name: &'static str, help: &'static str, value: u64) -> Gauge {
    Gauge { name, help, label: None, value }
}

fn labelled(name: &'static str, help: &'static str, label: &'static str, which: &str, value: u64) -> Gauge {
    Gauge { name, help, label: Some((label, which.to_owned())), value }
}
