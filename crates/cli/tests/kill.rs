//! Kills the server again and again under load. After each restart no answered change is missing,
//! nothing is half there, nothing exists that nobody requested, and every counter agrees.
//!
//! `EXACAT_TEST_ROUNDS` sets the number of kills, `EXACAT_TEST_SEED` repeats a run's choices (not
//! its timing).
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "a test fails by panicking, and says what it skipped or counted"
)]

mod service;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;

use exacat_client::{Client, ClientSettings, Credentials, Target};
use exacat_model::answer::Stat;
use exacat_model::operation::{Existing, NewFile, NewReplica, SeChoice};
use exacat_model::{
    Answer, Checksums, Cursor, Filter, Guid, Lfn, Operation, ReplicaState, SeName, Tag, TrashId, Usage,
};
use parking_lot::Mutex;
use serde_json::json;
use service::Service;
use tokio::sync::watch;

/// Kills of a default run.
const ROUNDS: u64 = 6;
/// Connections that work at once.
const CLIENTS: usize = 4;
/// Workers, each waiting for its answers one by one.
const WORKERS: usize = 16;
/// Files of one unit of work.
const FILES: usize = 20;
/// Maximum answers before the kill: the kill falls somewhere before.
const ANSWERS_MAX: u64 = 1500;
/// Time after which a server without an answer is unresponsive, not slow.
const LIMIT: Duration = Duration::from_secs(60);

/// Random choices, repeatable by a seed.
struct Choices(u64);

impl Choices {
    fn below(&mut self, end: u64) -> u64 {
        // Weyl sequence, then the mixing of splitmix64.
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)) % end
    }
}

fn from_environment(name: &str) -> Option<u64> {
    std::env::var(name).ok().map(|text| text.parse().unwrap())
}

fn lfn(text: &str) -> Lfn {
    Lfn::parse(text).unwrap()
}

fn se() -> SeName {
    SeName::parse("VO::KILL::DISK").unwrap()
}

/// Steps of a unit of work, in order. Each is answered before the next is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Step {
    /// Files in a new directory, `NAME.new`.
    Register,
    /// A tag on that directory.
    Tag,
    /// The directory becomes `NAME`.
    Move,
    /// An upload to `NAME.up` is reserved …
    Reserve,
    /// … and committed.
    Commit,
    /// The directory goes to the trash; of every third unit.
    Remove,
}

const STEPS: [Step; 6] = [Step::Register, Step::Tag, Step::Move, Step::Reserve, Step::Commit, Step::Remove];

/// One unit of work: its answered steps, and the step that was sent and not answered.
#[derive(Debug)]
struct Unit {
    worker: usize,
    number: usize,
    answered: Option<Step>,
    asked: Option<Step>,
    /// Existing files; none if they are not known yet.
    files: Option<BTreeSet<usize>>,
    upload: Option<Guid>,
    trash: Option<TrashId>,
}

impl Unit {
    fn name(&self) -> String {
        format!("/kill/{}/{:05}", self.worker, self.number)
    }

    fn steps(&self) -> &'static [Step] {
        if self.number.is_multiple_of(3) { &STEPS } else { &STEPS[..5] }
    }

    fn is_over(&self, step: Step) -> bool {
        self.answered.is_some_and(|answered| answered >= step)
    }

    /// Says whether the step was sent and not answered: it may have been done.
    fn is_open(&self, step: Step) -> bool {
        !self.is_over(step) && self.asked == Some(step)
    }

    fn file(&self, directory: &str, index: usize) -> NewFile {
        let replica = NewReplica { se: se(), pfn: None, state: ReplicaState::Available };
        NewFile {
            size: Some(size(self.number, index)),
            tags: vec![Tag::parse(&format!("index={index}")).unwrap()],
            replicas: vec![replica],
            ..NewFile::named(lfn(&format!("{directory}/{index:02}")))
        }
    }

    fn operation(&self, step: Step) -> Operation {
        let name = self.name();
        let fresh = format!("{name}.new");
        match step {
            Step::Register => Operation::Register {
                files: (0..FILES).map(|index| self.file(&fresh, index)).collect(),
                parents: true,
                existing: Existing::Refuse,
            },
            Step::Tag => Operation::TagSet {
                lfns: vec![lfn(&fresh)],
                set: vec![Tag::parse(&format!("unit={}", self.number)).unwrap()],
                unset: Vec::new(),
            },
            Step::Move => Operation::Move { from: lfn(&fresh), to: lfn(&name) },
            Step::Reserve => Operation::UploadReserve {
                lfn: lfn(&format!("{name}.up")),
                guid: None,
                size: size(self.number, FILES),
                checksums: Checksums::none(),
                job: None,
                choice: Box::new(SeChoice { wanted: vec![se()], ..SeChoice::default() }),
                lifetime_seconds: None,
            },
            Step::Commit => Operation::UploadCommit {
                guid: self.upload.unwrap(),
                se: se(),
                size: size(self.number, FILES),
                checksums: Checksums::none(),
            },
            Step::Remove => Operation::Remove { lfn: lfn(&name), recursive: true, directory: true },
        }
    }

    fn take(&mut self, step: Step, answer: Answer) {
        match (step, answer) {
            (Step::Register, Answer::Registered(each)) => {
                assert!(each.iter().all(Result::is_ok), "{each:?}");
                self.files = Some((0..FILES).collect());
            }
            (Step::Tag, Answer::EachDone(each)) => assert!(each.iter().all(Result::is_ok), "{each:?}"),
            (Step::Reserve, Answer::Upload(upload)) => self.upload = Some(upload.reservation.guid),
            (Step::Remove, Answer::Removed { id }) => self.trash = Some(id.id),
            (Step::Tag | Step::Move | Step::Commit, Answer::Done { .. } | Answer::Upload(_)) => {}
            (step, other) => panic!("{step:?}: {other:?}"),
        }
        self.answered = Some(step);
        self.asked = None;
    }
}

fn size(number: usize, index: usize) -> u64 {
    (number * 1000 + index) as u64
}

/// Units of all workers so far.
type Units = Arc<Mutex<Vec<Unit>>>;

/// Works until it is stopped. It notes a step before it sends it, and the answer after.
async fn work(client: Client, worker: usize, units: Units, answers: watch::Sender<u64>) {
    loop {
        let place = {
            let mut units = units.lock();
            let number = units.iter().filter(|unit| unit.worker == worker).count();
            units.push(Unit {
                worker,
                number,
                answered: None,
                asked: None,
                files: None,
                upload: None,
                trash: None,
            });
            units.len() - 1
        };
        let steps = units.lock()[place].steps();
        for step in steps {
            let operation = {
                let mut units = units.lock();
                units[place].asked = Some(*step);
                units[place].operation(*step)
            };
            // The worker is stopped while it waits here, when the server is gone.
            let answer = client.call(operation).await.unwrap();
            units.lock()[place].take(*step, answer);
            answers.send_modify(|count| *count += 1);
        }
    }
}

async fn connect(service: &Service) -> Client {
    let target = Target::parse(service.local_url()).unwrap();
    let settings = ClientSettings { deadline: LIMIT, ..ClientSettings::default() };
    Client::connect(target, Credentials::local(), settings).await.unwrap()
}

async fn pages(client: &Client, mut operation: Operation, mut take: impl FnMut(Answer)) {
    loop {
        let answer = client.call(operation.clone()).await.unwrap();
        let next = answer.next().cloned();
        take(answer);
        match next {
            Some(next) => operation = operation.resumed(next).unwrap(),
            None => return,
        }
    }
}

/// Content of the catalogue.
struct FoundState {
    entries: HashMap<String, Stat>,
    trash: HashMap<TrashId, (String, Usage)>,
    uploads: BTreeSet<Guid>,
}

impl FoundState {
    async fn look(client: &Client) -> FoundState {
        let mut found =
            FoundState { entries: HashMap::new(), trash: HashMap::new(), uploads: BTreeSet::new() };
        let find = Operation::Find {
            lfn: lfn("/kill"),
            filter: Box::new(Filter::default()),
            cursor: Cursor::default(),
            limit: 0,
        };
        pages(client, find, |answer| {
            let Answer::Entries { items, .. } = answer else { panic!("{answer:?}") };
            found.entries.extend(items.into_iter().map(|stat| (stat.lfn.to_string(), stat)));
        })
        .await;
        pages(client, Operation::TrashList { cursor: Cursor::default(), limit: 0 }, |answer| {
            let Answer::Trash { items, .. } = answer else { panic!("{answer:?}") };
            found
                .trash
                .extend(items.into_iter().map(|(item, _)| (item.id, (item.lfn.to_string(), item.usage))));
        })
        .await;
        pages(client, Operation::UploadList { cursor: Cursor::default(), limit: 0 }, |answer| {
            let Answer::Uploads { items, .. } = answer else { panic!("{answer:?}") };
            found.uploads.extend(items.into_iter().map(|upload| upload.reservation.guid));
        })
        .await;
        found
    }

    /// Removes what a unit accounts for, and decides its open step. The rest at the end is
    /// unaccounted for.
    fn account(&mut self, unit: &mut Unit) {
        let (fresh, name) = (format!("{}.new", unit.name()), unit.name());
        // The directory is at one name, or in the trash, never at two and never nowhere.
        let places: Vec<&String> =
            [&fresh, &name].into_iter().filter(|place| self.entries.contains_key(*place)).collect();
        assert!(places.len() < 2, "{name} is there twice");
        let in_trash =
            self.trash.iter().find(|(_, (lfn, _))| *lfn == name).map(|(id, (_, usage))| (*id, *usage));
        let stands = places.first().map(|place| (*place).clone());
        let mut tagged = false;
        match (&stands, in_trash) {
            (Some(_), Some(_)) => panic!("{name} is there and in the trash"),
            (None, None) => {
                assert!(!unit.is_over(Step::Register), "{name} was registered, and is nowhere: {unit:?}")
            }
            (Some(place), None) => {
                assert!(!unit.is_over(Step::Remove), "{place} was removed, and is there: {unit:?}");
                if *place == name {
                    assert!(unit.is_over(Step::Move) || unit.is_open(Step::Move), "{unit:?}");
                } else {
                    assert!(!unit.is_over(Step::Move), "{place} was moved, and is there: {unit:?}");
                }
                let directory = self.entries.remove(place).unwrap();
                tagged = directory.entry.tag("unit").is_some();
                assert!(tagged || !unit.is_over(Step::Tag), "{place} lost its tag: {unit:?}");
                assert!(!tagged || unit.is_over(Step::Tag) || unit.is_open(Step::Tag), "{unit:?}");
                self.account_files(unit, place);
            }
            (None, Some((id, usage))) => {
                assert!(unit.is_over(Step::Remove) || unit.is_open(Step::Remove), "{unit:?}");
                assert!(unit.trash.is_none_or(|told| told == id), "{unit:?} is item {id:?}");
                assert_eq!(usage.files as usize, unit.files.as_ref().unwrap().len(), "{unit:?}");
                self.trash.remove(&id);
                unit.trash = Some(id);
            }
        }
        self.account_upload(unit);
        // An open step was done or was not: from here on it has to stay so.
        let stands_at = |place: &str| stands.as_deref() == Some(place);
        let reached = match unit.asked.take() {
            Some(Step::Register) => stands_at(&fresh),
            Some(Step::Move) => stands_at(&name),
            Some(Step::Remove) => unit.trash.is_some(),
            Some(Step::Commit) => unit.upload.is_none(),
            Some(Step::Tag) => tagged,
            // The audit gives up an upload reservation whose answer was lost.
            Some(Step::Reserve) | None => false,
        };
        if reached {
            unit.answered =
                STEPS.into_iter().find(|step| unit.answered.is_none_or(|answered| *step > answered));
        }
    }

    /// Checks that each file is whole. The first check decides which files exist.
    fn account_files(&mut self, unit: &mut Unit, place: &str) {
        let mut there = BTreeSet::new();
        for index in 0..FILES {
            let Some(stat) = self.entries.remove(&format!("{place}/{index:02}")) else { continue };
            let file = stat.entry.file().unwrap();
            assert_eq!(file.size, Some(size(unit.number, index)), "{stat:?}");
            assert_eq!(file.replicas.len(), 1, "{stat:?}");
            assert_eq!(stat.entry.tags.len(), 1, "{stat:?}");
            there.insert(index);
        }
        match &unit.files {
            Some(files) => assert_eq!(files, &there, "{place}: {unit:?}"),
            None => {
                assert!(unit.is_open(Step::Register), "{unit:?}");
                unit.files = Some(there);
            }
        }
    }

    fn account_upload(&mut self, unit: &mut Unit) {
        let up = format!("{}.up", unit.name());
        match self.entries.remove(&up) {
            Some(stat) => {
                assert!(unit.is_over(Step::Commit) || unit.is_open(Step::Commit), "{unit:?}");
                assert_eq!(stat.entry.size(), Some(size(unit.number, FILES)), "{stat:?}");
                assert_eq!(stat.entry.file().unwrap().replicas.len(), 1, "{stat:?}");
                if let Some(guid) = unit.upload.take() {
                    assert_eq!(stat.entry.guid(), Some(guid), "{unit:?}");
                    assert!(!self.uploads.contains(&guid), "{up} is committed and reserved");
                }
            }
            None => {
                assert!(!unit.is_over(Step::Commit), "{up} was committed, and is not there: {unit:?}");
                if let Some(guid) = unit.upload {
                    assert!(self.uploads.contains(&guid), "{up} was reserved, and is not: {unit:?}");
                }
            }
        }
    }
}

/// Checks everything. `lines` are the files that a command of another process printed as
/// registered.
async fn audit(service: &Service, units: &Units, lines: &BTreeMap<String, String>) {
    let client = connect(service).await;
    let mut found = FoundState::look(&client).await;
    let known: BTreeSet<Guid> = units.lock().iter().filter_map(|unit| unit.upload).collect();
    for unit in units.lock().iter_mut() {
        found.account(unit);
    }
    for (name, guid) in lines {
        let stat = found.entries.get(name).unwrap_or_else(|| panic!("{name} was printed, and is not there"));
        assert_eq!(stat.entry.guid().unwrap().to_string(), *guid, "{name}");
    }
    // The rest are the directories above, and the requests of the other process.
    for (name, stat) in &found.entries {
        let is_above = name.split('/').count() <= 3 && stat.entry.directory().is_some();
        assert!(is_above || name.starts_with("/kill/lines/"), "{name} is there, and nobody knows why");
        if let Some(size) = stat.entry.size() {
            assert_eq!(format!("/kill/lines/{size:09}"), *name);
        }
    }
    assert!(found.trash.is_empty(), "{:?}", found.trash);
    // Upload reservations whose answer was lost: at most one for each worker and kill, and they can
    // be given up.
    for guid in found.uploads.difference(&known) {
        client.call(Operation::UploadAbort { guid: *guid, se: None }).await.unwrap();
    }
    let Answer::Fsck(report) = client.call(Operation::Fsck).await.unwrap() else { panic!() };
    assert_eq!(report.findings_total, 0, "{:?}", report.findings);
    client.close().await;
}

/// Another process: registers files one by one from its standard input, and prints each answered
/// one.
struct LineProcess {
    child: std::process::Child,
    feeder: std::thread::JoinHandle<()>,
    printed: std::thread::JoinHandle<String>,
}

impl LineProcess {
    fn start(service: &Service, first: usize) -> LineProcess {
        let mut command = service.command(&["register", "-p", "-"]);
        let mut child =
            command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
        let mut input = child.stdin.take().unwrap();
        let mut output = child.stdout.take().unwrap();
        let feeder = std::thread::spawn(move || {
            for number in first.. {
                let line = json!({"lfn": format!("/kill/lines/{number:09}"), "size": number});
                if std::io::Write::write_all(&mut input, format!("{line}\n").as_bytes()).is_err() {
                    return;
                }
            }
        });
        let printed = std::thread::spawn(move || {
            let mut text = String::new();
            std::io::Read::read_to_string(&mut output, &mut text).unwrap();
            text
        });
        LineProcess { child, feeder, printed }
    }

    /// Ends it, and returns its output: names with their GUIDs.
    fn end(mut self) -> BTreeMap<String, String> {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
        self.feeder.join().unwrap();
        let printed = self.printed.join().unwrap();
        // The last line may be cut.
        let whole = printed.rfind('\n').map_or("", |end| &printed[..end]);
        whole
            .lines()
            .map(|line| line.split_once("  ").unwrap())
            .map(|(guid, name)| (name.to_owned(), guid.to_owned()))
            .collect()
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_answered_is_lost_and_nothing_is_half_there() {
    let rounds = from_environment("EXACAT_TEST_ROUNDS").unwrap_or(ROUNDS);
    let seed = from_environment("EXACAT_TEST_SEED").unwrap_or(u64::from(std::process::id()));
    println!("{rounds} rounds, EXACAT_TEST_SEED={seed}");
    let mut choices = Choices(seed);
    let mut service = Service::start();
    service.ok("se add VO::KILL::DISK --prefix root://kill//data");
    let units: Units = Arc::default();
    let mut lines = BTreeMap::new();
    for round in 0..rounds {
        let mut clients = Vec::new();
        for _ in 0..CLIENTS {
            clients.push(connect(&service).await);
        }
        let (answers, mut answered) = watch::channel(0);
        let mut workers = tokio::task::JoinSet::new();
        for worker in 0..WORKERS {
            let client = clients[worker % CLIENTS].clone();
            workers.spawn(work(client, worker, Arc::clone(&units), answers.clone()));
        }
        let first = lines
            .keys()
            .next_back()
            .map_or(0, |name: &String| name[12..].parse::<usize>().unwrap() + 100_000);
        let process = LineProcess::start(&service, first);
        let until = 1 + choices.below(ANSWERS_MAX);
        tokio::time::timeout(LIMIT, answered.wait_for(|count| *count >= until)).await.unwrap().unwrap();
        service.kill();
        workers.shutdown().await;
        lines.extend(process.end());
        // Sometimes the next start is cut short, too.
        if choices.below(3) == 0 {
            service.start_and_kill(Duration::from_millis(choices.below(50)));
        }
        service.restart();
        audit(&service, &units, &lines).await;
        println!(
            "round {round}: killed after {until} answers; {} units, {} lines",
            units.lock().len(),
            lines.len()
        );
        for client in clients {
            client.close().await;
        }
    }
    assert!(units.lock().iter().filter(|unit| unit.is_over(Step::Commit)).count() as u64 > rounds);
    // An orderly end keeps as much.
    assert_eq!(service.stop(), Some(0));
    service.restart();
    audit(&service, &units, &lines).await;
}
