//! Compares the state with rows of the source, and changes nothing.
//!
//! Rows are later than the state, so a difference alone proves nothing. The follower asks for the same rows
//! again, once it has all changes up to the first answer. A difference that both answers show, while neither
//! the row nor the state changed, is one that no change will mend. Revisions say that nothing changed: what
//! came back meanwhile has another one.

use std::collections::BTreeMap;

use exacat_model::codec::Encode;
use exacat_model::{At, DirId, Entry, EntryId, Guid, Name, Record, RecordKey, RecordKind, Result, Revision};
use xxhash_rust::xxh3::xxh3_64;

use super::differences::differences;
use super::scope::Within;
use super::step::{FilteredDifference, FilteredInside, FilteredReached, FilteredRows};
use super::work::FilteredWork;

/// Returns a difference between something in the state and its row. Either may be missing.
fn difference(
    what: String,
    mut key: Vec<u8>,
    (here, row): (Option<Revision>, Option<&impl Encode>),
) -> FilteredDifference {
    here.encode(&mut key);
    if let Some(row) = row {
        row.encode(&mut key);
    }
    FilteredDifference { what, hash: xxh3_64(&key) }
}

impl FilteredWork<'_> {
    /// Compares the state with rows. Adds the differences, and the entries whose content is to be compared.
    pub(super) fn compare(&self, rows: &FilteredRows, reached: &mut FilteredReached) -> Result<()> {
        match rows {
            FilteredRows::Entry(row) => {
                let here = self.find(row.id())?.map(|found| found.entry);
                self.compare_entry(row, here.as_ref(), reached)
            }
            FilteredRows::Children { directory, after, only, entries, more } => {
                let asked = FilteredInside { id: EntryId::Directory(*directory), only: only.clone() };
                // It may be elsewhere or gone by the changes since it was found.
                match self.content_of(*directory)? {
                    Some(content) if content == asked => {
                        self.compare_page(*directory, after.as_ref(), (entries, *more), reached)
                    }
                    _ => Ok(()),
                }
            }
            FilteredRows::Members { collection, after, members, more } => {
                self.compare_members(*collection, *after, (members, *more), reached)
            }
            FilteredRows::Records { kind, after, records, more } => {
                self.compare_records(*kind, *after, (records, *more), reached);
                Ok(())
            }
        }
    }

    fn difference_at(&self, at: &At, found: (Option<Revision>, Option<&Entry>)) -> FilteredDifference {
        difference(self.path_of(at).to_string(), at.to_bytes(), found)
    }

    fn compare_entry(&self, row: &Entry, here: Option<&Entry>, reached: &mut FilteredReached) -> Result<()> {
        let same = here.filter(|here| here.id() == row.id());
        if same.and_then(|here| differences(here, row)).is_none_or(|fields| !fields.is_empty()) {
            let found = (here.map(|here| here.revision), Some(row));
            reached.differing.push(self.difference_at(&row.at, found));
        }
        if same.is_some() {
            reached.inside.extend(self.inside_of(row)?);
        }
        Ok(())
    }

    fn compare_page(
        &self,
        directory: DirId,
        after: Option<&Name>,
        (rows, more): (&[Entry], bool),
        reached: &mut FilteredReached,
    ) -> Result<()> {
        let mut rows: BTreeMap<&str, &Entry> = rows
            .iter()
            .filter(|row| row.at.parent == directory && self.judge(&row.at) != Within::Outside)
            .map(|row| (row.at.name.as_str(), row))
            .collect();
        let last = rows.keys().next_back().map(|name| (*name).to_owned());
        let is_covered = |name: &str| !more || last.as_deref().is_some_and(|last| name <= last);
        let mut next = after.map(|name| name.as_str().as_bytes().to_vec());
        loop {
            let (children, following) = self.covered_children(directory, next.as_deref(), is_covered)?;
            for child in &children {
                match rows.remove(child.at.name.as_str()) {
                    Some(row) => self.compare_entry(row, Some(child), reached)?,
                    None => {
                        let found = (Some(child.revision), None);
                        reached.differing.push(self.difference_at(&child.at, found));
                    }
                }
            }
            if following.is_none() {
                break;
            }
            next = following;
        }
        rows.into_values().try_for_each(|row| self.compare_entry(row, None, reached))
    }

    fn compare_members(
        &self,
        collection: Guid,
        after: Option<Guid>,
        (rows, more): (&[Guid], bool),
        reached: &mut FilteredReached,
    ) -> Result<()> {
        let Some(found) = self.find(EntryId::Object(collection))? else { return Ok(()) };
        let gone = self.members_beside(collection, after, rows, more)?;
        let mut differs = |member: Guid, is_at_source: bool| {
            let (what, key) =
                (format!("member {member} of collection {collection}"), [collection.0, member.0].concat());
            let found = (Some(found.entry.revision), Some(&is_at_source));
            reached.differing.push(difference(what, key, found));
        };
        gone.into_iter().for_each(|member| differs(member, false));
        for member in rows {
            if !self.read(|state, _| state.look().has_member(collection, *member))? {
                differs(*member, true);
            }
        }
        Ok(())
    }

    fn compare_records(
        &self,
        kind: RecordKind,
        after: Option<RecordKey>,
        (rows, more): (&[Record], bool),
        reached: &mut FilteredReached,
    ) {
        let mut wanted: BTreeMap<RecordKey, &Record> = rows.iter().map(|row| (row.key(), row)).collect();
        let last = wanted.keys().next_back().copied();
        self.read(|state, _| {
            for key in state.records_of(kind).map(Record::key) {
                let Some((here, revision)) = state.record(key) else { continue };
                let is_covered = after.is_none_or(|after| key > after) && (!more || Some(key) <= last);
                if is_covered && wanted.get(&key).is_none_or(|row| *row != here) {
                    let found = (Some(*revision), wanted.get(&key).copied());
                    reached.differing.push(difference(format!("record {key:?}"), key.to_bytes(), found));
                }
                wanted.remove(&key);
            }
        });
        for (key, row) in wanted {
            reached.differing.push(difference(format!("record {key:?}"), key.to_bytes(), (None, Some(row))));
        }
    }
}
