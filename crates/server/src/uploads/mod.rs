//! Uploads whose clients report no end: those over XRootD's protocol and over HTTP. Nobody reports when the
//! file is complete, so the server asks the storage element ([`visit`]). It does so repeatedly
//! until the reservation expires, and at once when a request reads the name or lists its directory.
//! It commits a file that is closed and has the reserved size and checksum. A client that removes
//! the name aborts the upload.

mod checks;
mod kept;
mod visit;
mod web;

use std::collections::{BTreeMap, HashMap};
use std::ops::Bound;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use exacat_model::{ChecksumAlgorithm, Checksums, Error, ErrorKind, Guid, Lfn, Operation, Result};
use exacat_store::Clock;
use futures::StreamExt;
use parking_lot::Mutex;
use tokio::sync::{Notify, Semaphore, mpsc};
use tokio::task::JoinSet;

use crate::admission::{Step, busy};
use crate::data_server::{Target, WebClient, WebFile, web_url};
use crate::envelopes::{Access, Envelopes, Subject};
use crate::instruments::count;
use crate::service::{Cancel, OperationTask, Phase, Service};
use crate::settings::ChecksumServer;
use kept::Kept;
pub(crate) use kept::Written;
use visit::{Question, Visited};

/// Time from a redirection to the first visit; the interval doubles with each further visit.
const FIRST_VISIT_AFTER: Duration = Duration::from_secs(1);
/// Further visits to a storage element that does not confirm a copy at once.
const CONFIRM_TRIES: u32 = 5;
/// Longest interval between visits.
const VISIT_INTERVAL_MAX: Duration = Duration::from_secs(60);
/// Shortest pause between two visits for one upload.
const VISIT_INTERVAL_MIN: Duration = Duration::from_millis(250);
/// Longest wait of a request for the visits that it caused.
const WAIT_FOR_VISITS: Duration = Duration::from_secs(5);
/// Most scheduled visits at once, and as many again that requests cause. Storage elements with slow
/// checksums should leave room for others.
const VISITS_AT_ONCE: usize = 64;
/// Pause before the commit of an upload whose owner asked for its checksum. A client that finds a
/// wrong checksum removes the file at once, before anyone should see it.
const VERDICT_TIME: Duration = Duration::from_secs(1);
/// Interval at which due visits are started.
const TICK: Duration = Duration::from_millis(200);

/// One upload in progress.
pub(crate) struct Pending {
    pub written: Written,
    /// Held during a visit.
    last_visit: Arc<tokio::sync::Mutex<LastVisit>>,
    due: Mutex<Due>,
}

/// The last visit for an upload.
#[derive(Default)]
struct LastVisit {
    begun: Option<Instant>,
    ended: Option<Instant>,
    /// True if the upload has ended.
    over: bool,
}

/// Purpose of a visit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Purpose {
    /// Commit the file if it is complete.
    Commit,
    /// Report its checksums to its owner, who may refuse the file because of them.
    Checksum,
}

/// Schedule of the next visit.
struct Due {
    at: Instant,
    interval: Duration,
    /// True while its task visits.
    under_way: bool,
}

impl Due {
    fn visited(&mut self) {
        self.under_way = false;
        self.at = Instant::now() + self.interval;
        self.interval = (self.interval * 2).min(VISIT_INTERVAL_MAX);
    }
}

impl Pending {
    fn new(written: Written, first: Duration) -> Arc<Self> {
        let due =
            Due { at: Instant::now() + first, interval: first.max(FIRST_VISIT_AFTER), under_way: false };
        Arc::new(Pending { written, last_visit: Arc::default(), due: Mutex::new(due) })
    }
}

/// All uploads in progress, by GUID and by name.
#[derive(Default)]
struct PendingUploads {
    by_guid: HashMap<Guid, Arc<Pending>>,
    /// Ordered by name, so that the names below a directory are adjacent. Several clients may write
    /// one name.
    by_name: BTreeMap<String, Vec<Guid>>,
}

impl PendingUploads {
    fn insert(&mut self, pending: Arc<Pending>) {
        let written = &pending.written;
        self.remove(written.guid);
        self.by_name.entry(written.lfn.as_str().to_owned()).or_default().push(written.guid);
        self.by_guid.insert(written.guid, pending);
    }

    fn remove(&mut self, guid: Guid) {
        let Some(was) = self.by_guid.remove(&guid) else { return };
        let name = was.written.lfn.as_str();
        if let Some(guids) = self.by_name.get_mut(name) {
            guids.retain(|other| *other != guid);
            if guids.is_empty() {
                self.by_name.remove(name);
            }
        }
    }

    fn named(&self, lfn: &Lfn) -> Vec<Arc<Pending>> {
        let guids = self.by_name.get(lfn.as_str()).into_iter().flatten();
        guids.filter_map(|guid| self.by_guid.get(guid).cloned()).collect()
    }

    fn below(&self, directory: &Lfn) -> Vec<Arc<Pending>> {
        let prefix = if directory.is_root() { "/".to_owned() } else { format!("{}/", directory.as_str()) };
        let names = self.by_name.range::<str, _>((Bound::Included(prefix.as_str()), Bound::Unbounded));
        let guids = names.take_while(|(name, _)| name.starts_with(&prefix)).flat_map(|(_, guids)| guids);
        guids.filter_map(|guid| self.by_guid.get(guid).cloned()).collect()
    }
}

/// Parts with which the tracker asks storage elements.
pub(crate) struct VisitContext {
    pub envelopes: Arc<Envelopes>,
    pub clock: Arc<dyn Clock>,
    pub web: Arc<WebClient>,
    /// Servers that report checksums in place of those with the files.
    pub checksums: Vec<ChecksumServer>,
}

/// Tracker of all uploads in progress.
pub(crate) struct Uploads {
    service: Arc<Service>,
    context: VisitContext,
    kept: Arc<Kept>,
    index: Mutex<PendingUploads>,
    more: Notify,
    /// Seats for the visits that requests cause.
    seats: Arc<Semaphore>,
}

impl Uploads {
    /// Loads the uploads stored in a directory.
    pub(crate) fn open(service: Arc<Service>, context: VisitContext, place: PathBuf) -> Result<Arc<Self>> {
        let kept = Arc::new(Kept::at(place));
        let mut index = PendingUploads::default();
        for written in kept.all()? {
            index.insert(Pending::new(written, Duration::ZERO));
        }
        Ok(Arc::new(Uploads {
            service,
            context,
            kept,
            index: Mutex::new(index),
            more: Notify::new(),
            seats: Arc::new(Semaphore::new(VISITS_AT_ONCE)),
        }))
    }

    /// Refuses an upload beyond the limit.
    pub(crate) fn check_room(&self) -> Result<()> {
        let many = self.index.lock().by_guid.len() >= self.service.limits.xrootd_uploads_max;
        if many { Err(busy("files being written by this protocol")) } else { Ok(()) }
    }

    /// Starts to track an upload, in place of an older one with its GUID.
    pub(crate) async fn add(&self, written: Written) -> Result<()> {
        self.check_room()?;
        let (kept, keep) = (Arc::clone(&self.kept), written.clone());
        on_disk(move || kept.put(&keep)).await?;
        self.index.lock().insert(Pending::new(written, FIRST_VISIT_AFTER));
        count(&self.service.instruments.counts.xrootd_writes);
        self.more.notify_one();
        Ok(())
    }

    /// Visits uploads when due, until the server stops.
    pub(crate) async fn work(self: Arc<Self>, alive: mpsc::Sender<()>) {
        let stopping = self.service.reached(Phase::Stopping);
        tokio::pin!(stopping);
        let mut visits = JoinSet::new();
        loop {
            for pending in self.due(VISITS_AT_ONCE.saturating_sub(visits.len())) {
                let uploads = Arc::clone(&self);
                visits.spawn(async move { uploads.visit_when_due(&pending).await });
            }
            let nothing = self.index.lock().by_guid.is_empty();
            tokio::select! {
                () = &mut stopping => break,
                Some(_) = visits.join_next() => {}
                () = self.more.notified(), if nothing => {}
                () = tokio::time::sleep(TICK), if !nothing => {}
            }
        }
        // Await commits that have started, but not long visits.
        let _ = tokio::time::timeout(WAIT_FOR_VISITS, async { while visits.join_next().await.is_some() {} })
            .await;
        drop(alive);
    }

    /// Returns the uploads that are due.
    fn due(&self, most: usize) -> Vec<Arc<Pending>> {
        let now = Instant::now();
        let index = self.index.lock();
        let mut all = Vec::new();
        for pending in index.by_guid.values() {
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

    /// Returns the uploads of a name.
    pub(crate) fn named(&self, lfn: &Lfn) -> Vec<Arc<Pending>> {
        self.index.lock().named(lfn)
    }

    /// Returns the uploads of names below a directory, at any depth.
    pub(crate) fn below(&self, directory: &Lfn) -> Vec<Arc<Pending>> {
        self.index.lock().below(directory)
    }

    /// Visits uploads, so that the next answer to a request includes the complete ones. Waits no
    /// longer than [`WAIT_FOR_VISITS`].
    pub(crate) async fn check(self: &Arc<Self>, pending: Vec<Arc<Pending>>) {
        if pending.is_empty() {
            return;
        }
        // A visit that started before this request may have been too early.
        let since = Instant::now();
        let visits =
            futures::stream::iter(pending).for_each_concurrent(VISITS_AT_ONCE, |pending| async move {
                self.visit_since(&pending, since, Purpose::Commit, Some(&self.seats)).await;
            });
        let _ = tokio::time::timeout(WAIT_FOR_VISITS, visits).await;
    }

    /// Returns the checksums of a complete upload before its commit; none if it is incomplete or
    /// was committed meanwhile.
    pub(crate) async fn checksums_of(self: &Arc<Self>, pending: &Arc<Pending>) -> Option<Checksums> {
        let visit = self.visit_since(pending, Instant::now(), Purpose::Checksum, Some(&self.seats));
        tokio::time::timeout(WAIT_FOR_VISITS, visit).await.ok().flatten()
    }

    /// Stops tracking an upload that its client aborted.
    pub(crate) async fn given_up(&self, pending: &Pending) {
        count(&self.service.instruments.counts.xrootd_given_up);
        self.forget(&pending.written).await;
    }

    async fn visit_when_due(self: &Arc<Self>, pending: &Arc<Pending>) {
        self.visit_since(pending, Instant::now(), Purpose::Commit, None).await;
        pending.due.lock().visited();
    }

    /// Visits for an upload, unless a visit that started since then is done. The visit continues if
    /// the caller goes away, because a commit that started must end.
    async fn visit_since(
        self: &Arc<Self>,
        pending: &Arc<Pending>,
        since: Instant,
        purpose: Purpose,
        seats: Option<&Arc<Semaphore>>,
    ) -> Option<Checksums> {
        let mut last_visit = Arc::clone(&pending.last_visit).lock_owned().await;
        if last_visit.over || last_visit.begun.is_some_and(|begun| begun >= since) {
            return None;
        }
        if let Some(ended) = last_visit.ended {
            tokio::time::sleep_until((ended + VISIT_INTERVAL_MIN).into()).await;
        }
        let seat = match seats {
            Some(seats) => Some(Arc::clone(seats).acquire_owned().await.ok()?),
            None => None,
        };
        last_visit.begun = Some(Instant::now());
        let (uploads, pending) = (Arc::clone(self), Arc::clone(pending));
        let visit = tokio::spawn(async move {
            let (over, checksums) = uploads.visit(&pending, purpose).await;
            last_visit.ended = Some(Instant::now());
            last_visit.over = over;
            if over {
                uploads.forget(&pending.written).await;
            }
            drop((last_visit, seat));
            checksums
        });
        visit.await.ok().flatten()
    }

    async fn forget(&self, written: &Written) {
        {
            let mut index = self.index.lock();
            // It may have been reserved anew meanwhile, for another storage element.
            if index.by_guid.get(&written.guid).is_none_or(|now| now.written != *written) {
                return;
            }
            index.remove(written.guid);
        }
        let (kept, guid) = (Arc::clone(&self.kept), written.guid);
        if let Err(error) = on_disk(move || kept.forget(guid)).await {
            tracing::warn!(%error, %guid, "the file of a finished upload could not be removed");
        }
    }

    /// Asks the storage element, and acts on the result. Returns whether the upload has ended, and
    /// the checksums for its owner.
    async fn visit(&self, pending: &Pending, purpose: Purpose) -> (bool, Option<Checksums>) {
        let written = &pending.written;
        if written.expires <= self.context.clock.trusted() {
            // The worker for expired reservations releases it.
            tracing::info!(lfn = %written.lfn, guid = %written.guid, "an upload was not whole before its reservation expired");
            return (true, None);
        }
        let question = match self.question(written) {
            Ok(question) => question,
            Err(error) => {
                tracing::warn!(%error, "a storage element cannot be visited");
                return (false, None);
            }
        };
        let checksums = match self.visit_element(&question).await {
            Visited::NotYet(why) => {
                tracing::debug!(lfn = %written.lfn, se = %written.se, why, "an upload is not whole yet");
                return (false, None);
            }
            Visited::Never(why) => return (self.give_up(written, &why).await, None),
            Visited::Whole(checksums) => checksums,
        };
        let mut all = Checksums::none();
        for checksum in checksums {
            if let Err(error) = all.add(checksum) {
                return (self.give_up(written, &error.message).await, None);
            }
        }
        match purpose {
            Purpose::Commit => (self.commit(written, all).await, None),
            Purpose::Checksum => {
                let mut due = pending.due.lock();
                due.at = due.at.max(Instant::now() + VERDICT_TIME);
                (false, Some(all))
            }
        }
    }

    fn question(&self, written: &Written) -> Result<Question> {
        let mut subject = Subject {
            lfn: &written.lfn,
            guid: written.guid,
            se: &written.se,
            pfn: &written.pfn,
            size: written.size,
            md5: written.checksums.get(ChecksumAlgorithm::Md5),
        };
        let owner = written.owner.as_str();
        let envelope = self.context.envelopes.seal(owner, Access::Read, &subject)?;
        let se = self.service.catalogue.storage_element(&written.se);
        let web = match se.and_then(|se| web_url(&se, &written.pfn)) {
            Some(url) => {
                subject.pfn = &url;
                let token = self.context.envelopes.seal(owner, Access::Read, &subject)?;
                Some(WebFile { url, token })
            }
            None => None,
        };
        Ok(Question {
            pfn: written.pfn.clone(),
            envelope_field: format!("authz=Bearer%20{envelope}"),
            web,
            size: written.size,
            reserved: written.checksums.iter().map(|checksum| checksum.algorithm()).collect(),
            checksums: self.context.checksums.clone(),
        })
    }

    /// Visits a storage element: by root://, or over HTTPS where it is not reached so.
    async fn visit_element(&self, question: &Question) -> Visited {
        let by_root = Target::parse(&question.pfn).is_some_and(|target| !target.secure);
        match &question.web {
            Some(file) if !by_root => web::visit(question, file, &self.context.web).await,
            _ => visit::visit_all(question).await,
        }
    }

    /// Waits until a storage element confirms a copy that was just written, and returns its checksums;
    /// or the reason why it does not.
    pub(crate) async fn confirm(&self, written: &Written) -> std::result::Result<Checksums, String> {
        let question = self.question(written).map_err(|error| error.message)?;
        let mut tries = CONFIRM_TRIES;
        let checksums = loop {
            match self.visit_element(&question).await {
                Visited::Whole(checksums) => break checksums,
                Visited::NotYet(_) if tries > 0 => {
                    tries -= 1;
                    tokio::time::sleep(FIRST_VISIT_AFTER).await;
                }
                Visited::NotYet(why) | Visited::Never(why) => return Err(why),
            }
        };
        let mut all = Checksums::none();
        for checksum in checksums {
            all.add(checksum).map_err(|error| error.message)?;
        }
        if all.is_empty() || all.contradicts(&written.checksums) {
            return Err("the storage element tells another checksum, or none".to_owned());
        }
        Ok(all)
    }

    async fn commit(&self, written: &Written, checksums: Checksums) -> bool {
        let (guid, se, size) = (written.guid, written.se.clone(), written.size);
        let commit = Operation::UploadCommit { guid, se, size, checksums };
        match self.ask_for(written, commit).await {
            Ok(()) => {
                count(&self.service.instruments.counts.xrootd_committed);
                tracing::debug!(lfn = %written.lfn, se = %written.se, "an upload is whole");
                true
            }
            // Another client committed or aborted it, or it has expired.
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

    /// Aborts an upload that can no longer succeed: releases the reservation, and queues the
    /// written copy for deletion.
    async fn give_up(&self, written: &Written, why: &str) -> bool {
        tracing::info!(lfn = %written.lfn, se = %written.se, why, "an upload is given up");
        let abort = Operation::UploadAbort { guid: written.guid, se: Some(written.se.clone()) };
        let done = self.ask_for(written, abort).await;
        match done {
            Ok(()) => {
                count(&self.service.instruments.counts.xrootd_given_up);
                true
            }
            Err(error) if error.kind == ErrorKind::NotFound => true,
            Err(error) => {
                tracing::warn!(%error, lfn = %written.lfn, "the reservation stays until it expires");
                !error.kind.is_retryable()
            }
        }
    }

    /// Runs an operation as the owner of the reservation. Each attempt has an id of its own. A
    /// reservation ends with its commit or release, so neither happens twice. Attempts may continue
    /// for longer than the store remembers an id.
    async fn ask_for(&self, written: &Written, operation: Operation) -> Result<()> {
        let service = &self.service;
        let id = service.catalogue.new_operation_id()?;
        let caller = service.catalogue.caller_named(&written.owner).await?;
        let work = OperationTask {
            requester: service.requester(caller),
            id,
            operation,
            consistency: None,
            past: None,
            deadline: Instant::now() + service.limits.deadline_max,
            cancel: Arc::new(Cancel::default()),
            step: Step::First,
            uploads_checked: true,
        };
        service.ask_boxed(work).await.map(|_| ())
    }
}

/// Runs file operations on a thread where they block no request.
async fn on_disk(work: impl FnOnce() -> Result<()> + Send + 'static) -> Result<()> {
    let lost = |error| Error::new(ErrorKind::Internal, format!("work on files was lost: {error}"));
    tokio::task::spawn_blocking(work).await.unwrap_or_else(|error| Err(lost(error)))
}
