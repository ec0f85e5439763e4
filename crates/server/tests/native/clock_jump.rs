//! Goal: with a clock that is ahead, the workers of a server purge nothing for good and date
//! nothing ahead, on the embedded store. Method: the test sets two clocks, the machine's and the
//! count of the time that really passes. It stops and starts the server with the machine's clock
//! right, 45 days ahead, right again, and truly later.

use std::path::Path;
use std::time::Duration;

use exacat_model::operation::{Existing, NewFile, SeChoice, SeSettings};
use exacat_model::{Answer, Checksums, Cursor, ErrorKind, Operation, SeName, TimeMs};
use exacat_server::{RunningServer, Server, ServerSettings, StoreChoice, WorkerSettings};
use exacat_store::Clock;
use exacat_testkit::{TestClock, settings};

use crate::client::eventually_so;
use crate::world::{account, lfn};

const DAY_MS: i64 = 24 * 3600 * 1000;

/// The two clocks.
struct Clocks {
    machine: TestClock,
    passed: TestClock,
}

impl Clocks {
    fn new() -> Self {
        Clocks { machine: TestClock::new(), passed: TestClock::new() }
    }

    /// Lets time pass on both clocks.
    fn pass(&self, ms: i64) {
        self.machine.turn(ms);
        self.passed.turn(ms);
    }
}

/// Starts a server whose workers check for due work every few milliseconds.
async fn start(directory: &Path, clocks: &Clocks) -> RunningServer {
    let workers = WorkerSettings { interval: Duration::from_millis(2), ..WorkerSettings::default() };
    Server::start(ServerSettings {
        native: None,
        http: None,
        socket: false,
        store: StoreChoice::Embedded,
        clock: clocks.machine.watched(&clocks.passed),
        workers,
        ..ServerSettings::new(directory)
    })
    .await
    .unwrap()
}

async fn stop(server: RunningServer) {
    server.shutdown();
    server.wait().await.unwrap();
}

async fn ask(server: &RunningServer, operation: Operation) -> exacat_model::Result<Answer> {
    let catalogue = server.catalogue();
    let admin = catalogue.caller_named(&account("admin")).await.unwrap();
    let id = catalogue.new_operation_id()?;
    catalogue.execute(&admin, id, operation).await
}

async fn get(server: &RunningServer, operation: Operation) -> Answer {
    ask(server, operation).await.unwrap()
}

/// Counts the work that waits for its time: items of the trash, entries that expire, reservations.
async fn waiting(server: &RunningServer) -> (usize, bool, usize) {
    let Answer::Trash { items, .. } =
        get(server, Operation::TrashList { cursor: Cursor::default(), limit: 0 }).await
    else {
        panic!()
    };
    let stat = Operation::Stat { lfns: vec![lfn("/expiring")], follow: false };
    let Answer::Stats(entries) = get(server, stat).await else { panic!() };
    let Answer::Uploads { items: reservations, .. } =
        get(server, Operation::UploadList { cursor: Cursor::default(), limit: 0 }).await
    else {
        panic!()
    };
    (items.len(), entries[0].is_ok(), reservations.len())
}

/// Checks that the steps of all workers find nothing to do.
async fn nothing_is_done(server: &RunningServer, when: &str) {
    let catalogue = server.catalogue();
    for report in [
        catalogue.trash_purge_step().await.unwrap(),
        catalogue.expired_entries_step().await.unwrap(),
        catalogue.expired_reservations_step().await.unwrap(),
    ] {
        assert_eq!(report.done, 0, "{when}");
    }
    assert_eq!(waiting(server).await, (1, true, 1), "{when}");
}

async fn made(server: &RunningServer, name: &str) -> TimeMs {
    get(server, Operation::Mkdir { lfns: vec![lfn(name)], parents: false, mode: None }).await;
    let stat = Operation::Stat { lfns: vec![lfn(name)], follow: false };
    let Answer::Stats(entries) = get(server, stat).await else { panic!() };
    entries[0].as_ref().unwrap().entry.created
}

/// Returns the clock's part of the status.
async fn clock_notes(server: &RunningServer) -> (u64, String) {
    let Answer::Status(parts) = get(server, Operation::Status).await else { panic!() };
    let part = parts.into_iter().find(|part| part.part == "clock").unwrap();
    (part.metrics[0].1, part.notes.join("\n"))
}

/// Makes an item in the trash, an entry that expires in a day, and a reservation of a day.
async fn plant(server: &RunningServer) {
    let se = SeSettings { prefix: Some("root://a//d".to_owned()), ..settings::se("X::A::DISK") };
    get(server, Operation::SeSet(se)).await;
    let expires = Some(TestClock::START.plus_ms(DAY_MS as u64));
    let files =
        vec![NewFile { expires, ..NewFile::named(lfn("/expiring")) }, NewFile::named(lfn("/removed"))];
    get(server, Operation::Register { files, parents: false, existing: Existing::Refuse }).await;
    get(server, Operation::Remove { lfn: lfn("/removed"), recursive: false, directory: false }).await;
    let choice = SeChoice { wanted: vec![SeName::parse("X::A::DISK").unwrap()], ..SeChoice::default() };
    get(
        server,
        Operation::UploadReserve {
            lfn: lfn("/uploaded"),
            guid: None,
            size: 1,
            checksums: Checksums::none(),
            job: None,
            choice: Box::new(choice),
            lifetime_seconds: Some(24 * 3600),
        },
    )
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn clock_ahead_at_one_start_ends_nothing_and_dates_nothing_ahead() {
    let directory = tempfile::tempdir().unwrap();
    let clocks = Clocks::new();
    let server = start(directory.path(), &clocks).await;
    plant(&server).await;
    nothing_is_done(&server, "with the clock right").await;
    assert_eq!(clock_notes(&server).await.0, 0);
    stop(server).await;

    clocks.pass(10_000);
    clocks.machine.turn(45 * DAY_MS);
    let server = start(directory.path(), &clocks).await;
    clocks.pass(1000);
    nothing_is_done(&server, "with the clock 45 days ahead").await;
    let time = made(&server, "/ahead").await;
    assert!(time <= TestClock::START.plus_ms(11_000), "{time}");
    let (ahead, notes) = clock_notes(&server).await;
    assert!(ahead > 44 * 24 * 3600 && notes.contains("exacat clock confirm"), "{notes}");
    nothing_is_done(&server, "after a change").await;
    stop(server).await;

    clocks.machine.turn(-45 * DAY_MS);
    clocks.pass(10_000);
    let server = start(directory.path(), &clocks).await;
    nothing_is_done(&server, "with the clock right again").await;
    assert_eq!(made(&server, "/right").await, TestClock::START.plus_ms(21_000));
    assert_eq!(clock_notes(&server).await.0, 0);
    // A step back, and a pause that the kernel counted.
    clocks.machine.turn(-5 * DAY_MS);
    assert_eq!(made(&server, "/back").await, TestClock::START.plus_ms(21_000));
    clocks.machine.turn(5 * DAY_MS);
    clocks.pass(60_000);
    assert_eq!(made(&server, "/paused").await, TestClock::START.plus_ms(81_000));
    nothing_is_done(&server, "after a step back and a pause").await;
    stop(server).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn clock_that_is_truly_later_goes_on_once_it_is_confirmed() {
    let directory = tempfile::tempdir().unwrap();
    let clocks = Clocks::new();
    let server = start(directory.path(), &clocks).await;
    plant(&server).await;
    stop(server).await;
    clocks.pass(45 * DAY_MS);
    let server = start(directory.path(), &clocks).await;
    nothing_is_done(&server, "before it is confirmed").await;
    get(&server, Operation::ClockConfirm).await;
    assert_eq!(clock_notes(&server).await.0, 0);
    // The expired entry goes to the trash, and stays there.
    eventually_so("the workers to go on", async || waiting(&server).await == (1, false, 0)).await;
    assert_eq!(made(&server, "/after").await, clocks.machine.now());
    stop(server).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn clock_that_jumps_while_the_server_runs_waits_for_the_time_to_pass() {
    let directory = tempfile::tempdir().unwrap();
    let clocks = Clocks::new();
    let server = start(directory.path(), &clocks).await;
    plant(&server).await;
    clocks.machine.turn(45 * DAY_MS);
    nothing_is_done(&server, "after the jump").await;
    assert_eq!(made(&server, "/jumped").await, TestClock::START);
    assert!(clock_notes(&server).await.0 > 0);
    clocks.pass(2 * DAY_MS);
    eventually_so("what truly expired to end", async || waiting(&server).await == (2, false, 0)).await;
    assert_eq!(made(&server, "/later").await, TestClock::START.plus_ms(2 * DAY_MS as u64));
    let refused = Operation::ClockConfirm;
    let catalogue = server.catalogue();
    get(&server, Operation::UserSet(Box::new(settings::user("alice")))).await;
    let alice = catalogue.caller_named(&account("alice")).await.unwrap();
    let error = catalogue.execute(&alice, catalogue.new_operation_id().unwrap(), refused).await.unwrap_err();
    assert_eq!(error.kind, ErrorKind::Denied);
    stop(server).await;
}

/// Goal: an idle server trusts its clock after a restart, and a confirmation is durable once
/// answered. Method: no change happens after the first start. The test reads the file like a
/// process that starts after a kill.
#[tokio::test(flavor = "multi_thread")]
async fn idle_time_and_a_confirmation_survive_a_restart() {
    let directory = tempfile::tempdir().unwrap();
    let clocks = Clocks::new();
    let server = start(directory.path(), &clocks).await;
    clocks.pass(10 * DAY_MS);
    stop(server).await;
    let server = start(directory.path(), &clocks).await;
    assert_eq!(clock_notes(&server).await.0, 0, "after idle days that the server counted");
    stop(server).await;

    clocks.machine.turn(45 * DAY_MS);
    let server = start(directory.path(), &clocks).await;
    assert!(clock_notes(&server).await.0 > 0);
    stop(server).await;
    let server = start(directory.path(), &clocks).await;
    assert!(clock_notes(&server).await.0 > 0, "a restart confirms nothing");
    get(&server, Operation::ClockConfirm).await;
    let copy = directory.path().join("store").join("copy-of-clock");
    std::fs::copy(directory.path().join("clock"), &copy).unwrap();
    let killed = clocks.machine.watched(&clocks.passed);
    killed.keep_in(&copy);
    killed.opened(TestClock::START);
    assert_eq!(killed.jump(), None);
    std::fs::remove_file(&copy).unwrap();
    stop(server).await;
    let server = start(directory.path(), &clocks).await;
    assert_eq!(clock_notes(&server).await.0, 0);
    stop(server).await;
}
