//! Catalogues of earlier stages of the engine: they open, and are carried over to runs.

use std::path::Path;

use exacat_model::ErrorKind;
use exacat_store::Store;

use super::simulated::{Fault, Random, SimulatedDisk};
use super::workload::Workload;
use super::{assert_sound, history, open, try_open};

/// Directory of the first stage: a checkpoint, and the log that continues after it. Each file has
/// four parts: the length of its name, its name, its length, its bytes.
const FIRST_STAGE: &[u8] = include_bytes!("golden/first-stage.files");

/// Digest of its state.
const DIGEST: u128 = 0x1030_30ed_d825_de24_634d_25dd_db60_1f5e;

fn first_stage() -> SimulatedDisk {
    let (disk, mut rest) = (SimulatedDisk::new(), FIRST_STAGE);
    let mut take = || {
        let (length, more) = rest.split_at(4);
        let length = u32::from_le_bytes(length.try_into().unwrap()) as usize;
        let (bytes, more) = more.split_at(length);
        rest = more;
        (bytes, more.is_empty())
    };
    loop {
        let name = std::str::from_utf8(take().0).unwrap();
        let path = Path::new("/data").join(name);
        let (bytes, last) = take();
        let shared = disk.shared();
        shared.create_directory(path.parent().unwrap()).unwrap();
        let file = shared.create(&path).unwrap();
        file.write_at(bytes, 0).unwrap();
        file.sync().unwrap();
        shared.sync_directory(path.parent().unwrap()).unwrap();
        shared.sync_directory(Path::new("/data")).unwrap();
        if last {
            return disk;
        }
    }
}

/// Goal: a catalogue of the first stage opens with everything in it, and can be changed; the
/// checkpoint is used, then removed.
#[tokio::test]
async fn a_catalogue_of_the_first_stage_is_carried_over() {
    let disk = first_stage();
    let store = open(&disk);
    assert_eq!(history(&store, 1000).await.len(), 216);
    assert_eq!(store.digest().await.unwrap(), DIGEST);
    assert_sound(&store).await;
    assert!(disk.files(".checkpoint").is_empty() && !disk.files(".run").is_empty());
    let mut workload = Workload::new(3);
    for _ in 0..30 {
        let mut request = workload.request();
        request.operation.0[15] = 1;
        store.apply(request).await.unwrap();
    }
    let wanted = (history(&store, 1000).await, store.digest().await.unwrap());
    drop(store);
    let store = open(&disk);
    assert_eq!((history(&store, 1000).await, store.digest().await.unwrap()), wanted);
    assert_sound(&store).await;
}

/// Goal: without its checkpoint, or with a damaged one, the log gives the same.
#[tokio::test]
async fn a_damaged_checkpoint_is_passed_over() {
    let whole = first_stage();
    let path = whole.files(".checkpoint").remove(0);
    for at in (0..whole.bytes(&path).len()).step_by(97) {
        let damaged = whole.copy();
        damaged.damage(&path, |bytes| bytes[at] ^= 4);
        match try_open(&damaged) {
            Ok(store) => {
                assert_eq!(history(&store, 1000).await.len(), 216);
                assert_eq!(store.digest().await.unwrap(), DIGEST, "byte {at}");
                assert_eq!(store.status().await.unwrap().warnings.len(), 1);
            }
            // These bytes are the version of the format: a later version cannot be told from
            // damage.
            Err(error) => assert_eq!((error.kind, at / 2), (ErrorKind::Invalid, 4), "{error}"),
        }
    }
}

/// Goal: carrying over may be cut at every step. Method: the power fails at each of its operations,
/// with any image left.
#[tokio::test]
async fn carrying_over_may_be_cut_at_every_step() {
    for step in 1.. {
        let disk = first_stage();
        disk.set_fault(Some(Fault::PowerCut(disk.operations() + step)));
        let opened = try_open(&disk).is_ok();
        for seed in 0..3 {
            let store = open(&disk.image(&mut Random(seed)));
            assert_eq!(history(&store, 1000).await.len(), 216, "step {step} seed {seed}");
            assert_eq!(store.digest().await.unwrap(), DIGEST);
            assert_sound(&store).await;
        }
        if opened {
            assert!(step > 10, "it has more steps than {step}");
            return;
        }
    }
}
