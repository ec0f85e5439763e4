//! The store as a source of followers, and as a follower.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use exacat_activity::{RequestState, on};
use exacat_model::{Result, Revision, SnapshotName};
use exacat_store::{FixedFiles, Followed, LogOffset, LogPiece};

use super::EmbeddedStore;
use crate::blocking::on_blocking_thread;
use crate::command::Command;
use crate::follow::{Fixed, piece};
use crate::snapshot::take::{self, LogPart};

impl EmbeddedStore {
    /// Returns the end of the log.
    pub async fn log_end(&self) -> Result<LogOffset> {
        self.append(Vec::new()).await
    }

    /// Appends a piece of the source's log to the log of a follower, and returns its end. All of it is
    /// durable then. `Conflict` if the piece does not continue the log here.
    pub async fn append(&self, frames: Vec<u8>) -> Result<LogOffset> {
        self.ask(|reply| Command::Follow { frames, reply }).await?
    }
}

#[async_trait]
impl Followed for EmbeddedStore {
    fn identity(&self) -> String {
        self.service().identity_text()
    }

    async fn log_after(&self, place: LogOffset, bytes_max: usize, wait: Duration) -> Result<LogPiece> {
        self.shared().check_open()?;
        let next = Revision(place.revision.0.saturating_add(1));
        let more = self.shared().durability.reached(next);
        if let Ok(reached) = on(RequestState::Change, tokio::time::timeout(wait, more)).await {
            reached?;
        }
        let shared = Arc::clone(self.shared());
        let clock = Arc::clone(&self.service().clock);
        let reading = on_blocking_thread(move || {
            let durable = shared.durability.revision();
            let piece = piece(&shared.history, place, durable, bytes_max)?;
            let late = piece.time.filter(|_| piece.up_to < durable);
            let age = late.map_or(0, |time| clock.trusted().0.saturating_sub(time.0));
            Ok(LogPiece {
                frames: piece.frames,
                up_to: piece.up_to,
                durable,
                age: Duration::from_millis(age),
            })
        });
        on(RequestState::HistoryRead, reading).await
    }

    async fn fix_files(&self) -> Result<Arc<dyn FixedFiles>> {
        let name = SnapshotName::parse("copy")?;
        let (making, pinned, _) = self.pin(&name, LogPart::Whole, "pinned", false).await?;
        let fixing = on_blocking_thread(move || {
            let disk = Arc::clone(&making.disk);
            // The catalogue goes on in its last segment.
            take::copy_last_segment(&*disk, &making.layout, pinned.end)?;
            take::finish(&*disk, &making.layout, &pinned)?;
            let (layout, revision) = (making.layout.clone(), pinned.label.revision);
            Ok(Arc::new(Fixed::new(disk, &layout, revision, making)?) as Arc<dyn FixedFiles>)
        });
        on(RequestState::Snapshot, fixing).await
    }
}
