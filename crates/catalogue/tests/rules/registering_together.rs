//! Single registrations that run together: each gets the result that it would get alone.

use crate::fixture::{Fixture, derived, guid, lfn, se_name};
use exacat_catalogue::Caller;
use exacat_model::operation::{Existing, NewFile, NewReplica};
use exacat_model::{Answer, ErrorKind, FileRef, NewBody, Operation, OperationId, ReplicaState, Result};
use exacat_testkit::TestClock;

fn id(number: u64) -> OperationId {
    let mut random = [0x77; 10];
    random[..8].copy_from_slice(&number.to_le_bytes());
    OperationId::new(TestClock::START, random)
}

/// Returns a file with its own GUID, so that two catalogues can be compared.
fn file(path: &str, number: u64) -> NewFile {
    let mut new = NewFile::named(lfn(path));
    new.guid = Some(guid(1_000_000 + number));
    new.size = Some(number);
    new
}

fn on(se: &str) -> NewReplica {
    NewReplica { se: se_name(se), pfn: None, state: ReplicaState::Available }
}

/// Returns files of every kind: new, existing, in missing or foreign directories, contradictory.
fn all_kinds() -> Vec<NewFile> {
    let mut files = vec![
        file("/alice/new", 1),
        file("/alice/there", 2),
        file("/alice/not/there/yet", 3),
        file("/bob/not-hers", 4),
        file("/alice/twice", 5),
        file("/alice/twice", 6),
        file("/alice/there/below-a-file", 7),
        file("/", 8),
        file("/open/of-all", 9),
        file("/alice/guid-in-use", 1),
        file("/alice/not/there/either", 10),
    ];
    let mut placed = file("/alice/placed", 11);
    placed.replicas = vec![on("X::CERN::DISK"), on("X::FNAL::DISK")];
    let mut nowhere = file("/alice/nowhere", 12);
    nowhere.replicas = vec![on("X::NOBODY::DISK")];
    let mut twice = file("/alice/same-se-twice", 13);
    twice.replicas = vec![on("X::CERN::DISK"), on("X::CERN::DISK")];
    let mut inside = file("/alice/inside", 14);
    inside.member_of = Some((FileRef::Lfn(lfn("/alice/archive")), "member".to_owned()));
    let mut inside_nothing = file("/alice/inside-nothing", 15);
    inside_nothing.member_of = Some((FileRef::Lfn(lfn("/alice/none")), "member".to_owned()));
    let mut anothers = file("/alice/anothers", 16);
    anothers.owner = Some(crate::fixture::account("bob"));
    let mut same = file("/alice/there", 17);
    same.guid = None;
    same.size = Some(3);
    let mut more = file("/alice/there", 18);
    more.guid = None;
    more.size = None;
    more.replicas = vec![on("X::FNAL::DISK")];
    files.extend([placed, nowhere, twice, inside, inside_nothing, anothers, same, more]);
    files
}

async fn planted() -> Fixture {
    let f = Fixture::new().await;
    f.plant_file("/alice/there", 1, 0o644, 3, vec![derived(1, ReplicaState::Available)]).await;
    f.plant_file("/alice/archive", 1, 0o644, 9, Vec::new()).await;
    f.plant("/alice/directory", 1, 0o755, NewBody::Directory).await;
    f
}

async fn one_by_one(
    f: &Fixture,
    caller: &Caller,
    files: &[NewFile],
    parents: bool,
    existing: Existing,
) -> Vec<Result<Answer>> {
    let mut answers = Vec::new();
    for (number, file) in files.iter().enumerate() {
        let operation = Operation::Register { files: vec![file.clone()], parents, existing };
        answers.push(f.catalogue.execute(caller, id(number as u64), operation).await);
    }
    answers
}

fn numbered(files: &[NewFile]) -> Vec<(OperationId, NewFile)> {
    files.iter().cloned().enumerate().map(|(number, file)| (id(number as u64), file)).collect()
}

/// Goal: together or one by one, the answers are the same, word for word, and so is the final
/// state. A repeat gets the same answers either way.
#[tokio::test]
async fn each_comes_to_what_it_would_alone() {
    for existing in [Existing::Refuse, Existing::Same, Existing::Merge] {
        for parents in [false, true] {
            let (together, alone) = (planted().await, planted().await);
            let files = all_kinds();
            let expected = one_by_one(&alone, &alone.alice, &files, parents, existing).await;
            let came =
                together.catalogue.register_each(&together.alice, numbered(&files), parents, existing).await;
            let case = format!("{existing:?}, parents {parents}");
            // Of two requests for one name the first one gets it.
            let seen = |answers: &[Result<Answer>]| {
                files
                    .iter()
                    .zip(answers)
                    .map(|(file, answer)| format!("{} {answer:?}", file.lfn))
                    .collect::<Vec<_>>()
            };
            assert_eq!(seen(&came), seen(&expected), "{case}");
            for file in &files {
                let path = file.lfn.as_str();
                let entries = (together.entry(path).await, alone.entry(path).await);
                let facts = |entry: Option<exacat_model::Entry>| entry.map(|entry| (entry.body, entry.owner));
                assert_eq!(facts(entries.0), facts(entries.1), "{case}: {path}");
            }
            together.audit().await;
            let again =
                alone.catalogue.register_each(&alone.alice, numbered(&files), parents, existing).await;
            let asked_again = one_by_one(&together, &together.alice, &files, parents, existing).await;
            assert_eq!(seen(&asked_again), seen(&again), "{case}, again");
        }
    }
}

/// Goal: a caller without write rights changes nothing, however many registrations run together.
#[tokio::test]
async fn who_may_not_write_is_refused() {
    let f = Fixture::new().await;
    let files = || numbered(&[file("/open/a", 1), file("/open/b", 2)]);
    for caller in [&f.anonymous, &f.scoped("alice", "/", false)] {
        let answers = f.catalogue.register_each(caller, files(), true, Existing::Refuse).await;
        let kinds: Vec<ErrorKind> = answers.into_iter().map(|answer| answer.unwrap_err().kind).collect();
        let kind = if caller.user().is_none() { ErrorKind::Unauthenticated } else { ErrorKind::Denied };
        assert_eq!(kinds, [kind; 2]);
    }
    assert!(!f.is_there("/open/a").await);
    assert!(f.catalogue.register_each(&f.alice, Vec::new(), true, Existing::Refuse).await.is_empty());
}

/// Goal: an id that is too old is refused among others as it is alone, and changes nothing.
#[tokio::test]
async fn too_old_id_among_others_is_refused() {
    let f = Fixture::new().await;
    let age = exacat_model::limits::OPERATION_AGE_MAX_MS;
    f.clock.turn(i64::try_from(age).unwrap());
    let old = OperationId::new(exacat_model::TimeMs(TestClock::START.0 - 1), [0x78; 10]);
    let files =
        vec![(id(1), file("/alice/a", 1)), (old, file("/alice/b", 2)), (id(3), file("/alice/no/c", 3))];
    let answers = f.catalogue.register_each(&f.alice, files, true, Existing::Refuse).await;
    let kinds: Vec<Option<ErrorKind>> =
        answers.iter().map(|answer| answer.as_ref().err().map(|e| e.kind)).collect();
    assert_eq!(kinds, [None, Some(ErrorKind::Unknown), None]);
    assert!(f.is_there("/alice/a").await && f.is_there("/alice/no/c").await);
    assert!(!f.is_there("/alice/b").await);
}
