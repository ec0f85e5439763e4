//! Checks of uploads before other requests, so that their answers include complete uploads.

use std::collections::BTreeSet;
use std::sync::Arc;

use exacat_model::limits::READ_BATCH_MAX;
use exacat_model::operation::FileRef;
use exacat_model::{Answer, Error, ErrorKind, Lfn, Operation, OperationId, Result};
use futures::future::BoxFuture;

use super::{Pending, Uploads};
use crate::admission::Step;
use crate::service::{OperationTask, Requester, UploadChecks};

impl Uploads {
    /// Checks the uploads that the answer to a request of another protocol depends on. This reveals
    /// nothing to a client without rights, because the request itself is judged afterwards.
    async fn before(self: &Arc<Self>, work: &OperationTask) {
        if work.step != Step::First {
            return;
        }
        match &work.operation {
            Operation::Stat { lfns, .. } => {
                self.check(lfns.iter().flat_map(|lfn| self.named(lfn)).collect()).await;
                let holding: Vec<Lfn> =
                    lfns.iter().filter(|lfn| !self.below(lfn).is_empty()).cloned().collect();
                if let Ok(missing) = self.missing(&work.requester, holding).await {
                    self.check(missing.iter().flat_map(|lfn| self.below(lfn)).collect()).await;
                }
            }
            Operation::Whereis { files, .. } => {
                let named = files.iter().flat_map(|file| match file {
                    FileRef::Lfn(lfn) => self.named(lfn),
                    FileRef::Guid(_) => Vec::new(),
                });
                self.check(named.collect()).await;
            }
            Operation::List { lfn, .. } => {
                if let Err(error) = self.before_listing(&work.requester, lfn).await {
                    tracing::debug!(%error, %lfn, "uploads were not checked before a listing");
                }
            }
            _ => {}
        }
    }

    /// Returns the missing ones of these names, as far as a client may see.
    async fn missing(&self, requester: &Requester, lfns: Vec<Lfn>) -> Result<BTreeSet<Lfn>> {
        let mut missing = BTreeSet::new();
        for some in lfns.chunks(READ_BATCH_MAX) {
            let stat = Operation::Stat { lfns: some.to_vec(), follow: false };
            let answer = self.service.execute(&requester.caller, OperationId([0; 16]), stat, None).await?;
            let Answer::Stats(found) = answer else {
                return Err(Error::new(ErrorKind::Internal, "an answer that does not fit a stat"));
            };
            let gone = some
                .iter()
                .zip(found)
                .filter(|(_, stat)| stat.as_ref().is_err_and(|error| error.kind == ErrorKind::NotFound));
            missing.extend(gone.map(|(lfn, _)| lfn.clone()));
        }
        Ok(missing)
    }

    /// Checks the uploads that a listing of a directory may include: those in it, and those below
    /// missing directories in it.
    pub(crate) async fn before_listing(
        self: &Arc<Self>,
        requester: &Requester,
        directory: &Lfn,
    ) -> Result<()> {
        let child = |lfn: &Lfn| Lfn::from_names(lfn.components().take(directory.depth() + 1));
        let (mut due, deeper): (Vec<Arc<Pending>>, Vec<_>) = self
            .below(directory)
            .into_iter()
            .partition(|pending| pending.written.lfn.depth() == directory.depth() + 1);
        let children: BTreeSet<Lfn> = deeper.iter().map(|pending| child(&pending.written.lfn)).collect();
        let missing = self.missing(requester, children.into_iter().collect()).await?;
        due.extend(deeper.into_iter().filter(|pending| missing.contains(&child(&pending.written.lfn))));
        self.check(due).await;
        Ok(())
    }
}

impl UploadChecks for Uploads {
    fn concern(&self, operation: &Operation) -> bool {
        let reads =
            matches!(operation, Operation::Stat { .. } | Operation::Whereis { .. } | Operation::List { .. });
        reads && !self.index.lock().by_guid.is_empty()
    }

    fn check_before<'a>(self: Arc<Self>, work: &'a OperationTask) -> BoxFuture<'a, ()> {
        Box::pin(async move { self.before(work).await })
    }
}
