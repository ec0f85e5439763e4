//! Tree for the engine's measurements: shaped like an experiment's, filled in random order across
//! many open directories.

use exacat_model::{
    At, Checksum, ChecksumAlgorithm, Checksums, DirId, EntryId, Error, ErrorKind, ExpectRecord, File,
    GroupId, Guid, Lfn, Location, Mode, Mutation, Name, NewBody, NewEntry, OperationId, Record, Replica,
    ReplicaState, Result, Se, SeName, SeNumber, SeStatus, TimeMs, UserId,
};
use exacat_store::{Clock, Outcome, Request, Store, SystemClock};

use crate::workload::scatter;

/// Files of a full directory, such as one job's output or one chunk of a run.
pub(crate) const FILES_PER_DIRECTORY: u64 = 100;
/// Directories with files in a directory of runs.
const DIRECTORIES_PER_RUN: u64 = 500;
/// Storage elements.
const SES: u16 = 60;
/// Time of the first file.
const BEGIN_MS: u64 = 1_780_000_000_000;

/// Directory that still gets files.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Open {
    /// Number in the tree, from which its path follows.
    pub ordinal: u64,
    id: DirId,
    filled: u64,
}

/// Creates directories, one after the other.
pub(crate) struct Builder {
    /// Distinguishes the request ids of builders.
    lane: u64,
    requests: u64,
    /// Directory of the run that gets directories at present, by run.
    run: Option<(u64, DirId)>,
    data: DirId,
}

fn refused(outcome: &Outcome) -> Error {
    Error::new(ErrorKind::Internal, format!("the engine did not do what it was asked: {outcome:?}"))
}

/// Sends mutations that must all be applied; returns the directories made.
pub(crate) async fn apply(
    store: &dyn Store,
    operation: OperationId,
    mutations: Vec<Mutation>,
) -> Result<Vec<DirId>> {
    let request = Request::new(operation, UserId::ADMIN, mutations);
    let outcomes = store.apply(request).await.map_err(|error| {
        Error::new(ErrorKind::Unavailable, format!("the engine refused a request: {error:?}"))
    })?;
    let mut made = Vec::new();
    for outcome in &outcomes {
        match outcome {
            Outcome::Applied { id: Some(EntryId::Directory(id)), .. } => made.push(*id),
            Outcome::Applied { .. } => {}
            other => return Err(refused(other)),
        }
    }
    Ok(made)
}

fn new_entry(parent: DirId, name: &str, created: u64, body: NewBody) -> Result<Mutation> {
    Ok(Mutation::Create(Box::new(NewEntry {
        at: At { parent, name: Name::parse(name)? },
        owner: UserId::ADMIN,
        group: GroupId::ADMIN,
        mode: if matches!(body, NewBody::Directory) { Mode::DIRECTORY } else { Mode::FILE },
        created: Some(TimeMs(created)),
        modified: Some(TimeMs(created)),
        expires: None,
        tags: Vec::new(),
        body,
    })))
}

fn mkdir(parent: DirId, name: &str) -> Result<Mutation> {
    new_entry(parent, name, BEGIN_MS, NewBody::Directory)
}

/// Name of a directory in its run's.
fn directory_name(ordinal: u64) -> String {
    format!("{:04}", ordinal % DIRECTORIES_PER_RUN)
}

fn run_name(run: u64) -> String {
    format!("{:09}", 526_000 + run)
}

/// Name of the n-th file of a directory: 28 bytes, as of a job's output.
fn file_name(ordinal: u64, file: u64) -> String {
    format!("AO2D_{:08x}_{file:04}.{:04x}.root", ordinal as u32, scatter(ordinal << 20 | file) as u16)
}

/// LFN of the n-th file of a directory.
pub(crate) fn lfn(ordinal: u64, file: u64) -> Result<Lfn> {
    let run = ordinal / DIRECTORIES_PER_RUN;
    Lfn::parse(&format!("/data/{}/{}/{}", run_name(run), directory_name(ordinal), file_name(ordinal, file)))
}

/// GUID of the n-th file of a directory.
pub(crate) fn guid(ordinal: u64, file: u64) -> Guid {
    let mut guid = [0; 16];
    guid[..8].copy_from_slice(&scatter(ordinal << 20 | file).to_le_bytes());
    guid[8..].copy_from_slice(&scatter(!(ordinal << 20 | file)).to_le_bytes());
    Guid(guid)
}

/// Makes the n-th file of a directory: a size, an md5, two replicas at derived PFNs.
pub(crate) fn file(parent: DirId, ordinal: u64, number: u64) -> Result<Mutation> {
    let random = scatter(ordinal << 20 | number);
    let mut digest = [0; 16];
    digest[..8].copy_from_slice(&scatter(random).to_le_bytes());
    digest[8..].copy_from_slice(&scatter(!random).to_le_bytes());
    let first = (ordinal % u64::from(SES)) as u16;
    let replica = |se: u16| Replica {
        se: SeNumber(1 + se % SES),
        state: ReplicaState::Available,
        location: Location::Derived,
    };
    let body = NewBody::File(File {
        guid: guid(ordinal, number),
        size: Some(500_000_000 + random % 3_000_000_000),
        checksums: Checksums::one(Checksum::new(ChecksumAlgorithm::Md5, &digest)?),
        job: Some(3_000_000_000 + ordinal),
        replicas: vec![replica(first), replica(first + 7)],
    });
    let created = BEGIN_MS + ordinal * 50 + random % 20_000;
    new_entry(parent, &file_name(ordinal, number), created, body)
}

/// Registers the storage elements and makes the directory of runs.
pub(crate) async fn prepare(store: &dyn Store) -> Result<DirId> {
    let mut mutations = Vec::new();
    for number in 1..=SES {
        let record = Record::Se(Se {
            number: SeNumber(number),
            name: SeName::parse(&format!("BENCH::SITE{number:02}::DISK"))?,
            prefix: format!("root://site{number:02}.example.org:1094//data"),
            qos: Vec::new(),
            status: SeStatus::Online,
            distances: Vec::new(),
            https: String::new(),
        });
        mutations.push(Mutation::SetRecord { record: Box::new(record), expect: ExpectRecord::Any });
    }
    mutations.push(mkdir(DirId::ROOT, "data")?);
    let made = apply(store, OperationId([0xff; 16]), mutations).await?;
    made.first().copied().ok_or_else(|| Error::new(ErrorKind::Internal, "no directory was made"))
}

impl Builder {
    /// Makes one of several builders. `data` is the directory of runs.
    pub(crate) fn new(lane: u64, data: DirId) -> Self {
        Builder { lane, requests: 0, run: None, data }
    }

    /// Returns an id for the next request.
    pub(crate) fn operation(&mut self) -> OperationId {
        self.requests += 1;
        let mut lane = [0; 10];
        lane[..2].copy_from_slice(&self.lane.to_le_bytes()[..2]);
        lane[2..].copy_from_slice(&self.requests.to_be_bytes());
        OperationId::new(SystemClock.now(), lane)
    }

    /// Makes directories of these numbers, all of one run.
    async fn make_in_run(&mut self, store: &dyn Store, run: u64, ordinals: &[u64]) -> Result<Vec<Open>> {
        let above = match self.run {
            Some((known, above)) if known == run => above,
            _ => {
                let data = self.data;
                self.directory(store, data, &run_name(run)).await?
            }
        };
        self.run = Some((run, above));
        let mutations: Result<Vec<Mutation>> =
            ordinals.iter().map(|ordinal| mkdir(above, &directory_name(*ordinal))).collect();
        let operation = self.operation();
        let made = apply(store, operation, mutations?).await?;
        Ok(ordinals.iter().zip(made).map(|(ordinal, id)| Open { ordinal: *ordinal, id, filled: 0 }).collect())
    }

    /// Makes one directory.
    pub(crate) async fn directory(&mut self, store: &dyn Store, parent: DirId, name: &str) -> Result<DirId> {
        let operation = self.operation();
        let made = apply(store, operation, vec![mkdir(parent, name)?]).await?;
        made.first().copied().ok_or_else(|| Error::new(ErrorKind::Internal, "no directory was made"))
    }

    /// Makes directories `from..to`.
    pub(crate) async fn make(&mut self, store: &dyn Store, from: u64, to: u64) -> Result<Vec<Open>> {
        let mut made = Vec::new();
        let mut next = from;
        while next < to {
            let run = next / DIRECTORIES_PER_RUN;
            let end = ((run + 1) * DIRECTORIES_PER_RUN).min(to);
            let ordinals: Vec<u64> = (next..end).collect();
            made.extend(self.make_in_run(store, run, &ordinals).await?);
            next = end;
        }
        Ok(made)
    }
}

impl Open {
    /// Makes the next file in it.
    pub(crate) fn next(&mut self) -> Result<Mutation> {
        let mutation = file(self.id, self.ordinal, self.filled);
        self.filled += 1;
        mutation
    }

    /// True if it has all its files.
    pub(crate) fn is_full(&self) -> bool {
        self.filled >= FILES_PER_DIRECTORY
    }

    /// Number of files in it.
    pub(crate) fn filled(&self) -> u64 {
        self.filled
    }
}
