//! The state as a sequence of items, and back: what a checkpoint holds.
//!
//! The order is such that loading is inserting: a directory comes before what is in it, children in the order of
//! their names. Indices and counters are not written but come about again; the counters of accounts are written
//! beside, to be compared.

use std::collections::BTreeMap;

use exacat_model::codec::{Decode, Encode, Reader};
use exacat_model::{
    Body, Booking, Deletion, DirId, Entry, EntryId, Guid, Lfn, Record, Revision, SeNumber, TimeMs, TrashId,
    UserId,
};
use exacat_store::{Account, UsageOf};

use super::arena::Handle;
use super::packed::name_of;
use super::{Defect, State, Trashed};

/// The parts of a state, in the order they are written. The numbers are part of the checkpoint's format.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub(crate) enum Part {
    /// `Entry`: the root and the tree.
    Tree = 1,
    /// (id, (`Entry`, (LFN, (removed by, removed)))): items of the trash.
    Trash = 2,
    /// `Entry`: what is below them.
    BelowTrash = 3,
    /// (collection, member).
    Members = 4,
    /// `Booking`.
    Bookings = 5,
    /// (SE, `Deletion`).
    Deletions = 6,
    /// (`Record`, revision).
    Records = 7,
    /// (`UsageOf`, `Account`): counters, to be compared with what loading counts.
    Accounts = 8,
    /// (operation, first revision of a record of it): not of the state, kept beside it.
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
    /// Gives every item of the state to `write`, in order.
    pub fn write_items<E: From<Defect>>(
        &self,
        write: &mut impl FnMut(Part, &dyn Encode) -> Result<(), E>,
    ) -> Result<(), E> {
        let no_root = || Defect::new("there is no root");
        let root = self.directory(DirId::ROOT).ok_or_else(no_root)?;
        write(Part::Tree, &self.entry(root.handle)?)?;
        self.write_below(DirId::ROOT, Part::Tree, write)?;
        for (id, item) in &self.trash {
            let row: TrashRow =
                (*id, (self.entry(item.handle)?, (item.lfn.clone(), (item.removed_by, item.removed))));
            write(Part::Trash, &row)?;
        }
        for item in self.trash.values() {
            if let Some(directory) = self.front(item.handle)?.directory().map_err(Defect::from)? {
                self.write_below(directory, Part::BelowTrash, write)?;
            }
        }
        for (collection, members) in &self.members {
            for member in members {
                write(Part::Members, &(*collection, *member))?;
            }
        }
        for booking in self.bookings.values() {
            write(Part::Bookings, booking)?;
        }
        for (se, account) in &self.accounts.ses {
            for deletion in account.deletions.values() {
                write(Part::Deletions, &(*se, deletion.clone()))?;
            }
        }
        for (record, revision) in self.records.values() {
            write(Part::Records, &(record.clone(), *revision))?;
        }
        for (of, account) in self.account_list() {
            write(Part::Accounts, &(of, account))?;
        }
        Ok(())
    }

    fn write_below<E: From<Defect>>(
        &self,
        directory: DirId,
        part: Part,
        write: &mut impl FnMut(Part, &dyn Encode) -> Result<(), E>,
    ) -> Result<(), E> {
        // Not recursive: a tree may be deeper than a stack.
        let mut open: Vec<Box<dyn Iterator<Item = Handle> + '_>> = Vec::new();
        open.push(self.handles_in(directory)?);
        while let Some(children) = open.last_mut() {
            let Some(handle) = children.next() else {
                open.pop();
                continue;
            };
            let entry = self.entry(handle)?;
            write(part, &entry)?;
            if let Some(below) = entry.directory()
                && !self.is_empty_directory(below)
            {
                open.push(self.handles_in(below)?);
            }
        }
        Ok(())
    }

    /// The children of a directory, in order.
    pub(super) fn handles_in(
        &self,
        directory: DirId,
    ) -> Result<Box<dyn Iterator<Item = Handle> + '_>, Defect> {
        let found = self.directory(directory);
        let found = found.ok_or_else(|| Defect(format!("there is no directory {}", directory.0)))?;
        Ok(Box::new(found.children.after(None, |other| name_of(self.arena.get(other)))))
    }

    /// Every counter that is no directory's, and the root's.
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

/// What a checkpoint says of its state beside the items.
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

/// Builds a state from items.
pub(crate) struct Loader {
    state: State,
    accounts: BTreeMap<UsageOf, Account>,
    operations: Vec<(exacat_model::OperationId, Revision)>,
}

impl Loader {
    pub fn new(seed: u64, next_directory: u64) -> Self {
        let mut state = State::empty(seed);
        state.next_directory = next_directory;
        Loader { state, accounts: BTreeMap::new(), operations: Vec::new() }
    }

    /// Takes one item.
    pub fn item(&mut self, part: Part, reader: &mut Reader<'_>) -> Result<(), Defect> {
        let state = &mut self.state;
        match part {
            Part::Tree | Part::BelowTrash => state.insert_entry(&Entry::decode(reader)?, false, None),
            Part::Trash => {
                let (id, (entry, (lfn, (removed_by, removed)))) = TrashRow::decode(reader)?;
                if entry.revision != id.0 {
                    return Err(Defect::new("an item of the trash is not the entry that was removed"));
                }
                state.insert_entry(&entry, true, None)?;
                let handle = state.find_id(entry.id());
                let handle = handle.ok_or_else(|| Defect::new("an entry that was put in is not there"))?;
                state.insert_trashed(id, Trashed { handle, lfn, removed_by, removed });
                Ok(())
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
                state.set_record(record, revision);
                Ok(())
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

    /// The state, if it is what the summary says, with the operations that were kept beside it.
    pub fn finish(
        mut self,
        summary: Summary,
    ) -> Result<(State, Vec<(exacat_model::OperationId, Revision)>), Defect> {
        self.state.revision = summary.revision;
        self.state.time = summary.time;
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

/// Collections must say how many members they have; for the audit.
pub(super) fn members_said(entry: &Entry) -> Option<(Guid, u64)> {
    match &entry.body {
        Body::Collection { guid, members } => Some((*guid, *members)),
        _ => None,
    }
}

/// The key an entry is told apart by in findings.
pub(super) fn label(id: EntryId) -> String {
    match id {
        EntryId::Directory(directory) => format!("directory {}", directory.0),
        EntryId::Object(guid) => guid.to_string(),
    }
}
