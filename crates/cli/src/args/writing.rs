//! Commands that change entries.

use clap::{Args, Subcommand, ValueEnum};

/// `exacat mkdir`
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  exacat mkdir /demo/new
  exacat mkdir -p -m 775 /demo/new/a/b")]
pub struct MkdirArgs {
    /// Which directories; '-' reads LFNs from standard input
    #[arg(value_name = "LFN", required = true)]
    pub lfns: Vec<String>,
    /// Make missing parents, and accept directories that are there
    #[arg(short, long)]
    pub parents: bool,
    /// Their permissions, octal [default: 755]
    #[arg(short, long)]
    pub mode: Option<String>,
}

/// `exacat mv`
#[derive(Args, Debug)]
#[command(after_help = "\
A directory moves with all that is below it in one atomic change, whatever its
size. If TO is a directory, FROM moves into it. A name that is taken is never
replaced.

Examples:
  exacat mv /demo/user/b/bruno/analysis_0000 /demo/user/b/bruno/first
  exacat mv -v '/demo/user/c/chiara/*' /demo/user/c")]
pub struct MvArgs {
    /// What to move; '-' reads LFNs from standard input
    #[arg(required = true, num_args = 1..)]
    pub from: Vec<String>,
    /// To where: the new LFN, or a directory that is there to move into
    pub to: String,
}

/// `exacat rm`
#[derive(Args, Debug)]
#[command(after_help = "\
What is removed is in the trash, and can be restored until it is purged. A
directory goes with all that is below it in one atomic change.

Examples:
  exacat rm -r --dry-run /demo/user/d       # shows what would go
  exacat rm -r /demo/user/d                 # says how to bring it back
  exacat rm -v /demo/sim/2026/LHC26a1/560123-0/002/sim.log
  exacat find /demo/user/h 'Ana*' -0 | exacat rm -0 -")]
pub struct RmArgs {
    /// Which entries; '-' reads LFNs from standard input
    #[arg(value_name = "LFN", required = true)]
    pub lfns: Vec<String>,
    /// Directories with all that is below them
    #[arg(short, long, visible_short_alias = 'R')]
    pub recursive: bool,
    /// What is not there is not an error
    #[arg(short, long)]
    pub force: bool,
    /// Show what would go, and change nothing; permissions are not judged
    #[arg(long)]
    pub dry_run: bool,
}

/// `exacat rmdir`
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  exacat mkdir /demo/empty && exacat rmdir /demo/empty")]
pub struct RmdirArgs {
    /// Which directories; '-' reads LFNs from standard input
    #[arg(value_name = "LFN", required = true)]
    pub lfns: Vec<String>,
}

/// `exacat ln`
#[derive(Args, Debug)]
#[command(after_help = "\
A link stands for a path, which need not exist.

Examples:
  exacat ln /demo/data/2026 /demo/latest")]
pub struct LnArgs {
    /// The path it stands for
    pub target: String,
    /// Its own name
    #[arg(value_name = "LFN")]
    pub lfn: String,
    /// All links are symbolic: accepted because fingers type it
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
pub struct ChmodArgs {
    /// Octal (644), or what to change: u+rw,go-w,a=rX
    #[arg(allow_hyphen_values = true)]
    pub mode: String,
    /// Which entries; '-' reads LFNs from standard input
    #[arg(value_name = "LFN", required = true)]
    pub lfns: Vec<String>,
    /// Everything below them too
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
pub struct ChownArgs {
    /// USER, USER:GROUP or :GROUP
    #[arg(value_name = "USER[:GROUP]")]
    pub owner: String,
    /// Which entries; '-' reads LFNs from standard input
    #[arg(value_name = "LFN", required = true)]
    pub lfns: Vec<String>,
    /// Everything below them too
    #[arg(short = 'R', long)]
    pub recursive: bool,
}

/// `exacat chgrp`
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  exacat chgrp -R demo /demo/user/a")]
pub struct ChgrpArgs {
    /// The group
    pub group: String,
    /// Which entries; '-' reads LFNs from standard input
    #[arg(value_name = "LFN", required = true)]
    pub lfns: Vec<String>,
    /// Everything below them too
    #[arg(short = 'R', long)]
    pub recursive: bool,
}

/// `exacat touch`
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  exacat touch /demo/done
  exacat touch --time 2026-11-21 /demo/done")]
pub struct TouchArgs {
    /// Which files; '-' reads LFNs from standard input
    #[arg(value_name = "LFN", required = true)]
    pub lfns: Vec<String>,
    /// When the content was made [default: now]
    #[arg(short, long)]
    pub time: Option<String>,
    /// Do not register what is not there
    #[arg(short = 'c', long)]
    pub no_create: bool,
    /// Make missing parents
    #[arg(short, long)]
    pub parents: bool,
}

/// `exacat expire`
#[derive(Args, Debug)]
#[command(after_help = "\
From that time on the entry goes to the trash by itself; a directory with all
that is below it.

Examples:
  exacat expire /demo/user/i 30d
  exacat expire /demo/user/i/ines never
  exacat find /demo/sim '*.log' | exacat expire - 90d")]
pub struct ExpireArgs {
    /// Which entries; '-' reads LFNs from standard input
    #[arg(value_name = "LFN", required = true, num_args = 1..)]
    pub lfns: Vec<String>,
    /// A time, a duration from now (30d), or never
    #[arg(value_name = "TIME|never")]
    pub time: String,
}

/// What to do where a file is there already.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum ExistingArg {
    /// Refuse it
    #[default]
    Refuse,
    /// Accept it if everything given is so already
    Same,
    /// Add what it does not have; refuse it if something contradicts
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

A storage element alone stands for the PFN that follows from its prefix and the
file's GUID.

Examples:
  exacat register /demo/x.root --size 1G --checksum adler32:067b54f3
  exacat register /demo/x.root --se DEMO::FZK::SE --existing merge
  exacat register -p /demo/runs/y.root --se DEMO::FZK::SE=root://host//y.root
  exacat register /demo/all.zip --size 10M --tag run=560123
  exacat register /demo/in.root --member-of '/demo/all.zip?in.root'
  exacat register -p - < files.jsonl")]
pub struct RegisterArgs {
    /// Which files; '-' reads JSON lines from standard input
    #[arg(value_name = "LFN", required = true)]
    pub lfns: Vec<String>,
    /// Bytes
    #[arg(long)]
    pub size: Option<String>,
    /// ALGORITHM:HEX; may be repeated for other algorithms
    #[arg(long, value_name = "CHECKSUM")]
    pub checksum: Vec<String>,
    /// A replica: on this storage element, at this PFN; may be repeated
    #[arg(long, value_name = "SE[=PFN]")]
    pub se: Vec<String>,
    /// What is known of the replicas: available, copying, suspect, lost
    #[arg(long, value_name = "STATE", default_value = "available")]
    pub state: String,
    /// Its identity; of one file only [default: made]
    #[arg(long)]
    pub guid: Option<String>,
    /// A tag; may be repeated
    #[arg(long = "tag", value_name = "KEY=VALUE")]
    pub tags: Vec<String>,
    /// Its owner, if not you
    #[arg(long)]
    pub owner: Option<String>,
    /// Its group, if not yours
    #[arg(long)]
    pub group: Option<String>,
    /// Its permissions, octal [default: 644]
    #[arg(long)]
    pub mode: Option<String>,
    /// When its content was made [default: now]
    #[arg(long, value_name = "TIME")]
    pub modified: Option<String>,
    /// When it goes to the trash by itself
    #[arg(long, value_name = "TIME")]
    pub expires: Option<String>,
    /// The job that made it
    #[arg(long)]
    pub job: Option<u64>,
    /// It is inside an archive
    #[arg(long, value_name = "ARCHIVE?NAME", conflicts_with = "se")]
    pub member_of: Option<String>,
    /// Make missing parents
    #[arg(short, long)]
    pub parents: bool,
    /// What to do where a file is there already
    #[arg(long, value_enum, default_value_t)]
    pub existing: ExistingArg,
}

/// `exacat replica`
#[derive(Debug, Subcommand)]
pub enum ReplicaCommand {
    /// Add replicas, or set the state of those that are there
    #[command(after_help = "\
Examples:
  exacat touch /demo/a.root && exacat replica add /demo/a.root DEMO::FZK::SE
  exacat replica add /demo/a.root DEMO::NDGF::DCACHE=root://host//a.root
  exacat replica add /demo/a.root DEMO::CERN::EOS --state copying")]
    Add {
        /// The file, by LFN or GUID
        #[arg(value_name = "LFN|GUID")]
        file: String,
        /// Where
        #[arg(value_name = "SE[=PFN]", required = true)]
        replicas: Vec<String>,
        /// available, copying, suspect, lost
        #[arg(long, default_value = "available")]
        state: String,
    },
    /// Take replicas away
    #[command(after_help = "\
Examples:
  exacat register /demo/b.root --se DEMO::FZK::SE --se DEMO::CERN::EOS
  exacat replica rm /demo/b.root DEMO::FZK::SE            # forget it
  exacat replica rm --delete /demo/b.root DEMO::CERN::EOS # and delete the copy")]
    Rm {
        /// The file, by LFN or GUID
        #[arg(value_name = "LFN|GUID")]
        file: String,
        /// From where
        #[arg(value_name = "SE", required = true)]
        ses: Vec<String>,
        /// Put the physical copies on the deletion queues of their storage elements
        #[arg(long)]
        delete: bool,
    },
    /// Say what is known of replicas
    #[command(after_help = "\
Examples:
  exacat register /demo/c.root --se DEMO::FZK::SE
  exacat replica state /demo/c.root DEMO::FZK::SE lost")]
    State {
        /// The file, by LFN or GUID
        #[arg(value_name = "LFN|GUID")]
        file: String,
        /// Where
        #[arg(value_name = "SE", required = true, num_args = 1..)]
        ses: Vec<String>,
        /// available, copying, suspect, lost
        state: String,
    },
}

/// `exacat upload`
#[derive(Debug, Subcommand)]
pub enum UploadCommand {
    /// Book an upload: choose storage elements, reserve quota
    #[command(after_help = "\
Shows the GUID, and a line for each storage element: its name and the URL to
write to.

Examples:
  exacat upload book /demo/new.root --size 1G --qos disk=2 --site CERN
  exacat upload book /demo/u1.root --size 123 --se DEMO::FZK::SE")]
    Book {
        /// Where the file shall stand; missing parents are made when it is committed
        #[arg(value_name = "LFN")]
        lfn: String,
        /// Bytes to be written
        #[arg(long)]
        size: String,
        /// Checksum the content will have; may be repeated
        #[arg(long)]
        checksum: Vec<String>,
        /// Its identity; one that exists gets further replicas [default: made]
        #[arg(long)]
        guid: Option<String>,
        /// On this storage element; may be repeated
        #[arg(long)]
        se: Vec<String>,
        /// So many replicas of this quality of service; may be repeated
        #[arg(long, value_name = "QOS[=NUMBER]")]
        qos: Vec<String>,
        /// Never on this storage element; may be repeated
        #[arg(long, value_name = "SE")]
        exclude: Vec<String>,
        /// Nearest to this site
        #[arg(long)]
        site: Option<String>,
        /// The job that makes it
        #[arg(long)]
        job: Option<u64>,
        /// For how long [default: the server's]
        #[arg(long, value_name = "DURATION")]
        lifetime: Option<String>,
    },
    /// Make a booked replica visible
    #[command(after_help = "\
Examples:
  exacat upload book /demo/u2.root --size 123 --se DEMO::FZK::SE \\
      --guid 5d9a8f1e-5607-11ee-90f9-6c02e09897e9
  exacat upload commit 5d9a8f1e-5607-11ee-90f9-6c02e09897e9 DEMO::FZK::SE \\
      --size 123 --checksum adler32:067b54f3")]
    Commit {
        /// The booking
        guid: String,
        /// The replica's storage element
        se: String,
        /// Bytes written
        #[arg(long)]
        size: String,
        /// Checksum of what was written; may be repeated
        #[arg(long)]
        checksum: Vec<String>,
    },
    /// Give up a booking, or one replica of it
    #[command(after_help = "\
Examples:
  exacat upload book /demo/u3.root --size 123 --se DEMO::FZK::SE \\
      --guid 5d9a8f1e-5607-11ee-90f9-6c02e09897ea
  exacat upload abort 5d9a8f1e-5607-11ee-90f9-6c02e09897ea")]
    Abort {
        /// The booking
        guid: String,
        /// Only the replica on this storage element
        se: Option<String>,
    },
    /// List bookings: yours, for an operator all
    #[command(after_help = "\
Examples:
  exacat upload ls")]
    Ls,
}
