//! Error kinds: a small set, each named by the caller's remedy, with its name in each face.

use std::fmt;

/// Kind of an error. A new kind needs a line in [`ErrorKind::ALL`] and in every face's table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum ErrorKind {
    /// The name, GUID or item does not exist: check it.
    NotFound = 1,
    /// The name or GUID is taken: choose another, or accept the existing entry.
    Exists = 2,
    /// The operation needs a directory and this is none.
    NotDirectory = 3,
    /// The operation needs a file and this is a directory, collection or link.
    NotFile = 4,
    /// The directory has entries: remove them, or request recursion.
    NotEmpty = 5,
    /// The caller lacks permission: ask the owner or an administrator.
    Denied = 6,
    /// The caller gave no identity, or none that the server accepts: present a valid token.
    Unauthenticated = 7,
    /// The request is malformed: correct it.
    Invalid = 8,
    /// The entry changed since it was read: read it again, then decide.
    Conflict = 9,
    /// A quota is used up: free something, or ask for more.
    Quota = 10,
    /// A documented limit is exceeded: send less, or shorter.
    Limit = 11,
    /// The server is at its limit of work in progress: retry a little later.
    Busy = 12,
    /// The request was certainly not carried out, and nothing is wrong with it: retry later.
    Unavailable = 13,
    /// The outcome is unknown: retry with the same operation id.
    Unknown = 14,
    /// Stored data failed its check: an operator must act.
    Corrupt = 15,
    /// A defect of exacat: report it.
    Internal = 16,
}

impl ErrorKind {
    /// All kinds, for tables and tests.
    pub const ALL: [ErrorKind; 16] = [
        ErrorKind::NotFound,
        ErrorKind::Exists,
        ErrorKind::NotDirectory,
        ErrorKind::NotFile,
        ErrorKind::NotEmpty,
        ErrorKind::Denied,
        ErrorKind::Unauthenticated,
        ErrorKind::Invalid,
        ErrorKind::Conflict,
        ErrorKind::Quota,
        ErrorKind::Limit,
        ErrorKind::Busy,
        ErrorKind::Unavailable,
        ErrorKind::Unknown,
        ErrorKind::Corrupt,
        ErrorKind::Internal,
    ];

    /// Returns the kind with this number, as in the wire protocol.
    pub fn from_number(number: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| *kind as u8 == number)
    }

    /// Returns the name in JSON, logs and metrics.
    pub fn name(self) -> &'static str {
        match self {
            ErrorKind::NotFound => "not-found",
            ErrorKind::Exists => "exists",
            ErrorKind::NotDirectory => "not-directory",
            ErrorKind::NotFile => "not-file",
            ErrorKind::NotEmpty => "not-empty",
            ErrorKind::Denied => "denied",
            ErrorKind::Unauthenticated => "unauthenticated",
            ErrorKind::Invalid => "invalid",
            ErrorKind::Conflict => "conflict",
            ErrorKind::Quota => "quota",
            ErrorKind::Limit => "limit",
            ErrorKind::Busy => "busy",
            ErrorKind::Unavailable => "unavailable",
            ErrorKind::Unknown => "unknown",
            ErrorKind::Corrupt => "corrupt",
            ErrorKind::Internal => "internal",
        }
    }

    /// Returns the exit status of the command line. 0 is success, 1 is a usage or local error.
    pub fn exit_status(self) -> u8 {
        10 + self as u8
    }

    /// Says whether the same request may succeed if the client retries it.
    pub fn is_retryable(self) -> bool {
        matches!(self, ErrorKind::Busy | ErrorKind::Unavailable | ErrorKind::Unknown)
    }
}

impl fmt::Display for ErrorKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// An error as a caller sees it: its kind, and a sentence that names the fault and the item. The
/// text is for people and may change; the kind is the interface.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct Error {
    /// Kind, which names the caller's remedy.
    pub kind: ErrorKind,
    /// Text for a person: lower case, no full stop, names the item.
    pub message: String,
}

impl Error {
    /// Makes an error of `kind` with the text `message`.
    pub fn new(kind: ErrorKind, message: impl Into<String>) -> Self {
        Error { kind, message: message.into() }
    }

    /// Makes an error for malformed input.
    pub fn invalid(message: impl Into<String>) -> Self {
        Error::new(ErrorKind::Invalid, message)
    }

    /// Makes an error for a missing item.
    pub fn not_found(message: impl Into<String>) -> Self {
        Error::new(ErrorKind::NotFound, message)
    }

    /// Makes an error for a lack of permission.
    pub fn denied(message: impl Into<String>) -> Self {
        Error::new(ErrorKind::Denied, message)
    }

    /// Makes an error for an exceeded limit, which it names.
    pub fn limit(what: &str, got: usize, max: usize) -> Self {
        Error::new(ErrorKind::Limit, format!("{what} is {got}, the limit is {max}"))
    }
}

/// Shorthand for a result with the catalogue's error.
pub type Result<T> = std::result::Result<T, Error>;
