//! Log of the service: lines for people or machines, to standard error or to a file.

mod lines;
mod place;

use std::io::{IsTerminal, Write as _};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use exacat_server::{LOOK_UPS_HEAD, LookUpLog};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tracing_subscriber::EnvFilter;

use crate::args::{LogFormat, LoggingArgs};
use crate::failure::Failure;
use lines::Lines;
use place::LogPlace;

/// The log of a service that has started.
pub(crate) struct ServiceLog {
    place: Arc<LogPlace>,
    /// Place of the look-ups; none if they are not kept.
    look_ups: Option<Arc<LogPlace>>,
    /// Orders to open the file again; none for standard error.
    reopen: Option<Signal>,
}

impl ServiceLog {
    /// Starts the log.
    pub(crate) fn start(args: &LoggingArgs) -> Result<Self, Failure> {
        let filter = EnvFilter::try_new(&args.log)
            .map_err(|error| Failure::local(format!("--log: not a level or list of levels: {error}")))?;
        let (place, reopen, colours) = match &args.log_file {
            Some(path) => (opened("log-file", path, "")?, Some(hangups()?), false),
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
        Ok(ServiceLog { place, look_ups: None, reopen })
    }

    /// Returns the count of lines that could not be written.
    pub(crate) fn lines_lost(&self) -> Arc<AtomicU64> {
        Arc::clone(&self.place.lines_lost)
    }

    /// Keeps a log of look-ups in a file, too.
    pub(crate) fn keep_look_ups(&mut self, path: &Path) -> Result<LookUpLog, Failure> {
        let place = Arc::new(opened("look-up-log", path, LOOK_UPS_HEAD)?);
        if self.reopen.is_none() {
            self.reopen = Some(hangups()?);
        }
        self.look_ups = Some(Arc::clone(&place));
        let lost = Arc::clone(&place.lines_lost);
        // A line that cannot be written is counted.
        let write = Arc::new(move |line: &[u8]| drop((&*place).write(line)));
        Ok(LookUpLog { write, lost })
    }

    /// Opens the files again at each SIGHUP, as after a rotation. Never ends; without a file it does
    /// nothing.
    pub(crate) async fn follow_rotations(mut self) {
        let Some(reopen) = &mut self.reopen else { return std::future::pending().await };
        while reopen.recv().await.is_some() {
            let places = [Some(&self.place), self.look_ups.as_ref()];
            for place in places.into_iter().flatten().filter(|place| place.is_file()) {
                match place.reopen() {
                    Ok(()) => tracing::info!("opened the log file again"),
                    Err(error) => {
                        tracing::error!(%error, "the log file cannot be opened again: the old one goes on")
                    }
                }
            }
        }
    }
}

fn opened(option: &str, path: &Path, head: &'static str) -> Result<LogPlace, Failure> {
    LogPlace::file(path, head)
        .map_err(|error| Failure::local(format!("--{option}: cannot write to {}: {error}", path.display())))
}

fn hangups() -> Result<Signal, Failure> {
    signal(SignalKind::hangup()).map_err(|error| Failure::local(format!("cannot watch for SIGHUP: {error}")))
}
