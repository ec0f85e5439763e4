//! Closed list of the work of every peer, and of its measurements.

use std::future::Future;
use std::ops::Range;
use std::time::Duration;

use exacat_model::{Error, ErrorKind, Result};
use serde::Serialize;

use crate::tree::{FileId, Layout};

/// One thing asked of a peer. Everything that changes something is durable when it is answered.
#[derive(Clone, Debug)]
pub enum Workload {
    /// Make directories of these numbers.
    MakeDirectories(Range<u64>),
    /// Make files, all of them durable by one commit.
    Create(Vec<FileId>),
    /// Size and replicas of files, by LFN.
    LookUp(Vec<FileId>),
    /// The same of one file, by GUID.
    ByGuid(FileId),
    /// A file that is not there, by LFN.
    Miss(FileId),
    /// Everything about the files of a directory.
    List {
        /// Number of the directory.
        directory: u64,
        /// Number of its files.
        files: u64,
    },
    /// Rename a directory of runs.
    Rename {
        /// Number of the run.
        run: u64,
        /// Back to the name it had.
        back: bool,
    },
    /// Files and bytes below a directory of runs.
    Usage {
        /// Number of the run.
        run: u64,
        /// Number of its files.
        files: u64,
    },
}

impl Workload {
    /// Is it over so soon that a few of them can be made ahead?
    pub fn is_quick(&self) -> bool {
        matches!(self, Workload::LookUp(_) | Workload::ByGuid(_) | Workload::Miss(_))
    }

    /// Returns the number of items that it counts as.
    pub fn items(&self) -> u64 {
        match self {
            Workload::MakeDirectories(directories) => directories.end - directories.start,
            Workload::Create(files) | Workload::LookUp(files) => files.len() as u64,
            Workload::List { files, .. } => *files,
            Workload::ByGuid(_) | Workload::Miss(_) | Workload::Rename { .. } | Workload::Usage { .. } => 1,
        }
    }
}

/// A measurement, the same for every peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Measure {
    /// Making the directories.
    MakeDirectories,
    /// Making the files, in groups of 1000 across 10 000 open directories.
    CreateGroups,
    /// The same, with all the work it leaves to be done later.
    CreateUntilQuiet,
    /// Making files one by one.
    CreateSingle,
    /// By LFN, from a hot set.
    LookUpHot,
    /// By LFN, from all.
    LookUpUniform,
    /// 128 at once, from a hot set.
    BatchHot,
    /// 128 at once, from all.
    BatchUniform,
    /// The 100 files of one directory at once.
    BatchDirectory,
    /// By GUID, from all.
    ByGuid,
    /// By LFN, what is not there.
    Miss,
    /// Directories of 1000.
    List,
    /// One directory of a tenth of all.
    Scan,
    /// Files and bytes below a directory.
    Usage,
    /// Rename a directory with many files below.
    Rename,
    /// Open after a kill.
    Open,
    /// Bytes on disk.
    Bytes,
}

impl Measure {
    /// Returns its name in the table.
    pub fn name(self) -> &'static str {
        match self {
            Measure::MakeDirectories => "make directories, groups of 1000",
            Measure::CreateGroups => "create, groups of 1000, durable",
            Measure::CreateUntilQuiet => "create, groups of 1000, until quiet",
            Measure::CreateSingle => "create, single, durable",
            Measure::LookUpHot => "look-up by path, hot set",
            Measure::LookUpUniform => "look-up by path, uniform",
            Measure::BatchHot => "look-up, batches of 128, hot set",
            Measure::BatchUniform => "look-up, batches of 128, uniform",
            Measure::BatchDirectory => "look-up, 100 of one directory",
            Measure::ByGuid => "look-up by GUID",
            Measure::Miss => "look-up, not there",
            Measure::List => "list directories of 1000, entries",
            Measure::Scan => "list one large directory, entries",
            Measure::Usage => "usage below a directory",
            Measure::Rename => "rename a directory",
            Measure::Open => "open after a kill, to the first answer",
            Measure::Bytes => "bytes a file on disk, when quiet",
        }
    }
}

/// A way of doing a measurement, where a peer has more than one; empty if it has one.
pub type Form = &'static str;

/// Bytes of a peer on disk.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub struct Sizes {
    /// Files, with every index.
    pub data: u64,
    /// The log: of exacat the whole history, of others what recovery needs.
    pub log: u64,
}

/// One who asks: a connection, or a thread's view of an engine.
pub trait Session: Send + 'static {
    /// Workload put into the peer's own form.
    type Prepared: Send;

    /// Puts work into the peer's own form; neither its time nor its CPU time is part of a call's.
    fn prepare(&self, work: &Workload) -> Result<Self::Prepared>;

    /// Does it, and checks the answer against the generator: a wrong one is an error.
    fn perform(&mut self, prepared: Self::Prepared) -> impl Future<Output = Result<()>> + Send;
}

/// Something that is measured.
pub trait Peer: Sized + Send + Sync {
    /// Session of a client.
    type Session: Session;

    /// Do calls keep their thread? Then each session gets one of its own.
    const BLOCKING: bool;

    /// Is it in this process?
    const IN_PROCESS: bool;

    /// Its name in the table.
    fn name(&self) -> &'static str;

    /// Version and settings, in words.
    fn settings(&self) -> Vec<String>;

    /// The ways it does a measurement; none if it does not.
    fn forms(&self, measure: Measure) -> &'static [Form];

    /// Registers storage elements and makes the directories of runs.
    fn set_up(&self, layout: &Layout) -> impl Future<Output = Result<()>> + Send;

    /// Everyone who asks at the same time in a measurement.
    fn sessions(
        &self,
        measure: Measure,
        form: Form,
    ) -> impl Future<Output = Result<Vec<Self::Session>>> + Send;

    /// CPU time of load generator and peer so far, seconds.
    fn cpu_s(&self) -> f64;

    /// Has what is only in memory written.
    fn flush(&self) -> impl Future<Output = Result<()>> + Send;

    /// Is work left that was put off?
    fn is_busy(&self) -> impl Future<Output = Result<bool>> + Send;

    /// It is quiet now, and need not hurry any more.
    fn is_quiet(&self) -> Result<()> {
        Ok(())
    }

    /// Returns its bytes on disk.
    fn sizes(&self) -> Result<Sizes>;

    /// Returns its notes after a measurement.
    fn notes(&self, _measure: Measure) -> Vec<String> {
        Vec::new()
    }

    /// Ends it without warning, opens it again and looks up `file`; gives how long that took from opening on.
    fn kill_and_open(self, file: FileId) -> impl Future<Output = Result<(Self, Duration)>> + Send;
}

/// An error of a peer or of the measuring itself.
pub fn failed(what: impl std::fmt::Display) -> Error {
    Error::new(ErrorKind::Internal, what.to_string())
}

/// An error that says what was done when it came.
pub fn while_doing<E: std::fmt::Display>(what: &str) -> impl FnOnce(E) -> Error {
    move |error| failed(format!("{what}: {error}"))
}
