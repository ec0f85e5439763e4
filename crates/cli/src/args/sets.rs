//! Commands about tags, collections, archives and the trash.

use clap::Subcommand;

use super::{Conditions, OrderArgs};

/// `exacat tag`
#[derive(Debug, Subcommand)]
pub(crate) enum TagCommand {
    /// Set tags of entries
    #[command(after_help = "\
A value is a whole number, a number, true or false, a time (RFC 3339) or text,
by its form; int:, real:, bool:, time: or text: in front sets the type. Tags of
a directory hold for everything below it.

Examples:
  exacat tag set /demo/data/2026 beam=Pb-Pb checked=true
  exacat find /demo '*.zip' | exacat tag set - checked=true")]
    Set {
        /// Entries (LFNs, or '-' to read them from standard input) and tags (KEY=VALUE), in any order
        #[arg(value_name = "LFN|KEY=VALUE", required = true)]
        items: Vec<String>,
    },
    /// Show the tags of entries, and where each is set
    #[command(after_help = "\
Examples:
  exacat tag get /demo/data/2026/LHC26a
  exacat tag get --own /demo/data/2026/LHC26a
  exacat --json tag get /demo/data/2026/LHC26a year")]
    Get {
        /// Entries (LFNs, or '-' to read them from standard input) and keys of tags to show
        #[arg(value_name = "LFN|KEY", required = true)]
        items: Vec<String>,
        /// Show own tags only, not inherited ones
        #[arg(long)]
        own: bool,
    },
    /// Remove tags from entries
    #[command(after_help = "\
Examples:
  exacat tag rm /demo/data/2026/LHC26b period beam")]
    Rm {
        /// Entries (LFNs, or '-' to read them from standard input) and keys of tags to remove
        #[arg(value_name = "LFN|KEY", required = true)]
        items: Vec<String>,
    },
    /// Search entries by their tags, as find --tag
    #[command(after_help = "\
An expression compares tags with =, !=, <, <=, >, >= or 'KEY in (A, B)', tests
'exists KEY', and combines with and, or, not and brackets. Text with blanks
goes in quotes.

Examples:
  exacat tag find /demo 'run >= 560000 and run < 560200'
  exacat tag find /demo \"beam in (pp, 'Pb-Pb') and not exists bad\" --type f -l")]
    Find {
        /// Directory to search
        #[arg(value_name = "DIR")]
        directory: String,
        /// Condition on tags
        #[arg(value_name = "EXPR")]
        expression: String,
        /// Pattern of the name
        pattern: Option<String>,
        #[command(flatten)]
        conditions: Box<Conditions>,
        /// Show everything about each entry
        #[arg(short, long)]
        long: bool,
        /// Show the number and total size only
        #[arg(short, long, conflicts_with = "long")]
        count: bool,
        #[command(flatten)]
        order: OrderArgs,
    },
}

/// `exacat collection`
#[derive(Debug, Subcommand)]
pub(crate) enum CollectionCommand {
    /// Make a collection
    #[command(after_help = "\
Examples:
  exacat collection create /demo/good-runs --tag year=2026")]
    Create {
        /// Name
        #[arg(value_name = "LFN")]
        lfn: String,
        /// Tag; may be repeated
        #[arg(long = "tag", value_name = "KEY=VALUE")]
        tags: Vec<String>,
    },
    /// Add files
    #[command(after_help = "\
Examples:
  exacat collection create /demo/aods
  exacat find /demo 'AOD*' --limit 9 | exacat collection add /demo/aods -")]
    Add {
        /// Collection
        #[arg(value_name = "LFN")]
        lfn: String,
        /// Files, by LFN or GUID; '-' reads them from standard input
        #[arg(value_name = "LFN|GUID", required = true)]
        files: Vec<String>,
    },
    /// Remove files
    #[command(after_help = "\
Examples:
  exacat collection rm /demo/collections/LHC26a/000560123_pass1_AOD \\
      $(exacat find /demo/data/2026 AOD.root --limit 1)")]
    Rm {
        /// Collection
        #[arg(value_name = "LFN")]
        lfn: String,
        /// Files, by LFN or GUID; '-' reads them from standard input
        #[arg(value_name = "LFN|GUID", required = true)]
        files: Vec<String>,
    },
    /// List the members
    #[command(after_help = "\
Members that are purged, in the trash or hidden from you are shown by their
GUID.

Examples:
  exacat collection ls /demo/collections/LHC26a/000560123_pass1_AOD
  exacat collection ls -l /demo/collections/LHC26a/000560123_pass1_AOD")]
    Ls {
        /// Collection
        #[arg(value_name = "LFN")]
        lfn: String,
        /// Show everything about each member
        #[arg(short, long)]
        long: bool,
        /// Maximum number of members
        #[arg(long, value_name = "NUMBER", value_parser = clap::value_parser!(u64).range(1..))]
        limit: Option<u64>,
    },
}

/// `exacat archive`
#[derive(Debug, Subcommand)]
pub(crate) enum ArchiveCommand {
    /// List the registered members of an archive
    #[command(after_help = "\
Examples:
  exacat archive ls /demo/sim/2026/LHC26a1/560123-0/001/root_archive.zip
  exacat archive ls -l /demo/sim/2026/LHC26a1/560123-0/001/root_archive.zip")]
    Ls {
        /// Archive, by LFN or GUID
        #[arg(value_name = "LFN|GUID")]
        archive: String,
        /// Directory to search for members [default: the archive's directory]
        #[arg(long, value_name = "DIR")]
        under: Option<String>,
        /// Show everything about each member
        #[arg(short, long)]
        long: bool,
        /// Maximum number of members
        #[arg(long, value_name = "NUMBER", value_parser = clap::value_parser!(u64).range(1..))]
        limit: Option<u64>,
    },
}

/// `exacat trash`
#[derive(Debug, Subcommand)]
pub(crate) enum TrashCommand {
    /// List your items in the trash; all items as an operator
    #[command(after_help = "\
Shows the item's id (its revision and the timeline), the time and user of the
removal, its usage, and its former LFN.

Examples:
  exacat trash ls
  exacat trash ls --inside
  exacat trash ls --sort size --reverse --limit 10
  exacat --json trash ls")]
    Ls {
        /// Show instead your entries inside directories that others removed
        #[arg(long)]
        inside: bool,
        #[command(flatten)]
        order: OrderArgs,
    },
    /// Restore items
    #[command(after_help = "\
Examples:
  exacat rm -r /demo/user/j && exacat trash restore /demo/user/j
  exacat rm -r /demo/user/j && exacat trash restore /demo/user/j --to /demo/j
  exacat -q trash ls --limit 1 | cut -d ' ' -f 1 | exacat trash restore -
  exacat trash restore 1234.3f9a1c --path /demo/dir/mine --to /demo/mine")]
    Restore {
        /// Ids of items, or their former LFNs; '-' reads them from standard input
        #[arg(value_name = "ID|LFN", required = true)]
        items: Vec<String>,
        /// Restore only this entry of yours in a removed directory, by its former LFN
        #[arg(long, value_name = "LFN")]
        path: Option<String>,
        /// New LFN instead of the former one; for one item only
        #[arg(long, value_name = "LFN")]
        to: Option<String>,
    },
    /// Purge items for good, and queue their physical copies for deletion
    #[command(after_help = "\
Examples:
  exacat trash purge --all --dry-run
  exacat -q trash ls --limit 1 | cut -d ' ' -f 1 | exacat trash purge -
  exacat trash purge --all --yes")]
    Purge {
        /// Ids of items; '-' reads them from standard input
        #[arg(value_name = "ID", required_unless_present = "all")]
        items: Vec<String>,
        /// All items that 'trash ls' shows
        #[arg(long, conflicts_with = "items")]
        all: bool,
        /// Confirm --all
        #[arg(long)]
        yes: bool,
        /// Show items that would be purged, and change nothing; ignores permissions
        #[arg(long)]
        dry_run: bool,
    },
}
