//! Goal: permission holds at the instant of commit. Method: rights change between the judgement of
//! an operation and its commit.

use std::sync::Arc;

use async_trait::async_trait;
use exacat_catalogue::{Caller, Catalogue, Settings};
use exacat_model::operation::{Attribute, Existing, NewFile};
use exacat_model::{
    Answer, Edit, Error, ErrorKind, Mutation, NewBody, NewEntry, Operation, Result, TagKey, TagValue, UserId,
};
use exacat_store::{ApplyError, Outcome, Request, Store};
use exacat_testkit::{Before, Fronted};
use parking_lot::Mutex;

use crate::fixture::{Fixture, account, apply_as_others, guid, lfn, mode};

/// Changes of other users right before a commit.
#[derive(Default)]
struct Meanwhile(Mutex<Vec<Mutation>>);

impl Meanwhile {
    async fn happen(&self, store: &dyn Store) {
        let mutations = std::mem::take(&mut *self.0.lock());
        apply_as_others(store, mutations).await;
    }
}

#[async_trait]
impl Before for Meanwhile {
    async fn apply(
        &self,
        request: Request,
        store: &dyn Store,
    ) -> std::result::Result<Vec<Outcome>, ApplyError> {
        self.happen(store).await;
        store.apply(request).await
    }

    async fn apply_each(
        &self,
        requests: Vec<Request>,
        store: &dyn Store,
    ) -> Vec<std::result::Result<Vec<Outcome>, ApplyError>> {
        self.happen(store).await;
        store.apply_each(requests).await
    }
}

struct Raced {
    f: Fixture,
    front: Arc<Fronted<Meanwhile>>,
    catalogue: Arc<Catalogue>,
    alice: Caller,
}

/// Makes `/open/d` (alice's, 777) and `/open/b` (bob's, 777), each with a file and an empty
/// directory of bob's.
async fn raced() -> Raced {
    let f = Fixture::new().await;
    for (path, owner) in [("/open/d", 1), ("/open/b", 2)] {
        f.plant_directory(path, owner, 0o777).await;
        f.plant_file(&format!("{path}/f"), 2, 0o666, 1, vec![]).await;
        f.plant_directory(&format!("{path}/closed"), 2, 0o700).await;
    }
    let front = Arc::new(Fronted::new(Meanwhile::default(), f.store.clone()));
    let catalogue = Catalogue::open(front.clone(), f.clock.shared(), Settings::default()).await.unwrap();
    let alice = catalogue.caller_named(&account("alice")).await.unwrap();
    Raced { f, front, catalogue, alice }
}

impl Raced {
    async fn while_(&self, mutations: Vec<Mutation>, operation: Operation) -> Result<Answer> {
        *self.front.before.0.lock() = mutations;
        self.catalogue.execute(&self.alice, self.f.operation_id(), operation).await
    }

    /// Returns a mutation that sets the mode of a path.
    async fn chmod(&self, path: &str, bits: u16) -> Mutation {
        let at = self.f.entry(path).await.unwrap().at;
        let expect = exacat_model::Expect::ANY;
        Mutation::Update { at, expect, edits: vec![Edit::Mode(mode(bits))] }
    }
}

/// Returns the first error of an answer, or of its items.
fn refused(answer: Result<Answer>) -> ErrorKind {
    let error: Option<Error> = match answer {
        Err(error) => Some(error),
        Ok(Answer::EachDone(items)) => items.into_iter().find_map(Result::err),
        Ok(Answer::Registered(items)) => items.into_iter().find_map(Result::err),
        Ok(_) => None,
    };
    error.expect("it is refused").kind
}

fn register(path: &str, parents: bool) -> Operation {
    let files = vec![NewFile::named(lfn(path))];
    Operation::Register { files, parents, existing: Existing::Refuse }
}

fn operations() -> Vec<(&'static str, Operation)> {
    let mkdir = |parents, path| Operation::Mkdir { lfns: vec![lfn(path)], parents, mode: None };
    let chgrp =
        Operation::SetAttributes { lfns: vec![lfn("/open/b/f")], attributes: vec![Attribute::Job(Some(1))] };
    let tag = exacat_model::Tag { key: TagKey::parse("run").unwrap(), value: TagValue::Integer(1) };
    vec![
        ("register", register("/open/b/new", false)),
        ("register -p", register("/open/b/x/y/new", true)),
        ("mkdir", mkdir(false, "/open/b/dir")),
        ("mkdir -p", mkdir(true, "/open/b/x/y")),
        ("link", Operation::Link { lfn: lfn("/open/b/l"), target: lfn("/") }),
        ("collection", Operation::CollectionCreate { lfn: lfn("/open/b/c"), tags: vec![] }),
        ("attributes", chgrp),
        ("tags", Operation::TagSet { lfns: vec![lfn("/open/b/f")], set: vec![tag], unset: vec![] }),
        ("mv from", Operation::Move { from: lfn("/open/b/f"), to: lfn("/alice/f") }),
        ("mv to", Operation::Move { from: lfn("/open/d/f"), to: lfn("/open/b/g") }),
        ("rm", Operation::Remove { lfn: lfn("/open/b/f"), recursive: false, directory: false }),
        ("rm -r", Operation::Remove { lfn: lfn("/open/b/closed"), recursive: true, directory: false }),
    ]
}

/// Goal: an operation is refused if a directory is closed between its judgement and commit. Nothing
/// gets a later revision than the closing.
#[tokio::test]
async fn operation_judged_before_a_directory_was_closed_is_refused() {
    for (name, operation) in operations() {
        for above in [false, true] {
            let raced = raced().await;
            let close = if above { ("/open", 0o700) } else { ("/open/b", 0o700) };
            let closing = raced.chmod(close.0, close.1).await;
            let before = raced.f.store.revision().await.unwrap();
            let answer = raced.while_(vec![closing], operation.clone()).await;
            assert_eq!(refused(answer), ErrorKind::Denied, "{name}, above: {above}");
            assert_eq!(raced.f.store.revision().await.unwrap().0, before.0 + 1, "{name}: the closing alone");
        }
    }
}

/// Goal: a harmless change of rights only causes another judgement: the operation is done once.
#[tokio::test]
async fn operation_judged_before_a_harmless_change_is_done_once() {
    for (name, operation) in operations() {
        let raced = raced().await;
        let harmless = raced.chmod("/open/b", 0o773).await;
        let answer = raced.while_(vec![harmless], operation).await;
        match answer.unwrap_or_else(|error| panic!("{name}: {error:?}")) {
            Answer::EachDone(items) => items.into_iter().for_each(|item| item.unwrap()),
            Answer::Registered(items) => drop(items.into_iter().next().unwrap().unwrap()),
            _ => {}
        }
        raced.f.audit().await;
    }
}

/// Goal: single registrations that run together are judged one by one.
#[tokio::test]
async fn registrations_together_are_judged_at_their_commit() {
    let raced = raced().await;
    let closing = raced.chmod("/open/b", 0o700).await;
    *raced.front.before.0.lock() = vec![closing];
    let files = ["/open/b/n1", "/open/d/n2", "/open/b/n3"]
        .map(|path| (raced.f.operation_id(), NewFile::named(lfn(path))));
    let answers = raced.catalogue.register_each(&raced.alice, files.to_vec(), false, Existing::Refuse).await;
    let kinds: Vec<Option<ErrorKind>> = answers
        .into_iter()
        .map(|answer| match answer {
            Ok(Answer::Registered(items)) => items.into_iter().next().unwrap().err().map(|error| error.kind),
            other => panic!("{other:?}"),
        })
        .collect();
    assert_eq!(kinds, [Some(ErrorKind::Denied), None, Some(ErrorKind::Denied)]);
}

/// Goal: `rm -r` of another's empty directory is refused once a new entry is in it.
#[tokio::test]
async fn removal_of_a_directory_that_was_empty_does_not_take_what_came() {
    let raced = raced().await;
    let directory = raced.f.entry("/open/d/closed").await.unwrap().directory().unwrap();
    let new = Mutation::Create(Box::new(NewEntry {
        at: exacat_model::At { parent: directory, name: exacat_model::Name::parse("new").unwrap() },
        owner: UserId(2),
        group: exacat_model::GroupId(2),
        mode: mode(0o600),
        created: None,
        modified: None,
        expires: None,
        tags: vec![],
        body: NewBody::Link { guid: guid(9000), target: lfn("/") },
    }));
    let remove = Operation::Remove { lfn: lfn("/open/d/closed"), recursive: true, directory: false };
    let answer = raced.while_(vec![new], remove.clone()).await;
    assert_eq!(refused(answer), ErrorKind::Denied);
    assert!(raced.f.entry("/open/d/closed/new").await.is_some());
}

/// Goal: account and token are judged at the commit, too.
#[tokio::test]
async fn operation_of_an_account_disabled_meanwhile_is_refused() {
    let raced = raced().await;
    let (record, _) = raced.f.store.record(exacat_model::RecordKey::User(UserId(1))).await.unwrap().unwrap();
    let exacat_model::Record::User(mut user) = record else { panic!() };
    user.disabled = true;
    let record = Box::new(exacat_model::Record::User(user));
    let disable = Mutation::SetRecord { record, expect: exacat_model::ExpectRecord::Any };
    let before = raced.f.store.revision().await.unwrap();
    let answer = raced.while_(vec![disable], register("/open/b/new", false)).await;
    assert_eq!(refused(answer), ErrorKind::Unauthenticated);
    assert_eq!(raced.f.store.revision().await.unwrap().0, before.0 + 1);
}

/// Goal: sticky directories work as in POSIX. The owner of the entry, the owner of the directory,
/// and an admin may remove names; everybody with write permission makes new ones.
#[tokio::test]
async fn sticky_directory_lets_only_owners_take_names_away() {
    let f = Fixture::new().await;
    f.plant_directory("/alice/tmp", 1, 0o1777).await;
    for name in ["f1", "f2", "f3", "f4", "f5"] {
        f.plant_file(&format!("/alice/tmp/{name}"), 2, 0o666, 1, vec![]).await;
    }
    f.plant_directory("/alice/tmp/bobs", 2, 0o777).await;
    let rm = |path: &str| Operation::Remove { lfn: lfn(path), recursive: true, directory: false };
    let mv = |from: &str, to: &str| Operation::Move { from: lfn(from), to: lfn(to) };
    for operation in [
        rm("/alice/tmp/f1"),
        rm("/alice/tmp/bobs"),
        mv("/alice/tmp/f1", "/alice/tmp/g"),
        mv("/alice/tmp/f1", "/carol/g"),
    ] {
        assert_eq!(f.refusal(&f.carol, operation).await, ErrorKind::Denied);
    }
    // The owner of the entry, the owner of the directory, and an admin may.
    f.get(&f.bob, mv("/alice/tmp/f1", "/alice/tmp/g")).await;
    f.get(&f.bob, rm("/alice/tmp/g")).await;
    f.get(&f.alice, rm("/alice/tmp/f2")).await;
    f.get(&f.admin, rm("/alice/tmp/f3")).await;
    // Any user makes names there, and removes them again.
    f.one(&f.carol, Operation::Mkdir { lfns: vec![lfn("/alice/tmp/c")], parents: false, mode: None })
        .await
        .unwrap();
    f.get(&f.carol, rm("/alice/tmp/c")).await;
    // `rm -r` of another's sticky directory works only if it is empty.
    f.plant_directory("/carol/shared", 2, 0o1777).await;
    f.plant_file("/carol/shared/f", 2, 0o666, 1, vec![]).await;
    assert_eq!(f.refusal(&f.carol, rm("/carol/shared")).await, ErrorKind::Denied);
    f.get(&f.bob, rm("/carol/shared/f")).await;
    f.get(&f.carol, rm("/carol/shared")).await;
    f.audit().await;
}
