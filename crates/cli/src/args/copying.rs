//! Command that copies files.

use clap::Args;

/// `exacat cp`
#[derive(Args, Debug)]
#[command(after_help = "\
One side is a local file, written file:PATH, and the other an LFN. xrdcp, the
client of XRootD, moves the bytes. It must be on this machine (Debian:
xrootd-client), and the server must speak root:// (exacat serve --xrootd).

A file copied to this machine gets its name once it is complete and its
checksum is right. If a replica cannot be read or is wrong, the command takes
the next one. A file copied to an LFN appears once the storage element has
confirmed size and checksum.

Write the wanted replicas behind @: storage elements, LABEL:COUNT of a quality
of service, !SE to exclude one.

Examples:
  exacat cp /demo/x.root file:x.root
  exacat cp file:x.root /demo/x.root@disk:2
  exacat cp file:a.root file:b.root /demo/        # into a directory
  exacat --json cp file:x.root '/demo/x.root@DEMO::CERN::EOS,!DEMO::FZK::SE'")]
pub(crate) struct CpArgs {
    /// Sources: file:PATH or LFNs
    #[arg(required = true, num_args = 1..)]
    pub from: Vec<String>,
    /// Target: an LFN or file:PATH, or an existing directory
    pub to: String,
    /// Replace a local file
    #[arg(short, long)]
    pub force: bool,
    /// Site whose storage elements are preferred
    #[arg(long, value_name = "SITE")]
    pub site: Option<String>,
    /// URL of the server's root:// service [default: as the server on this machine says, else port
    /// 1094 of --server]
    #[arg(long, env = "EXACAT_ROOT", value_name = "URL", hide_env_values = true)]
    pub root: Option<String>,
    /// Client program of XRootD
    #[arg(
        long,
        env = "EXACAT_XRDCP",
        value_name = "PROGRAM",
        default_value = "xrdcp",
        hide_env_values = true
    )]
    pub xrdcp: std::path::PathBuf,
}
