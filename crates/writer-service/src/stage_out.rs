//! Stage-out: copies certified files to another storage element, verifies each copy, registers it, and only
//! then lets the bytes here be removed.
//!
//! A kill between any two steps leads to a repeat of the steps before. The target of a file follows from its
//! id, so that a repeat finds the copy of the attempt before.

use std::collections::HashMap;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use bytes::Bytes;
use exacat_model::{Error, ErrorKind, Result, SeName};
use exacat_wire::writer::{ByteRange, FileId};
use exacat_writer::FileStage;
use parking_lot::Mutex;
use tokio::sync::{Notify, Semaphore, mpsc, watch};
use tokio::task::JoinSet;

use crate::carrier::{Carrier, Load, carrier_of};
use crate::catalogue::{Catalogue, StagedReplica};
use crate::content::{Content, FileView, Pieces};
use crate::limits::{
    STAGE_CANDIDATES_MAX, STAGE_FILES, STAGE_LOOK_EVERY, STAGE_ORDER_WAIT, STAGE_ORDERS_MAX, STAGE_RETRY_MAX,
    STAGE_RETRY_MIN,
};
use crate::shapes::{WriterCopy, stage_name};

/// Copies to another storage element.
#[derive(Clone)]
pub struct StageOut {
    /// Name of the storage element in the catalogue.
    pub se: String,
    /// Beginning of the PFN of a copy; two digits of the file's id, `/` and its id follow.
    pub prefix: String,
    /// Way to the storage element.
    pub carrier: Arc<dyn Carrier>,
    /// Files that are copied at once.
    pub files_at_once: usize,
    /// Bytes in a second that are read for copies; none for no bound. It leaves the disks to the producers.
    pub bytes_per_second: Option<u64>,
}

/// Returns the PFN of the copy of a file.
pub fn target_of(prefix: &str, file: FileId) -> String {
    let id = file.to_string();
    format!("{}/{}/{id}", prefix.trim_end_matches('/'), &id[..2])
}

/// Bound of the bytes in a second.
struct Pace {
    bytes_per_second: Option<u64>,
    next: Mutex<Instant>,
}

impl Pace {
    /// Waits until so many bytes may pass.
    async fn pass(&self, bytes: u64) {
        let Some(most) = self.bytes_per_second.filter(|most| *most > 0) else { return };
        let until = {
            let mut next = self.next.lock();
            let begin = (*next).max(Instant::now());
            *next = begin + Duration::from_secs_f64(bytes as f64 / most as f64);
            begin
        };
        tokio::time::sleep_until(until.into()).await;
    }
}

/// Attempts of a file that failed.
struct Failed {
    attempts: u32,
    due: Instant,
}

/// Place of copies, and the way there.
struct Target {
    se: String,
    prefix: String,
    carrier: Arc<dyn Carrier>,
}

/// Copy that is there, verified and registered.
#[derive(Clone, Copy)]
struct Copied {
    /// Size of the file.
    bytes: u64,
    /// False if the target had it before.
    is_new: bool,
}

/// End of an attempt: none while it goes on.
type Outcome = Option<std::result::Result<Copied, (ErrorKind, String)>>;

/// An attempt on its way.
#[derive(Clone)]
struct Attempt {
    se: String,
    /// Bytes of the file that were read for it.
    carried: Arc<AtomicU64>,
    outcome: watch::Receiver<Outcome>,
}

/// Attempts on their way, one for each file.
#[derive(Default)]
struct Attempts {
    running: HashMap<FileId, Attempt>,
    tasks: JoinSet<()>,
    is_ended: bool,
}

/// The mover of a service. It copies by itself to the storage element of its settings, and by order to any.
pub(crate) struct Mover {
    /// Target of the copies that it makes by itself; none if it makes none.
    own: Option<Arc<Target>>,
    files_at_once: usize,
    places: Semaphore,
    content: Arc<Content>,
    catalogue: Arc<dyn Catalogue>,
    pace: Arc<Pace>,
    /// Failures of copies that it makes by itself.
    failed: Mutex<HashMap<FileId, Failed>>,
    attempts: Mutex<Attempts>,
    /// An attempt has ended, so that another file may begin.
    ended: Notify,
}

/// Passes pieces on at a bounded rate, and counts their bytes.
fn paced(mut pieces: Pieces, pace: Arc<Pace>, carried: Arc<AtomicU64>) -> mpsc::Receiver<io::Result<Bytes>> {
    let (to, paced) = mpsc::channel(1);
    tokio::spawn(async move {
        while let Some(piece) = pieces.recv().await {
            if let Ok(bytes) = &piece {
                pace.pass(bytes.len() as u64).await;
                carried.fetch_add(bytes.len() as u64, Ordering::Relaxed);
            }
            if to.send(piece).await.is_err() {
                return;
            }
        }
    });
    paced
}

/// Returns the time before attempt `attempts` + 1 of a file.
fn delay_after(attempts: u32) -> Duration {
    STAGE_RETRY_MIN
        .saturating_mul(2_u32.saturating_pow(attempts.saturating_sub(1).min(16)))
        .min(STAGE_RETRY_MAX)
}

impl Mover {
    pub(crate) fn new(
        settings: Option<StageOut>,
        content: Arc<Content>,
        catalogue: Arc<dyn Catalogue>,
    ) -> Arc<Self> {
        let files_at_once = settings.as_ref().map_or(STAGE_FILES, |of| of.files_at_once).max(1);
        let bytes_per_second = settings.as_ref().and_then(|of| of.bytes_per_second);
        let own = settings.map(|of| Target { se: of.se, prefix: of.prefix, carrier: of.carrier });
        Arc::new(Mover {
            own: own.map(Arc::new),
            files_at_once,
            places: Semaphore::new(files_at_once),
            content,
            catalogue,
            pace: Arc::new(Pace { bytes_per_second, next: Mutex::new(Instant::now()) }),
            failed: Mutex::default(),
            attempts: Mutex::default(),
            ended: Notify::new(),
        })
    }

    /// Copies files until the service ends.
    pub(crate) async fn run(self: Arc<Self>, mut is_ending: watch::Receiver<bool>) {
        loop {
            if let Some(own) = &self.own {
                self.begin_candidates(own);
            }
            tokio::select! {
                () = self.ended.notified() => {}
                () = tokio::time::sleep(STAGE_LOOK_EVERY) => {}
                _ = is_ending.changed() => break,
            }
        }
        // What is half done is done again after the next start.
        let mut tasks = {
            let mut attempts = self.attempts.lock();
            attempts.is_ended = true;
            std::mem::take(&mut attempts.tasks)
        };
        tasks.shutdown().await;
    }

    fn begin_candidates(self: &Arc<Self>, own: &Arc<Target>) {
        let hub = self.content.hub();
        let (found, waiting) = hub.with(|service, _| service.stage_candidates(STAGE_CANDIDATES_MAX));
        hub.measures().stage_out.waiting.set(waiting as u64);
        {
            let mut failed = self.failed.lock();
            if failed.len() > STAGE_CANDIDATES_MAX {
                failed.retain(|file, _| found.contains(file));
            }
        }
        for file in found {
            if self.attempts.lock().running.len() >= self.files_at_once {
                return;
            }
            if self.failed.lock().get(&file).is_none_or(|failed| failed.due <= Instant::now()) {
                // One that goes on already, by an order, goes on.
                let _ = self.begin(file, own);
            }
        }
    }

    /// Returns the attempt of a file that goes on, or begins one.
    fn begin(self: &Arc<Self>, file: FileId, to: &Arc<Target>) -> Result<Attempt> {
        let mut attempts = self.attempts.lock();
        while let Some(ended) = attempts.tasks.try_join_next() {
            if let Err(error) = ended {
                tracing::error!(%error, "internal error: a copy stopped");
            }
        }
        if let Some(running) = attempts.running.get(&file) {
            let other = || format!("the file is being copied to {}: come again", running.se);
            let is_same = running.se == to.se;
            return if is_same { Ok(running.clone()) } else { Err(Error::new(ErrorKind::Conflict, other())) };
        }
        if attempts.is_ended {
            return Err(ending());
        }
        if attempts.running.len() >= STAGE_ORDERS_MAX {
            let what = format!("{STAGE_ORDERS_MAX} copies wait or go on: come again");
            return Err(Error::new(ErrorKind::Busy, what));
        }
        let (ended, outcome) = watch::channel(None);
        let attempt = Attempt { se: to.se.clone(), carried: Arc::default(), outcome };
        attempts.running.insert(file, attempt.clone());
        let leave = Leave { mover: Arc::clone(self), file };
        let (to, carried) = (Arc::clone(to), Arc::clone(&attempt.carried));
        attempts.tasks.spawn(async move {
            let mover = &leave.mover;
            let Ok(_place) = mover.places.acquire().await else { return };
            let outcome = mover.attempt(file, &to, &carried).await;
            let _nobody_waits = ended.send(Some(outcome.map_err(|error| (error.kind, error.message))));
        });
        Ok(attempt)
    }

    async fn attempt(&self, file: FileId, to: &Target, carried: &Arc<AtomicU64>) -> Result<Copied> {
        let measures = &self.content.hub().measures().stage_out;
        let call = measures.copies.begin();
        let outcome = self.stage(file, to, carried).await;
        match &outcome {
            Ok(copied) => {
                call.end(None);
                measures.bytes.add(copied.bytes);
                measures.copies.last_failure.lock().clear();
                self.failed.lock().remove(&file);
            }
            Err(error) => {
                call.end(Some(&format!("{file}: {error}")));
                tracing::warn!(%file, se = to.se, %error, "a file was not copied to another storage element");
                if self.own.as_ref().is_some_and(|own| own.se == to.se) {
                    let mut failed = self.failed.lock();
                    let of = failed.entry(file).or_insert(Failed { attempts: 0, due: Instant::now() });
                    of.attempts = of.attempts.saturating_add(1);
                    of.due = Instant::now() + delay_after(of.attempts);
                }
            }
        }
        outcome
    }

    /// Does all steps of a file, as far as they are not done.
    async fn stage(&self, file: FileId, to: &Target, carried: &Arc<AtomicU64>) -> Result<Copied> {
        let hub = self.content.hub();
        let found = self.content.find(file).filter(|found| found.is_certified);
        let gone = || Error::new(ErrorKind::NotFound, "the file is not here any more");
        let found = found.ok_or_else(gone)?;
        let unknown = || Error::new(ErrorKind::Corrupt, "the checksum of the file is not known here");
        let (bytes, adler32) = (found.length, found.adler32.ok_or_else(unknown)?);
        let target = target_of(&to.prefix, file);
        let is_new = !to.carrier.holds(&target, bytes, adler32).await?;
        if is_new {
            let load = Load { file, size: bytes, adler32, pieces: self.pieces(found, carried) };
            to.carrier.put(load, &target).await?;
        }
        let replica = StagedReplica { file, se: to.se.clone(), pfn: target, size: bytes, adler32 };
        self.catalogue.add_replica(&replica).await.map_err(|failure| {
            Error::new(ErrorKind::Unavailable, format!("the replica is not registered: {}", failure.reason))
        })?;
        let noted = hub.with(|service, now| service.staged(file, now));
        noted.map_err(|reason| Error::new(ErrorKind::Unavailable, reason))?;
        Ok(Copied { bytes, is_new })
    }

    fn pieces(&self, found: FileView, carried: &Arc<AtomicU64>) -> mpsc::Receiver<io::Result<Bytes>> {
        let range = ByteRange { from: 0, to: found.length };
        let pieces = self.content.open(found, range, self.catalogue.own_credential());
        paced(pieces, Arc::clone(&self.pace), Arc::clone(carried))
    }

    /// Copies a file to a storage element now, by order, and waits for a while. The copy goes on without its
    /// caller, who comes again for its end.
    ///
    /// # Errors
    /// *Not found*: nothing of the file is here, or no storage element has the name. *Conflict*: the file is
    /// not certified here, or the service copies to another storage element. Otherwise the copy failed.
    pub(crate) async fn order(self: &Arc<Self>, file: FileId, se: &str) -> Result<WriterCopy> {
        let status = self.content.hub().with(|service, now| service.file(file, now));
        let none = || Error::new(ErrorKind::NotFound, format!("the service has nothing of the file {file}"));
        let status = status.ok_or_else(none)?;
        let refused = |what: String| Err(Error::new(ErrorKind::Conflict, what));
        if !matches!(status.stage, FileStage::Certified | FileStage::Staged) {
            return refused(format!("the file is {}: {}", stage_name(status.stage), status.reason));
        }
        if !status.is_certifier {
            return refused("another service certified the file, and copies it: ask that one".to_owned());
        }
        let to = self.target(se).await?;
        let mut attempt = self.begin(file, &to)?;
        let pfn = target_of(&to.prefix, file);
        let mut copy = WriterCopy { file: file.to_string(), se: to.se.clone(), pfn, ..WriterCopy::default() };
        let ended = tokio::time::timeout(STAGE_ORDER_WAIT, attempt.outcome.wait_for(Option::is_some)).await;
        let outcome = match ended {
            Err(_) => None,
            Ok(outcome) => outcome.map_err(|_| ending())?.clone(),
        };
        match outcome {
            None => {
                "running".clone_into(&mut copy.state);
                (copy.bytes, copy.carried_bytes) = (status.bytes, attempt.carried.load(Ordering::Relaxed));
            }
            Some(Ok(copied)) => {
                if copied.is_new { "copied" } else { "there" }.clone_into(&mut copy.state);
                (copy.bytes, copy.carried_bytes) =
                    (copied.bytes, if copied.is_new { copied.bytes } else { 0 });
            }
            Some(Err((kind, message))) => return Err(Error::new(kind, message)),
        }
        Ok(copy)
    }

    /// Returns the target of an order: that of the settings, or the place of the storage element in the
    /// catalogue. A service that copies by itself has one target, so that *staged* means that one.
    async fn target(&self, se: &str) -> Result<Arc<Target>> {
        let se = SeName::parse(se)?;
        match &self.own {
            Some(own) if own.se == se.as_str() => Ok(Arc::clone(own)),
            Some(own) => {
                let what = format!("this service copies to {} (--stage-out): name that one", own.se);
                Err(Error::new(ErrorKind::Conflict, what))
            }
            None => {
                let prefix = self.catalogue.prefix_of(&se).await?;
                let carrier = carrier_of(&prefix)?;
                Ok(Arc::new(Target { se: se.to_string(), prefix, carrier }))
            }
        }
    }
}

fn ending() -> Error {
    Error::new(ErrorKind::Unavailable, "the copy was stopped, as the service ends: come again")
}

/// Takes an attempt from the list at its end, however it ends.
struct Leave {
    mover: Arc<Mover>,
    file: FileId,
}

impl Drop for Leave {
    fn drop(&mut self) {
        self.mover.attempts.lock().running.remove(&self.file);
        self.mover.ended.notify_one();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attempts_come_again_later_and_later_up_to_a_bound() {
        let delays: Vec<Duration> = [1, 2, 3, 100, u32::MAX].map(delay_after).into();
        assert_eq!(delays[..3], [STAGE_RETRY_MIN, 2 * STAGE_RETRY_MIN, 4 * STAGE_RETRY_MIN]);
        assert_eq!(delays[3..], [STAGE_RETRY_MAX, STAGE_RETRY_MAX]);
        let file = FileId([0xab; 16]);
        assert_eq!(target_of("file:///a/", file), format!("file:///a/ab/{file}"));
    }

    /// Property: pieces pass at the rate of the setting, whoever waits.
    #[tokio::test(start_paused = true)]
    async fn rate_of_copies_is_bounded() {
        let pace = Pace { bytes_per_second: Some(1000), next: Mutex::new(Instant::now()) };
        let begun = tokio::time::Instant::now();
        for _ in 0..11 {
            pace.pass(100).await;
        }
        // The first piece passes at once. The clock of the runtime is ahead of the one of the machine.
        assert!(begun.elapsed() >= Duration::from_millis(900), "{:?}", begun.elapsed());
    }
}
