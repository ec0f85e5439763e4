//! Registration of files in bulk: the result of each file, by policy, permission, place and repeat.

use crate::fixture::{Fixture, account, derived, guid, lfn, mode, se_name};
use exacat_model::limits::{BATCH_MUTATIONS_MAX, MEMBER_NAME_BYTES_MAX, REPLICAS_PER_FILE_MAX};
use exacat_model::operation::{Existing, NewFile, NewReplica, Registered, SeSettings};
use exacat_model::{
    Answer, Checksum, Checksums, Edit, ErrorKind, FileRef, GroupId, Guid, Location, NewBody, Operation, Pfn,
    ReplicaState, Result, SeNumber, Tag, TagKey, TagValue, TimeMs, UserId,
};
use exacat_testkit::settings;

const CERN: &str = "X::CERN::DISK";
const FNAL: &str = "X::FNAL::DISK";

fn file(path: &str) -> NewFile {
    NewFile::named(lfn(path))
}

fn on(se: &str) -> NewReplica {
    NewReplica { se: se_name(se), pfn: None, state: ReplicaState::Available }
}

fn at(se: &str, pfn: &str) -> NewReplica {
    NewReplica { se: se_name(se), pfn: Some(Pfn::parse(pfn).unwrap()), state: ReplicaState::Available }
}

fn checksum(text: &str) -> Checksums {
    Checksums::one(Checksum::parse(text).unwrap())
}

fn tag(key: &str, value: i64) -> Tag {
    Tag { key: TagKey::parse(key).unwrap(), value: TagValue::Integer(value) }
}

fn register(files: Vec<NewFile>, parents: bool, existing: Existing) -> Operation {
    Operation::Register { files, parents, existing }
}

async fn ask(
    f: &Fixture,
    caller: &exacat_catalogue::Caller,
    files: Vec<NewFile>,
    parents: bool,
    existing: Existing,
) -> Vec<Result<Registered>> {
    match f.get(caller, register(files, parents, existing)).await {
        Answer::Registered(items) => items,
        answer => panic!("{answer:?}"),
    }
}

/// Returns one word for the result of a file.
fn word(item: &Result<Registered>) -> &'static str {
    match item {
        Ok(Registered::Created(_)) => "created",
        Ok(Registered::Unchanged(_)) => "unchanged",
        Ok(Registered::Merged(_)) => "merged",
        Err(error) => error.kind.name(),
    }
}

fn guid_of(item: &Result<Registered>) -> Guid {
    match item.as_ref().unwrap() {
        Registered::Created(guid) | Registered::Unchanged(guid) | Registered::Merged(guid) => *guid,
    }
}

#[tokio::test]
async fn a_file_has_all_that_was_given() {
    let f = Fixture::new().await;
    let mut new = file("/alice/a/b/file");
    new.guid = Some(guid(77));
    new.size = Some(1234);
    new.checksums = checksum("md5:d41d8cd98f00b204e9800998ecf8427e");
    new.group = Some(account("physics"));
    new.mode = Some(mode(0o640));
    new.modified = Some(TimeMs(5_000));
    new.expires = Some(TimeMs(u64::MAX / 2));
    new.job = Some(42);
    new.tags = vec![tag("run", 2), tag("period", 1)];
    new.replicas = vec![at(FNAL, "root://fnal//elsewhere/x"), on(CERN)];
    let answers = ask(&f, &f.alice, vec![new], true, Existing::Refuse).await;
    assert_eq!(answers, [Ok(Registered::Created(guid(77)))]);
    let entry = f.entry("/alice/a/b/file").await.unwrap();
    let file = entry.file().unwrap();
    assert_eq!((entry.owner, entry.group, entry.mode), (UserId(1), GroupId(10), mode(0o640)));
    assert_eq!((file.size, file.job, entry.modified), (Some(1234), Some(42), TimeMs(5_000)));
    assert_eq!(entry.expires, Some(TimeMs(u64::MAX / 2)));
    assert_eq!(file.checksums, checksum("md5:d41d8cd98f00b204e9800998ecf8427e"));
    assert_eq!(entry.tags, [tag("period", 1), tag("run", 2)]);
    assert_eq!(file.replicas[0], derived(1, ReplicaState::Available));
    assert_eq!(file.replicas[1], crate::fixture::explicit(2, "root://fnal//elsewhere/x"));
    // New parents belong to the caller.
    let parent = f.entry("/alice/a/b").await.unwrap();
    assert_eq!((parent.owner, parent.mode), (UserId(1), mode(0o755)));
    f.audit().await;
}

#[tokio::test]
async fn each_file_is_judged_by_itself() {
    let f = Fixture::new().await;
    f.plant_file("/alice/there", 1, 0o644, 1, vec![]).await;
    f.plant("/alice/directory", 1, 0o755, NewBody::Directory).await;
    let taken = f.plant_file("/alice/other", 1, 0o644, 1, vec![]).await;
    let mut files = Vec::new();
    let mut expected = Vec::new();
    let mut case = |new: NewFile, word: &'static str| {
        files.push(new);
        expected.push(word);
    };
    case(file("/alice/new"), "created");
    case(file("/"), "invalid");
    case(file("/alice/there"), "exists");
    case(file("/alice"), "denied");
    case(file("/alice/directory"), "exists");
    case(file("/alice/missing/new"), "not-found");
    case(file("/alice/there/new"), "not-directory");
    case(file("/bob/new"), "denied");
    case(NewFile { guid: Some(taken), ..file("/alice/new2") }, "exists");
    case(NewFile { guid: Some(guid(500)), ..file("/alice/new3") }, "created");
    case(NewFile { guid: Some(guid(500)), ..file("/alice/new4") }, "exists");
    case(NewFile { owner: Some(account("bob")), ..file("/alice/new5") }, "denied");
    case(NewFile { owner: Some(account("alice")), ..file("/alice/new6") }, "created");
    case(NewFile { owner: Some(account("nobody")), ..file("/alice/new7") }, "not-found");
    case(NewFile { group: Some(account("bob")), ..file("/alice/new8") }, "denied");
    case(NewFile { group: Some(account("physics")), ..file("/alice/new9") }, "created");
    case(NewFile { replicas: vec![on("X::NO::SE")], ..file("/alice/new10") }, "not-found");
    case(NewFile { replicas: vec![on(CERN), on(CERN)], ..file("/alice/new11") }, "invalid");
    case(NewFile { tags: vec![tag("a", 1), tag("a", 2)], ..file("/alice/new12") }, "invalid");
    case(NewFile { size: Some(exacat_model::limits::FILE_BYTES_MAX), ..file("/alice/new13") }, "created");
    case(NewFile { size: Some(exacat_model::limits::FILE_BYTES_MAX + 1), ..file("/alice/new14") }, "limit");
    case(file("/alice/new"), "exists");
    let answers = ask(&f, &f.alice, files, false, Existing::Refuse).await;
    assert_eq!(answers.iter().map(word).collect::<Vec<_>>(), expected);
    let unknown = answers[16].as_ref().unwrap_err();
    assert!(unknown.message.contains("X::NO::SE"), "{unknown}");
    // An admin gives files to others; then the group is the owner's.
    let new = NewFile { owner: Some(account("bob")), ..file("/alice/for-bob") };
    assert_eq!(word(&ask(&f, &f.admin, vec![new], false, Existing::Refuse).await[0]), "created");
    let entry = f.entry("/alice/for-bob").await.unwrap();
    assert_eq!((entry.owner, entry.group), (UserId(2), GroupId(2)));
    f.audit().await;
}

/// Each line: the new data about an existing file, and the result by policy.
#[tokio::test]
async fn policies_for_files_that_are_there() {
    let known = || NewFile {
        guid: Some(guid(9)),
        size: Some(10),
        checksums: checksum("adler32:1"),
        tags: vec![tag("run", 7)],
        replicas: vec![on(CERN)],
        job: Some(3),
        modified: Some(TimeMs(1000)),
        ..file("/alice/file")
    };
    let both = Checksums::one(Checksum::parse("md5:d41d8cd98f00b204e9800998ecf8427e").unwrap());
    let suspect = NewReplica { state: ReplicaState::Suspect, ..on(CERN) };
    let spelled =
        at(CERN, &derived(1, ReplicaState::Available).pfn(guid(9), Some(&se_of(1, "root://cern//d"))));
    let cases: Vec<(&str, NewFile, &str, &str)> = vec![
        ("nothing", file("/alice/file"), "unchanged", "unchanged"),
        ("all the same", known(), "unchanged", "unchanged"),
        (
            "the same PFN, spelled out",
            NewFile { replicas: vec![spelled], ..file("/alice/file") },
            "unchanged",
            "unchanged",
        ),
        ("another replica", NewFile { replicas: vec![on(FNAL)], ..file("/alice/file") }, "exists", "merged"),
        (
            "another checksum algorithm",
            NewFile { checksums: both, ..file("/alice/file") },
            "exists",
            "merged",
        ),
        ("another tag", NewFile { tags: vec![tag("period", 1)], ..file("/alice/file") }, "exists", "merged"),
        ("another GUID", NewFile { guid: Some(guid(10)), ..file("/alice/file") }, "exists", "conflict"),
        ("another size", NewFile { size: Some(11), ..file("/alice/file") }, "exists", "conflict"),
        (
            "another digest",
            NewFile { checksums: checksum("adler32:2"), ..file("/alice/file") },
            "exists",
            "conflict",
        ),
        (
            "another tag value",
            NewFile { tags: vec![tag("run", 8)], ..file("/alice/file") },
            "exists",
            "conflict",
        ),
        (
            "another PFN",
            NewFile { replicas: vec![at(CERN, "root://x//y")], ..file("/alice/file") },
            "exists",
            "conflict",
        ),
        ("another state", NewFile { replicas: vec![suspect], ..file("/alice/file") }, "exists", "conflict"),
        ("another mode", NewFile { mode: Some(mode(0o600)), ..file("/alice/file") }, "exists", "conflict"),
        (
            "another group",
            NewFile { group: Some(account("physics")), ..file("/alice/file") },
            "exists",
            "conflict",
        ),
        ("another job", NewFile { job: Some(4), ..file("/alice/file") }, "exists", "conflict"),
        ("another time", NewFile { modified: Some(TimeMs(1)), ..file("/alice/file") }, "exists", "conflict"),
        (
            "an expiry",
            NewFile { expires: Some(TimeMs(u64::MAX / 2)), ..file("/alice/file") },
            "exists",
            "conflict",
        ),
        (
            "a replica and a contradiction",
            NewFile { size: Some(11), replicas: vec![on(FNAL)], ..file("/alice/file") },
            "exists",
            "conflict",
        ),
    ];
    for (what, given, same, merge) in cases {
        for (existing, expected) in
            [(Existing::Refuse, "exists"), (Existing::Same, same), (Existing::Merge, merge)]
        {
            let f = Fixture::new().await;
            assert_eq!(word(&ask(&f, &f.alice, vec![known()], false, Existing::Refuse).await[0]), "created");
            let before = f.entry("/alice/file").await.unwrap();
            let id = f.operation_id();
            let operation = register(vec![given.clone()], false, existing);
            let answer = f.catalogue.execute(&f.alice, id, operation.clone()).await.unwrap();
            let Answer::Registered(items) = &answer else { panic!("{answer:?}") };
            assert_eq!(word(&items[0]), expected, "{what}, {existing:?}: {:?}", items[0]);
            let after = f.entry("/alice/file").await.unwrap();
            assert_eq!(before != after, expected == "merged", "{what}, {existing:?}");
            // A repeat gets the same answer and makes no change.
            assert_eq!(f.catalogue.execute(&f.alice, id, operation.clone()).await.unwrap(), answer, "{what}");
            assert_eq!(f.entry("/alice/file").await.unwrap(), after);
            // A new request after a merge finds no difference.
            if expected == "merged" {
                let answers = ask(&f, &f.alice, vec![given.clone()], false, existing).await;
                assert_eq!(word(&answers[0]), "unchanged", "{what}");
            }
            f.audit().await;
        }
    }
}

fn se_of(number: u16, prefix: &str) -> exacat_model::Se {
    exacat_model::Se {
        number: SeNumber(number),
        name: se_name("X::Y::Z"),
        prefix: prefix.to_owned(),
        qos: Vec::new(),
        status: exacat_model::SeStatus::Online,
        distances: Vec::new(),
        https: String::new(),
    }
}

#[tokio::test]
async fn what_is_there_may_lack_size_and_job() {
    let f = Fixture::new().await;
    assert_eq!(
        word(&ask(&f, &f.alice, vec![file("/alice/bare")], false, Existing::Refuse).await[0]),
        "created"
    );
    let given = NewFile { size: Some(5), job: Some(6), ..file("/alice/bare") };
    assert_eq!(word(&ask(&f, &f.alice, vec![given], false, Existing::Merge).await[0]), "merged");
    let entry = f.entry("/alice/bare").await.unwrap();
    assert_eq!((entry.size(), entry.file().unwrap().job), (Some(5), Some(6)));
    f.audit().await;
}

#[tokio::test]
async fn other_kinds_and_others_files_are_not_merged_with() {
    let f = Fixture::new().await;
    f.plant("/open/directory", 1, 0o755, NewBody::Directory).await;
    f.plant("/open/link", 1, 0o777, NewBody::Link { guid: guid(900), target: lfn("/alice") }).await;
    f.plant_file("/open/bobs", 2, 0o644, 1, vec![]).await;
    f.plant_file("/open/secret", 2, 0o600, 1, vec![]).await;
    f.plant_file("/bob/shared", 2, 0o666, 1, vec![]).await;
    let given = |path: &str| NewFile { replicas: vec![on(CERN)], ..file(path) };
    let paths = ["/open/directory", "/open/link", "/open/bobs", "/open/secret", "/bob/shared", "/bob/none"];
    let answers = ask(&f, &f.alice, paths.map(given).to_vec(), false, Existing::Merge).await;
    // A writable file in a read-only directory can be merged.
    assert_eq!(
        answers.iter().map(word).collect::<Vec<_>>(),
        ["conflict", "conflict", "denied", "exists", "merged", "denied"]
    );
    // A request without differences needs no right to change.
    let plain = ["/open/bobs", "/open/secret"].map(file).to_vec();
    let answers = ask(&f, &f.alice, plain, false, Existing::Merge).await;
    assert_eq!(answers.iter().map(word).collect::<Vec<_>>(), ["unchanged", "exists"]);
    f.audit().await;
}

#[tokio::test]
async fn one_file_many_times_in_one_call() {
    let f = Fixture::new().await;
    let mut files: Vec<NewFile> = Vec::new();
    for se in [CERN, FNAL, "X::CERN::TAPE", CERN] {
        files.push(NewFile { replicas: vec![on(se)], ..file("/alice/many") });
    }
    files.push(NewFile { tags: vec![tag("a", 1)], ..file("/alice/many") });
    files.push(NewFile { tags: vec![tag("a", 2)], ..file("/alice/many") });
    files.push(NewFile { tags: vec![tag("b", 2)], ..file("/alice/many") });
    let id = f.operation_id();
    let operation = register(files, false, Existing::Merge);
    let answer = f.catalogue.execute(&f.alice, id, operation.clone()).await.unwrap();
    let Answer::Registered(items) = &answer else { panic!("{answer:?}") };
    assert_eq!(
        items.iter().map(word).collect::<Vec<_>>(),
        ["created", "merged", "merged", "unchanged", "merged", "conflict", "merged"]
    );
    let entry = f.entry("/alice/many").await.unwrap();
    assert_eq!(entry.file().unwrap().replicas.len(), 3);
    assert_eq!(entry.tags, [tag("a", 1), tag("b", 2)]);
    let revision = f.catalogue.store().revision().await.unwrap();
    let again = f.catalogue.execute(&f.alice, id, operation).await.unwrap();
    assert_eq!(again, answer);
    assert_eq!(f.catalogue.store().revision().await.unwrap(), revision);
    f.audit().await;
}

#[tokio::test]
async fn archives_and_members_in_one_call_in_any_order() {
    let f = Fixture::new().await;
    let member = |path: &str, of: FileRef, name: &str| NewFile {
        member_of: Some((of, name.to_owned())),
        ..file(path)
    };
    let by_lfn = || FileRef::Lfn(lfn("/alice/zip"));
    let files = vec![
        member("/alice/m1", by_lfn(), "one"),
        file("/alice/zip"),
        member("/alice/m2", by_lfn(), "two"),
        NewFile { guid: Some(guid(31)), ..file("/alice/zip2") },
        member("/alice/m3", FileRef::Guid(guid(31)), "three"),
        member("/alice/m4", FileRef::Guid(guid(32)), "no such archive"),
        member("/alice/m5", FileRef::Lfn(lfn("/alice")), "a directory"),
        NewFile { replicas: vec![on(CERN)], ..member("/alice/m6", by_lfn(), "and a replica") },
        member("/alice/m7", by_lfn(), ""),
        member("/alice/m8", by_lfn(), &"x".repeat(MEMBER_NAME_BYTES_MAX)),
        member("/alice/m9", by_lfn(), &"x".repeat(MEMBER_NAME_BYTES_MAX + 1)),
    ];
    let id = f.operation_id();
    let operation = register(files, false, Existing::Merge);
    let answer = f.catalogue.execute(&f.alice, id, operation.clone()).await.unwrap();
    let Answer::Registered(items) = &answer else { panic!("{answer:?}") };
    assert_eq!(
        items.iter().map(word).collect::<Vec<_>>(),
        [
            "created",
            "created",
            "created",
            "created",
            "created",
            "not-found",
            "not-file",
            "invalid",
            "invalid",
            "created",
            "limit"
        ]
    );
    let zip = guid_of(&items[1]);
    for (path, archive, name) in
        [("/alice/m1", zip, "one"), ("/alice/m2", zip, "two"), ("/alice/m3", guid(31), "three")]
    {
        let entry = f.entry(path).await.unwrap();
        let location = &entry.file().unwrap().replicas[0].location;
        assert_eq!(location, &Location::Member { archive, member: name.to_owned() }, "{path}");
    }
    assert_eq!(f.catalogue.execute(&f.alice, id, operation).await.unwrap(), answer);
    // A member is no archive; an unreadable archive gives no members.
    f.plant_file("/open/secret", 2, 0o600, 1, vec![]).await;
    let files = vec![
        member("/alice/m10", FileRef::Lfn(lfn("/alice/m1")), "nested"),
        member("/alice/m11", FileRef::Lfn(lfn("/open/secret")), "stolen"),
        member("/alice/m1", by_lfn(), "one"),
        member("/alice/m1", by_lfn(), "other"),
        NewFile { replicas: vec![on(CERN)], ..file("/alice/m1") },
        member("/alice/zip2", by_lfn(), "late"),
        member("/alice/zip", by_lfn(), "itself"),
    ];
    let answers = ask(&f, &f.alice, files, false, Existing::Merge).await;
    assert_eq!(
        answers.iter().map(word).collect::<Vec<_>>(),
        ["invalid", "denied", "unchanged", "conflict", "conflict", "merged", "invalid"]
    );
    f.audit().await;
}

#[tokio::test]
async fn parents_are_made_once_and_only_if_asked_and_needed() {
    let f = Fixture::new().await;
    let paths = ["/alice/x/1", "/alice/x/2", "/alice/x/y/3", "/bob/z/4"];
    let answers = ask(&f, &f.alice, paths.map(file).to_vec(), false, Existing::Refuse).await;
    assert_eq!(answers.iter().map(word).collect::<Vec<_>>(), ["not-found"; 4]);
    let answers = ask(&f, &f.alice, paths.map(file).to_vec(), true, Existing::Refuse).await;
    assert_eq!(answers.iter().map(word).collect::<Vec<_>>(), ["created", "created", "created", "denied"]);
    assert!(!f.is_there("/bob/z").await);
    // A file that is refused anyway makes no directories.
    let bad = NewFile { replicas: vec![on("X::NO::SE")], ..file("/alice/w/5") };
    assert_eq!(word(&ask(&f, &f.alice, vec![bad], true, Existing::Refuse).await[0]), "not-found");
    assert!(!f.is_there("/alice/w").await);
    f.audit().await;
}

#[tokio::test]
async fn links_on_the_way_are_followed_and_the_token_keeps_to_its_subtree() {
    let f = Fixture::new().await;
    f.plant("/alice/real", 1, 0o755, NewBody::Directory).await;
    f.plant("/alice/link", 1, 0o777, NewBody::Link { guid: guid(900), target: lfn("/alice/real") }).await;
    f.plant("/alice/out", 1, 0o777, NewBody::Link { guid: guid(901), target: lfn("/open") }).await;
    let answers = ask(&f, &f.alice, vec![file("/alice/link/a")], false, Existing::Refuse).await;
    assert_eq!(word(&answers[0]), "created");
    assert!(f.is_there("/alice/real/a").await);
    let scoped = f.scoped("alice", "/alice", true);
    let files = ["/alice/link/b", "/alice/out/c", "/open/d"].map(file).to_vec();
    let answers = ask(&f, &scoped, files, true, Existing::Refuse).await;
    assert_eq!(answers.iter().map(word).collect::<Vec<_>>(), ["created", "denied", "denied"]);
    f.audit().await;
}

#[tokio::test]
async fn quota_is_exact_at_its_edge_in_bulk() {
    let f = Fixture::new().await;
    let used = f.catalogue.store().usage(&[exacat_store::UsageOf::User(UserId(1))]).await.unwrap()[0];
    let set = Operation::QuotaSet {
        owner: exacat_model::operation::Owner::User(account("alice")),
        files: Some(used.usage.objects() + 3),
        bytes: Some(25),
        replica_bytes: None,
    };
    f.get(&f.op, set).await;
    let sized = |path: &str, size: u64| NewFile { size: Some(size), ..file(path) };
    let files = vec![
        sized("/alice/1", 10),
        sized("/alice/2", 16),
        sized("/alice/3", 15),
        sized("/alice/4", 1),
        sized("/alice/5", 0),
        sized("/alice/6", 0),
    ];
    let answers = ask(&f, &f.alice, files, false, Existing::Refuse).await;
    assert_eq!(
        answers.iter().map(word).collect::<Vec<_>>(),
        ["created", "quota", "created", "quota", "created", "quota"]
    );
    // A further replica adds no logical bytes.
    let more = NewFile { replicas: vec![on(CERN)], ..file("/alice/1") };
    assert_eq!(word(&ask(&f, &f.alice, vec![more], false, Existing::Merge).await[0]), "merged");
    f.audit().await;
}

#[tokio::test]
async fn limits_hold_at_their_edges() {
    let f = Fixture::new().await;
    let files: Vec<NewFile> =
        (0..=BATCH_MUTATIONS_MAX).map(|number| file(&format!("/alice/{number}"))).collect();
    assert_eq!(f.refusal(&f.alice, register(files, false, Existing::Refuse)).await, ErrorKind::Limit);
    assert!(!f.is_there("/alice/0").await);
    assert!(ask(&f, &f.alice, Vec::new(), false, Existing::Refuse).await.is_empty());
    // Replicas of one file: as many as there are SEs, up to the limit.
    for number in 0..=REPLICAS_PER_FILE_MAX {
        let prefix = Some(format!("root://se{number}//d"));
        let new = settings::se(&format!("Y::SITE::SE{number}"));
        f.get(&f.op, Operation::SeSet(SeSettings { prefix, only_new: true, ..new })).await;
    }
    let replicas = |count: usize| (0..count).map(|number| on(&format!("Y::SITE::SE{number}"))).collect();
    let full = NewFile { replicas: replicas(REPLICAS_PER_FILE_MAX), ..file("/alice/full") };
    let over = NewFile { replicas: replicas(REPLICAS_PER_FILE_MAX + 1), ..file("/alice/over") };
    let more = NewFile { replicas: replicas(REPLICAS_PER_FILE_MAX + 1), ..file("/alice/full") };
    let answers = ask(&f, &f.alice, vec![full, over, more], false, Existing::Merge).await;
    assert_eq!(answers.iter().map(word).collect::<Vec<_>>(), ["created", "limit", "limit"]);
    f.audit().await;
}

/// Goal: a call with more bytes than one request to the store takes is sent in parts. A repeat has
/// the same parts.
#[tokio::test]
async fn a_call_too_large_for_one_request_is_sent_in_parts() {
    let f = Fixture::new().await;
    let text = "x".repeat(exacat_model::limits::TAG_TEXT_BYTES_MAX);
    let tags: Vec<Tag> = (0..100)
        .map(|number| Tag {
            key: TagKey::parse(&format!("t{number:03}")).unwrap(),
            value: TagValue::Text(text.clone()),
        })
        .collect();
    let files: Vec<NewFile> =
        (0..15).map(|number| NewFile { tags: tags.clone(), ..file(&format!("/alice/{number}")) }).collect();
    let id = f.operation_id();
    let operation = register(files, false, Existing::Refuse);
    let answer = f.catalogue.execute(&f.alice, id, operation.clone()).await.unwrap();
    let Answer::Registered(items) = &answer else { panic!("{answer:?}") };
    assert!(items.iter().all(|item| word(item) == "created"), "{items:?}");
    let revision = f.catalogue.store().revision().await.unwrap();
    assert_eq!(f.catalogue.execute(&f.alice, id, operation).await.unwrap(), answer);
    assert_eq!(f.catalogue.store().revision().await.unwrap(), revision);
}

/// Goal: a repeat may create files that were refused; the others keep their answers and their
/// places.
#[tokio::test]
async fn a_repeat_keeps_places_when_the_right_to_create_changed() {
    let f = Fixture::new().await;
    let files = ["/bob/1", "/alice/2", "/alice/3"].map(file).to_vec();
    let id = f.operation_id();
    let operation = register(files, false, Existing::Refuse);
    let first = f.catalogue.execute(&f.alice, id, operation.clone()).await.unwrap();
    f.edit("/bob", vec![Edit::Mode(mode(0o777))]).await;
    f.edit("/alice", vec![Edit::Mode(mode(0o555))]).await;
    let second = f.catalogue.execute(&f.alice, id, operation).await.unwrap();
    let (Answer::Registered(first), Answer::Registered(second)) = (first, second) else { panic!() };
    assert_eq!(first.iter().map(word).collect::<Vec<_>>(), ["denied", "created", "created"]);
    assert_eq!(second.iter().map(word).collect::<Vec<_>>(), ["created", "created", "created"]);
    assert_eq!(first[1..], second[1..]);
    assert_eq!(f.entry("/bob/1").await.unwrap().guid(), Some(guid_of(&second[0])));
    f.audit().await;
}

/// Goal: of many concurrent calls with the same names exactly one creates each.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn of_many_calls_at_once_one_creates() {
    let f = std::sync::Arc::new(Fixture::new().await);
    let mut tasks = Vec::new();
    for _ in 0..16 {
        let f = f.clone();
        tasks.push(tokio::spawn(async move {
            let files = (0..50).map(|number| file(&format!("/open/new/{number}"))).collect();
            ask(&f, &f.alice, files, true, Existing::Refuse).await
        }));
    }
    let mut created = vec![0; 50];
    for task in tasks {
        for (index, item) in task.await.unwrap().iter().enumerate() {
            match word(item) {
                "created" => created[index] += 1,
                other => assert_eq!(other, "exists"),
            }
        }
    }
    assert_eq!(created, vec![1; 50]);
    f.audit().await;
}

#[tokio::test]
async fn guid_of_a_removed_file_is_refused_and_names_the_trash_to_its_owner() {
    let f = Fixture::new().await;
    let with_guid = |path: &str| NewFile { guid: Some(guid(77)), ..file(path) };
    let made = ask(&f, &f.alice, vec![with_guid("/open/removed")], false, Existing::Refuse).await;
    assert_eq!(word(&made[0]), "created");
    let remove = Operation::Remove { lfn: lfn("/open/removed"), recursive: false, directory: false };
    f.get(&f.alice, remove).await;
    for (caller, names_trash) in [(&f.alice, true), (&f.admin, true), (&f.bob, false)] {
        let told = ask(&f, caller, vec![with_guid("/open/again")], false, Existing::Refuse).await;
        let error = told[0].as_ref().unwrap_err();
        assert_eq!(error.kind, ErrorKind::Exists, "{error}");
        assert_eq!(error.message.contains("in the trash"), names_trash, "{error}");
        // The same for a file that comes with others.
        let one = (f.operation_id(), with_guid("/open/again"));
        let told = f.catalogue.register_each(caller, vec![one], false, Existing::Refuse).await;
        let Ok(Answer::Registered(told)) = &told[0] else { panic!("{told:?}") };
        assert_eq!(told[0].as_ref().unwrap_err().message.contains("in the trash"), names_trash);
    }
}
