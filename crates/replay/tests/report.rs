//! Reports of simulated runs: as text, as pages, compared; and what they must show.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a panic is how a test reports")]

use std::collections::BTreeMap;

use exacat_replay::distance::{BLOCK_BYTES, Distances};
use exacat_replay::generate::{Statistics, generate};
use exacat_replay::limits::{CACHES_MAX, NAMES_MAX, REPORT_NUMBERS_MAX, REPORT_ROWS_MAX};
use exacat_replay::report::build::ReportInput;
use exacat_replay::report::compare::compare;
use exacat_replay::report::conditions::{Condition, StopReason};
use exacat_replay::report::hits::{HitQuantity, HitView};
use exacat_replay::report::series::{RateView, Rates};
use exacat_replay::report::shapes::{AccessClass, CountedFrom, Report};
use exacat_replay::report::tally::{ItemFacts, Tally};
use exacat_replay::report::views::{CacheView, ExpectedView, HandingOut, OriginView, RunFacts};
use exacat_replay::report::{html, text};
use exacat_replay::run::outcome::{AccessResult, Outcome};
use exacat_replay::run::shapes::RunState;
use exacat_replay::trace::Trace;
use quick_xml::Reader;
use quick_xml::events::Event;

const SECOND: u64 = 1_000_000;

/// A server that handles one access after the other, and that answers nothing for a while.
fn stalled_run() -> Tally {
    let mut tally = Tally::new().unwrap();
    // A job every 10 ms; each takes 1 ms, but from 5 s to 6 s nothing is answered. An agent with one
    // connection waits, and begins the next ones late.
    let mut free_at = 0;
    for number in 0..1000_u64 {
        let intended_us = number * 10_000;
        let begin = intended_us.max(free_at);
        let stall = if (5 * SECOND..6 * SECOND).contains(&begin) { 6 * SECOND - begin } else { 0 };
        let duration_us = stall + 1000;
        free_at = begin + duration_us;
        let facts = ItemFacts { intended_us, bytes_asked: 1, size: 1, ..ItemFacts::default() };
        let result =
            AccessResult { late_us: begin - intended_us, duration_us, bytes: 1, ..AccessResult::default() };
        tally.add(&facts, &result);
    }
    tally
}

fn run_of(name: &str, elapsed_us: u64) -> RunFacts {
    RunFacts {
        name: name.to_owned(),
        mode: "as recorded".to_owned(),
        state: RunState::Done,
        begin_us: Some(1_795_424_075_000_000),
        elapsed_us,
        planned_accesses: 0,
        planned_bytes: 0,
        stop: None,
        records_may_come_s: 0,
        settings: BTreeMap::new(),
    }
}

fn report_of(tally: &Tally, thresholds: &[Condition]) -> Report {
    Report::of(ReportInput {
        run: run_of("r", 10 * SECOND),
        tally,
        handing_out: HandingOut::default(),
        expected: None,
        caches: Vec::new(),
        cache_files: Vec::new(),
        origins: Vec::new(),
        thresholds,
    })
    .unwrap()
}

/// Property (coordinated omission): one stall of 1 s is one slow access from the actual begin, and a hundred
/// from the intended begin. The p99 from the intended begin shows it, that from the actual begin does not.
#[test]
fn stall_is_seen_from_the_intended_begin_only() {
    let report = report_of(&stalled_run(), &[]);
    let p99 = |from: CountedFrom| {
        let row = report.durations.iter().find(|row| row.class == AccessClass::All && row.from == from);
        row.unwrap().figures.p99_us
    };
    assert!(p99(CountedFrom::Intended) > 800_000, "{}", p99(CountedFrom::Intended));
    assert!(p99(CountedFrom::Actual) < 1_010, "{}", p99(CountedFrom::Actual));
    assert!(report.lateness.unwrap().p99_us > 800_000, "the delay is the agent's, because of the cache");
    let worst = report.series.points.iter().enumerate().max_by_key(|(_, point)| point.p99_us).unwrap();
    let at = worst.0 as u64 * report.series.width_us;
    assert!((4 * SECOND..6 * SECOND).contains(&at), "the stall is where it was: {at}");
}

/// A run of a generated trace through a simulated cache: an exact cache of whole files (LRU), whose hits
/// begin after 2 ms and whose misses after 60 ms; one access in 100 fails, in several ways.
struct Simulated {
    tally: Tally,
    cache: CacheView,
    origin: OriginView,
    expected: ExpectedView,
    trace: Trace,
}

fn simulated(cache_share: f64) -> Simulated {
    let of =
        Statistics { seed: 5, files: 300, accesses: 3000, days: 0.01, parts: 0.0, ..Statistics::default() };
    let trace = generate(&of, &mut |_| {}).unwrap();
    let distances = Distances::of(&trace, BLOCK_BYTES);
    let cache_bytes = (distances.bytes_touched as f64 * cache_share) as u64;
    let mut random = fastrand::Rng::with_seed(11);
    let (mut tally, mut stack, mut seen) = (Tally::new().unwrap(), Vec::<u32>::new(), Vec::<u32>::new());
    let mut cache = CacheView {
        name: "root://cache1.example.org:1094".to_owned(),
        version: Some("v5.7.2".to_owned()),
        block_bytes: Some(BLOCK_BYTES),
        datagrams: 60,
        bytes_fetched: Some(0),
        bytes_prefetched: Some(0),
        requests: Some(0),
        ..CacheView::default()
    };
    let mut origin = OriginView { name: "origin1.example.org:1094".to_owned(), ..OriginView::default() };
    let (mut asked, mut fetched) = (Rates::new(), Rates::new());
    let first = trace.accesses()[0].time_us;
    for access in trace.accesses() {
        let row = trace.row(access);
        let intended_us = access.time_us - first;
        let facts = ItemFacts {
            intended_us,
            bytes_asked: row.size,
            bytes_in_blocks: row.size,
            size: row.size,
            site: row.site,
            dataset: row.dataset,
            cache: &cache.name.clone(),
            agent: ["agent1", "agent2"][random.usize(..2)],
            driver: "xrootd",
            was_read_before: seen.contains(&access.file),
        };
        seen.push(access.file);
        let before = stack.iter().position(|file| *file == access.file);
        let above: u64 = stack[..before.unwrap_or(0)].iter().map(|file| trace.file(*file).size).sum();
        let is_hit = before.is_some() && above + row.size <= cache_bytes;
        before.map(|at| stack.remove(at));
        stack.insert(0, access.file);
        let first_byte_us = if is_hit { random.u64(1_500..2_500) } else { random.u64(45_000..90_000) };
        let duration_us = first_byte_us + row.size / if is_hit { 1000 } else { 400 };
        let (outcome, number) = match random.u32(..300) {
            0 => (Outcome::Checksum, 3019),
            1 => (Outcome::Server, 3012),
            2 => (Outcome::Timeout, 0),
            _ => (Outcome::Ok, 0),
        };
        let result = AccessResult {
            outcome,
            number,
            attempt: 1,
            late_us: random.u64(..400),
            first_byte_us: Some(first_byte_us),
            duration_us,
            bytes: row.size,
            ..AccessResult::default()
        };
        tally.add(&facts, &result);
        let span = (intended_us, intended_us + duration_us);
        asked.add(span, row.size);
        cache.records += 1;
        cache.access_count += 1;
        *cache.requests.as_mut().unwrap() += 1;
        if is_hit {
            cache.records_hit += 1;
            cache.bytes_hit += row.size;
        } else {
            cache.bytes_miss += row.size;
            *cache.bytes_fetched.as_mut().unwrap() += row.size;
            fetched.add(span, row.size);
            origin.opens += 1;
            origin.reads += row.size.div_ceil(BLOCK_BYTES);
            origin.bytes_out += row.size;
        }
    }
    cache.asked_over_time = Some(asked.view());
    cache.fetched_over_time = Some(fetched.view());
    origin.out_over_time = Some(fetched.view());
    Simulated { tally, cache, origin, expected: ExpectedView::of(&distances, cache_bytes), trace }
}

fn report_of_simulated(name: &str, share: f64, thresholds: &str) -> Report {
    let of = simulated(share);
    let last = of.trace.accesses().last().unwrap().time_us - of.trace.accesses()[0].time_us;
    let mut run = run_of(name, last + 8 * SECOND);
    run.planned_accesses = of.trace.accesses().len() as u64;
    run.planned_bytes = of.expected.bytes_asked;
    run.mode = "as recorded, time x 1".to_owned();
    run.settings = [
        ("trace", "small.trace.zst"),
        ("speed", "1"),
        ("cache size", &format!("{share} of the working set")),
    ]
    .map(|(name, value)| (name.to_owned(), value.to_owned()))
    .into();
    Report::of(ReportInput {
        run,
        tally: &of.tally,
        handing_out: HandingOut {
            handed_out: 3004,
            leases_expired: 4,
            late_results: 1,
            late_result_bytes: 1_000_000,
            known_results: 2,
            agents: 2,
            ..HandingOut::default()
        },
        expected: Some(of.expected),
        caches: vec![of.cache],
        cache_files: Vec::new(),
        origins: vec![of.origin],
        thresholds: &Condition::list(thresholds, Condition::threshold).unwrap(),
    })
    .unwrap()
}

fn share(report: &Report, quantity: HitQuantity, view: HitView) -> f64 {
    report.hits.iter().find(|row| (row.quantity, row.view) == (quantity, view)).unwrap().share
}

/// Property: for a cache that does what its size must reach, all views of a quantity agree, the estimate of
/// clients included, and thresholds on the distance hold.
#[test]
fn views_of_an_exact_cache_agree() {
    use HitQuantity::{BytesAsked, BytesFetched, Requests};
    use HitView::{Cache, Clients, Origin, Plan, Trace};
    for cache_share in [0.1, 0.3, 1.0] {
        let report = report_of_simulated("r", cache_share, "requests-off>0.2%,bytes-off>0.2%,errors>2%");
        let foretold = share(&report, Requests, Trace);
        assert!((foretold - share(&report, Requests, Clients)).abs() < 0.002);
        assert!((foretold - share(&report, Requests, Cache)).abs() < 1e-9);
        assert!(share(&report, Requests, Plan) >= foretold - 1e-9);
        let foretold = share(&report, BytesAsked, Trace);
        for (quantity, view) in [(BytesAsked, Cache), (BytesFetched, Cache), (BytesFetched, Origin)] {
            assert!((foretold - share(&report, quantity, view)).abs() < 1e-9, "{quantity:?} {view:?}");
        }
        assert!(report.verdicts.iter().all(|verdict| verdict.holds), "{:#?}", report.verdicts);
        assert_eq!(report.exit_code, 0);
        // One result of an earlier attempt is told, and its bytes went nowhere in the simulation.
        let unexplained: Vec<i64> = report.differences.iter().map(|of| of.unexplained_bytes).collect();
        assert_eq!(unexplained, [-1_000_000, 0, 0]);
        assert!(report.splits[0].misses.read_again == 0 || cache_share < 1.0);
    }
}

/// Property: the text of a small seeded run is what people checked. The file is the checked text.
#[test]
fn text_of_a_seeded_run_is_the_checked_one() {
    let mut report = report_of_simulated("nightly", 0.3, "errors>0.5%,p99>1h,bytes-off>2%,origin>1GB/s");
    report.run.state = RunState::Stopped;
    let run_us = report.run.elapsed_us;
    report.run.stop = Some(StopReason {
        condition: "errors>0.5%:60s".to_owned(),
        measure: "errors".to_owned(),
        at_us: run_us,
        text: "errors 0.83 %, above 0.50 %, over 60 s: the cache, its origin or an agent fails".to_owned(),
        exit_code: 31,
    });
    let text = text::text(&report);
    assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
    let golden = include_str!("golden/report.txt");
    assert!(text == golden, "the text is not that of tests/golden/report.txt:\n{text}");
}

/// Reads a page as XML. Returns the names of its elements.
fn elements(page: &str) -> Vec<String> {
    let mut reader = Reader::from_str(page);
    reader.config_mut().check_end_names = true;
    let (mut open, mut all) = (Vec::new(), Vec::new());
    loop {
        match reader.read_event().unwrap_or_else(|error| panic!("{error} at {}", reader.error_position())) {
            Event::Start(element) => {
                element.attributes().for_each(|attribute| drop(attribute.unwrap()));
                open.push(element.name().as_ref().to_owned());
                all.push(element.name().as_ref().to_owned());
            }
            Event::Empty(element) => {
                element.attributes().for_each(|attribute| drop(attribute.unwrap()));
                all.push(element.name().as_ref().to_owned());
            }
            Event::End(element) => assert_eq!(open.pop(), Some(element.name().as_ref().to_owned())),
            Event::Eof => break,
            _ => {}
        }
    }
    assert!(open.is_empty(), "{open:?}");
    all
}

/// Property: a page is well-formed, loads nothing, has no script, and each chart has a title and a
/// description, whatever the names are; the same for an empty run and for a comparison.
#[test]
fn pages_are_well_formed_whatever_the_names() {
    let evil = "<script>alert(1)</script>\"'&\u{0}\u{1b}[2J\u{202e}]]>";
    let mut tally = Tally::new().unwrap();
    let of = ItemFacts {
        site: evil,
        dataset: evil,
        cache: evil,
        agent: evil,
        driver: evil,
        ..ItemFacts::default()
    };
    for outcome in [Outcome::Ok, Outcome::Server] {
        tally.add(&of, &AccessResult { outcome, number: 7, ..AccessResult::default() });
    }
    let mut run = run_of(evil, 0);
    run.mode = evil.to_owned();
    run.settings.insert(evil.to_owned(), evil.to_owned());
    run.state = RunState::Stopped;
    let reason = [evil; 3].map(str::to_owned);
    let [condition, measure, text_of] = reason;
    run.stop = Some(StopReason { condition, measure, at_us: 0, text: text_of, exit_code: 31 });
    let evil_report = Report::of(ReportInput {
        run,
        tally: &tally,
        handing_out: HandingOut::default(),
        expected: None,
        caches: vec![CacheView {
            name: evil.to_owned(),
            version: Some(evil.to_owned()),
            ..CacheView::default()
        }],
        cache_files: Vec::new(),
        origins: vec![OriginView { name: evil.to_owned(), ..OriginView::default() }],
        thresholds: &[],
    })
    .unwrap();
    assert_eq!(evil_report.exit_code, 31);
    let empty = report_of(&Tally::new().unwrap(), &[]);
    let full = report_of_simulated("r", 0.3, "errors>1%");
    let pages = [
        (html::page(&evil_report), 5),
        (html::page(&empty), 0),
        (html::page(&full), 5),
        (compare(&evil_report, &full).page(), 0),
    ];
    for (page, charts) in &pages {
        let elements = elements(page);
        let count = |name: &str| elements.iter().filter(|element| *element == name).count();
        assert_eq!((count("svg"), count("desc"), count("script")), (*charts, *charts, 0));
        assert!(!page.contains("<script") && !page.contains("NaN") && !page.contains("inf\""), "{page}");
        assert!(!page.chars().any(|letter| letter.is_control() && letter != '\n'));
        assert!(!page.contains("http://") && !page.contains("url(") && !page.contains("src="));
        assert!(page.contains("prefers-color-scheme"));
    }
    for report in [&evil_report, &empty] {
        let text = text::text(report);
        assert!(!text.chars().any(|letter| letter.is_control() && letter != '\n'), "{text:?}");
        assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
    }
    assert!(!compare(&evil_report, &evil_report).text().contains('\u{1b}'));
}

/// Property: a report survives JSON, and the names of its numbers end in their unit.
#[test]
fn report_is_the_same_after_json() {
    let report = report_of_simulated("r", 0.3, "errors>1%");
    let json = serde_json::to_string(&report).unwrap();
    let again: Report = serde_json::from_str(&json).unwrap();
    assert_eq!(again.totals.bytes, report.totals.bytes);
    assert_eq!(serde_json::to_string(&again).unwrap(), json);
    for name in ["elapsed_us", "p999_us", "bytes_asked", "width_us", "difference_bytes", "exit_code"] {
        assert!(json.contains(&format!("\"{name}\":")), "{name}");
    }
}

/// Property: two runs are compared by figures of the same name, and by the settings that differ.
#[test]
fn two_runs_are_compared() {
    let (small, large) = (report_of_simulated("small", 0.1, ""), report_of_simulated("large", 1.0, ""));
    let comparison = compare(&small, &large);
    let ratio = |name: &str| {
        let row = comparison.figures.iter().find(|row| row.figure == name);
        row.unwrap_or_else(|| panic!("{name}: {:#?}", comparison.figures)).ratio.unwrap()
    };
    assert_eq!(ratio("accesses ended"), 1.0);
    assert!(ratio("bytes that origins sent") < 0.9);
    assert!(ratio("hits: requests, cache") > 1.0);
    assert_eq!(comparison.settings.keys().collect::<Vec<_>>(), ["cache size"]);
    let text = comparison.text();
    assert!(
        text.contains("small and large") && text.lines().all(|line| line.chars().count() <= 80),
        "{text}"
    );
    let same = compare(&small, &small);
    assert!(
        same.settings.is_empty() && same.figures.iter().all(|row| row.ratio.is_none_or(|ratio| ratio == 1.0))
    );
    let nothing = report_of(&Tally::new().unwrap(), &[]);
    assert!(compare(&nothing, &small).figures.iter().any(|row| row.first.is_none() && row.ratio.is_none()));
}

/// Property: thresholds decide the exit code: the first that does not hold, and one that cannot be judged.
#[test]
fn thresholds_decide_the_exit_code() {
    let judged = |thresholds: &str| {
        let thresholds = Condition::list(thresholds, Condition::threshold).unwrap();
        report_of(&stalled_run(), &thresholds).exit_code
    };
    assert_eq!(judged("errors>0%,p50>2ms,rate<100B/s"), 0, "100 B/s are not below 100 B/s");
    assert_eq!(judged("errors>0%,late>1ms,p99>100ms"), 35);
    assert_eq!(judged("p99>100ms,late>1ms"), 32);
    assert_eq!(judged("bypass>5%"), 37, "no cache told");
    assert_eq!(judged("bytes-off>5%"), 38, "the size of the cache is not known");
}

/// Property: tables of names and of error numbers are bounded at their edges, the rest is one row, and
/// nothing is lost.
#[test]
fn tables_are_bounded_and_have_the_rest_in_one_row() {
    let mut tally = Tally::new().unwrap();
    let rows = REPORT_ROWS_MAX as u32;
    for number in 0..rows + 5 {
        let name = format!("set{number}");
        // The first set has three accesses, the last ones one.
        for _ in 0..if number == 0 { 3 } else { 1 } {
            let result = AccessResult {
                outcome: Outcome::Server,
                number: 3000 + number % (REPORT_NUMBERS_MAX as u32 + 2),
                ..AccessResult::default()
            };
            tally.add(&ItemFacts { dataset: &name, ..ItemFacts::default() }, &result);
        }
    }
    let report = report_of(&tally, &[]);
    let total = u64::from(rows) + 7;
    assert_eq!(report.datasets.rows.len(), REPORT_ROWS_MAX);
    assert_eq!((report.datasets.rows[0].name.as_str(), report.datasets.rows[0].accesses), ("set0", 3));
    let others = report.datasets.others.as_ref().unwrap();
    assert_eq!((others.accesses, report.datasets.is_sample), (5, false));
    assert_eq!(report.datasets.rows.iter().map(|row| row.accesses).sum::<u64>() + others.accesses, total);
    let outcome = &report.outcomes[0];
    assert_eq!(outcome.numbers.len(), REPORT_NUMBERS_MAX);
    let numbers: u64 = outcome.numbers.iter().map(|row| row.accesses).sum();
    assert_eq!(numbers + outcome.other_numbers, total);
    assert!(report.sites.others.is_none() && report.sites.rows.len() == 1);
}

/// Property: at the limit of names nothing is a sample, one name above it is, and every access is counted.
#[test]
fn names_are_bounded_at_their_edge() {
    let mut tally = Tally::new().unwrap();
    let add = |tally: &mut Tally, number: usize| {
        let (agent, cache) = (format!("a{number}"), format!("c{}", number % (CACHES_MAX + 1)));
        tally.add(
            &ItemFacts { agent: &agent, cache: &cache, ..ItemFacts::default() },
            &AccessResult::default(),
        );
    };
    (0..CACHES_MAX).for_each(|number| add(&mut tally, number));
    assert!(!report_of(&tally, &[]).caches.is_sample);
    (CACHES_MAX..NAMES_MAX).for_each(|number| add(&mut tally, number));
    let report = report_of(&tally, &[]);
    assert_eq!((report.caches.is_sample, report.agents.is_sample), (true, false));
    assert_eq!(report.caches.rows.len(), CACHES_MAX);
    add(&mut tally, NAMES_MAX);
    let report = report_of(&tally, &[]);
    assert!(report.agents.is_sample);
    let sum: u64 = report.agents.rows.iter().map(|row| row.accesses).sum();
    assert_eq!(sum + report.agents.others.unwrap().accesses, NAMES_MAX as u64 + 1);
}

/// Sets each number of a JSON value, as long as the whole is still a report.
fn with_numbers(whole: &mut serde_json::Value, number: u64) {
    fn places(of: &serde_json::Value, at: &str, all: &mut Vec<String>) {
        match of {
            serde_json::Value::Number(_) => all.push(at.to_owned()),
            serde_json::Value::Array(list) => {
                list.iter().enumerate().for_each(|(number, of)| places(of, &format!("{at}/{number}"), all));
            }
            serde_json::Value::Object(fields) => {
                fields.iter().for_each(|(name, of)| places(of, &format!("{at}/{name}"), all));
            }
            _ => {}
        }
    }
    let mut all = Vec::new();
    places(whole, "", &mut all);
    assert!(all.len() > 100, "{}", all.len());
    for place in all {
        let before = std::mem::replace(whole.pointer_mut(&place).unwrap(), number.into());
        if serde_json::from_value::<Report>(whole.clone()).is_err() {
            *whole.pointer_mut(&place).unwrap() = before;
        }
    }
}

/// Property: a report from elsewhere, with absurd numbers, is shown all the same: as text, page, comparison.
#[test]
fn reports_with_absurd_numbers_are_shown() {
    let of = simulated(0.3);
    let mut tally = Tally::new().unwrap();
    for outcome in [Outcome::Ok, Outcome::Server] {
        let result = AccessResult {
            outcome,
            number: 7,
            first_byte_us: Some(3),
            duration_us: 5,
            ..AccessResult::default()
        };
        tally.add(&ItemFacts::default(), &result);
    }
    let mut cache = of.cache;
    cache.asked_over_time = Some(RateView { width_us: 5, bytes: vec![1, 2] });
    cache.fetched_over_time = Some(RateView { width_us: 9, bytes: vec![1, 2, 3] });
    let report = Report::of(ReportInput {
        run: run_of("r", 5),
        tally: &tally,
        handing_out: HandingOut { late_results: 1, ..HandingOut::default() },
        expected: Some(of.expected),
        caches: vec![cache],
        cache_files: Vec::new(),
        origins: vec![OriginView::default()],
        thresholds: &Condition::list("errors>1%,rate<1GB/s", Condition::threshold).unwrap(),
    })
    .unwrap();
    for number in [0, 1, u64::MAX] {
        let mut json = serde_json::to_value(&report).unwrap();
        with_numbers(&mut json, number);
        let absurd: Report = serde_json::from_value(json).unwrap();
        assert!(text::text(&absurd).starts_with("Run r"));
        let page = html::page(&absurd);
        elements(&page);
        assert!(!page.contains("NaN"), "{number}");
        compare(&absurd, &report).page();
        compare(&report, &absurd).text();
    }
}
