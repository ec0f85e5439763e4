//! The feeds of a server: their files, their tasks, and their control.

use std::collections::BTreeMap;
use std::os::unix::fs::DirBuilderExt as _;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use exacat_disk::random_id;
use exacat_model::{
    AfterRestore, Error, ErrorKind, Feed, FeedAction, FeedName, FeedSpec, FeedStart, FeedState, Guid,
    LogPosition, Result, Revision, TimeMs,
};
use exacat_store::Store;
use parking_lot::Mutex;
use tokio::sync::watch;
use tokio::task::JoinHandle;

use crate::cursor::{Cursor, failed, sync_directory};
use crate::limits::{CURSOR_BYTES_MAX, FEEDS_MAX, Pace};
use crate::runner::{Now, RunContext, Runner};
use crate::scope::Kinds;
#[cfg(feature = "kafka")]
use crate::sink::login;
use crate::sink::{SinkAddress, SinkContext, TlsSource, claim, next_generation, secret};
use crate::state::FeedEntry;

/// End of the name of a feed's file.
const EXTENSION: &str = "feed";

/// Settings of the feeds of a server.
pub struct FeedsSettings {
    /// Directory of their files. It is made if it is missing.
    pub directory: PathBuf,
    /// Directory of the catalogue, where no feed may write.
    pub forbidden: PathBuf,
    /// Id of the catalogue.
    pub catalogue: Guid,
    /// The catalogue's store.
    pub store: Arc<dyn Store>,
    /// The trusted time.
    pub now: Now,
    /// TLS for webhooks and brokers.
    pub tls: TlsSource,
    /// Times and sizes.
    pub pace: Pace,
}

/// A feed and its task.
struct Running {
    entry: Arc<FeedEntry>,
    task: Option<(watch::Sender<bool>, JoinHandle<()>)>,
}

/// A file that cannot be read as a cursor.
struct Damaged {
    path: PathBuf,
    why: String,
}

/// The feeds of a server.
pub struct Feeds {
    directory: PathBuf,
    forbidden: PathBuf,
    context: RunContext,
    feeds: Mutex<BTreeMap<FeedName, Running>>,
    damaged: Mutex<BTreeMap<FeedName, Damaged>>,
    /// Held by a change of the feeds: one at a time, each to its end. True after the feeds were closed.
    changing: tokio::sync::Mutex<bool>,
}

impl Feeds {
    /// Opens the feeds of a server, and starts those that run.
    ///
    /// # Errors
    /// The directory cannot be made or read. A damaged file is shown as a failed feed.
    pub fn open(settings: FeedsSettings) -> Result<Arc<Feeds>> {
        let FeedsSettings { directory, forbidden, catalogue, store, now, tls, pace } = settings;
        if !directory.is_dir() {
            let made = std::fs::DirBuilder::new().mode(0o700).create(&directory);
            made.map_err(|error| failed("make the directory", &directory, &error))?;
        }
        let sink = SinkContext { catalogue, pace, tls };
        let context = RunContext { store, now, sink, replaced: Arc::default() };
        let (mut feeds, mut damaged) = (BTreeMap::new(), BTreeMap::new());
        let read = |error: std::io::Error| failed("read", &directory, &error);
        for entry in std::fs::read_dir(&directory).map_err(read)? {
            let path = entry.map_err(read)?.path();
            if path.extension().is_none_or(|extension| extension != EXTENSION) {
                continue;
            }
            let stem = path.file_stem().and_then(|stem| stem.to_str()).unwrap_or_default();
            let Ok(name) = FeedName::parse(stem) else { continue };
            match cursor_of(&path, &name) {
                Ok(cursor) => {
                    let entry = Arc::new(FeedEntry::new(path, cursor));
                    feeds.insert(name, Running { entry, task: None });
                }
                Err(why) => {
                    tracing::error!(feed = %name, why, "a feed's file is damaged");
                    damaged.insert(name, Damaged { path, why });
                }
            }
        }
        for running in feeds.values_mut() {
            running.start(&context);
        }
        let (feeds, damaged) = (Mutex::new(feeds), Mutex::new(damaged));
        let changing = tokio::sync::Mutex::new(false);
        Ok(Arc::new(Feeds { directory, forbidden, context, feeds, damaged, changing }))
    }

    /// Makes a feed and starts it. The work goes on to its end even if nobody waits for it.
    ///
    /// # Errors
    /// Refuses a name or a directory that is in use, and bad descriptions.
    pub async fn create(self: &Arc<Self>, name: FeedName, spec: FeedSpec, owner: String) -> Result<()> {
        let feeds = Arc::clone(self);
        to_its_end(async move {
            let closed = feeds.changing.lock().await;
            check_open(*closed)?;
            feeds.create_alone(name, spec, owner).await
        })
        .await
    }

    /// Pauses, resumes, rewinds or drops a feed. The work goes on to its end even if nobody waits for it.
    ///
    /// # Errors
    /// Refuses an unknown name, and a position that is not kept, with the oldest that is.
    pub async fn control(self: &Arc<Self>, name: FeedName, action: FeedAction) -> Result<()> {
        let feeds = Arc::clone(self);
        to_its_end(async move {
            let closed = feeds.changing.lock().await;
            check_open(*closed)?;
            feeds.control_alone(&name, action).await
        })
        .await
    }

    /// Describes a feed, or all.
    ///
    /// # Errors
    /// Refuses an unknown name.
    pub async fn list(&self, only: Option<&FeedName>) -> Result<Vec<Feed>> {
        let head = self.context.store.revision().await?;
        let now = (self.context.now)();
        let mut all: Vec<Feed> =
            self.feeds.lock().values().map(|running| running.entry.shown(head, now)).collect();
        for feed in &mut all {
            // A feed that does not run has read nothing of what it lacks.
            if feed.lag_changes > 0 && feed.lag_ms == 0 {
                let next = self.context.store.changes(feed.revision, 1).await?.changes;
                feed.lag_ms = next.first().map_or(0, |change| now.0.saturating_sub(change.time.0));
            }
        }
        all.extend(self.damaged.lock().iter().map(|(name, damaged)| damaged.shown(name)));
        match only {
            None => {
                all.sort_by(|one, other| one.name.cmp(&other.name));
                Ok(all)
            }
            Some(name) => {
                all.retain(|feed| feed.name == *name);
                if all.is_empty() { Err(unknown(name)) } else { Ok(all) }
            }
        }
    }

    /// Stops all feeds, and keeps their positions.
    pub async fn close(&self) {
        let mut closed = self.changing.lock().await;
        *closed = true;
        let tasks: Vec<_> =
            self.feeds.lock().values_mut().filter_map(|running| running.task.take()).collect();
        for (stop, _) in &tasks {
            stop.send_replace(true);
        }
        for (_, task) in tasks {
            let _ended = task.await;
        }
    }

    async fn create_alone(&self, name: FeedName, spec: FeedSpec, owner: String) -> Result<()> {
        let sink = self.check(&spec)?;
        let taken = self.feeds.lock().contains_key(&name) || self.damaged.lock().contains_key(&name);
        if taken {
            return Err(Error::new(
                ErrorKind::Exists,
                format!("there is a feed {name}: drop it first, or choose another name"),
            ));
        }
        if self.feeds.lock().len() >= FEEDS_MAX {
            return Err(Error::limit("the number of feeds", FEEDS_MAX + 1, FEEDS_MAX));
        }
        self.check_unused(&sink)?;
        let generation = match &sink {
            SinkAddress::Directory(path) => next_generation(path, 0)?,
            _ => 1,
        };
        let (revision, must_copy) = self.start_of(spec.start).await?;
        let cursor = Cursor {
            name: name.clone(),
            id: random_id()?,
            spec,
            owner,
            created: (self.context.now)(),
            generation,
            revision,
            timeline: self.context.store.timelines().current(),
            window: Revision(0),
            must_copy,
            undone: Vec::new(),
            state: FeedState::Running,
            reason: String::new(),
        };
        if let SinkAddress::Directory(path) = &sink {
            claim(path, &cursor, self.context.sink.catalogue)?;
        }
        let path = self.directory.join(format!("{name}.{EXTENSION}"));
        let entry = Arc::new(FeedEntry::new(path, cursor));
        entry.save()?;
        let mut running = Running { entry, task: None };
        running.start(&self.context);
        tracing::info!(feed = %name, "made a feed");
        self.feeds.lock().insert(name, running);
        Ok(())
    }

    /// Checks a description. Returns the address of its sink.
    fn check(&self, spec: &FeedSpec) -> Result<SinkAddress> {
        Kinds::parse(spec.kinds.iter().map(String::as_str))?;
        if spec.days == 0 || spec.bytes == 0 || spec.room == 0 {
            return Err(Error::invalid("a limit of 0 loses the feed at once: give at least 1"));
        }
        let sink = SinkAddress::parse(&spec.sink)?;
        match &sink {
            SinkAddress::Directory(path) => {
                let parent = path.parent().unwrap_or(Path::new("/"));
                let real = |path: &Path| path.canonicalize().ok();
                let place = real(path).or_else(|| real(parent));
                let place = place.ok_or_else(|| {
                    Error::not_found(format!("{} does not exist: make it first", parent.display()))
                })?;
                let forbidden = real(&self.forbidden).unwrap_or_else(|| self.forbidden.clone());
                if place.starts_with(&forbidden) {
                    return Err(Error::invalid(format!(
                        "{} is in the server's own directory: choose another",
                        path.display()
                    )));
                }
                if spec.secret.is_some() || spec.allow_private {
                    return Err(Error::invalid("a directory needs neither a secret nor --allow-private"));
                }
            }
            SinkAddress::Webhook(_) => {
                if let Some(path) = &spec.secret {
                    secret(Path::new(path))?;
                }
            }
            #[cfg(feature = "kafka")]
            SinkAddress::Kafka(address) => {
                if let Some(path) = &spec.secret {
                    login(Path::new(path), address.is_tls)?;
                }
            }
        }
        Ok(sink)
    }

    /// Refuses a directory or topic of another feed: each would have the events of both.
    fn check_unused(&self, sink: &SinkAddress) -> Result<()> {
        let real = |path: &Path| path.canonicalize().unwrap_or_else(|_| path.to_owned());
        for (name, running) in self.feeds.lock().iter() {
            let Ok(other) = SinkAddress::parse(&running.entry.cursor().spec.sink) else { continue };
            let shared = match (sink, &other) {
                (SinkAddress::Directory(path), SinkAddress::Directory(other))
                    if real(other) == real(path) =>
                {
                    format!("{}: choose another directory", path.display())
                }
                #[cfg(feature = "kafka")]
                (SinkAddress::Kafka(address), SinkAddress::Kafka(other)) if address.has_topic_of(other) => {
                    format!("topic {}: choose another topic", address.topic)
                }
                _ => continue,
            };
            return Err(Error::new(ErrorKind::Exists, format!("feed {name} writes to {shared}")));
        }
        Ok(())
    }

    /// Returns the revision after which a feed begins, and whether a copy comes first.
    async fn start_of(&self, start: FeedStart) -> Result<(Revision, bool)> {
        let head = self.context.store.revision().await?;
        match start {
            FeedStart::Now => Ok((head, false)),
            FeedStart::Copy => Ok((head, true)),
            FeedStart::After(position) => {
                self.check_position(position, head).await?;
                Ok((position.revision, false))
            }
        }
    }

    async fn check_position(&self, position: LogPosition, head: Revision) -> Result<()> {
        self.context.store.timelines().check_position(position)?;
        if position.revision > head {
            return Err(Error::invalid(format!(
                "revision {} is not there yet, the last one is {}",
                position.revision.0, head.0
            )));
        }
        let oldest = self.context.store.changes(position.revision, 1).await?.oldest;
        if oldest.0 > position.revision.0.saturating_add(1) {
            return Err(Error::not_found(format!(
                "changes before revision {} are not kept any more: begin with a copy, or after revision {}",
                oldest.0,
                oldest.0.saturating_sub(1)
            )));
        }
        Ok(())
    }

    async fn control_alone(&self, name: &FeedName, action: FeedAction) -> Result<()> {
        let damaged = self.damaged.lock().get(name).map(|damaged| damaged.path.clone());
        if let Some(path) = damaged {
            if action != FeedAction::Drop {
                return Err(Error::new(
                    ErrorKind::Corrupt,
                    format!("the file of feed {name} is damaged: drop the feed and make it again"),
                ));
            }
            remove(&path)?;
            self.damaged.lock().remove(name);
            return Ok(());
        }
        let start = match action {
            // Judged before anything is stopped.
            FeedAction::Rewind(start) => Some(self.start_of(start).await?),
            _ => None,
        };
        let (entry, task) = {
            let mut feeds = self.feeds.lock();
            let running = feeds.get_mut(name).ok_or_else(|| unknown(name))?;
            (Arc::clone(&running.entry), running.task.take())
        };
        if let Some((stop, task)) = task {
            stop.send_replace(true);
            let _ended = task.await;
        }
        let done = self.changed(name, &entry, action, start);
        // Whatever failed, a feed that should run does.
        if let Some(running) = self.feeds.lock().get_mut(name) {
            running.start(&self.context);
        }
        if done.is_ok() {
            tracing::info!(feed = %name, action = action.name(), "a feed was controlled");
        }
        done
    }

    fn changed(
        &self,
        name: &FeedName,
        entry: &FeedEntry,
        action: FeedAction,
        start: Option<(Revision, bool)>,
    ) -> Result<()> {
        let before = entry.cursor();
        let mut after = before.clone();
        match action {
            FeedAction::Pause => {
                if matches!(before.state, FeedState::Lost | FeedState::Failed) {
                    let state = before.state.name();
                    return Err(Error::invalid(format!("feed {name} is {state} and does not run")));
                }
                after.state = FeedState::Paused;
            }
            FeedAction::Resume => {
                if before.state == FeedState::Lost {
                    return Err(Error::invalid(format!(
                        "feed {name} is lost ({}): rewind it to a copy or to a later position",
                        before.reason
                    )));
                }
                after.state = FeedState::Running;
                after.reason.clear();
            }
            FeedAction::Rewind(_) => {
                if let SinkAddress::Directory(path) = SinkAddress::parse(&before.spec.sink)? {
                    after.generation = next_generation(&path, before.generation)?;
                }
                if let Some((revision, must_copy)) = start {
                    (after.revision, after.must_copy) = (revision, must_copy);
                }
                after.window = Revision(0);
                after.timeline = self.context.store.timelines().current();
                after.undone.clear();
                after.state = FeedState::Running;
                after.reason.clear();
            }
            FeedAction::Drop => {
                remove(&entry.path)?;
                self.feeds.lock().remove(name);
                return Ok(());
            }
        }
        after.write(&entry.path)?;
        let mut progress = entry.progress.lock();
        progress.cursor = after;
        progress.is_unsaved = false;
        progress.forget_read();
        progress.trouble.clear();
        Ok(())
    }
}

impl Running {
    /// Starts the task of a feed that runs and has none.
    fn start(&mut self, context: &RunContext) {
        if self.task.is_some() || self.entry.cursor().state != FeedState::Running {
            return;
        }
        let (stop, stopping) = watch::channel(false);
        let runner = Runner::new(Arc::clone(&self.entry), context.clone());
        let runtime = tokio::runtime::Handle::current();
        // A thread of its own: it writes files and syncs them.
        let entry = Arc::clone(&self.entry);
        let task = tokio::task::spawn_blocking(move || {
            let run = AssertUnwindSafe(|| runtime.block_on(runner.run(stopping)));
            if catch_unwind(run).is_err() {
                let why = "internal error: the feed panicked; report it, with the server's log";
                entry.end(FeedState::Failed, why.to_owned());
            }
        });
        self.task = Some((stop, task));
    }
}

impl Drop for Feeds {
    fn drop(&mut self) {
        for running in self.feeds.lock().values() {
            if let Some((stop, _)) = &running.task {
                stop.send_replace(true);
            }
        }
    }
}

impl Damaged {
    fn shown(&self, name: &FeedName) -> Feed {
        let spec = FeedSpec {
            sink: String::new(),
            under: None,
            kinds: Vec::new(),
            start: FeedStart::Now,
            days: 0,
            bytes: 0,
            room: 0,
            copy_when_lost: false,
            after_restore: AfterRestore::Tell,
            allow_private: false,
            secret: None,
        };
        Feed {
            name: name.clone(),
            spec,
            owner: String::new(),
            created: TimeMs(0),
            state: FeedState::Failed,
            reason: format!("{}; drop the feed and make it again", self.why),
            revision: Revision(0),
            timeline: exacat_model::TimelineId([0; 16]),
            lag_changes: 0,
            lag_ms: 0,
            lag_bytes: 0,
            events: 0,
            failures: 0,
            copying: false,
        }
    }
}

fn check_open(closed: bool) -> Result<()> {
    if closed {
        return Err(Error::new(ErrorKind::Unavailable, "the server stops; nothing was changed"));
    }
    Ok(())
}

fn unknown(name: &FeedName) -> Error {
    Error::not_found(format!("there is no feed {name} on this server: see exacat feed ls"))
}

fn remove(path: &Path) -> Result<()> {
    let gone = std::fs::remove_file(path).and_then(|()| sync_directory(path));
    gone.map_err(|error| failed("remove", path, &error))
}

/// Reads the file of a feed.
fn cursor_of(path: &Path, name: &FeedName) -> std::result::Result<Cursor, String> {
    let shown = path.display();
    let bytes = std::fs::metadata(path).map_err(|error| format!("{shown}: {error}"))?.len();
    if bytes > CURSOR_BYTES_MAX {
        return Err(format!("{shown} has {bytes} bytes: it is no file of a feed"));
    }
    let text = std::fs::read_to_string(path).map_err(|error| format!("{shown}: {error}"))?;
    let cursor = Cursor::parse(&text).map_err(|why| format!("{shown}: {why}"))?;
    if cursor.name != *name {
        return Err(format!("{shown} is that of feed {}", cursor.name));
    }
    Ok(cursor)
}

/// Runs work on a task of its own, so that it ends even if its caller goes away.
async fn to_its_end(work: impl Future<Output = Result<()>> + Send + 'static) -> Result<()> {
    tokio::spawn(work).await.unwrap_or_else(|error| {
        Err(Error::new(ErrorKind::Internal, format!("a change of a feed ended early: {error}")))
    })
}
