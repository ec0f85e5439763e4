//! One frame of each type.

use exacat_model::{Lfn, TagKey, TimeMs};
use exacat_wire::native::Secret;
use exacat_wire::writer::{
    Ack, ByteRange, Certified, ChunkHead, ChunkRecord, Close, Description, FileId, Frame, Hello, HelloAck,
    Open, Opened, PartOwner, PartQuery, PartReport, PartShare, PartState, Refusal, RefusalClass, Role,
    ServiceId, ServiceRecord, ServiceState, Table, WriterId,
};

pub(crate) const FILE: FileId = FileId(*b"file-of-a-writer");
pub(crate) const WRITER: WriterId = WriterId(*b"writer-of-a-file");
pub(crate) const SERVICE: ServiceId = ServiceId(*b"a-writer-service");

pub(crate) fn head() -> ChunkHead {
    ChunkHead {
        writer: WRITER,
        file: FILE,
        sequence: 258,
        offset: (3 << 20) + 5,
        stream: 7,
        epoch: 2,
        length: 4,
        events: 1,
        crc32c: crc32c::crc32c(b"even"),
        adler32: 0x0402_01af,
    }
}

pub(crate) fn record() -> ChunkRecord {
    ChunkRecord { sequence: 258, offset: 70_000, length: 4, events: 1, crc32c: 0x0102_0304, adler32: 5 }
}

pub(crate) fn ack() -> Ack {
    let ranges = vec![ByteRange { from: 0, to: 4096 }, ByteRange { from: 5000, to: 5001 }];
    Ack { file: FILE, epoch: 2, ranges, limit: 1 << 22 }
}

pub(crate) fn description() -> Description {
    Description {
        run: "run-117".to_owned(),
        stream: "calibration".to_owned(),
        lfn: Lfn::parse("/data/117/calibration.0001").unwrap(),
        tags: vec![(TagKey::parse("detector").unwrap(), "tpc".to_owned())],
    }
}

pub(crate) fn service_record() -> ServiceRecord {
    ServiceRecord {
        service: SERVICE,
        version: 300,
        address: "node1:7430".to_owned(),
        state: ServiceState::Draining,
        volumes: 2,
        free_bytes: 1 << 40,
        queued_bytes: 12 << 20,
        credit_bytes: 48 << 20,
        bytes_per_second: 300_000_000,
        open_files: 256,
        http: "http://node1:27780".to_owned(),
    }
}

pub(crate) fn close() -> Close {
    let parts =
        vec![PartOwner { epoch: 1, service: ServiceId([1; 16]) }, PartOwner { epoch: 2, service: SERVICE }];
    Close { file: FILE, epoch: 2, length: 70_004, chunks: 259, events: 300, adler32: 0x1122_3344, parts }
}

pub(crate) fn certified() -> Certified {
    let share = PartShare { part: PartOwner { epoch: 2, service: SERVICE }, bytes: 70_004 };
    Certified {
        file: FILE,
        length: 70_004,
        events: 300,
        adler32: 0x1122_3344,
        duplicates: 3,
        parts: vec![share],
    }
}

/// Returns one frame of each type, chunks aside.
pub(crate) fn frames() -> Vec<Frame> {
    let hello = |role, token: Option<&str>| {
        Frame::Hello(Hello {
            version_min: 1,
            version_max: 2,
            role,
            name: "builder-4".to_owned(),
            token: token.map(Secret::new),
        })
    };
    vec![
        hello(Role::Producer { writer: WRITER, session: 9 }, Some("secret")),
        hello(Role::Service(SERVICE), None),
        Frame::HelloAck(HelloAck {
            version: 1,
            service: SERVICE,
            name: "node1".to_owned(),
            idle_ms_max: 30_000,
            time: TimeMs(1_790_000_000_123),
        }),
        Frame::Open(Open { file: FILE, stream: 7, epoch: 2, from: 4096, description: description() }),
        Frame::Opened(Opened(ack())),
        Frame::Flush { file: FILE },
        Frame::Ack(ack()),
        Frame::Close(close()),
        Frame::Certified(certified()),
        Frame::Refusal(Refusal {
            class: RefusalClass::RetryElsewhere,
            part: Some((FILE, 2)),
            reason: "the volume is full".to_owned(),
        }),
        Frame::Table(Table(vec![service_record()])),
        Frame::PartQuery(PartQuery { file: FILE, epoch: 1, from: 4096 }),
        Frame::PartReport(PartReport {
            file: FILE,
            epoch: 1,
            state: PartState::Sealed,
            from: 0,
            chunks: vec![record()],
            more: true,
        }),
        Frame::Ping(300),
        Frame::Pong(300),
        Frame::Goodbye { reason: "restart".to_owned() },
        Frame::Remove { file: FILE },
    ]
}
