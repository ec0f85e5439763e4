//! Arguments of `exacat se compare`.

use std::path::PathBuf;

use clap::Args;

/// `exacat se compare`
#[derive(Args, Debug)]
#[command(after_help = "\
A copy is lost if the catalogue had it before and after the dump and the storage
does not have it. A file is dark if the storage has it and the catalogue knew it
neither before nor after. Everything else that differs is on the way: uploads,
deletions, changes during the window. The state before is a snapshot (--before),
or follows from the history (--from); without both, what differs is undecided.
The state after is the present catalogue, or a snapshot (--after).

Forms of dumps: paths; CSV and TSV with path, size and checksum; xrdfs ls -l -R;
eos find --size --checksum; chimera-list of dCache; replica dumps of Rucio. They
may be compressed with gzip, zstd or bzip2. Paths are absolute, below the prefix
of the storage element, or URLs. Broken lines do not stop the others.

With --output, DIR gets a file for each class, such as lost.tsv, and
rejects.tsv. Nothing is changed without --apply. It gives lost copies the state
lost, wrong ones suspect, found ones available; --into registers dark files
there. Copies that changed since are left alone. Repeat an interrupted run.

Examples:
  exacat se compare DEMO::FZK::SE fzk.dump --from 2d
  cat fzk.dump | exacat se compare DEMO::FZK::SE - --before before-upgrade \\
      --output fzk
  cut -f 1 fzk/lost.tsv | exacat replica state - DEMO::FZK::SE lost
  exacat se compare DEMO::FZK::SE fzk.dump --from 2d --apply lost
  exacat se compare DEMO::FZK::SE fzk.dump --from 2d --apply dark --into /dark")]
pub(crate) struct CompareArgs {
    /// Storage element
    #[arg(value_name = "SE")]
    pub name: String,
    /// Storage dump; '-' for standard input
    pub dump: PathBuf,
    /// Snapshot from before the dump, in the data directory on this machine
    #[arg(long, value_name = "NAME", conflicts_with = "from")]
    pub before: Option<String>,
    /// Snapshot from after the dump, in the data directory on this machine [default: the present
    /// catalogue]
    #[arg(long, value_name = "NAME")]
    pub after: Option<String>,
    /// Read the data directory itself; no server may run on it
    #[arg(long, conflicts_with_all = ["after", "apply"])]
    pub offline: bool,
    /// Time at which the dump began, or a revision before that
    #[arg(long, value_name = "TIME|REVISION")]
    pub from: Option<String>,
    /// Time at which the dump ended; the state after must not be earlier
    #[arg(long, value_name = "TIME")]
    pub to: Option<String>,
    /// Form of the dump: paths, tsv, csv, xrdfs, eos, chimera, rucio [default: detected]
    #[arg(long, value_name = "FORM")]
    pub format: Option<String>,
    /// Roles of columns in order, or by name or number: path, size, checksum, - [default: from the
    /// header, or detected]
    #[arg(long, value_name = "ROLES")]
    pub columns: Option<String>,
    /// Field separator, one character [default: a tab, in CSV a comma]
    #[arg(long, value_name = "CHARACTER")]
    pub delimiter: Option<String>,
    /// Beginning of the dump's paths to remove; lines without it are of another space
    #[arg(long, value_name = "PATH")]
    pub strip_prefix: Option<String>,
    /// Beginning to put before the rest [default: the path of the storage element's prefix]
    #[arg(long, value_name = "PATH")]
    pub add_prefix: Option<String>,
    /// Directory for the listings, made if missing
    #[arg(long, value_name = "DIR")]
    pub output: Option<PathBuf>,
    /// Memory for sorting
    #[arg(long, value_name = "SIZE", default_value = "256MiB")]
    pub memory: String,
    /// Directory for temporary files [default: that of the output, or the system's]
    #[arg(long, value_name = "DIR")]
    pub temp: Option<PathBuf>,
    /// Apply a class: lost, found, wrong-size, wrong-checksum, dark
    #[arg(long, value_name = "CLASS")]
    pub apply: Option<String>,
    /// Directory in the catalogue for dark files
    #[arg(long, value_name = "LFN", requires = "apply")]
    pub into: Option<String>,
    /// Apply no more copies than this
    #[arg(long, value_name = "NUMBER", requires = "apply", default_value = "10000")]
    pub max_count: String,
    /// Apply no larger part of the copies than this
    #[arg(long, value_name = "PERCENT%", requires = "apply", default_value = "1%")]
    pub max_fraction: String,
    /// Apply in spite of this many rejected lines
    #[arg(long, value_name = "NUMBER", requires = "apply", default_value = "0")]
    pub max_rejects: String,
}
