//! Listings while their directory changes.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};

use exacat_model::Operation;

use crate::web::Web;
use crate::world::{World, lfn};

/// Files that stay.
const STAY: usize = 300;
/// Rounds of changes that must overlap with listings.
const ROUNDS_MIN: u64 = 20;

/// Reads all pages of a directory; the names in order.
async fn pages(web: &mut Web, limit: usize) -> Vec<String> {
    let (mut names, mut cursor) = (Vec::new(), String::new());
    loop {
        let page = web.get(&format!("/api/v1/children/d?limit={limit}{cursor}")).await.json();
        let items = page["items"].as_array().unwrap();
        names.extend(items.iter().map(|item| item["lfn"].as_str().unwrap().to_owned()));
        match page["next"].as_str() {
            Some(next) => cursor = format!("&cursor={next}"),
            None => return names,
        }
    }
}

async fn stream(web: &mut Web) -> Vec<String> {
    let lines = web.ask("GET", "/api/v1/children/d", &[("Accept", "application/x-ndjson")], "").await.lines();
    lines.iter().map(|line| line["lfn"].as_str().unwrap().to_owned()).collect()
}

/// Entries that exist during a whole listing are listed exactly once, in pages and streamed, whatever
/// others create, rename and remove meanwhile. No name is listed twice.
#[tokio::test(flavor = "multi_thread")]
async fn entry_that_stays_is_listed_once_while_others_are_made_renamed_and_removed() {
    let world = World::new().await;
    let stay = world.files("/d", STAY).await;
    let (over, rounds) = (AtomicBool::new(false), std::sync::atomic::AtomicU64::new(0));
    let change = async {
        while !over.load(Ordering::SeqCst) {
            let round = rounds.fetch_add(1, Ordering::SeqCst);
            // Between the others, before them, and behind them.
            let (first, last) = (lfn(&format!("/d/a{round}")), lfn(&format!("/d/z{round}")));
            let middle = lfn(&format!("/d/f{:06}x", round % STAY as u64));
            let files = vec![exacat_model::operation::NewFile::named(last.clone())];
            let existing = exacat_model::operation::Existing::Refuse;
            world.admin(Operation::Register { files, parents: false, existing }).await;
            world.admin(Operation::Move { from: last, to: middle.clone() }).await;
            world.admin(Operation::Move { from: middle, to: first.clone() }).await;
            world.admin(Operation::Remove { lfn: first, recursive: false, directory: false }).await;
        }
    };
    let list = async {
        let mut web = Web::admin(&world).await;
        let began = rounds.load(Ordering::SeqCst);
        let mut limits = [1, 7, 100].into_iter().cycle();
        while rounds.load(Ordering::SeqCst) < began + ROUNDS_MIN {
            for names in [pages(&mut web, limits.next().unwrap()).await, stream(&mut web).await] {
                let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
                names.iter().for_each(|name| *counts.entry(name).or_default() += 1);
                assert!(counts.values().all(|count| *count == 1), "a name is listed twice: {names:?}");
                assert!(
                    stay.iter().all(|lfn| counts.contains_key(lfn.as_str())),
                    "one is missing: {names:?}"
                );
                assert!(names.is_sorted(), "{names:?}");
            }
        }
        over.store(true, Ordering::SeqCst);
    };
    tokio::join!(change, list);
    // Without changes the revision shows that all pages are of one state.
    let mut web = Web::admin(&world).await;
    let revision = async |web: &mut Web| {
        web.get("/api/v1/children/d?limit=1").await.header("exacat-revision").to_owned()
    };
    let before = revision(&mut web).await;
    assert_eq!(pages(&mut web, 7).await.len(), STAY);
    assert_eq!(revision(&mut web).await, before);
    world.files("/e", 1).await;
    assert_ne!(revision(&mut web).await, before);
}

/// Large entries are listed once each, in pages that end early, streamed and by bulk request. One at a
/// time is left while others use up the room for unread answers.
#[tokio::test(flavor = "multi_thread")]
async fn large_entries_are_listed_once_in_pages_of_bounded_bytes() {
    const FILES: usize = 64;
    for unread_bytes_max in [256 << 20, 1 << 20] {
        let world = World::with_limits(|limits| limits.unread_bytes_max = unread_bytes_max).await;
        let files: Vec<String> =
            world.large_files("/d", FILES).await.iter().map(ToString::to_string).collect();
        let mut web = Web::admin(&world).await;
        assert_eq!(stream(&mut web).await, files);
        assert_eq!(pages(&mut web, 1000).await, files);
        let first = web.get("/api/v1/children/d?limit=1000").await.json();
        let items = first["items"].as_array().unwrap().len();
        let expected = if unread_bytes_max > 1 << 20 { 2..=16 } else { 1..=1 };
        assert!(expected.contains(&items), "{items} items on a page with room for {unread_bytes_max} bytes");
        let lines: String = files.iter().map(|file| format!("{{\"lfn\": \"{file}\"}}\n")).collect();
        let kind = ("Content-Type", "application/x-ndjson");
        let found = web.ask("POST", "/api/v1/entries", &[kind], &lines).await.lines();
        let found: Vec<&str> = found.iter().map(|line| line["lfn"].as_str().unwrap()).collect();
        assert_eq!(found, files);
    }
}
