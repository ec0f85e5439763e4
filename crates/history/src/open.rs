//! Opens a history: identity, manifest, names, latest values, runs, and the log after them.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize};

use exacat_disk::{
    Disk, RealDisk, TitledLines, cannot_read, cannot_write, corrupt, hex_of, random_id, read_text,
    replace_small, titled_text,
};
use exacat_log::chain::RecordPlace;
use exacat_log::log_end::{self, LogEnd};
use exacat_log::record::{Head, split_head};
use exacat_log::replay::{Receiver, list_segments, replay, undecodable};
use exacat_log::segment::{BegunFor, Header};
use exacat_log::{Log, LogSettings, Preparation, Segment};
use exacat_model::codec::Reader;
use exacat_model::{Error, ErrorKind, Result, TimelineId};
use parking_lot::{Mutex, RwLock};

use crate::archive::ArchivedEntry;
use crate::archive_state::{ArchiveState, Tenure};
use crate::archived_days::ArchivedDays;
use crate::batch::each_checked_row;
use crate::checked_file::HistoryId;
use crate::committer::{Appender, CommitMetrics, Queue};
use crate::engine::{Files, Flushes, Groups, History, HistorySettings, Shared, create_directories};
use crate::flush::FilePlaces;
use crate::group::Group;
use crate::item::Item;
use crate::latest::Latest;
use crate::manifest::{Layout, Manifest};
use crate::owned_archive::OwnedArchive;
use crate::row::RowRef;
use crate::run::Wanted;
use crate::sorted::SortedRows;

/// File with the identity of a history.
pub(crate) const IDENTITY: &str = "HISTORY";
/// First line of that file, before its version.
const IDENTITY_TITLE: &str = "exacat history, layout";
/// Version of the layout of a history's directory.
const LAYOUT_VERSION: u32 = 1;

impl History {
    /// Opens the history of a directory on the machine's disk; a new one if the directory is empty.
    pub fn open(settings: HistorySettings) -> Result<Self> {
        Self::open_on(Arc::new(RealDisk), settings)
    }

    /// Opens a history on a disk.
    pub fn open_on(disk: Arc<dyn Disk>, settings: HistorySettings) -> Result<Self> {
        let layout = Layout { root: settings.directory.clone() };
        create_directories(&*disk, &layout)?;
        let lock = lock(&*disk, &layout)?;
        disk.make_private(&layout.root, true).map_err(|error| cannot_write(&layout.root, &error))?;
        let id = identify(&*disk, &layout)?;
        let manifest = Manifest::read(&*disk, &layout.root, id)?.unwrap_or_default();
        let segments = list_segments(&*disk, &layout.log(), true)?;
        if segments.is_empty() && manifest.revision > 0 {
            let what = format!("{}: there are runs, but no log: restore it", layout.root.display());
            return Err(Error::new(ErrorKind::Corrupt, what));
        }
        let place = manifest.place();
        let mut opening = Opening::new(&disk, &layout, id, manifest);
        opening.archive = open_archive(&disk, &layout, id, &settings)?;
        opening.load()?;
        if let Some(last) = segments.last() {
            last.make_durable(&*disk)?;
        }
        let end = replay(&*disk, id, &segments, place.revision, &mut opening)?;
        let (log_directory, at) = (layout.log(), opening.place.revision);
        log_end::check_followed(end.as_ref(), at)?;
        log_end::check_witness(&*disk, &log_directory, id, end.as_ref(), at)?;
        log_end::check_length(&log_directory, end.as_ref())?;
        let (log, is_marked) = open_log(&disk, &settings, &opening, end, &segments)?;
        opening.sweep()?;
        let Opening { archive, groups, files, place, active_bytes, .. } = opening;
        let shared = Shared {
            disk: Arc::clone(&disk),
            layout,
            id,
            settings,
            groups: RwLock::new(groups),
            group_changes: tokio::sync::Mutex::default(),
            queue: Queue::default(),
            appender: Mutex::new(Appender::new(log, place)),
            metrics: CommitMetrics::default(),
            active_bytes: AtomicUsize::new(active_bytes),
            files: Mutex::new(files),
            flushes: Mutex::new(Flushes::default()),
            flushed: parking_lot::Condvar::new(),
            flush_count: AtomicU64::new(0),
            newest_flush: AtomicU64::new(u64::MAX),
            closed: AtomicBool::new(false),
            archive,
            archiving: Mutex::default(),
            archive_turn: Mutex::default(),
            archive_metrics: crate::archive::ArchiveMetrics::default(),
        };
        for group in shared.groups.read().by_id.values() {
            group.apply_retention(shared.now_ns());
        }
        History::start(Arc::new(shared), is_marked, lock)
    }
}

/// Locks a history, so that no other process opens it.
pub(crate) fn lock(disk: &dyn Disk, layout: &Layout) -> Result<Box<dyn Send + Sync>> {
    let path = layout.root.join("LOCK");
    disk.lock(&path).map_err(|error| match error.kind() {
        std::io::ErrorKind::WouldBlock => Error::new(
            ErrorKind::Unavailable,
            format!("{}: another process has this history open", layout.root.display()),
        ),
        _ => cannot_write(&path, &error),
    })
}

/// Reads the identity of a history; none if there is no such file.
pub(crate) fn read_identity(disk: &dyn Disk, layout: &Layout) -> Result<Option<HistoryId>> {
    let path = layout.root.join(IDENTITY);
    let name = path.display().to_string();
    let text = read_text(disk, &path).map_err(|error| cannot_read(&name, &error))?;
    text.map(|text| parse_identity(&text).map_err(|what| corrupt(&name, 0, what))).transpose()
}

/// Returns the identity of the history; a new one if the directory is empty.
fn identify(disk: &dyn Disk, layout: &Layout) -> Result<HistoryId> {
    if let Some(id) = read_identity(disk, layout)? {
        return Ok(id);
    }
    let path = layout.root.join(IDENTITY);
    let name = path.display().to_string();
    let has_files = |directory: &std::path::Path| {
        disk.list(directory).map(|names| !names.is_empty()).map_err(|error| cannot_read(&name, &error))
    };
    if has_files(&layout.log())? || has_files(&layout.files())? {
        let what = format!("{name} is missing, but there are files of a history: restore it");
        return Err(Error::new(ErrorKind::Corrupt, what));
    }
    let id = random_id()?;
    let text = identity_text(id);
    replace_small(disk, &layout.root, IDENTITY, text.as_bytes())
        .map_err(|error| cannot_write(&path, &error))?;
    Ok(id)
}

fn identity_text(id: HistoryId) -> String {
    titled_text(IDENTITY_TITLE, LAYOUT_VERSION, &[("id", &hex_of(id))])
}

fn parse_identity(text: &str) -> std::result::Result<HistoryId, &'static str> {
    TitledLines::of(text, IDENTITY_TITLE, LAYOUT_VERSION)?.id("id")
}

/// Opens the archive of a history, if it has one. A history whose adoption of the archive was interrupted is
/// refused: the rows in its log behind the begin of the adoption must be those of the archive alone.
fn open_archive(
    disk: &Arc<dyn Disk>,
    layout: &Layout,
    id: HistoryId,
    settings: &HistorySettings,
) -> Result<Option<Arc<OwnedArchive>>> {
    if ArchiveState::read(&**disk, &layout.root)?.tenure == Tenure::Adopting && !settings.adopts {
        let what = format!(
            "{}: the adoption of its archive was interrupted: run exacat history adopt again",
            layout.root.display()
        );
        return Err(Error::new(ErrorKind::Unavailable, what));
    }
    let Some(archive) = &settings.archive else { return Ok(None) };
    let opened = OwnedArchive::open(Arc::clone(&archive.archive), Arc::clone(disk), layout.root.clone(), id);
    opened.map(|archive| Some(Arc::new(archive)))
}

/// Opens the log to append to it; a new one if there is none. Returns it, and whether it ends with a mark.
fn open_log(
    disk: &Arc<dyn Disk>,
    settings: &HistorySettings,
    opening: &Opening<'_>,
    end: Option<LogEnd>,
    segments: &[Arc<Segment>],
) -> Result<(Log, bool)> {
    let log_settings = LogSettings {
        disk: Arc::clone(disk),
        directory: opening.layout.log(),
        begun_for: BegunFor { catalogue: opening.id, timeline: TimelineId::of_catalogue(opening.id) },
        segment_bytes: settings.segment_bytes,
        preparation: match (settings.in_background, settings.log_ahead) {
            (true, true) => Preparation::Ahead,
            (false, true) => Preparation::InPlace,
            (_, false) => Preparation::Never,
        },
    };
    let opened = Log::open_or_create(log_settings, &opening.place, end, segments, (settings.now)())?;
    if let Some(kept_as) = opened.kept_as {
        tracing::warn!(
            file = kept_as,
            "the log of the history ended with a torn write; its bytes were kept and cut off, nobody has an answer for them"
        );
    }
    Ok((opened.log, opened.is_marked))
}

/// State of an opening: what the files have, then the log after them.
pub(crate) struct Opening<'a> {
    archive: Option<Arc<OwnedArchive>>,
    disk: &'a Arc<dyn Disk>,
    layout: &'a Layout,
    id: HistoryId,
    pub groups: Groups,
    files: Files,
    /// Last record that was taken in.
    pub place: RecordPlace,
    /// Bytes of rows in memory.
    active_bytes: usize,
}

impl<'a> Opening<'a> {
    /// Begins an opening with the files of a manifest.
    pub(crate) fn new(
        disk: &'a Arc<dyn Disk>,
        layout: &'a Layout,
        id: HistoryId,
        manifest: Manifest,
    ) -> Self {
        let groups = Groups { next: manifest.next_group, ..Groups::default() };
        let place = manifest.place();
        let files = Files { manifest, names: BTreeMap::new(), flushes: 0 };
        Opening { archive: None, disk, layout, id, groups, files, place, active_bytes: 0 }
    }

    fn places(&self) -> FilePlaces<'_> {
        FilePlaces { disk: self.disk, layout: self.layout, history: self.id }
    }

    /// Loads the groups that the manifest names.
    pub(crate) fn load(&mut self) -> Result<()> {
        for entry in self.files.manifest.groups.clone() {
            let group = Group::new(entry.id, entry.settings);
            let places = self.places();
            places.load_names(&group, &entry.names)?;
            let counts = group.names.read().counts();
            let mut latest = Latest::default();
            if let Some(number) = entry.latest {
                latest = places.load_latest(number, &group)?;
            }
            let mut rows = group.rows.write();
            let mut list = (*rows.runs).clone();
            for run in &entry.runs {
                let opened = places.open_run(run.number, entry.id, run.day())?.with_newest(run.newest);
                if opened.run.head().salt != run.salt {
                    let path = self.layout.run(run.number).display().to_string();
                    return Err(corrupt(&path, 24, "this is another run than the manifest names"));
                }
                // The file of latest values has those of the runs before it.
                if entry.latest.is_none_or(|number| run.newest > number) {
                    let names = group.names.read();
                    let mut scan = opened.run.scan(Wanted::all());
                    while let Some(columns) = scan.next_rows()? {
                        latest.apply_columns(&columns, &names)?;
                    }
                }
                list.add(run.day(), opened);
            }
            rows.runs = Arc::new(list);
            rows.archived = self.archived_of(entry.id);
            rows.latest = latest;
            drop(rows);
            self.files.names.insert(entry.id, counts);
            self.groups.insert(Arc::new(group));
        }
        Ok(())
    }

    /// Returns the archived days of a group.
    fn archived_of(&self, group: u32) -> Arc<ArchivedDays> {
        let of_group = self.files.manifest.archived.0.iter().filter(|entry| entry.group == group);
        let day = |entry: &ArchivedEntry| Some((i32::try_from(entry.day).ok()?, entry.files.clone().into()));
        Arc::new(ArchivedDays { days: of_group.filter_map(day).collect(), archive: self.archive.clone() })
    }

    /// Removes files that the manifest does not name: those of a flush that was interrupted.
    fn sweep(&self) -> Result<()> {
        let directory = self.layout.files();
        let kept = self.files.manifest.files(self.layout);
        let names = self.disk.list(&directory);
        for name in names.map_err(|error| cannot_read(&directory.display().to_string(), &error))? {
            let path = directory.join(name);
            if !kept.contains(&path) {
                self.disk.remove(&path).map_err(|error| cannot_write(&path, &error))?;
            }
        }
        Ok(())
    }

    fn take_in(
        &mut self,
        item: &Item<'_>,
    ) -> Result<std::result::Result<(), exacat_model::codec::DecodeError>> {
        let id = item.group();
        match item {
            Item::Settings { settings, .. } => match self.groups.by_id.get(&id).cloned() {
                Some(group) => *group.settings.write() = (**settings).clone(),
                None => self.groups.insert(Arc::new(Group::new(id, (**settings).clone()))),
            },
            Item::Dropped { .. } => self.groups.remove(id),
            _ => {
                let Some(group) = self.groups.by_id.get(&id).cloned() else {
                    // The group was dropped while these rows waited.
                    return Ok(Ok(()));
                };
                match item {
                    Item::Rows { count, bytes, .. } => {
                        let names = group.names.read();
                        let mut rows = group.rows.write();
                        let active = Arc::clone(&rows.active);
                        let mut active = active.write();
                        let elements = names.element_count() as u32;
                        self.active_bytes += bytes.len();
                        return Ok(each_checked_row(
                            bytes,
                            *count,
                            &*names,
                            elements,
                            |row: RowRef<'_>, bytes| {
                                active.push(&row, bytes);
                                rows.latest.apply(&row, &*names);
                            },
                        ));
                    }
                    Item::DaysDropped { first_kept, .. } => group.drop_days(*first_kept),
                    _ => group.names.write().learn(item)?,
                }
            }
        }
        Ok(Ok(()))
    }
}

impl Receiver for Opening<'_> {
    fn segment(&mut self, file: &str, header: &Header) -> Result<()> {
        self.place.check_begin(file, header)
    }

    fn record(&mut self, file: &str, offset: u64, head: Head, body: &[u8]) -> Result<()> {
        self.place.check_next(file, offset, &head)?;
        let (_, content) = split_head(body).map_err(|error| undecodable(file, offset, &error))?;
        let mut reader = Reader::new(content);
        while !reader.is_empty() {
            let item = Item::decode(&mut reader).map_err(|error| undecodable(file, offset, &error))?;
            let taken = self.take_in(&item).map_err(|error| corrupt(file, offset, error.message))?;
            taken.map_err(|error| undecodable(file, offset, &error))?;
        }
        self.place = self.place.after(head.time, content);
        Ok(())
    }
}
