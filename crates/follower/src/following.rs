//! The work of a follower: asks the source for its log, and appends it.

use std::sync::Arc;
use std::time::{Duration, Instant};

use exacat_model::{Error, ErrorKind, Result, Revision};
use exacat_store::{FixedFile, Followed, LogOffset, Store};
use exacat_store_embedded::{EmbeddedStore, FollowerFiles, offset_after};

use crate::copying::receive_copy;
use crate::limits::{PAUSE, WAIT};
use crate::protocol::{LogQuery, hash_of};
use crate::source::{PieceHeard, Source, piece};
use crate::state::FollowState;

/// Everything that a follower works with.
pub struct FollowWork {
    /// The follower's store, open.
    pub store: Arc<EmbeddedStore>,
    /// Its files.
    pub files: Arc<FollowerFiles>,
    /// The source.
    pub source: Source,
    /// Distance to the source.
    pub state: Arc<FollowState>,
    /// The follower's id.
    pub id: [u8; 16],
}

/// Reasons why a follower cannot go on with the store as it is open.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FollowEnd {
    /// The source has new timelines, which the files must have before the log goes on.
    Adopt {
        /// Identity of the source.
        identity: String,
    },
    /// A new copy was received, because the source's log does not continue the one here.
    Copied {
        /// Files of the copy.
        files: Vec<FixedFile>,
    },
    /// The store failed, and must be opened again.
    Failed,
}

/// Pauses between attempts, which double.
pub struct Pauses(Duration);

impl Default for Pauses {
    fn default() -> Self {
        Pauses(PAUSE.0)
    }
}

impl Pauses {
    /// Waits for the next one.
    pub async fn pause(&mut self) {
        tokio::time::sleep(self.0).await;
        self.0 = (2 * self.0).min(PAUSE.1);
    }
}

/// Follows the source until the store must be closed. Everything that can pass is tried again for ever.
pub async fn follow(work: &FollowWork) -> FollowEnd {
    let mut pauses = Pauses::default();
    loop {
        let error = match follow_connected(work, &mut pauses).await {
            Ok(end) => return end,
            Err(error) => error,
        };
        if work.store.failure().is_some() {
            return FollowEnd::Failed;
        }
        if matches!(error.kind, ErrorKind::NotFound | ErrorKind::Conflict) {
            tracing::warn!(%error, "the catalogue is copied again, and served meanwhile as it is");
            return FollowEnd::Copied { files: copy_again(work).await };
        }
        if work.state.fails(&error.message) {
            tracing::warn!(%error, source = work.source.address(), "cannot follow the source; trying again");
        }
        pauses.pause().await;
    }
}

/// Receives a copy, however often it takes.
async fn copy_again(work: &FollowWork) -> Vec<FixedFile> {
    let mut pauses = Pauses::default();
    work.state.copies(true);
    loop {
        match receive_copy(&work.source, &work.files, |_, _| ()).await {
            Ok(files) => {
                work.state.copies(false);
                return files;
            }
            Err(error) => {
                work.state.fails(&error.message);
                tracing::warn!(%error, "the copy was interrupted; trying again");
                pauses.pause().await;
            }
        }
    }
}

/// Follows the source over one connection.
async fn follow_connected(work: &FollowWork, pauses: &mut Pauses) -> Result<FollowEnd> {
    let own = hash_of(&work.store.identity());
    let mut place = work.store.log_end().await?;
    let mut durable = place.revision;
    // The first piece that is not durable yet, and what the source said of its age.
    let mut late: Option<(Revision, Instant, Duration)> = None;
    let mut connection = work.source.connect().await?;
    let mut ahead: Option<PieceHeard> = None;
    loop {
        let began = Instant::now();
        let heard = match ahead.take() {
            Some(heard) => heard,
            None => {
                work.state.waits(true);
                let heard = piece(&mut connection, query(work, place, durable, WAIT)).await;
                work.state.waits(false);
                heard?
            }
        };
        *pauses = Pauses::default();
        work.state.heard(heard.durable);
        if heard.identity != own {
            return adopt(work, &own).await;
        }
        let (age, up_to, is_whole) = (heard.age, heard.up_to, heard.up_to >= heard.durable);
        let answered = if heard.frames.is_empty() { began } else { Instant::now() };
        if heard.frames.is_empty() {
            compare(work, place, heard.digest).await?;
            work.state.caught_up(answered, age);
            continue;
        }
        if is_whole {
            place = work.store.append(heard.frames).await?;
            compare(work, place, heard.digest).await?;
            (durable, late) = (place.revision, None);
            work.state.caught_up(answered, age);
            continue;
        }
        // The next piece begins behind this one, wherever that is. It is fetched while this one is applied,
        // and the one before is made durable.
        place = offset_after(&heard.frames, place, up_to)?;
        let (appended, next) = tokio::join!(
            work.store.append_ahead(heard.frames),
            piece(&mut connection, query(work, place, durable, Duration::ZERO))
        );
        (durable, ahead) = (appended?, Some(next?));
        // Readers see what is durable.
        if let Some((_, answered, age)) = late.take_if(|(up_to, ..)| *up_to <= durable) {
            work.state.caught_up(answered, age);
        }
        late.get_or_insert((up_to, answered, age));
    }
}

/// Compares the state with that of the source, which has this digest after the same change. The next segment
/// compares it too, only later.
async fn compare(work: &FollowWork, place: LogOffset, digest: Option<u128>) -> Result<()> {
    match digest {
        Some(digest) if work.store.digest().await? != digest => {
            let last = place.revision.0;
            let what =
                format!("the states here and at the source differ after change {last}: the copy is wrong");
            Err(Error::new(ErrorKind::Conflict, what))
        }
        _ => Ok(()),
    }
}

fn query(work: &FollowWork, place: LogOffset, durable: Revision, wait: Duration) -> LogQuery {
    let wait_ms = u64::try_from(wait.as_millis()).unwrap_or(u64::MAX);
    LogQuery { place, follower: work.id, durable, wait_ms }
}

/// Takes over the identity of the source, which is another one than here.
async fn adopt(work: &FollowWork, own: &str) -> Result<FollowEnd> {
    let identity = work.source.describe().await?.identity;
    if hash_of(&identity) == own {
        return Err(Error::new(ErrorKind::Unavailable, "the source changed its identity twice"));
    }
    Ok(FollowEnd::Adopt { identity })
}
