//! Completes words in a shell: commands, options, values, and names that the server knows.
//!
//! The script of a shell calls this program with [`VARIABLE`] set. A server that does not answer soon
//! completes nothing.

use std::any::TypeId;
use std::ffi::OsStr;
use std::path::PathBuf;

use clap::{Arg, Command, CommandFactory, Parser};
use clap_complete::env::Shells;
use clap_complete::{ArgValueCompleter, CompleteEnv, CompletionCandidate, Shell};
use exacat_model::query::{Filter, Pattern};
use exacat_model::{Answer, Cursor, Kind, Lfn, Operation};

use crate::args::Cli;
use crate::connect::Session;
use crate::failure::Failure;

/// Environment variable of a shell's request.
const VARIABLE: &str = "EXACAT_COMPLETE";
/// Maximum number of names offered.
const OFFERED_MAX: u32 = 200;
/// Time limit for the server's answer.
const TIMEOUT: &str = "2s";

/// Answers the request of a shell, and ends the process then. Returns at once without one.
pub(crate) fn complete() {
    CompleteEnv::with_factory(|| with_values(Cli::command(), "")).var(VARIABLE).complete();
}

/// Returns the script that makes a shell call this program.
pub(crate) fn script(shell: Shell) -> Result<String, Failure> {
    let name = shell.to_string();
    let shells = Shells::builtins();
    let Some(completer) = shells.completer(&name) else {
        return Err(Failure::local(format!("no completions for {name}")));
    };
    let mut script = Vec::new();
    completer.write_registration(VARIABLE, "exacat", "exacat", "exacat", &mut script)?;
    let mut script = String::from_utf8_lossy(&script).into_owned();
    if shell == Shell::Bash {
        // Names of storage elements have colons, where bash would break them.
        script.push_str("COMP_WORDBREAKS=${COMP_WORDBREAKS//:/}\n");
    }
    Ok(script)
}

/// Kind of an argument's values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Values {
    /// Entries.
    Lfns,
    /// Storage elements.
    Ses,
    /// Storage elements, and the state that follows the last of them.
    SesAndStates,
    /// Users.
    Users,
    /// Groups.
    Groups,
    /// Snapshots.
    Snapshots,
    /// These words.
    Words(&'static [&'static str]),
}

const KINDS: &[&str] = &["directory", "file", "collection", "link"];
const STATES: &[&str] = &["available", "copying", "suspect", "lost"];
const STATUSES: &[&str] = &["online", "read-only", "offline"];
const CONSISTENCIES: &[&str] = &["one", "local-quorum", "quorum", "latest"];
const COMPRESSIONS: &[&str] = &["plain", "gzip", "zstd", "bzip2"];
const PRESETS: &[&str] =
    &["lfn-list", "odp-files", "odp-datasets", "odp-members", "annex", "dune-transfers", "rucio-replicas"];

/// Sets the source of values of every argument of a command and its subcommands.
fn with_values(command: Command, path: &str) -> Command {
    let below: Vec<String> = command.get_subcommands().map(|child| child.get_name().to_owned()).collect();
    let mut command = command.mut_args(|arg| match values(path, &arg) {
        Some(values) => arg.add(ArgValueCompleter::new(move |current: &OsStr| candidates(values, current))),
        None => arg,
    });
    for name in below {
        let path = format!("{path} {name}");
        command = command.mut_subcommand(&name, |child| with_values(child, path.trim_start()));
    }
    command
}

/// Returns the kind of an argument's values; none if they are free, or paths of this machine.
fn values(path: &str, arg: &Arg) -> Option<Values> {
    if arg.get_value_parser().type_id() == TypeId::of::<PathBuf>() {
        return None;
    }
    let shown = arg.get_value_names().and_then(|names| names.first()).map(clap::builder::Str::as_str);
    let group = path.split(' ').next().unwrap_or_default();
    match (group, arg.get_id().as_str(), shown.unwrap_or_default()) {
        ("find", "kinds", _) | (_, "kinds" | "kind", _) => Some(Values::Words(KINDS)),
        (_, "state", _) if group != "import" => Some(Values::Words(STATES)),
        ("se", "status", _) => Some(Values::Words(STATUSES)),
        (_, "consistency", _) => Some(Values::Words(CONSISTENCIES)),
        (_, "compression", _) => Some(Values::Words(COMPRESSIONS)),
        (_, "preset", _) => Some(Values::Words(PRESETS)),
        (_, "act_as", _) | (_, _, "USER" | "USER[:GROUP]") => Some(Values::Users),
        ("user", "name", _) | (_, "owner" | "owners" | "user", _) => Some(Values::Users),
        ("group", "name", _) | (_, "group" | "groups", _) => Some(Values::Groups),
        ("replica", "ses", _) if path.ends_with(" state") => Some(Values::SesAndStates),
        ("se", "name" | "names", _) | (_, "se" | "ses" | "exclude", _) => Some(Values::Ses),
        (_, _, "SE" | "SE[=PFN]") => Some(Values::Ses),
        ("snapshot", "name" | "names" | "before" | "after", _) | (_, "snapshot", _) => {
            Some(Values::Snapshots)
        }
        ("clone", "name", _) => Some(Values::Snapshots),
        ("mv" | "cp", "from" | "to", _) | ("ln", "target", _) => Some(Values::Lfns),
        (_, _, "DIR") => Some(Values::Lfns),
        (_, _, shown) if shown.starts_with("LFN") || shown.ends_with("LFN") => Some(Values::Lfns),
        _ => None,
    }
}

/// Lists values with the prefix of the word.
fn candidates(values: Values, current: &OsStr) -> Vec<CompletionCandidate> {
    let Some(begun) = current.to_str() else { return Vec::new() };
    let offered: Vec<String> = match values {
        Values::Words(words) => words.iter().map(|word| (*word).to_owned()).collect(),
        Values::SesAndStates => {
            let states = STATES.iter().map(|state| (*state).to_owned());
            ask(values, begun).unwrap_or_default().into_iter().chain(states).collect()
        }
        asked => ask(asked, begun).unwrap_or_default(),
    };
    let mut offered: Vec<String> = offered.into_iter().filter(|name| name.starts_with(begun)).collect();
    offered.sort();
    offered.into_iter().map(CompletionCandidate::new).collect()
}

/// Asks the server that the environment names.
fn ask(values: Values, begun: &str) -> Option<Vec<String>> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().ok()?;
    let mut connection = Cli::try_parse_from(["exacat", "whoami"]).ok()?.global.connection;
    connection.timeout = Some(TIMEOUT.to_owned());
    runtime.block_on(async {
        let session = Session::open(&connection).await.ok()?;
        let names = names(&session, values, begun).await;
        session.close().await;
        names
    })
}

async fn names(session: &Session, values: Values, begun: &str) -> Option<Vec<String>> {
    let operation = match values {
        Values::Lfns => below(begun)?,
        Values::Ses | Values::SesAndStates => Operation::SeList,
        Values::Users | Values::Groups => Operation::AccountList,
        Values::Snapshots => Operation::SnapshotList,
        Values::Words(_) => return None,
    };
    let names = match session.call(operation).await.ok()? {
        // A directory continues after its slash.
        Answer::Entries { items, .. } => items
            .iter()
            .map(|stat| match stat.entry.kind() {
                Kind::Directory => format!("{}/", stat.lfn),
                _ => stat.lfn.to_string(),
            })
            .collect(),
        Answer::Ses(ses) => ses.iter().map(|item| item.se.name.to_string()).collect(),
        Answer::Accounts { users, .. } if values == Values::Users => {
            users.iter().map(|user| user.name.to_string()).collect()
        }
        Answer::Accounts { groups, .. } => groups.iter().map(|(_, name)| name.to_string()).collect(),
        Answer::Snapshots(list) => list.iter().map(|snapshot| snapshot.name.to_string()).collect(),
        _ => return None,
    };
    Some(names)
}

/// Makes the search for names in a directory by their prefix.
fn below(begun: &str) -> Option<Operation> {
    let (directory, name) = begun.rsplit_once('/')?;
    let lfn = if directory.is_empty() { Lfn::root() } else { Lfn::parse(directory).ok()? };
    let mut pattern = String::new();
    for character in name.chars() {
        if "*?[]{}\\".contains(character) {
            pattern.push('\\');
        }
        pattern.push(character);
    }
    pattern.push('*');
    let filter = Filter { pattern: Some(Pattern::Glob(pattern)), depth_max: Some(1), ..Filter::default() };
    Some(Operation::Find { lfn, filter: Box::new(filter), cursor: Cursor::default(), limit: OFFERED_MAX })
}
