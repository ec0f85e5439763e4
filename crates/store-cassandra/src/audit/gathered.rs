//! Input of an audit's comparison.

use exacat_model::{DirId, Name, Result, Revision};
use tokio::sync::mpsc;

use crate::cluster::failed;
use crate::layout::{self, LEVEL_MAX};
use crate::rows::AfterImage;

/// Entry in a partition that its directory may not have, as far as this server knows.
#[derive(Clone, Debug)]
pub(super) struct Misplaced {
    pub parent: DirId,
    pub name: Name,
    pub bucket: u32,
}

impl Misplaced {
    /// Says whether no read would look there, in a directory of this level.
    pub(crate) fn is_so(&self, level: u8) -> bool {
        !layout::buckets_of(level.min(LEVEL_MAX), &self.name).any(|bucket| bucket == self.bucket)
    }
}

/// Input of the comparison, in this order.
pub(super) enum Gathered {
    /// Rows of a table.
    Rows(Vec<AfterImage>),
    /// After-images of a group of the log.
    AfterImages(Vec<AfterImage>),
    /// End: the state at this revision is complete. `misplaced` entries are where no read looks.
    All { revision: Revision, misplaced: Vec<Misplaced> },
}

/// Passes input on to the comparison.
pub(super) async fn pass_on(to: &mpsc::Sender<Gathered>, what: Gathered) -> Result<()> {
    // The comparison itself returns the reason for its end.
    to.send(what).await.map_err(|_| failed("be checked", "the comparison ended"))
}
