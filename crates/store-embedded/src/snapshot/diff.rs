//! Differences of two states: the entries created, changed, moved and removed between them.
//!
//! A row in a run that both states share is the same in both, unless one state has a newer row
//! elsewhere. The comparison therefore reads only the rest: memtables, and runs of only one state.
//! It reads both sides at once in the order of the keys.
//!
//! Compaction may have moved a row to another run: if both sides have the same newest row, nothing
//! differs. Otherwise the key is looked up in both whole states.

use std::collections::HashSet;
use std::sync::Arc;

use exacat_model::codec::{Encode, Reader};
use exacat_model::limits::NAME_BYTES_MAX;
use exacat_model::{Difference, DirId, Entry, EntryAt, EntryId, Error, Lfn, Result, Revision};

use super::view::View;
use crate::defect::Defect;
use crate::keyspace;
use crate::page::Row;
use crate::run::{Reading, Run};
use crate::settings::DIFF_ROWS_PER_PAGE_MAX;
use crate::state::State;
use crate::table::{From, Merged};

/// Two states to be compared.
pub(crate) struct Diff {
    before: View,
    after: View,
}

/// Position of a comparison: it continues after this key.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct DiffPosition(Option<(DirId, Vec<u8>)>);

/// Maximum bytes of an encoded position.
const PLACE_BYTES_MAX: usize = 10 + NAME_BYTES_MAX;

impl DiffPosition {
    /// Decodes a position; empty bytes are the start.
    pub(crate) fn parse(bytes: &[u8]) -> Result<Self> {
        let bad = || Error::invalid("this is no cursor of a comparison");
        if bytes.is_empty() {
            return Ok(DiffPosition(None));
        }
        let mut reader = Reader::new(bytes);
        let directory = DirId(reader.varint().map_err(|_| bad())?);
        if bytes.len() > PLACE_BYTES_MAX {
            return Err(bad());
        }
        Ok(DiffPosition(Some((directory, reader.rest().to_vec()))))
    }

    /// Encodes the position.
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        if let Some((directory, name)) = &self.0 {
            directory.encode(&mut bytes);
            bytes.extend_from_slice(name);
        }
        bytes
    }
}

fn key<'r>(row: Row<'r>) -> (DirId, &'r [u8]) {
    (row.parent, row.name)
}

fn identity(run: &Run) -> (u64, u64) {
    (run.number(), run.salt())
}

impl Diff {
    pub(crate) fn new(before: View, after: View) -> Self {
        Diff { before, after }
    }

    /// Returns the revisions of both states.
    pub(crate) fn revisions(&self) -> (Revision, Revision) {
        (self.before.label.revision, self.after.label.revision)
    }

    /// Returns the next differences in the order of their keys, `limit` or one more, and the
    /// position to continue from, if there may be more.
    pub(crate) fn page(
        &self,
        from: &DiffPosition,
        limit: usize,
    ) -> Result<(Vec<Difference>, Option<DiffPosition>)> {
        let (before, after) = (&self.before.state, &self.after.state);
        let mut differences = Vec::new();
        let (mut one, mut other) = (unshared(before, after, from)?, unshared(after, before, from)?);
        let (mut was, mut is) = (one.next()?, other.next()?);
        let mut rows = 0;
        loop {
            let at = match (was.map(key), is.map(key)) {
                (None, None) => return Ok((differences, None)),
                (Some(at), None) | (None, Some(at)) => at,
                (Some(was_at), Some(is_at)) => was_at.min(is_at),
            };
            if !keyspace::is_directory(at.0) && at.0 != keyspace::ROOT_IN {
                // The keys of tables come last.
                return Ok((differences, None));
            }
            let (was_here, is_here) = (was.filter(|row| key(*row) == at), is.filter(|row| key(*row) == at));
            if was_here.is_none() || was_here != is_here {
                between(before, after, at, &mut differences)?;
            }
            rows += 1;
            if differences.len() >= limit || rows >= DIFF_ROWS_PER_PAGE_MAX {
                return Ok((differences, Some(DiffPosition(Some((at.0, at.1.to_vec()))))));
            }
            let (pass_was, pass_is) = (was_here.is_some(), is_here.is_some());
            if pass_was {
                was = one.next()?;
            }
            if pass_is {
                is = other.next()?;
            }
        }
    }
}

/// Returns the rows of a state that are not in runs of the other.
fn unshared<'s>(state: &'s State, other: &State, from: &DiffPosition) -> Result<Merged<'s>> {
    let others: HashSet<(u64, u64)> = other.table.version().runs.iter().map(|run| identity(run)).collect();
    let runs = state.table.version().runs.iter().filter(|run| !others.contains(&identity(run)));
    let from = match &from.0 {
        None => From::START,
        Some((directory, name)) => From { directory: *directory, name, after: true },
    };
    Ok(Merged::from([state.table.active()], runs.map(Arc::clone), from, Reading::in_passing())?)
}

/// Returns the entry under a key, in the tree or below the trash.
fn at_key(state: &State, (directory, name): (DirId, &[u8])) -> std::result::Result<Option<Entry>, Defect> {
    state.look().view.find(directory, name, |row| match row {
        Some(row) => Ok(row.entry()?),
        None => Ok(None),
    })?
}

/// Says whether this directory, and so its content, is in the tree.
fn is_in_tree(state: &State, directory: DirId) -> bool {
    directory == keyspace::ROOT_IN || state.is_alive(directory)
}

fn placed(state: &State, entry: Entry) -> EntryAt {
    let mut names = state.directories.path_of(entry.at.parent);
    if entry.id() != EntryId::Directory(DirId::ROOT) {
        names.push(entry.at.name.as_str());
    }
    EntryAt { lfn: Lfn::from_names(names), entry }
}

/// Returns the place of this entry in a state's tree; none if it is not there.
fn elsewhere(state: &State, id: EntryId) -> std::result::Result<Option<EntryAt>, Defect> {
    let look = state.look();
    let found = look.find_id(id)?.filter(|found| exacat_store::rules::View::is_in_tree(look.state, found));
    Ok(found.map(|found| placed(state, found.entry)))
}

/// Reports the difference of the entries under one key.
fn between(
    before: &State,
    after: &State,
    key: (DirId, &[u8]),
    differences: &mut Vec<Difference>,
) -> std::result::Result<(), Defect> {
    let (was, is) = (at_key(before, key)?, at_key(after, key)?);
    if was == is {
        // The directory may have gone to the trash: then its own difference covers its content.
        return Ok(());
    }
    let was = was.filter(|_| is_in_tree(before, key.0));
    match (was, is.filter(|_| is_in_tree(after, key.0))) {
        (Some(was), Some(is)) if was.id() == is.id() => {
            let (before, after) = (Some(placed(before, was)), Some(placed(after, is)));
            differences.push(Difference { before, after });
        }
        (was, is) => {
            if let Some(was) = was
                // A moved entry is reported at its present place. If its directory went, that
                // difference covers it.
                && is_in_tree(after, key.0)
                && elsewhere(after, was.id())?.is_none()
            {
                differences.push(Difference { before: Some(placed(before, was)), after: None });
            }
            if let Some(is) = is {
                let before = elsewhere(before, is.id())?;
                differences.push(Difference { before, after: Some(placed(after, is)) });
            }
        }
    }
    Ok(())
}
