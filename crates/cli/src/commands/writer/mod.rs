//! `writer`: the writer service, and its producers.

mod adopt;
mod fsck;
mod look;
mod offline;
mod produce;
mod put;
mod serve;
mod services;
mod stage_out;

pub(crate) use adopt::AdoptedView;
pub(crate) use fsck::CheckedVolumeView;
pub(crate) use look::MergedView;
pub(crate) use produce::ProducedView;
pub(crate) use put::WrittenView;
pub(crate) use serve::WriterView;
pub(crate) use stage_out::StagedOutView;

use crate::args::{Global, WriterCommand};
use crate::failure::Failure;
use crate::output::Style;

/// `exacat writer`
pub(crate) async fn writer(command: WriterCommand, global: &Global, style: Style) -> Result<u8, Failure> {
    match command {
        WriterCommand::Serve(args) => serve::serve(*args, &global.connection, style).await,
        WriterCommand::Put(args) => put::put(args, &global.connection, style).await,
        WriterCommand::Produce(args) => produce::produce(*args, &global.connection, style).await,
        WriterCommand::Status(at) => look::status(&at, &global.connection, style).await,
        WriterCommand::Table(at) => look::table(&at, &global.connection, style).await,
        WriterCommand::Files { stage, limit, at } => {
            look::files(stage.as_deref(), limit, &at, (&global.connection, style)).await
        }
        WriterCommand::Cat { file, from, open, at } => {
            look::cat(&file, (from, open), &at, &global.connection).await
        }
        WriterCommand::Merge { file, to, at } => {
            look::merge(&file, &to, &at, (&global.connection, style)).await
        }
        WriterCommand::StageOut(args) => stage_out::stage_out(args, global, style).await,
        WriterCommand::Rm { file, at } => look::remove(&file, &at, &global.connection, style).await,
        WriterCommand::Drain(at) => look::drain(true, &at, &global.connection, style).await,
        WriterCommand::Resume(at) => look::drain(false, &at, &global.connection, style).await,
        WriterCommand::Fsck(args) => fsck::fsck(args, global, style).await,
        WriterCommand::Adopt(args) => adopt::adopt(args, style).await,
    }
}
