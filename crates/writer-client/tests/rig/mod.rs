//! Writer services in this process: state machine and volumes of `exacat-writer` behind plain sockets, one
//! thread for each connection. They can be killed, stopped and started, and certified files are read back.
#![allow(dead_code, reason = "each test program uses a part of the rig")]

use std::collections::{BTreeMap, HashMap, HashSet};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use exacat_disk::RealDisk;
use exacat_model::TimeMs;
use exacat_wire::writer::{FileId, Frame, FrameDecoder, Received, RefusalClass, ServiceId, encode};
use exacat_writer::sums::SummedChunk;
use exacat_writer::{
    Certificate, Output, PartKey, RemovalPolicy, Service, ServiceSettings, Volume, VolumeSettings,
};
use parking_lot::{Condvar, Mutex};

/// Longest wait for anything.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// Waits until something is so.
pub(crate) fn wait_for(what: &str, mut is_so: impl FnMut() -> bool) {
    let until = Instant::now() + PATIENCE;
    let (lock, never) = (Mutex::new(()), Condvar::new());
    while !is_so() {
        assert!(Instant::now() < until, "{what}: not within {PATIENCE:?}");
        never.wait_for(&mut lock.lock(), Duration::from_millis(2));
    }
}

struct Running {
    service: Service,
    volume: Volume,
    connections: HashMap<u64, TcpStream>,
    incarnation: u64,
}

/// One service.
pub(crate) struct Node {
    pub(crate) id: ServiceId,
    pub(crate) address: SocketAddr,
    root: PathBuf,
    running: Mutex<Option<Running>>,
    is_hung: Mutex<bool>,
    goes_on: Condvar,
    incarnations: AtomicU64,
}

struct World {
    nodes: Vec<Arc<Node>>,
    begun: Instant,
    tells: Mutex<Vec<(ServiceId, ServiceId, Frame)>>,
    catalogue: Mutex<BTreeMap<FileId, Certificate>>,
    /// Reason for which the catalogue refuses all files.
    refuses: Mutex<Option<String>>,
    is_over: AtomicBool,
}

/// All services.
pub(crate) struct Rig {
    world: Arc<World>,
    stop: Option<Sender<()>>,
    ticker: Option<JoinHandle<()>>,
    _directory: tempfile::TempDir,
}

impl World {
    fn now(&self) -> u64 {
        self.begun.elapsed().as_millis() as u64 + 1
    }

    /// Does something with a service that runs, and gives away what comes out.
    fn with(&self, node: &Node, act: impl FnOnce(&mut Service, u64)) {
        let mut running = node.running.lock();
        let Some(running) = running.as_mut() else { return };
        act(&mut running.service, self.now());
        self.drain(node, running);
    }

    fn drain(&self, node: &Node, running: &mut Running) {
        let Running { service, volume, connections, .. } = running;
        while let Some(output) = service.next_output() {
            match output {
                Output::Send(connection, frame) => {
                    if let Some(stream) = connections.get_mut(&connection) {
                        let mut bytes = Vec::new();
                        encode(&mut bytes, &frame);
                        let _ = stream.write_all(&bytes);
                    }
                }
                Output::End(connection) => {
                    if let Some(stream) = connections.remove(&connection) {
                        let _ = stream.shutdown(std::net::Shutdown::Both);
                    }
                }
                Output::Tell(to, frame) => self.tells.lock().push((node.id, to, frame)),
                Output::Gossip(table) => {
                    for other in self.nodes.iter().filter(|other| other.id != node.id) {
                        self.tells.lock().push((node.id, other.id, Frame::Table(table.clone())));
                    }
                }
                Output::Work(at, work) => {
                    let done = volume.run(work, TimeMs(self.now()));
                    service.work_done(at, done, self.now());
                }
                Output::Authorize { connection, open } => {
                    let refusal = self.refuses.lock().clone();
                    let answer = refusal
                        .map_or(Ok("daq".to_owned()), |reason| Err((RefusalClass::BadRequest, reason)));
                    service.authorized(connection, open.file, answer, self.now());
                }
                Output::Certify(certificate) => {
                    let file = certificate.file;
                    self.catalogue.lock().entry(file).or_insert(*certificate);
                    service.catalogue_answered(file, Ok(()), self.now());
                }
            }
        }
    }

    fn tick(&self) {
        let tells = std::mem::take(&mut *self.tells.lock());
        for (from, to, frame) in tells {
            if let Some(node) = self.nodes.iter().find(|node| node.id == to && !*node.is_hung.lock()) {
                self.with(node, |service, now| service.peer_message(from, frame, now));
            }
        }
        for node in self.nodes.iter().filter(|node| !*node.is_hung.lock()) {
            self.with(node, |service, now| service.tick(now));
        }
    }

    fn serve(&self, node: &Node, number: u64, incarnation: u64, mut stream: TcpStream) {
        let (mut decoder, mut buffer, mut chunk) = (FrameDecoder::of_accepted(), vec![0; 256 << 10], None);
        let mut bytes: Vec<u8> = Vec::new();
        while let Ok(count @ 1..) = stream.read(&mut buffer) {
            let mut is_hung = node.is_hung.lock();
            while *is_hung && !self.is_over.load(Ordering::Acquire) {
                node.goes_on.wait_for(&mut is_hung, Duration::from_millis(100));
            }
            drop(is_hung);
            decoder.feed(&buffer[..count]);
            loop {
                if let Some(head) = chunk {
                    let left = decoder.chunk_bytes_left();
                    let before = bytes.len();
                    bytes.resize(before + left, 0);
                    let taken = decoder.take_chunk_bytes(&mut bytes[before..]);
                    bytes.truncate(before + taken);
                    if decoder.chunk_bytes_left() > 0 {
                        break;
                    }
                    self.with(node, |service, now| {
                        service.chunk(number, SummedChunk::new(&head, &bytes), now)
                    });
                    chunk = None;
                }
                match decoder.next_message() {
                    Ok(Some(Received::Chunk(head))) => {
                        bytes.clear();
                        chunk = Some(head);
                    }
                    Ok(Some(Received::Frame(frame))) => {
                        self.with(node, |service, now| service.message(number, frame, now));
                    }
                    Ok(None) => break,
                    Err(error) => panic!("the client sent {error}"),
                }
            }
        }
        let mut running = node.running.lock();
        if let Some(running) = running.as_mut().filter(|running| running.incarnation == incarnation) {
            running.connections.remove(&number);
            running.service.disconnected(number, self.now());
            self.drain(node, running);
        }
    }
}

/// Starts a service on its address.
fn start(world: &Arc<World>, node: &Arc<Node>, listener: TcpListener) {
    let settings =
        VolumeSettings { root: node.root.clone(), service: node.id, adopt: false, segment_bytes: 4 << 20 };
    let (volume, recovered) = Volume::open(Arc::new(RealDisk), &settings, TimeMs(world.now())).unwrap();
    let incarnation = node.incarnations.fetch_add(1, Ordering::Relaxed) + 1;
    let settings = ServiceSettings {
        http: String::new(),
        service: node.id,
        name: "rig".to_owned(),
        address: node.address.to_string(),
        blocks: 64,
        flush_ms: 5,
        idle_ms: 10_000,
        orphan_ms: 20_000,
        part_wait_ms: 1_000,
        ask_every_ms: 100,
        table_every_ms: 100,
        gone_ms: 1_000,
        free_bytes_min: 0,
        first_version: incarnation << 32,
        removal: RemovalPolicy::default(),
    };
    let service = Service::new(settings, vec![recovered], world.now());
    *node.running.lock() = Some(Running { service, volume, connections: HashMap::new(), incarnation });
    let (world, node) = (world.clone(), node.clone());
    std::thread::spawn(move || accept(&world, &node, listener, incarnation));
}

fn accept(world: &Arc<World>, node: &Arc<Node>, listener: TcpListener, incarnation: u64) {
    for number in 1.. {
        let Ok((stream, _)) = listener.accept() else { return };
        stream.set_nodelay(true).unwrap();
        {
            let mut running = node.running.lock();
            let Some(running) = running.as_mut().filter(|running| running.incarnation == incarnation) else {
                return;
            };
            running.connections.insert(number, stream.try_clone().unwrap());
            running.service.connected(number, world.now());
        }
        let (world, node) = (world.clone(), node.clone());
        std::thread::spawn(move || world.serve(&node, number, incarnation, stream));
    }
}

impl Rig {
    /// Starts so many services.
    pub(crate) fn new(count: usize) -> Rig {
        let directory = tempfile::tempdir().unwrap();
        let listeners: Vec<TcpListener> =
            (0..count).map(|_| TcpListener::bind("127.0.0.1:0").unwrap()).collect();
        let node = |(at, listener): (usize, &TcpListener)| {
            Arc::new(Node {
                id: ServiceId([at as u8 + 1; 16]),
                address: listener.local_addr().unwrap(),
                root: directory.path().join(at.to_string()),
                running: Mutex::new(None),
                is_hung: Mutex::new(false),
                goes_on: Condvar::new(),
                incarnations: AtomicU64::new(0),
            })
        };
        let nodes = listeners.iter().enumerate().map(node).collect();
        let world = Arc::new(World {
            nodes,
            begun: Instant::now(),
            tells: Mutex::default(),
            catalogue: Mutex::default(),
            refuses: Mutex::default(),
            is_over: AtomicBool::new(false),
        });
        for (node, listener) in world.nodes.iter().zip(listeners) {
            start(&world, node, listener);
        }
        let (stop, stopped) = channel();
        let of_ticker = world.clone();
        let ticker = std::thread::spawn(move || {
            while stopped.recv_timeout(Duration::from_millis(2)) == Err(RecvTimeoutError::Timeout) {
                of_ticker.tick();
            }
        });
        Rig { world, stop: Some(stop), ticker: Some(ticker), _directory: directory }
    }

    /// Returns the address of a service.
    pub(crate) fn address(&self, at: usize) -> String {
        self.world.nodes[at].address.to_string()
    }

    /// Kills a service: nothing of what it holds in memory survives.
    pub(crate) fn kill(&self, at: usize) {
        let node = &self.world.nodes[at];
        let Some(running) = node.running.lock().take() else { return };
        for stream in running.connections.values() {
            let _ = stream.shutdown(std::net::Shutdown::Both);
        }
        // The thread that accepts looks up, and closes the listener.
        let _ = TcpStream::connect(node.address);
    }

    /// Starts a service that was killed.
    pub(crate) fn revive(&self, at: usize) {
        let node = &self.world.nodes[at];
        let mut listener = None;
        wait_for("the old listener closes", || {
            listener = TcpListener::bind(node.address).ok();
            listener.is_some()
        });
        start(&self.world, node, listener.unwrap());
    }

    /// Stops all activity of a service without closing its connections, or lets it go on.
    pub(crate) fn hang(&self, at: usize, is_hung: bool) {
        *self.world.nodes[at].is_hung.lock() = is_hung;
        self.world.nodes[at].goes_on.notify_all();
    }

    /// Lets the catalogue refuse all files from now on.
    pub(crate) fn refuse_files(&self, reason: &str) {
        *self.world.refuses.lock() = Some(reason.to_owned());
    }

    /// Returns the number of parts of certified files by service.
    pub(crate) fn parts(&self) -> Vec<usize> {
        let catalogue = self.world.catalogue.lock();
        let of = |node: &Arc<Node>| {
            let shares = catalogue.values().flat_map(Certificate::shares);
            shares.filter(|share| share.part.service == node.id).count()
        };
        self.world.nodes.iter().map(of).collect()
    }

    /// Reads all certified files from the disks, in the order of their names.
    pub(crate) fn certified(&self) -> BTreeMap<String, Vec<u8>> {
        let catalogue = self.world.catalogue.lock();
        let mut files = BTreeMap::new();
        for certificate in catalogue.values() {
            let mut content = Vec::new();
            for segment in &certificate.segments {
                let node = self.world.nodes.iter().find(|node| node.id == segment.part.service).unwrap();
                let running = node.running.lock();
                let part = PartKey { file: certificate.file, epoch: segment.part.epoch };
                content.extend(running.as_ref().unwrap().volume.read(part, segment.range).unwrap());
            }
            assert_eq!(content.len() as u64, certificate.length);
            let name = certificate.description.lfn.to_string();
            assert!(files.insert(name, content).is_none(), "each name once");
        }
        files
    }
}

impl Drop for Rig {
    fn drop(&mut self) {
        self.world.is_over.store(true, Ordering::Release);
        drop(self.stop.take());
        if let Some(ticker) = self.ticker.take() {
            let _ = ticker.join();
        }
        for at in 0..self.world.nodes.len() {
            self.hang(at, false);
            self.kill(at);
        }
    }
}

/// Bytes of the head of a test event: thread, number, length.
pub(crate) const EVENT_HEAD: usize = 20;

/// Makes an event of a thread that says who made it, and what it is.
pub(crate) fn event(thread: u64, number: u64, length: usize) -> Vec<u8> {
    let length = length.max(EVENT_HEAD);
    let mut event = Vec::with_capacity(length);
    event.extend(thread.to_le_bytes());
    event.extend(number.to_le_bytes());
    event.extend((length as u32).to_le_bytes());
    event.extend((EVENT_HEAD..length).map(|at| (at as u64 * 31 + number * 7 + thread) as u8));
    event
}

/// Reads the events of files in their order. Each must be whole, the next of its thread, and nothing else.
pub(crate) fn count_events(files: &BTreeMap<String, Vec<u8>>) -> HashMap<u64, u64> {
    let (mut next, mut seen): (HashMap<u64, u64>, HashSet<(u64, u64)>) = Default::default();
    for (name, content) in files {
        let mut rest = content.as_slice();
        while !rest.is_empty() {
            let long = |at: usize| u64::from_le_bytes(rest[at..at + 8].try_into().unwrap());
            let (thread, number) = (long(0), long(8));
            let length = u32::from_le_bytes(rest[16..20].try_into().unwrap()) as usize;
            let (this, behind) = rest.split_at(length);
            assert!(this == event(thread, number, length), "{name}: event {number} of {thread} is another");
            assert!(seen.insert((thread, number)), "{name}: event {number} of {thread} comes twice");
            let expected = next.entry(thread).or_default();
            assert_eq!(number, *expected, "{name}: the next event of {thread}");
            *expected += 1;
            rest = behind;
        }
    }
    next
}
