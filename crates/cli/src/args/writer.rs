//! Commands of the writer service.

use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4};
use std::path::PathBuf;

use clap::{Args, Subcommand};

use super::LoggingArgs;

/// `exacat writer`
#[derive(Debug, Subcommand)]
pub(crate) enum WriterCommand {
    /// Run a writer service on this machine
    #[command(after_help = "\
Producers send events; the service answers once they are on disk. A file that is
whole becomes visible in the catalogue, with its checksum and its tags. The
service makes files for others, so it must be an administrator of the catalogue.
Its storage element must exist there.

Examples:
  exacat se add DEMO::DAQ::WRITER --prefix http://127.0.0.1:27780/content
  exacat writer serve --volume ~/daq --se DEMO::DAQ::WRITER
  exacat writer serve --volume ~/daq1 --se DEMO::DAQ::WRITER \\
      --listen 127.0.0.1:0 --http 127.0.0.1:0
  exacat writer serve --volume ~/daq3 --se DEMO::DAQ::WRITER \\
      --listen 127.0.0.1:0 --http 127.0.0.1:0 --seeds 127.0.0.1:27700
  exacat writer serve --volume /daq1 --volume /daq2 --se DEMO::DAQ::WRITER \\
      --listen 0.0.0.0:27700 --address daq1.example.org:27700 \\
      --plain 10.1.0.0/16 --catalogue exacat://catalogue.example.org:7420")]
    Serve(Box<WriterServeArgs>),
    /// Write a file by the writer service: each line or piece is an event
    #[command(after_help = "\
The command ends once the file is in the catalogue. If its time is over before,
the outcome is unknown: the file may still become visible.

Examples:
  exacat writer put /demo/daq/notes files.tsv --tag detector=hv
  exacat whoami | exacat writer put /demo/daq/whoami - --run 7
  exacat writer put /data/raw/f1 f1 --service daq1.example.org:27700 \\
      --service-ca ca.pem --client-certificate daq.pem --client-key daq.key")]
    Put(WriterPutArgs),
    /// Generate a load of events, and show what the services do with it
    #[command(after_help = "\
Each producer has connections of its own, and writes its streams in turn. An
event of at least 16 bytes begins with its length (u32), the numbers of its
producer (u16) and stream (u16), and its number in the stream (u64),
little-endian; the rest are the bytes that follow from its number. So a reader
can prove that each event is there once, in order.

Examples:
  exacat writer produce --below /demo/load --producers 2 --events 2000
  exacat --json writer produce --below /demo/load --size 1..64KiB --bytes 32MiB
  exacat writer produce --below /demo/load --rate 500 --seconds 1 --run 42")]
    Produce(Box<WriterProduceArgs>),
    /// Show the state of a service
    #[command(after_help = "\
Examples:
  exacat writer status
  exacat --json writer status")]
    Status(AtService),
    /// Show the services that a service knows, and their load
    #[command(after_help = "\
Examples:
  exacat writer table")]
    Table(AtService),
    /// List files of a service that are not in the catalogue, with the reasons, or others
    #[command(after_help = "\
Examples:
  exacat writer files
  exacat writer files --stage certified --limit 20")]
    Files {
        /// Stage: open, closed, certified, staged, removed, failed [default: open, closed and
        /// failed]
        #[arg(long, value_name = "STAGE")]
        stage: Option<String>,
        /// Maximum number of files
        #[arg(long, value_name = "NUMBER", default_value_t = 1000)]
        limit: usize,
        #[command(flatten)]
        at: AtService,
    },
    /// Write the bytes of a file from the services that have it
    #[command(after_help = "\
The services check each chunk against its checksum. With --open also a file that
is being written: its beginning that is on disk, without a gap. Such a file may
still fail to be certified.

Examples:
  exacat writer cat /demo/daq/notes
  exacat writer cat /demo/daq/notes --from 10 > rest")]
    Cat {
        /// Name of a certified file, or the id of one that is not in the catalogue
        #[arg(value_name = "LFN|ID")]
        file: String,
        /// First byte
        #[arg(long, value_name = "BYTE", default_value_t = 0)]
        from: u64,
        /// Also a file that is being written
        #[arg(long)]
        open: bool,
        #[command(flatten)]
        at: AtService,
    },
    /// Write a file from its parts to a new local file, and check it
    #[command(after_help = "\
The file has its name only once everything is there, durable and read back.

Examples:
  exacat writer merge /demo/daq/notes notes.copy")]
    Merge {
        /// Name of a certified file, or its id
        #[arg(value_name = "LFN|ID")]
        file: String,
        /// File to make
        #[arg(value_name = "PATH")]
        to: PathBuf,
        #[command(flatten)]
        at: AtService,
    },
    /// Copy certified files to another storage element now: all of a service, or some
    #[command(after_help = "\
The service copies each file that it certified to the place of the storage
element, verifies the copy, registers it, and then may remove its own bytes
(--remove-after, --remove-below). A service with --stage-out copies by itself,
and to that storage element only; any other one takes the place from the
catalogue: a root:// URL (by xrdcp) or a file:/// directory.

The result of a file is copied, there (an earlier copy is whole), failed, or
left (not certified by this service). The exit status is 0 if each wanted file
is on the storage element; without a name, files that are not certified are
left. Ctrl-C ends the command only: copies on the way go on. A repeated call
ends the work.

Examples:
  exacat se add DEMO::DAQ::DISK --prefix \"file://$HOME/disk\"
  exacat writer stage-out --to DEMO::DAQ::DISK
  exacat writer stage-out --to DEMO::DAQ::DISK /demo/load /demo/daq/notes
  exacat --json writer stage-out --to DEMO::DAQ::DISK /demo/daq/notes")]
    StageOut(WriterStageOutArgs),
    /// Remove the bytes of a certified file from the services; the catalogue keeps its replica
    #[command(after_help = "\
Services remove files by themselves once they are copied (--remove-after,
--remove-below). This is for files that nobody needs: drop the replica, too.

Examples:
  exacat writer rm 3f9a1c00d2e14b6f8a7b9c0d1e2f3a4b")]
    Rm {
        /// Id of the file: its GUID without dashes
        #[arg(value_name = "ID")]
        file: String,
        #[command(flatten)]
        at: AtService,
    },
    /// Let a service take no more files; producers move at the ends of theirs
    #[command(after_help = "\
Examples:
  exacat writer drain
  exacat writer resume")]
    Drain(AtService),
    /// Let a service take files again
    #[command(after_help = "\
Examples:
  exacat writer resume")]
    Resume(AtService),
    /// Check volumes that no service has open: their files against their index
    #[command(after_help = "\
Changes nothing, also not on a disk that is mounted read-only. Each fault has
its file, its part and the next step. Exit status 25 (corrupt) if something is
wrong. Files that the index does not name are listed; they are no fault, for
nobody has an acknowledgement for their bytes.

Examples:
  exacat writer fsck --volume ~/daq1
  exacat writer fsck --volume ~/daq1 --volume ~/daq3 --read
  exacat --json writer fsck --volume ~/daq1 --read")]
    Fsck(WriterFsckArgs),
    /// Give the volume of a lost service to another service, which need not be stopped
    #[command(after_help = "\
For the disk of a broken machine that was put into another one. The command
shows the content of the volume, and changes its owner with --yes. The other
service takes the volume at its next start, with one more --volume: it certifies
the files, shows them to readers, and copies them on. The former service must
not run on the volume any more.

Examples:
  exacat writer adopt --volume ~/daq1 --service-of ~/daq3 --yes
  exacat --json writer adopt --volume ~/daq1 --service-of ~/daq3 --yes")]
    Adopt(WriterAdoptArgs),
}

/// `exacat writer stage-out`
#[derive(Args, Clone, Debug)]
pub(crate) struct WriterStageOutArgs {
    /// Files: a name, the directory that they are below, or an id [default: all certified files]
    #[arg(value_name = "LFN|ID")]
    pub files: Vec<String>,
    /// Storage element that gets the copies
    #[arg(long, value_name = "NAME")]
    pub to: String,
    #[command(flatten)]
    pub at: AtService,
}

/// `exacat writer fsck`
#[derive(Args, Clone, Debug)]
pub(crate) struct WriterFsckArgs {
    /// Directory of a volume; may be repeated
    #[arg(long, value_name = "PATH", required = true)]
    pub volume: Vec<PathBuf>,
    /// Also read every byte, and compare it with its checksum
    #[arg(long)]
    pub read: bool,
}

/// `exacat writer adopt`
#[derive(Args, Clone, Debug)]
pub(crate) struct WriterAdoptArgs {
    /// Directory of the volume to give
    #[arg(long, value_name = "PATH")]
    pub volume: PathBuf,
    /// Service that gets it: the directory of one of its volumes, or its id
    #[arg(long, value_name = "PATH|ID")]
    pub service_of: String,
    /// Change the owner of the volume
    #[arg(long)]
    pub yes: bool,
}

/// A service to ask.
#[derive(Args, Clone, Debug, Default)]
pub(crate) struct AtService {
    /// HTTP address of the service [default: that of this machine]
    #[arg(long, value_name = "URL", env = "EXACAT_WRITER_URL")]
    pub at: Option<String>,
}

/// Services that a producer begins with.
#[derive(Args, Clone, Debug)]
pub(crate) struct ToServices {
    /// Services to begin with: HOST:PORT,HOST:PORT; they name the others [default: that of this
    /// machine]
    #[arg(long, value_name = "HOST:PORT", value_delimiter = ',', env = "EXACAT_WRITER")]
    pub service: Vec<String>,
    /// Authorities of the services' certificates (PEM): connect with TLS
    #[arg(long, value_name = "FILE")]
    pub service_ca: Option<PathBuf>,
    /// Certificate that proves the producer where no token is given: its chain in PEM
    #[arg(long, value_name = "FILE", requires = "client_key", requires = "service_ca")]
    pub client_certificate: Option<PathBuf>,
    /// Its private key in PEM
    #[arg(long, value_name = "FILE", requires = "client_certificate")]
    pub client_key: Option<PathBuf>,
    /// Run of the data taking
    #[arg(long, value_name = "NAME", default_value = "0")]
    pub run: String,
    /// Memory for events that are not on disk yet
    #[arg(long, value_name = "SIZE", default_value = "256MiB")]
    pub memory: String,
}

/// `exacat writer put`
#[derive(Args, Clone, Debug)]
pub(crate) struct WriterPutArgs {
    /// Name of the file in the catalogue
    #[arg(value_name = "LFN")]
    pub lfn: String,
    /// File to write; - for standard input
    #[arg(value_name = "FILE", default_value = "-")]
    pub file: PathBuf,
    /// Tag of the file; may be repeated
    #[arg(long, value_name = "KEY=VALUE")]
    pub tag: Vec<String>,
    /// Name of the stream
    #[arg(long, value_name = "NAME", default_value = "put")]
    pub stream: String,
    /// Bytes of an event
    #[arg(long, value_name = "SIZE", default_value = "1MiB")]
    pub event: String,
    #[command(flatten)]
    pub to: ToServices,
}

/// `exacat writer produce`
#[derive(Args, Clone, Debug)]
pub(crate) struct WriterProduceArgs {
    /// Directory of the files
    #[arg(long, value_name = "LFN")]
    pub below: String,
    /// Producers, each with its own connections and memory
    #[arg(long, value_name = "NUMBER", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=256))]
    pub producers: u16,
    /// Streams of each producer, each with a file at a time
    #[arg(long, value_name = "NUMBER", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=256))]
    pub streams: u16,
    /// Bytes of an event, or a range: 100, 1..2MiB (each power of two as often)
    #[arg(long, value_name = "SIZE", default_value = "30kB")]
    pub size: String,
    /// Events of all producers together
    #[arg(long, value_name = "NUMBER")]
    pub events: Option<u64>,
    /// Bytes of all producers together
    #[arg(long, value_name = "SIZE")]
    pub bytes: Option<String>,
    /// Time
    #[arg(long, value_name = "SECONDS")]
    pub seconds: Option<u64>,
    /// Events a second of all producers together [default: as many as the services take]
    #[arg(long, value_name = "NUMBER")]
    pub rate: Option<u64>,
    /// Bytes after which a file ends
    #[arg(long, value_name = "SIZE", default_value = "2GB")]
    pub file_bytes: String,
    /// Events after which a file ends
    #[arg(long, value_name = "NUMBER")]
    pub file_events: Option<u64>,
    #[command(flatten)]
    pub to: ToServices,
}

/// `exacat writer serve`
#[derive(Args, Clone, Debug)]
pub(crate) struct WriterServeArgs {
    /// Directory for the bytes of files, on a disk of its own; may be repeated
    #[arg(long, value_name = "PATH", required = true)]
    pub volume: Vec<PathBuf>,
    /// Storage element whose replicas these files are
    #[arg(long, value_name = "NAME")]
    pub se: String,
    /// Catalogue, as --server
    #[arg(long, value_name = "URL")]
    pub catalogue: Option<String>,
    /// Address for producers; port 0 takes a free one
    #[arg(long, value_name = "ADDRESS:PORT", default_value = "127.0.0.1:27700")]
    pub listen: SocketAddr,
    /// Host and port that producers connect to, if not the address
    #[arg(long, value_name = "HOST:PORT")]
    pub address: Option<String>,
    /// Address of HTTP: state, metrics, content of files; port 0 takes a free one; none disables it
    #[arg(long, value_name = "ADDRESS:PORT|none", default_value = "127.0.0.1:27780")]
    pub http: String,
    /// URL of HTTP in the replicas of files, if not the address
    #[arg(long, value_name = "URL")]
    pub http_url: Option<String>,
    /// Memory for bytes that are not on disk yet
    #[arg(long, value_name = "SIZE", default_value = "512MiB")]
    pub memory: String,
    /// Age at which bytes are written that fill no block of 1 MiB
    #[arg(long, value_name = "DURATION", default_value = "8ms")]
    pub flush: String,
    /// Free space below which a volume takes no file
    #[arg(long, value_name = "SIZE", default_value = "1GiB")]
    pub free_min: String,
    /// Time without its producer after which a part of a file ends
    #[arg(long, value_name = "DURATION", default_value = "1m")]
    pub orphan: String,
    /// Take over volumes of another service, which must not run any more
    #[arg(long)]
    pub adopt: bool,
    /// Directory of a shared file system with the volumes of all services: this one runs those that are gone
    #[arg(long, value_name = "PATH")]
    pub shared: Option<PathBuf>,
    /// Time without another service after which this one runs it on its shared volumes
    #[arg(long, value_name = "DURATION", default_value = "10s", requires = "shared")]
    pub takeover_after: String,
    /// Other services to find: HOST:PORT,HOST:PORT; this one may be among them
    #[arg(long, value_name = "HOST:PORT", value_delimiter = ',')]
    pub seeds: Vec<String>,
    /// Multicast group in which services find each other, as 239.255.77.1:27700
    #[arg(long, value_name = "GROUP:PORT")]
    pub group: Option<SocketAddrV4>,
    /// Address of the interface for the group [default: that of the default route]
    #[arg(long, value_name = "ADDRESS", requires = "group")]
    pub interface: Option<Ipv4Addr>,
    /// Name of the installation; services of others are ignored
    #[arg(long, value_name = "NAME", default_value = "exacat")]
    pub cluster: String,
    /// Authorities of the certificates of services (PEM). Services in networks with --plain need none
    #[arg(long, value_name = "FILE", requires = "certificate", requires = "service_name")]
    pub service_ca: Option<PathBuf>,
    /// Name in the certificate of a service; may be repeated
    #[arg(long, value_name = "HOST", value_delimiter = ',', requires = "service_ca")]
    pub service_name: Vec<String>,
    /// Silence after which another service counts as gone
    #[arg(long, value_name = "DURATION", default_value = "3s")]
    pub gone: String,
    /// Storage element that certified files are copied to
    #[arg(long, value_name = "NAME", requires = "stage_prefix")]
    pub stage_out: Option<String>,
    /// Place of the copies: root://HOST:PORT//DIRECTORY (by xrdcp) or file:///DIRECTORY
    #[arg(long, value_name = "URL", requires = "stage_out")]
    pub stage_prefix: Option<String>,
    /// Files that are copied at once
    #[arg(long, value_name = "NUMBER", default_value_t = 4, value_parser = clap::value_parser!(u16).range(1..=64))]
    pub stage_files: u16,
    /// Most bytes a second that are read for copies [default: no bound]
    #[arg(long, value_name = "SIZE", requires = "stage_out")]
    pub stage_rate: Option<String>,
    /// Age after the copy at which the bytes here are removed [default: never by age]
    #[arg(long, value_name = "DURATION", requires = "stage_out")]
    pub remove_after: Option<String>,
    /// Free space of a volume below which copied files are removed, the oldest first
    #[arg(long, value_name = "SIZE", requires = "stage_out")]
    pub remove_below: Option<String>,
    /// Certificate for producers with TLS: its chain in PEM
    #[arg(long, value_name = "FILE", requires = "key")]
    pub certificate: Option<PathBuf>,
    /// Its private key in PEM
    #[arg(long, value_name = "FILE", requires = "certificate")]
    pub key: Option<PathBuf>,
    /// Authorities of the certificates of producers (PEM). Such a producer needs no token: the
    /// account with the subject of its certificate writes
    #[arg(long, value_name = "FILE", requires = "certificate")]
    pub client_ca: Option<PathBuf>,
    /// Network whose producers may connect without TLS, beside those on this machine; may be repeated
    #[arg(long, value_name = "NETWORK", value_delimiter = ',')]
    pub plain: Vec<String>,
    #[command(flatten)]
    pub logging: LoggingArgs,
}
