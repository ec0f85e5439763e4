//! Frame decoder and encoders: messages survive encoding and decoding in any pieces, bad frames are
//! refused with the reason, nothing panics.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "a test fails by panicking, and says what it skipped or counted"
)]

use exacat_model::answer::{ReplicaAt, Stat, Whereis};
use exacat_model::operation::{Cursor, Existing, FileRef, NewFile};
use exacat_model::{
    AccountName, Answer, Checksum, Checksums, Consistency, Error, ErrorKind, Guid, HasRevision, Lfn,
    Operation, OperationId, Past, PastPoint, ReplicaState, Revision, SeName, TimelineId,
};
use exacat_wire::native::limits::{
    BATCH_OPERATIONS_MAX, COUNTED_HEADER_BYTES, CREDIT_MAX, FRAME_BYTES_MAX, FRAME_BYTES_MAX_LEAST,
    HANDSHAKE_FRAME_BYTES_MAX, HEADER_BYTES, PEER_NAME_BYTES_MAX, REASON_BYTES_MAX, SECRET_BYTES_MAX,
};
use exacat_wire::native::{
    AnswerBatch, Authenticate, Batch, BatchItem, Behind, Credentials, Frame, FrameDecoder, FrameError,
    FrameType, Hello, HelloAck, Identity, Limits, Request, RequestOptions, Secret, encode_answer_batch,
    encode_authenticate, encode_batch, encode_error, encode_frame, encode_goodbye, encode_hello,
    encode_outcome, encode_part, encode_ping, encode_request, flags,
};

mod random;

use random::Random;

impl Random {
    fn some<T>(&mut self, make: impl FnOnce(&mut Self) -> T) -> Option<T> {
        (self.below(2) == 0).then(|| make(self))
    }

    fn list<T>(&mut self, most: u64, mut make: impl FnMut(&mut Self) -> T) -> Vec<T> {
        (0..self.below(most + 1)).map(|_| make(self)).collect()
    }

    fn text(&mut self) -> String {
        (0..self.below(20)).map(|_| ['a', 'ż', '🦀', ' ', '%', '?', '"'][self.below(7) as usize]).collect()
    }

    fn bytes16(&mut self) -> [u8; 16] {
        let (high, low) = (self.next(), self.next());
        (u128::from(high) << 64 | u128::from(low)).to_le_bytes()
    }

    fn lfn(&mut self) -> Lfn {
        let names: Vec<String> = (0..self.below(6)).map(|_| format!("n{}", self.text())).collect();
        Lfn::from_names(names.iter().map(String::as_str))
    }

    fn account(&mut self) -> AccountName {
        AccountName::parse(&format!("user{}", self.below(1000))).unwrap()
    }

    fn file(&mut self) -> FileRef {
        if self.below(2) == 0 { FileRef::Lfn(self.lfn()) } else { FileRef::Guid(Guid(self.bytes16())) }
    }

    fn cursor(&mut self) -> Cursor {
        Cursor(self.list(30, |random| random.next() as u8))
    }

    fn operation(&mut self) -> Operation {
        match self.below(10) {
            0 => Operation::Whoami,
            1 => Operation::Stat { lfns: self.list(4, Random::lfn), follow: self.below(2) == 0 },
            2 => Operation::Whereis { files: self.list(4, Random::file), site: self.some(Random::account) },
            3 => Operation::Lfns { guids: self.list(4, |random| Guid(random.bytes16())) },
            4 => Operation::List { lfn: self.lfn(), cursor: self.cursor(), limit: self.next() as u32 },
            5 => Operation::Move { from: self.lfn(), to: self.lfn() },
            6 => Operation::Register {
                files: self.list(3, |random| NewFile {
                    size: random.some(Random::next),
                    guid: random.some(|random| Guid(random.bytes16())),
                    owner: random.some(Random::account),
                    ..NewFile::named(random.lfn())
                }),
                parents: self.below(2) == 0,
                existing: Existing::Merge,
            },
            7 => Operation::Changes {
                after: Revision(self.next()).into(),
                under: self.some(Random::lfn),
                limit: 10,
                wait: true,
            },
            8 => Operation::TrashPurge {
                id: exacat_model::TrashId(Revision(self.next())).on(TimelineId(self.bytes16()).tag()),
                cursor: self.cursor(),
            },
            _ => Operation::Status,
        }
    }

    fn error(&mut self) -> Error {
        Error::new(ErrorKind::ALL[self.below(16) as usize], self.text())
    }

    fn answer(&mut self) -> Answer {
        match self.below(4) {
            0 => Answer::Done { revision: Revision(self.next()) },
            1 => {
                Answer::Lfns(self.list(4, |random| {
                    if random.below(2) == 0 { Ok(random.lfn()) } else { Err(random.error()) }
                }))
            }
            2 => Answer::Entries { items: Vec::<Stat>::new(), ses: vec![], next: self.some(Random::cursor) },
            _ => Answer::Whereis(self.list(3, |random| {
                Ok(Whereis {
                    guid: Guid(random.bytes16()),
                    size: random.some(Random::next),
                    checksums: Checksums::one(Checksum::parse("adler32:1").unwrap()),
                    replicas: random.list(3, |random| ReplicaAt {
                        se: Some(SeName::parse("A::B::C").unwrap()),
                        state: ReplicaState::Copying,
                        pfn: random.text(),
                    }),
                })
            })),
        }
    }

    fn past(&mut self) -> Option<Past> {
        self.some(|random| {
            let revision = Revision(random.next() >> random.below(64));
            let point = match random.below(2) {
                0 => PastPoint::Revision(revision.into()),
                _ => PastPoint::Time(exacat_model::TimeMs(random.below(1 << 48))),
            };
            Past { point, changes_max: random.next() >> random.below(64) }
        })
    }

    fn consistency(&mut self) -> Option<Consistency> {
        self.some(|random| Consistency::ALL[random.below(Consistency::ALL.len() as u64) as usize])
    }

    fn operation_id(&mut self, operation: &Operation) -> Option<OperationId> {
        operation.writes().then(|| OperationId(self.bytes16()))
    }

    fn frame(&mut self) -> (u64, Frame) {
        let request = self.next().max(1);
        match FrameType::ALL[self.below(16) as usize] {
            FrameType::Hello => {
                let version_min = self.below(10) as u16;
                let version_max = version_min + self.below(10) as u16;
                (
                    0,
                    Frame::Hello(Hello {
                        version_min,
                        version_max,
                        features: self.next(),
                        client: self.text(),
                    }),
                )
            }
            FrameType::HelloAck => (
                0,
                Frame::HelloAck(HelloAck {
                    version: self.next() as u16,
                    features: self.next(),
                    limits: Limits {
                        frame_bytes_max: FRAME_BYTES_MAX_LEAST as u32 + self.below(1000) as u32,
                        requests_in_flight_max: 1 + self.below(1000) as u32,
                        batch_operations_max: 1 + self.below(1000) as u32,
                        idle_ms_max: self.next() as u32,
                    },
                    server: self.text(),
                    catalogue: Guid(self.bytes16()),
                    timeline: TimelineId(self.bytes16()),
                    authentication_required: self.below(2) == 0,
                    time: exacat_model::TimeMs(self.below(1 << 48)),
                }),
            ),
            FrameType::Authenticate => (
                0,
                Frame::Authenticate(Authenticate {
                    credentials: match self.below(3) {
                        0 => Credentials::Anonymous,
                        1 => Credentials::Local,
                        _ => Credentials::Token(Secret::new(self.text())),
                    },
                    act_as: self.some(Random::account),
                }),
            ),
            FrameType::Authenticated => (
                0,
                Frame::Authenticated(Identity {
                    user: self.some(Random::account),
                    scope: self.lfn(),
                    write: self.below(2) == 0,
                }),
            ),
            FrameType::Request => {
                let operation = self.operation();
                let options = RequestOptions {
                    operation_id: self.operation_id(&operation),
                    deadline_ms: self.some(|random| random.next() as u32),
                    stream: if operation.has_pages() {
                        self.some(|random| random.below(u64::from(CREDIT_MAX) + 1) as u32)
                    } else {
                        None
                    },
                    consistency: self.consistency(),
                    past: self.past(),
                };
                (request, Frame::Request(Request { options, operation }))
            }
            FrameType::Batch => {
                let mut items = self.list(5, |random| {
                    let operation = random.operation();
                    BatchItem { operation_id: random.operation_id(&operation), operation }
                });
                items.push(BatchItem { operation_id: None, operation: Operation::Whoami });
                let deadline_ms = self.some(|random| random.next() as u32);
                let (consistency, past) = (self.consistency(), self.past());
                (request, Frame::Batch(Batch { deadline_ms, consistency, past, items }))
            }
            FrameType::Answer => (request, Frame::Answer(self.answer())),
            FrameType::AnswerBatch => {
                let mut answers = vec![Err(self.error())];
                answers.extend(self.list(5, |random| Ok(random.answer())));
                (request, Frame::AnswerBatch(AnswerBatch { first: self.next() as u32, answers }))
            }
            FrameType::Part => (request, Frame::Part(self.answer())),
            FrameType::End => (request, Frame::End { parts: self.next() }),
            FrameType::Credit => (request, Frame::Credit { parts: self.below(u64::from(CREDIT_MAX)) as u32 }),
            FrameType::Cancel => (request, Frame::Cancel),
            FrameType::Error => (self.below(2) * request, Frame::Error(self.error())),
            FrameType::Ping => (0, Frame::Ping(self.next())),
            FrameType::Pong => (0, Frame::Pong(self.next())),
            FrameType::Goodbye => (0, Frame::Goodbye { reason: self.text() }),
            FrameType::Behind => {
                let revision = Revision(self.next());
                (0, Frame::Behind(Behind { revision, changes: self.next(), ms: self.next() }))
            }
        }
    }
}

fn decoder() -> FrameDecoder {
    let mut decoder = FrameDecoder::new();
    decoder.set_frame_bytes_max(FRAME_BYTES_MAX);
    decoder
}

fn only_frame(bytes: &[u8]) -> (u64, Frame) {
    let mut decoder = decoder();
    decoder.feed(bytes);
    let raw = decoder.next_frame().unwrap().unwrap();
    assert!(decoder.next_frame().unwrap().is_none());
    decoder.finish().unwrap();
    (raw.request, raw.decode().unwrap())
}

#[test]
fn what_is_encoded_is_decoded_in_whatever_pieces_it_comes() {
    for seed in 0..300 {
        let mut random = Random(seed);
        let frames: Vec<(u64, Frame)> = (0..20).map(|_| random.frame()).collect();
        let mut bytes = Vec::new();
        for (request, frame) in &frames {
            encode_frame(&mut bytes, FRAME_BYTES_MAX, *request, frame).unwrap();
        }
        let mut decoder = decoder();
        let mut decoded = Vec::new();
        let mut rest = bytes.as_slice();
        while !rest.is_empty() {
            let most = [1, 5, 20, 10_000][random.below(4) as usize];
            let (piece, after) = rest.split_at((1 + random.below(most) as usize).min(rest.len()));
            decoder.feed(piece);
            rest = after;
            while let Some(raw) = decoder.next_frame().unwrap() {
                decoded.push((raw.request, raw.decode().unwrap()));
            }
        }
        decoder.finish().unwrap();
        assert_eq!(decoded, frames, "seed {seed}");
    }
}

/// Any bytes give frames or an error. Decoded frames encode to the same bytes again, except a
/// hello, which may have unknown bytes.
#[test]
fn spoilt_bytes_never_panic_and_have_one_meaning() {
    let mut accepted = 0;
    for seed in 0..20_000 {
        let mut random = Random(seed);
        let (request, frame) = random.frame();
        let mut bytes = Vec::new();
        encode_frame(&mut bytes, FRAME_BYTES_MAX, request, &frame).unwrap();
        for _ in 0..=random.below(3) {
            let at = random.below(bytes.len() as u64) as usize;
            match random.below(3) {
                0 => bytes[at] = random.next() as u8,
                1 => bytes[at] ^= 1 << random.below(8),
                _ => bytes.truncate(at.max(1)),
            }
        }
        let mut decoder = decoder();
        decoder.feed(&bytes);
        while let Ok(Some(raw)) = decoder.next_frame() {
            let Ok(frame) = raw.decode() else { continue };
            accepted += 1;
            if frame.frame_type() == FrameType::Hello {
                continue;
            }
            let mut again = Vec::new();
            encode_frame(&mut again, FRAME_BYTES_MAX, raw.request, &frame).unwrap();
            assert_eq!(again[HEADER_BYTES..], raw.body[..], "seed {seed}: {frame:?}");
            assert_eq!(again[5], raw.flags, "seed {seed}");
        }
    }
    assert!(accepted > 1000, "only {accepted} spoilt frames still decoded: the test looks at nothing");
}

fn header(counted: u32, number: u8, flags: u8, request: u64) -> Vec<u8> {
    let mut bytes = counted.to_le_bytes().to_vec();
    bytes.push(number);
    bytes.push(flags);
    bytes.extend_from_slice(&request.to_le_bytes());
    bytes
}

#[test]
fn what_breaks_the_framing_is_named_and_stays_broken() {
    let empty = COUNTED_HEADER_BYTES as u32;
    for (bytes, error) in [
        (header(empty - 1, 12, 0, 1), FrameError::TooShort { counted: empty - 1 }),
        (header(0, 12, 0, 1), FrameError::TooShort { counted: 0 }),
        (header(empty, 0, 0, 1), FrameError::UnknownType { number: 0 }),
        (header(empty, 18, 0, 1), FrameError::UnknownType { number: 18 }),
        (header(empty, 255, 0, 1), FrameError::UnknownType { number: 255 }),
        (
            header(empty, FrameType::Cancel as u8, 1, 1),
            FrameError::BadFlags { frame_type: FrameType::Cancel, flags: 1 },
        ),
        (
            header(empty, FrameType::Request as u8, 0x3f, 1),
            FrameError::BadFlags { frame_type: FrameType::Request, flags: 0x3f },
        ),
        (
            header(empty, FrameType::Batch as u8, flags::STREAM, 1),
            FrameError::BadFlags { frame_type: FrameType::Batch, flags: flags::STREAM },
        ),
        (
            header(empty, FrameType::Request as u8, 0, 0),
            FrameError::BadRequestId { frame_type: FrameType::Request, request: 0 },
        ),
        (
            header(empty, FrameType::Ping as u8, 0, 9),
            FrameError::BadRequestId { frame_type: FrameType::Ping, request: 9 },
        ),
        (
            b"GET / HTTP/1.1\r\n".to_vec(),
            FrameError::TooLarge {
                bytes: u64::from(u32::from_le_bytes(*b"GET ")) + 4,
                limit: FRAME_BYTES_MAX,
            },
        ),
    ] {
        let mut decoder = decoder();
        decoder.feed(&bytes);
        assert_eq!(decoder.next_frame().unwrap_err(), error);
        assert_eq!(error.answerable_request(), None);
        let mut good = Vec::new();
        encode_ping(&mut good, 1);
        decoder.feed(&good);
        assert_eq!(decoder.next_frame().unwrap_err(), error, "it does not recover by chance");
        assert_eq!(decoder.finish().unwrap_err(), error);
    }
}

#[test]
fn a_body_that_does_not_decode_spoils_only_its_request() {
    let mut bytes = header(COUNTED_HEADER_BYTES as u32 + 1, FrameType::Request as u8, 0, 77);
    bytes.push(200);
    encode_ping(&mut bytes, 5);
    let mut decoder = decoder();
    decoder.feed(&bytes);
    let error = decoder.next_frame().unwrap().unwrap().decode().unwrap_err();
    assert_eq!(error.answerable_request(), Some(77));
    assert_eq!(Error::from(error).kind, ErrorKind::Invalid);
    assert_eq!(decoder.next_frame().unwrap().unwrap().decode().unwrap(), Frame::Ping(5));
    // A damaged frame of another type has no request to answer.
    let mut bytes = Vec::new();
    encode_ping(&mut bytes, 5);
    bytes[0] -= 1;
    bytes.pop();
    decoder.feed(&bytes);
    let error = decoder.next_frame().unwrap().unwrap().decode().unwrap_err();
    assert_eq!(error.answerable_request(), None);
}

#[test]
fn a_frame_may_be_as_long_as_the_limit_and_no_longer() {
    let mut decoder = FrameDecoder::new();
    for (limit, set) in [(HANDSHAKE_FRAME_BYTES_MAX, false), (FRAME_BYTES_MAX_LEAST, true)] {
        if set {
            decoder.set_frame_bytes_max(limit);
        }
        decoder.feed(&header(limit as u32 - 4, FrameType::Error as u8, 0, 1));
        assert_eq!(decoder.next_frame(), Ok(None));
        decoder.feed(&vec![0; limit - HEADER_BYTES]);
        assert_eq!(decoder.next_frame().unwrap().unwrap().body.len(), limit - HEADER_BYTES);
    }
    // One byte more is refused at the length field, before any memory is held for it.
    decoder.feed(&(FRAME_BYTES_MAX_LEAST as u32 - 3).to_le_bytes());
    let error = decoder.next_frame().unwrap_err();
    assert_eq!(
        error,
        FrameError::TooLarge { bytes: FRAME_BYTES_MAX_LEAST as u64 + 1, limit: FRAME_BYTES_MAX_LEAST }
    );
    assert_eq!(Error::from(error).kind, ErrorKind::Limit);
}

#[test]
fn an_end_inside_a_frame_is_noticed() {
    let mut bytes = Vec::new();
    encode_ping(&mut bytes, 1);
    for cut in 0..bytes.len() {
        let mut decoder = decoder();
        decoder.feed(&bytes[..cut]);
        assert_eq!(decoder.next_frame(), Ok(None), "cut at {cut}");
        match cut {
            0 => assert_eq!(decoder.finish(), Ok(())),
            _ => assert_eq!(decoder.finish(), Err(FrameError::Truncated { bytes: cut })),
        }
    }
}

#[test]
fn a_write_has_an_operation_id_and_a_read_has_none() {
    let lfn = Lfn::parse("/a").unwrap();
    let write = Operation::Mkdir { lfns: vec![lfn.clone()], parents: false, mode: None };
    let read = Operation::Du { lfns: vec![lfn] };
    use exacat_model::codec::Encode;
    let frame = |flags: u8, prefix: &[u8], operation: &Operation| {
        let body: Vec<u8> = prefix.iter().copied().chain(operation.to_bytes()).collect();
        let mut bytes =
            header((COUNTED_HEADER_BYTES + body.len()) as u32, FrameType::Request as u8, flags, 1);
        bytes.extend(body);
        let mut decoder = decoder();
        decoder.feed(&bytes);
        decoder.next_frame().unwrap().unwrap().decode().map(|_| ())
    };
    assert!(frame(flags::OPERATION_ID, &[9; 16], &write).is_ok());
    assert!(frame(0, &[], &read).is_ok());
    assert!(frame(0, &[], &write).is_err());
    assert!(frame(flags::OPERATION_ID, &[9; 16], &read).is_err());
    // Only operations with pages can be streamed.
    assert!(frame(flags::STREAM, &[1], &read).is_err());
    let list = Operation::TrashList { cursor: Cursor::default(), limit: 1 };
    assert!(frame(flags::STREAM, &[1], &list).is_ok());
    // 1024 is two bytes as a varint: 0x80 0x08.
    assert!(frame(flags::STREAM, &[0x80, 0x08], &list).is_ok());
    assert!(frame(flags::STREAM, &[0x81, 0x08], &list).is_err(), "credit beyond its limit");
}

#[test]
fn batches_are_bounded() {
    let item = BatchItem { operation_id: None, operation: Operation::Whoami };
    let batch = |count: usize| Batch {
        deadline_ms: None,
        consistency: None,
        past: None,
        items: vec![item.clone(); count],
    };
    let mut out = Vec::new();
    encode_batch(&mut out, FRAME_BYTES_MAX, 1, &batch(BATCH_OPERATIONS_MAX)).unwrap();
    let (_, frame) = only_frame(&out);
    assert!(matches!(frame, Frame::Batch(batch) if batch.items.len() == BATCH_OPERATIONS_MAX));
    out.clear();
    for count in [0, BATCH_OPERATIONS_MAX + 1] {
        assert!(encode_batch(&mut out, FRAME_BYTES_MAX, 1, &batch(count)).is_err());
        assert!(out.is_empty());
    }
    // A larger batch from a peer is refused too: `None` and `Whoami` are two bytes.
    for count in [0, BATCH_OPERATIONS_MAX + 1] {
        let mut bytes = header((COUNTED_HEADER_BYTES + 2 * count) as u32, FrameType::Batch as u8, 0, 1);
        bytes.extend([0, 1].repeat(count));
        let mut decoder = decoder();
        decoder.feed(&bytes);
        assert!(decoder.next_frame().unwrap().unwrap().decode().is_err(), "{count} operations");
    }
}

/// Bytes that would take many times their number in memory are refused before they do.
#[test]
fn a_request_cannot_take_much_more_memory_than_bytes() {
    use exacat_model::codec::put_varint;
    use exacat_model::limits::{READ_BATCH_MAX, REQUEST_MEMORY_MAX};
    let decoded = |operation: &[u8]| {
        let length = (COUNTED_HEADER_BYTES + operation.len()) as u32;
        let mut bytes = header(length, FrameType::Request as u8, 0, 1);
        bytes.extend_from_slice(operation);
        let mut decoder = decoder();
        decoder.feed(&bytes);
        decoder.next_frame().unwrap().unwrap().decode()
    };
    // A whereis of `count` times `/`, three bytes each.
    let whereis = |count: usize| {
        let mut operation = vec![3];
        put_varint(&mut operation, count as u64);
        operation.extend([1, 1, b'/'].repeat(count));
        operation.push(0);
        operation
    };
    assert!(decoded(&whereis(READ_BATCH_MAX)).is_ok());
    let most = REQUEST_MEMORY_MAX / size_of::<FileRef>();
    assert!(decoded(&whereis(most)).is_ok());
    let error = decoded(&whereis(most + 1)).unwrap_err();
    assert_eq!(error.answerable_request(), Some(1));
    assert!(error.to_string().contains("memory"), "{error}");
    // The same with many short lists: edits of no file, each with an empty list.
    let mut operation = vec![12];
    put_varint(&mut operation, 3_000_000);
    operation.extend([1, 1, b'/', 0].repeat(3_000_000));
    assert!(decoded(&operation).unwrap_err().to_string().contains("memory"));
}

#[test]
fn what_is_too_long_is_not_appended_at_all() {
    let lfn = Lfn::parse(&format!("/{}", "x".repeat(200))).unwrap();
    let operation = Operation::Stat { lfns: vec![lfn.clone()], follow: false };
    let mut whole = Vec::new();
    encode_request(&mut whole, FRAME_BYTES_MAX, 1, &RequestOptions::default(), &operation).unwrap();
    let mut out = vec![1, 2, 3];
    encode_request(&mut out, whole.len(), 1, &RequestOptions::default(), &operation).unwrap();
    assert_eq!(out[3..], whole);
    out.truncate(3);
    let error =
        encode_request(&mut out, whole.len() - 1, 1, &RequestOptions::default(), &operation).unwrap_err();
    assert_eq!(error.kind, ErrorKind::Limit);
    assert_eq!(out, [1, 2, 3]);
    assert!(encode_part(&mut out, 20, 1, &Answer::Lfns(vec![Ok(lfn.clone())])).is_err());
    assert_eq!(out, [1, 2, 3]);
    // An answer that is too long is replaced by the error that says so.
    out.clear();
    encode_outcome(&mut out, 150, 6, &Ok(Answer::Lfns(vec![Ok(lfn)])));
    let (request, frame) = only_frame(&out);
    assert_eq!(request, 6);
    assert!(matches!(frame, Frame::Error(error) if error.kind == ErrorKind::Limit));
}

#[test]
fn answers_of_a_batch_are_split_over_frames_in_order() {
    let lfn = Lfn::parse(&format!("/{}", "x".repeat(200))).unwrap();
    let long = Answer::Lfns(vec![Ok(lfn.clone()); 10]);
    let mut answers: Vec<Result<Answer, Error>> =
        (0..10).map(|n| Ok(Answer::Done { revision: Revision(n) })).collect();
    answers.extend((0..5).map(|_| Ok(Answer::Lfns(vec![Ok(lfn.clone())]))));
    answers.push(Ok(long));
    answers.push(Err(Error::new(ErrorKind::Busy, "later")));
    let limit = 600;
    let mut out = Vec::new();
    encode_answer_batch(&mut out, limit, 9, &answers);
    let mut decoder = FrameDecoder::new();
    decoder.set_frame_bytes_max(limit);
    decoder.feed(&out);
    let mut got = Vec::new();
    let mut frames = 0;
    while let Some(raw) = decoder.next_frame().unwrap() {
        assert_eq!(raw.request, 9);
        let Frame::AnswerBatch(batch) = raw.decode().unwrap() else { panic!("not an answer batch") };
        assert_eq!(batch.first as usize, got.len());
        got.extend(batch.answers);
        frames += 1;
    }
    decoder.finish().unwrap();
    assert!(frames >= 3, "{frames} frames");
    assert_eq!(got.len(), answers.len());
    for (index, (got, sent)) in got.iter().zip(&answers).enumerate() {
        match index {
            15 => assert_eq!(got.as_ref().unwrap_err().kind, ErrorKind::Limit),
            _ => assert_eq!(got, sent),
        }
    }
}

#[test]
fn texts_of_the_handshake_are_bounded() {
    let long = "ż".repeat(300);
    let mut out = Vec::new();
    encode_hello(&mut out, &Hello::new(&long));
    let Frame::Hello(hello) = only_frame(&out).1 else { panic!("not a hello") };
    assert_eq!(hello.client, "ż".repeat(PEER_NAME_BYTES_MAX / 2), "cut between characters");

    let secret = |bytes| Authenticate {
        credentials: Credentials::Token(Secret::new("x".repeat(bytes))),
        act_as: None,
    };
    out.clear();
    encode_authenticate(&mut out, &secret(SECRET_BYTES_MAX)).unwrap();
    only_frame(&out);
    out.clear();
    let sent = encode_authenticate(&mut out, &secret(SECRET_BYTES_MAX + 1));
    assert_eq!(sent.unwrap_err().kind, ErrorKind::Limit);
    assert!(out.is_empty());

    encode_goodbye(&mut out, &"x".repeat(REASON_BYTES_MAX + 1));
    assert_eq!(only_frame(&out).1, Frame::Goodbye { reason: "x".repeat(REASON_BYTES_MAX) });

    // An error always fits, even in the handshake with a stranger.
    out.clear();
    encode_error(&mut out, 0, &Error::invalid("x".repeat(100_000)));
    let mut decoder = FrameDecoder::new();
    decoder.feed(&out);
    assert!(decoder.next_frame().unwrap().is_some());
}

#[test]
fn versions_meet_at_the_newest_both_speak() {
    let hello = |version_min, version_max| Hello { version_min, version_max, ..Hello::new("test") };
    assert_eq!(hello(1, 1).choose_version(), Some(1));
    assert_eq!(hello(0, 9).choose_version(), Some(1));
    assert_eq!(hello(2, 9).choose_version(), None);
    assert_eq!(hello(0, 0).choose_version(), None);
}

#[test]
fn a_later_hello_may_have_more_in_it() {
    let mut out = Vec::new();
    encode_hello(&mut out, &Hello::new("later"));
    out.extend_from_slice(b"more");
    out[0] += 4;
    assert_eq!(only_frame(&out).1, Frame::Hello(Hello::new("later")));
}

#[test]
fn a_secret_is_not_printed() {
    let shown = format!("{:?}", Credentials::Token(Secret::new("hush")));
    assert!(!shown.contains("hush"), "{shown}");
}
