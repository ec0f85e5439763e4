//! Operations: the closed list of requests to the catalogue. [`answer`](crate::answer) has the
//! answers.
//!
//! Every face translates its protocol to and from operations; none has rules of its own. An
//! operation names entries by LFN, and accounts and storage elements by name. Only stores use
//! numbers.
//!
//! Long answers have pages. Such an operation has a `cursor`, empty at the start. Its answer has a
//! `next`: the cursor of the next page, or none at the end. A face that streams requests the pages
//! itself. A cursor is opaque, stays valid across restarts, and has no meaning for another
//! operation.

use crate::account::{AccountName, Mode, TokenId};
use crate::canonical_enum;
use crate::checksum::Checksums;
use crate::element::{AggregateBy, ElementRows, ElementsOf, GroupChange};
use crate::feed::{FeedAction, FeedName, FeedSpec};
use crate::guid::Guid;
use crate::history::GroupName;
use crate::lfn::Lfn;
use crate::mutation::{DeletionId, TrashId};
use crate::query::Filter;
use crate::se::SeName;
use crate::snapshot::SnapshotName;
use crate::tag::{Tag, TagKey};
use crate::time::TimeMs;
use crate::timeline::{LogPosition, OnTimeline};

pub use crate::cursor::Cursor;

pub use crate::arguments::{
    Attribute, Existing, FileRef, NewFile, NewReplica, Owner, Registered, ReplicaEdit, SeChoice, SeSettings,
    UserSettings,
};

/// Request to the catalogue.
#[derive(Clone, Debug, PartialEq)]
pub enum Operation {
    /// Returns the caller's identity and rights.
    Whoami,
    /// Returns the metadata of entries.
    Stat {
        /// Paths of the entries.
        lfns: Vec<Lfn>,
        /// Follow a link at the end of a path.
        follow: bool,
    },
    /// Locates the replicas of files, best first.
    Whereis {
        /// Files to locate.
        files: Vec<FileRef>,
        /// Orders by distance from this site, nearest first.
        site: Option<AccountName>,
    },
    /// Returns the LFNs of files by GUID.
    Lfns {
        /// GUIDs of the files.
        guids: Vec<Guid>,
    },
    /// Lists the children of a directory, by name; for any other entry, the entry itself.
    List {
        /// Path of the entry.
        lfn: Lfn,
        /// Cursor of the page; empty for the first.
        cursor: Cursor,
        /// Maximum items per page.
        limit: u32,
    },
    /// Finds entries below a directory that satisfy a filter, depth first, each directory before
    /// its content.
    Find {
        /// Base directory; not included itself.
        lfn: Lfn,
        /// Conditions on the entries.
        filter: Box<Filter>,
        /// Cursor of the page; empty for the first.
        cursor: Cursor,
        /// Maximum items per page. A page may have fewer, even none, and not be the last.
        limit: u32,
    },
    /// Returns the usage of entries, with everything below them.
    Du {
        /// Paths of the entries.
        lfns: Vec<Lfn>,
    },
    /// Makes directories.
    Mkdir {
        /// Paths of the entries.
        lfns: Vec<Lfn>,
        /// Make missing parents too, and accept an existing directory.
        parents: bool,
        /// Mode of the directories; none for 755.
        mode: Option<Mode>,
    },
    /// Registers files. Each has its own result; a refused one does not stop the others.
    Register {
        /// The files.
        files: Vec<NewFile>,
        /// Make missing parents.
        parents: bool,
        /// Treatment of a file that exists already.
        existing: Existing,
    },
    /// Makes a link.
    Link {
        /// Path of the link.
        lfn: Lfn,
        /// Target path.
        target: Lfn,
    },
    /// Sets attributes of entries.
    SetAttributes {
        /// Paths of the entries.
        lfns: Vec<Lfn>,
        /// Attributes to set.
        attributes: Vec<Attribute>,
    },
    /// Changes the replicas of files.
    SetReplicas {
        /// Files, each with its edits.
        edits: Vec<(FileRef, Vec<ReplicaEdit>)>,
    },
    /// Moves or renames an entry. The destination is a name below an existing directory; an
    /// existing name is refused.
    Move {
        /// Path of the entry.
        from: Lfn,
        /// Destination path.
        to: Lfn,
    },
    /// Moves an entry to the trash.
    Remove {
        /// Path of the entry.
        lfn: Lfn,
        /// Remove a directory with everything below it; without this, a directory must be empty.
        recursive: bool,
        /// Require a directory (rmdir).
        directory: bool,
    },
    /// Lists the trash: the caller's own items, for an operator all.
    TrashList {
        /// Cursor of the page; empty for the first.
        cursor: Cursor,
        /// Maximum items per page.
        limit: u32,
    },
    /// Restores an item from the trash.
    TrashRestore {
        /// Id of the item.
        id: OnTimeline<TrashId>,
        /// Destination; none for its former place.
        to: Option<Lfn>,
    },
    /// Purges an item, a bounded step at a time. The client repeats with the cursor until there is
    /// none.
    TrashPurge {
        /// Id of the item.
        id: OnTimeline<TrashId>,
        /// Cursor of the page; empty for the first.
        cursor: Cursor,
    },
    /// Sets and removes tags of entries.
    TagSet {
        /// Paths of the entries.
        lfns: Vec<Lfn>,
        /// Tags to set.
        set: Vec<Tag>,
        /// Tags to remove.
        unset: Vec<TagKey>,
    },
    /// Returns the tags of entries, with the source of each.
    TagGet {
        /// Paths of the entries.
        lfns: Vec<Lfn>,
        /// Return only own tags, not inherited ones.
        own: bool,
    },
    /// Makes a collection.
    CollectionCreate {
        /// Path of the collection.
        lfn: Lfn,
        /// Its tags.
        tags: Vec<Tag>,
    },
    /// Adds files to a collection and removes files.
    CollectionEdit {
        /// Path of the entry.
        lfn: Lfn,
        /// Files to add.
        add: Vec<FileRef>,
        /// Files to remove.
        remove: Vec<FileRef>,
    },
    /// Lists the members of a collection.
    CollectionMembers {
        /// Path of the entry.
        lfn: Lfn,
        /// Cursor of the page; empty for the first.
        cursor: Cursor,
        /// Maximum items per page.
        limit: u32,
    },
    /// Lists the members of an archive that are registered.
    ArchiveMembers {
        /// The archive.
        archive: FileRef,
        /// Directory to search.
        under: Lfn,
        /// Cursor of the page; empty for the first.
        cursor: Cursor,
        /// Maximum items per page. A page may have fewer, even none, and not be the last.
        limit: u32,
    },
    /// Makes an upload reservation: chooses storage elements and reserves quota.
    UploadReserve {
        /// Path of the file; its parents may be missing.
        lfn: Lfn,
        /// Its identity; none for a new one. An existing one gets further replicas.
        guid: Option<Guid>,
        /// Bytes to be written.
        size: u64,
        /// Checksums the content will have.
        checksums: Checksums,
        /// Job that makes it.
        job: Option<u64>,
        /// Choice of the storage elements.
        choice: Box<SeChoice>,
        /// Lifetime; none for the server's default.
        lifetime_seconds: Option<u64>,
    },
    /// Makes a reserved replica visible.
    UploadCommit {
        /// GUID of the upload reservation.
        guid: Guid,
        /// The replica's SE.
        se: SeName,
        /// Bytes written.
        size: u64,
        /// Checksums of the written content.
        checksums: Checksums,
    },
    /// Releases an upload reservation, or one replica of it.
    UploadAbort {
        /// GUID of the upload reservation.
        guid: Guid,
        /// Releases only the replica on this SE.
        se: Option<SeName>,
    },
    /// Lists upload reservations: the caller's own, for an operator all.
    UploadList {
        /// Cursor of the page; empty for the first.
        cursor: Cursor,
        /// Maximum items per page.
        limit: u32,
    },
    /// Adds or changes a storage element.
    SeSet(SeSettings),
    /// Drops a storage element from the registry; it must hold nothing.
    SeDrop {
        /// Name of the item.
        name: SeName,
    },
    /// Lists all storage elements, with their usage.
    SeList,
    /// Lists files with a replica on a storage element.
    SeFiles {
        /// Name of the item.
        name: SeName,
        /// Cursor of the page; empty for the first.
        cursor: Cursor,
        /// Maximum items per page.
        limit: u32,
    },
    /// Lists physical copies that a storage element is to delete.
    SeDeletions {
        /// Name of the item.
        name: SeName,
        /// Cursor of the page; empty for the first.
        cursor: Cursor,
        /// Maximum items per page.
        limit: u32,
    },
    /// Reports completed deletions.
    SeDeleted {
        /// The storage element.
        name: SeName,
        /// Deletions that are done.
        done: Vec<OnTimeline<DeletionId>>,
    },
    /// Adds or changes a user.
    UserSet(Box<UserSettings>),
    /// Drops a user from the registry; it must own nothing.
    UserDrop {
        /// Name of the item.
        name: AccountName,
    },
    /// Adds a group.
    GroupAdd {
        /// Its name.
        name: AccountName,
    },
    /// Drops a group from the registry; it must own nothing and have no members.
    GroupDrop {
        /// Name of the item.
        name: AccountName,
    },
    /// Lists all users and groups.
    AccountList,
    /// Issues a bearer token. Only the answer contains its secret.
    TokenIssue {
        /// User of the token; none for the caller. Only an admin may name another than the caller.
        user: Option<AccountName>,
        /// Subtree to which it is limited.
        scope: Lfn,
        /// True if it may make changes.
        write: bool,
        /// Lifetime.
        lifetime_seconds: u64,
        /// Purpose, as free text.
        note: String,
    },
    /// Revokes a token at once.
    TokenRevoke {
        /// Id of the item.
        id: TokenId,
    },
    /// Lists tokens: the caller's own, for an admin all.
    TokenList,
    /// Sets limits; a field without a value is not limited.
    QuotaSet {
        /// User or group.
        owner: Owner,
        /// Maximum number of files.
        files: Option<u64>,
        /// Maximum logical bytes.
        bytes: Option<u64>,
        /// Maximum bytes of replicas.
        replica_bytes: Option<u64>,
    },
    /// Returns limits and usage.
    QuotaGet {
        /// Users and groups; empty for the caller and its groups.
        owners: Vec<Owner>,
    },
    /// Returns the history of a name, oldest first: of the entry there now, or of the last one
    /// there.
    Log {
        /// Path of the entry.
        lfn: Lfn,
        /// Cursor of the page; empty for the first.
        cursor: Cursor,
        /// Maximum items per page. A page may have fewer, even none, and not be the last.
        limit: u32,
    },
    /// Returns the history from a revision on, all of it or below a directory.
    Changes {
        /// Place in the history to start after.
        after: LogPosition,
        /// Only changes of entries that are below this directory now.
        under: Option<Lfn>,
        /// Maximum items per page. A page may have fewer, even none, and not be the last.
        limit: u32,
        /// Wait for a change, for a bounded time, if there is none.
        wait: bool,
    },
    /// Recomputes every counter and index and compares.
    Fsck,
    /// Returns metrics for an operator.
    Status,
    /// Keeps the present catalogue under a name.
    SnapshotCreate {
        /// Its name.
        name: SnapshotName,
    },
    /// Lists all snapshots.
    SnapshotList,
    /// Drops a snapshot.
    SnapshotDrop {
        /// Name of the item.
        name: SnapshotName,
    },
    /// Reads the whole of a snapshot, and checks it.
    SnapshotVerify {
        /// Name of the item.
        name: SnapshotName,
    },
    /// Lists the differences between the entries of a snapshot and of the catalogue.
    SnapshotDiff {
        /// The earlier snapshot.
        before: SnapshotName,
        /// The later snapshot; none for the catalogue at the time of the first request.
        after: Option<SnapshotName>,
        /// Cursor of the page; empty for the first.
        cursor: Cursor,
        /// Maximum items per page. A page may have fewer, even none, and not be the last.
        limit: u32,
    },
    /// Copies the present catalogue to a directory of backups, a step at a time. The client repeats
    /// with the cursor until there is none.
    Backup {
        /// Absolute path of a directory on the server's machine.
        directory: String,
        /// Cursor of the page; empty for the first.
        cursor: Cursor,
    },
    /// Accepts the machine's clock although it is ahead of the trusted time. It changes no entry,
    /// so it needs no operation id, but it needs a token that may write.
    ClockConfirm,
    /// Checks that a place belongs to this catalogue's history. Answers the end of the history, as
    /// a page of changes without items.
    Position {
        /// The place; a revision that was replaced on its timeline is a `conflict`.
        after: LogPosition,
    },
    /// Lists the caller's entries inside directories in the trash that others removed.
    TrashParts {
        /// Cursor of the page; empty for the first.
        cursor: Cursor,
        /// Maximum items per page. A page may have fewer, even none, and not be the last.
        limit: u32,
    },
    /// Restores an entry from inside a directory in the trash, with everything below it.
    TrashRestorePart {
        /// Id of the directory's trash item.
        id: OnTimeline<TrashId>,
        /// Path that the entry had.
        lfn: Lfn,
        /// Destination; none for its former place.
        to: Option<Lfn>,
    },
    /// Lists the requests that the server works on, the oldest first.
    Sessions,
    /// Cancels a request; a begun change goes on. It needs no operation id, but a token that may write.
    SessionKill {
        /// Number of the request, as listed.
        id: u64,
    },
    /// Lists requests that took long, the last one first, with the time in each of their states.
    SlowRequests,
    /// Returns where the time of this server went: between two moments, or in equal parts between them.
    Activity {
        /// Beginning; none for `seconds` before the end.
        from: Option<TimeMs>,
        /// End; none for now.
        to: Option<TimeMs>,
        /// Length of a period without a beginning.
        seconds: u32,
        /// Number of parts, from 1 to [`ACTIVITY_PARTS_MAX`](crate::limits::ACTIVITY_PARTS_MAX).
        parts: u32,
    },
    /// Sets a throttle of this server, or ends it. It lasts until the server ends. It needs no operation id,
    /// but a token that may write.
    ThrottleSet {
        /// User or group; none for all but operators together.
        owner: Option<Owner>,
        /// Maximum items per second; none to end the throttle.
        items_per_second: Option<u32>,
    },
    /// Lists the throttles of this server.
    ThrottleList,
    /// Drains this server: it finishes requests in progress, and refuses new ones of network clients until
    /// it is resumed or ends. It needs no operation id, but a token that may write.
    Drain {
        /// Accept requests again.
        resume: bool,
    },
    /// Makes a feed on this server. It needs no operation id, but a token that may write.
    FeedCreate {
        /// Its name.
        name: FeedName,
        /// Its description.
        spec: Box<FeedSpec>,
    },
    /// Lists the feeds of this server with their progress.
    FeedList {
        /// Only this feed; none for all.
        name: Option<FeedName>,
    },
    /// Pauses, resumes, rewinds or drops a feed of this server. It needs no operation id, but a token that
    /// may write.
    FeedControl {
        /// The feed.
        name: FeedName,
        /// The control.
        action: Box<FeedAction>,
    },
    /// Lists the groups of elements that the caller may read.
    ElementGroups,
    /// Makes a group of elements, or changes its settings. It needs no operation id: to repeat it changes
    /// nothing.
    ElementGroupSet {
        /// The group.
        group: GroupName,
        /// Its settings.
        change: Box<GroupChange>,
    },
    /// Removes a group of elements with all its values.
    ElementGroupDrop {
        /// The group.
        group: GroupName,
    },
    /// Lists elements, in the order in which they were first seen.
    ElementList {
        /// The elements.
        of: Box<ElementsOf>,
        /// Start of the page.
        cursor: Cursor,
        /// Maximum number of elements.
        limit: u32,
    },
    /// Returns the values of elements that hold at an instant.
    ElementValues {
        /// The elements.
        of: Box<ElementsOf>,
        /// The instant in nanoseconds; none for the latest values.
        at: Option<i64>,
        /// Fields; empty for value and quality, `*` for all.
        fields: Vec<String>,
        /// Start of the page.
        cursor: Cursor,
        /// Maximum number of elements.
        limit: u32,
    },
    /// Returns the rows of elements in a range of times.
    ElementRows {
        /// The elements.
        of: Box<ElementsOf>,
        /// First and last time, in nanoseconds.
        times: (i64, i64),
        /// Fields; empty for value and quality, `*` for all.
        fields: Vec<String>,
        /// Start of the page.
        cursor: Cursor,
        /// Maximum number of rows.
        limit: u32,
    },
    /// Returns aggregates of a field of elements over equal intervals of a range of times.
    ElementAggregates {
        /// The elements.
        of: Box<ElementsOf>,
        /// First and last time, in nanoseconds.
        times: (i64, i64),
        /// The intervals, the field, and its course.
        by: Box<AggregateBy>,
        /// Start of the page.
        cursor: Cursor,
        /// Maximum number of intervals.
        limit: u32,
    },
    /// Writes rows. It needs no operation id, but a token that may write: the same values at the same times
    /// change nothing.
    ElementWrite {
        /// The group.
        group: GroupName,
        /// Rows of elements.
        rows: Vec<ElementRows>,
    },
}

canonical_enum!(Operation {
    1 => Whoami,
    2 => Stat { lfns, follow },
    3 => Whereis { files, site },
    4 => Lfns { guids },
    5 => List { lfn, cursor, limit },
    6 => Find { lfn, filter, cursor, limit },
    7 => Du { lfns },
    8 => Mkdir { lfns, parents, mode },
    9 => Register { files, parents, existing },
    10 => Link { lfn, target },
    11 => SetAttributes { lfns, attributes },
    12 => SetReplicas { edits },
    13 => Move { from, to },
    14 => Remove { lfn, recursive, directory },
    15 => TrashList { cursor, limit },
    16 => TrashRestore { id, to },
    17 => TrashPurge { id, cursor },
    18 => TagSet { lfns, set, unset },
    19 => TagGet { lfns, own },
    20 => CollectionCreate { lfn, tags },
    21 => CollectionEdit { lfn, add, remove },
    22 => CollectionMembers { lfn, cursor, limit },
    23 => ArchiveMembers { archive, under, cursor, limit },
    24 => UploadReserve { lfn, guid, size, checksums, job, choice, lifetime_seconds },
    25 => UploadCommit { guid, se, size, checksums },
    26 => UploadAbort { guid, se },
    27 => UploadList { cursor, limit },
    28 => SeSet(settings),
    29 => SeDrop { name },
    30 => SeList,
    31 => SeFiles { name, cursor, limit },
    32 => SeDeletions { name, cursor, limit },
    33 => SeDeleted { name, done },
    34 => UserSet(settings),
    35 => UserDrop { name },
    36 => GroupAdd { name },
    37 => GroupDrop { name },
    38 => AccountList,
    39 => TokenIssue { user, scope, write, lifetime_seconds, note },
    40 => TokenRevoke { id },
    41 => TokenList,
    42 => QuotaSet { owner, files, bytes, replica_bytes },
    43 => QuotaGet { owners },
    44 => Log { lfn, cursor, limit },
    45 => Changes { after, under, limit, wait },
    46 => Fsck,
    47 => Status,
    48 => SnapshotCreate { name },
    49 => SnapshotList,
    50 => SnapshotDrop { name },
    51 => SnapshotVerify { name },
    52 => SnapshotDiff { before, after, cursor, limit },
    53 => Backup { directory, cursor },
    54 => ClockConfirm,
    55 => Position { after },
    56 => TrashParts { cursor, limit },
    57 => TrashRestorePart { id, lfn, to },
    58 => Sessions,
    59 => SessionKill { id },
    60 => SlowRequests,
    61 => Activity { from, to, seconds, parts },
    62 => ThrottleSet { owner, items_per_second },
    63 => ThrottleList,
    64 => Drain { resume },
    65 => ElementGroups,
    66 => ElementGroupSet { group, change },
    67 => ElementGroupDrop { group },
    68 => ElementList { of, cursor, limit },
    69 => ElementValues { of, at, fields, cursor, limit },
    70 => ElementRows { of, times, fields, cursor, limit },
    71 => ElementAggregates { of, times, by, cursor, limit },
    72 => ElementWrite { group, rows },
    73 => FeedCreate { name, spec },
    74 => FeedList { name },
    75 => FeedControl { name, action },
});

// Operations move by value too: the large and rare fields are boxed.
const _: () = assert!(size_of::<Operation>() <= 144);

/// Amount of work of an operation, which decides how a server admits it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Extent {
    /// Work in proportion to [`Operation::items`].
    Items,
    /// Work that may be long whatever the number of items: a page, or a step of a longer task.
    Long,
    /// A check of the whole catalogue or of a whole snapshot.
    Whole,
    /// A wait for a change.
    Wait,
}

impl Operation {
    /// Returns the first path that it names, for operators.
    pub fn subject(&self) -> Option<&Lfn> {
        match self {
            Operation::Stat { lfns, .. }
            | Operation::Du { lfns }
            | Operation::Mkdir { lfns, .. }
            | Operation::SetAttributes { lfns, .. }
            | Operation::TagSet { lfns, .. }
            | Operation::TagGet { lfns, .. } => lfns.first(),
            Operation::Whereis { files, .. } => files.first().and_then(FileRef::lfn),
            Operation::Register { files, .. } => files.first().map(|file| &file.lfn),
            Operation::SetReplicas { edits } => edits.first().and_then(|(file, _)| file.lfn()),
            Operation::ArchiveMembers { archive, .. } => archive.lfn(),
            Operation::List { lfn, .. }
            | Operation::Find { lfn, .. }
            | Operation::Link { lfn, .. }
            | Operation::Move { from: lfn, .. }
            | Operation::Remove { lfn, .. }
            | Operation::CollectionCreate { lfn, .. }
            | Operation::CollectionEdit { lfn, .. }
            | Operation::CollectionMembers { lfn, .. }
            | Operation::UploadReserve { lfn, .. }
            | Operation::Log { lfn, .. }
            | Operation::TrashRestorePart { lfn, .. } => Some(lfn),
            Operation::Changes { under, .. } => under.as_ref(),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::codec::Encode;

    /// Goal: an operation counts the fields that its line names, and its pages start at its cursor.
    #[test]
    fn columns_of_the_table_describe_the_operation() {
        let root = Lfn::root();
        let edit = Operation::CollectionEdit {
            lfn: root.clone(),
            add: vec![FileRef::Lfn(root.clone()); 2],
            remove: vec![FileRef::Lfn(root.clone()); 3],
        };
        assert_eq!((edit.items(), edit.extent(), edit.writes()), (5, Extent::Items, true));
        assert!(!edit.is_look_up() && !edit.has_pages() && edit.resumed(Cursor::default()).is_none());
        let stat = Operation::Stat { lfns: vec![root.clone(); 4], follow: true };
        assert_eq!((stat.items(), stat.extent(), stat.is_look_up()), (4, Extent::Items, true));
        let list = Operation::List { lfn: root.clone(), cursor: Cursor::default(), limit: 7 };
        assert_eq!((list.items(), list.extent(), list.has_pages()), (1, Extent::Long, true));
        let next = Cursor(vec![1, 2]);
        let resumed = Operation::List { lfn: root, cursor: next.clone(), limit: 7 };
        assert_eq!(list.resumed(next), Some(resumed));
        assert_eq!(Operation::Fsck.extent(), Extent::Whole);
    }

    /// Goal: a request for changes waits only if it says so, and goes on after the place of its cursor.
    #[test]
    fn changes_wait_if_they_say_so_and_resume_at_a_position() {
        let at = |revision| LogPosition { revision: crate::Revision(revision), timeline: None };
        let changes =
            |revision, wait| Operation::Changes { after: at(revision), under: None, limit: 0, wait };
        assert_eq!(changes(0, true).extent(), Extent::Wait);
        assert_eq!(changes(0, false).extent(), Extent::Long);
        assert_eq!(changes(0, true).resumed(Cursor(vec![0xff])), None);
        assert_eq!(changes(0, true).resumed(Cursor(at(7).to_bytes())), Some(changes(7, true)));
    }

    /// Goal: the numbers of the encoding, the names and the table are of one list.
    #[test]
    fn names_are_unique() {
        let names: std::collections::BTreeSet<&str> = Operation::NAMES.into_iter().collect();
        assert_eq!(names.len(), Operation::NAMES.len());
    }
}
