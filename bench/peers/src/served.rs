//! exacat as users reach it: `exacat serve` in a process of its own, over its Unix socket, by the native
//! client.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use exacat_bench::process::{own_cpu_s, process_cpu_s};
use exacat_client::{Client, ClientSettings, Credentials, Endpoint, Target};
use exacat_model::answer::Whereis;
use exacat_model::operation::{Existing, NewFile, NewReplica, SeSettings};
use exacat_model::{
    AccountName, Answer, Checksum, ChecksumAlgorithm, Checksums, ErrorKind, FileRef, Guid, Lfn, Operation,
    ReplicaState, Result, SeName,
};
use futures::StreamExt;

use crate::disk::bytes_in;
use crate::peer::{Form, Measure, Peer, Session, Sizes, Workload, failed, while_doing};
use crate::report::SERVED;
use crate::tree::{self, FileId, Layout};

/// Connections that ask one thing at a time, as many as MariaDB gets.
pub const CONNECTIONS: usize = 32;
/// Connections on which groups are sent.
const WRITERS: usize = 4;
/// Connections of the pipelined load.
const PIPELINED_CONNECTIONS: usize = 4;
/// Calls in flight on each of them.
const PIPELINED_DEPTH: usize = 256;
/// Maximum time until a started server answers.
const START_WITHIN: Duration = Duration::from_secs(300);
/// Interval of the attempts.
const START_EVERY: Duration = Duration::from_millis(2);

const ONE_BY_ONE: Form = "32 connections";
const PIPELINED: Form = "pipelined, 4 x 256";

/// The server's process; ends with it.
struct Server {
    child: Child,
}

impl Drop for Server {
    fn drop(&mut self) {
        // Ended already, if it was killed before; an error says just that.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The server and where it is.
pub struct Served {
    server: Server,
    binary: PathBuf,
    data: PathBuf,
}

/// One who asks it.
pub struct ServedSession(Client);

/// Expected answer.
pub enum Expected {
    /// All done.
    Done,
    /// These files.
    Files(Vec<FileId>),
    /// Nothing there.
    Missing,
    /// So many files below.
    Usage(u64),
}

/// Workload in its form.
pub enum Prepared {
    /// An operation and what must come of it.
    Ask(Box<Operation>, Expected),
    /// A directory, and what is in it.
    List(Lfn, u64),
}

fn md5(file: FileId) -> Result<Checksum> {
    Checksum::new(ChecksumAlgorithm::Md5, &file.md5())
}

fn new_file(file: FileId) -> Result<NewFile> {
    let mut new = NewFile::named(Lfn::parse(&file.lfn())?);
    new.guid = Some(Guid(file.guid()));
    new.size = Some(file.size());
    new.checksums = Checksums::one(md5(file)?);
    new.job = Some(file.job());
    for se in file.ses() {
        let se = SeName::parse(&tree::se_name(se))?;
        new.replicas.push(NewReplica { se, pfn: None, state: ReplicaState::Available });
    }
    Ok(new)
}

fn check(file: FileId, found: &Whereis) -> Result<()> {
    let on = |se: u16| {
        let prefix = tree::se_prefix(se);
        found.replicas.iter().any(|replica| replica.pfn.starts_with(&prefix))
    };
    if found.size == Some(file.size()) && found.replicas.len() == 2 && file.ses().into_iter().all(on) {
        return Ok(());
    }
    Err(failed(format!("{} is found, but is {found:?}", file.lfn())))
}

/// The first error of an answer that has one outcome per item.
fn all_done(answer: Answer) -> Result<()> {
    let error = match answer {
        Answer::Registered(items) => items.into_iter().find_map(Result::err),
        Answer::EachDone(items) => items.into_iter().find_map(Result::err),
        Answer::Done { .. } => None,
        other => Some(failed(format!("an answer of another kind: {other:?}"))),
    };
    error.map_or(Ok(()), Err)
}

fn renamed(run: u64, back: bool) -> Result<Operation> {
    let lfn = |name: String| Lfn::parse(&format!("/data/{name}"));
    let (plain, moved) = (lfn(tree::run_name(run))?, lfn(tree::run_name_moved(run))?);
    let (from, to) = if back { (moved, plain) } else { (plain, moved) };
    Ok(Operation::Move { from, to })
}

impl Session for ServedSession {
    type Prepared = Prepared;

    fn prepare(&self, work: &Workload) -> Result<Prepared> {
        let lfn = |file: &FileId| Lfn::parse(&file.lfn());
        let ask = |operation, expected| Prepared::Ask(Box::new(operation), expected);
        let whereis = |files, expected| ask(Operation::Whereis { files, site: None }, expected);
        Ok(match work {
            Workload::MakeDirectories(directories) => {
                let parse = |directory| Lfn::parse(&tree::directory_path(directory));
                let lfns = directories.clone().map(parse).collect::<Result<_>>()?;
                ask(Operation::Mkdir { lfns, parents: false, mode: None }, Expected::Done)
            }
            Workload::Create(files) => {
                let files = files.iter().map(|file| new_file(*file)).collect::<Result<_>>()?;
                let operation = Operation::Register { files, parents: false, existing: Existing::Refuse };
                ask(operation, Expected::Done)
            }
            Workload::LookUp(files) => {
                let asked = files.iter().map(|file| lfn(file).map(FileRef::Lfn)).collect::<Result<_>>()?;
                whereis(asked, Expected::Files(files.clone()))
            }
            Workload::ByGuid(file) => {
                whereis(vec![FileRef::Guid(Guid(file.guid()))], Expected::Files(vec![*file]))
            }
            Workload::Miss(file) => whereis(vec![FileRef::Lfn(lfn(file)?)], Expected::Missing),
            Workload::List { directory, files } => {
                Prepared::List(Lfn::parse(&tree::directory_path(*directory))?, *files)
            }
            Workload::Rename { run, back } => ask(renamed(*run, *back)?, Expected::Done),
            Workload::Usage { run, files } => {
                let lfns = vec![Lfn::parse(&format!("/data/{}", tree::run_name(*run)))?];
                ask(Operation::Du { lfns }, Expected::Usage(*files))
            }
        })
    }

    async fn perform(&mut self, prepared: Prepared) -> Result<()> {
        let (operation, expected) = match prepared {
            Prepared::Ask(operation, expected) => (*operation, expected),
            Prepared::List(lfn, files) => return self.list(lfn, files).await,
        };
        let answer = self.0.call(operation).await?;
        match (expected, answer) {
            (Expected::Done, answer) => all_done(answer),
            (Expected::Files(files), Answer::Whereis(found)) if files.len() == found.len() => {
                files.into_iter().zip(found).try_for_each(|(file, found)| check(file, &found?))
            }
            (Expected::Missing, Answer::Whereis(found)) => match found.first() {
                Some(Err(error)) if error.kind == ErrorKind::NotFound => Ok(()),
                other => Err(failed(format!("nothing should be there, but: {other:?}"))),
            },
            (Expected::Usage(files), Answer::Usages(used)) => match used.into_iter().next() {
                Some(Ok(used)) if used.files == files => Ok(()),
                other => Err(failed(format!("{files} files should be counted, but: {other:?}"))),
            },
            (_, answer) => Err(failed(format!("an answer of another kind: {answer:?}"))),
        }
    }
}

impl ServedSession {
    async fn list(&self, lfn: Lfn, files: u64) -> Result<()> {
        let (mut pages, mut listed) = (self.0.list(lfn), 0);
        while let Some(page) = pages.next().await {
            let Answer::Entries { items, .. } = page? else { return Err(failed("a page of another kind")) };
            listed += items.len() as u64;
        }
        if listed == files { Ok(()) } else { Err(failed(format!("{listed} of {files} are listed"))) }
    }
}

async fn connect(data: &Path) -> Result<Client> {
    let target = Target::new(vec![Endpoint::Unix(data.join("exacat.sock"))])?;
    Client::connect(target, Credentials::local(), ClientSettings::default()).await
}

impl Served {
    /// Starts `binary` as a server of a catalogue in `data`, and waits until it answers.
    pub async fn start(binary: &Path, data: &Path) -> Result<Served> {
        let doing = format!("cannot start {}", binary.display());
        let child = Command::new(binary)
            .args(["serve", "--listen", "none", "--data"])
            .arg(data)
            .env("EXACAT_LOG", "warn")
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .spawn()
            .map_err(while_doing(&doing))?;
        let mut served =
            Served { server: Server { child }, binary: binary.to_owned(), data: data.to_owned() };
        let start = Instant::now();
        while let Err(error) = connect(data).await {
            if let Some(status) = served.server.child.try_wait().map_err(while_doing(&doing))? {
                return Err(failed(format!("{doing}: it ended at once: {status}")));
            }
            if start.elapsed() > START_WITHIN {
                return Err(failed(format!("{doing}: it does not answer: {error}")));
            }
            tokio::time::sleep(START_EVERY).await;
        }
        Ok(served)
    }
}

impl Peer for Served {
    type Session = ServedSession;
    const BLOCKING: bool = false;
    const IN_PROCESS: bool = false;

    fn name(&self) -> &'static str {
        SERVED
    }

    fn settings(&self) -> Vec<String> {
        vec![format!(
            "`exacat serve` with its defaults, Unix socket, native client; groups on {WRITERS} connections, all else on \
             {CONNECTIONS} with one call at a time on each, or {PIPELINED_CONNECTIONS} with {PIPELINED_DEPTH} in flight; \
             checks permissions, names and GUIDs, keeps usage and the history"
        )]
    }

    fn forms(&self, measure: Measure) -> &'static [Form] {
        match measure {
            Measure::CreateSingle
            | Measure::LookUpHot
            | Measure::LookUpUniform
            | Measure::ByGuid
            | Measure::Miss => &[ONE_BY_ONE, PIPELINED],
            // The newest files are in its log only, and nothing asks it to write them: the engine says what
            // they take.
            Measure::Bytes => &[],
            _ => &[""],
        }
    }

    async fn set_up(&self, layout: &Layout) -> Result<()> {
        let client = connect(&self.data).await?;
        for number in 1..=tree::SES {
            let settings = SeSettings {
                name: SeName::parse(&tree::se_name(number))?,
                number: Some(number),
                prefix: Some(tree::se_prefix(number)),
                qos: Some(vec![AccountName::parse("disk")?]),
                status: None,
                distances: Vec::new(),
                https: None,
                only_new: false,
            };
            client.call(Operation::SeSet(settings)).await?;
        }
        for run in 0..layout.runs() {
            client.mkdir(Lfn::parse(&format!("/data/{}", tree::run_name(run)))?, true).await?;
        }
        client.close().await;
        Ok(())
    }

    async fn sessions(&self, measure: Measure, form: Form) -> Result<Vec<ServedSession>> {
        let (connections, depth) = match (measure, form) {
            (Measure::CreateGroups | Measure::MakeDirectories, _) => (WRITERS, 1),
            (Measure::Rename | Measure::Scan | Measure::Usage, _) => (1, 1),
            (_, PIPELINED) => (PIPELINED_CONNECTIONS, PIPELINED_DEPTH),
            _ => (CONNECTIONS, 1),
        };
        let mut sessions = Vec::new();
        for _ in 0..connections {
            let client = connect(&self.data).await?;
            sessions.extend((0..depth).map(|_| ServedSession(client.clone())));
        }
        Ok(sessions)
    }

    fn cpu_s(&self) -> f64 {
        own_cpu_s() + process_cpu_s(&self.server.child.id().to_string())
    }

    async fn flush(&self) -> Result<()> {
        // It does that by itself, when there is enough.
        Ok(())
    }

    async fn is_busy(&self) -> Result<bool> {
        // Its CPU time shows that.
        Ok(false)
    }

    fn sizes(&self) -> Result<Sizes> {
        Ok(Sizes {
            data: bytes_in(&self.data.join("runs"), |_| true)?,
            log: bytes_in(&self.data.join("log"), |_| true)?,
        })
    }

    async fn kill_and_open(self, file: FileId) -> Result<(Served, Duration)> {
        let Served { server, binary, data } = self;
        // SIGKILL, and waits for the end.
        drop(server);
        let start = Instant::now();
        let served = Served::start(&binary, &data).await?;
        let mut session = ServedSession(connect(&data).await?);
        let question = session.prepare(&Workload::LookUp(vec![file]))?;
        session.perform(question).await?;
        Ok((served, start.elapsed()))
    }
}
