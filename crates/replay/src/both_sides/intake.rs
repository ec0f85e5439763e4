//! Intake of datagrams: any kind of XRootD's monitoring, from any number of servers, on one port.

use std::net::SocketAddr;
use std::sync::Arc;

use exacat_wire::xrdmon::fstream::{Head, Moved, Operations, Record, records};
use exacat_wire::xrdmon::gstream::{FileClose, Header, Line, lines, of_binary, parse_line};
use exacat_wire::xrdmon::maps::{Map, code};
use exacat_wire::xrdmon::summary;
use hashbrown::HashMap;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::events::{CacheEvent, CacheRecord, EventKind, FileSession, ServerClient};
use super::generations::Generations;
use super::sequence::{Arrival, Sequence};
pub use super::servers::ServerInfo;
use super::servers::{Description, Servers, StartOf, printable};
use crate::limits::{CLIENTS_MAX, SESSIONS_OPEN_MAX, STREAMS_MAX};

/// Numbers of datagrams begin again after so many: text and binary ones.
const TEXT_NUMBERS: u32 = 1000;
const BINARY_NUMBERS: u32 = 256;
/// Codes of other binary datagrams: traces, redirects, transfers, purges, information, tokens.
const OTHER_CODES: &[u8] = b"tripxUTms";

/// Counts of an intake.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(default)]
pub struct IntakeCounts {
    /// Datagrams.
    pub datagrams: u64,
    /// Their bytes.
    pub bytes: u64,
    /// File sessions of caches.
    pub records: u64,
    /// Opens of clients.
    pub sessions: u64,
    /// Summaries of servers.
    pub samples: u64,
    /// Datagrams and lines of kinds that have no figures.
    pub others: u64,
    /// Datagrams that are none of XRootD's, or damaged.
    pub garbage: u64,
    /// Lines and records that are damaged, in datagrams that are not.
    pub bad_records: u64,
    /// Datagrams that are missing: one may have had the records of 141 files.
    pub lost: u64,
    /// Datagrams that came after later ones.
    pub late: u64,
    /// Datagrams that came twice; the second is left out.
    pub doubled: u64,
    /// Starts of servers that were seen after their first.
    pub restarts: u64,
    /// Datagrams of servers beyond the limit.
    pub refused: u64,
    /// Open files and clients that were forgotten because there are too many.
    pub forgotten: u64,
    /// Closes of files whose open was not received.
    pub closes_without_open: u64,
}

/// Kind of a stream of datagrams. Each counts its datagrams alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum StreamKind {
    /// Text of a code and a kind of records.
    Text(u8, u8),
    /// Binary g-stream, by kind of records.
    Binary(u8),
    /// Records of files.
    Files,
    /// Everything else binary.
    Maps,
}

/// A stream: where it comes from, and its kind.
type StreamKey = (SocketAddr, StreamKind);
/// Number that a server gave, since a start.
type Key = (SocketAddr, u32, u32);

/// Numbers of the datagrams of a stream since a start.
#[derive(Debug)]
struct Stream {
    started: u64,
    sequence: Sequence,
}

/// An open file.
#[derive(Debug)]
struct Opened {
    at: u64,
    file_bytes: u64,
    lfn: Option<Box<str>>,
    client: Option<Arc<ServerClient>>,
}

/// Intake of datagrams. It opens no socket and asks no clock.
pub struct Intake {
    servers: Servers,
    streams: HashMap<StreamKey, Stream>,
    opened: Generations<Key, Opened>,
    clients: Generations<Key, Arc<ServerClient>>,
    paths: Generations<Key, Box<str>>,
    counts: IntakeCounts,
}

impl Default for Intake {
    fn default() -> Self {
        Intake {
            servers: Servers::default(),
            streams: HashMap::new(),
            opened: Generations::new(SESSIONS_OPEN_MAX),
            clients: Generations::new(CLIENTS_MAX),
            paths: Generations::new(SESSIONS_OPEN_MAX),
            counts: IntakeCounts::default(),
        }
    }
}

fn record_of(line: FileClose) -> CacheRecord {
    CacheRecord {
        lfn: line.lfn.into(),
        file_bytes: line.size,
        block_bytes: line.blk_size,
        blocks: line.n_blks,
        blocks_done: line.n_blks_done,
        accesses: line.access_cnt,
        attached: line.attach_t,
        detached: line.detach_t,
        origins: u32::try_from(line.remotes.len()).unwrap_or(u32::MAX),
        bytes_hit: line.b_hit,
        bytes_miss: line.b_miss,
        bytes_bypass: line.b_bypass,
        bytes_to_disk: line.b_todisk,
        bytes_prefetched: line.b_prefetch,
        checksum_errors: line.n_cks_errs,
    }
}

fn session_of(opened: Option<Opened>, moved: Moved, operations: Option<Operations>) -> FileSession {
    let mut session = FileSession {
        bytes_read: moved.read,
        bytes_vector_read: moved.readv,
        bytes_written: moved.written,
        operations,
        ..FileSession::default()
    };
    if let Some(opened) = opened {
        session.client = opened.client;
        session.lfn = opened.lfn;
        session.file_bytes = Some(opened.file_bytes);
        session.opened = Some(opened.at);
    }
    session
}

/// Returns the address that stands for a server without a name.
fn address_of(from: SocketAddr) -> String {
    from.ip().to_canonical().to_string()
}

impl Intake {
    /// Returns the counts.
    pub fn counts(&self) -> IntakeCounts {
        self.counts
    }

    /// Returns the servers.
    pub fn servers(&self) -> Vec<ServerInfo> {
        self.servers.infos()
    }

    /// Takes a datagram, and adds its events to `events`. Whatever the bytes are, it goes on.
    pub fn take(&mut self, from: SocketAddr, datagram: &[u8], events: &mut Vec<CacheEvent>) {
        self.counts.datagrams += 1;
        self.counts.bytes += datagram.len() as u64;
        let begin = datagram.trim_ascii_start();
        let is_good = match begin.first() {
            Some(b'{') => self.take_text(from, begin, events),
            Some(b'<') => self.take_summary(from, begin, events),
            _ => self.take_binary(from, datagram, events),
        };
        self.counts.garbage += u64::from(is_good.is_none());
    }

    /// Judges the number of a datagram. False if it is to be left out.
    fn is_new(&mut self, from: SocketAddr, kind: StreamKind, started: u64, number: u32) -> bool {
        let modulus = if matches!(kind, StreamKind::Text(..)) { TEXT_NUMBERS } else { BINARY_NUMBERS };
        let is_full = self.streams.len() >= STREAMS_MAX;
        let arrival = match self.streams.get_mut(&(from, kind)) {
            Some(stream) if stream.started == started => stream.sequence.take(number),
            Some(stream) if stream.started > started => Arrival::Late { was_missing: false },
            None if is_full => Arrival::InTurn,
            _ => {
                let stream = Stream { started, sequence: Sequence::new(modulus, number) };
                self.streams.insert((from, kind), stream);
                Arrival::InTurn
            }
        };
        match arrival {
            Arrival::InTurn => {}
            Arrival::After { missing } => self.counts.lost += u64::from(missing),
            Arrival::Late { was_missing } => {
                self.counts.late += 1;
                self.counts.lost = self.counts.lost.saturating_sub(u64::from(was_missing));
            }
            Arrival::Doubled => self.counts.doubled += 1,
        }
        arrival != Arrival::Doubled
    }

    /// Notes the start of a server, and a new name.
    fn seen(
        &mut self,
        server: (usize, Option<Arc<str>>),
        start: (StartOf, u64),
        events: &mut Vec<CacheEvent>,
    ) {
        let ((place, renamed), (of, started)) = (server, start);
        let name = self.servers.name(place);
        if let Some(from) = renamed {
            events.push(CacheEvent { server: Arc::clone(&name), kind: EventKind::Renamed { from } });
        }
        if self.servers.started(place, of, started) {
            self.counts.restarts += 1;
            events.push(CacheEvent { server: name, kind: EventKind::Restarted { started } });
        }
    }

    /// Returns a server, or counts a datagram that is refused.
    fn admitted<T>(&mut self, server: Option<T>) -> Option<T> {
        self.counts.refused += u64::from(server.is_none());
        server
    }

    /// Takes a datagram of JSON lines. None if it is garbage.
    fn take_text(&mut self, from: SocketAddr, datagram: &[u8], events: &mut Vec<CacheEvent>) -> Option<()> {
        let first = lines(datagram).next()?;
        let address = address_of(from);
        let (place, has_header) = match parse_line(first).ok()? {
            Line::Header(header) => match self.take_header(from, &header, events) {
                Some(place) => (place, true),
                None => return Some(()),
            },
            // The cache is configured to send no headers.
            Line::FileClose(_) | Line::Other => {
                let server = self.servers.by_number(None, &address);
                let Some(place) = self.admitted(server) else { return Some(()) };
                (place, false)
            }
        };
        self.take_lines(place, lines(datagram).skip(usize::from(has_header)), events);
        Some(())
    }

    /// Takes the header of a datagram. None if the rest is to be left out.
    fn take_header(
        &mut self,
        from: SocketAddr,
        header: &Header,
        events: &mut Vec<CacheEvent>,
    ) -> Option<usize> {
        let code = header.code.bytes().next().unwrap_or_default();
        let kind = header.gs.as_ref().and_then(|stream| stream.kind.bytes().next()).unwrap_or_default();
        if !self.is_new(from, StreamKind::Text(code, kind), header.stod, header.pseq) {
            return None;
        }
        let source = header.src.clone().unwrap_or_default();
        let of = Description {
            host: &source.host,
            port: source.port,
            site: &source.site,
            instance: &source.inst,
            version: &source.ver,
        };
        let server = self.servers.described(Some(header.sid), &address_of(from), &of);
        let server = self.admitted(server)?;
        let place = server.0;
        self.seen(server, (StartOf::Records, header.stod), events);
        if code != b'g' {
            self.counts.others += 1;
            return None;
        }
        Some(place)
    }

    fn take_lines<'a>(
        &mut self,
        place: usize,
        lines: impl Iterator<Item = &'a [u8]>,
        events: &mut Vec<CacheEvent>,
    ) {
        let server = self.servers.name(place);
        for line in lines {
            match parse_line(line) {
                Ok(Line::FileClose(record)) => {
                    self.counts.records += 1;
                    let kind = EventKind::Record(Box::new(record_of(*record)));
                    events.push(CacheEvent { server: Arc::clone(&server), kind });
                }
                Ok(Line::Other | Line::Header(_)) => self.counts.others += 1,
                Err(_) => self.counts.bad_records += 1,
            }
        }
    }

    /// Takes a summary. None if it is garbage.
    fn take_summary(
        &mut self,
        from: SocketAddr,
        datagram: &[u8],
        events: &mut Vec<CacheEvent>,
    ) -> Option<()> {
        let sample = summary::parse(datagram).ok()?;
        let (host, port) = sample.source.rsplit_once(':').unwrap_or((&sample.source, ""));
        let of = Description {
            host,
            port: port.parse().unwrap_or_default(),
            site: &sample.site,
            instance: &sample.instance,
            version: &sample.version,
        };
        let server = self.servers.described(None, &address_of(from), &of);
        let Some(server) = self.admitted(server) else { return Some(()) };
        let name = self.servers.name(server.0);
        self.seen(server, (StartOf::Summaries, sample.started), events);
        self.counts.samples += 1;
        events.push(CacheEvent { server: name, kind: EventKind::Sample(Box::new(sample)) });
        Some(())
    }

    /// Takes a binary datagram. None if it is garbage.
    fn take_binary(&mut self, from: SocketAddr, datagram: &[u8], events: &mut Vec<CacheEvent>) -> Option<()> {
        let head = Head::read(datagram).filter(|head| usize::from(head.length) == datagram.len())?;
        let started = u64::from(head.started);
        match head.code {
            b'f' => {
                let records = records(datagram).ok()?;
                if self.is_new(from, StreamKind::Files, started, head.pseq.into()) {
                    self.take_records(from, head.started, records, events);
                }
            }
            b'g' => {
                let (begin, text) = of_binary(datagram).ok()?;
                if self.is_new(from, StreamKind::Binary(begin.kind), started, head.pseq.into()) {
                    self.take_binary_lines(from, begin.server, started, text, events);
                }
            }
            code::USER | code::PATH => {
                let map = Map::read(datagram).ok()?;
                if self.is_new(from, StreamKind::Maps, started, head.pseq.into()) {
                    self.take_map(head.code, (from, head.started, map.number), &map);
                }
            }
            code::IDENTITY => {
                // These have no numbers.
                let map = Map::read(datagram).ok()?;
                let of = Description {
                    host: map.user.host,
                    port: map.field("port").and_then(|port| port.parse().ok()).unwrap_or_default(),
                    site: map.field("site").unwrap_or_default(),
                    instance: map.field("inst").unwrap_or_default(),
                    version: map.field("ver").unwrap_or_default(),
                };
                let server = self.servers.described(Some(map.user.server), &address_of(from), &of);
                if let Some(server) = self.admitted(server) {
                    self.seen(server, (StartOf::Records, started), events);
                }
                self.counts.others += 1;
            }
            other if OTHER_CODES.contains(&other) => {
                self.is_new(from, StreamKind::Maps, started, head.pseq.into());
                self.counts.others += 1;
            }
            _ => return None,
        }
        Some(())
    }

    fn take_binary_lines(
        &mut self,
        from: SocketAddr,
        number: u64,
        started: u64,
        text: &[u8],
        events: &mut Vec<CacheEvent>,
    ) {
        let server = self.servers.by_number(Some(number), &address_of(from));
        let Some(place) = self.admitted(server) else { return };
        self.seen((place, None), (StartOf::Records, started), events);
        self.take_lines(place, lines(text), events);
    }

    fn take_map(&mut self, kind: u8, key: Key, map: &Map<'_>) {
        self.counts.others += 1;
        let forgotten = match kind {
            code::USER => {
                let client = ServerClient {
                    user: printable(map.user.user),
                    host: printable(map.user.host),
                    program: printable(map.field("x").unwrap_or_default()),
                };
                self.clients.insert(key, Arc::new(client))
            }
            _ => self.paths.insert(key, map.text.into()),
        };
        self.counts.forgotten += forgotten as u64;
    }

    fn take_records<'a>(
        &mut self,
        from: SocketAddr,
        started: u32,
        records: impl Iterator<Item = Result<Record<'a>, &'static str>>,
        events: &mut Vec<CacheEvent>,
    ) {
        let (mut place, mut window) = (None, (0, 0));
        for record in records {
            let key = |number| (from, started, number);
            match record {
                Ok(Record::Time { from: begin, to, server }) => {
                    window = (begin.into(), to.into());
                    if place.is_none() {
                        let server = self.servers.by_number(server, &address_of(from));
                        let Some(admitted) = self.admitted(server) else { return };
                        self.seen((admitted, None), (StartOf::Records, started.into()), events);
                        place = Some(admitted);
                    }
                }
                Ok(Record::Open { file, size, user, name, .. }) => {
                    let client = user.and_then(|user| self.clients.get(&key(user)).cloned());
                    let path = self.paths.remove(&key(file));
                    let lfn = name.map(Box::from).or(path);
                    let opened = Opened { at: window.0, file_bytes: size, lfn, client };
                    self.counts.forgotten += self.opened.insert(key(file), opened) as u64;
                }
                Ok(Record::Close { file, moved, operations, forced }) => {
                    let opened = self.opened.remove(&key(file));
                    self.counts.closes_without_open += u64::from(opened.is_none());
                    self.counts.sessions += 1;
                    // A path may have come alone, if the open was lost.
                    let path = self.paths.remove(&key(file));
                    let mut session = session_of(opened, moved, operations);
                    session.lfn = session.lfn.or(path);
                    (session.closed, session.is_forced) = (window.1, forced);
                    let server =
                        place.map_or_else(|| address_of(from).into(), |place| self.servers.name(place));
                    events.push(CacheEvent { server, kind: EventKind::Session(Box::new(session)) });
                }
                Ok(Record::Disconnect { user }) => {
                    self.clients.remove(&key(user));
                }
                Ok(Record::Transfer { .. } | Record::Other) => self.counts.others += 1,
                Err(_) => self.counts.bad_records += 1,
            }
        }
    }
}
