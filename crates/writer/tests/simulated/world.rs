//! The simulated world: services on simulated disks, producers, a catalogue, faults, and the checker.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;

use exacat_model::{Lfn, TimeMs};
use exacat_testkit::simulated::{Fault, Random, SimulatedDisk};
use exacat_wire::writer::{
    ByteRange, ChunkHead, Description, FileId, Frame, FrameDecoder, Received, RefusalClass, ServiceId,
    ServiceRecord, ServiceState, Table, WriterId, encode, encode_chunk,
};
use exacat_writer::sums::SummedChunk;
use exacat_writer::{
    Certificate, Closed, Event, EventMemory, FileNames, NotAppended, Output, Packer, Position, Producer,
    ProducerOutput, ProducerSettings, RemovalPolicy, Service, ServiceSettings, ServiceTable, Settled,
    StreamSettings, Volume, VolumeSettings, Work,
};

use crate::network::{Network, Side};
use leaving::LostFile;

mod adopting;
mod checking;
mod leaving;
mod moving;
mod numbers;
mod returning;

/// End of the faults, in milliseconds.
const FAULTS_END: u64 = 5_000;
/// Time by which everything must be certified.
const END: u64 = 120_000;
/// Bytes that a producer keeps at most.
const MEMORY: usize = 6 << 20;
/// Time by which a wrong clock jumps, in milliseconds.
const YEAR: u64 = 366 * 86_400_000;
/// Streams of a producer.
const STREAMS: usize = 2;

/// Size and faults of a world.
#[derive(Clone, Copy)]
pub(crate) struct Plan {
    pub services: usize,
    /// Volumes of each service.
    pub volumes: usize,
    pub producers: usize,
    /// Faults in a thousand milliseconds.
    pub faults: u64,
    /// Events of each producer.
    pub events: u64,
    /// Longest age of a file in milliseconds.
    pub file_ms_max: u64,
    /// True if the first service does not come back, and the second one adopts its volumes.
    pub adopts: bool,
    /// True if the clock of a service's machine jumps by years, either way, while the service is away.
    pub has_wrong_clocks: bool,
    /// True if producers are killed, and start again with new ids.
    pub kills_producers: bool,
    /// Largest number of events in a file.
    pub file_events_max: u64,
    /// Largest number of bytes in an event.
    pub event_bytes_max: u64,
}

impl Default for Plan {
    fn default() -> Self {
        Plan {
            services: 2,
            volumes: 1,
            producers: 4,
            faults: 6,
            events: 60,
            file_ms_max: 4_000,
            adopts: false,
            has_wrong_clocks: false,
            kills_producers: false,
            file_events_max: 40,
            event_bytes_max: u64::MAX,
        }
    }
}

struct Node {
    id: ServiceId,
    disk: SimulatedDisk,
    /// Disks of another service that was lost.
    adopted: Vec<SimulatedDisk>,
    running: Option<(Vec<Volume>, Service)>,
    incarnation: u64,
    works: Vec<(u64, usize, Work)>,
    paused_until: u64,
    starts_at: u64,
    clock: u64,
}

struct Source {
    writer: WriterId,
    producer: Producer,
    packers: Vec<Packer>,
    memory: Arc<EventMemory>,
    settled: Vec<Settled>,
    /// Ranges of each file that were acknowledged.
    acknowledged: BTreeMap<FileId, Vec<ByteRange>>,
    /// Bytes and number of events of each file.
    written: BTreeMap<FileId, (Vec<u8>, u64)>,
    events_left: u64,
    next_event: u64,
    clock: u64,
}

/// A connection: its ends, and the chunk that arrives at the service.
struct Wire {
    source: usize,
    number: u64,
    node: usize,
    incarnation: u64,
    to_producer: FrameDecoder,
    to_service: FrameDecoder,
    chunk: Option<(ChunkHead, Vec<u8>)>,
    producer_hears: bool,
    service_hears: bool,
    /// True once its producer was killed.
    is_lost: bool,
}

pub(crate) struct World {
    seed: u64,
    plan: Plan,
    random: Random,
    now: u64,
    nodes: Vec<Node>,
    sources: Vec<Source>,
    network: Network,
    wires: BTreeMap<u64, Wire>,
    next_wire: u64,
    dials: Vec<(u64, usize, u64, usize)>,
    tells: Vec<(u64, ServiceId, ServiceId, Frame)>,
    certifying: Vec<(u64, usize, u64, Certificate)>,
    /// Opens on their way to the catalogue: due time, node, its incarnation, connection.
    authorizing: Vec<(u64, usize, u64, u64, FileId)>,
    /// Opens that the catalogue refused for now.
    refused_opens: u64,
    /// Files that were copied elsewhere, by a mover or before an operator's order.
    copied: BTreeSet<FileId>,
    catalogue: BTreeMap<FileId, Certificate>,
    /// Number of kills of producers.
    kills: u64,
    /// Files of producers that were killed.
    lost: BTreeMap<FileId, LostFile>,
    /// Bytes of chunks that arrived, by the second and the service.
    arrived: BTreeMap<(u64, usize), u64>,
}

fn service_id(at: usize) -> ServiceId {
    ServiceId([at as u8 + 1; 16])
}

fn start(node: &mut Node, now: u64, volumes: usize) {
    node.incarnation += 1;
    let (mut opened, mut contents) = (Vec::new(), Vec::new());
    let disks = std::iter::once(&node.disk).chain(&node.adopted);
    let all: Vec<(SimulatedDisk, usize)> =
        disks.flat_map(|disk| (0..volumes).map(|at| (disk.clone(), at))).collect();
    for (at, (disk, root)) in all.into_iter().enumerate() {
        let root = Path::new("/").join(format!("volume{root}"));
        let adopt = at >= volumes;
        let settings = VolumeSettings { root, service: node.id, adopt, segment_bytes: 256 << 10 };
        match Volume::open(disk.shared(), &settings, TimeMs(1_790_000_000_000 + now + node.clock)) {
            Ok((volume, recovered)) => {
                assert!(recovered.damaged.is_empty(), "{:?} at {now}: {:?}", node.id, recovered.damaged);
                opened.push(volume);
                contents.push(recovered);
            }
            Err(error) => {
                // A fault of the disk at the opening: it is tried again.
                assert!(!error.to_string().contains("damaged"), "{error}");
                node.starts_at = now + 100;
                node.disk.set_fault(None);
                return;
            }
        }
    }
    let settings = ServiceSettings {
        http: String::new(),
        service: node.id,
        name: "node".to_owned(),
        address: String::new(),
        blocks: 32,
        flush_ms: 8,
        idle_ms: 2_000,
        orphan_ms: 5_000,
        part_wait_ms: 1_000,
        ask_every_ms: 200,
        table_every_ms: 100,
        gone_ms: 1_000,
        free_bytes_min: 1 << 20,
        first_version: now * 1_000,
        removal: RemovalPolicy { after_ms: Some(700), free_bytes_low: 8 << 20, remember_ms: 3_600_000 },
    };
    node.running = Some((opened, Service::new(settings, contents, now + node.clock)));
}

impl World {
    pub(crate) fn new(seed: u64, plan: Plan) -> Self {
        let mut world = World {
            seed,
            plan,
            random: Random(seed),
            now: 0,
            nodes: Vec::new(),
            sources: Vec::new(),
            network: Network::new(5),
            wires: BTreeMap::new(),
            next_wire: 0,
            dials: Vec::new(),
            tells: Vec::new(),
            certifying: Vec::new(),
            authorizing: Vec::new(),
            refused_opens: 0,
            copied: BTreeSet::new(),
            catalogue: BTreeMap::new(),
            kills: 0,
            lost: BTreeMap::new(),
            arrived: BTreeMap::new(),
        };
        for at in 0..plan.services {
            let mut node = Node {
                id: service_id(at),
                disk: SimulatedDisk::new(),
                adopted: Vec::new(),
                running: None,
                incarnation: 0,
                works: Vec::new(),
                paused_until: 0,
                starts_at: 0,
                clock: if plan.has_wrong_clocks { YEAR } else { 0 },
            };
            start(&mut node, 0, plan.volumes);
            world.nodes.push(node);
        }
        for at in 0..plan.producers {
            let source = world.source(at, 0);
            world.sources.push(source);
        }
        world
    }

    /// Makes a producer, which may have been killed a few times.
    fn source(&mut self, at: usize, kills: u64) -> Source {
        // Ids follow from the seed: a producer that starts again has others.
        let seed = (self.seed + kills * 1_000_000) * 100;
        let mut writer = WriterId([at as u8 + 1; 16]);
        writer.0[8..].copy_from_slice(&kills.to_le_bytes());
        let mut table = ServiceTable::default();
        let record = |at: usize| ServiceRecord {
            service: service_id(at),
            version: 0,
            address: String::new(),
            state: ServiceState::Up,
            volumes: 1,
            free_bytes: 1 << 40,
            queued_bytes: 0,
            credit_bytes: 0,
            bytes_per_second: 0,
            open_files: 0,
            http: String::new(),
        };
        table.merge(&Table((0..self.plan.services).map(record).collect()), 0);
        let settings = ProducerSettings {
            writer,
            name: format!("producer {at}"),
            token: None,
            silence_ms: 700,
            connect_ms: 300,
            retry_ms: 200,
            first_session: 1,
        };
        let producer = Producer::new(settings, table, seed + at as u64);
        let memory = EventMemory::new(MEMORY, 1 << (16 + self.random.next(5)));
        let mut packers = Vec::new();
        for stream in 0..STREAMS {
            let lfn = Lfn::parse(&format!("/run/{at}/{stream}-{kills}")).unwrap();
            let description =
                Description { run: "1".to_owned(), stream: stream.to_string(), lfn, tags: Vec::new() };
            let settings = StreamSettings {
                description,
                names: FileNames::Numbered(1),
                file_bytes_max: 1 + self.random.next(3 << 20),
                file_events_max: 1 + self.random.next(self.plan.file_events_max),
                file_ms_max: 1 + self.random.next(self.plan.file_ms_max),
                linger_ms: 5,
            };
            let seed = seed + (at * STREAMS + stream) as u64;
            packers.push(Packer::new(settings, memory.clone(), seed).unwrap());
        }
        Source {
            writer,
            producer,
            settled: vec![Settled::default(); packers.len()],
            packers,
            memory,
            acknowledged: BTreeMap::new(),
            written: BTreeMap::new(),
            events_left: self.plan.events,
            next_event: 0,
            clock: 0,
        }
    }

    /// Runs to the end, and checks it.
    pub(crate) fn run(&mut self) {
        while !self.is_done() {
            assert!(self.now < END, "seed {}: {}", self.seed, self.state());
            self.now += 1;
            self.step();
        }
        let now = self.now;
        for node in self.nodes.iter_mut().filter(|node| node.running.is_none() && node.starts_at < u64::MAX) {
            node.disk.set_fault(None);
            start(node, now, self.plan.volumes);
        }
        self.check();
    }

    fn is_done(&self) -> bool {
        let is_done = |source: &Source| source.events_left == 0 && source.producer.uncertified_files() == 0;
        self.is_adopted() && self.sources.iter().all(is_done) && self.remaining().is_empty()
    }

    fn is_awake(&self, node: usize) -> bool {
        self.nodes[node].paused_until <= self.now
    }

    fn step(&mut self) {
        let is_stormy = self.now < FAULTS_END;
        if is_stormy && self.random.next(1_000) < self.plan.faults {
            self.fault();
        }
        if self.now == FAULTS_END {
            self.heal();
        }
        self.adopt();
        for at in 0..self.nodes.len() {
            if self.nodes[at].running.is_none() && self.nodes[at].starts_at <= self.now {
                let now = self.now;
                start(&mut self.nodes[at], now, self.plan.volumes);
            }
        }
        self.stage();
        self.dial();
        self.arrive();
        self.work();
        self.tell();
        self.authorize();
        self.certify();
        for at in 0..self.sources.len() {
            self.produce(at);
        }
        for at in 0..self.nodes.len() {
            if !self.is_awake(at) {
                continue;
            }
            let (now, is_second) = (self.now + self.nodes[at].clock, self.now.is_multiple_of(100));
            if let Some((_, service)) = &mut self.nodes[at].running {
                if is_second {
                    for volume in 0..self.plan.volumes {
                        // Now and then a volume has little space: staged files leave earlier.
                        let free = if self.random.chance(20) { 4 << 20 } else { self.random.next(1 << 30) };
                        service.free_bytes(volume, (2 << 20) + free);
                    }
                }
                service.tick(now);
            }
            self.drain_service(at);
        }
    }

    fn fault(&mut self) {
        let node = self.random.next(self.nodes.len() as u64) as usize;
        match self.random.next(9 + u64::from(self.plan.kills_producers)) {
            9 => self.kill_producer(),
            0 | 1 => {
                let wires = self.network.all();
                if !wires.is_empty() {
                    let wire = wires[wires.len() - 1 - self.random.next(wires.len().min(6) as u64) as usize];
                    self.network.cut(wire, self.now, &mut self.random);
                }
            }
            2 => self.kill(node, false),
            3 => self.kill(node, true),
            4 | 5 => {
                let kinds = [std::io::ErrorKind::Other, std::io::ErrorKind::StorageFull];
                let kind = kinds[self.random.next(2) as usize];
                let disk = &self.nodes[node].disk;
                disk.set_fault(Some(Fault::Once(disk.operations() + 1 + self.random.next(30), kind)));
            }
            6 => self.nodes[node].paused_until = self.now + self.random.next(1_500),
            7 => self.nodes[node].clock += self.random.next(60_000),
            _ => {
                let source = self.random.next(self.sources.len() as u64) as usize;
                self.sources[source].clock += self.random.next(60_000);
            }
        }
    }

    /// Ends a service at any moment: of the works on their way, some were done.
    fn kill(&mut self, at: usize, is_power_cut: bool) {
        let Some((volumes, _)) = self.nodes[at].running.take() else { return };
        for (_, volume, work) in std::mem::take(&mut self.nodes[at].works) {
            if self.random.chance(2) {
                volumes[volume].run(work, TimeMs(self.now));
            }
        }
        drop(volumes);
        self.nodes[at].disk.set_fault(None);
        if is_power_cut {
            self.nodes[at].disk = self.nodes[at].disk.image(&mut self.random);
        }
        self.nodes[at].starts_at = self.now + self.random.next(1_500);
        if self.plan.has_wrong_clocks {
            self.nodes[at].clock = YEAR * self.random.next(3);
        }
        let wires: Vec<u64> =
            self.wires.iter().filter(|(_, wire)| wire.node == at).map(|(of, _)| *of).collect();
        for wire in wires {
            self.network.end(wire, Side::Producer, self.now, &mut self.random);
        }
    }

    fn heal(&mut self) {
        for at in 0..self.nodes.len() {
            self.nodes[at].paused_until = 0;
            self.nodes[at].disk.set_fault(None);
            // A volume that failed is written again after a restart.
            self.kill(at, false);
            self.nodes[at].starts_at = self.now + 1;
        }
        if self.plan.adopts {
            self.nodes[0].starts_at = u64::MAX;
        }
    }

    fn dial(&mut self) {
        let (due, later): (Vec<_>, Vec<_>) =
            std::mem::take(&mut self.dials).into_iter().partition(|of| of.0 <= self.now);
        self.dials = later;
        for (_, source, number, node) in due {
            let now = self.now + self.nodes[node].clock;
            let incarnation = self.nodes[node].incarnation;
            let Some((_, service)) = &mut self.nodes[node].running else {
                let clock = self.sources[source].clock;
                self.sources[source].producer.disconnected(number, self.now + clock);
                self.drain_source(source);
                continue;
            };
            self.next_wire += 1;
            let wire = self.next_wire;
            service.connected(wire, now);
            self.network.begin(wire);
            let ends = Wire {
                source,
                number,
                node,
                incarnation,
                to_producer: FrameDecoder::of_begun(),
                to_service: FrameDecoder::of_accepted(),
                chunk: None,
                producer_hears: true,
                service_hears: true,
                is_lost: false,
            };
            self.wires.insert(wire, ends);
            self.sources[source].producer.connected(number);
            self.drain_source(source);
        }
    }

    fn arrive(&mut self) {
        loop {
            let awake: Vec<bool> = (0..self.nodes.len()).map(|at| self.is_awake(at)).collect();
            let wires = &self.wires;
            let can_hear = |wire: u64, side: Side| side == Side::Producer || awake[wires[&wire].node];
            let Some((wire, side, bytes)) = self.network.arrive(self.now, can_hear) else { return };
            match side {
                Side::Producer => self.reach_producer(wire, bytes),
                Side::Service => self.reach_service(wire, bytes),
            }
        }
    }

    fn reach_producer(&mut self, number: u64, bytes: Option<Vec<u8>>) {
        let wire = self.wires.get_mut(&number).unwrap();
        if !wire.producer_hears {
            return;
        }
        let source = &mut self.sources[wire.source];
        let now = self.now + source.clock;
        match bytes {
            None => {
                wire.producer_hears = false;
                source.producer.disconnected(wire.number, now);
            }
            Some(bytes) => {
                wire.to_producer.feed(&bytes);
                while let Some(Received::Frame(frame)) = wire.to_producer.next_message().unwrap() {
                    source.producer.message(wire.number, frame, now);
                }
            }
        }
        let at = wire.source;
        self.drain_source(at);
    }

    fn reach_service(&mut self, number: u64, bytes: Option<Vec<u8>>) {
        let wire = self.wires.get_mut(&number).unwrap();
        let node = &mut self.nodes[wire.node];
        let now = self.now + node.clock;
        let Some((_, service)) = &mut node.running else { return };
        if !wire.service_hears || wire.incarnation != node.incarnation {
            return;
        }
        match bytes {
            None => {
                wire.service_hears = false;
                service.disconnected(number, now);
            }
            Some(bytes) => {
                wire.to_service.feed(&bytes);
                loop {
                    if let Some((head, content)) = &mut wire.chunk {
                        let before = content.len();
                        content.resize(head.length as usize, 0);
                        let count = wire.to_service.take_chunk_bytes(&mut content[before..]);
                        content.truncate(before + count);
                        if content.len() < head.length as usize {
                            break;
                        }
                        *self.arrived.entry((self.now / 1_000, wire.node)).or_default() +=
                            content.len() as u64;
                        service.chunk(number, SummedChunk::new(head, content), now);
                        wire.chunk = None;
                    }
                    match wire.to_service.next_message().unwrap() {
                        Some(Received::Chunk(head)) => wire.chunk = Some((head, Vec::new())),
                        Some(Received::Frame(frame)) => service.message(number, frame, now),
                        None => break,
                    }
                }
            }
        }
        let at = wire.node;
        self.drain_service(at);
    }

    fn work(&mut self) {
        for at in 0..self.nodes.len() {
            if !self.is_awake(at) {
                continue;
            }
            let node = &mut self.nodes[at];
            let (due, later): (Vec<_>, Vec<_>) =
                std::mem::take(&mut node.works).into_iter().partition(|(due, _, _)| *due <= self.now);
            node.works = later;
            for (_, volume, work) in due {
                let Some((disks, service)) = &mut node.running else { continue };
                let done = disks[volume].run(work, TimeMs(1_790_000_000_000 + self.now + node.clock));
                service.work_done(volume, done, self.now + node.clock);
            }
            self.drain_service(at);
        }
    }

    fn tell(&mut self) {
        let (due, later): (Vec<_>, Vec<_>) =
            std::mem::take(&mut self.tells).into_iter().partition(|of| of.0 <= self.now);
        self.tells = later;
        for (_, from, to, frame) in due {
            let at = self.nodes.iter().position(|node| node.id == to).unwrap();
            if !self.is_awake(at) {
                continue;
            }
            let now = self.now + self.nodes[at].clock;
            if let Some((_, service)) = &mut self.nodes[at].running {
                service.peer_message(from, frame, now);
            }
            self.drain_service(at);
        }
    }

    /// Permits opens, or refuses them for now.
    fn authorize(&mut self) {
        let (due, later): (Vec<_>, Vec<_>) =
            std::mem::take(&mut self.authorizing).into_iter().partition(|of| of.0 <= self.now);
        self.authorizing = later;
        for (_, at, incarnation, wire, file) in due {
            let is_refused = self.plan.faults > 0 && self.now < FAULTS_END && self.random.chance(6);
            let answer = match is_refused {
                true => Err((RefusalClass::RetryElsewhere, "no catalogue".to_owned())),
                false => Ok(format!("account {}", self.wires[&wire].source)),
            };
            let now = self.now + self.nodes[at].clock;
            if self.nodes[at].incarnation == incarnation
                && let Some((_, service)) = &mut self.nodes[at].running
            {
                self.refused_opens += u64::from(is_refused);
                service.authorized(wire, file, answer, now);
            }
            self.drain_service(at);
        }
    }

    /// Commits to the catalogue: once for each file. An answer may be lost, or be an error that passes.
    fn certify(&mut self) {
        let (due, later): (Vec<_>, Vec<_>) =
            std::mem::take(&mut self.certifying).into_iter().partition(|of| of.0 <= self.now);
        self.certifying = later;
        for (_, at, incarnation, certificate) in due {
            let file = certificate.file;
            let is_refused = self.now < FAULTS_END && self.random.chance(5);
            if !is_refused {
                let first = self.catalogue.entry(file).or_insert_with(|| certificate.clone());
                let same = (first.length, first.adler32, first.events);
                assert_eq!(
                    same,
                    (certificate.length, certificate.adler32, certificate.events),
                    "one content"
                );
            }
            let now = self.now + self.nodes[at].clock;
            if self.nodes[at].incarnation == incarnation
                && let Some((_, service)) = &mut self.nodes[at].running
            {
                let outcome = if is_refused { Err((false, "no catalogue".to_owned())) } else { Ok(()) };
                service.catalogue_answered(file, outcome, now);
            }
            self.drain_service(at);
        }
    }

    fn produce(&mut self, at: usize) {
        let length = match self.random.next(40) {
            0 => self.random.next(1_500_000),
            1..10 => self.random.next(30_000),
            _ => self.random.next(2_000),
        };
        let length = length.min(self.plan.event_bytes_max);
        let (is_event, is_flush) = (self.random.chance(30), self.random.chance(100));
        let stream = self.random.next(STREAMS as u64) as usize;
        let source = &mut self.sources[at];
        let now = self.now + source.clock;
        if is_event && source.events_left > 0 {
            let number = source.next_event;
            let event: Vec<u8> =
                (0..=length).map(|byte| (byte * 31 + number * 7 + at as u64) as u8).collect();
            match source.packers[stream].append(&event, now) {
                Ok(file) => {
                    let (bytes, events) = source.written.entry(file).or_default();
                    bytes.extend_from_slice(&event);
                    *events += 1;
                    source.next_event += 1;
                    source.events_left -= 1;
                }
                Err(NotAppended::Full) => source.packers.iter_mut().for_each(Packer::give_way),
                Err(reason) => panic!("seed {} at {}: {reason:?}", self.seed, self.now),
            }
        }
        for (number, packer) in source.packers.iter_mut().enumerate() {
            if source.events_left == 0 {
                packer.end_file();
            } else if is_flush {
                packer.flush();
            }
            packer.tick(now);
            while let Some(packed) = packer.next_packed() {
                assert!(source.producer.take(number as u32, packed, now), "no file fails");
            }
        }
        source.producer.tick(now);
        assert!(source.memory.used() <= MEMORY);
        self.drain_source(at);
    }

    fn wire_of(&self, source: usize, number: u64) -> Option<u64> {
        let mut wires = self.wires.iter();
        wires
            .find(|(_, wire)| !wire.is_lost && wire.source == source && wire.number == number)
            .map(|(of, _)| *of)
    }

    fn drain_source(&mut self, at: usize) {
        while let Some(output) = self.sources[at].producer.next_output() {
            let mut bytes = Vec::new();
            let number = match output {
                ProducerOutput::Connect(number, service) => {
                    let node = self.nodes.iter().position(|node| node.id == service).unwrap();
                    let due = self.now + 1 + self.random.next(20);
                    self.dials.push((due, at, number, node));
                    continue;
                }
                ProducerOutput::News(Event::File(_, file, Closed::Failed(reason))) => {
                    panic!("seed {} at {}: file {file} failed: {reason}", self.seed, self.now);
                }
                ProducerOutput::News(Event::File(_, file, Closed::Certified(_))) => {
                    assert!(self.catalogue.contains_key(&file), "certified means in the catalogue");
                    continue;
                }
                ProducerOutput::News(Event::Durable(file, range)) => {
                    self.sources[at].acknowledged.entry(file).or_default().push(range);
                    continue;
                }
                ProducerOutput::News(Event::Settled(stream, settled)) => {
                    let source = &mut self.sources[at];
                    let before = &mut source.settled[stream as usize];
                    let appended = source.packers[stream as usize].appended();
                    assert!(before.through <= settled.through && settled.through <= appended);
                    assert_eq!(settled.lost, Position::default(), "seed {}", self.seed);
                    *before = settled;
                    continue;
                }
                ProducerOutput::End(number) => {
                    self.dials.retain(|dial| (dial.1, dial.2) != (at, number));
                    if let Some(of) = self.wire_of(at, number) {
                        self.wires.get_mut(&of).unwrap().producer_hears = false;
                        self.network.end(of, Side::Service, self.now, &mut self.random);
                    }
                    continue;
                }
                ProducerOutput::Send(number, frame) => {
                    encode(&mut bytes, &frame);
                    number
                }
                ProducerOutput::SendChunk(number, head, content) => {
                    encode_chunk(&mut bytes, &head, &content);
                    number
                }
            };
            if let Some(of) = self.wire_of(at, number) {
                // In two pieces: a pause may come in the middle of a frame.
                let cut = self.random.next(bytes.len() as u64) as usize;
                let rest = bytes.split_off(cut);
                self.network.send(of, Side::Service, bytes, self.now, &mut self.random);
                self.network.send(of, Side::Service, rest, self.now, &mut self.random);
            }
        }
    }

    fn drain_service(&mut self, at: usize) {
        loop {
            let node = &mut self.nodes[at];
            let Some((_, service)) = &mut node.running else { return };
            let Some(output) = service.next_output() else { return };
            let from = node.id;
            let due = self.now + 1 + self.random.next(10);
            match output {
                Output::Send(wire, frame) => {
                    let mut bytes = Vec::new();
                    encode(&mut bytes, &frame);
                    self.network.send(wire, Side::Producer, bytes, self.now, &mut self.random);
                }
                Output::End(wire) => {
                    self.wires.get_mut(&wire).unwrap().service_hears = false;
                    self.network.end(wire, Side::Producer, self.now, &mut self.random);
                }
                Output::Tell(to, frame) => self.tell_to(due, from, to, frame),
                Output::Gossip(table) => {
                    for to in (0..self.nodes.len()).map(service_id).filter(|to| *to != from) {
                        self.tell_to(due, from, to, Frame::Table(table.clone()));
                    }
                }
                Output::Work(volume, work) => {
                    if let Work::Remove { file, parts } = &work {
                        let segments = &self.catalogue[file].segments;
                        let epochs: BTreeSet<u32> = parts.iter().map(|part| part.epoch).collect();
                        let is_needed = segments.iter().any(|of| epochs.contains(&of.part.epoch));
                        let may_go = self.copied.contains(file) || !is_needed;
                        assert!(may_go, "seed {}: {file} is nowhere else", self.seed);
                    }
                    node.works.push((due, volume, work));
                }
                Output::Authorize { connection, open } => {
                    let due = self.now + 1 + self.random.next(60);
                    self.authorizing.push((due, at, node.incarnation, connection, open.file));
                }
                Output::Certify(certificate) => {
                    self.certifying.push((due, at, node.incarnation, *certificate));
                }
            }
        }
    }

    fn tell_to(&mut self, due: u64, from: ServiceId, to: ServiceId, frame: Frame) {
        if self.now >= FAULTS_END || !self.random.chance(10) {
            self.tells.push((due, from, to, frame));
        }
    }
}
