//! Work of an agent with a service and a driver in memory, on a clock that the test moves.

use std::collections::VecDeque;

use exacat_replay::run::shapes::ItemsAnswer;
use parking_lot::Mutex;

use super::*;
use crate::agent::limits::{RESULTS_PER_MESSAGE_MAX, RESULTS_WAIT_MAX, RESULTS_WAITING_MAX};
use crate::agent::settings::CacheSettings;

/// State of a run, as a test knows it.
#[derive(Default)]
struct Seen {
    /// Items that are not handed out yet, in batches.
    batches: VecDeque<Vec<ReplayItem>>,
    /// Names and times of the accesses that began.
    begun: Vec<(String, Instant)>,
    now_running: usize,
    most_running: usize,
    requests: Vec<(Instant, u32)>,
    messages: Vec<(Instant, Vec<AccessResult>)>,
    /// Requests that fail from now on.
    is_away: bool,
    in_flight: Option<u32>,
    again_ms: u64,
    stops_at: Option<Instant>,
    /// Results after which the run is done.
    wanted: usize,
}

type Shared = Arc<Mutex<Seen>>;

struct FakeLink(Shared);

impl ServiceLink for FakeLink {
    async fn items(&self, request: ItemsRequest) -> Result<ReceivedItems> {
        let mut seen = self.0.lock();
        let at = Instant::now();
        seen.requests.push((at, request.count));
        if seen.is_away {
            return Err(Error::new(ErrorKind::Unavailable, "away"));
        }
        let mut items = seen.batches.pop_front().unwrap_or_default();
        let rest = items.split_off(items.len().min(request.count as usize));
        if !rest.is_empty() {
            seen.batches.push_front(rest);
        }
        let is_stopped = seen.stops_at.is_some_and(|stops| stops <= at);
        let state = if is_stopped { RunState::Stopped } else { RunState::Running };
        let answer =
            ItemsAnswer { state, items, again_ms: seen.again_ms, in_flight: seen.in_flight, number: 0 };
        Ok(ReceivedItems { at, answer })
    }

    async fn results(&self, request: ResultsRequest) -> Result<ResultsAnswer> {
        let mut seen = self.0.lock();
        if seen.is_away {
            return Err(Error::new(ErrorKind::Unavailable, "away"));
        }
        let accepted = request.results.len() as u64;
        seen.messages.push((Instant::now(), request.results));
        let count: usize = seen.messages.iter().map(|(_, results)| results.len()).sum();
        let state = Some(if count >= seen.wanted { RunState::Done } else { RunState::Running });
        Ok(ResultsAnswer { accepted, state, ..ResultsAnswer::default() })
    }
}

/// Driver whose accesses take so many milliseconds as their file has bytes.
struct FakeDriver(Shared);

impl Driver for FakeDriver {
    async fn read(&self, access: &Access, reading: &mut Reading) -> std::result::Result<(), Failure> {
        {
            let mut seen = self.0.lock();
            seen.begun.push((access.name.to_string(), Instant::now()));
            seen.now_running += 1;
            seen.most_running = seen.most_running.max(seen.now_running);
        }
        tokio::time::sleep_until(Instant::now() + Duration::from_millis(access.size)).await;
        reading.came(usize::try_from(access.size).unwrap());
        self.0.lock().now_running -= 1;
        Ok(())
    }
}

fn item(item: u64, due_ms: i64, takes_ms: u64) -> ReplayItem {
    ReplayItem {
        item,
        attempt: 1,
        due_us: due_ms * 1000,
        lease_us: 3_600_000_000,
        name: format!("/{item}"),
        size: takes_ms,
        adler32: None,
        reads: "-".to_owned(),
        site: String::new(),
    }
}

fn settings() -> AgentSettings {
    let mut settings = AgentSettings::new("http://s:1", "r", "a", CacheSettings::new("root://c"));
    settings.access_time = AccessTime { base: Duration::from_secs(3600), bytes_per_second: 1 };
    settings
}

/// Runs an agent on batches of items until the service has all results.
async fn run(
    batches: Vec<Vec<ReplayItem>>,
    set: impl FnOnce(&mut AgentSettings, &mut Seen),
) -> (Result<AgentSummary>, Shared) {
    let wanted = batches.iter().map(Vec::len).sum();
    let mut seen = Seen { batches: batches.into(), wanted, ..Seen::default() };
    let mut settings = settings();
    set(&mut settings, &mut seen);
    let shared = Arc::new(Mutex::new(seen));
    let work = Work::new(settings, FakeLink(Arc::clone(&shared)), FakeDriver(Arc::clone(&shared)));
    let (_keep, stop) = watch::channel(false);
    (work.run(stop).await, shared)
}

/// Property: each access begins at its time, to the precision of the timer, and its lateness says so.
#[tokio::test(start_paused = true)]
async fn accesses_begin_at_their_times() {
    let start = Instant::now();
    let items: Vec<ReplayItem> = (0..500).map(|number| item(number, (number * 7 % 500) as i64, 30)).collect();
    let (summary, seen) = run(vec![items], |_, _| {}).await;
    let summary = summary.unwrap();
    assert_eq!((summary.accesses, summary.late), (500, 0));
    assert!(summary.lateness.max_us() <= 2000, "{}", summary.lateness.max_us());
    for (name, at) in &seen.lock().begun {
        let number: u64 = name[1..].parse().unwrap();
        let due = start + Duration::from_millis(number * 7 % 500);
        assert!(*at >= due && *at - due <= Duration::from_millis(2), "{name}");
    }
}

/// Property: no more accesses run at once than the agent or the service permits; those that wait are late,
/// and none is left out.
#[tokio::test(start_paused = true)]
async fn accesses_at_once_are_bounded_and_late_ones_counted() {
    for (own, permitted, most) in [(4, None, 4), (4, Some(2), 2), (4, Some(9), 4)] {
        let items: Vec<ReplayItem> = (0..40).map(|number| item(number, 0, 100)).collect();
        let (summary, seen) = run(vec![items], |settings, seen| {
            settings.in_flight = own;
            settings.prefetch = 20;
            seen.in_flight = permitted;
        })
        .await;
        let summary = summary.unwrap();
        assert_eq!((summary.accesses, seen.lock().most_running), (40, most));
        assert!(summary.late > 0 && summary.lateness.max_us() >= 100_000);
    }
}

/// Property: the agent asks for items while half of its room is free, not before the service wants it, and
/// never for more than its room.
#[tokio::test(start_paused = true)]
async fn agent_asks_for_as_many_items_as_it_has_room_for() {
    let batches = (0..6).map(|batch| (0..5).map(|at| item(batch * 5 + at, 1000, 1)).collect()).collect();
    let start = Instant::now();
    let (summary, seen) = run(batches, |settings, seen| {
        settings.prefetch = 20;
        seen.again_ms = 100;
    })
    .await;
    assert_eq!(summary.unwrap().accesses, 30);
    let requests: Vec<(u64, u32)> =
        seen.lock().requests.iter().map(|(at, count)| ((*at - start).as_millis() as u64, *count)).collect();
    assert_eq!(requests[..3], [(0, 20), (100, 15), (200, 10)], "{requests:?}");
    assert!(requests[3].0 >= 1000, "with more than half of its room in use it waits: {requests:?}");
}

/// Property: an agent that has all items it can keep hears that the run was stopped.
#[tokio::test(start_paused = true)]
async fn agent_without_room_hears_that_the_run_was_stopped() {
    let start = Instant::now();
    let items = (0..20).map(|number| item(number, 900_000, 1)).collect();
    let (summary, seen) = run(vec![items], |settings, seen| {
        settings.prefetch = 20;
        seen.stops_at = Some(Instant::now() + Duration::from_secs(12));
    })
    .await;
    assert_eq!(summary.unwrap().abandoned, 20);
    assert!(start.elapsed() <= Duration::from_secs(12) + STATE_ASKED_EVERY);
    let counts: Vec<u32> = seen.lock().requests.iter().map(|(_, count)| *count).collect();
    assert_eq!(counts, [20, 0, 0, 0]);
}

/// Property: an empty answer without a pause is no reason to ask at once.
#[tokio::test(start_paused = true)]
async fn empty_answers_are_asked_for_with_a_pause() {
    let start = Instant::now();
    let batches = vec![vec![], vec![], vec![], vec![item(1, 0, 1)]];
    let (_, seen) = run(batches, |_, _| {}).await;
    let times: Vec<Instant> = seen.lock().requests.iter().map(|(at, _)| *at).collect();
    assert!(times[3] - start >= 3 * EMPTY_PAUSE_MIN, "{:?}", times[3] - start);
}

/// Property: results come in messages of at most their size, none later than `RESULTS_WAIT_MAX` allows.
#[tokio::test(start_paused = true)]
async fn results_come_in_time_and_in_messages_of_their_size() {
    let start = Instant::now();
    let mut items: Vec<ReplayItem> = (0..1500).map(|number| item(number, 0, 1)).collect();
    items.extend((1500..1503).map(|number| item(number, 0, 100 * (number - 1498))));
    items.push(item(9999, 0, 5000));
    let more = items.split_off(1000);
    let (_, seen) = run(vec![items, more], |settings, _| settings.in_flight = 5000).await;
    for (at, results) in &seen.lock().messages {
        assert!(results.len() <= RESULTS_PER_MESSAGE_MAX);
        for result in results {
            let ended = start + Duration::from_micros(result.late_us + result.duration_us);
            assert!(*at - ended <= RESULTS_WAIT_MAX + Duration::from_millis(60), "{:?}", *at - ended);
        }
    }
}

/// Property: with so many results that wait the agent takes no items; it goes on when the service has them.
#[tokio::test(start_paused = true)]
async fn agent_takes_no_items_while_too_many_results_wait() {
    let mut settings = settings();
    settings.service_patience = Duration::MAX;
    let shared = Shared::default();
    let mut work = Work::new(settings, FakeLink(Arc::clone(&shared)), FakeDriver(Arc::clone(&shared)));
    for item in 0..RESULTS_WAITING_MAX as u64 - 1 {
        work.outbox.add(Instant::now(), AccessResult { item, ..AccessResult::default() });
    }
    assert!(work.wants_items());
    work.outbox.add(Instant::now(), AccessResult::default());
    assert!(!work.wants_items());
    shared.lock().wanted = RESULTS_WAITING_MAX;
    let (_keep, stop) = watch::channel(false);
    let summary = work.run(stop).await.unwrap();
    assert_eq!(summary.accepted, RESULTS_WAITING_MAX as u64);
    assert!(!shared.lock().requests.is_empty(), "it asked again");
}

/// Property: a service that is away is asked again with growing pauses, for as long as the agent has
/// patience.
#[tokio::test(start_paused = true)]
async fn service_that_is_away_is_asked_with_growing_pauses() {
    let start = Instant::now();
    let (summary, seen) = run(vec![vec![item(1, 0, 1)]], |settings, seen| {
        settings.service_patience = Duration::from_secs(60);
        seen.is_away = true;
    })
    .await;
    assert_eq!(summary.unwrap_err().kind, ErrorKind::Unavailable);
    let lost = start.elapsed();
    assert!(lost >= Duration::from_secs(60) && lost < Duration::from_secs(61), "{lost:?}");
    let times: Vec<Instant> = seen.lock().requests.iter().map(|(at, _)| *at).collect();
    assert!((15..40).contains(&times.len()), "{}", times.len());
    assert!(times.windows(2).all(|pair| pair[1] - pair[0] <= AGAIN_MAX + Duration::from_millis(2)));
}

/// Property: items whose lease ends before there is room are not begun; the others are.
#[tokio::test(start_paused = true)]
async fn items_whose_lease_ended_are_not_begun() {
    let leased = |number, lease_us| ReplayItem { lease_us, ..item(number, 0, 100) };
    let items = vec![leased(1, 50_000), leased(2, 150_000), leased(3, 150_000), leased(4, 250_000)];
    let (summary, seen) = run(vec![items], |settings, seen| {
        settings.in_flight = 1;
        seen.wanted = 3;
    })
    .await;
    let summary = summary.unwrap();
    let names: Vec<String> = seen.lock().begun.iter().map(|(name, _)| name.clone()).collect();
    assert_eq!(names, ["/1", "/2", "/4"]);
    assert_eq!((summary.accesses, summary.expired), (3, 1));
}

/// Property: a run that is stopped ends the agent; accesses that run are given up, ended ones are reported.
#[tokio::test(start_paused = true)]
async fn run_that_is_stopped_ends_the_agent() {
    let start = Instant::now();
    let items = vec![item(1, 0, 10), item(2, 0, 500_000), item(3, 900_000, 1)];
    let (summary, seen) = run(vec![items, vec![]], |settings, seen| {
        settings.progress_every = Duration::from_secs(30);
        seen.again_ms = 1000;
        // The answer behind the first one ends the run.
        seen.wanted = 1;
    })
    .await;
    let summary = summary.unwrap();
    assert_eq!((summary.accesses, summary.abandoned, summary.accepted), (1, 2, 1));
    assert!(start.elapsed() < Duration::from_secs(2));
    assert_eq!(seen.lock().now_running, 1, "the access that ran was dropped");
}

/// Property: an access that takes too long ends at its time, and has the bytes that came.
#[tokio::test(start_paused = true)]
async fn access_that_takes_too_long_ends_at_its_time() {
    let (summary, seen) = run(vec![vec![item(1, 0, 9000)]], |settings, _| {
        settings.access_time = AccessTime { base: Duration::from_secs(2), bytes_per_second: 9000 };
    })
    .await;
    assert_eq!(summary.unwrap().by_outcome[&Outcome::Timeout], 1);
    let result = seen.lock().messages[0].1[0].clone();
    assert!((3_000_000..3_010_000).contains(&result.duration_us), "{}", result.duration_us);
    assert_eq!((result.bytes, result.first_byte_us), (0, None));
}
