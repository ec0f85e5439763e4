//! Streams: page by page as the client grants credit, whole, cancelled, within frames.

use std::sync::atomic::Ordering;

use exacat_model::{Answer, ErrorKind, Operation, Revision};
use exacat_wire::native::{Frame, RequestOptions};
use tokio::io::AsyncWriteExt;

use crate::client::{Client, eventually, eventually_so};
use crate::world::{World, lfn};

fn list(limit: u32) -> Operation {
    Operation::List { lfn: lfn("/d"), cursor: Default::default(), limit }
}

fn streamed(credit: u32) -> RequestOptions {
    RequestOptions { stream: Some(credit), ..Default::default() }
}

/// Reads a stream to its end, after `parts` parts: returns the names, and the total number of
/// parts.
async fn rest(client: &mut Client, request: u64, credit_each: u32, mut parts: u64) -> (Vec<String>, u64) {
    let mut names = Vec::new();
    loop {
        match client.expect().await {
            (id, Frame::Part(Answer::Entries { items, .. })) if id == request => {
                parts += 1;
                names.extend(items.into_iter().map(|stat| stat.lfn.to_string()));
                if credit_each > 0 {
                    client.send(request, Frame::Credit { parts: credit_each }).await;
                }
            }
            (id, Frame::End { parts: said }) if id == request => {
                assert_eq!(said, parts);
                return (names, parts);
            }
            other => panic!("{other:?}"),
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stream_goes_as_far_as_its_credit() {
    let world = World::new().await;
    let files = world.files("/d", 2500).await;
    let mut client = Client::admin(&world).await;
    let request = client.ask_with(streamed(2), list(100)).await;
    for _ in 0..2 {
        assert!(matches!(client.expect().await, (id, Frame::Part(_)) if id == request));
    }
    // No part precedes the answer to a later request, because there is no credit.
    client.call(Operation::Whoami).await.unwrap();
    assert_eq!(world.hooks.lists.load(Ordering::SeqCst), 2, "no page is made in advance");
    client.send(request, Frame::Credit { parts: 1 }).await;
    assert!(matches!(client.expect().await, (id, Frame::Part(_)) if id == request));
    client.send(request, Frame::Credit { parts: 1 }).await;
    let (names, parts) = rest(&mut client, request, 1, 3).await;
    // The first part has 50 names, so that it comes at once, each of the others a hundred.
    assert_eq!(names.len(), files.len() - 250);
    assert_eq!(parts, 26);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stream_gives_everything_once_in_bounded_parts() {
    let world = World::new().await;
    let files = world.files("/d", 5500).await;
    let mut client = Client::admin(&world).await;
    let request = client.ask_with(streamed(1000), list(0)).await;
    let (names, parts) = rest(&mut client, request, 0, 0).await;
    assert_eq!(names, files.iter().map(ToString::to_string).collect::<Vec<_>>());
    assert_eq!(parts, 8, "of 50, 200, 800 and then a thousand items at most");
}

#[tokio::test(flavor = "multi_thread")]
async fn without_credit_nothing_is_done_until_it_comes() {
    let world = World::new().await;
    world.files("/d", 10).await;
    let mut client = Client::admin(&world).await;
    let request = client.ask_with(streamed(0), list(100)).await;
    client.call(Operation::Whoami).await.unwrap();
    assert_eq!(world.hooks.lists.load(Ordering::SeqCst), 0);
    client.send(request, Frame::Credit { parts: 1 }).await;
    let (names, _) = rest(&mut client, request, 0, 0).await;
    assert_eq!(names.len(), 10);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stream_is_cancelled_where_it_waits() {
    let world = World::new().await;
    world.files("/d", 1000).await;
    let mut client = Client::admin(&world).await;
    // Cancelled while it waits for credit.
    let request = client.ask_with(streamed(1), list(10)).await;
    assert!(matches!(client.expect().await, (id, Frame::Part(_)) if id == request));
    client.send(request, Frame::Cancel).await;
    assert_eq!(client.outcome(request).await.unwrap_err().kind, ErrorKind::Unavailable);
    // Cancelled while it waits for the store.
    let begun = world.hooks.lists_begun.load(Ordering::SeqCst);
    world.hooks.hold_lists.send_replace(true);
    let request = client.ask_with(streamed(100), list(10)).await;
    eventually("a page to be begun", || world.hooks.lists_begun.load(Ordering::SeqCst) > begun).await;
    client.send(request, Frame::Cancel).await;
    assert_eq!(client.outcome(request).await.unwrap_err().kind, ErrorKind::Unavailable);
    world.hooks.hold_lists.send_replace(false);
    client.call(list(5)).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn client_that_goes_away_or_cancels_is_no_failure() {
    let world = World::new().await;
    world.files("/d", 1000).await;
    let figure = async |name| world.figure("operations", name).await;
    let mut client = Client::admin(&world).await;
    let request = client.ask_with(streamed(1), list(10)).await;
    assert!(matches!(client.expect().await, (id, Frame::Part(_)) if id == request));
    client.send(request, Frame::Cancel).await;
    client.outcome(request).await.unwrap_err();
    let begun = world.hooks.lists_begun.load(Ordering::SeqCst);
    world.hooks.hold_lists.send_replace(true);
    client.ask_with(streamed(100), list(10)).await;
    eventually("a page to be begun", || world.hooks.lists_begun.load(Ordering::SeqCst) > begun).await;
    drop(client);
    world.hooks.hold_lists.send_replace(false);
    eventually_so("the stream to end", async || figure("list_requests").await == 2).await;
    assert_eq!(figure("list_failed").await, 0);
    let mut client = Client::admin(&world).await;
    let missing = Operation::List { lfn: lfn("/missing"), cursor: Default::default(), limit: 1 };
    client.call(missing).await.unwrap_err();
    assert_eq!(figure("list_failed").await, 1);
}

/// Goal: a stream ends with the connection of a client that can grant it no more credit, whether
/// that said goodbye or closed its end. Parts granted before still arrive.
#[tokio::test(flavor = "multi_thread")]
async fn stream_without_credit_ends_when_its_client_closes() {
    let world = World::new().await;
    world.files("/d", 1000).await;
    for goodbye in [true, false] {
        let mut client = Client::admin(&world).await;
        let waits = client.ask_with(streamed(0), list(10)).await;
        client.call(Operation::Whoami).await.unwrap();
        let begun = world.hooks.lists_begun.load(Ordering::SeqCst);
        world.hooks.hold_lists.send_replace(true);
        let granted = client.ask_with(streamed(2), list(10)).await;
        eventually("a page to be begun", || world.hooks.lists_begun.load(Ordering::SeqCst) > begun).await;
        match goodbye {
            true => client.send(0, Frame::Goodbye { reason: "no more".to_owned() }).await,
            false => client.stream.shutdown().await.unwrap(),
        }
        let parts = |frame: &(u64, Frame)| matches!(frame.1, Frame::Part(_));
        let refused = client.expect().await;
        assert!(matches!(refused, (id, Frame::Error(_)) if id == waits), "{refused:?}");
        world.hooks.hold_lists.send_replace(false);
        let (first, second) = (client.expect().await, client.expect().await);
        assert!(parts(&first) && parts(&second) && first.0 == granted, "{first:?} {second:?}");
        let last = client.expect().await;
        assert!(matches!(last, (id, Frame::Error(_)) if id == granted), "{last:?}");
        assert_eq!(client.next().await, None, "the connection has ended");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_error_ends_a_stream() {
    let world = World::new().await;
    let mut client = Client::admin(&world).await;
    let request = client.ask_with(streamed(10), list(10)).await;
    assert_eq!(client.outcome(request).await.unwrap_err().kind, ErrorKind::NotFound);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_has_no_pages_is_not_streamed() {
    let world = World::new().await;
    let mut client = Client::admin(&world).await;
    let request = client.ask_with(streamed(10), Operation::Whoami).await;
    assert_eq!(client.outcome(request).await.unwrap_err().kind, ErrorKind::Invalid);
}

#[tokio::test(flavor = "multi_thread")]
async fn parts_are_made_smaller_until_they_fit_a_frame() {
    let world = World::with_limits(|limits| {
        limits.frame_bytes_max = exacat_wire::native::limits::FRAME_BYTES_MAX_LEAST;
    })
    .await;
    let files = world.files("/d", 3000).await;
    let mut client = Client::admin(&world).await;
    let request = client.ask_with(streamed(1000), list(0)).await;
    let (names, parts) = rest(&mut client, request, 0, 0).await;
    assert_eq!(names.len(), files.len());
    assert!(parts > 3, "{parts}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_purge_is_streamed_each_step_with_an_id_of_its_own() {
    let world = World::with(|settings| settings.catalogue.purge_step_entries = 100).await;
    world.files("/d", 950).await;
    let mut client = Client::admin(&world).await;
    let removed =
        client.call(Operation::Remove { lfn: lfn("/d"), recursive: true, directory: false }).await.unwrap();
    let Answer::Removed { id } = removed else { panic!("{removed:?}") };
    let purge = Operation::TrashPurge { id, cursor: Default::default() };
    let options = RequestOptions { operation_id: Some(crate::client::new_id()), ..streamed(1000) };
    let request = client.ask_with(options, purge).await;
    let (mut purged, mut parts) = (0, 0);
    loop {
        match client.expect().await {
            (id, Frame::Part(Answer::Purged { entries, .. })) if id == request => {
                purged += entries;
                parts += 1;
            }
            (id, Frame::End { .. }) if id == request => break,
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(purged, 951);
    assert!(parts >= 10, "{parts}");
}

#[tokio::test(flavor = "multi_thread")]
async fn streams_are_bounded_by_connection_and_in_all() {
    let world = World::with_limits(|limits| {
        limits.streams_per_connection_max = 2;
        limits.streams_max = 3;
    })
    .await;
    world.files("/d", 10).await;
    let mut first = Client::admin(&world).await;
    let mut open = Vec::new();
    for _ in 0..2 {
        open.push(first.ask_with(streamed(0), list(1)).await);
    }
    let refused = first.ask_with(streamed(0), list(1)).await;
    assert_eq!(first.outcome(refused).await.unwrap_err().kind, ErrorKind::Busy);
    let mut second = Client::admin(&world).await;
    second.ask_with(streamed(0), list(1)).await;
    let refused = second.ask_with(streamed(0), list(1)).await;
    assert_eq!(second.outcome(refused).await.unwrap_err().kind, ErrorKind::Busy);
    // The end of one makes room.
    first.send(open[0], Frame::Cancel).await;
    assert_eq!(first.outcome(open[0]).await.unwrap_err().kind, ErrorKind::Unavailable);
    crate::client::soon("room for a stream", async {
        loop {
            let request = second.ask_with(streamed(100), list(10)).await;
            match second.expect().await {
                (id, Frame::Part(_)) if id == request => return,
                (id, Frame::Error(error)) if id == request => assert_eq!(error.kind, ErrorKind::Busy),
                other => panic!("{other:?}"),
            }
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn stream_that_waits_for_changes_ends_when_its_client_closes() {
    let world = World::new().await;
    let after = Revision(u64::MAX - 1);
    let follow = || Operation::Changes { after: after.into(), under: None, limit: 0, wait: true };
    let waits = async || world.figure("server", "held_waits").await;
    for shuts_down_only in [false, true] {
        let mut client = Client::admin(&world).await;
        let request = client.ask_with(streamed(1000), follow()).await;
        eventually_so("the stream to wait", async || waits().await == 1).await;
        if shuts_down_only {
            client.stream.shutdown().await.unwrap();
            // It still reads what it was granted, and the reason for the end.
            while let Some((id, frame)) = client.next().await {
                assert!(id == request && matches!(frame, Frame::Part(_) | Frame::Error(_)), "{frame:?}");
            }
        }
        drop(client);
        eventually_so("the wait to end", async || waits().await == 0).await;
    }
}
