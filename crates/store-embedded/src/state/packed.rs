//! Packed entries: one entry as few bytes as it can be told in without a dictionary.
//!
//! This is memory only; files carry the canonical bytes. What look-ups compare (GUID, directory, name) comes
//! first, so that it lies in the record's first cache line or two. What most entries do not have costs a bit.
//!
//! ```text
//! flags u16 · GUID 16 (not a directory) · parent · name length u8, name · [directory: its number]
//! owner · group · mode · created · [modified - created] · revision · [expires] · [tags]
//! file: [size] · [job] · checksums · replicas        collection: members        link: target
//! ```
//! Integers without a width are varints.

use exacat_model::codec::{Decode, DecodeError, Encode, Reader, put_varint};
use exacat_model::{
    At, Body, Checksum, ChecksumAlgorithm, Checksums, DirId, Entry, File, Guid, Lfn, Location, Mode, Name,
    Replica, ReplicaState, Revision, SeNumber, Tag, TimeMs,
};
use exacat_store::FoundFile;

const KIND_MASK: u16 = 3;
const DIRECTORY: u16 = 0;
const FILE: u16 = 1;
const COLLECTION: u16 = 2;
const LINK: u16 = 3;
/// The entry is an item of the trash itself (not merely below one): its revision is the item's id.
const TRASHED: u16 = 1 << 2;
const EXPIRES: u16 = 1 << 3;
const TAGS: u16 = 1 << 4;
const SIZE: u16 = 1 << 5;
const JOB: u16 = 1 << 6;
/// `modified` differs from `created`.
const MODIFIED: u16 = 1 << 7;
/// Exactly one checksum, md5: its digest stands alone.
const ONE_MD5: u16 = 1 << 8;
/// Exactly one checksum, adler32.
const ONE_ADLER32: u16 = 1 << 9;
/// Checksums of any other number or kind, in canonical bytes.
const CHECKSUMS: u16 = 1 << 10;
/// Some replica is not plainly available at its derived PFN: all of them in canonical bytes. Otherwise their number
/// and the steps between their SE numbers.
const ODD_REPLICAS: u16 = 1 << 11;

/// Packs an entry into `out`, which is emptied first.
pub(crate) fn pack(entry: &Entry, trashed: bool, out: &mut Vec<u8>) {
    out.clear();
    let mut flags = if trashed { TRASHED } else { 0 };
    flags |= if entry.expires.is_some() { EXPIRES } else { 0 };
    flags |= if entry.tags.is_empty() { 0 } else { TAGS };
    flags |= if entry.modified == entry.created { 0 } else { MODIFIED };
    match &entry.body {
        Body::Directory(_) => flags |= DIRECTORY,
        Body::File(file) => flags |= FILE | file_flags(file),
        Body::Collection { .. } => flags |= COLLECTION,
        Body::Link { .. } => flags |= LINK,
    }
    out.extend_from_slice(&flags.to_le_bytes());
    if let Some(guid) = entry.guid() {
        out.extend_from_slice(&guid.0);
    }
    put_varint(out, entry.at.parent.0);
    let name = entry.at.name.as_str().as_bytes();
    out.push(name.len() as u8);
    out.extend_from_slice(name);
    if let Body::Directory(id) = &entry.body {
        id.encode(out);
    }
    entry.owner.encode(out);
    entry.group.encode(out);
    entry.mode.encode(out);
    entry.created.encode(out);
    if flags & MODIFIED != 0 {
        (entry.modified.0.wrapping_sub(entry.created.0) as i64).encode(out);
    }
    entry.revision.encode(out);
    if let Some(expires) = entry.expires {
        expires.encode(out);
    }
    if flags & TAGS != 0 {
        entry.tags.encode(out);
    }
    match &entry.body {
        Body::Directory(_) => {}
        Body::File(file) => pack_file(file, flags, out),
        Body::Collection { members, .. } => members.encode(out),
        Body::Link { target, .. } => target.encode(out),
    }
}

fn file_flags(file: &File) -> u16 {
    let mut flags = if file.size.is_some() { SIZE } else { 0 };
    flags |= if file.job.is_some() { JOB } else { 0 };
    let mut checksums = file.checksums.iter();
    flags |= match (checksums.next().map(Checksum::algorithm), checksums.next()) {
        (None, _) => 0,
        (Some(ChecksumAlgorithm::Md5), None) => ONE_MD5,
        (Some(ChecksumAlgorithm::Adler32), None) => ONE_ADLER32,
        _ => CHECKSUMS,
    };
    let plain =
        |replica: &Replica| replica.state == ReplicaState::Available && replica.location == Location::Derived;
    let rising = file.replicas.windows(2).all(|pair| pair[0].se < pair[1].se);
    flags | if rising && file.replicas.iter().all(plain) { 0 } else { ODD_REPLICAS }
}

fn pack_file(file: &File, flags: u16, out: &mut Vec<u8>) {
    if let Some(size) = file.size {
        size.encode(out);
    }
    if let Some(job) = file.job {
        job.encode(out);
    }
    if flags & CHECKSUMS != 0 {
        file.checksums.encode(out);
    } else {
        file.checksums.iter().for_each(|checksum| out.extend_from_slice(checksum.digest()));
    }
    if flags & ODD_REPLICAS != 0 {
        file.replicas.encode(out);
        return;
    }
    put_varint(out, file.replicas.len() as u64);
    let mut last = 0;
    for replica in &file.replicas {
        put_varint(out, u64::from(replica.se.0 - last));
        last = replica.se.0;
    }
}

/// The directory's number, as its varint, and the name in a packed entry; nothing if the bytes are none. It is
/// [`Front::read`] for those who only compare, millions of times a second.
fn place_of(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let start = if u16::from(*bytes.first()?) & KIND_MASK == DIRECTORY { 2 } else { 2 + 16 };
    let mut at = start;
    while *bytes.get(at)? & 0x80 != 0 {
        at += 1;
    }
    let length = usize::from(*bytes.get(at + 1)?);
    Some((&bytes[start..=at], bytes.get(at + 2..at + 2 + length)?))
}

/// The name in a packed entry; nothing if the bytes are none.
pub(crate) fn name_of(bytes: &[u8]) -> &[u8] {
    place_of(bytes).map_or(&[], |(_, name)| name)
}

/// Does a packed entry stand in this directory under this name?
pub(crate) fn stands_at(bytes: &[u8], parent: DirId, name: &[u8]) -> bool {
    place_of(bytes).is_some_and(|(varint, other)| {
        let number = varint.iter().rev().fold(0, |number, byte| number << 7 | u64::from(byte & 0x7f));
        other == name && number == parent.0
    })
}

/// What stands at the front of a packed entry.
#[derive(Clone, Debug)]
pub(crate) struct Front<'a> {
    flags: u16,
    guid: Option<Guid>,
    /// The directory it is in.
    pub parent: DirId,
    /// Its name's bytes.
    pub name: &'a [u8],
    rest: Reader<'a>,
}

impl<'a> Front<'a> {
    /// Reads the front of a packed entry.
    pub fn read(bytes: &'a [u8]) -> Result<Self, DecodeError> {
        let mut rest = Reader::new(bytes);
        let flags = u16::from_le_bytes(<[u8; 2]>::decode(&mut rest)?);
        let guid = if flags & KIND_MASK == DIRECTORY { None } else { Some(Guid::decode(&mut rest)?) };
        let parent = DirId::decode(&mut rest)?;
        let length = usize::from(rest.byte()?);
        let name = rest.take(length)?;
        Ok(Front { flags, guid, parent, name, rest })
    }

    /// Its GUID, if it is no directory.
    pub fn guid(&self) -> Option<Guid> {
        self.guid
    }

    /// Is it an item of the trash itself?
    pub fn is_trashed(&self) -> bool {
        self.flags & TRASHED != 0
    }

    /// Is it a file?
    pub fn is_file(&self) -> bool {
        self.flags & KIND_MASK == FILE
    }

    /// Is it a collection?
    pub fn is_collection(&self) -> bool {
        self.flags & KIND_MASK == COLLECTION
    }

    /// Its number, if it is a directory.
    pub fn directory(&self) -> Result<Option<DirId>, DecodeError> {
        if self.flags & KIND_MASK != DIRECTORY {
            return Ok(None);
        }
        DirId::decode(&mut self.rest.clone()).map(Some)
    }

    /// What a look-up needs of it, if it is a file. `way` is the caller's.
    pub fn found_file(self, way: usize) -> Result<Option<FoundFile>, DecodeError> {
        let (flags, reader) = (self.flags, &mut self.rest.clone());
        let Some(guid) = self.guid.filter(|_| self.is_file()) else { return Ok(None) };
        let (owner, group, mode) = (Decode::decode(reader)?, Decode::decode(reader)?, Mode::decode(reader)?);
        TimeMs::decode(reader)?;
        if flags & MODIFIED != 0 {
            i64::decode(reader)?;
        }
        Revision::decode(reader)?;
        if flags & EXPIRES != 0 {
            TimeMs::decode(reader)?;
        }
        if flags & TAGS != 0 {
            Vec::<Tag>::decode(reader)?;
        }
        let file = unpack_file(guid, flags, reader)?;
        Ok(Some(FoundFile { way, owner, group, mode, file }))
    }

    /// The whole entry.
    pub fn entry(self) -> Result<Entry, DecodeError> {
        let mut rest = self.rest;
        let text = std::str::from_utf8(self.name).map_err(|_| rest.error("a name is not UTF-8"))?;
        let name = match text {
            "/" => Name::root(),
            _ => Name::parse(text).map_err(|_| rest.error("not a valid name"))?,
        };
        let reader = &mut rest;
        let flags = self.flags;
        let directory = if flags & KIND_MASK == DIRECTORY { Some(DirId::decode(reader)?) } else { None };
        let owner = Decode::decode(reader)?;
        let group = Decode::decode(reader)?;
        let mode = Mode::decode(reader)?;
        let created = TimeMs::decode(reader)?;
        let modified = if flags & MODIFIED != 0 {
            TimeMs(created.0.wrapping_add(i64::decode(reader)? as u64))
        } else {
            created
        };
        let revision = Revision::decode(reader)?;
        let expires = if flags & EXPIRES != 0 { Some(TimeMs::decode(reader)?) } else { None };
        let tags = if flags & TAGS != 0 { Decode::decode(reader)? } else { Vec::new() };
        let body = match (directory, self.guid, flags & KIND_MASK) {
            (Some(id), _, _) => Body::Directory(id),
            (None, Some(guid), FILE) => Body::File(unpack_file(guid, flags, reader)?),
            (None, Some(guid), COLLECTION) => Body::Collection { guid, members: Decode::decode(reader)? },
            (None, Some(guid), _) => Body::Link { guid, target: Lfn::decode(reader)? },
            (None, None, _) => return Err(reader.error("an entry without identity")),
        };
        rest.finish()?;
        let at = At { parent: self.parent, name };
        Ok(Entry { at, owner, group, mode, created, modified, revision, expires, tags, body })
    }
}

fn unpack_file(guid: Guid, flags: u16, reader: &mut Reader<'_>) -> Result<File, DecodeError> {
    let size = if flags & SIZE != 0 { Some(u64::decode(reader)?) } else { None };
    let job = if flags & JOB != 0 { Some(u64::decode(reader)?) } else { None };
    let one = match flags & (ONE_MD5 | ONE_ADLER32) {
        ONE_MD5 => Some(ChecksumAlgorithm::Md5),
        ONE_ADLER32 => Some(ChecksumAlgorithm::Adler32),
        _ => None,
    };
    let checksums = match one {
        Some(algorithm) => {
            let digest = reader.take(algorithm.digest_bytes())?;
            Checksums::one(Checksum::new(algorithm, digest).map_err(|_| reader.error("not a digest"))?)
        }
        None if flags & CHECKSUMS != 0 => Checksums::decode(reader)?,
        None => Checksums::none(),
    };
    if flags & ODD_REPLICAS != 0 {
        return Ok(File { guid, size, checksums, job, replicas: Decode::decode(reader)? });
    }
    let count = reader.length()?;
    let mut replicas = Vec::with_capacity(count);
    let mut se = 0u16;
    for _ in 0..count {
        let step = u16::decode(reader)?;
        se = se.checked_add(step).ok_or_else(|| reader.error("an SE number beyond 16 bits"))?;
        replicas.push(Replica {
            se: SeNumber(se),
            state: ReplicaState::Available,
            location: Location::Derived,
        });
    }
    Ok(File { guid, size, checksums, job, replicas })
}

#[cfg(test)]
mod tests {
    use super::*;
    use exacat_model::{GroupId, Pfn, UserId};

    fn entry(body: Body) -> Entry {
        Entry {
            at: At { parent: DirId(70_000), name: Name::parse("AliAOD.0001.root").unwrap() },
            owner: UserId(7),
            group: GroupId(300),
            mode: Mode::FILE,
            created: TimeMs(1_790_000_000_123),
            modified: TimeMs(1_790_000_000_123),
            revision: Revision(123_456_789),
            expires: None,
            tags: Vec::new(),
            body,
        }
    }

    fn file(change: impl FnOnce(&mut File)) -> Entry {
        let mut file = File {
            guid: Guid([9; 16]),
            size: None,
            checksums: Checksums::none(),
            job: None,
            replicas: vec![],
        };
        change(&mut file);
        entry(Body::File(file))
    }

    fn replica(se: u16) -> Replica {
        Replica { se: SeNumber(se), state: ReplicaState::Available, location: Location::Derived }
    }

    #[test]
    fn every_shape_of_entry_unpacks_to_itself() {
        let md5 = Checksum::parse("md5:d41d8cd98f00b204e9800998ecf8427e").unwrap();
        let adler = Checksum::parse("adler32:1").unwrap();
        let sha1 = Checksum::parse("fd7b1361307ab21b6cc2ca3434471fb6c21b56b6").unwrap();
        let mut two = Checksums::one(md5);
        two.add(adler).unwrap();
        let mut dressed = file(|file| {
            file.size = Some(u64::MAX);
            file.job = Some(0);
            file.checksums = two.clone();
            file.replicas = vec![
                replica(1),
                Replica { location: Location::Explicit(Pfn::parse("root://h//x").unwrap()), ..replica(2) },
            ];
        });
        dressed.expires = Some(TimeMs(0));
        dressed.modified = TimeMs(5);
        dressed.tags = vec![Tag::parse("run=5").unwrap(), Tag::parse("x=text").unwrap()];
        let mut root = entry(Body::Directory(DirId::ROOT));
        root.at = At { parent: DirId::ROOT, name: Name::root() };
        root.modified = TimeMs(u64::MAX);
        let mut longest = entry(Body::Directory(DirId(u64::MAX)));
        longest.at.name = Name::parse(&"x".repeat(255)).unwrap();
        let entries = [
            entry(Body::Directory(DirId(4))),
            root,
            longest,
            file(|_| {}),
            file(|file| file.checksums = Checksums::one(md5)),
            file(|file| file.checksums = Checksums::one(adler)),
            file(|file| file.checksums = Checksums::one(sha1)),
            file(|file| file.replicas = vec![replica(1), replica(300), replica(u16::MAX)]),
            file(|file| file.replicas = vec![Replica { state: ReplicaState::Lost, ..replica(1) }]),
            file(|file| {
                let location = Location::Member { archive: Guid([1; 16]), member: "a/b".into() };
                file.replicas =
                    vec![Replica { se: SeNumber::NONE, state: ReplicaState::Available, location }];
            }),
            dressed,
            entry(Body::Collection { guid: Guid([3; 16]), members: 77 }),
            entry(Body::Link { guid: Guid([4; 16]), target: Lfn::parse("/a/b").unwrap() }),
        ];
        let mut bytes = Vec::new();
        for entry in entries {
            for trashed in [false, true] {
                pack(&entry, trashed, &mut bytes);
                let front = Front::read(&bytes).unwrap();
                assert_eq!(front.is_trashed(), trashed);
                assert_eq!(front.guid(), entry.guid());
                assert_eq!(name_of(&bytes), entry.at.name.as_str().as_bytes());
                assert!(stands_at(&bytes, entry.at.parent, entry.at.name.as_str().as_bytes()));
                assert!(!stands_at(
                    &bytes,
                    DirId(entry.at.parent.0 ^ 128),
                    entry.at.name.as_str().as_bytes()
                ));
                assert!(!stands_at(&bytes, entry.at.parent, b"other"));
                assert_eq!(front.directory().unwrap(), entry.directory());
                assert_eq!((front.parent, front.name), (entry.at.parent, entry.at.name.as_str().as_bytes()));
                let found = front.clone().found_file(7).unwrap();
                assert_eq!(found.as_ref().map(|found| &found.file), entry.file());
                if let Some(found) = found {
                    let FoundFile { way, owner, group, mode, .. } = found;
                    assert_eq!((way, owner, group, mode), (7, entry.owner, entry.group, entry.mode));
                }
                assert_eq!(front.entry().unwrap(), entry);
            }
        }
    }

    /// Goal: the promise of at most 250 bytes per entry rests on this size.
    #[test]
    fn a_typical_file_packs_into_115_bytes() {
        let mut typical = file(|file| {
            file.size = Some(2_000_000_000);
            file.checksums = Checksums::one(Checksum::new(ChecksumAlgorithm::Md5, &[7; 16]).unwrap());
            file.replicas = vec![replica(300), replica(412)];
        });
        typical.at.name = Name::parse(&"n".repeat(41)).unwrap();
        typical.modified = TimeMs(1_789_999_000_000);
        let mut bytes = Vec::new();
        pack(&typical, false, &mut bytes);
        assert!(bytes.len() <= 115, "{} bytes", bytes.len());
    }
}
