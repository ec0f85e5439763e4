//! Arguments of operations: files, replicas, attributes, settings, and owners, as a request names
//! them.

use crate::account::{AccountName, Mode, Role};
use crate::checksum::{Checksum, Checksums};
use crate::codec::{Decode, DecodeError, Encode, Reader};
use crate::entry::{ReplicaState, Revision};
use crate::guid::Guid;
use crate::lfn::Lfn;
use crate::pfn::Pfn;
use crate::se::{SeName, SeStatus};
use crate::tag::Tag;
use crate::time::TimeMs;
use crate::{canonical_enum, canonical_struct};

/// A file, by name or by GUID.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FileRef {
    /// By its LFN.
    Lfn(Lfn),
    /// By its GUID.
    Guid(Guid),
}

canonical_enum!(FileRef { 1 => Lfn(lfn), 2 => Guid(guid) });

impl FileRef {
    /// Returns the LFN of a file given by name.
    pub fn lfn(&self) -> Option<&Lfn> {
        match self {
            FileRef::Lfn(lfn) => Some(lfn),
            FileRef::Guid(_) => None,
        }
    }

    /// Returns the GUID of a file given by GUID.
    pub fn guid(&self) -> Option<Guid> {
        match self {
            FileRef::Lfn(_) => None,
            FileRef::Guid(guid) => Some(*guid),
        }
    }
}

/// Treatment of a file to register that exists already.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Existing {
    /// Refuses it with `Exists`.
    Refuse,
    /// Accepts it as unchanged if every given field is equal; otherwise refuses it with `Exists`.
    Same,
    /// Adds missing replicas, checksums, size and tags; refuses it if a given field contradicts.
    Merge,
}

canonical_enum!(Existing { 1 => Refuse, 2 => Same, 3 => Merge });

/// A replica to register.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewReplica {
    /// The storage element.
    pub se: SeName,
    /// PFN; none for the one derived from the GUID.
    pub pfn: Option<Pfn>,
    /// State of the replica.
    pub state: ReplicaState,
}

canonical_struct!(NewReplica { se, pfn, state });

/// A file to register.
#[derive(Clone, Debug, PartialEq)]
pub struct NewFile {
    /// Its path.
    pub lfn: Lfn,
    /// Its identity; none for a new one.
    pub guid: Option<Guid>,
    /// Bytes, if known.
    pub size: Option<u64>,
    /// Checksums, if known.
    pub checksums: Checksums,
    /// Owner; none for the caller. Only an admin may name another than the caller.
    pub owner: Option<AccountName>,
    /// Group; none for the owner's. Only an admin may name a group that the caller is not in.
    pub group: Option<AccountName>,
    /// Mode; none for 644.
    pub mode: Option<Mode>,
    /// Time its content was made; none for now.
    pub modified: Option<TimeMs>,
    /// Time from which the catalogue removes it to the trash.
    pub expires: Option<TimeMs>,
    /// Job that made it.
    pub job: Option<u64>,
    /// Its tags.
    pub tags: Vec<Tag>,
    /// Its replicas.
    pub replicas: Vec<NewReplica>,
    /// Archive that contains it, and its name there. A member has no replicas of its own.
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
    /// Makes a file of this name with no other field set.
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

/// Result of one file to register.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Registered {
    /// The file was created.
    Created(Guid),
    /// The file existed with equal fields.
    Unchanged(Guid),
    /// The file existed, and missing fields were added.
    Merged(Guid),
}

canonical_enum!(Registered { 1 => Created(guid), 2 => Unchanged(guid), 3 => Merged(guid) });

/// An attribute to set.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Attribute {
    /// Owner; only an admin may set it.
    Owner(AccountName),
    /// Group; the caller must be in it, or be an admin.
    Group(AccountName),
    /// The mode.
    Mode(Mode),
    /// Time its content was made.
    Modified(TimeMs),
    /// The expiry, or none.
    Expires(Option<TimeMs>),
    /// The job that made it, or none.
    Job(Option<u64>),
    /// Size, if it is not known yet.
    Size(u64),
    /// Checksum that is not known yet.
    Checksum(Checksum),
}

canonical_enum!(Attribute {
    1 => Owner(name), 2 => Group(name), 3 => Mode(mode), 4 => Modified(time), 5 => Expires(time),
    6 => Job(job), 7 => Size(size), 8 => Checksum(checksum),
});

/// Change to one replica.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ReplicaEdit {
    /// Adds it, or sets the state of an existing one.
    Put(NewReplica),
    /// Sets its state.
    State(SeName, ReplicaState),
    /// Removes it.
    Drop {
        /// The storage element.
        se: SeName,
        /// Queues the physical copy for deletion.
        delete: bool,
    },
    /// Changes nothing, and permits the other edits only if the file's entry has this version at the
    /// commit.
    Unchanged(Revision),
}

canonical_enum!(ReplicaEdit {
    1 => Put(replica),
    2 => State(se, state),
    3 => Drop { se, delete },
    4 => Unchanged(revision),
});

/// Choice of the storage elements of an upload.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SeChoice {
    /// Required storage elements.
    pub wanted: Vec<SeName>,
    /// Number of further ones for each quality of service.
    pub qos: Vec<(AccountName, u32)>,
    /// Excluded storage elements.
    pub excluded: Vec<SeName>,
    /// Orders by distance from this site, nearest first.
    pub site: Option<AccountName>,
}

canonical_struct!(SeChoice { wanted, qos, excluded, site });

/// A storage element to add or change. A field without a value stays as it is (for a new one: its
/// default).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SeSettings {
    /// Its name.
    pub name: SeName,
    /// Number, which cannot change; none lets the catalogue choose one for a new storage element.
    pub number: Option<u16>,
    /// Beginning of derived PFNs.
    pub prefix: Option<String>,
    /// Its quality-of-service labels.
    pub qos: Option<Vec<AccountName>>,
    /// Permitted use.
    pub status: Option<SeStatus>,
    /// Distances to set; sites not named stay as they are.
    pub distances: Vec<(AccountName, u32)>,
    /// Beginning of the URLs for HTTPS clients; empty for none.
    pub https: Option<String>,
    /// Refuses an existing one.
    pub only_new: bool,
}

/// Added to the byte of `only_new`: `https` follows it. Settings without it keep the bytes of earlier
/// releases.
const HAS_HTTPS: u8 = 2;

impl Encode for SeSettings {
    fn encode(&self, out: &mut Vec<u8>) {
        self.name.encode(out);
        self.number.encode(out);
        self.prefix.encode(out);
        self.qos.encode(out);
        self.status.encode(out);
        self.distances.encode(out);
        out.push(u8::from(self.only_new) + if self.https.is_some() { HAS_HTTPS } else { 0 });
        if let Some(https) = &self.https {
            https.encode(out);
        }
    }
}

impl Decode for SeSettings {
    fn decode(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let name = Decode::decode(reader)?;
        let (number, prefix) = (Decode::decode(reader)?, Decode::decode(reader)?);
        let (qos, status) = (Decode::decode(reader)?, Decode::decode(reader)?);
        let distances = Decode::decode(reader)?;
        let (only_new, has_https) = match reader.byte()? {
            byte @ 0..=3 => (byte & 1 == 1, byte & HAS_HTTPS != 0),
            _ => return Err(reader.error("settings of an SE end in a byte from 0 to 3")),
        };
        let https = if has_https { Some(Decode::decode(reader)?) } else { None };
        Ok(SeSettings { name, number, prefix, qos, status, distances, https, only_new })
    }
}

/// A user to add or change. A field without a value stays as it is (for a new one: its default).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UserSettings {
    /// Its name.
    pub name: AccountName,
    /// Group of the entries that it creates; for a new user, a group of its own name.
    pub group: Option<AccountName>,
    /// Further groups.
    pub groups: Option<Vec<AccountName>>,
    /// Its roles.
    pub roles: Option<Vec<Role>>,
    /// Accounts it may act as.
    pub may_become: Option<Vec<AccountName>>,
    /// Outside names of this user.
    pub subjects: Option<Vec<String>>,
    /// Its home directory.
    pub home: Option<Lfn>,
    /// True to refuse logins.
    pub disabled: Option<bool>,
    /// Refuses an existing one.
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
