//! JSON of the paths below `/api/v1/writer`: one shape for the service, its clients and the reference.
//!
//! Times are RFC 3339, ids have 32 hexadecimal digits, counters begin with the process. New fields may
//! come; a reader leaves out those that it does not know.

use exacat_model::{Error, ErrorKind};
use exacat_wire::writer::{FileId, ServiceId, ServiceState};
use exacat_writer::FileStage;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// Beginning of the paths of the service's own API.
pub(crate) const API: &str = "/api/v1/writer/";
/// Field of a request for content that a service redirected: the next one answers itself, or not at all.
pub(crate) const REDIRECTED: &str = "redirected";

/// State of a service: `GET /api/v1/writer/status`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(default)]
pub struct WriterStatus {
    /// The service.
    pub service: String,
    /// Its name, for logs.
    pub name: String,
    /// Host and port for producers.
    pub address: String,
    /// Version of the program.
    pub version: String,
    /// `up`, `draining` or `read-only`.
    pub state: String,
    /// Time of the answer.
    pub time: String,
    /// Time since the start, in seconds.
    pub up_seconds: u64,
    /// Connections of producers.
    pub connections: u64,
    /// Files that are being written.
    pub open_files: u64,
    /// Files that wait for the catalogue's permission to begin.
    pub authorizing: u64,
    /// Blocks of 1 MiB for the bytes of all files.
    pub blocks: u64,
    /// Blocks that files may fill.
    pub blocks_reserved: u64,
    /// Blocks with bytes.
    pub blocks_used: u64,
    /// Bytes that are received and not durable.
    pub queued_bytes: u64,
    /// Bytes that producers may send and have not begun.
    pub credit_bytes: u64,
    /// Bytes of chunks that were received.
    pub received_bytes: u64,
    /// Bytes of chunks that became durable.
    pub durable_bytes: u64,
    /// Chunks that were received.
    pub chunks: u64,
    /// Events that end in them.
    pub events: u64,
    /// Commit groups of the indices.
    pub index_commits: u64,
    /// Parts that ended by a fault of the disk.
    pub part_faults: u64,
    /// Chunks that were here already.
    pub duplicates: u64,
    /// Chunks and files that conflict with others.
    pub conflicts: u64,
    /// Refusals, by class.
    pub refusals: WriterRefusals,
    /// Files here, by stage.
    pub files: WriterFileCounts,
    /// Closed files that are not certified, by the kind of reason.
    pub waiting: WriterWaiting,
    /// Messages to other services that were not sent. Those that matter come again.
    pub lost_messages: u64,
    /// Connections of other services that were refused.
    pub refused_links: WriterRefusedLinks,
    /// Bookings in the catalogue.
    pub bookings: WriterCalls,
    /// Commits to the catalogue.
    pub commits: WriterCalls,
    /// Volumes.
    pub volumes: Vec<WriterVolume>,
    /// Copies to another storage element; none if the service makes none.
    pub stage_out: Option<WriterStageOut>,
    /// Services of other machines that run here, because these are gone.
    pub takeovers: Vec<WriterTakeover>,
}

/// A service that runs on another machine than its own, on its volumes of a shared file system.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(default)]
pub struct WriterTakeover {
    /// The service.
    pub service: String,
    /// Address here for producers.
    pub address: String,
    /// Address here of its HTTP; empty if it has none.
    pub http: String,
    /// Its volumes.
    pub volumes: Vec<String>,
    /// Time since which it runs here.
    pub since: String,
}

/// Refusals that producers got.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(default)]
pub struct WriterRefusals {
    /// To be tried at another service.
    pub retry_elsewhere: u64,
    /// Final: something else is at that place.
    pub conflict: u64,
    /// Final: a fault of the producer.
    pub bad_request: u64,
}

/// Connections of other services that were refused: this one has no links, or does not trust them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(default)]
pub struct WriterRefusedLinks {
    /// All of them.
    pub count: u64,
    /// Address of the last one; empty if there was none.
    pub last_address: String,
    /// Reason of its refusal, and the remedy; empty if there was none.
    pub last_reason: String,
}

/// Numbers of files.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(default)]
pub struct WriterFileCounts {
    /// Being written here.
    pub open: u64,
    /// Closed, and not certified.
    pub closed: u64,
    /// In the catalogue.
    pub certified: u64,
    /// Copied to another storage element.
    pub staged: u64,
    /// Removed here, and remembered for a while.
    pub removed: u64,
    /// Never to be certified.
    pub failed: u64,
}

/// Closed files that are not certified, by the kind of reason.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(default)]
pub struct WriterWaiting {
    /// The catalogue has not taken the file yet.
    pub commit: u64,
    /// Parts on other services are not known yet.
    pub parts: u64,
    /// Bytes are on no known part.
    pub missing: u64,
    /// Other reasons.
    pub other: u64,
}

/// Calls of the catalogue.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(default)]
pub struct WriterCalls {
    /// Calls that went well.
    pub done: u64,
    /// Calls that failed. They come again.
    pub failed: u64,
    /// Calls on their way.
    pub running: u64,
    /// Time in which 99 of a hundred calls end, in milliseconds.
    pub p99_ms: u64,
    /// Reason of the last failure; empty if there was none.
    pub last_failure: String,
}

/// A volume.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(default)]
pub struct WriterVolume {
    /// Directory.
    pub path: String,
    /// `writable`, `full`, `resting` or `read-only`.
    pub state: String,
    /// Reason of the state; empty if it can be written.
    pub reason: String,
    /// Free bytes of its file system.
    pub free_bytes: u64,
    /// Parts that are being written.
    pub open_parts: u64,
    /// Staged files.
    pub staged_files: u64,
    /// Parts since the start that were written without O_DIRECT, which its file system refuses.
    pub buffered_parts: u64,
}

/// Copies to another storage element.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(default)]
pub struct WriterStageOut {
    /// Storage element.
    pub se: String,
    /// Files that were copied and registered.
    pub files: u64,
    /// Bytes of these files.
    pub bytes: u64,
    /// Attempts that failed. They come again.
    pub failures: u64,
    /// Files that are being copied.
    pub running: u64,
    /// Certified files that wait.
    pub waiting: u64,
    /// Reason of the last failure; empty if the last attempt went well.
    pub last_failure: String,
}

/// Services that this one knows: `GET /api/v1/writer/table`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(default)]
pub struct WriterTable {
    /// The service that answers.
    pub service: String,
    /// All services.
    pub services: Vec<WriterService>,
}

/// A service in the table.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(default)]
pub struct WriterService {
    /// The service.
    pub service: String,
    /// Version of the record: a higher one replaces a lower one.
    pub version: u64,
    /// Host and port for producers.
    pub address: String,
    /// URL of its HTTP; empty if it has none.
    pub http: String,
    /// `up`, `draining`, `read-only` or `gone`.
    pub state: String,
    /// Volumes that can be written.
    pub volumes: u64,
    /// Free bytes of these volumes.
    pub free_bytes: u64,
    /// Bytes that are received and not durable.
    pub queued_bytes: u64,
    /// Bytes that producers may send and have not begun: their credits together.
    pub credit_bytes: u64,
    /// Bytes that became durable in a second.
    pub bytes_per_second: u64,
    /// Files that are being written.
    pub open_files: u64,
}

/// A page of files: `GET /api/v1/writer/files`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(default)]
pub struct WriterFiles {
    /// Files, in the order of their ids.
    pub files: Vec<WriterFile>,
    /// Id for `after` of the next page; none behind the last one.
    pub next: Option<String>,
}

/// A file, as this service knows it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(default)]
pub struct WriterFile {
    /// The file; also its GUID in the catalogue.
    pub file: String,
    /// `open`, `closed`, `certified`, `staged`, `removed` or `failed`.
    pub stage: String,
    /// Reason why it is not further, in words.
    pub reason: String,
    /// Name in the catalogue; null if no part of the file is here.
    pub lfn: Option<String>,
    /// Run of the data taking.
    pub run: String,
    /// Name of the stream.
    pub stream: String,
    /// Producer; null if no part of the file is here.
    pub writer: Option<String>,
    /// Account that owns it, or will.
    pub owner: String,
    /// Number of events: of a certified file all, otherwise those that are durable here.
    pub events: u64,
    /// Bytes: of a certified file all, otherwise those that are durable here.
    pub bytes: u64,
    /// Time at which its last part here began.
    pub begun: String,
    /// True if this service certified it. That service copies it elsewhere.
    pub is_certifier: bool,
    /// Its parts, here and on other services, in ascending order of their epochs.
    pub parts: Vec<WriterPart>,
}

/// A part of a file.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(default)]
pub struct WriterPart {
    /// Epoch of the part.
    pub epoch: u32,
    /// The service that has it.
    pub service: String,
    /// Durable bytes; of a certified file, those that the file takes from it. 0 if they are not known.
    pub bytes: u64,
}

/// Copy of a file, made by order: `POST /api/v1/writer/files/FILE/stage-out`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(default)]
pub struct WriterCopy {
    /// The file.
    pub file: String,
    /// Storage element.
    pub se: String,
    /// Place of the copy there.
    pub pfn: String,
    /// `copied`, `there` (the target had it before) or `running`. Both ends are verified and registered.
    pub state: String,
    /// Bytes of the file.
    pub bytes: u64,
    /// Bytes that were read for this copy so far.
    pub carried_bytes: u64,
}

/// Returns the name of a stage.
pub fn stage_name(stage: FileStage) -> &'static str {
    match stage {
        FileStage::Open => "open",
        FileStage::Closed => "closed",
        FileStage::Certified => "certified",
        FileStage::Staged => "staged",
        FileStage::Removed => "removed",
        FileStage::Failed => "failed",
    }
}

/// Returns the stage of a name.
pub(crate) fn stage_of(name: &str) -> Result<FileStage, Error> {
    use FileStage::{Certified, Closed, Failed, Open, Removed, Staged};
    let mut stages = [Open, Closed, Certified, Staged, Removed, Failed].into_iter();
    let stage = stages.find(|stage| stage_name(*stage) == name);
    let what = "a stage is open, closed, certified, staged, removed or failed";
    stage.ok_or_else(|| Error::new(ErrorKind::Invalid, what))
}

/// Returns the name of a service's state.
pub(crate) fn state_name(state: ServiceState) -> &'static str {
    match state {
        ServiceState::Up => "up",
        ServiceState::Draining => "draining",
        ServiceState::ReadOnly => "read-only",
        ServiceState::Gone => "gone",
    }
}

/// Reads 32 hexadecimal digits.
fn id_of(text: &str) -> Result<[u8; 16], Error> {
    let is_hex = text.len() == 32 && text.bytes().all(|byte| byte.is_ascii_hexdigit());
    let number = if is_hex { u128::from_str_radix(text, 16).ok() } else { None };
    number.map(u128::to_be_bytes).ok_or_else(|| {
        Error::new(ErrorKind::Invalid, "an id has 32 hexadecimal digits: 'exacat writer files' lists them")
    })
}

/// Reads the id of a file.
pub fn file_id_of(text: &str) -> Result<FileId, Error> {
    id_of(text).map(FileId)
}

/// Reads the id of a service.
pub fn service_id_of(text: &str) -> Result<ServiceId, Error> {
    id_of(text).map(ServiceId)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Property: an id is read as it is printed, and nothing else is read.
    #[test]
    fn ids_are_read_as_printed() {
        let file = FileId([0xa7; 16]);
        assert_eq!(file_id_of(&file.to_string()).unwrap(), file);
        let service = ServiceId([1; 16]);
        assert_eq!(service_id_of(&service.to_string()).unwrap(), service);
        for bad in
            ["", "1", &"0".repeat(31), &"0".repeat(33), &"g".repeat(32), "+0000000000000000000000000000001"]
        {
            assert_eq!(file_id_of(bad).unwrap_err().kind, ErrorKind::Invalid, "{bad}");
        }
        assert!(stage_of("certified").is_ok() && stage_of("Certified").is_err());
    }

    /// Property: a reader takes an answer with fields that it does not know, and one without new fields.
    #[test]
    fn shapes_of_other_versions_are_read() {
        let status: WriterStatus = serde_json::from_str(r#"{"service":"a","shoe_size":46}"#).unwrap();
        assert_eq!((status.service.as_str(), status.volumes.len()), ("a", 0));
    }
}
