//! Names of accounts and storage elements by the numbers in changes.

use exacat_model::limits::PAGE_ITEMS_MAX;
use exacat_model::{Entry, GroupId, Record, RecordKey, RecordKind, Result, Se, SeNumber, UserId};
use exacat_store::Store;
use hashbrown::HashMap;

use crate::json::{put_number, put_text};

/// Known names, as JSON text. A name that was dropped stays known, for changes before that.
#[derive(Debug, Default)]
pub(crate) struct Names {
    users: HashMap<UserId, Box<[u8]>>,
    groups: HashMap<GroupId, Box<[u8]>>,
    ses: HashMap<SeNumber, (Box<[u8]>, Se)>,
}

fn text(name: &str) -> Box<[u8]> {
    let mut out = Vec::with_capacity(name.len() + 2);
    put_text(&mut out, name);
    out.into()
}

fn put(out: &mut Vec<u8>, known: Option<&[u8]>, number: u64) {
    match known {
        Some(name) => out.extend_from_slice(name),
        None => {
            out.extend_from_slice(b"\"#");
            put_number(out, number);
            out.push(b'"');
        }
    }
}

impl Names {
    /// Reads all names of the present registry, beside those already known.
    pub(crate) async fn load(&mut self, store: &dyn Store) -> Result<()> {
        for kind in [RecordKind::User, RecordKind::Group, RecordKind::Se] {
            let mut after: Option<RecordKey> = None;
            loop {
                let page = store.records(kind, after, PAGE_ITEMS_MAX).await?;
                after = page.items.last().map(|item| item.key);
                page.items.iter().for_each(|item| self.learn(&item.record));
                if !page.more || after.is_none() {
                    break;
                }
            }
        }
        Ok(())
    }

    /// Learns the names of a record.
    pub(crate) fn learn(&mut self, record: &Record) {
        match record {
            Record::User(user) => drop(self.users.insert(user.id, text(user.name.as_str()))),
            Record::Group(group) => drop(self.groups.insert(group.id, text(group.name.as_str()))),
            Record::Se(se) => drop(self.ses.insert(se.number, (text(se.name.as_str()), se.clone()))),
            Record::Quota(_) | Record::Token(_) => {}
        }
    }

    /// True if all names of an entry are known.
    pub(crate) fn know(&self, entry: &Entry) -> bool {
        let replicas = entry.file().map_or(&[][..], |file| &file.replicas);
        self.users.contains_key(&entry.owner)
            && self.groups.contains_key(&entry.group)
            && replicas.iter().all(|one| one.is_member() || self.ses.contains_key(&one.se))
    }

    /// Adds the name of a user, or its number if it is not known.
    pub(crate) fn put_user(&self, out: &mut Vec<u8>, id: UserId) {
        put(out, self.users.get(&id).map(AsRef::as_ref), u64::from(id.0));
    }

    /// Adds the name of a group.
    pub(crate) fn put_group(&self, out: &mut Vec<u8>, id: GroupId) {
        put(out, self.groups.get(&id).map(AsRef::as_ref), u64::from(id.0));
    }

    /// Adds the name of a storage element; empty for an archive member, which is on none.
    pub(crate) fn put_se(&self, out: &mut Vec<u8>, number: SeNumber) {
        if number == SeNumber::NONE {
            return out.extend_from_slice(b"\"\"");
        }
        put(out, self.ses.get(&number).map(|(name, _)| name.as_ref()), u64::from(number.0));
    }

    /// Returns the storage element of this number.
    pub(crate) fn se(&self, number: SeNumber) -> Option<&Se> {
        self.ses.get(&number).map(|(_, se)| se)
    }
}
