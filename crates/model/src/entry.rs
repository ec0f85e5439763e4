//! Entries: what a name in the catalogue stands for, and what each counts towards usage.

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

/// A directory's number, given by the store when it is made, never used again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DirId(pub u64);

/// The position of a change in the history: 1, 2, 3 … without gaps on the embedded store. 0 is before all.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Revision(pub u64);

canonical_newtype!(DirId, Revision);

impl DirId {
    /// The root, there from the start.
    pub const ROOT: DirId = DirId(1);
}

/// Where an entry stands: the directory it is in, and its name there.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct At {
    /// The directory.
    pub parent: DirId,
    /// The name in it.
    pub name: Name,
}

canonical_struct!(At { parent, name });

impl At {
    /// Stands for a place that a caller may not see. No directory has the number 0.
    #[allow(clippy::expect_used, reason = "the constant is a valid name")]
    pub fn withheld() -> Self {
        At { parent: DirId(0), name: Name::parse("withheld").expect("a valid name") }
    }

    /// Does it stand for a place that the caller may not see?
    pub fn is_withheld(&self) -> bool {
        self.parent == DirId(0)
    }
}

/// What stays the same when an entry is moved.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum EntryId {
    /// A directory, by its number.
    Directory(DirId),
    /// A file, collection or link, by its GUID.
    Object(Guid),
}

canonical_enum!(EntryId { 1 => Directory(id), 2 => Object(guid) });

impl EntryId {
    /// The GUID, if it is no directory.
    pub fn object(self) -> Option<Guid> {
        match self {
            EntryId::Object(guid) => Some(guid),
            EntryId::Directory(_) => None,
        }
    }
}

/// What kind of entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum Kind {
    /// Holds names.
    Directory = 1,
    /// Has content somewhere.
    File = 2,
    /// A named set of files.
    Collection = 3,
    /// Another name for a path.
    Link = 4,
}

canonical_enum!(Kind { 1 => Directory, 2 => File, 3 => Collection, 4 => Link });

impl Kind {
    /// All kinds.
    pub const ALL: [Kind; 4] = [Kind::Directory, Kind::File, Kind::Collection, Kind::Link];

    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Kind::Directory => "directory",
            Kind::File => "file",
            Kind::Collection => "collection",
            Kind::Link => "link",
        }
    }

    /// Its letter in a long listing.
    pub fn letter(self) -> char {
        match self {
            Kind::Directory => 'd',
            Kind::File => '-',
            Kind::Collection => 'c',
            Kind::Link => 'l',
        }
    }

    /// The kind of that name or letter (`f` for a file, as `find -type`).
    pub fn parse(text: &str) -> Result<Self> {
        Self::ALL.into_iter().find(|kind| kind.name() == text || kind.name()[..1] == *text).ok_or_else(|| {
            Error::invalid(format!("not a kind (directory, file, collection, link): {text:.100?}"))
        })
    }
}

/// Where one replica's bytes are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Location {
    /// At the PFN that follows from the storage element's prefix and the GUID; nothing is stored.
    Derived,
    /// At this PFN.
    Explicit(Pfn),
    /// Inside an archive.
    Member {
        /// The archive's GUID.
        archive: Guid,
        /// The name inside it.
        member: String,
    },
}

canonical_enum!(Location { 0 => Derived, 1 => Explicit(pfn), 2 => Member { archive, member } });

/// What is known of a replica.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum ReplicaState {
    /// It can be read.
    Available = 1,
    /// It is on its way and cannot be read yet.
    Copying = 2,
    /// Reading it failed; it is offered last.
    Suspect = 3,
    /// Its bytes are gone; it is not offered and takes no space.
    Lost = 4,
}

canonical_enum!(ReplicaState { 1 => Available, 2 => Copying, 3 => Suspect, 4 => Lost });

impl ReplicaState {
    /// All states.
    pub const ALL: [ReplicaState; 4] =
        [ReplicaState::Available, ReplicaState::Copying, ReplicaState::Suspect, ReplicaState::Lost];

    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            ReplicaState::Available => "available",
            ReplicaState::Copying => "copying",
            ReplicaState::Suspect => "suspect",
            ReplicaState::Lost => "lost",
        }
    }

    /// The state of that name.
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
    /// What is known of it.
    pub state: ReplicaState,
    /// Where it is.
    pub location: Location,
}

canonical_struct!(Replica { se, state, location });

impl Replica {
    /// Checks what the types do not: a member is on no storage element, everything else on one.
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

    /// Is it a part of an archive?
    pub fn is_member(&self) -> bool {
        matches!(self.location, Location::Member { .. })
    }

    /// Does it take space on its storage element?
    pub fn takes_space(&self) -> bool {
        self.state != ReplicaState::Lost && !self.is_member()
    }

    /// The PFN, as text; `se` must be the replica's storage element (none for a member).
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

/// A file's own part of an entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct File {
    /// The identity of its content.
    pub guid: Guid,
    /// Bytes, if known: real listings have files without.
    pub size: Option<u64>,
    /// What is known of its content's checksums.
    pub checksums: Checksums,
    /// The grid job that made it.
    pub job: Option<u64>,
    /// Its copies, by storage element.
    pub replicas: Vec<Replica>,
}

canonical_struct!(File { guid, size, checksums, job, replicas });

impl File {
    /// The replica on this storage element.
    pub fn replica(&self, se: SeNumber) -> Option<&Replica> {
        self.replicas.iter().find(|replica| replica.se == se)
    }

    /// Is it inside an archive?
    pub fn is_member(&self) -> bool {
        self.replicas.iter().any(Replica::is_member)
    }
}

/// What differs by kind.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Body {
    /// A directory: its number.
    Directory(DirId),
    /// A file.
    File(File),
    /// A collection: its GUID and how many members it has.
    Collection {
        /// Its identity.
        guid: Guid,
        /// How many members.
        members: u64,
    },
    /// A link: its GUID and the path it stands for, which need not exist.
    Link {
        /// Its identity.
        guid: Guid,
        /// The path it stands for.
        target: Lfn,
    },
}

canonical_enum!(Body {
    1 => Directory(id),
    2 => File(file),
    3 => Collection { guid, members },
    4 => Link { guid, target },
});

/// One name in the catalogue, with everything that is kept about it.
#[derive(Clone, Debug, PartialEq)]
pub struct Entry {
    /// Where it stands. The root stands in itself under the name [`Name::root`].
    pub at: At,
    /// Who owns it.
    pub owner: UserId,
    /// The group it belongs to.
    pub group: GroupId,
    /// Who may do what.
    pub mode: Mode,
    /// When it came into the catalogue.
    pub created: TimeMs,
    /// When its content was made, or what the one who registered it said.
    pub modified: TimeMs,
    /// The change that last touched it: its version.
    pub revision: Revision,
    /// It goes to the trash by itself from then on.
    pub expires: Option<TimeMs>,
    /// Its own tags, sorted by key; what it inherits is not here.
    pub tags: Vec<Tag>,
    /// What differs by kind.
    pub body: Body,
}

canonical_struct!(Entry { at, owner, group, mode, created, modified, revision, expires, tags, body });

impl Entry {
    /// What kind it is.
    pub fn kind(&self) -> Kind {
        match self.body {
            Body::Directory(_) => Kind::Directory,
            Body::File(_) => Kind::File,
            Body::Collection { .. } => Kind::Collection,
            Body::Link { .. } => Kind::Link,
        }
    }

    /// What stays the same when it is moved.
    pub fn id(&self) -> EntryId {
        match &self.body {
            Body::Directory(id) => EntryId::Directory(*id),
            Body::File(file) => EntryId::Object(file.guid),
            Body::Collection { guid, .. } | Body::Link { guid, .. } => EntryId::Object(*guid),
        }
    }

    /// Its number, if it is a directory.
    pub fn directory(&self) -> Option<DirId> {
        match self.body {
            Body::Directory(id) => Some(id),
            _ => None,
        }
    }

    /// Its GUID, if it is no directory.
    pub fn guid(&self) -> Option<Guid> {
        self.id().object()
    }

    /// Its file part, if it is a file.
    pub fn file(&self) -> Option<&File> {
        match &self.body {
            Body::File(file) => Some(file),
            _ => None,
        }
    }

    /// The value of its own tag.
    pub fn tag(&self, key: &str) -> Option<&crate::tag::TagValue> {
        self.tags.iter().find(|tag| tag.key.as_str() == key).map(|tag| &tag.value)
    }

    /// Bytes, if it is a file whose size is known.
    pub fn size(&self) -> Option<u64> {
        self.file().and_then(|file| file.size)
    }
}

/// What entries add up to. A file inside an archive counts as a member, not as a file: its bytes are the
/// archive's. A file of unknown size counts no bytes. Byte sums have 128 bits: 64 overflow at 18 EB.
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
    /// What one entry counts, wherever it stands: towards its owner, its group and the directories above it.
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

    /// What one replica counts towards its storage element.
    pub fn of_replica(replica: &Replica, size: Option<u64>) -> Usage {
        if !replica.takes_space() {
            return Usage::default();
        }
        let size = u128::from(size.unwrap_or(0));
        Usage { files: 1, replicas: 1, bytes: size, replica_bytes: size, ..Usage::default() }
    }

    /// Entries other than directories: what a quota of files limits.
    pub fn objects(&self) -> u64 {
        self.files + self.members + self.others
    }

    /// Nothing at all?
    pub fn is_empty(&self) -> bool {
        *self == Usage::default()
    }

    /// The sum.
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

    /// The difference; none if any part would go below zero, which means a counter is wrong.
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
