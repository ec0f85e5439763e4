//! Commands that change entries.

use clap::{Args, Subcommand, ValueEnum};

/// `exacat mkdir`
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  exacat mkdir /demo/new
  exacat mkdir -p -m 775 /demo/new/a/b")]
pub(crate) struct MkdirArgs {
    /// Directories; '-' reads LFNs from standard input
    #[arg(value_name = "LFN", required = true)]
    pub lfns: Vec<String>,
    /// Make missing parents, and accept existing directories
    #[arg(short, long)]
    pub parents: bool,
    /// Permissions, octal [default: 755]
    #[arg(short, long)]
    pub mode: Option<String>,
}

/// `exacat mv`
#[derive(Args, Debug)]
#[command(after_help = "\
A directory moves with everything below it in one atomic change, whatever its
size. If TO is a directory, FROM moves into it. The command never replaces an
existing entry.

Examples:
  exacat mv /demo/user/b/bruno/analysis_0000 /demo/user/b/bruno/first
  exacat mv -v '/demo/user/c/chiara/*' /demo/user/c")]
pub(crate) struct MvArgs {
    /// Entries to move; '-' reads LFNs from standard input
    #[arg(required = true, num_args = 1..)]
    pub from: Vec<String>,
    /// Target: the new LFN, or an existing directory to move into
    pub to: String,
}

/// `exacat rm`
#[derive(Args, Debug)]
#[command(after_help = "\
Removed entries are in the trash, and can be restored until they are purged. A
directory goes with everything below it in one atomic change.

Examples:
  exacat rm -r --dry-run /demo/user/d       # shows what would go
  exacat rm -r /demo/user/d                 # says how to bring it back
  exacat rm -v /demo/sim/2026/LHC26a1/560123-0/002/sim.log
  exacat find /demo/user/h 'Ana*' -0 | exacat rm -0 -")]
pub(crate) struct RmArgs {
    /// Entries; '-' reads LFNs from standard input
    #[arg(value_name = "LFN", required = true)]
    pub lfns: Vec<String>,
    /// Remove directories with everything below them
    #[arg(short, long, visible_short_alias = 'R')]
    pub recursive: bool,
    /// Ignore missing entries
    #[arg(short, long)]
    pub force: bool,
    /// Show entries that would be removed, and change nothing; ignores permissions
    #[arg(long)]
    pub dry_run: bool,
}

/// `exacat rmdir`
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  exacat mkdir /demo/empty && exacat rmdir /demo/empty")]
pub(crate) struct RmdirArgs {
    /// Directories; '-' reads LFNs from standard input
    #[arg(value_name = "LFN", required = true)]
    pub lfns: Vec<String>,
}

/// `exacat ln`
#[derive(Args, Debug)]
#[command(after_help = "\
A link stands for a path, which need not exist.

Examples:
  exacat ln /demo/data/2026 /demo/latest")]
pub(crate) struct LnArgs {
    /// Path that the link leads to
    pub target: String,
    /// LFN of the link
    #[arg(value_name = "LFN")]
    pub lfn: String,
    /// No effect: all links are symbolic; accepted out of habit
    #[arg(short, hide = true)]
    pub symbolic: bool,
}

/// `exacat chmod`
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  exacat chmod 640 /demo/sim/2026/LHC26a1/560123-0/001/AOD.root
  exacat chmod -R g+rX,o= /demo/user/a
  exacat find /demo '*.log' | exacat chmod 600 -")]
pub(crate) struct ChmodArgs {
    /// Octal (644), or a change: u+rw,go-w,a=rX
    #[arg(allow_hyphen_values = true)]
    pub mode: String,
    /// Entries; '-' reads LFNs from standard input
    #[arg(value_name = "LFN", required = true)]
    pub lfns: Vec<String>,
    /// Change everything below them too
    #[arg(short = 'R', long)]
    pub recursive: bool,
}

/// `exacat chown`
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  exacat chown aleksy /demo/sim/2026/LHC26a1/560123-0/001/AOD.root
  exacat chown -R aleksy:demo /demo/user/a/aleksy
  exacat chown :demo /demo/data             # the group only")]
pub(crate) struct ChownArgs {
    /// USER, USER:GROUP or :GROUP
    #[arg(value_name = "USER[:GROUP]")]
    pub owner: String,
    /// Entries; '-' reads LFNs from standard input
    #[arg(value_name = "LFN", required = true)]
    pub lfns: Vec<String>,
    /// Change everything below them too
    #[arg(short = 'R', long)]
    pub recursive: bool,
}

/// `exacat chgrp`
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  exacat chgrp -R demo /demo/user/a")]
pub(crate) struct ChgrpArgs {
    /// Group
    pub group: String,
    /// Entries; '-' reads LFNs from standard input
    #[arg(value_name = "LFN", required = true)]
    pub lfns: Vec<String>,
    /// Change everything below them too
    #[arg(short = 'R', long)]
    pub recursive: bool,
}

/// `exacat touch`
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  exacat touch /demo/done
  exacat touch --time 2026-11-21 /demo/done")]
pub(crate) struct TouchArgs {
    /// Files; '-' reads LFNs from standard input
    #[arg(value_name = "LFN", required = true)]
    pub lfns: Vec<String>,
    /// Modification time of the content [default: now]
    #[arg(short, long)]
    pub time: Option<String>,
    /// Do not register missing files
    #[arg(short = 'c', long)]
    pub no_create: bool,
    /// Make missing parents
    #[arg(short, long)]
    pub parents: bool,
}

/// `exacat expire`
#[derive(Args, Debug)]
#[command(after_help = "\
At that time the entry goes to the trash by itself, a directory with everything
below it.

Examples:
  exacat expire /demo/user/i 30d
  exacat expire /demo/user/i/ines never
  exacat find /demo/sim '*.log' | exacat expire - 90d")]
pub(crate) struct ExpireArgs {
    /// Entries; '-' reads LFNs from standard input
    #[arg(value_name = "LFN", required = true, num_args = 1..)]
    pub lfns: Vec<String>,
    /// A time, a duration from now (30d), or never
    #[arg(value_name = "TIME|never")]
    pub time: String,
}

/// Treatment of existing files.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum ExistingArg {
    /// Refuse the file
    #[default]
    Refuse,
    /// Accept the file if everything given is equal
    Same,
    /// Add missing attributes; refuse the file if one contradicts
    Merge,
}

/// `exacat register`
#[derive(Args, Debug)]
#[command(after_help = "\
With '-', files are read from standard input as JSON, one per line, with the
fields lfn (required), guid, size, checksum or checksums, owner, group, mode,
modified, expires, job, tags (an object), replicas (a list of SE names or of
objects with se, pfn, state) and member_of (ARCHIVE?NAME). Options given beside
it apply to every file that does not say otherwise. For listings in other
formats see 'exacat import'.

A storage element without a PFN means the PFN of its prefix and the file's
GUID.

Examples:
  exacat register /demo/x.root --size 1G --checksum adler32:067b54f3
  exacat register /demo/x.root --se DEMO::FZK::SE --existing merge
  exacat register -p /demo/runs/y.root --se DEMO::FZK::SE=root://host//y.root
  exacat register /demo/all.zip --size 10M --tag run=560123
  exacat register /demo/in.root --member-of '/demo/all.zip?in.root'
  exacat register -p - < files.jsonl")]
pub(crate) struct RegisterArgs {
    /// Files; '-' reads JSON lines from standard input
    #[arg(value_name = "LFN", required = true)]
    pub lfns: Vec<String>,
    /// Bytes
    #[arg(long)]
    pub size: Option<String>,
    /// ALGORITHM:HEX; may be repeated for other algorithms
    #[arg(long, value_name = "CHECKSUM")]
    pub checksum: Vec<String>,
    /// Replica on this storage element, at this PFN; may be repeated
    #[arg(long, value_name = "SE[=PFN]")]
    pub se: Vec<String>,
    /// State of the replicas: available, copying, suspect, lost
    #[arg(long, value_name = "STATE", default_value = "available")]
    pub state: String,
    /// GUID, for one file only [default: made]
    #[arg(long)]
    pub guid: Option<String>,
    /// Tag; may be repeated
    #[arg(long = "tag", value_name = "KEY=VALUE")]
    pub tags: Vec<String>,
    /// Owner, if not you
    #[arg(long)]
    pub owner: Option<String>,
    /// Group, if not yours
    #[arg(long)]
    pub group: Option<String>,
    /// Permissions, octal [default: 644]
    #[arg(long)]
    pub mode: Option<String>,
    /// Modification time of the content [default: now]
    #[arg(long, value_name = "TIME")]
    pub modified: Option<String>,
    /// Time when it goes to the trash by itself
    #[arg(long, value_name = "TIME")]
    pub expires: Option<String>,
    /// Job that made it
    #[arg(long)]
    pub job: Option<u64>,
    /// Archive that contains it
    #[arg(long, value_name = "ARCHIVE?NAME", conflicts_with = "se")]
    pub member_of: Option<String>,
    /// Make missing parents
    #[arg(short, long)]
    pub parents: bool,
    /// Treatment of existing files
    #[arg(long, value_enum, default_value_t)]
    pub existing: ExistingArg,
}

/// `exacat replica`
#[derive(Debug, Subcommand)]
pub(crate) enum ReplicaCommand {
    /// Add replicas, or set the state of existing ones
    #[command(after_help = "\
Examples:
  exacat touch /demo/a.root && exacat replica add /demo/a.root DEMO::FZK::SE
  exacat replica add /demo/a.root DEMO::NDGF::DCACHE=root://host//a.root
  exacat replica add /demo/a.root DEMO::CERN::EOS --state copying")]
    Add {
        /// File, by LFN or GUID; '-' reads files from standard input
        #[arg(value_name = "LFN|GUID")]
        file: String,
        /// Storage element and PFN of each replica
        #[arg(value_name = "SE[=PFN]", required = true)]
        replicas: Vec<String>,
        /// available, copying, suspect, lost
        #[arg(long, default_value = "available")]
        state: String,
    },
    /// Remove replicas
    #[command(after_help = "\
Examples:
  exacat register /demo/b.root --se DEMO::FZK::SE --se DEMO::CERN::EOS
  exacat replica rm /demo/b.root DEMO::FZK::SE            # forget it
  exacat replica rm --delete /demo/b.root DEMO::CERN::EOS # and delete the copy")]
    Rm {
        /// File, by LFN or GUID; '-' reads files from standard input
        #[arg(value_name = "LFN|GUID")]
        file: String,
        /// Storage elements
        #[arg(value_name = "SE", required = true)]
        ses: Vec<String>,
        /// Queue the physical copies for deletion by their storage elements
        #[arg(long)]
        delete: bool,
    },
    /// Set the state of replicas
    #[command(after_help = "\
Examples:
  exacat register /demo/c.root --se DEMO::FZK::SE
  exacat replica state /demo/c.root DEMO::FZK::SE lost
  exacat find /demo '*.log' --se DEMO::CERN::EOS |
      exacat replica state - DEMO::CERN::EOS suspect")]
    State {
        /// File, by LFN or GUID; '-' reads files from standard input
        #[arg(value_name = "LFN|GUID")]
        file: String,
        /// Storage elements
        #[arg(value_name = "SE", required = true, num_args = 1..)]
        ses: Vec<String>,
        /// available, copying, suspect, lost
        state: String,
    },
}

/// `exacat upload`
#[derive(Debug, Subcommand)]
pub(crate) enum UploadCommand {
    /// Reserve an upload: choose storage elements, reserve quota
    #[command(after_help = "\
Shows the GUID, and a line for each storage element: its name and the URL to
write to.

Examples:
  exacat upload reserve /demo/new.root --size 1G --qos disk=2 --site CERN
  exacat upload reserve /demo/u1.root --size 123 --se DEMO::FZK::SE")]
    Reserve {
        /// LFN of the file; the commit makes missing parents
        #[arg(value_name = "LFN")]
        lfn: String,
        /// Bytes to be written
        #[arg(long)]
        size: String,
        /// Checksum the content will have; may be repeated
        #[arg(long)]
        checksum: Vec<String>,
        /// GUID; an existing one gets further replicas [default: made]
        #[arg(long)]
        guid: Option<String>,
        /// Storage element to use; may be repeated
        #[arg(long)]
        se: Vec<String>,
        /// Replicas of this quality of service; may be repeated
        #[arg(long, value_name = "QOS[=NUMBER]")]
        qos: Vec<String>,
        /// Storage element to avoid; may be repeated
        #[arg(long, value_name = "SE")]
        exclude: Vec<String>,
        /// Site whose storage elements are preferred
        #[arg(long)]
        site: Option<String>,
        /// Job that makes the file
        #[arg(long)]
        job: Option<u64>,
        /// Lifetime of the reservation [default: the server's]
        #[arg(long, value_name = "DURATION")]
        lifetime: Option<String>,
    },
    /// Commit a reserved replica, which makes it visible
    #[command(after_help = "\
Examples:
  exacat upload reserve /demo/u2.root --size 123 --se DEMO::FZK::SE \\
      --guid 5d9a8f1e-5607-11ee-90f9-6c02e09897e9
  exacat upload commit 5d9a8f1e-5607-11ee-90f9-6c02e09897e9 DEMO::FZK::SE \\
      --size 123 --checksum adler32:067b54f3")]
    Commit {
        /// GUID of the upload
        guid: String,
        /// Storage element of the replica
        se: String,
        /// Bytes written
        #[arg(long)]
        size: String,
        /// Checksum of the written bytes; may be repeated
        #[arg(long)]
        checksum: Vec<String>,
    },
    /// Abort an upload, or one replica of it
    #[command(after_help = "\
Examples:
  exacat upload reserve /demo/u3.root --size 123 --se DEMO::FZK::SE \\
      --guid 5d9a8f1e-5607-11ee-90f9-6c02e09897ea
  exacat upload abort 5d9a8f1e-5607-11ee-90f9-6c02e09897ea")]
    Abort {
        /// GUID of the upload
        guid: String,
        /// Only the replica on this storage element
        se: Option<String>,
    },
    /// List your upload reservations; all of them as an operator
    #[command(after_help = "\
Examples:
  exacat upload ls")]
    Ls,
}
