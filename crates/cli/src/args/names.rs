//! Commands that look things up.

use clap::{ArgAction, Args, ValueEnum};

/// `exacat ls`
#[derive(Args, Debug)]
#[command(
    disable_help_flag = true,
    after_help = "\
A long listing shows: kind and permissions, replicas (of a collection:
members), owner, group, size, time (UTC), name.

Examples:
  exacat ls /demo
  exacat ls -lh /demo/data/2026/LHC26a
  exacat ls -l '/demo/user/a/*'             # names with wildcards, in quotes
  exacat ls --sort time --reverse --limit 5 /demo/collections/LHC26a
  exacat ls -R -0 /demo/collections | xargs -0 -n 1 echo
  exacat ls --at 100 /demo                  # as it was after that change
  exacat --json ls /demo"
)]
pub(crate) struct LsArgs {
    /// Entries to list; '-' reads LFNs from standard input
    #[arg(value_name = "LFN", default_value = "/")]
    pub lfns: Vec<String>,
    /// Show everything about each entry
    #[arg(short, long)]
    pub long: bool,
    /// List directories themselves, not their content
    #[arg(short, long)]
    pub directory: bool,
    /// List directories below too
    #[arg(short = 'R', long)]
    pub recursive: bool,
    #[command(flatten)]
    pub past: super::AtArgs,
    /// Sizes with a unit, as -H
    #[arg(short = 'h')]
    pub short_units: bool,
    #[command(flatten)]
    pub order: super::OrderArgs,
    /// No effect: a catalogue hides nothing; accepted out of habit
    #[arg(short = 'a', long = "all", hide = true)]
    pub all: bool,
    /// Show this help
    #[arg(long, action = ArgAction::Help)]
    pub help: Option<bool>,
}

/// `exacat stat`
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  exacat stat /demo/sim/2026/LHC26a1/560123-0/001/AOD.root
  exacat stat -L /demo/data/2026            # of a link: what it leads to
  exacat find /demo '*.zip' --limit 5 | exacat stat -
  exacat stat --at 100 /demo                # as it was after that change
  exacat --json stat /demo/data")]
pub(crate) struct StatArgs {
    /// Entries; '-' reads LFNs from standard input
    #[arg(value_name = "LFN", required = true)]
    pub lfns: Vec<String>,
    /// Follow links
    #[arg(short = 'L', long)]
    pub follow: bool,
    #[command(flatten)]
    pub past: super::AtArgs,
}

/// `exacat whereis`
#[derive(Args, Debug)]
#[command(after_help = "\
Available replicas come before suspect ones, near before far; lost ones are not
shown.

Examples:
  exacat whereis /demo/sim/2026/LHC26a1/560123-0/001/AOD.root
  exacat whereis 019ca704-e5b3-7896-837e-8eb862d331a5 --site CERN
  exacat find /demo 'AOD*' --limit 5 | exacat whereis -1 -
  exacat find /demo --at 900 -t f --limit 2 | exacat whereis --at 900 -1 -")]
pub(crate) struct WhereisArgs {
    /// Files, by LFN or GUID; '-' reads them from standard input
    #[arg(value_name = "LFN|GUID", required = true)]
    pub files: Vec<String>,
    /// Sort by distance to this site
    #[arg(long)]
    pub site: Option<String>,
    /// Show only the best URL of each file
    #[arg(short = '1', long)]
    pub best: bool,
    #[command(flatten)]
    pub past: super::AtArgs,
}

/// `exacat lfn`
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  exacat lfn 019ca704-e5b3-7896-837e-8eb862d331a5
  cut -f 1 guids.tsv | exacat lfn -")]
pub(crate) struct LfnArgs {
    /// GUIDs; '-' reads them from standard input
    #[arg(value_name = "GUID", required = true)]
    pub guids: Vec<String>,
}

/// Conditions of a search.
#[derive(Args, Clone, Debug, Default)]
#[command(next_help_heading = "Conditions (all must hold)")]
pub(crate) struct Conditions {
    /// Match PATTERN as a regular expression anywhere in the LFN, not as a shell pattern for the
    /// name
    #[arg(long, requires = "pattern")]
    pub regex: bool,
    /// Tags, inherited ones included: 'run=246087', 'energy>6 and not exists bad'; may be repeated.
    /// Text that is no number is neither less nor greater than a number, only unequal
    #[arg(long = "tag", value_name = "EXPR")]
    pub tags: Vec<String>,
    /// Size: +1G at least, -10M at most, 5k..1M between, 100 exactly; or unknown
    #[arg(long, value_name = "RANGE", allow_hyphen_values = true)]
    pub size: Vec<String>,
    /// Modified at this time or later: a time, or an age (2d)
    #[arg(long, value_name = "TIME")]
    pub newer: Option<String>,
    /// Modified before this time
    #[arg(long, value_name = "TIME")]
    pub older: Option<String>,
    /// Added to the catalogue at this time or later
    #[arg(long, value_name = "TIME")]
    pub created_after: Option<String>,
    /// Added to the catalogue before this time
    #[arg(long, value_name = "TIME")]
    pub created_before: Option<String>,
    /// Owned by this user
    #[arg(long, value_name = "USER")]
    pub owner: Option<String>,
    /// Belonging to this group
    #[arg(long)]
    pub group: Option<String>,
    /// Having a replica on this storage element
    #[arg(long, value_name = "SE")]
    pub se: Option<String>,
    /// Kind: d(irectory), f(ile), c(ollection), l(ink); may be repeated
    #[arg(long = "type", short = 't', value_name = "KIND", value_delimiter = ',')]
    pub kinds: Vec<String>,
    /// Made by this job
    #[arg(long)]
    pub job: Option<u64>,
    /// Maximum levels below DIR
    #[arg(long, value_name = "LEVELS", value_parser = clap::value_parser!(u32).range(1..))]
    pub depth: Option<u32>,
}

/// Time of an entry that `find --during` compares.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum DuringBy {
    /// Time at which it was added to the catalogue
    Created,
    /// Time of its last modification
    Modified,
    /// Number of the run in its tag run
    Run,
}

impl From<DuringBy> for exacat_catalogue::during::DuringBy {
    fn from(by: DuringBy) -> Self {
        match by {
            DuringBy::Created => Self::Created,
            DuringBy::Modified => Self::Modified,
            DuringBy::Run => Self::Run,
        }
    }
}

/// `exacat find`
#[derive(Args, Debug)]
#[command(after_help = "\
Entries come depth first, each directory before its children. A pattern without
--regex is a shell pattern that the whole name must match: * ? [a-z] {a,b}.

Examples:
  exacat find /demo 'AOD*.root' --size +1G
  exacat find /demo --tag 'run >= 560000 and run < 560200' -l --limit 10
  exacat find /demo --type f --older 365d --se DEMO::CERN::EOS --count
  exacat find /demo/sim --type f --sort size --reverse --limit 5 -l
  exacat find /demo --size unknown
  exacat find /demo '/560123-\\d$' --regex -0 | xargs -0 -n 100 exacat stat
  exacat find /demo --type f --during 'dcs:beam=STABLE' --count
  exacat find /demo --at 900 --type d       # as it was after that change
  exacat --json find /demo/user --newer 1h")]
pub(crate) struct FindArgs {
    /// Directory to search
    #[arg(value_name = "DIR")]
    pub directory: String,
    /// Pattern of the name
    pub pattern: Option<String>,
    #[command(flatten)]
    pub conditions: Conditions,
    /// Entries of a time in which an element of the history had a value; also != < <= > >=. Reads
    /// the values of the times that the other conditions leave, at most 1000000
    #[arg(long, value_name = "GROUP:ELEMENT=VALUE", help_heading = "Conditions (all must hold)")]
    pub during: Option<String>,
    /// Time of an entry for --during, or its tag run: then the element 'run' of the group has
    /// the number of the present run
    #[arg(
        long,
        requires = "during",
        default_value = "created",
        value_name = "WHAT",
        help_heading = "Conditions (all must hold)"
    )]
    pub during_by: DuringBy,
    /// Show everything about each entry
    #[arg(short, long)]
    pub long: bool,
    /// Show the number and total size only
    #[arg(short, long, conflicts_with = "long")]
    pub count: bool,
    #[command(flatten)]
    pub order: super::OrderArgs,
    #[command(flatten)]
    pub past: super::AtArgs,
}

/// `exacat du`
#[derive(Args, Debug)]
#[command(
    disable_help_flag = true,
    after_help = "\
Shows logical bytes, files and the LFN. Both numbers are counters that every
change keeps exact, so the answer takes no scan. Only --by-se reads the files.

Examples:
  exacat du -h /demo
  exacat du -h '/demo/*' --sort size --reverse
  exacat du -l /demo/data /demo/sim         # all columns
  exacat du --by-se -h /demo                # by storage element
  exacat du --at 900 /demo                  # as it was after that change
  exacat --json du /"
)]
pub(crate) struct DuArgs {
    /// Entries; '-' reads LFNs from standard input
    #[arg(value_name = "LFN", required = true)]
    pub lfns: Vec<String>,
    /// Show all counts, with headings
    #[arg(short, long)]
    pub long: bool,
    /// Show files and bytes of replicas by storage element; reads every visible file below
    #[arg(long, conflicts_with = "long")]
    pub by_se: bool,
    #[command(flatten)]
    pub past: super::AtArgs,
    /// Sizes with a unit, as -H
    #[arg(short = 'h')]
    pub short_units: bool,
    /// Sort key [default: in the given order]
    #[arg(long, value_name = "KEY", value_parser = ["name", "size", "files"], conflicts_with = "by_se")]
    pub sort: Option<String>,
    /// Reverse the order
    #[arg(long, conflicts_with = "by_se")]
    pub reverse: bool,
    /// Maximum number of lines
    #[arg(long, value_name = "NUMBER", value_parser = clap::value_parser!(u64).range(1..), conflicts_with = "by_se")]
    pub limit: Option<u64>,
    /// No effect: only totals are kept; accepted out of habit
    #[arg(short = 's', hide = true)]
    pub summarize: bool,
    /// Show this help
    #[arg(long, action = ArgAction::Help)]
    pub help: Option<bool>,
}

/// `exacat log`
#[derive(Args, Debug)]
#[command(after_help = "\
Shows the history of the entry at the name, through all its moves, oldest
first. For a name without an entry it shows the history of the last one there.

With --full it also shows the moves, removals and returns of the directories
that the entry was in at that time: its whole biography.

Examples:
  exacat log /demo/data/2026
  exacat log --full /demo/data/2026
  exacat --json log /demo/data")]
pub(crate) struct LogArgs {
    /// Entry
    #[arg(value_name = "LFN")]
    pub lfn: String,
    /// Show moves, removals and returns of the directories above it, too
    #[arg(long)]
    pub full: bool,
}

/// `exacat diff`
#[derive(Args, Debug)]
#[command(after_help = "\
A moment is the name of a snapshot, a revision, a time (2026-11-28, RFC 3339),
or now. Each line is an entry that was created, changed, moved or removed. A
directory that was removed, restored or moved stands for everything below it.

Two snapshots, or a snapshot and now, are compared as they are: the command
reads only what differs, and shows the paths of their time; it takes an admin.
For other moments it reads the changes between them, which takes an operator.
Paths are then those of now, and at most 1 000 000 entries may have changed.

Examples:
  exacat diff before-upgrade now
  exacat diff before-upgrade monday /demo/data
  exacat diff 100 now /demo
  exacat --json diff 2026-11-01 now /demo/data")]
pub(crate) struct DiffArgs {
    /// Earlier moment: a snapshot, a revision, or a time
    #[arg(value_name = "A")]
    pub before: String,
    /// Later moment: a snapshot, a revision, a time, or now
    #[arg(value_name = "B")]
    pub after: String,
    /// Directory to compare
    #[arg(value_name = "DIR", default_value = "/")]
    pub directory: String,
}

/// `exacat changes`
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  exacat changes --limit 20
  exacat changes --after 100 --under /demo --limit 20
  exacat --json changes --after last --follow     # from now on, as they happen")]
pub(crate) struct ChangesArgs {
    /// Show changes after this revision; refused without its timeline after a restore to before it;
    /// 'last' for future ones
    #[arg(long, value_name = "REVISION[.TIMELINE]", default_value = "0")]
    pub after: String,
    /// Show changes from this revision on
    #[arg(long, value_name = "REVISION[.TIMELINE]", conflicts_with = "after")]
    pub from: Option<String>,
    /// Show only changes of entries now below this directory
    #[arg(long, value_name = "DIR")]
    pub under: Option<String>,
    /// Wait for more at the end
    #[arg(short, long)]
    pub follow: bool,
    /// Maximum number of changes
    #[arg(long, value_name = "NUMBER", value_parser = clap::value_parser!(u64).range(1..))]
    pub limit: Option<u64>,
}
