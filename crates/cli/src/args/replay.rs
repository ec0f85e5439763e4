//! Commands of the replay of accesses.

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum};

use super::LoggingArgs;

/// `exacat replay`
#[derive(Debug, Subcommand)]
pub(crate) enum ReplayCommand {
    /// Make a trace of accesses that others recorded
    #[command(after_help = "\
Sources: Rucio traces (JSON lines, get_sm and other reads), records of a cache
(xrootd.mongstream pfc, JSON lines), datagrams of a server (xrootd.monitor
fstat, one behind the other), tables with a header (time, name, size, site), and
traces. gzip, Zstandard and bzip2 are read as they are. Times are seconds, ms,
us or ns since 1970, or dates; rows may come in any order. Rows that are no
accesses go to the file of --rejects, and the exit status is 18.

Examples:
  exacat replay import accesses.tsv --out month.trace.zst
  exacat replay import reads.csv --columns url=name,start=time --out r.zst \\
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
The shares that a cache must reach are exact for a cache that removes whole
files, the one that was used longest ago first. Parts of files count with their
blocks.

Examples:
  exacat replay show like.trace.zst
  exacat replay show like.trace.zst --cache 1TB --cache 10TB --svg like.svg
  exacat --json replay show like.trace.zst")]
    Show(ReplayShowArgs),
    /// Run a replay service: it hands out the accesses of a trace, and reports
    #[command(after_help = "\
Agents, commands and browsers use the same URL. Without --token-file it listens
on this machine only. Results are on disk before they are answered: after a kill
the service goes on where it was. --collect takes what caches send with
xrootd.mongstream pfc, xrootd.monitor fstat and xrd.report. With --catalogue
files have the sizes and checksums of the catalogue, and those that it does not
have are left out.

Examples:
  exacat replay serve --trace like.trace.zst
  exacat replay serve --trace month.zst --listen 0.0.0.0:27790 \\
      --token-file token --collect 0.0.0.0:9931
  exacat replay serve --trace month.zst --missing missing.txt \\
      --catalogue exacat://catalogue.example.org:1247")]
    Serve(Box<ReplayServeArgs>),
    /// Create, start, stop and show runs
    #[command(subcommand)]
    Run(ReplayRunCommand),
    /// Sum up the states of a cache's files: a view of it from its own disk
    #[command(after_help = "\
DIRECTORY is the name space of the cache (oss.localroot), with a .cinfo file
beside each file. With --run the sums go to the report of that run: at once,
every --every, and after its end. Give the cache the name that agents use.

Examples:
  exacat replay cinfo /var/cache/xrootd/ns
  exacat replay cinfo /var/cache/xrootd/ns --files
  exacat replay cinfo /var/cache/xrootd/ns --run first \\
      --cache root://cache.example.org:1094")]
    Cinfo(ReplayCinfoArgs),
    /// Make the accesses of a run, through a cache
    #[command(after_help = "\
It asks the service for accesses, makes each at its time, and reports how it
ended. Any number of agents, anywhere, work on one run. SIGINT ends it: what
ended is reported, the rest is handed to others.

Examples:
  exacat replay agent --run first --cache root://cache.example.org:1094
  exacat replay agent --run first --cache https://cache.example.org:8443 \\
      --http --cache-ca ca.pem --cache-token-file token --in-flight 256
  exacat replay agent --run first --cache root://cache.example.org:1094 \\
      --xrdcp --in-flight 8")]
    Agent(Box<ReplayAgentArgs>),
    /// Serve files that exist by name and size only, as an origin for caches
    #[command(after_help = "\
The bytes of a file follow from its name: traces of exacat replay generate have
their checksums. Delays and failures can be ordered.
http://CONTROL/api/v1/origin has the counters, POST
…/api/v1/origin/gone?seconds=20 lets it go away.

Examples:
  exacat replay origin --trace like.trace.zst
  exacat replay origin --any /data=2GB --open-delay 20ms --bandwidth 1GB")]
    Origin(Box<ReplayOriginArgs>),
    /// Show the report of a run: clients, cache and origin side by side
    #[command(after_help = "\
The exit status is that of the condition that stopped the run, or of the first
threshold of --fail-when that does not hold.

Examples:
  exacat replay report first
  exacat replay report first --html first.html
  exacat replay report climb --compare first")]
    Report(ReplayReportArgs),
}

/// Replay service that a command speaks to.
#[derive(Args, Clone, Debug)]
pub(crate) struct AtReplay {
    /// URL of the replay service
    #[arg(long, value_name = "URL", env = "EXACAT_REPLAY", default_value = "http://127.0.0.1:27790")]
    pub service: String,
    /// File with its token
    #[arg(long, value_name = "FILE")]
    pub service_token_file: Option<PathBuf>,
    /// Authority of its certificate (PEM), for https
    #[arg(long, value_name = "FILE")]
    pub service_ca: Option<PathBuf>,
}

/// `exacat replay serve`
#[derive(Args, Clone, Debug)]
pub(crate) struct ReplayServeArgs {
    /// Trace of new runs; the service keeps a copy
    #[arg(long, value_name = "FILE")]
    pub trace: Option<PathBuf>,
    /// Catalogue that has the files of the trace: unix:PATH, or exacat://HOST:PORT
    #[arg(long, value_name = "URL", requires = "trace")]
    pub catalogue: Option<String>,
    /// File with the token for the catalogue
    #[arg(long, value_name = "FILE", requires = "catalogue")]
    pub catalogue_token_file: Option<PathBuf>,
    /// Certificates (PEM) to trust for the catalogue
    #[arg(long, value_name = "FILE", requires = "catalogue")]
    pub catalogue_ca: Option<PathBuf>,
    /// File for the names that the catalogue does not have, with the reasons
    #[arg(long, value_name = "FILE", requires = "catalogue")]
    pub missing: Option<PathBuf>,
    /// Directory of the runs [default: replay in the data directory]
    #[arg(long, value_name = "PATH")]
    pub runs: Option<PathBuf>,
    /// Address of HTTP; port 0 takes a free one
    #[arg(long, value_name = "ADDRESS:PORT", default_value = "127.0.0.1:27790")]
    pub listen: SocketAddr,
    /// File with the token of operators, which agents may show too
    #[arg(long, value_name = "FILE")]
    pub token_file: Option<PathBuf>,
    /// File with a token that is for agents only: it starts and stops no run
    #[arg(long, value_name = "FILE", requires = "token_file")]
    pub agent_token_file: Option<PathBuf>,
    /// Let everybody in who reaches the address
    #[arg(long, conflicts_with = "token_file")]
    pub open: bool,
    /// Certificate for HTTPS: its chain in PEM
    #[arg(long, value_name = "FILE", requires = "key")]
    pub certificate: Option<PathBuf>,
    /// Its private key in PEM
    #[arg(long, value_name = "FILE", requires = "certificate")]
    pub key: Option<PathBuf>,
    /// UDP address for the records of caches; port 0 takes a free one
    #[arg(long, value_name = "ADDRESS:PORT")]
    pub collect: Option<SocketAddr>,
    /// URL of the counters of an origin; may be repeated
    #[arg(long, value_name = "URL")]
    pub origin: Vec<String>,
    #[command(flatten)]
    pub logging: LoggingArgs,
}

/// `exacat replay cinfo`
#[derive(Args, Clone, Debug)]
pub(crate) struct ReplayCinfoArgs {
    /// Name space of the cache
    #[arg(value_name = "DIRECTORY")]
    pub directory: PathBuf,
    /// Print a line for each file, too
    #[arg(long, conflicts_with = "run")]
    pub files: bool,
    /// Run whose report gets the sums
    #[arg(long, value_name = "NAME", requires = "cache")]
    pub run: Option<String>,
    /// Name of the cache in the report
    #[arg(long, value_name = "URL", requires = "run")]
    pub cache: Option<String>,
    /// Time between two readings
    #[arg(long, value_name = "DURATION", default_value = "60s", requires = "run")]
    pub every: String,
    #[command(flatten)]
    pub at: AtReplay,
}

/// Order of accesses to one file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum ReplayOrderArg {
    /// As in the trace
    #[default]
    File,
    /// Any
    Any,
}

/// `exacat replay run`
#[derive(Debug, Subcommand)]
pub(crate) enum ReplayRunCommand {
    /// Create a run of the service's trace
    #[command(after_help = "\
Without --in-flight or --ramp each access begins at its time in the trace.

Conditions are MEASURE>BOUND:WINDOW with the measures errors, p50, p90, p99,
p99.9, late, rate, origin, bypass, and flat:WINDOW. Thresholds have no window;
they know requests-off and bytes-off, the distance from what the trace
foretells, too.

Examples:
  exacat replay run create first --start
  exacat replay run create fast --speed 24 --cache-size 10TB --block 1MiB \\
      --stop-when 'errors>5%:60s' --fail-when 'bytes-off>2%'
  exacat replay run create climb --ramp 8:8:60:1024 --stop-when flat:5m")]
    Create(Box<ReplayRunCreateArgs>),
    /// List the runs
    #[command(after_help = "Examples:\n  exacat replay run ls\n  exacat --json replay run ls")]
    Ls {
        #[command(flatten)]
        at: AtReplay,
    },
    /// Show a run
    #[command(after_help = "Examples:\n  exacat replay run show first")]
    Show {
        /// Name of the run
        name: String,
        #[command(flatten)]
        at: AtReplay,
    },
    /// Begin to hand out accesses
    #[command(after_help = "Examples:\n  exacat replay run start first")]
    Start {
        /// Name of the run
        name: String,
        #[command(flatten)]
        at: AtReplay,
    },
    /// Hand out nothing more until the run is resumed
    #[command(after_help = "Examples:\n  exacat replay run pause first")]
    Pause {
        /// Name of the run
        name: String,
        #[command(flatten)]
        at: AtReplay,
    },
    /// Go on with a paused run, in the time at which it was paused
    #[command(after_help = "Examples:\n  exacat replay run resume first")]
    Resume {
        /// Name of the run
        name: String,
        #[command(flatten)]
        at: AtReplay,
    },
    /// End a run for good
    #[command(after_help = "Examples:\n  exacat replay run stop first")]
    Stop {
        /// Name of the run
        name: String,
        #[command(flatten)]
        at: AtReplay,
    },
    /// Wait for the end of a run
    #[command(after_help = "\
The exit status is that of the report. It waits on while the service is
restarted.

Examples:
  exacat replay run wait first")]
    Wait {
        /// Name of the run
        name: String,
        #[command(flatten)]
        at: AtReplay,
    },
}

/// `exacat replay run create`
#[derive(Args, Clone, Debug)]
pub(crate) struct ReplayRunCreateArgs {
    /// Name: letters, digits, -, _ and .
    #[arg(value_name = "NAME")]
    pub name: String,
    /// Let everything happen so many times as fast
    #[arg(long, value_name = "FACTOR", default_value_t = 1.0, conflicts_with_all = ["in_flight", "ramp"])]
    pub speed: f64,
    /// Keep so many accesses in flight, whatever their times
    #[arg(long, value_name = "NUMBER", conflicts_with = "ramp")]
    pub in_flight: Option<u32>,
    /// Begin with FROM accesses in flight, and add STEP every SECONDS, up to MOST
    #[arg(long, value_name = "FROM:STEP:SECONDS:MOST")]
    pub ramp: Option<String>,
    /// Order of accesses to one file
    #[arg(long, value_enum, default_value_t)]
    pub order: ReplayOrderArg,
    /// Leave out so many accesses at the begin of the trace
    #[arg(long, value_name = "NUMBER", default_value_t = 0)]
    pub skip: u64,
    /// Take so many accesses after them [default: all]
    #[arg(long, value_name = "NUMBER")]
    pub accesses: Option<u64>,
    /// Size of the cache, to say what it must reach
    #[arg(long, value_name = "SIZE")]
    pub cache_size: Option<String>,
    /// Bytes of a block of the cache
    #[arg(long, value_name = "SIZE")]
    pub block: Option<String>,
    /// Seconds after which an access of an agent that says nothing is handed to another one
    #[arg(long, value_name = "SECONDS", default_value_t = 60)]
    pub lease: u32,
    /// Bytes each second for which a lease is longer
    #[arg(long, value_name = "SIZE", default_value = "1MB")]
    pub least_rate: String,
    /// Condition that stops the run; may be repeated
    #[arg(long, value_name = "CONDITION")]
    pub stop_when: Vec<String>,
    /// Threshold that fails the run at its end; may be repeated
    #[arg(long, value_name = "THRESHOLD")]
    pub fail_when: Vec<String>,
    /// Remark, for the report
    #[arg(long, value_name = "TEXT", default_value = "")]
    pub remark: String,
    /// Start it at once
    #[arg(long)]
    pub start: bool,
    #[command(flatten)]
    pub at: AtReplay,
}

/// `exacat replay agent`
#[derive(Args, Clone, Debug)]
pub(crate) struct ReplayAgentArgs {
    /// Name of the run
    #[arg(long, value_name = "NAME")]
    pub run: String,
    /// Cache: root://HOST:PORT, roots://HOST:PORT or http(s)://HOST:PORT; a path precedes all names
    #[arg(long, value_name = "URL")]
    pub cache: String,
    /// Name of the agent, unique in the run [default: that of the machine, and the number of the process]
    #[arg(long, value_name = "NAME")]
    pub name: Option<String>,
    /// Read by the program xrdcp, a process for each access
    #[arg(long, conflicts_with = "http")]
    pub xrdcp: bool,
    /// Read by HTTP
    #[arg(long)]
    pub http: bool,
    /// Program for --xrdcp
    #[arg(long, value_name = "FILE", default_value = "xrdcp", requires = "xrdcp")]
    pub program: PathBuf,
    /// Most accesses at once
    #[arg(long, value_name = "NUMBER", default_value_t = 64)]
    pub in_flight: u32,
    /// Read pages with checksums, as xrdcp does
    #[arg(long)]
    pub pages: bool,
    /// Bytes of one read
    #[arg(long, value_name = "SIZE", default_value = "1MiB")]
    pub read_size: String,
    /// Reads of one access that are under way at once
    #[arg(long, value_name = "NUMBER", default_value_t = 4)]
    pub reads_ahead: u16,
    /// Connect anew for each access, as a job does
    #[arg(long)]
    pub connect_anew: bool,
    /// Check that the bytes are those of exacat replay origin
    #[arg(long)]
    pub verify_content: bool,
    /// File with the token for the cache
    #[arg(long, value_name = "FILE")]
    pub cache_token_file: Option<PathBuf>,
    /// Show the token in the path, also without TLS: anyone on the network can read it
    #[arg(long, requires = "cache_token_file")]
    pub token_in_path: bool,
    /// Further host that the token is shown to after a redirect: HOST or .DOMAIN; may be repeated
    #[arg(long, value_name = "HOST", requires = "cache_token_file")]
    pub token_host: Vec<String>,
    /// Authority of the cache's certificate (PEM)
    #[arg(long, value_name = "FILE")]
    pub cache_ca: Option<PathBuf>,
    /// Time for which it asks a service again that does not answer
    #[arg(long, value_name = "DURATION", default_value = "10m")]
    pub patience: String,
    #[command(flatten)]
    pub at: AtReplay,
}

/// `exacat replay origin`
#[derive(Args, Clone, Debug)]
pub(crate) struct ReplayOriginArgs {
    /// Trace whose files it has
    #[arg(long, value_name = "FILE")]
    pub trace: Option<PathBuf>,
    /// Directory in which every file exists, with the size, or that in its name; may be repeated
    #[arg(long, value_name = "DIRECTORY[=SIZE]")]
    pub any: Vec<String>,
    /// Address for caches; port 0 takes a free one
    #[arg(long, value_name = "ADDRESS:PORT", default_value = "127.0.0.1:27794")]
    pub listen: SocketAddr,
    /// Address of its counters and orders, for this machine's network only; none disables it
    #[arg(long, value_name = "ADDRESS:PORT|none", default_value = "127.0.0.1:27795")]
    pub control: String,
    /// Time before each open is answered
    #[arg(long, value_name = "DURATION", default_value = "0s")]
    pub open_delay: String,
    /// Time before each read is answered
    #[arg(long, value_name = "DURATION", default_value = "0s")]
    pub read_delay: String,
    /// Most bytes each second [default: no bound]
    #[arg(long, value_name = "SIZE")]
    pub bandwidth: Option<String>,
    /// Most bytes each second of one connection [default: no bound]
    #[arg(long, value_name = "SIZE")]
    pub bandwidth_of_connection: Option<String>,
    /// Share of opens that fail
    #[arg(long, value_name = "SHARE", default_value_t = 0.0)]
    pub failing_opens: f64,
    /// Share of reads that fail
    #[arg(long, value_name = "SHARE", default_value_t = 0.0)]
    pub failing_reads: f64,
    /// Share of files that are absent
    #[arg(long, value_name = "SHARE", default_value_t = 0.0)]
    pub absent_share: f64,
    /// File that is absent; may be repeated
    #[arg(long, value_name = "LFN")]
    pub absent: Vec<String>,
    /// Share of files with other bytes than their checksums
    #[arg(long, value_name = "SHARE", default_value_t = 0.0)]
    pub wrong_share: f64,
    /// File with other bytes than its checksum; may be repeated
    #[arg(long, value_name = "LFN")]
    pub wrong: Vec<String>,
    /// Another number lets other opens, reads and files fail
    #[arg(long, value_name = "NUMBER", default_value_t = 0)]
    pub seed: u64,
    #[command(flatten)]
    pub logging: LoggingArgs,
}

/// `exacat replay report`
#[derive(Args, Clone, Debug)]
pub(crate) struct ReplayReportArgs {
    /// Name of the run
    #[arg(value_name = "RUN")]
    pub run: String,
    /// File for the report as one page
    #[arg(long, value_name = "FILE")]
    pub html: Option<PathBuf>,
    /// Compare with another run of the service
    #[arg(long, value_name = "RUN")]
    pub compare: Option<String>,
    #[command(flatten)]
    pub at: AtReplay,
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
