//! Reports of runs: made when somebody asks, at most twice a second.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::Arc;
use std::time::Instant;

use exacat_model::{Error, ErrorKind, Result};
use exacat_replay::distance::{BLOCK_BYTES, Distances};
use exacat_replay::report::build::ReportInput;
use exacat_replay::report::conditions::Condition;
use exacat_replay::report::html;
use exacat_replay::report::shapes::Report;
use exacat_replay::report::views::{ExpectedView, RunFacts};
use exacat_replay::run::live::LiveRun;
use exacat_replay::run::settings::{RunMode, RunOrder, RunSettings};
use exacat_replay::run::shapes::RunState;
use hashbrown::HashMap;
use parking_lot::Mutex;

use super::both_sides::BothSides;
use super::held_run::HeldRun;
use super::runs::Runs;
use crate::limits::REPORT_AGE_MAX;

/// Report that was made, and when.
#[derive(Clone)]
struct Made {
    at: Instant,
    report: Arc<Report>,
}

/// Facts of the plan of a run, computed once.
#[derive(Clone, Copy)]
struct Plan {
    bytes: u64,
    expected: Option<ExpectedView>,
}

/// See the module.
pub(crate) struct Reports {
    sides: Arc<BothSides>,
    made: Mutex<HashMap<String, Made>>,
    plans: Mutex<HashMap<String, Plan>>,
}

fn internal(error: impl std::fmt::Display) -> Error {
    Error::new(ErrorKind::Internal, format!("internal error: {error}"))
}

/// Describes the mode of a run.
fn mode_in_words(mode: &RunMode) -> String {
    match mode {
        RunMode::Recorded { speed } if *speed == 1.0 => "as recorded".to_owned(),
        RunMode::Recorded { speed } => format!("as recorded, time x {speed}"),
        RunMode::InFlight { accesses } => format!("{accesses} accesses in flight"),
        RunMode::Ramp { from, step, every_s, most } => {
            format!("from {from} to {most} accesses in flight, {step} more every {every_s} s")
        }
    }
}

fn settings_in_words(of: &RunSettings, trace: u64) -> BTreeMap<String, String> {
    let mut all = BTreeMap::new();
    let mut add = |name: &str, text: String| all.insert(name.to_owned(), text);
    add("mode", mode_in_words(&of.mode));
    add("order", if of.order == RunOrder::File { "of each file" } else { "any" }.to_owned());
    add("trace", format!("{trace} accesses"));
    add("lease", format!("{} s, and 1 s for each {} B", of.lease_s, of.least_rate));
    if of.skip > 0 {
        add("skip", of.skip.to_string());
    }
    if let Some(bytes) = of.cache_bytes {
        add("cache bytes", bytes.to_string());
    }
    if let Some(bytes) = of.block_bytes {
        add("block bytes", bytes.to_string());
    }
    for (name, list) in [("stop when", &of.stop_when), ("fail when", &of.fail_when)] {
        if !list.is_empty() {
            add(name, list.join(", "));
        }
    }
    if !of.remark.is_empty() {
        add("remark", of.remark.clone());
    }
    all
}

impl Reports {
    pub(crate) fn new(sides: Arc<BothSides>) -> Self {
        Reports { sides, made: Mutex::default(), plans: Mutex::default() }
    }

    /// Returns the sides of the runs.
    pub(crate) fn sides(&self) -> &BothSides {
        &self.sides
    }

    /// Returns the plan of a run. Its first computation takes seconds for millions of accesses.
    fn plan(&self, name: &str, run: &HeldRun) -> Plan {
        if let Some(plan) = self.plans.lock().get(name) {
            return *plan;
        }
        let (trace, settings, items) = run
            .read(|live| (Arc::clone(live.queue().trace()), live.settings().clone(), live.queue().items()));
        let first = usize::try_from(settings.skip).unwrap_or(usize::MAX).min(trace.accesses().len());
        let end = first.saturating_add(usize::try_from(items).unwrap_or(usize::MAX));
        let accesses = &trace.accesses()[first..end.min(trace.accesses().len())];
        let bytes = accesses.iter().map(|access| trace.bytes_asked(access)).sum();
        let expected = settings.cache_bytes.map(|cache| {
            let block = settings.block_bytes.unwrap_or(BLOCK_BYTES);
            ExpectedView::of(&Distances::of_accesses(&trace, accesses, block), cache)
        });
        let plan = Plan { bytes, expected };
        self.plans.lock().insert(name.to_owned(), plan);
        plan
    }

    fn make(&self, name: &str, run: &HeldRun) -> Result<Report> {
        let plan = self.plan(name, run);
        let now = run.clock().now();
        let records_may_come_s = self.sides.records_may_come_s(run);
        let facts = |live: &LiveRun| RunFacts {
            name: name.to_owned(),
            mode: mode_in_words(&live.settings().mode),
            state: live.state().0,
            begin_us: live.began_us(),
            elapsed_us: live.elapsed_us(now),
            planned_accesses: live.queue().items(),
            planned_bytes: plan.bytes,
            stop: live.stop().cloned(),
            records_may_come_s,
            settings: settings_in_words(live.settings(), live.queue().trace().accesses().len() as u64),
        };
        // A copy of the sums: agents do not wait for a report.
        let (facts, tally, handing_out, fail_when) = run.read(|live| {
            (facts(live), live.tally().clone(), live.handing_out(), live.settings().fail_when.join(","))
        });
        let (caches, origins) = self.sides.views(name, run);
        let cache_files = self.sides.files(name, run);
        let thresholds = Condition::list(&fail_when, Condition::threshold)?;
        Report::of(ReportInput {
            run: facts,
            tally: &tally,
            handing_out,
            expected: plan.expected,
            caches,
            cache_files,
            origins,
            thresholds: &thresholds,
        })
    }

    /// Returns the report of a run.
    pub(crate) async fn report(self: &Arc<Self>, runs: &Runs, name: &str) -> Result<Arc<Report>> {
        let run = runs.get(name)?;
        let state = run.read(|live| live.state().0);
        if let Some(made) = self.made.lock().get(name)
            && made.at.elapsed() < REPORT_AGE_MAX
            && made.report.run.state == state
        {
            return Ok(Arc::clone(&made.report));
        }
        self.sides.ask_origins_for(runs, &run).await;
        let (reports, of) = (Arc::clone(self), name.to_owned());
        let report =
            tokio::task::spawn_blocking(move || reports.make(&of, &run)).await.map_err(internal)??;
        let report = Arc::new(report);
        self.made.lock().insert(name.to_owned(), Made { at: Instant::now(), report: Arc::clone(&report) });
        Ok(report)
    }

    /// Returns the page of a run. It shows itself again while the run goes on, or records may come.
    pub(crate) async fn page(self: &Arc<Self>, runs: &Runs, name: &str) -> Result<String> {
        let report = self.report(runs, name).await?;
        let page = html::page(&report);
        Ok(match report.run.state {
            RunState::Done | RunState::Stopped if report.run.records_may_come_s == 0 => page,
            _ => page.replacen("<head>", "<head><meta http-equiv=\"refresh\" content=\"5\">", 1),
        })
    }

    /// Returns the page of all runs.
    pub(crate) fn index(&self, runs: &Runs) -> String {
        let mut page = String::from(
            "<!doctype html><html lang=\"en\"><head><meta charset=\"utf-8\"><title>exacat replay</title>\
             <meta name=\"viewport\" content=\"width=device-width\"><meta http-equiv=\"refresh\" content=\"5\">\
             <style>:root{color-scheme:light dark}body{font-family:system-ui,sans-serif;margin:2rem auto;\
             max-width:60rem;padding:0 1rem}table{border-collapse:collapse;width:100%}td,th{text-align:left;\
             padding:.3rem .6rem;border-bottom:1px solid #8884}td.n{text-align:right}</style></head><body>\
             <h1>Runs</h1>",
        );
        let all = runs.all();
        if all.is_empty() {
            page.push_str("<p>There is no run yet: <code>exacat replay run create</code> makes one.</p>");
        } else {
            page.push_str(
                "<table><thead><tr><th>Run</th><th>State</th><th>Mode</th><th>Accesses</th><th>Ended</th>\
                 <th>Failed</th></tr></thead><tbody>",
            );
            for (name, run) in all {
                run.read(|live| {
                    let (state, _) = live.state();
                    let mode = mode_in_words(&live.settings().mode);
                    let (items, ended) = (live.queue().items(), live.queue().counters().ended);
                    let failed = live.tally().errors();
                    // The name of a run has no character that HTML would take for its own.
                    let _ = write!(
                        page,
                        "<tr><td><a href=\"runs/{name}\">{name}</a></td><td>{}</td><td>{mode}</td>\
                         <td class=\"n\">{items}</td><td class=\"n\">{ended}</td><td class=\"n\">{failed}</td></tr>",
                        state.name()
                    );
                });
            }
            page.push_str("</tbody></table>");
        }
        page.push_str("</body></html>");
        page
    }
}
