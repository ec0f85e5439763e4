//! The small set of error kinds, each named by what the caller can do, and what each face calls it.

use std::fmt;

/// What kind of error it is. A new kind needs a line in [`ErrorKind::ALL`] and in every face's table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum ErrorKind {
    /// The name, GUID or item is not there: check it.
    NotFound = 1,
    /// The name or GUID is taken: choose another, or accept that it is there.
    Exists = 2,
    /// A directory is needed and this is none.
    NotDirectory = 3,
    /// A file is needed and this is a directory (or a collection or link).
    NotFile = 4,
    /// The directory has entries: remove them, or ask for the whole of it.
    NotEmpty = 5,
    /// You may not do this: ask the owner or an administrator.
    Denied = 6,
    /// Who you are was not shown or not believed: present a valid token.
    Unauthenticated = 7,
    /// The request makes no sense as given: correct it.
    Invalid = 8,
    /// The thing changed since it was read: read it again, then decide.
    Conflict = 9,
    /// A quota is used up: free something, or ask for more.
    Quota = 10,
    /// A documented limit is exceeded: send less, or shorter.
    Limit = 11,
    /// The server is at its limit of work in progress: send it again a little later.
    Busy = 12,
    /// Certainly not done, and nothing wrong with the request: try again later.
    Unavailable = 13,
    /// It may or may not have been done: ask again with the same operation id.
    Unknown = 14,
    /// Stored data failed its check: an operator must look.
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

    /// The kind with this number, as the wire carries it.
    pub fn from_number(number: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| *kind as u8 == number)
    }

    /// The kind's name in JSON, logs and metrics.
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

    /// The exit status of the command line. 0 is success, 1 is a usage or local error.
    pub fn exit_status(self) -> u8 {
        10 + self as u8
    }

    /// May the same request simply be sent again, and hope for another answer?
    pub fn is_retryable(self) -> bool {
        matches!(self, ErrorKind::Busy | ErrorKind::Unavailable | ErrorKind::Unknown)
    }
}

impl fmt::Display for ErrorKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// An error as a caller sees it: its kind, and a sentence that says what was wrong with what.
/// The text is for people and may change; the kind is the interface.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct Error {
    /// What the caller can do about it.
    pub kind: ErrorKind,
    /// For a person: lower case, no full stop, names the thing.
    pub message: String,
}

impl Error {
    /// An error of `kind` that says `message`.
    pub fn new(kind: ErrorKind, message: impl Into<String>) -> Self {
        Error { kind, message: message.into() }
    }

    /// The input makes no sense.
    pub fn invalid(message: impl Into<String>) -> Self {
        Error::new(ErrorKind::Invalid, message)
    }

    /// Nothing by that name.
    pub fn not_found(message: impl Into<String>) -> Self {
        Error::new(ErrorKind::NotFound, message)
    }

    /// Not allowed.
    pub fn denied(message: impl Into<String>) -> Self {
        Error::new(ErrorKind::Denied, message)
    }

    /// A named limit is exceeded.
    pub fn limit(what: &str, got: usize, max: usize) -> Self {
        Error::new(ErrorKind::Limit, format!("{what} is {got}, the limit is {max}"))
    }
}

/// Shorthand for a result with the catalogue's error.
pub type Result<T> = std::result::Result<T, Error>;
