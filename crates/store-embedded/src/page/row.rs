//! Rows: one entry, or the note that it is gone, in the parts that a page stores separately.
//!
//! Entries of one directory are much alike: they have one owner, one mode, replicas on the same
//! storage elements. The common part is the *shape*, bytes that a page stores once. The rest are
//! numbers and digests of a known width, and rarely more.
//!
//! ```text
//! shape:  kind u8 · flags u8 · owner · group · mode · [algorithm u8 of the one checksum]
//!         · places: their number, each: SE · 0 (derived) or 1 and the PFN before the name
//! rest:   [item of the trash: its former place, LFN, remover and time] · [expires] · [tags] · [checksums]
//!         · [replicas] · collection: members · link: target
//! ```
//! A PFN that ends with the entry's own name costs only its part of the shape. Most explicit PFNs
//! do.

use exacat_model::codec::{Decode, DecodeError, Encode, Reader, put_bytes, put_varint};
use exacat_model::{
    At, Body, Checksum, ChecksumAlgorithm, Checksums, DirId, Entry, File, GroupId, Guid, Lfn, Location, Mode,
    Name, Pfn, Replica, ReplicaState, Revision, SeNumber, TimeMs, UserId,
};
use exacat_store::{FoundFile, StoredReplica};

use crate::keyspace;

/// Kind of a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum RowKind {
    /// Note that the entry is gone.
    Gone = 0,
    Directory = 1,
    File = 2,
    Collection = 3,
    Link = 4,
    /// Bytes kept beside the tree, in the rest; no entry.
    Side = 5,
    /// Note that the GUID was purged, whatever older rows have.
    Purged = 6,
}

const SIZE: u8 = 1;
const JOB: u8 = 2;
const EXPIRES: u8 = 4;
const TAGS: u8 = 8;
/// Flag: exactly one checksum, whose digest is a separate part.
const ONE_CHECKSUM: u8 = 16;
/// Flag: no checksum or several, in the rest.
const CHECKSUMS: u8 = 32;
/// Flag: replicas that no place in the shape can express, in the rest.
const REPLICAS: u8 = 64;
/// Flag: an item of the trash, whose former place is in the rest.
const TRASHED: u8 = 128;

/// Facts about an item of the trash beside its entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Trashed {
    /// Former place.
    pub at: At,
    /// Former name of that place.
    pub lfn: Lfn,
    pub removed_by: UserId,
    pub removed: TimeMs,
}

impl Encode for Trashed {
    fn encode(&self, out: &mut Vec<u8>) {
        self.at.encode(out);
        self.lfn.encode(out);
        self.removed_by.encode(out);
        self.removed.encode(out);
    }
}

impl Decode for Trashed {
    fn decode(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        Ok(Trashed {
            at: Decode::decode(reader)?,
            lfn: Decode::decode(reader)?,
            removed_by: Decode::decode(reader)?,
            removed: Decode::decode(reader)?,
        })
    }
}

/// A row whose parts are borrowed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Row<'a> {
    pub parent: DirId,
    pub name: &'a [u8],
    pub shape: &'a [u8],
    /// GUID, or number of a directory.
    pub id: [u8; 16],
    pub size: u64,
    pub job: u64,
    pub created: u64,
    pub modified: u64,
    pub revision: u64,
    /// Digest of the one checksum.
    pub checksum: &'a [u8],
    pub rest: &'a [u8],
}

/// Buffers for the encoded parts of a row.
#[derive(Default)]
pub(crate) struct RowRoom {
    shape: Vec<u8>,
    rest: Vec<u8>,
    checksum: Vec<u8>,
}

fn number_of(id: &[u8; 16]) -> DirId {
    let mut number = [0; 8];
    number.copy_from_slice(&id[..8]);
    DirId(u64::from_le_bytes(number))
}

/// Returns the part of a PFN before this name, if the PFN ends with it.
fn before_name<'p>(location: &'p Location, name: &str) -> Option<&'p str> {
    match location {
        Location::Explicit(pfn) => pfn.as_str().strip_suffix(name),
        Location::Derived | Location::Member { .. } => None,
    }
}

impl RowRoom {
    /// Returns the row of an entry in the tree, or below an item of the trash.
    pub(crate) fn row<'a>(&'a mut self, entry: &'a Entry) -> Row<'a> {
        let key = (keyspace::directory_of(&entry.at), entry.at.name.as_str().as_bytes());
        self.any(entry, key, None)
    }

    /// Returns the row of an item of the trash under this key.
    pub(crate) fn trashed<'a>(&'a mut self, entry: &'a Entry, key: &'a [u8; 8], item: &Trashed) -> Row<'a> {
        self.any(entry, (keyspace::TRASH, key), Some(item))
    }

    fn any<'a>(
        &'a mut self,
        entry: &'a Entry,
        (parent, key): (DirId, &'a [u8]),
        item: Option<&Trashed>,
    ) -> Row<'a> {
        let RowRoom { shape, rest, checksum } = self;
        // The buffers serve one row after the other, so that encoding allocates nothing.
        shape.clear();
        rest.clear();
        checksum.clear();
        let name = entry.at.name.as_str();
        let (kind, id) = match &entry.body {
            Body::Directory(number) => {
                // A number fills half of the identity, so directories need no column of their own.
                let mut id = [0; 16];
                id[..8].copy_from_slice(&number.0.to_le_bytes());
                (RowKind::Directory, id)
            }
            Body::File(file) => (RowKind::File, file.guid.0),
            Body::Collection { guid, .. } => (RowKind::Collection, guid.0),
            Body::Link { guid, .. } => (RowKind::Link, guid.0),
        };
        let mut flags = 0;
        // The item of the trash comes first in the rest: `trashed` reads it without the other
        // parts.
        if let Some(item) = item {
            flags |= TRASHED;
            item.encode(rest);
        }
        if let Some(expires) = entry.expires {
            flags |= EXPIRES;
            expires.encode(rest);
        }
        if !entry.tags.is_empty() {
            flags |= TAGS;
            entry.tags.encode(rest);
        }
        // Kind and flags have fixed places, so that `guid` and `trashed` need not decode the shape.
        // The flags are known only below.
        shape.extend_from_slice(&[kind as u8, 0]);
        entry.owner.encode(shape);
        entry.group.encode(shape);
        entry.mode.encode(shape);
        let (mut size, mut job) = (0, 0);
        match &entry.body {
            Body::Directory(_) => {}
            Body::Collection { members, .. } => put_varint(rest, *members),
            Body::Link { target, .. } => target.encode(rest),
            Body::File(file) => {
                flags |= if file.size.is_some() { SIZE } else { 0 };
                flags |= if file.job.is_some() { JOB } else { 0 };
                (size, job) = (file.size.unwrap_or(0), file.job.unwrap_or(0));
                flags |= put_checksums(&file.checksums, shape, rest, checksum);
                flags |= put_replicas(&file.replicas, name, shape, rest);
            }
        }
        shape[1] = flags;
        Row {
            parent,
            name: key,
            shape,
            id,
            size,
            job,
            created: entry.created.0,
            modified: entry.modified.0,
            revision: entry.revision.0,
            checksum,
            rest,
        }
    }
}

fn put_checksums(checksums: &Checksums, shape: &mut Vec<u8>, rest: &mut Vec<u8>, digest: &mut Vec<u8>) -> u8 {
    let mut all = checksums.iter();
    match (all.next(), all.next()) {
        (None, _) => 0,
        (Some(one), None) => {
            // One checksum is the normal case. Its digest gets a column, and the shape stays common
            // to many rows.
            shape.push(one.algorithm() as u8);
            digest.extend_from_slice(one.digest());
            ONE_CHECKSUM
        }
        _ => {
            checksums.encode(rest);
            CHECKSUMS
        }
    }
}

fn put_replicas(replicas: &[Replica], name: &str, shape: &mut Vec<u8>, rest: &mut Vec<u8>) -> u8 {
    let plain = |replica: &Replica| {
        replica.state == ReplicaState::Available
            && (replica.location == Location::Derived || before_name(&replica.location, name).is_some())
    };
    // A shape is common to many rows, so replicas with a state or a PFN of their own go to the
    // rest.
    if !replicas.iter().all(plain) {
        replicas.encode(rest);
        return REPLICAS;
    }
    put_varint(shape, replicas.len() as u64);
    for replica in replicas {
        replica.se.encode(shape);
        match before_name(&replica.location, name) {
            None => shape.push(0),
            Some(before) => {
                shape.push(1);
                put_bytes(shape, before.as_bytes());
            }
        }
    }
    0
}

/// Part of a shape before its places.
struct Shape<'a> {
    kind: RowKind,
    flags: u8,
    owner: UserId,
    group: GroupId,
    mode: Mode,
    algorithm: Option<ChecksumAlgorithm>,
    places: Reader<'a>,
}

impl<'a> Shape<'a> {
    fn read(bytes: &'a [u8]) -> Result<Self, DecodeError> {
        let mut reader = Reader::new(bytes);
        // Rows that are no entry never come here: `entry` passes over them before.
        let kind = match reader.byte()? {
            1 => RowKind::Directory,
            2 => RowKind::File,
            3 => RowKind::Collection,
            4 => RowKind::Link,
            _ => return Err(reader.error("a shape of no kind of entry")),
        };
        let flags = reader.byte()?;
        let (owner, group) = (UserId::decode(&mut reader)?, GroupId::decode(&mut reader)?);
        let mode = Mode::decode(&mut reader)?;
        let algorithm = match flags & ONE_CHECKSUM != 0 {
            false => None,
            true => Some(
                ChecksumAlgorithm::from_number(reader.byte()?)
                    .ok_or_else(|| reader.error("unknown checksum algorithm"))?,
            ),
        };
        Ok(Shape { kind, flags, owner, group, mode, algorithm, places: reader })
    }
}

/// Says whether this is the shape of something gone.
pub(super) fn is_gone(shape: &[u8]) -> bool {
    // A comparison of slices is a call, and this is asked of each row.
    matches!(shape, [kind] if *kind == Row::GONE[0] || *kind == Row::PURGED[0])
}

impl<'a> Row<'a> {
    /// Shape of a row that notes a removal.
    pub(crate) const GONE: [u8; 1] = [RowKind::Gone as u8];

    /// Returns the note that this change removed what had the key.
    pub(crate) fn gone(parent: DirId, name: &'a [u8], revision: Revision) -> Row<'a> {
        Row {
            parent,
            name,
            shape: &Row::GONE,
            id: [0; 16],
            size: 0,
            job: 0,
            created: 0,
            modified: 0,
            revision: revision.0,
            checksum: &[],
            rest: &[],
        }
    }

    /// Shape of bytes beside the tree.
    pub(crate) const SIDE: [u8; 1] = [RowKind::Side as u8];

    /// Returns the row of bytes kept beside the tree.
    pub(crate) fn side(table: DirId, key: &'a [u8], value: &'a [u8], revision: Revision) -> Row<'a> {
        Row { shape: &Row::SIDE, rest: value, ..Row::gone(table, key, revision) }
    }

    /// Shape of a purged GUID.
    pub(crate) const PURGED: [u8; 1] = [RowKind::Purged as u8];

    /// Returns the note that a GUID was purged. Its key is the GUID itself, and no other row has
    /// that key. Newer notes are found first, because a look-up of a GUID begins with the newest
    /// rows.
    pub(crate) fn purged(guid: &'a Guid, revision: Revision) -> Row<'a> {
        Row { shape: &Row::PURGED, id: guid.0, ..Row::gone(keyspace::PURGED, &guid.0, revision) }
    }

    /// Says whether the row notes that something is gone.
    pub(crate) fn is_gone(&self) -> bool {
        is_gone(self.shape)
    }

    /// Returns the GUID, if the row is of something that has or had one.
    pub(crate) fn guid(&self) -> Option<Guid> {
        match self.shape.first() {
            // Files, collections and links have a GUID, and a purged row had one (`RowKind`).
            Some(2..=4 | 6) => Some(Guid(self.id)),
            _ => None,
        }
    }

    /// Says whether the row is a file.
    pub(crate) fn is_file(&self) -> bool {
        self.shape.first() == Some(&(RowKind::File as u8))
    }

    /// Returns the approximate size in bytes.
    pub(crate) fn bytes(&self) -> usize {
        // 64 bytes: the directory, the identity and the five numbers.
        self.name.len() + self.shape.len() + self.rest.len() + self.checksum.len() + 64
    }

    /// Returns the facts about an item of the trash; none if the row is no item.
    pub(crate) fn trashed(&self) -> Result<Option<Trashed>, DecodeError> {
        // Only entries have flags in the second byte.
        match self.shape.get(..2) {
            Some([1..=4, flags]) if flags & TRASHED != 0 => {
                Trashed::decode(&mut Reader::new(self.rest)).map(Some)
            }
            _ => Ok(None),
        }
    }

    /// Returns the whole entry; none if it is gone, or the row is no entry.
    pub(crate) fn entry(&self) -> Result<Option<Entry>, DecodeError> {
        if self.is_gone() || self.shape == Row::SIDE {
            return Ok(None);
        }
        let mut shape = Shape::read(self.shape)?;
        let rest = &mut Reader::new(self.rest);
        let flags = shape.flags;
        let at = match flags & TRASHED {
            0 => self.at()?,
            _ => Trashed::decode(rest)?.at,
        };
        // The parts come in the order in which `RowRoom::any` puts them.
        let expires = if flags & EXPIRES != 0 { Some(TimeMs::decode(rest)?) } else { None };
        let tags = if flags & TAGS != 0 { Decode::decode(rest)? } else { Vec::new() };
        let guid = Guid(self.id);
        let body = match shape.kind {
            RowKind::Directory => Body::Directory(number_of(&self.id)),
            RowKind::Collection => Body::Collection { guid, members: Decode::decode(rest)? },
            RowKind::Link => Body::Link { guid, target: Lfn::decode(rest)? },
            _ => Body::File(self.file(at.name.as_str(), &mut shape, rest)?),
        };
        // Bytes left over prove damage: every part has been read.
        rest.clone().finish()?;
        Ok(Some(Entry {
            at,
            owner: shape.owner,
            group: shape.group,
            mode: shape.mode,
            created: TimeMs(self.created),
            modified: TimeMs(self.modified),
            revision: Revision(self.revision),
            expires,
            tags,
            body,
        }))
    }

    /// Returns the place of the entry, if its key has it.
    fn at(&self) -> Result<At, DecodeError> {
        let name = self.text()?;
        // The root has no parent. Its key is in a directory that no entry can have.
        if self.parent == keyspace::ROOT_IN {
            return Ok(At { parent: DirId::ROOT, name: Name::root() });
        }
        let bad = |_| Reader::new(&[]).error("not a valid name");
        Ok(At { parent: self.parent, name: Name::parse(name).map_err(bad)? })
    }

    fn text(&self) -> Result<&'a str, DecodeError> {
        std::str::from_utf8(self.name).map_err(|_| Reader::new(&[]).error("a name is not UTF-8"))
    }

    /// Returns what a look-up needs, if the row is a file in the tree. `way` is the caller's.
    pub(crate) fn found_file(&self, way: usize) -> Result<Option<FoundFile>, DecodeError> {
        if !self.is_file() {
            return Ok(None);
        }
        let mut shape = Shape::read(self.shape)?;
        let rest = &mut Reader::new(self.rest);
        skip_to_checksums(&shape, rest)?;
        let file = self.file(self.text()?, &mut shape, rest)?;
        Ok(Some(FoundFile { way, owner: shape.owner, group: shape.group, mode: shape.mode, file }))
    }

    /// Returns the file's replica on a storage element, if the row is a file that has one there.
    pub(crate) fn replica_on(&self, se: SeNumber) -> Result<Option<StoredReplica>, DecodeError> {
        if !self.is_file() {
            return Ok(None);
        }
        let mut shape = Shape::read(self.shape)?;
        let rest = &mut Reader::new(self.rest);
        // The key of an item of the trash is its number.
        let trashed = if shape.flags & TRASHED != 0 { Some(Trashed::decode(rest)?) } else { None };
        let name = trashed.as_ref().map_or_else(|| self.text(), |item| Ok(item.at.name.as_str()))?;
        skip_to_checksums(&shape, rest)?;
        let checksums = self.checksums(&shape, rest)?;
        let found = match shape.flags & REPLICAS != 0 {
            true => Vec::<Replica>::decode(rest)?.into_iter().find(|replica| replica.se == se),
            false => place_on(se, name, &mut shape.places)?,
        };
        Ok(found.map(|replica| StoredReplica {
            guid: Guid(self.id),
            revision: Revision(self.revision),
            size: (shape.flags & SIZE != 0).then_some(self.size),
            checksums,
            replica,
        }))
    }

    fn checksums(&self, shape: &Shape<'_>, rest: &mut Reader<'_>) -> Result<Checksums, DecodeError> {
        Ok(match shape.algorithm {
            Some(algorithm) => {
                let digest = self.checksum.get(..algorithm.digest_bytes());
                let digest = digest.ok_or_else(|| rest.error("a digest that is too short"))?;
                Checksums::one(Checksum::new(algorithm, digest).map_err(|_| rest.error("not a digest"))?)
            }
            None if shape.flags & CHECKSUMS != 0 => Checksums::decode(rest)?,
            None => Checksums::none(),
        })
    }

    fn file(&self, name: &str, shape: &mut Shape<'_>, rest: &mut Reader<'_>) -> Result<File, DecodeError> {
        let flags = shape.flags;
        let checksums = self.checksums(shape, rest)?;
        let replicas = match flags & REPLICAS != 0 {
            true => Decode::decode(rest)?,
            false => places(name, &mut shape.places)?,
        };
        Ok(File {
            guid: Guid(self.id),
            // The columns have no null: a flag distinguishes size 0 from an unknown size.
            size: (flags & SIZE != 0).then_some(self.size),
            checksums,
            job: (flags & JOB != 0).then_some(self.job),
            replicas,
        })
    }
}

/// Passes over the parts of a rest that stand before the checksums, which a look-up of replicas does not
/// need.
fn skip_to_checksums(shape: &Shape<'_>, rest: &mut Reader<'_>) -> Result<(), DecodeError> {
    if shape.flags & EXPIRES != 0 {
        TimeMs::decode(rest)?;
    }
    if shape.flags & TAGS != 0 {
        Vec::<exacat_model::Tag>::decode(rest)?;
    }
    Ok(())
}

/// Place of a replica in a shape.
struct Place<'a> {
    se: SeNumber,
    /// Part of an explicit PFN before the file's name.
    before: Option<&'a str>,
}

impl<'a> Place<'a> {
    fn read(reader: &mut Reader<'a>) -> Result<Self, DecodeError> {
        let se = SeNumber::decode(reader)?;
        let before = match reader.byte()? {
            0 => None,
            1 => Some(reader.text()?),
            _ => return Err(reader.error("a place that is neither derived nor explicit")),
        };
        Ok(Place { se, before })
    }

    /// Returns the replica of the file with this name.
    fn replica(&self, name: &str) -> Result<Replica, DecodeError> {
        let location = match self.before {
            None => Location::Derived,
            Some(before) => {
                // The shape has the PFN up to the name, which the key has.
                let mut pfn = String::with_capacity(before.len() + name.len());
                pfn.push_str(before);
                pfn.push_str(name);
                // Parsing again keeps the promise of `model`: no bytes from disk become an invalid
                // PFN.
                let bad = |_| Reader::new(&[]).error("not a valid PFN");
                Location::Explicit(Pfn::try_from(pfn).map_err(bad)?)
            }
        };
        Ok(Replica { se: self.se, state: ReplicaState::Available, location })
    }
}

/// Reads the replicas whose places are in the shape; `name` is that of the file.
fn places(name: &str, reader: &mut Reader<'_>) -> Result<Vec<Replica>, DecodeError> {
    let count = reader.length()?;
    let mut replicas = Vec::with_capacity(count);
    for _ in 0..count {
        replicas.push(Place::read(reader)?.replica(name)?);
    }
    Ok(replicas)
}

/// Reads the replica on one storage element, as [`places`] reads all.
fn place_on(se: SeNumber, name: &str, reader: &mut Reader<'_>) -> Result<Option<Replica>, DecodeError> {
    for _ in 0..reader.length()? {
        let place = Place::read(reader)?;
        if place.se == se {
            return place.replica(name).map(Some);
        }
    }
    Ok(None)
}
