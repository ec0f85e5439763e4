//! One operation in, one answer out: the table from operations to the rules that carry them out.

use exacat_model::limits::PAGE_ITEMS_MAX;
use exacat_model::{Answer, Error, ErrorKind, Operation, OperationId, Result};

use crate::Catalogue;
use crate::caller::Caller;
use crate::upload::BookRequest;

impl Catalogue {
    /// Carries out an operation for `caller`, who is who it says: judging that is the matter of
    /// [`Catalogue::authenticate`] and of the face. `id` names the operation if it changes something: the same id
    /// again gives the same outcome.
    pub async fn execute(&self, caller: &Caller, id: OperationId, operation: Operation) -> Result<Answer> {
        if operation.writes() {
            self.admit_writer(caller)?;
        } else {
            self.admit_reader(caller)?;
        }
        // What a look-up does not need lies elsewhere: this would be as large as the largest of them, and is moved about.
        match operation {
            Operation::Whoami => self.whoami(caller).await,
            Operation::Stat { lfns, follow } => self.stat(caller, lfns, follow).await,
            Operation::Whereis { files, site } => self.whereis(caller, files, site.as_ref()).await,
            Operation::Lfns { guids } => self.lfns(caller, &guids).await,
            Operation::List { lfn, cursor, limit } => {
                Box::pin(self.list(caller, &lfn, &cursor, page(limit)?)).await
            }
            Operation::Find { lfn, filter, cursor, limit } => {
                Box::pin(self.find(caller, &lfn, &filter, &cursor, page(limit)?)).await
            }
            Operation::Du { lfns } => Box::pin(self.du(caller, &lfns)).await,
            Operation::Mkdir { lfns, parents, mode } => {
                Box::pin(self.mkdir(caller, id, lfns, parents, mode)).await
            }
            Operation::Register { files, parents, existing } => {
                Box::pin(self.register(caller, id, files, parents, existing)).await
            }
            Operation::Link { lfn, target } => Box::pin(self.link(caller, id, lfn, target)).await,
            Operation::SetAttributes { lfns, attributes } => {
                Box::pin(self.set_attributes(caller, id, lfns, attributes)).await
            }
            Operation::SetReplicas { edits } => Box::pin(self.set_replicas(caller, id, edits)).await,
            Operation::Move { from, to } => Box::pin(self.move_entry(caller, id, from, to)).await,
            Operation::Remove { lfn, recursive, directory } => {
                Box::pin(self.remove(caller, id, lfn, recursive, directory)).await
            }
            Operation::TrashList { cursor, limit } => {
                Box::pin(self.trash_list(caller, &cursor, page(limit)?)).await
            }
            Operation::TrashRestore { id: item, to } => {
                Box::pin(self.trash_restore(caller, id, item, to)).await
            }
            Operation::TrashPurge { id: item, cursor } => {
                Box::pin(self.trash_purge(caller, id, item, &cursor)).await
            }
            Operation::TagSet { lfns, set, unset } => {
                Box::pin(self.tag_set(caller, id, lfns, set, unset)).await
            }
            Operation::TagGet { lfns, own } => Box::pin(self.tag_get(caller, &lfns, own)).await,
            Operation::CollectionCreate { lfn, tags } => {
                Box::pin(self.collection_create(caller, id, lfn, tags)).await
            }
            Operation::CollectionEdit { lfn, add, remove } => {
                Box::pin(self.collection_edit(caller, id, lfn, add, remove)).await
            }
            Operation::CollectionMembers { lfn, cursor, limit } => {
                Box::pin(self.collection_members(caller, &lfn, &cursor, page(limit)?)).await
            }
            Operation::ArchiveMembers { archive, under, cursor, limit } => {
                Box::pin(self.archive_members(caller, &archive, &under, &cursor, page(limit)?)).await
            }
            Operation::UploadBook { lfn, guid, size, checksums, job, choice, lifetime_seconds } => {
                Box::pin(self.upload_book(
                    caller,
                    id,
                    BookRequest { lfn, guid, size, checksums, job, choice, lifetime_seconds },
                ))
                .await
            }
            Operation::UploadCommit { guid, se, size, checksums } => {
                Box::pin(self.upload_commit(caller, id, guid, se, size, checksums)).await
            }
            Operation::UploadAbort { guid, se } => Box::pin(self.upload_abort(caller, id, guid, se)).await,
            Operation::UploadList { cursor, limit } => {
                Box::pin(self.upload_list(caller, &cursor, page(limit)?)).await
            }
            Operation::SeSet(settings) => Box::pin(self.se_set(caller, id, settings)).await,
            Operation::SeDrop { name } => Box::pin(self.se_drop(caller, id, name)).await,
            Operation::SeList => Box::pin(self.se_list(caller)).await,
            Operation::SeFiles { name, cursor, limit } => {
                Box::pin(self.se_files(caller, &name, &cursor, page(limit)?)).await
            }
            Operation::SeDeletions { name, cursor, limit } => {
                Box::pin(self.se_deletions(caller, &name, &cursor, page(limit)?)).await
            }
            Operation::SeDeleted { name, done } => Box::pin(self.se_deleted(caller, id, name, done)).await,
            Operation::UserSet(settings) => Box::pin(self.user_set(caller, id, settings)).await,
            Operation::UserDrop { name } => Box::pin(self.user_drop(caller, id, name)).await,
            Operation::GroupAdd { name } => Box::pin(self.group_add(caller, id, name)).await,
            Operation::GroupDrop { name } => Box::pin(self.group_drop(caller, id, name)).await,
            Operation::AccountList => Box::pin(self.account_list(caller)).await,
            Operation::TokenIssue { user, scope, write, lifetime_seconds, note } => {
                Box::pin(self.token_issue(caller, id, user, scope, write, lifetime_seconds, note)).await
            }
            Operation::TokenRevoke { id: token } => Box::pin(self.token_revoke(caller, id, token)).await,
            Operation::TokenList => Box::pin(self.token_list(caller)).await,
            Operation::QuotaSet { owner, files, bytes, replica_bytes } => {
                Box::pin(self.quota_set(caller, id, owner, files, bytes, replica_bytes)).await
            }
            Operation::QuotaGet { owners } => Box::pin(self.quota_get(caller, owners)).await,
            Operation::Log { lfn, cursor, limit } => {
                Box::pin(self.log(caller, &lfn, &cursor, page(limit)?)).await
            }
            Operation::Changes { after, under, limit, wait } => {
                Box::pin(self.changes(caller, after, under.as_ref(), page(limit)?, wait)).await
            }
            Operation::Fsck => Box::pin(self.fsck(caller)).await,
            Operation::Status => self.status(caller).await,
            Operation::SnapshotCreate { name } => self.snapshot_create(caller, id, &name).await,
            Operation::SnapshotList => self.snapshot_list(caller).await,
            Operation::SnapshotDrop { name } => self.snapshot_drop(caller, id, &name).await,
            Operation::SnapshotVerify { name } => self.snapshot_verify(caller, &name).await,
            Operation::SnapshotDiff { before, after, cursor, limit } => {
                self.snapshot_diff(caller, (&before, after.as_ref()), &cursor, page(limit)?).await
            }
            Operation::Backup { directory, cursor } => self.backup(caller, &directory, &cursor).await,
        }
    }

    /// Refuses who may change nothing.
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
        if let Some(why) = self.store.read_only() {
            return Err(Error::denied(why));
        }
        self.check_account(caller)
    }

    /// Refuses who may not even read.
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

/// The size of a page asked for; 0 stands for the largest.
fn page(limit: u32) -> Result<usize> {
    match limit as usize {
        0 => Ok(PAGE_ITEMS_MAX),
        limit if limit <= PAGE_ITEMS_MAX => Ok(limit),
        limit => Err(Error::limit("the number of items of a page", limit, PAGE_ITEMS_MAX)),
    }
}
