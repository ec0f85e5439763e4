//! Streams: both sides honour credit, and no page is lost or repeated whatever happens to
//! connections.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use crate::fake::{
    Conn, Fake, PATIENCE, TIMELINE, error, eventually, hello_ack, lfn, limits, outcome, settings,
};
use exacat_client::{Client, ClientSettings, Credentials, Endpoint, Target};
use exacat_model::{
    Answer, Cursor, ErrorKind, HasRevision, Operation, OperationId, Revision, SeName, TrashId, codec::Decode,
    codec::Encode,
};
use exacat_wire::native::{AnswerBatch, Frame, HelloAck, features};
use futures::StreamExt;
use parking_lot::Mutex;

const PAGES: u64 = 100;

fn list() -> Operation {
    Operation::List { lfn: lfn("/"), cursor: Cursor::default(), limit: 10 }
}

/// Makes page `n` of a listing, which differs from all others.
fn page(n: u64, pages: u64) -> Answer {
    let next = (n + 1 < pages).then(|| Cursor((n + 1).to_bytes()));
    let ses = vec![(n as u16, SeName::parse("A::B::C").unwrap())];
    Answer::Entries { items: vec![], ses, next }
}

fn number(page: &Answer) -> u64 {
    match page {
        Answer::Entries { ses, .. } => u64::from(ses[0].0),
        other => panic!("not a page: {other:?}"),
    }
}

/// Request of a stream.
struct StreamRequest {
    request: u64,
    id: Option<OperationId>,
    operation: Operation,
    from: u64,
    credit: u64,
}

async fn asked(conn: &mut Conn) -> Option<StreamRequest> {
    loop {
        match conn.asked().await? {
            (request, frame @ Frame::Request(_)) => return Some(asked_of(request, frame)),
            (_, Frame::Cancel | Frame::Credit { .. }) => {}
            (_, other) => panic!("not expected: {other:?}"),
        }
    }
}

/// Sends pages as the credit permits until `until`; false if the stream was cancelled.
async fn give(conn: &mut Conn, asked: &mut StreamRequest, until: u64, pages: u64) -> bool {
    while asked.from < until {
        while asked.credit == 0 {
            match conn.asked().await {
                Some((request, Frame::Credit { parts })) if request == asked.request => {
                    asked.credit += u64::from(parts);
                }
                Some((request, Frame::Cancel)) if request == asked.request => {
                    conn.send(request, Frame::Error(error(ErrorKind::Unavailable))).await;
                    return false;
                }
                Some((_, Frame::Credit { .. } | Frame::Cancel)) => {}
                _ => return false,
            }
        }
        conn.send(asked.request, Frame::Part(page(asked.from, pages))).await;
        asked.from += 1;
        asked.credit -= 1;
    }
    true
}

/// Reads a request for pages.
fn asked_of(request: u64, frame: Frame) -> StreamRequest {
    let Frame::Request(asked) = frame else { panic!("not expected: {frame:?}") };
    let cursor = match &asked.operation {
        Operation::List { cursor, .. } | Operation::TrashPurge { cursor, .. } => cursor.clone(),
        Operation::Changes { after, .. } => {
            // A resumed request names its timeline.
            assert!(after.revision == Revision(5) || after.timeline == Some(TIMELINE.whole()), "{after}");
            Cursor(after.revision.to_bytes())
        }
        other => panic!("not expected: {other:?}"),
    };
    let from = if cursor.0.is_empty() { 0 } else { u64::from_bytes(&cursor.0).unwrap() };
    let credit = u64::from(asked.options.stream.expect("a stream"));
    StreamRequest { request, id: asked.options.operation_id, operation: asked.operation, from, credit }
}

/// Sends all pages of any number of streams at once.
async fn give_all(mut conn: Conn) {
    conn.greet().await;
    let mut open: Vec<(StreamRequest, u64)> = Vec::new();
    loop {
        for (asked, given) in open.iter_mut().filter(|(asked, _)| asked.credit > 0) {
            conn.send(asked.request, Frame::Part(page(asked.from, PAGES))).await;
            asked.from += 1;
            asked.credit -= 1;
            *given += 1;
            if asked.from == PAGES {
                conn.send(asked.request, Frame::End { parts: *given }).await;
            }
        }
        open.retain(|(asked, _)| asked.from < PAGES);
        if open.iter().any(|(asked, _)| asked.credit > 0) {
            continue;
        }
        match conn.asked().await {
            None => return,
            Some((request, Frame::Credit { parts })) => {
                for (asked, _) in open.iter_mut().filter(|(asked, _)| asked.request == request) {
                    asked.credit += u64::from(parts);
                }
            }
            Some((request, frame)) => open.push((asked_of(request, frame), 0)),
        }
    }
}

#[tokio::test]
async fn a_stream_gives_every_page_in_order() {
    let fake = Fake::serve(|_, conn| give_all(conn));
    for stream_credit in [1, 2, 8, 1024] {
        let client = fake.client_with(ClientSettings { stream_credit, ..settings() }).await;
        // Several streams at once, over one connection.
        let streams = (0..5).map(|_| client.stream(list()).map(|page| number(&page.unwrap())).collect());
        let streams: Vec<Vec<u64>> = futures::future::join_all(streams).await;
        for got in streams {
            assert_eq!(got, (0..PAGES).collect::<Vec<_>>(), "credit {stream_credit}");
        }
    }
}

/// The server ends streams in every possible way, at every point; the client resumes each time.
#[tokio::test]
async fn a_broken_stream_goes_on_without_repeats_or_gaps() {
    let froms: Arc<Mutex<Vec<u64>>> = Arc::default();
    let fake = Fake::serve_with(&froms, |log, connection, mut conn| async move {
        conn.greet().await;
        while let Some(mut asked) = asked(&mut conn).await {
            let began = asked.from;
            let round = log.lock().len() as u64;
            log.lock().push(began);
            let until = (began + round % 4).min(PAGES);
            if !give(&mut conn, &mut asked, until, PAGES).await {
                return;
            }
            if until == PAGES {
                conn.send(asked.request, Frame::End { parts: until - began }).await;
                continue;
            }
            let request = asked.request;
            match round % 7 {
                // The connection ends: between frames, or inside one.
                0 => return,
                1 => {
                    let part = crate::fake::bytes(request, &Frame::Part(page(until, PAGES)));
                    return conn.send_bytes(&part[..part.len() / 2]).await;
                }
                2 => conn.send(request, Frame::Error(error(ErrorKind::Busy))).await,
                3 => conn.send(request, Frame::Error(error(ErrorKind::Unknown))).await,
                // A false end: the last page announced more.
                4 => conn.send(request, Frame::End { parts: until - began }).await,
                // A part was lost, as the count shows.
                5 => return conn.send(request, Frame::End { parts: until - began + 1 }).await,
                _ => {
                    conn.send(0, Frame::Goodbye { reason: "restart".to_owned() }).await;
                    conn.send(request, Frame::Error(error(ErrorKind::Unavailable))).await;
                    return;
                }
            }
            assert!(connection < 1000);
        }
    });
    let client = fake.client().await;
    let got: Vec<u64> = client.stream(list()).map(|page| number(&page.unwrap())).collect().await;
    assert_eq!(got, (0..PAGES).collect::<Vec<_>>());
    assert!(froms.lock().len() > 20, "it was broken often: {:?}", froms.lock());
    assert!(fake.connections() > 5);
}

/// Without a reader, the server gets no credit beyond the first, and later no more than was taken.
#[tokio::test]
async fn a_slow_reader_slows_the_server() {
    let sent = Arc::new(AtomicU64::new(0));
    let fake = Fake::serve_with(&sent, |count, _, mut conn| async move {
        conn.greet().await;
        let mut asked = asked(&mut conn).await.unwrap();
        while asked.from < PAGES && {
            let next = asked.from + 1;
            give(&mut conn, &mut asked, next, PAGES).await
        } {
            count.store(asked.from, Ordering::SeqCst);
        }
    });
    let window = 4;
    let client = fake.client_with(ClientSettings { stream_credit: window as u32, ..settings() }).await;
    let mut stream = client.stream(list());
    for taken in 1..=20 {
        assert_eq!(number(&stream.next().await.unwrap().unwrap()), taken - 1);
        // The client takes half a window before it gives new credit. A server that was given more would
        // be ahead of the next figure.
        let granted = window + taken / (window / 2) * (window / 2);
        assert!(sent.load(Ordering::SeqCst) <= granted, "ahead of the reader");
        eventually("the server sends all that it may", || sent.load(Ordering::SeqCst) == granted).await;
    }
}

#[tokio::test]
async fn a_server_that_sends_beyond_the_credit_is_left() {
    let fake = Fake::serve(|number, mut conn| async move {
        if number > 0 {
            return give_all(conn).await;
        }
        conn.greet().await;
        let asked = asked(&mut conn).await.unwrap();
        for n in 0..=asked.credit {
            conn.send(asked.request, Frame::Part(page(n, PAGES))).await;
        }
        while conn.asked().await.is_some() {}
    });
    let client = fake.client().await;
    let mut stream = client.stream(list());
    let mut got = vec![number(&stream.next().await.unwrap().unwrap())];
    eventually("the violation is noticed", || fake.connections() == 1).await;
    while let Some(page) = stream.next().await {
        got.push(number(&page.unwrap()));
    }
    assert_eq!(got, (0..PAGES).collect::<Vec<_>>(), "what came within the credit counts");
    assert_eq!(fake.connections(), 2);
}

#[tokio::test]
async fn a_dropped_stream_is_cancelled() {
    let cancelled = Arc::new(AtomicUsize::new(0));
    let fake = Fake::serve_with(&cancelled, |count, _, mut conn| async move {
        conn.greet().await;
        while let Some(mut asked) = asked(&mut conn).await {
            if !give(&mut conn, &mut asked, PAGES, PAGES).await {
                count.fetch_add(1, Ordering::SeqCst);
            }
        }
    });
    // More streams than permits: each permit is returned.
    let settings = ClientSettings { requests_in_flight_max: 2, ..settings() };
    let client = fake.client_with(settings).await;
    for _ in 0..10 {
        let mut stream = client.stream(list());
        assert_eq!(number(&stream.next().await.unwrap().unwrap()), 0);
    }
    eventually("ten cancels", || cancelled.load(Ordering::SeqCst) == 10).await;
}

#[tokio::test]
async fn an_error_that_asking_again_does_not_help_ends_the_stream() {
    let fake = Fake::serve(|_, mut conn| async move {
        conn.greet().await;
        while let Some(mut asked) = asked(&mut conn).await {
            give(&mut conn, &mut asked, 3, PAGES).await;
            conn.send(asked.request, Frame::Error(error(ErrorKind::Denied))).await;
        }
    });
    let client = fake.client().await;
    let got: Vec<_> = client.stream(list()).collect().await;
    assert_eq!(got.len(), 4);
    assert_eq!(got[3], Err(error(ErrorKind::Denied)));
    // An operation without pages is refused without a request to the server.
    let got: Vec<_> = client.stream(Operation::Whoami).collect().await;
    assert_eq!(got.len(), 1);
    assert_eq!(got[0].as_ref().unwrap_err().kind, ErrorKind::Invalid);
}

#[tokio::test]
async fn a_stream_does_not_try_for_ever() {
    let fake = Fake::serve(|_, mut conn| async move {
        conn.greet().await;
        while let Some(mut asked) = asked(&mut conn).await {
            if asked.from == 0 {
                give(&mut conn, &mut asked, 2, PAGES).await;
            }
            conn.send(asked.request, outcome(Err(error(ErrorKind::Busy)))).await;
        }
    });
    let client =
        fake.client_with(ClientSettings { deadline: Duration::from_millis(200), ..settings() }).await;
    let got: Vec<_> = tokio::time::timeout(PATIENCE, client.stream(list()).collect()).await.unwrap();
    assert_eq!(got.len(), 3);
    assert_eq!(got[2].as_ref().unwrap_err().kind, ErrorKind::Busy);
}

/// A retried step of a write has the same id; the next step has another.
#[tokio::test]
async fn a_streamed_write_keeps_its_id_until_a_page_came() {
    type Step = (u64, OperationId);
    let steps: Arc<Mutex<Vec<Step>>> = Arc::default();
    let purged = |n: u64| Answer::Purged { entries: 1, next: (n < 3).then(|| Cursor((n + 1).to_bytes())) };
    let fake = Fake::serve_with(&steps, move |log, _, mut conn| async move {
        conn.greet().await;
        let Some(asked) = asked(&mut conn).await else { return };
        assert!(asked.operation.writes());
        let again = {
            let mut log = log.lock();
            log.push((asked.from, asked.id.unwrap()));
            log.iter().filter(|(from, _)| *from == asked.from).count() > 1
        };
        // Each step's answer is lost once, with the connection.
        if again {
            conn.send(asked.request, Frame::Part(purged(asked.from))).await;
        }
    });
    let client = fake.client().await;
    let purge =
        Operation::TrashPurge { id: TrashId(Revision(1)).on(TIMELINE.tag()), cursor: Cursor::default() };
    let got: Vec<_> = client.stream(purge).map(Result::unwrap).collect().await;
    assert_eq!(got, (0..4).map(purged).collect::<Vec<_>>());
    let steps = steps.lock().clone();
    assert_eq!(steps.len(), 8);
    for pair in steps.chunks(2) {
        assert_eq!(pair[0], pair[1]);
    }
    let ids: std::collections::BTreeSet<OperationId> = steps.iter().map(|(_, id)| *id).collect();
    assert_eq!(ids.len(), 4);
}

/// Following continues beyond the present end of the history.
#[tokio::test]
async fn following_goes_on_behind_the_last_change() {
    let fake = Fake::serve(|_, mut conn| async move {
        conn.greet().await;
        while let Some(asked) = asked(&mut conn).await {
            let up_to = Revision(asked.from + 10);
            let page = Answer::Changes { items: vec![], next: None, up_to, timeline: TIMELINE, cut: false };
            conn.send(asked.request, Frame::Part(page)).await;
            conn.send(asked.request, Frame::End { parts: 1 }).await;
        }
    });
    let client = fake.client().await;
    let seen = |page: &Answer| match page {
        Answer::Changes { up_to, .. } => up_to.0,
        other => panic!("not changes: {other:?}"),
    };
    let followed: Vec<u64> =
        client.follow(Revision(5), None).take(4).map(|page| seen(&page.unwrap())).collect().await;
    assert_eq!(followed, [15, 25, 35, 45]);
    let once: Vec<u64> = client.changes(Revision(5), None).map(|page| seen(&page.unwrap())).collect().await;
    assert_eq!(once, [15]);
}

/// Property: a server that refuses for now, as one in whose place another was promoted does, is left by
/// batches and streams too, if others are known.
#[tokio::test]
async fn server_that_refuses_for_now_is_left_by_batches_and_streams() {
    let refused = Arc::new(AtomicUsize::new(0));
    let superseded = Fake::serve_with(&refused, |refused, _, mut conn| async move {
        conn.greet().await;
        conn.answer_all(|_| {
            refused.fetch_add(1, Ordering::SeqCst);
            Err(error(ErrorKind::Unavailable))
        })
        .await;
    });
    let source = Fake::serve(|_, mut conn| async move {
        conn.greet().await;
        while let Some((request, frame)) = conn.asked().await {
            match frame {
                Frame::Batch(batch) => {
                    let answers = batch.items.iter().map(|_| Ok(Answer::Done { revision: Revision(1) }));
                    let answers = answers.collect();
                    conn.send(request, Frame::AnswerBatch(AnswerBatch { first: 0, answers })).await;
                }
                frame @ Frame::Request(_) => {
                    let mut asked = asked_of(request, frame);
                    if give(&mut conn, &mut asked, 1, 1).await {
                        conn.send(request, Frame::End { parts: 1 }).await;
                    }
                }
                other => panic!("not expected: {other:?}"),
            }
        }
    });
    let endpoints = || vec![Endpoint::Unix(superseded.path.clone()), Endpoint::Unix(source.path.clone())];
    let connected = || async {
        let target = Target::new(endpoints()).unwrap();
        Client::connect(target, Credentials::local(), settings()).await.unwrap()
    };
    let mkdir = || Operation::Mkdir { lfns: vec![lfn("/d")], parents: false, mode: None };
    let answers = connected().await.call_batch(vec![mkdir(), mkdir()]).await.unwrap();
    assert!(answers.iter().all(|answer| answer.is_ok()), "{answers:?}");
    assert!(refused.swap(0, Ordering::SeqCst) >= 2, "the first server was not asked");
    let pages: Vec<_> = connected().await.stream(list()).collect().await;
    assert!(matches!(pages.as_slice(), [Ok(_)]), "{pages:?}");
    assert_eq!(refused.load(Ordering::SeqCst), 1, "one attempt shows it");
}

/// Property: a stream of changes goes to the source, whichever server the client is connected to.
#[tokio::test]
async fn changes_in_steps_are_held_back_from_followers() {
    let follower = Fake::serve(|_, mut conn| async move {
        conn.greet_as(HelloAck { features: features::FOLLOWER, ..hello_ack(limits()) }).await;
        conn.answer_all(|operation| panic!("a follower was asked for {}", operation.name())).await;
    });
    let attempts = Arc::new(AtomicUsize::new(0));
    let source = Fake::serve_with(&attempts, |attempts, _, mut conn| async move {
        // The source comes later, as after a promotion.
        if attempts.fetch_add(1, Ordering::SeqCst) == 0 {
            return;
        }
        conn.greet().await;
        while let Some(mut asked) = asked(&mut conn).await {
            if give(&mut conn, &mut asked, 1, 1).await {
                conn.send(asked.request, Frame::End { parts: 1 }).await;
            }
        }
    });
    let endpoints = vec![Endpoint::Unix(follower.path.clone()), Endpoint::Unix(source.path.clone())];
    let target = Target::new(endpoints).unwrap();
    let client = Client::connect(target, Credentials::local(), settings()).await.unwrap();
    let purge =
        Operation::TrashPurge { id: TrashId(Revision(1)).on(TIMELINE.tag()), cursor: Cursor::default() };
    let pages: Vec<_> = client.stream(purge).collect().await;
    assert!(matches!(pages.as_slice(), [Ok(_)]), "{pages:?}");
}
