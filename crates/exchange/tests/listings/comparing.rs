//! Comparisons of storage dumps with a real catalogue: random histories, and applications that other
//! users interfere with.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use exacat_exchange::Catalogue;
use exacat_exchange::compare::{
    Beginning, Class, CompareOptions, Compared, State, adopt_dark, apply_state, compare,
};
use exacat_exchange::input::Input;
use exacat_model::operation::{Attribute, Existing, FileRef, NewFile, NewReplica, ReplicaEdit};
use exacat_model::{Answer, Error, Mode, Operation, Pfn, ReplicaState, Revision};
use futures::Stream;

use super::support::{Direct, lfn, se_name};

/// A catalogue in which another user acts just before the first request of a kind.
struct Meddled {
    direct: Arc<Direct>,
    before: parking_lot::Mutex<Option<(&'static str, Operation)>>,
}

impl Catalogue for Meddled {
    async fn call(&self, operation: Operation) -> Result<Answer, Error> {
        let mut before = self.before.lock().take();
        if before.as_ref().is_some_and(|(kind, _)| *kind != operation.name()) {
            *self.before.lock() = before.take();
        }
        if let Some((_, meddling)) = before {
            self.direct.ask(meddling).await;
        }
        self.direct.call(operation).await
    }

    fn stream(&self, operation: Operation) -> impl Stream<Item = Result<Answer, Error>> + Send {
        self.direct.stream(operation)
    }
}

async fn register(catalogue: &Direct, path: &str, pfn: &str, state: ReplicaState) {
    let replica = NewReplica { se: se_name("A"), pfn: Some(Pfn::parse(pfn).unwrap()), state };
    let file = NewFile { size: Some(10), replicas: vec![replica], ..NewFile::named(lfn(path)) };
    catalogue.ask(Operation::Register { files: vec![file], parents: true, existing: Existing::Refuse }).await;
}

fn edit(path: &str, edit: ReplicaEdit) -> Operation {
    Operation::SetReplicas { edits: vec![(FileRef::Lfn(lfn(path)), vec![edit])] }
}

async fn run(
    catalogue: &Direct,
    dump: &str,
    from: Option<Revision>,
    (with_store, applied): (bool, Option<Class>),
) -> Compared {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("dump");
    std::fs::write(&path, dump).unwrap();
    let mut options = CompareOptions::of(se_name("A"), directory.path().to_owned());
    options.from = from.map(Beginning::Revision);
    (options.listed, options.applied) = (true, applied);
    let store = with_store.then(|| Arc::clone(catalogue.store()));
    let state = State { catalogue, store };
    compare(&state, None, &Input::open(&path, None).unwrap(), &options, |_| {}).await.unwrap()
}

fn paths(compared: &mut Compared) -> BTreeMap<&'static str, BTreeSet<String>> {
    let mut found = BTreeMap::new();
    for (class, listed) in &mut compared.listed {
        let mut set = BTreeSet::new();
        while let Some(one) = listed.next_path().unwrap() {
            set.insert(one.path);
        }
        if !set.is_empty() {
            found.insert(class.name(), set);
        }
    }
    found
}

async fn now(catalogue: &Direct) -> Revision {
    catalogue.store().revision().await.unwrap()
}

struct Random(u64);

impl Random {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (self.0 >> 33) % limit
    }
}

/// Whatever happens in the window, lost is only what stood all the time and the dump does not have,
/// dark only what the catalogue never knew; and every such path is found.
#[tokio::test]
async fn random_history_gives_lost_and_dark_exactly() {
    for seed in 0..12 {
        let mut random = Random(seed);
        let catalogue = Direct::with_ses(&["A", "B"]).await;
        let pfn = |number: u64| format!("root://a//store/f/{number}");
        let name = |number: u64| format!("/f/{number}");
        for number in 0..60 {
            register(&catalogue, &name(number), &pfn(number), ReplicaState::Available).await;
        }
        // Copies that go before the window are unknown in it.
        for number in 50..60 {
            let drop = ReplicaEdit::Drop { se: se_name("A"), delete: false };
            catalogue.ask(edit(&name(number), drop)).await;
        }
        let from = now(&catalogue).await;
        let mut touched: BTreeSet<u64> = BTreeSet::new();
        for number in 0..70 {
            let (path, se) = (name(number), se_name("A"));
            let operation = match (number, random.below(9)) {
                (60.., _) => {
                    register(&catalogue, &path, &pfn(number), ReplicaState::Available).await;
                    touched.insert(number);
                    continue;
                }
                (50.., _) => continue,
                (_, 0) => edit(&path, ReplicaEdit::Drop { se, delete: false }),
                (_, 1) => edit(&path, ReplicaEdit::Drop { se, delete: true }),
                (_, 2) => edit(&path, ReplicaEdit::State(se, ReplicaState::Suspect)),
                // These leave the copy as it is: a removal is undone by a restore.
                (_, 3) => {
                    let attributes = vec![Attribute::Mode(Mode::new(0o600).unwrap())];
                    catalogue.ask(Operation::SetAttributes { lfns: vec![lfn(&path)], attributes }).await;
                    continue;
                }
                (_, 4) => {
                    catalogue
                        .ask(Operation::Remove { lfn: lfn(&path), recursive: false, directory: false })
                        .await;
                    continue;
                }
                _ => continue,
            };
            catalogue.ask(operation).await;
            touched.insert(number);
        }
        let mut dump = String::new();
        let (mut lost, mut dark) = (BTreeSet::new(), BTreeSet::new());
        for number in 0..80 {
            let path = format!("/store/f/{number}");
            let stored = random.below(3) > 0 || number == 0;
            if stored {
                dump.push_str(&format!("{path}\n"));
            }
            match number {
                0..50 if !touched.contains(&number) && !stored => drop(lost.insert(path)),
                50..60 | 70.. if stored => drop(dark.insert(path)),
                _ => {}
            }
        }
        for with_store in [true, false] {
            let mut compared = run(&catalogue, &dump, Some(from), (with_store, None)).await;
            let found = paths(&mut compared);
            assert_eq!(found.get("lost").cloned().unwrap_or_default(), lost, "seed {seed} {with_store}");
            assert_eq!(found.get("dark").cloned().unwrap_or_default(), dark, "seed {seed} {with_store}");
            assert!(!found.contains_key("undecided"), "seed {seed}: {found:?}");
        }
    }
}

/// A copy that changes between the look and the commit keeps its state.
#[tokio::test]
async fn copy_that_changes_just_before_the_commit_is_left_alone() {
    let direct = Direct::with_ses(&["A"]).await;
    for number in 0..3 {
        let pfn = format!("root://a//store/{number}");
        register(&direct, &format!("/{number}"), &pfn, ReplicaState::Available).await;
    }
    let from = now(&direct).await;
    let mut compared = run(&direct, "/store/0\n", Some(from), (true, Some(Class::Lost))).await;
    assert_eq!(compared.report.counts.count(Class::Lost), 2);
    let attributes = vec![Attribute::Mode(Mode::new(0o600).unwrap())];
    let meddling = Operation::SetAttributes { lfns: vec![lfn("/2")], attributes };
    let before = parking_lot::Mutex::new(Some(("set-replicas", meddling)));
    let meddled = Meddled { direct: Arc::clone(&direct), before };
    let (_, listed) = compared.applied.take().unwrap();
    let applied = apply_state(&meddled, &compared.se, ReplicaState::Lost, listed, |_| {}).await.unwrap();
    assert_eq!((applied.changed, applied.already, applied.left, applied.refused), (1, 0, 1, 0));
    let state = async |path: &str| direct.stat(path).await.unwrap().entry.file().unwrap().replicas[0].state;
    assert_eq!(state("/1").await, ReplicaState::Lost);
    assert_eq!(state("/2").await, ReplicaState::Available);
    direct.check().await;
}

/// A dark file that is registered at the moment of its adoption stays with the one who registered it.
#[tokio::test]
async fn dark_file_registered_at_the_same_moment_is_not_adopted() {
    let direct = Direct::with_ses(&["A"]).await;
    register(&direct, "/0", "root://a//store/0", ReplicaState::Available).await;
    let from = now(&direct).await;
    let dump = "/store/0\n/store/x\n/store/y\n";
    let mut compared = run(&direct, dump, Some(from), (true, Some(Class::Dark))).await;
    let replica = NewReplica {
        se: se_name("A"),
        pfn: Some(Pfn::parse("root://a//store/x").unwrap()),
        state: ReplicaState::Available,
    };
    let file = NewFile { size: Some(1), replicas: vec![replica], ..NewFile::named(lfn("/mine")) };
    let meddling = Operation::Register { files: vec![file], parents: true, existing: Existing::Refuse };
    let before = parking_lot::Mutex::new(Some(("register", meddling)));
    let meddled = Meddled { direct: Arc::clone(&direct), before };
    let (_, listed) = compared.applied.take().unwrap();
    let (se, rules) = (&compared.se, &compared.rules);
    let into = lfn("/dark");
    let place = (&into, compared.report.after);
    let applied = adopt_dark(&meddled, (se, rules), place, listed, |_| {}).await.unwrap();
    assert_eq!((applied.changed, applied.already, applied.left, applied.refused), (1, 0, 1, 0));
    assert!(direct.stat("/dark/store/x").await.is_err());
    assert!(direct.stat("/dark/store/y").await.is_ok());
    assert_eq!(direct.stat("/mine").await.unwrap().entry.file().unwrap().replicas.len(), 1);
    assert_eq!(direct.store().deletions(se.number, None, 10).await.unwrap().items, []);
    direct.check().await;
}
