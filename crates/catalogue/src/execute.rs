//! The table from operations to the rules that carry them out.

use exacat_model::limits::PAGE_ITEMS_MAX;
use exacat_model::{Answer, Error, ErrorKind, Operation, OperationId, Result};
use exacat_store::Refusal;
use futures::future::BoxFuture;

use crate::Catalogue;
use crate::caller::Caller;
use crate::fsck::{activity_seen, feeds_seen, request_cancelled, requests_seen, throttles_seen};
use crate::quota::QuotaLimits;
use crate::repeat::{check_id, fingerprint};
use crate::steps;
use crate::tokens::TokenRequest;
use crate::trailing;
use crate::upload::ReserveRequest;
use crate::upload::UploadedCopy;

/// Most attempts at an operation, if rights change between judgement and commit each time.
const JUDGED_TRIES_MAX: usize = 16;

impl Catalogue {
    /// Carries out an operation for an authenticated `caller`. [`Catalogue::authenticate`] and the
    /// face check the identity before. `id` names a changing operation: the same id again gives the
    /// same outcome.
    pub fn execute<'a>(
        &'a self,
        caller: &'a Caller,
        id: OperationId,
        operation: Operation,
    ) -> BoxFuture<'a, Result<Answer>> {
        if operation.writes() {
            return boxed(steps::truthful(self.carry_out(caller, id, operation)));
        }
        boxed(self.carry_out(caller, id, operation))
    }

    async fn carry_out(&self, caller: &Caller, id: OperationId, mut operation: Operation) -> Result<Answer> {
        let caller = &caller.requesting(&operation)?;
        if operation.writes() {
            self.admit_writer(caller)?;
            check_id(id, self.clock.trusted())?;
            let asking = caller.asking(fingerprint(caller, &operation));
            self.refresh_names().await?;
            return self.write(asking, id, operation).await;
        }
        self.admit_reader(caller)?;
        // Look-ups read the store anyway, and use the names of that read, or none.
        if !operation.is_look_up() {
            self.refresh_names().await?;
        }
        trailing::apply(&mut operation)?;
        boxed(self.perform(caller, id, operation)).await
    }

    /// Carries out a changing operation for a caller who was admitted, under a checked id.
    pub(crate) async fn write(
        &self,
        mut caller: Caller,
        id: OperationId,
        mut operation: Operation,
    ) -> Result<Answer> {
        trailing::apply(&mut operation)?;
        // Read before the first fact, so that a later change of a fact has a later revision.
        let mut since = self.store.seen_revision();
        for _ in 0..JUDGED_TRIES_MAX {
            let judging = caller.judging(since);
            // A further attempt needs the operation again. Operations with lists are too long to
            // copy, so they are passed by reference.
            let answer = match &operation {
                Operation::Register { files, parents, existing } => {
                    boxed(self.register(&judging, id, files, *parents, *existing)).await
                }
                Operation::Mkdir { lfns, parents, mode } => {
                    boxed(self.mkdir(&judging, id, lfns, *parents, *mode)).await
                }
                Operation::SetAttributes { lfns, attributes } => {
                    boxed(self.set_attributes(&judging, id, lfns, attributes)).await
                }
                Operation::SetReplicas { edits } => boxed(self.set_replicas(&judging, id, edits)).await,
                Operation::TagSet { lfns, set, unset } => {
                    boxed(self.tag_set(&judging, id, lfns, set, unset)).await
                }
                Operation::CollectionEdit { lfn, add, remove } => {
                    boxed(self.collection_edit(&judging, id, lfn, add, remove)).await
                }
                Operation::SeDeleted { name, done } => boxed(self.se_deleted(&judging, id, name, done)).await,
                short => boxed(self.perform(&judging, id, short.clone())).await,
            };
            if !judging.is_outdated() {
                return answer;
            }
            // The change that outdated the judgement is in the state read from here on.
            since = self.store.revision().await?;
            caller = self.revalidate(&caller).await?.in_place_of(&caller);
            self.admit_writer(&caller)?;
        }
        Err(Error::new(ErrorKind::Busy, Refusal::Outdated.to_string()))
    }

    /// Carries out once an operation that only reads, or that changes something without lists.
    async fn perform(&self, caller: &Caller, id: OperationId, operation: Operation) -> Result<Answer> {
        match operation {
            Operation::Whoami => self.whoami(caller).await,
            Operation::Stat { lfns, follow } => self.stat(caller, lfns, follow).await,
            Operation::Whereis { files, site } => self.whereis(caller, files, site.as_ref()).await,
            Operation::Lfns { guids } => self.lfns(caller, &guids).await,
            Operation::List { lfn, cursor, limit } => {
                boxed(self.list(caller, &lfn, &cursor, page(limit)?)).await
            }
            Operation::Find { lfn, filter, cursor, limit } => {
                boxed(self.find(caller, &lfn, &filter, &cursor, page(limit)?)).await
            }
            Operation::Du { lfns } => boxed(self.du(caller, &lfns)).await,
            Operation::Mkdir { .. }
            | Operation::Register { .. }
            | Operation::SetAttributes { .. }
            | Operation::SetReplicas { .. }
            | Operation::TagSet { .. }
            | Operation::CollectionEdit { .. }
            | Operation::SeDeleted { .. } => {
                Err(Error::new(ErrorKind::Internal, "an operation with lists is carried out by reference"))
            }
            Operation::Link { lfn, target } => boxed(self.link(caller, id, lfn, target)).await,
            Operation::Move { from, to } => boxed(self.move_entry(caller, id, from, to)).await,
            Operation::Remove { lfn, recursive, directory } => {
                boxed(self.remove(caller, id, lfn, recursive, directory)).await
            }
            Operation::TrashList { cursor, limit } => {
                boxed(self.trash_list(caller, &cursor, page(limit)?)).await
            }
            Operation::TrashParts { cursor, limit } => {
                boxed(self.trash_parts(caller, &cursor, page(limit)?)).await
            }
            Operation::TrashRestorePart { id: item, lfn, to } => {
                boxed(self.trash_restore_part(caller, id, item, lfn, to)).await
            }
            Operation::TrashRestore { id: item, to } => boxed(self.trash_restore(caller, id, item, to)).await,
            Operation::TrashPurge { id: item, cursor } => {
                boxed(self.trash_purge(caller, id, item, &cursor)).await
            }
            Operation::TagGet { lfns, own } => boxed(self.tag_get(caller, &lfns, own)).await,
            Operation::CollectionCreate { lfn, tags } => {
                boxed(self.collection_create(caller, id, lfn, tags)).await
            }
            Operation::CollectionMembers { lfn, cursor, limit } => {
                boxed(self.collection_members(caller, &lfn, &cursor, page(limit)?)).await
            }
            Operation::ArchiveMembers { archive, under, cursor, limit } => {
                boxed(self.archive_members(caller, &archive, &under, &cursor, page(limit)?)).await
            }
            Operation::UploadReserve { lfn, guid, size, checksums, job, choice, lifetime_seconds } => {
                boxed(self.upload_reserve(
                    caller,
                    id,
                    ReserveRequest { lfn, guid, size, checksums, job, choice: *choice, lifetime_seconds },
                ))
                .await
            }
            Operation::UploadCommit { guid, se, size, checksums } => {
                let copy = UploadedCopy { guid, se, size, checksums };
                boxed(self.upload_commit(caller, id, copy)).await
            }
            Operation::UploadAbort { guid, se } => boxed(self.upload_abort(caller, id, guid, se)).await,
            Operation::UploadList { cursor, limit } => {
                boxed(self.upload_list(caller, &cursor, page(limit)?)).await
            }
            Operation::SeSet(settings) => boxed(self.se_set(caller, id, settings)).await,
            Operation::SeDrop { name } => boxed(self.se_drop(caller, id, name)).await,
            Operation::SeList => boxed(self.se_list(caller)).await,
            Operation::SeFiles { name, cursor, limit } => {
                boxed(self.se_files(caller, &name, &cursor, page(limit)?)).await
            }
            Operation::SeDeletions { name, cursor, limit } => {
                boxed(self.se_deletions(caller, &name, &cursor, page(limit)?)).await
            }
            Operation::UserSet(settings) => boxed(self.user_set(caller, id, *settings)).await,
            Operation::UserDrop { name } => boxed(self.user_drop(caller, id, name)).await,
            Operation::GroupAdd { name } => boxed(self.group_add(caller, id, name)).await,
            Operation::GroupDrop { name } => boxed(self.group_drop(caller, id, name)).await,
            Operation::AccountList => boxed(self.account_list(caller)).await,
            Operation::TokenIssue { user, scope, write, lifetime_seconds, note } => {
                let request = TokenRequest { user, scope, write, lifetime_seconds, note };
                boxed(self.token_issue(caller, id, request)).await
            }
            Operation::TokenRevoke { id: token } => boxed(self.token_revoke(caller, id, token)).await,
            Operation::TokenList => boxed(self.token_list(caller)).await,
            Operation::QuotaSet { owner, files, bytes, replica_bytes } => {
                let limits = QuotaLimits { files, bytes, replica_bytes };
                boxed(self.quota_set(caller, id, owner, limits)).await
            }
            Operation::QuotaGet { owners } => boxed(self.quota_get(caller, owners)).await,
            Operation::Log { lfn, cursor, limit } => {
                boxed(self.log(caller, &lfn, &cursor, page(limit)?)).await
            }
            Operation::Changes { after, under, limit, wait } => {
                boxed(self.changes(caller, after, under.as_ref(), page(limit)?, wait)).await
            }
            Operation::Fsck => boxed(self.fsck(caller)).await,
            Operation::Status => boxed(self.status(caller)).await,
            Operation::ClockConfirm => boxed(self.clock_confirm(caller)).await,
            // The server has the requests: it completes the answers that this permits.
            Operation::Sessions => requests_seen(caller, "listing requests in progress"),
            Operation::SlowRequests => requests_seen(caller, "listing slow requests"),
            Operation::Activity { from, to, parts, .. } => activity_seen(caller, (from, to), parts),
            Operation::SessionKill { id } => {
                self.admit_writer(caller)?;
                request_cancelled(caller, id)
            }
            Operation::ThrottleSet { owner, items_per_second } => {
                self.admit_writer(caller)?;
                self.throttle_set(caller, owner.as_ref(), items_per_second)
            }
            Operation::ThrottleList => throttles_seen(caller),
            Operation::FeedCreate { .. } | Operation::FeedControl { .. } => {
                self.admit_writer(caller)?;
                self.feed_changed(caller)
            }
            Operation::FeedList { .. } => feeds_seen(caller),
            Operation::Drain { .. } => {
                self.admit_writer(caller)?;
                self.drained(caller)
            }
            Operation::ElementGroups
            | Operation::ElementGroupSet { .. }
            | Operation::ElementGroupDrop { .. }
            | Operation::ElementList { .. }
            | Operation::ElementValues { .. }
            | Operation::ElementRows { .. }
            | Operation::ElementAggregates { .. }
            | Operation::ElementWrite { .. } => self.no_elements(caller, &operation),
            Operation::Position { after } => self.position(after).await,
            Operation::SnapshotCreate { name } => boxed(self.snapshot_create(caller, id, &name)).await,
            Operation::SnapshotList => boxed(self.snapshot_list(caller)).await,
            Operation::SnapshotDrop { name } => boxed(self.snapshot_drop(caller, id, &name)).await,
            Operation::SnapshotVerify { name } => boxed(self.snapshot_verify(caller, &name)).await,
            Operation::SnapshotDiff { before, after, cursor, limit } => {
                boxed(self.snapshot_diff(caller, (&before, after.as_ref()), &cursor, page(limit)?)).await
            }
            Operation::Backup { directory, cursor } => boxed(self.backup(caller, &directory, &cursor)).await,
        }
    }

    /// Refuses a caller who may change nothing.
    pub(crate) fn admit_writer(&self, caller: &Caller) -> Result<()> {
        self.admit_reader(caller)?;
        if !caller.may_write() {
            return Err(match caller.user() {
                None => Error::new(
                    ErrorKind::Unauthenticated,
                    "present a token: anonymous callers change nothing",
                ),
                Some(_) => Error::denied("this token is for reading only"),
            });
        }
        if let Some(source) = self.store.following() {
            return Err(Error::new(
                ErrorKind::Unavailable,
                format!("this server takes no changes: send them to {source}"),
            ));
        }
        if let Some(why) = self.store.read_only() {
            return Err(Error::denied(why));
        }
        self.check_account(caller)
    }

    /// Refuses a caller who may not even read.
    pub(crate) fn admit_reader(&self, caller: &Caller) -> Result<()> {
        caller.check_not_expired(self.clock.now())?;
        if caller.user().is_none() && !self.settings.anonymous_reads {
            return Err(Error::new(
                ErrorKind::Unauthenticated,
                "present a token: anonymous reads are not configured here",
            ));
        }
        Ok(())
    }
}

/// Boxes a future. Keeps the caller's future small, and the compiler builds the body once instead
/// of once per caller.
pub(crate) fn boxed<'a, T>(work: impl Future<Output = T> + Send + 'a) -> BoxFuture<'a, T> {
    Box::pin(work)
}

/// Returns the page size for a requested limit; 0 means the largest.
fn page(limit: u32) -> Result<usize> {
    match limit as usize {
        0 => Ok(PAGE_ITEMS_MAX),
        limit if limit <= PAGE_ITEMS_MAX => Ok(limit),
        limit => Err(Error::limit("the number of items of a page", limit, PAGE_ITEMS_MAX)),
    }
}
