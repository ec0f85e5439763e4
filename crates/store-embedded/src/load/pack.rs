//! Packs a file of a bulk load: everything that log, page and counters need.

use exacat_model::codec::Encode;
use exacat_model::{Body, Entry, GroupId, Guid, NewBody, NewEntry, Revision, TimeMs, Usage, UserId};
use exacat_store::rules::check_well_formed;

use super::row::{CREATED_GIVEN, HEAD_BYTES, MODIFIED_GIVEN, SIZE_KNOWN};
use super::sorter::Rows;
use crate::page::RowRoom;

/// Facts about a packed file for the totals of a load.
pub(super) struct Packed {
    pub guid: Guid,
    pub owner: UserId,
    pub group: GroupId,
    pub usage: Usage,
}

/// Packs a file behind the others; none if a load cannot take it.
pub(super) fn pack(number: u64, new: NewEntry, room: &mut RowRoom, rows: &mut Rows) -> Option<Packed> {
    if new.expires.is_some() || check_well_formed(&new).is_err() {
        return None;
    }
    let NewBody::File(mut file) = new.body else { return None };
    if file.is_member() {
        return None;
    }
    file.replicas.sort_by_key(|replica| replica.se);
    let mut flags = if file.size.is_some() { SIZE_KNOWN } else { 0 };
    flags |= if new.created.is_some() { CREATED_GIVEN } else { 0 };
    flags |= if new.modified.is_some() { MODIFIED_GIVEN } else { 0 };
    let entry = Entry {
        at: new.at,
        owner: new.owner,
        group: new.group,
        mode: new.mode,
        created: new.created.unwrap_or(TimeMs(0)),
        modified: new.modified.unwrap_or(TimeMs(0)),
        revision: Revision(0),
        expires: None,
        tags: new.tags,
        body: Body::File(file),
    };
    let file = entry.file()?;
    let row = room.row(&entry);
    let out = rows.begin();
    let start = out.len();
    out.resize(start + HEAD_BYTES, 0);
    out.extend_from_slice(row.name);
    let before = out.len();
    entry.owner.encode(out);
    entry.group.encode(out);
    entry.mode.encode(out);
    let after = out.len();
    entry.expires.encode(out);
    entry.tags.encode(out);
    entry.body.encode(out);
    let end = out.len();
    out.extend_from_slice(row.shape);
    out.extend_from_slice(row.rest);
    out.extend_from_slice(row.checksum);
    for replica in &file.replicas {
        out.extend_from_slice(&replica.se.0.to_le_bytes());
        out.push(u8::from(replica.takes_space()));
    }
    let bytes = out.len() - start;
    let head = &mut out[start..start + HEAD_BYTES];
    // All of them are far below 2^32: a file has some hundred KiB at most.
    for (at, count) in [(0, bytes), (4, row.shape.len()), (8, row.rest.len()), (12, end - after)] {
        head[at..at + 4].copy_from_slice(&(count as u32).to_le_bytes());
    }
    head[16..24].copy_from_slice(&row.parent.0.to_le_bytes());
    head[24..32].copy_from_slice(&number.to_le_bytes());
    head[32..48].copy_from_slice(&row.id);
    for (at, value) in [(48, row.size), (56, row.job), (64, row.created), (72, row.modified)] {
        head[at..at + 8].copy_from_slice(&value.to_le_bytes());
    }
    head[80..84].copy_from_slice(&entry.owner.0.to_le_bytes());
    head[84..88].copy_from_slice(&entry.group.0.to_le_bytes());
    (head[88], head[89], head[90]) = (flags, row.name.len() as u8, (after - before) as u8);
    (head[91], head[92]) = (row.checksum.len() as u8, file.replicas.len() as u8);
    let packed = Packed { guid: file.guid, owner: entry.owner, group: entry.group, usage: Usage::of(&entry) };
    rows.end(start);
    Some(packed)
}

#[cfg(test)]
mod tests {
    use exacat_model::{
        At, Checksum, ChecksumAlgorithm, Checksums, DirId, Effect, File, Location, Mode, Name, Pfn, Replica,
        ReplicaState, SeNumber, Tag,
    };

    use super::super::row::{Placed, name_and_number};
    use super::*;
    use exacat_testkit::simulated::Random;

    fn any_file(random: &mut Random, number: u64) -> NewEntry {
        let name = format!("{}-{number}", "n".repeat(1 + random.next(240) as usize));
        let mut checksums = Checksums::none();
        for algorithm in [ChecksumAlgorithm::Adler32, ChecksumAlgorithm::Md5] {
            if random.chance(2) {
                let digest = vec![number as u8; algorithm.digest_bytes()];
                checksums.add(Checksum::new(algorithm, &digest).unwrap()).unwrap();
            }
        }
        let replicas = (0..random.next(5)).rev().map(|se| Replica {
            se: SeNumber(1 + se as u16),
            state: ReplicaState::ALL[random.next(4) as usize],
            location: match random.next(3) {
                0 => Location::Explicit(Pfn::parse(&format!("root://host//{name}")).unwrap()),
                1 => Location::Explicit(Pfn::parse("root://host//other").unwrap()),
                _ => Location::Derived,
            },
        });
        let replicas = replicas.collect();
        let some = |random: &mut Random| random.chance(2).then(|| random.next(u64::MAX));
        NewEntry {
            at: At { parent: DirId(1 + random.next(1 << 40)), name: Name::parse(&name).unwrap() },
            owner: UserId(random.next(1 << 32) as u32),
            group: GroupId(random.next(1 << 32) as u32),
            mode: Mode::FILE,
            created: some(random).map(TimeMs),
            modified: some(random).map(TimeMs),
            expires: None,
            tags: (0..random.next(3)).map(|tag| Tag::parse(&format!("t{tag}={number}")).unwrap()).collect(),
            body: NewBody::File(File {
                guid: Guid([number as u8; 16]),
                size: some(random).map(|size| size >> 8),
                checksums,
                job: some(random),
                replicas,
            }),
        }
    }

    /// Goal: a load logs, stores and counts the same as one create does. Method: files of every
    /// shape, packed and unpacked, compared with the entry that deciding makes of them.
    #[test]
    fn a_packed_file_says_what_its_entry_says() {
        let mut random = Random(1);
        let (mut room, mut encoded) = (RowRoom::default(), Vec::new());
        for number in 0..2000 {
            let new = any_file(&mut random, number);
            let (revision, now) = (Revision(random.next(1 << 50)), TimeMs(random.next(1 << 45)));
            let NewBody::File(mut file) = new.body.clone() else { unreachable!() };
            file.replicas.sort_by_key(|replica| replica.se);
            let entry = Entry {
                at: new.at.clone(),
                owner: new.owner,
                group: new.group,
                mode: new.mode,
                created: new.created.unwrap_or(now),
                modified: new.modified.unwrap_or(now),
                revision,
                expires: None,
                tags: new.tags.clone(),
                body: Body::File(file),
            };
            let mut rows = Rows::default();
            let packed = pack(number, new, &mut RowRoom::default(), &mut rows).unwrap();
            let placed = Placed::read(rows.bytes()).unwrap();
            placed.effect(revision, now, &mut encoded);
            assert_eq!(encoded, Effect::Created { entry: Box::new(entry.clone()) }.to_bytes());
            assert_eq!(placed.row(revision, now), room.row(&entry));
            assert_eq!((placed.usage(), placed.number()), (Usage::of(&entry), number));
            assert_eq!(packed.usage, placed.usage());
            assert_eq!(name_and_number(rows.bytes()), Some((placed.name, number)));
            assert_eq!((placed.owner(), placed.group()), (entry.owner, entry.group));
            let file = entry.file().unwrap();
            let places = file.replicas.iter().map(|replica| (replica.se, replica.takes_space()));
            assert!(placed.places().eq(places) && placed.guid() == file.guid);
            for cut in [0, 3, 50, placed.bytes.len() - 1] {
                assert!(Placed::read(&rows.bytes()[..cut]).is_none());
            }
        }
    }

    /// Goal: files that are not plain are left.
    #[test]
    fn what_is_no_plain_file_is_not_taken() {
        let mut random = Random(2);
        let mut plain = || any_file(&mut random, 1);
        let took = |new: NewEntry| pack(1, new, &mut RowRoom::default(), &mut Rows::default()).is_some();
        assert!(took(plain()));
        assert!(!took(NewEntry { expires: Some(TimeMs(5)), ..plain() }));
        assert!(!took(NewEntry { body: NewBody::Directory, ..plain() }));
        assert!(!took(NewEntry { body: NewBody::Collection { guid: Guid([1; 16]) }, ..plain() }));
        let twice = |key: &str| Tag::parse(&format!("{key}=1")).unwrap();
        assert!(!took(NewEntry { tags: vec![twice("b"), twice("a")], ..plain() }));
        let mut member = plain();
        if let NewBody::File(file) = &mut member.body {
            let location = Location::Member { archive: Guid([7; 16]), member: "part".to_owned() };
            file.replicas = vec![Replica { se: SeNumber::NONE, state: ReplicaState::Available, location }];
        }
        assert!(!took(member));
    }
}
