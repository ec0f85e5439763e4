//! Requests about past states: they read, and nothing else takes them.

use exacat_model::operation::{Cursor, FileRef};
use exacat_model::{Answer, Error, ErrorKind, Filter, Operation, Past, PastPoint, Revision};
use exacat_wire::native::{Batch, BatchItem, Frame, Hello, RequestOptions, features};

use crate::client::{Client, new_id};
use crate::world::{World, lfn};

fn at(revision: Revision) -> Option<Past> {
    Some(Past::at(PastPoint::Revision(revision.into())))
}

fn about(past: Option<Past>) -> RequestOptions {
    RequestOptions { past, ..RequestOptions::default() }
}

fn stat(name: &str) -> Operation {
    Operation::Stat { lfns: vec![lfn(name)], follow: false }
}

fn mkdir(name: &str) -> Operation {
    Operation::Mkdir { lfns: vec![lfn(name)], parents: false, mode: None }
}

async fn revision(world: &World) -> Revision {
    world.server.catalogue().store().revision().await.unwrap()
}

/// Reads answer of the state then; streams and pages go on in it while the present one changes.
#[tokio::test(flavor = "multi_thread")]
async fn reads_pages_and_streams_are_of_the_past_state() {
    let world = World::embedded().await;
    world.files("/d", 130).await;
    let then = revision(&world).await;
    let mut client = Client::admin(&world).await;
    let page = |cursor| Operation::List { lfn: lfn("/d"), cursor, limit: 50 };
    let request = client.ask_with(about(at(then)), page(Cursor::default())).await;
    let Answer::Entries { items, next, .. } = client.outcome(request).await.unwrap() else {
        panic!("a page")
    };
    assert_eq!(items.len(), 50);
    let remove = Operation::Remove { lfn: lfn("/d"), recursive: true, directory: false };
    client.call(remove).await.unwrap();
    assert!(
        matches!(&client.call(page(Cursor::default())).await, Err(error) if error.kind == ErrorKind::NotFound)
    );
    let request = client.ask_with(about(at(then)), page(next.unwrap())).await;
    let Answer::Entries { items, .. } = client.outcome(request).await.unwrap() else { panic!("a page") };
    assert_eq!(items[0].lfn, lfn("/d/f000050"));
    assert_eq!(world.figure("server", "past_states").await, 1);
    let options = RequestOptions { stream: Some(100), ..about(at(then)) };
    let filter = Box::new(Filter::default());
    let find = Operation::Find { lfn: lfn("/"), filter, cursor: Cursor::default(), limit: 40 };
    let request = client.ask_with(options, find).await;
    let mut names = 0;
    loop {
        match client.expect().await {
            (id, Frame::Part(Answer::Entries { items, .. })) if id == request => names += items.len(),
            (id, Frame::End { .. }) if id == request => break,
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(names, 131);
    let whereis = Operation::Whereis { files: vec![FileRef::Lfn(lfn("/d/f000001"))], site: None };
    for operation in [stat("/d/f000001"), whereis, Operation::Du { lfns: vec![lfn("/d")] }, Operation::SeList]
    {
        let request = client.ask_with(about(at(then)), operation).await;
        match client.outcome(request).await.unwrap() {
            Answer::Stats(items) => assert!(items[0].is_ok()),
            Answer::Whereis(items) => assert!(items[0].is_ok()),
            Answer::Usages(items) => assert_eq!(items[0].as_ref().unwrap().files, 130),
            Answer::Ses(items) => assert!(items.is_empty()),
            other => panic!("{other:?}"),
        }
    }
}

/// Every other operation is refused, alone and in a batch, and changes nothing; the others of the batch
/// are answered.
#[tokio::test(flavor = "multi_thread")]
async fn other_operations_about_the_past_are_refused_and_change_nothing() {
    let world = World::embedded().await;
    world.directory("/d").await;
    let then = revision(&world).await;
    let mut client = Client::admin(&world).await;
    let file = exacat_model::operation::NewFile::named(lfn("/d/f"));
    let register = Operation::Register {
        files: vec![file],
        parents: false,
        existing: exacat_model::operation::Existing::Refuse,
    };
    let log = Operation::Log { lfn: lfn("/d"), cursor: Cursor::default(), limit: 1 };
    let lfns = Operation::Lfns { guids: Vec::new() };
    let refused =
        [mkdir("/e"), register, log, lfns, Operation::Whoami, Operation::Status, Operation::SnapshotList];
    let is_refusal =
        |error: &Error| error.kind == ErrorKind::Invalid && error.message.contains("the present only");
    for operation in &refused {
        let operation_id = operation.writes().then(new_id);
        let options = RequestOptions { operation_id, ..about(at(then)) };
        let request = client.ask_with(options, operation.clone()).await;
        let error = client.outcome(request).await.unwrap_err();
        assert!(is_refusal(&error), "{}: {error}", operation.name());
    }
    let mut items: Vec<BatchItem> = refused
        .iter()
        .map(|operation| BatchItem {
            operation_id: operation.writes().then(new_id),
            operation: operation.clone(),
        })
        .collect();
    items.push(BatchItem { operation_id: None, operation: stat("/d") });
    let batch = Batch { deadline_ms: None, consistency: None, past: at(then), items };
    client.send(900, Frame::Batch(batch)).await;
    let mut answers = Vec::new();
    while answers.len() < refused.len() + 1 {
        match client.expect().await {
            (900, Frame::AnswerBatch(part)) => answers.extend(part.answers),
            other => panic!("{other:?}"),
        }
    }
    assert!(matches!(answers.pop(), Some(Ok(Answer::Stats(_)))));
    assert!(answers.iter().all(|answer| matches!(answer, Err(error) if is_refusal(error))), "{answers:?}");
    assert_eq!(revision(&world).await, then, "nothing was changed");
}

/// A point without a state, too many changes for the request, and a store without a past are refused.
#[tokio::test(flavor = "multi_thread")]
async fn points_without_a_state_are_refused() {
    let world = World::embedded().await;
    world.directory("/d").await;
    let last = revision(&world).await;
    let mut client = Client::admin(&world).await;
    let point = PastPoint::Revision(last.into());
    for (past, kind) in [
        (Past::at(PastPoint::Revision(Revision(last.0 + 1).into())), ErrorKind::NotFound),
        (Past { point, changes_max: last.0 - 1 }, ErrorKind::Limit),
        (Past::at(format!("{}.00000000", last.0).parse().unwrap()), ErrorKind::Conflict),
    ] {
        let request = client.ask_with(about(Some(past)), stat("/d")).await;
        assert_eq!(client.outcome(request).await.unwrap_err().kind, kind, "{past:?}");
    }
    let request = client.ask_with(about(Some(Past { point, changes_max: last.0 })), stat("/d")).await;
    client.outcome(request).await.unwrap();
    let plain = World::new().await;
    let mut client = Client::admin(&plain).await;
    let request = client.ask_with(about(at(Revision(1))), stat("/")).await;
    let refused = client.outcome(request).await.unwrap_err();
    assert!(refused.kind == ErrorKind::Invalid && refused.message.contains("past states need"), "{refused}");
}

/// A past state is said only where both know of it: otherwise the connection ends.
#[tokio::test(flavor = "multi_thread")]
async fn past_state_without_its_feature_ends_the_connection() {
    let world = World::embedded().await;
    let mut client = Client::connect(&world).await;
    let known = features::ALL & !features::PAST;
    client.send(0, Frame::Hello(Hello { features: known, ..Hello::new("test/1") })).await;
    assert!(matches!(client.expect().await, (0, Frame::HelloAck(ack)) if ack.features & features::PAST == 0));
    client.authenticate(exacat_wire::native::Credentials::Local).await.unwrap();
    client.ask_with(about(at(Revision(1))), stat("/")).await;
    let refusal = client.expect_refusal().await;
    assert!(refusal.message.contains("past state"), "{refusal}");
}
