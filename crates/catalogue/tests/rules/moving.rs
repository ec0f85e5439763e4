//! Goal: moving, removing and restoring work like mv, rm and undo, once, for callers with the
//! right. Method: each rule with its refusals; each operation repeated after its answer was lost.

use std::sync::Arc;

use crate::fixture::{Fixture, guid, lfn, mode};
use exacat_catalogue::{Caller, Settings};
use exacat_model::codec::{Decode, Encode};
use exacat_model::limits::LFN_BYTES_MAX;
use exacat_model::operation::{Attribute, Existing, NewFile, SeChoice};
use exacat_model::{
    Answer, Checksums, Cursor, Edit, EntryId, ErrorKind, FileRef, GroupId, NewBody, OnTimeline, Operation,
    Revision, TrashId,
};
use exacat_store::Store;

fn mv(from: &str, to: &str) -> Operation {
    Operation::Move { from: lfn(from), to: lfn(to) }
}

fn rm(path: &str, recursive: bool, directory: bool) -> Operation {
    Operation::Remove { lfn: lfn(path), recursive, directory }
}

fn restore(id: OnTimeline<TrashId>, to: Option<&str>) -> Operation {
    Operation::TrashRestore { id, to: to.map(lfn) }
}

async fn tree(f: &Fixture) -> Fixture2<'_> {
    f.plant_directory("/alice/d", 1, 0o755).await;
    f.plant_directory("/alice/e", 1, 0o755).await;
    f.plant_file("/alice/d/f", 1, 0o644, 3, vec![]).await;
    f.plant_file("/alice/g", 1, 0o644, 4, vec![]).await;
    Fixture2(f)
}

/// A fixture with the tree of these tests.
struct Fixture2<'a>(&'a Fixture);

impl Fixture2<'_> {
    async fn id(&self, path: &str) -> Option<EntryId> {
        self.0.entry(path).await.map(|entry| entry.id())
    }
}

#[tokio::test]
async fn a_name_is_given_or_a_directory_to_go_into() {
    let f = Fixture::new().await;
    let t = tree(&f).await;
    let (d, file, g) = (t.id("/alice/d").await, t.id("/alice/d/f").await, t.id("/alice/g").await);
    f.get(&f.alice, mv("/alice/g", "/alice/h")).await;
    assert_eq!((t.id("/alice/g").await, t.id("/alice/h").await), (None, g));
    f.get(&f.alice, mv("/alice/h", "/alice/e")).await;
    assert_eq!((t.id("/alice/h").await, t.id("/alice/e/h").await), (None, g));
    f.get(&f.alice, mv("/alice/d", "/alice/e")).await;
    assert_eq!((t.id("/alice/e/d").await, t.id("/alice/e/d/f").await), (d, file));
    f.get(&f.alice, mv("/alice/e/d", "/alice/e/dd")).await;
    assert_eq!(t.id("/alice/e/dd/f").await, file);
    // Into a directory behind a link.
    f.plant("/alice/link", 1, 0o777, NewBody::Link { guid: guid(9000), target: lfn("/alice/e/dd") }).await;
    f.get(&f.alice, mv("/alice/e/h", "/alice/link")).await;
    assert_eq!(t.id("/alice/e/dd/h").await, g);
    // A link is moved itself.
    f.get(&f.alice, mv("/alice/link", "/alice/e/other")).await;
    assert_eq!(t.id("/alice/e/other").await, Some(EntryId::Object(guid(9000))));
    f.audit().await;
}

/// Goal: a trailing slash means a directory, for every operation.
#[tokio::test]
async fn trailing_slash_on_what_is_no_directory_is_refused() {
    let f = Fixture::new().await;
    let t = tree(&f).await;
    f.plant("/alice/file-link", 1, 0o777, NewBody::Link { guid: guid(9000), target: lfn("/alice/g") }).await;
    f.plant("/alice/dir-link", 1, 0o777, NewBody::Link { guid: guid(9001), target: lfn("/alice/d") }).await;
    f.plant("/alice/lost-link", 1, 0o777, NewBody::Link { guid: guid(9002), target: lfn("/alice/no") }).await;
    let before = f.store.revision().await.unwrap();
    let register = |path: &str| Operation::Register {
        files: vec![NewFile::named(lfn(path))],
        parents: true,
        existing: Existing::Refuse,
    };
    let attributes = vec![Attribute::Mode(mode(0o700))];
    let (not_directory, not_found) = (ErrorKind::NotDirectory, ErrorKind::NotFound);
    for (operation, kind) in [
        (mv("/alice/g", "/alice/d/nosuch/"), not_found),
        (mv("/alice/g", "/alice/d/f/"), not_directory),
        (mv("/alice/g", "/alice/lost-link/"), not_found),
        (mv("/alice/d", "/alice/lost-link/"), ErrorKind::Exists),
        (mv("/alice/g/", "/alice/h"), not_directory),
        (mv("/alice/dir-link/", "/alice/h"), not_directory),
        (rm("/alice/g/", true, false), not_directory),
        (rm("/alice/dir-link/", true, false), not_directory),
        (Operation::List { lfn: lfn("/alice/g/"), cursor: Cursor::default(), limit: 0 }, not_directory),
        (
            Operation::List { lfn: lfn("/alice/file-link/"), cursor: Cursor::default(), limit: 0 },
            not_directory,
        ),
        (Operation::Link { lfn: lfn("/alice/l/"), target: lfn("/alice/g") }, not_directory),
        (Operation::CollectionCreate { lfn: lfn("/alice/c/"), tags: vec![] }, not_directory),
        (
            Operation::UploadReserve {
                lfn: lfn("/alice/u/"),
                guid: None,
                size: 1,
                checksums: Checksums::none(),
                job: None,
                choice: Box::new(SeChoice::default()),
                lifetime_seconds: None,
            },
            not_directory,
        ),
    ] {
        let text = format!("{operation:?}");
        assert_eq!(f.refusal(&f.alice, operation).await, kind, "{text}");
    }
    let (follow, site) = (false, None);
    let stat = Operation::Stat { lfns: vec![lfn("/alice/g/"), lfn("/alice/file-link/")], follow };
    let whereis = Operation::Whereis { files: vec![FileRef::Lfn(lfn("/alice/g/"))], site };
    let kinds: Vec<ErrorKind> = match (f.get(&f.alice, stat).await, f.get(&f.alice, whereis).await) {
        (Answer::Stats(stats), Answer::Whereis(places)) => {
            let stats = stats.into_iter().map(|stat| stat.unwrap_err().kind);
            stats.chain(places.into_iter().map(|place| place.unwrap_err().kind)).collect()
        }
        other => panic!("{other:?}"),
    };
    assert_eq!(kinds, [not_directory; 3]);
    let Answer::Registered(made) = f.get(&f.alice, register("/alice/d/new/")).await else { panic!() };
    assert_eq!(made[0].as_ref().unwrap_err().kind, not_directory);
    let chmod = Operation::SetAttributes { lfns: vec![lfn("/alice/g/")], attributes: attributes.clone() };
    assert_eq!(f.one(&f.alice, chmod).await.unwrap_err().kind, not_directory);
    assert_eq!(f.store.revision().await.unwrap(), before, "what was refused changed nothing");

    // For existing and for new directories, the slash changes nothing.
    let (g, d) = (t.id("/alice/g").await, t.id("/alice/d").await);
    f.get(&f.alice, mv("/alice/g", "/alice/dir-link/")).await;
    assert_eq!(t.id("/alice/d/g").await, g);
    f.get(&f.alice, mv("/alice/d/", "/alice/dd/")).await;
    assert_eq!(t.id("/alice/dd").await, d, "a directory may get a name that ends in a slash");
    let mkdir = |path: &str| Operation::Mkdir { lfns: vec![lfn(path)], parents: false, mode: None };
    f.one(&f.alice, mkdir("/alice/new/")).await.unwrap();
    f.one(&f.alice, Operation::SetAttributes { lfns: vec![lfn("/alice/new/")], attributes }).await.unwrap();
    let target = lfn("/alice/dd/");
    f.get(&f.alice, Operation::Link { lfn: lfn("/alice/other"), target }).await;
    let removed = f.get(&f.alice, rm("/alice/new/", false, false)).await;
    let Answer::Removed { id } = removed else { panic!("{removed:?}") };
    f.get(&f.alice, restore(id, Some("/alice/again/"))).await;
    f.audit().await;
    // The store has no slash: all changes can be read back.
    for change in f.store.history() {
        exacat_model::Change::from_bytes(&change.to_bytes()).unwrap();
    }
}

#[tokio::test]
async fn what_cannot_be_moved() {
    let f = Fixture::new().await;
    tree(&f).await;
    f.plant("/alice/nowhere", 1, 0o777, NewBody::Link { guid: guid(9000), target: lfn("/alice/no") }).await;
    f.plant_directory("/alice/e/d", 1, 0o755).await;
    let before = f.store.revision().await.unwrap();
    for (from, to, kind) in [
        ("/", "/alice/x", ErrorKind::Invalid),
        ("/alice/none", "/alice/x", ErrorKind::NotFound),
        ("/alice/g", "/alice/none/x", ErrorKind::NotFound),
        ("/alice/g", "/alice/d/f", ErrorKind::Exists),
        ("/alice/g", "/alice/nowhere", ErrorKind::Exists),
        ("/alice/g", "/alice/d/f/x", ErrorKind::NotDirectory),
        ("/alice/d", "/alice/e", ErrorKind::Exists),
        ("/alice/d", "/alice/d/x", ErrorKind::Invalid),
        ("/alice/e", "/alice/e/d", ErrorKind::Invalid),
        ("/alice/g", "/", ErrorKind::Denied),
        ("/alice/g", "/bob/x", ErrorKind::Denied),
        ("/alice/g", "/bob", ErrorKind::Denied),
        ("/alice", "/alice/x", ErrorKind::Denied),
    ] {
        assert_eq!(f.refusal(&f.alice, mv(from, to)).await, kind, "{from} to {to}");
    }
    assert_eq!(f.refusal(&f.bob, mv("/alice/g", "/bob/g")).await, ErrorKind::Denied);
    let long = format!("/alice/{}", ["x".repeat(200).as_str(); 20].join("/"));
    f.get(&f.alice, Operation::Mkdir { lfns: vec![lfn(&long)], parents: true, mode: None }).await;
    let name = "y".repeat(LFN_BYTES_MAX - long.len());
    f.plant_file(&format!("/alice/{name}"), 1, 0o644, 1, vec![]).await;
    assert_eq!(f.refusal(&f.alice, mv(&format!("/alice/{name}"), &long)).await, ErrorKind::Limit);
    f.get(&f.alice, mv(&format!("/alice/{name}"), &format!("/alice/{}", &name[1..]))).await;
    f.get(&f.alice, mv(&format!("/alice/{}", &name[1..]), &long)).await;
    assert!(f.is_there(&format!("{long}/{}", &name[1..])).await);
    assert!(f.store.revision().await.unwrap() > before);
}

#[tokio::test]
async fn moving_to_itself_changes_nothing() {
    let f = Fixture::new().await;
    tree(&f).await;
    let before = f.store.revision().await.unwrap();
    for (from, to) in [("/alice/g", "/alice/g"), ("/alice/d", "/alice/d"), ("/alice/g", "/alice")] {
        assert_eq!(f.get(&f.alice, mv(from, to)).await, Answer::Done { revision: before }, "{from} to {to}");
    }
    assert_eq!(f.store.revision().await.unwrap(), before);
}

#[tokio::test]
async fn both_directories_take_w_and_x() {
    let f = Fixture::new().await;
    for (bits, allowed) in
        [(0o777, true), (0o775, false), (0o773, true), (0o772, false), (0o776, false), (0o771, false)]
    {
        let source = format!("/open/s{bits:o}");
        f.plant_directory(&source, 1, bits).await;
        f.plant_file(&format!("{source}/f"), 1, 0o644, 1, vec![]).await;
        f.plant_file(&format!("/bob/{bits:o}"), 2, 0o644, 1, vec![]).await;
        let out = f.ask(&f.bob, mv(&format!("{source}/f"), &format!("/bob/out{bits:o}"))).await;
        assert_eq!(out.is_ok(), allowed, "out of {bits:o}");
        let into = f.ask(&f.bob, mv(&format!("/bob/{bits:o}"), &format!("{source}/in"))).await;
        assert_eq!(into.is_ok(), allowed, "into {bits:o}");
        assert_eq!(f.is_there(&format!("/bob/out{bits:o}")).await, allowed);
        assert_eq!(f.is_there(&format!("{source}/in")).await, allowed);
    }
    // The group's bits apply to members, and not the others'.
    f.plant_directory("/open/g", 1, 0o707).await;
    f.edit("/open/g", vec![Edit::Group(GroupId(10))]).await;
    f.plant_file("/carol/f", 4, 0o644, 1, vec![]).await;
    assert_eq!(f.refusal(&f.carol, mv("/carol/f", "/open/g/f")).await, ErrorKind::Denied);
    f.edit("/open/g", vec![Edit::Mode(mode(0o770))]).await;
    f.get(&f.carol, mv("/carol/f", "/open/g/f")).await;
    f.plant_file("/bob/f", 2, 0o644, 1, vec![]).await;
    assert_eq!(f.refusal(&f.bob, mv("/bob/f", "/open/g/b")).await, ErrorKind::Denied);
}

#[tokio::test]
async fn a_token_moves_within_its_subtree_only() {
    let f = Fixture::new().await;
    tree(&f).await;
    let scoped = f.scoped("alice", "/alice/d", true);
    for (from, to) in [("/alice/d/f", "/alice/f"), ("/alice/g", "/alice/d/g"), ("/alice/d/f", "/alice/e")] {
        assert_eq!(f.refusal(&scoped, mv(from, to)).await, ErrorKind::Denied, "{from} to {to}");
    }
    f.get(&scoped, mv("/alice/d/f", "/alice/d/g")).await;
    assert_eq!(f.refusal(&scoped, rm("/alice/g", false, false)).await, ErrorKind::Denied);
    let id = f.remove(&scoped, "/alice/d/g").await.unwrap();
    assert_eq!(f.refusal(&scoped, restore(id, Some("/alice/g2"))).await, ErrorKind::Denied);
    f.get(&scoped, restore(id, None)).await;
    let other = f.remove(&f.alice, "/alice/g").await.unwrap();
    assert_eq!(f.refusal(&scoped, restore(other, Some("/alice/d/x"))).await, ErrorKind::Denied);
}

#[tokio::test]
async fn asked_again_a_move_is_done_once() {
    let f = Fixture::new().await;
    let t = tree(&f).await;
    let id = f.operation_id();
    let first = f.catalogue.execute(&f.alice, id, mv("/alice/g", "/alice/h")).await.unwrap();
    assert_eq!(f.catalogue.execute(&f.alice, id, mv("/alice/g", "/alice/h")).await.unwrap(), first);
    // A new file takes its place: that one stays where it is.
    f.plant_file("/alice/g", 1, 0o644, 4, vec![]).await;
    let other = t.id("/alice/g").await;
    assert_eq!(f.catalogue.execute(&f.alice, id, mv("/alice/g", "/alice/h")).await.unwrap(), first);
    assert_eq!(t.id("/alice/g").await, other);
    // An operation that was never carried out gets the reason.
    assert_eq!(f.refusal(&f.alice, mv("/alice/never", "/alice/h")).await, ErrorKind::NotFound);
}

#[tokio::test]
async fn removing() {
    let f = Fixture::new().await;
    let t = tree(&f).await;
    for (path, recursive, directory, kind) in [
        ("/", true, false, ErrorKind::Invalid),
        ("/alice/none", true, false, ErrorKind::NotFound),
        ("/alice/d", false, false, ErrorKind::NotEmpty),
        ("/alice/d", false, true, ErrorKind::NotEmpty),
        ("/alice/g", false, true, ErrorKind::NotDirectory),
        ("/alice/g", true, true, ErrorKind::NotDirectory),
        ("/alice", true, false, ErrorKind::Denied),
    ] {
        assert_eq!(f.refusal(&f.alice, rm(path, recursive, directory)).await, kind, "{path}");
    }
    assert_eq!(f.refusal(&f.bob, rm("/alice/g", false, false)).await, ErrorKind::Denied);
    f.get(&f.alice, rm("/alice/e", false, true)).await;
    f.get(&f.alice, rm("/alice/g", false, false)).await;
    let before = f.store.revision().await.unwrap();
    let removed = f.get(&f.alice, rm("/alice/d", true, false)).await;
    let id = f.store.timelines().name(TrashId(Revision(before.0 + 1)));
    assert_eq!(removed, Answer::Removed { id });
    assert_eq!(f.store.revision().await.unwrap().0, before.0 + 1, "one change, whatever lies below");
    assert_eq!(t.id("/alice/d").await, None);
    // A link is removed itself.
    f.plant_file("/alice/t", 1, 0o644, 4, vec![]).await;
    f.plant("/alice/l", 1, 0o777, NewBody::Link { guid: guid(9000), target: lfn("/alice/t") }).await;
    f.get(&f.alice, rm("/alice/l", false, false)).await;
    assert!(f.is_there("/alice/t").await && !f.is_there("/alice/l").await);
    f.audit().await;
}

#[tokio::test]
async fn emptying_anothers_directory_takes_w_and_x_on_it() {
    let f = Fixture::new().await;
    for (bits, allowed) in [(0o755, false), (0o772, false), (0o773, true), (0o777, true)] {
        let path = format!("/open/{bits:o}");
        f.plant_directory(&path, 1, bits).await;
        f.plant_file(&format!("{path}/f"), 1, 0o644, 1, vec![]).await;
        assert_eq!(f.remove(&f.bob, &path).await.is_ok(), allowed, "{bits:o}");
        assert_eq!(f.is_there(&path).await, !allowed);
    }
    // An empty directory is a name like any other.
    f.plant_directory("/open/empty", 1, 0o755).await;
    f.remove(&f.bob, "/open/empty").await.unwrap();
    // The owner may empty a directory whatever its mode.
    f.plant_directory("/open/mine", 2, 0o000).await;
    f.plant_file("/open/mine/f", 1, 0o644, 1, vec![]).await;
    f.remove(&f.bob, "/open/mine").await.unwrap();
}

#[tokio::test]
async fn asked_again_a_removal_is_done_once() {
    let f = Fixture::new().await;
    tree(&f).await;
    let id = f.operation_id();
    let first = f.catalogue.execute(&f.alice, id, rm("/alice/g", false, false)).await.unwrap();
    assert_eq!(f.catalogue.execute(&f.alice, id, rm("/alice/g", false, false)).await.unwrap(), first);
    f.plant_file("/alice/g", 1, 0o644, 4, vec![]).await;
    assert_eq!(f.catalogue.execute(&f.alice, id, rm("/alice/g", false, false)).await.unwrap(), first);
    assert!(f.is_there("/alice/g").await, "the new one is another");
    assert_eq!(f.refusal(&f.alice, rm("/alice/none", false, false)).await, ErrorKind::NotFound);
}

async fn trash_of(f: &Fixture, caller: &Caller, limit: u32) -> Vec<u64> {
    let mut ids = Vec::new();
    let operation = Operation::TrashList { cursor: Cursor::default(), limit };
    f.pages(caller, operation, |answer| match answer {
        Answer::Trash { items, .. } => {
            assert!(limit == 0 || items.len() <= limit as usize);
            ids.extend(items.into_iter().map(|(item, _)| item.id.0.0));
        }
        answer => panic!("{answer:?}"),
    })
    .await;
    ids
}

#[tokio::test]
async fn the_trash_shows_ones_own_and_operators_all() {
    // Few entries examined per page, so that others' items fill whole pages.
    let f = Fixture::with(Settings { find_scan_entries: 3, ..Settings::default() }).await;
    let mut of = std::collections::BTreeMap::<&str, Vec<u64>>::new();
    for n in 0..30 {
        let (name, owner, remover) = match n % 5 {
            0 => ("alice", 1, &f.alice),
            _ => ("bob", 2, &f.bob),
        };
        let path = format!("/open/{n}");
        f.plant_file(&path, owner, 0o644, 1, vec![]).await;
        let id = f.remove(remover, &path).await.unwrap().id.0.0;
        of.entry(name).or_default().push(id);
        of.entry("all").or_default().push(id);
    }
    // Owner and remover both see the item.
    f.plant_file("/open/both", 1, 0o644, 1, vec![]).await;
    let both = f.remove(&f.bob, "/open/both").await.unwrap().id.0.0;
    for name in ["alice", "bob", "all"] {
        of.get_mut(name).unwrap().push(both);
    }
    for limit in [0, 1, 2, 7, 1000] {
        assert_eq!(trash_of(&f, &f.alice, limit).await, of["alice"], "{limit}");
        assert_eq!(trash_of(&f, &f.bob, limit).await, of["bob"], "{limit}");
        assert_eq!(trash_of(&f, &f.op, limit).await, of["all"], "{limit}");
        assert_eq!(trash_of(&f, &f.admin, limit).await, of["all"], "{limit}");
        assert!(trash_of(&f, &f.carol, limit).await.is_empty());
    }
    assert!(trash_of(&f, &f.scoped("alice", "/alice", false), 0).await.is_empty());
    let f = Fixture::with(Settings { anonymous_reads: true, ..Settings::default() }).await;
    let operation = Operation::TrashList { cursor: Cursor::default(), limit: 0 };
    assert_eq!(f.refusal(&f.anonymous, operation).await, ErrorKind::Unauthenticated);
}

#[tokio::test]
async fn restoring() {
    let f = Fixture::new().await;
    let t = tree(&f).await;
    let d = t.id("/alice/d").await;
    let id = f.remove(&f.alice, "/alice/d").await.unwrap();
    for stranger in [&f.bob, &f.carol, &f.op] {
        assert_eq!(f.refusal(stranger, restore(id, None)).await, ErrorKind::NotFound);
    }
    let nothing = f.store.timelines().name(TrashId(Revision(1)));
    assert_eq!(f.refusal(&f.admin, restore(nothing, None)).await, ErrorKind::NotFound);
    f.get(&f.alice, restore(id, None)).await;
    assert_eq!(t.id("/alice/d").await, d);
    assert!(f.is_there("/alice/d/f").await);
    assert_eq!(f.refusal(&f.alice, restore(id, None)).await, ErrorKind::NotFound);

    // To another path; into a directory; not over an existing entry.
    let id = f.remove(&f.alice, "/alice/d").await.unwrap();
    f.plant_file("/alice/d", 1, 0o644, 1, vec![]).await;
    assert_eq!(f.refusal(&f.alice, restore(id, None)).await, ErrorKind::Exists);
    assert_eq!(f.refusal(&f.alice, restore(id, Some("/alice/d"))).await, ErrorKind::Exists);
    assert_eq!(f.refusal(&f.alice, restore(id, Some("/bob/d"))).await, ErrorKind::Denied);
    assert_eq!(f.refusal(&f.alice, restore(id, Some("/alice/no/d"))).await, ErrorKind::NotFound);
    f.get(&f.alice, restore(id, Some("/alice/e"))).await;
    assert_eq!(t.id("/alice/e/d").await, d);
    let id = f.remove(&f.alice, "/alice/e/d").await.unwrap();
    f.get(&f.alice, restore(id, Some("/alice/dd"))).await;
    assert_eq!(t.id("/alice/dd").await, d);

    // Into a directory that is itself in the trash: not found.
    let inner = f.remove(&f.alice, "/alice/dd/f").await.unwrap();
    let outer = f.remove(&f.alice, "/alice/dd").await.unwrap();
    assert_eq!(f.refusal(&f.alice, restore(inner, None)).await, ErrorKind::NotFound);
    f.get(&f.alice, restore(outer, None)).await;
    f.get(&f.alice, restore(inner, None)).await;
    assert!(f.is_there("/alice/dd/f").await);

    // The remover of another's entry may restore it. A new directory of the same name is no
    // destination.
    f.plant_file("/open/x", 1, 0o644, 1, vec![]).await;
    let id = f.remove(&f.bob, "/open/x").await.unwrap();
    f.get(&f.bob, restore(id, None)).await;
    let id = f.remove(&f.bob, "/open/x").await.unwrap();
    f.plant_directory("/open/x", 1, 0o777).await;
    assert_eq!(f.refusal(&f.bob, restore(id, None)).await, ErrorKind::Exists);
    f.get(&f.alice, restore(id, Some("/open/x"))).await;
    assert!(f.is_there("/open/x/x").await);
    f.audit().await;
}

#[tokio::test]
async fn asked_again_a_restore_is_done_once() {
    let f = Fixture::new().await;
    tree(&f).await;
    let item = f.remove(&f.alice, "/alice/g").await.unwrap();
    let id = f.operation_id();
    let first = f.catalogue.execute(&f.alice, id, restore(item, None)).await.unwrap();
    assert_eq!(f.catalogue.execute(&f.alice, id, restore(item, None)).await.unwrap(), first);
    f.remove(&f.alice, "/alice/g").await.unwrap();
    assert_eq!(f.catalogue.execute(&f.alice, id, restore(item, None)).await.unwrap(), first);
    assert!(!f.is_there("/alice/g").await);
}

/// Goal: of many moves of one entry to different names one wins. The others find nothing there, and
/// the entry exists once.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn of_many_movers_one_wins() {
    let f = Arc::new(Fixture::new().await);
    for round in 0..20 {
        f.plant_file(&format!("/alice/{round}"), 1, 0o644, 1, vec![]).await;
        let mut tasks = Vec::new();
        for n in 0..8 {
            let f = f.clone();
            tasks.push(tokio::spawn(async move {
                f.ask(&f.alice, mv(&format!("/alice/{round}"), &format!("/alice/{round}-{n}")))
                    .await
                    .map_err(|e| e.kind)
            }));
        }
        let mut won = 0;
        for task in tasks {
            match task.await.unwrap() {
                Ok(_) => won += 1,
                Err(kind) => assert_eq!(kind, ErrorKind::NotFound),
            }
        }
        assert_eq!(won, 1);
    }
    f.audit().await;
}
