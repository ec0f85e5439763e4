//! Commands about storage elements, quotas, accounts and tokens.

use clap::{Args, Subcommand};

/// What can be set of a storage element.
#[derive(Args, Clone, Debug, Default)]
pub struct SeOptions {
    /// What derived PFNs begin with: scheme, host and path, no slash at its end
    #[arg(long)]
    pub prefix: Option<String>,
    /// Quality-of-service labels (disk, tape); replaces those it has
    #[arg(long, value_delimiter = ',')]
    pub qos: Option<Vec<String>>,
    /// online, read-only or offline
    #[arg(long)]
    pub status: Option<String>,
    /// How far a site is from it, smaller is nearer; may be repeated
    #[arg(long, value_name = "SITE=NUMBER")]
    pub distance: Vec<String>,
}

/// `exacat se`
#[derive(Debug, Subcommand)]
pub enum SeCommand {
    /// Add a storage element
    #[command(after_help = "\
Examples:
  exacat se add VO::SITE::DISK --prefix root://host//data --qos disk
  exacat se add VO::SITE::TAPE --prefix root://host//tape --distance CERN=9")]
    Add {
        /// Its name, by convention VO::Site::Name
        name: String,
        /// Its number, for ever [default: chosen]
        #[arg(long, value_parser = clap::value_parser!(u16).range(1..))]
        number: Option<u16>,
        #[command(flatten)]
        options: SeOptions,
    },
    /// Change a storage element
    #[command(after_help = "\
Examples:
  exacat se set DEMO::ORNL::EOS --status read-only")]
    Set {
        /// Which
        name: String,
        #[command(flatten)]
        options: SeOptions,
    },
    /// Take a storage element that holds nothing out of the registry
    #[command(after_help = "\
Examples:
  exacat se add VO::SITE::OLD --prefix root://old//data
  exacat se rm VO::SITE::OLD")]
    Rm {
        /// Which
        name: String,
    },
    /// List storage elements
    #[command(after_help = "\
Examples:
  exacat se ls
  exacat --json se ls")]
    Ls,
    /// Show what is on storage elements, and what waits for deletion
    #[command(after_help = "\
Examples:
  exacat se usage -H
  exacat se usage DEMO::CERN::EOS")]
    Usage {
        /// Which [default: all]
        names: Vec<String>,
    },
    /// List the files with a replica on a storage element
    #[command(after_help = "\
Examples:
  exacat se files DEMO::KISTI::TAPE --limit 10
  exacat se files -l DEMO::KISTI::TAPE")]
    Files {
        /// Which
        name: String,
        /// Everything about each file
        #[arg(short, long)]
        long: bool,
        /// Stop after so many
        #[arg(long, value_name = "NUMBER", value_parser = clap::value_parser!(u64).range(1..))]
        limit: Option<u64>,
    },
    /// List the physical copies a storage element is to delete
    #[command(after_help = "\
Shows the deletion's id, the size and the URL. With -q there are no headings.

Examples:
  exacat se deletions DEMO::CERN::EOS --limit 10")]
    Deletions {
        /// Which
        name: String,
        /// Stop after so many
        #[arg(long, value_name = "NUMBER", value_parser = clap::value_parser!(u64).range(1..))]
        limit: Option<u64>,
    },
    /// Say that physical copies were deleted
    #[command(after_help = "\
What was said before is passed over, so a run that was interrupted can be run
again.

Examples:
  exacat -q se deletions DEMO::CERN::EOS | cut -d ' ' -f 1 |
      exacat se deleted --dry-run DEMO::CERN::EOS -
  exacat -q se deletions DEMO::CERN::EOS |
      while read id size url; do echo \"rm $url\" >> deleted && echo $id; done |
      exacat se deleted DEMO::CERN::EOS -")]
    Deleted {
        /// On which
        name: String,
        /// Ids of deletions; '-' reads them from standard input
        #[arg(value_name = "ID", required = true)]
        ids: Vec<String>,
        /// Show which of them wait, and take none off
        #[arg(long)]
        dry_run: bool,
    },
}

/// `exacat quota`
#[derive(Debug, Subcommand)]
pub enum QuotaCommand {
    /// Set limits; those not given stay as they are
    #[command(after_help = "\
What is in the trash counts until it is purged.

Examples:
  exacat quota set aleksy --files 1M --bytes 100T
  exacat quota set group:demo --replica-bytes 1P --files none")]
    Set {
        /// NAME or user:NAME, or group:NAME
        owner: String,
        /// Files, links and collections, at most; none for no limit
        #[arg(long, value_name = "NUMBER|none")]
        files: Option<String>,
        /// Logical bytes, at most; none for no limit
        #[arg(long, value_name = "SIZE|none")]
        bytes: Option<String>,
        /// Bytes of replicas, at most; none for no limit
        #[arg(long, value_name = "SIZE|none")]
        replica_bytes: Option<String>,
    },
    /// Show limits and what is used of them
    #[command(after_help = "\
Examples:
  exacat quota get                          # yours
  exacat quota get -H aleksy group:demo")]
    Get {
        /// NAME or user:NAME, or group:NAME [default: you and your groups]
        owners: Vec<String>,
    },
}

/// What can be set of a user.
#[derive(Args, Clone, Debug, Default)]
pub struct UserOptions {
    /// The group new entries get [default of a new user: one of its own name]
    #[arg(long)]
    pub group: Option<String>,
    /// Further groups; replaces those it has
    #[arg(long, value_delimiter = ',', num_args = 0..=1, default_missing_value = "")]
    pub groups: Option<Vec<String>>,
    /// Roles (admin, operator); replaces those it has
    #[arg(long, value_delimiter = ',', num_args = 0..=1, default_missing_value = "")]
    pub roles: Option<Vec<String>>,
    /// Accounts it may act as; replaces those it has
    #[arg(long, value_delimiter = ',', num_args = 0..=1, default_missing_value = "")]
    pub may_become: Option<Vec<String>>,
    /// An outside name that is this user: a certificate's subject, or uid:NUMBER on this machine; may be
    /// repeated; replaces those it has
    #[arg(long)]
    pub subject: Option<Vec<String>>,
    /// Its home directory
    #[arg(long, value_name = "LFN")]
    pub home: Option<String>,
}

/// `exacat user`
#[derive(Debug, Subcommand)]
pub enum UserCommand {
    /// Add a user
    #[command(after_help = "\
Examples:
  exacat user add alice --home /home/alice
  exacat user add bob --groups demo --roles operator --subject uid:54321")]
    Add {
        /// Its name
        name: String,
        #[command(flatten)]
        options: UserOptions,
    },
    /// Change a user
    #[command(after_help = "\
Examples:
  exacat user set aleksy --groups demo
  exacat user set zofia --disable")]
    Set {
        /// Which
        name: String,
        #[command(flatten)]
        options: UserOptions,
        /// It may not log in any more; its entries stay
        #[arg(long)]
        disable: bool,
        /// It may log in again
        #[arg(long, conflicts_with = "disable")]
        enable: bool,
    },
    /// Take a user that owns nothing out of the registry
    #[command(after_help = "\
Examples:
  exacat user add eve && exacat user rm eve")]
    Rm {
        /// Which
        name: String,
    },
    /// List users
    #[command(after_help = "\
Examples:
  exacat user ls")]
    Ls,
}

/// `exacat group`
#[derive(Debug, Subcommand)]
pub enum GroupCommand {
    /// Add a group
    #[command(after_help = "\
Examples:
  exacat group add physics")]
    Add {
        /// Its name
        name: String,
    },
    /// Take a group that owns nothing and has no members out of the registry
    #[command(after_help = "\
Examples:
  exacat group add old && exacat group rm old")]
    Rm {
        /// Which
        name: String,
    },
    /// List groups
    #[command(after_help = "\
Examples:
  exacat group ls")]
    Ls,
}

/// `exacat token`
#[derive(Debug, Subcommand)]
pub enum TokenCommand {
    /// Issue a token; its secret is shown once and kept nowhere
    #[command(after_help = "\
The secret alone is on standard output, what it is for on standard error.

Examples:
  exacat token issue --lifetime 30d --scope /demo > my.token
  exacat token issue --lifetime 1d --write --user aleksy --out job.token
  exacat token issue --lifetime 1h --note 'grid job' --out trial.token")]
    Issue {
        /// For whom [default: you]
        #[arg(long)]
        user: Option<String>,
        /// For this subtree only
        #[arg(long, value_name = "LFN", default_value = "/")]
        scope: String,
        /// It may change things too
        #[arg(long)]
        write: bool,
        /// For how long
        #[arg(long, value_name = "DURATION")]
        lifetime: String,
        /// What for
        #[arg(long, default_value = "")]
        note: String,
        /// Write the secret to this new file, readable by you only, instead of standard output
        #[arg(long, value_name = "FILE")]
        out: Option<std::path::PathBuf>,
    },
    /// Make tokens invalid at once
    #[command(after_help = "\
Examples:
  exacat token issue --lifetime 1h --note trial > t.token
  exacat -q token ls | grep trial | cut -d ' ' -f 1 | exacat token revoke -")]
    Revoke {
        /// Their ids, or beginnings of them that no other token has; '-' reads them from standard input
        #[arg(value_name = "ID", required = true)]
        ids: Vec<String>,
    },
    /// List tokens: yours, for an admin all
    #[command(after_help = "\
Examples:
  exacat token ls")]
    Ls,
}

/// `exacat whoami`
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  exacat whoami
  EXACAT_TOKEN=$(exacat token issue --lifetime 1h) exacat whoami")]
pub struct WhoamiArgs {}
