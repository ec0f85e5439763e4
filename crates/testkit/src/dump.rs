//! The whole state of a store, read through its reads alone, so that two stores can be compared.
//!
//! Pages are small, and everything is read in more than one way where there is one, so that a dump
//! tests paging and indices too.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use exacat_model::limits::READ_BATCH_MAX;
use exacat_model::{
    Body, DirId, Entry, EntryId, GroupId, Lfn, Name, RecordKey, RecordKind, Revision, SeNumber, TimeMs,
    TrashId, UserId,
};
use exacat_store::{EntryLocation, Files, FoundFile, Located, ResolutionEnd, Store, UsageOf};

/// Small, so that there are many pages.
const PAGE: usize = 7;

/// Maximum number of differences shown; more of them say nothing new.
const DIFFERENCES_SHOWN: usize = 20;

/// Content of a store: each item by a name of its own, as text.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Dump(BTreeMap<String, String>);

impl Dump {
    /// Reads everything in the store, with due entries at `now`.
    pub async fn of(store: &dyn Store, now: TimeMs) -> Dump {
        let mut taking = Taking::default();
        taking.tree(store).await;
        taking.files(store).await;
        taking.trash(store).await;
        taking.registry(store).await;
        taking.reservations(store).await;
        taking.sums(store).await;
        taking.storage(store).await;
        taking.history(store).await;
        taking.due(store, now).await;
        taking.health(store).await;
        taking.dump
    }

    /// Number of items.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// True if it has no items.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the difference; none if both are equal. `left` and `right` name the two.
    pub fn difference(&self, left: &str, other: &Dump, right: &str) -> Option<Difference> {
        let keys: BTreeSet<&String> = self.0.keys().chain(other.0.keys()).collect();
        let mut lines = Vec::new();
        for key in keys {
            let (ours, theirs) = (self.0.get(key), other.0.get(key));
            if ours != theirs {
                let show = |value: Option<&String>| value.map_or("-", String::as_str).to_owned();
                lines.push(format!("{key}\n    {left}: {}\n    {right}: {}", show(ours), show(theirs)));
            }
        }
        if lines.is_empty() { None } else { Some(Difference(lines)) }
    }

    fn put(&mut self, key: String, value: impl fmt::Debug) {
        let value = format!("{value:?}");
        if let Some(before) = self.0.insert(key.clone(), value.clone()) {
            // Returned twice: shown as a difference, because the other dump does not have it.
            self.0.insert(format!("{key} given twice"), format!("{before} and {value}"));
        }
    }
}

/// Items that two dumps do not have in common.
#[derive(Clone, Debug)]
pub struct Difference(Vec<String>);

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for line in self.0.iter().take(DIFFERENCES_SHOWN) {
            writeln!(f, "{line}")?;
        }
        match self.0.len().checked_sub(DIFFERENCES_SHOWN) {
            Some(more) if more > 0 => writeln!(f, "and {more} more"),
            _ => Ok(()),
        }
    }
}

/// A dump in the making, with the accounts found so far.
#[derive(Default)]
struct Taking {
    dump: Dump,
    directories: Vec<DirId>,
    /// Paths in the tree.
    paths: Vec<Lfn>,
    owners: BTreeSet<UserId>,
    groups: BTreeSet<GroupId>,
    ses: BTreeSet<SeNumber>,
}

impl Taking {
    async fn entry(&mut self, store: &dyn Store, key: String, entry: &Entry) {
        self.owners.insert(entry.owner);
        self.groups.insert(entry.group);
        self.directories.extend(entry.directory());
        self.ses.extend(entry.file().into_iter().flat_map(|file| &file.replicas).map(|replica| replica.se));
        let located = store.locate(&[entry.id()]).await.expect("locate").remove(0);
        if let Some(Located { place: EntryLocation::Tree(lfn), .. }) = &located {
            self.paths.push(lfn.clone());
        }
        self.dump
            .put(format!("located {key}"), located.map(|found| (found.place, found.ancestors, found.entry)));
        if let Body::Collection { guid, .. } = &entry.body {
            let mut members = Vec::new();
            let mut after = None;
            while let Some(page) = store.members(*guid, after, PAGE).await.expect("members") {
                assert!(page.items.len() <= PAGE, "a page of members is too long");
                after = page.items.last().copied().or(after);
                members.extend(page.items);
                if !page.more {
                    break;
                }
            }
            self.dump.put(format!("members {key}"), members);
        }
        self.dump.put(key, entry);
    }

    /// Reads everything below a directory; `key` leads to it.
    async fn below(&mut self, store: &dyn Store, directory: DirId, key: String) {
        let mut waiting = vec![(directory, key)];
        while let Some((directory, key)) = waiting.pop() {
            let mut after: Option<Name> = None;
            loop {
                let page = store.list(directory, after.as_ref(), PAGE).await.expect("list");
                let Some(page) = page else {
                    self.dump.put(format!("listing of {key}"), "no such directory");
                    break;
                };
                assert!(page.items.len() <= PAGE, "a page of a listing is too long");
                after = page.items.last().map(|entry| entry.at.name.clone()).or(after);
                for entry in &page.items {
                    let key = format!("{key}/{}", entry.at.name);
                    self.entry(store, key.clone(), entry).await;
                    waiting.extend(entry.directory().map(|directory| (directory, key)));
                }
                if !page.more {
                    break;
                }
            }
        }
    }

    async fn tree(&mut self, store: &dyn Store) {
        let resolution = store.resolve(&[Lfn::root()]).await.expect("resolution").remove(0);
        let ResolutionEnd::Found(root) = resolution.end else { panic!("the root is not there") };
        self.entry(store, "tree".to_owned(), &root).await;
        self.below(store, DirId::ROOT, "tree".to_owned()).await;
    }

    /// Checks reads by path: `files` returns the same as `resolve` (R6).
    async fn files(&mut self, store: &dyn Store) {
        // Below each too: for an entry that is no directory nothing is found.
        let below = self.paths.iter().map(|path| path.join(&Name::parse("e").expect("a name")));
        let paths: Vec<Lfn> = self.paths.iter().cloned().chain(below).collect();
        for paths in paths.chunks(READ_BATCH_MAX) {
            let files = store.files(paths).await.expect("files");
            let walked: Files = store.resolve(paths).await.expect("resolution").into_iter().collect();
            assert_eq!(files.found.len(), paths.len());
            for (at, path) in paths.iter().enumerate() {
                let of = |files: &Files| {
                    let found = files.found[at].clone();
                    found.map(|found| (files.ways[found.way].clone(), FoundFile { way: 0, ..found }))
                };
                if of(&files) != of(&walked) {
                    let difference = (of(&files), of(&walked));
                    self.dump.put(format!("file and resolution of {path}"), difference);
                }
            }
        }
    }

    async fn trash(&mut self, store: &dyn Store) {
        let mut after: Option<TrashId> = None;
        loop {
            let page = store.trash(after, PAGE).await.expect("trash");
            after = page.items.last().map(|item| item.id).or(after);
            for item in &page.items {
                let key = format!("trash {}", item.id.0.0);
                let one = store.trash_item(item.id).await.expect("trash item");
                self.dump.put(format!("item of {key}"), (item, one));
                self.entry(store, key.clone(), &item.entry).await;
                if let Some(directory) = item.entry.directory() {
                    self.below(store, directory, key).await;
                }
            }
            if !page.more {
                return;
            }
        }
    }

    async fn registry(&mut self, store: &dyn Store) {
        for kind in RecordKind::ALL {
            let mut after: Option<RecordKey> = None;
            loop {
                let page = store.records(kind, after, PAGE).await.expect("records");
                after = page.items.last().map(|item| item.key).or(after);
                for item in &page.items {
                    match item.key {
                        RecordKey::User(id) => drop(self.owners.insert(id)),
                        RecordKey::Group(id) => drop(self.groups.insert(id)),
                        RecordKey::Se(se) => drop(self.ses.insert(se)),
                        RecordKey::Quota(_) | RecordKey::Token(_) => {}
                    }
                    let one = store.record(item.key).await.expect("record");
                    self.dump.put(format!("record {:?}", item.key), (item, one));
                }
                if !page.more {
                    break;
                }
            }
        }
    }

    async fn reservations(&mut self, store: &dyn Store) {
        let mut after = None;
        loop {
            let page = store.reservations(after, PAGE).await.expect("reservations");
            after = page.items.last().map(|reservation| reservation.guid).or(after);
            for reservation in &page.items {
                self.owners.insert(reservation.owner);
                self.groups.insert(reservation.group);
                let one = store.reservation(reservation.guid).await.expect("reservation");
                self.dump.put(format!("reservation {}", reservation.guid), (reservation, one));
            }
            if !page.more {
                return;
            }
        }
    }

    async fn sums(&mut self, store: &dyn Store) {
        let mut of: Vec<UsageOf> = self.directories.iter().map(|id| UsageOf::Directory(*id)).collect();
        of.extend(self.owners.iter().map(|id| UsageOf::User(*id)));
        of.extend(self.groups.iter().map(|id| UsageOf::Group(*id)));
        for se in self.ses.iter().filter(|se| **se != SeNumber::NONE) {
            of.extend([UsageOf::Se(*se), UsageOf::Deletions(*se)]);
        }
        for part in of.chunks(PAGE) {
            let accounts = store.usage(part).await.expect("usage");
            assert_eq!(accounts.len(), part.len());
            for (of, account) in part.iter().zip(accounts) {
                self.dump.put(format!("usage of {of:?}"), account);
            }
        }
    }

    async fn storage(&mut self, store: &dyn Store) {
        for se in self.ses.clone().into_iter().filter(|se| *se != SeNumber::NONE) {
            let mut cursor = Vec::new();
            loop {
                let (page, next) = store.replicas_on(se, &cursor, PAGE).await.expect("replicas_on");
                assert!(page.items.len() <= PAGE, "a page of replicas is too long");
                cursor = next;
                for replica in page.items {
                    self.dump.put(format!("on SE {} {}", se.0, replica.guid), replica);
                }
                if !page.more {
                    break;
                }
            }
            let mut after = None;
            loop {
                let page = store.deletions(se, after, PAGE).await.expect("deletions");
                after = page.items.last().map(|deletion| deletion.id).or(after);
                for deletion in page.items {
                    let (revision, index) = (deletion.id.revision.0, deletion.id.index);
                    self.dump.put(format!("deletion on SE {} {revision}.{index}", se.0), deletion);
                }
                if !page.more {
                    break;
                }
            }
        }
    }

    async fn history(&mut self, store: &dyn Store) {
        let mut after = Revision(0);
        let last = store.revision().await.expect("revision");
        loop {
            let page = store.changes(after, PAGE * 10).await.expect("changes");
            assert!(page.changes.len() <= PAGE * 10, "a page of changes is too long");
            for change in &page.changes {
                assert_eq!(change.revision.0, after.0 + 1, "changes have a gap or repeat");
                after = change.revision;
                self.dump.put(format!("change {:06}", change.revision.0), change);
            }
            if page.changes.is_empty() {
                break;
            }
        }
        self.dump.put("last revision".to_owned(), (last, after));
    }

    async fn due(&mut self, store: &dyn Store, now: TimeMs) {
        let due = store.due(now, 10_000).await.expect("due");
        assert!(
            due.reservations.is_sorted_by_key(|reservation| reservation.expires),
            "reservations due out of order"
        );
        assert!(due.entries.is_sorted_by_key(|entry| entry.expires), "entries due out of order");
        let reservations: BTreeSet<_> =
            due.reservations.iter().map(|reservation| (reservation.expires, reservation.guid)).collect();
        let entries: BTreeSet<(Option<TimeMs>, EntryId)> =
            due.entries.iter().map(|entry| (entry.expires, entry.id())).collect();
        self.dump.put("due".to_owned(), (reservations, entries));
    }

    async fn health(&mut self, store: &dyn Store) {
        let status = store.status().await.expect("status");
        self.dump.put("entries by status".to_owned(), (status.entries, status.revision));
        let audit = store.audit().await.expect("audit");
        self.dump.put("findings of the audit".to_owned(), audit.findings);
    }
}
