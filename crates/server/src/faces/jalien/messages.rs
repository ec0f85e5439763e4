//! Messages between a connection and its shell: requests one way, parts of answers the other.

use exacat_model::OperationId;

use super::repeats::Standing;
use crate::admission::{Held, Room};

/// A request on its way to the shell.
pub(super) struct ShellRequest {
    pub text: String,
    pub id: OperationId,
    /// State of the client, if it resumes a broken connection.
    pub standing: Option<Standing>,
    /// True if the connection replaces a broken one and the client's state is unknown.
    pub astray: bool,
    /// None if the server holds too many bytes of requests, and refuses this one.
    pub held: Option<Held>,
    pub _own: Held,
}

/// A part of an answer on its way to the client.
pub(super) struct AnswerPart {
    pub bytes: Vec<u8>,
    pub first: bool,
    pub last: bool,
    /// Room among the unread answers; none for an answer without results.
    pub room: Option<Room>,
    /// State of the client before the command, with the last part.
    pub before: Option<Standing>,
    /// True if no more answers follow: the client's identity has ended.
    pub closes: bool,
}
