//! Reads an export back, and computes its digests again.
//!
//! The digest of the rows covers every value of a file. The digest of the state covers all that an import
//! would restore, and is the one that `exacat digest` prints of the catalogue.

use std::io;
use std::path::Path;

use exacat_columnar::TableReader;
use exacat_exchange::digest::{Digest, Fold, MembersSum};
use exacat_model::{Error, ErrorKind, Guid, Kind, Lfn, Result};

use crate::limits::PROBLEMS_SHOWN_MAX;
use crate::proof::{
    KEY_CATALOGUE, KEY_DIGEST, KEY_FILTERED, KEY_REVISION, KEY_ROWS, KEY_ROWS_DIGEST, KEY_TABLE, KEY_TABLES,
    KEY_TIMELINE, KEY_UNDER, KEY_VERSION, VERSION,
};
use crate::read_rows::{ReadSes, RowCursor, entry, replica};
use crate::table::{Table, at};

/// Result of a check.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Checked {
    /// Tables that are there, with their rows.
    pub tables: Vec<(Table, u64)>,
    /// Id of the catalogue that they are from.
    pub catalogue: Option<String>,
    /// Last change in them.
    pub revision: Option<u64>,
    /// Timeline of that change.
    pub timeline: Option<String>,
    /// Base directory of the entries.
    pub under: Option<Lfn>,
    /// True if a filter selected the entries.
    pub is_filtered: bool,
    /// Digest of the entries as computed from the rows; none if tables for it are missing.
    pub digest: Option<Digest>,
    /// Problems, each with its file; none if the export is proven.
    pub problems: Vec<String>,
}

impl Checked {
    /// Says whether everything is as it was written.
    pub fn holds(&self) -> bool {
        self.problems.is_empty()
    }

    /// Notes a problem of a file, which the message may name already.
    fn problem(&mut self, file: &Path, what: &str) {
        let named = format!("{}: ", file.display());
        let what = what.strip_prefix(named.as_str()).unwrap_or(what);
        if self.problems.len() < PROBLEMS_SHOWN_MAX {
            self.problems.push(format!("{named}{what}"));
        }
    }
}

/// Facts that all files of an export share.
#[derive(Default, PartialEq, Eq)]
struct Shared {
    catalogue: Option<String>,
    timeline: Option<String>,
    revision: Option<String>,
    /// Names of the tables that the export wrote.
    tables: Option<String>,
}

/// Returns the path of a text in the metadata.
fn path_of(text: &str) -> Lfn {
    Lfn::from_names(text.split('/').filter(|name| !name.is_empty()))
}

/// Checks the export in a directory. Refuses a directory without one; a damaged file is a problem of the
/// result.
pub fn check(directory: &Path) -> Result<Checked> {
    let mut checked = Checked::default();
    let mut cursors: [Option<RowCursor>; Table::ALL.len()] = Default::default();
    let (mut shared, mut there): (Option<Shared>, Vec<Table>) = Default::default();
    for (table, cursor) in Table::ALL.into_iter().zip(&mut cursors) {
        let path = directory.join(table.file_name());
        let exists = path.try_exists().map_err(|error| {
            Error::new(ErrorKind::Invalid, format!("cannot read {}: {error}", path.display()))
        })?;
        if !exists {
            continue;
        }
        there.push(table);
        let reader = match TableReader::open(&path, table.columns()) {
            Ok(reader) => reader,
            Err(error) => {
                checked.problem(&path, &error.message);
                continue;
            }
        };
        let owned = |key: &str| reader.metadata(key).map(str::to_owned);
        if owned(KEY_VERSION).as_deref() != Some(VERSION) || owned(KEY_TABLE).as_deref() != Some(table.name())
        {
            checked
                .problem(&path, "it is no such table of an export: name the directory that an export wrote");
        }
        let these = Shared {
            catalogue: owned(KEY_CATALOGUE),
            timeline: owned(KEY_TIMELINE),
            revision: owned(KEY_REVISION),
            tables: owned(KEY_TABLES),
        };
        match &shared {
            Some(others) if *others != these => {
                checked.problem(&path, "it is of another export than the files beside it");
            }
            Some(_) => {}
            None => shared = Some(these),
        }
        if table != Table::Changes {
            checked.under = owned(KEY_UNDER).as_deref().map(path_of);
            checked.is_filtered = owned(KEY_FILTERED).as_deref() == Some("true");
        }
        *cursor = Some(RowCursor::new(reader));
    }
    if there.is_empty() {
        let here = directory.display();
        return Err(Error::not_found(format!(
            "{here}: no export is here: name the directory that an export wrote"
        )));
    }
    let shared = shared.unwrap_or_default();
    for name in shared.tables.iter().flat_map(|names| names.split(',')) {
        if !there.iter().any(|table| table.name() == name) {
            checked.problem(&directory.join(format!("{name}.parquet")), "it is missing");
        }
    }
    (checked.catalogue, checked.timeline) = (shared.catalogue, shared.timeline);
    checked.revision = shared.revision.and_then(|revision| revision.parse().ok());
    let [entries, replicas, members, ..] = &mut cursors;
    if let (Some(entries), Some(replicas), Some(members)) = (entries, replicas, members) {
        state(directory, &mut checked, (entries, replicas, members));
    }
    for (table, cursor) in Table::ALL.into_iter().zip(cursors) {
        if let Some(cursor) = cursor {
            rows(&directory.join(table.file_name()), table, cursor, &mut checked);
        }
    }
    Ok(checked)
}

/// Reads the rest of a table, and compares the digest of its rows.
fn rows(path: &Path, table: Table, mut cursor: RowCursor, checked: &mut Checked) {
    loop {
        match cursor.present() {
            Ok(Some(_)) => cursor.advance(),
            Ok(None) => break,
            Err(error) => return checked.problem(path, &error.message),
        }
    }
    let reader = cursor.reader();
    let found = reader.digest();
    checked.tables.push((table, found.rows()));
    if reader.metadata(KEY_ROWS) != Some(found.rows().to_string().as_str()) {
        checked.problem(path, &format!("it has {} rows, not as many as were written", found.rows()));
    } else if reader.metadata(KEY_ROWS_DIGEST) != Some(found.digest().as_str()) {
        checked.problem(path, "its rows are not those that were written");
    }
}

/// Computes the digest of the state, and compares it with that of the files.
fn state(directory: &Path, checked: &mut Checked, tables: (&mut RowCursor, &mut RowCursor, &mut RowCursor)) {
    let path = directory.join(Table::Entries.file_name());
    let wanted = tables.0.reader().metadata(KEY_DIGEST).map(str::to_owned);
    let under = checked.under.clone().unwrap_or_else(Lfn::root);
    match digest_of(under, tables) {
        Ok(digest) => {
            checked.digest = Some(digest);
            if wanted.as_deref() != Some(digest.to_string().as_str()) {
                checked.problem(
                    &path,
                    &format!("its entries have the digest {digest}, not the one that was written"),
                );
            }
        }
        Err((table, row, error)) => {
            let path = directory.join(table.file_name());
            checked.problem(&path, &format!("row {row}: {}", error.message));
        }
    }
}

/// Computes the digest of the rows' entries. An error has its table and row.
fn digest_of(
    under: Lfn,
    (entries, replicas, members): (&mut RowCursor, &mut RowCursor, &mut RowCursor),
) -> std::result::Result<Digest, (Table, u64, Error)> {
    let mut fold = Fold::new(under);
    let mut ses = ReadSes::default();
    let folded = |error: io::Error| (Table::Entries, 0, Error::new(ErrorKind::Internal, error.to_string()));
    loop {
        let number = entries.passed + 1;
        let of_entries = |error: Error| (Table::Entries, number, error);
        let Some((rows, row)) = entries.present().map_err(of_entries)? else { break };
        let mut stat = entry(rows, row).map_err(of_entries)?;
        entries.advance();
        let mut sum = None;
        if let exacat_model::Body::File(file) = &mut stat.entry.body {
            loop {
                let number = replicas.passed + 1;
                let of_replicas = |error: Error| (Table::Replicas, number, error);
                let Some((rows, row)) = replicas.present().map_err(of_replicas)? else { break };
                let is_next = rows.text(at::REPLICA_GUID, row).and_then(|guid| Guid::parse(guid).ok())
                    == Some(file.guid);
                if !is_next {
                    break;
                }
                file.replicas.push(replica(rows, row, &mut ses).map_err(of_replicas)?.1);
                replicas.advance();
            }
        }
        if stat.entry.kind() == Kind::Collection {
            let mut members_sum = MembersSum::default();
            loop {
                let number = members.passed + 1;
                let of_members = |error: Error| (Table::Members, number, error);
                let Some((rows, row)) = members.present().map_err(of_members)? else { break };
                if rows.text(at::MEMBER_COLLECTION, row) != Some(stat.lfn.as_str()) {
                    break;
                }
                let guid = rows.text(at::MEMBER_GUID, row).unwrap_or_default();
                let guid = Guid::parse(guid).map_err(of_members)?;
                let lfn = rows.text(at::MEMBER_LFN, row).map(|lfn| Lfn::from_names(lfn.split('/').skip(1)));
                members_sum.add(lfn.as_ref(), guid);
                members.advance();
            }
            sum = Some(members_sum.digest());
        }
        fold.entry(&stat, sum, &ses.ses, &mut |_| Ok(())).map_err(folded)?;
    }
    for (table, left) in [(Table::Replicas, replicas), (Table::Members, members)] {
        let number = left.passed + 1;
        if left.present().map_err(|error| (table, number, error))?.is_some() {
            let why = Error::invalid("it belongs to no entry at its place in the table of entries");
            return Err((table, number, why));
        }
    }
    Ok(fold.end(&mut |_| Ok(())).map_err(folded)?.whole)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Limit: so many problems are shown, and the export does not hold with any.
    #[test]
    fn first_problems_are_shown() {
        let mut checked = Checked::default();
        assert!(checked.holds());
        for number in 0..PROBLEMS_SHOWN_MAX + 5 {
            checked.problem(Path::new("entries.parquet"), &format!("row {number} is damaged"));
            assert_eq!(checked.problems.len(), (number + 1).min(PROBLEMS_SHOWN_MAX));
            assert!(!checked.holds());
        }
        assert_eq!(checked.problems[PROBLEMS_SHOWN_MAX - 1], "entries.parquet: row 19 is damaged");
    }
}
