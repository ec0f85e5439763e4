//! What goes wrong in a command, and the exit status it gives.

use std::io::{self, Write};

use exacat_model::{Error, ErrorKind};

use crate::output::{harmless, quoted};

/// The exit status of a usage or local error.
pub const STATUS_LOCAL: u8 = 1;
/// The exit status of a command that the user interrupted, as shells give it for SIGINT.
pub const STATUS_INTERRUPTED: u8 = 130;

/// Why a command ends before its end.
#[derive(Debug)]
pub enum Failure {
    /// The catalogue, or the way to it, said no.
    Catalogue {
        /// What it is about, if the message does not say.
        subject: Option<String>,
        /// What it said.
        error: Error,
        /// What could help.
        hint: Option<&'static str>,
    },
    /// Something on this side: a file that cannot be read, options that contradict each other.
    Local(String),
    /// Who reads standard output has read enough. Not an error.
    OutputClosed,
}

impl Failure {
    /// The exit status it gives.
    pub fn status(&self) -> u8 {
        match self {
            Failure::Catalogue { error, .. } => error.kind.exit_status(),
            Failure::Local(_) => STATUS_LOCAL,
            Failure::OutputClosed => 0,
        }
    }

    /// An error of this side.
    pub fn local(message: impl Into<String>) -> Self {
        Failure::Local(message.into())
    }

    /// An error about something.
    pub fn about(subject: impl Into<String>, error: Error) -> Self {
        Failure::Catalogue { subject: Some(subject.into()), error, hint: None }
    }

    /// An answer that does not fit the operation: a defect.
    pub fn unexpected(answer: &exacat_model::Answer) -> Self {
        let mut text = format!("{answer:?}");
        text.truncate(text.floor_char_boundary(60));
        Error::new(ErrorKind::Internal, format!("an answer that does not fit what was asked: {text}")).into()
    }

    /// Says it on standard error.
    pub fn report(&self) {
        match self {
            Failure::Catalogue { subject, error, hint } => {
                report(subject.as_deref(), error);
                if let Some(hint) = hint {
                    say(&format!("exacat: {hint}"));
                }
            }
            Failure::Local(message) => say(&format!("exacat: {}", harmless(message))),
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
    /// Of writing to standard output; errors of other files are put into words where they happen.
    fn from(error: io::Error) -> Self {
        if error.kind() == io::ErrorKind::BrokenPipe {
            return Failure::OutputClosed;
        }
        Failure::Local(format!("cannot write to standard output: {error}"))
    }
}

/// Says an error on standard error: `exacat: LFN: message`.
pub fn report(subject: Option<&str>, error: &Error) {
    let message = harmless(&error.message);
    match subject {
        // Many messages begin with the name they are about: once is enough.
        Some(subject) => {
            let rest = error.message.strip_prefix(subject).and_then(|rest| rest.strip_prefix([':', ' ']));
            let message = harmless(rest.map_or(error.message.as_str(), str::trim_start));
            say(&format!("exacat: {}: {message}", quoted(subject)));
        }
        None => say(&format!("exacat: {message}")),
    }
    if let Some(hint) = hint(error) {
        say(&format!("exacat: {hint}"));
    }
}

/// What could help.
fn hint(error: &Error) -> Option<&'static str> {
    match error.kind {
        ErrorKind::Unknown => Some("it may have been done: look before you repeat it"),
        ErrorKind::Unauthenticated => {
            Some("a token is given by --token-file, EXACAT_TOKEN_FILE or EXACAT_TOKEN")
        }
        _ => None,
    }
}

/// One line on standard error. There is nobody to tell if it cannot be written.
pub fn say(line: &str) {
    let _ = writeln!(io::stderr(), "{line}");
}
