//! Commands of the replay of accesses.

use std::path::PathBuf;

use clap::{Args, Subcommand};

/// `exacat replay`
#[derive(Debug, Subcommand)]
pub(crate) enum ReplayCommand {
    /// Make a trace of accesses that others recorded
    #[command(after_help = "\
Sources: Rucio traces (JSON lines, get_sm and other reads), records of a cache
(xrootd.mongstream pfc, JSON lines), datagrams of a server (xrootd.monitor fstat,
one behind the other), tables with a header (time, name, size, site), and traces.
gzip and Zstandard are read as they are. Times are seconds, ms, us or ns since
1970, or dates; rows may come in any order. Rows that are no accesses go to the
file of --rejects, and the exit status is 18.

Examples:
  exacat replay import accesses.tsv --out month.trace.zst
  exacat replay import reads.csv --columns url=name,start=time --out reads.zst \\
      --rejects bad.tsv --size-of-unknown 1GB
  exacat replay import month.trace.zst --site A --speed 24 --out fast.zst")]
    Import(Box<ReplayImportArgs>),
    /// Generate a trace by the statistics of real ones, from a seed
    #[command(after_help = "\
The defaults resemble a regional cache: one with 5 % of the bytes of all files
finds two thirds of the files, which have a bit more than a third of the bytes.

Examples:
  exacat replay generate --out like.trace.zst
  exacat replay generate --out small.zst --files 2000 --accesses 10000 \\
      --days 1 --size 1MB --seed 7")]
    Generate(Box<ReplayGenerateArgs>),
    /// Summarise a trace, and tell what caches must reach with it
    #[command(after_help = "\
The shares that a cache must reach are exact for a cache that removes whole files,
the one that was used longest ago first. Parts of files count with their blocks.

Examples:
  exacat replay show like.trace.zst
  exacat replay show like.trace.zst --cache 1TB --cache 10TB --svg like.svg
  exacat --json replay show like.trace.zst")]
    Show(ReplayShowArgs),
}

/// `exacat replay import`
#[derive(Args, Clone, Debug)]
pub(crate) struct ReplayImportArgs {
    /// Source; - for standard input; several are one trace
    #[arg(value_name = "FILE", required = true)]
    pub files: Vec<PathBuf>,
    /// File for the trace; compressed if its name ends in .zst
    #[arg(long, value_name = "FILE")]
    pub out: PathBuf,
    /// Kind of the source: trace, rucio, gstream, fstream, tsv, csv [default: told by its content]
    #[arg(long, value_name = "KIND")]
    pub source: Option<String>,
    /// Columns of a table, by name or number: COLUMN=ROLE,… with the roles time, name, size, site,
    /// dataset, adler32, reads
    #[arg(long, value_name = "COLUMN=ROLE,…")]
    pub columns: Option<String>,
    /// File for the rows that are no accesses
    #[arg(long, value_name = "FILE")]
    pub rejects: Option<PathBuf>,
    /// Size of files whose size is not known [default: reject them]
    #[arg(long, value_name = "SIZE")]
    pub size_of_unknown: Option<String>,
    /// Site of accesses that name none
    #[arg(long, value_name = "NAME", default_value = "")]
    pub site_of_unknown: String,
    /// Directory before names that are no paths
    #[arg(long, value_name = "LFN", default_value = "/")]
    pub below: String,
    /// Give files of Rucio the paths that they have at a site: SCOPE/xx/yy/NAME
    #[arg(long)]
    pub hashed_paths: bool,
    /// Only accesses of this site; may be repeated
    #[arg(long, value_name = "NAME")]
    pub site: Vec<String>,
    /// Share of the files that clients of a site read; may be repeated
    #[arg(long, value_name = "SITE=SHARE")]
    pub site_share: Vec<String>,
    /// Only files of this dataset, or of those that begin so: NAME*; may be repeated
    #[arg(long, value_name = "NAME")]
    pub dataset: Vec<String>,
    /// Only files below this directory; may be repeated
    #[arg(long, value_name = "LFN")]
    pub under: Vec<String>,
    /// Only accesses from this time on
    #[arg(long, value_name = "TIME")]
    pub from: Option<String>,
    /// Only accesses before this time
    #[arg(long, value_name = "TIME")]
    pub to: Option<String>,
    /// Only files of at least so many bytes
    #[arg(long, value_name = "SIZE")]
    pub size_min: Option<String>,
    /// Only files of at most so many bytes
    #[arg(long, value_name = "SIZE")]
    pub size_max: Option<String>,
    /// Share of all files, from 0 to 1
    #[arg(long, value_name = "SHARE", default_value_t = 1.0)]
    pub share: f64,
    /// Another number chooses other files for the shares
    #[arg(long, value_name = "NUMBER", default_value_t = 0)]
    pub seed: u64,
    /// Factor of the sizes of files
    #[arg(long, value_name = "FACTOR", default_value_t = 1.0)]
    pub size_factor: f64,
    /// Let everything happen so many times as fast
    #[arg(long, value_name = "FACTOR", default_value_t = 1.0)]
    pub speed: f64,
}

/// `exacat replay generate`
#[derive(Args, Clone, Debug)]
pub(crate) struct ReplayGenerateArgs {
    /// File for the trace; compressed if its name ends in .zst
    #[arg(long, value_name = "FILE")]
    pub out: PathBuf,
    /// Seed: the same one makes the same trace
    #[arg(long, value_name = "NUMBER", default_value_t = 1)]
    pub seed: u64,
    /// Files that exist
    #[arg(long, value_name = "NUMBER", default_value = "50000")]
    pub files: String,
    /// Accesses
    #[arg(long, value_name = "NUMBER", default_value = "200000")]
    pub accesses: String,
    /// First time
    #[arg(long, value_name = "TIME", default_value = "2018-12-01T00:00:00Z")]
    pub begin: String,
    /// Length in days
    #[arg(long, value_name = "NUMBER", default_value_t = 30.0)]
    pub days: f64,
    /// Exponent of the popularity of datasets (Zipf)
    #[arg(long, value_name = "NUMBER", default_value_t = 1.1)]
    pub popularity: f64,
    /// Exponent by which less popular files are larger
    #[arg(long, value_name = "NUMBER")]
    pub size_growth: Option<f64>,
    /// Median size of a file
    #[arg(long, value_name = "SIZE", default_value = "2GB")]
    pub size: String,
    /// Share of the ranks of datasets that are given anew each day
    #[arg(long, value_name = "SHARE")]
    pub drift: Option<f64>,
    /// Median number of jobs that read the same files within minutes
    #[arg(long, value_name = "NUMBER")]
    pub task_jobs: Option<f64>,
    /// Share of accesses that read a part of the file
    #[arg(long, value_name = "SHARE", default_value_t = 0.3)]
    pub parts: f64,
    /// Sites
    #[arg(long, value_name = "NUMBER", default_value_t = 4)]
    pub sites: u64,
    /// Directory of the files
    #[arg(long, value_name = "LFN", default_value = "/replay")]
    pub below: String,
}

/// `exacat replay show`
#[derive(Args, Clone, Debug)]
pub(crate) struct ReplayShowArgs {
    /// The trace
    #[arg(value_name = "FILE")]
    pub trace: PathBuf,
    /// Size of a cache to be judged; may be repeated [default: shares of the working set]
    #[arg(long, value_name = "SIZE")]
    pub cache: Vec<String>,
    /// Bytes of a block of the cache
    #[arg(long, value_name = "SIZE", default_value = "1MiB")]
    pub block: String,
    /// File for a picture
    #[arg(long, value_name = "FILE")]
    pub svg: Option<PathBuf>,
}
