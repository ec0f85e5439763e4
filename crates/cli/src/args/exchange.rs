//! Commands that import and export listings.

use std::path::PathBuf;

use clap::{Args, ValueEnum};

use super::ExistingArg;

/// Format of rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum FormatArg {
    /// A row is a line, fields end at tabs
    Tsv,
    /// Fields may be quoted (RFC 4180)
    Csv,
    /// A row is a JSON object
    Jsonl,
}

/// Format of an export.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum ExportFormatArg {
    /// A row is a line, fields end at tabs
    Tsv,
    /// Fields may be quoted (RFC 4180)
    Csv,
    /// A row is a JSON object
    Jsonl,
    /// Tables for DuckDB, pandas and Spark, in a new directory
    Parquet,
}

/// Options for reading a listing.
#[derive(Args, Clone, Debug, Default)]
#[command(next_help_heading = "How the listing is read")]
pub(crate) struct ListingArgs {
    /// Options of a common kind of listing; explicit options override them. One of: lfn-list,
    /// odp-files, odp-datasets, odp-members, annex, dune-transfers, rucio-replicas
    #[arg(long, value_name = "NAME")]
    pub preset: Option<String>,
    /// Format of rows [default: detected]
    #[arg(long, value_enum)]
    pub format: Option<FormatArg>,
    /// plain, gzip, zstd or bzip2 [default: detected]
    #[arg(long)]
    pub compression: Option<String>,
    /// Field separator, one character [default: a tab, in CSV a comma]
    #[arg(long, value_name = "CHARACTER")]
    pub delimiter: Option<String>,
    /// First row is a header: yes, no [default: detected]
    #[arg(long, value_name = "yes|no")]
    pub header: Option<String>,
    /// Roles of columns: all in order (lfn,size,checksum,pfn), or some by name or number
    /// (name=lfn,5=se). Roles: lfn, size, checksum, pfn, pfns, replicas, se, guid, owner, group,
    /// mode, mtime, expires, job, tags, tag:KEY, collection, kind, target, ignore [default: from
    /// the header]
    #[arg(long, value_name = "ROLES")]
    pub columns: Option<String>,
    /// Ignore columns that are not in --columns, even if the header names a role
    #[arg(long)]
    pub only_columns: bool,
    /// Make columns without a role tags
    #[arg(long)]
    pub rest_as_tags: bool,
    /// Interpret backslash escapes: yes, no [default: in exports only]
    #[arg(long, value_name = "yes|no")]
    pub escapes: Option<String>,
    /// Kind of rows that name none: file, directory, collection, link, member [default: file]
    #[arg(long)]
    pub kind: Option<String>,
    /// Prefix of each LFN
    #[arg(long, value_name = "LFN")]
    pub prefix: Option<String>,
    /// Prefix of each collection
    #[arg(long, value_name = "LFN")]
    pub collection_prefix: Option<String>,
    /// Storage element of PFNs that no other rule places; for a listing without PFNs, of a replica
    /// of each file
    #[arg(long)]
    pub se: Option<String>,
    /// Storage element of a PFN or location: the beginning of PFNs (root://host//path=SE), a host,
    /// or a location as the listing names it; may be repeated
    #[arg(long = "se-map", value_name = "PATTERN=SE")]
    pub se_map: Vec<String>,
    /// File of such rules, one per line, tab-separated: pattern, SE and, for locations, the prefix
    /// of PFNs and the prefix of LFNs that it replaces
    #[arg(long, value_name = "FILE")]
    pub se_map_file: Option<PathBuf>,
    /// Derive names of storage elements from hosts and locations, and register them
    #[arg(long)]
    pub se_auto: bool,
    /// Meaning of '=' as a PFN: this prefix, and the LFN as the row gives it
    #[arg(long, value_name = "PREFIX")]
    pub pfn_same: Option<String>,
    /// Accept several rows of one LFN: each adds to the file; otherwise the first counts
    #[arg(long)]
    pub repeats: bool,
}

/// `exacat import`
#[derive(Args, Debug)]
#[command(after_help = "\
Listings are TSV, CSV or JSON lines, plain or compressed with gzip, zstd or
bzip2. Bad rows do not stop the others: the import counts them, and with
--rejects writes them to a file with line and reason. A second run of the same
import changes nothing and says so. An interrupted import resumes where it
stopped. Its state is in a file beside the listing, or at --state. Exit status
18 if rows were rejected.

With --offline the listing goes into a data directory on this machine whose
server is stopped. The checks and the result are the same, for less work, and
the listing may be larger than memory. An interrupted import begins with the
first row again, and finds the existing entries.

Examples:
  exacat import files.tsv.zst --columns lfn,size,checksum,pfn --se DEMO::FZK::SE
  exacat import --dry-run files.tsv --se DEMO::FZK::SE    # changes nothing
  exacat import files.csv --columns path=lfn,bytes=size --rejects bad.tsv
  exacat import transfers.tsv --columns name=lfn,dst=se --se-auto --repeats \\
      --existing merge --prefix /dune
  exacat import sets.jsonl --kind collection --columns id=lfn --rest-as-tags
  exacat import saved.tsv.zst --restore     # an export, with SEs and accounts
  exacat import --offline more.tsv --se DEMO::FZK::SE     # server stopped
  exacat import --offline --dry-run files.tsv --se DEMO::FZK::SE")]
pub(crate) struct ImportArgs {
    /// Listings
    #[arg(value_name = "FILE", required = true)]
    pub files: Vec<PathBuf>,
    #[command(flatten)]
    pub listing: Box<ListingArgs>,
    /// Treatment of existing entries [default: same]
    #[arg(long, value_enum)]
    pub existing: Option<ExistingArg>,
    /// File for rejected rows, with line and reason
    #[arg(long, value_name = "FILE")]
    pub rejects: Option<PathBuf>,
    /// File for the progress; none for no file [default: beside the listing]
    #[arg(long, value_name = "FILE|none")]
    pub state: Option<PathBuf>,
    /// Start at the first row, even if an interrupted import could continue
    #[arg(long)]
    pub restart: bool,
    /// Register missing storage elements, users and groups of an export
    #[arg(long)]
    pub restore: bool,
    /// Check every row, but ask the catalogue for its storage elements only
    #[arg(long, conflicts_with_all = ["rejects", "restore"])]
    pub dry_run: bool,
    /// Load in bulk into the data directory itself; no server may run on it
    #[arg(long)]
    pub offline: bool,
}

/// `exacat verify`
#[derive(Args, Debug)]
#[command(after_help = "\
Give the options the listing was imported with. Exit status 19 (conflict) if
something differs.

Examples:
  exacat verify files.tsv.zst --columns lfn,size,checksum,pfn --se DEMO::FZK::SE
  exacat verify saved.tsv.zst --differences differences.tsv")]
pub(crate) struct VerifyArgs {
    /// Listings
    #[arg(value_name = "FILE", required = true)]
    pub files: Vec<PathBuf>,
    #[command(flatten)]
    pub listing: Box<ListingArgs>,
    /// File for rows that differ, with line and difference
    #[arg(long, value_name = "FILE")]
    pub differences: Option<PathBuf>,
}

/// Source of a whole catalogue, other than a server.
#[derive(Args, Clone, Debug, Default)]
pub(crate) struct CatalogueSource {
    /// Read the data directory itself; no server may run on it
    #[arg(long)]
    pub offline: bool,
    /// Read a snapshot in the data directory, even while a server runs on it
    #[arg(long, value_name = "NAME", conflicts_with = "offline")]
    pub snapshot: Option<String>,
}

impl CatalogueSource {
    /// True if the source is on this machine.
    pub(crate) fn is_here(&self) -> bool {
        self.offline || self.snapshot.is_some()
    }
}

/// `exacat export`
#[derive(Args, Debug)]
#[command(after_help = "\
An export has everything about every entry, with storage elements and accounts,
and can be imported again. With --columns it is a plain listing of the named
columns; without the column kind, directories end with a slash. A file gets its
name when it is whole. A device or a FIFO is written directly.

--format parquet writes tables for analysis instead: entries, replicas, members
of collections, usage, and, if named in --tables, the changes of the history.
The directory of -o appears when all of them are complete. Each file names
catalogue, revision and digest. --check reads them back, and proves that they
are as written; with --snapshot or --offline also that the catalogue there has
the same. Exit status 19 (conflict) if not.

--snapshot and --offline read the data directory on its machine. That is
several times as fast and costs a server nothing. A snapshot is of one moment,
however long the export takes.

Examples:
  exacat export / -o saved.tsv.zst
  exacat export / -o kept.tsv.zst --snapshot before-upgrade
  exacat export /demo --columns lfn,size,checksum,pfn > out.tsv
  exacat export /demo/data --type f --tag run=560123 -o data.csv.gz
  exacat export / --format parquet -o tables --snapshot before-upgrade
  exacat export --check tables --snapshot before-upgrade
  exacat export / --format parquet --tables changes -o history")]
pub(crate) struct ExportArgs {
    /// Directory to export
    #[arg(value_name = "DIR", required_unless_present = "check")]
    pub directory: Option<String>,
    /// Pattern of names to export
    pub pattern: Option<String>,
    /// Output file; compressed if it ends with .zst, .gz or .bz2 [default: -, standard output]. With --format
    /// parquet a directory that does not exist or is empty
    #[arg(short, long, value_name = "FILE")]
    pub output: Option<PathBuf>,
    /// Format of rows [default: from the file's name, or tsv]
    #[arg(long, value_enum)]
    pub format: Option<ExportFormatArg>,
    /// Tables of --format parquet: entries, replicas, members, usage, changes [default: all but
    /// changes]
    #[arg(long, value_name = "TABLES", value_delimiter = ',')]
    pub tables: Option<Vec<String>>,
    /// Begin the table of changes after this revision
    #[arg(long, value_name = "REVISION")]
    pub after: Option<String>,
    /// Read the tables in this directory back instead, and compare
    #[arg(long, value_name = "DIR", conflicts_with_all = ["directory", "output", "format", "tables", "after"])]
    pub check: Option<PathBuf>,
    /// plain, gzip, zstd or bzip2 [default: from the file's name]
    #[arg(long)]
    pub compression: Option<String>,
    /// Field separator, one character [default: a tab, in CSV a comma]
    #[arg(long, value_name = "CHARACTER")]
    pub delimiter: Option<String>,
    /// Columns in this order; roles as for import
    #[arg(long, value_name = "ROLES", value_delimiter = ',')]
    pub columns: Option<Vec<String>>,
    /// Omit the header of plain listings
    #[arg(long, requires = "columns")]
    pub no_header: bool,
    /// Write a PFN that is this prefix and the LFN as '='
    #[arg(long, value_name = "PREFIX")]
    pub pfn_same: Option<String>,
    #[command(flatten)]
    pub conditions: Box<super::Conditions>,
    #[command(flatten)]
    pub place: CatalogueSource,
}

/// `exacat digest`
#[derive(Args, Debug)]
#[command(after_help = "\
Digests of a directory are equal exactly if two catalogues have the same below
it. Its path does not count, and everything that an export has does. Digests of
a changing catalogue are of no single state. Digest a snapshot where that
matters: --snapshot NAME on the machine of the data directory, or exacat serve
--snapshot NAME.

Examples:
  exacat digest                             # of everything
  exacat digest /demo --depth 2             # and two levels of directories
  exacat digest -o here.digests             # of every directory, into a file
  exacat digest --against here.digests      # which directories differ?
  exacat digest --snapshot before-upgrade")]
pub(crate) struct DigestArgs {
    /// Directory to digest
    #[arg(value_name = "DIR", default_value = "/")]
    pub directory: String,
    /// Show directories down to this many levels below it, too
    #[arg(long, value_name = "LEVELS", default_value_t = 0)]
    pub depth: usize,
    /// File for the digests of all directories
    #[arg(short, long, value_name = "FILE")]
    pub output: Option<PathBuf>,
    /// File with digests to compare with; the command names directories that differ
    #[arg(long, value_name = "FILE")]
    pub against: Option<PathBuf>,
    #[command(flatten)]
    pub place: CatalogueSource,
}

/// `exacat generate`
#[derive(Args, Debug)]
#[command(after_help = "\
Makes an experiment-like tree: raw data by year, period and run, reconstructed
and simulated data with several replicas, users' homes, archives with members,
collections, tags. The same seed makes the same tree.

Examples:
  exacat generate --entries 1000 --seed 7 --prefix /big
  exacat generate --entries 1000 --listing sample.jsonl   # a file instead")]
pub(crate) struct GenerateArgs {
    /// Approximate number of entries
    #[arg(long, value_name = "NUMBER", default_value = "100000")]
    pub entries: String,
    /// Directory for the entries
    #[arg(long, value_name = "LFN", default_value = "/demo")]
    pub prefix: String,
    /// Seed: another one makes another tree
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
    /// Write a listing to this file instead of the catalogue
    #[arg(long, value_name = "FILE")]
    pub listing: Option<PathBuf>,
}
