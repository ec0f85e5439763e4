//! Builds a state from the items of a checkpoint, which the engine's first stage wrote.
//!
//! Items come in an order in which loading is inserting: a directory comes before its content.
//! Indices and counters were not written, and loading recomputes them. The counters of accounts
//! were written too, for comparison.

use std::collections::BTreeMap;
use std::sync::Arc;

use exacat_model::codec::{Decode, Reader};
use exacat_model::{
    Booking, Deletion, DirId, Entry, Guid, Lfn, Record, Revision, SeNumber, TimeMs, TrashId, UserId,
};
use exacat_store::{Account, UsageOf};

use super::State;
use crate::defect::Defect;
use crate::page::Trashed;
use crate::run::Cache;

/// Parts of a state, in the order in which they are written. The numbers belong to the checkpoint's
/// format.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub(crate) enum Part {
    /// `Entry`: the root and the tree.
    Tree = 1,
    /// (id, (`Entry`, (LFN, (removed by, removed)))): items of the trash.
    Trash = 2,
    /// `Entry`: everything below items of the trash.
    BelowTrash = 3,
    /// (collection, member).
    Members = 4,
    /// `Booking`.
    Bookings = 5,
    /// (SE, `Deletion`).
    Deletions = 6,
    /// (`Record`, revision).
    Records = 7,
    /// (`UsageOf`, `Account`): counters, compared with those that loading computes.
    Accounts = 8,
    /// (operation, first revision of a record of it): kept beside the state.
    Operations = 9,
}

impl Part {
    const ALL: [Part; 9] = [
        Part::Tree,
        Part::Trash,
        Part::BelowTrash,
        Part::Members,
        Part::Bookings,
        Part::Deletions,
        Part::Records,
        Part::Accounts,
        Part::Operations,
    ];

    pub fn from_number(number: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|part| *part as u8 == number)
    }
}

type TrashRow = (TrashId, (Entry, (Lfn, (UserId, TimeMs))));

impl State {
    /// Returns every counter except those of directories, but with the root's.
    pub(super) fn account_list(&self) -> BTreeMap<UsageOf, Account> {
        let mut list = BTreeMap::new();
        let users = self.accounts.users.iter().map(|(user, account)| (UsageOf::User(*user), *account));
        list.extend(users);
        list.extend(self.accounts.groups.iter().map(|(group, account)| (UsageOf::Group(*group), *account)));
        for se in self.accounts.ses.keys() {
            list.insert(UsageOf::Se(*se), self.usage(UsageOf::Se(*se)));
            list.insert(UsageOf::Deletions(*se), self.usage(UsageOf::Deletions(*se)));
        }
        list.insert(UsageOf::Directory(DirId::ROOT), self.usage(UsageOf::Directory(DirId::ROOT)));
        list
    }
}

/// Facts about the state in a checkpoint, beside the items.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Summary {
    pub revision: Revision,
    pub time: TimeMs,
    pub next_directory: u64,
    pub entries: u64,
    pub digest: u128,
}

impl Summary {
    pub fn of(state: &State) -> Self {
        Summary {
            revision: state.revision,
            time: state.time,
            next_directory: state.next_directory,
            entries: state.entries,
            digest: state.digest(),
        }
    }
}

/// Builder of a state from items.
pub(crate) struct Loader {
    state: State,
    accounts: BTreeMap<UsageOf, Account>,
    operations: Vec<(exacat_model::OperationId, Revision)>,
}

impl Loader {
    pub fn new(seed: u64, cache: Arc<Cache>, next_directory: u64) -> Self {
        let mut state = State::empty(seed, Arc::default(), cache);
        state.next_directory = next_directory;
        Loader { state, accounts: BTreeMap::new(), operations: Vec::new() }
    }

    /// Takes one item.
    pub fn item(&mut self, part: Part, reader: &mut Reader<'_>) -> Result<(), Defect> {
        let state = &mut self.state;
        match part {
            Part::Tree | Part::BelowTrash => state.insert_entry(&Entry::decode(reader)?, None, None),
            Part::Trash => {
                let (id, (entry, (lfn, (removed_by, removed)))) = TrashRow::decode(reader)?;
                if entry.revision != id.0 {
                    return Err(Defect::new("an item of the trash is not the entry that was removed"));
                }
                let item = Trashed { at: entry.at.clone(), lfn, removed_by, removed };
                state.insert_entry(&entry, Some(&item), None)
            }
            Part::Members => {
                let (collection, member) = <(Guid, Guid)>::decode(reader)?;
                state.set_member(collection, member, true)
            }
            Part::Bookings => {
                let booking = Booking::decode(reader)?;
                state.set_booking(booking.guid, Some(booking))
            }
            Part::Deletions => {
                let (se, deletion) = <(SeNumber, Deletion)>::decode(reader)?;
                state.put_deletion(se, deletion)
            }
            Part::Records => {
                let (record, revision) = <(Record, Revision)>::decode(reader)?;
                state.set_record(record, revision)
            }
            Part::Accounts => {
                let (of, account) = <(UsageOf, Account)>::decode(reader)?;
                self.accounts.insert(of, account);
                Ok(())
            }
            Part::Operations => {
                self.operations.push(Decode::decode(reader)?);
                Ok(())
            }
        }
    }

    /// Returns the state, if it matches the summary, with the operations that were kept beside it.
    pub fn finish(
        mut self,
        summary: Summary,
    ) -> Result<(State, Vec<(exacat_model::OperationId, Revision)>), Defect> {
        self.state.revision = summary.revision;
        self.state.time = summary.time;
        // The engine's first stage kept no traces.
        self.state.traces_since = summary.revision;
        if self.state.directory(DirId::ROOT).is_none() {
            return Err(Defect::new("there is no root"));
        }
        if Summary::of(&self.state) != summary {
            return Err(Defect::new(
                "the state loaded is not the state that was written: its digest or size differs",
            ));
        }
        if self.state.account_list() != self.accounts {
            return Err(Defect::new("the counters loaded are not the counters that were written"));
        }
        Ok((self.state, self.operations))
    }
}
