//! Inspects a data directory offline: reads and checks everything in it, and changes nothing.
//!
//! It reads every record of the log and every page of the runs, and audits the state that opening
//! would give. If the log is whole from its first record, and not too long, it is replayed too. The
//! resulting state must equal that of the runs, because runs are only a view of the log.

use std::path::Path;
use std::sync::Arc;

use exacat_model::codec::DecodeError;
use exacat_model::{Audit, Change, DirId, Entry, Error, ErrorKind, Result, Revision, TimeMs};

use crate::archive::{Archive, is_archived};
use crate::disk::{Disk, DiskFile, RealDisk, read_whole};
use crate::history::{Form, Segment, cannot_read};
use crate::identity::Layout;
use crate::log::{self, Replay};
use crate::manifest::Manifest;
use crate::open::{apply_replayed, check_record, check_segment, recover};
use crate::record::{Head, read_changes, read_head};
use crate::repair::{Ground, problems_of};
use crate::run::{Cache, Reading, Run};
use crate::segment::{CatalogueId, Ending, HEADER_BYTES, Header, Records, corrupt};
use crate::settings::EmbeddedSettings;
use crate::snapshot::switch::check_settled;
use crate::state::State;
use crate::store::EmbeddedStore;
use crate::table::Shelf;

/// Maximum log bytes that are replayed from the start: the resulting state is all in memory.
const REPLAYED_BYTES_MAX: u64 = 1 << 30;

/// Result of an inspection.
#[derive(Clone, Debug, PartialEq)]
pub struct Inspection {
    /// Segments of the log.
    pub segments: u64,
    /// Valid records in them.
    pub records: u64,
    /// Bytes of these records.
    pub record_bytes: u64,
    /// Last change that could be replayed.
    pub revision: Revision,
    /// True if the end of the log forms no whole commit group, and no end mark follows it. A torn
    /// write of a power cut looks so, and so may damage. Opening cuts the end off. Not a problem.
    pub torn: bool,
    /// Number of runs.
    pub runs: u64,
    /// Rows in the runs.
    pub rows: u64,
    /// True if the log was replayed from its first record, and gives the state of the runs.
    pub replayed: bool,
    /// Audit of the state.
    pub audit: Audit,
    /// Problems, each with file and place; empty if there are none.
    pub problems: Vec<String>,
}

/// Counters of one pass over the segments' bytes, which continues after damage.
#[derive(Default)]
struct Scan {
    records: u64,
    record_bytes: u64,
    torn: bool,
    problems: Vec<String>,
}

impl EmbeddedStore {
    /// Checks the catalogue in `directory`, which no process may have open.
    pub fn inspect(directory: &Path) -> Result<Inspection> {
        inspect(&(Arc::new(RealDisk) as Arc<dyn Disk>), directory)
    }
}

/// Reads the changes in the bytes of one log segment, plain or archived, and checks that they
/// follow each other; `give` gets each. It needs no store: it is for tools that look into a log,
/// and for fuzz tests of the decoder. An incomplete end of a plain segment, which may be its
/// catalogue's last, is left out; damage is [`ErrorKind::Corrupt`].
pub fn read_segment(bytes: &[u8], mut give: impl FnMut(Change)) -> Result<()> {
    const FILE: &str = "the segment";
    if is_archived(bytes) {
        let mut archive = Archive::open(Box::new(InMemory(bytes.to_vec())), FILE.to_owned())?;
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
    read_changes(body, *next, |change| {
        *next = Revision(change.revision.0.wrapping_add(1));
        give(change);
        Ok::<_, DecodeError>(true)
    })
    .map_err(|error| corrupt(file, at, error))
}

/// A file that is entirely in memory.
pub(crate) struct InMemory(pub Vec<u8>);

impl DiskFile for InMemory {
    fn read_at(&self, into: &mut [u8], offset: u64) -> std::io::Result<usize> {
        let from = usize::try_from(offset).unwrap_or(usize::MAX).min(self.0.len());
        let bytes = &self.0[from..];
        let count = bytes.len().min(into.len());
        into[..count].copy_from_slice(&bytes[..count]);
        Ok(count)
    }

    fn length(&self) -> std::io::Result<u64> {
        Ok(self.0.len() as u64)
    }

    fn write_at(&self, _: &[u8], _: u64) -> std::io::Result<()> {
        Err(std::io::ErrorKind::ReadOnlyFilesystem.into())
    }

    fn sync(&self) -> std::io::Result<()> {
        Ok(())
    }

    fn preallocate(&self, _: u64) -> std::io::Result<()> {
        Err(std::io::ErrorKind::ReadOnlyFilesystem.into())
    }

    fn set_length(&self, _: u64) -> std::io::Result<()> {
        Err(std::io::ErrorKind::ReadOnlyFilesystem.into())
    }
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
    let run = Arc::new(Run::open(FILE, Arc::new(InMemory(bytes.to_vec())), catalogue)?);
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

pub(crate) fn inspect(disk: &Arc<dyn Disk>, directory: &Path) -> Result<Inspection> {
    let layout = Layout::new(directory);
    let identity = layout.read_identity(&**disk)?.ok_or_else(|| {
        Error::new(ErrorKind::NotFound, format!("there is no catalogue in {}", directory.display()))
    })?;
    let catalogue = identity.id;
    let _lock = layout.lock(&**disk)?;
    check_settled(&**disk, &layout)?;
    let segments = log::list_segments(&**disk, &layout.log(), false)?;
    let mut scan = Scan::default();
    for (at, segment) in segments.iter().enumerate() {
        if let Err(error) = scan.segment(&**disk, catalogue, segment, at + 1 == segments.len()) {
            scan.problems.push(error.message);
        }
    }
    let settings = EmbeddedSettings::at(directory);
    let opened = Shelf::look_at(Arc::clone(disk), &layout.runs(), identity.clone());
    let runs = opened.as_ref().map(|shelf| shelf.version().runs.clone()).unwrap_or_default();
    let rows = runs.iter().map(|run| run.rows().0).sum();
    scan.problems.extend(problems_of(disk, &settings, identity)?);
    let last = opened.as_ref().map(|shelf| shelf.revision().0).unwrap_or_default();
    let can_replay = opened.is_ok();
    let recovered = opened.and_then(|shelf| recover(disk, &layout, catalogue, shelf, &settings, false));
    let (revision, audit) = match recovered {
        Ok(recovered) => {
            let revision = recovered.state.revision;
            let audit = recovered.state.audit().or_else(|defect| {
                scan.problem(defect.to_string());
                Ok::<Audit, Error>(Audit { revision, ..Audit::default() })
            })?;
            (revision, audit)
        }
        Err(error) => {
            // Damage of a run was reported above, with the place in its file.
            if can_replay || scan.problems.is_empty() {
                scan.problem(error.message);
            }
            (Revision(0), Audit::default())
        }
    };
    let mut replayed = false;
    if segments.first().is_some_and(|first| first.first_revision == Revision(1))
        && scan.record_bytes <= REPLAYED_BYTES_MAX
        && can_replay
    {
        replayed = scan.replay(&**disk, catalogue, &segments, last, &runs);
    }
    Ok(Inspection {
        segments: segments.len() as u64,
        records: scan.records,
        record_bytes: scan.record_bytes,
        revision,
        torn: scan.torn,
        runs: runs.len() as u64,
        rows,
        replayed,
        audit,
        problems: scan.problems,
    })
}

/// State of a catalogue whose files are all intact.
pub(crate) struct StateFound {
    pub revision: Revision,
    pub time: TimeMs,
    pub entries: u64,
    pub digest: u128,
    /// Problems of the state in spite of that.
    pub problems: Vec<String>,
}

/// Builds the state that opening would give, and audits it. Changes nothing.
pub(crate) fn state_of(ground: &Ground<'_>) -> Result<StateFound> {
    let (disk, data) = (ground.disk, ground.data);
    let recovered = Shelf::look_at(Arc::clone(disk), &data.runs(), ground.identity.clone())
        .and_then(|shelf| recover(disk, data, ground.identity.id, shelf, ground.settings, false));
    let recovered = match recovered {
        Ok(recovered) => recovered,
        Err(error) if matches!(error.kind, ErrorKind::Corrupt | ErrorKind::Internal) => {
            let problems = vec![error.message];
            return Ok(StateFound {
                revision: Revision(0),
                time: TimeMs(0),
                entries: 0,
                digest: 0,
                problems,
            });
        }
        Err(error) => return Err(error),
    };
    let state = &recovered.state;
    let problems = match state.audit() {
        Ok(audit) => audit
            .findings
            .iter()
            .map(|item| format!("{}: {}: {}", item.what, item.which, item.detail))
            .collect(),
        Err(defect) => vec![defect.to_string()],
    };
    let (revision, time, entries, digest) = (state.revision, state.time, state.entries, state.digest());
    Ok(StateFound { revision, time, entries, digest, problems })
}

impl Scan {
    /// Notes a problem, once.
    fn problem(&mut self, what: String) {
        if !self.problems.contains(&what) {
            self.problems.push(what);
        }
    }

    /// Replays the log from its first record, and compares the result with the runs at their
    /// revision.
    fn replay(
        &mut self,
        disk: &dyn Disk,
        catalogue: CatalogueId,
        segments: &[Arc<Segment>],
        last: Revision,
        runs: &[Arc<Run>],
    ) -> bool {
        let replay = || -> Result<Option<u128>> {
            let state = State::new(log::random_u64()?, Arc::new(Cache::new(0)))?;
            let mut replay = Inspector { state, at: last, digest: None };
            replay.note();
            log::replay(disk, catalogue, segments, Revision(0), &mut replay)?;
            Ok(replay.digest)
        };
        match replay() {
            Ok(digest) if runs.is_empty() || digest == State::digest_in(runs) => return true,
            Ok(_) => {
                self.problem("the log gives another state than the runs have, or ends before".to_owned())
            }
            Err(error) => self.problem(error.message),
        }
        false
    }

    fn segment(
        &mut self,
        disk: &dyn Disk,
        catalogue: CatalogueId,
        segment: &Segment,
        is_last: bool,
    ) -> Result<()> {
        let form = *segment.form();
        let name = segment.name_in(form);
        let unreadable = |error: std::io::Error| cannot_read(&name, &error);
        if form == Form::Archived {
            let file = disk.open_to_read(&segment.archived_path()).map_err(unreadable)?;
            return self.archived(Archive::open(file, name)?, catalogue, segment);
        }
        let file = disk.open_to_read(&segment.path).map_err(unreadable)?;
        let bytes = read_whole(&*file).map_err(unreadable)?;
        let header = Header::decode(&name, &bytes)?;
        if header.catalogue != catalogue || header.first_revision != segment.first_revision {
            return Err(corrupt(&name, 16, "the segment is another catalogue's, or has another's name"));
        }
        let mut records = Records::new(&bytes, header.salt, HEADER_BYTES);
        while let Some((_, body)) = records.next_record() {
            self.records += 1;
            self.record_bytes += body.len() as u64;
        }
        let ending = records.ending(&name, is_last)?;
        self.torn |= matches!(ending, Ending::Torn(_));
        Ok(())
    }

    /// Checks every block, even after damage in others.
    fn archived(&mut self, mut archive: Archive, catalogue: CatalogueId, segment: &Segment) -> Result<()> {
        let header = archive.header();
        if header.catalogue != catalogue || header.first_revision != segment.first_revision {
            let what = "the segment is another catalogue's, or has another's name";
            return Err(corrupt(archive.name(), 16, what));
        }
        self.problems.extend(archive.index_damage().map(|damage| damage.message.clone()));
        for number in 0..archive.blocks().len() {
            let whole = archive.records(number, 0, |_, body| {
                self.records += 1;
                self.record_bytes += body.len() as u64;
                Ok(())
            });
            if let Err(error) = whole {
                self.problems.push(error.message);
            }
        }
        Ok(())
    }
}

/// Receiver that replays the log, and notes the digest at one revision.
struct Inspector {
    state: State,
    at: Revision,
    digest: Option<u128>,
}

impl Inspector {
    fn note(&mut self) {
        if self.state.revision == self.at {
            self.digest = Some(self.state.digest());
        }
    }
}

impl Replay for Inspector {
    fn segment(&mut self, file: &str, header: &Header) -> Result<()> {
        check_segment(&self.state, file, header)
    }

    fn record(&mut self, file: &str, offset: u64, head: Head, _: usize) -> Result<()> {
        check_record(&self.state, file, offset, head)
    }

    fn change(&mut self, file: &str, offset: u64, change: Change) -> Result<()> {
        apply_replayed(&mut self.state, file, offset, &change)?;
        self.note();
        Ok(())
    }
}
