//! Followers: the same bytes and the same state as their source, whatever happens to either.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use exacat_log::SegmentReader;
use exacat_log::segment::HEADER_BYTES;
use exacat_model::{DirId, ErrorKind, Result, Revision, TimeMs};
use exacat_store::{ApplyError, Clock, FixedFile, Followed, LogOffset, Store};

use super::archiving::run;
use super::snapshots::{drive, drive_as, whole};
use super::workload::Workload;
use super::{
    TestClock, apply, assert_sound, history, mark, mkdir, open, operation, request, settings, try_open,
};
use crate::archive::ArchiveWork;
use crate::snapshot::{RestorePoint, RestoreRequest, restore_on};
use crate::{EmbeddedSettings, EmbeddedStore, FollowerFiles, HistoryKept, StandbySettings, offset_after};
use exacat_testkit::simulated::{Fault, Random, SimulatedDisk};

const FOLLOWER: &str = "/follower";
const SOURCE: &str = "https://source:7421";

fn files(disk: &SimulatedDisk) -> FollowerFiles {
    FollowerFiles::at_on(disk.shared(), Path::new(FOLLOWER))
}

/// Receives a copy from a source, in pieces.
async fn receive(source: &EmbeddedStore, into: &FollowerFiles) -> Result<Vec<FixedFile>> {
    let fixed = source.fix_files().await?;
    for (number, file) in fixed.files().iter().enumerate() {
        if into.has(file)? {
            continue;
        }
        let transit = into.receive(file)?;
        let (mut at, mut piece) = (0, [0; 1000]);
        while at < file.bytes {
            let read = fixed.read(number, at, &mut piece)?;
            transit.write(&piece[..read])?;
            at += read as u64;
        }
        transit.finish()?;
    }
    Ok(fixed.files().to_vec())
}

async fn copy(source: &EmbeddedStore, disk: &SimulatedDisk) -> Result<()> {
    let files = files(disk);
    files.prepare()?;
    if files.following()?.is_none() {
        files.follow(SOURCE, None)?;
    }
    let copied = receive(source, &files).await?;
    files.switch(&copied)
}

fn try_open_follower(disk: &SimulatedDisk) -> Result<Arc<EmbeddedStore>> {
    let settings =
        EmbeddedSettings { follows: Some(SOURCE.to_owned()), directory: FOLLOWER.into(), ..settings() };
    EmbeddedStore::open_on(disk.shared(), settings, Arc::new(TestClock::default()))
}

fn open_follower(disk: &SimulatedDisk) -> Arc<EmbeddedStore> {
    try_open_follower(disk).unwrap()
}

/// Appends a piece of the source's log of about so many bytes; false at its end.
async fn step(source: &EmbeddedStore, follower: &EmbeddedStore, bytes: usize) -> Result<bool> {
    let place = follower.log_end().await?;
    let piece = source.log_after(place, bytes, Duration::ZERO, None).await?;
    if piece.frames.is_empty() {
        return Ok(false);
    }
    let after = offset_after(&piece.frames, place, piece.up_to)?;
    assert_eq!(follower.append(piece.frames).await?, after, "the place is known beforehand");
    Ok(true)
}

/// Appends pieces of about so many bytes up to the end of the source's log, as a follower does: a piece that
/// does not end there becomes durable while the next one is applied.
async fn catch_up(source: &EmbeddedStore, follower: &EmbeddedStore, bytes: usize) -> Result<()> {
    let mut place = follower.log_end().await?;
    loop {
        let piece = source.log_after(place, bytes, Duration::ZERO, None).await?;
        if piece.frames.is_empty() {
            return Ok(());
        }
        let after = offset_after(&piece.frames, place, piece.up_to)?;
        if piece.up_to < piece.durable {
            let durable = follower.append_ahead(piece.frames).await?;
            assert!(durable <= piece.up_to, "nothing later than what was appended is durable");
        } else {
            assert_eq!(follower.append(piece.frames).await?, after, "the place is known beforehand");
        }
        place = after;
    }
}

/// Returns the bytes of the records in each segment of a log, by first revision.
fn log_bytes(store: &EmbeddedStore, up_to: Revision) -> Vec<(u64, Vec<u8>)> {
    let history = &store.shared().history;
    let mut all = Vec::new();
    for segment in history.list() {
        let mut reader =
            SegmentReader::open(&**history.disk(), &segment, history.catalogue()).unwrap().unwrap();
        let mut bytes = reader.header().encode().to_vec();
        let mut offset = HEADER_BYTES as u64;
        while let Some((at, head)) = reader.next_head(offset).unwrap() {
            if head.last_revision() > up_to {
                break;
            }
            let stride = reader.stride(at).unwrap();
            while offset < at + stride {
                let part = reader.record(offset).unwrap().to_vec();
                offset += part.len() as u64;
                bytes.extend_from_slice(&part);
            }
        }
        all.push((segment.first_revision.0, bytes));
    }
    all
}

async fn assert_equal(source: &EmbeddedStore, follower: &EmbeddedStore) {
    assert!(whole(source).await == whole(follower).await, "the states differ");
    assert_eq!(history(source, 50).await, history(follower, 50).await);
    let up_to = source.revision().await.unwrap();
    assert_eq!(log_bytes(source, up_to), log_bytes(follower, up_to), "the logs have the same bytes");
    assert_sound(follower).await;
}

/// Property: a follower has the state, the history and the log of its source, byte for byte, and so has a
/// follower of that follower. Method: random workloads with end marks and new segments, followed in pieces
/// of random sizes.
#[tokio::test]
async fn follower_has_the_bytes_and_the_state_of_its_source() {
    for chosen in super::seeds(12) {
        let (disk, mut random) = (SimulatedDisk::new(), Random(chosen.0));
        let mut workload = Workload::new(chosen.0);
        let source = open(&disk);
        drive(&source, &mut workload, random.next(20)).await;
        let (own, second) = (SimulatedDisk::new(), SimulatedDisk::new());
        copy(&source, &own).await.unwrap();
        let follower = open_follower(&own);
        assert_equal(&source, &follower).await;
        let mut cascade = None;
        for round in 0..6 {
            drive(&source, &mut workload, random.next(12)).await;
            if random.chance(2) {
                mark(&source).await;
            }
            catch_up(&source, &follower, 1 + random.next(5000) as usize).await.unwrap();
            if round == 3 {
                copy(&follower, &second).await.unwrap();
                cascade = Some(open_follower(&second));
            }
        }
        assert_equal(&source, &follower).await;
        let cascade = cascade.unwrap();
        catch_up(&follower, &cascade, 700).await.unwrap();
        assert_equal(&source, &cascade).await;
    }
}

/// Property: after power cuts at any moment, of the first copy, of a switch or of an append, the follower
/// opens and goes on, and equals its source in the end.
#[tokio::test]
async fn follower_goes_on_after_power_cuts() {
    for chosen in super::seeds(40) {
        let (disk, mut random) = (SimulatedDisk::new(), Random(chosen.0));
        let mut workload = Workload::new(chosen.0);
        let source = open(&disk);
        drive(&source, &mut workload, 15).await;
        let mut own = SimulatedDisk::new();
        for _ in 0..6 {
            own.set_fault(Some(Fault::PowerCut(own.operations() + 1 + random.next(120))));
            let _cut = once(&source, &own, &mut random).await;
            drive(&source, &mut workload, random.next(8)).await;
            own = own.image(&mut random);
        }
        own.set_fault(None);
        once(&source, &own, &mut random).await.unwrap();
        let follower = open_follower(&own);
        assert_equal(&source, &follower).await;
    }
}

/// Copies if there is no copy yet, then follows to the end.
async fn once(source: &EmbeddedStore, disk: &SimulatedDisk, random: &mut Random) -> Result<()> {
    let files = files(disk);
    files.prepare()?;
    if files.catalogue()?.is_none() {
        copy(source, disk).await?;
    }
    let follower = match try_open_follower(disk) {
        Ok(follower) => follower,
        Err(error) => {
            assert_ne!(error.kind, ErrorKind::Corrupt, "a power cut is no damage: {error}");
            return Err(error);
        }
    };
    catch_up(source, &follower, 1 + random.next(20_000) as usize).await?;
    follower.close().await
}

/// Property: an interrupted copy goes on with the files that it has.
#[tokio::test]
async fn interrupted_copy_goes_on_with_the_files_it_has() {
    let (disk, own) = (SimulatedDisk::new(), SimulatedDisk::new());
    let source = open(&disk);
    drive(&source, &mut Workload::new(1), 30).await;
    let files = files(&own);
    files.prepare().unwrap();
    files.follow(SOURCE, None).unwrap();
    let wanted = receive(&source, &files).await.unwrap();
    // A power cut in the middle of a later file leaves these.
    assert!(wanted.iter().filter(|file| file.name.starts_with("runs/0")).count() > 0);
    drive_as(&source, &mut Workload::new(2), 1, 1).await;
    let fixed = source.fix_files().await.unwrap();
    let is_there = |file: &&FixedFile| files.has(file).unwrap();
    let there: Vec<&FixedFile> = fixed.files().iter().filter(is_there).collect();
    assert!(there.iter().any(|file| file.name.starts_with("log/")), "{there:?}");
    assert!(there.len() < fixed.files().len(), "the last segment went on");
    let own_files = fixed.files();
    assert!(files.receive(&own_files[0]).unwrap().finish().is_err(), "a file without its bytes");
}

/// Property: a follower takes no changes and no end marks of its own, and only a follower opens its
/// directory.
#[tokio::test]
async fn follower_takes_no_changes() {
    let (disk, own) = (SimulatedDisk::new(), SimulatedDisk::new());
    let source = open(&disk);
    apply(&source, 1, vec![mkdir(DirId::ROOT, "d")]).await;
    copy(&source, &own).await.unwrap();
    let follower = open_follower(&own);
    assert_eq!(follower.following().as_deref(), Some(SOURCE));
    let refused = follower.apply(request(2, vec![mkdir(DirId::ROOT, "e")])).await;
    assert!(matches!(refused, Err(ApplyError::Unavailable(_))), "{refused:?}");
    assert!(follower.as_snapshots().is_none() && follower.as_followed().is_some());
    let before = log_bytes(&follower, Revision(1));
    follower.close().await.unwrap();
    drop(follower);
    let settings = EmbeddedSettings { directory: FOLLOWER.into(), ..settings() };
    let refused = EmbeddedStore::open_on(own.shared(), settings, Arc::new(TestClock::default()));
    let refused = refused.err().unwrap();
    assert!(refused.kind == ErrorKind::Conflict && refused.message.contains(SOURCE), "{refused}");
    assert_eq!(log_bytes(&open_follower(&own), Revision(1)), before);
    source.close().await.unwrap();
    drop(source);
    let as_follower = EmbeddedSettings { follows: Some(SOURCE.to_owned()), ..super::settings() };
    let refused = EmbeddedStore::open_on(disk.shared(), as_follower, Arc::new(TestClock::default()));
    assert_eq!(refused.err().unwrap().kind, ErrorKind::Conflict);
    // The source itself is unchanged by all that.
    assert_eq!(try_open(&disk).unwrap().revision().await.unwrap(), Revision(1));
}

/// Property: a place of another log, in the middle of a record, or beyond the end is a conflict, and one
/// behind the retention is not found; a follower appends nothing that does not continue its log.
#[tokio::test]
async fn wrong_places_and_wrong_records_are_refused() {
    let (disk, own) = (SimulatedDisk::new(), SimulatedDisk::new());
    let source = open(&disk);
    apply(&source, 1, vec![mkdir(DirId::ROOT, "first")]).await;
    copy(&source, &own).await.unwrap();
    let follower = open_follower(&own);
    let place = follower.log_end().await.unwrap();
    apply(&source, 2, vec![mkdir(DirId::ROOT, "second")]).await;
    let wrong = [
        LogOffset { offset: place.offset + 8, ..place },
        LogOffset { offset: place.offset - 8, ..place },
        LogOffset { offset: 1 << 40, ..place },
        LogOffset { offset: HEADER_BYTES as u64, ..place },
        LogOffset { header: place.header ^ 1, ..place },
        LogOffset { revision: Revision(0), ..place },
        LogOffset { revision: Revision(9), ..place },
        LogOffset { segment: Revision(7), ..place },
    ];
    for place in wrong {
        let refused = source.log_after(place, 1 << 20, Duration::ZERO, None).await.unwrap_err();
        assert_eq!(refused.kind, ErrorKind::Conflict, "{place:?}: {refused}");
    }
    let piece = source.log_after(place, 1 << 20, Duration::ZERO, None).await.unwrap();
    for at in 0..piece.frames.len() {
        let mut damaged = piece.frames.clone();
        damaged[at] ^= 1;
        assert!(follower.append(damaged).await.is_err(), "byte {at}");
    }
    follower.append(piece.frames.clone()).await.unwrap();
    assert_eq!(piece.digest, Some(follower.digest().await.unwrap()), "the digest at the end of the log");
    let first = source.log_after(LogOffset { ..place }, 1, Duration::ZERO, None).await.unwrap();
    assert_eq!(first.digest.is_some(), first.up_to == first.durable);
    let again = follower.append(piece.frames).await.unwrap_err();
    assert_eq!(again.kind, ErrorKind::Conflict, "{again}");
    assert_equal(&source, &follower).await;
}

/// Property: a follower behind the retention of its source is told so, and copies again; the copy counts
/// as a whole, and the one before is removed, or kept if it may have changes of its own.
#[tokio::test]
async fn follower_behind_the_retention_copies_again() {
    let (disk, own) = (SimulatedDisk::new(), SimulatedDisk::new());
    let source = open(&disk);
    drive(&source, &mut Workload::new(3), 10).await;
    copy(&source, &own).await.unwrap();
    let follower = open_follower(&own);
    drive_as(&source, &mut Workload::new(4), 200, 1).await;
    let clock: Arc<dyn Clock> = Arc::new(TestClock::default());
    let kept = EmbeddedSettings { history: HistoryKept::Bytes(8192), ..settings() };
    run(&mut ArchiveWork::new(source.shared(), &clock, &kept));
    let place = follower.log_end().await.unwrap();
    let refused = source.log_after(place, 1 << 20, Duration::ZERO, None).await.unwrap_err();
    assert_eq!(refused.kind, ErrorKind::NotFound, "{refused}");
    // The copy is received while the follower still answers.
    let copied = receive(&source, &files(&own)).await.unwrap();
    assert!(follower.revision().await.unwrap() < source.revision().await.unwrap());
    follower.close().await.unwrap();
    drop(follower);
    files(&own).switch(&copied).unwrap();
    let replaced = |disk: &SimulatedDisk| {
        let files = disk.files("").into_iter();
        files.filter(|path| path.starts_with(PathBuf::from(FOLLOWER).join("replaced"))).count()
    };
    assert_eq!(replaced(&own), 0);
    let follower = open_follower(&own);
    assert_eq!(whole(&source).await.digest, whole(&follower).await.digest);
    drive_as(&source, &mut Workload::new(5), 5, 2).await;
    catch_up(&source, &follower, 3000).await.unwrap();
    assert_eq!(whole(&source).await.digest, whole(&follower).await.digest);
}

/// Property: a place that a restore of the source replaced is a conflict, also once the source has more
/// changes than the follower.
#[tokio::test]
async fn place_that_a_restore_replaced_is_refused() {
    let (disk, own) = (SimulatedDisk::new(), SimulatedDisk::new());
    let source = open(&disk);
    apply(&source, 1, vec![mkdir(DirId::ROOT, "first")]).await;
    let name = exacat_model::SnapshotName::parse("before").unwrap();
    exacat_store::Snapshots::snapshot(&*source, operation(99), &name).await.unwrap();
    copy(&source, &own).await.unwrap();
    apply(&source, 2, vec![mkdir(DirId::ROOT, "second")]).await;
    let follower = open_follower(&own);
    catch_up(&source, &follower, 1 << 20).await.unwrap();
    source.close().await.unwrap();
    drop(source);
    let clock = TestClock::default();
    let request = RestoreRequest { name: &name, point: RestorePoint::AsTaken, log_of: None };
    restore_on(&disk.shared(), &settings(), &request, &clock, &mut |_| ()).unwrap();
    let source = open(&disk);
    for number in 3..9 {
        apply(&source, number, vec![mkdir(DirId::ROOT, &format!("other-{number}"))]).await;
    }
    let refused = step(&source, &follower, 1 << 20).await.unwrap_err();
    assert_eq!(refused.kind, ErrorKind::Conflict, "{refused}");
}

fn open_source(disk: &SimulatedDisk, standbys: StandbySettings) -> Arc<EmbeddedStore> {
    let settings = EmbeddedSettings { standbys, ..settings() };
    let source = EmbeddedStore::open_on(disk.shared(), settings, Arc::new(TestClock::default())).unwrap();
    source.require_standbys();
    source
}

/// Follows as a standby, until the source or the follower fails.
async fn stand_by(source: &EmbeddedStore, follower: &EmbeddedStore) {
    let Ok(mut place) = follower.log_end().await else { return };
    let wait = Duration::from_secs(5);
    while let Ok(piece) = source.log_after(place, 1 << 16, wait, Some(([1; 16], place.revision))).await {
        match follower.append(piece.frames).await {
            Ok(next) => place = next,
            Err(_) => return,
        }
    }
}

/// Property: with a standby, no change is answered or shown before the standby has it durably. Method: random
/// workloads are cut by a power cut of the source; the image of the standby's disk is promoted.
#[tokio::test]
async fn answered_changes_are_at_the_standby() {
    for chosen in super::seeds(30) {
        let (disk, own, mut random) = (SimulatedDisk::new(), SimulatedDisk::new(), Random(chosen.0));
        let mut workload = Workload::new(chosen.0);
        {
            let source = open(&disk);
            drive(&source, &mut workload, 5).await;
            copy(&source, &own).await.unwrap();
            source.close().await.unwrap();
        }
        let source = open_source(&disk, StandbySettings { acks: 1, go_on: None });
        let follower = open_follower(&own);
        disk.set_fault(Some(Fault::PowerCut(disk.operations() + 1 + random.next(60))));
        let (mut answered, mut seen) = (Revision(0), Revision(0));
        let driving = async {
            for _ in 0..40 {
                match source.apply(workload.request()).await {
                    Ok(outcomes) => {
                        for outcome in outcomes {
                            if let exacat_store::Outcome::Applied { revision, .. } = outcome {
                                answered = answered.max(revision);
                            }
                        }
                    }
                    Err(_) => break,
                }
                seen = seen.max(source.revision().await.unwrap_or_default());
            }
        };
        tokio::select! {
            () = driving => {}
            () = stand_by(&source, &follower) => {}
        }
        let image = own.image(&mut random);
        let promoted = open_follower(&image);
        let has = promoted.revision().await.unwrap();
        assert!(has >= answered && has >= seen, "{answered:?} was answered, {seen:?} seen, {has:?} is there");
        assert_sound(&promoted).await;
    }
}

/// Makes a catalogue with one change, and a copy of it.
async fn begin_copied(disk: &SimulatedDisk, own: &SimulatedDisk) {
    let source = open(disk);
    apply(&source, 1, vec![mkdir(DirId::ROOT, "first")]).await;
    copy(&source, own).await.unwrap();
    source.close().await.unwrap();
}

/// Property: without its standby, a change waits and nobody sees it, until the standby has it; or the source
/// goes on alone after the time that the operator chose, and says so.
#[tokio::test]
async fn store_without_its_standby_waits_or_goes_on() {
    let (disk, own) = (SimulatedDisk::new(), SimulatedDisk::new());
    begin_copied(&disk, &own).await;
    let source = open_source(&disk, StandbySettings { acks: 1, go_on: None });
    let follower = open_follower(&own);
    let changing = source.apply(request(2, vec![mkdir(DirId::ROOT, "second")]));
    tokio::pin!(changing);
    let short = Duration::from_millis(100);
    assert!(tokio::time::timeout(short, &mut changing).await.is_err(), "it waits for the standby");
    assert_eq!(source.revision().await.unwrap(), Revision(1));
    assert!(tokio::time::timeout(short, source.digest()).await.is_err(), "nobody sees it");
    tokio::select! {
        outcome = &mut changing => assert!(outcome.is_ok()),
        () = stand_by(&source, &follower) => panic!("the standby ended"),
    }
    assert_equal(&source, &follower).await;
    // A store that closes answers the change that waits: its outcome is unknown.
    let changing = source.apply(request(3, vec![mkdir(DirId::ROOT, "third")]));
    tokio::pin!(changing);
    assert!(tokio::time::timeout(short, &mut changing).await.is_err());
    source.close().await.unwrap();
    assert!(matches!(changing.await, Err(ApplyError::Unknown(_))));
    let source = open_source(&disk, StandbySettings { acks: 1, go_on: Some(short) });
    apply(&source, 4, vec![mkdir(DirId::ROOT, "fourth")]).await;
    let warnings = source.status().await.unwrap().warnings;
    assert!(warnings.iter().any(|warning| warning.starts_with("standbys")), "{warnings:?}");
    catch_up(&source, &follower, 1 << 20).await.unwrap();
    let changing = source.apply(request(5, vec![mkdir(DirId::ROOT, "fifth")]));
    tokio::select! {
        outcome = changing => assert!(outcome.is_ok()),
        () = stand_by(&source, &follower) => panic!("the standby ended"),
    }
}

/// Property: a change is neither answered nor shown while the disk of the standby is full. Once there is
/// room, the standby goes on and the change is answered.
#[tokio::test]
async fn change_waits_for_a_standby_with_a_full_disk() {
    let (disk, own) = (SimulatedDisk::new(), SimulatedDisk::new());
    begin_copied(&disk, &own).await;
    let source = open_source(&disk, StandbySettings { acks: 1, go_on: None });
    let follower = open_follower(&own);
    own.set_full(true);
    // More than the room that its last segment has already.
    let many = (0..200).map(|number| mkdir(DirId::ROOT, &format!("second-{number}"))).collect();
    let changing = source.apply(request(2, many));
    tokio::pin!(changing);
    tokio::select! {
        outcome = &mut changing => panic!("answered without the standby: {outcome:?}"),
        () = stand_by(&source, &follower) => {}
    }
    let short = Duration::from_millis(50);
    assert!(tokio::time::timeout(short, &mut changing).await.is_err());
    let (shown, there) = (source.revision().await.unwrap(), follower.shared().durability.written());
    assert!(shown <= there && there < Revision(201), "{shown:?} is shown, {there:?} is at the standby");
    own.set_full(false);
    tokio::select! {
        outcome = &mut changing => assert!(outcome.is_ok(), "{outcome:?}"),
        () = stand_by(&source, &follower) => panic!("the standby ended"),
    }
    assert_equal(&source, &follower).await;
}

/// A clock that is wrong by so many milliseconds.
struct TurnedClock(TestClock, i64);

impl Clock for TurnedClock {
    fn now(&self) -> TimeMs {
        TimeMs(self.0.now().0.saturating_add_signed(self.1))
    }
}

/// Property: a promoted follower whose clock is a day behind or ahead numbers and dates its changes after
/// those of its source, and the old source follows it.
#[tokio::test]
async fn promotion_with_a_wrong_clock_keeps_times_in_order() {
    const DAY_MS: i64 = 86_400_000;
    for turned in [-DAY_MS, DAY_MS] {
        let (disk, own) = (SimulatedDisk::new(), SimulatedDisk::new());
        let source = open(&disk);
        apply(&source, 1, vec![mkdir(DirId::ROOT, "first")]).await;
        copy(&source, &own).await.unwrap();
        files(&own).promote(Revision(1)).unwrap();
        let clock = Arc::new(TurnedClock(TestClock::default(), turned));
        let settings = EmbeddedSettings { directory: FOLLOWER.into(), ..settings() };
        let promoted = EmbeddedStore::open_on(own.shared(), settings, clock).unwrap();
        apply(&promoted, 3, vec![mkdir(DirId::ROOT, "instead")]).await;
        apply(&promoted, 4, vec![mkdir(DirId::ROOT, "and more")]).await;
        let changes = history(&promoted, 50).await;
        assert_eq!(changes.iter().map(|change| change.revision.0).collect::<Vec<_>>(), [1, 2, 3]);
        assert!(changes.windows(2).all(|pair| pair[0].time <= pair[1].time), "{changes:?}");
        assert_sound(&promoted).await;
        assert!(source.supersede(&promoted.identity(), "exacat://new:1").await.unwrap());
    }
}

/// Property: a promoted follower goes on under a new timeline with the operation ids of its source; the
/// source before takes no more changes, also after it was opened again, and follows the other one with its
/// own changes put aside; of two promoted followers neither gives way.
#[tokio::test]
async fn promoted_follower_replaces_its_source() {
    let (disk, own, other) = (SimulatedDisk::new(), SimulatedDisk::new(), SimulatedDisk::new());
    let source = open(&disk);
    let outcomes = apply(&source, 1, vec![mkdir(DirId::ROOT, "first")]).await;
    copy(&source, &own).await.unwrap();
    copy(&source, &other).await.unwrap();
    apply(&source, 2, vec![mkdir(DirId::ROOT, "only at the source")]).await;
    let promote = |disk: &SimulatedDisk| {
        files(disk).promote(Revision(1)).unwrap();
        let settings = EmbeddedSettings { directory: FOLLOWER.into(), ..settings() };
        EmbeddedStore::open_on(disk.shared(), settings, Arc::new(TestClock::default())).unwrap()
    };
    let promoted = promote(&own);
    assert_eq!(files(&own).promoted().unwrap().as_deref(), Some(SOURCE));
    assert_ne!(promoted.timelines().current(), source.timelines().current());
    let again = promoted.apply(request(1, vec![mkdir(DirId::ROOT, "first")])).await.unwrap();
    assert_eq!(again, outcomes, "the operation id is recognised");
    apply(&promoted, 3, vec![mkdir(DirId::ROOT, "instead")]).await;
    assert_sound(&promoted).await;
    // The new one does not give way to the old one.
    assert!(!promoted.supersede(&source.identity(), "exacat://old:1").await.unwrap());
    assert!(source.supersede(&promoted.identity(), "exacat://new:1").await.unwrap());
    let refused = source.apply(request(4, vec![mkdir(DirId::ROOT, "too late")])).await;
    assert!(
        matches!(&refused, Err(ApplyError::Unavailable(why)) if why.contains("exacat://new:1")),
        "{refused:?}"
    );
    source.close().await.unwrap();
    drop(source);
    let source = open(&disk);
    assert_eq!(source.following().as_deref(), Some("exacat://new:1"));
    assert!(source.apply(request(5, vec![mkdir(DirId::ROOT, "too late")])).await.is_err());
    let second = promote(&other);
    for (one, another) in [(&promoted, &second), (&second, &promoted)] {
        let refused = one.supersede(&another.identity(), "exacat://x:1").await.unwrap_err();
        assert_eq!(refused.kind, ErrorKind::Conflict, "{refused}");
    }
    source.close().await.unwrap();
    drop(source);
    let old = FollowerFiles::at_on(disk.shared(), Path::new("/data"));
    old.prepare().unwrap();
    // A promoted directory follows nothing older.
    second.close().await.unwrap();
    drop(second);
    assert_eq!(files(&other).check_source(&promoted.identity()).unwrap_err().kind, ErrorKind::Conflict);
    old.check_source(&promoted.identity()).unwrap();
    old.follow("https://new:1", None).unwrap();
    let as_follower = EmbeddedSettings { follows: Some("https://new:1".to_owned()), ..settings() };
    let follower = EmbeddedStore::open_on(disk.shared(), as_follower.clone(), Arc::new(TestClock::default()));
    let follower = follower.unwrap();
    let refused = step(&promoted, &follower, 1 << 20).await.unwrap_err();
    assert_eq!(refused.kind, ErrorKind::Conflict, "its own change is not merged");
    let copied = receive(&promoted, &old).await.unwrap();
    follower.close().await.unwrap();
    drop(follower);
    old.switch(&copied).unwrap();
    assert!(disk.files("CATALOGUE").iter().any(|path| path.starts_with("/data/replaced/1")), "kept");
    let follower =
        EmbeddedStore::open_on(disk.shared(), as_follower, Arc::new(TestClock::default())).unwrap();
    assert_equal(&promoted, &follower).await;
}
