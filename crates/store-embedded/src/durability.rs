//! Tracks how far the log is durable, and lets readers wait for it.
//!
//! The writer applies a change to the shared state before the change is durable, so a reader may
//! see it early. Its caller may not. A read therefore notes the revision of the state it saw, and
//! its answer waits here until that revision is durable.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use exacat_model::{Error, ErrorKind, Result, Revision};
use tokio::sync::watch;

#[derive(Clone, Debug)]
struct Durable {
    revision: Revision,
    /// The last revision that is durable here. Beyond `revision` it waits for standbys.
    written: Revision,
    /// Reason why the log goes no further, once it has ended.
    ended: Option<Arc<str>>,
}

/// The last durable revision.
pub(crate) struct Durability {
    /// Copy of the last durable revision that is read without a lock.
    revision: AtomicU64,
    sender: watch::Sender<Durable>,
}

impl Durability {
    pub(crate) fn new(revision: Revision) -> Self {
        let (sender, _) = watch::channel(Durable { revision, written: revision, ended: None });
        Durability { revision: AtomicU64::new(revision.0), sender }
    }

    pub(crate) fn revision(&self) -> Revision {
        Revision(self.revision.load(Ordering::Acquire))
    }

    /// Notes that everything up to `revision` is durable here, and may wait for standbys.
    pub(crate) fn write(&self, revision: Revision) {
        self.sender.send_modify(|durable| durable.written = revision);
    }

    /// Returns the last revision that is durable here.
    pub(crate) fn written(&self) -> Revision {
        self.sender.borrow().written
    }

    /// Notes that everything up to `revision` is durable, and counts.
    pub(crate) fn advance(&self, revision: Revision) {
        // The copy comes first, because a woken waiter may read it at once.
        self.revision.store(revision.0, Ordering::Release);
        self.sender.send_modify(|durable| {
            durable.revision = revision;
            durable.written = durable.written.max(revision);
        });
    }

    /// Ends the progress of the log. The first reason stays.
    pub(crate) fn end(&self, why: &str) {
        self.sender.send_modify(|durable| {
            // The first reason is the cause, and later ones follow from it.
            durable.ended.get_or_insert_with(|| why.into());
        });
    }

    /// Reason why the log goes no further, if it has ended.
    pub(crate) fn ended(&self) -> Option<Arc<str>> {
        self.sender.borrow().ended.clone()
    }

    /// Waits until the log has ended, and returns the reason.
    pub(crate) async fn end_reached(&self) -> String {
        let mut receiver = self.sender.subscribe();
        match receiver.wait_for(|durable| durable.ended.is_some()).await {
            Ok(durable) => durable.ended.as_deref().unwrap_or_default().to_owned(),
            Err(_) => "the store is gone".to_owned(),
        }
    }

    /// Waits until this revision is durable, and counts; an error if it never will.
    pub(crate) async fn reached(&self, revision: Revision) -> Result<()> {
        self.wait(|durable| durable.revision, revision).await
    }

    /// Waits until this revision is durable here; an error if it never will be.
    pub(crate) async fn written_reached(&self, revision: Revision) -> Result<()> {
        self.wait(|durable| durable.written, revision).await
    }

    async fn wait(&self, of: impl Fn(&Durable) -> Revision, revision: Revision) -> Result<()> {
        // The common case needs no lock.
        if self.revision() >= revision {
            return Ok(());
        }
        let mut receiver = self.sender.subscribe();
        let state = receiver.wait_for(|durable| of(durable) >= revision || durable.ended.is_some()).await;
        let ended = match state {
            Ok(durable) if of(&durable) >= revision => return Ok(()),
            Ok(durable) => durable.ended.clone(),
            Err(_) => None,
        };
        let why = ended.as_deref().unwrap_or("the store is gone").to_owned();
        Err(Error::new(ErrorKind::Unavailable, why))
    }
}
