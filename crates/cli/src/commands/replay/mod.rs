//! `replay`: traces of accesses, the service that replays them, its agents, an origin.

mod agent;
mod at;
mod catalogue;
mod cinfo;
mod origin;
mod report;
mod run;
mod serve;
mod trace;

pub(crate) use agent::AgentView;
pub(crate) use cinfo::CachedFileView;
pub(crate) use origin::OriginView;
pub(crate) use serve::ReplayView;
pub(crate) use trace::MadeTraceView;

use crate::args::{Global, ReplayCommand};
use crate::failure::Failure;
use crate::output::Style;

/// `exacat replay`
pub(super) async fn replay(command: ReplayCommand, global: &Global, style: Style) -> Result<u8, Failure> {
    match command {
        ReplayCommand::Import(args) => trace::import(*args, global, style).await,
        ReplayCommand::Generate(args) => trace::generate(*args, global, style).await,
        ReplayCommand::Show(args) => trace::show(args, global, style).await,
        ReplayCommand::Serve(args) => serve::serve(*args, global, style).await,
        ReplayCommand::Cinfo(args) => cinfo::cinfo(args, style).await,
        ReplayCommand::Run(command) => run::run(command, global, style).await,
        ReplayCommand::Agent(args) => agent::agent(*args, global, style).await,
        ReplayCommand::Origin(args) => origin::origin(*args, style).await,
        ReplayCommand::Report(args) => report::report(args, style).await,
    }
}
