//! `exacat`: the one binary. Reads the command line, runs the command, and returns its exit status.

mod advice;
mod args;
mod commands;
mod completion;
mod connect;
mod context;
mod failure;
mod input;
mod log;
mod offline;
mod ordering;
mod output;
mod parse;
mod progress;
mod quoting;
mod source;
mod wildcards;

use std::process::ExitCode;

use clap::Parser;
use tokio::signal::unix::{SignalKind, signal};

use args::{Cli, Command, ReplayCommand, WriterCommand};
use failure::{
    Failure, KIND_LOCAL, STATUS_INTERRUPTED, STATUS_LOCAL, STATUS_TERMINATED, report_as_json, said_as_json,
    say,
};

/// A look-up is a handful of small allocations, made by one thread and freed by another. The
/// system's allocator takes a third of its time.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Threads of a client: one for the connection, one beside it.
const CLIENT_THREADS: usize = 2;

/// Time for a command to end after a signal.
const WAIT_AFTER_SIGNAL: std::time::Duration = std::time::Duration::from_secs(3);

fn main() -> ExitCode {
    // A completion script asks for the rest of a word; the process ends there.
    completion::complete();
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => {
            // Help and versions go to standard output and are no errors.
            if !error.use_stderr() {
                let _ = error.print();
                return ExitCode::SUCCESS;
            }
            if std::env::args_os()
                .take_while(|argument| argument != "--")
                .any(|argument| argument == "--json")
            {
                report_as_json();
            }
            let message = error.render().to_string();
            let message = message.trim_end().strip_prefix("error: ").unwrap_or(&message);
            if !said_as_json(KIND_LOCAL, STATUS_LOCAL, None, message, None) {
                let _ = error.print();
            }
            return ExitCode::from(STATUS_LOCAL);
        }
    };
    if cli.global.json {
        report_as_json();
    }
    let mut runtime = tokio::runtime::Builder::new_multi_thread();
    runtime.enable_all();
    let serves = match &cli.command {
        Command::Serve(_) | Command::Follow(_) => true,
        Command::Writer(command) => matches!(**command, WriterCommand::Serve(_)),
        // These handle signals themselves: an agent reports what ended.
        Command::Replay(command) => {
            matches!(**command, ReplayCommand::Serve(_) | ReplayCommand::Agent(_) | ReplayCommand::Origin(_))
        }
        _ => false,
    };
    if !serves {
        runtime.worker_threads(CLIENT_THREADS);
    }
    let runtime = match runtime.build() {
        Ok(runtime) => runtime,
        Err(error) => {
            say(&format!("exacat: cannot start threads: {error}"));
            return ExitCode::from(STATUS_LOCAL);
        }
    };
    let status = runtime.block_on(async {
        if serves {
            return finish(commands::run(cli).await);
        }
        tokio::select! {
            // First, so that a signal counts before a command begins.
            biased;
            // Printed output is whole lines; the server may still carry out requests in flight.
            status = interrupted() => status,
            ended = commands::run(cli) => finish(ended),
        }
    });
    // A thread that waits for standard input cannot be ended: do not wait for it.
    runtime.shutdown_background();
    ExitCode::from(status)
}

fn finish(ended: Result<u8, Failure>) -> u8 {
    ended.unwrap_or_else(|failure| {
        failure.report();
        failure.status()
    })
}

/// Returns at SIGINT or SIGTERM, with the exit status. If a command then holds the thread, the
/// process ends a little later.
async fn interrupted() -> u8 {
    let (Ok(mut interrupt), Ok(mut terminate)) =
        (signal(SignalKind::interrupt()), signal(SignalKind::terminate()))
    else {
        // Without handlers these signals end the program at once.
        return std::future::pending().await;
    };
    let (sender, receiver) = tokio::sync::oneshot::channel();
    tokio::spawn(async move {
        let status = tokio::select! {
            _ = interrupt.recv() => STATUS_INTERRUPTED,
            _ = terminate.recv() => STATUS_TERMINATED,
        };
        let _ended_by_itself = sender.send(status);
        tokio::time::sleep(WAIT_AFTER_SIGNAL).await;
        say("exacat: interrupted while it was busy; files that it was writing may be left, named .partial");
        std::process::exit(i32::from(status));
    });
    match receiver.await {
        Ok(status) => status,
        Err(_) => std::future::pending().await,
    }
}
