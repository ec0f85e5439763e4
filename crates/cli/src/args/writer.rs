//! Commands of the writer service.

use std::net::SocketAddr;
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
      --listen 127.0.0.1:0
  exacat writer serve --volume /daq1 --volume /daq2 --se DEMO::DAQ::WRITER \\
      --listen 0.0.0.0:27700 --address daq1.example.org:27700 \\
      --plain 10.1.0.0/16 --catalogue exacat://catalogue.example.org:7420")]
    Serve(Box<WriterServeArgs>),
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
    /// Certificate for producers with TLS: its chain in PEM
    #[arg(long, value_name = "FILE", requires = "key")]
    pub certificate: Option<PathBuf>,
    /// Its private key in PEM
    #[arg(long, value_name = "FILE", requires = "certificate")]
    pub key: Option<PathBuf>,
    /// Network whose producers may connect without TLS, beside those on this machine; may be repeated
    #[arg(long, value_name = "NETWORK", value_delimiter = ',')]
    pub plain: Vec<String>,
    #[command(flatten)]
    pub logging: LoggingArgs,
}
