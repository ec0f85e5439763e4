//! Who uses and reserves how much: users, groups, storage elements. Exact after every change.

use std::collections::{BTreeMap, BTreeSet};

use exacat_model::{DirId, GroupId, SeNumber, Usage, UserId};
use exacat_store::Account;

use crate::defect::Defect;

/// Adds, or takes away, with the check that nothing goes below zero.
pub(crate) fn change(usage: &mut Usage, plus: &Usage, minus: &Usage) -> Result<(), Defect> {
    usage.add(plus);
    *usage = usage.minus(minus).ok_or_else(|| Defect::new("a usage counter would go below zero"))?;
    Ok(())
}

/// What a storage element holds.
#[derive(Debug, Default)]
pub(crate) struct SeAccount {
    /// Replicas that take space.
    pub usage: Usage,
    /// The directories with files that have a replica here, of any state. It leads a listing to them: an index by file
    /// would cost more than the replica itself. How many such files there are is the directory's to count.
    pub directories: BTreeSet<DirId>,
    /// How many items of the trash are files with a replica here.
    pub trashed: u64,
    /// Replicas that bookings are to make here.
    pub booked: u64,
    /// What the physical copies to delete add up to; as many replicas as there are of them.
    pub deletions_usage: Usage,
}

impl SeAccount {
    /// Nothing here, nothing to come, nothing to delete?
    pub fn is_unused(&self) -> bool {
        self.directories.is_empty() && self.trashed == 0 && self.booked == 0 && self.has_no_deletions()
    }

    /// Is there nothing to delete?
    pub fn has_no_deletions(&self) -> bool {
        self.deletions_usage.files == 0
    }

    /// What one deletion counts.
    pub fn of_deletion(size: Option<u64>) -> Usage {
        let bytes = u128::from(size.unwrap_or(0));
        Usage { files: 1, replicas: 1, bytes, replica_bytes: bytes, ..Usage::default() }
    }
}

/// All accounts.
#[derive(Debug, Default)]
pub(crate) struct Accounts {
    pub users: BTreeMap<UserId, Account>,
    pub groups: BTreeMap<GroupId, Account>,
    pub ses: BTreeMap<SeNumber, SeAccount>,
    /// Unfinished uploads of each user.
    pub bookings: BTreeMap<UserId, u32>,
}

/// Applies a change to one account of a map; an account with nothing in it is not kept.
fn settle<K: Ord>(
    accounts: &mut BTreeMap<K, Account>,
    key: K,
    change: impl FnOnce(&mut Account) -> Result<(), Defect>,
) -> Result<(), Defect> {
    match accounts.entry(key) {
        std::collections::btree_map::Entry::Occupied(mut found) => {
            change(found.get_mut())?;
            if *found.get() == Account::default() {
                found.remove();
            }
        }
        std::collections::btree_map::Entry::Vacant(place) => {
            let mut account = Account::default();
            change(&mut account)?;
            if account != Account::default() {
                place.insert(account);
            }
        }
    }
    Ok(())
}

impl Accounts {
    pub fn user(&self, user: UserId) -> Account {
        self.users.get(&user).copied().unwrap_or_default()
    }

    pub fn group(&self, group: GroupId) -> Account {
        self.groups.get(&group).copied().unwrap_or_default()
    }

    /// An entry of this owner and group came.
    pub fn add_use(&mut self, owner: UserId, group: GroupId, usage: &Usage) {
        if !usage.is_empty() {
            self.users.entry(owner).or_default().usage.add(usage);
            self.groups.entry(group).or_default().usage.add(usage);
        }
    }

    /// An entry of this owner and group came (`plus`) or went (`minus`).
    pub fn use_by(
        &mut self,
        owner: UserId,
        group: GroupId,
        plus: &Usage,
        minus: &Usage,
    ) -> Result<(), Defect> {
        settle(&mut self.users, owner, |account| change(&mut account.usage, plus, minus))?;
        settle(&mut self.groups, group, |account| change(&mut account.usage, plus, minus))
    }

    /// A booking of this owner and group came (`plus`) or went (`minus`).
    pub fn reserve_by(
        &mut self,
        owner: UserId,
        group: GroupId,
        plus: &Usage,
        minus: &Usage,
    ) -> Result<(), Defect> {
        settle(&mut self.users, owner, |account| change(&mut account.reserved, plus, minus))?;
        settle(&mut self.groups, group, |account| change(&mut account.reserved, plus, minus))
    }

    /// The number of a user's bookings changed.
    pub fn count_booking(&mut self, owner: UserId, more: bool) -> Result<(), Defect> {
        let count = self.bookings.entry(owner).or_default();
        *count = if more { count.checked_add(1) } else { count.checked_sub(1) }
            .ok_or_else(|| Defect::new("a user's count of bookings went out of range"))?;
        if *count == 0 {
            self.bookings.remove(&owner);
        }
        Ok(())
    }

    /// Does any account of a storage element stand for nothing? Then it is dropped.
    pub fn forget_if_unused(&mut self, se: SeNumber) {
        if self.ses.get(&se).is_some_and(SeAccount::is_unused) {
            self.ses.remove(&se);
        }
    }
}

impl SeAccount {
    /// An item of the trash with a replica here came or went.
    pub fn move_trashed(&mut self, come: bool) -> Result<(), Defect> {
        self.trashed = if come { self.trashed.checked_add(1) } else { self.trashed.checked_sub(1) }
            .ok_or_else(|| Defect::new("a storage element's count of files went out of range"))?;
        Ok(())
    }
}
