//! Power cuts: whatever unsynced part is lost or torn, no answered change is missing, and none is
//! half there.

use exacat_model::{Change, Revision};
use exacat_store::{Outcome, Store};

use super::workload::Workload;
use super::{assert_sound, history, open, try_open, without_runs};
use crate::EmbeddedStore;
use exacat_testkit::simulated::{Fault, Random, SimulatedDisk};

/// Sends requests until the disk is dead or `requests` are answered; returns the last answered
/// revision.
async fn drive(store: &EmbeddedStore, workload: &mut Workload, requests: u64, flushes: bool) -> Revision {
    let mut answered = Revision(0);
    for number in 0..requests {
        match store.apply(workload.request()).await {
            Ok(outcomes) => {
                for outcome in outcomes {
                    if let Outcome::Applied { revision, .. } = outcome {
                        answered = answered.max(revision);
                    }
                }
            }
            Err(_) => return answered,
        }
        if flushes && number % 7 == 3 && store.flush().await.is_err() {
            return answered;
        }
    }
    answered
}

/// Returns the content of a store: its history and its digest.
async fn hold(disk: &SimulatedDisk) -> (Vec<Change>, u128) {
    let store = try_open(disk).unwrap_or_else(|error| panic!("a crash image is refused: {error}"));
    assert_sound(&store).await;
    (history(&store, 50).await, store.digest().await.unwrap())
}

/// Goal: durability, on images worse than those of real disks. Method: a random workload is cut at
/// an operation of the disk. Several images of the rest are opened and audited. Each is compared
/// with the answers, and with itself opened again without runs. The next workload continues from
/// one of them.
#[tokio::test]
async fn nothing_answered_is_lost_and_nothing_is_half_there() {
    for chosen in super::seeds(60) {
        let seed = chosen.0;
        let mut random = Random(seed);
        let mut disk = SimulatedDisk::new();
        let mut workload = Workload::new(seed);
        let mut before: Vec<Change> = Vec::new();
        for _ in 0..4 {
            disk.set_fault(Some(Fault::PowerCut(disk.operations() + 1 + random.next(160))));
            let mut answered = Revision(before.len() as u64);
            if let Ok(store) = try_open(&disk) {
                answered = answered.max(drive(&store, &mut workload, 60, random.chance(2)).await);
            }
            let mut next = None;
            for _ in 0..4 {
                let image = disk.image(&mut random);
                let (changes, digest) = hold(&image).await;
                assert!(
                    changes.len() as u64 >= answered.0,
                    "seed {seed}: change {} was answered, {} are left",
                    answered.0,
                    changes.len()
                );
                assert_eq!(changes[..before.len()], before[..], "seed {seed}: the past changed");
                let bare = image.copy();
                without_runs(&bare);
                assert_eq!(hold(&bare).await, (changes.clone(), digest), "seed {seed}: runs matter");
                next = Some((image, changes));
            }
            let (image, changes) = next.unwrap();
            disk = image.copy();
            before = changes;
        }
    }
}

/// Goal: a partial run does no harm. Method: the power fails at every single operation of writing
/// one.
#[tokio::test]
async fn a_flush_may_be_cut_at_every_step() {
    let disk = SimulatedDisk::new();
    let store = open(&disk);
    let mut workload = Workload::new(5);
    drive(&store, &mut workload, 30, false).await;
    store.flush().await.unwrap();
    drive(&store, &mut workload, 30, false).await;
    let wanted = (history(&store, 1000).await, store.digest().await.unwrap());
    drop(store);
    let start = disk.copy();
    for step in 1.. {
        let disk = start.copy();
        let store = open(&disk);
        disk.set_fault(Some(Fault::PowerCut(disk.operations() + step)));
        let written = store.flush().await;
        drop(store);
        for seed in 0..5 {
            assert_eq!(hold(&disk.image(&mut Random(seed))).await, wanted, "step {step} seed {seed}");
        }
        if written.is_ok() {
            assert!(step > 5, "a flush has more steps than {step}");
            return;
        }
    }
}

/// Goal: replay is deterministic: the same log gives the same state, from any runs or none, and
/// each segment's header agrees. Method: digests compared over many seeds; opening checks the
/// headers.
#[tokio::test]
async fn replay_gives_the_state_that_was() {
    for seed in 100..130 {
        let disk = SimulatedDisk::new();
        let store = open(&disk);
        let mut workload = Workload::new(seed);
        drive(&store, &mut workload, 100, seed % 2 == 0).await;
        let wanted = (history(&store, 17).await, store.digest().await.unwrap());
        assert!(disk.files(".log").len() > 3, "the log has several segments");
        if seed % 3 == 0 {
            store.close().await.unwrap();
        }
        drop(store);
        assert_eq!(hold(&disk).await, wanted, "seed {seed}");
        without_runs(&disk);
        assert_eq!(hold(&disk).await, wanted, "seed {seed}");
    }
}
