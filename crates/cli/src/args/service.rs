//! Commands that run and look after the service.

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum};
use exacat_store_cassandra::{CassandraSettings, ClusterAccess, PeersAt};

/// Where the catalogue's state is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum StoreArg {
    /// In the data directory
    #[default]
    Embedded,
    /// In memory: everything is gone when the server ends
    Memory,
    /// On a cluster
    Cassandra(Box<CassandraSettings>),
}

impl std::str::FromStr for StoreArg {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "embedded" => Ok(StoreArg::Embedded),
            "memory" => Ok(StoreArg::Memory),
            address if address.starts_with(CassandraSettings::SCHEME) => CassandraSettings::parse(address)
                .map(|cluster| StoreArg::Cassandra(Box::new(cluster)))
                .map_err(|error| error.message),
            other => Err(format!("embedded, memory or cassandra://HOST,HOST/KEYSPACE, not {other:?}")),
        }
    }
}

/// How the nodes of a cluster are reached, where they do not let everyone in
#[derive(Args, Clone, Debug, Default)]
#[command(next_help_heading = "Cluster")]
pub struct ClusterArgs {
    /// Speak TLS with the nodes, and believe those whose certificate an authority in FILE (PEM) signed for the address they are reached at
    #[arg(long, value_name = "FILE", env = "EXACAT_STORE_CA", hide_env_values = true)]
    pub store_ca: Option<PathBuf>,
    /// The certificate to show to nodes that ask for one: its chain in PEM
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
    /// The user of the cluster
    #[arg(
        long,
        value_name = "NAME",
        env = "EXACAT_STORE_USER",
        hide_env_values = true,
        requires = "store_password_file"
    )]
    pub store_user: Option<String>,
    /// The file with the user's password, which only its owner may read
    #[arg(
        long,
        value_name = "FILE",
        env = "EXACAT_STORE_PASSWORD_FILE",
        hide_env_values = true,
        requires = "store_user"
    )]
    pub store_password_file: Option<PathBuf>,
    /// The datacenter this machine is in, as the cluster calls it: its nodes are asked
    #[arg(long, value_name = "NAME", env = "EXACAT_STORE_DATACENTER", hide_env_values = true)]
    pub store_datacenter: Option<String>,
}

impl ClusterArgs {
    /// The cluster, reached so.
    pub fn reaching(&self, cluster: &CassandraSettings) -> CassandraSettings {
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
pub enum SchemaCommand {
    /// Make the tables of a catalogue on a cluster, with an empty catalogue in them
    #[command(after_help = "\
REPLICATION is what CQL takes, with the names of the cluster's datacenters;
three copies are right for nearly everyone. An attempt that was cut off can be
made again.

Examples:
  exacat schema create cassandra://db1,db2,db3/exacat \\
      --replication \"{'class': 'NetworkTopologyStrategy', 'dc1': 3}\"
  exacat schema create cassandra://db1/exacat --replication \"$REPLICATION\" \\
      --store-ca ca.pem --store-user admin --store-password-file pw")]
    Create {
        /// The cluster and the keyspace: cassandra://HOST,HOST/KEYSPACE
        #[arg(value_name = "CLUSTER", value_parser = CassandraSettings::parse)]
        cluster: CassandraSettings,
        /// How often, and where, everything is kept
        #[arg(long, value_name = "REPLICATION")]
        replication: String,
        #[command(flatten)]
        reach: Box<ClusterArgs>,
    },
    /// Show which version of the tables there is; exit status 0 if this program can serve them
    #[command(after_help = "\
Examples:
  exacat schema check cassandra://db1,db2,db3/exacat
  exacat --json schema check cassandra://db1/exacat")]
    Check {
        /// The cluster and the keyspace: cassandra://HOST,HOST/KEYSPACE
        #[arg(value_name = "CLUSTER", value_parser = CassandraSettings::parse)]
        cluster: CassandraSettings,
        #[command(flatten)]
        reach: Box<ClusterArgs>,
    },
    /// Bring the tables to the version of this program
    #[command(after_help = "\
Examples:
  exacat schema upgrade cassandra://db1,db2,db3/exacat")]
    Upgrade {
        /// The cluster and the keyspace: cassandra://HOST,HOST/KEYSPACE
        #[arg(value_name = "CLUSTER", value_parser = CassandraSettings::parse)]
        cluster: CassandraSettings,
        #[command(flatten)]
        reach: Box<ClusterArgs>,
    },
}

/// A catalogue that no server serves while it is copied.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PlaceArg {
    /// In a data directory
    Embedded(PathBuf),
    /// On a cluster
    Cassandra(Box<CassandraSettings>),
}

impl PlaceArg {
    /// The same place; a cluster reached so.
    pub fn reached(&self, reach: &ClusterArgs) -> PlaceArg {
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
Everything comes along as it was: numbers, revisions, times, history, trash,
bookings, deletion queues, accounts, tokens. For that the history must be kept
from the first change on. The servers of both catalogues are stopped first. The
other catalogue is new (for a cluster: exacat schema create), or one that a
copy from here was begun into: then it goes on where that ended. At the end
both are read and compared: the tree by its digest, the rest item by item.

Examples:
  exacat copy --from embedded:$HOME/.local/share/exacat --to embedded:copied
  exacat copy --from embedded:/srv/exacat --to cassandra://db1,db2,db3/exacat
  exacat copy --from cassandra://db1,db2,db3/exacat --to embedded:/srv/new
  exacat copy --from embedded:/srv/exacat --to cassandra://db1/exacat \\
      --store-ca ca.pem --store-user exacat --store-password-file pw")]
pub struct CopyArgs {
    /// What is copied: embedded:DIR, or cassandra://HOST,HOST/KEYSPACE
    #[arg(long, value_name = "STORE")]
    pub from: PlaceArg,
    /// Where to: the same
    #[arg(long, value_name = "STORE")]
    pub to: PlaceArg,
    /// Do not compare both at the end
    #[arg(long)]
    pub no_compare: bool,
    #[command(flatten)]
    pub reach: ClusterArgs,
}

/// How the log looks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum LogFormat {
    /// For people
    #[default]
    Text,
    /// For machines
    Json,
}

/// `exacat serve`
#[derive(Args, Debug)]
#[command(after_help = "\
The data directory holds everything: the catalogue, a certificate made at the
first start, the admin's token (admin.token, readable by its owner only) and
the socket for clients on this machine (exacat.sock). Where it listens stands
in server.json there, and is printed when it is ready. SIGINT or SIGTERM ends
it: requests in flight are finished first.

Examples:
  exacat serve
  exacat serve --listen 127.0.0.1:0 --store memory --data ~/try --log debug
  exacat serve --listen 127.0.0.1:0 --metrics 127.0.0.1:0 --data ~/second
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
pub struct ServeArgs {
    /// Where to speak the native protocol over TLS; port 0 takes a free one; none for nowhere
    #[arg(
        long,
        value_name = "ADDRESS:PORT|none",
        default_value = "127.0.0.1:7420",
        default_value_if("snapshot", clap::builder::ArgPredicate::IsPresent, "none")
    )]
    pub listen: String,
    /// Where to serve Prometheus metrics and health over HTTP; port 0 takes a free one; none for nowhere
    #[arg(long, value_name = "ADDRESS:PORT|none", default_value = "none")]
    pub metrics: String,
    /// Where to speak the protocol of JAliEn, for alien.py, over TLS; port 0 takes a free one; none for nowhere
    #[arg(long, value_name = "ADDRESS:PORT|none", default_value = "none")]
    pub jalien: String,
    /// Authorities whose certificates are accepted there: a file in PEM, or a directory as /etc/grid-security/certificates; without,
    /// only tokens that this server issued are
    #[arg(long, value_name = "PATH", requires = "jalien")]
    pub jalien_ca: Option<PathBuf>,
    /// Which users certificates stand for, beside the subjects that accounts have: lines of "SUBJECT" USER
    #[arg(long, value_name = "FILE", requires = "jalien")]
    pub jalien_map: Option<PathBuf>,
    /// The home directory there of users who have none of their own
    #[arg(long, value_name = "PATH", default_value = "/alice/cern.ch/user/{initial}/{user}")]
    pub jalien_home: String,
    /// How long a token issued there may last
    #[arg(long, value_name = "DURATION", default_value = "31d")]
    pub jalien_token_lifetime_max: String,
    /// Where to speak the protocol of XRootD (root://), for xrdcp, ROOT, uproot, gfal2 and XCache; port 0 takes a free one; none
    /// for nowhere
    #[arg(long, value_name = "ADDRESS:PORT|none", default_value = "none")]
    pub xrootd: String,
    /// The name under which clients come back there, if not the address they came to
    #[arg(long, value_name = "HOST", requires = "xrootd")]
    pub xrootd_name: Option<String>,
    /// A network whose clients are believed there when they say which account they run as (unix:ACCOUNT); may be repeated
    #[arg(long, value_name = "NETWORK", requires = "xrootd")]
    pub xrootd_trust: Vec<String>,
    /// Second server of a storage element, asked for checksums of uploads in place of the first; may be
    /// repeated
    #[arg(long, value_name = "HOST:PORT=HOST:PORT", requires = "xrootd")]
    pub xrootd_checksums: Vec<String>,
    /// The URL under which storage elements find the public keys of envelopes, if not the address
    #[arg(long, value_name = "URL", alias = "jalien-issuer")]
    pub envelope_issuer: Option<String>,
    /// How long an envelope may be shown to a storage element
    #[arg(long, value_name = "DURATION", default_value = "1h", alias = "jalien-envelope-lifetime")]
    pub envelope_lifetime: String,
    /// Which sites networks are at: lines of NETWORK SITE (10.1.0.0/16 CERN), looked at again every minute. What is near
    /// a client's site is read first
    #[arg(long, value_name = "FILE")]
    pub networks: Option<PathBuf>,
    /// Where the catalogue's state is: in the data directory, in memory (gone when the server ends), or on a Cassandra or
    /// ScyllaDB cluster, which any number of servers share, each with a data directory of its own
    #[arg(long, value_name = "embedded|memory|cassandra://HOST,HOST/KEYSPACE", default_value = "embedded")]
    pub store: StoreArg,
    /// Serve a snapshot of the catalogue in the data directory, for reading, also while the catalogue itself is served; its
    /// socket is in views/NAME of the data directory, and it listens nowhere else unless --listen is given
    #[arg(long, value_name = "NAME", conflicts_with = "store")]
    pub snapshot: Option<String>,
    /// Those without a token may read what modes give to others
    #[arg(long)]
    pub anonymous_reads: bool,
    /// No socket in the data directory
    #[arg(long)]
    pub no_socket: bool,
    /// Permissions of the socket: 666 lets in other accounts of this machine that are users (uid:NUMBER)
    #[arg(long, value_name = "MODE", default_value = "600")]
    pub socket_mode: String,
    /// End with an error when the log of the embedded store fails, so that a supervisor starts the
    /// server again; otherwise it refuses changes and answers reads. The default is true under
    /// systemd, and false elsewhere
    #[arg(long, value_name = "true|false", num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    pub exit_on_log_failure: Option<bool>,
    /// A certificate to use instead of the self-signed one: its chain in PEM
    #[arg(long, value_name = "FILE", requires = "key")]
    pub certificate: Option<PathBuf>,
    /// Its private key in PEM
    #[arg(long, value_name = "FILE", requires = "certificate")]
    pub key: Option<PathBuf>,
    /// A further name or address in the self-signed certificate, when it is made; may be repeated
    #[arg(long)]
    pub name: Vec<String>,
    /// How long what was removed stays in the trash before it is purged by itself; never to keep it
    #[arg(long, value_name = "DURATION|never", default_value = "30d")]
    pub trash_keep: String,
    /// Maximum lead of the machine's clock over the time that has really passed
    ///
    /// A clock that is further ahead, when the catalogue is opened or later, dates no change and ends
    /// nothing: purge, expiry and the removal of old history wait until the clock is right again or an
    /// operator says that it is: exacat clock confirm.
    #[arg(long, value_name = "DURATION", default_value = "1d")]
    pub clock_jump: String,
    /// How much of the history of changes is kept: all, a number of days or weeks, or a size of log files
    ///
    /// Older changes are removed a whole log file at a time, the oldest first; what opening the catalogue needs, and the
    /// file being written, always stay. The catalogue itself loses nothing. `exacat log` then tells less, and a program
    /// that follows `exacat changes` must not fall behind further. On a cluster 50000 changes go together, and what is kept is said in days.
    #[arg(long, value_name = "all|DAYS|SIZE", default_value = "all")]
    pub history_keep: String,
    /// Memory for what was read from the catalogue's files: 512MiB, 8GiB
    ///
    /// It speeds up look-ups of what was looked up before. Beside it the service takes about 0.3 GiB, 3 bytes for each file and
    /// 225 for each directory; `exacat status` shows memory by part.
    #[arg(long, value_name = "SIZE", default_value = "1GiB")]
    pub cache: String,
    /// On a cluster: memory for knowing of what is new that it is new, 5 bytes for each file; 0B for none
    ///
    /// With less than the catalogue needs there is none: each new name and GUID is looked for in the tables then.
    #[arg(long, value_name = "SIZE", default_value = "64MiB")]
    pub filter: String,
    /// On a cluster: rows that a check of everything (`exacat fsck`) reads a second, at most; 0 for as many as it can
    #[arg(long, value_name = "NUMBER", default_value_t = 100_000)]
    pub fsck_rows: u64,
    /// On a cluster: where other servers of it reach this one: auto, off, or ADDRESS:PORT
    ///
    /// Of several servers one carries out all changes, and the others hand theirs to it, over TLS; they find each other in the
    /// catalogue. auto: at the address this machine has towards the cluster, at any free port.
    #[arg(long, value_name = "WHERE", default_value = "auto")]
    pub peers: PeersAt,
    /// How long an upload stays booked if the client does not say
    #[arg(long, value_name = "DURATION", default_value = "1d")]
    pub booking_lifetime: String,
    /// How long a token may last
    #[arg(long, value_name = "DURATION", default_value = "366d")]
    pub token_lifetime_max: String,
    /// Connections at once, over all protocols: 4096, if the system allows 4608 open files, or else as many as there are files for
    ///
    /// Each takes up to 40 KB while nothing is asked. One more is told that the server is busy. Clients
    /// that have shown no credentials get 1024 of them, and 256 by address. The local socket has slots
    /// of its own.
    #[arg(long, value_name = "NUMBER")]
    pub connections: Option<usize>,
    /// Connections of clients that have shown no credentials, anonymous ones included
    ///
    /// At most three quarters of all connections, so that clients with credentials find room.
    #[arg(long, value_name = "NUMBER", default_value_t = 1024)]
    pub unauthenticated: usize,
    /// The same, of one address (of one /64 network with IPv6)
    ///
    /// Many clients behind one address that connect at the same moment, or read without credentials,
    /// need more.
    #[arg(long, value_name = "NUMBER", default_value_t = 256)]
    pub unauthenticated_per_address: usize,
    /// How long a client may take from connecting to having shown who it is
    ///
    /// When many come at once, as after a restart, each waits for the others: on a machine that is short of processors, take more.
    #[arg(long, value_name = "DURATION", default_value = "10s")]
    pub handshake_time: String,
    /// Memory for long answers that clients asked for and have not read yet, of all connections
    ///
    /// When so much is held, every connection goes on with one small part at a time; short answers do not wait.
    #[arg(long, value_name = "SIZE", default_value = "256MiB")]
    pub unread: String,
    /// A user whose share of the server counts NUMBER times as much; may be repeated
    #[arg(long, value_name = "USER=NUMBER")]
    pub weight: Vec<String>,
    /// How long a stop waits for requests in flight
    #[arg(long, value_name = "DURATION", default_value = "10s")]
    pub stop_time: String,
    /// What is logged: error, warn, info, debug, trace, or by part (info,exacat_server=debug)
    #[arg(long, value_name = "LEVEL", env = "EXACAT_LOG", default_value = "info")]
    pub log: String,
    /// How the log looks
    #[arg(long, value_enum, default_value_t)]
    pub log_format: LogFormat,
    #[command(flatten)]
    pub reach: ClusterArgs,
}

/// An address to listen at, or `none`.
pub fn listener(text: &str) -> Result<Option<SocketAddr>, String> {
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

--repair makes a damaged catalogue whole again. What is damaged is taken from a
good copy if there is one (in snapshots, in what --from names), written anew if
all of it can be read, or made again from an older state and the log. If
something cannot be had again, nothing is changed, and what would be lost is
listed: then give a backup with --from, or accept the loss with --accept-loss,
which keeps all that can be read. What was there before is set aside, whole,
and never removed by itself.

Examples:
  exacat fsck
  exacat fsck --offline                     # server stopped
  exacat fsck --offline --repair
  exacat fsck --offline --repair --from ~/exacat-backup
  exacat --json fsck --offline --repair --accept-loss > lost.json")]
pub struct FsckArgs {
    /// On the data directory itself; no server may be running on it
    #[arg(long)]
    pub offline: bool,
    /// Make what is damaged whole again
    #[arg(long, requires = "offline")]
    pub repair: bool,
    /// A directory of backups, or another data directory, that may have what is damaged
    #[arg(long, value_name = "DIR", requires = "repair")]
    pub from: Option<PathBuf>,
    /// Lose what cannot be had again, and keep the rest
    #[arg(long, requires = "repair")]
    pub accept_loss: bool,
}

/// `exacat status`
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  exacat status
  exacat --json status")]
pub struct StatusArgs {}

/// `exacat clock`
#[derive(Subcommand, Debug)]
pub enum ClockCommand {
    /// Show the machine's clock, and the time that changes are dated with
    #[command(after_help = "\
Examples:
  exacat clock show
  exacat --json clock show")]
    Show,
    /// Say that the machine's clock is right, although it is far ahead of the last change
    ///
    /// Purge, expiry and the removal of old history go on with the machine's clock. On a cluster this
    /// is said to one server; the others follow with the first change that it dates.
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
pub struct CompletionsArgs {
    /// For which shell
    #[arg(value_enum)]
    pub shell: clap_complete::Shell,
}

/// `exacat bench`
#[derive(Args, Debug)]
#[command(after_help = "\
Starts a server of its own on a temporary data directory, loads it over the
network, then does the same in this process without network. Load generator and
server share the machine; CPU time is that of both. Ends what it started and
removes what it wrote. Of the engine: fills it, looks up, lists, takes a
snapshot, opens it again, and serves it; beside the fill it says what the disk
itself takes to overwrite 4 KiB.

Examples:
  exacat bench --entries 2k --in-process
  exacat bench --entries 2k --network --only whereis
  exacat --json bench --entries 2k --only stat --directory /var/tmp
  exacat bench --engine --entries 10k --only whereis
  systemd-run --scope -p MemoryMax=2G exacat bench --engine --entries 200M")]
pub struct BenchArgs {
    /// Files to register
    #[arg(long, value_name = "NUMBER", default_value = "1M")]
    pub entries: String,
    /// The embedded engine by itself, instead of the catalogue
    #[arg(long)]
    pub engine: bool,
    /// Memory for pages that the engine has read, as 512MiB
    #[arg(long, value_name = "SIZE", requires = "engine")]
    pub cache: Option<String>,
    /// Only over the network
    #[arg(long, conflicts_with = "in_process")]
    pub network: bool,
    /// Only in process
    #[arg(long)]
    pub in_process: bool,
    /// Only measurements whose name has TEXT in it; the catalogue is filled for them first
    #[arg(long, value_name = "TEXT")]
    pub only: Option<String>,
    /// Where temporary stores are made [default: the system's place for temporary files]
    #[arg(long, value_name = "DIR")]
    pub directory: Option<PathBuf>,
    /// What a measurement starts to compare with: an echo at this socket
    #[arg(long, hide = true)]
    pub echo: Option<PathBuf>,
}
