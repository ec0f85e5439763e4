//! Many calls on one connection: bounds, order, abandoned calls, late answers, deadlines, a sudden
//! end.

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use crate::fake::{Fake, PATIENCE, done, error, eventually, lfn, outcome, settings};
use exacat_client::{CallOptions, ClientSettings};
use exacat_model::{Answer, ErrorKind, Operation};
use exacat_wire::native::Frame;
use parking_lot::Mutex;

fn mkdir(number: usize) -> Operation {
    Operation::Mkdir { lfns: vec![lfn(&format!("/d{number}"))], parents: false, mode: None }
}

fn du(number: usize) -> Operation {
    Operation::Du { lfns: vec![lfn(&format!("/d{number}"))] }
}

/// Returns the number in the requested name.
fn number(operation: &Operation) -> u64 {
    match operation {
        Operation::Du { lfns } | Operation::Mkdir { lfns, .. } => {
            lfns[0].as_str().trim_start_matches("/d").parse().unwrap()
        }
        other => panic!("not expected: {other:?}"),
    }
}

fn within(deadline: Duration) -> CallOptions {
    CallOptions { deadline: Some(deadline), operation_id: None }
}

/// Each dropped call returns its permit when the server has ended it.
#[tokio::test]
async fn dropped_calls_give_their_places_back() {
    let cancelled = Arc::new(AtomicUsize::new(0));
    let fake = Fake::serve_with(&cancelled, |count, _, mut conn| async move {
        conn.greet().await;
        while let Some((request, frame)) = conn.asked().await {
            match frame {
                Frame::Cancel => {
                    count.fetch_add(1, Ordering::SeqCst);
                    conn.send(request, Frame::Error(error(ErrorKind::Unavailable))).await;
                }
                Frame::Request(asked) if number(&asked.operation) >= 100 => {
                    conn.send(request, outcome(Ok(done(number(&asked.operation))))).await;
                }
                _ => {}
            }
        }
    });
    let client = fake.client_with(ClientSettings { requests_in_flight_max: 2, ..settings() }).await;
    for round in 0..50 {
        let mut call = client.call(mkdir(round));
        // Sent, and abandoned.
        assert!(futures::poll!(&mut call).is_pending());
        drop(call);
        assert_eq!(client.call(du(100 + round)).await, Ok(done(100 + round as u64)));
    }
    eventually("all are cancelled", || cancelled.load(Ordering::SeqCst) == 50).await;
    assert_eq!(fake.connections(), 1);
}

/// Goal: a repeated answer for a request whose slot another one uses now reaches no caller.
#[tokio::test]
async fn answer_that_comes_again_costs_the_connection_and_reaches_no_other_call() {
    let fake = Fake::serve(|connection, mut conn| async move {
        conn.greet().await;
        let mut former: Option<u64> = None;
        let mut seen = HashSet::new();
        while let Some((request, _, operation)) = conn.operation().await {
            assert!(seen.insert(request), "no number is used twice");
            if let Some(former) = former.filter(|_| connection == 0) {
                conn.send(former, outcome(Ok(done(1)))).await;
            } else {
                conn.send(request, outcome(Ok(done(number(&operation))))).await;
            }
            former = (seen.len() > 20).then_some(request);
        }
    });
    let client = fake.client().await;
    for round in 1..=40 {
        assert_eq!(client.call(du(round)).await, Ok(done(round as u64)), "call {round}");
    }
    assert_eq!(fake.connections(), 2);
}

/// Callers beyond the bound wait, and are served in order of arrival.
#[tokio::test]
async fn calls_beyond_the_bound_wait_in_order() {
    let order: Arc<Mutex<Vec<u64>>> = Arc::default();
    let fake = Fake::serve_with(&order, |order, _, mut conn| async move {
        conn.greet().await;
        while let Some((request, _, operation)) = conn.operation().await {
            order.lock().push(number(&operation));
            conn.send(request, outcome(Ok(done(1)))).await;
        }
    });
    let client = fake.client_with(ClientSettings { requests_in_flight_max: 1, ..settings() }).await;
    let mut calls: Vec<_> = (0..50).map(|number| client.call(du(number))).collect();
    for call in &mut calls {
        assert!(futures::poll!(call).is_pending());
    }
    let answers = tokio::time::timeout(PATIENCE, futures::future::join_all(calls)).await.unwrap();
    assert!(answers.iter().all(|answer| *answer == Ok(done(1))));
    assert_eq!(*order.lock(), (0..50).collect::<Vec<_>>());
}

/// After the loss of the server, sent requests are unknown and waiting ones are certainly not done.
#[tokio::test]
async fn server_that_closes_answers_every_waiting_call() {
    const IN_FLIGHT: usize = 50;
    let fake = Fake::serve(|connection, mut conn| async move {
        if connection == 0 {
            conn.greet().await;
            let mut asked = 0;
            while asked < IN_FLIGHT {
                // On a slow machine the client cancels some before all have arrived.
                asked += usize::from(matches!(conn.asked().await, Some((_, Frame::Request(_)))));
            }
        }
    });
    let settings = ClientSettings { requests_in_flight_max: IN_FLIGHT, ..settings() };
    let client = fake.client_with(settings).await;
    let calls =
        (0..4 * IN_FLIGHT).map(|number| client.call_with(mkdir(number), within(Duration::from_secs(1))));
    let answers = tokio::time::timeout(PATIENCE, futures::future::join_all(calls)).await.unwrap();
    let kinds: Vec<ErrorKind> = answers.into_iter().map(|answer| answer.unwrap_err().kind).collect();
    assert_eq!(kinds[..IN_FLIGHT], [ErrorKind::Unknown; IN_FLIGHT]);
    assert_eq!(kinds[IN_FLIGHT..], [ErrorKind::Unavailable; 3 * IN_FLIGHT]);
}

/// One timer serves all deadlines of a connection, in any order, and delays no caller that may wait
/// longer.
#[tokio::test]
async fn each_of_many_calls_ends_at_its_own_deadline() {
    const CALLS: usize = 90;
    let cancelled: Arc<Mutex<HashSet<u64>>> = Arc::default();
    let fake = Fake::serve_with(&cancelled, |cancelled, _, mut conn| async move {
        conn.greet().await;
        let mut patient = None;
        while let Some((request, frame)) = conn.asked().await {
            match frame {
                Frame::Cancel => {
                    cancelled.lock().insert(request);
                }
                Frame::Request(asked) if number(&asked.operation) == CALLS as u64 => patient = Some(request),
                _ => {}
            }
            if cancelled.lock().len() == CALLS
                && let Some(patient) = patient.take()
            {
                conn.send(patient, outcome(Ok(done(7)))).await;
            }
        }
    });
    let client = fake.client().await;
    let patient = tokio::spawn({
        let client = client.clone();
        async move { client.call(mkdir(CALLS)).await }
    });
    let calls = (0..CALLS).map(|number| {
        // About half of the later calls have earlier deadlines.
        let deadline = Duration::from_millis(20 + (number as u64 * 37) % 200);
        let began = tokio::time::Instant::now();
        let call = client.call_with(mkdir(number), within(deadline));
        async move {
            let refused: Result<Answer, _> = call.await;
            assert_eq!(refused.unwrap_err().kind, ErrorKind::Unknown);
            assert!(began.elapsed() >= deadline, "not before its time");
        }
    });
    tokio::time::timeout(PATIENCE, futures::future::join_all(calls)).await.unwrap();
    assert_eq!(tokio::time::timeout(PATIENCE, patient).await.unwrap().unwrap(), Ok(done(7)));
    assert_eq!(fake.connections(), 1);
}
