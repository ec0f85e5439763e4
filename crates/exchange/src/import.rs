//! Imports a listing: batches in flight, rejects in order, progress, and resumption after an
//! interruption.

use std::collections::{HashMap, HashSet, VecDeque};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use exacat_model::operation::Existing;
use exacat_model::{Answer, ErrorKind, LogPosition, Operation, Revision, SeName};
use parking_lot::Mutex;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

use crate::batches::{self, Batch, Pass, Read, Reading};
use crate::bulk::{Bulk, Lines, OneByOne};
use crate::catalogue::Catalogue;
use crate::counts::Counts;
use crate::error::Error;
use crate::input::BytesRead;
use crate::limits::{BATCH_ROWS_MAX, BATCHES_IN_FLIGHT_MAX, POSITION_WAIT, ROWS_PER_STATE};
use crate::listing::{self, Examined, Listing};
use crate::options::{ListingOptions, check_registered};
use crate::progress::Progress;
use crate::reject::{Reason, Reject, RejectSink};
use crate::restore;
use crate::resume::{STATE_VERSION, State, StateAt, StateLock, state_beside};

use crate::sending::{Sender, Sent, unexpected};

/// Options of an import.
#[derive(Clone, Debug)]
pub struct ImportOptions {
    /// Options for reading the listing.
    pub listing: ListingOptions,
    /// Treatment of entries that exist already. With Merge and Same, a repeated import has no
    /// effect.
    pub existing: Existing,
    /// File for rejected rows; none only counts them.
    pub rejects: Option<PathBuf>,
    /// Place of the state file.
    pub state: StateAt,
    /// Begin with the first row even if an interrupted import could resume.
    pub restart: bool,
    /// Make the SEs, users and groups that an export's rows need, if they are missing.
    pub restore: bool,
    /// Rows sent together: 1 to [`BATCH_ROWS_MAX`].
    pub batch_rows: usize,
}

impl Default for ImportOptions {
    fn default() -> Self {
        ImportOptions {
            listing: ListingOptions::default(),
            existing: Existing::Same,
            rejects: None,
            state: StateAt::Beside,
            restart: false,
            restore: false,
            batch_rows: BATCH_ROWS_MAX,
        }
    }
}

/// Result of an import.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ImportReport {
    /// Rows of the listing.
    pub rows: u64,
    /// Results of accepted rows, including those of interrupted runs.
    pub counts: Counts,
    /// Number of rejected rows.
    pub rejected: u64,
    /// Number of parts left out of accepted rows: tags, second PFNs on one SE.
    pub partial: u64,
    /// Rejects and parts left out, by reason.
    pub rejects: Vec<(Reason, u64)>,
    /// The first rejects.
    pub rejects_shown: Vec<Reject>,
    /// First row of this run, if it resumed an interrupted import.
    pub resumed_from: Option<u64>,
    /// Further notes for the user.
    pub notes: Vec<String>,
    /// Duration of this run.
    pub elapsed: Duration,
}

impl ImportReport {
    /// Says whether this import changed nothing in the catalogue.
    pub fn changed_nothing(&self) -> bool {
        self.counts.changed_nothing()
    }
}

/// Imports one listing. Bad or refused rows are rejects. After an error the rest was not tried; the
/// same call resumes from there.
pub async fn import<C: Catalogue>(
    catalogue: Arc<C>,
    path: &Path,
    options: &ImportOptions,
    progress: impl FnMut(&Progress) + Send,
) -> Result<ImportReport, Error> {
    import_by(catalogue, None::<Arc<OneByOne>>, path, options, progress).await
}

/// Imports with the same result into a catalogue opened in this process, which loads plain files in
/// bulk. After an interruption it begins with the first row again, and finds the existing entries.
pub async fn import_in_bulk<C: Catalogue, B: Bulk>(
    catalogue: Arc<C>,
    bulk: Arc<B>,
    path: &Path,
    options: &ImportOptions,
    progress: impl FnMut(&Progress) + Send,
) -> Result<ImportReport, Error> {
    import_by(catalogue, Some(bulk), path, options, progress).await
}

/// Reads a listing as an import would, and counts the rows that it would reject without the
/// catalogue. Nothing is changed.
pub async fn examine<C: Catalogue>(
    catalogue: &C,
    path: &Path,
    options: &ListingOptions,
) -> Result<Examined, Error> {
    let mut listing = listing::open(path, options).await?;
    let ses = registered_ses(catalogue).await?;
    check_registered(options, &ses)?;
    listing.know_ses(ses);
    let examined = tokio::task::spawn_blocking(move || listing.examine()).await;
    examined.map_err(|_| Error::Broken("reading a listing"))?
}

async fn import_by<C: Catalogue, B: Bulk>(
    catalogue: Arc<C>,
    bulk: Option<Arc<B>>,
    path: &Path,
    options: &ImportOptions,
    progress: impl FnMut(&Progress) + Send,
) -> Result<ImportReport, Error> {
    let started = Instant::now();
    if !(1..=BATCH_ROWS_MAX).contains(&options.batch_rows) {
        return Err(Error::options(format!(
            "rows are sent 1 to {BATCH_ROWS_MAX} at once, not {}",
            options.batch_rows
        )));
    }
    let mut listing = listing::open(path, &options.listing).await?;
    if bulk.is_some() && listing.input().identity().is_none() {
        return Err(Error::options("loading may take a second reading: give a file, not a pipe"));
    }
    let found = find_state(&listing, options);
    let position = resumed_position(&*catalogue, found.as_ref()).await?;
    let mut report = ImportReport::default();
    let mut counts = Counts::default();
    if options.restore
        && let Some(preamble) = listing.preamble()
    {
        restore::restore(&*catalogue, preamble, &mut counts).await?;
    }
    let ses = registered_ses(&*catalogue).await?;
    check_registered(&options.listing, &ses)?;
    listing.know_ses(ses);
    // Opening a FIFO waits for its other end.
    let own = options.clone();
    let opened = tokio::task::spawn_blocking(move || {
        let mut notes = Vec::new();
        StateFile::open(&listing, &own, found, position, &mut notes).map(|opened| (listing, opened, notes))
    });
    let (listing, (mut state_file, mut sink), notes) =
        opened.await.map_err(|_| Error::Broken("opening the files of an import"))??;
    report.notes.extend(notes);
    counts.add(&state_file.state.as_ref().map(|(_, state)| state.counts).unwrap_or_default());
    if bulk.is_some() {
        state_file.hold(&mut sink)?;
    }
    report.resumed_from = state_file.resumed_from();
    let from = state_file.from();
    let count = BytesRead::default();
    let listing = Arc::new(listing);
    let (tell_left, left) = std::sync::mpsc::channel();
    let left = bulk.is_some().then_some(left);
    let reading = Reading { from, two_passes: true, batch_rows: options.batch_rows, left };
    let reads = batches::read(Arc::clone(&listing), reading, count)?;
    let sender = Sender {
        catalogue: Arc::clone(&catalogue),
        listing: Arc::clone(&listing),
        existing: options.existing,
        collections: Mutex::new(HashSet::new()),
    };
    let mut importing = Importing {
        sender: Arc::new(sender),
        bulk,
        tell_left,
        state_file: &mut state_file,
        sink,
        counts,
        flying: VecDeque::new(),
        flying_names: HashMap::new(),
        rows: 0,
        progress: Progress { rows: from.1, bytes_total: listing.input().size(), ..Progress::default() },
        report_progress: progress,
        started,
    };
    let ran = importing.run(reads).await;
    let Importing { mut sink, counts, rows, flying, .. } = importing;
    for flight in flying {
        flight.task.abort();
    }
    sink.flush(false)?;
    if let Err(error) = ran {
        // The state records durable rows, so that the next run need not repeat them; the original
        // error matters more. If the catalogue cannot be reached, the revision is unknown and the
        // next run repeats more.
        let located = tokio::time::timeout(POSITION_WAIT, state_file.locate(&*catalogue)).await;
        if matches!(located, Ok(Ok(()))) {
            let _next_run_repeats_more = state_file.save(&mut sink, counts, None);
        }
        return Err(error);
    }
    state_file.locate(&*catalogue).await?;
    state_file.finish()?;
    report.rows = rows;
    report.counts = counts;
    report.rejected = sink.rejected();
    report.partial = sink.partial();
    report.rejects = sink.counts();
    report.rejects_shown = sink.shown().to_vec();
    report.elapsed = started.elapsed();
    Ok(report)
}

/// Returns the registered SEs.
pub(crate) async fn registered_ses<C: Catalogue>(catalogue: &C) -> Result<Vec<SeName>, Error> {
    match catalogue.call(Operation::SeList).await? {
        Answer::Ses(ses) => Ok(ses.into_iter().map(|usage| usage.se.name).collect()),
        _ => Err(unexpected("se-list").into()),
    }
}

struct Flight {
    batch: (Pass, u64, u64),
    bytes_read: u64,
    names: Vec<u128>,
    task: JoinHandle<Result<Sent, Error>>,
}

struct Importing<'i, C, B, P> {
    sender: Arc<Sender<C>>,
    /// Takes plain files in the first pass.
    bulk: Option<Arc<B>>,
    /// Tells the reading thread which rows to read again.
    tell_left: std::sync::mpsc::Sender<Lines>,
    state_file: &'i mut StateFile,
    sink: RejectSink,
    counts: Counts,
    /// Batches in flight, in order; their results are processed in order too.
    flying: VecDeque<Flight>,
    /// Names in flight, if a name may be in several rows: rows of one name are sent one after the
    /// other.
    flying_names: HashMap<u128, u32>,
    rows: u64,
    progress: Progress,
    report_progress: P,
    started: Instant,
}

impl<C: Catalogue, B: Bulk, P: FnMut(&Progress) + Send> Importing<'_, C, B, P> {
    async fn run(&mut self, mut reads: mpsc::Receiver<Read>) -> Result<(), Error> {
        let mut ended = false;
        loop {
            // Finished batches are processed first: this frees a place and advances the durable
            // row.
            while self.flying.front().is_some_and(|flight| flight.task.is_finished()) {
                self.land().await?;
            }
            if ended || self.flying.len() >= BATCHES_IN_FLIGHT_MAX {
                if self.flying.is_empty() {
                    return Ok(());
                }
                self.land().await?;
                continue;
            }
            match reads.recv().await {
                Some(Read::Batch(batch)) => self.launch(*batch).await?,
                Some(Read::Passed(pass, rows)) => {
                    self.rows = rows;
                    self.land_all().await?;
                    if pass == Pass::First {
                        self.load().await?;
                        let catalogue = &*self.sender.catalogue;
                        self.state_file.begin_second(catalogue, &mut self.sink, self.counts).await?;
                        self.progress.second_pass = true;
                    }
                }
                Some(Read::Failed(error)) => {
                    self.land_all().await?;
                    return Err(error);
                }
                None => ended = true,
            }
        }
    }

    /// Sends a batch.
    async fn launch(&mut self, mut batch: Batch) -> Result<(), Error> {
        while batch.names.iter().any(|name| self.flying_names.contains_key(name)) {
            self.land().await?;
        }
        let catalogue = &*self.sender.catalogue;
        self.state_file.before_sending(catalogue, &batch, &mut self.sink, self.counts).await?;
        let again = self.state_file.may_be_sent_already(&batch);
        self.counts.ses_registered += self.sender.register_ses(&batch.new_ses).await?;
        let directories = self.sender.make_directories(&mut batch, again).await?;
        for name in &batch.names {
            *self.flying_names.entry(*name).or_default() += 1;
        }
        let names = std::mem::take(&mut batch.names);
        let rows = (batch.pass, batch.rows.start, batch.rows.end);
        let bytes_read = batch.bytes_read;
        let sender = Arc::clone(&self.sender);
        let bulk = if batch.pass == Pass::First { self.bulk.clone() } else { None };
        let task = tokio::spawn(async move {
            if let Some(bulk) = bulk {
                divert(&mut batch, &*bulk).await?;
            }
            let mut sent = sender.send(batch, again).await?;
            sent.counts.add(&directories.counts);
            sent.rejects.extend(directories.rejects);
            sent.rejects.sort_by_key(|reject| reject.line);
            Ok(sent)
        });
        self.flying.push_back(Flight { batch: rows, bytes_read, names, task });
        Ok(())
    }

    /// Loads the files taken in the first pass, and has the reader read the rest again.
    async fn load(&mut self) -> Result<(), Error> {
        let Some(bulk) = self.bulk.clone() else { return Ok(()) };
        self.progress.loading = true;
        self.progress.elapsed = self.started.elapsed();
        (self.report_progress)(&self.progress);
        let left = Arc::new(Mutex::new(Lines::default()));
        let told = Arc::clone(&left);
        self.counts.created += bulk.load(move |line| told.lock().insert(line)).await?;
        self.progress.loading = false;
        // If the reading thread is gone, its last message has the reason.
        let _gone = self.tell_left.send(std::mem::take(&mut *left.lock()));
        Ok(())
    }

    async fn land_all(&mut self) -> Result<(), Error> {
        while !self.flying.is_empty() {
            self.land().await?;
        }
        Ok(())
    }

    /// Waits for the oldest batch and processes its results.
    async fn land(&mut self) -> Result<(), Error> {
        let Some(flight) = self.flying.pop_front() else { return Ok(()) };
        let sent = flight.task.await.map_err(|_| Error::Broken("sending a batch"))??;
        for name in &flight.names {
            if let Some(times) = self.flying_names.get_mut(name) {
                *times -= 1;
                if *times == 0 {
                    self.flying_names.remove(name);
                }
            }
        }
        self.counts.add(&sent.counts);
        for reject in sent.rejects {
            self.sink.push(reject)?;
        }
        let (pass, start, end) = flight.batch;
        self.state_file.done(pass, end);
        if pass == Pass::First {
            self.progress.rows = self.progress.rows.max(end);
            self.progress.rows_now += end - start.max(self.state_file.from().1.min(end));
        }
        self.progress.bytes_read = flight.bytes_read;
        self.progress.rejected = self.sink.rejected();
        self.progress.elapsed = self.started.elapsed();
        (self.report_progress)(&self.progress);
        Ok(())
    }
}

/// Takes plain files from a batch for the bulk load.
async fn divert<B: Bulk>(batch: &mut Batch, bulk: &B) -> Result<(), Error> {
    // Repeated names are in later groups, and wait for the result of the first.
    let Some(group) = batch.groups.first_mut() else { return Ok(()) };
    let is_plain =
        |index: &usize| group.collections[*index].is_none() && group.files[*index].member_of.is_none();
    let which: Vec<(usize, u64)> =
        (0..group.files.len()).filter(is_plain).map(|index| (index, group.rows[index].line)).collect();
    if which.is_empty() {
        return Ok(());
    }
    let took = bulk.take(&group.files, &which).await?;
    let mut taken = vec![false; group.files.len()];
    for ((index, _), took) in which.into_iter().zip(took) {
        taken[index] = took;
    }
    group.keep(|index| !taken[index]);
    Ok(())
}

/// State file of an import, from which an interrupted one resumes.
struct StateFile {
    /// Keeps other imports off the state file.
    _lock: Option<StateLock>,
    /// Path and state; none without a state file.
    state: Option<(PathBuf, State)>,
    /// First row of this run.
    from: (Pass, u64),
    /// An interrupted run may have sent rows before this.
    sent_before: (Pass, u64),
    /// All rows before this are done.
    durable: (Pass, u64),
    /// True while the state is frozen, because a bulk load does not tell which rows are done.
    held: bool,
    /// Place in the catalogue's history after all rows before `durable`.
    position: LogPosition,
}

/// Returns the path of the state file of an import of this listing, if it has one.
fn state_path(listing: &Listing, options: &ImportOptions) -> Option<PathBuf> {
    match &options.state {
        StateAt::Nowhere => None,
        StateAt::At(path) => Some(path.clone()),
        StateAt::Beside => Some(state_beside(listing.input().path())),
    }
}

/// Reads the state from which an import would resume. Its faults are reported when the import opens
/// it.
fn find_state(listing: &Listing, options: &ImportOptions) -> Option<(PathBuf, State)> {
    let path = state_path(listing, options).filter(|_| !options.restart)?;
    let state = State::load(&path).ok()??;
    Some((path, state))
}

/// Refuses a state of an import into another catalogue, or from before a restore. Returns the end
/// of the catalogue's history.
async fn resumed_position<C: Catalogue>(
    catalogue: &C,
    found: Option<&(PathBuf, State)>,
) -> Result<LogPosition, Error> {
    let named = found.and_then(|(path, state)| Some((path, state.position.as_ref()?)));
    let Some((path, text)) = named else { return position(catalogue, Revision(0).into()).await };
    position(catalogue, text.parse()?).await.map_err(|error| match error {
        Error::Catalogue(error) if error.kind == ErrorKind::Conflict => exacat_model::Error::new(
            ErrorKind::Conflict,
            format!(
                "{} is of an import into another catalogue, or of before a restore ({}): --restart begins with \
                 the first row, or name another state file with --state",
                path.display(),
                error.message
            ),
        )
        .into(),
        error => error,
    })
}

/// Checks that the catalogue's history has this place, and returns its end.
pub(crate) async fn position<C: Catalogue>(catalogue: &C, after: LogPosition) -> Result<LogPosition, Error> {
    match catalogue.call(Operation::Position { after }).await? {
        Answer::Changes { up_to, timeline, .. } => {
            Ok(LogPosition { revision: up_to, timeline: Some(timeline.whole()) })
        }
        _ => Err(unexpected("position").into()),
    }
}

impl StateFile {
    /// Loads the state of an interrupted import, or begins a new one.
    fn open(
        listing: &Listing,
        options: &ImportOptions,
        expected: Option<(PathBuf, State)>,
        position: LogPosition,
        notes: &mut Vec<String>,
    ) -> Result<(Self, RejectSink), Error> {
        if let Some(rejects) = &options.rejects {
            refuse_same_file(listing.input().path(), rejects)?;
        }
        let fresh_sink =
            || options.rejects.as_deref().map_or_else(|| Ok(RejectSink::counting()), RejectSink::create);
        let start = (Pass::First, 0);
        let mut state_file = StateFile {
            _lock: None,
            state: None,
            from: start,
            sent_before: start,
            durable: start,
            held: false,
            position,
        };
        let Some(path) = state_path(listing, options) else { return Ok((state_file, fresh_sink()?)) };
        let Some(identity) = listing.input().identity() else {
            notes.push("the listing is a pipe: an interrupted import starts from its first row".to_owned());
            return Ok((state_file, fresh_sink()?));
        };
        let fingerprint = fingerprint(options);
        state_file._lock = match StateLock::take(&path) {
            Err(Error::File { .. }) if options.state == StateAt::Beside => None,
            lock => Some(lock?),
        };
        let found = match State::load(&path) {
            _ if options.restart => None,
            // An unreadable place is unwritable too; the note comes with the attempt to write.
            Err(Error::File { .. }) if options.state == StateAt::Beside => None,
            found => found?,
        };
        if let Some(state) = found {
            state.check(&path, identity, &fingerprint)?;
            if expected.is_none_or(|(_, expected)| expected != state) {
                return Err(Error::options(format!(
                    "another import was using {}: try again",
                    path.display()
                )));
            }
            if state.position.is_none() {
                notes.push(format!(
                    "{} is of an earlier version of exacat, and does not tell which catalogue it is of",
                    path.display()
                ));
            }
            let mut sink = match &options.rejects {
                Some(rejects) => RejectSink::resume(rejects, state.reject_bytes)?,
                None => RejectSink::counting(),
            };
            sink.restore_counts(&state.rejects);
            state_file.from = (state.pass, state.durable);
            state_file.durable = state_file.from;
            state_file.sent_before = match state.ceiling {
                // Rows of an interrupted load may belong to either pass.
                u64::MAX => (Pass::Second, u64::MAX),
                ceiling => (state.pass, ceiling),
            };
            state_file.state = Some((path, state));
            return Ok((state_file, sink));
        }
        let mut sink = fresh_sink()?;
        let state = State {
            version: STATE_VERSION,
            position: None,
            listing: identity.clone(),
            options: fingerprint,
            pass: Pass::First,
            durable: 0,
            ceiling: 0,
            reject_bytes: sink.bytes(),
            rejects: Vec::new(),
            counts: Counts::default(),
        };
        state_file.state = Some((path, state));
        match state_file.save(&mut sink, Counts::default(), Some(ROWS_PER_STATE)) {
            Err(_) if options.state == StateAt::Beside => {
                notes.push("nothing can be written beside the listing: an interrupted import starts from its first row, unless a state file is given".to_owned());
                state_file.state = None;
            }
            saved => saved?,
        }
        Ok((state_file, sink))
    }

    /// Freezes the state: from now on any row may be done, and none is known to be.
    fn hold(&mut self, sink: &mut RejectSink) -> Result<(), Error> {
        let counts = self.state.as_ref().map(|(_, state)| state.counts).unwrap_or_default();
        self.save(sink, counts, Some(u64::MAX))?;
        self.held = true;
        Ok(())
    }

    fn from(&self) -> (Pass, u64) {
        self.from
    }

    fn resumed_from(&self) -> Option<u64> {
        (self.from != (Pass::First, 0)).then_some(self.from.1)
    }

    fn done(&mut self, pass: Pass, row: u64) {
        if !self.held {
            self.durable = self.durable.max((pass, row));
        }
    }

    /// Says whether an interrupted run may have sent this batch.
    fn may_be_sent_already(&self, batch: &Batch) -> bool {
        (batch.pass, batch.rows.start) < self.sent_before
    }

    /// Writes the state if the batch exceeds its ceiling.
    async fn before_sending<C: Catalogue>(
        &mut self,
        catalogue: &C,
        batch: &Batch,
        sink: &mut RejectSink,
        counts: Counts,
    ) -> Result<(), Error> {
        let Some((_, state)) = &self.state else { return Ok(()) };
        if (batch.pass, batch.rows.end) <= (state.pass, state.ceiling)
            || (batch.pass, batch.rows.end) <= self.from
        {
            return Ok(());
        }
        self.locate(catalogue).await?;
        self.save(sink, counts, Some(batch.rows.end + ROWS_PER_STATE))
    }

    /// Records that the first pass is done.
    async fn begin_second<C: Catalogue>(
        &mut self,
        catalogue: &C,
        sink: &mut RejectSink,
        counts: Counts,
    ) -> Result<(), Error> {
        if self.held || self.durable.0 == Pass::Second {
            return Ok(());
        }
        self.durable = (Pass::Second, 0);
        self.locate(catalogue).await?;
        self.save(sink, counts, Some(0))
    }

    /// Writes the state; without a `ceiling` the old one stays.
    fn save(&mut self, sink: &mut RejectSink, counts: Counts, ceiling: Option<u64>) -> Result<(), Error> {
        if self.held {
            return Ok(());
        }
        let Some((path, state)) = &mut self.state else { return Ok(()) };
        sink.flush(true)?;
        state.version = STATE_VERSION;
        state.position = Some(self.position.to_string());
        (state.pass, state.durable) = self.durable;
        state.ceiling = ceiling.unwrap_or(state.ceiling);
        state.reject_bytes = sink.bytes();
        state.rejects =
            sink.counts().into_iter().map(|(reason, count)| (reason.name().to_owned(), count)).collect();
        state.counts = counts;
        state.save(path)
    }

    /// Finds the end of the history, which contains everything done so far. Refuses a catalogue
    /// that was restored to a point before that.
    async fn locate<C: Catalogue>(&mut self, catalogue: &C) -> Result<(), Error> {
        self.position = position(catalogue, self.position).await.map_err(|error| match error {
            Error::Catalogue(error) if error.kind == ErrorKind::Conflict => exacat_model::Error::new(
                ErrorKind::Conflict,
                format!(
                    "the catalogue was restored while the import was running, and may have lost rows of it ({}): \
                     import again with --restart",
                    error.message
                ),
            )
            .into(),
            error => error,
        })?;
        Ok(())
    }

    fn finish(&mut self) -> Result<(), Error> {
        match &self.state {
            Some((path, _)) => State::remove(path),
            None => Ok(()),
        }
    }
}

/// Refuses to write rejects over their own listing.
fn refuse_same_file(listing: &Path, rejects: &Path) -> Result<(), Error> {
    let place = |path: &Path| {
        let found = std::fs::metadata(path).ok().filter(std::fs::Metadata::is_file)?;
        Some((found.dev(), found.ino()))
    };
    match (place(listing), place(rejects)) {
        (Some(listing), Some(rejects)) if listing == rejects => {
            Err(Error::options("the rejects would be written over the listing: name another file for them"))
        }
        _ => Ok(()),
    }
}

/// Returns a hash of the options that decide the meaning of rows and the destination of rejects.
fn fingerprint(options: &ImportOptions) -> String {
    let text = format!("{:?} {:?} {:?}", options.listing, options.existing, options.rejects);
    format!("{:032x}", xxhash_rust::xxh3::xxh3_128(text.as_bytes()))
}
