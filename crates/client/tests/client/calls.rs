//! Calls: answered in any order, retried by outcome with the same operation id, bounded, with a
//! truthful error at the deadline.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use crate::fake::{
    Fake, PATIENCE, bytes, done, error, eventually, hello_ack, identity, lfn, limits, outcome, settings,
};
use exacat_client::{CallOptions, Client, ClientSettings, Credentials};
use exacat_model::{Answer, Error, ErrorKind, Guid, Lfn, Operation, OperationId, Usage};
use exacat_wire::native::{AnswerBatch, Frame, Limits};
use parking_lot::Mutex;

fn mkdir(name: &str) -> Operation {
    Operation::Mkdir { lfns: vec![lfn(name)], parents: false, mode: None }
}

fn du(name: &str) -> Operation {
    Operation::Du { lfns: vec![lfn(name)] }
}

/// Makes an answer that shows the request.
fn echo(operation: &Operation) -> Result<Answer, Error> {
    let lfns = match operation {
        Operation::Du { lfns } | Operation::Mkdir { lfns, .. } | Operation::Stat { lfns, .. } => lfns.clone(),
        Operation::Whereis { .. } | Operation::Lfns { .. } => vec![],
        other => panic!("not expected: {other:?}"),
    };
    Ok(Answer::Lfns(lfns.into_iter().map(Ok).collect()))
}

/// Makes many look-ups at the same time; each gets its own answer.
async fn look_up_at_once(client: &Client, count: usize) {
    let calls = (0..count).map(|n| async move {
        let name = lfn(&format!("/d{n}"));
        let operation = Operation::Stat { lfns: vec![name.clone()], follow: true };
        assert_eq!(client.call(operation).await, Ok(Answer::Lfns(vec![Ok(name)])));
    });
    futures::future::join_all(calls).await;
}

#[tokio::test]
async fn answers_may_come_in_any_order() {
    let fake = Fake::serve(|_, mut conn| async move {
        conn.greet().await;
        let mut asked = Vec::new();
        while asked.len() < 50 {
            let (request, _, operation) = conn.operation().await.unwrap();
            asked.push((request, operation));
        }
        for (request, operation) in asked.into_iter().rev() {
            conn.send(request, outcome(echo(&operation))).await;
        }
        conn.asked().await;
    });
    let client = fake.client().await;
    let calls = (0..50).map(|n| {
        let client = client.clone();
        async move {
            let name = format!("/d{n}");
            assert_eq!(client.call(du(&name)).await, Ok(Answer::Lfns(vec![Ok(lfn(&name))])));
        }
    });
    futures::future::join_all(calls).await;
    assert_eq!(fake.connections(), 1);
}

/// The most productive fault: the answer is lost, before or after the operation was done. The
/// client retries with the same id, so the operation is done once, and the client gets the first
/// answer.
#[tokio::test]
async fn a_write_whose_answer_is_lost_is_asked_again_with_the_same_id() {
    for cut in ["before it is done", "after it is done", "inside the answer", "after a connection error"] {
        let applied: Arc<Mutex<HashMap<OperationId, u64>>> = Arc::default();
        let asked = Arc::new(AtomicUsize::new(0));
        let (state, count) = (applied.clone(), asked.clone());
        let fake = Fake::serve(move |number, mut conn| {
            let (state, count) = (state.clone(), count.clone());
            async move {
                conn.greet().await;
                let Some((request, id, operation)) = conn.operation().await else { return };
                assert!(matches!(operation, Operation::Mkdir { .. }));
                count.fetch_add(1, Ordering::SeqCst);
                if number < 2 && cut == "before it is done" {
                    return;
                }
                let revision = {
                    let mut applied = state.lock();
                    let next = applied.len() as u64 + 1;
                    *applied.entry(id.unwrap()).or_insert(next)
                };
                let answer = bytes(request, &outcome(Ok(done(revision))));
                if number < 2 {
                    match cut {
                        "inside the answer" => conn.send_bytes(&answer[..answer.len() - 1]).await,
                        "after a connection error" => {
                            conn.send(0, Frame::Error(error(ErrorKind::Internal))).await
                        }
                        _ => {}
                    }
                    return;
                }
                conn.send_bytes(&answer).await;
                conn.asked().await;
            }
        });
        let client = fake.client().await;
        assert_eq!(client.call(mkdir("/d")).await, Ok(done(1)), "{cut}");
        assert_eq!(applied.lock().len(), 1, "{cut}: one operation id");
        assert_eq!((asked.load(Ordering::SeqCst), fake.connections()), (3, 3), "{cut}");
    }
}

#[tokio::test]
async fn what_may_help_is_asked_again_and_nothing_else() {
    for kind in ErrorKind::ALL {
        for operation in [mkdir("/d"), du("/d"), Operation::Stat { lfns: vec![lfn("/d")], follow: false }] {
            let ids: Arc<Mutex<Vec<Option<OperationId>>>> = Arc::default();
            let fake = Fake::serve_with(&ids, move |seen, _, mut conn| async move {
                conn.greet().await;
                while let Some((request, id, operation)) = conn.operation().await {
                    seen.lock().push(id);
                    let refused = seen.lock().len() <= 3;
                    let answer = if refused { Err(error(kind)) } else { echo(&operation) };
                    conn.send(request, outcome(answer)).await;
                }
            });
            let client = fake.client().await;
            let answer = client.call(operation.clone()).await;
            let ids = ids.lock().clone();
            match kind {
                ErrorKind::Busy | ErrorKind::Unavailable | ErrorKind::Unknown => {
                    assert_eq!(answer, echo(&operation), "{kind}");
                    assert_eq!(ids.len(), 4);
                }
                _ => {
                    assert_eq!(answer, Err(error(kind)));
                    assert_eq!(ids.len(), 1, "{kind} is asked once");
                }
            }
            assert!(ids.iter().all(|id| id == &ids[0] && id.is_some() == operation.writes()));
            assert_eq!(fake.connections(), 1);
        }
    }
}

/// With a server that never answers, a write that was sent and may have been done is unknown; all
/// else is not done.
#[tokio::test]
async fn at_the_deadline_the_error_says_what_is_known() {
    let cancelled = Arc::new(AtomicUsize::new(0));
    let fake = Fake::serve_with(&cancelled, |count, _, mut conn| async move {
        conn.greet().await;
        while let Some((_, frame)) = conn.asked().await {
            if frame == Frame::Cancel {
                count.fetch_add(1, Ordering::SeqCst);
            }
        }
    });
    let client = fake.client().await;
    let soon = |operation_id| CallOptions { deadline: Some(Duration::from_millis(100)), operation_id };
    let id = OperationId([0xcd; 16]);
    let unknown = client.call_with(mkdir("/d"), soon(Some(id))).await.unwrap_err();
    assert_eq!(unknown.kind, ErrorKind::Unknown);
    assert!(unknown.message.contains(&"cd".repeat(16)), "{unknown}");
    let read = client.call_with(du("/d"), soon(None)).await.unwrap_err();
    assert_eq!(read.kind, ErrorKind::Unavailable);
    let batch = client.call_batch_with(vec![mkdir("/d"), du("/d")], soon(None)).await.unwrap();
    let kinds: Vec<ErrorKind> = batch.into_iter().map(|answer| answer.unwrap_err().kind).collect();
    assert_eq!(kinds, [ErrorKind::Unknown, ErrorKind::Unavailable]);
    // The client tells the server that it no longer waits.
    eventually("three cancels", || cancelled.load(Ordering::SeqCst) == 3).await;
    assert!(client.call_with(du("/d"), soon(Some(id))).await.is_err(), "a read has no operation id");
}

#[tokio::test]
async fn what_was_never_sent_was_certainly_not_done() {
    let fake = Fake::serve(|number, mut conn| async move {
        if number == 0 {
            conn.greet().await;
        }
    });
    let client = fake.client().await;
    // The first connection is closed, and no further one is greeted.
    eventually("the loss is seen", || fake.connections() == 1).await;
    tokio::time::timeout(PATIENCE, async {
        loop {
            let options = CallOptions { deadline: Some(Duration::from_millis(150)), operation_id: None };
            let kind = client.call_with(mkdir("/d"), options).await.unwrap_err().kind;
            if kind == ErrorKind::Unavailable {
                break;
            }
            // Only a call that used the first connection at its end may be unknown.
            assert_eq!(kind, ErrorKind::Unknown);
        }
    })
    .await
    .unwrap();
}

/// Goal: a write that waited behind another when the connection was lost was not sent, and its
/// error says so. Method: the driver takes all from the queue together. The first is so long that
/// its write does not finish until the server closes.
#[tokio::test]
async fn what_waited_behind_a_stuck_write_was_certainly_not_done() {
    let fake = Fake::serve(|number, mut conn| async move {
        if number == 0 {
            conn.greet().await;
            conn.stream.readable().await.unwrap();
        }
    });
    let client = fake.client().await;
    let long = Operation::Mkdir {
        lfns: vec![lfn(&format!("/{}", "x".repeat(200))); 4000],
        parents: true,
        mode: None,
    };
    let operations = std::iter::once(long).chain((0..5).map(|n| mkdir(&format!("/d{n}"))));
    let calls = operations.map(|operation| {
        let options = CallOptions { deadline: Some(Duration::from_millis(300)), operation_id: None };
        client.call_with(operation, options)
    });
    let kinds: Vec<ErrorKind> =
        futures::future::join_all(calls).await.into_iter().map(|answer| answer.unwrap_err().kind).collect();
    assert_eq!(kinds[0], ErrorKind::Unknown, "a part of it was sent");
    assert_eq!(kinds[1..], [ErrorKind::Unavailable; 5]);
}

#[tokio::test]
async fn busy_for_ever_is_busy() {
    let fake = Fake::serve(|_, mut conn| async move {
        conn.greet().await;
        conn.answer_all(|_| Err(error(ErrorKind::Busy))).await;
    });
    let client = fake.client().await;
    // The deadline may pass while an answer is on its way; then the outcome is rightly unknown.
    for _ in 0..100 {
        let options = CallOptions { deadline: Some(Duration::from_millis(100)), operation_id: None };
        match client.call_with(mkdir("/d"), options).await.unwrap_err().kind {
            ErrorKind::Busy => return,
            kind => assert_eq!(kind, ErrorKind::Unknown),
        }
    }
    panic!("no call ends as busy");
}

#[tokio::test]
async fn requests_in_flight_are_bounded_by_the_server() {
    let most = Arc::new(AtomicUsize::new(0));
    let fake = Fake::serve_with(&most, |seen, _, mut conn| async move {
        conn.greet_as(hello_ack(Limits { requests_in_flight_max: 4, ..limits() })).await;
        let mut open = Vec::new();
        let mut answered = 0;
        while answered < 40 {
            // Takes all requests; when none arrives for 20 ms, answers one.
            match tokio::time::timeout(Duration::from_millis(20), conn.operation()).await {
                Ok(Some((request, _, operation))) => open.push((request, operation)),
                Ok(None) => return,
                Err(_) => {
                    seen.fetch_max(open.len(), Ordering::SeqCst);
                    let (request, operation) = open.remove(0);
                    conn.send(request, outcome(echo(&operation))).await;
                    answered += 1;
                }
            }
        }
        conn.asked().await;
    });
    let client = fake.client().await;
    let calls = (0..40).map(|n| {
        let client = client.clone();
        async move { client.call(du(&format!("/d{n}"))).await.unwrap() }
    });
    futures::future::join_all(calls).await;
    assert_eq!(most.load(Ordering::SeqCst), 4, "exactly as many as allowed");
}

/// Concurrent look-ups travel together and are separated again.
#[tokio::test]
async fn concurrent_look_ups_share_frames() {
    let frames = Arc::new(AtomicUsize::new(0));
    let fake = Fake::serve_with(&frames, |count, _, mut conn| async move {
        conn.greet().await;
        while let Some((request, frame)) = conn.asked().await {
            count.fetch_add(1, Ordering::SeqCst);
            match frame {
                Frame::Request(asked) => conn.send(request, outcome(echo(&asked.operation))).await,
                Frame::Batch(batch) => {
                    assert!(batch.items.len() <= 50, "within the server's limit");
                    let answers: Vec<_> = batch.items.iter().map(|item| echo(&item.operation)).collect();
                    // In two frames, like a server with long answers.
                    let (one, two) = answers.split_at(answers.len() / 2);
                    for (first, answers) in [(0, one), (one.len(), two)] {
                        let batch = AnswerBatch { first: first as u32, answers: answers.to_vec() };
                        conn.send(request, Frame::AnswerBatch(batch)).await;
                    }
                }
                other => panic!("not expected: {other:?}"),
            }
        }
    });
    let client = fake.client().await;
    look_up_at_once(&client, 100).await;
    assert!(frames.load(Ordering::SeqCst) <= 20, "{} frames for 100 calls", frames.load(Ordering::SeqCst));
}

#[tokio::test]
async fn look_ups_that_share_a_frame_share_its_fate_and_are_asked_again() {
    let fake = Fake::serve(|number, mut conn| async move {
        conn.greet().await;
        match number {
            // A lost connection, an error for the whole frame, then answers.
            0 => drop(conn.asked().await),
            _ => {
                let (request, _) = conn.asked().await.unwrap();
                conn.send(request, Frame::Error(error(ErrorKind::Busy))).await;
                conn.answer_all(echo).await;
            }
        }
    });
    let client = fake.client().await;
    look_up_at_once(&client, 20).await;
    assert_eq!(fake.connections(), 2);
}

/// Batches that arrived.
type Arrived = Arc<Mutex<Vec<Vec<(Option<OperationId>, Operation)>>>>;

/// The client retries only the unanswered operations of a batch, with the same ids.
#[tokio::test]
async fn a_batch_is_asked_again_in_part() {
    let seen: Arrived = Arc::default();
    let fake = Fake::serve_with(&seen, |log, number, mut conn| async move {
        conn.greet().await;
        while let Some((request, frame)) = conn.asked().await {
            let Frame::Batch(batch) = frame else { panic!("not a batch: {frame:?}") };
            let items: Vec<_> =
                batch.items.into_iter().map(|item| (item.operation_id, item.operation)).collect();
            let round = log.lock().len();
            log.lock().push(items.clone());
            let answers = items.iter().enumerate().map(|(place, (_, operation))| match (round, place) {
                (0, place) if place % 3 == 0 => Err(error(ErrorKind::Busy)),
                (0, 1) => Err(error(ErrorKind::Exists)),
                _ => echo(operation),
            });
            let batch = AnswerBatch { first: 0, answers: answers.collect() };
            // The second round is lost on the way.
            if round == 1 && number == 0 {
                return;
            }
            conn.send(request, Frame::AnswerBatch(batch)).await;
        }
    });
    let client = fake.client().await;
    let operations: Vec<Operation> = (0..10).map(|n| mkdir(&format!("/d{n}"))).collect();
    let answers = client.call_batch(operations.clone()).await.unwrap();
    for (place, answer) in answers.iter().enumerate() {
        match place {
            1 => assert_eq!(*answer, Err(error(ErrorKind::Exists))),
            _ => assert_eq!(*answer, echo(&operations[place])),
        }
    }
    let rounds = seen.lock().clone();
    assert_eq!(rounds.iter().map(Vec::len).collect::<Vec<_>>(), [10, 4, 4]);
    let again: Vec<_> = [0, 3, 6, 9].iter().map(|place: &usize| rounds[0][*place].clone()).collect();
    assert_eq!(rounds[1], again);
    assert_eq!(rounds[2], again);
}

#[tokio::test]
async fn a_batch_is_cut_to_the_servers_limits() {
    let sizes: Arc<Mutex<Vec<usize>>> = Arc::default();
    let fake = Fake::serve_with(&sizes, |log, _, mut conn| async move {
        conn.greet_as(hello_ack(Limits { frame_bytes_max: 64 << 10, ..limits() })).await;
        while let Some((request, frame)) = conn.asked().await {
            let Frame::Batch(batch) = frame else { panic!("not a batch: {frame:?}") };
            log.lock().push(batch.items.len());
            let answers = batch.items.iter().map(|item| echo(&item.operation)).collect();
            conn.send(request, Frame::AnswerBatch(AnswerBatch { first: 0, answers })).await;
        }
    });
    let client = fake.client().await;
    // 120 short ones: three batches, because the server takes 50 at once. Among them are two long
    // ones that do not fit into one frame together, and one that fits into none.
    let long = |count: usize| Operation::Du { lfns: vec![lfn(&format!("/{}", "x".repeat(200))); count] };
    let mut operations: Vec<Operation> = (0..120).map(|n| du(&format!("/d{n}"))).collect();
    operations.extend([long(200), long(200), long(400), du("/last")]);
    let answers = client.call_batch(operations.clone()).await.unwrap();
    for (place, answer) in answers.iter().enumerate() {
        match place {
            122 => assert_eq!(answer.as_ref().unwrap_err().kind, ErrorKind::Limit),
            _ => assert_eq!(*answer, echo(&operations[place])),
        }
    }
    assert_eq!(*sizes.lock(), [50, 50, 21, 1, 1]);
    assert!(client.call_batch(vec![]).await.unwrap().is_empty());
}

#[tokio::test]
async fn what_is_too_long_to_send_is_refused_and_harms_nothing() {
    let fake = Fake::serve(|_, mut conn| async move {
        conn.greet_as(hello_ack(Limits { frame_bytes_max: 64 << 10, ..limits() })).await;
        conn.answer_all(echo).await;
    });
    let client = fake.client().await;
    let long = Operation::Du { lfns: vec![lfn(&format!("/{}", "x".repeat(200))); 400] };
    assert_eq!(client.call(long).await.unwrap_err().kind, ErrorKind::Limit);
    assert_eq!(client.call(du("/d")).await, echo(&du("/d")));
    assert_eq!(fake.connections(), 1);
}

/// A breach of the protocol costs the connection, not the call.
#[tokio::test]
async fn a_server_that_breaks_the_protocol_is_left() {
    let batch = |first| Frame::AnswerBatch(AnswerBatch { first, answers: vec![Ok(done(1))] });
    let mut spoilt = bytes(1, &outcome(Ok(done(1))));
    spoilt[14] = 99;
    let mut unknown_type = bytes(1, &outcome(Ok(done(1))));
    unknown_type[4] = 99;
    for (what, sent) in [
        ("an oversized frame", (2u32 << 20).to_le_bytes().to_vec()),
        ("an unknown type", unknown_type),
        ("a body that does not decode", spoilt),
        ("an answer nobody waits for", bytes(77, &outcome(Ok(done(1))))),
        ("a part of what is no stream", bytes(1, &Frame::Part(done(1)))),
        ("an answer batch for what is none", bytes(1, &batch(0))),
        ("a frame only clients send", bytes(1, &Frame::Cancel)),
    ] {
        let fake = Fake::serve(move |number, mut conn| {
            let sent = sent.clone();
            async move {
                conn.greet().await;
                if number > 0 {
                    return conn.answer_all(echo).await;
                }
                assert_eq!(conn.operation().await.unwrap().0, 1, "the first request");
                conn.send_bytes(&sent).await;
                // The client closes the connection.
                while conn.asked().await.is_some() {}
            }
        });
        let client = fake.client().await;
        let answer = tokio::time::timeout(PATIENCE, client.call(du("/d"))).await.unwrap();
        assert_eq!(answer, echo(&du("/d")), "{what}");
        assert_eq!(fake.connections(), 2, "{what}");
    }
}

#[tokio::test]
async fn answers_to_operations_a_batch_has_not_are_not_believed() {
    for (first, count) in [(1, 1), (0, 3)] {
        let fake = Fake::serve(move |number, mut conn| async move {
            conn.greet().await;
            if number > 0 {
                return conn.answer_all(echo).await;
            }
            let (request, _) = conn.asked().await.unwrap();
            let answers = vec![Ok(done(1)); count];
            conn.send(request, Frame::AnswerBatch(AnswerBatch { first, answers })).await;
            while conn.asked().await.is_some() {}
        });
        let client = fake.client().await;
        let answers = client.call_batch(vec![du("/a"), du("/b")]).await.unwrap();
        assert_eq!(answers, [echo(&du("/a")), echo(&du("/b"))]);
        assert_eq!(fake.connections(), 2);
    }
}

#[tokio::test]
async fn typed_calls_take_answers_apart() {
    let fake = Fake::serve(|_, mut conn| async move {
        conn.greet().await;
        conn.answer_all(|operation| match operation {
            Operation::Du { .. } => Ok(Answer::Usages(vec![Ok(Usage { files: 3, ..Usage::default() })])),
            Operation::Mkdir { .. } => Ok(Answer::EachDone(vec![Err(error(ErrorKind::Exists))])),
            Operation::Move { .. } => Ok(done(9)),
            // One answer too many.
            Operation::Lfns { .. } => Ok(Answer::Lfns(vec![Ok(Lfn::root()), Ok(Lfn::root())])),
            _ => Ok(Answer::Ses(vec![])),
        })
        .await;
    });
    let client = fake.client().await;
    assert_eq!(client.du(lfn("/d")).await.unwrap().files, 3);
    assert_eq!(client.mkdir(lfn("/d"), false).await.unwrap_err().kind, ErrorKind::Exists);
    assert_eq!(client.move_(lfn("/d"), lfn("/e")).await.unwrap().0, 9);
    assert_eq!(client.lfn(Guid([0; 16])).await.unwrap_err().kind, ErrorKind::Internal);
    assert_eq!(client.whoami().await.unwrap_err().kind, ErrorKind::Internal);
    assert_eq!(client.identity(), &identity());
    assert_eq!(client.server().server, "fake/1");
}

#[tokio::test]
async fn settings_that_cannot_work_are_refused() {
    let fake = Fake::serve(|_, mut conn| async move { conn.greet().await });
    let bad: [fn(&mut ClientSettings); 8] = [
        |settings| settings.connections = 0,
        |settings| settings.connections = 65,
        |settings| settings.requests_in_flight_max = 0,
        |settings| settings.stream_credit = 0,
        |settings| settings.stream_credit = 1025,
        |settings| settings.page_items = 0,
        |settings| settings.coalesced_calls_max = 1025,
        |settings| settings.dead_after = settings.ping_after,
    ];
    for spoil in bad {
        let mut settings = settings();
        spoil(&mut settings);
        let refused = Client::connect(fake.target(), Credentials::local(), settings).await.unwrap_err();
        assert!(matches!(refused.kind, ErrorKind::Invalid | ErrorKind::Limit), "{refused}");
    }
    assert_eq!(fake.connections(), 0);
}

/// One connection must carry the load of two cores. This guards only against a stall or a quadratic
/// cost.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_calls_go_over_one_connection_quickly() {
    let fake = Fake::serve(|_, mut conn| async move {
        conn.greet_as(hello_ack(Limits {
            requests_in_flight_max: 4096,
            batch_operations_max: 1024,
            ..limits()
        }))
        .await;
        conn.answer_all(echo).await;
    });
    let client = fake.client().await;
    let began = Instant::now();
    let tasks: Vec<_> = (0..64)
        .map(|task| {
            let client = client.clone();
            tokio::spawn(async move {
                for n in 0..500 {
                    let name = lfn(&format!("/d{task}/{n}"));
                    let operation = Operation::Stat { lfns: vec![name.clone()], follow: false };
                    assert_eq!(client.call(operation).await, Ok(Answer::Lfns(vec![Ok(name)])));
                }
            })
        })
        .collect();
    for task in tasks {
        task.await.unwrap();
    }
    assert!(began.elapsed() < PATIENCE, "32 000 calls took {:?}", began.elapsed());
    assert_eq!(fake.connections(), 1);
}
