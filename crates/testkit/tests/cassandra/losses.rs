//! Each statement of each kind of mutation is lost, once on the way there and once on the way back,
//! one at a time.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};

use exacat_model::{
    DirId, Edit, GroupId, Guid, Mutation, QuotaOf, Revision, SeNumber, SeStatus, TrashId, UserId,
};
use exacat_store::{Clock, Outcome, Store};
use exacat_store_cassandra::{CassandraStore, Fate, Faults, StatementKind};
use exacat_testkit::cassandra::{CassandraFactory, Servers, at_rest, ring};
use exacat_testkit::random::{self, outcome_name, request, same_outcome};
use exacat_testkit::scene::{
    at, commit, create, group, guid, new_collection, new_directory, new_file, purge, quota, release, remove,
    rename, reservation, restore, se, set, top, unset, update, user,
};
use exacat_testkit::{Dump, TestClock};
use parking_lot::Mutex;

use crate::faults::answered;

/// Maximum repetitions of a request.
const ASKED_AGAIN_MAX: usize = 20;
/// Maximum statements of one mutation: more are a defect.
const STATEMENTS_MAX: u64 = 60;

/// Loses one statement: that of this number since it was set.
#[derive(Default)]
struct LosesOne {
    seen: AtomicU64,
    lost: Mutex<Option<StatementKind>>,
    which: Mutex<Option<(u64, Fate)>>,
}

impl Faults for LosesOne {
    fn fate(&self, kind: StatementKind) -> Fate {
        let number = self.seen.fetch_add(1, SeqCst);
        match *self.which.lock() {
            Some((which, fate)) if which == number => {
                *self.lost.lock() = Some(kind);
                fate
            }
            _ => Fate::Answered,
        }
    }
}

impl LosesOne {
    fn lose(&self, which: u64, fate: Fate) {
        *self.which.lock() = None;
        *self.lost.lock() = None;
        self.seen.store(0, SeqCst);
        *self.which.lock() = Some((which, fate));
    }
}

/// The store and the reference, with the same requests.
struct Both {
    store: Arc<CassandraStore>,
    model: Arc<dyn Store>,
    operations: u64,
}

impl Both {
    /// Applies to both, to the store until it answers; returns the outcome.
    async fn apply(&mut self, mutation: Mutation) -> Outcome {
        self.operations += 1;
        let request = request(self.operations, UserId::ADMIN, vec![mutation]);
        let expected = self.model.apply(request.clone()).await.expect("the reference answers").remove(0);
        let got = answered(&*self.store, &request, ASKED_AGAIN_MAX).await.remove(0);
        assert!(same_outcome(&expected, &got), "{request:?}: {expected:?} expected, {got:?} got");
        expected
    }

    /// Applies to both what must be applied; returns its revision.
    async fn applied(&mut self, mutation: Mutation) -> Revision {
        match self.apply(mutation.clone()).await {
            Outcome::Applied { revision, .. } => revision,
            other => panic!("{mutation:?}: {}", outcome_name(&other)),
        }
    }
}

/// Returns a mutation of this kind, on entries of this number that no other one uses, after
/// applying its preparations.
async fn prepared(both: &mut Both, kind: &str, number: u8) -> Mutation {
    let name = format!("{kind}{number}");
    let id = guid(number);
    let file = |ses: &[u16]| create(new_file(top(&name), id, Some(100), ses));
    match kind {
        "mkdir" => create(new_directory(top(&name))),
        "create" => file(&[1, 2]),
        "collection" => create(new_collection(top(&name), id)),
        "members" => {
            both.applied(create(new_collection(top(&name), id))).await;
            let member = Guid([number ^ 0xff; 16]);
            both.applied(create(new_file(top(&format!("m{number}")), member, Some(1), &[]))).await;
            update(top(&name), vec![Edit::AddMember(member)])
        }
        "update" => {
            both.applied(file(&[1])).await;
            update(
                top(&name),
                vec![Edit::Owner(UserId(2)), Edit::Expires(Some(TestClock::START.plus_ms(500_000)))],
            )
        }
        "move" => {
            both.applied(create(new_directory(top(&name)))).await;
            rename(top(&name), top(&format!("to{name}")))
        }
        "remove" => {
            both.applied(file(&[1])).await;
            remove(top(&name))
        }
        "restore" => {
            both.applied(file(&[1])).await;
            let item = TrashId(both.applied(remove(top(&name))).await);
            restore(item, top(&format!("back{name}")))
        }
        "purge" => {
            both.applied(file(&[1, 3])).await;
            let item = TrashId(both.applied(remove(top(&name))).await);
            purge(item)
        }
        "reserve" => Mutation::Reserve(Box::new(reservation(id, &[1, 2]))),
        "commit" => {
            both.applied(Mutation::Reserve(Box::new(reservation(id, &[1, 2])))).await;
            commit(id, 1, top(&name))
        }
        "release" => {
            both.applied(Mutation::Reserve(Box::new(reservation(id, &[1, 2])))).await;
            release(id, None)
        }
        "dequeue" => {
            both.applied(file(&[2])).await;
            let item = TrashId(both.applied(remove(top(&name))).await);
            both.applied(purge(item)).await;
            let queue = both.model.deletions(SeNumber(2), None, 1000).await.expect("a queue").items;
            Mutation::Dequeue { se: SeNumber(2), done: queue.iter().map(|deletion| deletion.id).collect() }
        }
        "set-record" => set(group(1000 + u32::from(number), &format!("g{number}"))),
        "drop-record" => {
            let limits = quota(QuotaOf::Group(GroupId(1)), [Some(1_000_000 + u64::from(number)), None, None]);
            let key = limits.key();
            both.applied(set(limits)).await;
            unset(key)
        }
        other => panic!("{other}"),
    }
}

const KINDS: [&str; 15] = [
    "mkdir",
    "create",
    "collection",
    "members",
    "update",
    "move",
    "remove",
    "restore",
    "purge",
    "reserve",
    "commit",
    "release",
    "dequeue",
    "set-record",
    "drop-record",
];

/// Goal: whichever statement of a mutation is lost, a repeated request gets the outcome it would
/// have had. At the end the state is that of the reference, and whole.
///
/// Method: every kind of mutation again and again, each time with the next of its statements lost,
/// until there are no more. The last one is the last write of its rows.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs a ring: make test-cluster"]
async fn each_statement_of_each_mutation_is_lost_once() {
    let factory = CassandraFactory::on(ring());
    // All rows that a mutation needs are read, and its results are flushed at once.
    let factory = CassandraFactory { flush_changes: 1, filter_bytes: 0, ..factory };
    let mut counts = Vec::new();
    for kind in KINDS {
        let clock = TestClock::new();
        let mut catalogue = Servers::start(&factory, &clock).await;
        let loses = Arc::new(LosesOne::default());
        let faults: Arc<dyn Faults> = loses.clone();
        let settings = catalogue.settings().clone();
        let store =
            CassandraStore::open_with(settings, clock.shared(), Some(faults)).await.expect("it opens");
        catalogue.keep(store.clone());
        let mut both = Both { store, model: random::model(&clock), operations: 0 };
        for number in [1, 2] {
            both.applied(set(group(number, &format!("group{number}")))).await;
            both.applied(set(user(number, &format!("user{number}")))).await;
        }
        for number in [1, 2, 3] {
            both.applied(set(se(number, SeStatus::Online))).await;
        }
        let mut number = 0u8;
        let mut lost = std::collections::BTreeMap::<String, u64>::new();
        for fate in [Fate::LostBefore, Fate::LostAfter] {
            for which in 0.. {
                assert!(which < STATEMENTS_MAX, "{kind} has no end");
                number += 1;
                let mutation = prepared(&mut both, kind, number).await;
                at_rest(&both.store).await;
                loses.lose(which, fate);
                both.applied(mutation).await;
                at_rest(&both.store).await;
                let Some(what) = *loses.lost.lock() else { break };
                *lost.entry(format!("{what:?}")).or_default() += 1;
                // A loss in the background shows at the next mutation at the latest.
                both.applied(create(new_directory(at(DirId::ROOT, &format!("after{number}"))))).await;
            }
        }
        assert!(lost.len() == 3, "{kind}: no statement of each kind was lost: {lost:?}");
        counts.push((kind, lost));
        let other = catalogue.one_more().await;
        let (expected, got) =
            (Dump::of(&*both.model, clock.now()).await, Dump::of(&*other, clock.now()).await);
        let difference = expected.difference("expected", &got, "got     ");
        assert!(difference.is_none(), "{kind}: the state differs\n{}", difference.expect("some"));
        let audit = other.audit().await.expect("an audit");
        assert!(audit.findings.is_empty(), "{kind}: {:?}", audit.findings);
    }
    eprintln!("statements that were lost, there and back: {counts:?}");
}
