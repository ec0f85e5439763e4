//! Requests and their answers: pipelined, in batches, with deadlines, cancelled; and internal
//! faults.

use std::collections::BTreeMap;
use std::sync::atomic::Ordering;
use std::time::Duration;

use exacat_model::operation::{Existing, NewFile};
use exacat_model::{Answer, ErrorKind, FileRef, Operation, Revision};
use exacat_wire::native::{Batch, BatchItem, Frame, FrameType, RequestOptions, encode_request};

use crate::client::{Client, FRAME_BYTES_MAX, eventually, new_id};
use crate::world::{World, lfn};

fn stat(name: &str) -> Operation {
    Operation::Stat { lfns: vec![lfn(name)], follow: true }
}

fn wait() -> Operation {
    Operation::Changes { after: Revision(u64::MAX - 1).into(), under: None, limit: 1, wait: true }
}

#[tokio::test(flavor = "multi_thread")]
async fn pipelined_lookups_are_each_answered_once_and_looked_up_together() {
    let world = World::new().await;
    let files = world.files("/d", 500).await;
    let mut client = Client::admin(&world).await;
    let before = world.hooks.resolutions.load(Ordering::SeqCst);
    let operations = files.iter().enumerate().flat_map(|(number, file)| {
        [
            Operation::Stat { lfns: vec![file.clone()], follow: number % 2 == 0 },
            Operation::Whereis { files: vec![FileRef::Lfn(file.clone())], site: None },
            stat(&format!("/nowhere/{number}")),
        ]
    });
    let bytes = Client::pipelined(1, operations);
    client.write(&bytes).await;
    let mut answers = BTreeMap::new();
    for _ in 0..1500 {
        let (request, frame) = client.expect().await;
        match frame {
            Frame::Answer(answer) => assert!(answers.insert(request, answer).is_none(), "{request} twice"),
            other => panic!("{other:?}"),
        }
    }
    for (number, file) in files.iter().enumerate() {
        let request = 1 + 3 * number as u64;
        match &answers[&request] {
            Answer::Stats(items) => assert_eq!(items[0].as_ref().unwrap().lfn, *file),
            other => panic!("{other:?}"),
        }
        match &answers[&(request + 1)] {
            Answer::Whereis(items) => assert!(items.len() == 1 && items[0].is_ok()),
            other => panic!("{other:?}"),
        }
        match &answers[&(request + 2)] {
            Answer::Stats(items) => assert_eq!(items[0].as_ref().unwrap_err().kind, ErrorKind::NotFound),
            other => panic!("{other:?}"),
        }
    }
    let walks = world.hooks.resolutions.load(Ordering::SeqCst) - before;
    assert!(walks < 500, "{walks} calls of the store for 1500 look-ups");
    assert!(world.figure("server", "coalesced_requests").await > 1000);
    assert_eq!(world.figure("operations", "stat_requests").await, 1000);
}

/// Goal: each of many pipelined registrations of one file is answered once, whatever its kind and
/// outcome. The server runs them together.
#[tokio::test(flavor = "multi_thread")]
async fn pipelined_registrations_are_each_answered_once_and_carried_out_together() {
    let world = World::new().await;
    world.directory("/d").await;
    let mut client = Client::admin(&world).await;
    let register = |path: String, parents: bool, existing: Existing| {
        let files = vec![NewFile::named(lfn(&path))];
        Operation::Register { files, parents, existing }
    };
    let operations = (0..900).map(|number| match number {
        0..600 => register(format!("/d/{number}"), false, Existing::Refuse),
        // They exist already, or soon.
        600..700 => register(format!("/d/{}", number - 600), false, Existing::Refuse),
        700..800 => register(format!("/d/{}", number - 600), true, Existing::Same),
        _ => register(format!("/none/{number}"), false, Existing::Refuse),
    });
    let bytes = Client::pipelined(1, operations);
    client.write(&bytes).await;
    let mut came = BTreeMap::new();
    for _ in 0..900 {
        let (request, frame) = client.expect().await;
        let Frame::Answer(Answer::Registered(items)) = frame else { panic!("{frame:?}") };
        assert!(came.insert(request - 1, items).is_none(), "{request} twice");
    }
    let mut done = vec![0; 600];
    for (number, items) in came {
        let [item] = &items[..] else { panic!("{items:?}") };
        match (number as usize, item) {
            (number @ 0..800, Ok(_)) => done[number % 600] += 1,
            (0..700, Err(error)) => assert_eq!(error.kind, ErrorKind::Exists, "{number}"),
            (800.., Err(error)) => assert_eq!(error.kind, ErrorKind::NotFound, "{number}"),
            _ => panic!("{number}: {item:?}"),
        }
    }
    // Of two requests for one name one created it; a repeated request succeeds too.
    for (name, done) in done.into_iter().enumerate() {
        assert!(done == 1 || (100..200).contains(&name) && done == 2, "{name}: {done}");
    }
    let Answer::Usages(items) = world.admin(Operation::Du { lfns: vec![lfn("/d")] }).await else { panic!() };
    assert_eq!(items[0].as_ref().unwrap().files, 600);
    assert!(world.figure("server", "coalesced_requests").await > 500);
    assert_eq!(world.figure("operations", "register_requests").await, 900);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_batch_is_answered_in_order_whatever_is_in_it() {
    let world = World::new().await;
    world.files("/d", 2).await;
    let mut client = Client::admin(&world).await;
    let item = |operation: Operation| BatchItem { operation_id: operation.writes().then(new_id), operation };
    let items = vec![
        item(stat("/d/f000000")),
        item(Operation::Mkdir { lfns: vec![lfn("/new")], parents: false, mode: None }),
        item(stat("/missing")),
        item(Operation::List { lfn: lfn("/d"), cursor: Default::default(), limit: 10 }),
        item(Operation::Move { from: lfn("/missing"), to: lfn("/other") }),
        item(Operation::Whoami),
        item(stat("/d/f000001")),
    ];
    let count = items.len();
    client.send(9, Frame::Batch(Batch { deadline_ms: None, consistency: None, past: None, items })).await;
    match client.expect().await {
        (9, Frame::AnswerBatch(batch)) => {
            assert_eq!((batch.first, batch.answers.len()), (0, count));
            let mut answers = batch.answers.into_iter();
            let mut next = || answers.next().unwrap();
            assert!(matches!(next(), Ok(Answer::Stats(items)) if items[0].is_ok()));
            assert!(matches!(next(), Ok(Answer::EachDone(items)) if items == [Ok(())]));
            assert!(matches!(next(), Ok(Answer::Stats(items)) if items[0].is_err()));
            assert!(matches!(next(), Ok(Answer::Entries { items, .. }) if items.len() == 2));
            assert_eq!(next().unwrap_err().kind, ErrorKind::NotFound);
            assert!(matches!(next(), Ok(Answer::Whoami { .. })));
            assert!(matches!(next(), Ok(Answer::Stats(items)) if items[0].is_ok()));
        }
        other => panic!("{other:?}"),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn batches_of_lookups_only_are_answered_too() {
    let world = World::new().await;
    let files = world.files("/d", 1000).await;
    let mut client = Client::admin(&world).await;
    for round in 1..20u64 {
        let items = files
            .iter()
            .map(|file| BatchItem {
                operation_id: None,
                operation: Operation::Whereis { files: vec![FileRef::Lfn(file.clone())], site: None },
            })
            .collect();
        client
            .send(round, Frame::Batch(Batch { deadline_ms: None, consistency: None, past: None, items }))
            .await;
    }
    let mut answered = BTreeMap::<u64, usize>::new();
    while answered.values().sum::<usize>() < 19 * 1000 {
        match client.expect().await {
            (round, Frame::AnswerBatch(batch)) => {
                assert_eq!(*answered.entry(round).or_default(), batch.first as usize);
                assert!(
                    batch
                        .answers
                        .iter()
                        .all(|answer| matches!(answer, Ok(Answer::Whereis(items)) if items[0].is_ok()))
                );
                *answered.entry(round).or_default() += batch.answers.len();
            }
            other => panic!("{other:?}"),
        }
    }
    assert!(answered.values().all(|count| *count == 1000));
}

#[tokio::test(flavor = "multi_thread")]
async fn many_writes_of_one_connection_are_in_flight_together() {
    let world = World::new().await;
    world.directory("/d").await;
    let mut client = Client::admin(&world).await;
    let operations = (0..200).map(|number| Operation::Register {
        files: vec![NewFile::named(lfn(&format!("/d/{number}")))],
        parents: false,
        existing: Existing::Refuse,
    });
    let before = world.hooks.applies_begun.load(Ordering::SeqCst);
    world.hooks.hold_applies.send_replace(true);
    client.write(&Client::pipelined(1, operations)).await;
    eventually("200 writes to be in the store together", || {
        world.hooks.applies_begun.load(Ordering::SeqCst) - before >= 200
    })
    .await;
    // None of them delays a look-up.
    let request = 1000;
    client.write(&Client::pipelined(request, [stat("/d")])).await;
    client.outcome(request).await.unwrap();
    world.hooks.hold_applies.send_replace(false);
    let mut seen = std::collections::BTreeSet::new();
    for _ in 0..200 {
        let (request, frame) = client.expect().await;
        assert!(seen.insert(request));
        match frame {
            Frame::Answer(Answer::Registered(items)) => assert!(items[0].is_ok()),
            other => panic!("{other:?}"),
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_body_that_means_nothing_spoils_only_its_request() {
    let world = World::new().await;
    let mut client = Client::admin(&world).await;
    let mut bytes = Vec::new();
    encode_request(&mut bytes, FRAME_BYTES_MAX, 5, &RequestOptions::default(), &stat("/")).unwrap();
    let last = bytes.len() - 1;
    bytes[last] = 77;
    client.write(&bytes).await;
    assert_eq!(client.outcome(5).await.unwrap_err().kind, ErrorKind::Invalid);
    client.call(Operation::Whoami).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_number_in_flight_cannot_be_used_again() {
    let world = World::new().await;
    let mut client = Client::admin(&world).await;
    client.write(&Client::pipelined(3, [wait()])).await;
    client.write(&Client::pipelined(3, [wait()])).await;
    match client.expect().await {
        (0, Frame::Error(error)) => assert_eq!(error.kind, ErrorKind::Invalid),
        other => panic!("{other:?}"),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_deadline_ends_the_wait() {
    let world = World::new().await;
    let mut client = Client::admin(&world).await;
    for deadline_ms in [0, 20] {
        let options = RequestOptions { deadline_ms: Some(deadline_ms), ..Default::default() };
        let request = client.ask_with(options, wait()).await;
        let error = client.outcome(request).await.unwrap_err();
        assert_eq!(error.kind, ErrorKind::Unavailable, "{error}");
    }
    let options = RequestOptions { deadline_ms: Some(0), ..Default::default() };
    let request = client.ask_with(options, stat("/")).await;
    assert_eq!(client.outcome(request).await.unwrap_err().kind, ErrorKind::Unavailable);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_deadline_of_a_write_that_was_begun_leaves_it_unknown_and_asking_again_tells() {
    let world = World::new().await;
    let mut client = Client::admin(&world).await;
    let before = world.hooks.applies_begun.load(Ordering::SeqCst);
    world.hooks.hold_applies.send_replace(true);
    let mkdir = Operation::Mkdir { lfns: vec![lfn("/made")], parents: false, mode: None };
    let options =
        RequestOptions { operation_id: Some(new_id()), deadline_ms: Some(50), ..Default::default() };
    let request = client.ask_with(options, mkdir.clone()).await;
    let error = client.outcome(request).await.unwrap_err();
    assert_eq!(error.kind, ErrorKind::Unknown, "{error}");
    assert!(world.hooks.applies_begun.load(Ordering::SeqCst) > before);
    world.hooks.hold_applies.send_replace(false);
    let again = RequestOptions { deadline_ms: None, ..options };
    let request = client.ask_with(again, mkdir).await;
    assert!(matches!(client.outcome(request).await, Ok(Answer::EachDone(items)) if items == [Ok(())]));
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_cancelled_is_answered_all_the_same() {
    let world = World::new().await;
    let mut client = Client::admin(&world).await;
    let request = client.ask(wait()).await;
    client.send(request, Frame::Cancel).await;
    assert_eq!(client.outcome(request).await.unwrap_err().kind, ErrorKind::Unavailable);
    // The server ignores a cancel that comes too late.
    client.send(request, Frame::Cancel).await;
    client.send(request, Frame::Credit { parts: 3 }).await;
    client.call(Operation::Whoami).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_wait_is_woken_by_a_change() {
    let world = World::new().await;
    let mut client = Client::admin(&world).await;
    let revision = world.server.catalogue().store().revision().await.unwrap();
    let changes = Operation::Changes { after: revision.into(), under: None, limit: 10, wait: true };
    let request = client.ask(changes).await;
    world.directory("/new").await;
    match client.outcome(request).await.unwrap() {
        Answer::Changes { items, .. } => assert_eq!(items.len(), 1),
        other => panic!("{other:?}"),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_panic_is_the_requests_and_not_the_servers() {
    let world = World::new().await;
    world.files("/d", 1).await;
    world.hooks.panics.lock().insert(lfn("/d/f000000"));
    let mut client = Client::admin(&world).await;
    let operations = [
        stat("/d/f000000"),
        Operation::Mkdir { lfns: vec![lfn("/d/f000000/x")], parents: false, mode: None },
        Operation::List { lfn: lfn("/d/f000000"), cursor: Default::default(), limit: 1 },
    ];
    world.hooks.panics.lock().insert(lfn("/d/f000000/x"));
    for operation in operations {
        let name = operation.name();
        let error = client.call(operation).await.unwrap_err();
        assert_eq!(error.kind, ErrorKind::Internal, "{name}");
        assert!(!error.message.contains("secret"), "the inside is not told: {error}");
        assert!(error.message.contains("report it"), "{error}");
    }
    client.call(stat("/d")).await.unwrap();
    assert_eq!(world.figure("server", "request_panics").await, 3);
}

#[tokio::test(flavor = "multi_thread")]
async fn goodbye_lets_what_is_in_flight_end() {
    let world = World::new().await;
    let mut client = Client::admin(&world).await;
    let before = world.hooks.applies_begun.load(Ordering::SeqCst);
    world.hooks.hold_applies.send_replace(true);
    let request = client.ask(Operation::Mkdir { lfns: vec![lfn("/a")], parents: false, mode: None }).await;
    client.send(0, Frame::Goodbye { reason: "done".into() }).await;
    eventually("the write to be begun", || world.hooks.applies_begun.load(Ordering::SeqCst) > before).await;
    world.hooks.hold_applies.send_replace(false);
    client.outcome(request).await.unwrap();
    assert_eq!(client.next().await, None);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_only_a_server_says_ends_the_conversation() {
    let world = World::new().await;
    for frame in [Frame::End { parts: 1 }, Frame::Answer(Answer::Done { revision: Revision(1) })] {
        assert_ne!(frame.frame_type(), FrameType::Request);
        let mut client = Client::admin(&world).await;
        client.send(1, frame).await;
        assert_eq!(client.expect_refusal().await.kind, ErrorKind::Invalid);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_closes_its_end_still_gets_its_answers() {
    use tokio::io::AsyncWriteExt;
    let world = World::new().await;
    let mut client = Client::admin(&world).await;
    let request = client.ask(Operation::Mkdir { lfns: vec![lfn("/a")], parents: false, mode: None }).await;
    client.stream.shutdown().await.unwrap();
    client.outcome(request).await.unwrap();
    assert_eq!(client.next().await, None);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_answer_too_long_for_a_frame_is_an_error_and_not_a_broken_connection() {
    let world = World::with_limits(|limits| {
        limits.frame_bytes_max = exacat_wire::native::limits::FRAME_BYTES_MAX_LEAST;
        limits.deadline_max = Duration::from_secs(60);
    })
    .await;
    world.files("/d", 2000).await;
    let mut client = Client::admin(&world).await;
    let list = Operation::List { lfn: lfn("/d"), cursor: Default::default(), limit: 2000 };
    assert_eq!(client.call(list).await.unwrap_err().kind, ErrorKind::Limit);
    client.call(Operation::Whoami).await.unwrap();
}

/// Goal: a store that makes a look-up wait delays neither the connection nor other requests.
#[tokio::test(flavor = "multi_thread")]
async fn lookups_that_have_to_wait_are_answered_when_they_can_be() {
    let world = World::new().await;
    let files = world.files("/d", 10).await;
    let mut client = Client::admin(&world).await;
    world.hooks.hold_walks.send_replace(true);
    let operations = files.iter().map(|file| Operation::Stat { lfns: vec![file.clone()], follow: true });
    client.write(&Client::pipelined(1, operations)).await;
    let item = |operation: Operation| BatchItem { operation_id: None, operation };
    let items = vec![
        item(stat("/d/f000000")),
        item(Operation::Whoami),
        item(Operation::Lfns { guids: Vec::new() }),
        item(stat("/missing")),
    ];
    client
        .send(
            100,
            Frame::Batch(Batch { deadline_ms: None, consistency: None, past: None, items: items.clone() }),
        )
        .await;
    client
        .send(
            101,
            Frame::Batch(Batch {
                deadline_ms: None,
                consistency: None,
                past: None,
                items: vec![items[0].clone(), items[2].clone()],
            }),
        )
        .await;
    let whoami = 200;
    client.write(&Client::pipelined(whoami, [Operation::Whoami])).await;
    client.outcome(whoami).await.unwrap();
    world.hooks.hold_walks.send_replace(false);
    let mut ended = std::collections::BTreeSet::new();
    for _ in 0..12 {
        let (request, frame) = client.expect().await;
        match frame {
            Frame::Answer(Answer::Stats(items)) => assert!(items[0].is_ok()),
            Frame::AnswerBatch(batch) if request == 100 => {
                assert_eq!(batch.answers.len(), 4);
                assert!(matches!(&batch.answers[0], Ok(Answer::Stats(items)) if items[0].is_ok()));
                assert!(matches!(&batch.answers[1], Ok(Answer::Whoami { .. })));
                assert!(matches!(&batch.answers[2], Ok(Answer::Lfns(items)) if items.is_empty()));
                assert!(matches!(&batch.answers[3], Ok(Answer::Stats(items)) if items[0].is_err()));
            }
            Frame::AnswerBatch(batch) => assert_eq!((request, batch.answers.len()), (101, 2)),
            other => panic!("{other:?}"),
        }
        assert!(ended.insert(request), "{request} twice");
    }
    // Nothing is left in flight: the numbers are free again.
    client.write(&Client::pipelined(1, [wait()])).await;
    client.send(1, Frame::Cancel).await;
    assert_eq!(client.outcome(1).await.unwrap_err().kind, ErrorKind::Unavailable);
}
