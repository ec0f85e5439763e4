//! Directories with a growing number of children get more partitions for them, and no client
//! notices.

use exacat_model::{DirId, Guid, UserId};
use exacat_store::{Outcome, ResolutionEnd, Store};
use exacat_testkit::TestClock;
use exacat_testkit::cassandra::{CassandraFactory, Servers, ring};
use exacat_testkit::random::{outcome_name, request};
use exacat_testkit::scene::{at, create, lfn, new_directory, new_file, remove, rename};

/// Children per partition; so few that a directory gets its third size.
const PARTITION_ROWS: u64 = 10;
const CHILDREN: u32 = 400;

fn numbered(number: u32) -> Guid {
    let mut guid = [9; 16];
    guid[..4].copy_from_slice(&number.to_be_bytes());
    Guid(guid)
}

/// Goal: a directory that grows through all its sizes lists all its children in order. Each is
/// found, changed, moved and removed, in whichever partition it was written. The same holds for a
/// server without cached rows, and after everything is in the tables.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs a ring: make test-cluster"]
async fn a_directory_grows_through_its_sizes() {
    let factory = CassandraFactory::on(ring());
    let factory =
        CassandraFactory { partition_rows: PARTITION_ROWS, flush_changes: 5, filter_bytes: 0, ..factory };
    let mut catalogue = Servers::start(&factory, &TestClock::new()).await;
    let writer = catalogue.one_more().await;
    let make = request(1, UserId::ADMIN, vec![create(new_directory(at(DirId::ROOT, "d")))]);
    let Outcome::Applied { id: Some(exacat_model::EntryId::Directory(directory)), .. } =
        writer.apply(make).await.expect("made")[0]
    else {
        panic!("no directory");
    };
    let mut names: std::collections::BTreeSet<String> = Default::default();
    for number in 0..CHILDREN {
        let name = format!("f{:03}", (number * 7919) % 1000);
        let file = create(new_file(at(directory, &name), numbered(number), Some(1), &[]));
        let made =
            writer.apply(request(10 + u64::from(number), UserId::ADMIN, vec![file])).await.expect("made");
        assert_eq!(outcome_name(&made[0]), "Applied");
        names.insert(name);
        // Children written when the directory was small stay, or are removed, when it is large.
        if number % 40 == 39 {
            let first = names.pop_first().expect("some");
            let change = if number % 80 == 39 {
                remove(at(directory, &first))
            } else {
                let new = format!("g{number:03}");
                names.insert(new.clone());
                rename(at(directory, &first), at(directory, &new))
            };
            let done = writer.apply(request(5000 + u64::from(number), UserId::ADMIN, vec![change])).await;
            assert_eq!(outcome_name(&done.expect("done")[0]), "Applied");
        }
    }
    assert_eq!(writer.status().await.expect("status").named_one("directories_spread"), Some(1));
    writer.close().await.expect("it closes, with everything in the tables");
    for pages in [7, 100, 1000] {
        let reader = catalogue.one_more().await;
        let (mut after, mut listed) = (None, Vec::new());
        loop {
            let page = reader.list(directory, after.as_ref(), pages).await.expect("list").expect("there");
            listed.extend(page.items.iter().map(|entry| entry.at.name.as_str().to_owned()));
            after = page.items.last().map(|entry| entry.at.name.clone());
            if !page.more {
                break;
            }
        }
        assert!(listed.iter().eq(names.iter()), "pages of {pages}: {listed:?}");
    }
    let reader = catalogue.one_more().await;
    for name in &names {
        let walk = reader.resolve(&[lfn(&format!("/d/{name}"))]).await.expect("walk").remove(0);
        assert!(matches!(walk.end, ResolutionEnd::Found(_)), "{name}");
    }
    let walk = reader.resolve(&[lfn("/d/f000x")]).await.expect("walk").remove(0);
    assert!(matches!(walk.end, ResolutionEnd::Missing { .. }));
    let audit = reader.audit().await.expect("audit");
    assert!(audit.findings.is_empty(), "{:?}", audit.findings);
}
