//! Bad input of producers: each gets a clear refusal, and changes nothing.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

mod rig;

use exacat_model::Lfn;
use exacat_model::limits::ACCOUNT_NAME_BYTES_MAX;
use exacat_wire::writer::limits::{BLOCK_BYTES, FILE_BYTES_MAX};
use exacat_wire::writer::{
    ByteRange, ChunkHead, Close, FileId, Frame, Hello, Opened, PartOwner, RefusalClass, Role, ServiceId,
    WriterId,
};
use exacat_writer::limits::{AUTHORIZATION_MS_MAX, AUTHORIZATIONS_MAX, CONNECTIONS_MAX};
use exacat_writer::sums::{RunningSums, SummedChunk, adler32, place_in_block};
use exacat_writer::{FileStage, PartKey};

use rig::{FILE, Rig, SERVICE, acked, asked_file, class_of, head, is_opened, open, open_of};

/// Property: each kind of bad input is refused with its class, and the file is certified afterwards as if
/// nothing of it had come.
#[test]
fn bad_input_is_refused_and_changes_nothing() {
    let mut rig = Rig::new();
    rig.connect(1, 1, 1);
    rig.connect(2, 2, 1);
    let opened = rig.tell(1, open(2));
    let limit = opened.iter().flatten().find_map(|frame| match frame {
        Frame::Opened(opened) => Some(opened.0.limit),
        _ => None,
    });
    assert_eq!(acked(&rig.chunk(1, head(0, 0, b"first"), b"first")), [ByteRange { from: 0, to: 5 }]);
    let good = head(1, 5, b"other");
    for (what, connection, head, class) in [
        ("stream", 1, ChunkHead { stream: 8, ..good }, RefusalClass::BadRequest),
        ("part", 1, ChunkHead { epoch: 3, ..good }, RefusalClass::RetryElsewhere),
        ("epoch", 1, ChunkHead { epoch: 1, ..good }, RefusalClass::Conflict),
        ("place", 1, ChunkHead { offset: 4, ..good }, RefusalClass::Conflict),
        ("sequence", 1, ChunkHead { sequence: 0, ..good }, RefusalClass::Conflict),
        ("limit", 1, ChunkHead { offset: limit.unwrap(), ..good }, RefusalClass::BadRequest),
        ("far", 1, ChunkHead { offset: 64 * BLOCK_BYTES as u64, ..good }, RefusalClass::BadRequest),
        ("end", 1, ChunkHead { offset: FILE_BYTES_MAX - 5, ..good }, RefusalClass::BadRequest),
        ("producer", 2, ChunkHead { writer: WriterId([2; 16]), ..good }, RefusalClass::BadRequest),
    ] {
        let sent = rig.chunk(connection, head, b"other");
        assert_eq!(class_of(&sent), Some(class), "{what}: {sent:?}");
        assert!(!sent.contains(&None) && acked(&sent).is_empty(), "{what}: the connection goes on");
    }
    assert_eq!(class_of(&rig.tell(1, open(1))), Some(RefusalClass::Conflict), "an epoch that is over");
    assert_eq!(class_of(&rig.tell(2, open(3))), Some(RefusalClass::BadRequest), "another's file");
    // The same chunk again is acknowledged at once.
    assert_eq!(acked(&rig.chunk(1, head(0, 0, b"first"), b"first")), [ByteRange { from: 0, to: 5 }]);
    assert_eq!(acked(&rig.chunk(1, good, b"other")), [ByteRange { from: 5, to: 10 }]);
    let parts = vec![PartOwner { epoch: 2, service: SERVICE }];
    let sums = adler32(b"firstother");
    let close = Close { file: FILE, epoch: 2, length: 10, chunks: 2, events: 2, adler32: sums, parts };
    let sent = rig.tell(1, Frame::Close(close));
    assert!(sent.iter().any(|frame| matches!(frame, Some(Frame::Certified(_)))), "{sent:?}");
}

/// Property: a close may name a service that never was. If its part is not needed the file is certified
/// without it; else the file waits and says for which service, until a better close comes. Other files go
/// on.
#[test]
fn close_with_an_unknown_service_waits_for_no_other_file() {
    let mut rig = Rig::new();
    rig.connect(1, 1, 1);
    let ghost = PartOwner { epoch: 1, service: ServiceId([0xee; 16]) };
    let own = |epoch| PartOwner { epoch, service: SERVICE };
    let sums = adler32(b"firstother");
    let close = |file, epoch, parts| {
        Frame::Close(Close { file, epoch, length: 10, chunks: 2, events: 2, adler32: sums, parts })
    };
    let is_certified = |rig: &mut Rig, file| {
        // Longer than the wait for parts that are not needed.
        (0..20).any(|_| {
            let sent = rig.sent(1);
            sent.iter().flatten().any(|frame| matches!(frame, Frame::Certified(of) if of.file == file))
        })
    };
    // The bytes before 5 are nowhere.
    rig.tell(1, open(2));
    rig.chunk(1, head(1, 5, b"other"), b"other");
    rig.tell(1, close(FILE, 2, vec![ghost, own(2)]));
    assert!(!is_certified(&mut rig, FILE));
    let status = rig.service.file(FILE, rig.now).unwrap();
    assert_eq!(status.stage, FileStage::Closed);
    assert!(status.reason.contains(&format!("part 1 is on {}", ghost.service)), "{}", status.reason);
    assert_eq!(rig.service.waiting().parts, 1);
    let other = asked_file(3);
    rig.tell(1, open_of(3, 2));
    rig.chunk(1, ChunkHead { file: other, ..head(0, 0, b"first") }, b"first");
    rig.chunk(1, ChunkHead { file: other, ..head(1, 5, b"other") }, b"other");
    rig.tell(1, close(other, 2, vec![ghost, own(2)]));
    assert!(is_certified(&mut rig, other), "all its bytes are here");
    // The producer still has the bytes, and sends them.
    assert!(is_opened(&rig.tell(1, open(3))));
    rig.chunk(1, ChunkHead { epoch: 3, ..head(0, 0, b"first") }, b"first");
    rig.service.message(1, close(FILE, 3, vec![own(2), own(3)]), rig.now);
    assert!(is_certified(&mut rig, FILE));
}

/// Property: the first part of a file here begins once the catalogue permits it, and never before. The
/// catalogue is asked once, whatever is repeated, and its refusal reaches the producer as it is.
#[test]
fn part_begins_with_the_permission_of_the_catalogue() {
    let mut rig = Rig::new();
    rig.connect(1, 1, 1);
    rig.answer = Some(Err((RefusalClass::BadRequest, "not below your directory".to_owned())));
    let sent = rig.tell(1, open(2));
    assert!(!is_opened(&sent) && class_of(&sent) == Some(RefusalClass::BadRequest), "{sent:?}");
    assert!(sent.iter().flatten().any(
        |frame| matches!(frame, Frame::Refusal(refusal) if refusal.reason == "not below your directory")
    ));
    rig.answer = None;
    assert!(rig.tell(1, open(2)).is_empty() && rig.tell(1, open(3)).is_empty());
    assert_eq!(class_of(&rig.tell(1, open(2))), Some(RefusalClass::Conflict), "an epoch that is over");
    let refused = rig.chunk(1, head(0, 0, b"early"), b"early");
    assert_eq!(class_of(&refused), Some(RefusalClass::RetryElsewhere), "no part is here");
    rig.service.authorized(1, FILE, Ok("daq".to_owned()), rig.now);
    let sent = rig.sent(1);
    let opened = sent.iter().flatten().filter(|frame| matches!(frame, Frame::Opened(_))).count();
    assert_eq!((opened, rig.asked.len()), (1, 2), "one answer to the latest open: {sent:?}");
    rig.service.authorized(1, FILE, Ok("another".to_owned()), rig.now);
    // A further part of the file needs no further permission.
    assert!(rig.sent(1).is_empty() && is_opened(&rig.tell(1, open(4))));
    assert_eq!(rig.asked.len(), 2);
    // The name of an account is bounded, as in the catalogue.
    for (bytes, is_good) in [(ACCOUNT_NAME_BYTES_MAX + 1, false), (ACCOUNT_NAME_BYTES_MAX, true)] {
        rig.answer = Some(Ok("x".repeat(bytes)));
        assert_eq!(is_opened(&rig.tell(1, open_of(1, 1))), is_good);
    }
}

/// Property: the last connection that fits is greeted, and the next one is refused as one for elsewhere, and
/// ended. The others go on.
#[test]
fn connection_beyond_the_limit_is_refused() {
    let mut rig = Rig::new();
    for number in 0..CONNECTIONS_MAX as u64 - 1 {
        rig.service.connected(number + 10, 0);
    }
    assert!(!rig.connect(1, 1, 1).contains(&None), "the last that fits");
    rig.service.connected(2, 0);
    let sent = rig.sent(2);
    assert_eq!((class_of(&sent), sent.last()), (Some(RefusalClass::RetryElsewhere), Some(&None)));
    assert!(rig.tell(1, Frame::Ping(4)).contains(&Some(Frame::Pong(4))));
    rig.service.disconnected(10, 0);
    assert!(!rig.connect(2, 2, 1).contains(&None), "there is room again");
}

/// Property: opens that wait are bounded in number and time, and end with their connection.
#[test]
fn opens_that_wait_for_the_catalogue_are_bounded() {
    let mut rig = Rig::new();
    rig.answer = None;
    rig.connect(1, 1, 1);
    rig.connect(2, 2, 1);
    for number in 0..AUTHORIZATIONS_MAX as u64 {
        rig.service.message(1, open_of(number, 1), rig.now);
    }
    assert_eq!(class_of(&rig.sent(1)), None);
    assert_eq!(rig.asked.len(), AUTHORIZATIONS_MAX);
    let another = 1 << 32;
    assert_eq!(class_of(&rig.tell(2, open_of(another, 1))), Some(RefusalClass::RetryElsewhere));
    rig.service.disconnected(1, rig.now);
    let since = rig.now;
    assert_eq!(class_of(&rig.tell(2, open_of(another, 1))), None, "their connection has ended");
    rig.service.authorized(1, asked_file(3), Ok("daq".to_owned()), rig.now);
    assert_eq!(rig.service.open_parts(), 0, "nobody waits for this answer");
    rig.now = since + AUTHORIZATION_MS_MAX - 101;
    assert_eq!(class_of(&rig.sent(2)), None);
    assert_eq!(class_of(&rig.sent(2)), Some(RefusalClass::RetryElsewhere), "the catalogue is silent");
}

/// Property: bytes that fail their sums, a chunk of a writer that did not greet, and a frame before the
/// greeting end the connection. So does an earlier session of the same writer, when it comes late.
#[test]
fn untrusted_connection_is_ended() {
    let mut rig = Rig::new();
    rig.connect(1, 1, 5);
    rig.tell(1, open(2));
    let sent = rig.chunk(1, head(0, 0, b"right"), b"wrong");
    assert_eq!((class_of(&sent), sent.last()), (Some(RefusalClass::BadRequest), Some(&None)));
    rig.connect(2, 2, 1);
    assert_eq!(rig.chunk(2, head(0, 0, b"right"), b"right").last(), Some(&None));
    rig.service.connected(3, rig.now);
    assert_eq!(rig.tell(3, Frame::Ping(1)).last(), Some(&None));
    let sent = rig.connect(4, 1, 4);
    assert_eq!((class_of(&sent), sent.last()), (Some(RefusalClass::Conflict), Some(&None)));
    assert!(!rig.connect(5, 1, 6).contains(&None));
    let lost = rig.tell(5, open(2));
    assert!(
        lost.iter().flatten().any(|frame| matches!(frame, Frame::Opened(_))),
        "the part is resumed: {lost:?}"
    );
}

/// Property: a side of another version is told both versions, and its connection ends. One that speaks this
/// version among others is greeted.
#[test]
fn other_versions_are_refused_with_the_versions_of_both() {
    let role = Role::Producer { writer: WriterId([1; 16]), session: 1 };
    for (min, max, is_common) in [(0, 1, false), (3, 9, false), (9, 0, false), (1, 2, true), (2, 9, true)] {
        let mut rig = Rig::new();
        rig.service.connected(1, rig.now);
        let hello = Hello { version_min: min, version_max: max, ..Hello::new(role, String::new(), None) };
        let sent = rig.tell(1, Frame::Hello(hello));
        let greeted = sent.iter().flatten().any(|frame| matches!(frame, Frame::HelloAck(_)));
        assert_eq!((greeted, sent.last() == Some(&None)), (is_common, !is_common), "{min} to {max}");
        if !is_common {
            let Some(Some(Frame::Refusal(refusal))) = sent.first() else { panic!("{sent:?}") };
            let both = format!("version 2 of the protocol, and the other side {min} to {max}: upgrade");
            assert!(refusal.reason.contains(&both), "{}", refusal.reason);
        }
    }
}

/// Property: a service that pings gets an answer, as a producer does. Its link ends otherwise.
#[test]
fn ping_of_a_service_is_answered() {
    let mut rig = Rig::new();
    rig.service.connected(1, rig.now);
    let role = Role::Service(ServiceId([2; 16]));
    let hello = Hello::new(role, String::new(), None);
    rig.tell(1, Frame::Hello(hello));
    assert_eq!(rig.tell(1, Frame::Ping(300)), [Some(Frame::Pong(300))]);
}

/// Property: connections of producers have one block each, within the memory of all files. A producer beyond
/// it is sent elsewhere, and a place is free again once a connection has ended and its block is back.
#[test]
fn producers_have_memory_for_what_they_send() {
    let mut rig = Rig::new();
    rig.connect(1, 1, 1);
    assert!(is_opened(&rig.tell(1, open(2))));
    let mut connected = 1;
    let refused = loop {
        let connection = connected + 1;
        let sent = rig.connect(connection, connection as u8, 1);
        if sent.contains(&None) {
            break sent;
        }
        connected = connection;
        assert!(connected < 8, "8 blocks are the memory of everything");
    };
    assert_eq!(class_of(&refused), Some(RefusalClass::RetryElsewhere));
    assert!(connected >= 2, "a file leaves room for producers: {connected}");
    let block = rig.service.lend_block(2).unwrap();
    assert!(rig.service.lend_block(2).is_none(), "a connection has one");
    rig.service.disconnected(2, rig.now);
    assert!(rig.connect(20, 20, 1).contains(&None), "its block is not back");
    rig.service.return_block(block, rig.now);
    assert!(!rig.connect(21, 21, 1).contains(&None));
    rig.service.disconnected(21, rig.now);
    assert!(!rig.connect(22, 22, 1).contains(&None), "a connection without a block");
}

/// Property: memory promised to a producer that is away is free for those that come. When it is back, it gets
/// memory for its file again, and sends on.
#[test]
fn memory_promised_to_a_producer_that_is_away_is_free_for_others() {
    let mut rig = Rig::new();
    rig.connect(1, 1, 1);
    assert!(is_opened(&rig.tell(1, open(2))));
    assert_eq!(acked(&rig.chunk(1, head(0, 0, b"first"), b"first")), [ByteRange { from: 0, to: 5 }]);
    rig.service.disconnected(1, rig.now);
    // The file keeps the block with its bytes, and a spare one, of eight.
    for other in 2..=7 {
        assert!(!rig.connect(other, other as u8, 1).contains(&None), "producer {other} is refused");
    }
    assert!(rig.connect(9, 9, 1).contains(&None), "eight blocks are the memory of everything");
    for other in 4..=7 {
        rig.service.disconnected(other, rig.now);
    }
    assert!(!rig.connect(11, 1, 2).contains(&None));
    assert!(is_opened(&rig.tell(11, open(2))));
    let next = rig.chunk(11, head(1, 5, b"next"), b"next");
    assert_eq!(acked(&next), [ByteRange { from: 5, to: 9 }], "{next:?}");
}

/// Property: files that a producer opens one after the other all get memory, before any of them is used. A
/// producer that waits for one of them would use none of the others. A file that is sent gets more.
#[test]
fn files_of_one_producer_all_get_memory() {
    let mut rig = Rig::with_blocks(96);
    rig.connect(1, 1, 1);
    let mut limits = Vec::new();
    for number in 0..32u8 {
        let Frame::Open(mut one) = open(2) else { panic!() };
        one.file = if number == 0 { FILE } else { FileId([100 + number; 16]) };
        one.description.lfn = Lfn::parse(&format!("/f{number}")).unwrap();
        let sent = rig.tell(1, Frame::Open(one));
        limits.extend(sent.iter().flatten().filter_map(|frame| match frame {
            Frame::Opened(Opened(ack)) => Some(ack.limit),
            _ => None,
        }));
        // Time passes: what nobody uses does not grow.
        for _ in 0..20 {
            rig.now += 5;
            rig.service.tick(rig.now);
        }
    }
    assert_eq!(limits.len(), 32);
    assert!(limits.iter().all(|limit| *limit >= BLOCK_BYTES as u64), "{limits:?}");
    let (mut limit, block) = (limits[0], vec![7; BLOCK_BYTES]);
    for number in 0..40 {
        let offset = number * BLOCK_BYTES as u64;
        assert!(offset < limit, "block {number} is beyond the limit of {limit}");
        let sent = rig.chunk(1, head(number, offset, &block), &block);
        let acks = sent.iter().flatten().filter_map(|frame| match frame {
            Frame::Ack(ack) if ack.file == FILE => Some(ack.limit),
            _ => None,
        });
        limit = acks.fold(limit, u64::max);
    }
}

/// Property: a chunk in a block is written like one in bytes, and its receiver has a block again.
#[test]
fn chunk_in_a_block_is_written_without_a_copy() {
    let mut rig = Rig::new();
    rig.connect(1, 1, 1);
    rig.tell(1, open(2));
    let mut block = rig.service.lend_block(1).unwrap();
    for (sequence, offset, bytes) in [(0, 0, &b"first"[..]), (1, 5, b"other")] {
        let head = head(sequence, offset, bytes);
        let place = place_in_block(&head).unwrap();
        block.bytes_mut()[place.clone()].copy_from_slice(bytes);
        let mut sums = RunningSums::default();
        sums.add(bytes);
        let before = block.bytes().as_ptr();
        rig.service.chunk(1, SummedChunk::in_block(&head, &mut block, &sums), rig.now);
        assert_eq!(block.bytes().as_ptr() != before, sequence == 0, "the first chunk brings the block");
        assert_eq!(acked(&rig.sent(1)), [ByteRange { from: offset, to: head.end() }]);
    }
    let key = PartKey { file: FILE, epoch: 2 };
    assert_eq!(rig.volume.read(key, ByteRange { from: 0, to: 10 }).unwrap(), b"firstother");
    // Its sums are those of other bytes.
    let head = head(2, 10, b"third");
    rig.service.chunk(1, SummedChunk::in_block(&head, &mut block, &RunningSums::default()), rig.now);
    assert_eq!(class_of(&rig.sent(1)), Some(RefusalClass::BadRequest));
}
