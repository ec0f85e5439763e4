//! `writer`: the writer service, and its producers.

mod serve;

use crate::args::{Global, WriterCommand};
use crate::failure::Failure;
use crate::output::Style;

/// `exacat writer`
pub(crate) async fn writer(command: WriterCommand, global: &Global, style: Style) -> Result<u8, Failure> {
    match command {
        WriterCommand::Serve(args) => serve::serve(*args, &global.connection, style).await,
    }
}
