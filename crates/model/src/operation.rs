//! Operations: the closed list of what can be asked of the catalogue. What it answers stands in
//! [`answer`](crate::answer).
//!
//! Every face translates into these and out of these; none has rules of its own. An operation names entries by
//! LFN and accounts and storage elements by name; numbers are the stores' matter.
//!
//! What can be long is asked for page by page: such an operation has a `cursor`, empty at the start, and its
//! answer a `next`: the cursor that continues it, or none at the end. A face that streams does the asking
//! itself. A cursor is opaque, stays valid across restarts, and is worth nothing to another operation.

use crate::account::{AccountName, Mode, Role, TokenId};
use crate::checksum::{Checksum, Checksums};
use crate::codec::{Decode, DecodeError, Encode, Reader};
use crate::entry::ReplicaState;
use crate::error::{Error, ErrorKind};
use crate::guid::Guid;
use crate::lfn::Lfn;
use crate::mutation::{DeletionId, TrashId};
use crate::pfn::Pfn;
use crate::query::Filter;
use crate::se::{SeName, SeStatus};
use crate::snapshot::SnapshotName;
use crate::tag::{Tag, TagKey};
use crate::time::TimeMs;
use crate::timeline::{LogPosition, OnTimeline};
use crate::{canonical_enum, canonical_struct};

/// Where a long answer goes on; empty at the start.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Cursor(pub Vec<u8>);

impl Encode for Cursor {
    fn encode(&self, out: &mut Vec<u8>) {
        crate::codec::put_bytes(out, &self.0);
    }
}
impl Decode for Cursor {
    fn decode(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        Ok(Cursor(reader.bytes()?.to_vec()))
    }
}

impl Encode for Error {
    fn encode(&self, out: &mut Vec<u8>) {
        out.push(self.kind as u8);
        self.message.encode(out);
    }
}
impl Decode for Error {
    fn decode(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let kind =
            ErrorKind::from_number(reader.byte()?).ok_or_else(|| reader.error("unknown kind of error"))?;
        Ok(Error { kind, message: String::decode(reader)? })
    }
}

impl<T: Encode> Encode for Result<T, Error> {
    fn encode(&self, out: &mut Vec<u8>) {
        match self {
            Ok(value) => {
                out.push(0);
                value.encode(out);
            }
            Err(error) => error.encode(out),
        }
    }
}
impl<T: Decode> Decode for Result<T, Error> {
    fn decode(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        if reader.rest().first() == Some(&0) {
            reader.byte()?;
            return Ok(Ok(T::decode(reader)?));
        }
        Ok(Err(Error::decode(reader)?))
    }
}

/// A file, by name or by identity.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FileRef {
    /// By its LFN.
    Lfn(Lfn),
    /// By its GUID.
    Guid(Guid),
}

canonical_enum!(FileRef { 1 => Lfn(lfn), 2 => Guid(guid) });

impl FileRef {
    /// The LFN, if it is by name.
    pub fn lfn(&self) -> Option<&Lfn> {
        match self {
            FileRef::Lfn(lfn) => Some(lfn),
            FileRef::Guid(_) => None,
        }
    }

    /// The GUID, if it is by identity.
    pub fn guid(&self) -> Option<Guid> {
        match self {
            FileRef::Lfn(_) => None,
            FileRef::Guid(guid) => Some(*guid),
        }
    }
}

/// What to do where a file to register is there already.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Existing {
    /// Refuse it with `Exists`.
    Refuse,
    /// Accept it as unchanged if everything given is so already; refuse it with `Exists` if not.
    Same,
    /// Add the replicas, checksums, size and tags it does not have; refuse it if something given contradicts.
    Merge,
}

canonical_enum!(Existing { 1 => Refuse, 2 => Same, 3 => Merge });

/// A replica to register.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewReplica {
    /// On which SE.
    pub se: SeName,
    /// Where; none for the PFN that follows from the GUID.
    pub pfn: Option<Pfn>,
    /// What is known of it.
    pub state: ReplicaState,
}

canonical_struct!(NewReplica { se, pfn, state });

/// A file to register.
#[derive(Clone, Debug, PartialEq)]
pub struct NewFile {
    /// Its name.
    pub lfn: Lfn,
    /// Its identity; none to have one made.
    pub guid: Option<Guid>,
    /// Bytes, if known.
    pub size: Option<u64>,
    /// Checksums, if known.
    pub checksums: Checksums,
    /// Who owns it; none for the caller. Another than the caller takes an admin.
    pub owner: Option<AccountName>,
    /// Its group; none for the owner's. One the caller is not in takes an admin.
    pub group: Option<AccountName>,
    /// Its mode; none for 644.
    pub mode: Option<Mode>,
    /// When its content was made; none for now.
    pub modified: Option<TimeMs>,
    /// It goes to the trash by itself from then on.
    pub expires: Option<TimeMs>,
    /// The job that made it.
    pub job: Option<u64>,
    /// Its tags.
    pub tags: Vec<Tag>,
    /// Its replicas.
    pub replicas: Vec<NewReplica>,
    /// The archive it is inside, and its name there; then it has no replicas of its own.
    pub member_of: Option<(FileRef, String)>,
}

canonical_struct!(NewFile {
    lfn,
    guid,
    size,
    checksums,
    owner,
    group,
    mode,
    modified,
    expires,
    job,
    tags,
    replicas,
    member_of
});

impl NewFile {
    /// A file of this name about which nothing else is given.
    pub fn named(lfn: Lfn) -> Self {
        NewFile {
            lfn,
            guid: None,
            size: None,
            checksums: Checksums::none(),
            owner: None,
            group: None,
            mode: None,
            modified: None,
            expires: None,
            job: None,
            tags: Vec::new(),
            replicas: Vec::new(),
            member_of: None,
        }
    }
}

/// What came of one file to register.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Registered {
    /// It was made.
    Created(Guid),
    /// It was there, just so.
    Unchanged(Guid),
    /// It was there and got what it did not have.
    Merged(Guid),
}

canonical_enum!(Registered { 1 => Created(guid), 2 => Unchanged(guid), 3 => Merged(guid) });

/// An attribute to set.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Attribute {
    /// The owner; takes an admin.
    Owner(AccountName),
    /// The group; one the caller is in, or an admin.
    Group(AccountName),
    /// The mode.
    Mode(Mode),
    /// When its content was made.
    Modified(TimeMs),
    /// The expiry, or none.
    Expires(Option<TimeMs>),
    /// The job that made it, or none.
    Job(Option<u64>),
    /// The size, where it is not known yet.
    Size(u64),
    /// A checksum that is not known yet.
    Checksum(Checksum),
}

canonical_enum!(Attribute {
    1 => Owner(name), 2 => Group(name), 3 => Mode(mode), 4 => Modified(time), 5 => Expires(time),
    6 => Job(job), 7 => Size(size), 8 => Checksum(checksum),
});

/// What to do to one replica.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ReplicaEdit {
    /// Add it, or set the state of one that is there.
    Put(NewReplica),
    /// Set what is known of it.
    State(SeName, ReplicaState),
    /// Take it away; the physical copy is queued for deletion if `delete`.
    Drop {
        /// On which SE.
        se: SeName,
        /// Queue the physical copy for deletion.
        delete: bool,
    },
}

canonical_enum!(ReplicaEdit { 1 => Put(replica), 2 => State(se, state), 3 => Drop { se, delete } });

/// How the storage elements of an upload are chosen.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SeChoice {
    /// These, by name.
    pub wanted: Vec<SeName>,
    /// Beside them, so many of each quality of service.
    pub qos: Vec<(AccountName, u32)>,
    /// Never these.
    pub excluded: Vec<SeName>,
    /// Nearest to this site first.
    pub site: Option<AccountName>,
}

canonical_struct!(SeChoice { wanted, qos, excluded, site });

/// A storage element to add or change. What is none stays as it is (for a new one: its default).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SeSettings {
    /// Its name.
    pub name: SeName,
    /// Its number; chosen for a new one if none. Cannot change.
    pub number: Option<u16>,
    /// What derived PFNs begin with.
    pub prefix: Option<String>,
    /// Its quality-of-service labels.
    pub qos: Option<Vec<AccountName>>,
    /// What it may be used for.
    pub status: Option<SeStatus>,
    /// Distances to set; sites not named stay as they are.
    pub distances: Vec<(AccountName, u32)>,
    /// Refuse it if it exists.
    pub only_new: bool,
}

canonical_struct!(SeSettings { name, number, prefix, qos, status, distances, only_new });

/// A user to add or change. What is none stays as it is (for a new one: its default).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UserSettings {
    /// Its name.
    pub name: AccountName,
    /// The group its new entries get; for a new user, a group of its own name.
    pub group: Option<AccountName>,
    /// Further groups.
    pub groups: Option<Vec<AccountName>>,
    /// Its roles.
    pub roles: Option<Vec<Role>>,
    /// Accounts it may act as.
    pub may_become: Option<Vec<AccountName>>,
    /// Outside names that are this user.
    pub subjects: Option<Vec<String>>,
    /// Its home directory.
    pub home: Option<Lfn>,
    /// May not log in.
    pub disabled: Option<bool>,
    /// Refuse it if it exists.
    pub only_new: bool,
}

canonical_struct!(UserSettings {
    name,
    group,
    groups,
    roles,
    may_become,
    subjects,
    home,
    disabled,
    only_new
});

/// A user or a group, by name.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Owner {
    /// A user.
    User(AccountName),
    /// A group.
    Group(AccountName),
}

canonical_enum!(Owner { 1 => User(name), 2 => Group(name) });

/// What can be asked of the catalogue.
#[derive(Clone, Debug, PartialEq)]
pub enum Operation {
    /// Who am I, and what may I do?
    Whoami,
    /// Everything about entries.
    Stat {
        /// Which.
        lfns: Vec<Lfn>,
        /// Follow a link at the end of a path.
        follow: bool,
    },
    /// Where the replicas of files are, best first.
    Whereis {
        /// Which.
        files: Vec<FileRef>,
        /// Nearest to this site first.
        site: Option<AccountName>,
    },
    /// The LFNs of files by GUID.
    Lfns {
        /// Which.
        guids: Vec<Guid>,
    },
    /// The children of a directory, in the order of their names; of anything else, itself.
    List {
        /// Which.
        lfn: Lfn,
        /// Where to go on.
        cursor: Cursor,
        /// Items of one page, at most.
        limit: u32,
    },
    /// Entries below a directory that satisfy a filter, depth first, each directory before what is in it.
    Find {
        /// Below which; itself not included.
        lfn: Lfn,
        /// What to look for.
        filter: Filter,
        /// Where to go on.
        cursor: Cursor,
        /// Items of one page, at most; a page may have fewer, even none, and still go on.
        limit: u32,
    },
    /// What entries count, with all that is below them.
    Du {
        /// Which.
        lfns: Vec<Lfn>,
    },
    /// Make directories.
    Mkdir {
        /// Which.
        lfns: Vec<Lfn>,
        /// Make missing parents too, and accept one that is there.
        parents: bool,
        /// Their mode; none for 755.
        mode: Option<Mode>,
    },
    /// Register files. One answer each; a refused one does not stop the others.
    Register {
        /// The files.
        files: Vec<NewFile>,
        /// Make missing parents.
        parents: bool,
        /// What to do where one is there already.
        existing: Existing,
    },
    /// Make a link.
    Link {
        /// Its name.
        lfn: Lfn,
        /// The path it stands for.
        target: Lfn,
    },
    /// Set attributes of entries.
    SetAttributes {
        /// Which.
        lfns: Vec<Lfn>,
        /// What to set.
        attributes: Vec<Attribute>,
    },
    /// Change the replicas of files.
    SetReplicas {
        /// Which, and what to do to each.
        edits: Vec<(FileRef, Vec<ReplicaEdit>)>,
    },
    /// Move or rename an entry; a name below a directory that exists. An existing name is refused.
    Move {
        /// From here.
        from: Lfn,
        /// To here.
        to: Lfn,
    },
    /// Move an entry to the trash.
    Remove {
        /// Which.
        lfn: Lfn,
        /// A directory with all that is below it; without, one must be empty.
        recursive: bool,
        /// It must be a directory (rmdir).
        directory: bool,
    },
    /// What is in the trash: one's own, for an operator all.
    TrashList {
        /// Where to go on.
        cursor: Cursor,
        /// Items of one page, at most.
        limit: u32,
    },
    /// Bring an item back.
    TrashRestore {
        /// Which.
        id: OnTimeline<TrashId>,
        /// To where; none for where it was.
        to: Option<Lfn>,
    },
    /// End an item for good, a bounded step at a time: repeat with the cursor until there is none.
    TrashPurge {
        /// Which.
        id: OnTimeline<TrashId>,
        /// Where to go on.
        cursor: Cursor,
    },
    /// Set and take away tags of entries.
    TagSet {
        /// Which entries.
        lfns: Vec<Lfn>,
        /// Tags to set.
        set: Vec<Tag>,
        /// Tags to take away.
        unset: Vec<TagKey>,
    },
    /// The tags of entries, with where each comes from.
    TagGet {
        /// Which entries.
        lfns: Vec<Lfn>,
        /// Their own only, without what they inherit.
        own: bool,
    },
    /// Make a collection.
    CollectionCreate {
        /// Its name.
        lfn: Lfn,
        /// Its tags.
        tags: Vec<Tag>,
    },
    /// Add files to a collection and take files out.
    CollectionEdit {
        /// Which.
        lfn: Lfn,
        /// Files to add.
        add: Vec<FileRef>,
        /// Files to take out.
        remove: Vec<FileRef>,
    },
    /// The members of a collection.
    CollectionMembers {
        /// Which.
        lfn: Lfn,
        /// Where to go on.
        cursor: Cursor,
        /// Items of one page, at most.
        limit: u32,
    },
    /// The members of an archive that are registered.
    ArchiveMembers {
        /// Which.
        archive: FileRef,
        /// Look below here.
        under: Lfn,
        /// Where to go on.
        cursor: Cursor,
        /// Items of one page, at most; a page may have fewer, even none, and still go on.
        limit: u32,
    },
    /// Book an upload: choose storage elements, reserve quota.
    UploadBook {
        /// Where the file shall stand; its parents may be missing.
        lfn: Lfn,
        /// Its identity; none to have one made. One that exists gets further replicas.
        guid: Option<Guid>,
        /// Bytes to be written.
        size: u64,
        /// Checksums the content will have.
        checksums: Checksums,
        /// The job.
        job: Option<u64>,
        /// Where to.
        choice: SeChoice,
        /// For how long; none for the server's default.
        lifetime_seconds: Option<u64>,
    },
    /// Make a booked replica visible.
    UploadCommit {
        /// The booking.
        guid: Guid,
        /// The replica's SE.
        se: SeName,
        /// Bytes written.
        size: u64,
        /// Checksums of what was written.
        checksums: Checksums,
    },
    /// Give up a booking, or one replica of it.
    UploadAbort {
        /// The booking.
        guid: Guid,
        /// Only this replica.
        se: Option<SeName>,
    },
    /// Bookings: one's own, for an operator all.
    UploadList {
        /// Where to go on.
        cursor: Cursor,
        /// Items of one page, at most.
        limit: u32,
    },
    /// Add or change a storage element.
    SeSet(SeSettings),
    /// Take a storage element out of the registry; it must hold nothing.
    SeDrop {
        /// Which.
        name: SeName,
    },
    /// All storage elements, with what is on them.
    SeList,
    /// Files with a replica on a storage element.
    SeFiles {
        /// Which.
        name: SeName,
        /// Where to go on.
        cursor: Cursor,
        /// Items of one page, at most.
        limit: u32,
    },
    /// Physical copies a storage element is to delete.
    SeDeletions {
        /// Which.
        name: SeName,
        /// Where to go on.
        cursor: Cursor,
        /// Items of one page, at most.
        limit: u32,
    },
    /// They were deleted.
    SeDeleted {
        /// On which.
        name: SeName,
        /// Which.
        done: Vec<OnTimeline<DeletionId>>,
    },
    /// Add or change a user.
    UserSet(UserSettings),
    /// Take a user out of the registry; it must own nothing.
    UserDrop {
        /// Which.
        name: AccountName,
    },
    /// Add a group.
    GroupAdd {
        /// Its name.
        name: AccountName,
    },
    /// Take a group out of the registry; it must own nothing and have no members.
    GroupDrop {
        /// Which.
        name: AccountName,
    },
    /// All users and groups.
    AccountList,
    /// Issue a bearer token; its secret is in the answer and nowhere else.
    TokenIssue {
        /// For whom; none for the caller. Another than the caller takes an admin.
        user: Option<AccountName>,
        /// For this subtree only.
        scope: Lfn,
        /// May it change anything?
        write: bool,
        /// For how long.
        lifetime_seconds: u64,
        /// What for.
        note: String,
    },
    /// Make a token invalid at once.
    TokenRevoke {
        /// Which.
        id: TokenId,
    },
    /// Tokens: one's own, for an admin all.
    TokenList,
    /// Set limits; what is none is not limited.
    QuotaSet {
        /// Whose.
        owner: Owner,
        /// Files.
        files: Option<u64>,
        /// Logical bytes.
        bytes: Option<u64>,
        /// Bytes of replicas.
        replica_bytes: Option<u64>,
    },
    /// Limits and what is used of them.
    QuotaGet {
        /// Whose; empty for the caller and its groups.
        owners: Vec<Owner>,
    },
    /// The history of a name, oldest first: of what is there now, or of what was there last.
    Log {
        /// Which.
        lfn: Lfn,
        /// Where to go on.
        cursor: Cursor,
        /// Items of one page, at most; a page may have fewer, even none, and still go on.
        limit: u32,
    },
    /// The history from a revision on, all of it or below a directory.
    Changes {
        /// After this.
        after: LogPosition,
        /// Only what stands below this directory now.
        under: Option<Lfn>,
        /// Items of one page, at most; a page may have fewer, even none, and still go on.
        limit: u32,
        /// Wait, for a bounded time, for a change if there is none.
        wait: bool,
    },
    /// Recompute every counter and index and compare.
    Fsck,
    /// Figures for an operator.
    Status,
    /// Keep the catalogue as it is under a name.
    SnapshotCreate {
        /// Its name.
        name: SnapshotName,
    },
    /// All snapshots.
    SnapshotList,
    /// End a snapshot.
    SnapshotDrop {
        /// Which.
        name: SnapshotName,
    },
    /// Read all of a snapshot, and check it.
    SnapshotVerify {
        /// Which.
        name: SnapshotName,
    },
    /// How the entries of the catalogue differ from those of a snapshot.
    SnapshotDiff {
        /// Of which.
        before: SnapshotName,
        /// Of another snapshot; none for the catalogue as it is when this is asked first.
        after: Option<SnapshotName>,
        /// Where to go on.
        cursor: Cursor,
        /// Items of one page, at most; a page may have fewer, even none, and still go on.
        limit: u32,
    },
    /// Copy the catalogue as it is to a directory of backups, a step at a time: repeat with the cursor until there is none.
    Backup {
        /// The whole path of a directory on the server's machine.
        directory: String,
        /// Where to go on.
        cursor: Cursor,
    },
    /// Believe the machine's clock, which is ahead of the time that has really passed. Changes nothing
    /// in the catalogue, so it needs no operation id; but it needs a token that may write.
    ClockConfirm,
    /// Checks that a place in the history is one of this catalogue, and answers its end as a page of
    /// changes without items.
    Position {
        /// The place; one with a timeline whose revision was replaced is a `conflict`.
        after: LogPosition,
    },
    /// Entries of the caller's inside of directories in the trash that others removed.
    TrashParts {
        /// Where to go on.
        cursor: Cursor,
        /// Items of one page, at most; a page may have fewer, even none, and still go on.
        limit: u32,
    },
    /// Take an entry out of a directory in the trash, with all that is below it.
    TrashRestorePart {
        /// The item.
        id: OnTimeline<TrashId>,
        /// The path that the entry had.
        lfn: Lfn,
        /// To where; none for where it was.
        to: Option<Lfn>,
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
    24 => UploadBook { lfn, guid, size, checksums, job, choice, lifetime_seconds },
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
});

macro_rules! operations {
    ($( $variant:ident $name:literal $access:ident ),* $(,)?) => {
        impl Operation {
            /// The names of all operations, in order.
            pub const NAMES: [&'static str; [$($name),*].len()] = [$($name),*];

            /// Its name in metrics, logs and tables.
            pub fn name(&self) -> &'static str {
                match self { $( Operation::$variant { .. } => $name, )* }
            }

            /// Does it change anything? Those that do carry an operation id and need a token that may write.
            pub fn writes(&self) -> bool {
                match self { $( Operation::$variant { .. } => operations!(@ $access), )* }
            }
        }
    };
    (@ reads) => { false };
    (@ writes) => { true };
}

operations! {
    Whoami "whoami" reads, Stat "stat" reads, Whereis "whereis" reads, Lfns "lfns" reads, List "list" reads,
    Find "find" reads, Du "du" reads, Mkdir "mkdir" writes, Register "register" writes, Link "link" writes,
    SetAttributes "set-attributes" writes, SetReplicas "set-replicas" writes, Move "move" writes,
    Remove "remove" writes, TrashList "trash-list" reads, TrashRestore "trash-restore" writes,
    TrashPurge "trash-purge" writes, TagSet "tag-set" writes, TagGet "tag-get" reads,
    CollectionCreate "collection-create" writes, CollectionEdit "collection-edit" writes,
    CollectionMembers "collection-members" reads, ArchiveMembers "archive-members" reads,
    UploadBook "upload-book" writes, UploadCommit "upload-commit" writes, UploadAbort "upload-abort" writes,
    UploadList "upload-list" reads, SeSet "se-set" writes, SeDrop "se-drop" writes, SeList "se-list" reads,
    SeFiles "se-files" reads, SeDeletions "se-deletions" reads, SeDeleted "se-deleted" writes,
    UserSet "user-set" writes, UserDrop "user-drop" writes, GroupAdd "group-add" writes,
    GroupDrop "group-drop" writes, AccountList "account-list" reads, TokenIssue "token-issue" writes,
    TokenRevoke "token-revoke" writes, TokenList "token-list" reads, QuotaSet "quota-set" writes,
    QuotaGet "quota-get" reads, Log "log" reads, Changes "changes" reads, Fsck "fsck" reads,
    Status "status" reads, SnapshotCreate "snapshot-create" writes, SnapshotList "snapshot-list" reads,
    SnapshotDrop "snapshot-drop" writes, SnapshotVerify "snapshot-verify" reads,
    SnapshotDiff "snapshot-diff" reads, Backup "backup" writes,
    ClockConfirm "clock-confirm" reads, Position "position" reads,
    TrashParts "trash-parts" reads, TrashRestorePart "trash-restore-part" writes,
}

impl Operation {
    /// Is its answer given page by page?
    pub fn has_pages(&self) -> bool {
        matches!(
            self,
            Operation::List { .. }
                | Operation::Find { .. }
                | Operation::TrashList { .. }
                | Operation::TrashParts { .. }
                | Operation::TrashPurge { .. }
                | Operation::CollectionMembers { .. }
                | Operation::ArchiveMembers { .. }
                | Operation::UploadList { .. }
                | Operation::SeFiles { .. }
                | Operation::SeDeletions { .. }
                | Operation::Log { .. }
                | Operation::Changes { .. }
                | Operation::SnapshotDiff { .. }
                | Operation::Backup { .. }
        )
    }

    /// The same operation, from `cursor` on; none if it has no pages.
    pub fn resumed(&self, next: Cursor) -> Option<Operation> {
        let mut resumed = self.clone();
        match &mut resumed {
            Operation::List { cursor, .. }
            | Operation::Find { cursor, .. }
            | Operation::TrashList { cursor, .. }
            | Operation::TrashParts { cursor, .. }
            | Operation::TrashPurge { cursor, .. }
            | Operation::CollectionMembers { cursor, .. }
            | Operation::ArchiveMembers { cursor, .. }
            | Operation::UploadList { cursor, .. }
            | Operation::SeFiles { cursor, .. }
            | Operation::SeDeletions { cursor, .. }
            | Operation::Log { cursor, .. }
            | Operation::SnapshotDiff { cursor, .. }
            | Operation::Backup { cursor, .. } => *cursor = next,
            Operation::Changes { after, .. } => *after = LogPosition::from_bytes(&next.0).ok()?,
            _ => return None,
        }
        Some(resumed)
    }
}
