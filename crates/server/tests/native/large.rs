//! Entries with very many bytes of tags: pages, streams and look-ups of them are bounded by bytes.

use exacat_model::answer::Stat;
use exacat_model::limits::PAGE_MEMORY_MAX;
use exacat_model::{Answer, Cursor, ErrorKind, Lfn, Measured, Operation};
use exacat_wire::native::{Frame, RequestOptions};

use crate::client::Client;
use crate::world::{World, lfn};

/// Files of 900 KiB each: 56 MiB, seven pages.
const FILES: usize = 64;

fn list(cursor: Cursor) -> Operation {
    Operation::List { lfn: lfn("/d"), cursor, limit: 1000 }
}

/// Checks that a page ended at the item that filled it.
fn check_bounded(items: &[Stat]) {
    let before_last: usize =
        items.split_last().map_or(0, |(_, before)| before.iter().map(Measured::bytes).sum());
    assert!(before_last < 2 * PAGE_MEMORY_MAX, "{} items of {before_last} bytes", items.len());
}

fn names(items: Vec<Stat>) -> impl Iterator<Item = Lfn> {
    items.into_iter().map(|stat| stat.lfn)
}

/// Reads a stream of the directory; the names, and the number of parts.
async fn streamed(client: &mut Client) -> (Vec<Lfn>, u64) {
    let options = RequestOptions { stream: Some(1000), ..Default::default() };
    let request = client.ask_with(options, list(Cursor::default())).await;
    let mut found = Vec::new();
    loop {
        match client.expect().await {
            (id, Frame::Part(Answer::Entries { items, .. })) if id == request => {
                check_bounded(&items);
                found.extend(names(items));
            }
            (id, Frame::End { parts }) if id == request => return (found, parts),
            other => panic!("{other:?}"),
        }
    }
}

/// A directory of large entries is listed whole, each entry once, in pages that end early: page by
/// page across the early ends, and as a stream.
#[tokio::test(flavor = "multi_thread")]
async fn large_entries_are_listed_once_in_pages_of_bounded_bytes() {
    let world = World::new().await;
    let files = world.large_files("/d", FILES).await;
    let mut client = Client::admin(&world).await;
    let (mut found, mut pages, mut cursor) = (Vec::new(), 0, Some(Cursor::default()));
    while let Some(from) = cursor {
        let Answer::Entries { items, next, .. } = client.call(list(from)).await.unwrap() else { panic!() };
        check_bounded(&items);
        assert!(!items.is_empty());
        found.extend(names(items));
        (pages, cursor) = (pages + 1, next);
    }
    assert_eq!(found, files);
    assert!(pages > 5, "{pages} pages");
    let (found, parts) = streamed(&mut client).await;
    assert_eq!(found, files);
    assert!(parts > 5, "{parts} parts");
}

/// While others use up the room for unread answers, a stream goes on with one large entry at a time.
#[tokio::test(flavor = "multi_thread")]
async fn large_entries_come_one_at_a_time_without_room_for_more() {
    let world = World::with_limits(|limits| limits.unread_bytes_max = 1 << 20).await;
    let files = world.large_files("/d", 12).await;
    let mut client = Client::admin(&world).await;
    let (found, parts) = streamed(&mut client).await;
    assert_eq!((found, parts), (files.clone(), 12));
    // So does a page, and the client continues from its cursor.
    let Answer::Entries { items, next, .. } = client.call(list(Cursor::default())).await.unwrap() else {
        panic!()
    };
    assert_eq!((items.len(), next.is_some()), (1, true));
}

/// A look-up of many large entries is refused. Look-ups that are each within the limit are answered,
/// or the client is told to repeat them, even if they arrive together.
#[tokio::test(flavor = "multi_thread")]
async fn look_ups_of_large_entries_are_bounded_by_bytes() {
    let world = World::new().await;
    let files = world.large_files("/d", FILES).await;
    let mut client = Client::admin(&world).await;
    let stat = |lfns: &[Lfn]| Operation::Stat { lfns: lfns.to_vec(), follow: true };
    assert_eq!(client.call(stat(&files)).await.unwrap_err().kind, ErrorKind::Limit);
    assert!(
        matches!(client.call(stat(&files[..8])).await.unwrap(), Answer::Stats(found) if found.len() == 8)
    );
    let mut left = files.clone();
    let mut rounds = 0;
    while !left.is_empty() {
        let requests =
            Client::pipelined(1000 * (rounds + 1), left.iter().map(|one| stat(std::slice::from_ref(one))));
        client.write(&requests).await;
        let mut busy = Vec::new();
        for (place, file) in left.into_iter().enumerate() {
            match client.outcome(1000 * (rounds + 1) + place as u64).await {
                Ok(Answer::Stats(found)) => assert_eq!(found[0].as_ref().unwrap().lfn, file),
                Err(error) if error.kind == ErrorKind::Busy => busy.push(file),
                other => panic!("{other:?}"),
            }
        }
        left = busy;
        rounds += 1;
        assert!(rounds < FILES as u64, "some are always busy: {left:?}");
    }
    // The locations of as many are few bytes.
    let asked = files[..32].iter().cloned().map(exacat_model::FileRef::Lfn).collect();
    let found = client.call(Operation::Whereis { files: asked, site: None }).await.unwrap();
    assert!(matches!(found, Answer::Whereis(found) if found.iter().all(Result::is_ok)));
}
