//! Property: whatever agents do, each item gets exactly one final result, and accesses to a file are handed
//! out in their order.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use exacat_replay::limits::{
    AGENT_ACTIVE_US, AGENTS_MAX, AHEAD_ITEMS_MAX, AHEAD_SHARE_MAX, AHEAD_US, PACE_US,
};
use exacat_replay::run::outcome::AccessResult;
use exacat_replay::run::queue::{AgentName, Ask, HandedItem, Queue, Verdict};
use exacat_replay::run::settings::{RunMode, RunOrder, RunSettings};
use exacat_replay::trace::{AccessRow, Trace};

fn trace(files: &[u32]) -> Arc<Trace> {
    let mut trace = Trace::new();
    for (at, file) in files.iter().enumerate() {
        let name = format!("/f{file}");
        let time_us = at as u64 * 1000;
        trace.add(&AccessRow { time_us, name: &name, size: 1000, ..AccessRow::default() }).unwrap();
    }
    Arc::new(trace)
}

fn named(name: &str) -> AgentName {
    AgentName { name: name.to_owned(), ..AgentName::default() }
}

fn in_flight(accesses: u32) -> RunSettings {
    RunSettings::new("r", RunMode::InFlight { accesses })
}

fn ask(
    queue: &mut Queue,
    agent: u32,
    count: usize,
    elapsed_us: u64,
    now_us: u64,
) -> (Vec<HandedItem>, Option<u32>) {
    queue.hand_out(&Ask { agent, count, ahead_us: AHEAD_US, elapsed_us, now_us })
}

fn result(item: u64, attempt: u32) -> AccessResult {
    AccessResult { item, attempt, ..AccessResult::default() }
}

fn items(handed: &[HandedItem]) -> Vec<u64> {
    handed.iter().map(|of| of.item).collect()
}

/// Agents that ask, answer, answer twice, die and come back, in any order.
#[test]
fn random_agents_end_every_item_once_and_in_the_order_of_each_file() {
    for seed in 0..60 {
        let mut random = fastrand::Rng::with_seed(seed);
        let files: Vec<u32> = (0..400).map(|_| random.u32(..20)).collect();
        let order = if seed % 3 == 0 { RunOrder::Any } else { RunOrder::File };
        let mode = match seed % 2 {
            0 => RunMode::Recorded { speed: 10.0 },
            _ => RunMode::InFlight { accesses: 16 },
        };
        let settings = RunSettings { order, lease_s: 20, ..RunSettings::new("r", mode) };
        let mut queue = Queue::new(trace(&files), settings).unwrap();
        let agents: Vec<u32> = (0..4).map(|at| queue.meet(&named(&format!("a{at}"))).unwrap().0).collect();
        let mut held: BTreeMap<u32, Vec<HandedItem>> = BTreeMap::new();
        let mut last_of_file: BTreeMap<u32, u64> = BTreeMap::new();
        let (mut finals, mut now) = (BTreeMap::new(), 0);
        for step in 0.. {
            assert!(step < 200_000, "seed {seed}: the run does not end");
            if queue.is_done() {
                break;
            }
            now += random.u64(..400_000);
            queue.expire(now);
            let agent = agents[random.usize(..agents.len())];
            let mine = held.entry(agent).or_default();
            match random.u32(..12) {
                0..5 => {
                    let (handed, share) = ask(&mut queue, agent, random.usize(1..9), now, now);
                    assert!(share.is_none_or(|share| share <= 16));
                    for of in &handed {
                        let file = files[of.item as usize];
                        // A first attempt begins behind all earlier accesses to its file.
                        if of.attempt == 1 && order == RunOrder::File {
                            let before = last_of_file.insert(file, of.item);
                            assert!(before.is_none_or(|before| before < of.item), "seed {seed}: {of:?}");
                        }
                        assert!(of.deadline_us > now && of.due_us <= now + AHEAD_US);
                    }
                    mine.extend(handed);
                }
                // It dies with all that it has.
                5 if random.u32(..8) == 0 => mine.clear(),
                6 if !mine.is_empty() => {
                    // A result that nobody has asked for.
                    let of = mine[random.usize(..mine.len())];
                    let bad = result(of.item, of.attempt + 1_000_000);
                    assert!(matches!(queue.judge(&bad, 9), Verdict::Refused(_)), "seed {seed}");
                }
                _ if !mine.is_empty() => {
                    let of = mine.swap_remove(random.usize(..mine.len()));
                    let fingerprint = of.item as u32 + 1;
                    let sent = result(of.item, of.attempt);
                    match queue.judge(&sent, fingerprint) {
                        Verdict::Final { .. } => {
                            assert_eq!(finals.insert(of.item, of.attempt), None, "seed {seed}: twice final");
                        }
                        Verdict::Late => {
                            assert_ne!(finals[&of.item], of.attempt, "seed {seed}");
                            assert_eq!(queue.judge(&sent, fingerprint), Verdict::LateKnown);
                            continue;
                        }
                        other => panic!("seed {seed}: {other:?}"),
                    }
                    assert_eq!(queue.judge(&sent, fingerprint), Verdict::Known, "seed {seed}");
                    let other = queue.judge(&sent, fingerprint + 1);
                    assert!(matches!(other, Verdict::Refused(_)), "seed {seed}: other content");
                }
                _ => {}
            }
        }
        let all: BTreeSet<u64> = finals.keys().copied().collect();
        assert_eq!(all, (0..400).collect(), "seed {seed}");
        let counters = queue.counters();
        assert_eq!((counters.ended, queue.leased()), (400, 0), "seed {seed}");
        assert!(counters.handed >= 400 && counters.handed <= 400 + counters.expired, "{counters:?}");
    }
}

#[test]
fn item_is_handed_out_when_it_is_due_and_not_long_before() {
    let mut trace = Trace::new();
    for (time_us, name) in [(100, "/a"), (100 + AHEAD_US, "/b"), (101 + AHEAD_US, "/c")] {
        trace.add(&AccessRow { time_us, name, size: 5_000_000, ..AccessRow::default() }).unwrap();
    }
    let settings = RunSettings::new("r", RunMode::Recorded { speed: 1.0 });
    let mut queue = Queue::new(Arc::new(trace), settings).unwrap();
    let (agent, _) = queue.meet(&named("a")).unwrap();
    let (handed, share) = ask(&mut queue, agent, 10, 0, 77);
    assert_eq!((items(&handed), share), (vec![0, 1], None));
    // A lease ends so long after the begin as the settings and the bytes say.
    assert_eq!((handed[0].due_us, handed[0].deadline_us), (0, 77 + 65_000_000));
    assert_eq!(handed[1].deadline_us, 77 + AHEAD_US + 65_000_000);
    assert_eq!(items(&ask(&mut queue, agent, 10, 1, 78).0), [2]);
}

/// Agents that ask at their own times, for so many items at most, while a trace of 500 accesses a second goes
/// on. Returns how many each got, and the longest time by which an item came too late.
fn shares_of(counts: &[usize], seed: u64) -> (Vec<usize>, u64) {
    let mut random = fastrand::Rng::with_seed(seed);
    let mut trace = Trace::new();
    for at in 0..5000_u64 {
        let name = format!("/f{at}");
        trace.add(&AccessRow { time_us: at * 2000, name: &name, size: 1, ..AccessRow::default() }).unwrap();
    }
    let settings = RunSettings::new("r", RunMode::Recorded { speed: 1.0 });
    let mut queue = Queue::new(Arc::new(trace), settings).unwrap();
    let agents: Vec<u32> =
        (0..counts.len()).map(|at| queue.meet(&named(&format!("a{at}"))).unwrap().0).collect();
    // They wait for the start.
    for agent in &agents {
        assert!(
            queue
                .hand_out(&Ask { agent: *agent, count: 0, ahead_us: 0, elapsed_us: 0, now_us: 0 })
                .0
                .is_empty()
        );
    }
    let (mut got, mut latest) = (vec![0; counts.len()], 0);
    let mut asks: Vec<u64> = agents.iter().map(|_| random.u64(..20_000)).collect();
    while got.iter().sum::<usize>() < 5000 {
        let next = (0..asks.len()).min_by_key(|at| asks[*at]).unwrap();
        let now = asks[next];
        let (handed, _) = ask(&mut queue, agents[next], counts[next], now, now);
        got[next] += handed.len();
        latest = handed.iter().map(|of| now.saturating_sub(of.due_us)).fold(latest, u64::max);
        asks[next] = now + random.u64(5_000..50_000);
    }
    (got, latest)
}

/// Property: agents that ask alike get about alike, in a run with times too, and no access is late for it.
#[test]
fn accesses_with_times_are_shared_by_the_agents_that_ask() {
    for seed in 0..10 {
        for agents in [2, 3, 10] {
            let (got, late_us) = shares_of(&vec![10_000; agents], seed);
            let alike = 5000 / agents;
            let is_alike = got.iter().all(|got| got.abs_diff(alike) <= alike * 2 / 5);
            assert!(is_alike && late_us <= 50_000, "seed {seed}: {got:?}, {late_us} us late");
        }
        // An agent that can do little leaves the rest to the other one.
        let (got, late_us) = shares_of(&[10_000, 1], seed);
        assert!(got[1] <= 500 && late_us <= 50_000, "seed {seed}: {got:?}, {late_us} us late");
    }
}

#[test]
fn accesses_to_a_file_go_to_one_agent_until_it_is_gone() {
    let mut queue = Queue::new(trace(&[1, 1, 2, 1]), in_flight(64)).unwrap();
    let (a, _) = queue.meet(&named("a")).unwrap();
    let (b, _) = queue.meet(&named("b")).unwrap();
    assert_eq!(items(&ask(&mut queue, a, 1, 0, 0).0), [0]);
    assert_eq!(items(&ask(&mut queue, b, 10, 0, 0).0), [2], "the others wait for the first agent");
    assert_eq!(queue.judge(&result(2, 1), 1), Verdict::Final { due_us: 0 });
    assert_eq!(items(&ask(&mut queue, b, 10, 0, 1).0), [] as [u64; 0]);
    // The first agent says nothing more. Its lease runs out, and everything is free.
    let gone = 62_000_000;
    assert_eq!(queue.expire(gone), 1);
    let (handed, _) = ask(&mut queue, b, 10, gone, gone);
    assert_eq!(items(&handed), [0, 1, 3]);
    assert_eq!(handed.iter().map(|of| of.attempt).collect::<Vec<_>>(), [2, 1, 1]);
    // Its result comes after all, before that of the second attempt.
    assert_eq!(queue.judge(&result(0, 1), 5), Verdict::Final { due_us: gone });
    assert_eq!(queue.judge(&result(0, 2), 5), Verdict::Late);
    assert_eq!(queue.counters().expired, 1);
}

#[test]
fn accesses_in_flight_are_shared_by_the_agents_that_ask() {
    let mut queue = Queue::new(trace(&(0..200).collect::<Vec<_>>()), in_flight(7)).unwrap();
    let (a, _) = queue.meet(&named("a")).unwrap();
    let (handed, share) = ask(&mut queue, a, 100, 0, 0);
    assert_eq!((handed.len(), share), (39, Some(7)), "those in flight, and some ahead");
    let (b, _) = queue.meet(&named("b")).unwrap();
    assert_eq!(ask(&mut queue, b, 100, 0, 1).1, Some(3));
    assert_eq!(ask(&mut queue, a, 100, 0, 2).1, Some(4));
    let later = 2 + AGENT_ACTIVE_US + 1;
    assert_eq!(ask(&mut queue, a, 100, later, later).1, Some(7), "the other one is gone");
}

/// Property: an agent has as many items ahead as it ends in a quarter of a second, and a slow one has few.
#[test]
fn items_ahead_follow_the_pace_of_the_agent() {
    const IN_FLIGHT: usize = 1000;
    let files: Vec<u32> = (0..300_000).collect();
    let mut queue = Queue::new(trace(&files), in_flight(IN_FLIGHT as u32)).unwrap();
    let (agent, _) = queue.meet(&named("a")).unwrap();
    let (most, mut now) = (AHEAD_ITEMS_MAX as usize, 0);
    let mut leased: VecDeque<u64> = VecDeque::new();
    // Ends so many items in a quarter of a second, and returns how many it has then.
    let mut pass = |ended: usize| {
        now += PACE_US;
        for item in leased.drain(..ended) {
            assert!(matches!(queue.judge(&result(item, 1), 1), Verdict::Final { .. }));
        }
        for _ in 0..3 {
            leased.extend(items(&ask(&mut queue, agent, 10_000, now, now).0));
        }
        leased.len()
    };
    let mut has = pass(0);
    assert_eq!(has, IN_FLIGHT + AHEAD_SHARE_MAX as usize);
    assert_eq!(pass(10), has, "slow");
    while has < IN_FLIGHT + most {
        let more = pass(has);
        assert_eq!(more, IN_FLIGHT + has.min(most), "so that it can become faster");
        has = more;
    }
    assert_eq!(pass(has), IN_FLIGHT + most);
    assert_eq!(pass(1), has - 1, "slow again: no more items, and none is taken back");
}

#[test]
fn results_that_are_none_of_the_run_are_refused() {
    let mut queue = Queue::new(trace(&[1, 2, 3]), RunSettings { accesses: Some(2), ..in_flight(8) }).unwrap();
    let (agent, _) = queue.meet(&named("a")).unwrap();
    assert_eq!(items(&ask(&mut queue, agent, 1, 0, 0).0), [0]);
    for (item, attempt) in [(0, 0), (0, 2), (1, 1), (2, 1), (u64::MAX, 1)] {
        let verdict = queue.judge(&result(item, attempt), 1);
        assert!(matches!(verdict, Verdict::Refused(_)), "{item} {attempt}: {verdict:?}");
    }
    assert_eq!((queue.counters().refused, queue.counters().ended), (5, 0));
}

#[test]
fn agents_are_bounded_and_their_names_are_checked() {
    let mut queue = Queue::new(trace(&[1]), in_flight(1)).unwrap();
    for at in 0..AGENTS_MAX {
        queue.meet(&named(&at.to_string())).unwrap();
    }
    assert!(queue.meet(&named("one more")).is_err());
    assert_eq!(queue.meet(&named("7")), Ok((7, false)));
    for bad in ["", "a\nb", &"x".repeat(256)] {
        assert!(queue.meet(&named(bad)).is_err(), "{bad:?}");
    }
    assert!(Queue::new(trace(&[]), in_flight(1)).is_err());
    assert!(Queue::new(trace(&[1]), RunSettings { skip: 1, ..in_flight(1) }).is_err());
}

/// Property: a queue that is restored from what was durable goes on as if nothing had happened.
#[test]
fn restored_queue_hands_out_only_what_was_not_ended() {
    let files = [1, 2, 1, 3, 4];
    let mut queue = Queue::new(trace(&files), in_flight(64)).unwrap();
    let (a, _) = queue.meet(&named("a")).unwrap();
    for (item, attempt) in [(0, 1), (1, 1), (2, 1), (0, 2)] {
        queue.restore_lease(item, attempt, a, 3).unwrap();
    }
    assert!(queue.restore_lease(0, 1, a + 1, 0).is_err() && queue.restore_lease(5, 1, a, 0).is_err());
    assert_eq!(queue.judge(&result(1, 1), 1), Verdict::Final { due_us: 3 });
    assert!(queue.restore_lease(1, 2, a, 0).is_err(), "it has ended");
    queue.renew_leases(10, 1000);
    let (b, _) = queue.meet(&named("b")).unwrap();
    assert_eq!(items(&ask(&mut queue, b, 10, 10, 1000).0), [3, 4]);
    assert_eq!(queue.expire(1000 + 59_000_000), 0);
    assert_eq!(queue.expire(1000 + 61_000_000), 4);
    assert_eq!(queue.judge(&result(0, 1), 1), Verdict::Final { due_us: 0 }, "an earlier attempt counts");
    assert_eq!((queue.counters().ended, queue.leased()), (2, 0));
}
