//! Goal: a find reports every entry below its start that matches the filter and that the caller may
//! see. It reports each exactly once, in one order, whatever the page size and the changes
//! meanwhile. Method: the pages of every size are compared with a plain recursive walk; then the
//! tree is changed between pages.

use crate::fixture::{Fixture, derived, guid, lfn, mode};
use exacat_catalogue::{Caller, Settings};
use exacat_model::codec::Encode;
use exacat_model::{
    Answer, Checksums, Cursor, DirId, Edit, Entry, ErrorKind, File, FileRef, Filter, GroupId, Guid, Kind,
    Lfn, Location, Name, NewBody, Operation, Pattern, Replica, ReplicaState, SeNumber, Tag, TagExpression,
    TimeMs, UserId,
};
use exacat_store::Store;

/// Returns everything below a directory, depth first, by plain recursion.
async fn walk_all(f: &Fixture, below: &str) -> Vec<(String, Entry)> {
    let mut found = Vec::new();
    let start = f.entry(below).await.unwrap().directory().unwrap();
    let mut stack: Vec<(String, DirId, Option<Entry>)> =
        vec![(below.trim_end_matches('/').to_owned(), start, None)];
    while let Some((path, directory, entry)) = stack.pop() {
        if let Some(entry) = entry {
            let child = entry.directory();
            found.push((path.clone(), entry));
            if child.is_none() {
                continue;
            }
        }
        let page = f.store.list(directory, None, 10_000).await.unwrap().unwrap();
        assert!(!page.more);
        for entry in page.items.into_iter().rev() {
            let child = entry.directory().unwrap_or(DirId(u64::MAX));
            stack.push((format!("{path}/{}", entry.at.name), child, Some(entry)));
        }
    }
    found
}

async fn plant_tree(f: &Fixture) {
    f.plant_directory("/alice/t", 1, 0o755).await;
    for path in ["a", "a b", "a/b", "a/b/c", "b", "b/x", "b/x/y", "b/x/y/z", "c", "d", "d/e", "\u{e9}"] {
        f.plant_directory(&format!("/alice/t/{path}"), 1, 0o755).await;
    }
    for (path, files) in [("a", 3), ("a/b/c", 12), ("b/x", 1), ("b/x/y/z", 2), ("", 4), ("d/e", 9)] {
        for n in 0..files {
            f.plant_file(
                &format!("/alice/t/{path}/f{n}"),
                1,
                0o644,
                n,
                vec![derived(1, ReplicaState::Available)],
            )
            .await;
        }
    }
}

fn paths(found: &[(String, Entry)]) -> Vec<String> {
    found.iter().map(|(path, _)| path.clone()).collect()
}

#[tokio::test]
async fn small_pages_give_what_one_big_page_gives() {
    for scan in [1, 2, 7, 50_000] {
        let f = Fixture::with(Settings { find_scan_entries: scan, ..Settings::default() }).await;
        plant_tree(&f).await;
        for start in ["/alice/t", "/", "/alice/t/a/b/c", "/alice/t/c", "/alice"] {
            let expected = paths(&walk_all(&f, start).await);
            for limit in [0, 1, 2, 3, 5, 13, 1000] {
                let found = f.found(&f.alice, start, Filter::default(), limit).await;
                assert_eq!(found, expected, "{start} scan {scan} limit {limit}");
            }
        }
        let even = Filter { size_min: Some(3), ..Filter::default() };
        let expected: Vec<String> = walk_all(&f, "/alice/t")
            .await
            .into_iter()
            .filter(|(_, entry)| entry.size().is_some_and(|size| size >= 3))
            .map(|(path, _)| path)
            .collect();
        for limit in [0, 1, 4] {
            assert_eq!(f.found(&f.alice, "/alice/t", even.clone(), limit).await, expected);
        }
    }
}

/// Goal: wide directories are found whole. Method: more children than one listing of the store,
/// more entries in the upper levels than the buffers hold.
#[tokio::test]
async fn wide_directories_are_found_whole() {
    let f = Fixture::new().await;
    f.plant_directory("/alice/w", 1, 0o755).await;
    let parent = f.entry("/alice/w").await.unwrap().directory().unwrap();
    let mut mutations = Vec::new();
    for n in 0..5000 {
        mutations.push(exacat_model::Mutation::Create(Box::new(exacat_model::NewEntry {
            at: exacat_model::At { parent, name: Name::parse(&format!("d{n:05}")).unwrap() },
            owner: UserId(1),
            group: GroupId(1),
            mode: mode(0o755),
            created: None,
            modified: None,
            expires: None,
            tags: vec![],
            body: NewBody::Directory,
        })));
    }
    // The reference store searches by scanning, so one request makes the big tree.
    f.apply(1, mutations).await;
    let found = f.found(&f.alice, "/alice/w", Filter::default(), 3000).await;
    assert_eq!(found.len(), 5000);
    assert!(found.is_sorted());
}

#[tokio::test]
async fn each_condition_holds() {
    let f = Fixture::new().await;
    plant_tree(&f).await;
    f.clock.turn(1_000_000);
    f.plant_file("/alice/t/late.root", 1, 0o644, 1 << 40, vec![derived(2, ReplicaState::Available)]).await;
    f.plant("/alice/t/link", 1, 0o777, NewBody::Link { guid: guid(900), target: lfn("/alice/t/a") }).await;
    f.plant("/alice/t/set", 2, 0o644, NewBody::Collection { guid: guid(901) }).await;
    let checksums = Checksums::none();
    let unsized_file = File { guid: guid(902), size: None, checksums, job: None, replicas: Vec::new() };
    f.plant("/alice/t/unsized", 1, 0o644, NewBody::File(unsized_file)).await;
    f.edit("/alice/t/a/f0", vec![Edit::Job(Some(42)), Edit::Group(GroupId(10)), Edit::Modified(TimeMs(5))])
        .await;
    let all = walk_all(&f, "/alice/t").await;
    let check = async |filter: Filter, name: &str, admits: &dyn Fn(&str, &Entry) -> bool| {
        let expected: Vec<String> =
            all.iter().filter(|(path, entry)| admits(path, entry)).map(|(path, _)| path.clone()).collect();
        assert!(!expected.is_empty() && expected.len() < all.len(), "{name}: the test tells nothing");
        for limit in [0, 2] {
            assert_eq!(f.found(&f.alice, "/alice/t", filter.clone(), limit).await, expected, "{name}");
        }
    };
    let base = Filter::default;
    let late = all.iter().find(|(path, _)| path.ends_with("late.root")).unwrap().1.created;
    let glob = |text: &str| Some(Pattern::Glob(text.to_owned()));
    let regex = |text: &str| Some(Pattern::Regex(text.to_owned()));
    check(Filter { pattern: glob("f[0-2]"), ..base() }, "glob", &|path, _| {
        ["f0", "f1", "f2"].iter().any(|name| path.ends_with(&format!("/{name}")))
    })
    .await;
    check(Filter { pattern: regex(r"/a/.*/f1\d*$"), ..base() }, "regex", &|path, _| {
        path.contains("/a/b/c/f1")
    })
    .await;
    check(Filter { kinds: vec![Kind::Link, Kind::Collection], ..base() }, "kinds", &|_, entry| {
        matches!(entry.kind(), Kind::Link | Kind::Collection)
    })
    .await;
    check(Filter { size_min: Some(2), size_max: Some(5), ..base() }, "size", &|_, entry| {
        entry.size().is_some_and(|size| (2..=5).contains(&size))
    })
    .await;
    check(Filter { size_unknown: true, ..base() }, "size unknown", &|_, entry| {
        entry.file().is_some_and(|file| file.size.is_none())
    })
    .await;
    check(Filter { created_from: Some(late), ..base() }, "created from", &|_, entry| entry.created >= late)
        .await;
    check(Filter { created_before: Some(late), ..base() }, "created before", &|_, entry| {
        entry.created < late
    })
    .await;
    check(Filter { modified_before: Some(TimeMs(6)), ..base() }, "modified", &|_, entry| {
        entry.modified < TimeMs(6)
    })
    .await;
    check(Filter { owner: Some(UserId(2)), ..base() }, "owner", &|_, entry| entry.owner == UserId(2)).await;
    check(Filter { group: Some(GroupId(10)), ..base() }, "group", &|_, entry| entry.group == GroupId(10))
        .await;
    check(Filter { se: Some(SeNumber(2)), ..base() }, "se", &|path, _| path.ends_with("late.root")).await;
    check(Filter { job: Some(42), ..base() }, "job", &|path, _| path == "/alice/t/a/f0").await;
    for depth in 1..4u32 {
        check(Filter { depth_max: Some(depth), ..base() }, "depth", &|path, _| {
            path.matches('/').count() <= 2 + depth as usize
        })
        .await;
    }
    assert!(f.found(&f.alice, "/alice/t", Filter { depth_max: Some(0), ..base() }, 0).await.is_empty());
    let both = Filter { pattern: glob("f*"), kinds: vec![Kind::Directory], ..base() };
    assert!(f.found(&f.alice, "/alice/t", both, 0).await.is_empty());
    for pattern in [Pattern::Glob("[".into()), Pattern::Regex("(".into()), Pattern::Glob("x".repeat(2000))] {
        let filter = Filter { pattern: Some(pattern), ..base() };
        let operation =
            Operation::Find { lfn: lfn("/"), filter: Box::new(filter), cursor: Cursor::default(), limit: 0 };
        let kind = f.refusal(&f.alice, operation).await;
        assert!(matches!(kind, ErrorKind::Invalid | ErrorKind::Limit));
    }
}

#[tokio::test]
async fn tags_are_inherited_and_the_nearest_counts() {
    let f = Fixture::new().await;
    plant_tree(&f).await;
    let tag = |text: &str| vec![Edit::SetTag(Tag::parse(text).unwrap())];
    f.edit("/alice", tag("run=1")).await;
    f.edit("/alice/t/a", tag("run=2")).await;
    f.edit("/alice/t/a/b/c", tag("good=true")).await;
    f.edit("/alice/t/a/b/c/f1", tag("run=3")).await;
    f.edit("/alice/t/d/e/f0", tag("good=false")).await;
    for (start, expression, expected) in [
        ("/alice/t/a/b", "run=3", vec!["/alice/t/a/b/c/f1"]),
        ("/alice/t", "good=false", vec!["/alice/t/d/e/f0"]),
        // The start's own tags and those of the directories above it are in force below it.
        ("/alice/t/c", "run=1", vec![]),
        (
            "/alice/t/b/x",
            "run=1",
            vec![
                "/alice/t/b/x/f0",
                "/alice/t/b/x/y",
                "/alice/t/b/x/y/z",
                "/alice/t/b/x/y/z/f0",
                "/alice/t/b/x/y/z/f1",
            ],
        ),
        ("/alice/t/a/b", "run=2 and not exists good", vec![]),
        (
            "/alice/t/a",
            "run=2 and not exists good",
            vec!["/alice/t/a/b", "/alice/t/a/f0", "/alice/t/a/f1", "/alice/t/a/f2"],
        ),
        ("/alice/t/a/b/c", "run=1", vec![]),
    ] {
        let filter = Filter { tags: Some(TagExpression::parse(expression).unwrap()), ..Filter::default() };
        for limit in [0, 1, 2] {
            assert_eq!(f.found(&f.bob, start, filter.clone(), limit).await, expected, "{start} {expression}");
        }
    }
}

#[tokio::test]
async fn closed_directories_are_passed_over_without_a_word() {
    let f = Fixture::new().await;
    plant_tree(&f).await;
    for (path, bits) in [("/alice/t/a", 0o700), ("/alice/t/b", 0o711), ("/alice/t/d", 0o744)] {
        f.edit(path, vec![Edit::Mode(mode(bits))]).await;
    }
    let closed =
        |path: &str| ["a", "b", "d"].iter().any(|name| path.starts_with(&format!("/alice/t/{name}/")));
    let all = walk_all(&f, "/alice/t").await;
    let expected: Vec<String> = paths(&all).into_iter().filter(|path| !closed(path)).collect();
    for limit in [0, 1, 3] {
        assert_eq!(f.found(&f.bob, "/alice/t", Filter::default(), limit).await, expected);
        assert_eq!(f.found(&f.alice, "/alice/t", Filter::default(), limit).await, paths(&all));
        assert_eq!(f.found(&f.admin, "/alice/t", Filter::default(), limit).await, paths(&all));
    }
    let find = |path: &str| Operation::Find {
        lfn: lfn(path),
        filter: Box::new(Filter::default()),
        cursor: Cursor::default(),
        limit: 0,
    };
    for path in ["/alice/t/a", "/alice/t/b", "/alice/t/d", "/alice/t/a/b"] {
        assert_eq!(f.refusal(&f.bob, find(path)).await, ErrorKind::Denied, "{path}");
    }
    assert_eq!(f.refusal(&f.bob, find("/alice/t/none")).await, ErrorKind::NotFound);
    assert_eq!(f.refusal(&f.bob, find("/alice/t/f0")).await, ErrorKind::NotDirectory);
    assert_eq!(f.refusal(&f.scoped("alice", "/alice/t", false), find("/alice")).await, ErrorKind::Denied);
}

/// Goal: a search by SE does not find a closed file, because that would reveal where its bytes are.
#[tokio::test]
async fn a_search_by_se_tells_nothing_of_closed_files() {
    let f = Fixture::new().await;
    f.plant_file("/alice/open", 1, 0o644, 1, vec![derived(1, ReplicaState::Available)]).await;
    f.plant_file("/alice/shut", 1, 0o600, 1, vec![derived(1, ReplicaState::Available)]).await;
    let filter = Filter { se: Some(SeNumber(1)), ..Filter::default() };
    assert_eq!(f.found(&f.bob, "/alice", filter.clone(), 0).await, ["/alice/open"]);
    assert_eq!(f.found(&f.alice, "/alice", filter, 0).await, ["/alice/open", "/alice/shut"]);
}

/// Goal: entries that stay are found exactly once, in order, while others are created, removed and
/// moved between any two pages.
#[tokio::test]
async fn what_stays_is_found_once_whatever_comes_and_goes() {
    for limit in [1, 2, 5] {
        let f = Fixture::new().await;
        plant_tree(&f).await;
        let stay = paths(&walk_all(&f, "/alice/t").await);
        let mut found = Vec::new();
        let mut next = Some(Operation::Find {
            lfn: lfn("/alice/t"),
            filter: Box::new(Filter::default()),
            cursor: Cursor::default(),
            limit,
        });
        let mut round = 0;
        while let Some(operation) = next {
            let answer = f.get(&f.alice, operation.clone()).await;
            next = answer.next().map(|cursor| operation.resumed(cursor.clone()).unwrap());
            let Answer::Entries { items, .. } = answer else { panic!() };
            found.extend(items.into_iter().map(|stat| stat.lfn.to_string()));
            round += 1;
            // New entries in many places; those of two rounds ago are removed or moved.
            let parents = ["/alice/t", "/alice/t/a", "/alice/t/a/b/c", "/alice/t/d/e", "/alice/t/c"];
            for parent in parents {
                f.plant_directory(&format!("{parent}/n{round}"), 1, 0o755).await;
                f.plant_file(&format!("{parent}/n{round}/x"), 1, 0o644, 1, vec![]).await;
                if round > 2 {
                    let old = format!("{parent}/n{}", round - 2);
                    match round % 2 {
                        0 => drop(f.remove(&f.alice, &old).await.unwrap()),
                        _ => {
                            let to = lfn(&format!("{parent}/0-{round}"));
                            f.get(&f.alice, Operation::Move { from: lfn(&old), to }).await;
                        }
                    }
                }
            }
            assert!(round < 2000, "the find does not end");
            if round > 60 {
                // The changes outpace the pages of one entry: let it end.
                let rest = next.take();
                if let Some(operation) = rest {
                    f.pages(&f.alice, operation, |answer| match answer {
                        Answer::Entries { items, .. } => {
                            found.extend(items.into_iter().map(|stat| stat.lfn.to_string()));
                        }
                        answer => panic!("{answer:?}"),
                    })
                    .await;
                }
            }
        }
        let kept: Vec<String> = found.into_iter().filter(|path| stay.contains(path)).collect();
        assert_eq!(kept, stay, "limit {limit}");
    }
}

/// Goal: a find continues with the following entries after its position vanished in any way.
#[tokio::test]
async fn a_cursor_outlives_what_it_points_at() {
    let f = Fixture::new().await;
    plant_tree(&f).await;
    let find = |cursor: Cursor| Operation::Find {
        lfn: lfn("/alice/t"),
        filter: Box::new(Filter::default()),
        cursor,
        limit: 1,
    };
    // Advance to the third file of a/b/c.
    let mut cursor = Cursor::default();
    loop {
        let answer = f.get(&f.alice, find(cursor)).await;
        cursor = answer.next().unwrap().clone();
        let Answer::Entries { items, .. } = answer else { panic!() };
        if items.first().is_some_and(|stat| stat.lfn.as_str() == "/alice/t/a/b/c/f10") {
            break;
        }
    }
    let rest = async |f: &Fixture, caller: &Caller| {
        let mut found = Vec::new();
        f.pages(caller, find(cursor.clone()), |answer| match answer {
            Answer::Entries { items, .. } => found.extend(items.into_iter().map(|stat| stat.lfn.to_string())),
            answer => panic!("{answer:?}"),
        })
        .await;
        found
    };
    let all = rest(&f, &f.alice).await;
    assert_eq!(all.first().unwrap(), "/alice/t/a/b/c/f11");
    let without =
        |gone: &str| -> Vec<String> { all.iter().filter(|path| !path.starts_with(gone)).cloned().collect() };
    // The entry itself is removed.
    f.remove(&f.alice, "/alice/t/a/b/c/f10").await.unwrap();
    assert_eq!(rest(&f, &f.alice).await, all);
    // Its directory is closed to the caller: the find continues after it.
    f.edit("/alice/t/a/b/c", vec![Edit::Mode(mode(0o700))]).await;
    assert_eq!(rest(&f, &f.bob).await, without("/alice/t/a/b/c/"));
    assert_eq!(rest(&f, &f.alice).await, all);
    // Its directory is removed.
    f.remove(&f.alice, "/alice/t/a/b/c").await.unwrap();
    assert_eq!(rest(&f, &f.alice).await, without("/alice/t/a/b/c/"));
    // A file takes the directory's place.
    f.plant_file("/alice/t/a/b/c", 1, 0o644, 1, vec![]).await;
    assert_eq!(rest(&f, &f.alice).await, without("/alice/t/a/b/c/"));
    // A link to elsewhere takes a directory's place higher up: the find does not follow it.
    f.remove(&f.alice, "/alice/t/a").await.unwrap();
    f.plant("/alice/t/a", 1, 0o777, NewBody::Link { guid: guid(900), target: lfn("/alice/t/b") }).await;
    assert_eq!(rest(&f, &f.alice).await, without("/alice/t/a/"));
    // The start itself is removed.
    f.remove(&f.alice, "/alice/t").await.unwrap();
    assert_eq!(f.refusal(&f.alice, find(cursor.clone())).await, ErrorKind::NotFound);
}

/// Goal: a forged cursor leads only below the start.
#[tokio::test]
async fn made_up_cursors_lead_nowhere_else() {
    let f = Fixture::new().await;
    plant_tree(&f).await;
    f.plant_directory("/bob/secret", 2, 0o700).await;
    f.plant_file("/bob/secret/f", 2, 0o644, 1, vec![]).await;
    let made_up = |names: &[Name]| {
        let mut bytes = vec![2];
        names.encode(&mut bytes);
        Cursor(bytes)
    };
    let name = |text: &str| Name::parse(text).unwrap();
    let scoped = f.scoped("alice", "/alice/t", false);
    let find = |cursor: Cursor| Operation::Find {
        lfn: lfn("/alice/t"),
        filter: Box::new(Filter::default()),
        cursor,
        limit: 0,
    };
    assert_eq!(f.refusal(&scoped, find(made_up(&[Name::root()]))).await, ErrorKind::Invalid);
    assert_eq!(f.refusal(&scoped, find(made_up(&[name("a"), Name::root()]))).await, ErrorKind::Invalid);
    for names in [vec![], vec![name("zzz"), name("x")], vec![name("0"); 5000], vec![name("f0"), name("x")]] {
        let answer = f.get(&scoped, find(made_up(&names))).await;
        let Answer::Entries { items, .. } = answer else { panic!() };
        assert!(items.iter().all(|stat| stat.lfn.as_str().starts_with("/alice/t/")));
    }
    // Nor does it lead into a closed directory.
    f.edit("/alice/t/a", vec![Edit::Mode(mode(0o700))]).await;
    let answer = f.get(&f.bob, find(made_up(&[name("a"), name("b")]))).await;
    let Answer::Entries { items, .. } = answer else { panic!() };
    assert!(items.iter().all(|stat| !stat.lfn.as_str().starts_with("/alice/t/a/")));
}

#[tokio::test]
async fn the_members_of_an_archive_are_found_below_a_directory() {
    let f = Fixture::with(Settings { find_scan_entries: 4, ..Settings::default() }).await;
    plant_tree(&f).await;
    let archive =
        f.plant_file("/alice/t/a.zip", 1, 0o644, 99, vec![derived(1, ReplicaState::Available)]).await;
    let other = f.plant_file("/alice/t/b.zip", 1, 0o600, 99, vec![derived(1, ReplicaState::Available)]).await;
    let member = |archive: Guid| {
        let location = Location::Member { archive, member: "m".to_owned() };
        vec![Replica { se: SeNumber::NONE, state: ReplicaState::Available, location }]
    };
    f.plant_file("/alice/t/a/m1", 1, 0o644, 1, member(archive)).await;
    f.plant_file("/alice/t/b/x/m2", 1, 0o644, 1, member(archive)).await;
    f.plant_file("/alice/t/b/x/m3", 1, 0o644, 1, member(other)).await;
    f.plant_file("/alice/t/c/m4", 1, 0o600, 1, member(archive)).await;
    f.plant_file("/bob/m5", 2, 0o644, 1, member(archive)).await;
    let members = async |caller: &Caller, archive: FileRef, under: &str, limit| {
        let mut found = Vec::new();
        let operation =
            Operation::ArchiveMembers { archive, under: lfn(under), cursor: Cursor::default(), limit };
        f.pages(caller, operation, |answer| match answer {
            Answer::Entries { items, .. } => found.extend(items.into_iter().map(|stat| stat.lfn.to_string())),
            answer => panic!("{answer:?}"),
        })
        .await;
        found
    };
    let by_path = || FileRef::Lfn(lfn("/alice/t/a.zip"));
    for limit in [0, 1] {
        let found = members(&f.alice, by_path(), "/alice", limit).await;
        assert_eq!(found, ["/alice/t/a/m1", "/alice/t/b/x/m2", "/alice/t/c/m4"]);
        assert_eq!(members(&f.alice, FileRef::Guid(archive), "/bob", limit).await, ["/bob/m5"]);
        // An unreadable member does not reveal its archive.
        assert_eq!(members(&f.bob, by_path(), "/alice", limit).await, ["/alice/t/a/m1", "/alice/t/b/x/m2"]);
    }
    let ask = |archive: FileRef, under: Lfn| Operation::ArchiveMembers {
        archive,
        under,
        cursor: Cursor::default(),
        limit: 0,
    };
    let closed = FileRef::Lfn(lfn("/alice/t/b.zip"));
    assert_eq!(f.refusal(&f.bob, ask(closed, lfn("/"))).await, ErrorKind::Denied);
    assert_eq!(f.refusal(&f.bob, ask(FileRef::Guid(guid(12345)), lfn("/"))).await, ErrorKind::NotFound);
    assert_eq!(f.refusal(&f.bob, ask(FileRef::Lfn(lfn("/alice")), lfn("/"))).await, ErrorKind::NotFile);
}
