//! Reading beside writing: no reader sees a change that is not durable yet, and reads of unchanged
//! entries do not wait.

use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use exacat_model::{DirId, EntryId, Lfn};
use exacat_store::{Files, Resolution, ResolutionEnd, Store};

use super::workload::Workload;
use super::{at, file, guid, mkdir, open, open_without_runs, request, seeds};
use crate::EmbeddedStore;
use exacat_testkit::simulated::SimulatedDisk;

/// Returns the result of a future, if it needs no waiting.
fn at_once<T>(future: impl Future<Output = T>) -> Option<T> {
    match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(answer) => Some(answer),
        Poll::Pending => None,
    }
}

#[derive(Clone, Debug)]
enum Question {
    Resolution(Lfn),
    File(Lfn),
    List(DirId),
    Locate(EntryId),
}

#[derive(Debug, PartialEq)]
enum Told {
    Resolution(Vec<Resolution>),
    File(Files),
    List(Option<exacat_store::Page<exacat_model::Entry>>),
    Locate(Vec<Option<exacat_store::Located>>),
}

async fn tell(store: &EmbeddedStore, question: &Question) -> Told {
    match question {
        Question::Resolution(lfn) => {
            Told::Resolution(store.resolve(std::slice::from_ref(lfn)).await.unwrap())
        }
        Question::File(lfn) => Told::File(store.files(std::slice::from_ref(lfn)).await.unwrap()),
        Question::List(id) => Told::List(store.list(*id, None, 50).await.unwrap()),
        Question::Locate(id) => Told::Locate(store.locate(&[*id]).await.unwrap()),
    }
}

/// Returns every possible question about the existing directories: their content, and missing
/// names.
async fn questions(store: &EmbeddedStore) -> Vec<Question> {
    let (mut questions, mut open) = (Vec::new(), vec![(String::new(), DirId::ROOT)]);
    while let Some((path, id)) = open.pop() {
        for name in 0..24 {
            let lfn = Lfn::parse(&format!("{path}/name-{name}")).unwrap();
            questions.extend([Question::Resolution(lfn.clone()), Question::File(lfn)]);
        }
        for entry in store.list(id, None, 100).await.unwrap().map_or(Vec::new(), |page| page.items) {
            if let Some(below) = entry.directory() {
                open.push((format!("{path}/{}", entry.at.name.as_str()), below));
            }
        }
    }
    questions.push(Question::Resolution(Lfn::root()));
    questions.extend((1..14).map(|id| Question::List(DirId(id))));
    questions.extend((1..14).map(|id| Question::Locate(EntryId::Directory(DirId(id)))));
    questions.extend((1..40).map(|number| Question::Locate(EntryId::Object(guid(number)))));
    questions
}

/// Goal: while writes wait for the disk, every answer is durable, in every kind of change, and many
/// reads are answered. Method: a random history; now and then a request is held, and all earlier
/// questions are repeated.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_answered_while_a_write_waits_is_durable() {
    let (mut answered, mut waited) = (0, 0);
    for seed in seeds(4) {
        let disk = SimulatedDisk::new();
        let store = open(&disk);
        let mut workload = Workload::new(seed.0);
        for round in 0..120 {
            let next = workload.request();
            if round % 4 != 3 {
                store.apply(next).await.unwrap();
                continue;
            }
            let questions = questions(&store).await;
            let mut before = Vec::with_capacity(questions.len());
            for question in &questions {
                before.push(tell(&store, question).await);
            }
            disk.hold_syncs(true);
            let revision = store.revision().await.unwrap();
            let writing = tokio::spawn({
                let store = Arc::clone(&store);
                async move { store.apply(next).await.unwrap() }
            });
            // A request that changes nothing has nothing to be synced.
            while !writing.is_finished() && !disk.is_syncing() {
                tokio::task::yield_now().await;
            }
            for (question, before) in questions.iter().zip(&before) {
                match at_once(tell(&store, question)) {
                    Some(told) => {
                        assert_eq!(told, *before, "{question:?} in round {round}");
                        answered += 1;
                    }
                    None => waited += 1,
                }
            }
            assert_eq!(store.revision().await.unwrap(), revision);
            disk.hold_syncs(false);
            writing.await.unwrap();
        }
    }
    assert!(answered > 20 * waited / 10 && waited > 100, "{answered} answered, {waited} waited");
}

/// Goal: a look-up waits only for writes of the entries in its answer.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn only_what_a_write_changes_waits_for_it() {
    let disk = SimulatedDisk::new();
    let store = open_without_runs(&disk);
    let ask = |path: &str| {
        let (store, lfn) = (Arc::clone(&store), Lfn::parse(path).unwrap());
        async move { store.resolve(&[lfn]).await.unwrap().remove(0).end }
    };
    let new = vec![mkdir(DirId::ROOT, "a"), mkdir(DirId::ROOT, "b"), file(DirId(2), "old", 1)];
    super::apply(&store, 1, new).await;
    disk.hold_syncs(true);
    let writing = tokio::spawn({
        let store = Arc::clone(&store);
        async move { store.apply(request(2, vec![file(DirId(2), "new", 2)])).await.unwrap() }
    });
    disk.wait_for_held_sync();
    assert!(matches!(at_once(ask("/a/old")), Some(ResolutionEnd::Found(_))));
    assert!(matches!(at_once(ask("/b/none")), Some(ResolutionEnd::Missing { .. })));
    assert!(at_once(store.list(DirId(3), None, 10)).is_some());
    // The write decides whether these entries exist.
    assert!(at_once(ask("/a/new")).is_none() && at_once(ask("/a/none")).is_none());
    assert!(at_once(store.list(DirId(2), None, 10)).is_none());
    disk.hold_syncs(false);
    assert!(matches!(ask("/a/new").await, ResolutionEnd::Found(_)));
    writing.await.unwrap();
    // A directory that moves takes all paths with it.
    disk.hold_syncs(true);
    let moving = tokio::spawn({
        let store = Arc::clone(&store);
        let to = at(DirId(3), "a");
        let from = at(DirId::ROOT, "a");
        let mutation = exacat_model::Mutation::Move { from, expect: exacat_model::Expect::ANY, to };
        async move { store.apply(request(3, vec![mutation])).await.unwrap() }
    });
    disk.wait_for_held_sync();
    assert!(at_once(ask("/b/a/old")).is_none() && at_once(ask("/a/old")).is_none());
    disk.hold_syncs(false);
    assert!(matches!(ask("/b/a/old").await, ResolutionEnd::Found(_)));
    moving.await.unwrap();
}
