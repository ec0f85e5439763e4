//! Arguments of the commands that control a running server.

use clap::{Args, Subcommand};

/// `exacat throttle`
#[derive(Debug, Subcommand)]
pub(crate) enum ThrottleCommand {
    /// Limit the items a second of a user, a group, or everybody
    ///
    /// Requests beyond the limit wait, in the state throttle. A request that would wait for more than 10
    /// s is refused as busy. The members of a group share its limit, and so does everybody. Operators
    /// are not part of everybody. At most 64 throttles are in force.
    #[command(after_help = "\
The throttle is one of this server, and lasts until the server ends. It takes
the role operator or admin.

Examples:
  exacat throttle set aleksy 100
  exacat throttle set group:demo 1k
  exacat throttle set everybody 20k")]
    Set {
        /// NAME or user:NAME, or group:NAME, or everybody
        users: String,
        /// Maximum items a second, such as 500 or 20k
        rate: String,
    },
    /// List the throttles of this server
    #[command(after_help = "\
WAITING are requests that wait now. DELAYED have waited, and REFUSED were
refused, since the throttle was set.

Examples:
  exacat throttle ls
  exacat --json throttle ls")]
    Ls {},
    /// End a throttle
    #[command(after_help = "\
Examples:
  exacat throttle clear aleksy
  exacat throttle clear everybody")]
    Clear {
        /// NAME or user:NAME, or group:NAME, or everybody
        users: String,
    },
}

/// `exacat drain`
#[derive(Args, Debug)]
#[command(after_help = "\
A drained server finishes the requests in progress and refuses new ones of
network clients: with unavailable, HTTP 503, or a wait of XRootD. Clients that
know other servers use those. /readyz answers 503. The socket of the server's
machine and the pages of operators stay open, so resume it there. The drain
lasts until the server ends. It takes the role operator or admin.

Examples:
  exacat drain
  exacat drain --resume")]
pub(crate) struct DrainArgs {
    /// Accept requests again
    #[arg(long)]
    pub resume: bool,
}
