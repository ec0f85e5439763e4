//! A service of one volume on a simulated disk, and what producers send it.
#![allow(dead_code, unreachable_pub, reason = "each test uses its part")]

use std::path::Path;

use exacat_model::{Lfn, TimeMs};
use exacat_testkit::simulated::SimulatedDisk;
use exacat_wire::writer::{
    Ack, ByteRange, ChunkHead, Description, FileId, Frame, Hello, Open, RefusalClass, Role, ServiceId,
    WriterId,
};
use exacat_writer::sums::{SummedChunk, adler32, crc32c};
use exacat_writer::{
    Done, Fault, Output, PartWork, RemovalPolicy, Service, ServiceSettings, Volume, VolumeSettings, Work,
};

pub const SERVICE: ServiceId = ServiceId([1; 16]);
pub const FILE: FileId = FileId([9; 16]);

/// Settings of a service with so many blocks of memory, which does nothing by itself for long.
pub fn settings_with(blocks: usize) -> ServiceSettings {
    ServiceSettings {
        http: String::new(),
        service: SERVICE,
        name: "s".to_owned(),
        address: String::new(),
        blocks,
        flush_ms: 5,
        idle_ms: 60_000,
        orphan_ms: 60_000,
        part_wait_ms: 1_000,
        ask_every_ms: 100,
        table_every_ms: 100_000,
        gone_ms: 1_000,
        free_bytes_min: 0,
        first_version: 1,
        removal: RemovalPolicy::default(),
    }
}

/// A service that does its works at once, and the frames that it sent.
pub struct Rig {
    pub volume: Volume,
    pub service: Service,
    pub now: u64,
    /// Opens that the catalogue was asked about.
    pub asked: Vec<(u64, Open)>,
    /// Answer of the catalogue; none if it is silent.
    pub answer: Option<Result<String, (RefusalClass, String)>>,
    /// Failure of all works on parts; none if the disk works.
    pub fault: Option<Fault>,
}

impl Rig {
    pub fn new() -> Self {
        Self::with_blocks(8)
    }

    /// A service with so many blocks of memory.
    pub fn with_blocks(blocks: usize) -> Self {
        let root = Path::new("/volume").to_owned();
        let settings = VolumeSettings { root, service: SERVICE, adopt: false, segment_bytes: 64 << 10 };
        let (volume, recovered) = Volume::open(SimulatedDisk::new().shared(), &settings, TimeMs(5)).unwrap();
        let service = Service::new(settings_with(blocks), vec![recovered], 0);
        Rig { volume, service, now: 0, asked: Vec::new(), answer: Some(Ok("daq".to_owned())), fault: None }
    }

    /// Does all work, and returns what was sent on a connection; none stands for its end.
    pub fn sent(&mut self, connection: u64) -> Vec<Option<Frame>> {
        let mut sent = Vec::new();
        for _ in 0..100 {
            self.now += 1;
            self.service.tick(self.now);
            while let Some(output) = self.service.next_output() {
                match output {
                    Output::Send(to, frame) if to == connection => sent.push(Some(frame)),
                    Output::End(of) if of == connection => sent.push(None),
                    Output::Work(volume, work) => {
                        let done = match (&self.fault, work) {
                            (Some(fault), Work::Part(PartWork { part, number, writes, .. })) => {
                                let blocks = writes.into_iter().map(|write| write.block).collect();
                                Done::Part { part, number, blocks, outcome: Err(fault.clone()) }
                            }
                            (_, work) => self.volume.run(work, TimeMs(self.now)),
                        };
                        self.service.work_done(volume, done, self.now);
                    }
                    Output::Authorize { connection, open } => {
                        let file = open.file;
                        self.asked.push((connection, *open));
                        if let Some(answer) = self.answer.clone() {
                            self.service.authorized(connection, file, answer, self.now);
                        }
                    }
                    Output::Certify(certificate) => {
                        self.service.catalogue_answered(certificate.file, Ok(()), self.now);
                    }
                    _ => {}
                }
            }
        }
        sent
    }

    pub fn connect(&mut self, connection: u64, writer: u8, session: u64) -> Vec<Option<Frame>> {
        self.service.connected(connection, self.now);
        let role = Role::Producer { writer: WriterId([writer; 16]), session };
        let hello = Hello::new(role, String::new(), None);
        self.tell(connection, Frame::Hello(hello))
    }

    pub fn tell(&mut self, connection: u64, frame: Frame) -> Vec<Option<Frame>> {
        self.service.message(connection, frame, self.now);
        self.sent(connection)
    }

    pub fn chunk(&mut self, connection: u64, head: ChunkHead, bytes: &[u8]) -> Vec<Option<Frame>> {
        self.service.chunk(connection, SummedChunk::new(&head, bytes), self.now);
        self.sent(connection)
    }
}

pub fn asked_file(number: u64) -> FileId {
    FileId((u128::from(number) + 1).to_be_bytes())
}

/// Opens another file.
pub fn open_of(number: u64, epoch: u32) -> Frame {
    let Frame::Open(open) = open(epoch) else { panic!("an open") };
    Frame::Open(Open { file: asked_file(number), ..open })
}

pub fn open(epoch: u32) -> Frame {
    let lfn = Lfn::parse("/f").unwrap();
    let description = Description { run: "1".into(), stream: "s".into(), lfn, tags: Vec::new() };
    Frame::Open(Open { file: FILE, stream: 7, epoch, from: 0, description })
}

pub fn head(sequence: u64, offset: u64, bytes: &[u8]) -> ChunkHead {
    ChunkHead {
        writer: WriterId([1; 16]),
        file: FILE,
        sequence,
        offset,
        stream: 7,
        epoch: 2,
        length: bytes.len() as u32,
        events: 1,
        crc32c: crc32c(bytes),
        adler32: adler32(bytes),
    }
}

pub fn class_of(sent: &[Option<Frame>]) -> Option<RefusalClass> {
    sent.iter().flatten().find_map(|frame| match frame {
        Frame::Refusal(refusal) => Some(refusal.class),
        _ => None,
    })
}

pub fn acked(sent: &[Option<Frame>]) -> Vec<ByteRange> {
    let ranges = sent.iter().flatten().filter_map(|frame| match frame {
        Frame::Ack(Ack { ranges, .. }) => Some(ranges.clone()),
        _ => None,
    });
    ranges.flatten().collect()
}

pub fn is_opened(sent: &[Option<Frame>]) -> bool {
    sent.iter().flatten().any(|frame| matches!(frame, Frame::Opened(_)))
}
