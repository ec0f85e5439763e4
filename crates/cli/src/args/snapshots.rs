//! Commands about snapshots, clones, restores and backups.

use std::path::PathBuf;

use clap::{Args, Subcommand};

/// `exacat snapshot`
#[derive(Debug, Subcommand)]
pub(crate) enum SnapshotCommand {
    /// Snapshot the catalogue under a name
    #[command(after_help = "\
Takes a moment, whatever the catalogue holds: nothing is copied. The snapshot
takes space as the catalogue moves on. It is on the same disk: 'exacat backup'
makes copies elsewhere. Takes the role admin, as all of these.

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
OWN is what nothing else has: the bytes that dropping the snapshot frees.

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
that was removed, restored or moved stands for all that is below it. What the
two have in common is not read.

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
Frees what nothing else has. Clones made of it stay.

Examples:
  exacat snapshot create tuesday && exacat snapshot drop tuesday")]
    Drop {
        /// Snapshots
        #[arg(value_name = "NAME", required = true)]
        names: Vec<String>,
    },
    /// Read and check snapshots completely
    #[command(after_help = "\
Every page and every record is read, every counter and index recomputed, and
the digest compared with that of the moment it was taken. Exit status 25
(corrupt) if something is wrong.

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
A catalogue of its own, on the files of the snapshot: made in a moment, and
never in the way of the one it was made of. Its history begins about where the
snapshot's runs end. The server may run. DIR becomes a data directory; it must
be empty or not there, and on the same file system.

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
The running server copies the catalogue as it is, with its history, to a
directory on its machine: what is there from earlier backups is not copied
again. Every file is read back and checked. Takes the role admin. Interrupted,
it can be begun again, and goes on where it was.

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
