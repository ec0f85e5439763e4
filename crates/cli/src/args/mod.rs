//! Arguments of the command line, and their help. `commands` carries the commands out.

mod compare;
mod control;
mod copying;
mod elements;
mod exchange;
mod feeds;
mod follow;
mod names;
mod registry;
mod replay;
mod service;
mod sets;
mod snapshots;
mod writer;
mod writing;

pub(crate) use compare::*;
pub(crate) use control::*;
pub(crate) use copying::*;
pub(crate) use elements::*;
pub(crate) use exchange::*;
pub(crate) use feeds::*;
pub(crate) use follow::*;
pub(crate) use names::*;
pub(crate) use registry::*;
pub(crate) use replay::*;
pub(crate) use service::*;
pub(crate) use sets::*;
pub(crate) use snapshots::*;
pub(crate) use writer::*;
pub(crate) use writing::*;

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum};
use exacat_model::Consistency;

/// File catalogue for exabyte-scale science: logical files, and where their bytes are
#[derive(Debug, Parser)]
#[command(
    name = "exacat",
    version,
    about,
    max_term_width = 80,
    subcommand_required = true,
    arg_required_else_help = true,
    disable_help_subcommand = false,
    after_help = "\
LFNs are absolute: they begin with '/'. Where a command takes LFNs, '-' reads
them from standard input, one per line (with -0: each ended by NUL).

Exit status: 0 done, 1 wrong use or a local error, 10 and above by kind of
error: 11 not found, 12 exists, 13 not a directory, 14 not a file, 15 not
empty, 16 denied, 17 unauthenticated, 18 rows of a listing were rejected, 19
conflict, 20 quota, 21 limit, 22 busy, 23 unavailable, 24 unknown (it may have
been done), 25 corrupt, 26 internal, 130 interrupted, 143 terminated. If some
of several names fail, each failure is on standard error and the last one's
status is given.

Examples:
  exacat serve                              # start the service on this machine
  exacat ls -l /                            # look around
  exacat find /demo 'AOD*.root' --size +1G  # search
  exacat --json stat /demo                  # for scripts
  exacat --consistency one ls /demo         # on a cluster: may be a second old
  source <(exacat completions bash)         # complete commands and names"
)]
pub(crate) struct Cli {
    #[command(flatten)]
    pub global: Global,
    #[command(subcommand)]
    pub command: Command,
}

/// Options of every command.
#[derive(Args, Clone, Debug, Default)]
#[command(next_help_heading = "Output")]
pub(crate) struct Global {
    /// JSON: one document per item, one item per line
    #[arg(long, global = true)]
    pub json: bool,
    /// End names with NUL instead of a line end, in output and input
    #[arg(short = '0', long = "null", global = true)]
    pub null: bool,
    /// Sizes with a unit in powers of 1000: 1.2G
    #[arg(short = 'H', long = "human-readable", global = true)]
    pub units: bool,
    /// Print what was done
    #[arg(short, long, global = true)]
    pub verbose: bool,
    /// Print only requested output: no progress, no counts
    #[arg(short, long, global = true, conflicts_with = "verbose")]
    pub quiet: bool,
    /// Show progress on standard error even if it is no terminal
    #[arg(long, global = true, hide_short_help = true, conflicts_with = "quiet")]
    pub progress: bool,
    #[command(flatten)]
    pub connection: Connection,
}

/// Address of the server, and identity of the client.
#[derive(Args, Clone, Debug, Default)]
#[command(next_help_heading = "Connection")]
pub(crate) struct Connection {
    /// Server: unix:PATH, or exacat://HOST:PORT over TLS [default: the socket in the data
    /// directory]
    #[arg(
        long,
        global = true,
        env = "EXACAT_SERVER",
        value_name = "URL",
        hide_short_help = true,
        hide_env_values = true
    )]
    pub server: Option<String>,
    /// Data directory of the server on this machine [default: $XDG_DATA_HOME/exacat or
    /// ~/.local/share/exacat]
    #[arg(
        long,
        global = true,
        env = "EXACAT_DATA",
        value_name = "DIR",
        hide_short_help = true,
        hide_env_values = true
    )]
    pub data: Option<PathBuf>,
    /// File with the token to present; EXACAT_TOKEN holds the token itself
    #[arg(
        long,
        global = true,
        env = "EXACAT_TOKEN_FILE",
        value_name = "FILE",
        hide_short_help = true,
        hide_env_values = true
    )]
    pub token_file: Option<PathBuf>,
    /// Certificates (PEM) to trust instead of the one in the data directory
    #[arg(
        long,
        global = true,
        env = "EXACAT_CA",
        value_name = "FILE",
        hide_short_help = true,
        hide_env_values = true
    )]
    pub ca: Option<PathBuf>,
    /// Trust the server whose certificate has this SHA-256 fingerprint (hex)
    #[arg(
        long,
        global = true,
        env = "EXACAT_FINGERPRINT",
        value_name = "HEX",
        hide_short_help = true,
        hide_env_values = true,
        conflicts_with = "ca"
    )]
    pub fingerprint: Option<String>,
    /// Act as another account, if permitted
    #[arg(long = "as", global = true, value_name = "USER", hide_short_help = true)]
    pub act_as: Option<String>,
    /// Age of answers where servers share a cluster: latest (not older than the request), quorum,
    /// local-quorum, one (up to a second old, and available while others fail) [default: the
    /// server's, mostly latest]
    #[arg(
        long,
        global = true,
        env = "EXACAT_CONSISTENCY",
        value_name = "one|local-quorum|quorum|latest",
        hide_short_help = true,
        hide_env_values = true
    )]
    pub consistency: Option<Consistency>,
    /// Wait until the server has this revision, such as 2315 or 2315.3f9a1c: a change made at the source
    /// is then seen at a follower
    #[arg(long, global = true, value_name = "REVISION", hide_short_help = true)]
    pub at_least: Option<String>,
    /// Time limit of a request: 30s, 5m [default: 60s]
    #[arg(long, global = true, value_name = "DURATION", hide_short_help = true)]
    pub timeout: Option<String>,
}

/// Sort keys of a listing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum SortArg {
    /// LFN
    Name,
    /// Bytes; unknown sizes first
    Size,
    /// Time of modification, or of removal
    Time,
}

/// Order and size of a listing.
#[derive(Args, Clone, Copy, Debug, Default)]
pub(crate) struct OrderArgs {
    /// Sort, at most 200000 entries [default: by name]
    #[arg(long, value_name = "KEY", value_enum)]
    pub sort: Option<SortArg>,
    /// Reverse the order
    #[arg(long)]
    pub reverse: bool,
    /// Maximum number of entries
    #[arg(long, value_name = "NUMBER", value_parser = clap::value_parser!(u64).range(1..))]
    pub limit: Option<u64>,
}

/// Past state that a read is about.
#[derive(Args, Clone, Debug, Default)]
pub(crate) struct AtArgs {
    /// Show the state after this revision, or of this time: 2315, 2026-11-28, RFC 3339, 2d ago
    #[arg(long, value_name = "TIME|REVISION")]
    pub at: Option<String>,
}

/// Commands.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// List directories
    Ls(LsArgs),
    /// Show everything about entries
    Stat(StatArgs),
    /// Show where the replicas of files are, best first
    Whereis(WhereisArgs),
    /// Show the LFNs of GUIDs
    Lfn(LfnArgs),
    /// Search below a directory
    Find(FindArgs),
    /// Show usage of entries, with everything below them
    Du(DuArgs),
    /// Copy files between this machine and storage elements
    Cp(CpArgs),
    /// Make directories
    Mkdir(MkdirArgs),
    /// Move or rename entries
    Mv(MvArgs),
    /// Move entries to the trash
    Rm(RmArgs),
    /// Remove empty directories
    Rmdir(RmdirArgs),
    /// Make a link
    Ln(LnArgs),
    /// Set permissions
    Chmod(ChmodArgs),
    /// Set the owner (and group)
    Chown(ChownArgs),
    /// Set the group
    Chgrp(ChgrpArgs),
    /// Register empty files, or set the modification time of existing ones
    Touch(TouchArgs),
    /// Set the time when entries go to the trash by themselves
    Expire(ExpireArgs),
    /// Register files that exist on storage
    Register(RegisterArgs),
    /// Add, drop and mark replicas of a file
    #[command(subcommand)]
    Replica(ReplicaCommand),
    /// Reserve, commit and abort uploads
    #[command(subcommand)]
    Upload(UploadCommand),
    /// Set, get and search tags
    #[command(subcommand)]
    Tag(TagCommand),
    /// Make collections of files and change their members
    #[command(subcommand)]
    Collection(CollectionCommand),
    /// List members of archives
    #[command(subcommand)]
    Archive(ArchiveCommand),
    /// List, restore and purge removed entries
    #[command(subcommand)]
    Trash(TrashCommand),
    /// Show the history of a name
    Log(LogArgs),
    /// Show the differences between two moments
    Diff(DiffArgs),
    /// Show the history of the catalogue, or follow it
    Changes(ChangesArgs),
    /// Write and read the values of elements
    #[command(subcommand)]
    History(HistoryCommand),
    /// Manage storage elements and list their content
    #[command(subcommand)]
    Se(SeCommand),
    /// Manage limits, and show usage
    #[command(subcommand)]
    Quota(QuotaCommand),
    /// Manage users
    #[command(subcommand)]
    User(UserCommand),
    /// Manage groups
    #[command(subcommand)]
    Group(GroupCommand),
    /// Manage bearer tokens
    #[command(subcommand)]
    Token(TokenCommand),
    /// Manage issuers of tokens that a server on this machine trusts
    #[command(subcommand)]
    Issuer(IssuerCommand),
    /// Show your account and its rights
    Whoami(WhoamiArgs),
    /// Import a listing
    Import(ImportArgs),
    /// Prove that the catalogue matches a listing
    Verify(VerifyArgs),
    /// Write a listing of everything below a directory
    Export(ExportArgs),
    /// Digest everything below a directory, to prove that two catalogues are equal
    Digest(DigestArgs),
    /// Make a sample catalogue
    Generate(GenerateArgs),
    /// Check every counter and index against the entries
    Fsck(FsckArgs),
    /// Show metrics of the running service
    Status(StatusArgs),
    /// Show the requests that the server works on, and cancel one
    Sessions(SessionsArgs),
    /// Show requests that took long, with the state that they spent most time in
    Slow(SlowArgs),
    /// Limit how much users may ask of this server
    #[command(subcommand)]
    Throttle(ThrottleCommand),
    /// Deliver the changes of the catalogue to directories and webhooks
    #[command(subcommand)]
    Feed(FeedCommand),
    /// Let the server finish its requests and refuse new ones, or resume it
    Drain(DrainArgs),
    /// Watch the server: rates, latencies, waits, requests, users
    Top(TopArgs),
    /// Show where the time went between two moments, or compare two periods
    Report(ReportArgs),
    /// Show whether the server trusts its machine's clock, and confirm the clock
    #[command(subcommand)]
    Clock(ClockCommand),
    /// Make, list, compare and check snapshots of the catalogue
    #[command(subcommand)]
    Snapshot(SnapshotCommand),
    /// Make a catalogue of its own from a snapshot
    Clone(CloneArgs),
    /// Restore the catalogue from a snapshot or a backup
    Restore(RestoreArgs),
    /// Back up the catalogue to a directory; copies only what is missing there
    Backup(BackupArgs),
    /// Measure the speed of the catalogue on this machine
    Bench(BenchArgs),
    /// Run the service
    Serve(Box<ServeArgs>),
    /// Make and keep a read-only copy of another server's catalogue, and serve it
    ///
    /// The first start copies the files of the source. From then on the follower repeats its log, and
    /// answers every face for reading. It goes on where it was after any interruption. A change is refused
    /// with the address of the source. The options are those of serve. With --under it has one directory
    /// of the source, small on disk, and asks for what comes into it.
    #[command(after_help = "\
Examples:
  exacat follow https://cat.example.org:7421 --token-file admin.token \\
      --ca cat.crt --data /srv/follower
  exacat follow http://127.0.0.1:7421 --data ~/follower --listen 127.0.0.1:0 \\
      --http 127.0.0.1:0
  exacat follow http://127.0.0.1:7421 --under /data/own --data ~/own")]
    Follow(Box<FollowArgs>),
    /// Make the follower in a data directory the source
    ///
    /// A follower that runs goes on as the source, on the same ports. One that is stopped is served with
    /// 'exacat serve' afterwards. The source before takes no more changes once it hears of it. Changes
    /// that it answered and this follower has not are lost: with serve --standby-acks there are none.
    #[command(after_help = "\
Examples:
  exacat promote --data /srv/follower")]
    Promote,
    /// Take the files of detectors: run a writer service, write to it, look at it
    #[command(subcommand)]
    Writer(Box<WriterCommand>),
    /// Replay accesses through caches: traces of them, and what a cache must reach
    #[command(subcommand)]
    Replay(Box<ReplayCommand>),
    /// Copy a whole catalogue, with its history, into another store
    Copy(CopyArgs),
    /// Make and check the tables of a catalogue on a cluster
    #[command(subcommand)]
    Schema(SchemaCommand),
    /// Print a completion script for a shell
    Completions(CompletionsArgs),
    /// Write the pages of the reference that are made from the program
    #[command(hide = true)]
    Reference(ReferenceArgs),
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_command_line_is_sound() {
        Cli::command().debug_assert();
    }

    /// Goal: every command has a description and examples, in lines that fit a terminal.
    #[test]
    fn every_command_has_examples() {
        fn check(command: &clap::Command, path: &str) {
            for child in command.get_subcommands().filter(|child| child.get_name() != "help") {
                let path = format!("{path} {}", child.get_name());
                if child.has_subcommands() {
                    check(child, &path);
                    continue;
                }
                let help = child.get_after_help().map(ToString::to_string).unwrap_or_default();
                assert!(help.contains("Examples:\n") && help.contains(&path), "no example of {path}");
                assert!(child.get_about().is_some(), "{path} does not say what it does");
                let long = help.lines().find(|line| line.chars().count() > 80);
                assert_eq!(long, None, "{path}: this line of its help is broken by a terminal of 80 columns");
            }
        }
        let mut command = Cli::command();
        command.build();
        check(&command, "exacat");
    }
}
