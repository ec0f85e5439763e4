//! `exacat`: the one binary. Reads the command line, runs the command, and gives its exit status.

mod args;
mod bench;
mod commands;
mod connect;
mod context;
mod failure;
mod input;
mod names_of_ses;
mod offline;
mod output;
mod parse;
mod progress;
mod source;

use std::process::ExitCode;

use clap::Parser;

use args::{Cli, Command};
use failure::{Failure, STATUS_INTERRUPTED, STATUS_LOCAL, say};

/// A look-up is a handful of small allocations made by one thread and freed by another: the system's allocator takes
/// a third of its time.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Threads of a client: one that reads and writes the connection, one beside it.
const CLIENT_THREADS: usize = 2;

fn main() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => {
            // Help and versions go to standard output and are no errors.
            let status = if error.use_stderr() { STATUS_LOCAL } else { 0 };
            let _ = error.print();
            return ExitCode::from(status);
        }
    };
    let mut runtime = tokio::runtime::Builder::new_multi_thread();
    runtime.enable_all();
    let serves = matches!(cli.command, Command::Serve(_));
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
            ended = commands::run(cli) => finish(ended),
            // What was printed so far is whole lines; what is in flight may still be done.
            () = interrupted() => STATUS_INTERRUPTED,
        }
    });
    // A thread that waits for standard input cannot be ended, and is not waited for.
    runtime.shutdown_background();
    ExitCode::from(status)
}

fn finish(ended: Result<u8, Failure>) -> u8 {
    ended.unwrap_or_else(|failure| {
        failure.report();
        failure.status()
    })
}

/// Returns at SIGINT.
async fn interrupted() {
    if tokio::signal::ctrl_c().await.is_err() {
        // Then it cannot be noticed, and ends the program the hard way.
        std::future::pending::<()>().await;
    }
}
