//! Names and numbers of users, groups and storage elements, cached in memory. The store has the
//! truth.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use exacat_model::limits::PAGE_ITEMS_MAX;
use exacat_model::{
    AccountName, Error, Group, GroupId, Record, RecordKind, Result, Se, SeName, SeNumber, User, UserId,
};
use exacat_store::Store;
use parking_lot::RwLock;

/// All users, groups and storage elements at one moment.
#[derive(Default)]
pub(crate) struct Names {
    pub users: BTreeMap<UserId, Arc<User>>,
    pub groups: BTreeMap<GroupId, Arc<Group>>,
    pub ses: BTreeMap<SeNumber, Arc<Se>>,
    user_ids: HashMap<AccountName, UserId>,
    group_ids: HashMap<AccountName, GroupId>,
    se_numbers: HashMap<SeName, SeNumber>,
}

/// The cache of names. Code that changes a record calls [`Registry::refresh`] before it answers. If
/// several servers share the store, [`Registry::current`] also reads the changes of others that the
/// store has seen.
pub(crate) struct Registry {
    held: RwLock<Held>,
    /// Reads of names that have begun.
    begun: AtomicU64,
}

/// Names in memory.
struct Held {
    /// Number of the read, in the order in which reads began.
    read: u64,
    /// The store's count of seen changes before they were read.
    seen: u64,
    names: Arc<Names>,
}

impl Registry {
    pub(crate) async fn load(store: &dyn Store) -> Result<Self> {
        let seen = store.records_seen();
        let names = Arc::new(Names::load(store).await?);
        Ok(Registry { held: RwLock::new(Held { read: 0, seen, names }), begun: AtomicU64::new(1) })
    }

    pub(crate) async fn refresh(&self, store: &dyn Store) -> Result<()> {
        let read = self.begun.fetch_add(1, Ordering::SeqCst);
        let seen = store.records_seen();
        let names = Arc::new(Names::load(store).await?);
        let mut held = self.held.write();
        // A refresh that began later may have finished sooner. It has all changes that were answered before
        // this one began.
        if read > held.read {
            *held = Held { read, seen, names };
        }
        Ok(())
    }

    /// Returns the names with all changes that the store has seen by now.
    pub(crate) async fn current(&self, store: &dyn Store) -> Result<Arc<Names>> {
        {
            let held = self.held.read();
            if held.seen == store.records_seen() {
                return Ok(held.names.clone());
            }
        }
        self.refresh(store).await?;
        Ok(self.names())
    }

    /// Returns the cached names; hold them for one operation.
    pub(crate) fn names(&self) -> Arc<Names> {
        self.held.read().names.clone()
    }
}

impl Names {
    async fn load(store: &dyn Store) -> Result<Self> {
        let mut names = Names::default();
        for kind in [RecordKind::User, RecordKind::Group, RecordKind::Se] {
            let mut after = None;
            loop {
                let page = store.records(kind, after, PAGE_ITEMS_MAX).await?;
                after = page.items.last().map(|item| item.key);
                for item in page.items {
                    names.add(item.record);
                }
                if !page.more || after.is_none() {
                    break;
                }
            }
        }
        Ok(names)
    }

    fn add(&mut self, record: Record) {
        match record {
            Record::User(user) => {
                self.user_ids.insert(user.name.clone(), user.id);
                self.users.insert(user.id, Arc::new(user));
            }
            Record::Group(group) => {
                self.group_ids.insert(group.name.clone(), group.id);
                self.groups.insert(group.id, Arc::new(group));
            }
            Record::Se(se) => {
                self.se_numbers.insert(se.name.clone(), se.number);
                self.ses.insert(se.number, Arc::new(se));
            }
            Record::Quota(_) | Record::Token(_) => {}
        }
    }

    pub(crate) fn user(&self, name: &AccountName) -> Result<&Arc<User>> {
        self.user_ids
            .get(name)
            .and_then(|id| self.users.get(id))
            .ok_or_else(|| Error::not_found(format!("no such user: {name}")))
    }

    pub(crate) fn group(&self, name: &AccountName) -> Result<&Arc<Group>> {
        self.group_ids
            .get(name)
            .and_then(|id| self.groups.get(id))
            .ok_or_else(|| Error::not_found(format!("no such group: {name}")))
    }

    pub(crate) fn se(&self, name: &SeName) -> Result<&Arc<Se>> {
        self.se_numbers
            .get(name)
            .and_then(|number| self.ses.get(number))
            .ok_or_else(|| Error::not_found(format!("no such storage element: {name}")))
    }

    /// Returns the user's name; `gone-number` if its record is gone.
    pub(crate) fn user_name(&self, id: UserId) -> AccountName {
        match self.users.get(&id) {
            Some(user) => user.name.clone(),
            None => numbered(id.0),
        }
    }

    /// Returns the group's name; `gone-number` if its record is gone.
    pub(crate) fn group_name(&self, id: GroupId) -> AccountName {
        match self.groups.get(&id) {
            Some(group) => group.name.clone(),
            None => numbered(id.0),
        }
    }
}

/// Makes a name for an account without a record. Records in use cannot be dropped, so this is for
/// old history.
fn numbered(number: u32) -> AccountName {
    #[allow(clippy::expect_used, reason = "digits after a letter are a valid name")]
    AccountName::parse(&format!("gone-{number}")).expect("a letter and digits")
}
