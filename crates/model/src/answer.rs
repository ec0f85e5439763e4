//! Answers: the result of each operation.

use crate::account::{AccountName, GroupId, Role, TokenId, UserId};
use crate::change::{Change, TrashItem};
use crate::codec::{Encode, put_varint};
use crate::element::{Element, ElementAggregates, ElementGroup, ElementRows, ElementState};
use crate::entry::{DirId, Entry, Revision, Usage};
use crate::error::Error;
use crate::feed::Feed;
use crate::guid::Guid;
use crate::lfn::Lfn;
use crate::mutation::{DeletionId, Reservation, TrashId};
use crate::operation::{Cursor, FileRef, Owner, Registered};
use crate::period::{Period, RequestShown};
use crate::se::{Se, SeName};
use crate::snapshot::{BackupProgress, Difference, Snapshot, SnapshotCheck};
use crate::tag::Tag;
use crate::time::TimeMs;
use crate::timeline::{OnTimeline, TimelineId};
pub use crate::whereis::{ReplicaAt, ReplicaAtRef, Whereis, WhereisRef};
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

/// A tag in force, and the entry it comes from.
#[derive(Clone, Debug, PartialEq)]
pub struct TagInForce {
    /// The tag.
    pub tag: Tag,
    /// Entry that sets it.
    pub from: Lfn,
}

canonical_struct!(TagInForce { tag, from });

/// A member of a collection.
#[derive(Clone, Debug, PartialEq)]
pub struct Member {
    /// The file.
    pub guid: Guid,
    /// The file as it is; none if it was purged, is in the trash, or is hidden from the caller.
    pub stat: Option<Stat>,
}

canonical_struct!(Member { guid, stat });

/// Place to which a client may write an upload.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UploadTarget {
    /// The storage element.
    pub se: SeName,
    /// URL on the storage element.
    pub pfn: String,
}

canonical_struct!(UploadTarget { se, pfn });

/// An upload reservation with the names behind its numbers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Upload {
    /// The upload reservation.
    pub reservation: Reservation,
    /// Its owner.
    pub owner: AccountName,
    /// Places to which the client may write the pending replicas.
    pub targets: Vec<UploadTarget>,
}

canonical_struct!(Upload { reservation, owner, targets });

/// A storage element and its usage.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SeUsage {
    /// The storage element.
    pub se: Se,
    /// Usage of its replicas.
    pub used: Usage,
    /// Copies that wait for deletion.
    pub deletions: Usage,
}

canonical_struct!(SeUsage { se, used, deletions });

/// A physical copy to delete.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeletionAt {
    /// Id, as [`Operation::SeDeleted`](crate::Operation::SeDeleted) takes it.
    pub id: OnTimeline<DeletionId>,
    /// The file it was a copy of.
    pub guid: Guid,
    /// Bytes, if known.
    pub size: Option<u64>,
    /// Its URL.
    pub pfn: String,
    /// Time it entered the queue.
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
    /// Group of the entries that it creates.
    pub group: AccountName,
    /// Further groups.
    pub groups: Vec<AccountName>,
    /// Its roles.
    pub roles: Vec<Role>,
    /// Accounts it may act as.
    pub may_become: Vec<AccountName>,
    /// Outside names of this user.
    pub subjects: Vec<String>,
    /// Its home directory.
    pub home: Option<Lfn>,
    /// True if logins are refused.
    pub disabled: bool,
}

canonical_struct!(UserInfo { id, name, group, groups, roles, may_become, subjects, home, disabled });

/// A token, without its secret.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TokenInfo {
    /// Its public number.
    pub id: TokenId,
    /// Owner of the token.
    pub user: AccountName,
    /// Time of issue.
    pub issued: TimeMs,
    /// Time from which it is invalid.
    pub expires: TimeMs,
    /// Subtree to which it is limited.
    pub scope: Lfn,
    /// True if it may make changes.
    pub write: bool,
    /// Purpose, as free text.
    pub note: String,
}

canonical_struct!(TokenInfo { id, user, issued, expires, scope, write, note });

/// Limits, usage and reservations of an account.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QuotaInfo {
    /// User or group.
    pub owner: Owner,
    /// Maximum number of files.
    pub files: Option<u64>,
    /// Maximum logical bytes.
    pub bytes: Option<u64>,
    /// Maximum bytes of replicas.
    pub replica_bytes: Option<u64>,
    /// Usage.
    pub used: Usage,
    /// Part that upload reservations hold.
    pub reserved: Usage,
}

canonical_struct!(QuotaInfo { owner, files, bytes, replica_bytes, used, reserved });

/// A change of the history, with the name of its user and the entry's path if it is in the tree
/// now. The catalogue leaves out names and paths that the caller may not see, and replaces places
/// by [`At::withheld`](crate::At::withheld).
#[derive(Clone, Debug, PartialEq)]
pub struct ChangeInfo {
    /// The change.
    pub change: Change,
    /// Name of the user that made the change; empty if the account is gone.
    pub who: String,
    /// Path of the entry now.
    pub lfn: Option<Lfn>,
    /// Names of the users that the change mentions.
    pub users: Vec<(UserId, String)>,
    /// Names of the groups that the change mentions.
    pub groups: Vec<(GroupId, String)>,
    /// Paths, as they are now, of the directories that the change mentions.
    pub directories: Vec<(DirId, Lfn)>,
}

canonical_struct!(ChangeInfo { change, who, lfn, users, groups, directories });

/// Findings of a check of the whole catalogue.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Audit {
    /// Revision of the checked state.
    pub revision: Revision,
    /// Kinds of checked things, and the number of each.
    pub checked: Vec<(String, u64)>,
    /// Findings; at most [`Audit::FINDINGS_MAX`] are kept.
    pub findings: Vec<Finding>,
    /// Number of findings, kept or not.
    pub findings_total: u64,
}

canonical_struct!(Audit { revision, checked, findings, findings_total });

impl Audit {
    /// Maximum findings kept; more of them say nothing new.
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

/// A fault that a check found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// The index, counter or invariant.
    pub what: String,
    /// The entry, directory, user or other item with the fault.
    pub which: String,
    /// Description of the fault.
    pub detail: String,
}

canonical_struct!(Finding { what, which, detail });

/// A named group of metrics, for an operator.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StatusPart {
    /// Name of the part: `store`, `server`, `workers` …
    pub part: String,
    /// Named metrics, the unit last in the name (`log_bytes`).
    pub metrics: Vec<(String, u64)>,
    /// Notes to the operator, in words.
    pub notes: Vec<String>,
}

canonical_struct!(StatusPart { part, metrics, notes });

/// Throttle of a server: the items that it accepts in a second.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Throttle {
    /// User or group; none for all but operators together.
    pub owner: Option<Owner>,
    /// Maximum items per second.
    pub items_per_second: u32,
    /// Requests that wait for their turn now.
    pub waiting: u64,
    /// Requests that have waited.
    pub delayed: u64,
    /// Requests that were refused, because the wait would have been too long.
    pub refused: u64,
}

canonical_struct!(Throttle { owner, items_per_second, waiting, delayed, refused });

/// Answer of the catalogue to an operation.
#[derive(Clone, Debug, PartialEq)]
pub enum Answer {
    /// The operation is done, or all was so already; it has no other result.
    Done {
        /// Last change of the operation; the last one before it if it changed nothing.
        revision: Revision,
    },
    /// One result per item of the request.
    EachDone(Vec<Result<(), Error>>),
    /// Identity of the caller.
    Whoami {
        /// The user; none if anonymous.
        user: Option<Box<UserInfo>>,
        /// Subtree to which the caller is limited.
        scope: Lfn,
        /// True if the caller may make changes.
        write: bool,
    },
    /// One result per LFN of the request.
    Stats(Vec<Result<Stat, Error>>),
    /// One result per file of the request.
    Whereis(Vec<Result<Whereis, Error>>),
    /// One result per GUID of the request.
    Lfns(Vec<Result<Lfn, Error>>),
    /// A page of entries.
    Entries {
        /// The entries.
        items: Vec<Stat>,
        /// Names of the SEs whose numbers the entries hold.
        ses: Vec<(u16, SeName)>,
        /// Cursor of the next page; none after the last.
        next: Option<Cursor>,
    },
    /// One result per LFN of the request.
    Usages(Vec<Result<Usage, Error>>),
    /// One result per file to register.
    Registered(Vec<Result<Registered, Error>>),
    /// Id of the new item in the trash.
    Removed {
        /// The item.
        id: OnTimeline<TrashId>,
    },
    /// A page of the trash.
    Trash {
        /// The items, with the user who removed each.
        items: Vec<(TrashItem, String)>,
        /// The timeline of the catalogue, for the ids of the items.
        timeline: TimelineId,
        /// Cursor of the next page; none after the last.
        next: Option<Cursor>,
    },
    /// A step of a purge.
    Purged {
        /// Entries that this step purged.
        entries: u64,
        /// Cursor of the next page; none after the last.
        next: Option<Cursor>,
    },
    /// One result per entry of the request.
    Tags(Vec<Result<Vec<TagInForce>, Error>>),
    /// A collection was edited.
    CollectionEdited {
        /// Number of files added.
        added: u64,
        /// Number of files removed.
        removed: u64,
        /// Files that could not be added or removed.
        refused: Vec<(FileRef, Error)>,
    },
    /// A page of members.
    Members {
        /// The members.
        items: Vec<Member>,
        /// Cursor of the next page; none after the last.
        next: Option<Cursor>,
    },
    /// An upload.
    Upload(Box<Upload>),
    /// A page of upload reservations.
    Uploads {
        /// The upload reservations.
        items: Vec<Upload>,
        /// Cursor of the next page; none after the last.
        next: Option<Cursor>,
    },
    /// Storage elements.
    Ses(Vec<SeUsage>),
    /// A page of a deletion queue.
    Deletions {
        /// The items.
        items: Vec<DeletionAt>,
        /// Cursor of the next page; none after the last.
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
        token: Box<TokenInfo>,
        /// Secret that the client presents; shown once.
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
        /// Cursor of the next page; none after the last.
        next: Option<Cursor>,
        /// Last change that the search covered.
        up_to: Revision,
        /// The timeline of the catalogue, and so of `up_to`.
        timeline: TimelineId,
        /// True if the entry had earlier changes, which the history does not keep.
        cut: bool,
    },
    /// The result of a check.
    Fsck(Audit),
    /// Metrics and notes of each part.
    Status(Vec<StatusPart>),
    /// A snapshot.
    Snapshot(Box<Snapshot>),
    /// Snapshots.
    Snapshots(Vec<Snapshot>),
    /// Findings of a check of a snapshot.
    SnapshotChecked(SnapshotCheck),
    /// A page of differences.
    Differences {
        /// The differences.
        items: Vec<Difference>,
        /// Cursor of the next page; none after the last.
        next: Option<Cursor>,
    },
    /// A step of a backup.
    BackedUp {
        /// Progress of the backup.
        progress: BackupProgress,
        /// Cursor of the next page; none after the last.
        next: Option<Cursor>,
    },
    /// Requests of this server.
    Requests(Vec<RequestShown>),
    /// Activity of this server, one period after the other.
    Activity(Vec<Period>),
    /// Throttles of a server.
    Throttles(Vec<Throttle>),
    /// Feeds of a server.
    Feeds(Vec<Feed>),
    /// Groups of elements.
    ElementGroups(Vec<ElementGroup>),
    /// A page of elements.
    Elements {
        /// The elements.
        items: Vec<Element>,
        /// Cursor of the next page; none after the last.
        next: Option<Cursor>,
    },
    /// A page of values that hold at an instant.
    ElementValues {
        /// The elements with their values.
        items: Vec<ElementState>,
        /// Cursor of the next page; none after the last.
        next: Option<Cursor>,
    },
    /// A page of rows.
    ElementRows {
        /// Rows of elements. The rows of one may go on in the next page.
        items: Vec<ElementRows>,
        /// Cursor of the next page; none after the last.
        next: Option<Cursor>,
    },
    /// A page of aggregates.
    ElementAggregates {
        /// Intervals of elements. Those of one may go on in the next page.
        items: Vec<ElementAggregates>,
        /// Cursor of the next page; none after the last.
        next: Option<Cursor>,
    },
    /// Rows were written, and are durable.
    ElementsWritten {
        /// Rows that were written.
        rows: u64,
        /// Rows that were refused.
        refused: u64,
        /// The reason why the first of them was.
        reason: Option<String>,
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
    32 => Requests(items),
    33 => Activity(items),
    34 => Throttles(items),
    35 => ElementGroups(items),
    36 => Elements { items, next },
    37 => ElementValues { items, next },
    38 => ElementRows { items, next },
    39 => ElementAggregates { items, next },
    40 => ElementsWritten { rows, refused, reason },
    41 => Feeds(items),
});

// Answers move through queues and tables by value: the large and rare ones are boxed.
const _: () = assert!(size_of::<Answer>() <= 112);

impl Answer {
    /// Returns the cursor of the next page; none after the last page or if the answer has no pages.
    pub fn next(&self) -> Option<&Cursor> {
        match self {
            Answer::Entries { next, .. }
            | Answer::Trash { next, .. }
            | Answer::Purged { next, .. }
            | Answer::Members { next, .. }
            | Answer::Uploads { next, .. }
            | Answer::Deletions { next, .. }
            | Answer::Differences { next, .. }
            | Answer::Elements { next, .. }
            | Answer::ElementValues { next, .. }
            | Answer::ElementRows { next, .. }
            | Answer::ElementAggregates { next, .. }
            | Answer::BackedUp { next, .. }
            | Answer::Changes { next, .. } => next.as_ref(),
            _ => None,
        }
    }
}
/// An [`Answer::Whereis`] whose items are encoded already. Its canonical bytes are the same.
#[derive(Clone, Copy, Debug)]
pub struct WhereisBytes<'a> {
    /// Number of items.
    pub count: usize,
    /// Encoded items, each a [`Result`] of a [`Whereis`] or a [`WhereisRef`].
    pub items: &'a [u8],
}

impl Encode for WhereisBytes<'_> {
    fn encode(&self, out: &mut Vec<u8>) {
        // An answer without items ends with their number, one byte; it is replaced.
        Answer::Whereis(Vec::new()).encode(out);
        out.pop();
        put_varint(out, self.count as u64);
        out.extend_from_slice(self.items);
    }
}
