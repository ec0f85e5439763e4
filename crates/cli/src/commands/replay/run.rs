//! `replay run`: creates, starts, stops and shows runs.

use std::time::Duration;

use exacat_exchange::Progress;
use exacat_model::ErrorKind;
use exacat_replay::run::settings::{RunMode, RunOrder, RunSettings};
use exacat_replay::run::shapes::RunState;
use exacat_replay_service::service::{ReplayRemote, ReplayRunView, ReplayRuns};

use super::at::remote;
use crate::args::{Global, ReplayOrderArg, ReplayRunCommand, ReplayRunCreateArgs};
use crate::failure::Failure;
use crate::output::human;
use crate::output::{Align, Out, Style, Table};
use crate::parse;
use crate::progress::Bar;

/// Time between two looks at a run that is waited for.
const LOOK_EVERY: Duration = Duration::from_millis(500);
/// Looks without an answer after which a wait ends: the service may be restarted meanwhile.
const LOOKS_IN_VAIN_MAX: u32 = 240;

/// `exacat replay run`
pub(super) async fn run(command: ReplayRunCommand, global: &Global, style: Style) -> Result<u8, Failure> {
    let (at, name, verb) = match command {
        ReplayRunCommand::Create(args) => return create(*args, style).await,
        ReplayRunCommand::Ls { at } => return list(&remote(&at)?.runs().await?, style),
        ReplayRunCommand::Show { name, at } => return show(&remote(&at)?.run(&name).await?, style),
        ReplayRunCommand::Wait { name, at } => return wait(&remote(&at)?, &name, global, style).await,
        ReplayRunCommand::Start { name, at } => (at, name, "start"),
        ReplayRunCommand::Pause { name, at } => (at, name, "pause"),
        ReplayRunCommand::Resume { name, at } => (at, name, "resume"),
        ReplayRunCommand::Stop { name, at } => (at, name, "stop"),
    };
    show(&remote(&at)?.command(&name, verb).await?, style)
}

/// Reads `FROM:STEP:SECONDS:MOST`.
fn ramp(text: &str) -> Result<RunMode, Failure> {
    let bad = || Failure::local(format!("--ramp {text:?}: it is FROM:STEP:SECONDS:MOST, such as 8:8:60:512"));
    let numbers: Vec<u32> =
        text.split(':').map(|word| word.parse().map_err(|_| bad())).collect::<Result<_, _>>()?;
    let [from, step, every_s, most] = numbers.try_into().map_err(|_| bad())?;
    Ok(RunMode::Ramp { from, step, every_s, most })
}

fn size(name: &str, text: Option<&str>) -> Result<Option<u64>, Failure> {
    let read = |text| parse::bytes(text).map_err(|error| Failure::local(format!("--{name}: {error}")));
    text.map(read).transpose()
}

async fn create(args: ReplayRunCreateArgs, style: Style) -> Result<u8, Failure> {
    let mode = match (args.in_flight, &args.ramp) {
        (Some(accesses), _) => RunMode::InFlight { accesses },
        (None, Some(text)) => ramp(text)?,
        (None, None) => RunMode::Recorded { speed: args.speed },
    };
    let mut settings = RunSettings::new(&args.name, mode);
    settings.order = match args.order {
        ReplayOrderArg::File => RunOrder::File,
        ReplayOrderArg::Any => RunOrder::Any,
    };
    settings.skip = args.skip;
    settings.accesses = args.accesses;
    settings.cache_bytes = size("cache-size", args.cache_size.as_deref())?;
    settings.block_bytes = size("block", args.block.as_deref())?;
    settings.lease_s = args.lease;
    settings.least_rate = size("least-rate", Some(&args.least_rate))?.unwrap_or(0);
    settings.stop_when = args.stop_when.clone();
    settings.fail_when = args.fail_when.clone();
    settings.remark = args.remark.clone();
    settings.check()?;
    let remote = remote(&args.at)?;
    let mut view = remote.create(&settings).await?;
    if args.start {
        view = remote.command(&args.name, "start").await?;
    }
    show(&view, style)
}

/// Returns the share that has ended.
fn part(view: &ReplayRunView) -> String {
    format!("{} of {}", view.ended, view.accesses)
}

fn list(runs: &ReplayRuns, style: Style) -> Result<u8, Failure> {
    let mut out = Out::new(style);
    if style.json {
        runs.runs.iter().try_for_each(|run| out.json(run))?;
    } else if !runs.runs.is_empty() {
        let columns = [
            ("RUN", Align::Left),
            ("STATE", Align::Left),
            ("ENDED", Align::Right),
            ("FAILED", Align::Right),
            ("TIME", Align::Right),
        ];
        let mut table = Table::headed(columns);
        for run in &runs.runs {
            let time = human::duration(run.elapsed_us / 1000);
            let (state, failed) = (run.state.name().to_owned(), run.failed.to_string());
            table.row([run.name.clone(), state, part(run), failed, time]);
        }
        out.table(&table)?;
    }
    out.flush()?;
    Ok(0)
}

fn show(run: &ReplayRunView, style: Style) -> Result<u8, Failure> {
    let mut out = Out::new(style);
    if style.json {
        out.json(run)?;
    } else if !style.quiet {
        let mut table = Table::new([Align::Left, Align::Left]);
        let mut row = |name: &str, text: String| table.row([name.to_owned(), text]);
        row("run", run.name.clone());
        let state = match run.reason.as_str() {
            "" => run.state.name().to_owned(),
            reason => format!("{}: {reason}", run.state.name()),
        };
        row("state", state);
        row("accesses", format!("{} ended, {} failed", part(run), run.failed));
        row("time", human::duration(run.elapsed_us / 1000));
        let of = &run.handing_out;
        row("in flight", format!("{} at {}", of.in_flight, human::plural(of.agents, "agent")));
        row("leases", format!("{} given, {} ran out", of.handed_out, of.leases_expired));
        let (known, late, refused) = (of.known_results, of.late_results, of.refused_results);
        row("results", format!("{late} late, {known} sent again, {refused} refused"));
        out.table(&table)?;
    }
    out.flush()?;
    Ok(0)
}

/// Waits for the end of a run. The exit status is that of its report.
async fn wait(remote: &ReplayRemote, name: &str, global: &Global, style: Style) -> Result<u8, Failure> {
    let begun = std::time::Instant::now();
    let mut bar = Bar::new(global, "accesses");
    let mut in_vain = 0;
    let run = loop {
        match remote.run(name).await {
            Ok(run) if matches!(run.state, RunState::Done | RunState::Stopped) => break run,
            Ok(run) => {
                in_vain = 0;
                bar.show(&Progress {
                    rows: run.ended,
                    rows_now: run.ended,
                    rows_total: Some(run.accesses),
                    elapsed: begun.elapsed(),
                    ..Progress::default()
                });
            }
            Err(error) if error.kind == ErrorKind::Unavailable && in_vain < LOOKS_IN_VAIN_MAX => in_vain += 1,
            Err(error) => return Err(error.into()),
        }
        tokio::time::sleep(LOOK_EVERY).await;
    };
    bar.end();
    let report = remote.report(name).await?;
    show(&run, style)?;
    Ok(report.exit_code)
}
