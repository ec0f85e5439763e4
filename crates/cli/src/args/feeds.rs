//! Arguments of the commands about feeds.

use clap::{Args, Subcommand};

/// `exacat feed`
#[derive(Debug, Subcommand)]
pub(crate) enum FeedCommand {
    /// Deliver the changes of the catalogue to a directory, a webhook or Kafka
    #[command(after_help = "\
A feed is kept by the server: it delivers every change at least once, in
order, and goes on after a restart where it was. --from copy sends all present
entries first, for a mirror. A feed that falls too far behind is lost: it never
holds back the history and never fills the disk. Making and controlling feeds
takes the role admin; an operator may list them.

Examples:
  exacat feed create mirror --sink dir:$HOME/exacat-feed --under /demo \\
      --from copy --when-lost copy
  exacat feed create hook --sink https://example.org/exacat \\
      --kinds created,moved")]
    Create(Box<FeedCreateArgs>),
    /// List the feeds of this server
    #[command(after_help = "\
BEHIND is the number of changes that the sink lacks, AGE that of the oldest.

Examples:
  exacat feed ls
  exacat --json feed ls")]
    Ls {},
    /// Show one feed in full
    #[command(after_help = "\
Examples:
  exacat feed show mirror
  exacat --json feed show mirror")]
    Show {
        /// Name of the feed
        name: String,
    },
    /// Stop a feed until it is resumed
    #[command(after_help = "\
A paused feed may be lost: its limits hold all the same once it is resumed.

Examples:
  exacat feed pause mirror
  exacat feed pause hook")]
    Pause {
        /// Name of the feed
        name: String,
    },
    /// Let a paused or failed feed go on
    #[command(after_help = "\
Examples:
  exacat feed resume mirror
  exacat feed resume hook")]
    Resume {
        /// Name of the feed
        name: String,
    },
    /// Let a feed go on from another position
    #[command(after_help = "\
A directory gets the next generation of segments: those before stay.

Examples:
  exacat feed rewind mirror --to copy
  exacat feed rewind hook --to now")]
    Rewind {
        /// Name of the feed
        name: String,
        /// now, copy (all present entries, then changes), start, or a revision
        /// such as 2315 or 2315.3f9a1c
        #[arg(long, value_name = "POSITION")]
        to: String,
    },
    /// Forget a feed; its sink keeps what it got
    #[command(after_help = "\
Examples:
  exacat feed drop hook
  exacat feed drop mirror")]
    Drop {
        /// Name of the feed
        name: String,
    },
}

/// `exacat feed create`
#[derive(Args, Debug)]
pub(crate) struct FeedCreateArgs {
    /// Name: letters, digits, . _ -
    pub name: String,
    /// dir:/PATH on the server's machine, the http(s):// URL of a webhook, or
    /// kafka://HOST[:PORT][,HOST...]/TOPIC (kafkas:// over TLS), a topic with one
    /// partition; only if the server was built with --features kafka
    #[arg(long)]
    pub sink: String,
    /// Only entries in this directory
    #[arg(long, value_name = "LFN")]
    pub under: Option<String>,
    /// Only these changes, separated by commas: created, updated, moved, removed,
    /// restored, purged, reserved, committed, released, dequeued, recorded
    #[arg(long, value_delimiter = ',', value_name = "KIND")]
    pub kinds: Vec<String>,
    /// now, copy (all present entries, then changes), start, or a revision such as
    /// 2315 or 2315.3f9a1c
    #[arg(long, value_name = "POSITION", default_value = "now")]
    pub from: String,
    /// Age of an undelivered change at which the feed is lost, in days
    #[arg(long, default_value_t = exacat_feed::limits::DAYS_DEFAULT)]
    pub days: u32,
    /// Size of undelivered events at which the feed is lost
    #[arg(long, value_name = "SIZE", default_value = "1TiB")]
    pub bytes: String,
    /// Size of segments in the directory at which the feed waits
    #[arg(long, value_name = "SIZE", default_value = "10GiB")]
    pub room: String,
    /// Send a copy of all present entries when the feed is lost, or stop
    #[arg(long, value_name = "WHAT", value_parser = ["copy", "stop"], default_value = "stop")]
    pub when_lost: String,
    /// Send a copy after a restore of the catalogue, or only tell where the
    /// histories part
    #[arg(long, value_name = "WHAT", value_parser = ["copy", "tell"], default_value = "copy")]
    pub when_restored: String,
    /// Send the changes that a restore of the catalogue undid, before a copy
    #[arg(long)]
    pub undone: bool,
    /// Permit a webhook or broker on a loopback, private or link-local address
    #[arg(long)]
    pub allow_private: bool,
    /// File on the server's machine with the secret that signs requests to a
    /// webhook, or with the login of Kafka: scram-sha-512:USER:PASSWORD
    #[arg(long, value_name = "FILE")]
    pub secret_file: Option<String>,
}
