//! Deletion queues: queues physical copies for deletion, and takes one off when a file uses it
//! again.
//!
//! A deletion names a physical copy by file and location. Two locations are the same copy if they
//! give the same PFN. A queue can be long, so deletions are found by a hash: of the file's GUID for
//! a derived location, of the PFN for an explicit one.

use exacat_model::codec::{Decode, Encode, Reader};
use exacat_model::{Deletion, DeletionId, Guid, Location, SeNumber};
use exacat_store::rules;
use xxhash_rust::xxh3::xxh3_64_with_seed;

use super::accounts::{NOTHING, SeAccount, change};
use super::{Item, State};
use crate::defect::Defect;
use crate::keyspace;

/// Decodes a deletion from its row.
pub(crate) fn deletion_of(bytes: &[u8]) -> Result<Deletion, Defect> {
    let reader = &mut Reader::new(bytes);
    let deletion = Deletion::decode(reader)?;
    reader.clone().finish()?;
    Ok(deletion)
}

fn hash_guid(guid: Guid) -> u64 {
    xxh3_64_with_seed(&guid.0, 1)
}

fn hash_pfn(pfn: &str) -> u64 {
    xxh3_64_with_seed(pfn.as_bytes(), 2)
}

/// Returns the hash by which a deletion is found.
pub(super) fn hash_of(deletion: &Deletion) -> u64 {
    match &deletion.location {
        Location::Derived => hash_guid(deletion.guid),
        Location::Explicit(pfn) => hash_pfn(pfn.as_str()),
        // A member of an archive is on no SE and is never queued.
        Location::Member { .. } => 0,
    }
}

impl State {
    /// Puts a deletion into the queue.
    pub(crate) fn put_deletion(&mut self, se: SeNumber, deletion: Deletion) -> Result<(), Defect> {
        if self.is_filtered {
            // Its files leave the directory, and still exist in the catalogue.
            return Ok(());
        }
        let account = self.accounts.ses.entry(se).or_default();
        change(&mut account.deletions_usage, &SeAccount::of_deletion(deletion.size), &NOTHING)?;
        let (id, hash) = (deletion.id, hash_of(&deletion));
        self.put_side(keyspace::DELETIONS, &keyspace::deletion_key(se, id), &deletion.to_bytes())?;
        self.put_side(keyspace::DELETION_PLACES, &keyspace::place_key(se, hash, id), &[])?;
        self.digest.add(Item::Deletion, &(se, deletion));
        Ok(())
    }

    /// Returns one deletion of a queue.
    pub(crate) fn deletion(&self, se: SeNumber, id: DeletionId) -> Result<Option<Deletion>, Defect> {
        let view = self.table.view(None);
        view.find(keyspace::DELETIONS, &keyspace::deletion_key(se, id), |row| {
            row.map(|row| deletion_of(row.rest)).transpose()
        })?
    }

    /// Removes a deletion from the queue.
    pub(super) fn take_deletion(&mut self, se: SeNumber, id: DeletionId) -> Result<(), Defect> {
        let missing = || Defect::new(format!("{id:?} is not in the queue"));
        let deletion = self.deletion(se, id)?.ok_or_else(missing)?;
        let account = self.accounts.ses.entry(se).or_default();
        change(&mut account.deletions_usage, &NOTHING, &SeAccount::of_deletion(deletion.size))?;
        self.drop_side(keyspace::DELETIONS, &keyspace::deletion_key(se, id))?;
        self.drop_side(keyspace::DELETION_PLACES, &keyspace::place_key(se, hash_of(&deletion), id))?;
        self.digest.take(Item::Deletion, &(se, deletion));
        self.accounts.forget_if_unused(se);
        Ok(())
    }

    /// Returns the deletions of one physical copy, whichever file each is of.
    pub(super) fn deletions_of(
        &self,
        se: SeNumber,
        guid: Guid,
        location: &Location,
    ) -> Result<Vec<DeletionId>, Defect> {
        if self.accounts.ses.get(&se).is_none_or(SeAccount::has_no_deletions) {
            return Ok(Vec::new());
        }
        let pfn = rules::pfn(self, se, guid, location);
        let prefix = self.se(se).map_or("", |se| se.prefix.as_str());
        let derived = match location {
            Location::Derived => Some(guid),
            _ => pfn.strip_prefix(prefix).and_then(Guid::of_storage_path),
        };
        let hashes = [Some(hash_pfn(&pfn)), derived.map(hash_guid)];
        let (look, mut found) = (self.look(), Vec::new());
        for hash in hashes.into_iter().flatten() {
            let mut there = Vec::new();
            look.scan(keyspace::DELETION_PLACES, &keyspace::places_of(se, hash), None, |row| {
                there.extend(keyspace::placed(row.name));
                Ok(true)
            })?;
            for id in there {
                let deletion = self.deletion(se, id)?;
                if deletion.is_some_and(|one| rules::pfn(self, se, one.guid, &one.location) == pfn) {
                    found.push(id);
                }
            }
        }
        // A deletion may be found by both hashes.
        found.sort_unstable();
        found.dedup();
        Ok(found)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::run::Cache;
    use exacat_model::{
        At, Body, Checksums, DirId, Entry, File, GroupId, Mode, Name, Replica, ReplicaState, Revision,
        TimeMs, UserId,
    };

    /// Goal: the audit finds a copy in use on a queue, and an index that does not match the queue.
    #[test]
    fn the_audit_finds_a_copy_in_use_on_a_queue() {
        let se = SeNumber(1);
        let replica = Replica { se, state: ReplicaState::Available, location: Location::Derived };
        let (guid, replicas) = (Guid([1; 16]), vec![replica.clone()]);
        let file = File { guid, size: None, checksums: Checksums::none(), job: None, replicas };
        let entry = Entry {
            at: At { parent: DirId::ROOT, name: Name::parse("f").unwrap() },
            owner: UserId(1),
            group: GroupId(1),
            mode: Mode::FILE,
            created: TimeMs(0),
            modified: TimeMs(0),
            revision: Revision(0),
            expires: None,
            tags: Vec::new(),
            body: Body::File(file),
        };
        let mut state = State::new(7, Arc::new(Cache::new(1 << 20))).unwrap();
        state.insert_entry(&entry, None, None).unwrap();
        let deletion = |index, location| Deletion {
            id: DeletionId { revision: Revision(0), index },
            guid,
            size: None,
            location,
            queued: TimeMs(0),
        };
        let findings = |state: &State| -> Vec<String> {
            let audit = state.audit().unwrap();
            audit.findings.into_iter().map(|finding| finding.what).collect()
        };
        let elsewhere = Location::Explicit(exacat_model::Pfn::parse("root://h/x").unwrap());
        state.put_deletion(se, deletion(1, elsewhere.clone())).unwrap();
        assert_eq!(findings(&state), Vec::<String>::new());
        state.put_deletion(se, deletion(2, Location::Derived)).unwrap();
        assert_eq!(findings(&state), ["deletions"]);
        let copies = state.deletions_of(se, guid, &replica.location).unwrap();
        assert_eq!(copies, [deletion(2, Location::Derived).id]);
        state.take_deletion(se, copies[0]).unwrap();
        assert_eq!(findings(&state), Vec::<String>::new());
        let place = keyspace::place_key(
            se,
            hash_of(&deletion(1, elsewhere)),
            DeletionId { revision: Revision(0), index: 1 },
        );
        state.drop_side(keyspace::DELETION_PLACES, &place).unwrap();
        let found = findings(&state);
        assert!(
            !found.is_empty() && found.iter().all(|what| what == "index of a deletion queue"),
            "{found:?}"
        );
    }
}
