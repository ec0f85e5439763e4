//! Accounts: usage and reservations of users, groups and storage elements, exact after every
//! change.

use std::collections::{BTreeMap, BTreeSet};

use exacat_model::{DirId, GroupId, SeNumber, Usage, UserId};
use exacat_store::Account;

use crate::defect::Defect;

/// The empty usage.
pub(super) const NOTHING: Usage = Usage {
    directories: 0,
    files: 0,
    members: 0,
    others: 0,
    replicas: 0,
    bytes: 0,
    member_bytes: 0,
    replica_bytes: 0,
};

/// Adds `plus` and subtracts `minus`; fails if a counter would go below zero.
pub(crate) fn change(usage: &mut Usage, plus: &Usage, minus: &Usage) -> Result<(), Defect> {
    usage.add(plus);
    *usage = usage.minus(minus).ok_or_else(|| Defect::new("a usage counter would go below zero"))?;
    Ok(())
}

/// Account of a storage element.
#[derive(Debug, Default)]
pub(crate) struct SeAccount {
    /// Usage of replicas that take space.
    pub usage: Usage,
    /// Directories with files that have a replica here, in any state. A listing visits these: an
    /// index by file would cost more than the replica itself. Each directory counts its own files.
    pub directories: BTreeSet<DirId>,
    /// Number of files in the trash with a replica here, as items themselves.
    pub trashed: u64,
    /// Number of replicas that upload reservations plan here.
    pub reserved: u64,
    /// Sum of the physical copies to delete; it counts each as a replica.
    pub deletions_usage: Usage,
}

impl SeAccount {
    /// Says whether nothing is here, planned here, or to be deleted here.
    pub(crate) fn is_unused(&self) -> bool {
        self.directories.is_empty() && self.trashed == 0 && self.reserved == 0 && self.has_no_deletions()
    }

    /// Says whether the deletion queue is empty.
    pub(crate) fn has_no_deletions(&self) -> bool {
        self.deletions_usage.files == 0
    }

    /// Returns the usage that one deletion counts.
    pub(crate) fn of_deletion(size: Option<u64>) -> Usage {
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
    /// Number of unfinished uploads of each user.
    pub reservations: BTreeMap<UserId, u32>,
}

/// Applies a change to one account of a map, and drops the account if it is empty then.
fn add_or_remove<K: Ord>(
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
    pub(crate) fn user(&self, user: UserId) -> Account {
        self.users.get(&user).copied().unwrap_or_default()
    }

    pub(crate) fn group(&self, group: GroupId) -> Account {
        self.groups.get(&group).copied().unwrap_or_default()
    }

    /// Counts a new entry of this owner and group.
    pub(crate) fn add_use(&mut self, owner: UserId, group: GroupId, usage: &Usage) {
        if !usage.is_empty() {
            self.users.entry(owner).or_default().usage.add(usage);
            self.groups.entry(group).or_default().usage.add(usage);
        }
    }

    /// Counts an entry of this owner and group that came (`plus`) or went (`minus`).
    pub(crate) fn use_by(
        &mut self,
        owner: UserId,
        group: GroupId,
        plus: &Usage,
        minus: &Usage,
    ) -> Result<(), Defect> {
        add_or_remove(&mut self.users, owner, |account| change(&mut account.usage, plus, minus))?;
        add_or_remove(&mut self.groups, group, |account| change(&mut account.usage, plus, minus))
    }

    /// Counts an upload reservation of this owner and group that came (`plus`) or went (`minus`).
    pub(crate) fn reserve_by(
        &mut self,
        owner: UserId,
        group: GroupId,
        plus: &Usage,
        minus: &Usage,
    ) -> Result<(), Defect> {
        add_or_remove(&mut self.users, owner, |account| change(&mut account.reserved, plus, minus))?;
        add_or_remove(&mut self.groups, group, |account| change(&mut account.reserved, plus, minus))
    }

    /// Changes the number of a user's upload reservations by one.
    pub(crate) fn count_reservation(&mut self, owner: UserId, more: bool) -> Result<(), Defect> {
        let count = self.reservations.entry(owner).or_default();
        *count = if more { count.checked_add(1) } else { count.checked_sub(1) }
            .ok_or_else(|| Defect::new("a user's count of reservations went out of range"))?;
        if *count == 0 {
            self.reservations.remove(&owner);
        }
        Ok(())
    }

    /// Drops the account of a storage element if it is unused.
    pub(crate) fn forget_if_unused(&mut self, se: SeNumber) {
        if self.ses.get(&se).is_some_and(SeAccount::is_unused) {
            self.ses.remove(&se);
        }
    }
}

impl SeAccount {
    /// Counts an item of the trash with a replica here that came or went.
    pub(crate) fn move_trashed(&mut self, come: bool) -> Result<(), Defect> {
        self.trashed = if come { self.trashed.checked_add(1) } else { self.trashed.checked_sub(1) }
            .ok_or_else(|| Defect::new("a storage element's count of files went out of range"))?;
        Ok(())
    }
}
