//! How far the log is durable, and waiting for it.
//!
//! The writer applies a change to the shared state before the change is durable, so a reader may see it early. Its
//! caller may not: a read notes the revision of the state it saw, and its answer waits here until that is durable.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use exacat_model::{Error, ErrorKind, Result, Revision};
use tokio::sync::watch;

#[derive(Clone, Debug)]
struct Durable {
    revision: Revision,
    /// Why it will not go further, once that is so.
    ended: Option<Arc<str>>,
}

/// The last durable revision.
pub(crate) struct Durability {
    /// The same again, to be read without a lock.
    revision: AtomicU64,
    sender: watch::Sender<Durable>,
}

impl Durability {
    pub fn new(revision: Revision) -> Self {
        let (sender, _) = watch::channel(Durable { revision, ended: None });
        Durability { revision: AtomicU64::new(revision.0), sender }
    }

    pub fn revision(&self) -> Revision {
        Revision(self.revision.load(Ordering::Acquire))
    }

    /// Everything up to here is durable now.
    pub fn advance(&self, revision: Revision) {
        self.revision.store(revision.0, Ordering::Release);
        self.sender.send_modify(|durable| durable.revision = revision);
    }

    /// It will not go further. The first reason stays.
    pub fn end(&self, why: &str) {
        self.sender.send_modify(|durable| {
            durable.ended.get_or_insert_with(|| why.into());
        });
    }

    /// Why it will not go further, if so.
    pub fn ended(&self) -> Option<Arc<str>> {
        self.sender.borrow().ended.clone()
    }

    /// Returns once it will not go further, with the reason.
    pub async fn end_reached(&self) -> String {
        let mut receiver = self.sender.subscribe();
        match receiver.wait_for(|durable| durable.ended.is_some()).await {
            Ok(durable) => durable.ended.as_deref().unwrap_or_default().to_owned(),
            Err(_) => "the store is gone".to_owned(),
        }
    }

    /// Returns once this revision is durable; an error if it never will be.
    pub async fn reached(&self, revision: Revision) -> Result<()> {
        if self.revision() >= revision {
            return Ok(());
        }
        let mut receiver = self.sender.subscribe();
        let state =
            receiver.wait_for(|durable| durable.revision >= revision || durable.ended.is_some()).await;
        let ended = match state {
            Ok(durable) if durable.revision >= revision => return Ok(()),
            Ok(durable) => durable.ended.clone(),
            Err(_) => None,
        };
        let why = ended.as_deref().unwrap_or("the store is gone").to_owned();
        Err(Error::new(ErrorKind::Unavailable, why))
    }
}
