//! Commands about storage elements, quotas, accounts and tokens.

use clap::{Args, Subcommand};

/// Attributes of a storage element.
#[derive(Args, Clone, Debug, Default)]
pub(crate) struct SeOptions {
    /// Beginning of derived PFNs: scheme, host and path, no slash at its end
    #[arg(long)]
    pub prefix: Option<String>,
    /// Beginning of the same files' URLs for HTTPS clients, no slash at its end; empty for none
    #[arg(long, value_name = "URL")]
    pub https: Option<String>,
    /// Quality-of-service labels (disk, tape); replaces the present ones
    #[arg(long, value_delimiter = ',')]
    pub qos: Option<Vec<String>>,
    /// online, read-only or offline
    #[arg(long)]
    pub status: Option<String>,
    /// Distance of a site, smaller is nearer; may be repeated
    #[arg(long, value_name = "SITE=NUMBER")]
    pub distance: Vec<String>,
}

/// `exacat se`
#[derive(Debug, Subcommand)]
pub(crate) enum SeCommand {
    /// Add a storage element
    #[command(after_help = "\
Examples:
  exacat se add VO::SITE::DISK --prefix root://host//data --qos disk
  exacat se add VO::SITE::TAPE --prefix root://host//tape --distance CERN=9
  exacat se add VO::SITE::WEB --prefix root://web//data --https https://web/data")]
    Add {
        /// Name, by convention VO::Site::Name
        name: String,
        /// Permanent number [default: chosen]
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
        /// Storage element
        name: String,
        #[command(flatten)]
        options: SeOptions,
    },
    /// Remove an empty storage element from the registry
    #[command(after_help = "\
Examples:
  exacat se add VO::SITE::OLD --prefix root://old//data
  exacat se rm VO::SITE::OLD")]
    Rm {
        /// Storage element
        name: String,
    },
    /// List storage elements
    #[command(after_help = "\
Examples:
  exacat se ls
  exacat --json se ls")]
    Ls,
    /// Show usage of storage elements, and their pending deletions
    #[command(after_help = "\
Examples:
  exacat se usage -H
  exacat se usage DEMO::CERN::EOS")]
    Usage {
        /// Storage elements [default: all]
        names: Vec<String>,
    },
    /// List the files with a replica on a storage element
    #[command(after_help = "\
Examples:
  exacat se files DEMO::KISTI::TAPE --limit 10
  exacat se files -l DEMO::KISTI::TAPE")]
    Files {
        /// Storage element
        name: String,
        /// Show everything about each file
        #[arg(short, long)]
        long: bool,
        /// Maximum number of files
        #[arg(long, value_name = "NUMBER", value_parser = clap::value_parser!(u64).range(1..))]
        limit: Option<u64>,
    },
    /// List the physical copies that a storage element must delete
    #[command(after_help = "\
Shows the deletion's id, the size and the URL. With -q there are no headings.

Examples:
  exacat se deletions DEMO::CERN::EOS --limit 10")]
    Deletions {
        /// Storage element
        name: String,
        /// Maximum number of copies
        #[arg(long, value_name = "NUMBER", value_parser = clap::value_parser!(u64).range(1..))]
        limit: Option<u64>,
    },
    /// Report that physical copies were deleted
    #[command(after_help = "\
Deletions that were reported before are skipped, so an interrupted run can be
repeated.

Examples:
  exacat -q se deletions DEMO::CERN::EOS | cut -d ' ' -f 1 |
      exacat se deleted --dry-run DEMO::CERN::EOS -
  exacat -q se deletions DEMO::CERN::EOS |
      while read id size url; do echo \"rm $url\" >> deleted && echo $id; done |
      exacat se deleted DEMO::CERN::EOS -")]
    Deleted {
        /// Storage element
        name: String,
        /// Ids of deletions; '-' reads them from standard input
        #[arg(value_name = "ID", required = true)]
        ids: Vec<String>,
        /// Show which of them are pending, and remove none
        #[arg(long)]
        dry_run: bool,
    },
    /// Compare a storage dump with the catalogue: dark, lost and wrong copies
    Compare(Box<super::CompareArgs>),
}

/// `exacat quota`
#[derive(Debug, Subcommand)]
pub(crate) enum QuotaCommand {
    /// Set limits; others stay unchanged
    #[command(after_help = "\
Entries in the trash count until they are purged.

Examples:
  exacat quota set aleksy --files 1M --bytes 100T
  exacat quota set group:demo --replica-bytes 1P --files none")]
    Set {
        /// NAME or user:NAME, or group:NAME
        owner: String,
        /// Maximum number of files, links and collections; none for no limit
        #[arg(long, value_name = "NUMBER|none")]
        files: Option<String>,
        /// Maximum logical bytes; none for no limit
        #[arg(long, value_name = "SIZE|none")]
        bytes: Option<String>,
        /// Maximum bytes of replicas; none for no limit
        #[arg(long, value_name = "SIZE|none")]
        replica_bytes: Option<String>,
    },
    /// Show limits and usage
    #[command(after_help = "\
Examples:
  exacat quota get                          # yours
  exacat quota get -H aleksy group:demo")]
    Get {
        /// NAME or user:NAME, or group:NAME [default: you and your groups]
        owners: Vec<String>,
    },
}

/// Attributes of a user.
#[derive(Args, Clone, Debug, Default)]
pub(crate) struct UserOptions {
    /// Group of new entries [default of a new user: one of its own name]
    #[arg(long)]
    pub group: Option<String>,
    /// Further groups; replaces the present ones
    #[arg(long, value_delimiter = ',', num_args = 0..=1, default_missing_value = "")]
    pub groups: Option<Vec<String>>,
    /// Roles (admin, operator); replaces the present ones
    #[arg(long, value_delimiter = ',', num_args = 0..=1, default_missing_value = "")]
    pub roles: Option<Vec<String>>,
    /// Accounts it may act as; replaces the present ones
    #[arg(long, value_delimiter = ',', num_args = 0..=1, default_missing_value = "")]
    pub may_become: Option<Vec<String>>,
    /// Outside name of this user: a certificate's subject, or uid:NUMBER on this machine; may be
    /// repeated; replaces the present ones
    #[arg(long)]
    pub subject: Option<Vec<String>>,
    /// Home directory
    #[arg(long, value_name = "LFN")]
    pub home: Option<String>,
}

/// `exacat user`
#[derive(Debug, Subcommand)]
pub(crate) enum UserCommand {
    /// Add a user
    #[command(after_help = "\
Examples:
  exacat user add alice --home /home/alice
  exacat user add bob --groups demo --roles operator --subject uid:54321")]
    Add {
        /// Name
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
        /// User
        name: String,
        #[command(flatten)]
        options: UserOptions,
        /// Forbid logins; its entries stay
        #[arg(long)]
        disable: bool,
        /// Permit logins again
        #[arg(long, conflicts_with = "disable")]
        enable: bool,
    },
    /// Remove a user that owns nothing from the registry
    #[command(after_help = "\
Examples:
  exacat user add eve && exacat user rm eve")]
    Rm {
        /// User
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
pub(crate) enum GroupCommand {
    /// Add a group
    #[command(after_help = "\
Examples:
  exacat group add physics")]
    Add {
        /// Name
        name: String,
    },
    /// Remove a group without entries and members from the registry
    #[command(after_help = "\
Examples:
  exacat group add old && exacat group rm old")]
    Rm {
        /// Group
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
pub(crate) enum TokenCommand {
    /// Issue a token; its secret is shown once and kept nowhere
    #[command(after_help = "\
Only the secret is on standard output; its user, scope and expiry are on
standard error.

Examples:
  exacat token issue --lifetime 30d --scope /demo > my.token
  exacat token issue --lifetime 1d --write --user aleksy --out job.token
  exacat token issue --lifetime 1h --note 'grid job' --out trial.token")]
    Issue {
        /// User of the token [default: you]
        #[arg(long)]
        user: Option<String>,
        /// Subtree that the token is limited to
        #[arg(long, value_name = "LFN", default_value = "/")]
        scope: String,
        /// Permit changes too
        #[arg(long)]
        write: bool,
        /// Lifetime
        #[arg(long, value_name = "DURATION")]
        lifetime: String,
        /// Purpose
        #[arg(long, default_value = "")]
        note: String,
        /// Write the secret to this new file, readable by you only, instead of standard output
        #[arg(long, value_name = "FILE")]
        out: Option<std::path::PathBuf>,
    },
    /// Revoke tokens at once
    #[command(after_help = "\
Examples:
  exacat token issue --lifetime 1h --note trial > t.token
  exacat -q token ls | grep trial | cut -d ' ' -f 1 | exacat token revoke -")]
    Revoke {
        /// Ids of tokens, or unique beginnings of them; '-' reads them from standard input
        #[arg(value_name = "ID", required = true)]
        ids: Vec<String>,
    },
    /// List your tokens; all tokens as an admin
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
pub(crate) struct WhoamiArgs {}

/// `exacat issuer`
#[derive(Debug, Subcommand)]
pub(crate) enum IssuerCommand {
    /// Trust an issuer of tokens
    #[command(after_help = "\
A token of the issuer acts as the account with the subject
token:ISSUER#SUBJECT, or else as the one that --user names. With the profiles
wlcg and scitokens the scopes of the token limit it further: they never widen
the rights of the account. The issuer's keys are fetched over HTTPS. The server
notices the change by itself. Each server of a cluster has its own issuers.

Examples:
  exacat issuer add https://wlcg.example.org/ --audience \\
      https://catalogue.example.org --base /demo --user admin
  exacat issuer add https://login.example.org --profile oidc --audience exacat
  exacat issuer add https://sso.example.org --profile oidc --audience exacat \\
      --client-id exacat
  exacat user set admin --subject 'token:https://login.example.org#alice'")]
    Add {
        /// URL of the issuer, as in the claim iss
        #[arg(value_name = "URL")]
        url: String,
        /// Accepted audience; may be repeated
        #[arg(long, value_name = "TEXT", required = true)]
        audience: Vec<String>,
        /// Directory that the paths of scopes are below
        #[arg(long, value_name = "LFN", default_value = "/")]
        base: String,
        /// Rules for the claims
        #[arg(long, value_name = "PROFILE", default_value = "wlcg")]
        profile: ProfileArg,
        /// Account of tokens whose subject no account has [default: none, they are refused]
        #[arg(long, value_name = "USER")]
        user: Option<String>,
        /// Authorities of the issuer's certificate, in PEM [default: those of the system]
        #[arg(long, value_name = "FILE")]
        ca: Option<std::path::PathBuf>,
        /// Client id of this server at the issuer: people sign in to the web pages there; an accepted
        /// audience too
        #[arg(long, value_name = "ID")]
        client_id: Option<String>,
        /// File with the secret of that client; a public client has none
        #[arg(long, value_name = "FILE", requires = "client_id")]
        client_secret_file: Option<std::path::PathBuf>,
    },
    /// Trust an issuer no more
    #[command(after_help = "\
Its tokens are refused at once.

Examples:
  exacat issuer rm https://login.example.org")]
    Rm {
        /// URL of the issuer
        #[arg(value_name = "URL")]
        url: String,
    },
    /// List the issuers
    #[command(after_help = "\
Examples:
  exacat issuer ls")]
    Ls,
}

/// Rules for the claims of an issuer's tokens.
#[derive(Clone, Copy, Debug, clap::ValueEnum)]
pub(crate) enum ProfileArg {
    /// WLCG token profile: rights by storage scopes
    Wlcg,
    /// SciTokens: rights by their scopes
    Scitokens,
    /// OpenID Connect: the rights of the account
    Oidc,
}
