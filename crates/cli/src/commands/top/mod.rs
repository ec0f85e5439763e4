//! `top`: a live view of a server in the terminal.

mod screen;
mod view;

use std::io::IsTerminal;
use std::time::Duration;

use exacat_model::period::{Period, RequestShown};
use exacat_model::{Answer, Operation, TimeMs};
use exacat_wire::json;
use ratatui::crossterm::event::{self, Event, KeyEventKind};
use serde::Serialize;
use tokio::sync::mpsc;
use utoipa::ToSchema;

use self::view::{Action, View};
use super::report::{activity, show_sections};
use crate::args::TopArgs;
use crate::context::Context;
use crate::failure::Failure;

/// Keys that wait for the screen; more are read later.
const KEYS_WAITING_MAX: usize = 64;
/// Shortest and longest interval that keys choose, in seconds.
const INTERVAL_S: std::ops::RangeInclusive<u64> = 1..=60;

/// One reading of a server.
struct Reading {
    pub period: Period,
    pub requests: Vec<RequestShown>,
}

/// A reading, as JSON.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Reading)]
pub(crate) struct ReadingOut<'a> {
    /// The last seconds.
    pub period: json::PeriodOut<'a>,
    /// Requests in progress.
    pub requests: Vec<json::RequestOut<'a>>,
}

/// `exacat top`
pub(crate) async fn top(context: &mut Context, args: TopArgs) -> Result<(), Failure> {
    if args.once {
        let reading = read(context, None).await?;
        return print(context, &reading);
    }
    if context.out.style.json || !std::io::stdout().is_terminal() {
        return Err(Failure::local("the live view needs a terminal: use --once"));
    }
    context.out.flush()?;
    let mut terminal = ratatui::init();
    let ended =
        watch(context, &mut terminal, args.interval.clamp(*INTERVAL_S.start(), *INTERVAL_S.end())).await;
    ratatui::restore();
    ended
}

fn print(context: &mut Context, reading: &Reading) -> Result<(), Failure> {
    let out = &mut context.out;
    if out.style.json {
        let requests = reading.requests.iter().map(json::request).collect();
        return out.json(&ReadingOut { period: json::period(&reading.period), requests });
    }
    out.line(exacat_server::report::heading(&reading.period))?;
    show_sections(out, &view::tables(reading))
}

/// Reads the requests in progress, and the activity since `from`; without it, of the last seconds.
async fn read(context: &Context, from: Option<TimeMs>) -> Result<Reading, Failure> {
    let mut periods = activity(context, from, None, 1).await?;
    let period = periods.pop().ok_or_else(|| Failure::local("the server told no period"))?;
    match context.call(Operation::Sessions).await? {
        Answer::Requests(requests) => Ok(Reading { period, requests }),
        other => Err(Failure::unexpected(&other)),
    }
}

/// Shows reading after reading, until the user ends it. A reading that fails leaves the last one on the
/// screen, with the error.
async fn watch(
    context: &Context,
    terminal: &mut ratatui::DefaultTerminal,
    interval: u64,
) -> Result<(), Failure> {
    let mut keys = keys();
    let mut view = View::new(interval);
    let mut from = None;
    // One reading at a time, and none while paused.
    loop {
        let reading = read(context, from);
        tokio::pin!(reading);
        let outcome = loop {
            terminal.draw(|frame| screen::draw(frame, &mut view))?;
            tokio::select! {
                outcome = &mut reading => break outcome,
                key = keys.recv() => match key.map_or(Action::End, |key| view.event(&key)) {
                    Action::End => return Ok(()),
                    Action::Draw | Action::Renew => {}
                },
            }
        };
        match outcome {
            Ok(reading) => {
                from = Some(reading.period.to);
                view.show(reading);
            }
            // A server that is away may come back; one that refuses the first reading will refuse all.
            Err(Failure::Catalogue { error, .. }) if from.is_some() => view.fail(&error.to_string()),
            Err(failure) => return Err(failure),
        }
        let rest = tokio::time::sleep(Duration::from_secs(view.interval));
        tokio::pin!(rest);
        let mut is_due = false;
        while !is_due || view.is_paused {
            terminal.draw(|frame| screen::draw(frame, &mut view))?;
            tokio::select! {
                () = &mut rest, if !is_due => is_due = true,
                key = keys.recv() => match key.map_or(Action::End, |key| view.event(&key)) {
                    Action::End => return Ok(()),
                    Action::Renew => break,
                    Action::Draw => {}
                },
            }
        }
    }
}

/// Reads keys on a thread of their own, because the terminal blocks.
fn keys() -> mpsc::Receiver<Event> {
    let (send, receive) = mpsc::channel(KEYS_WAITING_MAX);
    std::thread::spawn(move || {
        while let Ok(event) = event::read() {
            let is_release = matches!(&event, Event::Key(key) if key.kind == KeyEventKind::Release);
            if !is_release && send.blocking_send(event).is_err() {
                return;
            }
        }
    });
    receive
}
