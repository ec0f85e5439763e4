//! Goal: attributes, replicas, links, tags and collections change as requested, once, for callers
//! with the right. Method: each rule with its refusals; each operation repeated.

use crate::fixture::{Fixture, account, derived, explicit, guid, lfn, lfns, mode, se_name};
use exacat_catalogue::Caller;
use exacat_model::limits::{EDITS_PER_UPDATE_MAX, TAG_TEXT_BYTES_MAX, TAGS_PER_ENTRY_MAX};
use exacat_model::operation::{Attribute, NewReplica, ReplicaEdit};
use exacat_model::{
    Answer, Body, Checksum, Cursor, ErrorKind, FileRef, GroupId, Guid, Location, Mode, NewBody, Operation,
    Pfn, ReplicaState, Result, SeNumber, Tag, TagKey, TimeMs, UserId,
};
use exacat_store::Store;

fn set(path: &str, attributes: Vec<Attribute>) -> Operation {
    Operation::SetAttributes { lfns: lfns([path]), attributes }
}

async fn kind(f: &Fixture, caller: &Caller, operation: Operation) -> Option<ErrorKind> {
    f.one(caller, operation).await.err().map(|error| error.kind)
}

#[tokio::test]
async fn owner_who_sets_owner_and_group_to_what_they_are_succeeds() {
    let f = Fixture::new().await;
    f.plant_file("/open/f", 1, 0o664, 1, vec![]).await;
    // A group without alice.
    f.ask(&f.admin, set("/open/f", vec![Attribute::Group(account("bob"))])).await.unwrap();
    let before = f.entry("/open/f").await.unwrap();
    let same = vec![Attribute::Owner(account("alice")), Attribute::Group(account("bob"))];
    for (caller, expected) in
        [(&f.bob, Some(ErrorKind::Denied)), (&f.op, Some(ErrorKind::Denied)), (&f.alice, None)]
    {
        assert_eq!(kind(&f, caller, set("/open/f", same.clone())).await, expected, "{:?}", caller.name());
    }
    let after = f.entry("/open/f").await.unwrap();
    assert_eq!((after.owner, after.group), (before.owner, before.group));
}

#[tokio::test]
async fn who_may_set_what() {
    let f = Fixture::new().await;
    // Carol is in the group `physics` with alice; bob has no rights here.
    f.plant_file("/open/f", 1, 0o664, 1, vec![]).await;
    f.edit("/open/f", vec![exacat_model::Edit::Group(GroupId(10))]).await;
    let denied = Some(ErrorKind::Denied);
    let checksum = Checksum::parse("md5:d41d8cd98f00b204e9800998ecf8427e").unwrap();
    for (attribute, admin, alice, carol, bob, op) in [
        (Attribute::Owner(account("alice")), None, None, denied, denied, denied),
        (Attribute::Owner(account("bob")), None, denied, denied, denied, denied),
        (Attribute::Owner(account("alice")), None, denied, denied, denied, denied),
        (Attribute::Group(account("physics")), None, None, denied, denied, denied),
        (Attribute::Group(account("bob")), None, denied, denied, denied, denied),
        (Attribute::Group(account("alice")), None, None, denied, denied, denied),
        (Attribute::Mode(mode(0o664)), None, None, denied, denied, denied),
        (Attribute::Modified(TimeMs(77)), None, None, denied, denied, denied),
        (Attribute::Expires(Some(TimeMs(u64::MAX))), None, None, denied, denied, denied),
        (Attribute::Group(account("physics")), None, None, denied, denied, denied),
        (Attribute::Job(Some(5)), None, None, None, denied, denied),
        (Attribute::Size(1), None, None, None, denied, denied),
        (Attribute::Checksum(checksum), None, None, None, denied, denied),
    ] {
        for (caller, expected) in
            [(&f.bob, bob), (&f.op, op), (&f.carol, carol), (&f.alice, alice), (&f.admin, admin)]
        {
            let operation = set("/open/f", vec![attribute.clone()]);
            let name = caller.name().unwrap();
            assert_eq!(kind(&f, caller, operation).await, expected, "{name} {attribute:?}");
            if let Attribute::Group(_) = attribute {
                // Restore carol's group, for the next caller.
                f.ask(&f.admin, set("/open/f", vec![Attribute::Group(account("physics"))])).await.unwrap();
            }
        }
    }
    let entry = f.entry("/open/f").await.unwrap();
    assert_eq!((entry.owner, entry.group, entry.mode), (UserId(1), GroupId(10), mode(0o664)));
    assert_eq!((entry.modified, entry.expires), (TimeMs(77), Some(TimeMs(u64::MAX))));
    assert_eq!(entry.file().unwrap().job, Some(5));
    assert_eq!(entry.file().unwrap().checksums.iter().count(), 1);
    f.audit().await;
}

#[tokio::test]
async fn attributes_are_set_all_or_none_and_one_answer_each() {
    let f = Fixture::new().await;
    f.plant_file("/alice/f", 1, 0o644, 5, vec![]).await;
    f.plant_file("/bob/f", 2, 0o644, 5, vec![]).await;
    let attributes = vec![Attribute::Mode(mode(0o600)), Attribute::Size(6)];
    let kind_of = kind(&f, &f.alice, set("/alice/f", attributes)).await;
    assert_eq!(kind_of, Some(ErrorKind::Conflict), "the size is another");
    assert_eq!(f.entry("/alice/f").await.unwrap().mode, Mode::FILE);
    let operation = Operation::SetAttributes {
        lfns: lfns(["/alice/f", "/bob/f", "/alice/none", "/alice"]),
        attributes: vec![Attribute::Mode(mode(0o700))],
    };
    let Answer::EachDone(items) = f.get(&f.alice, operation).await else { panic!() };
    let kinds: Vec<_> = items.into_iter().map(|item| item.err().map(|error| error.kind)).collect();
    assert_eq!(kinds, [None, Some(ErrorKind::Denied), Some(ErrorKind::NotFound), None]);
    assert_eq!(kind(&f, &f.alice, set("/alice", vec![Attribute::Size(1)])).await, Some(ErrorKind::NotFile));
    let many = |count| set("/alice/f", vec![Attribute::Mode(Mode::FILE); count]);
    assert_eq!(kind(&f, &f.alice, many(32)).await, None);
    assert_eq!(f.refusal(&f.alice, many(33)).await, ErrorKind::Limit);
    let unknown = set("/alice/f", vec![Attribute::Group(account("nobody"))]);
    assert_eq!(f.refusal(&f.alice, unknown).await, ErrorKind::NotFound);
    let root = set("/", vec![Attribute::Expires(Some(TimeMs(1)))]);
    assert_eq!(kind(&f, &f.admin, root).await, Some(ErrorKind::Invalid));
    assert_eq!(kind(&f, &f.admin, set("/", vec![Attribute::Mode(mode(0o755))])).await, None);
    assert_eq!(kind(&f, &f.alice, set("/alice/f", vec![])).await, None);
    // Without passage nothing is set, nor revealed.
    f.plant_directory("/alice/shut", 1, 0o700).await;
    f.plant_file("/alice/shut/f", 1, 0o666, 5, vec![]).await;
    for path in ["/alice/shut/f", "/alice/shut/none"] {
        assert_eq!(kind(&f, &f.bob, set(path, vec![Attribute::Job(None)])).await, Some(ErrorKind::Denied));
    }
    let scoped = f.scoped("alice", "/alice/shut", true);
    let operation = |path| set(path, vec![Attribute::Mode(mode(0o644))]);
    assert_eq!(kind(&f, &scoped, operation("/alice/f")).await, Some(ErrorKind::Denied));
    assert_eq!(kind(&f, &scoped, operation("/alice/shut/f")).await, None);
}

#[tokio::test]
async fn asked_again_after_another_changed_it_nothing_is_set_back() {
    let f = Fixture::new().await;
    f.plant_file("/alice/f", 1, 0o644, 5, vec![]).await;
    let id = f.operation_id();
    let operation = set("/alice/f", vec![Attribute::Mode(mode(0o600))]);
    let first = f.catalogue.execute(&f.alice, id, operation.clone()).await.unwrap();
    f.get(&f.alice, set("/alice/f", vec![Attribute::Mode(mode(0o640))])).await;
    assert_eq!(f.catalogue.execute(&f.alice, id, operation.clone()).await.unwrap(), first);
    assert_eq!(f.entry("/alice/f").await.unwrap().mode, mode(0o640));
    // The file is gone meanwhile; the repeat still gets the first answer.
    f.remove(&f.alice, "/alice/f").await.unwrap();
    assert_eq!(f.catalogue.execute(&f.alice, id, operation).await.unwrap(), first);
}

fn put(se: &str, pfn: Option<&str>) -> ReplicaEdit {
    let pfn = pfn.map(|pfn| Pfn::parse(pfn).unwrap());
    ReplicaEdit::Put(NewReplica { se: se_name(se), pfn, state: ReplicaState::Available })
}

fn replicas(file: FileRef, edits: Vec<ReplicaEdit>) -> Operation {
    Operation::SetReplicas { edits: vec![(file, edits)] }
}

#[tokio::test]
async fn replicas_come_change_and_go() {
    let f = Fixture::new().await;
    let file = f.plant_file("/alice/f", 1, 0o644, 5, vec![derived(1, ReplicaState::Available)]).await;
    let by_path = || FileRef::Lfn(lfn("/alice/f"));
    let have = async || -> Vec<(u16, ReplicaState, bool)> {
        let entry = f.entry("/alice/f").await.unwrap();
        let replicas = entry.file().unwrap().replicas.iter();
        replicas.map(|r| (r.se.0, r.state, r.location == Location::Derived)).collect()
    };
    let (available, suspect) = (ReplicaState::Available, ReplicaState::Suspect);
    let edits = vec![
        put("X::FNAL::DISK", Some("root://f//x")),
        ReplicaEdit::State(se_name("X::CERN::DISK"), suspect),
    ];
    assert_eq!(kind(&f, &f.alice, replicas(by_path(), edits)).await, None);
    assert_eq!(have().await, [(1, suspect, true), (2, available, false)]);
    // The PFN that follows from the SE, written out, is the same place.
    let mut same = String::from("root://cern//d");
    same.push_str(file.storage_path().as_str());
    assert_eq!(
        kind(&f, &f.alice, replicas(FileRef::Guid(file), vec![put("X::CERN::DISK", Some(&same))])).await,
        None
    );
    assert_eq!(have().await, [(1, available, true), (2, available, false)]);
    let elsewhere = replicas(by_path(), vec![put("X::CERN::DISK", Some("root://cern//other"))]);
    assert_eq!(kind(&f, &f.alice, elsewhere).await, Some(ErrorKind::Exists));
    let drop = |se: &str, delete| ReplicaEdit::Drop { se: se_name(se), delete };
    // All edits of one file or none.
    let half = vec![drop("X::CERN::DISK", true), drop("X::CERN::TAPE", true)];
    assert_eq!(kind(&f, &f.alice, replicas(by_path(), half)).await, Some(ErrorKind::NotFound));
    assert_eq!(have().await.len(), 2);
    let both = vec![drop("X::CERN::DISK", true), drop("X::FNAL::DISK", false)];
    assert_eq!(kind(&f, &f.alice, replicas(by_path(), both)).await, None);
    assert!(have().await.is_empty());
    assert_eq!(f.store.deletions(SeNumber(1), None, 10).await.unwrap().items.len(), 1);
    assert!(f.store.deletions(SeNumber(2), None, 10).await.unwrap().items.is_empty());
    f.audit().await;
}

/// An edit that requires a version is applied to that version only, whatever changed since.
#[tokio::test]
async fn replica_edit_that_requires_a_version_is_refused_for_a_later_one() {
    let f = Fixture::new().await;
    f.plant_file("/alice/f", 1, 0o644, 5, vec![derived(1, ReplicaState::Available)]).await;
    let by_path = || FileRef::Lfn(lfn("/alice/f"));
    let mark = |edits: Vec<ReplicaEdit>| {
        let state = ReplicaEdit::State(se_name("X::CERN::DISK"), ReplicaState::Lost);
        replicas(by_path(), edits.into_iter().chain([state]).collect())
    };
    let seen = f.entry("/alice/f").await.unwrap().revision;
    f.get(&f.alice, set("/alice/f", vec![Attribute::Mode(mode(0o600))])).await;
    let now = f.entry("/alice/f").await.unwrap().revision;
    assert_ne!(seen, now);
    assert_eq!(kind(&f, &f.alice, mark(vec![ReplicaEdit::Unchanged(seen)])).await, Some(ErrorKind::Conflict));
    let both = vec![ReplicaEdit::Unchanged(now), ReplicaEdit::Unchanged(seen)];
    assert_eq!(kind(&f, &f.alice, mark(both)).await, Some(ErrorKind::Invalid));
    let state = async || f.entry("/alice/f").await.unwrap().file().unwrap().replicas[0].state;
    assert_eq!(state().await, ReplicaState::Available);
    assert_eq!(kind(&f, &f.alice, mark(vec![ReplicaEdit::Unchanged(now)])).await, None);
    assert_eq!(state().await, ReplicaState::Lost);
}

#[tokio::test]
async fn whose_replicas() {
    let f = Fixture::new().await;
    f.plant_file("/alice/f", 1, 0o644, 5, vec![]).await;
    f.plant_file("/alice/g", 1, 0o666, 5, vec![explicit(1, "root://a//g")]).await;
    f.plant_directory("/alice/shut", 1, 0o700).await;
    let shut = f.plant_file("/alice/shut/f", 1, 0o666, 5, vec![]).await;
    let ask = |file: FileRef| replicas(file, vec![put("X::FNAL::DISK", None)]);
    let by_path = |path: &str| FileRef::Lfn(lfn(path));
    assert_eq!(kind(&f, &f.bob, ask(by_path("/alice/f"))).await, Some(ErrorKind::Denied));
    assert_eq!(kind(&f, &f.bob, ask(by_path("/alice/g"))).await, None);
    assert_eq!(kind(&f, &f.bob, ask(by_path("/alice/shut/f"))).await, Some(ErrorKind::Denied));
    assert_eq!(kind(&f, &f.bob, ask(FileRef::Guid(shut))).await, Some(ErrorKind::NotFound));
    assert_eq!(kind(&f, &f.bob, ask(FileRef::Guid(Guid([1; 16])))).await, Some(ErrorKind::NotFound));
    assert_eq!(kind(&f, &f.alice, ask(by_path("/alice"))).await, Some(ErrorKind::NotFile));
    let unknown = replicas(by_path("/alice/f"), vec![put("X::NO::SE", None)]);
    assert_eq!(kind(&f, &f.alice, unknown).await, Some(ErrorKind::NotFound));
    let many = |count| replicas(by_path("/alice/f"), vec![put("X::FNAL::DISK", None); count]);
    assert_eq!(kind(&f, &f.alice, many(256)).await, None);
    assert_eq!(kind(&f, &f.alice, many(257)).await, Some(ErrorKind::Limit));
    // One answer each, in order, by name and by identity mixed.
    let edits = [by_path("/alice/f"), FileRef::Guid(shut), by_path("/none"), by_path("/alice/shut/f")];
    let edits = edits.map(|file| (file, vec![put("X::CERN::TAPE", None)])).to_vec();
    let Answer::EachDone(items) = f.get(&f.alice, Operation::SetReplicas { edits }).await else { panic!() };
    assert_eq!(items.iter().map(Result::is_ok).collect::<Vec<_>>(), [true, true, false, true]);
}

#[tokio::test]
async fn links_are_made_to_anything() {
    let f = Fixture::new().await;
    let link = |path: &str, target: &str| Operation::Link { lfn: lfn(path), target: lfn(target) };
    let id = f.operation_id();
    let first = f.catalogue.execute(&f.alice, id, link("/alice/l", "/no/where")).await.unwrap();
    assert_eq!(f.catalogue.execute(&f.alice, id, link("/alice/l", "/no/where")).await.unwrap(), first);
    let entry = f.entry("/alice/l").await.unwrap();
    assert!(matches!(&entry.body, Body::Link { target, .. } if target.as_str() == "/no/where"));
    assert_eq!((entry.owner, entry.mode), (UserId(1), mode(0o777)));
    assert_eq!(f.refusal(&f.alice, link("/alice/l", "/x")).await, ErrorKind::Exists);
    assert_eq!(f.refusal(&f.alice, link("/alice/no/l", "/x")).await, ErrorKind::NotFound);
    assert_eq!(f.refusal(&f.bob, link("/alice/m", "/x")).await, ErrorKind::Denied);
    assert_eq!(f.refusal(&f.scoped("alice", "/bob", true), link("/alice/m", "/x")).await, ErrorKind::Denied);
}

fn tags(texts: &[&str]) -> Vec<Tag> {
    texts.iter().map(|text| Tag::parse(text).unwrap()).collect()
}

fn keys(texts: &[&str]) -> Vec<TagKey> {
    texts.iter().map(|text| TagKey::parse(text).unwrap()).collect()
}

async fn in_force(f: &Fixture, caller: &Caller, path: &str, own: bool) -> Vec<String> {
    match f.get(caller, Operation::TagGet { lfns: lfns([path]), own }).await {
        Answer::Tags(mut items) => {
            let found = items.pop().unwrap().unwrap();
            found.into_iter().map(|one| format!("{}={} {}", one.tag.key, one.tag.value, one.from)).collect()
        }
        answer => panic!("{answer:?}"),
    }
}

#[tokio::test]
async fn tags_are_in_force_below_and_the_nearest_counts() {
    let f = Fixture::new().await;
    f.plant_directory("/alice/d", 1, 0o755).await;
    f.plant_file("/alice/d/f", 1, 0o644, 5, vec![]).await;
    let set = |path: &str, set: &[&str], unset: &[&str]| Operation::TagSet {
        lfns: lfns([path]),
        set: tags(set),
        unset: keys(unset),
    };
    for operation in [
        set("/alice", &["run=1", "beam=pp"], &[]),
        set("/alice/d", &["run=2", "x=y"], &[]),
        set("/alice/d/f", &["z=1"], &[]),
    ] {
        assert_eq!(kind(&f, &f.alice, operation).await, None);
    }
    assert_eq!(kind(&f, &f.admin, set("/", &["site=earth", "run=0"], &[])).await, None);
    let expected = ["beam=pp /alice", "run=2 /alice/d", "site=earth /", "x=y /alice/d", "z=1 /alice/d/f"];
    assert_eq!(in_force(&f, &f.bob, "/alice/d/f", false).await, expected);
    assert_eq!(in_force(&f, &f.bob, "/alice/d/f", true).await, ["z=1 /alice/d/f"]);
    assert_eq!(kind(&f, &f.alice, set("/alice/d", &[], &["run", "absent"])).await, None);
    assert_eq!(in_force(&f, &f.bob, "/alice/d", false).await[1], "run=1 /alice");
    // A moved entry inherits other tags.
    f.get(&f.alice, Operation::Move { from: lfn("/alice/d/f"), to: lfn("/alice/f") }).await;
    assert_eq!(in_force(&f, &f.bob, "/alice/f", false).await.len(), 4);
    assert_eq!(in_force(&f, &f.bob, "/", false).await, ["run=0 /", "site=earth /"]);
}

#[tokio::test]
async fn tags_have_their_rules_and_limits() {
    let f = Fixture::new().await;
    f.plant_file("/alice/f", 1, 0o644, 5, vec![]).await;
    f.plant_file("/alice/g", 1, 0o666, 5, vec![]).await;
    let ask =
        |path: &str, set: Vec<Tag>, unset: Vec<TagKey>| Operation::TagSet { lfns: lfns([path]), set, unset };
    assert_eq!(kind(&f, &f.bob, ask("/alice/f", tags(&["a=1"]), vec![])).await, Some(ErrorKind::Denied));
    assert_eq!(kind(&f, &f.bob, ask("/alice/g", tags(&["a=1"]), vec![])).await, None);
    assert_eq!(
        kind(&f, &f.alice, ask("/alice/none", tags(&["a=1"]), vec![])).await,
        Some(ErrorKind::NotFound)
    );
    assert_eq!(f.refusal(&f.alice, ask("/alice/f", tags(&["a=1", "a=2"]), vec![])).await, ErrorKind::Invalid);
    assert_eq!(f.refusal(&f.alice, ask("/alice/f", tags(&["a=1"]), keys(&["a"]))).await, ErrorKind::Invalid);
    let many = |count: usize| (0..count).map(|n| Tag::parse(&format!("k{n}=v")).unwrap()).collect::<Vec<_>>();
    let full = many(TAGS_PER_ENTRY_MAX);
    assert_eq!(
        f.refusal(&f.alice, ask("/alice/f", many(TAGS_PER_ENTRY_MAX + 1), vec![])).await,
        ErrorKind::Limit
    );
    assert_eq!(kind(&f, &f.alice, ask("/alice/f", full, vec![])).await, None);
    assert_eq!(kind(&f, &f.alice, ask("/alice/f", tags(&["more=1"]), vec![])).await, Some(ErrorKind::Limit));
    // Removed tags make room for new ones.
    assert_eq!(kind(&f, &f.alice, ask("/alice/f", tags(&["more=1"]), keys(&["k0"]))).await, None);
    let long = vec![Tag {
        key: TagKey::parse("a").unwrap(),
        value: exacat_model::TagValue::Text("x".repeat(TAG_TEXT_BYTES_MAX + 1)),
    }];
    assert_eq!(f.refusal(&f.alice, ask("/alice/f", long, vec![])).await, ErrorKind::Limit);
}

/// Goal: tags of more bytes than one request to the store takes are set in parts, once.
#[tokio::test]
async fn many_long_tags_go_in_parts_and_once() {
    let f = Fixture::new().await;
    let paths: Vec<_> = (0..60).map(|n| format!("/alice/{n}")).collect();
    for path in &paths {
        f.plant_file(path, 1, 0o644, 1, vec![]).await;
    }
    let text = "x".repeat(TAG_TEXT_BYTES_MAX);
    let set: Vec<Tag> = (0..40)
        .map(|n| Tag {
            key: TagKey::parse(&format!("k{n}")).unwrap(),
            value: exacat_model::TagValue::Text(text.clone()),
        })
        .collect();
    // A short request must not cause gigabytes of writes.
    let many = Operation::TagSet { lfns: vec![lfn("/alice/0"); 10_000], set: set.clone(), unset: vec![] };
    assert_eq!(f.refusal(&f.alice, many).await, ErrorKind::Limit);
    let operation =
        Operation::TagSet { lfns: paths.iter().map(|path| lfn(path)).collect(), set, unset: vec![] };
    let id = f.operation_id();
    let first = f.catalogue.execute(&f.alice, id, operation.clone()).await.unwrap();
    let Answer::EachDone(items) = &first else { panic!() };
    assert!(items.iter().all(Result::is_ok));
    let revision = f.store.revision().await.unwrap();
    assert_eq!(f.catalogue.execute(&f.alice, id, operation).await.unwrap(), first);
    assert_eq!(f.store.revision().await.unwrap(), revision);
}

fn edit(path: &str, add: Vec<FileRef>, remove: Vec<FileRef>) -> Operation {
    Operation::CollectionEdit { lfn: lfn(path), add, remove }
}

fn by_path(path: &str) -> FileRef {
    FileRef::Lfn(lfn(path))
}

async fn edited(f: &Fixture, caller: &Caller, operation: Operation) -> (u64, u64, Vec<ErrorKind>) {
    match f.get(caller, operation).await {
        Answer::CollectionEdited { added, removed, refused } => {
            (added, removed, refused.into_iter().map(|(_, error)| error.kind).collect())
        }
        answer => panic!("{answer:?}"),
    }
}

async fn members(f: &Fixture, caller: &Caller, path: &str, limit: u32) -> Vec<(Guid, Option<String>)> {
    let mut found = Vec::new();
    let operation = Operation::CollectionMembers { lfn: lfn(path), cursor: Cursor::default(), limit };
    f.pages(caller, operation, |answer| match answer {
        Answer::Members { items, .. } => {
            found.extend(items.into_iter().map(|one| (one.guid, one.stat.map(|stat| stat.lfn.to_string()))));
        }
        answer => panic!("{answer:?}"),
    })
    .await;
    found
}

#[tokio::test]
async fn collections() {
    let f = Fixture::new().await;
    let create = |path: &str, set: &[&str]| Operation::CollectionCreate { lfn: lfn(path), tags: tags(set) };
    let id = f.operation_id();
    let first = f.catalogue.execute(&f.alice, id, create("/alice/c", &["z=1", "a=2"])).await.unwrap();
    assert_eq!(f.catalogue.execute(&f.alice, id, create("/alice/c", &["z=1", "a=2"])).await.unwrap(), first);
    assert_eq!(f.refusal(&f.alice, create("/alice/c", &[])).await, ErrorKind::Exists);
    assert_eq!(f.refusal(&f.bob, create("/alice/d", &[])).await, ErrorKind::Denied);
    assert_eq!(f.refusal(&f.alice, create("/alice/no/d", &[])).await, ErrorKind::NotFound);
    assert_eq!(f.refusal(&f.alice, create("/alice/d", &["a=1", "a=1"])).await, ErrorKind::Invalid);
    assert_eq!(in_force(&f, &f.alice, "/alice/c", true).await, ["a=2 /alice/c", "z=1 /alice/c"]);

    let mut guids = Vec::new();
    for n in 0..5 {
        guids.push(f.plant_file(&format!("/alice/f{n}"), 1, 0o644, 1, vec![]).await);
    }
    f.plant_directory("/bob/shut", 2, 0o700).await;
    let hidden = f.plant_file("/bob/shut/f", 2, 0o644, 1, vec![]).await;
    f.plant_file("/bob/f", 2, 0o600, 1, vec![]).await;
    let add = vec![
        by_path("/alice/f0"),
        FileRef::Guid(guids[1]),
        by_path("/alice/f0"),
        by_path("/alice/none"),
        by_path("/bob/shut/f"),
        FileRef::Guid(hidden),
        by_path("/bob/f"),
        by_path("/alice"),
        by_path("/alice/f2"),
    ];
    let id = f.operation_id();
    let ask = edit("/alice/c", add, vec![]);
    let first = f.catalogue.execute(&f.alice, id, ask.clone()).await.unwrap();
    let Answer::CollectionEdited { added: 3, removed: 0, refused } = &first else { panic!("{first:?}") };
    let (denied, not_file, not_found) = (ErrorKind::Denied, ErrorKind::NotFile, ErrorKind::NotFound);
    let kinds: Vec<ErrorKind> = refused.iter().map(|(_, error)| error.kind).collect();
    assert_eq!(kinds, [not_found, denied, not_found, denied, not_file]);
    assert_eq!(f.catalogue.execute(&f.alice, id, ask.clone()).await.unwrap(), first, "asked again");
    assert_eq!(edited(&f, &f.alice, ask).await.0, 0, "they are in it");

    let expected: Vec<_> = (0..3).map(|n| (guids[n], Some(format!("/alice/f{n}")))).collect();
    for limit in [0, 1, 2, 3] {
        assert_eq!(members(&f, &f.bob, "/alice/c", limit).await, expected);
    }
    // A removed file stays a member; its GUID removes it.
    f.remove(&f.alice, "/alice/f1").await.unwrap();
    assert_eq!(members(&f, &f.bob, "/alice/c", 0).await[1], (guids[1], None));
    let remove =
        vec![FileRef::Guid(guids[1]), by_path("/alice/f1"), by_path("/alice/f0"), by_path("/alice/f4")];
    assert_eq!(edited(&f, &f.alice, edit("/alice/c", vec![], remove)).await, (0, 2, vec![not_found]));
    let (add, remove) = (vec![by_path("/alice/f3")], vec![by_path("/alice/f2")]);
    assert_eq!(edited(&f, &f.alice, edit("/alice/c", add, remove)).await, (1, 1, vec![]));
    assert_eq!(members(&f, &f.alice, "/alice/c", 0).await, [(guids[3], Some("/alice/f3".to_owned()))]);
    let Body::Collection { members: count, .. } = f.entry("/alice/c").await.unwrap().body else { panic!() };
    assert_eq!(count, 1);
    f.audit().await;
}

#[tokio::test]
async fn whose_collections() {
    let f = Fixture::new().await;
    let seen = f.plant_file("/alice/f", 1, 0o644, 1, vec![]).await;
    f.plant_directory("/alice/shut", 1, 0o700).await;
    let hidden = f.plant_file("/alice/shut/f", 1, 0o644, 1, vec![]).await;
    f.plant("/alice/c", 1, 0o644, NewBody::Collection { guid: guid(700) }).await;
    f.plant("/alice/closed", 1, 0o600, NewBody::Collection { guid: guid(701) }).await;
    let both = vec![FileRef::Guid(seen), FileRef::Guid(hidden)];
    assert_eq!(edited(&f, &f.alice, edit("/alice/c", both, vec![])).await.0, 2);
    // A caller who may not find a member gets its GUID only.
    let found = members(&f, &f.bob, "/alice/c", 0).await;
    assert_eq!(found, [(seen, Some("/alice/f".to_owned())), (hidden, None)]);
    let list =
        |path: &str| Operation::CollectionMembers { lfn: lfn(path), cursor: Cursor::default(), limit: 0 };
    assert_eq!(f.refusal(&f.bob, list("/alice/closed")).await, ErrorKind::Denied);
    assert_eq!(f.refusal(&f.bob, edit("/alice/c", vec![], vec![])).await, ErrorKind::Denied);
    assert_eq!(f.refusal(&f.bob, list("/alice/f")).await, ErrorKind::Invalid);
    assert_eq!(f.refusal(&f.bob, list("/alice/none")).await, ErrorKind::NotFound);
    let scoped = f.scoped("alice", "/alice/c", true);
    assert_eq!(members(&f, &scoped, "/alice/c", 0).await, [(seen, None), (hidden, None)]);
    assert_eq!(
        edited(&f, &scoped, edit("/alice/c", vec![by_path("/alice/f")], vec![])).await.2,
        [ErrorKind::Denied]
    );
    let many = vec![FileRef::Guid(seen); EDITS_PER_UPDATE_MAX];
    assert_eq!(edited(&f, &f.alice, edit("/alice/c", many.clone(), vec![])).await, (0, 0, vec![]));
    assert_eq!(f.refusal(&f.alice, edit("/alice/c", many, vec![by_path("/x")])).await, ErrorKind::Limit);
}
