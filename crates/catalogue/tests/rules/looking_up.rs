//! Goal: stat, whereis, lfns, list and du return the existing entries, in the right order, to
//! callers with the right, and nothing to others. Method: small trees planted past the rules, then
//! requests of each kind of caller.

use crate::fixture::{Fixture, account, derived, explicit, guid, lfn, lfns};
use exacat_model::answer::{Stat, Whereis};
use exacat_model::limits::READ_BATCH_MAX;
use exacat_model::{
    AccountName, Answer, Cursor, ErrorKind, FileRef, Guid, Location, NewBody, Operation, Replica,
    ReplicaState, Result, SeNumber, Usage,
};
use exacat_store::Store;

async fn stat(f: &Fixture, caller: &exacat_catalogue::Caller, path: &str, follow: bool) -> Result<Stat> {
    match f.get(caller, Operation::Stat { lfns: lfns([path]), follow }).await {
        Answer::Stats(mut items) => items.pop().unwrap(),
        answer => panic!("{answer:?}"),
    }
}

async fn whereis(
    f: &Fixture,
    caller: &exacat_catalogue::Caller,
    file: FileRef,
    site: Option<AccountName>,
) -> Result<Whereis> {
    match f.get(caller, Operation::Whereis { files: vec![file], site }).await {
        Answer::Whereis(mut items) => items.pop().unwrap(),
        answer => panic!("{answer:?}"),
    }
}

fn by_lfn(path: &str) -> FileRef {
    FileRef::Lfn(lfn(path))
}

fn pfns(whereis: &Whereis) -> Vec<&str> {
    whereis.replicas.iter().map(|replica| replica.pfn.as_str()).collect()
}

#[tokio::test]
async fn stat_tells_everything_but_where_the_bytes_of_a_closed_file_are() {
    let f = Fixture::new().await;
    f.plant_file("/alice/f", 1, 0o640, 7, vec![derived(1, ReplicaState::Available)]).await;
    let mine = stat(&f, &f.alice, "/alice/f", false).await.unwrap();
    assert_eq!((mine.lfn.as_str(), mine.owner.as_str(), mine.group.as_str()), ("/alice/f", "alice", "alice"));
    assert_eq!(mine.entry.file().unwrap().replicas.len(), 1);
    let others = stat(&f, &f.bob, "/alice/f", false).await.unwrap();
    assert_eq!(others.entry.size(), Some(7));
    assert!(others.entry.file().unwrap().replicas.is_empty());
    assert_eq!(stat(&f, &f.admin, "/alice/f", false).await.unwrap(), mine);
    let root = stat(&f, &f.bob, "/", false).await.unwrap();
    assert_eq!((root.lfn.as_str(), root.owner.as_str()), ("/", "admin"));
}

#[tokio::test]
async fn a_batch_has_one_answer_each_in_order() {
    let f = Fixture::new().await;
    f.plant_directory("/alice/closed", 1, 0o700).await;
    f.plant_file("/alice/closed/f", 1, 0o644, 1, vec![]).await;
    f.plant_file("/alice/f", 1, 0o644, 1, vec![]).await;
    let asked =
        lfns(["/alice/f", "/alice/missing", "/alice/closed/f", "/alice/closed/missing", "/alice/f/x", "/"]);
    let Answer::Stats(items) = f.get(&f.bob, Operation::Stat { lfns: asked, follow: false }).await else {
        panic!()
    };
    let kinds: Vec<Option<ErrorKind>> =
        items.iter().map(|item| item.as_ref().err().map(|e| e.kind)).collect();
    // Existing and missing names behind a closed directory look the same.
    let denied = Some(ErrorKind::Denied);
    let expected = [None, Some(ErrorKind::NotFound), denied, denied, Some(ErrorKind::NotDirectory), None];
    assert_eq!(kinds, expected);
    assert_eq!(
        items[2].as_ref().unwrap_err().message.replace("/f", ""),
        items[3].as_ref().unwrap_err().message.replace("/missing", "")
    );
}

#[tokio::test]
async fn batches_are_bounded_at_their_limit() {
    let f = Fixture::new().await;
    let many = |count| vec![lfn("/alice"); count];
    let whereis = |count| Operation::Whereis { files: vec![by_lfn("/alice"); count], site: None };
    let guids = |count| Operation::Lfns { guids: vec![guid(1); count] };
    f.get(&f.alice, Operation::Stat { lfns: many(READ_BATCH_MAX), follow: true }).await;
    f.get(&f.alice, whereis(READ_BATCH_MAX)).await;
    f.get(&f.alice, guids(READ_BATCH_MAX)).await;
    for operation in [
        Operation::Stat { lfns: many(READ_BATCH_MAX + 1), follow: true },
        whereis(READ_BATCH_MAX + 1),
        guids(READ_BATCH_MAX + 1),
        Operation::Du { lfns: many(READ_BATCH_MAX + 1) },
        Operation::TagGet { lfns: many(READ_BATCH_MAX + 1), own: false },
    ] {
        assert_eq!(f.refusal(&f.alice, operation).await, ErrorKind::Limit);
    }
    let Answer::Stats(none) = f.get(&f.alice, Operation::Stat { lfns: vec![], follow: true }).await else {
        panic!()
    };
    assert!(none.is_empty());
}

#[tokio::test]
async fn links_are_followed_in_the_middle_always_and_at_the_end_if_asked() {
    let f = Fixture::new().await;
    f.plant_directory("/alice/d", 1, 0o755).await;
    f.plant_file("/alice/d/f", 1, 0o644, 5, vec![derived(1, ReplicaState::Available)]).await;
    let link = |target: &str| NewBody::Link { guid: guid(f.number()), target: lfn(target) };
    f.plant("/bob/to-d", 2, 0o777, link("/alice/d")).await;
    f.plant("/bob/to-f", 2, 0o777, link("/bob/to-d/f")).await;
    f.plant("/bob/nowhere", 2, 0o777, link("/nowhere/at/all")).await;
    f.plant("/bob/loop", 2, 0o777, link("/bob/loop")).await;

    assert_eq!(stat(&f, &f.bob, "/bob/to-d/f", false).await.unwrap().lfn.as_str(), "/alice/d/f");
    assert_eq!(stat(&f, &f.bob, "/bob/to-f", true).await.unwrap().lfn.as_str(), "/alice/d/f");
    assert_eq!(stat(&f, &f.bob, "/bob/to-f", false).await.unwrap().entry.kind().name(), "link");
    assert_eq!(stat(&f, &f.bob, "/bob/nowhere", true).await.unwrap_err().kind, ErrorKind::NotFound);
    assert_eq!(stat(&f, &f.bob, "/bob/nowhere/x", false).await.unwrap_err().kind, ErrorKind::NotFound);
    assert_eq!(stat(&f, &f.bob, "/bob/loop", true).await.unwrap_err().kind, ErrorKind::Invalid);
    assert_eq!(whereis(&f, &f.bob, by_lfn("/bob/to-f"), None).await.unwrap().replicas.len(), 1);
    let Answer::Usages(usages) =
        f.get(&f.bob, Operation::Du { lfns: lfns(["/bob/to-d", "/bob/nowhere"]) }).await
    else {
        panic!()
    };
    assert_eq!(usages[0].as_ref().unwrap().bytes, 5);
    assert_eq!(usages[1].as_ref().unwrap_err().kind, ErrorKind::NotFound);

    // A link is no way around a closed directory, nor out of a token's subtree.
    f.plant_directory("/alice/closed", 1, 0o700).await;
    f.plant_file("/alice/closed/f", 1, 0o644, 5, vec![]).await;
    f.plant("/bob/in", 2, 0o777, link("/alice/closed/f")).await;
    assert_eq!(stat(&f, &f.bob, "/bob/in", true).await.unwrap_err().kind, ErrorKind::Denied);
    let scoped = f.scoped("bob", "/bob", false);
    assert_eq!(stat(&f, &scoped, "/bob/to-f", true).await.unwrap_err().kind, ErrorKind::Denied);
    assert_eq!(stat(&f, &scoped, "/bob/to-d/f", false).await.unwrap_err().kind, ErrorKind::Denied);
    assert!(stat(&f, &scoped, "/bob/to-f", false).await.is_ok());
}

#[tokio::test]
async fn replicas_come_best_first() {
    let f = Fixture::new().await;
    use ReplicaState::{Available, Copying, Lost, Suspect};
    let guid = f
        .plant_file(
            "/alice/f",
            1,
            0o644,
            7,
            vec![derived(1, Available), derived(2, Available), derived(3, Available)],
        )
        .await;
    let order = async |site: Option<&str>| -> Vec<String> {
        let found = whereis(&f, &f.bob, by_lfn("/alice/f"), site.map(account)).await.unwrap();
        assert_eq!((found.guid, found.size), (guid, Some(7)));
        found.replicas.iter().map(|replica| replica.se.as_ref().unwrap().to_string()).collect()
    };
    let (disk, far, tape) = ("X::CERN::DISK", "X::FNAL::DISK", "X::CERN::TAPE");
    // Without a site, or with an unknown one: by number.
    assert_eq!(order(None).await, [disk, far, tape]);
    assert_eq!(order(Some("MOON")).await, [disk, far, tape]);
    assert_eq!(order(Some("CERN")).await, [disk, tape, far]);
    // The tape has no distance to FNAL: farthest.
    assert_eq!(order(Some("FNAL")).await, [far, disk, tape]);

    let replicas =
        vec![derived(1, Suspect), derived(2, Available), derived(3, Copying), derived(4, Available)];
    f.plant_file("/alice/g", 1, 0o644, 7, replicas).await;
    let found = whereis(&f, &f.bob, by_lfn("/alice/g"), Some(account("CERN"))).await.unwrap();
    let order: Vec<(&str, ReplicaState)> =
        found.replicas.iter().map(|replica| (replica.se.as_ref().unwrap().as_str(), replica.state)).collect();
    // A short distance does not help suspect or offline replicas; unreadable ones are not offered.
    assert_eq!(order, [(far, Available), (disk, Suspect), ("X::GONE::DISK", Available)]);
    f.plant_file("/alice/h", 1, 0o644, 7, vec![derived(1, Lost), derived(2, Copying)]).await;
    assert!(whereis(&f, &f.bob, by_lfn("/alice/h"), None).await.unwrap().replicas.is_empty());
}

#[tokio::test]
async fn pfns_are_derived_or_as_given() {
    let f = Fixture::new().await;
    let given = "srm://x/y?SFN=/a b";
    let guid = f
        .plant_file("/alice/f", 1, 0o644, 7, vec![derived(1, ReplicaState::Available), explicit(2, given)])
        .await;
    let mut expected = String::from("root://cern//d");
    expected.push_str(guid.storage_path().as_str());
    for file in [by_lfn("/alice/f"), FileRef::Guid(guid)] {
        let found = whereis(&f, &f.bob, file, None).await.unwrap();
        assert_eq!(pfns(&found), [expected.as_str(), given]);
    }
}

#[tokio::test]
async fn whereis_is_for_who_may_read_the_file() {
    let f = Fixture::new().await;
    let closed = f.plant_file("/alice/f", 1, 0o600, 7, vec![derived(1, ReplicaState::Available)]).await;
    f.plant_directory("/alice/d", 1, 0o700).await;
    let inside = f.plant_file("/alice/d/f", 1, 0o644, 7, vec![derived(1, ReplicaState::Available)]).await;
    let kind = async |file: FileRef| whereis(&f, &f.bob, file, None).await.unwrap_err().kind;
    assert_eq!(kind(by_lfn("/alice/f")).await, ErrorKind::Denied);
    assert_eq!(kind(FileRef::Guid(closed)).await, ErrorKind::Denied);
    assert_eq!(kind(by_lfn("/alice/d/f")).await, ErrorKind::Denied);
    // A GUID behind a closed directory is as unknown as a missing one.
    assert_eq!(kind(FileRef::Guid(inside)).await, ErrorKind::NotFound);
    assert_eq!(kind(FileRef::Guid(Guid([9; 16]))).await, ErrorKind::NotFound);
    assert_eq!(kind(by_lfn("/alice")).await, ErrorKind::NotFile);
    for file in [by_lfn("/alice/f"), by_lfn("/alice/d/f"), FileRef::Guid(inside)] {
        whereis(&f, &f.alice, file.clone(), None).await.unwrap();
        whereis(&f, &f.admin, file, None).await.unwrap();
    }
    let scoped = f.scoped("alice", "/alice/d", false);
    whereis(&f, &scoped, FileRef::Guid(inside), None).await.unwrap();
    assert_eq!(
        whereis(&f, &scoped, FileRef::Guid(closed), None).await.unwrap_err().kind,
        ErrorKind::NotFound
    );
    assert_eq!(whereis(&f, &scoped, by_lfn("/alice/f"), None).await.unwrap_err().kind, ErrorKind::Denied);
}

#[tokio::test]
async fn members_are_where_their_archive_is() {
    let f = Fixture::new().await;
    let archive = f
        .plant_file(
            "/alice/a.zip",
            1,
            0o644,
            99,
            vec![derived(2, ReplicaState::Available), explicit(1, "root://h//z")],
        )
        .await;
    let member = |archive: Guid, name: &str| {
        let location = Location::Member { archive, member: name.to_owned() };
        vec![Replica { se: SeNumber::NONE, state: ReplicaState::Available, location }]
    };
    f.plant_file("/alice/m1", 1, 0o644, 1, member(archive, "one.root")).await;
    f.plant_file("/alice/m2", 1, 0o644, 1, member(archive, "two.root")).await;
    f.plant_file("/alice/m3", 1, 0o644, 1, member(guid(77_777), "three.root")).await;
    let files = ["/alice/m1", "/alice/a.zip", "/alice/m2", "/alice/m3", "/alice/none"].map(by_lfn).to_vec();
    let operation = Operation::Whereis { files, site: Some(account("FNAL")) };
    let Answer::Whereis(found) = f.get(&f.bob, operation).await else { panic!() };
    let mut at_2 = String::from("root://fnal//d");
    at_2.push_str(archive.storage_path().as_str());
    let expected = [format!("{at_2}?ZIP=one.root"), "root://h//z?ZIP=one.root".to_owned()];
    let first = found[0].as_ref().unwrap();
    assert_eq!(pfns(first), expected);
    assert_eq!(first.replicas[0].se.as_ref().unwrap().as_str(), "X::FNAL::DISK");
    assert_eq!(pfns(found[1].as_ref().unwrap()), [at_2.as_str(), "root://h//z"]);
    assert_eq!(pfns(found[2].as_ref().unwrap()), expected.map(|pfn| pfn.replace("one", "two")));
    assert!(found[3].as_ref().unwrap().replicas.is_empty(), "its archive is not known");
    assert_eq!(found[4].as_ref().unwrap_err().kind, ErrorKind::NotFound);

    // A right to the member is no right to the archive.
    f.edit("/alice/a.zip", vec![exacat_model::Edit::Mode(crate::fixture::mode(0o600))]).await;
    assert_eq!(whereis(&f, &f.bob, by_lfn("/alice/m1"), None).await.unwrap_err().kind, ErrorKind::Denied);
    assert_eq!(whereis(&f, &f.alice, by_lfn("/alice/m1"), None).await.unwrap().replicas.len(), 2);
    // A file in the trash has no location.
    f.remove(&f.alice, "/alice/a.zip").await.unwrap();
    assert!(whereis(&f, &f.alice, by_lfn("/alice/m1"), None).await.unwrap().replicas.is_empty());
    f.audit().await;
}

#[tokio::test]
async fn lfns_of_guids() {
    let f = Fixture::new().await;
    f.plant_directory("/alice/d", 1, 0o700).await;
    let inside = f.plant_file("/alice/d/f", 1, 0o644, 7, vec![]).await;
    let moved = f.plant_file("/alice/g", 1, 0o600, 7, vec![]).await;
    f.get(&f.alice, Operation::Move { from: lfn("/alice/g"), to: lfn("/alice/h") }).await;
    let gone = f.plant_file("/alice/x", 1, 0o600, 7, vec![]).await;
    f.remove(&f.alice, "/alice/x").await.unwrap();
    let ask = async |caller: &exacat_catalogue::Caller| match f
        .get(caller, Operation::Lfns { guids: vec![inside, moved, gone, Guid([3; 16])] })
        .await
    {
        Answer::Lfns(items) => items
            .into_iter()
            .map(|item| item.map(|lfn| lfn.to_string()).map_err(|e| e.kind))
            .collect::<Vec<_>>(),
        answer => panic!("{answer:?}"),
    };
    let unknown = || Err(ErrorKind::NotFound);
    assert_eq!(ask(&f.alice).await, [Ok("/alice/d/f".into()), Ok("/alice/h".into()), unknown(), unknown()]);
    assert_eq!(ask(&f.bob).await, [unknown(), Ok("/alice/h".into()), unknown(), unknown()]);
    let scoped = f.scoped("alice", "/alice/d", false);
    assert_eq!(ask(&scoped).await, [Ok("/alice/d/f".into()), unknown(), unknown(), unknown()]);
}

async fn list_all(f: &Fixture, caller: &exacat_catalogue::Caller, path: &str, limit: u32) -> Vec<String> {
    let mut names = Vec::new();
    let operation = Operation::List { lfn: lfn(path), cursor: Cursor::default(), limit };
    f.pages(caller, operation, |answer| match answer {
        Answer::Entries { items, .. } => names.extend(items.into_iter().map(|stat| stat.lfn.to_string())),
        answer => panic!("{answer:?}"),
    })
    .await;
    names
}

#[tokio::test]
async fn listings_come_in_byte_order_whatever_the_page() {
    let f = Fixture::new().await;
    let mut names = ["a", "B", "ä", "z", "a b", "a/".trim_end_matches('/'), "~", "0", "-", "\u{1F980}"];
    names.sort_unstable();
    let mut distinct = names.to_vec();
    distinct.dedup();
    for name in &distinct {
        f.plant_file(&format!("/alice/{name}"), 1, 0o644, 1, vec![]).await;
    }
    let expected: Vec<String> = distinct.iter().map(|name| format!("/alice/{name}")).collect();
    for limit in [0, 1, 2, 3, 100] {
        assert_eq!(list_all(&f, &f.bob, "/alice", limit).await, expected, "{limit}");
    }
    assert_eq!(list_all(&f, &f.bob, "/", 1).await, ["/alice", "/bob", "/carol", "/open"]);
    assert!(list_all(&f, &f.bob, "/bob", 1).await.is_empty());
}

#[tokio::test]
async fn a_listing_names_its_storage_elements() {
    let f = Fixture::new().await;
    f.plant_file("/alice/f", 1, 0o644, 1, vec![derived(2, ReplicaState::Available)]).await;
    f.plant_file("/alice/g", 1, 0o600, 1, vec![derived(1, ReplicaState::Available)]).await;
    let operation = Operation::List { lfn: lfn("/alice"), cursor: Cursor::default(), limit: 0 };
    let ses = async |caller| match f.get(caller, operation.clone()).await {
        Answer::Entries { ses, .. } => ses.into_iter().map(|(number, _)| number).collect::<Vec<_>>(),
        answer => panic!("{answer:?}"),
    };
    assert_eq!(ses(&f.alice).await, [1, 2]);
    // Places of a closed file's bytes stay hidden, even from the names beside the page.
    assert_eq!(ses(&f.bob).await, [2]);
}

#[tokio::test]
async fn what_is_no_directory_is_listed_itself() {
    let f = Fixture::new().await;
    f.plant_file("/alice/f", 1, 0o644, 1, vec![]).await;
    f.plant_directory("/alice/d", 1, 0o755).await;
    f.plant_file("/alice/d/x", 1, 0o644, 1, vec![]).await;
    let link = |target: &str| NewBody::Link { guid: guid(f.number()), target: lfn(target) };
    f.plant("/bob/d", 2, 0o777, link("/alice/d")).await;
    f.plant("/bob/f", 2, 0o777, link("/alice/f")).await;
    f.plant("/bob/n", 2, 0o777, link("/alice/n")).await;
    for (path, expected) in
        [("/alice/f", "/alice/f"), ("/bob/d", "/alice/d/x"), ("/bob/f", "/bob/f"), ("/bob/n", "/bob/n")]
    {
        assert_eq!(list_all(&f, &f.bob, path, 0).await, [expected], "{path}");
    }
}

#[tokio::test]
async fn listing_takes_r_and_x_on_the_directory_and_x_on_the_way() {
    let f = Fixture::new().await;
    for (bits, allowed) in
        [(0o755, true), (0o744, false), (0o711, false), (0o700, false), (0o705, true), (0o750, false)]
    {
        let path = format!("/alice/{bits:o}");
        f.plant_directory(&path, 1, bits).await;
        let operation = Operation::List { lfn: lfn(&path), cursor: Cursor::default(), limit: 0 };
        assert_eq!(f.ask(&f.bob, operation.clone()).await.is_ok(), allowed, "{path}");
        f.get(&f.alice, operation.clone()).await;
        f.get(&f.admin, operation).await;
        let du = Operation::Du { lfns: lfns([&path]) };
        let Answer::Usages(usages) = f.get(&f.bob, du).await else { panic!() };
        assert_eq!(usages[0].is_ok(), allowed, "{path}");
    }
    // x without r: a caller who knows a name may stat it.
    f.plant_file("/alice/711/f", 1, 0o644, 1, vec![]).await;
    assert!(stat(&f, &f.bob, "/alice/711/f", false).await.is_ok());
    // r without x: no stat is allowed.
    f.plant_file("/alice/744/f", 1, 0o644, 1, vec![]).await;
    assert_eq!(stat(&f, &f.bob, "/alice/744/f", false).await.unwrap_err().kind, ErrorKind::Denied);
    // The owner's bits apply to the owner, even if others have more.
    f.plant_directory("/alice/odd", 1, 0o077).await;
    let operation = Operation::List { lfn: lfn("/alice/odd"), cursor: Cursor::default(), limit: 0 };
    assert_eq!(f.refusal(&f.alice, operation.clone()).await, ErrorKind::Denied);
    f.get(&f.bob, operation).await;
    let missing = Operation::List { lfn: lfn("/alice/none"), cursor: Cursor::default(), limit: 0 };
    assert_eq!(f.refusal(&f.bob, missing).await, ErrorKind::NotFound);
}

#[tokio::test]
async fn cursors_that_were_not_given_are_refused() {
    let f = Fixture::new().await;
    f.plant_file("/alice/f", 1, 0o644, 1, vec![]).await;
    f.plant_file("/alice/g", 1, 0o644, 1, vec![]).await;
    let list = |cursor: Cursor| Operation::List { lfn: lfn("/alice"), cursor, limit: 1 };
    let find =
        |cursor: Cursor| Operation::Find { lfn: lfn("/"), filter: Default::default(), cursor, limit: 1 };
    let good = f.get(&f.alice, list(Cursor::default())).await.next().unwrap().clone();
    let of_find = f.get(&f.alice, find(Cursor::default())).await.next().unwrap().clone();
    for bytes in [vec![0], vec![1], vec![255; 40], good.0[..good.0.len() - 1].to_vec(), of_find.0.clone()] {
        assert_eq!(f.refusal(&f.alice, list(Cursor(bytes.clone()))).await, ErrorKind::Invalid, "{bytes:?}");
    }
    for bytes in [vec![0], vec![2], vec![255; 40], of_find.0[..of_find.0.len() - 1].to_vec(), good.0.clone()]
    {
        assert_eq!(f.refusal(&f.alice, find(Cursor(bytes.clone()))).await, ErrorKind::Invalid, "{bytes:?}");
    }
    for bytes in [vec![0], vec![255; 40], good.0.clone()] {
        let cursor = Cursor(bytes.clone());
        for operation in [
            Operation::TrashList { cursor: cursor.clone(), limit: 1 },
            Operation::TrashPurge {
                id: f.store.timelines().name(exacat_model::TrashId(exacat_model::Revision(1))),
                cursor: cursor.clone(),
            },
            Operation::Log { lfn: lfn("/alice"), cursor: cursor.clone(), limit: 1 },
            Operation::CollectionMembers { lfn: lfn("/alice"), cursor: cursor.clone(), limit: 1 },
            Operation::ArchiveMembers { archive: by_lfn("/alice/f"), under: lfn("/"), cursor, limit: 1 },
        ] {
            assert_eq!(f.refusal(&f.alice, operation.clone()).await, ErrorKind::Invalid, "{operation:?}");
        }
    }
}

#[tokio::test]
async fn du_is_exact_and_below() {
    let f = Fixture::new().await;
    f.plant_directory("/alice/d", 1, 0o755).await;
    f.plant_file(
        "/alice/d/f",
        1,
        0o600,
        10,
        vec![derived(1, ReplicaState::Available), derived(2, ReplicaState::Lost)],
    )
    .await;
    f.plant_file("/alice/g", 1, 0o644, 5, vec![]).await;
    f.plant("/alice/c", 1, 0o644, NewBody::Collection { guid: guid(5555) }).await;
    let operation =
        Operation::Du { lfns: lfns(["/alice", "/alice/g", "/alice/d", "/bob", "/alice/none", "/alice/c"]) };
    let Answer::Usages(usages) = f.get(&f.bob, operation).await else { panic!() };
    let whole = Usage {
        directories: 1,
        files: 2,
        others: 1,
        replicas: 1,
        bytes: 15,
        replica_bytes: 10,
        ..Usage::default()
    };
    assert_eq!(usages[0].as_ref().unwrap(), &whole);
    assert_eq!(usages[1].as_ref().unwrap(), &Usage { files: 1, bytes: 5, ..Usage::default() });
    assert_eq!(
        usages[2].as_ref().unwrap(),
        &Usage { files: 1, replicas: 1, bytes: 10, replica_bytes: 10, ..Usage::default() }
    );
    assert_eq!(usages[3].as_ref().unwrap(), &Usage::default());
    assert_eq!(usages[4].as_ref().unwrap_err().kind, ErrorKind::NotFound);
    assert_eq!(usages[5].as_ref().unwrap(), &Usage { others: 1, ..Usage::default() });
}

#[tokio::test]
async fn anonymous_callers_read_only_where_that_is_configured() {
    let f = Fixture::new().await;
    let operation = Operation::Stat { lfns: lfns(["/alice"]), follow: true };
    assert_eq!(f.refusal(&f.anonymous, operation.clone()).await, ErrorKind::Unauthenticated);
    let f = Fixture::with(exacat_catalogue::Settings { anonymous_reads: true, ..Default::default() }).await;
    f.get(&f.anonymous, operation).await;
    f.plant_file("/alice/f", 1, 0o640, 1, vec![]).await;
    f.plant_file("/alice/g", 1, 0o644, 1, vec![]).await;
    assert_eq!(
        whereis(&f, &f.anonymous, by_lfn("/alice/f"), None).await.unwrap_err().kind,
        ErrorKind::Denied
    );
    assert!(whereis(&f, &f.anonymous, by_lfn("/alice/g"), None).await.is_ok());
    let mkdir = Operation::Mkdir { lfns: lfns(["/open/x"]), parents: false, mode: None };
    assert_eq!(f.refusal(&f.anonymous, mkdir).await, ErrorKind::Unauthenticated);
    // The admin group's bits do not apply to anonymous callers.
    f.plant_file("/alice/h", 0, 0o640, 1, vec![]).await;
    assert_eq!(
        whereis(&f, &f.anonymous, by_lfn("/alice/h"), None).await.unwrap_err().kind,
        ErrorKind::Denied
    );
}
