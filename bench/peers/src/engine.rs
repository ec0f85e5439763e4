//! exacat's embedded engine in this process, by its public face.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use exacat_bench::process::own_cpu_s;
use exacat_model::{
    At, Body, Checksum, ChecksumAlgorithm, Checksums, DirId, EntryId, Error, Expect, ExpectRecord, File,
    GroupId, Guid, Lfn, Location, Mode, Mutation, Name, NewBody, NewEntry, OperationId, Record, Replica,
    ReplicaState, Result, Se, SeName, SeNumber, SeStatus, TimeMs, UserId,
};
use exacat_store::{Outcome, Request, Store, SystemClock, UsageOf};
use exacat_store_embedded::{EmbeddedSettings, EmbeddedStore};
use parking_lot::RwLock;

use crate::disk::bytes_in;
use crate::peer::{Form, Measure, Peer, Session, Sizes, Workload, failed};
use crate::report::ENGINE;
use crate::tree::{self, FileId, Layout};

/// Groups in flight.
const WRITERS: usize = 4;
/// Readers side by side.
const READERS: usize = 2;
/// Entries of a page.
const PAGE: usize = 1000;

/// Numbers of directories, as the engine gave them.
#[derive(Default)]
struct Numbers {
    data: Option<DirId>,
    runs: Vec<DirId>,
    directories: Vec<Option<DirId>>,
}

/// State that sessions share.
struct Shared {
    store: Arc<EmbeddedStore>,
    numbers: RwLock<Numbers>,
    requests: AtomicU64,
}

/// The engine.
pub struct Engine {
    shared: Arc<Shared>,
    directory: PathBuf,
    cache_bytes: u64,
}

/// One who asks it.
pub struct EngineSession(Arc<Shared>);

/// Workload in its form.
pub enum Prepared {
    /// Mutations, and the first of the directories they make.
    Apply(Vec<Mutation>, Option<u64>),
    /// Paths, and the files that are there.
    Files(Vec<Lfn>, Vec<FileId>),
    /// A path where nothing is.
    Missing(Lfn),
    /// A GUID.
    Guid(FileId),
    /// A directory, and what is in it.
    List(DirId, u64),
    /// A directory, and the files below.
    Usage(DirId, u64),
}

async fn open(directory: &Path, cache_bytes: u64) -> Result<Arc<EmbeddedStore>> {
    let settings = EmbeddedSettings { cache_bytes, ..EmbeddedSettings::at(directory) };
    tokio::task::spawn_blocking(move || EmbeddedStore::open(settings, Arc::new(SystemClock)))
        .await
        .map_err(failed)?
}

fn mkdir(parent: DirId, name: &str) -> Result<Mutation> {
    create(parent, name, TimeMs(FileId { directory: 0, number: 0 }.created_ms()), NewBody::Directory)
}

fn create(parent: DirId, name: &str, created: TimeMs, body: NewBody) -> Result<Mutation> {
    Ok(Mutation::Create(Box::new(NewEntry {
        at: At { parent, name: Name::parse(name)? },
        owner: UserId::ADMIN,
        group: GroupId::ADMIN,
        mode: if matches!(body, NewBody::Directory) { Mode::DIRECTORY } else { Mode::FILE },
        created: Some(created),
        modified: Some(created),
        expires: None,
        tags: Vec::new(),
        body,
    })))
}

fn create_file(parent: DirId, file: FileId) -> Result<Mutation> {
    let replica =
        |se| Replica { se: SeNumber(se), state: ReplicaState::Available, location: Location::Derived };
    let mut ses = file.ses();
    ses.sort_unstable();
    let body = NewBody::File(File {
        guid: Guid(file.guid()),
        size: Some(file.size()),
        checksums: Checksums::one(Checksum::new(ChecksumAlgorithm::Md5, &file.md5())?),
        job: Some(file.job()),
        replicas: ses.map(replica).to_vec(),
    });
    create(parent, &file.name(), TimeMs(file.created_ms()), body)
}

fn check(file: FileId, found: &File) -> Result<()> {
    let on = |se| found.replicas.iter().any(|replica| replica.se == SeNumber(se));
    if found.size == Some(file.size()) && found.replicas.len() == 2 && file.ses().into_iter().all(on) {
        return Ok(());
    }
    Err(failed(format!("{} is found, but is {found:?}", file.lfn())))
}

impl Shared {
    async fn apply(&self, mutations: Vec<Mutation>) -> Result<Vec<DirId>> {
        let number = self.requests.fetch_add(1, Ordering::Relaxed);
        let operation = OperationId((u128::from(number) + 1).to_le_bytes());
        let request = Request::new(operation, UserId::ADMIN, mutations);
        let mut made = Vec::new();
        for outcome in self.store.apply(request).await? {
            match outcome {
                Outcome::Applied { id: Some(EntryId::Directory(id)), .. } => made.push(id),
                Outcome::Applied { .. } => {}
                other => return Err(failed(format!("the engine did not do what it was asked: {other:?}"))),
            }
        }
        Ok(made)
    }

    fn directory(&self, directory: u64) -> Result<DirId> {
        let numbers = self.numbers.read();
        let known = numbers.directories.get(directory as usize).copied().flatten();
        known.ok_or_else(|| failed(format!("directory {directory} is not made yet")))
    }

    fn run(&self, run: u64) -> Result<DirId> {
        let known = self.numbers.read().runs.get(run as usize).copied();
        known.ok_or_else(|| failed(format!("directory of runs {run} is not made yet")))
    }
}

impl Session for EngineSession {
    type Prepared = Prepared;

    fn prepare(&self, work: &Workload) -> Result<Prepared> {
        let lfn = |file: &FileId| Lfn::parse(&file.lfn());
        Ok(match work {
            Workload::MakeDirectories(directories) => {
                let make =
                    |directory| mkdir(self.0.run(tree::run_of(directory))?, &tree::directory_name(directory));
                let mutations = directories.clone().map(make).collect::<Result<_>>()?;
                Prepared::Apply(mutations, Some(directories.start))
            }
            Workload::Create(files) => {
                let make = |file: &FileId| create_file(self.0.directory(file.directory)?, *file);
                Prepared::Apply(files.iter().map(make).collect::<Result<_>>()?, None)
            }
            Workload::LookUp(files) => {
                Prepared::Files(files.iter().map(lfn).collect::<Result<_>>()?, files.clone())
            }
            Workload::ByGuid(file) => Prepared::Guid(*file),
            Workload::Miss(file) => Prepared::Missing(lfn(file)?),
            Workload::List { directory, files } => Prepared::List(self.0.directory(*directory)?, *files),
            Workload::Rename { run, back } => {
                let parent = self.0.numbers.read().data.ok_or_else(|| failed("there is no /data yet"))?;
                let at = |name: String| Ok::<_, Error>(At { parent, name: Name::parse(&name)? });
                let (plain, moved) = (at(tree::run_name(*run))?, at(tree::run_name_moved(*run))?);
                let (from, to) = if *back { (moved, plain) } else { (plain, moved) };
                Prepared::Apply(vec![Mutation::Move { from, expect: Expect::ANY, to }], None)
            }
            Workload::Usage { run, files } => Prepared::Usage(self.0.run(*run)?, *files),
        })
    }

    async fn perform(&mut self, prepared: Prepared) -> Result<()> {
        let store = &self.0.store;
        match prepared {
            Prepared::Apply(mutations, first) => {
                let made = self.0.apply(mutations).await?;
                if let Some(first) = first {
                    let mut numbers = self.0.numbers.write();
                    let end = first as usize + made.len();
                    if numbers.directories.len() < end {
                        numbers.directories.resize(end, None);
                    }
                    for (place, id) in made.into_iter().enumerate() {
                        numbers.directories[first as usize + place] = Some(id);
                    }
                }
                Ok(())
            }
            Prepared::Files(paths, files) => {
                let found = store.files(&paths).await?;
                for (found, file) in found.found.iter().zip(files) {
                    let found = found.as_ref().ok_or_else(|| failed(format!("{} is gone", file.lfn())))?;
                    check(file, &found.file)?;
                }
                Ok(())
            }
            Prepared::Missing(path) => {
                let found = store.files(std::slice::from_ref(&path)).await?;
                let nothing = found.found.iter().all(Option::is_none);
                if nothing { Ok(()) } else { Err(failed(format!("{path} is found"))) }
            }
            Prepared::Guid(file) => {
                let found = store.locate(&[EntryId::Object(Guid(file.guid()))]).await?;
                match found.first().and_then(Option::as_ref).map(|located| &located.entry.body) {
                    Some(Body::File(found)) => check(file, found),
                    _ => Err(failed(format!("the GUID of {} is gone", file.lfn()))),
                }
            }
            Prepared::List(directory, files) => {
                let (mut listed, mut after) = (0, None::<Name>);
                loop {
                    let page = store.list(directory, after.as_ref(), PAGE).await?;
                    let page = page.ok_or_else(|| failed("the directory is gone"))?;
                    listed += page.items.len() as u64;
                    if !page.more {
                        break;
                    }
                    after = page.items.into_iter().next_back().map(|entry| entry.at.name);
                }
                if listed == files { Ok(()) } else { Err(failed(format!("{listed} of {files} are listed"))) }
            }
            Prepared::Usage(directory, files) => {
                let used = store.usage(&[UsageOf::Directory(directory)]).await?;
                let used = used.first().map(|account| account.usage.files);
                if used == Some(files) { Ok(()) } else { Err(failed(format!("{used:?} of {files} counted"))) }
            }
        }
    }
}

impl Engine {
    /// A new one in this directory.
    pub async fn start(directory: &Path, cache_bytes: u64) -> Result<Engine> {
        Engine::opened(directory, cache_bytes, Numbers::default(), 0).await
    }

    async fn opened(directory: &Path, cache_bytes: u64, numbers: Numbers, requests: u64) -> Result<Engine> {
        let store = open(directory, cache_bytes).await?;
        let shared =
            Arc::new(Shared { store, numbers: RwLock::new(numbers), requests: AtomicU64::new(requests) });
        Ok(Engine { shared, directory: directory.to_owned(), cache_bytes })
    }

    async fn figure(&self, name: &str) -> Result<u64> {
        let figures = self.shared.store.status().await?.metrics;
        Ok(figures.iter().find(|(other, _)| other == name).map_or(0, |(_, value)| *value))
    }
}

impl Peer for Engine {
    type Session = EngineSession;
    const BLOCKING: bool = false;
    const IN_PROCESS: bool = true;

    fn name(&self) -> &'static str {
        ENGINE
    }

    fn settings(&self) -> Vec<String> {
        vec![format!(
            "in process, defaults, {} MiB of cache; {WRITERS} groups in flight, {READERS} readers; checks names and GUIDs, \
             keeps usage and the history",
            self.cache_bytes >> 20
        )]
    }

    fn forms(&self, measure: Measure) -> &'static [Form] {
        match measure {
            // It is measured where MariaDB can be: over a socket.
            Measure::CreateSingle => &[],
            _ => &[""],
        }
    }

    async fn set_up(&self, layout: &Layout) -> Result<()> {
        let mut mutations = Vec::new();
        for number in 1..=tree::SES {
            let record = Record::Se(Se {
                number: SeNumber(number),
                name: SeName::parse(&tree::se_name(number))?,
                prefix: tree::se_prefix(number),
                qos: Vec::new(),
                status: SeStatus::Online,
                distances: Vec::new(),
                https: String::new(),
            });
            mutations.push(Mutation::SetRecord { record: Box::new(record), expect: ExpectRecord::Any });
        }
        mutations.push(mkdir(DirId::ROOT, "data")?);
        let made = self.shared.apply(mutations).await?;
        let data = made.first().copied().ok_or_else(|| failed("/data was not made"))?;
        let mut runs = Vec::new();
        for run in 0..layout.runs() {
            runs.extend(self.shared.apply(vec![mkdir(data, &tree::run_name(run))?]).await?);
        }
        *self.shared.numbers.write() = Numbers { data: Some(data), runs, directories: Vec::new() };
        Ok(())
    }

    async fn sessions(&self, measure: Measure, _form: Form) -> Result<Vec<EngineSession>> {
        let count = match measure {
            Measure::CreateGroups | Measure::MakeDirectories => WRITERS,
            Measure::Rename | Measure::Scan | Measure::Usage => 1,
            _ => READERS,
        };
        Ok((0..count).map(|_| EngineSession(Arc::clone(&self.shared))).collect())
    }

    fn cpu_s(&self) -> f64 {
        own_cpu_s()
    }

    async fn flush(&self) -> Result<()> {
        self.shared.store.flush().await
    }

    async fn is_busy(&self) -> Result<bool> {
        Ok(self.figure("compaction_debt_runs").await? > 0)
    }

    fn sizes(&self) -> Result<Sizes> {
        Ok(Sizes {
            data: bytes_in(&self.directory.join("runs"), |_| true)?,
            log: bytes_in(&self.directory.join("log"), |_| true)?,
        })
    }

    async fn kill_and_open(self, file: FileId) -> Result<(Engine, Duration)> {
        let Engine { shared, directory, cache_bytes } = self;
        let requests = shared.requests.load(Ordering::Relaxed);
        // This is the last reference. A drop instead of a close leaves entries that are only in memory
        // to the log.
        let shared = Arc::into_inner(shared).ok_or_else(|| failed("the engine is still being asked"))?;
        let Shared { store, numbers, .. } = shared;
        let store = Arc::into_inner(store).ok_or_else(|| failed("the engine is still being used"))?;
        tokio::task::spawn_blocking(move || drop(store)).await.map_err(failed)?;
        let start = Instant::now();
        let engine = Engine::opened(&directory, cache_bytes, numbers.into_inner(), requests).await?;
        let mut session = EngineSession(Arc::clone(&engine.shared));
        let question = session.prepare(&Workload::LookUp(vec![file]))?;
        session.perform(question).await?;
        Ok((engine, start.elapsed()))
    }
}
