//! Background workers: each repeats a step of the catalogue and never overlaps itself. If there is
//! more to do, the next step follows at once or after the pause that the step requests. Otherwise
//! it follows after an interval.
//!
//! Intervals vary randomly, so that several servers of one catalogue do not run in step. After
//! errors a worker backs off.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use exacat_catalogue::Catalogue;
use exacat_catalogue::workers::StepReport;
use exacat_model::answer::StatusPart;
use exacat_model::{Error, ErrorKind, Result};
use exacat_store::Sample;
use futures::FutureExt;
use futures::future::BoxFuture;
use parking_lot::Mutex;
use tokio::sync::watch;

use crate::metric_table;
use crate::phase::Phase;
use crate::randomness;
use crate::settings::WorkerSettings;

/// The step of a worker.
type Step = Arc<dyn Fn(Arc<Catalogue>) -> BoxFuture<'static, Result<StepReport>> + Send + Sync>;

/// One worker, with its metrics.
pub(crate) struct Worker {
    name: &'static str,
    step: Step,
    enabled: watch::Sender<bool>,
    steps: AtomicU64,
    done: AtomicU64,
    errors: AtomicU64,
    errors_in_a_row: AtomicU64,
    running: AtomicU64,
    took_us: AtomicU64,
    last_error: Mutex<Option<String>>,
}

/// All workers of a server.
pub(crate) struct WorkerBook {
    workers: Vec<Arc<Worker>>,
}

impl WorkerBook {
    /// Makes the workers that every server has.
    pub(crate) fn new() -> Arc<Self> {
        Arc::new(WorkerBook {
            workers: vec![
                Worker::new(
                    "reservation-expiry",
                    Arc::new(|catalogue| async move { catalogue.expired_reservations_step().await }.boxed()),
                ),
                Worker::new(
                    "entry-expiry",
                    Arc::new(|catalogue| async move { catalogue.expired_entries_step().await }.boxed()),
                ),
                Worker::new(
                    "trash-purge",
                    Arc::new(|catalogue| async move { catalogue.trash_purge_step().await }.boxed()),
                ),
                Worker::new(
                    "token-expiry",
                    Arc::new(|catalogue| async move { catalogue.expired_tokens_step().await }.boxed()),
                ),
            ],
        })
    }

    /// Starts all workers. Each ends after its current step once the phase is beyond serving.
    pub(crate) fn start(
        &self,
        catalogue: &Arc<Catalogue>,
        settings: &WorkerSettings,
        phase: &watch::Receiver<Phase>,
    ) -> tokio::task::JoinSet<()> {
        let mut tasks = tokio::task::JoinSet::new();
        if settings.enabled {
            for worker in &self.workers {
                let work = Arc::clone(worker).work(Arc::clone(catalogue), settings.clone(), phase.clone());
                tasks.spawn(work);
            }
        }
        tasks
    }

    /// Returns the names of all workers.
    pub(crate) fn names(&self) -> impl Iterator<Item = &'static str> {
        self.workers.iter().map(|worker| worker.name)
    }

    /// Enables a worker, or stops it after its current step.
    pub(crate) fn enable(&self, name: &str, enabled: bool) -> Result<()> {
        let worker = self.workers.iter().find(|worker| worker.name == name).ok_or_else(|| {
            Error::not_found(format!(
                "no such worker: {name:.100?}; there are {}",
                self.names().collect::<Vec<_>>().join(", ")
            ))
        })?;
        worker.enabled.send_replace(enabled);
        tracing::info!(worker = worker.name, enabled, "worker set");
        Ok(())
    }

    /// Returns the workers' part of the status.
    pub(crate) fn part(&self) -> StatusPart {
        let mut part = StatusPart { part: "workers".to_owned(), ..StatusPart::default() };
        for worker in &self.workers {
            part.metrics.extend(worker.samples().iter().flat_map(Sample::shown));
            if !*worker.enabled.borrow() {
                part.notes.push(format!("{} is stopped", worker.name));
            }
            if let Some(error) = &*worker.last_error.lock() {
                part.notes.push(format!("{} failed last with: {error}", worker.name));
            }
        }
        part
    }

    /// Returns the metrics of all workers.
    pub(crate) fn samples(&self) -> Vec<Sample> {
        self.workers.iter().flat_map(|worker| worker.samples()).collect()
    }
}

impl Worker {
    fn new(name: &'static str, step: Step) -> Arc<Self> {
        Arc::new(Worker {
            name,
            step,
            enabled: watch::Sender::new(true),
            steps: AtomicU64::new(0),
            done: AtomicU64::new(0),
            errors: AtomicU64::new(0),
            errors_in_a_row: AtomicU64::new(0),
            running: AtomicU64::new(0),
            took_us: AtomicU64::new(0),
            last_error: Mutex::new(None),
        })
    }

    fn samples(&self) -> [Sample; 6] {
        let load = |value: &AtomicU64| value.load(Ordering::Relaxed);
        [
            metric_table::WORKER_STEPS.of(self.name, load(&self.steps)),
            metric_table::WORKER_DONE.of(self.name, load(&self.done)),
            metric_table::WORKER_ERRORS.of(self.name, load(&self.errors)),
            metric_table::WORKER_IN_A_ROW.of(self.name, load(&self.errors_in_a_row)),
            metric_table::WORKER_RUNNING.of(self.name, load(&self.running)),
            metric_table::WORKER_TIME.of(self.name, load(&self.took_us)),
        ]
    }

    async fn work(
        self: Arc<Self>,
        catalogue: Arc<Catalogue>,
        settings: WorkerSettings,
        mut phase: watch::Receiver<Phase>,
    ) {
        let mut enabled = self.enabled.subscribe();
        let mut pause = Duration::ZERO;
        loop {
            let ready = async {
                tokio::time::sleep(pause).await;
                // The sender lives in the worker, which lives as long as this.
                let _ = enabled.wait_for(|enabled| *enabled).await;
            };
            tokio::select! {
                () = ready => {}
                _ = phase.wait_for(|now| *now > Phase::Serving) => return,
            }
            pause = self.step_once(&catalogue, &settings).await;
        }
    }

    /// Runs one step, and returns the wait before the next.
    async fn step_once(&self, catalogue: &Arc<Catalogue>, settings: &WorkerSettings) -> Duration {
        self.running.store(1, Ordering::Relaxed);
        let began = Instant::now();
        let step = AssertUnwindSafe((self.step)(Arc::clone(catalogue))).catch_unwind();
        let runtime = tokio::runtime::Handle::current();
        let most = settings.step_time_max;
        // On a thread of its own: a step may take long, and must not delay look-ups.
        let task = tokio::task::spawn_blocking(move || {
            runtime.block_on(async move {
                match tokio::time::timeout(most, step).await {
                    Ok(Ok(report)) => report,
                    Ok(Err(_)) => Err(Error::new(ErrorKind::Internal, "a panic: see the log")),
                    Err(_) => Err(Error::new(ErrorKind::Unavailable, format!("not done within {most:?}"))),
                }
            })
        });
        let report = task.await.unwrap_or_else(|error| {
            Err(Error::new(ErrorKind::Internal, format!("a step was lost: {error}")))
        });
        self.running.store(0, Ordering::Relaxed);
        let took = u64::try_from(began.elapsed().as_micros()).unwrap_or(u64::MAX);
        self.took_us.fetch_add(took, Ordering::Relaxed);
        self.steps.fetch_add(1, Ordering::Relaxed);
        match report {
            Ok(report) => {
                self.done.fetch_add(report.done, Ordering::Relaxed);
                self.errors_in_a_row.store(0, Ordering::Relaxed);
                *self.last_error.lock() = None;
                if report.done > 0 {
                    tracing::debug!(
                        worker = self.name,
                        done = report.done,
                        more = report.more,
                        "worker step"
                    );
                }
                let asked = Duration::from_millis(report.pause_ms);
                if report.more { asked } else { asked.max(varied(settings.interval)) }
            }
            Err(error) => {
                self.errors.fetch_add(1, Ordering::Relaxed);
                let in_a_row = self.errors_in_a_row.fetch_add(1, Ordering::Relaxed) + 1;
                let pause = back_off(settings, in_a_row);
                tracing::warn!(
                    worker = self.name,
                    %error,
                    in_a_row,
                    pause_ms = u64::try_from(pause.as_millis()).unwrap_or(u64::MAX),
                    "worker step failed"
                );
                *self.last_error.lock() = Some(error.to_string());
                varied(pause)
            }
        }
    }
}

/// Returns the interval, doubled with every error in a row, up to the bound.
fn back_off(settings: &WorkerSettings, errors_in_a_row: u64) -> Duration {
    let doublings = u32::try_from(errors_in_a_row).unwrap_or(u32::MAX).min(30);
    settings.interval.saturating_mul(1 << doublings).min(settings.back_off_max.max(settings.interval))
}

/// Returns a time up to a fifth shorter or longer.
fn varied(time: Duration) -> Duration {
    // Without randomness the time does not vary; nothing else depends on it.
    let part = randomness::bytes().map_or(0.5, |[byte]| f64::from(byte) / 255.0);
    time.mul_f64(0.8 + 0.4 * part)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn back_off_doubles_up_to_its_bound() {
        let settings = WorkerSettings {
            interval: Duration::from_secs(5),
            back_off_max: Duration::from_secs(60),
            ..WorkerSettings::default()
        };
        let seconds: Vec<u64> =
            [1, 2, 3, 4, 100, u64::MAX].map(|errors| back_off(&settings, errors).as_secs()).to_vec();
        assert_eq!(seconds, [10, 20, 40, 60, 60, 60]);
    }

    #[test]
    fn variation_stays_within_a_fifth() {
        for _ in 0..1000 {
            let time = varied(Duration::from_secs(10));
            assert!((Duration::from_secs(8)..=Duration::from_secs(12)).contains(&time), "{time:?}");
        }
    }

    #[test]
    fn a_worker_is_stopped_by_its_name() {
        let book = WorkerBook::new();
        book.enable("trash-purge", false).unwrap();
        assert_eq!(book.part().notes, ["trash-purge is stopped"]);
        book.enable("trash-purge", true).unwrap();
        assert!(book.part().notes.is_empty());
        assert_eq!(book.enable("nonsense", true).unwrap_err().kind, ErrorKind::NotFound);
    }
}
