//! Commands about tags, collections, archives and the trash.

use clap::Subcommand;

use super::Conditions;

/// `exacat tag`
#[derive(Debug, Subcommand)]
pub enum TagCommand {
    /// Set tags of entries
    #[command(after_help = "\
A value is a whole number, a number, true or false, a time (RFC 3339) or text, as it looks; int:, real:, bool:,
time: or text: before it says the type. Tags of a directory hold for all that is below it.

Examples:
  exacat tag set /demo/data/2026 run=246087 beam=Pb-Pb
  exacat find /demo '*.root' | exacat tag set - checked=true")]
    Set {
        /// Entries (LFNs, or '-' to read them from standard input) and tags (KEY=VALUE), in any order
        #[arg(value_name = "LFN|KEY=VALUE", required = true)]
        items: Vec<String>,
    },
    /// Show the tags of entries, with where each is set
    #[command(after_help = "\
Examples:
  exacat tag get /demo/data/2026/run.root
  exacat tag get --own /demo/data/2026
  exacat --json tag get /demo/x.root run | jq .value")]
    Get {
        /// Entries (LFNs, or '-' to read them from standard input) and keys of tags to show
        #[arg(value_name = "LFN|KEY", required = true)]
        items: Vec<String>,
        /// Their own only, not those they inherit
        #[arg(long)]
        own: bool,
    },
    /// Take tags of entries away
    #[command(after_help = "\
Examples:
  exacat tag rm /demo/data/2026 run beam")]
    Rm {
        /// Entries (LFNs, or '-' to read them from standard input) and keys of tags to take away
        #[arg(value_name = "LFN|KEY", required = true)]
        items: Vec<String>,
    },
    /// Search entries by their tags, as find --tag
    #[command(after_help = "\
An expression compares tags with =, !=, <, <=, >, >= or 'KEY in (A, B)', tests 'exists KEY', and combines with
and, or, not and brackets. Text with blanks goes in quotes.

Examples:
  exacat tag find /demo 'run >= 246000 and run < 247000'
  exacat tag find /demo \"beam in (pp, 'Pb-Pb') and not exists bad\" --type f -l")]
    Find {
        /// Below which directory
        #[arg(value_name = "DIR")]
        directory: String,
        /// What must hold
        #[arg(value_name = "EXPR")]
        expression: String,
        /// The name matches
        pattern: Option<String>,
        #[command(flatten)]
        conditions: Box<Conditions>,
        /// Everything about each entry
        #[arg(short, long)]
        long: bool,
        /// How many there are, and their size
        #[arg(short, long, conflicts_with = "long")]
        count: bool,
        /// Stop after so many
        #[arg(long, value_name = "NUMBER")]
        limit: Option<u64>,
    },
}

/// `exacat collection`
#[derive(Debug, Subcommand)]
pub enum CollectionCommand {
    /// Make a collection
    #[command(after_help = "\
Examples:
  exacat collection create /demo/sets/good-runs --tag year=2026")]
    Create {
        /// Its name
        #[arg(value_name = "LFN")]
        lfn: String,
        /// A tag; may be repeated
        #[arg(long = "tag", value_name = "KEY=VALUE")]
        tags: Vec<String>,
    },
    /// Add files
    #[command(after_help = "\
Examples:
  exacat collection add /demo/sets/good-runs /demo/x.root /demo/y.root
  exacat find /demo 'AOD*' --tag good=true | exacat collection add /demo/sets/good-runs -")]
    Add {
        /// The collection
        #[arg(value_name = "LFN")]
        lfn: String,
        /// Which files, by LFN or GUID; '-' reads them from standard input
        #[arg(value_name = "LFN|GUID", required = true)]
        files: Vec<String>,
    },
    /// Take files out
    #[command(after_help = "\
Examples:
  exacat collection rm /demo/sets/good-runs /demo/x.root")]
    Rm {
        /// The collection
        #[arg(value_name = "LFN")]
        lfn: String,
        /// Which files, by LFN or GUID; '-' reads them from standard input
        #[arg(value_name = "LFN|GUID", required = true)]
        files: Vec<String>,
    },
    /// List the members
    #[command(after_help = "\
A member that was purged, is in the trash or may not be seen by you is shown by its GUID.

Examples:
  exacat collection ls /demo/sets/good-runs
  exacat collection ls -l /demo/sets/good-runs")]
    Ls {
        /// The collection
        #[arg(value_name = "LFN")]
        lfn: String,
        /// Everything about each member
        #[arg(short, long)]
        long: bool,
    },
}

/// `exacat archive`
#[derive(Debug, Subcommand)]
pub enum ArchiveCommand {
    /// List the registered members of an archive
    #[command(after_help = "\
Examples:
  exacat archive ls /demo/all.zip
  exacat archive ls /demo/all.zip --under /demo/members -l")]
    Ls {
        /// The archive, by LFN or GUID
        #[arg(value_name = "LFN|GUID")]
        archive: String,
        /// Look for members below here [default: the directory the archive is in]
        #[arg(long, value_name = "DIR")]
        under: Option<String>,
        /// Everything about each member
        #[arg(short, long)]
        long: bool,
    },
}

/// `exacat trash`
#[derive(Debug, Subcommand)]
pub enum TrashCommand {
    /// List what is in the trash: yours, for an operator all
    #[command(after_help = "\
Shows the item's id (its revision and the timeline), when and by whom it was removed, what it counts, and the LFN it had.

Examples:
  exacat trash ls
  exacat trash ls --inside
  exacat --json trash ls | jq -r 'select(.removed < \"2026-01-01\").id' | xargs exacat trash purge")]
    Ls {
        /// Show instead your entries inside of directories that others removed
        #[arg(long)]
        inside: bool,
    },
    /// Bring items back
    #[command(after_help = "\
Examples:
  exacat trash restore 1234.3f9a1c
  exacat trash restore /demo/x.root                 what was removed there last
  exacat trash restore 1234.3f9a1c --to /demo/elsewhere
  exacat trash restore 1234.3f9a1c --path /demo/dir/mine --to /demo/mine")]
    Restore {
        /// Ids of items, or LFNs they had; '-' reads them from standard input
        #[arg(value_name = "ID|LFN", required = true)]
        items: Vec<String>,
        /// Only this entry of yours in a removed directory, by the LFN it had
        #[arg(long, value_name = "LFN")]
        path: Option<String>,
        /// To where, if not to where it was; of one item only
        #[arg(long, value_name = "LFN")]
        to: Option<String>,
    },
    /// End items for good: their physical copies are queued for deletion
    #[command(after_help = "\
Examples:
  exacat trash purge 1234.3f9a1c
  exacat trash purge --all --yes")]
    Purge {
        /// Ids of items; '-' reads them from standard input
        #[arg(value_name = "ID", required_unless_present = "all")]
        items: Vec<String>,
        /// Everything that 'trash ls' shows
        #[arg(long, conflicts_with = "items")]
        all: bool,
        /// Yes, all of it
        #[arg(long)]
        yes: bool,
        /// Show what would end, and change nothing; permissions are not judged
        #[arg(long)]
        dry_run: bool,
    },
}
