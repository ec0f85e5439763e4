//! One frame of each type, byte for byte as committed: the format cannot change unnoticed.
//!
//! Method: the bytes are here in hex. They must decode to the message, and the message must encode
//! to them. A failure means that the protocol changed: old clients and new servers no longer
//! understand each other. Do not edit a line here; raise the protocol version.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "a test fails by panicking, and says what it skipped or counted"
)]

use exacat_model::answer::{ReplicaAt, Whereis};
use exacat_model::operation::{Cursor, FileRef};
use exacat_model::{
    AccountName, Answer, Checksum, Checksums, Consistency, Error, ErrorKind, Guid, Lfn, Operation,
    OperationId, Past, PastPoint, ReplicaState, Revision, SeName, TimeMs,
};
use exacat_wire::native::limits::FRAME_BYTES_MAX;
use exacat_wire::native::{
    AnswerBatch, Authenticate, Batch, BatchItem, Behind, Credentials, Frame, FrameDecoder, FrameType, Hello,
    HelloAck, Identity, Limits, Request, RequestOptions, Secret, encode_frame,
};

fn lfn(text: &str) -> Lfn {
    Lfn::parse(text).unwrap()
}

fn guid() -> Guid {
    Guid::parse("017f22e2-79b0-7cc3-98c4-dc0c0c07398f").unwrap()
}

fn whereis() -> Answer {
    Answer::Whereis(vec![
        Ok(Whereis {
            guid: guid(),
            size: Some(1_000_000),
            checksums: Checksums::one(Checksum::parse("adler32:538ac2ee").unwrap()),
            replicas: vec![ReplicaAt {
                se: Some(SeName::parse("ALICE::CERN::EOS").unwrap()),
                state: ReplicaState::Available,
                pfn: "root://eos.example//a".to_owned(),
            }],
        }),
        Err(Error::new(ErrorKind::NotFound, "no such file")),
    ])
}

/// Request ids, messages, and their bytes.
fn goldens() -> Vec<(u64, Frame, &'static str)> {
    vec![
        (
            0,
            Frame::Hello(Hello {
                version_min: 1,
                version_max: 2,
                features: 0x81,
                client: "exacat-cli/0.1.0".to_owned(),
            }),
            "27000000 01 00 0000000000000000 657861636174 0d0a 0102 8101 10 6578616361742d636c692f302e312e30",
        ),
        (
            0,
            Frame::HelloAck(HelloAck {
                version: 1,
                features: 0,
                limits: Limits {
                    frame_bytes_max: 16 << 20,
                    requests_in_flight_max: 4096,
                    batch_operations_max: 1024,
                    idle_ms_max: 60_000,
                },
                server: "exacat/0.1.0".to_owned(),
                catalogue: guid(),
                timeline: exacat_model::TimelineId(*b"golden timeline!"),
                authentication_required: true,
                time: TimeMs(1_790_000_000_123),
            }),
            "53000000 02 00 0000000000000000 6578616361740d0a01008080800880208008e0d4030c6578616361742f30 \
             2e312e30017f22e279b07cc398c4dc0c0c07398f676f6c64656e2074696d656c696e652101fbd8c1a28c34",
        ),
        (
            0,
            Frame::Authenticate(Authenticate {
                credentials: Credentials::Token(Secret::new("s3cret")),
                act_as: Some(AccountName::parse("alitrain").unwrap()),
            }),
            "1c000000 03 00 0000000000000000 02067333637265740108616c69747261696e",
        ),
        (
            0,
            Frame::Authenticated(Identity {
                user: Some(AccountName::parse("alice").unwrap()),
                scope: lfn("/alice"),
                write: true,
            }),
            "19000000 04 00 0000000000000000 0105616c696365062f616c69636501",
        ),
        (
            1,
            Frame::Request(Request {
                options: RequestOptions::default(),
                operation: Operation::Whereis { files: vec![FileRef::Lfn(lfn("/alice/f"))], site: None },
            }),
            "17000000 05 00 0100000000000000 030101082f616c6963652f6600",
        ),
        (
            2,
            Frame::Request(Request {
                options: RequestOptions {
                    operation_id: Some(OperationId([0x5a; 16])),
                    deadline_ms: Some(30_000),
                    stream: None,
                    consistency: None,
                    past: None,
                },
                operation: Operation::Move { from: lfn("/a"), to: lfn("/b") },
            }),
            "24000000 05 03 0200000000000000 5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5ab0ea010d022f61022f62",
        ),
        (
            3,
            Frame::Request(Request {
                options: RequestOptions {
                    operation_id: None,
                    deadline_ms: None,
                    stream: Some(8),
                    consistency: None,
                    past: None,
                },
                operation: Operation::List { lfn: lfn("/"), cursor: Cursor(vec![7]), limit: 1000 },
            }),
            "12000000 05 04 0300000000000000 0805012f0107e807",
        ),
        (
            0x0102_0304_0506_0708,
            Frame::Batch(Batch {
                deadline_ms: Some(500),
                consistency: None,
                past: None,
                items: vec![
                    BatchItem {
                        operation_id: None,
                        operation: Operation::Stat { lfns: vec![lfn("/a")], follow: true },
                    },
                    BatchItem {
                        operation_id: Some(OperationId([1; 16])),
                        operation: Operation::Mkdir { lfns: vec![lfn("/d")], parents: true, mode: None },
                    },
                ],
            }),
            "2b000000 06 02 0807060504030201 f403000201022f610101010101010101010101010101010101010801022f \
             640100",
        ),
        (
            11,
            Frame::Request(Request {
                options: RequestOptions { consistency: Some(Consistency::One), ..RequestOptions::default() },
                operation: Operation::Whereis { files: vec![FileRef::Lfn(lfn("/alice/f"))], site: None },
            }),
            "18000000 05 08 0b00000000000000 01 030101082f616c6963652f6600",
        ),
        (
            12,
            Frame::Batch(Batch {
                deadline_ms: Some(500),
                consistency: Some(Consistency::Quorum),
                past: None,
                items: vec![BatchItem {
                    operation_id: None,
                    operation: Operation::Stat { lfns: vec![lfn("/a")], follow: true },
                }],
            }),
            "14000000 06 0a 0c00000000000000 f403 03 000201022f6101",
        ),
        (
            13,
            Frame::Request(Request {
                options: RequestOptions {
                    past: Some(Past { point: PastPoint::Revision(Revision(7).into()), changes_max: 300 }),
                    ..RequestOptions::default()
                },
                operation: Operation::Du { lfns: vec![lfn("/a")] },
            }),
            "14000000 05 10 0d00000000000000 01 07 00 ac02 0701022f61",
        ),
        (
            14,
            Frame::Batch(Batch {
                deadline_ms: None,
                consistency: None,
                past: Some(Past { point: PastPoint::Time(TimeMs(1000)), changes_max: 0 }),
                items: vec![BatchItem {
                    operation_id: None,
                    operation: Operation::Stat { lfns: vec![lfn("/a")], follow: true },
                }],
            }),
            "15000000 06 10 0e00000000000000 02 e807 00 000201022f6101",
        ),
        (
            4,
            Frame::Answer(whereis()),
            "5f000000 07 00 0400000000000000 050200017f22e279b07cc398c4dc0c0c07398f01c0843d0101538ac2ee01 \
             0110414c4943453a3a4345524e3a3a454f530115726f6f743a2f2f656f732e6578616d706c652f2f61010c6e6f20 \
             737563682066696c65",
        ),
        (
            5,
            Frame::AnswerBatch(AnswerBatch {
                first: 3,
                answers: vec![
                    Ok(Answer::Done { revision: Revision(300) }),
                    Err(Error::new(ErrorKind::Busy, "later")),
                ],
            }),
            "16000000 08 00 0500000000000000 030001ac020c056c61746572",
        ),
        (
            6,
            Frame::Part(Answer::Entries { items: vec![], ses: vec![], next: Some(Cursor(vec![1, 2])) }),
            "11000000 09 00 0600000000000000 07000001020102",
        ),
        (7, Frame::End { parts: 200 }, "0c000000 0a 00 0700000000000000 c801"),
        (8, Frame::Credit { parts: 4 }, "0b000000 0b 00 0800000000000000 04"),
        (9, Frame::Cancel, "0a000000 0c 00 0900000000000000"),
        (
            10,
            Frame::Error(Error::new(ErrorKind::Unknown, "lost")),
            "10000000 0d 00 0a00000000000000 0e046c6f7374",
        ),
        (
            0,
            Frame::Error(Error::new(ErrorKind::Unauthenticated, "no")),
            "0e000000 0d 00 0000000000000000 07026e6f",
        ),
        (0, Frame::Ping(0x1122), "12000000 0e 00 0000000000000000 2211000000000000"),
        (0, Frame::Pong(0x1122), "12000000 0f 00 0000000000000000 2211000000000000"),
        (
            0,
            Frame::Goodbye { reason: "restart".to_owned() },
            "12000000 10 00 0000000000000000 0772657374617274",
        ),
        (
            0,
            Frame::Behind(Behind { revision: Revision(300), changes: 2, ms: 1500 }),
            "0f000000 11 00 0000000000000000 ac02 02 dc0b",
        ),
    ]
}

fn from_hex(text: &str) -> Vec<u8> {
    let digits: Vec<u8> = text.bytes().filter(|byte| !byte.is_ascii_whitespace()).collect();
    digits.chunks(2).map(|pair| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap()).collect()
}

#[test]
fn each_frame_is_byte_for_byte_as_committed() {
    let mut wrong = Vec::new();
    for (request, frame, golden) in goldens() {
        let mut out = Vec::new();
        encode_frame(&mut out, FRAME_BYTES_MAX, request, &frame).unwrap();
        let hex: String = out.iter().map(|byte| format!("{byte:02x}")).collect();
        if out != from_hex(golden) {
            wrong.push(format!("{}: {hex}", frame.frame_type().name()));
            continue;
        }
        let mut decoder = FrameDecoder::new();
        decoder.feed(&from_hex(golden));
        let raw = decoder.next_frame().unwrap().unwrap();
        assert_eq!(raw.request, request);
        assert_eq!(raw.decode().unwrap(), frame);
        decoder.finish().unwrap();
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn the_goldens_cover_every_type() {
    for frame_type in FrameType::ALL {
        assert!(
            goldens().iter().any(|(_, frame, _)| frame.frame_type() == frame_type),
            "{} has no golden",
            frame_type.name()
        );
    }
}
