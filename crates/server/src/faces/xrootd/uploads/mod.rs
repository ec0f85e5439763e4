//! Files that clients write by this protocol. They are booked when they are opened ([`opening`]); nobody tells the catalogue
//! when they are whole, so the storage element is asked ([`visit`]), again and again until the booking expires, and at once
//! when somebody asks for the name: a file that is whole, closed, and of the size and checksum booked is committed.

mod kept;
pub(super) mod opening;
mod visit;

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use exacat_model::{
    ChecksumAlgorithm, Checksums, Error, ErrorKind, Guid, Lfn, Operation, OperationId, Result,
};
use exacat_store::Clock;
use parking_lot::Mutex;
use tokio::sync::{Notify, mpsc};
use tokio::task::JoinSet;

use crate::admission::{Step, busy};
use crate::envelopes::{Access, Envelopes, Subject};
use crate::instruments::count;
use crate::randomness;
use crate::service::{Cancel, Phase, Service, Work};
use kept::Kept;
pub(super) use kept::Written;
use visit::{Found, Question, look};

/// The first look at a storage element is so long after somebody was sent there; each is twice as long after the one before,
const FIRST_LOOK: Duration = Duration::from_secs(1);
/// up to this.
const LOOKS_APART_MAX: Duration = Duration::from_secs(60);
/// Looks because of somebody who asks are so far apart.
const LOOKS_APART_MIN: Duration = Duration::from_millis(250);
/// So long somebody who asks for the name waits for a look.
const WAIT_FOR_LOOK: Duration = Duration::from_secs(5);
/// Looks at once: those at storage elements that take their time for a checksum should leave room for others.
const LOOKS_AT_ONCE: usize = 64;
/// How often it is seen to whose time has come.
const TICK: Duration = Duration::from_millis(200);

/// One that is being written.
struct Pending {
    written: Written,
    /// Held during a look.
    looked: tokio::sync::Mutex<Option<Instant>>,
    due: Mutex<Due>,
}

/// When it is looked at next.
struct Due {
    at: Instant,
    apart: Duration,
    /// Its task looks at it.
    under_way: bool,
}

impl Due {
    fn looked_at(&mut self) {
        self.under_way = false;
        self.at = Instant::now() + self.apart;
        self.apart = (self.apart * 2).min(LOOKS_APART_MAX);
    }
}

impl Pending {
    fn new(written: Written, first: Duration) -> Arc<Self> {
        let due = Due { at: Instant::now() + first, apart: first.max(FIRST_LOOK), under_way: false };
        Arc::new(Pending { written, looked: tokio::sync::Mutex::new(None), due: Mutex::new(due) })
    }
}

/// All of them, by GUID and by name.
#[derive(Default)]
struct Known {
    by_guid: HashMap<Guid, Arc<Pending>>,
    /// Of several under one name the last.
    by_name: HashMap<Lfn, Guid>,
}

impl Known {
    fn insert(&mut self, pending: Arc<Pending>) {
        let written = &pending.written;
        self.remove(written.guid);
        self.by_name.insert(written.lfn.clone(), written.guid);
        self.by_guid.insert(written.guid, pending);
    }

    fn remove(&mut self, guid: Guid) {
        if let Some(was) = self.by_guid.remove(&guid)
            && self.by_name.get(&was.written.lfn) == Some(&guid)
        {
            self.by_name.remove(&was.written.lfn);
        }
    }
}

/// See the module.
pub(super) struct Uploads {
    service: Arc<Service>,
    envelopes: Arc<Envelopes>,
    clock: Arc<dyn Clock>,
    kept: Arc<Kept>,
    known: Mutex<Known>,
    more: Notify,
}

impl Uploads {
    /// Those that are kept in a directory.
    pub fn open(
        service: Arc<Service>,
        envelopes: Arc<Envelopes>,
        clock: Arc<dyn Clock>,
        place: PathBuf,
    ) -> Result<Arc<Self>> {
        let kept = Arc::new(Kept::at(place));
        let mut known = Known::default();
        for written in kept.all()? {
            known.insert(Pending::new(written, Duration::ZERO));
        }
        Ok(Arc::new(Uploads {
            service,
            envelopes,
            clock,
            kept,
            known: Mutex::new(known),
            more: Notify::new(),
        }))
    }

    /// Is there room for one more?
    fn check_room(&self) -> Result<()> {
        let many = self.known.lock().by_guid.len() >= self.service.limits.xrootd_uploads_max;
        if many { Err(busy("files being written by this protocol")) } else { Ok(()) }
    }

    /// Looks after one from now on; what was known of its GUID before is over.
    async fn add(&self, written: Written) -> Result<()> {
        self.check_room()?;
        let (kept, keep) = (Arc::clone(&self.kept), written.clone());
        on_disk(move || kept.put(&keep)).await?;
        self.known.lock().insert(Pending::new(written, FIRST_LOOK));
        count(&self.service.instruments.counts.xrootd_writes);
        self.more.notify_one();
        Ok(())
    }

    /// Looks after them until the server stops.
    pub async fn work(self: Arc<Self>, alive: mpsc::Sender<()>) {
        let stopping = self.service.reached(Phase::Stopping);
        tokio::pin!(stopping);
        let mut looks = JoinSet::new();
        loop {
            for pending in self.due(LOOKS_AT_ONCE.saturating_sub(looks.len())) {
                let uploads = Arc::clone(&self);
                looks.spawn(async move { uploads.look_at(&pending).await });
            }
            let nothing = self.known.lock().by_guid.is_empty();
            tokio::select! {
                () = &mut stopping => break,
                Some(_) = looks.join_next() => {}
                () = self.more.notified(), if nothing => {}
                () = tokio::time::sleep(TICK), if !nothing => {}
            }
        }
        // A commit that was begun is seen to its end; a visit that takes long is not waited for.
        let _ =
            tokio::time::timeout(WAIT_FOR_LOOK, async { while looks.join_next().await.is_some() {} }).await;
        drop(alive);
    }

    /// Those whose time has come.
    fn due(&self, most: usize) -> Vec<Arc<Pending>> {
        let now = Instant::now();
        let known = self.known.lock();
        let mut all = Vec::new();
        for pending in known.by_guid.values() {
            if all.len() >= most {
                break;
            }
            let mut due = pending.due.lock();
            if !due.under_way && due.at <= now {
                due.under_way = true;
                all.push(Arc::clone(pending));
            }
        }
        all
    }

    /// Somebody asks for a name: if it is being written, a look is waited for, and shows in what is answered.
    pub async fn asked_for(self: &Arc<Self>, lfn: &Lfn) {
        let pending = {
            let known = self.known.lock();
            known.by_name.get(lfn).and_then(|guid| known.by_guid.get(guid)).cloned()
        };
        let Some(pending) = pending else { return };
        let uploads = Arc::clone(self);
        // As a task: who asks may go away, a commit that was begun may not.
        let look = tokio::spawn(async move { uploads.look_at(&pending).await });
        let _ = tokio::time::timeout(WAIT_FOR_LOOK, look).await;
    }

    async fn look_at(&self, pending: &Pending) {
        let mut looked = pending.looked.lock().await;
        let fresh = looked.is_some_and(|last| last.elapsed() < LOOKS_APART_MIN);
        let over = !fresh && self.is_over_after_look(&pending.written).await;
        if !fresh {
            *looked = Some(Instant::now());
        }
        drop(looked);
        pending.due.lock().looked_at();
        if over {
            self.forget(&pending.written).await;
        }
    }

    async fn forget(&self, written: &Written) {
        {
            let mut known = self.known.lock();
            // It may have been booked anew meanwhile, for another storage element.
            if known.by_guid.get(&written.guid).is_none_or(|now| now.written != *written) {
                return;
            }
            known.remove(written.guid);
        }
        let (kept, guid) = (Arc::clone(&self.kept), written.guid);
        if let Err(error) = on_disk(move || kept.forget(guid)).await {
            tracing::warn!(%error, %guid, "what was kept of an upload stays");
        }
    }

    /// Looks at the storage element, and does what follows; true if nothing more is to come.
    async fn is_over_after_look(&self, written: &Written) -> bool {
        if written.expires <= self.clock.now() {
            // What was booked is released by the worker for that.
            tracing::info!(lfn = %written.lfn, guid = %written.guid, "an upload was not whole before its booking expired");
            return true;
        }
        let question = match self.question(written) {
            Ok(question) => question,
            Err(error) => {
                tracing::warn!(%error, "a storage element cannot be asked");
                return false;
            }
        };
        match look(&question).await {
            Found::NotYet(why) => {
                tracing::debug!(lfn = %written.lfn, se = %written.se, why, "an upload is not whole yet");
                false
            }
            Found::Never(why) => self.give_up(written, &why).await,
            Found::Whole(checksums) => {
                let mut all = Checksums::none();
                for checksum in checksums {
                    if let Err(error) = all.add(checksum) {
                        return self.give_up(written, &error.message).await;
                    }
                }
                self.commit(written, all).await
            }
        }
    }

    fn question(&self, written: &Written) -> Result<Question> {
        let subject = Subject {
            lfn: &written.lfn,
            guid: written.guid,
            se: &written.se,
            pfn: &written.pfn,
            size: written.size,
            md5: written.checksums.get(ChecksumAlgorithm::Md5),
        };
        let envelope = self.envelopes.seal(written.owner.as_str(), Access::Read, &subject)?;
        Ok(Question {
            pfn: written.pfn.clone(),
            shown: format!("authz=Bearer%20{envelope}"),
            size: written.size,
            booked: written.checksums.iter().map(|checksum| checksum.algorithm()).collect(),
        })
    }

    async fn commit(&self, written: &Written, checksums: Checksums) -> bool {
        let (guid, se, size) = (written.guid, written.se.clone(), written.size);
        let commit = Operation::UploadCommit { guid, se, size, checksums };
        match self.ask_for(written, written.commit, commit).await {
            Ok(()) => {
                count(&self.service.instruments.counts.xrootd_committed);
                tracing::debug!(lfn = %written.lfn, se = %written.se, "an upload is whole");
                true
            }
            // It was committed or given up by somebody else, or has expired.
            Err(error) if error.kind == ErrorKind::NotFound => true,
            Err(error)
                if matches!(error.kind, ErrorKind::Exists | ErrorKind::Conflict | ErrorKind::Invalid) =>
            {
                self.give_up(written, &error.message).await
            }
            Err(error) => {
                tracing::warn!(%error, lfn = %written.lfn, "an upload is whole, and cannot be committed now");
                false
            }
        }
    }

    /// Nothing can come of it any more: what was booked is released, and what was written waits for its deletion.
    async fn give_up(&self, written: &Written, why: &str) -> bool {
        tracing::info!(lfn = %written.lfn, se = %written.se, why, "an upload is given up");
        let abort = Operation::UploadAbort { guid: written.guid, se: Some(written.se.clone()) };
        let done = match randomness::operation_id() {
            Ok(id) => self.ask_for(written, id, abort).await,
            Err(error) => Err(error),
        };
        match done {
            Ok(()) => {
                count(&self.service.instruments.counts.xrootd_given_up);
                true
            }
            Err(error) if error.kind == ErrorKind::NotFound => true,
            Err(error) => {
                tracing::warn!(%error, lfn = %written.lfn, "what was booked stays until it expires");
                !error.kind.is_retryable()
            }
        }
    }

    /// Asks the catalogue for whom a booking is of.
    async fn ask_for(&self, written: &Written, id: OperationId, operation: Operation) -> Result<()> {
        let service = &self.service;
        let caller = service.catalogue.caller_named(&written.owner).await?;
        let work = Work {
            asker: service.asker(caller),
            id,
            operation,
            consistency: None,
            deadline: Instant::now() + service.limits.deadline_max,
            cancel: Arc::new(Cancel::default()),
            step: Step::First,
        };
        service.ask(work).await.map(|_| ())
    }
}

/// Does something with files where it keeps nobody waiting.
async fn on_disk(work: impl FnOnce() -> Result<()> + Send + 'static) -> Result<()> {
    let lost = |error| Error::new(ErrorKind::Internal, format!("work on files was lost: {error}"));
    tokio::task::spawn_blocking(work).await.unwrap_or_else(|error| Err(lost(error)))
}
