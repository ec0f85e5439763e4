//! A run over power cuts, failing disks and full ones: what was answered stays, and every access ends once.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use exacat_model::Result;
use exacat_replay::run::live::{Now, RunCommand};
use exacat_replay::run::outcome::AccessResult;
use exacat_replay::run::settings::{RunMode, RunSettings};
use exacat_replay::run::shapes::{ItemsRequest, ResultsRequest, RunState};
use exacat_replay::trace::{AccessRow, Trace};
use exacat_testkit::simulated::{Fault, Random, SimulatedDisk};

use super::clock::ReplayClock;
use super::held_run::{HeldRun, RunPlace};

/// Accesses of the run.
const ACCESSES: u64 = 60;
/// Fingerprint of the trace.
const TRACE: u64 = 7;

/// Clock that a test moves.
#[derive(Default)]
struct Moved(AtomicU64);

impl ReplayClock for Moved {
    fn now(&self) -> Now {
        let us = self.0.load(Ordering::Relaxed);
        Now { monotonic_us: us, date_us: 1_800_000_000_000_000 + us }
    }
}

struct World {
    disk: SimulatedDisk,
    moved: Arc<Moved>,
    trace: Arc<Trace>,
}

impl World {
    fn new() -> World {
        let mut trace = Trace::new();
        for at in 0..ACCESSES {
            let name = format!("/f{}", at % 20);
            let row = AccessRow { time_us: at, name: &name, size: 10, ..AccessRow::default() };
            trace.add(&row).unwrap();
        }
        World { disk: SimulatedDisk::new(), moved: Arc::default(), trace: Arc::new(trace) }
    }

    fn place<T>(&self, with: impl FnOnce(RunPlace<'_>) -> Result<T>) -> Result<T> {
        let clock: Arc<dyn ReplayClock> = Arc::clone(&self.moved) as Arc<dyn ReplayClock>;
        with(RunPlace { disk: &self.disk.shared(), directory: Path::new("/run"), clock: &clock })
    }

    fn create(&self) -> Result<()> {
        let settings = RunSettings::new("r", RunMode::InFlight { accesses: 8 });
        self.place(|place| place.create(&settings, TRACE))
    }

    fn open(&self) -> Result<HeldRun> {
        self.place(|place| {
            place.open(&mut |fingerprint| {
                assert_eq!(fingerprint, TRACE);
                Ok(Arc::clone(&self.trace))
            })
        })
    }
}

/// Items that agents hold, and the answers that they got.
#[derive(Default)]
struct Agents {
    held: Vec<AccessResult>,
    /// Number of the last answer with items.
    number: Option<u64>,
    /// Results that were answered as accepted.
    accepted: BTreeMap<u64, AccessResult>,
}

impl Agents {
    async fn ask(&mut self, run: &HeldRun, count: u32) -> Result<()> {
        let request = ItemsRequest {
            agent: "a".to_owned(),
            cache: "root://c:1".to_owned(),
            driver: "test".to_owned(),
            count,
            number: self.number,
        };
        let answer = run.change(|live, now, journal| live.hand_out(&request, false, now, journal)).await?;
        self.number = Some(answer.number);
        self.held.extend(answer.items.iter().map(|of| AccessResult {
            item: of.item,
            attempt: of.attempt,
            bytes: of.item + 1,
            ..AccessResult::default()
        }));
        Ok(())
    }

    /// Sends a result. It stays until an answer comes.
    async fn send(&mut self, run: &HeldRun, at: usize) -> Result<()> {
        let result = self.held[at].clone();
        let request = ResultsRequest { agent: "a".to_owned(), results: vec![result.clone()] };
        let answer = run.change(|live, now, journal| live.take_results(request, now, journal)).await?;
        assert!(answer.refused.is_empty(), "{:?}", answer.refused);
        self.held.swap_remove(at);
        if answer.accepted == 1 {
            let before = self.accepted.insert(result.item, result);
            assert!(before.is_none(), "accepted twice: {before:?}");
        } else if answer.known == 1 {
            // Durable, although the answer was lost.
            self.accepted.entry(result.item).or_insert(result);
        }
        Ok(())
    }
}

fn block<T>(work: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap().block_on(work)
}

/// Works on a run until the disk fails, or all has ended. Says whether it has.
async fn work(run: &HeldRun, world: &World, agents: &mut Agents, random: &mut fastrand::Rng) -> bool {
    for _ in 0..10_000 {
        // A result may be durable although its agent died without the answer.
        if run.read(|live| live.state().0) == RunState::Done {
            return true;
        }
        world.moved.0.fetch_add(random.u64(..3_000_000), Ordering::Relaxed);
        let done = match random.u32(..3) {
            0 => agents.ask(run, random.u32(1..6)).await,
            1 if !agents.held.is_empty() => {
                let at = random.usize(..agents.held.len());
                agents.send(run, at).await
            }
            _ => run.tick().await,
        };
        if done.is_err() {
            // Nothing is answered from a journal that failed.
            assert!(run.faults() > 0);
            assert!(agents.ask(run, 1).await.is_err() && run.tick().await.is_err());
            return false;
        }
    }
    panic!("the run does not end");
}

/// Property: over power cuts, failing writes, syncs and renames at any operation, what was answered is there
/// after the next start, the same result is *known*, and each access has one final result at the end.
#[test]
fn answered_results_survive_power_cuts_and_failing_disks() {
    for seed in 0..80 {
        let mut random = fastrand::Rng::with_seed(seed);
        let mut world = World::new();
        world.disk.shared().create_directory(Path::new("/run")).unwrap();
        world.disk.shared().sync_directory(Path::new("/")).unwrap();
        world.create().unwrap();
        let mut agents = Agents::default();
        let mut is_started = false;
        for round in 0.. {
            assert!(round < 200, "seed {seed}: the run does not end");
            let at = world.disk.operations() + random.u64(1..60);
            let fault = match random.u32(..5) {
                0 => Some(Fault::Once(at, std::io::ErrorKind::StorageFull)),
                1 => Some(Fault::Once(at, std::io::ErrorKind::Other)),
                2 => Some(Fault::Short(at)),
                3 => Some(Fault::PowerCut(at)),
                // Without a fault it goes on to the end.
                _ if round < 6 => continue,
                _ => None,
            };
            world.disk.set_fault(fault);
            let has_ended = match world.open() {
                Err(_) => false,
                Ok(run) => block(async {
                    if !is_started {
                        let start =
                            |live: &mut exacat_replay::run::live::LiveRun, now, journal: &mut Vec<u8>| {
                                live.command(RunCommand::Start, now, journal)
                            };
                        if run.change(start).await.is_err() {
                            return false;
                        }
                        is_started = true;
                    }
                    let has_ended = work(&run, &world, &mut agents, &mut random).await;
                    if has_ended {
                        run.read(|live| {
                            assert_eq!(live.state().0, RunState::Done, "seed {seed}");
                            let bytes = (1..=ACCESSES).sum::<u64>();
                            assert_eq!((live.tally().accesses(), live.tally().bytes()), (ACCESSES, bytes));
                        });
                    }
                    has_ended
                }),
            };
            if has_ended {
                break;
            }
            world.disk.set_fault(None);
            if world.disk.is_dead() || random.bool() {
                world.disk = world.disk.image(&mut Random(seed * 1000 + round));
            }
            // What was accepted is known again, and not lost.
            let Ok(run) = world.open() else { panic!("seed {seed}: the run does not open") };
            block(async {
                let count = run.read(|live| live.tally().accesses());
                assert!(
                    count >= agents.accepted.len() as u64,
                    "seed {seed}: {count} of {}",
                    agents.accepted.len()
                );
                if let Some(one) = agents.accepted.values().next() {
                    let request = ResultsRequest { agent: "a".to_owned(), results: vec![one.clone()] };
                    let answer = run.change(|live, now, journal| live.take_results(request, now, journal));
                    assert_eq!(answer.await.unwrap().known, 1, "seed {seed}");
                }
            });
            // An agent that was killed holds nothing.
            if random.bool() {
                (agents.held, agents.number) = (Vec::new(), None);
            }
        }
    }
}

/// Property: a disk that is full for a while fails requests, and loses nothing: a restart goes on.
#[test]
fn full_disk_fails_requests_until_a_restart() {
    let world = World::new();
    world.disk.shared().create_directory(Path::new("/run")).unwrap();
    world.create().unwrap();
    let mut agents = Agents::default();
    let run = world.open().unwrap();
    block(async {
        run.change(|live, now, journal| live.command(RunCommand::Start, now, journal)).await.unwrap();
        agents.ask(&run, 4).await.unwrap();
        agents.send(&run, 0).await.unwrap();
        let at = world.disk.operations() + 1;
        world.disk.set_fault(Some(Fault::Once(at, std::io::ErrorKind::StorageFull)));
        let error = agents.send(&run, 0).await.unwrap_err();
        assert!(error.message.contains("the outcome is unknown"), "{error}");
        // There is space again, but nobody knows what is on the disk.
        world.disk.set_fault(None);
        assert!(agents.send(&run, 0).await.is_err() && run.faults() >= 2);
    });
    drop(run);
    let run = world.open().unwrap();
    let mut random = fastrand::Rng::with_seed(1);
    assert!(block(work(&run, &world, &mut agents, &mut random)));
}
