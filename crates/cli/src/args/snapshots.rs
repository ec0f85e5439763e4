//! Commands about snapshots, clones, restores and backups.

use std::path::PathBuf;

use clap::{Args, Subcommand};

/// `exacat snapshot`
#[derive(Debug, Subcommand)]
pub(crate) enum SnapshotCommand {
    /// Snapshot the catalogue under a name
    #[command(after_help = "\
Takes a moment, whatever the size of the catalogue: nothing is copied. The
snapshot takes space as the catalogue changes. It is on the same disk: 'exacat
backup' makes copies elsewhere. Commands of snapshots need the role admin; an
operator may list them.

Examples:
  exacat snapshot create before-upgrade
  exacat snapshot create monday
  exacat snapshot create nightly-$(date +%F)")]
    Create {
        /// Name: letters, digits, . _ -
        name: String,
    },
    /// List snapshots
    #[command(after_help = "\
OWN is the number of bytes that dropping the snapshot frees.

Examples:
  exacat snapshot ls
  exacat snapshot ls --offline
  exacat --json snapshot ls")]
    Ls {
        /// Read the data directory itself, with or without a server
        #[arg(long)]
        offline: bool,
    },
    /// Compare the catalogue, or another snapshot, with a snapshot
    #[command(after_help = "\
Each line is an entry that was created, changed, moved or removed. A directory
that was removed, restored or moved stands for everything below it. The command
does not read the common parts of the two.

Examples:
  exacat snapshot diff before-upgrade
  exacat snapshot diff before-upgrade monday
  exacat --json snapshot diff monday")]
    Diff {
        /// Snapshot to compare with
        before: String,
        /// Later snapshot [default: the present catalogue]
        after: Option<String>,
    },
    /// Drop snapshots
    #[command(after_help = "\
Frees the bytes that nothing else links. Clones of the snapshot stay.

Examples:
  exacat snapshot create tuesday && exacat snapshot drop tuesday")]
    Drop {
        /// Snapshots
        #[arg(value_name = "NAME", required = true)]
        names: Vec<String>,
    },
    /// Read and check snapshots completely
    #[command(after_help = "\
Reads every page and every record, recomputes every counter and index, and
compares the digest with the one of the snapshot. Exit status 25 (corrupt) if
something is wrong.

Examples:
  exacat snapshot verify before-upgrade
  exacat snapshot verify --offline before-upgrade")]
    Verify {
        /// Snapshots
        #[arg(value_name = "NAME", required = true)]
        names: Vec<String>,
        /// Check in this process, with or without a server, without a time limit
        #[arg(long)]
        offline: bool,
    },
}

/// `exacat clone`
#[derive(Args, Debug)]
#[command(after_help = "\
Makes a catalogue of its own on the files of the snapshot, in a moment. It is
independent of the first one. Its history begins about where the snapshot's
runs end. The server may run. DIR becomes a data directory. It must be empty or
missing, and on the same file system.

Examples:
  exacat clone before-upgrade ~/exacat-test
  exacat serve --data ~/exacat-test --listen 127.0.0.1:0")]
pub(crate) struct CloneArgs {
    /// Snapshot
    pub name: String,
    /// Data directory to make
    #[arg(value_name = "DIR")]
    pub directory: PathBuf,
}

/// `exacat restore`
#[derive(Args, Debug)]
#[command(after_help = "\
From a snapshot: the catalogue gets its state of that time or, with --until, of
a later point, from the snapshot and its log. The command keeps the replaced
copy in a directory, and names it at the end. The copy can be served, and
restored again. No server may run.

From a directory of backups (with a / in it): a catalogue is made in a data
directory that has none. Every file is checked.

TIME is as find takes it (RFC 3339, a date, 2h for two hours ago); a whole
number is a REVISION.

Examples:
  exacat restore before-upgrade
  exacat restore before-upgrade --until now \\
      --log ~/.local/share/exacat/store/replaced/1
  exacat restore monday --until now
  exacat restore ~/exacat-backup --data ~/exacat-again")]
pub(crate) struct RestoreArgs {
    /// Snapshot, or directory of backups (write ./DIR for one here)
    #[arg(value_name = "NAME|DIR")]
    pub from: String,
    /// Restore up to the last change at or before a time, or up to a revision [default: the saved state]
    #[arg(long, value_name = "TIME|REVISION")]
    pub until: Option<String>,
    /// Backup in a directory of backups [default: the newest]
    #[arg(long, value_name = "NAME")]
    pub backup: Option<String>,
    /// For a snapshot: directory whose log has the later changes, such as a replaced copy
    #[arg(long, value_name = "DIR")]
    pub log: Option<PathBuf>,
}

/// `exacat backup`
#[derive(Args, Debug)]
#[command(after_help = "\
The running server copies the catalogue with its history to a directory on its
machine. It copies files of earlier backups there only once, and reads every
file back to check it. Takes the role admin. Repeat an interrupted backup: it
resumes.

Examples:
  exacat backup ~/exacat-backup
  exacat backup --ls ~/exacat-backup
  exacat backup --verify ~/exacat-backup")]
pub(crate) struct BackupArgs {
    /// Directory; made if missing
    #[arg(value_name = "DIR")]
    pub directory: PathBuf,
    /// List the backups there; needs no server
    #[arg(long, conflicts_with = "verify")]
    pub ls: bool,
    /// Read every file of every backup there and compare its checksum; needs no server
    #[arg(long)]
    pub verify: bool,
}
