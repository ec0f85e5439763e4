//! Mirrors of random histories are exact, whatever happens to the feeds meanwhile.

use std::sync::Arc;

use exacat_model::{DirId, Effect, FeedAction, FeedStart, FeedState, Lfn, Record, Revision};
use exacat_store::{Clock as _, EntryLocation, Store};
use exacat_testkit::TestClock;
use exacat_testkit::random::{Generator, View, model};

use crate::mirror::{Mirror, check};
use crate::world::World;

/// Returns the path of some directory of a store.
pub(crate) async fn some_directory(store: &dyn Store, view: &View, at: usize) -> Option<Lfn> {
    let directories: Vec<DirId> =
        view.directories.iter().copied().filter(|directory| *directory != DirId::ROOT).collect();
    let id = *directories.get(at % directories.len().max(1))?;
    let found = store.locate(&[exacat_model::EntryId::Directory(id)]).await.unwrap().pop().flatten()?;
    match found.place {
        EntryLocation::Tree(lfn) => Some(lfn),
        EntryLocation::Trash(_) => None,
    }
}

/// Runs a random history with feeds that start at random, stop, and lose the last moves of their cursors.
async fn run(seed: u64) {
    let clock = TestClock::new();
    let store: Arc<dyn Store> = model(&clock);
    let mut generator = Generator::new(seed);
    for request in generator.beginning() {
        store.apply(request).await.unwrap();
    }
    let mut world = World::new(Arc::clone(&store), &clock);
    let mut feeds: Vec<(String, String)> = Vec::new();
    let mut saved: Vec<(std::path::PathBuf, Vec<u8>)> = Vec::new();
    for step in 0..400usize {
        clock.turn(50);
        let view = View::of(&*store).await;
        let now = clock.now();
        store.apply(generator.request(&view, now)).await.unwrap();
        match step % 40 {
            5 if feeds.len() < 6 => {
                let under = match feeds.len() % 3 {
                    0 => None,
                    _ => some_directory(&*store, &view, step).await,
                };
                let under = under.map_or_else(|| "/".to_owned(), |lfn| lfn.to_string());
                let start = match feeds.len() % 2 {
                    0 => FeedStart::Copy,
                    _ => FeedStart::After(Revision(0).into()),
                };
                let name = format!("feed{}", feeds.len());
                world.create(&name, world.spec(&name, &under, start)).await;
                feeds.push((name, under));
            }
            11 => {
                if let Some((name, _)) = feeds.get(step % feeds.len().max(1)) {
                    world.control(name, FeedAction::Pause).await.unwrap();
                }
            }
            17 => {
                saved = feeds
                    .iter()
                    .map(|(name, _)| world.file(name))
                    .map(|path| {
                        let bytes = std::fs::read(&path).unwrap();
                        (path, bytes)
                    })
                    .collect()
            }
            23 => {
                // As after a crash: the cursors have not got their last moves.
                world.feeds.close().await;
                for (path, bytes) in saved.drain(..) {
                    std::fs::write(path, bytes).unwrap();
                }
                world.reopen().await;
            }
            31 => {
                for (name, _) in &feeds {
                    if world.feed(name).await.state == FeedState::Paused {
                        world.control(name, FeedAction::Resume).await.unwrap();
                    }
                }
            }
            37 => {
                if let Some((name, _)) = feeds.get((step / 40) % feeds.len().max(1)) {
                    world.control(name, FeedAction::Rewind(FeedStart::Copy)).await.unwrap();
                }
            }
            _ => {}
        }
    }
    let renamed = has_renamed(&*store).await;
    for (name, under) in &feeds {
        if world.feed(name).await.state == FeedState::Paused {
            world.control(name, FeedAction::Resume).await.unwrap();
        }
        world.caught_up(name).await;
        let mirror = Mirror::of(&world.segments(name));
        if !renamed {
            check(&format!("seed {seed}, {name} of {under}"), &mirror, &*store, under).await;
        }
    }
    world.feeds.close().await;
}

/// True if an account or storage element got another name. No event of an entry says so.
pub(crate) async fn has_renamed(store: &dyn Store) -> bool {
    let name = |record: &Option<Box<Record>>| record.as_ref()?.unique_name().map(str::to_owned);
    let changes = store.changes(Revision(0), 10_000).await.unwrap().changes;
    changes.iter().any(|change| match &change.effect {
        Effect::Recorded { before: before @ Some(_), after: after @ Some(_), .. } => {
            name(before) != name(after)
        }
        // The number of one that was dropped may belong to another one now.
        Effect::Recorded { before: Some(_), after: None, .. } => true,
        _ => false,
    })
}

/// Property: a mirror made of a feed's events alone equals the catalogue's own listing: after moves of
/// directories across the border, removals, undos, restarts, rewinds, and cursors that lost their last
/// moves.
#[tokio::test(flavor = "multi_thread")]
async fn mirrors_of_random_histories_are_exact() {
    for seed in 0..6 * exacat_testkit::rounds() {
        run(seed).await;
    }
}
