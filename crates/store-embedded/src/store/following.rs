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
use crate::filtered::{FilteredMark, FilteredReached, FilteredStep};
use crate::follow::{self, Fixed, piece};
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

    /// Appends a piece as [`EmbeddedStore::append`] does, and does not wait until it is durable. Returns the
    /// last change that is.
    pub async fn append_ahead(&self, frames: Vec<u8>) -> Result<Revision> {
        self.ask(|reply| Command::FollowAhead { frames, reply }).await??;
        Ok(self.shared().durability.written())
    }

    /// Carries out a step of a filtered follower. All of it is durable then.
    pub async fn follow_filtered(&self, step: FilteredStep) -> Result<FilteredReached> {
        self.ask(|reply| Command::Filtered { step, reply }).await?
    }

    /// Returns how far a filtered follower has applied the changes of its source.
    pub fn filtered_mark(&self) -> FilteredMark {
        self.shared().positions.as_ref().map(|positions| positions.mark()).unwrap_or_default()
    }
}

impl EmbeddedStore {
    /// Returns the log after a place, without a wait.
    async fn piece_after(&self, place: LogOffset, bytes_max: usize) -> Result<LogPiece> {
        let (shared, clock) = (Arc::clone(self.shared()), Arc::clone(&self.service().clock));
        let reading = on_blocking_thread(move || {
            let durable = shared.durability.written();
            let piece = piece(&shared.history, place, durable, bytes_max)?;
            let digest = {
                let state = shared.state.read();
                (state.revision == piece.up_to).then(|| state.digest())
            };
            let late = piece.time.filter(|_| piece.up_to < durable);
            let age = late.map_or(0, |time| clock.trusted().0.saturating_sub(time.0));
            let age = Duration::from_millis(age);
            Ok(LogPiece { frames: piece.frames, up_to: piece.up_to, durable, age, digest })
        });
        on(RequestState::HistoryRead, reading).await
    }
}

#[async_trait]
impl Followed for EmbeddedStore {
    fn identity(&self) -> String {
        self.service().identity_text()
    }

    async fn log_after(
        &self,
        place: LogOffset,
        bytes_max: usize,
        wait: Duration,
        reader: Option<([u8; 16], Revision)>,
    ) -> Result<LogPiece> {
        self.shared().check_open()?;
        let heard = self.piece_after(place, bytes_max).await?;
        if let Some((id, durable)) = reader {
            // The place is right, so the follower has the beginning of this very log.
            self.shared().standbys.acknowledge(id, durable.min(place.revision));
        }
        if !heard.frames.is_empty() || wait.is_zero() {
            return Ok(heard);
        }
        let next = Revision(place.revision.0.saturating_add(1));
        let more = self.shared().durability.written_reached(next);
        match on(RequestState::Change, tokio::time::timeout(wait, more)).await {
            Ok(reached) => {
                reached?;
                self.piece_after(place, bytes_max).await
            }
            Err(_) => Ok(heard),
        }
    }

    fn require_standbys(&self) {
        self.shared().standbys.require();
    }

    async fn supersede(&self, identity: &str, by: &str) -> Result<bool> {
        let (service, shared) = (Arc::clone(self.service()), Arc::clone(self.shared()));
        if self.is_read_only() || !follow::is_superseded_by(&service.identity_text(), identity)? {
            return Ok(false);
        }
        let by = by.to_owned();
        on_blocking_thread(move || {
            follow::supersede(&*shared.disk, service.layout(), &by)?;
            tracing::warn!(by, "another server was promoted: this one takes no more changes");
            shared.metrics.warn("superseded", &format!("{by} was promoted; this server takes no changes"));
            *shared.superseded.write() = Some(by);
            Ok(true)
        })
        .await
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
