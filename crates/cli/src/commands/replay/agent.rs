//! `replay agent`: makes the accesses of a run.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use exacat_replay_service::agent::{
    Agent, AgentSettings, AgentSummary, CacheSettings, DriverKind, ReadMethod, TokenUse,
};
use serde::Serialize;
use utoipa::ToSchema;

use super::at::{token_in, trust};
use crate::args::{Global, ReplayAgentArgs};
use crate::commands::serve::Signals;
use crate::failure::{Failure, STATUS_INTERRUPTED, say};
use crate::output::human;
use crate::output::{Align, Out, Style, Table};
use crate::parse;

/// Work of an agent.
#[derive(Serialize, ToSchema)]
#[schema(as = ReplayAgent)]
pub(crate) struct AgentView {
    /// Name.
    agent: String,
    /// Accesses that it made.
    accesses: u64,
    /// Accesses by the class of their end.
    outcomes: BTreeMap<String, u64>,
    /// Text of the last failure of each class.
    examples: BTreeMap<String, String>,
    /// Bytes that came.
    bytes: u64,
    /// Seconds of its work.
    seconds: f64,
    /// Accesses each second.
    accesses_per_second: f64,
    /// Megabytes each second.
    megabytes_per_second: f64,
    /// Microseconds from the intended begin to the actual one: median, 99 %, most.
    late_us: [u64; 3],
    /// Microseconds to the first byte: median, 99 %, most.
    first_byte_us: [u64; 3],
    /// Microseconds of an access without error: median, 99 %, most.
    duration_us: [u64; 3],
    /// Results that the service took as final.
    accepted: u64,
    /// Results that the service refused.
    refused: u64,
    /// Results that did not reach the service.
    unreported: u64,
    /// Items that were not begun because their lease had ended.
    expired: u64,
    /// Accesses that were given up when the agent was stopped.
    abandoned: u64,
}

impl AgentView {
    fn of(name: &str, of: &AgentSummary) -> Self {
        let times = |of: &exacat_replay_service::agent::TimesUs| {
            [of.quantile_us(0.5), of.quantile_us(0.99), of.max_us()]
        };
        AgentView {
            agent: name.to_owned(),
            accesses: of.accesses,
            outcomes: of.by_outcome.iter().map(|(kind, count)| (kind.name().to_owned(), *count)).collect(),
            examples: of.examples.iter().map(|(kind, text)| (kind.name().to_owned(), text.clone())).collect(),
            bytes: of.bytes,
            seconds: of.elapsed.as_secs_f64(),
            accesses_per_second: of.accesses_per_second(),
            megabytes_per_second: of.megabytes_per_second(),
            late_us: times(&of.lateness),
            first_byte_us: times(&of.first_byte),
            duration_us: times(&of.duration),
            accepted: of.accepted,
            refused: of.refused,
            unreported: of.unreported,
            expired: of.expired,
            abandoned: of.abandoned,
        }
    }
}

fn settings(args: &ReplayAgentArgs) -> Result<AgentSettings, Failure> {
    let mut cache = CacheSettings::new(&args.cache);
    cache.token = token_in(args.cache_token_file.as_deref())?;
    cache.token_use = if args.token_in_path { TokenUse::Path } else { TokenUse::Login };
    cache.token_hosts = args.token_host.clone();
    if let Some(ca) = &args.cache_ca {
        cache.tls = Some(Arc::new(exacat_server::trusting(ca)?));
    }
    cache.method = if args.pages { ReadMethod::Pages } else { ReadMethod::Plain };
    let read = parse::bytes(&args.read_size).map_err(|error| Failure::local(format!("--read-size: {error}")));
    cache.read_bytes = u32::try_from(read?).unwrap_or(u32::MAX);
    cache.reads_ahead = usize::from(args.reads_ahead);
    cache.is_connected_anew = args.connect_anew;
    cache.verify_content = args.verify_content;
    cache.program = args.program.clone();
    let name = match &args.name {
        Some(name) => name.clone(),
        // One name for each process: its items are not another's.
        None => {
            let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
            let host = if host.trim().is_empty() { "agent" } else { host.trim() };
            format!("{host}-{}", std::process::id())
        }
    };
    let mut settings = AgentSettings::new(&args.at.service, &args.run, name, cache);
    settings.token = token_in(args.at.service_token_file.as_deref())?;
    settings.tls = trust(&args.at.service, args.at.service_ca.as_deref())?;
    settings.driver = match (args.xrdcp, args.http) {
        (true, _) => DriverKind::Xrdcp,
        (_, true) => DriverKind::Http,
        _ => DriverKind::Xrootd,
    };
    settings.in_flight = args.in_flight as usize;
    let patience = parse::some_time_ms(&args.patience);
    let patience = patience.map_err(|error| Failure::local(format!("--patience: {error}")))?;
    settings.service_patience = Duration::from_millis(patience);
    Ok(settings)
}

/// `exacat replay agent`
pub(super) async fn agent(args: ReplayAgentArgs, global: &Global, style: Style) -> Result<u8, Failure> {
    let mut settings = settings(&args)?;
    let mut signals = Signals::new()?;
    let name = settings.name.clone();
    if (global.progress || std::io::IsTerminal::is_terminal(&std::io::stderr())) && !style.quiet {
        settings.progress = Some(Arc::new(|of: &AgentSummary| {
            let rate = human::size((of.megabytes_per_second() * 1e6) as u128);
            let (late, seconds) = (of.lateness.quantile_us(0.99), of.elapsed.as_secs());
            say(&format!(
                "exacat: {seconds} s: {} accesses, {} failed, {rate}B/s, late by {} at 99 %",
                of.accesses,
                of.failed(),
                human::microseconds(late)
            ));
        }));
    }
    let (stop, stopped) = tokio::sync::watch::channel(false);
    let mut work = std::pin::pin!(Agent::run(settings, stopped));
    let mut is_interrupted = false;
    let summary = loop {
        tokio::select! {
            summary = &mut work => break summary?,
            name = signals.next() => {
                if is_interrupted {
                    return Ok(STATUS_INTERRUPTED);
                }
                is_interrupted = true;
                stop.send_replace(true);
                say(&format!("exacat: {name}: reporting what ended; a second signal ends at once"));
            }
        }
    };
    let view = AgentView::of(&name, &summary);
    show(&view, style)?;
    Ok(if is_interrupted { STATUS_INTERRUPTED } else { 0 })
}

fn show(of: &AgentView, style: Style) -> Result<(), Failure> {
    let mut out = Out::new(style);
    if style.json {
        out.json(of)?;
    } else if !style.quiet {
        let mut table = Table::new([Align::Left, Align::Left]);
        let mut row = |name: &str, text: String| table.row([name.to_owned(), text]);
        row("agent", of.agent.clone());
        row("accesses", format!("{} in {:.1} s, {:.0}/s", of.accesses, of.seconds, of.accesses_per_second));
        row("bytes", format!("{}, {:.1} MB/s", human::size(of.bytes.into()), of.megabytes_per_second));
        for (kind, count) in &of.outcomes {
            let example = of.examples.get(kind).map(|text| format!(": {text}")).unwrap_or_default();
            row(kind, format!("{count}{example}"));
        }
        let times = |of: [u64; 3]| {
            let [p50, p99, max] = of.map(human::microseconds);
            format!("median {p50}, 99 % {p99}, most {max}")
        };
        row("late", times(of.late_us));
        row("first byte", times(of.first_byte_us));
        row("duration", times(of.duration_us));
        row("results", format!("{} accepted, {} refused", of.accepted, of.refused));
        if of.unreported + of.expired + of.abandoned > 0 {
            let (unreported, expired, given_up) = (of.unreported, of.expired, of.abandoned);
            row("not done", format!("{unreported} unreported, {expired} expired, {given_up} given up"));
        }
        out.table(&table)?;
    }
    out.flush()
}
