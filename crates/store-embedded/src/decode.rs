//! Decoders of the small formats, for any bytes: for tools that look into files, and for fuzz tests
//! of the decoders. `inspect` reads whole files of the log and runs.

use exacat_model::{DirId, Entry, Error, ErrorKind, Result};

use crate::page::{Page, Row};

/// Reads the rows of one page at byte `place` of a run of this salt. `give` gets each entry with
/// its directory and name; none for a removal and for a row that is no entry.
pub fn read_page(
    bytes: &[u8],
    salt: u64,
    place: u64,
    mut give: impl FnMut(DirId, &[u8], Option<Entry>),
) -> Result<()> {
    let corrupt = |what: String| Error::new(ErrorKind::Corrupt, format!("the page: {what}"));
    let page = Page::open(bytes, salt, place).map_err(|damaged| corrupt(damaged.to_string()))?;
    let mut rows = page.all();
    while let Some(row) = rows.next(&page).map_err(|damaged| corrupt(damaged.to_string()))? {
        let entry = row.entry().map_err(|error| corrupt(error.to_string()))?;
        give(row.parent, row.name, entry);
    }
    Ok(())
}

/// Reads a row from its parts, as pages and memtables have them; none if it is no entry. Zeros fill
/// up bytes that are too short for an identity and five numbers.
pub fn read_row(
    name: &[u8],
    shape: &[u8],
    numbers: &[u8],
    checksum: &[u8],
    rest: &[u8],
) -> Result<Option<Entry>> {
    let mut all = [0; 56];
    let known = numbers.len().min(all.len());
    all[..known].copy_from_slice(&numbers[..known]);
    let number = |at: usize| crate::record::u64_at(&all, at);
    let row = Row {
        parent: DirId::ROOT,
        name,
        shape,
        id: crate::record::part(&all, 0),
        size: number(16),
        job: number(24),
        created: number(32),
        modified: number(40),
        revision: number(48),
        checksum,
        rest,
    };
    let corrupt = |error| Error::new(ErrorKind::Corrupt, format!("the row: {error}"));
    row.trashed().map_err(corrupt)?;
    row.entry().map_err(corrupt)
}

/// Reads one of the small text files by its name: `CATALOGUE`, `SNAPSHOT`, `RESTORE`, `BACKUPS`,
/// `FILES`. Returns it as it would be written again.
pub fn read_text(name: &str, text: &str) -> Result<String> {
    match name {
        crate::identity::FILE => crate::identity::read_again(text),
        other => crate::snapshot::read_again(other, text)
            .unwrap_or_else(|| Err(Error::not_found(format!("there is no file {other}")))),
    }
}
