//! Arguments of `exacat history`: the values of elements.

use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum};

/// `exacat history`
#[derive(Debug, Subcommand)]
pub(crate) enum HistoryCommand {
    /// List groups of elements, or the elements of one
    #[command(after_help = "\
ELEMENT is the name or key of an element, or a pattern of names in quotes with
*, ?, [...] and {...}. The name is the tag 'name', else the tag 'element', else
the key: measurement and tags, as in line protocol.

Examples:
  exacat history ls
  exacat history ls dcs
  exacat history ls 'dcs:crate*'
  exacat --json history ls dcs")]
    Ls {
        /// GROUP or GROUP:ELEMENT [default: list the groups]
        #[arg(value_name = "GROUP[:ELEMENT]")]
        of: Option<String>,
    },
    /// Show the latest values of elements
    #[command(after_help = "\
Examples:
  exacat history latest dcs:crate1
  exacat history latest 'dcs:crate*' --field '*'
  exacat --json history latest dcs")]
    Latest {
        /// GROUP for all its elements, or GROUP:ELEMENT
        #[arg(value_name = "GROUP[:ELEMENT]")]
        of: String,
        #[command(flatten)]
        fields: FieldArgs,
    },
    /// Show the values of elements that held at an instant
    #[command(after_help = "\
Examples:
  exacat history at 2026-11-24T03:14:07Z dcs
  exacat history at '10m ago' dcs:crate1")]
    At {
        /// Instant: RFC 3339, a date, seconds since 1970, or a duration ago
        time: String,
        /// GROUP for all its elements, or GROUP:ELEMENT
        #[arg(value_name = "GROUP[:ELEMENT]")]
        of: String,
        #[command(flatten)]
        fields: FieldArgs,
    },
    /// Show the rows of elements in a range of times, or aggregates of them
    Get(HistoryGetArgs),
    /// Show the settings and counts of groups
    #[command(after_help = "\
ROWS counts a row once for each file that has it: rows that were written again
count twice until their files are merged.

Examples:
  exacat history stat
  exacat history stat dcs")]
    Stat {
        /// Group [default: all]
        group: Option<String>,
    },
    /// Make a group of elements, or change its settings
    Set(HistorySetArgs),
    /// Remove a group of elements with all its values
    #[command(after_help = "\
Takes the owner of the group, or the role operator or admin. The values in the
archive go too, when the server next archives: copy their files before, to keep
them.

Examples:
  exacat history set old && exacat history rm old")]
    Rm {
        /// Group
        group: String,
    },
    /// Write values from files
    Import(HistoryImportArgs),
    /// Make the history of a data directory the owner of its archive, after a restore
    Adopt(HistoryAdoptArgs),
}

/// Fields to show.
#[derive(Args, Debug)]
pub(crate) struct FieldArgs {
    /// Field, may be repeated; '*' shows all [default: the value and its quality]
    #[arg(long = "field", value_name = "NAME")]
    pub fields: Vec<String>,
}

/// Course of a value between its rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum CourseArg {
    /// Each value holds until the next one
    Holds,
    /// A straight line
    Line,
    /// Unknown: there is no integral
    Samples,
}

/// `exacat history get`
#[derive(Args, Debug)]
#[command(after_help = "\
Without --every each row is shown; the rows of an element are in the order of
time. With it, each line has the aggregates of an interval. A value holds until
the next one, so an interval without rows has the value that holds, and MEAN is
the mean over time; --course tells otherwise. INTEGRAL is in units of the value
times seconds.

Examples:
  exacat history get dcs:crate1
  exacat history get 'dcs:crate*' --from '2d ago' --to now --field v
  exacat history get dcs:crate1 --from '1h ago' --every 10m
  exacat --json history get dcs --from 2026-11-24")]
pub(crate) struct HistoryGetArgs {
    /// GROUP for all its elements, or GROUP:ELEMENT
    #[arg(value_name = "GROUP[:ELEMENT]")]
    pub of: String,
    /// First time: RFC 3339, a date, seconds since 1970, or a duration ago
    #[arg(long, value_name = "TIME")]
    pub from: Option<String>,
    /// Last time
    #[arg(long, value_name = "TIME")]
    pub to: Option<String>,
    #[command(flatten)]
    pub fields: FieldArgs,
    /// Length of an interval: aggregates instead of rows. Needs --from
    #[arg(long, value_name = "DURATION", requires = "from")]
    pub every: Option<String>,
    /// Course of the value between rows
    #[arg(long, requires = "every", default_value = "holds")]
    pub course: CourseArg,
}

/// `exacat history set`
#[derive(Args, Debug)]
#[command(after_help = "\
Making a group takes the role operator or admin. Its owner, at first who made
it, may change it. What no option names stays as it is. A new group is readable
by everybody who may read the catalogue, and keeps its values for ever.

Examples:
  exacat history set dcs
  exacat history set dcs --retention 3650 --writers group:demo
  exacat history set dcs --readers aleksy,group:demo --max-elements 1000000
  exacat history set dcs --readers everybody")]
pub(crate) struct HistorySetArgs {
    /// Group
    pub group: String,
    /// Days that values are kept; 0 for ever
    #[arg(long, value_name = "DAYS")]
    pub retention: Option<u32>,
    /// Users and groups who may read it (NAME, user:NAME, group:NAME), or everybody
    #[arg(long, value_name = "NAME,...")]
    pub readers: Option<String>,
    /// Users and groups who may write to it, or nobody
    #[arg(long, value_name = "NAME,...")]
    pub writers: Option<String>,
    /// User who may change it
    #[arg(long, value_name = "USER")]
    pub owner: Option<String>,
    /// Largest number of elements
    #[arg(long, value_name = "COUNT")]
    pub max_elements: Option<u32>,
}

/// Form of a file with values.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum ElementFormat {
    /// Line protocol: measurement,tag=... field=value,... time
    Lines,
    /// A header with time, element and fields, each as NAME or NAME:TYPE
    Csv,
    /// Parquet: a file of the archive, or columns time, element and fields
    Parquet,
}

/// `exacat history import`
#[derive(Args, Debug)]
#[command(after_help = "\
A file that ends in .csv is CSV, one in .parquet is Parquet, any other has line
protocol. Parquet has the columns of CSV, with types of its own. CSV has a
column 'time' (RFC 3339, a date, or seconds since 1970), a column 'element' or
'key', and a column for each field. TYPE is float (default), integer, unsigned,
boolean or string; an empty cell is no value. The key of an element is the
measurement of --measurement with the tag 'element', or the cell if that has a
comma.

To repeat an import changes nothing. Rows that are refused are counted, and
leave the exit status 18.

Examples:
  exacat history import dcs values.lines
  exacat history import dcs values.csv --measurement hv
  echo 'hv,element=crate2 v=828.5,q=0i' | exacat history import dcs -")]
pub(crate) struct HistoryImportArgs {
    /// Group
    pub group: String,
    /// Files; - for standard input
    #[arg(required = true)]
    pub files: Vec<PathBuf>,
    /// Form of the files [default: by their names]
    #[arg(long)]
    pub format: Option<ElementFormat>,
    /// Unit of the times in line protocol: ns, us, ms or s
    #[arg(long, default_value = "ns", value_name = "UNIT")]
    pub precision: String,
    /// Measurement of elements in CSV and Parquet
    #[arg(long, default_value = "values", value_name = "NAME")]
    pub measurement: String,
}

/// `exacat history adopt`
#[derive(Args, Debug)]
#[command(after_help = "\
An archive has one owner, which alone reads and writes it. A history that was
restored or cloned is not the owner. Stop the server of the former owner for
good, and that of this data directory, before you adopt the archive.

Days that the archive alone has, or has in another version, are merged into the
history, and then replaced in the archive by one commit. Of two values for one
element, field and time, the later one stays. If rows would be lost, nothing
is changed and each loss is shown. An interrupted adoption is repeated by the
same command; until then no server opens the history.

Examples:
  exacat --data /srv/exacat history adopt /archive/history
  exacat --data /srv/exacat history adopt s3://bucket/history")]
pub(crate) struct HistoryAdoptArgs {
    /// Place of the archive, as for serve --history-archive
    #[arg(value_name = "DIR|s3://BUCKET/PREFIX")]
    pub place: String,
    /// Accept the loss of rows that neither side has; adopt nevertheless
    #[arg(long)]
    pub accept_loss: bool,
}
