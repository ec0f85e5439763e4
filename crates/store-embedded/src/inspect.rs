//! Inspects a data directory offline: reads and checks everything in it, and changes nothing.
//!
//! It reads every record of the log and every page of the runs, and audits the state that opening
//! would give. If the log is whole from its first record, and not too long, it is replayed too. The
//! resulting state must equal that of the runs, because runs are only a view of the log.

use std::path::Path;
use std::sync::Arc;

use exacat_disk::{Disk, cannot_read, corrupt, random_u64, read_whole};
use exacat_log::archive::Archive;
use exacat_log::record::Head;
use exacat_log::segment::{CatalogueId, Ending, HEADER_BYTES, Header, Records};
use exacat_log::{Form, Segment};
use exacat_model::{Audit, Change, Error, ErrorKind, Result, Revision};

use crate::identity::Layout;
use crate::recovery::{apply_replayed, check_record, check_segment, recover};
use crate::repair::problems_of;
use crate::replay;
use crate::replay::Replay;
use crate::run::{Cache, Run};
use crate::settings::EmbeddedSettings;
use crate::snapshot::switch::check_finished;
use crate::state::State;
use crate::table::RunSet;

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

pub(crate) fn inspect(disk: &Arc<dyn Disk>, directory: &Path) -> Result<Inspection> {
    let layout = Layout::new(directory);
    let identity = layout.read_identity(&**disk)?.ok_or_else(|| {
        Error::new(ErrorKind::NotFound, format!("there is no catalogue in {}", directory.display()))
    })?;
    let catalogue = identity.id;
    let _lock = layout.lock(&**disk)?;
    check_finished(&**disk, &layout)?;
    let segments = exacat_log::replay::list_segments(&**disk, &layout.log(), false)?;
    let mut scan = Scan::default();
    for (at, segment) in segments.iter().enumerate() {
        if let Err(error) = scan.segment(&**disk, catalogue, segment, at + 1 == segments.len()) {
            scan.problems.push(error.message);
        }
    }
    let settings = EmbeddedSettings::at(directory);
    let opened = RunSet::look_at(Arc::clone(disk), &layout.runs(), identity.clone());
    let runs = opened.as_ref().map(|run_set| run_set.version().runs.clone()).unwrap_or_default();
    let rows = runs.iter().map(|run| run.rows().0).sum();
    scan.problems.extend(problems_of(disk, &settings, identity)?);
    let last = opened.as_ref().map(|run_set| run_set.revision().0).unwrap_or_default();
    let can_replay = opened.is_ok();
    let recovered = opened.and_then(|run_set| recover(disk, &layout, catalogue, run_set, &settings, false));
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
            let state = State::new(random_u64()?, Arc::new(Cache::new(0)))?;
            let mut replay = Inspector { state, at: last, digest: None };
            replay.note();
            replay::replay(disk, catalogue, segments, Revision(0), &mut replay)?;
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
