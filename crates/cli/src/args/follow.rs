//! Arguments of followers.

use clap::Args;

use super::ServeArgs;

/// `exacat follow`
#[derive(Args, Debug)]
pub(crate) struct FollowArgs {
    /// Source: https://HOST:PORT of the HTTP of a server, or http:// where that is permitted.
    /// --token-file names a token of an admin there, and --ca the certificate to trust
    #[arg(value_name = "URL")]
    pub source: String,
    /// Copy only this directory, with everything below it. Such a follower can never be promoted
    #[arg(long, value_name = "DIR")]
    pub under: Option<String>,
    #[command(flatten)]
    pub serve: ServeArgs,
}
