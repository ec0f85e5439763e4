//! Commands that run and maintain the service.

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum};
use exacat_store_cassandra::{CassandraSettings, ClusterAccess, PeersAt};

/// Store of the catalogue.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) enum StoreArg {
    /// In the data directory
    #[default]
    Embedded,
    /// On a cluster
    Cassandra(Box<CassandraSettings>),
}

impl std::str::FromStr for StoreArg {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "embedded" => Ok(StoreArg::Embedded),
            address if address.starts_with(CassandraSettings::SCHEME) => CassandraSettings::parse(address)
                .map(|cluster| StoreArg::Cassandra(Box::new(cluster)))
                .map_err(|error| error.message),
            other => Err(format!("embedded or cassandra://HOST,HOST/KEYSPACE, not {other:?}")),
        }
    }
}

/// Access to a cluster that requires credentials.
#[derive(Args, Clone, Debug, Default)]
#[command(next_help_heading = "Cluster")]
pub(crate) struct ClusterArgs {
    /// Use TLS to the nodes, and trust those whose certificate an authority in FILE (PEM) signed
    /// for the address they are reached at
    #[arg(long, value_name = "FILE", env = "EXACAT_STORE_CA", hide_env_values = true)]
    pub store_ca: Option<PathBuf>,
    /// Certificate for nodes that request one: its chain in PEM
    #[arg(
        long,
        value_name = "FILE",
        env = "EXACAT_STORE_CERTIFICATE",
        hide_env_values = true,
        requires = "store_key",
        requires = "store_ca"
    )]
    pub store_certificate: Option<PathBuf>,
    /// Its private key in PEM, in a file that only its owner may read
    #[arg(
        long,
        value_name = "FILE",
        env = "EXACAT_STORE_KEY",
        hide_env_values = true,
        requires = "store_certificate"
    )]
    pub store_key: Option<PathBuf>,
    /// User of the cluster
    #[arg(
        long,
        value_name = "NAME",
        env = "EXACAT_STORE_USER",
        hide_env_values = true,
        requires = "store_password_file"
    )]
    pub store_user: Option<String>,
    /// File with the user's password, which only its owner may read
    #[arg(
        long,
        value_name = "FILE",
        env = "EXACAT_STORE_PASSWORD_FILE",
        hide_env_values = true,
        requires = "store_user"
    )]
    pub store_password_file: Option<PathBuf>,
    /// Datacenter of this machine, as the cluster names it: its nodes are preferred
    #[arg(long, value_name = "NAME", env = "EXACAT_STORE_DATACENTER", hide_env_values = true)]
    pub store_datacenter: Option<String>,
}

impl ClusterArgs {
    /// Returns the cluster's settings with these credentials.
    pub(crate) fn reaching(&self, cluster: &CassandraSettings) -> CassandraSettings {
        let access = ClusterAccess {
            authorities: self.store_ca.clone(),
            certificate: self.store_certificate.clone().zip(self.store_key.clone()),
            user: self.store_user.clone().zip(self.store_password_file.clone()),
        };
        CassandraSettings { access, datacenter: self.store_datacenter.clone(), ..cluster.clone() }
    }
}

/// `exacat schema`
#[derive(Debug, Subcommand)]
pub(crate) enum SchemaCommand {
    /// Make the tables of a catalogue on a cluster, with an empty catalogue in them
    #[command(after_help = "\
REPLICATION is a map of CQL with the names of the cluster's datacenters. Three
copies are right for nearly everyone. Repeat an attempt that was cut off.

Examples:
  exacat schema create cassandra://db1,db2,db3/exacat \\
      --replication \"{'class': 'NetworkTopologyStrategy', 'dc1': 3}\"
  exacat schema create cassandra://db1/exacat --replication \"$REPLICATION\" \\
      --store-ca ca.pem --store-user admin --store-password-file pw")]
    Create {
        /// Cluster and keyspace: cassandra://HOST,HOST/KEYSPACE
        #[arg(value_name = "CLUSTER", value_parser = CassandraSettings::parse)]
        cluster: CassandraSettings,
        /// Replication of the keyspace
        #[arg(long, value_name = "REPLICATION")]
        replication: String,
        #[command(flatten)]
        reach: Box<ClusterArgs>,
    },
    /// Show the version of the tables; exit status 0 if this program can serve them
    #[command(after_help = "\
Examples:
  exacat schema check cassandra://db1,db2,db3/exacat
  exacat --json schema check cassandra://db1/exacat")]
    Check {
        /// Cluster and keyspace: cassandra://HOST,HOST/KEYSPACE
        #[arg(value_name = "CLUSTER", value_parser = CassandraSettings::parse)]
        cluster: CassandraSettings,
        #[command(flatten)]
        reach: Box<ClusterArgs>,
    },
    /// Upgrade the tables to the version of this program
    #[command(after_help = "\
Examples:
  exacat schema upgrade cassandra://db1,db2,db3/exacat")]
    Upgrade {
        /// Cluster and keyspace: cassandra://HOST,HOST/KEYSPACE
        #[arg(value_name = "CLUSTER", value_parser = CassandraSettings::parse)]
        cluster: CassandraSettings,
        #[command(flatten)]
        reach: Box<ClusterArgs>,
    },
}

/// Store that no server serves while it is copied.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum PlaceArg {
    /// In a data directory
    Embedded(PathBuf),
    /// On a cluster
    Cassandra(Box<CassandraSettings>),
}

impl PlaceArg {
    /// Returns the same store, with credentials for a cluster.
    pub(crate) fn reached(&self, reach: &ClusterArgs) -> PlaceArg {
        match self {
            PlaceArg::Cassandra(cluster) => PlaceArg::Cassandra(Box::new(reach.reaching(cluster))),
            PlaceArg::Embedded(directory) => PlaceArg::Embedded(directory.clone()),
        }
    }
}

impl std::str::FromStr for PlaceArg {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text.strip_prefix("embedded:") {
            Some("") => Err("embedded: needs the data directory: embedded:DIR".to_owned()),
            Some(directory) => Ok(PlaceArg::Embedded(directory.into())),
            None if text.starts_with(CassandraSettings::SCHEME) => CassandraSettings::parse(text)
                .map(|cluster| PlaceArg::Cassandra(Box::new(cluster)))
                .map_err(|error| error.message),
            None => Err(format!("embedded:DIR or cassandra://HOST,HOST/KEYSPACE, not {text:?}")),
        }
    }
}

/// `exacat copy`
#[derive(Args, Debug)]
#[command(after_help = "\
The copy has everything: numbers, revisions, times, history, trash,
reservations, deletion queues, accounts, tokens. The history must be complete
from the first change on. Stop the servers of both catalogues first. The other
catalogue is new (for a cluster: exacat schema create), or has an interrupted
copy from here, which then resumes. At the end the command reads both and
compares them: the tree by its digest, the rest item by item.

Examples:
  exacat copy --from embedded:$HOME/.local/share/exacat --to embedded:copied
  exacat copy --from embedded:/srv/exacat --to cassandra://db1,db2,db3/exacat
  exacat copy --from cassandra://db1,db2,db3/exacat --to embedded:/srv/new
  exacat copy --from embedded:/srv/exacat --to cassandra://db1/exacat \\
      --store-ca ca.pem --store-user exacat --store-password-file pw")]
pub(crate) struct CopyArgs {
    /// Source: embedded:DIR, or cassandra://HOST,HOST/KEYSPACE
    #[arg(long, value_name = "STORE")]
    pub from: PlaceArg,
    /// Target: embedded:DIR, or cassandra://HOST,HOST/KEYSPACE
    #[arg(long, value_name = "STORE")]
    pub to: PlaceArg,
    /// Do not compare both at the end
    #[arg(long)]
    pub no_compare: bool,
    #[command(flatten)]
    pub reach: ClusterArgs,
}

/// Log of a service.
#[derive(Args, Clone, Debug)]
pub(crate) struct LoggingArgs {
    /// Log level: error, warn, info, debug, trace, or by part (info,exacat_server=debug)
    #[arg(long, value_name = "LEVEL", env = "EXACAT_LOG", default_value = "info")]
    pub log: String,
    /// Format of log lines
    #[arg(long, value_enum, default_value_t)]
    pub log_format: LogFormat,
    /// File that log lines are appended to, in place of standard error
    ///
    /// After a rotation SIGHUP makes the server open the file again. Lines that cannot be written, as
    /// on a full disk, are counted, and the service goes on.
    #[arg(long, value_name = "FILE")]
    pub log_file: Option<PathBuf>,
}

/// Format of log lines.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum LogFormat {
    /// For people; human means the same
    #[default]
    #[value(alias = "human")]
    Text,
    /// For machines
    Json,
}

/// `exacat serve`
#[derive(Args, Debug)]
#[command(after_help = "\
The data directory has everything: the catalogue, a certificate made at the
first start, the admin's token (admin.token, readable by its owner only) and
the socket for clients on this machine (exacat.sock). The server writes its
addresses to server.json there, and prints them when it is ready. SIGINT or
SIGTERM ends it, after the requests in flight.

Examples:
  exacat serve
  exacat serve --listen 127.0.0.1:0 --data ~/try --log debug
  exacat serve --data ~/fourth --log-file ~/exacat.log --log-format json
  exacat serve --listen 127.0.0.1:0 --http 127.0.0.1:0 --data ~/second
  exacat serve --http 0.0.0.0:7421 --http-plain=10.1.0.0/16
  exacat serve --listen 127.0.0.1:0 --data ~/third --history-keep 90d
  exacat serve --snapshot before-upgrade
  exacat serve --listen 0.0.0.0:7420 --name catalogue.example.org
  exacat serve --jalien 0.0.0.0:8097 --jalien-ca /etc/grid-security/certificates
  exacat serve --xrootd 0.0.0.0:1094 --anonymous-reads --networks /etc/networks
  exacat serve --store cassandra://db1,db2,db3/exacat --data /srv/exacat
  exacat serve --store cassandra://db1,db2,db3/exacat --filter 1GiB \\
      --fsck-rows 20000 --peers 192.0.2.7:7430
  exacat serve --store cassandra://db1/exacat --consistency quorum \\
      --store-ca ca.pem --store-user exacat --store-password-file pw")]
pub(crate) struct ServeArgs {
    /// Address of the native protocol over TLS; port 0 takes a free one; none disables it
    #[arg(
        long,
        value_name = "ADDRESS:PORT|none",
        default_value = "127.0.0.1:7420",
        default_value_if("snapshot", clap::builder::ArgPredicate::IsPresent, "none")
    )]
    pub listen: String,
    /// Address of HTTPS: web pages, the REST API, Prometheus metrics and health; port 0 takes a free
    /// one; none disables it
    #[arg(
        long,
        value_name = "ADDRESS:PORT|none",
        default_value = "none",
        default_missing_value = "127.0.0.1:7421",
        num_args = 0..=1
    )]
    pub http: String,
    /// Speak plain HTTP too with clients on this machine, and in the given networks
    /// (10.1.0.0/16,10.2.0.0/16)
    #[arg(
        long,
        value_name = "NETWORK",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "",
        value_delimiter = ','
    )]
    pub http_plain: Option<Vec<String>>,
    /// Origin of web pages that may use the REST API, beside this server's own: https://HOST[:PORT]
    #[arg(long, value_name = "ORIGIN", value_delimiter = ',')]
    pub http_origin: Vec<String>,
    /// Accepted authorities of client certificates over HTTPS, as --jalien-ca, which is the default
    #[arg(long, value_name = "PATH")]
    pub http_ca: Option<PathBuf>,
    /// File that maps certificates to users over HTTPS, as --jalien-map
    #[arg(long, value_name = "FILE", requires = "http_ca")]
    pub http_map: Option<PathBuf>,
    /// Address of the JAliEn protocol, for alien.py, over TLS; port 0 takes a free one; none
    /// disables it
    #[arg(long, value_name = "ADDRESS:PORT|none", default_value = "none")]
    pub jalien: String,
    /// Accepted authorities of JAliEn clients: a file in PEM, or a directory such as
    /// /etc/grid-security/certificates; without it, only tokens that this server issued are
    /// accepted
    #[arg(long, value_name = "PATH", requires = "jalien")]
    pub jalien_ca: Option<PathBuf>,
    /// File that maps certificates to users, in addition to the subjects of accounts: lines of
    /// "SUBJECT" USER
    #[arg(long, value_name = "FILE", requires = "jalien")]
    pub jalien_map: Option<PathBuf>,
    /// JAliEn home directory of users who have none of their own
    #[arg(long, value_name = "PATH", default_value = "/alice/cern.ch/user/{initial}/{user}")]
    pub jalien_home: String,
    /// Maximum lifetime of a JAliEn token
    #[arg(long, value_name = "DURATION", default_value = "31d")]
    pub jalien_token_lifetime_max: String,
    /// Address of the XRootD protocol (root://), for xrdcp, ROOT, uproot, gfal2 and XCache; port 0
    /// takes a free one; none disables it
    #[arg(long, value_name = "ADDRESS:PORT|none", default_value = "none")]
    pub xrootd: String,
    /// Name in redirections of XRootD clients to this server, if not the address they came to
    #[arg(long, value_name = "HOST", requires = "xrootd")]
    pub xrootd_name: Option<String>,
    /// Network whose XRootD clients are trusted to name the account they run as (unix:ACCOUNT); may
    /// be repeated
    #[arg(long, value_name = "NETWORK", requires = "xrootd")]
    pub xrootd_trust: Vec<String>,
    /// Second server of a storage element, asked for checksums of uploads in place of the first;
    /// may be repeated
    #[arg(long, value_name = "HOST:PORT=HOST:PORT", requires = "xrootd")]
    pub xrootd_checksums: Vec<String>,
    /// URL where storage elements find the public keys of envelopes, if not the address
    #[arg(long, value_name = "URL", alias = "jalien-issuer")]
    pub envelope_issuer: Option<String>,
    /// Lifetime of an envelope
    #[arg(long, value_name = "DURATION", default_value = "1h", alias = "jalien-envelope-lifetime")]
    pub envelope_lifetime: String,
    /// Authorities of storage elements' certificates: a file in PEM, in place of the system's. The
    /// server asks storage elements with an HTTPS URL
    #[arg(long, value_name = "FILE")]
    pub storage_ca: Option<PathBuf>,
    /// File that maps networks to sites: lines of NETWORK SITE (10.1.0.0/16 CERN), read again every
    /// minute. Clients get replicas near their site first
    #[arg(long, value_name = "FILE")]
    pub networks: Option<PathBuf>,
    /// Store of the catalogue: in the data directory, or on a Cassandra or ScyllaDB cluster. Any
    /// number of servers share a cluster, each with a data directory of its own
    #[arg(long, value_name = "embedded|cassandra://HOST,HOST/KEYSPACE", default_value = "embedded")]
    pub store: StoreArg,
    /// Serve a snapshot in the data directory read-only, even while the catalogue itself is served.
    /// Its socket is in views/NAME of the data directory. It listens nowhere else unless --listen
    /// is given
    #[arg(long, value_name = "NAME", conflicts_with = "store")]
    pub snapshot: Option<String>,
    /// Permit clients without a token to read what modes grant to others
    #[arg(long)]
    pub anonymous_reads: bool,
    /// No socket in the data directory
    #[arg(long)]
    pub no_socket: bool,
    /// Permissions of the socket: 666 admits other accounts of this machine that are users
    /// (uid:NUMBER)
    #[arg(long, value_name = "MODE", default_value = "600")]
    pub socket_mode: String,
    /// End with an error when the log of the embedded store fails, so that a supervisor restarts
    /// the server. Otherwise the server refuses changes and answers reads. The default is true
    /// under systemd, and false elsewhere
    #[arg(long, value_name = "true|false", num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    pub exit_on_log_failure: Option<bool>,
    /// Certificate instead of the self-signed one: its chain in PEM
    #[arg(long, value_name = "FILE", requires = "key")]
    pub certificate: Option<PathBuf>,
    /// Its private key in PEM
    #[arg(long, value_name = "FILE", requires = "certificate")]
    pub key: Option<PathBuf>,
    /// Further name or address in the self-signed certificate, when it is made; may be repeated
    #[arg(long)]
    pub name: Vec<String>,
    /// Time before removed entries are purged from the trash; never to keep them
    #[arg(long, value_name = "DURATION|never", default_value = "30d")]
    pub trash_keep: String,
    /// Maximum lead of the machine's clock over the time that has really passed
    ///
    /// A clock that is further ahead, when the catalogue is opened or later, dates no change and
    /// ends nothing. Purge, expiry and the removal of old history wait until the clock is right
    /// again or an operator confirms it: exacat clock confirm.
    #[arg(long, value_name = "DURATION", default_value = "1d")]
    pub clock_jump: String,
    /// Keep the history of elements: values by name and time, in the interface of InfluxDB on the HTTP
    /// listener
    #[arg(long)]
    pub history: bool,
    /// Make no room for the next segment of the history's log ahead
    ///
    /// Values then wait while the file system makes room for each 64 MiB. For a file system that copies
    /// on write, such as Btrfs or ZFS: it gains nothing from room that was made before.
    #[arg(long, requires = "history")]
    pub no_history_preallocation: bool,
    /// Archive old days of the history of elements as Parquet files in a directory or bucket
    ///
    /// A directory, or s3://BUCKET/PREFIX with the credentials of the environment: AWS_ACCESS_KEY_ID,
    /// AWS_SECRET_ACCESS_KEY, AWS_REGION, AWS_ENDPOINT_URL. A Delta log beside the files names those that
    /// count. Reads of old days continue through the archive. An archive has one owner: a history that was
    /// restored or cloned adopts it first, see exacat history adopt.
    #[arg(long, value_name = "DIR|s3://BUCKET/PREFIX", requires = "history")]
    pub history_archive: Option<String>,
    /// Age in whole UTC days after which a day is archived
    #[arg(long, value_name = "DAYS", default_value_t = 30, requires = "history_archive",
        value_parser = clap::value_parser!(u32).range(1..=36_500))]
    pub history_archive_after: u32,
    /// Answer a change only after so many followers have it durably too; 0 waits for none
    #[arg(long, value_name = "NUMBER", default_value_t = 0, value_parser = clap::value_parser!(u16).range(0..=64))]
    pub standby_acks: u16,
    /// Time after which a change is answered without followers that are away; without it changes
    /// wait for them
    #[arg(long, value_name = "DURATION", requires = "standby_acks")]
    pub standby_go_on: Option<String>,
    /// History of changes to keep: all, a number of days or weeks, or a size of log files
    ///
    /// The server removes older changes a whole log file at a time, the oldest first. Files that
    /// opening the catalogue needs, and the file being written, always stay. The catalogue itself
    /// loses nothing. `exacat log` then shows less, and a program that follows `exacat changes`
    /// must not fall behind further. On a cluster 50000 changes are removed together, and the limit
    /// is a number of days.
    #[arg(long, value_name = "all|DAYS|SIZE", default_value = "all")]
    pub history_keep: String,
    /// Memory for pages of the catalogue's files: 512MiB, 8GiB
    ///
    /// It speeds up repeated look-ups. Beside it the service takes about 0.3 GiB, 3 bytes for each
    /// file and 225 for each directory; `exacat status` shows memory by part.
    #[arg(long, value_name = "SIZE", default_value = "1GiB")]
    pub cache: String,
    /// Cluster only: memory for the Bloom filter of existing keys (5 bytes per file; 0B disables
    /// it)
    ///
    /// If the catalogue needs more, there is no filter: the server then reads the tables for each
    /// new name and GUID.
    #[arg(long, value_name = "SIZE", default_value = "64MiB")]
    pub filter: String,
    /// Cluster only: maximum rows that `exacat fsck` reads a second; 0 for no limit
    #[arg(long, value_name = "NUMBER", default_value_t = 100_000)]
    pub fsck_rows: u64,
    /// Cluster only: address where other servers reach this one: auto, off, or ADDRESS:PORT
    ///
    /// One of several servers carries out all changes. The others forward theirs to it, over TLS.
    /// They find each other in the catalogue. auto: this machine's address towards the cluster, at
    /// any free port.
    #[arg(long, value_name = "WHERE", default_value = "auto")]
    pub peers: PeersAt,
    /// Lifetime of an upload reservation if the client names none
    #[arg(long, value_name = "DURATION", default_value = "1d")]
    pub reservation_lifetime: String,
    /// Maximum lifetime of a token
    #[arg(long, value_name = "DURATION", default_value = "366d")]
    pub token_lifetime_max: String,
    /// Maximum connections over all protocols [default: 4096 if the system allows 4608 open files,
    /// else as many as there are files for]
    ///
    /// An idle connection takes up to 40 KB. One beyond the maximum gets the answer that the server
    /// is busy. Clients that have shown no credentials get 1024 of them, and 256 per address. The
    /// local socket has slots of its own.
    #[arg(long, value_name = "NUMBER")]
    pub connections: Option<usize>,
    /// Maximum connections of clients that have shown no credentials, anonymous ones included
    ///
    /// At most three quarters of all connections, so that clients with credentials find room.
    #[arg(long, value_name = "NUMBER", default_value_t = 1024)]
    pub unauthenticated: usize,
    /// Maximum connections without credentials per address (per /64 network with IPv6)
    ///
    /// Many clients behind one address that connect at the same moment, or read without
    /// credentials, need more.
    #[arg(long, value_name = "NUMBER", default_value_t = 256)]
    pub unauthenticated_per_address: usize,
    /// Time limit for a new client to show its credentials
    ///
    /// When many clients connect at once, as after a restart, each waits for the others: on a
    /// machine that is short of processors, take more.
    #[arg(long, value_name = "DURATION", default_value = "10s")]
    pub handshake_time: String,
    /// Memory for long answers that clients have not read yet, of all connections
    ///
    /// At this limit every connection continues with one small part at a time; short answers do not
    /// wait.
    #[arg(long, value_name = "SIZE", default_value = "256MiB")]
    pub unread: String,
    /// User whose share of the server counts NUMBER times as much; may be repeated
    #[arg(long, value_name = "USER=NUMBER")]
    pub weight: Vec<String>,
    /// Time that a stop waits for requests in flight
    #[arg(long, value_name = "DURATION", default_value = "10s")]
    pub stop_time: String,
    /// File that gets a line for each file that a client was sent to, or told the replicas of: time, name,
    /// size, checksum, site
    ///
    /// exacat replay import reads it. After a rotation SIGHUP makes the server open it again.
    #[arg(long, value_name = "FILE")]
    pub look_up_log: Option<PathBuf>,
    #[command(flatten)]
    pub logging: LoggingArgs,
    /// Collector of traces (OTLP over HTTP), as http://127.0.0.1:4318/v1/traces; only if the program was
    /// built with --features otel
    #[arg(long, value_name = "URL")]
    pub traces: Option<String>,
    /// Part of the requests that are traced, from 0 to 1, if their clients do not decide by the header
    /// traceparent
    #[arg(long, value_name = "RATIO", default_value_t = 0.01, requires = "traces")]
    pub trace_ratio: f64,
    #[command(flatten)]
    pub reach: ClusterArgs,
}

/// Parses an address to listen at, or `none`.
pub(crate) fn listener(text: &str) -> Result<Option<SocketAddr>, String> {
    if text == "none" {
        return Ok(None);
    }
    text.parse()
        .map(Some)
        .map_err(|_| format!("not an address to listen at (IP:PORT, [IPV6]:PORT or none): {text:?}"))
}

/// `exacat fsck`
#[derive(Args, Debug)]
#[command(after_help = "\
Recomputes every counter and every index from the entries and compares. The
running server does it beside its other work; --offline does it on a data
directory without a server, and reads every page of every file and every record
of the log as well. Exit status 25 (corrupt) if something is wrong.

--repair repairs a damaged catalogue. It takes a damaged part from a good copy
(in snapshots, or in the place that --from names), writes it again if it can
read all of it, or makes it again from an older state and the log. If it cannot
recover a part, it changes nothing, and lists the loss: then give a backup with
--from, or accept the loss with --accept-loss, which keeps the readable rest.
The replaced copy is kept whole; exacat never removes it.

Examples:
  exacat fsck
  exacat fsck --offline                     # server stopped
  exacat fsck --offline --repair
  exacat fsck --offline --repair --from ~/exacat-backup
  exacat --json fsck --offline --repair --accept-loss > lost.json")]
pub(crate) struct FsckArgs {
    /// Check the data directory itself; no server may run on it
    #[arg(long)]
    pub offline: bool,
    /// Repair damage
    #[arg(long, requires = "offline")]
    pub repair: bool,
    /// Directory of backups, or another data directory, that may have the damaged parts
    #[arg(long, value_name = "DIR", requires = "repair")]
    pub from: Option<PathBuf>,
    /// Accept the loss of entries that cannot be recovered; keep the rest
    #[arg(long, requires = "repair")]
    pub accept_loss: bool,
}

/// `exacat status`
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  exacat status
  exacat --json status")]
pub(crate) struct StatusArgs {}

/// `exacat sessions`
#[derive(Args, Debug)]
#[command(after_help = "\
Lists at most 1000 requests, the oldest first. The states are on the page of
states of requests. It takes the role operator or admin.

Examples:
  exacat sessions
  exacat --json sessions")]
pub(crate) struct SessionsArgs {
    #[command(subcommand)]
    pub command: Option<SessionsCommand>,
}

/// `exacat sessions`
#[derive(Subcommand, Debug)]
pub(crate) enum SessionsCommand {
    /// Cancel a request that the server works on
    ///
    /// A read ends at once. A change that was begun goes on to its end, because a half of it would
    /// be worse.
    #[command(after_help = "\
Examples:
  exacat sessions kill 1234")]
    Kill {
        /// Number of the request, as `exacat sessions` shows it
        id: u64,
    },
}

/// `exacat slow`
#[derive(Args, Debug)]
#[command(after_help = "\
Lists the last 1000 such requests since the start of the server, the last
first. Waits for the client do not count. It takes the role operator or admin.

Examples:
  exacat slow
  exacat --json slow | jq '.states'")]
pub(crate) struct SlowArgs {}

/// `exacat top`
#[derive(Args, Debug)]
#[command(after_help = "\
Keys: 1 to 9 and Tab choose the table, arrows scroll, < and > choose the column
to sort by, / filters rows, space pauses, r renews, + and - change the
interval, ? shows help, q ends. It reads only, and takes the role operator or
admin: a token for reading is enough.

Examples:
  exacat top --once
  exacat --json top --once | jq '.period.states[0]'")]
pub(crate) struct TopArgs {
    /// Time between two readings
    #[arg(long, value_name = "DURATION", default_value = "2s", value_parser = crate::parse::seconds)]
    pub interval: u64,
    /// Print one reading, and end
    #[arg(long)]
    pub once: bool,
}

/// `exacat report`
#[derive(Args, Debug)]
#[command(after_help = "\
The server keeps the sums of each second for two minutes, and those of each
minute for weeks. A report is of whole seconds or minutes, and tells which.
States that took most of the time come first; the page of states of requests
says what to do about each. It takes the role operator or admin.

A period is FROM..TO. A time is RFC 3339, a date, a duration before now, or
'now'.

Examples:
  exacat report
  exacat report --from 10m
  exacat report --from 2h --to 1h --html report.html
  exacat report 20m..10m 10m..now
  exacat --json report | jq -r '.findings[]'")]
pub(crate) struct ReportArgs {
    /// Beginning
    #[arg(long, value_name = "TIME", default_value = "1h", conflicts_with = "periods")]
    pub from: String,
    /// End
    #[arg(long, value_name = "TIME", default_value = "now", conflicts_with = "periods")]
    pub to: String,
    /// Write the report as one HTML page to FILE
    #[arg(long, value_name = "FILE")]
    pub html: Option<PathBuf>,
    /// Compare two periods, side by side
    #[arg(value_name = "PERIOD", num_args = 2)]
    pub periods: Vec<String>,
}

/// `exacat clock`
#[derive(Subcommand, Debug)]
pub(crate) enum ClockCommand {
    /// Show the machine's clock, and the time that dates changes
    #[command(after_help = "\
Examples:
  exacat clock show
  exacat --json clock show")]
    Show,
    /// Confirm that the machine's clock is right, although it is far ahead of the last change
    ///
    /// Purge, expiry and the removal of old history continue with the machine's clock. On a cluster
    /// one server takes the confirmation; the others follow with the first change that it dates.
    #[command(after_help = "\
Examples:
  exacat clock confirm")]
    Confirm,
}

/// `exacat completions`
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  source <(exacat completions bash)
  exacat completions zsh > ~/.zfunc/_exacat
  exacat completions fish > ~/.config/fish/completions/exacat.fish")]
pub(crate) struct CompletionsArgs {
    /// Shell
    #[arg(value_enum)]
    pub shell: clap_complete::Shell,
}

/// `exacat reference`
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  exacat reference docs/reference")]
pub(crate) struct ReferenceArgs {
    /// Directory for the pages
    pub directory: PathBuf,
}

/// `exacat bench`
#[derive(Args, Debug)]
#[command(after_help = "\
Starts a server on a temporary data directory, loads it over the network, then
does the same in this process without network. Load generator and server share
the machine; CPU time is that of both. The command ends the server and removes
its files. With --engine it fills the engine, looks up, lists, takes a
snapshot, reopens it, and serves it. It also shows the time that the disk takes
to overwrite 4 KiB.

Examples:
  exacat bench --entries 2k --in-process
  exacat bench --entries 2k --network --only whereis
  exacat --json bench --entries 2k --only stat --directory /var/tmp
  exacat bench --engine --entries 10k --only whereis
  systemd-run --scope -p MemoryMax=2G exacat bench --engine --entries 200M")]
pub(crate) struct BenchArgs {
    /// Files to register
    #[arg(long, value_name = "NUMBER", default_value = "1M")]
    pub entries: String,
    /// Measure the embedded engine by itself, instead of the catalogue
    #[arg(long)]
    pub engine: bool,
    /// Memory for the engine's page cache, such as 512MiB
    #[arg(long, value_name = "SIZE", requires = "engine")]
    pub cache: Option<String>,
    /// Measure over the network only
    #[arg(long, conflicts_with = "in_process")]
    pub network: bool,
    /// Measure in process only
    #[arg(long)]
    pub in_process: bool,
    /// Run only measurements whose name contains TEXT; first fills the catalogue for them
    #[arg(long, value_name = "TEXT")]
    pub only: Option<String>,
    /// Directory for temporary stores [default: the system's directory for temporary files]
    #[arg(long, value_name = "DIR")]
    pub directory: Option<PathBuf>,
    /// Compare with a server of another program, in turns
    #[arg(long, hide = true, value_name = "PROGRAM")]
    pub beside: Option<PathBuf>,
    /// Socket of an echo server that a measurement starts, to compare with
    #[arg(long, hide = true)]
    pub echo: Option<PathBuf>,
    /// Address of a bare HTTP server that a measurement starts, to compare with
    #[arg(long, hide = true, requires = "bare_bytes")]
    pub bare_http: Option<SocketAddr>,
    /// Bytes of its answers
    #[arg(long, hide = true, requires = "bare_http")]
    pub bare_bytes: Option<usize>,
}
