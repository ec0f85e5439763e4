//! Events into chunks: limits of events, files and memory, and the way from a flush to the news of it.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

use std::sync::Arc;
use std::time::Instant;

use exacat_model::Lfn;
use exacat_wire::writer::limits::BLOCK_BYTES;
use exacat_wire::writer::{
    Ack, ByteRange, Certified, Description, FileId, Frame, HelloAck, Opened, PROTOCOL_VERSION, PartOwner,
    Refusal, RefusalClass, ServiceId, ServiceRecord, ServiceState, Table, WriterId,
};
use exacat_writer::limits::{
    BUFFER_BYTES_MIN, EVENT_BYTES_MAX, FILE_PARTS_END, PART_CHUNKS_MAX, PRODUCER_FILES_MAX,
};
use exacat_writer::sums::{adler32, crc32c};
use exacat_writer::{
    Chunk, Closed, Event, EventMemory, FileEnd, FileNames, NotAppended, Packed, Packer, Position, Producer,
    ProducerOutput, ProducerSettings, ServiceTable, Settled, StreamSettings,
};

const SERVICE: ServiceId = ServiceId([7; 16]);
/// Bytes that were appended to a file.
type Written = (FileId, Vec<u8>);

/// Number of the first connection: the session after the first one.
const LINK: u64 = 2;

fn settings() -> StreamSettings {
    let lfn = Lfn::parse("/run/1").unwrap();
    let description = Description { run: "1".into(), stream: "s".into(), lfn, tags: Vec::new() };
    StreamSettings {
        description,
        names: FileNames::Numbered(1),
        file_bytes_max: u64::MAX,
        file_events_max: u64::MAX,
        file_ms_max: u64::MAX,
        linger_ms: 5,
    }
}

fn chunks(packer: &mut Packer) -> (Vec<Chunk>, Vec<FileEnd>) {
    let (mut chunks, mut ends) = (Vec::new(), Vec::new());
    while let Some(packed) = packer.next_packed() {
        match packed {
            Packed::Chunk(chunk) => chunks.push(chunk),
            Packed::End(end) => ends.push(end),
            Packed::Begin(..) | Packed::Flush(_) => {}
        }
    }
    (chunks, ends)
}

/// Property: an event has 1 byte to 16 MiB. Shorter and longer ones are errors, and change nothing.
#[test]
fn events_beyond_their_limits_are_not_appended() {
    let memory = EventMemory::new(64 << 20, BLOCK_BYTES);
    let mut packer = Packer::new(settings(), memory.clone(), 1).unwrap();
    let longest = vec![3; EVENT_BYTES_MAX];
    for (event, reason) in
        [(&[] as &[u8], NotAppended::Empty), (&vec![1; EVENT_BYTES_MAX + 1], NotAppended::TooLarge)]
    {
        assert_eq!(packer.append(event, 0), Err(reason));
        assert!(!packer.has_packed() && memory.used() == 0 && memory.files() == 0);
        assert_eq!(packer.appended(), Position::default());
    }
    let file = packer.append(&[9], 0).unwrap();
    assert_eq!(packer.append(&longest, 0), Ok(file));
    assert_eq!(packer.append(&[], 0), Err(NotAppended::Empty), "also in the middle of a file");
    assert_eq!(packer.appended(), Position { bytes: EVENT_BYTES_MAX as u64 + 1, events: 2 });
    packer.end_file();
    let (chunks, ends) = chunks(&mut packer);
    assert_eq!(chunks.len(), 17);
    assert_eq!(chunks.iter().map(|chunk| chunk.events).collect::<Vec<_>>()[..2], [1, 0]);
    assert_eq!(chunks[16].events, 1, "an event counts in the chunk with its last byte");
    assert_eq!((ends[0].length, ends[0].events, ends[0].chunks), (EVENT_BYTES_MAX as u64 + 1, 2, 17));
    // An event that the memory can never hold is told at once.
    let mut small =
        Packer::new(settings(), EventMemory::new(4 * BUFFER_BYTES_MIN, BUFFER_BYTES_MIN), 1).unwrap();
    assert!(small.append(&vec![1; 3 * BUFFER_BYTES_MIN], 0).is_ok());
    assert_eq!(small.event_bytes_max(), 3 * BUFFER_BYTES_MIN);
    assert_eq!(small.append(&vec![1; 3 * BUFFER_BYTES_MIN + 1], 0), Err(NotAppended::TooLarge));
}

/// Property: whatever the sizes, chunks are the events in their order, each within a block, with the sums and
/// numbers of the file; memory stays within its bound, and is free in the end. Method: random events against
/// their concatenation.
#[test]
fn chunks_are_the_events_in_order() {
    for seed in 0..12 {
        let mut random = fastrand::Rng::with_seed(seed);
        let (buffer, bound) = (BUFFER_BYTES_MIN << random.usize(..5), 5 << 20);
        let memory = EventMemory::new(bound, buffer);
        let limits = StreamSettings {
            file_bytes_max: random.u64(1..4 << 20),
            file_events_max: random.u64(1..400),
            ..settings()
        };
        let mut packer = Packer::new(limits.clone(), memory.clone(), seed).unwrap();
        let (mut written, mut all, mut ends): (Vec<Written>, Vec<Chunk>, Vec<FileEnd>) = Default::default();
        let mut kept: Vec<Chunk> = Vec::new();
        for now in 0..400 {
            let length = match random.u8(..10) {
                0 => random.usize(1..1_500_000),
                _ => random.usize(1..40_000),
            };
            let event: Vec<u8> = (0..length).map(|at| (at * 31 + now) as u8).collect();
            match packer.append(&event, now as u64) {
                Ok(file) if written.last().is_some_and(|(last, _)| *last == file) => {
                    written.last_mut().unwrap().1.extend(&event);
                }
                Ok(file) => written.push((file, event)),
                Err(reason) => {
                    assert_eq!(reason, NotAppended::Full, "seed {seed}");
                    packer.give_way();
                    kept.clear();
                }
            }
            packer.tick(now as u64);
            assert!(memory.used() <= bound, "seed {seed}");
            let (chunks, new_ends) = chunks(&mut packer);
            for chunk in chunks {
                // A copy, because the bytes themselves are charged.
                let bytes = bytes::Bytes::copy_from_slice(&chunk.bytes);
                all.push(Chunk { bytes, ..chunk.clone() });
                kept.push(chunk);
            }
            ends.extend(new_ends);
        }
        packer.end_file();
        let (last, last_ends) = chunks(&mut packer);
        all.extend(last);
        ends.extend(last_ends);
        let mut all = all.into_iter().peekable();
        assert_eq!(ends.len(), written.len(), "seed {seed}");
        for ((file, bytes), end) in written.iter().zip(&ends) {
            let (mut at, mut sequence, mut events) = (0, 0, 0);
            while let Some(chunk) = all.next_if(|chunk| chunk.file == *file) {
                assert_eq!((chunk.offset, chunk.sequence), (at as u64, sequence), "seed {seed}");
                assert!(chunk.bytes[..] == bytes[at..at + chunk.bytes.len()], "seed {seed}");
                assert_eq!((chunk.crc32c, chunk.adler32), (crc32c(&chunk.bytes), adler32(&chunk.bytes)));
                assert_eq!(at / BLOCK_BYTES, (at + chunk.bytes.len() - 1) / BLOCK_BYTES, "within a block");
                at += chunk.bytes.len();
                sequence += 1;
                events += u64::from(chunk.events);
            }
            assert_eq!((end.file, end.length, end.chunks, end.events), (*file, at as u64, sequence, events));
            assert_eq!((at, end.adler32), (bytes.len(), adler32(bytes)), "seed {seed}");
            assert!(events <= limits.file_events_max, "seed {seed}");
        }
        assert!(all.next().is_none(), "seed {seed}");
        drop((packer, kept));
        assert_eq!(
            (memory.used(), memory.files()),
            (0, 0),
            "seed {seed}: rooms of files end with their news"
        );
    }
}

/// Property: files that are not certified are bounded; the next event waits, and goes on when one ends.
#[test]
fn file_beyond_the_limit_waits_for_the_end_of_another() {
    let memory = EventMemory::new(64 << 20, BUFFER_BYTES_MIN);
    let one_event = StreamSettings { file_events_max: 1, ..settings() };
    let mut packer = Packer::new(one_event, memory.clone(), 1).unwrap();
    let mut rooms = Vec::new();
    for _ in 0..PRODUCER_FILES_MAX {
        packer.append(b"event", 0).unwrap();
        while let Some(packed) = packer.next_packed() {
            rooms.extend(match packed {
                Packed::Begin(_, description, room) => Some((description.lfn.to_string(), room)),
                _ => None,
            });
        }
    }
    assert_eq!((rooms[0].0.as_str(), rooms[255].0.as_str()), ("/run/1.000001", "/run/1.000256"));
    assert_eq!(packer.append(b"event", 0), Err(NotAppended::Full));
    rooms.pop();
    assert!(packer.append(b"event", 0).is_ok());
    assert_eq!(memory.files(), PRODUCER_FILES_MAX);
}

/// Property: a stream with a single file has its very name, and refuses events after its end.
#[test]
fn single_file_keeps_its_name_and_never_rolls_over() {
    let memory = EventMemory::new(64 << 20, BUFFER_BYTES_MIN);
    let single =
        StreamSettings { names: FileNames::Single, file_bytes_max: 3, file_events_max: 1, ..settings() };
    let mut packer = Packer::new(single, memory, 1).unwrap();
    let file = packer.append(b"one", 0).unwrap();
    assert_eq!(packer.append(b"two", 0), Ok(file));
    assert!(matches!(packer.next_packed(), Some(Packed::Begin(_, of, _)) if of.lfn.to_string() == "/run/1"));
    packer.end_file();
    assert_eq!(packer.append(b"three", 0), Err(NotAppended::FileEnded));
}

struct Rig {
    producer: Producer,
    packer: Packer,
    sent: Vec<Frame>,
    chunks: u64,
    news: Vec<Event>,
    /// Epochs and first bytes of the parts that were opened.
    opened: Vec<(u32, u64)>,
    now: u64,
}

impl Rig {
    fn new(memory: &Arc<EventMemory>) -> Self {
        let record = ServiceRecord {
            service: SERVICE,
            version: 1,
            address: String::new(),
            state: ServiceState::Up,
            volumes: 1,
            free_bytes: 0,
            queued_bytes: 0,
            credit_bytes: 0,
            bytes_per_second: 0,
            open_files: 0,
            http: String::new(),
        };
        let mut table = ServiceTable::default();
        table.merge(&Table(vec![record]), 0);
        let of = ProducerSettings {
            writer: WriterId([1; 16]),
            name: "test".into(),
            token: Some(exacat_wire::native::Secret::new("secret")),
            silence_ms: 1000,
            connect_ms: 1000,
            retry_ms: 100,
            first_session: 1,
        };
        let packer = Packer::new(settings(), memory.clone(), 1).unwrap();
        let producer = Producer::new(of, table, 1);
        let (sent, news, opened) = Default::default();
        Rig { producer, packer, sent, chunks: 0, news, opened, now: 0 }
    }

    /// Gives everything on, and answers what needs no thought.
    fn pump(&mut self) -> Vec<bool> {
        let mut taken = Vec::new();
        while let Some(packed) = self.packer.next_packed() {
            let file = if let Packed::Chunk(chunk) = &packed { Some(chunk.file) } else { None };
            taken.push(self.producer.take(5, packed, self.now));
            if let Some(file) = file.filter(|file| self.producer.has_few_parts_left(*file)) {
                self.packer.roll_over(file);
            }
        }
        while let Some(output) = self.producer.next_output() {
            match output {
                ProducerOutput::Connect(number, _) => self.producer.connected(number),
                ProducerOutput::Send(number, Frame::Hello(hello)) => {
                    assert_eq!(hello.token.unwrap().expose(), "secret");
                    let ack = HelloAck {
                        version: PROTOCOL_VERSION,
                        service: SERVICE,
                        name: String::new(),
                        idle_ms_max: 1000,
                        time: exacat_model::TimeMs(0),
                    };
                    self.producer.message(number, Frame::HelloAck(ack), self.now);
                }
                ProducerOutput::Send(number, Frame::Open(open)) => {
                    self.opened.push((open.epoch, open.from));
                    let ack = Ack { file: open.file, epoch: open.epoch, ranges: Vec::new(), limit: 8 << 20 };
                    self.producer.message(number, Frame::Opened(Opened(ack)), self.now);
                }
                ProducerOutput::Send(_, frame) => self.sent.push(frame),
                ProducerOutput::SendChunk(..) => self.chunks += 1,
                ProducerOutput::End(_) => panic!("no connection ends"),
                ProducerOutput::News(event) => self.news.push(event),
            }
        }
        taken
    }

    fn settled(&self) -> Option<Settled> {
        self.news.iter().rev().find_map(|event| match event {
            Event::Settled(5, settled) => Some(*settled),
            _ => None,
        })
    }
}

/// Property: a flush sends the chunk that is being filled, and then asks for it; the news says when all that
/// was appended is durable, not earlier. Later chunks that are durable first do not count.
#[test]
fn flush_tells_when_everything_before_is_durable() {
    let memory = EventMemory::new(64 << 20, BLOCK_BYTES);
    let mut rig = Rig::new(&memory);
    let file = rig.packer.append(b"first", 0).unwrap();
    rig.pump();
    assert_eq!((rig.chunks, rig.settled()), (0, None), "the chunk is being filled");
    rig.packer.flush();
    rig.pump();
    assert_eq!((rig.chunks, &rig.sent[..]), (1, &[Frame::Flush { file }][..]));
    rig.packer.append(b"second", 0).unwrap();
    rig.packer.flush();
    rig.pump();
    let ack =
        |from, to| Frame::Ack(Ack { file, epoch: 1, ranges: vec![ByteRange { from, to }], limit: 8 << 20 });
    rig.producer.message(LINK, ack(5, 11), 0);
    rig.pump();
    assert_eq!(rig.settled(), None, "the first chunk is not durable");
    rig.producer.message(LINK, ack(0, 5), 0);
    rig.pump();
    assert_eq!(rig.settled().unwrap().through, rig.packer.appended());
    assert_eq!(rig.settled().unwrap().through, Position { bytes: 11, events: 2 });
    // The end of the file.
    rig.packer.end_file();
    rig.pump();
    let Some(Frame::Close(close)) = rig.sent.last().cloned() else { panic!("a close") };
    assert_eq!((close.length, close.chunks, close.events), (11, 2, 2));
    let certified =
        Certified { file, length: 11, events: 2, adler32: close.adler32, duplicates: 0, parts: Vec::new() };
    rig.producer.message(LINK, Frame::Certified(certified.clone()), 0);
    rig.pump();
    assert_eq!(rig.news.last(), Some(&Event::File(5, file, Closed::Certified(certified))));
    assert_eq!((memory.used(), memory.files()), (0, 0));
}

/// Property: when a service refuses a file for good, its events count as lost, those that follow as well
/// until the packer ends the file, and the next file is not concerned.
#[test]
fn events_of_a_refused_file_count_as_lost() {
    let memory = EventMemory::new(64 << 20, BLOCK_BYTES);
    let mut rig = Rig::new(&memory);
    let file = rig.packer.append(b"first", 0).unwrap();
    rig.packer.flush();
    rig.pump();
    let refusal =
        Refusal { class: RefusalClass::BadRequest, part: Some((file, 1)), reason: "not yours".into() };
    rig.producer.message(LINK, Frame::Refusal(refusal), 0);
    rig.pump();
    let failed = Event::File(5, file, Closed::Failed("not yours".into()));
    assert!(rig.news.contains(&failed), "{:?}", rig.news);
    assert_eq!(rig.settled().unwrap().lost, Position { bytes: 5, events: 1 });
    rig.packer.append(b"late", 0).unwrap();
    rig.packer.flush();
    assert!(rig.pump().contains(&false), "the packer learns it");
    assert_eq!(rig.settled().unwrap().lost, Position { bytes: 9, events: 2 });
    rig.packer.end_file();
    let other = rig.packer.append(b"good", 0).unwrap();
    assert_ne!(other, file);
    rig.packer.flush();
    assert!(
        rig.pump().iter().filter(|is_taken| !**is_taken).count() <= 1,
        "at most the end of the failed file"
    );
    let ack = Ack { file: other, epoch: 1, ranges: vec![ByteRange { from: 0, to: 4 }], limit: 8 << 20 };
    rig.producer.message(LINK, Frame::Ack(ack), 0);
    rig.pump();
    let settled = rig.settled().unwrap();
    assert_eq!((settled.through.events, settled.lost.events), (3, 2));
}

/// Property: a part with as many chunks as it may have is followed by another one at the same service, once
/// all of it is durable. Nothing is sent twice, and a slow stream does not wander through the services.
#[test]
fn full_part_is_followed_by_another_at_the_same_service() {
    let memory = EventMemory::new(64 << 20, BUFFER_BYTES_MIN);
    let mut rig = Rig::new(&memory);
    let (full, more) = (PART_CHUNKS_MAX as u64, 5);
    let mut file = None;
    for _ in 0..full + more {
        file = Some(rig.packer.append(b"e", 0).unwrap());
        rig.packer.flush();
        rig.pump();
    }
    let file = file.unwrap();
    assert_eq!((rig.chunks, &rig.opened[..]), (full, &[(1, 0)][..]), "the rest waits");
    let ack = |epoch, from, to| {
        Frame::Ack(Ack { file, epoch, ranges: vec![ByteRange { from, to }], limit: 8 << 20 })
    };
    rig.producer.message(LINK, ack(1, 0, full - 1), 0);
    rig.pump();
    assert_eq!((rig.chunks, rig.opened.len()), (full, 1), "the last chunk is not durable");
    rig.producer.message(LINK, ack(1, full - 1, full), 0);
    rig.pump();
    assert_eq!((rig.chunks, &rig.opened[..]), (full + more, &[(1, 0), (2, full)][..]));
    rig.packer.end_file();
    rig.pump();
    rig.producer.message(LINK, ack(2, full, full + more), 0);
    rig.pump();
    let Some(Frame::Close(close)) = rig.sent.last() else { panic!("a close") };
    let part = |epoch| PartOwner { epoch, service: SERVICE };
    assert_eq!((close.epoch, &close.parts[..]), (2, &[part(1), part(2)][..]));
    assert_eq!((close.chunks, close.length), (full + more, full + more));
}

/// Property: a file with few parts left ends before the last one, and the stream goes on in another file. A
/// single file goes on.
#[test]
fn file_with_few_parts_left_is_followed_by_another() {
    let memory = EventMemory::new(64 << 20, BUFFER_BYTES_MIN);
    let mut rig = Rig::new(&memory);
    let first = rig.packer.append(b"event", 0).unwrap();
    rig.packer.flush();
    rig.pump();
    for epoch in 1..FILE_PARTS_END as u32 {
        assert!(!rig.producer.has_few_parts_left(first), "{epoch}");
        let ack = Ack {
            file: first,
            epoch,
            ranges: vec![ByteRange { from: 0, to: u64::from(epoch) * 5 }],
            limit: 8 << 20,
        };
        rig.producer.message(LINK, Frame::Ack(ack), rig.now);
        assert_eq!(rig.packer.append(b"event", 0), Ok(first));
        rig.packer.flush();
        rig.pump();
        let class = RefusalClass::RetryElsewhere;
        let refusal = Refusal { class, part: Some((first, epoch)), reason: "the disk failed".into() };
        rig.producer.message(LINK, Frame::Refusal(refusal), rig.now);
        rig.now += 200;
        rig.producer.tick(rig.now);
        rig.pump();
    }
    assert_eq!(rig.opened.len(), FILE_PARTS_END);
    // The next chunk is the last one of its file.
    assert_eq!(rig.packer.append(b"event", 0), Ok(first));
    rig.packer.flush();
    rig.pump();
    assert_ne!(rig.packer.append(b"event", 0), Ok(first));
    let single = StreamSettings { names: FileNames::Single, ..settings() };
    let mut packer = Packer::new(single, memory, 2).unwrap();
    let only = packer.append(b"event", 0).unwrap();
    packer.roll_over(only);
    assert_eq!(packer.append(b"event", 0), Ok(only));
}

/// Measures an append. `cargo test --release -p exacat-writer --test packing -- --ignored --nocapture`.
#[test]
#[ignore = "a measurement"]
fn cost_of_an_append() {
    for length in [10, 100, 1000, 10_000, 1 << 20] {
        let memory = EventMemory::new(64 << 20, BLOCK_BYTES);
        let mut packer = Packer::new(settings(), memory, 1).unwrap();
        let (event, count) = (vec![1; length], (4_u64 << 30).min(10_000_000 * length as u64) / length as u64);
        let begun = Instant::now();
        for _ in 0..count {
            packer.append(&event, 0).unwrap();
            while packer.next_packed().is_some() {}
        }
        let nanoseconds = begun.elapsed().as_nanos() as f64 / count as f64;
        println!("{length:>8} B: {nanoseconds:>9.1} ns an event, {:.2} GB/s", length as f64 / nanoseconds);
    }
}
