//! Repeated requests: one effect and the same answer, whatever happens in between; other content
//! under the same id is a conflict.

use std::path::Path;
use std::sync::Arc;

use exacat_model::operation::{Existing, NewFile};
use exacat_model::{Answer, Error, ErrorKind, Operation, OperationId};
use exacat_server::{RunningServer, Server, ServerSettings, StoreChoice};
use exacat_store::{Clock, SystemClock};
use exacat_wire::native::{Batch, BatchItem, Credentials, Frame, RequestOptions, Secret, encode_request};
use tokio::net::UnixStream;

use crate::client::{Client, FRAME_BYTES_MAX, soon};
use crate::world::lfn;

/// A server on an embedded store, which makes answers durable and decides several requests at once.
struct Durable {
    server: RunningServer,
    directory: Arc<tempfile::TempDir>,
}

impl Durable {
    async fn start(directory: Arc<tempfile::TempDir>) -> Self {
        let settings = ServerSettings {
            store: StoreChoice::Embedded,
            ..ServerSettings::new(directory.path().join("data"))
        };
        Durable { server: Server::start(settings).await.unwrap(), directory }
    }

    async fn new() -> Self {
        Self::start(Arc::new(tempfile::tempdir().unwrap())).await
    }

    async fn restarted(self) -> Self {
        self.server.shutdown();
        self.server.wait().await.unwrap();
        Self::start(self.directory).await
    }

    async fn client(&self, credentials: Credentials) -> Client {
        let socket: &Path = self.server.addresses.socket.as_deref().unwrap();
        let mut client = Client::new(UnixStream::connect(socket).await.unwrap());
        client.hello().await;
        client.authenticate(credentials).await.unwrap();
        client
    }

    async fn admin(&self) -> Client {
        self.client(Credentials::Local).await
    }
}

fn id() -> OperationId {
    let mut random = [0; 10];
    getrandom::fill(&mut random).unwrap();
    OperationId::new(SystemClock.now(), random)
}

fn register(path: &str) -> Operation {
    let files = vec![NewFile::named(lfn(path))];
    Operation::Register { files, parents: true, existing: Existing::Refuse }
}

fn mkdir(path: &str) -> Operation {
    Operation::Mkdir { lfns: vec![lfn(path)], parents: false, mode: None }
}

fn remove(path: &str) -> Operation {
    Operation::Remove { lfn: lfn(path), recursive: false, directory: false }
}

fn rename(from: &str, to: &str) -> Operation {
    Operation::Move { from: lfn(from), to: lfn(to) }
}

async fn send(client: &mut Client, id: OperationId, operation: Operation) -> u64 {
    client.ask_with(RequestOptions { operation_id: Some(id), ..RequestOptions::default() }, operation).await
}

async fn call(client: &mut Client, id: OperationId, operation: Operation) -> Result<Answer, Error> {
    let request = send(client, id, operation).await;
    client.outcome(request).await
}

/// Returns the kind of the first error in an answer; none if there is no error.
fn kind(outcome: &Result<Answer, Error>) -> Option<ErrorKind> {
    match outcome {
        Err(error) => Some(error.kind),
        Ok(Answer::Registered(items)) => items.iter().find_map(|item| item.as_ref().err()).map(|it| it.kind),
        Ok(Answer::EachDone(items)) => items.iter().find_map(|item| item.as_ref().err()).map(|it| it.kind),
        Ok(_) => None,
    }
}

async fn exists(client: &mut Client, path: &str) -> bool {
    match client.call(Operation::Stat { lfns: vec![lfn(path)], follow: false }).await.unwrap() {
        Answer::Stats(items) => items[0].is_ok(),
        other => panic!("{other:?}"),
    }
}

/// Goal: one id several times in one frame, and in frames that the server runs together, has one
/// effect. Method: for each kind of change twice the same under one id, then another content.
#[tokio::test(flavor = "multi_thread")]
async fn id_that_comes_several_times_at_once_has_one_effect() {
    let service = Durable::new().await;
    let mut client = service.admin().await;
    call(&mut client, id(), mkdir("/d")).await.unwrap();
    for (round, make) in [register as fn(&str) -> Operation, mkdir].into_iter().enumerate() {
        // In one batch.
        let (a, b) = (format!("/d/a{round}"), format!("/d/b{round}"));
        let one = id();
        let item = |operation| BatchItem { operation_id: Some(one), operation };
        let items = vec![item(make(&a)), item(make(&a)), item(make(&b)), item(make(&a))];
        client
            .send(1000, Frame::Batch(Batch { deadline_ms: None, consistency: None, past: None, items }))
            .await;
        let (_, Frame::AnswerBatch(batch)) = client.expect().await else { panic!("no answers") };
        let kinds: Vec<_> = batch.answers.iter().map(kind).collect();
        // The server may run them in any order: either content wins, once.
        let (won, lost) = if exists(&mut client, &a).await { (&a, &b) } else { (&b, &a) };
        assert!(exists(&mut client, won).await && !exists(&mut client, lost).await, "{kinds:?}");
        for (path, kind) in [&a, &a, &b, &a].into_iter().zip(&kinds) {
            let expected = if path == won { None } else { Some(ErrorKind::Conflict) };
            assert_eq!(*kind, expected, "{path}: {kinds:?}");
        }
        // Each in its frame, in one write.
        let (c, e) = (format!("/d/c{round}"), format!("/d/e{round}"));
        let options = RequestOptions { operation_id: Some(id()), ..RequestOptions::default() };
        let mut bytes = Vec::new();
        for (request, path) in [(2000, &c), (2001, &c), (2002, &e), (2003, &c)] {
            encode_request(&mut bytes, FRAME_BYTES_MAX, request, &options, &make(path)).unwrap();
        }
        client.write(&bytes).await;
        let mut outcomes = std::collections::BTreeMap::new();
        for _ in 0..4 {
            match client.expect().await {
                (request, Frame::Answer(answer)) => outcomes.insert(request, kind(&Ok(answer))),
                (request, Frame::Error(error)) => outcomes.insert(request, Some(error.kind)),
                other => panic!("{other:?}"),
            };
        }
        let won_c = exists(&mut client, &c).await;
        assert_ne!(won_c, exists(&mut client, &e).await, "{outcomes:?}");
        for (request, kind) in &outcomes {
            let expected = ((*request == 2002) == won_c).then_some(ErrorKind::Conflict);
            assert_eq!(*kind, expected, "{request}: {outcomes:?}");
        }
    }
}

/// Goal: the same request on many connections at once has one effect, and each gets its answer.
#[tokio::test(flavor = "multi_thread")]
async fn id_that_comes_over_many_connections_at_once_has_one_effect() {
    let service = Durable::new().await;
    let mut first = service.admin().await;
    call(&mut first, id(), mkdir("/d")).await.unwrap();
    let mut clients = Vec::new();
    for _ in 0..8 {
        clients.push(service.admin().await);
    }
    for round in 0..20 {
        let path = format!("/d/f{round}");
        for operation in
            [register(&path), rename(&path, &format!("/d/g{round}")), remove(&format!("/d/g{round}"))]
        {
            let one = id();
            let mut requests = Vec::new();
            for client in &mut clients {
                requests.push(send(client, one, operation.clone()).await);
            }
            let mut outcomes = Vec::new();
            for (client, request) in clients.iter_mut().zip(requests) {
                outcomes.push(client.outcome(request).await);
            }
            assert!(outcomes.iter().all(|it| *it == outcomes[0]), "{operation:?}: {outcomes:?}");
            assert_eq!(kind(&outcomes[0]), None, "{operation:?}");
        }
    }
}

/// Goal: a repeat whose answer was lost does nothing to what others did since, also after a restart.
#[tokio::test(flavor = "multi_thread")]
async fn repeat_after_a_lost_answer_spares_what_others_did_since() {
    let service = Durable::new().await;
    let mut client = service.admin().await;
    call(&mut client, id(), register("/d/x")).await.unwrap();
    let (removal, renaming) = (id(), id());
    // The answer is lost with the connection.
    let mut lost = service.admin().await;
    send(&mut lost, removal, remove("/d/x")).await;
    drop(lost);
    soon("the removal", async {
        while exists(&mut client, "/d/x").await {
            tokio::task::yield_now().await;
        }
    })
    .await;
    // Another client takes the name again.
    call(&mut client, id(), register("/d/x")).await.unwrap();
    let first = call(&mut client, removal, remove("/d/x")).await.unwrap();
    assert!(exists(&mut client, "/d/x").await, "the repeat spares the new file");
    let moved = call(&mut client, renaming, rename("/d/x", "/d/y")).await.unwrap();
    call(&mut client, id(), register("/d/x")).await.unwrap();
    let service = service.restarted().await;
    let mut client = service.admin().await;
    for _ in 0..3 {
        assert_eq!(call(&mut client, removal, remove("/d/x")).await.unwrap(), first);
        assert_eq!(call(&mut client, renaming, rename("/d/x", "/d/y")).await.unwrap(), moved);
    }
    assert!(exists(&mut client, "/d/x").await && exists(&mut client, "/d/y").await);
    // Other content, also of another kind, is a conflict after the restart too.
    for other in [remove("/d/y"), mkdir("/d/z"), register("/d/z"), rename("/d/x", "/d/z")] {
        let outcome = call(&mut client, removal, other.clone()).await;
        assert_eq!(kind(&outcome), Some(ErrorKind::Conflict), "{other:?}: {outcome:?}");
    }
    assert!(!exists(&mut client, "/d/z").await);
}

/// Goal: an id of one user is not another's. Its repeat by another user is a conflict, and shows
/// nothing of the first outcome.
#[tokio::test(flavor = "multi_thread")]
async fn id_of_another_user_is_a_conflict() {
    let service = Durable::new().await;
    let mut admin = service.admin().await;
    let mut tokens = Vec::new();
    for name in ["anna", "bert"] {
        let settings = exacat_testkit::settings::user(name);
        call(&mut admin, id(), Operation::UserSet(Box::new(settings))).await.unwrap();
        let issue = Operation::TokenIssue {
            user: Some(crate::world::account(name)),
            lifetime_seconds: 3600,
            scope: exacat_model::Lfn::root(),
            write: true,
            note: String::new(),
        };
        match call(&mut admin, id(), issue).await.unwrap() {
            Answer::TokenIssued { secret, .. } => tokens.push(secret),
            other => panic!("{other:?}"),
        }
    }
    let mode = Some(exacat_model::Mode::parse("777").unwrap());
    call(&mut admin, id(), Operation::Mkdir { lfns: vec![lfn("/d")], parents: false, mode }).await.unwrap();
    let mut anna = service.client(Credentials::Token(Secret::new(&tokens[0]))).await;
    let mut bert = service.client(Credentials::Token(Secret::new(&tokens[1]))).await;
    let one = id();
    assert_eq!(kind(&call(&mut anna, one, register("/d/x")).await), None);
    let outcome = call(&mut bert, one, register("/d/x")).await;
    assert_eq!(kind(&outcome), Some(ErrorKind::Conflict), "{outcome:?}");
    assert_eq!(kind(&call(&mut anna, one, register("/d/x")).await), None);
}
