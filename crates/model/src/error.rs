//! Error kinds: a small set, each named by the caller's remedy, with its name in each face.

use std::fmt;

macro_rules! error_kinds {
    ($( #[doc = $meaning:literal] $kind:ident = $number:literal $name:literal, )*) => {
        /// Kind of an error. A new kind needs a line in every face's table.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[repr(u8)]
        pub enum ErrorKind {
            $( #[doc = $meaning] $kind = $number, )*
        }

        impl ErrorKind {
            /// All kinds, for tables and tests.
            pub const ALL: [ErrorKind; [$($number),*].len()] = [$(ErrorKind::$kind),*];

            /// Returns the name in JSON, logs and metrics.
            pub fn name(self) -> &'static str {
                match self { $( ErrorKind::$kind => $name, )* }
            }

            /// Returns the meaning and the caller's remedy, as in the reference.
            pub fn meaning(self) -> &'static str {
                let text = match self { $( ErrorKind::$kind => $meaning, )* };
                text.trim_ascii()
            }
        }
    };
}

error_kinds! {
    /// The name, GUID or item does not exist: check it.
    NotFound = 1 "not-found",
    /// The name or GUID is taken: choose another, or accept the existing entry.
    Exists = 2 "exists",
    /// The operation needs a directory and this is none.
    NotDirectory = 3 "not-directory",
    /// The operation needs a file and this is a directory, collection or link.
    NotFile = 4 "not-file",
    /// The directory has entries: remove them, or request recursion.
    NotEmpty = 5 "not-empty",
    /// The caller lacks permission: ask the owner or an administrator.
    Denied = 6 "denied",
    /// The caller gave no identity, or none that the server accepts: present a valid token.
    Unauthenticated = 7 "unauthenticated",
    /// The request is malformed: correct it.
    Invalid = 8 "invalid",
    /// The entry changed since it was read: read it again, then decide.
    Conflict = 9 "conflict",
    /// A quota is used up: free something, or ask for more.
    Quota = 10 "quota",
    /// A documented limit is exceeded: send less, or shorter.
    Limit = 11 "limit",
    /// The server is at its limit of work in progress: retry a little later.
    Busy = 12 "busy",
    /// The request was certainly not carried out, and nothing is wrong with it: retry later.
    Unavailable = 13 "unavailable",
    /// The outcome is unknown: retry with the same operation id.
    Unknown = 14 "unknown",
    /// Stored data failed its check: an operator must act.
    Corrupt = 15 "corrupt",
    /// A defect of exacat: report it.
    Internal = 16 "internal",
}

impl ErrorKind {
    /// Returns the kind with this number, as in the wire protocol.
    pub fn from_number(number: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| *kind as u8 == number)
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
