//! Each limit of the writer protocol at its edge: the largest is accepted, and one more refused.

use exacat_model::codec::{Decode, Encode};
use exacat_model::{Lfn, TagKey};
use exacat_wire::native::Secret;
use exacat_wire::writer::limits::{
    ADDRESS_BYTES_MAX, BLOCK_BYTES, BODY_BYTES_MAX, CHUNK_BYTES_MAX, CHUNK_HEAD_BYTES, FILE_BYTES_MAX,
    HANDSHAKE_BODY_BYTES_MAX, LABEL_BYTES_MAX, NAME_BYTES_MAX, PARTS_MAX, RANGES_MAX, REASON_BYTES_MAX,
    REPORT_CHUNKS_MAX, SERVICES_MAX, TAG_VALUE_BYTES_MAX, TAGS_MAX, TOKEN_BYTES_MAX,
};
use exacat_wire::writer::{
    Ack, ByteRange, ChunkHead, Close, Description, Frame, FrameDecoder, FrameError, FrameType, Hello, Open,
    PartOwner, PartReport, PartState, Received, Refusal, RefusalClass, Role, ServiceId, ServiceRecord, Table,
    encode,
};

use crate::golden::greeted;
use crate::samples::{FILE, SERVICE, ack, close, description, frames, head, record, service_record};

/// Says whether a frame is accepted in its turn.
fn is_accepted(frame: &Frame) -> bool {
    let mut bytes = Vec::new();
    encode(&mut bytes, frame);
    let mut decoder = match frame {
        Frame::Hello(_) => FrameDecoder::of_accepted(),
        _ => greeted(),
    };
    decoder.feed(&bytes);
    decoder.next_message().is_ok_and(|message| message == Some(Received::Frame(frame.clone())))
}

#[track_caller]
fn edge(limit: u64, frame: impl Fn(u64) -> Frame) {
    assert!(is_accepted(&frame(limit)), "the limit itself is accepted");
    assert!(!is_accepted(&frame(limit + 1)), "one more is refused");
}

fn text(length: u64) -> String {
    "x".repeat(length as usize)
}

fn open(description: Description, from: u64) -> Frame {
    Frame::Open(Open { file: FILE, stream: 1, epoch: 1, from, description })
}

/// Property: texts are bounded. A sender cuts names and reasons, so these are edited in the bytes.
#[test]
fn texts_end_at_their_limits() {
    edge(LABEL_BYTES_MAX as u64, |length| open(Description { run: text(length), ..description() }, 0));
    edge(LABEL_BYTES_MAX as u64, |length| open(Description { stream: text(length), ..description() }, 0));
    edge(TAG_VALUE_BYTES_MAX as u64, |length| {
        let tags = vec![(TagKey::parse("key").unwrap(), text(length))];
        open(Description { tags, ..description() }, 0)
    });
    let hello = |name: String, token: Option<Secret>| {
        let role = Role::Service(SERVICE);
        Frame::Hello(Hello { version_min: 1, version_max: 1, role, name, token })
    };
    edge(TOKEN_BYTES_MAX as u64, |length| hello(String::new(), Some(Secret::new(text(length)))));
    for (limit, frame) in [
        (NAME_BYTES_MAX, hello(text(NAME_BYTES_MAX as u64 + 1), None)),
        (REASON_BYTES_MAX, Frame::Goodbye { reason: text(REASON_BYTES_MAX as u64 + 1) }),
        (REASON_BYTES_MAX, refusal(text(REASON_BYTES_MAX as u64 + 1))),
        (ADDRESS_BYTES_MAX, table(ServiceRecord { address: text(256), ..service_record() })),
    ] {
        let mut bytes = Vec::new();
        encode(&mut bytes, &frame);
        let cut = bytes[text_at(&bytes)..].iter().filter(|byte| **byte == b'x').count();
        assert_eq!(cut, limit, "the sender cuts it");
        let longer = longer(&bytes, limit);
        let mut decoder =
            if matches!(frame, Frame::Hello(_)) { FrameDecoder::of_accepted() } else { greeted() };
        decoder.feed(&longer);
        assert!(matches!(decoder.next_message(), Err(FrameError::Body { .. })), "{frame:?}");
    }
}

fn refusal(reason: String) -> Frame {
    Frame::Refusal(Refusal { class: RefusalClass::Conflict, part: None, reason })
}

fn table(record: ServiceRecord) -> Frame {
    Frame::Table(Table(vec![record]))
}

/// Returns the place of the long text in a frame.
fn text_at(bytes: &[u8]) -> usize {
    bytes.windows(3).position(|three| three == b"xxx").unwrap()
}

/// Makes the text of a frame one byte longer, with the lengths before it.
fn longer(bytes: &[u8], limit: usize) -> Vec<u8> {
    let at = text_at(bytes);
    let prefix = (limit as u64).to_bytes();
    let mut longer = bytes[..at - prefix.len()].to_vec();
    (limit as u64 + 1).encode(&mut longer);
    longer.push(b'x');
    longer.extend_from_slice(&bytes[at..]);
    let counted = (longer.len() - 4) as u32;
    longer[..4].copy_from_slice(&counted.to_le_bytes());
    longer
}

#[test]
fn lists_end_at_their_limits() {
    edge(TAGS_MAX as u64, |count| {
        let tags = (0..count).map(|at| (TagKey::parse(&format!("k{at}")).unwrap(), text(1))).collect();
        open(Description { tags, ..description() }, 0)
    });
    edge(RANGES_MAX as u64, |count| {
        let ranges = (0..count).map(|at| ByteRange { from: 2 * at, to: 2 * at + 1 }).collect();
        Frame::Ack(Ack { ranges, ..ack() })
    });
    edge(PARTS_MAX as u64, |count| {
        let parts = (1..=count).map(|at| PartOwner { epoch: at as u32, service: SERVICE }).collect();
        Frame::Close(Close { epoch: count as u32, parts, ..close() })
    });
    edge(REPORT_CHUNKS_MAX as u64, |count| {
        let chunks = vec![record(); count as usize];
        Frame::PartReport(PartReport {
            file: FILE,
            epoch: 1,
            state: PartState::Sealed,
            from: 0,
            chunks,
            more: false,
        })
    });
    edge(SERVICES_MAX as u64, |count| {
        let record = |at: u64| {
            let mut id = [0; 16];
            id[8..].copy_from_slice(&at.to_be_bytes());
            ServiceRecord { service: ServiceId(id), ..service_record() }
        };
        Frame::Table(Table((0..count).map(record).collect()))
    });
}

/// Property: the largest report that the limits allow fits into a frame.
#[test]
fn full_report_of_the_largest_chunks_fits_into_a_frame() {
    let chunk = exacat_wire::writer::ChunkRecord {
        sequence: u64::MAX,
        offset: FILE_BYTES_MAX - CHUNK_BYTES_MAX as u64,
        length: CHUNK_BYTES_MAX as u32,
        events: CHUNK_BYTES_MAX as u32,
        crc32c: 0,
        adler32: 0,
    };
    let report = PartReport {
        file: FILE,
        epoch: u32::MAX,
        state: PartState::Sealed,
        from: u64::MAX,
        chunks: vec![chunk; REPORT_CHUNKS_MAX],
        more: true,
    };
    assert!(report.to_bytes().len() <= BODY_BYTES_MAX);
    assert!(is_accepted(&Frame::PartReport(report)));
}

#[test]
fn bodies_end_at_their_limits() {
    for (frame_type, limit) in
        [(FrameType::Hello, HANDSHAKE_BODY_BYTES_MAX), (FrameType::Goodbye, BODY_BYTES_MAX)]
    {
        for (body, is_awaited) in [(limit, true), (limit + 1, false)] {
            let mut decoder = match frame_type {
                FrameType::Hello => FrameDecoder::of_accepted(),
                _ => greeted(),
            };
            decoder.feed(&(body as u32 + 1).to_le_bytes());
            decoder.feed(&[frame_type as u8]);
            assert_eq!(decoder.next_message().is_ok(), is_awaited, "{body} bytes of {}", frame_type.name());
        }
    }
}

fn decodes(head: ChunkHead) -> bool {
    ChunkHead::decode(&head.encode()).is_ok_and(|decoded| decoded == head)
}

#[test]
fn chunk_beyond_a_block_or_the_largest_file_is_refused() {
    let block = BLOCK_BYTES as u64;
    let chunk = |offset: u64, length: u32| ChunkHead { offset, length, ..head() };
    assert!(decodes(chunk(block, CHUNK_BYTES_MAX as u32)));
    assert!(!decodes(chunk(block, CHUNK_BYTES_MAX as u32 + 1)));
    assert!(!decodes(chunk(block, 0)));
    assert!(decodes(chunk(block - 1, 1)) && !decodes(chunk(block - 1, 2)));
    assert!(decodes(chunk(FILE_BYTES_MAX - 1, 1)));
    assert!(!decodes(chunk(FILE_BYTES_MAX, 1)) && !decodes(chunk(u64::MAX, 1)));
    assert!(decodes(ChunkHead { events: 4, ..head() }) && !decodes(ChunkHead { events: 5, ..head() }));
    assert!(!decodes(ChunkHead { epoch: 0, ..head() }));
}

/// Property: no changed bit of a chunk's head passes.
#[test]
fn changed_bit_of_a_chunk_head_is_refused() {
    for bit in 0..CHUNK_HEAD_BYTES * 8 {
        let mut bytes = head().encode();
        bytes[bit / 8] ^= 1 << (bit % 8);
        assert!(ChunkHead::decode(&bytes).is_err(), "bit {bit}");
    }
}

#[test]
fn numbers_of_a_file_end_at_their_limits() {
    edge(FILE_BYTES_MAX, |from| open(description(), from));
    edge(FILE_BYTES_MAX, |to| Frame::Ack(Ack { ranges: vec![ByteRange { from: 5, to }], ..ack() }));
    edge(FILE_BYTES_MAX, |length| Frame::Close(Close { length, ..close() }));
    edge(close().length, |events| Frame::Close(Close { events, ..close() }));
    edge(close().length, |chunks| Frame::Close(Close { chunks, ..close() }));
}

#[test]
fn impossible_order_is_refused() {
    let range = |from, to| ByteRange { from, to };
    for bytes in [[1, 0, 0].as_slice(), &[2, 0, 1, 0, 1]] {
        let mut ack = FILE.to_bytes();
        1u32.encode(&mut ack);
        ack.extend_from_slice(bytes);
        0u64.encode(&mut ack);
        assert!(Ack::from_bytes(&ack).is_err(), "{bytes:?}");
    }
    assert!(is_accepted(&Frame::Ack(Ack { ranges: vec![range(0, 1), range(2, 3)], ..ack() })));
    let parts =
        |epochs: &[u32]| epochs.iter().map(|epoch| PartOwner { epoch: *epoch, service: SERVICE }).collect();
    for (epochs, is_right) in
        [(&[1, 2][..], true), (&[2, 1], false), (&[2, 2], false), (&[1], false), (&[], false)]
    {
        assert_eq!(
            is_accepted(&Frame::Close(Close { parts: parts(epochs), ..close() })),
            is_right,
            "{epochs:?}"
        );
    }
    let twice = vec![service_record(), service_record()];
    assert!(!is_accepted(&Frame::Table(Table(twice))));
    let long = Lfn::parse(&format!("/{}", "d/".repeat(300).trim_end_matches('/'))).unwrap();
    assert!(is_accepted(&open(Description { lfn: long, ..description() }, 0)));
}

#[test]
fn frame_out_of_turn_breaks_the_connection() {
    let (mut hello, mut ping, mut refused) = (Vec::new(), Vec::new(), Vec::new());
    encode(&mut hello, &frames()[0]);
    encode(&mut ping, &Frame::Ping(1));
    encode(&mut refused, &refusal("no".to_owned()));
    let first = |mut decoder: FrameDecoder, bytes: &[u8]| {
        decoder.feed(bytes);
        decoder.next_message().map(|message| message.is_some())
    };
    let out_of_turn = |frame_type| Err(FrameError::OutOfTurn { frame_type });
    assert_eq!(first(FrameDecoder::of_accepted(), &ping), out_of_turn(FrameType::Ping));
    assert_eq!(first(FrameDecoder::of_begun(), &hello), out_of_turn(FrameType::Hello));
    assert_eq!(first(FrameDecoder::of_begun(), &refused), Ok(true));
    assert_eq!(first(greeted(), &hello), out_of_turn(FrameType::Hello));
    let mut later = greeted();
    later.feed(&[1, 0, 0, 0, 99]);
    assert_eq!(later.next_message(), Err(FrameError::UnknownType { number: 99 }));
    assert!(later.next_message().is_err() && !later.is_between_frames(), "it stays broken");
}
