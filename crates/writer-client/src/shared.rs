//! State that the caller's threads and those of the connections share.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Instant;

use exacat_wire::writer::ServiceId;
use exacat_writer::{EventMemory, Packed, Packer, Position, Producer};
use hdrhistogram::Histogram;
use parking_lot::Mutex;
use tokio::sync::Notify;

use crate::settings::WriterSettings;
use crate::stream_state::StreamState;

/// Failures of connections that are kept for people.
const TROUBLES_MAX: usize = 16;

/// A failure of a connection: address and reason.
pub(crate) type Trouble = (String, String);

/// Sums over streams that were closed.
#[derive(Debug, Default)]
pub(crate) struct Ended {
    pub appended: Position,
    pub settled: Position,
    pub lost: Position,
    pub shed: Position,
}

/// Everything of a writer.
pub(crate) struct Shared {
    pub settings: WriterSettings,
    pub memory: Arc<EventMemory>,
    pub producer: Mutex<Producer>,
    /// Wakes the driver.
    pub wake: Notify,
    begun: Instant,
    /// Time of the driver's last look at the clock, in milliseconds. An append needs no exact time.
    recent_ms: AtomicU64,
    pub streams: Mutex<BTreeMap<u32, Arc<StreamState>>>,
    pub ended: Mutex<Ended>,
    /// Microseconds from a full chunk to its acknowledgement.
    pub latencies: Mutex<Histogram<u64>>,
    /// Addresses of seeds, by the service that answered there.
    pub seeds: Mutex<BTreeMap<ServiceId, String>>,
    troubles: Mutex<VecDeque<Trouble>>,
    /// True once no more events are taken.
    pub is_closed: AtomicBool,
    /// True once nothing is sent any more.
    pub is_over: AtomicBool,
}

impl Shared {
    /// Makes the state of a writer. None if a histogram cannot be made.
    pub(crate) fn new(
        settings: WriterSettings,
        memory: Arc<EventMemory>,
        producer: Producer,
    ) -> Option<Self> {
        // From 1 µs to an hour, with two digits: a fixed size.
        let latencies = Histogram::new_with_bounds(1, 3_600_000_000, 2).ok()?;
        Some(Shared {
            settings,
            memory,
            producer: Mutex::new(producer),
            wake: Notify::new(),
            begun: Instant::now(),
            recent_ms: AtomicU64::new(1),
            streams: Mutex::default(),
            ended: Mutex::default(),
            latencies: Mutex::new(latencies),
            seeds: Mutex::default(),
            troubles: Mutex::default(),
            is_closed: AtomicBool::new(false),
            is_over: AtomicBool::new(false),
        })
    }

    /// Returns the time in milliseconds since the writer began.
    pub(crate) fn now(&self) -> u64 {
        let now = 1 + u64::try_from(self.begun.elapsed().as_millis()).unwrap_or(u64::MAX - 1);
        self.recent_ms.store(now, Ordering::Relaxed);
        now
    }

    /// Returns a time that is a few milliseconds old.
    pub(crate) fn recent(&self) -> u64 {
        self.recent_ms.load(Ordering::Relaxed)
    }

    /// Gives what a stream has packed to the producer. The caller holds the lock of the packer, so that the
    /// chunks of a stream come in order.
    pub(crate) fn hand_over(&self, stream: &StreamState, packer: &mut Packer) {
        if !packer.has_packed() {
            return;
        }
        let instant = Instant::now();
        let mut has_failed = false;
        while let Some(packed) = packer.next_packed() {
            let mut file = None;
            match &packed {
                Packed::Begin(id, description, _) => {
                    stream.progress.lock().file_begun(*id, description.lfn.to_string());
                }
                Packed::Chunk(chunk) => {
                    stream.progress.lock().chunk_packed(chunk.bytes.len(), instant);
                    file = Some(chunk.file);
                }
                Packed::Flush(_) | Packed::End(_) => {}
            }
            let mut producer = self.producer.lock();
            let is_taken = producer.take(stream.number, packed, self.now());
            let worn = file.filter(|file| producer.has_few_parts_left(*file));
            drop(producer);
            if let Some(file) = worn {
                packer.roll_over(file);
            }
            if !is_taken && !has_failed {
                has_failed = true;
                packer.end_file();
            }
        }
        self.wake.notify_one();
    }

    /// Notes a failure of a connection.
    pub(crate) fn note_trouble(&self, address: &str, reason: String) {
        tracing::debug!(address, reason, "a connection to a writer service failed");
        let mut troubles = self.troubles.lock();
        troubles.retain(|(of, _)| of != address);
        if troubles.len() >= TROUBLES_MAX {
            troubles.pop_front();
        }
        troubles.push_back((address.to_owned(), reason));
    }

    /// Forgets the failures of an address: it works.
    pub(crate) fn forget_trouble(&self, address: &str) {
        self.troubles.lock().retain(|(of, _)| of != address);
    }

    /// Returns the last failure of each address.
    pub(crate) fn troubles(&self) -> Vec<Trouble> {
        self.troubles.lock().iter().cloned().collect()
    }

    /// Removes a stream once its caller is done with it, and all its files have ended.
    pub(crate) fn forget_ended(&self, stream: &StreamState) {
        let is_done = stream.is_closed.load(Ordering::Acquire) && stream.progress.lock().files.is_empty();
        if !is_done || self.streams.lock().remove(&stream.number).is_none() {
            return;
        }
        let (appended, settled) = (stream.packer.lock().appended(), stream.progress.lock().settled);
        let mut ended = self.ended.lock();
        add(&mut ended.appended, appended);
        add(&mut ended.settled, settled.through);
        add(&mut ended.lost, settled.lost);
        add(&mut ended.shed, stream.shed());
    }

    /// Returns the streams.
    pub(crate) fn all_streams(&self) -> Vec<Arc<StreamState>> {
        self.streams.lock().values().cloned().collect()
    }
}

/// Adds positions.
pub(crate) fn add(sum: &mut Position, of: Position) {
    sum.bytes += of.bytes;
    sum.events += of.events;
}
