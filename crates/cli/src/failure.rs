//! Failures of a command, and their exit statuses.

use std::borrow::Cow;
use std::io::{self, Write};
use std::sync::atomic::{AtomicBool, Ordering};

use exacat_model::{Error, ErrorKind};
use serde::Serialize;
use utoipa::ToSchema;

use crate::advice::Advised;
use crate::quoting::{harmless, quoted};

/// Exit status of a usage or local error.
pub(crate) const STATUS_LOCAL: u8 = 1;
/// Exit status of an import with rejected rows.
pub(crate) const STATUS_REJECTED: u8 = 18;
/// Exit status of a command that the user interrupted, as shells give it for SIGINT.
pub(crate) const STATUS_INTERRUPTED: u8 = 130;
/// Exit status of a terminated command, as shells give it for SIGTERM.
pub(crate) const STATUS_TERMINATED: u8 = 143;

/// Kind of a usage or local error in JSON. Kinds of the catalogue's errors have names of their own.
pub(crate) const KIND_LOCAL: &str = "local";
/// Bytes of a name in an error message.
const SUBJECT_BYTES_MAX: usize = 240;

/// True if errors are printed as JSON. The command line sets it once.
static AS_JSON: AtomicBool = AtomicBool::new(false);

/// Exit status of a kind of error. An invalid request is a usage error, whichever side detects it.
pub(crate) fn status_of(kind: ErrorKind) -> u8 {
    match kind {
        ErrorKind::Invalid => STATUS_LOCAL,
        kind => kind.exit_status(),
    }
}

/// Reason why a command ends early.
#[derive(Debug)]
pub(crate) enum Failure {
    /// Error of the catalogue or of the connection.
    Catalogue {
        /// Subject, if the message does not name it.
        subject: Option<String>,
        /// The error.
        error: Error,
        /// Advice.
        hint: Option<String>,
    },
    /// Local error: an unreadable file, contradictory options.
    Local(String),
    /// The reader of standard output closed it. Not an error.
    OutputClosed,
}

impl Failure {
    /// Exit status of the failure.
    pub(crate) fn status(&self) -> u8 {
        match self {
            Failure::Catalogue { error, .. } => status_of(error.kind),
            Failure::Local(_) => STATUS_LOCAL,
            Failure::OutputClosed => 0,
        }
    }

    /// Makes a local error.
    pub(crate) fn local(message: impl Into<String>) -> Self {
        Failure::Local(message.into())
    }

    /// Makes an error about something.
    pub(crate) fn about(subject: impl Into<String>, error: Error) -> Self {
        Failure::Catalogue { subject: Some(subject.into()), error, hint: None }
    }

    /// Makes the error for an answer that does not fit the operation: a defect.
    pub(crate) fn unexpected(answer: &exacat_model::Answer) -> Self {
        let mut text = format!("{answer:?}");
        text.truncate(text.floor_char_boundary(60));
        Error::new(
            ErrorKind::Internal,
            format!("internal error: the answer does not fit the operation: {text}"),
        )
        .into()
    }

    /// Adds the next command to type after `command`, if there is one.
    pub(crate) fn advised(mut self, command: Advised) -> Self {
        if let Failure::Catalogue { subject, error, hint: hint @ None } = &mut self {
            *hint = command.next(subject.as_deref(), error);
        }
        self
    }

    /// Prints the failure on standard error.
    pub(crate) fn report(&self) {
        match self {
            Failure::Catalogue { subject, error, hint } => {
                report(subject.as_deref(), error, hint.as_deref());
            }
            Failure::Local(message) => {
                if !said_as_json(KIND_LOCAL, STATUS_LOCAL, None, message, None) {
                    say(&format!("exacat: {}", harmless(message)));
                }
            }
            Failure::OutputClosed => {}
        }
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Failure::Catalogue { subject: None, error, hint: None }
    }
}

impl From<io::Error> for Failure {
    /// Converts errors of standard output only. Errors of other files get their message where they
    /// occur.
    fn from(error: io::Error) -> Self {
        if error.kind() == io::ErrorKind::BrokenPipe {
            return Failure::OutputClosed;
        }
        Failure::Local(format!("cannot write to standard output: {error}"))
    }
}

/// Prints an error on standard error: `exacat: LFN: message`, and advice below it.
pub(crate) fn report(subject: Option<&str>, error: &Error, advice: Option<&str>) {
    let advice = advice.or_else(|| hint(error));
    let status = status_of(error.kind);
    if said_as_json(error.kind.name(), status, subject, &error.message, advice) {
        return;
    }
    let message = harmless(&error.message);
    match subject {
        // Many messages begin with their subject: print it once.
        Some(subject) => {
            let rest = error.message.strip_prefix(subject).and_then(|rest| rest.strip_prefix([':', ' ']));
            let message = harmless(rest.map_or(error.message.as_str(), str::trim_start));
            say(&format!("exacat: {}: {message}", quoted(&shortened(subject))));
        }
        None => say(&format!("exacat: {message}")),
    }
    if let Some(hint) = advice {
        say(&format!("exacat: {hint}"));
    }
}

/// Shortens a long name for an error message to its ends.
fn shortened(name: &str) -> Cow<'_, str> {
    if name.len() <= SUBJECT_BYTES_MAX {
        return Cow::Borrowed(name);
    }
    let begin = name.floor_char_boundary(SUBJECT_BYTES_MAX / 2);
    let end = name.ceil_char_boundary(name.len() - SUBJECT_BYTES_MAX / 4);
    Cow::Owned(format!("{}…{} ({} bytes)", &name[..begin], &name[end..], name.len()))
}

/// Makes all later errors JSON: one document per error, one error per line.
pub(crate) fn report_as_json() {
    AS_JSON.store(true, Ordering::Relaxed);
}

/// Error in JSON.
#[derive(Serialize, ToSchema)]
#[schema(as = ErrorDetails)]
pub(crate) struct ErrorView<'a> {
    /// Kind: `not-found`, `denied`, …; `local` for wrong use and errors of this machine.
    kind: &'a str,
    /// Exit status.
    status: u8,
    /// The message.
    message: &'a str,
    /// The name that it is about, if there is one.
    #[serde(skip_serializing_if = "Option::is_none")]
    subject: Option<&'a str>,
    /// Advice, if there is any.
    #[serde(skip_serializing_if = "Option::is_none")]
    hint: Option<&'a str>,
}

/// Document of an error.
#[derive(Serialize, ToSchema)]
#[schema(as = Error)]
pub(crate) struct Reported<'a> {
    /// The error.
    error: ErrorView<'a>,
}

/// Prints an error as JSON, if the command line requests it. Returns whether it did.
pub(crate) fn said_as_json(
    kind: &str,
    status: u8,
    subject: Option<&str>,
    message: &str,
    hint: Option<&str>,
) -> bool {
    if !AS_JSON.load(Ordering::Relaxed) {
        return false;
    }
    let error = ErrorView { kind, status, message, subject, hint };
    let line = serde_json::to_string(&Reported { error });
    // Text and numbers have a form in JSON.
    say(&line.unwrap_or_default());
    true
}

/// Advice for a kind of error.
fn hint(error: &Error) -> Option<&'static str> {
    match error.kind {
        ErrorKind::Unknown => Some("it may have been done: look before you repeat it"),
        ErrorKind::Unauthenticated => {
            Some("a token is given by --token-file, EXACAT_TOKEN_FILE or EXACAT_TOKEN")
        }
        _ => None,
    }
}

/// Prints the consequences of an interruption, if the work is dropped before [`OnInterrupt::over`].
pub(crate) struct OnInterrupt {
    text: Option<String>,
}

impl OnInterrupt {
    /// Prints `text` after "interrupted; ".
    pub(crate) fn say(text: impl Into<String>) -> Self {
        OnInterrupt { text: Some(text.into()) }
    }

    /// Prints nothing if there is no text.
    pub(crate) fn maybe(text: Option<&str>) -> Self {
        OnInterrupt { text: text.map(str::to_owned) }
    }

    /// Marks the work as ended, with success or not.
    pub(crate) fn over(mut self) {
        self.text = None;
    }
}

impl Drop for OnInterrupt {
    fn drop(&mut self) {
        if let Some(text) = &self.text {
            say(&format!("exacat: interrupted; {text}"));
        }
    }
}

/// Prints one line on standard error. A failure to do so has no reader either.
pub(crate) fn say(line: &str) {
    let _ = writeln!(io::stderr(), "{line}");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_name_is_shortened_to_its_ends_between_characters() {
        assert_eq!(shortened(&"x".repeat(SUBJECT_BYTES_MAX)).len(), SUBJECT_BYTES_MAX);
        for letter in ["x", "ż", "🦀"] {
            let name = format!("/begin/{}/end", letter.repeat(5000));
            let short = shortened(&name);
            assert!(short.starts_with("/begin/") && short.contains("/end ("), "{short}");
            assert!(short.contains(&format!("({} bytes)", name.len())) && short.len() < 300, "{short}");
        }
    }
}
