//! Errors as problem documents (RFC 9457).

use exacat_model::{Error, ErrorKind};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// A problem document (RFC 9457).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(default)]
pub struct ServiceProblem {
    /// URI of the kind of error.
    pub r#type: String,
    /// Kind of error, in words.
    pub title: String,
    /// HTTP status.
    pub status: u16,
    /// The message.
    pub detail: String,
    /// Kind of error: `not-found`, `denied`, ….
    pub kind: String,
}

/// Returns the status of a kind of error, and the kind in words.
pub(crate) fn status_of(kind: ErrorKind) -> (u16, &'static str) {
    match kind {
        ErrorKind::NotFound => (404, "Not found"),
        ErrorKind::Denied => (403, "Permission denied"),
        ErrorKind::Unauthenticated => (401, "Not authenticated"),
        ErrorKind::Invalid => (400, "Invalid request"),
        ErrorKind::Limit => (413, "Limit exceeded"),
        ErrorKind::Quota => (507, "Quota exceeded"),
        ErrorKind::Busy => (429, "Busy"),
        ErrorKind::Unavailable => (503, "Unavailable"),
        ErrorKind::Unknown => (504, "Unknown outcome"),
        ErrorKind::Corrupt => (500, "Damaged data"),
        ErrorKind::Internal => (500, "Internal error"),
        ErrorKind::Exists
        | ErrorKind::NotDirectory
        | ErrorKind::NotFile
        | ErrorKind::NotEmpty
        | ErrorKind::Conflict => (409, "Conflict"),
    }
}

impl ServiceProblem {
    /// Makes the document of an error, with its own or another status.
    pub fn of(error: &Error, status: u16) -> Self {
        let kind = error.kind.name();
        ServiceProblem {
            r#type: format!("urn:exacat:error:{kind}"),
            title: status_of(error.kind).1.to_owned(),
            status,
            detail: error.message.clone(),
            kind: kind.to_owned(),
        }
    }

    /// Returns the error of a document. A kind that is not known counts as *unavailable*.
    pub fn into_error(self) -> Error {
        let kind = ErrorKind::ALL.iter().find(|kind| kind.name() == self.kind);
        Error::new(kind.copied().unwrap_or(ErrorKind::Unavailable), self.detail)
    }
}
