//! State that is only in memory: written as rows behind a frozen memtable, and read again at
//! opening.
//!
//! The run of a frozen memtable has the state at one revision. It has the memtable's rows, and the
//! memory-only state that changed since the memtable before. All runs together have the whole
//! state, and opening reads no more than that.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use exacat_model::codec::{Decode, DecodeError, Encode, Reader, put_varint};
use exacat_model::{DirId, OperationId, Record, Reservation, Revision, SeNumber, TimeMs};
use exacat_store::{Account, UsageOf};

use super::{Above, Directory, Operations, State};
use crate::defect::Defect;
use crate::keyspace;
use crate::memtable::Memtable;
use crate::page::Row;
use crate::run::{Cache, Reading, Run};
use crate::table::{From, Version, View};

/// A memtable that no longer changes, and the rows behind it in its run.
pub(crate) struct Frozen {
    pub memtable: Arc<Memtable>,
    /// Last change in it, and its time.
    pub revision: Revision,
    pub time: TimeMs,
    /// Rows of memory-only state in the order of the keys: table, key, and the value unless it is
    /// gone.
    resident: Vec<(DirId, Vec<u8>, Option<Vec<u8>>)>,
    /// First revision whose operations are remembered.
    pub operations_from: Revision,
}

impl Frozen {
    /// Returns the number of rows in the run.
    pub(crate) fn rows(&self) -> usize {
        self.memtable.rows() + self.resident.len()
    }

    /// Returns the rows behind the memtable's.
    pub(crate) fn resident(&self) -> impl Iterator<Item = Row<'_>> {
        self.resident.iter().map(|(table, key, value)| match value {
            Some(value) => Row::side(*table, key, value, self.revision),
            None => Row::gone(*table, key, self.revision),
        })
    }
}

/// Facts about a state that its runs have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SelfSaid {
    pub revision: Revision,
    pub time: TimeMs,
    pub next_directory: u64,
    entries: u64,
    trash_items: u64,
    digest: u128,
    pub operations_from: Revision,
    /// Revision after which changes have traces. Runs of releases without traces lack it.
    traces_since: Revision,
}

impl Encode for SelfSaid {
    fn encode(&self, out: &mut Vec<u8>) {
        self.revision.encode(out);
        self.time.encode(out);
        put_varint(out, self.next_directory);
        put_varint(out, self.entries);
        put_varint(out, self.trash_items);
        out.extend_from_slice(&self.digest.to_le_bytes());
        self.operations_from.encode(out);
        self.traces_since.encode(out);
    }
}

impl Decode for SelfSaid {
    fn decode(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let revision = Decode::decode(reader)?;
        let time = Decode::decode(reader)?;
        let (next_directory, entries, trash_items) = (reader.varint()?, reader.varint()?, reader.varint()?);
        let digest = u128::from_le_bytes(<[u8; 16]>::decode(reader)?);
        let operations_from = Decode::decode(reader)?;
        let traces_since = if reader.is_empty() { revision } else { Decode::decode(reader)? };
        Ok(SelfSaid {
            revision,
            time,
            next_directory,
            entries,
            trash_items,
            digest,
            operations_from,
            traces_since,
        })
    }
}

/// Value of an SE's row, beside the facts that its directories and upload reservations have.
type SeRow = (Account, u64);

/// Decodes a value from bytes, all of which it must use.
pub(crate) fn decoded<T: Decode>(bytes: &[u8]) -> Result<T, Defect> {
    let mut reader = Reader::new(bytes);
    let value = T::decode(&mut reader)?;
    reader.finish()?;
    Ok(value)
}

impl State {
    /// Encodes all accounts as rows.
    fn account_rows(&self) -> BTreeMap<Vec<u8>, Vec<u8>> {
        let key = |of: UsageOf| of.to_bytes();
        let mut rows = BTreeMap::new();
        for (user, account) in &self.accounts.users {
            rows.insert(key(UsageOf::User(*user)), account.to_bytes());
        }
        for (group, account) in &self.accounts.groups {
            rows.insert(key(UsageOf::Group(*group)), account.to_bytes());
        }
        for (se, account) in &self.accounts.ses {
            let row: SeRow =
                (Account { usage: account.usage, reserved: account.deletions_usage }, account.trashed);
            rows.insert(key(UsageOf::Se(*se)), row.to_bytes());
        }
        rows
    }

    /// Returns the approximate number of rows that the next freezing will write behind the
    /// memtable's.
    pub(crate) fn resident_changed(&self) -> usize {
        self.directories.changed()
    }

    /// Freezes the memtable and begins another. The result, with earlier memtables and runs, has
    /// everything up to now.
    pub(crate) fn freeze(&mut self, operations: &Operations, since: Revision) -> Frozen {
        let operations_from = operations.oldest().unwrap_or(Revision(self.revision.0 + 1));
        let mut resident = Vec::new();
        for (id, value) in self.directories.take_changed() {
            resident.push((keyspace::DIRECTORIES, id.0.to_be_bytes().to_vec(), value));
        }
        let accounts = self.account_rows();
        let mut changed: BTreeMap<&[u8], Option<&[u8]>> = BTreeMap::new();
        for key in self.accounts_written.keys().filter(|key| !accounts.contains_key(*key)) {
            changed.insert(key, None);
        }
        for (key, value) in
            accounts.iter().filter(|(key, value)| self.accounts_written.get(*key) != Some(*value))
        {
            changed.insert(key, Some(value));
        }
        for (key, value) in changed {
            resident.push((keyspace::ACCOUNTS, key.to_vec(), value.map(<[u8]>::to_vec)));
        }
        self.accounts_written = accounts;
        for (revision, operation) in operations.since(since) {
            resident.push((
                keyspace::OPERATIONS,
                revision.0.to_be_bytes().to_vec(),
                Some(operation.0.to_vec()),
            ));
        }
        let said = SelfSaid {
            revision: self.revision,
            time: self.time,
            next_directory: self.next_directory,
            entries: self.entries,
            trash_items: self.trash_items,
            digest: self.digest(),
            operations_from,
            traces_since: self.traces_since,
        };
        resident.push((keyspace::SUMMARY, Vec::new(), Some(said.to_bytes())));
        let memtable = self.table.freeze();
        Frozen { memtable, revision: self.revision, time: self.time, resident, operations_from }
    }

    /// Loads the state of these runs, with the remembered operations.
    pub(crate) fn load(
        seed: u64,
        version: Arc<Version>,
        cache: Arc<Cache>,
        operations: &mut Operations,
    ) -> Result<Self, Defect> {
        let mut state = State::empty(seed, Arc::clone(&version), cache);
        let view = View { active: None, frozen: &[], version: &version, reading: Reading::in_passing() };
        let none = || Defect::new("the runs have no summary of their state");
        let said: SelfSaid =
            view.find(keyspace::SUMMARY, b"", |row| row.map(|row| decoded(row.rest)))?.ok_or_else(none)??;
        state.next_directory = said.next_directory;
        let mut rows = view.from(From { directory: keyspace::RECORDS, name: b"", after: false })?;
        while let Some(row) = rows.next_there()? {
            state.load_row(&row, &said, operations)?;
        }
        drop(rows);
        // The order lets each set be built at once.
        let mut on_ses: HashMap<SeNumber, Vec<DirId>> = HashMap::new();
        for (id, directory) in state.directories.iter() {
            for (se, _) in directory.ses() {
                on_ses.entry(*se).or_default().push(id);
            }
        }
        for (se, directories) in on_ses {
            state.accounts.ses.entry(se).or_default().directories = directories.into_iter().collect();
        }
        if state.directories.get(DirId::ROOT).is_none_or(|root| root.above != Above::Nothing) {
            return Err(Defect::new("there is no root"));
        }
        (state.revision, state.time) = (said.revision, said.time);
        state.traces_since = said.traces_since;
        (state.entries, state.trash_items) = (said.entries, said.trash_items);
        state.digest.set(said.digest);
        state.accounts_written = state.account_rows();
        Ok(state)
    }

    /// Returns the digest of the state of these runs.
    pub(crate) fn digest_in(runs: &[Arc<Run>]) -> Option<u128> {
        Self::said_in(runs).map(|said| said.digest)
    }

    /// Returns the last change in these runs, and its time.
    pub(crate) fn moment_in(runs: &[Arc<Run>]) -> Option<(Revision, TimeMs)> {
        Self::said_in(runs).map(|said| (said.revision, said.time))
    }

    /// Returns the last change in these runs.
    pub(crate) fn revision_in(runs: &[Arc<Run>]) -> Option<Revision> {
        Self::said_in(runs).map(|said| said.revision)
    }

    /// Returns the facts about the state that the newest of these runs has.
    pub(crate) fn said_in(runs: &[Arc<Run>]) -> Option<SelfSaid> {
        let version = Version { runs: runs.to_vec() };
        let view = View { active: None, frozen: &[], version: &version, reading: Reading::in_passing() };
        let said = view.find(keyspace::SUMMARY, b"", |row| row.map(|row| decoded::<SelfSaid>(row.rest)));
        said.ok().flatten().and_then(Result::ok)
    }

    fn load_row(
        &mut self,
        row: &Row<'_>,
        said: &SelfSaid,
        operations: &mut Operations,
    ) -> Result<(), Defect> {
        let bad = || Defect::new(format!("a row of table {} has no such key", row.parent.0));
        match row.parent {
            keyspace::RECORDS => {
                let (record, revision): (Record, Revision) = decoded(row.rest)?;
                let key = record.key();
                if let Some(name) = record.unique_name() {
                    self.record_names.insert((key.kind(), name.to_owned()), key);
                }
                self.records.insert(key, (record, revision));
            }
            keyspace::RESERVATIONS => {
                let reservation: Reservation = decoded(row.rest)?;
                self.reservation_expiry.insert((reservation.expires, reservation.guid));
                self.accounts.count_reservation(reservation.owner, true)?;
                for replica in &reservation.pending {
                    self.accounts.ses.entry(replica.se).or_default().reserved += 1;
                }
                self.reservations.insert(reservation.guid, reservation);
            }
            keyspace::DIRECTORIES => {
                let id = DirId(keyspace::number(row.name).ok_or_else(bad)?);
                if id.0 >= self.next_directory {
                    return Err(Defect::new(format!("directory {} was never made", id.0)));
                }
                self.directories.load(id, decoded::<Directory>(row.rest)?)?;
            }
            keyspace::ACCOUNTS => match decoded(row.name)? {
                UsageOf::User(user) => drop(self.accounts.users.insert(user, decoded(row.rest)?)),
                UsageOf::Group(group) => drop(self.accounts.groups.insert(group, decoded(row.rest)?)),
                UsageOf::Se(se) => self.load_se(se, decoded(row.rest)?),
                UsageOf::Directory(_) | UsageOf::Deletions(_) => return Err(bad()),
            },
            keyspace::OPERATIONS => {
                let revision = Revision(keyspace::number(row.name).ok_or_else(bad)?);
                if revision >= said.operations_from {
                    operations.remember(OperationId(decoded(row.rest)?), revision, said.time);
                }
            }
            keyspace::SUMMARY => {}
            _ => return Err(bad()),
        }
        Ok(())
    }

    fn load_se(&mut self, se: SeNumber, (account, trashed): SeRow) {
        let kept = self.accounts.ses.entry(se).or_default();
        (kept.usage, kept.deletions_usage, kept.trashed) = (account.usage, account.reserved, trashed);
    }
}
