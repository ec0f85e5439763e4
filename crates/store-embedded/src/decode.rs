//! Decoders of all stored formats, for any bytes: for tools that look into files, and for fuzz tests
//! of the decoders. None needs a store.

use std::sync::Arc;

use exacat_disk::{InMemory, corrupt};
use exacat_log::archive::{Archive, is_archived};
use exacat_log::record::read_head;
use exacat_log::segment::{HEADER_BYTES, Header, Records};
use exacat_model::codec::DecodeError;
use exacat_model::{Change, DirId, Entry, Error, ErrorKind, Result, Revision};

use crate::changes::read_changes;
use crate::manifest::Manifest;
use crate::page::{Page, Row};
use crate::run::{Cache, Reading, Run};

/// Reads the changes in the bytes of one log segment, plain or archived, and checks that they
/// follow each other; `give` gets each. It needs no store: it is for tools that look into a log,
/// and for fuzz tests of the decoder. An incomplete end of a plain segment, which may be its
/// catalogue's last, is left out; damage is [`ErrorKind::Corrupt`].
pub fn read_segment(bytes: &[u8], mut give: impl FnMut(Change)) -> Result<()> {
    const FILE: &str = "the segment";
    if is_archived(bytes) {
        let mut archive = Archive::open(Box::new(InMemory::new(bytes.to_vec())), FILE.to_owned())?;
        let mut next = archive.header().first_revision;
        for number in 0..archive.blocks().len() {
            archive.records(number, 0, |at, body| read_record(FILE, at, body, &mut next, &mut give))?;
        }
        return archive.index_damage().cloned().map_or(Ok(()), Err);
    }
    let header = Header::decode(FILE, bytes)?;
    let mut next = header.first_revision;
    let mut records = Records::new(bytes, header.salt, HEADER_BYTES);
    while let Some((at, body)) = records.next_record() {
        read_record(FILE, at as u64, body, &mut next, &mut give)?;
    }
    records.ending(FILE, true).map(|_| ())
}

/// Passes the changes of a record, which must begin with `next`, to `give`.
fn read_record(
    file: &str,
    at: u64,
    body: &[u8],
    next: &mut Revision,
    give: &mut impl FnMut(Change),
) -> Result<()> {
    let head = read_head(body).map_err(|error| corrupt(file, at, error))?;
    if head.first_revision != *next || head.count == 0 {
        return Err(corrupt(file, at, "a record does not follow the one before"));
    }
    read_changes(body, *next, |change, _| {
        *next = Revision(change.revision.0.wrapping_add(1));
        give(change);
        Ok::<_, DecodeError>(true)
    })
    .map_err(|error| corrupt(file, at, error))
}

/// Reads the rows in the bytes of one run of a catalogue. `give` gets each entry with its directory
/// and name; none for a removal and for a row that is no entry. It also looks up each GUID, which
/// must lead back to its row. It needs no store: it is for tools that look into a run, and for fuzz
/// tests of the decoder.
pub fn read_run(
    bytes: &[u8],
    catalogue: [u8; 16],
    mut give: impl FnMut(DirId, &[u8], Option<Entry>),
) -> Result<()> {
    const FILE: &str = "the run";
    let run = Arc::new(Run::open(FILE, Arc::new(InMemory::new(bytes.to_vec())), catalogue)?);
    let cache = Cache::new(bytes.len() as u64);
    let reading = Reading::waiting(&cache);
    let mut cursor = run.from(reading, DirId(0), b"", false)?;
    while let Some(row) = cursor.row(&run)? {
        let entry = row.entry().map_err(|error| corrupt(FILE, 0, error))?;
        if let Some(guid) = row.guid() {
            let found = run.find_guid(reading, guid)?;
            if found.is_none_or(|(directory, name, _)| (directory, &name[..]) != (row.parent, row.name)) {
                return Err(corrupt(FILE, 0, format!("the GUID {guid} does not lead to its row")));
            }
        }
        give(row.parent, row.name, entry);
        cursor.advance(&run, reading)?;
    }
    Ok(())
}

/// Reads the numbers of the runs in a manifest's bytes, the newest first.
pub fn read_manifest(bytes: &[u8], catalogue: [u8; 16]) -> Result<Vec<u64>> {
    Ok(Manifest::decode(bytes, catalogue)?.runs.iter().map(|run| run.number).collect())
}

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
    let number = |at: usize| exacat_disk::fixed::u64_at(&all, at);
    let row = Row {
        parent: DirId::ROOT,
        name,
        shape,
        id: exacat_disk::fixed::part(&all, 0),
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
