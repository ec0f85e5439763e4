//! Log of the service: lines for people or machines, to standard error or to a file.

mod lines;
mod place;

use std::io::IsTerminal;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use tokio::signal::unix::{Signal, SignalKind, signal};
use tracing_subscriber::EnvFilter;

use crate::args::{LogFormat, LoggingArgs};
use crate::failure::Failure;
use lines::Lines;
use place::LogPlace;

/// The log of a service that has started.
pub(crate) struct ServiceLog {
    place: Arc<LogPlace>,
    /// Orders to open the file again; none for standard error.
    reopen: Option<Signal>,
}

impl ServiceLog {
    /// Starts the log.
    pub(crate) fn start(args: &LoggingArgs) -> Result<Self, Failure> {
        let filter = EnvFilter::try_new(&args.log)
            .map_err(|error| Failure::local(format!("--log: not a level or list of levels: {error}")))?;
        let (place, reopen, colours) = match &args.log_file {
            Some(path) => (opened(path)?, Some(hangups()?), false),
            None => (LogPlace::standard_error(), None, std::io::stderr().is_terminal()),
        };
        let place = Arc::new(place);
        let lines = Lines { is_json: args.log_format == LogFormat::Json, colours };
        // A full disk must not end the server: by default a line that cannot be written is reported on
        // standard error, and that report panics.
        let subscriber = tracing_subscriber::fmt()
            .with_env_filter(filter)
            .with_writer(Arc::clone(&place))
            .with_ansi(false)
            .log_internal_errors(false)
            .event_format(lines);
        subscriber.try_init().map_err(|error| Failure::local(format!("cannot start the log: {error}")))?;
        Ok(ServiceLog { place, reopen })
    }

    /// Returns the count of lines that could not be written.
    pub(crate) fn lines_lost(&self) -> Arc<AtomicU64> {
        Arc::clone(&self.place.lines_lost)
    }

    /// Opens the file again at each SIGHUP, as after a rotation. Never ends; without a file it does
    /// nothing.
    pub(crate) async fn follow_rotations(mut self) {
        let Some(reopen) = &mut self.reopen else { return std::future::pending().await };
        while reopen.recv().await.is_some() {
            match self.place.reopen() {
                Ok(()) => tracing::info!("opened the log file again"),
                Err(error) => {
                    tracing::error!(%error, "the log file cannot be opened again: the old one goes on")
                }
            }
        }
    }
}

fn opened(path: &Path) -> Result<LogPlace, Failure> {
    LogPlace::file(path)
        .map_err(|error| Failure::local(format!("--log-file: cannot write to {}: {error}", path.display())))
}

fn hangups() -> Result<Signal, Failure> {
    signal(SignalKind::hangup()).map_err(|error| Failure::local(format!("cannot watch for SIGHUP: {error}")))
}
