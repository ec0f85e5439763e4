//! Entries: the content of a name in the catalogue, and the usage that each counts.

use crate::account::{GroupId, Mode, UserId};
use crate::checksum::Checksums;
use crate::error::{Error, Result};
use crate::guid::Guid;
use crate::lfn::{Lfn, Name};
use crate::limits;
use crate::pfn::Pfn;
use crate::se::{Se, SeNumber};
use crate::tag::Tag;
use crate::time::TimeMs;
use crate::{canonical_enum, canonical_newtype, canonical_struct};

/// Number of a directory. The store assigns it at creation and never uses it again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DirId(pub u64);

/// Position of a change in the history: 1, 2, 3 …, without gaps on the embedded store. 0 is before
/// all changes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Revision(pub u64);

canonical_newtype!(DirId, Revision);

impl DirId {
    /// The root, which every catalogue has from the start.
    pub const ROOT: DirId = DirId(1);
}

/// Place of an entry: its directory, and its name there.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct At {
    /// The directory.
    pub parent: DirId,
    /// The name in it.
    pub name: Name,
}

canonical_struct!(At { parent, name });

impl At {
    /// Returns a substitute for a place that the caller may not see. No directory has the number 0.
    #[allow(clippy::expect_used, reason = "the constant is a valid name")]
    pub fn withheld() -> Self {
        At { parent: DirId(0), name: Name::parse("withheld").expect("a valid name") }
    }

    /// Says whether it substitutes a place that the caller may not see.
    pub fn is_withheld(&self) -> bool {
        self.parent == DirId(0)
    }
}

/// Identity of an entry; stays the same when the entry moves.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum EntryId {
    /// A directory, by its number.
    Directory(DirId),
    /// A file, collection or link, by its GUID.
    Object(Guid),
}

canonical_enum!(EntryId { 1 => Directory(id), 2 => Object(guid) });

impl EntryId {
    /// Returns the GUID, unless it is a directory.
    pub fn object(self) -> Option<Guid> {
        match self {
            EntryId::Object(guid) => Some(guid),
            EntryId::Directory(_) => None,
        }
    }
}

/// Kind of an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum Kind {
    /// A directory: holds names.
    Directory = 1,
    /// A file: has content at storage elements.
    File = 2,
    /// A named set of files.
    Collection = 3,
    /// A link: another name for a path.
    Link = 4,
}

canonical_enum!(Kind { 1 => Directory, 2 => File, 3 => Collection, 4 => Link });

impl Kind {
    /// All kinds.
    pub const ALL: [Kind; 4] = [Kind::Directory, Kind::File, Kind::Collection, Kind::Link];

    /// Returns the name.
    pub fn name(self) -> &'static str {
        match self {
            Kind::Directory => "directory",
            Kind::File => "file",
            Kind::Collection => "collection",
            Kind::Link => "link",
        }
    }

    /// Returns the letter in a long listing.
    pub fn letter(self) -> char {
        match self {
            Kind::Directory => 'd',
            Kind::File => '-',
            Kind::Collection => 'c',
            Kind::Link => 'l',
        }
    }

    /// Reads a name, or its first letter (`f` for a file, as in `find -type`).
    pub fn parse(text: &str) -> Result<Self> {
        Self::ALL.into_iter().find(|kind| kind.name() == text || kind.name()[..1] == *text).ok_or_else(|| {
            Error::invalid(format!("not a kind (directory, file, collection, link): {text:.100?}"))
        })
    }
}

/// Location of a replica's bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Location {
    /// At the PFN derived from the storage element's prefix and the GUID; the catalogue stores
    /// nothing.
    Derived,
    /// At this PFN.
    Explicit(Pfn),
    /// Inside an archive.
    Member {
        /// GUID of the archive.
        archive: Guid,
        /// The name inside it.
        member: String,
    },
}

canonical_enum!(Location { 0 => Derived, 1 => Explicit(pfn), 2 => Member { archive, member } });

/// State of a replica.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum ReplicaState {
    /// Readable.
    Available = 1,
    /// Being copied; not readable yet.
    Copying = 2,
    /// Reading failed; the catalogue offers it last.
    Suspect = 3,
    /// The bytes are gone. The catalogue does not offer it and it takes no space.
    Lost = 4,
}

canonical_enum!(ReplicaState { 1 => Available, 2 => Copying, 3 => Suspect, 4 => Lost });

impl ReplicaState {
    /// All states.
    pub const ALL: [ReplicaState; 4] =
        [ReplicaState::Available, ReplicaState::Copying, ReplicaState::Suspect, ReplicaState::Lost];

    /// Returns the name.
    pub fn name(self) -> &'static str {
        match self {
            ReplicaState::Available => "available",
            ReplicaState::Copying => "copying",
            ReplicaState::Suspect => "suspect",
            ReplicaState::Lost => "lost",
        }
    }

    /// Returns the state of that name.
    pub fn parse(text: &str) -> Result<Self> {
        Self::ALL.into_iter().find(|state| state.name() == text).ok_or_else(|| {
            Error::invalid(format!("not a replica state (available, copying, suspect, lost): {text:.100?}"))
        })
    }
}

/// One copy of a file. A file has at most one per storage element.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Replica {
    /// The storage element; [`SeNumber::NONE`] for an archive member.
    pub se: SeNumber,
    /// State of the replica.
    pub state: ReplicaState,
    /// Location of its bytes.
    pub location: Location,
}

canonical_struct!(Replica { se, state, location });

impl Replica {
    /// Checks a condition that the types do not enforce: an archive member is on no storage
    /// element, every other replica is on one.
    pub fn check(&self) -> Result<()> {
        match &self.location {
            Location::Member { member, .. } => {
                if self.se != SeNumber::NONE {
                    return Err(Error::invalid(
                        "an archive member is where its archive is, on no SE of its own",
                    ));
                }
                if member.is_empty() || member.bytes().any(|byte| byte < b' ') {
                    return Err(Error::invalid(
                        "the name of an archive member is empty or has control characters",
                    ));
                }
                if member.len() > limits::MEMBER_NAME_BYTES_MAX {
                    return Err(Error::limit(
                        "the length of an archive member's name in bytes",
                        member.len(),
                        limits::MEMBER_NAME_BYTES_MAX,
                    ));
                }
                Ok(())
            }
            _ if self.se == SeNumber::NONE => Err(Error::invalid("a replica is on an SE")),
            _ => Ok(()),
        }
    }

    /// Says whether the replica is an archive member.
    pub fn is_member(&self) -> bool {
        matches!(self.location, Location::Member { .. })
    }

    /// Says whether it takes space on its storage element.
    pub fn takes_space(&self) -> bool {
        self.state != ReplicaState::Lost && !self.is_member()
    }

    /// Returns the PFN as text; `se` must be the replica's storage element (none for a member).
    pub fn pfn(&self, guid: Guid, se: Option<&Se>) -> String {
        match &self.location {
            Location::Explicit(pfn) => pfn.as_str().to_owned(),
            Location::Derived => {
                let prefix = se.map_or("", |se| se.prefix.as_str());
                let mut text = String::with_capacity(prefix.len() + Guid::STORAGE_PATH_BYTES);
                text.push_str(prefix);
                text.push_str(guid.storage_path().as_str());
                text
            }
            Location::Member { archive, member } => format!("guid:///{archive}?ZIP={member}"),
        }
    }
}

/// Fields that only files have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct File {
    /// The identity of its content.
    pub guid: Guid,
    /// Bytes, if known; real listings contain files without a size.
    pub size: Option<u64>,
    /// Known checksums of its content.
    pub checksums: Checksums,
    /// Grid job that made it.
    pub job: Option<u64>,
    /// Its replicas, by storage element.
    pub replicas: Vec<Replica>,
}

canonical_struct!(File { guid, size, checksums, job, replicas });

impl File {
    /// Returns the replica on this storage element.
    pub fn replica(&self, se: SeNumber) -> Option<&Replica> {
        self.replicas.iter().find(|replica| replica.se == se)
    }

    /// Says whether the file is inside an archive.
    pub fn is_member(&self) -> bool {
        self.replicas.iter().any(Replica::is_member)
    }
}

/// Content of an entry by kind.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Body {
    /// A directory: its number.
    Directory(DirId),
    /// A file.
    File(File),
    /// A collection: its GUID and the number of members.
    Collection {
        /// Its identity.
        guid: Guid,
        /// Number of members.
        members: u64,
    },
    /// A link: its GUID and its target path, which need not exist.
    Link {
        /// Its identity.
        guid: Guid,
        /// Target path.
        target: Lfn,
    },
}

canonical_enum!(Body {
    1 => Directory(id),
    2 => File(file),
    3 => Collection { guid, members },
    4 => Link { guid, target },
});

/// A name in the catalogue with all its metadata.
#[derive(Clone, Debug, PartialEq)]
pub struct Entry {
    /// Place of the entry. The root is in itself, under the name [`Name::root`].
    pub at: At,
    /// Owner.
    pub owner: UserId,
    /// The group it belongs to.
    pub group: GroupId,
    /// Permission bits.
    pub mode: Mode,
    /// Time it was added to the catalogue.
    pub created: TimeMs,
    /// Time its content was made, or the time given at registration.
    pub modified: TimeMs,
    /// Revision of its last change: its version.
    pub revision: Revision,
    /// Time from which the catalogue removes it to the trash.
    pub expires: Option<TimeMs>,
    /// Its own tags, sorted by key; inherited tags are not here.
    pub tags: Vec<Tag>,
    /// Content by kind.
    pub body: Body,
}

canonical_struct!(Entry { at, owner, group, mode, created, modified, revision, expires, tags, body });

impl Entry {
    /// Returns the kind.
    pub fn kind(&self) -> Kind {
        match self.body {
            Body::Directory(_) => Kind::Directory,
            Body::File(_) => Kind::File,
            Body::Collection { .. } => Kind::Collection,
            Body::Link { .. } => Kind::Link,
        }
    }

    /// Returns the identity, which stays the same when the entry moves.
    pub fn id(&self) -> EntryId {
        match &self.body {
            Body::Directory(id) => EntryId::Directory(*id),
            Body::File(file) => EntryId::Object(file.guid),
            Body::Collection { guid, .. } | Body::Link { guid, .. } => EntryId::Object(*guid),
        }
    }

    /// Returns the number of a directory; none for other kinds.
    pub fn directory(&self) -> Option<DirId> {
        match self.body {
            Body::Directory(id) => Some(id),
            _ => None,
        }
    }

    /// Returns the GUID; none for a directory.
    pub fn guid(&self) -> Option<Guid> {
        self.id().object()
    }

    /// Returns the fields of a file; none for other kinds.
    pub fn file(&self) -> Option<&File> {
        match &self.body {
            Body::File(file) => Some(file),
            _ => None,
        }
    }

    /// Returns the value of an own tag.
    pub fn tag(&self, key: &str) -> Option<&crate::tag::TagValue> {
        self.tags.iter().find(|tag| tag.key.as_str() == key).map(|tag| &tag.value)
    }

    /// Returns the bytes of a file whose size is known.
    pub fn size(&self) -> Option<u64> {
        self.file().and_then(|file| file.size)
    }
}

/// Sums over entries. A file inside an archive counts as a member, not as a file: the archive has
/// its bytes. A file of unknown size counts no bytes. Byte sums have 128 bits, because 64 overflow
/// at 18 EB.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// Directories.
    pub directories: u64,
    /// Files that are not inside archives.
    pub files: u64,
    /// Files inside archives.
    pub members: u64,
    /// Collections and links.
    pub others: u64,
    /// Replicas that take space.
    pub replicas: u64,
    /// Logical bytes of `files`.
    pub bytes: u128,
    /// Logical bytes of `members`.
    pub member_bytes: u128,
    /// Bytes of `replicas`.
    pub replica_bytes: u128,
}

canonical_struct!(Usage {
    directories,
    files,
    members,
    others,
    replicas,
    bytes,
    member_bytes,
    replica_bytes
});

impl crate::codec::Encode for u128 {
    fn encode(&self, out: &mut Vec<u8>) {
        (*self as u64).encode(out);
        ((*self >> 64) as u64).encode(out);
    }
}
impl crate::codec::Decode for u128 {
    fn decode(reader: &mut crate::codec::Reader<'_>) -> std::result::Result<Self, crate::codec::DecodeError> {
        let low = u64::decode(reader)?;
        let high = u64::decode(reader)?;
        Ok(u128::from(high) << 64 | u128::from(low))
    }
}

impl Usage {
    /// Returns the usage of one entry, wherever it is, for its owner, its group and the directories
    /// above it.
    pub fn of(entry: &Entry) -> Usage {
        let mut usage = Usage::default();
        match &entry.body {
            Body::Directory(_) => usage.directories = 1,
            Body::Collection { .. } | Body::Link { .. } => usage.others = 1,
            Body::File(file) => {
                let size = u128::from(file.size.unwrap_or(0));
                if file.is_member() {
                    usage.members = 1;
                    usage.member_bytes = size;
                } else {
                    usage.files = 1;
                    usage.bytes = size;
                }
                usage.replicas = file.replicas.iter().filter(|replica| replica.takes_space()).count() as u64;
                usage.replica_bytes = size * u128::from(usage.replicas);
            }
        }
        usage
    }

    /// Returns the usage of one replica for its storage element.
    pub fn of_replica(replica: &Replica, size: Option<u64>) -> Usage {
        if !replica.takes_space() {
            return Usage::default();
        }
        let size = u128::from(size.unwrap_or(0));
        Usage { files: 1, replicas: 1, bytes: size, replica_bytes: size, ..Usage::default() }
    }

    /// Returns the number of entries other than directories, which a quota of files limits.
    pub fn objects(&self) -> u64 {
        self.files + self.members + self.others
    }

    /// Says whether all sums are zero.
    pub fn is_empty(&self) -> bool {
        *self == Usage::default()
    }

    /// Adds `other`.
    pub fn add(&mut self, other: &Usage) {
        self.directories += other.directories;
        self.files += other.files;
        self.members += other.members;
        self.others += other.others;
        self.replicas += other.replicas;
        self.bytes += other.bytes;
        self.member_bytes += other.member_bytes;
        self.replica_bytes += other.replica_bytes;
    }

    /// Returns the difference; none if any sum would fall below zero, which means that a counter is
    /// wrong.
    #[must_use]
    pub fn minus(&self, other: &Usage) -> Option<Usage> {
        Some(Usage {
            directories: self.directories.checked_sub(other.directories)?,
            files: self.files.checked_sub(other.files)?,
            members: self.members.checked_sub(other.members)?,
            others: self.others.checked_sub(other.others)?,
            replicas: self.replicas.checked_sub(other.replicas)?,
            bytes: self.bytes.checked_sub(other.bytes)?,
            member_bytes: self.member_bytes.checked_sub(other.member_bytes)?,
            replica_bytes: self.replica_bytes.checked_sub(other.replica_bytes)?,
        })
    }
}
