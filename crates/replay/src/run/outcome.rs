//! End of an access: its class, and the result that an agent reports.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// Class of the end of an access.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, ToSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// All bytes came, and the checksum is right where it is known.
    #[default]
    Ok,
    /// The server has no such file.
    NotFound,
    /// The server refused the client.
    Denied,
    /// The client's token or certificate has expired.
    Expired,
    /// The bytes have another checksum than the file.
    Checksum,
    /// Fewer bytes came than the file has.
    Short,
    /// The access did not end in its time.
    Timeout,
    /// The connection could not be made, or broke.
    Connection,
    /// The handshake, the login or TLS failed.
    Handshake,
    /// The server answered with another error.
    Server,
    /// The server's bytes are not of the protocol.
    Protocol,
    /// The agent itself failed: its program, its memory.
    Agent,
}

impl Outcome {
    /// All classes, in the order of a report.
    pub const ALL: [Outcome; 12] = [
        Outcome::Ok,
        Outcome::NotFound,
        Outcome::Denied,
        Outcome::Expired,
        Outcome::Checksum,
        Outcome::Short,
        Outcome::Timeout,
        Outcome::Connection,
        Outcome::Handshake,
        Outcome::Server,
        Outcome::Protocol,
        Outcome::Agent,
    ];

    /// Returns the name, as in JSON.
    pub fn name(self) -> &'static str {
        match self {
            Outcome::Ok => "ok",
            Outcome::NotFound => "not_found",
            Outcome::Denied => "denied",
            Outcome::Expired => "expired",
            Outcome::Checksum => "checksum",
            Outcome::Short => "short",
            Outcome::Timeout => "timeout",
            Outcome::Connection => "connection",
            Outcome::Handshake => "handshake",
            Outcome::Server => "server",
            Outcome::Protocol => "protocol",
            Outcome::Agent => "agent",
        }
    }

    /// Returns the class of the exit code of `xrdcp`: 50 and a hundredth of the client's code.
    pub fn of_xrdcp(code: u32) -> Outcome {
        match code {
            0 => Outcome::Ok,
            51 => Outcome::Connection,
            52 => Outcome::Handshake,
            // 53 stands for a missing file, a wrong checksum and too many redirects.
            53 => Outcome::Checksum,
            54 => Outcome::Server,
            // coreutils' timeout ends with it.
            124 => Outcome::Timeout,
            _ => Outcome::Agent,
        }
    }
}

/// Result of one attempt of an access. Its times are differences that one clock measured, the agent's
/// monotonic one: an agent with a wrong date changes nothing.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct AccessResult {
    /// Number of the item in its run.
    pub item: u64,
    /// Number of the attempt, as handed out.
    pub attempt: u32,
    /// Class of its end.
    pub outcome: Outcome,
    /// Number of the error: of XRootD, of HTTP, of the program's exit; 0 for none.
    #[serde(default)]
    pub number: u32,
    /// Microseconds from the intended begin to the actual one.
    pub late_us: u64,
    /// Microseconds from the actual begin to the first byte; none if none came.
    #[serde(default)]
    pub first_byte_us: Option<u64>,
    /// Microseconds from the actual begin to the end.
    pub duration_us: u64,
    /// Bytes that came.
    pub bytes: u64,
    /// Adler-32 of the bytes, if the whole file was read.
    #[serde(default)]
    pub adler32: Option<u32>,
    /// Redirects that the client followed.
    #[serde(default)]
    pub redirects: u32,
}
