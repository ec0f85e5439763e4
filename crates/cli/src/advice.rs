//! Names the command to type next, for errors that have an ordinary way on.
//!
//! The catalogue's messages stay free of commands, since other protocols carry them too. A test
//! runs each case against a real server, so that the match on the message stays right.

use exacat_model::{Error, ErrorKind};

use crate::args::{Command, ReplicaCommand};
use crate::quoting::quoted;

/// The catalogue's message for an unregistered storage element, up to its name.
const UNKNOWN_SE: &str = "no such storage element: ";
/// The store's message for it, which has no name.
const REFUSED_SE: &str = "no such storage element, or it may not be written now";

/// The catalogue's message for a past state that takes too many changes.
const TOO_FAR: [&str; 2] = [" changes after ", ", and at most "];

/// A command whose errors have advice of their own.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Advised {
    /// `exacat rm`
    Remove,
    /// `exacat rmdir`
    RemoveDirectory,
    /// `exacat mkdir`
    MakeDirectory,
    /// `exacat register`
    Register,
    /// `exacat touch`
    Touch,
    /// `exacat replica rm`
    DropReplica,
    /// Any other command.
    #[default]
    Other,
}

impl Advised {
    /// Returns the case of a command.
    pub(crate) fn of(command: &Command) -> Self {
        match command {
            Command::Rm(_) => Advised::Remove,
            Command::Rmdir(_) => Advised::RemoveDirectory,
            Command::Mkdir(_) => Advised::MakeDirectory,
            Command::Register(_) => Advised::Register,
            Command::Touch(_) => Advised::Touch,
            Command::Replica(ReplicaCommand::Rm { .. }) => Advised::DropReplica,
            _ => Advised::Other,
        }
    }

    /// Returns the next command after this error about `subject`, if there is one.
    pub(crate) fn next(self, subject: Option<&str>, error: &Error) -> Option<String> {
        if let Some((_, name)) = error.message.split_once(UNKNOWN_SE) {
            let name = quoted(name);
            return Some(format!(
                "'exacat se ls' lists those there are; an administrator adds one: exacat se add {name} --prefix \
                 root://HOST//PATH"
            ));
        }
        if error.message.ends_with(REFUSED_SE) {
            return Some("'exacat se ls' lists storage elements and their status".to_owned());
        }
        if error.kind == ErrorKind::Limit && TOO_FAR.iter().all(|part| error.message.contains(part)) {
            return Some(
                "snapshots taken more often keep past states near (exacat snapshot create); 'exacat restore BACKUP --until \
                 TIME --data DIR' makes this one in another directory, 'exacat serve --snapshot NAME' serves that of a \
                 snapshot"
                    .to_owned(),
            );
        }
        if error.kind == ErrorKind::Quota {
            return Some(
                "'exacat quota get' shows limits and use; rm leaves files in the trash, where they count"
                    .to_owned(),
            );
        }
        let subject = quoted(subject?);
        match (self, error.kind) {
            (Advised::Remove | Advised::RemoveDirectory, ErrorKind::NotEmpty) => {
                Some(format!("to remove it with all that is below it: exacat rm -r {subject}"))
            }
            (Advised::MakeDirectory, ErrorKind::NotFound) => {
                Some(format!("to make the missing directories too: exacat mkdir -p {subject}"))
            }
            (Advised::Register | Advised::Touch, ErrorKind::NotFound) => Some(format!(
                "to make the missing directories too, add --parents (-p), or: exacat mkdir -p {}",
                parent(&subject)
            )),
            (Advised::Register, ErrorKind::Exists) => Some(format!(
                "'exacat stat {subject}' shows the existing entry; --existing same accepts the same file, --existing merge \
                 adds replicas to it"
            )),
            (Advised::DropReplica, ErrorKind::NotFound) => {
                Some(format!("'exacat whereis {subject}' lists its replicas"))
            }
            _ => None,
        }
    }
}

/// Returns the directory of a quoted name. Quotes stay balanced: a name that needs them is returned
/// whole.
fn parent(quoted: &str) -> &str {
    match quoted.rsplit_once('/') {
        Some((parent, _)) if !parent.is_empty() && quoted.starts_with('/') => parent,
        _ => "DIRECTORY",
    }
}
