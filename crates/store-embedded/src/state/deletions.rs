//! Deletion queues: queues physical copies for deletion, and takes one off when a file uses it
//! again.
//!
//! A deletion names a physical copy by file and location. Two locations are the same copy if they
//! give the same PFN. A queue can be long, so deletions are found by a hash: of the file's GUID for
//! a derived location, of the PFN for an explicit one.

use exacat_model::codec::{Decode, Encode, Reader};
use exacat_model::{
    Deletion, DeletionId, File, Guid, Location, Replica, ReplicaState, ReservedReplica, SeNumber,
};
use xxhash_rust::xxh3::xxh3_64_with_seed;

use super::accounts::{SeAccount, change};
use super::apply::NOTHING;
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
    fn pfn(&self, se: SeNumber, guid: Guid, location: &Location) -> String {
        let replica = Replica { se, state: ReplicaState::Available, location: location.clone() };
        replica.pfn(guid, self.se(se))
    }

    /// Says whether the GUID's file has or plans a replica there that takes space.
    pub(super) fn is_in_use(&self, se: SeNumber, guid: Guid, location: &Location) -> Result<bool, Defect> {
        let same =
            |other: &Location| other == location || self.pfn(se, guid, other) == self.pfn(se, guid, location);
        let reservation = self.reservation(guid);
        let on_se = |pending: &&ReservedReplica| pending.se == se;
        if reservation
            .and_then(|reservation| reservation.pending.iter().find(on_se))
            .is_some_and(|one| same(&one.location))
        {
            return Ok(true);
        }
        let Some(found) = self.look().find_guid(guid)? else { return Ok(false) };
        let replica = found.entry.file().and_then(|file: &File| file.replica(se));
        Ok(replica.is_some_and(|replica| replica.takes_space() && same(&replica.location)))
    }

    /// Queues a copy for deletion, unless the file or an upload reservation of the GUID still uses
    /// it.
    pub(super) fn queue_deletion(&mut self, se: SeNumber, deletion: Deletion) -> Result<(), Defect> {
        if self.is_in_use(se, deletion.guid, &deletion.location)? {
            return Ok(());
        }
        self.put_deletion(se, deletion)
    }

    /// Puts a deletion into the queue.
    pub(crate) fn put_deletion(&mut self, se: SeNumber, deletion: Deletion) -> Result<(), Defect> {
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

    /// Takes deletions of this copy off the queue, because a file has the replica now.
    pub(super) fn wanted(&mut self, guid: Guid, replica: &Replica) -> Result<(), Defect> {
        if !replica.takes_space() {
            return Ok(());
        }
        self.take_off_queue(replica.se, guid, &replica.location)
    }

    /// Takes every deletion of this physical copy off the SE's queue, whatever its file was.
    pub(super) fn take_off_queue(
        &mut self,
        se: SeNumber,
        guid: Guid,
        location: &Location,
    ) -> Result<(), Defect> {
        if self.accounts.ses.get(&se).is_none_or(SeAccount::has_no_deletions) {
            return Ok(());
        }
        let pfn = self.pfn(se, guid, location);
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
                if deletion.is_some_and(|one| self.pfn(se, one.guid, &one.location) == pfn) {
                    found.push(id);
                }
            }
        }
        // A deletion may be found by both hashes.
        found.sort_unstable();
        found.dedup();
        found.into_iter().try_for_each(|id| self.take_deletion(se, id))
    }

    /// Takes copies off the queue that are in use after a change of the SE's prefix: derived PFNs
    /// changed with it.
    pub(super) fn prefix_changed(&mut self, se: SeNumber) -> Result<(), Defect> {
        let mut found = Vec::new();
        self.look().scan(keyspace::DELETIONS, &keyspace::of_se(se), None, |row| {
            let deletion = deletion_of(row.rest)?;
            if self.is_in_use(se, deletion.guid, &deletion.location)? {
                found.push(deletion.id);
            }
            Ok(true)
        })?;
        found.into_iter().try_for_each(|id| self.take_deletion(se, id))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::run::Cache;
    use exacat_model::{At, Body, Checksums, DirId, Entry, GroupId, Mode, Name, Revision, TimeMs, UserId};

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
        state.queue_deletion(se, deletion(0, Location::Derived)).unwrap();
        state.queue_deletion(se, deletion(1, elsewhere.clone())).unwrap();
        assert_eq!(state.accounts.ses[&se].deletions_usage.files, 1, "the one in use is not queued");
        assert_eq!(findings(&state), Vec::<String>::new());
        state.put_deletion(se, deletion(2, Location::Derived)).unwrap();
        assert_eq!(findings(&state), ["deletions"]);
        state.wanted(guid, &replica).unwrap();
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
