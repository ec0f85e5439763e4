//! The command table, and helpers that several commands need. Each theme has its file.

mod content;
mod expand;
mod listing;
mod mirrors;
mod own;
mod quota;
mod replicas;
mod session;
mod storage;
mod tags;
mod token;
mod transfer;
mod working;
mod writing;
mod xml;

use exacat_wire::jalien::{OptionSet, Options, errno};

use super::shell::{Command, Failure, Outcome};
pub(super) use content::CONTENTS_AT_ONCE;

/// All commands, by theme.
const TABLE: &[&[Command]] = &[
    session::COMMANDS,
    token::COMMANDS,
    listing::COMMANDS,
    writing::COMMANDS,
    working::COMMANDS,
    replicas::COMMANDS,
    mirrors::COMMANDS,
    content::COMMANDS,
    storage::COMMANDS,
    transfer::COMMANDS,
    quota::COMMANDS,
    tags::COMMANDS,
    xml::COMMANDS,
    own::COMMANDS,
];

/// Returns all commands.
pub(super) fn all() -> impl Iterator<Item = &'static Command> {
    TABLE.iter().flat_map(|commands| commands.iter())
}

/// Returns the command with a name.
pub(super) fn named(name: &str) -> Option<&'static Command> {
    all().find(|command| command.name == name)
}

/// Parses the options of a command.
fn options(
    flags: &'static [&'static str],
    valued: &'static [&'static str],
    given: Vec<String>,
) -> Outcome<Options> {
    Options::parse(OptionSet { flags, valued }, given).map_err(|error| Failure::invalid(error.to_string()))
}

/// Returns the error for a missing argument, with the usage.
fn missing(command: &str) -> Failure {
    let usage = named(command).map(Command::help).unwrap_or_default();
    Failure::new(errno::EINVAL, usage.lines().next().unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn every_command_has_one_name_and_says_how_it_is_used() {
        let names: BTreeSet<&str> = all().map(|command| command.name).collect();
        assert_eq!(names.len(), all().count());
        for command in all() {
            assert!(command.usage.contains('\n'), "{}: what does it do?", command.name);
            // The client hides commands with this ending.
            assert!(!command.name.ends_with("_csd"));
        }
    }
}
