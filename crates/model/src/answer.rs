//! Answers: what the catalogue gives back for each operation.

use crate::account::{AccountName, GroupId, Role, TokenId, UserId};
use crate::change::{Change, TrashItem};
use crate::entry::{DirId, Entry, Revision, Usage};
use crate::error::Error;
use crate::guid::Guid;
use crate::lfn::Lfn;
use crate::mutation::{Booking, DeletionId, TrashId};
use crate::operation::{Cursor, FileRef, Owner, Registered};
use crate::se::{Se, SeName};
use crate::snapshot::{BackupProgress, Difference, Snapshot, SnapshotCheck};
use crate::tag::Tag;
use crate::time::TimeMs;
use crate::timeline::{OnTimeline, TimelineId};
pub use crate::whereis::{ReplicaAt, ReplicaAtRef, Whereis, WhereisBytes, WhereisRef};
use crate::{canonical_enum, canonical_struct};

/// An entry with its path and the names behind its numbers.
#[derive(Clone, Debug, PartialEq)]
pub struct Stat {
    /// Its path.
    pub lfn: Lfn,
    /// Its owner.
    pub owner: AccountName,
    /// Its group.
    pub group: AccountName,
    /// Everything else; storage elements by number, as in [`Answer::Entries::ses`].
    pub entry: Entry,
}

canonical_struct!(Stat { lfn, owner, group, entry });

/// A tag in force, and where it comes from.
#[derive(Clone, Debug, PartialEq)]
pub struct TagInForce {
    /// The tag.
    pub tag: Tag,
    /// The entry it is set on.
    pub from: Lfn,
}

canonical_struct!(TagInForce { tag, from });

/// A member of a collection.
#[derive(Clone, Debug, PartialEq)]
pub struct Member {
    /// The file.
    pub guid: Guid,
    /// The file as it is; none if it was purged, is in the trash, or may not be seen by the caller.
    pub stat: Option<Stat>,
}

canonical_struct!(Member { guid, stat });

/// Where an upload may be written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UploadTarget {
    /// The storage element.
    pub se: SeName,
    /// Where on it.
    pub pfn: String,
}

canonical_struct!(UploadTarget { se, pfn });

/// A booking with the names behind its numbers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Upload {
    /// The booking.
    pub booking: Booking,
    /// Its owner.
    pub owner: AccountName,
    /// Where the pending replicas may be written.
    pub targets: Vec<UploadTarget>,
}

canonical_struct!(Upload { booking, owner, targets });

/// A storage element and what is on it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SeUsage {
    /// The storage element.
    pub se: Se,
    /// What is on it.
    pub used: Usage,
    /// What waits for deletion.
    pub deletions: Usage,
}

canonical_struct!(SeUsage { se, used, deletions });

/// A physical copy to delete.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeletionAt {
    /// Names it in [`Operation::SeDeleted`].
    pub id: OnTimeline<DeletionId>,
    /// The file it was a copy of.
    pub guid: Guid,
    /// Bytes, if known.
    pub size: Option<u64>,
    /// Its URL.
    pub pfn: String,
    /// Since when.
    pub queued: TimeMs,
}

canonical_struct!(DeletionAt { id, guid, size, pfn, queued });

/// A user with the names behind its numbers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UserInfo {
    /// Its number.
    pub id: u32,
    /// Its name.
    pub name: AccountName,
    /// The group its new entries get.
    pub group: AccountName,
    /// Further groups.
    pub groups: Vec<AccountName>,
    /// Its roles.
    pub roles: Vec<Role>,
    /// Accounts it may act as.
    pub may_become: Vec<AccountName>,
    /// Outside names that are this user.
    pub subjects: Vec<String>,
    /// Its home directory.
    pub home: Option<Lfn>,
    /// May not log in.
    pub disabled: bool,
}

canonical_struct!(UserInfo { id, name, group, groups, roles, may_become, subjects, home, disabled });

/// A token, without its secret.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TokenInfo {
    /// Its public number.
    pub id: TokenId,
    /// Whose.
    pub user: AccountName,
    /// When it was issued.
    pub issued: TimeMs,
    /// Not valid from then on.
    pub expires: TimeMs,
    /// Valid for this subtree only.
    pub scope: Lfn,
    /// May it change anything?
    pub write: bool,
    /// What for.
    pub note: String,
}

canonical_struct!(TokenInfo { id, user, issued, expires, scope, write, note });

/// Limits, and what is used and reserved of them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QuotaInfo {
    /// Whose.
    pub owner: Owner,
    /// Files, at most.
    pub files: Option<u64>,
    /// Logical bytes, at most.
    pub bytes: Option<u64>,
    /// Bytes of replicas, at most.
    pub replica_bytes: Option<u64>,
    /// What is used.
    pub used: Usage,
    /// What bookings reserve.
    pub reserved: Usage,
}

canonical_struct!(QuotaInfo { owner, files, bytes, replica_bytes, used, reserved });

/// An item of the history, with the name of who asked for it and, where the entry is in the tree
/// now, its path. Names and paths that the caller may not see are left out, and places are replaced
/// by [`At::withheld`].
#[derive(Clone, Debug, PartialEq)]
pub struct ChangeInfo {
    /// The change.
    pub change: Change,
    /// Who asked for it; empty if the account is gone.
    pub who: String,
    /// Where the entry stands now.
    pub lfn: Option<Lfn>,
    /// Names of the users that the change mentions.
    pub users: Vec<(UserId, String)>,
    /// Names of the groups that the change mentions.
    pub groups: Vec<(GroupId, String)>,
    /// Paths, as they are now, of the directories that the change mentions.
    pub directories: Vec<(DirId, Lfn)>,
}

canonical_struct!(ChangeInfo { change, who, lfn, users, groups, directories });

/// What a check of the whole catalogue found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Audit {
    /// The state that was checked.
    pub revision: Revision,
    /// What was checked, and how many of it.
    pub checked: Vec<(String, u64)>,
    /// What is wrong; at most [`Audit::FINDINGS_MAX`] are kept.
    pub findings: Vec<Finding>,
    /// How many are wrong, kept or not.
    pub findings_total: u64,
}

canonical_struct!(Audit { revision, checked, findings, findings_total });

impl Audit {
    /// Findings kept: more of them say nothing new.
    pub const FINDINGS_MAX: usize = 1000;

    /// Adds a finding.
    pub fn find(&mut self, what: &str, which: impl std::fmt::Display, detail: impl std::fmt::Display) {
        self.findings_total += 1;
        if self.findings.len() < Self::FINDINGS_MAX {
            self.findings.push(Finding {
                what: what.to_owned(),
                which: which.to_string(),
                detail: detail.to_string(),
            });
        }
    }
}

/// Something a check found wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// Which index, counter or invariant.
    pub what: String,
    /// Of which entry, directory, user …
    pub which: String,
    /// What is wrong.
    pub detail: String,
}

canonical_struct!(Finding { what, which, detail });

/// A named group of figures, for an operator.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StatusPart {
    /// What part: `store`, `server`, `workers` …
    pub part: String,
    /// Named figures, the unit last in the name (`log_bytes`).
    pub figures: Vec<(String, u64)>,
    /// What to know, in words.
    pub notes: Vec<String>,
}

canonical_struct!(StatusPart { part, figures, notes });

/// What the catalogue answers.
#[derive(Clone, Debug, PartialEq)]
pub enum Answer {
    /// It was done (or all was so already); nothing else to tell.
    Done {
        /// The last change it made; that of before if it changed nothing.
        revision: Revision,
    },
    /// One per item asked for: done or not.
    EachDone(Vec<Result<(), Error>>),
    /// Who the caller is.
    Whoami {
        /// The user; none if anonymous.
        user: Option<UserInfo>,
        /// Valid for this subtree only.
        scope: Lfn,
        /// May it change anything?
        write: bool,
    },
    /// One per LFN asked for.
    Stats(Vec<Result<Stat, Error>>),
    /// One per file asked for.
    Whereis(Vec<Result<Whereis, Error>>),
    /// One per GUID asked for.
    Lfns(Vec<Result<Lfn, Error>>),
    /// A page of entries.
    Entries {
        /// The entries.
        items: Vec<Stat>,
        /// The names of the SEs that stand in them by number.
        ses: Vec<(u16, SeName)>,
        /// Where it goes on.
        next: Option<Cursor>,
    },
    /// One per LFN asked for.
    Usages(Vec<Result<Usage, Error>>),
    /// One per file to register.
    Registered(Vec<Result<Registered, Error>>),
    /// What came into the trash.
    Removed {
        /// The item.
        id: OnTimeline<TrashId>,
    },
    /// A page of the trash.
    Trash {
        /// The items, and who removed each.
        items: Vec<(TrashItem, String)>,
        /// The timeline of the catalogue, for the ids of the items.
        timeline: TimelineId,
        /// Where it goes on.
        next: Option<Cursor>,
    },
    /// A step of a purge.
    Purged {
        /// Entries ended in this step.
        entries: u64,
        /// Where it goes on.
        next: Option<Cursor>,
    },
    /// One per entry asked for.
    Tags(Vec<Result<Vec<TagInForce>, Error>>),
    /// A collection was edited.
    CollectionEdited {
        /// How many came in.
        added: u64,
        /// How many went out.
        removed: u64,
        /// Those that could not be added or taken out.
        refused: Vec<(FileRef, Error)>,
    },
    /// A page of members.
    Members {
        /// The members.
        items: Vec<Member>,
        /// Where it goes on.
        next: Option<Cursor>,
    },
    /// An upload.
    Upload(Upload),
    /// A page of bookings.
    Uploads {
        /// The bookings.
        items: Vec<Upload>,
        /// Where it goes on.
        next: Option<Cursor>,
    },
    /// Storage elements.
    Ses(Vec<SeUsage>),
    /// A page of a deletion queue.
    Deletions {
        /// The items.
        items: Vec<DeletionAt>,
        /// Where it goes on.
        next: Option<Cursor>,
    },
    /// Users and groups.
    Accounts {
        /// The users.
        users: Vec<UserInfo>,
        /// The groups: number and name.
        groups: Vec<(u32, AccountName)>,
    },
    /// A token with its secret.
    TokenIssued {
        /// The token.
        token: TokenInfo,
        /// What the client presents: shown once.
        secret: String,
    },
    /// Tokens.
    Tokens(Vec<TokenInfo>),
    /// Quotas.
    Quotas(Vec<QuotaInfo>),
    /// A page of the history.
    Changes {
        /// The changes.
        items: Vec<ChangeInfo>,
        /// Where it goes on.
        next: Option<Cursor>,
        /// Everything up to here was looked at.
        up_to: Revision,
        /// The timeline of the catalogue, and so of `up_to`.
        timeline: TimelineId,
        /// The entry had earlier changes, which the history does not keep.
        cut: bool,
    },
    /// The result of a check.
    Fsck(Audit),
    /// Figures.
    Status(Vec<StatusPart>),
    /// A snapshot.
    Snapshot(Snapshot),
    /// Snapshots.
    Snapshots(Vec<Snapshot>),
    /// What a check of a snapshot found.
    SnapshotChecked(SnapshotCheck),
    /// A page of differences.
    Differences {
        /// The differences.
        items: Vec<Difference>,
        /// Where it goes on.
        next: Option<Cursor>,
    },
    /// A step of a backup.
    BackedUp {
        /// How far it is.
        progress: BackupProgress,
        /// Where it goes on.
        next: Option<Cursor>,
    },
}

canonical_enum!(Answer {
    1 => Done { revision },
    2 => EachDone(items),
    3 => Whoami { user, scope, write },
    4 => Stats(items),
    5 => Whereis(items),
    6 => Lfns(items),
    7 => Entries { items, ses, next },
    8 => Usages(items),
    9 => Registered(items),
    10 => Removed { id },
    11 => Trash { items, timeline, next },
    12 => Purged { entries, next },
    13 => Tags(items),
    14 => CollectionEdited { added, removed, refused },
    15 => Members { items, next },
    16 => Upload(upload),
    17 => Uploads { items, next },
    18 => Ses(items),
    19 => Deletions { items, next },
    20 => Accounts { users, groups },
    21 => TokenIssued { token, secret },
    22 => Tokens(items),
    23 => Quotas(items),
    24 => Changes { items, next, up_to, timeline, cut },
    25 => Fsck(report),
    26 => Status(parts),
    27 => Snapshot(snapshot),
    28 => Snapshots(items),
    29 => SnapshotChecked(check),
    30 => Differences { items, next },
    31 => BackedUp { progress, next },
});

impl Answer {
    /// Where a long answer goes on; none at its end or if it has no pages.
    pub fn next(&self) -> Option<&Cursor> {
        match self {
            Answer::Entries { next, .. }
            | Answer::Trash { next, .. }
            | Answer::Purged { next, .. }
            | Answer::Members { next, .. }
            | Answer::Uploads { next, .. }
            | Answer::Deletions { next, .. }
            | Answer::Differences { next, .. }
            | Answer::BackedUp { next, .. }
            | Answer::Changes { next, .. } => next.as_ref(),
            _ => None,
        }
    }
}
