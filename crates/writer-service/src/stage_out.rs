//! Stage-out: copies certified files to another storage element, verifies each copy, registers it, and only
//! then lets the bytes here be removed.
//!
//! A kill between any two steps leads to a repeat of the steps before. The target of a file follows from its
//! id, so that a repeat finds the copy of the attempt before.

use std::collections::HashMap;
use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use exacat_model::{Error, ErrorKind, Result};
use exacat_wire::writer::{ByteRange, FileId};
use parking_lot::Mutex;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;

use crate::carrier::{Carrier, Load};
use crate::catalogue::{Catalogue, StagedReplica};
use crate::content::{Content, FileView, Pieces};
use crate::limits::{STAGE_CANDIDATES_MAX, STAGE_LOOK_EVERY, STAGE_RETRY_MAX, STAGE_RETRY_MIN};
use crate::remote::Remote;

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

/// The mover of a service.
pub(crate) struct Mover {
    settings: StageOut,
    content: Arc<Content>,
    catalogue: Arc<dyn Catalogue>,
    pace: Arc<Pace>,
    failed: Mutex<HashMap<FileId, Failed>>,
}

/// Passes pieces on at a bounded rate.
fn paced(mut pieces: Pieces, pace: Arc<Pace>) -> mpsc::Receiver<io::Result<Bytes>> {
    let (to, paced) = mpsc::channel(1);
    tokio::spawn(async move {
        while let Some(piece) = pieces.recv().await {
            if let Ok(bytes) = &piece {
                pace.pass(bytes.len() as u64).await;
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
    pub(crate) fn new(settings: StageOut, content: Arc<Content>, catalogue: Arc<dyn Catalogue>) -> Self {
        let pace = Pace { bytes_per_second: settings.bytes_per_second, next: Mutex::new(Instant::now()) };
        Mover { settings, content, catalogue, pace: Arc::new(pace), failed: Mutex::default() }
    }

    /// Copies files until the service ends.
    pub(crate) async fn run(self: Arc<Self>, mut is_ending: watch::Receiver<bool>) {
        let mut copies: JoinSet<FileId> = JoinSet::new();
        let mut running: Vec<FileId> = Vec::new();
        loop {
            self.begin(&mut copies, &mut running);
            tokio::select! {
                Some(ended) = copies.join_next(), if !copies.is_empty() => match ended {
                    Ok(file) => running.retain(|other| *other != file),
                    // A copy stopped by a defect: the file is tried again with the next look.
                    Err(error) => {
                        tracing::error!(%error, "internal error: a copy stopped");
                        running.clear();
                        copies.shutdown().await;
                    }
                },
                () = tokio::time::sleep(STAGE_LOOK_EVERY) => {}
                _ = is_ending.changed() => break,
            }
        }
        // What is half done is done again after the next start.
        copies.shutdown().await;
    }

    fn begin(self: &Arc<Self>, copies: &mut JoinSet<FileId>, running: &mut Vec<FileId>) {
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
            if copies.len() >= self.settings.files_at_once.max(1) {
                return;
            }
            let is_early = self.failed.lock().get(&file).is_some_and(|failed| failed.due > Instant::now());
            if running.contains(&file) || is_early {
                continue;
            }
            running.push(file);
            let mover = Arc::clone(self);
            copies.spawn(async move {
                mover.attempt(file).await;
                file
            });
        }
    }

    async fn attempt(&self, file: FileId) {
        let measures = &self.content.hub().measures().stage_out;
        let call = measures.copies.begin();
        match self.stage(file).await {
            Ok(bytes) => {
                call.end(None);
                measures.bytes.add(bytes);
                measures.copies.last_failure.lock().clear();
                self.failed.lock().remove(&file);
            }
            Err(error) => {
                call.end(Some(&format!("{file}: {error}")));
                let mut failed = self.failed.lock();
                let of = failed.entry(file).or_insert(Failed { attempts: 0, due: Instant::now() });
                of.attempts = of.attempts.saturating_add(1);
                of.due = Instant::now() + delay_after(of.attempts);
                tracing::warn!(%file, se = self.settings.se, attempts = of.attempts, %error,
                    "a file was not copied to another storage element; it is tried again");
            }
        }
    }

    /// Does all steps of a file, as far as they are not done. Returns its bytes.
    async fn stage(&self, file: FileId) -> Result<u64> {
        let hub = self.content.hub();
        let found = self.content.find(file).filter(|found| found.is_certified);
        let gone = || Error::new(ErrorKind::NotFound, "the file is not here any more");
        let found = found.ok_or_else(gone)?;
        let unknown = || Error::new(ErrorKind::Corrupt, "the checksum of the file is not known here");
        let (size, adler32) = (found.length, found.adler32.ok_or_else(unknown)?);
        let target = target_of(&self.settings.prefix, file);
        if !self.settings.carrier.holds(&target, size, adler32).await? {
            let load = Load { file, size, adler32, pieces: self.pieces(found) };
            self.settings.carrier.put(load, &target).await?;
        }
        let replica = StagedReplica { file, se: self.settings.se.clone(), pfn: target, size, adler32 };
        self.catalogue.add_replica(&replica).await.map_err(|failure| {
            Error::new(ErrorKind::Unavailable, format!("the replica is not registered: {}", failure.reason))
        })?;
        let noted = hub.with(|service, now| service.staged(file, now));
        noted.map(|()| size).map_err(|reason| Error::new(ErrorKind::Unavailable, reason))
    }

    fn pieces(&self, found: FileView) -> mpsc::Receiver<io::Result<Bytes>> {
        let range = ByteRange { from: 0, to: found.length };
        let pieces = self.content.open(found, range, self.catalogue.own_credential());
        paced(pieces, Arc::clone(&self.pace))
    }
}

/// Copies a file of a service to a target, verified; for a program that is no service. Returns its bytes.
pub async fn carry(remote: &Remote, file: FileId, carrier: &dyn Carrier, target: &str) -> Result<u64> {
    let content = remote.content(&crate::catalogue::Readable::File(file), 0, false).await?;
    let unknown = || Error::new(ErrorKind::Conflict, "the file is not certified");
    let (size, adler32) = (content.length, content.adler32.ok_or_else(unknown)?);
    if carrier.holds(target, size, adler32).await? {
        return Ok(size);
    }
    let pieces = content.into_pieces();
    carrier.put(Load { file, size, adler32, pieces }, target).await?;
    Ok(size)
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
