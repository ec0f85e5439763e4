//! Memory of a producer: one bound for the events of all its streams, and buffers that are used again.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use exacat_wire::writer::limits::BLOCK_BYTES;
use parking_lot::{Condvar, Mutex, MutexGuard};

use crate::limits::{BUFFER_BYTES_MIN, PRODUCER_FILES_MAX, STREAM_BUFFERS_MIN};

/// Bytes that a short chunk needs beside its own, in lists and heads.
const CHUNK_OVERHEAD_BYTES: usize = 256;

#[derive(Debug, Default)]
struct State {
    /// Bytes of buffers that hold events, and of copies of short chunks.
    used: usize,
    /// Most of them at once.
    peak: usize,
    /// Buffers for later; their memory is allocated and was touched.
    free: Vec<Vec<u8>>,
    files: usize,
    streams: usize,
}

impl State {
    fn use_more(&mut self, bytes: usize) {
        self.used += bytes;
        self.peak = self.peak.max(self.used);
    }
}

/// Memory for events. Everything that holds an event is charged in full: a buffer that is being filled, a
/// chunk that is not durable, and one that a socket still sends.
#[derive(Debug)]
pub struct EventMemory {
    bytes_max: usize,
    buffer_bytes: usize,
    state: Mutex<State>,
    freed: Condvar,
    /// Counts everything that makes room.
    generation: AtomicU64,
}

impl EventMemory {
    /// Makes a memory of so many bytes, in buffers of a size. The size becomes a power of two from
    /// `BUFFER_BYTES_MIN` to the size of a block.
    pub fn new(bytes_max: usize, buffer_bytes: usize) -> Arc<Self> {
        let buffer_bytes = buffer_bytes.clamp(BUFFER_BYTES_MIN, BLOCK_BYTES);
        let buffer_bytes = 1 << buffer_bytes.ilog2();
        let (state, freed) = (Mutex::default(), Condvar::new());
        Arc::new(EventMemory { bytes_max, buffer_bytes, state, freed, generation: AtomicU64::new(0) })
    }

    /// Allocates and touches all buffers that fit. A system clears memory at its first use, which takes
    /// longer than to write to it.
    pub fn prepare(&self) {
        let count = self.bytes_max / self.buffer_bytes;
        let buffer = |_| {
            let mut bytes = vec![0xa5; self.buffer_bytes];
            bytes.clear();
            bytes
        };
        let buffers: Vec<Vec<u8>> = (0..count).map(buffer).collect();
        let mut state = self.state.lock();
        let room =
            (self.bytes_max.saturating_sub(state.used) / self.buffer_bytes).saturating_sub(state.free.len());
        state.free.extend(buffers.into_iter().take(room));
    }

    /// Returns the bound.
    pub fn bytes_max(&self) -> usize {
        self.bytes_max
    }

    /// Returns the bytes of one buffer.
    pub fn buffer_bytes(&self) -> usize {
        self.buffer_bytes
    }

    /// Returns the bytes that are charged.
    pub fn used(&self) -> usize {
        self.state.lock().used
    }

    /// Returns the most bytes that were charged at once.
    pub fn peak(&self) -> usize {
        self.state.lock().peak
    }

    /// Returns the number of files that are not certified.
    pub fn files(&self) -> usize {
        self.state.lock().files
    }

    /// Returns the number of streams for which there is memory.
    pub fn streams_max(&self) -> usize {
        self.bytes_max / (STREAM_BUFFERS_MIN * self.buffer_bytes)
    }

    /// Takes note of another stream; none if there is too little memory for it.
    pub(super) fn add_stream(self: &Arc<Self>) -> Option<StreamRoom> {
        let mut state = self.state.lock();
        if state.streams >= self.streams_max() {
            return None;
        }
        state.streams += 1;
        Some(StreamRoom(self.clone()))
    }

    /// Takes note of another file; none if there are too many.
    pub(super) fn add_file(self: &Arc<Self>) -> Option<FileRoom> {
        let mut state = self.state.lock();
        if state.files >= PRODUCER_FILES_MAX {
            return None;
        }
        state.files += 1;
        Some(FileRoom(self.clone()))
    }

    /// Takes so many buffers, or none of them.
    pub(super) fn take(self: &Arc<Self>, count: usize, into: &mut Vec<Buffer>) -> bool {
        let mut state = self.state.lock();
        let charge = self.buffer_bytes;
        let needed = count.saturating_mul(charge);
        if state.used.saturating_add(needed) > self.bytes_max {
            return false;
        }
        state.use_more(needed);
        for _ in 0..count {
            let bytes = state.free.pop().unwrap_or_default();
            into.push(Buffer { bytes, charge, memory: self.clone() });
        }
        drop(state);
        // Allocated outside the lock: the system clears new memory, which takes long.
        for buffer in into.iter_mut().filter(|buffer| buffer.bytes.capacity() < charge) {
            buffer.bytes.reserve_exact(charge);
        }
        true
    }

    /// Makes a buffer of exactly these bytes; none if there is no memory for it beside all others.
    pub(super) fn copy(self: &Arc<Self>, bytes: &[u8]) -> Option<Buffer> {
        let charge = bytes.len() + CHUNK_OVERHEAD_BYTES;
        let mut state = self.state.lock();
        if state.used + charge > self.bytes_max {
            return None;
        }
        state.use_more(charge);
        let kept = |state: &State| state.used + state.free.len() * self.buffer_bytes;
        while kept(&state) > self.bytes_max && state.free.pop().is_some() {}
        drop(state);
        Some(Buffer { bytes: bytes.to_vec(), charge, memory: self.clone() })
    }

    fn give_back(&self, mut bytes: Vec<u8>, charge: usize) {
        bytes.clear();
        let mut state = self.state.lock();
        state.used = state.used.saturating_sub(charge);
        let has_room = state.used + (state.free.len() + 1) * self.buffer_bytes <= self.bytes_max;
        if bytes.capacity() >= self.buffer_bytes && has_room {
            state.free.push(bytes);
        }
        self.note_room(state);
    }

    /// Wakes those that wait. The number changes under the lock: none of them looks just before it.
    fn note_room(&self, state: MutexGuard<'_, State>) {
        self.generation.fetch_add(1, Ordering::Release);
        drop(state);
        self.freed.notify_all();
    }

    /// Returns a number that changes whenever there is more room. Read it before a try that may fail.
    pub fn generation(&self) -> u64 {
        self.generation.load(Ordering::Acquire)
    }

    /// Waits until there is more room than at `generation`, at most so long. False after the time.
    pub fn wait_for_room(&self, generation: u64, within: Duration) -> bool {
        let until = Instant::now() + within;
        let mut state = self.state.lock();
        while self.generation() == generation {
            if self.freed.wait_until(&mut state, until).timed_out() {
                return self.generation() != generation;
            }
        }
        true
    }
}

/// Memory of some events. It is charged until it is dropped.
#[derive(Debug)]
pub(super) struct Buffer {
    pub bytes: Vec<u8>,
    charge: usize,
    memory: Arc<EventMemory>,
}

impl AsRef<[u8]> for Buffer {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        self.memory.give_back(std::mem::take(&mut self.bytes), self.charge);
    }
}

/// Place of one file among those that are not certified.
#[derive(Debug)]
pub struct FileRoom(Arc<EventMemory>);

impl Drop for FileRoom {
    fn drop(&mut self) {
        let mut state = self.0.state.lock();
        state.files -= 1;
        self.0.note_room(state);
    }
}

/// Place of one stream.
#[derive(Debug)]
pub(super) struct StreamRoom(Arc<EventMemory>);

impl Drop for StreamRoom {
    fn drop(&mut self) {
        self.0.state.lock().streams -= 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Property: all that is kept, buffers for later included, stays within the bound, and buffers are used
    /// again.
    #[test]
    fn memory_stays_within_its_bound() {
        let memory = EventMemory::new(4 * BUFFER_BYTES_MIN, 1);
        assert_eq!(memory.buffer_bytes(), BUFFER_BYTES_MIN);
        let mut buffers = Vec::new();
        assert!(!memory.take(5, &mut buffers) && buffers.is_empty(), "all or none");
        assert!(memory.take(4, &mut buffers) && !memory.take(1, &mut buffers));
        assert!(memory.copy(b"x").is_none());
        let generation = memory.generation();
        assert!(!memory.wait_for_room(generation, Duration::ZERO));
        let place = buffers[0].bytes.as_ptr();
        buffers.remove(0);
        assert!(memory.wait_for_room(generation, Duration::ZERO), "room was made before the wait");
        let copy = memory.copy(b"x").unwrap();
        assert_eq!(memory.state.lock().free.len(), 0, "the free buffer gives way to the copy");
        assert_eq!(memory.used(), 3 * BUFFER_BYTES_MIN + 1 + CHUNK_OVERHEAD_BYTES);
        drop((copy, buffers));
        assert_eq!((memory.used(), memory.state.lock().free.len()), (0, 3));
        let mut again = Vec::new();
        assert!(memory.take(3, &mut again));
        assert!(again.iter().all(|buffer| buffer.bytes.as_ptr() != place), "that memory was freed");
        assert_eq!(memory.state.lock().free.len(), 0, "the others are used again");
    }

    /// Property: files and streams are bounded, and each makes room again when it ends.
    #[test]
    fn files_and_streams_are_bounded() {
        let memory = EventMemory::new(2 * STREAM_BUFFERS_MIN * BUFFER_BYTES_MIN, BUFFER_BYTES_MIN);
        let mut files: Vec<FileRoom> = (0..PRODUCER_FILES_MAX).map(|_| memory.add_file().unwrap()).collect();
        assert!(memory.add_file().is_none());
        files.pop();
        assert!(memory.add_file().is_some());
        let streams = (memory.add_stream().unwrap(), memory.add_stream().unwrap());
        assert!(memory.add_stream().is_none());
        drop(streams);
        assert!(memory.add_stream().is_some());
    }

    /// Property: prepared memory is the bound, and buffers are taken from it.
    #[test]
    fn prepared_memory_is_the_bound() {
        let memory = EventMemory::new(10 * BUFFER_BYTES_MIN + 5, BUFFER_BYTES_MIN);
        memory.prepare();
        memory.prepare();
        assert_eq!(memory.state.lock().free.len(), 10);
        assert_eq!(memory.used(), 0);
        let mut taken = Vec::new();
        assert!(memory.take(10, &mut taken) && !memory.take(1, &mut taken));
        assert!(memory.state.lock().free.is_empty());
        assert!(
            taken.iter().all(|buffer| buffer.bytes.is_empty() && buffer.bytes.capacity() >= BUFFER_BYTES_MIN)
        );
        drop(taken);
        assert_eq!((memory.used(), memory.peak()), (0, 10 * BUFFER_BYTES_MIN));
    }
}
