//! Measurements of one peer, in order: making files, look-ups, listing, whole directories, opening.

use std::sync::Arc;
use std::time::{Duration, Instant};

use exacat_bench::{process::own_cpu_s, scatter};
use exacat_model::Result;
use parking_lot::Mutex;

use crate::measure::{Measured, drive, histogram, record, tenths};
use crate::peer::{Form, Measure, Peer, Workload, failed};
use crate::report::{Line, Report};
use crate::tree::{GROUP, LISTED_FILES, Layout, Order};

/// Files of the hot set.
const HOT: u64 = 100_000;
/// Files looked up at once.
const BATCH: u64 = 128;
/// A look-up is warmed up for this part of its time.
const WARM_UP: f64 = 0.25;
/// Renames of a directory, at most.
const RENAMES_MAX: u64 = 20;
/// Questions of the warm-up are others than those measured.
const WARM_UP_FROM: u64 = 1 << 40;
/// Maximum time until a peer is quiet.
const QUIET_WITHIN: Duration = Duration::from_secs(3600);
/// Interval of the checks.
const QUIET_EVERY: Duration = Duration::from_millis(250);
/// It is quiet if it used no more of a processor than this, so many times in a row.
const QUIET_CPU: f64 = 0.04;
/// See [`QUIET_CPU`].
const QUIET_TIMES: u32 = 3;

/// Measurements wanted of every peer.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The files.
    pub layout: Layout,
    /// Duration of measurements that have no end of their own.
    pub time: Duration,
    /// Only measurements whose name has this in it, and what fills the peer for them.
    pub only: Option<String>,
}

impl Plan {
    fn wants(&self, measure: Measure) -> bool {
        self.only.as_deref().is_none_or(|only| measure.name().contains(only))
    }
}

/// Everything of one peer.
pub async fn run<P: Peer>(peer: P, plan: &Plan, report: &mut Report<'_>) -> Result<()> {
    report.gap()?;
    for line in peer.settings() {
        report.note(peer.name(), &line)?;
    }
    report.head()?;
    fill(&peer, plan, report).await?;
    look_ups(&peer, plan, report).await?;
    singles(&peer, plan, report).await?;
    listings(&peer, plan, report).await?;
    trees(&peer, plan, report).await?;
    if plan.wants(Measure::Open) && !peer.forms(Measure::Open).is_empty() {
        let name = peer.name();
        // A server is another process afterwards: all of its CPU time is of opening.
        let cpu = if P::IN_PROCESS { peer.cpu_s() } else { own_cpu_s() };
        let (opened, took) = peer.kill_and_open(plan.layout.some_file(1)).await?;
        let mut latency = histogram()?;
        record(&mut latency, took)?;
        let cpu_s = opened.cpu_s() - cpu;
        let measured = Measured { items: 1, wall: took, cpu_s, making_s: 0.0, latency, ended: Vec::new() };
        report.show(Line::new(name, Measure::Open, "", &measured))?;
    }
    Ok(())
}

/// Measures in each of the peer's forms. `next` gives the n-th call of a form, for as long as it likes.
async fn measure<P: Peer, N>(
    peer: &P,
    measure: Measure,
    report: &mut Report<'_>,
    next: impl Fn(usize) -> N,
) -> Result<()>
where
    N: Fn(u64, Duration) -> Option<Workload> + Send + Sync + 'static,
{
    for (way, form) in peer.forms(measure).iter().enumerate() {
        let sessions = peer.sessions(measure, form).await?;
        let measured = drive(peer, sessions, false, next(way)).await?;
        report.show(Line::new(peer.name(), measure, form, &measured))?;
        for note in peer.notes(measure) {
            report.note(peer.name(), &note)?;
        }
    }
    Ok(())
}

async fn fill<P: Peer>(peer: &P, plan: &Plan, report: &mut Report<'_>) -> Result<()> {
    let layout = plan.layout;
    peer.set_up(&layout).await?;
    let directories = layout.directories();
    measure(peer, Measure::MakeDirectories, report, |_| {
        move |call, _| {
            let from = call * GROUP;
            (from < directories).then(|| Workload::MakeDirectories(from..(from + GROUP).min(directories)))
        }
    })
    .await?;

    let order = Arc::new(Mutex::new(Order::new(&layout)));
    let sessions = peer.sessions(Measure::CreateGroups, "").await?;
    let (cpu, start) = (peer.cpu_s(), Instant::now());
    let measured = drive(peer, sessions, true, move |_, _| order.lock().next().map(Workload::Create)).await?;
    if measured.items != layout.files {
        return Err(failed(format!("{} of {} files were made", measured.items, layout.files)));
    }
    let line = Line::new(peer.name(), Measure::CreateGroups, "", &measured);
    report.show(line.clone())?;
    let shown: Vec<String> = tenths(&measured.ended)
        .iter()
        .map(|(rate, longest)| format!("{:.0} k ({:.0})", rate / 1e3, longest.as_secs_f64() * 1e3))
        .collect();
    let text = format!("tenths of the time, files/s (longest group, ms): {}", shown.join(" · "));
    report.note(peer.name(), &text)?;
    for note in peer.notes(Measure::CreateGroups) {
        report.note(peer.name(), &note)?;
    }
    until_quiet(peer).await?;
    let quiet = Line {
        measure: Measure::CreateUntilQuiet,
        wall_s: start.elapsed().as_secs_f64(),
        cpu_s: peer.cpu_s() - cpu - measured.making_s,
        ..line
    };
    report.show(quiet)?;
    if !peer.forms(Measure::Bytes).is_empty() {
        report.show(Line::sized(peer.name(), layout.files, peer.sizes()?))?;
    }
    Ok(())
}

/// Waits until nothing is left that was put off: flushing, merging, compressing.
async fn until_quiet<P: Peer>(peer: &P) -> Result<()> {
    peer.flush().await?;
    let start = Instant::now();
    let (mut quiet, mut cpu, mut seen) = (0, peer.cpu_s(), Instant::now());
    while quiet < QUIET_TIMES {
        if start.elapsed() > QUIET_WITHIN {
            return Err(failed(format!("{} is not quiet after {QUIET_WITHIN:?}", peer.name())));
        }
        tokio::time::sleep(QUIET_EVERY).await;
        let busy = peer.is_busy().await?;
        let used = (peer.cpu_s() - cpu) / seen.elapsed().as_secs_f64();
        (cpu, seen) = (peer.cpu_s(), Instant::now());
        quiet = if busy || used > QUIET_CPU { 0 } else { quiet + 1 };
    }
    peer.is_quiet()
}

async fn look_ups<P: Peer>(peer: &P, plan: &Plan, report: &mut Report<'_>) -> Result<()> {
    let layout = plan.layout;
    let batch = move |call: u64, file: fn(&Layout, u64) -> crate::tree::FileId| {
        Workload::LookUp((0..BATCH).map(|item| file(&layout, call * BATCH + item)).collect())
    };
    let hot = |layout: &Layout, random: u64| layout.hot_file(random, HOT);
    ask(peer, plan, Measure::LookUpHot, report, move |call| Workload::LookUp(vec![hot(&layout, call)]))
        .await?;
    ask(peer, plan, Measure::LookUpUniform, report, move |call| {
        Workload::LookUp(vec![layout.some_file(call)])
    })
    .await?;
    ask(peer, plan, Measure::BatchHot, report, move |call| batch(call, hot)).await?;
    ask(peer, plan, Measure::BatchUniform, report, move |call| batch(call, Layout::some_file)).await?;
    ask(peer, plan, Measure::BatchDirectory, report, move |call| {
        let directory = layout.some_file(call).directory;
        let files = 0..crate::tree::FILES_PER_DIRECTORY;
        Workload::LookUp(files.map(|number| crate::tree::FileId { directory, number }).collect())
    })
    .await?;
    ask(peer, plan, Measure::ByGuid, report, move |call| Workload::ByGuid(layout.some_file(call))).await?;
    ask(peer, plan, Measure::Miss, report, move |call| Workload::Miss(layout.some_file(call).missing())).await
}

/// Asks for the plan's time, after a warm-up.
async fn ask<P: Peer>(
    peer: &P,
    plan: &Plan,
    what: Measure,
    report: &mut Report<'_>,
    work: impl Fn(u64) -> Workload + Clone + Send + Sync + 'static,
) -> Result<()> {
    if !plan.wants(what) {
        return Ok(());
    }
    let (time, warm_up) = (plan.time, plan.time.mul_f64(WARM_UP));
    if let Some(form) = peer.forms(what).first() {
        let (sessions, work) = (peer.sessions(what, form).await?, work.clone());
        drive(peer, sessions, false, move |call, since| (since < warm_up).then(|| work(WARM_UP_FROM + call)))
            .await?;
    }
    measure(peer, what, report, |_| {
        let work = work.clone();
        move |call, since| (since < time).then(|| work(call))
    })
    .await
}

async fn singles<P: Peer>(peer: &P, plan: &Plan, report: &mut Report<'_>) -> Result<()> {
    if !plan.wants(Measure::CreateSingle) {
        return Ok(());
    }
    let (layout, time) = (plan.layout, plan.time);
    measure(peer, Measure::CreateSingle, report, |way| {
        move |call, since| {
            (call < layout.singles && since < time)
                .then(|| Workload::Create(vec![layout.single_file(way as u64, call)]))
        }
    })
    .await
}

/// Fills directories for what is measured next.
async fn fill_directories<P: Peer>(peer: &P, directories: std::ops::Range<u64>, files: u64) -> Result<()> {
    let groups = files.div_ceil(GROUP);
    let sessions = peer.sessions(Measure::CreateGroups, "").await?;
    let done = drive(peer, sessions, false, move |call, _| {
        let (directory, from) = (directories.start + call / groups, call % groups * GROUP);
        directories.contains(&directory).then(|| {
            let numbers = from..(from + GROUP).min(files);
            Workload::Create(numbers.map(|number| crate::tree::FileId { directory, number }).collect())
        })
    })
    .await?;
    if done.items == 0 { Err(failed("no files were made")) } else { Ok(()) }
}

async fn listings<P: Peer>(peer: &P, plan: &Plan, report: &mut Report<'_>) -> Result<()> {
    let (layout, time) = (plan.layout, plan.time);
    if plan.wants(Measure::List) && !peer.forms(Measure::List).is_empty() {
        let listed = layout.listed();
        fill_directories(peer, listed.clone(), LISTED_FILES).await?;
        ask(peer, plan, Measure::List, report, move |call| {
            let directory = listed.start + scatter(call) % (listed.end - listed.start);
            Workload::List { directory, files: LISTED_FILES }
        })
        .await?;
    }
    if plan.wants(Measure::Scan) && !peer.forms(Measure::Scan).is_empty() {
        let (directory, files) = (layout.scanned(), layout.scanned_files);
        fill_directories(peer, directory..directory + 1, files).await?;
        measure(peer, Measure::Scan, report, |_| {
            move |call, since| (call == 0 || since < time).then_some(Workload::List { directory, files })
        })
        .await?;
    }
    Ok(())
}

async fn trees<P: Peer>(peer: &P, plan: &Plan, report: &mut Report<'_>) -> Result<()> {
    let (files, time) = (plan.layout.files_of_first_run(), plan.time);
    let forms = |measure: Measure| -> &'static [Form] { peer.forms(measure) };
    if plan.wants(Measure::Usage) && !forms(Measure::Usage).is_empty() {
        report.note(peer.name(), &format!("{files} files below the directory of the next lines"))?;
        measure(peer, Measure::Usage, report, |_| {
            move |call, since| (call == 0 || since < time).then_some(Workload::Usage { run: 0, files })
        })
        .await?;
    }
    if plan.wants(Measure::Rename) {
        measure(peer, Measure::Rename, report, |_| {
            move |call, since| {
                // There and back: an even number of them.
                let back = !call.is_multiple_of(2);
                let go = back || call == 0 || (since < time && call < RENAMES_MAX);
                go.then_some(Workload::Rename { run: 0, back })
            }
        })
        .await?;
    }
    Ok(())
}
