//! Clauses R1 to R9: reading.

use std::collections::BTreeMap;
use std::sync::Arc;

use exacat_model::limits::{PAGE_ITEMS_MAX, READ_BATCH_MAX};
use exacat_model::{
    DirId, Edit, Entry, EntryId, ErrorKind, GroupId, Lfn, Mode, Name, RecordKey, RecordKind, ReplicaState,
    Revision, SeNumber, Usage, UserId,
};
use exacat_store::{Ancestor, Clock, EntryLocation, ResolutionEnd, Store, UsageOf};

use crate::factory::{StoreEnd, StoreFactory};
use crate::random::{Generator, View};
use crate::scene::*;

/// Goal: each answer is of one state. Method: a batch of reads that must add up, while a writer
/// moves entries.
pub async fn r1_an_answer_is_of_one_state(factory: &dyn StoreFactory) {
    let scene = Arc::new(Scene::new(factory).await);
    let a = scene.directory(DirId::ROOT, "a").await;
    let b = scene.directory(DirId::ROOT, "b").await;
    scene.file(a, "f", 1, &[1]).await;
    let writer = {
        let scene = scene.clone();
        tokio::spawn(async move {
            for turn in 0..300 {
                let (from, to) = if turn % 2 == 0 { (a, b) } else { (b, a) };
                scene.applied(rename(at(from, "f"), at(to, "f"))).await;
            }
        })
    };
    let store = scene.store();
    let paths = [lfn("/a/f"), lfn("/b/f")];
    while !writer.is_finished() {
        let found = store.resolve(&paths).await.expect("resolution");
        let found =
            found.iter().filter(|resolution| matches!(resolution.end, ResolutionEnd::Found(_))).count();
        assert_eq!(found, 1, "it is in one directory, in one state");
        let located = store.locate(&[object(1), object(1)]).await.expect("locate");
        assert_eq!(located[0], located[1]);
        let ids = [UsageOf::Directory(a), UsageOf::Directory(b), UsageOf::Directory(DirId::ROOT)];
        let sums = store.usage(&ids).await.expect("usage");
        assert_eq!(sums[0].usage.files + sums[1].usage.files, sums[2].usage.files);
        tokio::task::yield_now().await;
    }
    writer.await.expect("the writer");
}

/// Goal: every client that has an answer, or heard of it, reads its effect. Method: clients write,
/// inform each other, and read.
pub async fn r2_what_was_answered_is_read(factory: &dyn StoreFactory) {
    let scene = Arc::new(Scene::new(factory).await);
    let (tell, mut told) = tokio::sync::mpsc::channel::<(Name, Revision)>(4);
    let writers: Vec<_> = (0..4)
        .map(|client| {
            let (scene, tell) = (scene.clone(), tell.clone());
            tokio::spawn(async move {
                for number in 0..40 {
                    let name = name(&format!("{client}-{number}"));
                    let place = exacat_model::At { parent: DirId::ROOT, name: name.clone() };
                    let revision = scene.applied(create(new_directory(place.clone()))).await;
                    assert!(scene.entry(&place).await.is_some(), "one reads one's own writes");
                    tell.send((name, revision)).await.expect("the reader listens");
                }
            })
        })
        .collect();
    drop(tell);
    let store = scene.store();
    while let Some((name, revision)) = told.recv().await {
        let path = Lfn::root().join(&name);
        let resolution = store.resolve(&[path]).await.expect("resolution").remove(0);
        assert!(matches!(resolution.end, ResolutionEnd::Found(entry) if entry.revision == revision));
        assert!(store.revision().await.expect("revision") >= revision);
        let page = store.changes(Revision(revision.0 - 1), 1).await.expect("changes");
        assert_eq!(page.changes.first().map(|change| change.revision), Some(revision));
    }
    for writer in writers {
        writer.await.expect("a writer");
    }
}

/// Goal: an entry that is there all along is listed once, whatever is added and removed between the
/// pages.
pub async fn r3_a_listing_gives_what_stays_once(factory: &dyn StoreFactory) {
    let scene = Scene::new(factory).await;
    let directory = scene.directory(DirId::ROOT, "d").await;
    for number in 0..20 {
        scene.directory(directory, &format!("stays{number:02}")).await;
        scene.directory(directory, &format!("goes{number:02}")).await;
    }
    let store = scene.store();
    for limit in [1, 3, 7, 39, 40, 41, 1000] {
        let mut seen: Vec<String> = Vec::new();
        let mut after: Option<Name> = None;
        for turn in 0.. {
            let page = store.list(directory, after.as_ref(), limit).await.expect("list").expect("there");
            assert!(page.items.len() <= limit);
            assert!(!page.more || !page.items.is_empty(), "a page that goes on has something");
            seen.extend(page.items.iter().map(|entry| entry.at.name.to_string()));
            after = page.items.last().map(|entry| entry.at.name.clone()).or(after);
            // Between the pages an entry comes before and after the listing's position, and one
            // goes.
            let (gone, back) = (format!("goes{:02}", turn % 20), format!("comes{limit}-{turn:03}"));
            scene
                .apply(vec![remove(at(directory, &gone)), create(new_directory(at(directory, &back)))])
                .await;
            scene.apply(vec![create(new_directory(at(directory, &gone)))]).await;
            if !page.more {
                break;
            }
        }
        assert!(seen.is_sorted_by(|one, next| one.as_bytes() < next.as_bytes()), "R4: {seen:?}");
        let stays: Vec<_> = seen.iter().filter(|name| name.starts_with("stays")).collect();
        assert_eq!(stays.len(), 20, "pages of {limit}: {seen:?}");
    }
    let page = store.list(directory, None, 0).await.expect("list").expect("there");
    assert!(page.items.is_empty() && page.more, "a page of none has none");
}

/// Goal: the same for everything else that comes in pages.
pub async fn r3_all_pages_give_what_stays_once(factory: &dyn StoreFactory) {
    let scene = Scene::new(factory).await;
    scene.applied(create(new_collection(top("c"), guid(200)))).await;
    let mut trash = Vec::new();
    for number in 0..15 {
        let name = format!("f{number}");
        scene.file(DirId::ROOT, &name, number, &[1, 2]).await;
        scene.applied(edit(top("c"), Edit::AddMember(guid(number)))).await;
        scene.applied(edit(top(&name), Edit::DropReplica { se: SeNumber(2), delete: true })).await;
        scene.applied(reserve(reservation(guid(100 + number), &[3]))).await;
        scene.file(DirId::ROOT, "removed", 50 + number, &[]).await;
        trash.push(scene.trash(top("removed")).await);
        scene.applied(set(group(100 + u32::from(number), &format!("many{number}")))).await;
    }
    let store = scene.store();
    let numbers = |count: u8| (0..count).map(guid).collect::<Vec<_>>();
    for limit in [1, 4, 15, 16] {
        let mut members = Vec::new();
        let mut after = None;
        loop {
            let page = store.members(guid(200), after, limit).await.expect("members").expect("there");
            assert!(page.items.len() <= limit);
            after = page.items.last().copied().or(after);
            members.extend(page.items);
            // One comes and goes at the front.
            scene.file(DirId::ROOT, "x", 99, &[]).await;
            scene
                .apply(vec![
                    edit(top("c"), Edit::AddMember(guid(99))),
                    edit(top("c"), Edit::RemoveMember(guid(99))),
                ])
                .await;
            let item = scene.trash(top("x")).await;
            scene.applied(purge(item)).await;
            if !page.more {
                break;
            }
        }
        assert_eq!(members, numbers(15), "members, in the order of GUIDs (R4)");

        let (mut items, mut after) = (Vec::new(), None);
        loop {
            let page = store.trash(after, limit).await.expect("trash");
            assert!(page.items.len() <= limit);
            after = page.items.last().map(|item| item.id).or(after);
            items.extend(page.items.into_iter().map(|item| item.id));
            if !page.more {
                break;
            }
        }
        assert_eq!(items, trash, "trash, oldest first (R4)");

        let (mut queue, mut after) = (Vec::new(), None);
        loop {
            let page = store.deletions(SeNumber(2), after, limit).await.expect("deletions");
            assert!(page.items.len() <= limit);
            after = page.items.last().map(|deletion| deletion.id).or(after);
            queue.extend(page.items.into_iter().map(|deletion| deletion.guid));
            if !page.more {
                break;
            }
        }
        assert_eq!(queue, numbers(15), "deletions, oldest first (R4)");

        let (mut reservations, mut after) = (Vec::new(), None);
        loop {
            let page = store.reservations(after, limit).await.expect("reservations");
            assert!(page.items.len() <= limit);
            after = page.items.last().map(|reservation| reservation.guid).or(after);
            reservations.extend(page.items.into_iter().map(|reservation| reservation.guid));
            if !page.more {
                break;
            }
        }
        assert_eq!(reservations, (100..115).map(guid).collect::<Vec<_>>(), "reservations, by GUID");

        let (mut keys, mut after) = (Vec::new(), None);
        loop {
            let page = store.records(RecordKind::Group, after, limit).await.expect("records");
            assert!(page.items.len() <= limit);
            after = page.items.last().map(|item| item.key).or(after);
            keys.extend(page.items.into_iter().map(|item| item.key));
            if !page.more {
                break;
            }
        }
        let expected: Vec<_> =
            (0..3).chain(100..115).map(|number| RecordKey::Group(GroupId(number))).collect();
        assert_eq!(keys, expected, "records, by key (R4)");

        let (mut files, mut cursor) = (Vec::new(), Vec::new());
        for turn in 0u8.. {
            let (page, next) = store.replicas_on(SeNumber(1), &cursor, limit).await.expect("replicas_on");
            assert!(page.items.len() <= limit);
            cursor = next;
            files.extend(page.items.iter().map(|replica| replica.guid));
            // Another file comes and goes; one of the first five that stay is renamed.
            let old = format!("f{}", turn % 5);
            scene.applied(create(new_file(top("x"), guid(98), Some(1), &[1]))).await;
            scene.apply(vec![rename(top(&old), top("renamed")), rename(top("renamed"), top(&old))]).await;
            let item = scene.trash(top("x")).await;
            scene.applied(purge(item)).await;
            // It left its copy on the queue of SE 1 only.
            if !page.more {
                break;
            }
        }
        files.retain(|found| *found != guid(98));
        files.sort_unstable();
        let renamed = files.partition_point(|found| *found < guid(5));
        assert_eq!(files[renamed..], numbers(15)[5..], "files on an SE, each once");
        files.dedup();
        assert_eq!(files, numbers(15), "and those that are renamed once or more");
    }
}

/// Goal: children come in the order of their names' bytes.
pub async fn r4_children_come_in_the_order_of_bytes(factory: &dyn StoreFactory) {
    let scene = Scene::new(factory).await;
    let mut names = ["b", "a", "ä", "B", "a ", "a!", "aa", "ż", "Z", "\u{1F980}", "10", "9", "~"];
    for name in names {
        scene.directory(DirId::ROOT, name).await;
    }
    let page = scene.store().list(DirId::ROOT, None, 100).await.expect("list").expect("the root");
    names.sort_unstable_by_key(|name| name.as_bytes());
    let listed: Vec<_> = page.items.iter().map(|entry| entry.at.name.as_str()).collect();
    assert_eq!(listed, names);
    assert!(!page.more);
    // After a name that does not exist.
    let page = scene.store().list(DirId::ROOT, Some(&name("a0")), 1).await.expect("list").expect("the root");
    assert_eq!(page.items[0].at.name.as_str(), "aa");
}

/// Adds up everything below a directory, by listing.
async fn scan(store: &dyn Store, directory: DirId) -> Usage {
    let mut sum = Usage::default();
    let mut waiting = vec![directory];
    while let Some(directory) = waiting.pop() {
        let page = store.list(directory, None, PAGE_ITEMS_MAX).await.expect("list").expect("there");
        for entry in &page.items {
            sum.add(&Usage::of(entry));
            waiting.extend(entry.directory());
        }
    }
    sum
}

/// Goal: counters equal the sums of a scan, at every revision. Method: random mutations; after
/// each, everything is listed and added up.
pub async fn r5_counters_equal_a_scan_at_every_revision(factory: &dyn StoreFactory) {
    for seed in 0..3 * crate::rounds() {
        let scene = Scene::new(factory).await;
        let store = scene.store();
        let mut generator = Generator::new(seed);
        for step in 0..150 {
            scene.clock.turn(100);
            let view = View::of(&*store).await;
            let request = generator.request(&view, scene.clock.now());
            store.apply(request).await.expect("answered");
            check_sums(&*store, seed, step).await;
        }
    }
}

async fn check_sums(store: &dyn Store, seed: u64, step: usize) {
    let which = format!("seed {seed}, step {step}");
    let view = View::of(store).await;
    for directory in view.directories.iter().chain(&view.dead) {
        let got = store.usage(&[UsageOf::Directory(*directory)]).await.expect("usage")[0];
        assert_eq!(got.usage, scan(store, *directory).await, "{which}: {directory:?}");
        assert!(got.reserved.is_empty());
    }
    let root = store.locate(&[EntryId::Directory(DirId::ROOT)]).await.expect("locate").remove(0);
    let items = view.trash.iter().map(|item| &item.entry);
    let root = root.expect("the root").entry;
    let all: Vec<&Entry> = view.entries.iter().chain(&view.below).chain(items).chain([&root]).collect();
    let (mut users, mut groups) = (BTreeMap::new(), BTreeMap::new());
    let mut ses: BTreeMap<SeNumber, Usage> = BTreeMap::new();
    for entry in &all {
        users.entry(entry.owner).or_insert_with(Usage::default).add(&Usage::of(entry));
        groups.entry(entry.group).or_insert_with(Usage::default).add(&Usage::of(entry));
        if let Some(file) = entry.file() {
            for replica in &file.replicas {
                ses.entry(replica.se).or_default().add(&Usage::of_replica(replica, file.size));
            }
        }
    }
    for user in (0..5).map(UserId) {
        let got = store.usage(&[UsageOf::User(user)]).await.expect("usage")[0];
        assert_eq!(got.usage, users.get(&user).copied().unwrap_or_default(), "{which}: {user:?}");
        let mut reserved = Usage::default();
        view.reservations
            .iter()
            .filter(|one| one.owner == user)
            .for_each(|one| reserved.add(&one.reserved()));
        assert_eq!(got.reserved, reserved, "{which}: {user:?}");
    }
    for group in (0..5).map(GroupId) {
        let got = store.usage(&[UsageOf::Group(group)]).await.expect("usage")[0];
        assert_eq!(got.usage, groups.get(&group).copied().unwrap_or_default(), "{which}: {group:?}");
        let mut reserved = Usage::default();
        view.reservations
            .iter()
            .filter(|one| one.group == group)
            .for_each(|one| reserved.add(&one.reserved()));
        assert_eq!(got.reserved, reserved, "{which}: {group:?}");
    }
    for se in (1..5).map(SeNumber) {
        let got = store.usage(&[UsageOf::Se(se)]).await.expect("usage")[0];
        assert_eq!(got.usage, ses.get(&se).copied().unwrap_or_default(), "{which}: {se:?}");
        let mut waiting = Usage::default();
        for (_, deletion) in view.deletions.iter().filter(|(on, _)| *on == se) {
            let size = u128::from(deletion.size.unwrap_or(0));
            waiting.add(&files(1, size, 1, size));
        }
        let got = store.usage(&[UsageOf::Deletions(se)]).await.expect("usage")[0];
        assert_eq!(got.usage, waiting, "{which}: deletions on {se:?}");
    }
    let mut below_root = Usage::default();
    view.entries.iter().for_each(|entry| below_root.add(&Usage::of(entry)));
    assert_eq!(scan(store, DirId::ROOT).await, below_root);
}

/// Goal: identities that cannot exist count nothing.
pub async fn r5_what_is_not_there_counts_nothing(factory: &dyn StoreFactory) {
    let scene = Scene::new(factory).await;
    let of = [
        UsageOf::Directory(DirId(77)),
        UsageOf::User(UserId(77)),
        UsageOf::Group(GroupId(77)),
        UsageOf::Se(SeNumber(77)),
        UsageOf::Deletions(SeNumber(77)),
    ];
    let accounts = scene.store().usage(&of).await.expect("usage");
    assert!(accounts.len() == 5 && accounts.iter().all(|account| *account == Default::default()));
}

/// Goal: ancestors are the directories passed, root first; each way a path can end.
pub async fn r6_a_path_ends_found_missing_or_stopped(factory: &dyn StoreFactory) {
    let scene = Scene::new(factory).await;
    let a = scene.directory(DirId::ROOT, "a").await;
    let b = scene.directory(a, "b").await;
    scene.applied(update(at(a, "b"), vec![Edit::Owner(UserId(2)), Edit::Mode(Mode::FILE)])).await;
    scene.file(b, "f", 1, &[1]).await;
    scene.applied(create(new_link(at(a, "l"), guid(2)))).await;
    let paths =
        ["/", "/a", "/a/b", "/a/b/f", "/x", "/x/y/z", "/a/b/x", "/a/x/y", "/a/b/f/x/y", "/a/l/x", "/a/l"];
    let resolutions = scene.store().resolve(&paths.map(lfn)).await.expect("resolution");
    let passed = |resolution: &exacat_store::Resolution| {
        resolution.ancestors.iter().map(|ancestor| ancestor.id).collect::<Vec<_>>()
    };
    let (root, found) = (DirId::ROOT, |entry: &Entry| ResolutionEnd::Found(Box::new(entry.clone())));
    let (entry_a, entry_b) = (scene.at(&top("a")).await, scene.at(&at(a, "b")).await);
    let (entry_f, entry_l) = (scene.at(&at(b, "f")).await, scene.at(&at(a, "l")).await);
    assert!(resolutions[0].ancestors.is_empty());
    assert!(matches!(&resolutions[0].end, ResolutionEnd::Found(entry) if entry.directory() == Some(root)));
    let stopped =
        |entry: &Entry, components| ResolutionEnd::Stopped { entry: Box::new(entry.clone()), components };
    let missing = |components| ResolutionEnd::Missing { components };
    for (resolution, ancestors, end) in [
        (&resolutions[1], vec![root], found(&entry_a)),
        (&resolutions[2], vec![root, a], found(&entry_b)),
        (&resolutions[3], vec![root, a, b], found(&entry_f)),
        (&resolutions[4], vec![root], missing(0)),
        (&resolutions[5], vec![root], missing(0)),
        (&resolutions[6], vec![root, a, b], missing(2)),
        (&resolutions[7], vec![root, a], missing(1)),
        (&resolutions[8], vec![root, a, b], stopped(&entry_f, 3)),
        (&resolutions[9], vec![root, a], stopped(&entry_l, 2)),
        (&resolutions[10], vec![root, a], found(&entry_l)),
    ] {
        assert_eq!((passed(resolution), &resolution.end), (ancestors, &end));
    }
    // A ancestor has the present facts that permission needs.
    assert_eq!(resolutions[3].ancestors[2], Ancestor::of(&entry_b).expect("a directory"));
    assert_eq!(resolutions[3].ancestors[2].owner, UserId(2));
}

/// Goal: for paths that end at a file `files` returns the same as `resolve`, and nothing for others.
/// This holds for any number of paths, and whatever is next to them.
pub async fn r6_files_are_found_as_walks_end_at_them(factory: &dyn StoreFactory) {
    let scene = Scene::new(factory).await;
    let a = scene.directory(DirId::ROOT, "a").await;
    let b = scene.directory(a, "b").await;
    scene.applied(update(at(a, "b"), vec![Edit::Owner(UserId(2)), Edit::Mode(Mode::FILE)])).await;
    scene.file(b, "f", 1, &[1, 2]).await;
    let other = new_file_with(at(b, "g"), guid(2), vec![replica_at(1, "root://h/x")]);
    scene.applied(create(other)).await;
    scene.applied(create(new_file(top("empty"), guid(3), None, &[]))).await;
    let edits = vec![Edit::Group(GroupId(2)), Edit::Checksum(checksum(1)), Edit::SetTag(tag("run", 1))];
    scene.applied(update(top("empty"), edits)).await;
    scene.applied(create(new_file_with(top("part"), guid(4), vec![member(2)]))).await;
    scene.applied(create(new_link(at(a, "l"), guid(5)))).await;
    scene.applied(create(new_collection(at(a, "c"), guid(6)))).await;
    scene.file(DirId::ROOT, "gone", 7, &[1]).await;
    scene.trash(top("gone")).await;
    let store = scene.store();
    let kinds = [
        "/",
        "/a",
        "/a/b",
        "/a/b/f",
        "/a/b/g",
        "/a/b/x",
        "/x",
        "/x/y/z",
        "/a/b/f/x",
        "/a/b/f/x/y",
        "/a/l",
        "/a/l/x",
        "/a/c",
        "/a/c/x",
        "/empty",
        "/part",
        "/gone",
        "/a/b/g",
        "/a/b/g",
    ]
    .map(lfn);
    assert_eq!(
        assert_files_are_walked(&*store, &kinds).await,
        6,
        "the files, each as often as it is asked for"
    );
    let one_by_one = kinds.chunks(1).map(|path| assert_files_are_walked(&*store, path));
    let mut found = 0;
    for one in one_by_one {
        found += one.await;
    }
    assert_eq!(found, 6);
    assert_eq!(assert_files_are_walked(&*store, &[]).await, 0);
    // Each next to each; and more than a store may process at once.
    let pairs = kinds.iter().flat_map(|one| kinds.iter().flat_map(move |other| [one.clone(), other.clone()]));
    let pairs: Vec<Lfn> = pairs.collect();
    assert!(pairs.len() > 700);
    assert_eq!(assert_files_are_walked(&*store, &pairs).await, 2 * 6 * kinds.len());
    // The present state: a moved file is found at its new place.
    scene.applied(rename(top("a"), top("moved"))).await;
    assert_eq!(assert_files_are_walked(&*store, &kinds).await, 2);
    let moved = ["/moved/b/f", "/a/b/f", "/moved/b/g"].map(lfn);
    assert_eq!(assert_files_are_walked(&*store, &moved).await, 2);
    let many = vec![lfn("/moved/b/f"); READ_BATCH_MAX + 1];
    assert_eq!(assert_files_are_walked(&*store, &many[1..]).await, READ_BATCH_MAX);
    assert_eq!(store.files(&many).await.expect_err("too many").kind, ErrorKind::Limit);
    store.close().await.expect("close");
    assert_eq!(store.files(&moved).await.expect_err("closed").kind, ErrorKind::Unavailable);
}

/// Checks that `files` returns for these paths the same as `resolve`. Returns the number of files.
async fn assert_files_are_walked(store: &dyn Store, paths: &[Lfn]) -> usize {
    let walked = store.resolve(paths).await.expect("resolution");
    let files = store.files(paths).await.expect("files");
    assert_eq!(files.found.len(), paths.len(), "one for each path, in order");
    for ((path, resolution), found) in paths.iter().zip(walked).zip(&files.found) {
        let is = found
            .as_ref()
            .map(|found| (&files.ways[found.way], found.owner, found.group, found.mode, &found.file));
        match &resolution.end {
            ResolutionEnd::Found(entry) => {
                let file = entry.file();
                assert_eq!(
                    is,
                    file.map(|file| (&resolution.ancestors, entry.owner, entry.group, entry.mode, file)),
                    "{path}"
                );
            }
            _ => assert_eq!(is, None, "{path}"),
        }
    }
    files.found.iter().flatten().count()
}

/// Goal: an entry is found by its id in the tree, after moves, and in the trash, but not after a
/// purge.
pub async fn r7_an_entry_is_found_wherever_it_is(factory: &dyn StoreFactory) {
    let scene = Scene::new(factory).await;
    let a = scene.directory(DirId::ROOT, "a").await;
    let b = scene.directory(a, "b").await;
    scene.file(b, "f", 1, &[1]).await;
    let store = scene.store();
    let ids = [
        object(1),
        EntryId::Directory(b),
        EntryId::Directory(DirId::ROOT),
        object(99),
        EntryId::Directory(DirId(99)),
    ];
    let ancestors = |located: &exacat_store::Located| {
        located.ancestors.iter().map(|ancestor| ancestor.id).collect::<Vec<_>>()
    };
    let found = store.locate(&ids).await.expect("locate");
    let [file, directory, root, nothing, nowhere] = found.try_into().expect("five answers");
    let (file, directory, root) = (file.expect("f"), directory.expect("b"), root.expect("root"));
    assert_eq!((nothing, nowhere), (None, None));
    assert_eq!(
        (&file.place, ancestors(&file)),
        (&EntryLocation::Tree(lfn("/a/b/f")), vec![DirId::ROOT, a, b])
    );
    assert_eq!(file.entry, scene.at(&at(b, "f")).await);
    assert_eq!(
        (&directory.place, ancestors(&directory)),
        (&EntryLocation::Tree(lfn("/a/b")), vec![DirId::ROOT, a])
    );
    assert_eq!((&root.place, ancestors(&root)), (&EntryLocation::Tree(lfn("/")), vec![]));
    // Moved with a directory above it.
    scene.applied(rename(top("a"), top("z"))).await;
    let file = store.locate(&[object(1)]).await.expect("locate").remove(0).expect("f");
    assert_eq!(file.place, EntryLocation::Tree(lfn("/z/b/f")));
    // In the trash below an item, and as an item.
    let trash = scene.trash(top("z")).await;
    let found = store.locate(&[object(1), EntryId::Directory(a)]).await.expect("locate");
    let [file, item] = found.try_into().expect("two answers");
    let (file, item) = (file.expect("f"), item.expect("a"));
    assert_eq!((&file.place, ancestors(&file)), (&EntryLocation::Trash(trash), vec![a, b]));
    assert_eq!((&item.place, ancestors(&item)), (&EntryLocation::Trash(trash), vec![]));
    assert_eq!(store.trash_item(trash).await.expect("trash item").expect("there").entry, item.entry);
    // The path to it in the tree ends at its former place.
    let resolution = store.resolve(&[lfn("/z/b/f")]).await.expect("resolution").remove(0);
    assert_eq!(resolution.end, ResolutionEnd::Missing { components: 0 });
    assert!(store.list(b, None, 10).await.expect("list").is_some(), "what is in the trash can be listed");
    scene.applied(purge_below(at(b, "f"))).await;
    assert_eq!(store.locate(&[object(1)]).await.expect("locate"), [None]);
    assert_eq!(store.list(DirId(99), None, 10).await.expect("list"), None);
}

/// Goal: expired entries, longest ago first; none in the trash; as many as requested.
pub async fn r8_what_has_expired_is_due(factory: &dyn StoreFactory) {
    let mut scene = Scene::new(factory).await;
    let start = scene.clock.now();
    let directory = scene.directory(DirId::ROOT, "d").await;
    for (number, ms) in [(1, 300), (2, 100), (3, 200), (4, 400)] {
        let mut new = new_file(at(directory, &format!("f{number}")), guid(number), None, &[]);
        new.expires = Some(start.plus_ms(ms));
        scene.applied(create(new)).await;
        let mut reserved = reservation(guid(10 + number), &[1]);
        reserved.expires = start.plus_ms(1000 - ms);
        scene.applied(reserve(reserved)).await;
    }
    let due = |ms: u64, limit: usize| {
        let store = scene.store();
        async move {
            let due = store.due(start.plus_ms(ms), limit).await.expect("due");
            let entries: Vec<u8> = due.entries.iter().filter_map(Entry::guid).map(|guid| guid.0[0]).collect();
            let reservations: Vec<u8> =
                due.reservations.iter().map(|reservation| reservation.guid.0[0]).collect();
            (entries, reservations)
        }
    };
    assert_eq!(due(99, 10).await, (vec![], vec![]));
    assert_eq!(due(100, 10).await, (vec![2], vec![]), "from its time on");
    assert_eq!(due(300, 10).await, (vec![2, 3, 1], vec![]));
    assert_eq!(due(5000, 10).await, (vec![2, 3, 1, 4], vec![14, 11, 13, 12]));
    assert_eq!(due(5000, 2).await, (vec![2, 3], vec![14, 11]));
    // Changed, removed, set.
    scene.applied(edit(at(directory, "f2"), Edit::Expires(Some(start.plus_ms(350))))).await;
    scene.applied(edit(at(directory, "f3"), Edit::Expires(None))).await;
    scene.applied(release(guid(14), None)).await;
    assert_eq!(due(5000, 10).await, (vec![1, 2, 4], vec![11, 13, 12]));
    // In the trash with its directory: not due. Restored: due again. The directory itself may
    // expire.
    let trash = scene.trash(top("d")).await;
    assert_eq!(due(5000, 10).await.0, Vec::<u8>::new());
    scene.applied(restore(trash, top("e"))).await;
    assert_eq!(due(5000, 10).await.0, [1, 2, 4]);
    scene.applied(edit(top("e"), Edit::Expires(Some(start)))).await;
    let first = scene.store().due(start, 1).await.expect("due").entries.remove(0);
    assert_eq!(first.id(), EntryId::Directory(directory));
    scene.trash(at(directory, "f1")).await;
    scene.reopen(StoreEnd::Drop).await;
    let due = scene.store().due(start.plus_ms(5000), 10).await.expect("due");
    let entries: Vec<_> = due.entries.iter().map(Entry::id).collect();
    assert_eq!(entries, [EntryId::Directory(directory), object(2), object(4)]);
    assert_eq!(due.reservations.len(), 3);
}

/// Goal: a limit beyond the greatest counts as the greatest; too many keys are refused; a closed
/// store says so.
pub async fn r9_reads_are_bounded(factory: &dyn StoreFactory) {
    let scene = Scene::new(factory).await;
    let names: Vec<String> = (0..=PAGE_ITEMS_MAX).map(|number| format!("{number:05}")).collect();
    let directory = scene.directory(DirId::ROOT, "d").await;
    let store = scene.store();
    // Filled quickly: any large number of items will do, and groups are cheap in every store.
    for part in names.chunks(2000) {
        let record = |name: &String| group(1000 + name.parse::<u32>().expect("a number"), name);
        let records = part.iter().map(|name| set(record(name)));
        scene.apply(records.collect()).await;
    }
    let page = store.records(RecordKind::Group, None, usize::MAX).await.expect("records");
    assert!(page.items.len() == PAGE_ITEMS_MAX && page.more);
    let page = store.list(directory, None, usize::MAX).await.expect("list").expect("there");
    assert!(page.items.is_empty() && !page.more);
    let paths = vec![lfn("/d"); READ_BATCH_MAX + 1];
    assert_eq!(store.resolve(&paths[1..]).await.expect("resolution").len(), READ_BATCH_MAX);
    assert_eq!(store.resolve(&paths).await.expect_err("too many").kind, ErrorKind::Limit);
    let ids = vec![EntryId::Directory(DirId::ROOT); READ_BATCH_MAX + 1];
    assert_eq!(store.locate(&ids[1..]).await.expect("locate").len(), READ_BATCH_MAX);
    assert_eq!(store.locate(&ids).await.expect_err("too many").kind, ErrorKind::Limit);
    let of = vec![UsageOf::Se(SeNumber(1)); READ_BATCH_MAX + 1];
    assert_eq!(store.usage(&of[1..]).await.expect("usage").len(), READ_BATCH_MAX);
    assert_eq!(store.usage(&of).await.expect_err("too many").kind, ErrorKind::Limit);
    let bad = store.replicas_on(SeNumber(1), b"not a cursor of anything", 1).await;
    assert_eq!(bad.expect_err("a bad cursor").kind, ErrorKind::Invalid);
    store.close().await.expect("close");
    assert_eq!(store.resolve(&[lfn("/")]).await.expect_err("closed").kind, ErrorKind::Unavailable);
    assert_eq!(store.revision().await.expect_err("closed").kind, ErrorKind::Unavailable);
    assert_eq!(store.changed(Revision(u64::MAX)).await.expect_err("closed").kind, ErrorKind::Unavailable);
}

/// Goal: a replica in any state is found on its SE, in the trash too; a dropped one is not.
pub async fn r3_files_of_an_se_are_all_of_them(factory: &dyn StoreFactory) {
    let scene = Scene::new(factory).await;
    for number in 0..4 {
        scene.file(DirId::ROOT, &format!("f{number}"), number, &[1, 2]).await;
    }
    scene.applied(edit(top("f0"), Edit::ReplicaState { se: SeNumber(1), state: ReplicaState::Lost })).await;
    scene.applied(edit(top("f1"), Edit::DropReplica { se: SeNumber(1), delete: false })).await;
    scene.trash(top("f2")).await;
    let item = scene.trash(top("f3")).await;
    scene.applied(purge(item)).await;
    let on = |se: u16| {
        let store = scene.store();
        async move {
            let (page, _) = store.replicas_on(SeNumber(se), &[], 10).await.expect("replicas_on");
            assert!(!page.more);
            let mut found: Vec<u8> = page.items.iter().map(|replica| replica.guid.0[0]).collect();
            found.sort_unstable();
            found
        }
    };
    assert_eq!(on(1).await, [0, 2]);
    assert_eq!(on(2).await, [0, 1, 2]);
    assert_eq!(on(9).await, Vec::<u8>::new());
}

/// Goal: a listing of an SE omits no file that moves meanwhile, and repeats none that stays at its
/// place. Method: between the pages files move to older and newer directories, into the trash and
/// back.
pub async fn r3_files_of_an_se_that_move_are_not_missed(factory: &dyn StoreFactory) {
    let scene = Scene::new(factory).await;
    let mut directories = Vec::new();
    for name in ["a", "b", "c", "d"] {
        directories.push(scene.directory(DirId::ROOT, name).await);
    }
    for number in 0..40 {
        let directory = directories[usize::from(number) % 4];
        scene.file(directory, &format!("stays{number}"), 100 + number, &[1]).await;
        scene.file(directory, &format!("moves{number}"), number, &[1]).await;
    }
    let store = scene.store();
    let mut place: Vec<_> =
        (0..40).map(|number: usize| (directories[number % 4], format!("moves{number}"))).collect();
    let mut rng = fastrand::Rng::with_seed(3);
    for limit in [1, 2, 5, 17, 1000] {
        let mut seen: BTreeMap<u8, usize> = BTreeMap::new();
        let mut cursor = Vec::new();
        let mut pages = 0;
        loop {
            let (page, next) = store.replicas_on(SeNumber(1), &cursor, limit).await.expect("replicas_on");
            assert!(page.items.len() <= limit);
            for replica in &page.items {
                *seen.entry(replica.guid.0[0]).or_default() += 1;
            }
            pages += 1;
            assert!(pages < 2000, "a listing ends, though everything moves all the time");
            if !page.more {
                break;
            }
            cursor = next;
            for _ in 0..8 {
                let number = rng.usize(..40);
                let to = (directories[rng.usize(..4)], format!("{}moves{number}", rng.alphabetic()));
                let from = std::mem::replace(&mut place[number], to.clone());
                let (from, to) = (at(from.0, &from.1), at(to.0, &to.1));
                if from == to {
                    continue;
                }
                if rng.bool() {
                    scene.applied(rename(from, to)).await;
                } else {
                    let item = scene.trash(from).await;
                    scene.applied(restore(item, to)).await;
                }
            }
        }
        let moving = (0..40).filter(|number| seen.contains_key(number)).count();
        let staying = (100..140).filter(|number| seen.get(number) == Some(&1)).count();
        assert_eq!((moving, staying), (40, 40), "pages of {limit}: {seen:?}");
    }
}

/// Goal: a file restored from the trash behind a listing that has reached the trash is not missed
/// either.
pub async fn r3_files_of_an_se_restored_meanwhile_are_not_missed(factory: &dyn StoreFactory) {
    let scene = Scene::new(factory).await;
    let directory = scene.directory(DirId::ROOT, "d").await;
    scene.file(directory, "stays", 1, &[1]).await;
    let mut items = Vec::new();
    for number in 2..5 {
        let name = format!("f{number}");
        scene.file(directory, &name, number, &[1]).await;
        items.push((scene.trash(at(directory, &name)).await, name));
    }
    let store = scene.store();
    let mut seen = std::collections::BTreeSet::new();
    let mut cursor = Vec::new();
    loop {
        let (page, next) = store.replicas_on(SeNumber(1), &cursor, 1).await.expect("replicas_on");
        seen.extend(page.items.iter().map(|replica| replica.guid));
        if !page.more {
            break;
        }
        cursor = next;
        if let Some((item, name)) = items.pop() {
            scene.applied(restore(item, at(directory, &name))).await;
        }
    }
    assert_eq!(seen.into_iter().collect::<Vec<_>>(), (1..5).map(guid).collect::<Vec<_>>());
    let refused = store.replicas_on(SeNumber(1), b"no cursor", 1).await;
    assert_eq!(refused.map_err(|error| error.kind).err(), Some(ErrorKind::Invalid));
}
