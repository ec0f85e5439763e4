//! Makes entries, members and records equal to rows of the source.

use std::collections::{BTreeMap, BTreeSet};

use exacat_model::{
    Body, DirId, Entry, EntryId, FieldChange, Guid, Name, Record, RecordKey, RecordKind, Result,
};

use super::differences::differences;
use super::scope::Within;
use super::step::{FilteredInside, FilteredRows};
use super::work::FilteredWork;
use crate::keyspace;
use crate::settings::FILTERED_ROWS_AT_ONCE;

impl FilteredWork<'_> {
    /// Makes the state equal to rows. Adds the entries whose content is to be read.
    pub(super) fn rows(&mut self, rows: FilteredRows, inside: &mut Vec<FilteredInside>) -> Result<()> {
        match rows {
            FilteredRows::Entry(row) => {
                inside.extend(self.entry(&row)?);
                Ok(())
            }
            FilteredRows::Children { directory, after, only, entries, more } => {
                let asked = FilteredInside { id: EntryId::Directory(directory), only };
                match self.content_of(directory)? {
                    // A row from later may have taken it out of the directory meanwhile,
                    None => Ok(()),
                    // or to another depth.
                    Some(content) if content != asked => {
                        inside.push(content);
                        Ok(())
                    }
                    Some(_) => self.page(directory, after.as_ref(), &entries, more, inside),
                }
            }
            FilteredRows::Members { collection, after, members, more } => {
                self.members(collection, after, &members, more)
            }
            FilteredRows::Records { kind, after, records, more } => self.records(kind, after, &records, more),
        }
    }

    /// Makes an entry equal to its row, if its place belongs to the directory. Returns it then, if it has
    /// content.
    fn entry(&mut self, row: &Entry) -> Result<Option<FilteredInside>> {
        let id = row.id();
        let is_root = id == EntryId::Directory(DirId::ROOT);
        let is = if is_root { Within::Above } else { self.judge(&row.at) };
        if is == Within::Outside {
            return Ok(None);
        }
        let mut here = self.find(id)?.map(|found| found.entry);
        if let Some(entry) = here.take_if(|entry| entry.at != row.at) {
            let was = self.judge(&entry.at);
            if self.relocate(&entry, &row.at, was, is)? {
                here = self.standing(&row.at, id)?;
            }
        }
        match here.as_ref().map(|entry| (entry, differences(entry, row))) {
            Some((entry, Some(fields))) => self.update(entry, &fields)?,
            Some((entry, None)) => {
                self.depart(entry)?;
                here = None;
            }
            None => {}
        }
        if here.is_none() {
            // Its directory may have gone with what was purged.
            if self.judge(&row.at) == Within::Outside {
                return Ok(None);
            }
            self.insert(row)?;
        }
        self.inside_of(row)
    }

    /// Returns the content of an entry that is here; none if it has none.
    pub(super) fn inside_of(&self, row: &Entry) -> Result<Option<FilteredInside>> {
        match row.body {
            Body::Directory(directory) => self.content_of(directory),
            Body::Collection { .. } => Ok(Some(FilteredInside { id: row.id(), only: None })),
            Body::File(_) | Body::Link { .. } => Ok(None),
        }
    }

    /// Returns the content of a directory that is to be read; none if it is not in the tree here.
    pub(super) fn content_of(&self, directory: DirId) -> Result<Option<FilteredInside>> {
        self.read(|state, scope| {
            if state.directory(directory).is_none() || !state.is_alive(directory) {
                return Ok(None);
            }
            let only = scope.only(state, directory).map(Name::parse).transpose()?;
            Ok(Some(FilteredInside { id: EntryId::Directory(directory), only }))
        })
    }

    /// Makes a part of a directory equal to a page of it.
    fn page(
        &mut self,
        directory: DirId,
        after: Option<&Name>,
        rows: &[Entry],
        more: bool,
        inside: &mut Vec<FilteredInside>,
    ) -> Result<()> {
        let rows: BTreeMap<&str, &Entry> = rows
            .iter()
            .filter(|row| row.at.parent == directory)
            .map(|row| (row.at.name.as_str(), row))
            .collect();
        let last = rows.keys().next_back().copied();
        let is_covered = |name: &str| !more || last.is_some_and(|last| name <= last);
        let mut next = after.map(|name| name.as_str().as_bytes().to_vec());
        loop {
            let (children, following) = self.covered_children(directory, next.as_deref(), is_covered)?;
            for child in &children {
                if rows.get(child.at.name.as_str()).is_none_or(|row| row.id() != child.id()) {
                    self.depart(child)?;
                }
            }
            if following.is_none() {
                break;
            }
            next = following;
        }
        for row in rows.into_values() {
            inside.extend(self.entry(row)?);
        }
        Ok(())
    }

    /// Makes a part of a collection equal to a page of it.
    fn members(&mut self, collection: Guid, after: Option<Guid>, rows: &[Guid], more: bool) -> Result<()> {
        if self.find(EntryId::Object(collection))?.is_none() {
            return Ok(());
        }
        let gone = self.members_beside(collection, after, rows, more)?;
        let gone = gone.into_iter().map(|guid| FieldChange::Member { guid, added: false });
        let added = rows.iter().map(|guid| FieldChange::Member { guid: *guid, added: true });
        let fields: Vec<FieldChange> = gone.chain(added).collect();
        for fields in fields.chunks(FILTERED_ROWS_AT_ONCE) {
            if let Some(found) = self.find(EntryId::Object(collection))? {
                self.update(&found.entry, fields)?;
            }
        }
        Ok(())
    }

    /// Returns the members in a part of a collection that a page of it does not have.
    pub(super) fn members_beside(
        &self,
        collection: Guid,
        after: Option<Guid>,
        rows: &[Guid],
        more: bool,
    ) -> Result<Vec<Guid>> {
        let last = rows.iter().max().copied();
        let mut beside = Vec::new();
        self.read(|state, _| {
            let after = after.map(|after| keyspace::member_key(collection, after));
            state.look().scan(keyspace::MEMBERS, &collection.0, after.as_ref().map(|key| &key[..]), |row| {
                let Some((_, member)) = keyspace::member(row.name) else { return Ok(true) };
                let is_covered = !more || last.is_some_and(|last| member <= last);
                if is_covered && rows.binary_search(&member).is_err() {
                    beside.push(member);
                }
                Ok(is_covered)
            })
        })?;
        Ok(beside)
    }

    /// Makes a part of the records of a kind equal to a page of them.
    fn records(
        &mut self,
        kind: RecordKind,
        after: Option<RecordKey>,
        rows: &[Record],
        more: bool,
    ) -> Result<()> {
        let wanted: BTreeSet<RecordKey> = rows.iter().map(Record::key).collect();
        let last = wanted.last().copied();
        let here: Vec<RecordKey> = self.read(|state, _| state.records_of(kind).map(Record::key).collect());
        for key in here {
            let is_covered = after.is_none_or(|after| key > after) && (!more || Some(key) <= last);
            if is_covered && !wanted.contains(&key) {
                self.set_record(key, None)?;
            }
        }
        for row in rows {
            let holder = row
                .unique_name()
                .and_then(|name| self.read(|state, _| state.record_named(kind, name)))
                .filter(|holder| *holder != row.key());
            if let Some(holder) = holder {
                // It has another name by now, which its own row or change says.
                self.set_record(holder, None)?;
            }
            self.set_record(row.key(), Some(row))?;
        }
        Ok(())
    }
}
