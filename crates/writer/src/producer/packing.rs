//! Events of a stream into chunks of files: one copy of each event, and nothing shared with other streams.

use std::collections::VecDeque;
use std::sync::Arc;

use bytes::Bytes;
use exacat_model::Lfn;
use exacat_wire::writer::limits::{BLOCK_BYTES, FILE_BYTES_MAX};
use exacat_wire::writer::{Description, FileId};

use super::memory::{Buffer, EventMemory, FileRoom, StreamRoom};
use crate::limits::{EVENT_BYTES_MAX, FILE_CHUNKS_MAX};
use crate::sums::{ADLER32_OF_NOTHING, adler32, adler32_of_both, crc32c};

/// Names of the files of a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FileNames {
    /// The name of the stream with a number of at least six digits behind a dot, from this number on.
    Numbered(u64),
    /// The name of the stream itself. There is one file, which never rolls over.
    Single,
}

/// Settings of a stream.
#[derive(Clone, Debug)]
pub struct StreamSettings {
    /// Content of its files.
    pub description: Description,
    /// Names of its files.
    pub names: FileNames,
    /// Bytes after which a file ends.
    pub file_bytes_max: u64,
    /// Events after which a file ends.
    pub file_events_max: u64,
    /// Age in milliseconds at which a file ends.
    pub file_ms_max: u64,
    /// Age in milliseconds at which events are sent that fill no chunk.
    pub linger_ms: u64,
}

/// Place in a stream: everything before it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Position {
    /// Bytes.
    pub bytes: u64,
    /// Events.
    pub events: u64,
}

/// Reason why an event was not appended. The stream has the same events as before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NotAppended {
    /// There is no memory for it now, or no place for another file: block, or shed it.
    Full,
    /// It has no byte.
    Empty,
    /// It is longer than `EVENT_BYTES_MAX`, or than the whole memory.
    TooLarge,
    /// The only file of the stream has ended, or would become too long.
    FileEnded,
}

/// A chunk of a file. Its sums are those of its bytes.
#[derive(Clone, Debug)]
pub struct Chunk {
    /// The file.
    pub file: FileId,
    /// Place in the sequence of the file's chunks.
    pub sequence: u64,
    /// Place of the first byte in the file.
    pub offset: u64,
    /// Events that end in the bytes.
    pub events: u32,
    /// CRC-32C of the bytes.
    pub crc32c: u32,
    /// Adler-32 of the bytes.
    pub adler32: u32,
    /// The bytes.
    pub bytes: Bytes,
}

impl Chunk {
    pub(super) fn end(&self) -> u64 {
        self.offset + self.bytes.len() as u64
    }
}

/// End of a file, with what it has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileEnd {
    /// The file.
    pub file: FileId,
    /// Bytes.
    pub length: u64,
    /// Events.
    pub events: u64,
    /// Chunks.
    pub chunks: u64,
    /// Adler-32 of all bytes.
    pub adler32: u32,
}

/// Result of packing, for the producer.
#[derive(Debug)]
pub enum Packed {
    /// A file begins.
    Begin(FileId, Description, FileRoom),
    /// A chunk is full, or old enough.
    Chunk(Chunk),
    /// The bytes of the file so far are wanted on disk soon.
    Flush(FileId),
    /// A file has ended.
    End(FileEnd),
}

#[derive(Debug)]
struct PackedFile {
    id: FileId,
    length: u64,
    events: u64,
    chunks: u64,
    adler32: u32,
    begun: u64,
    /// Events that end in the chunk that is being filled.
    filling_events: u32,
    /// Time of the first byte of that chunk.
    filling_since: u64,
}

/// Packs the events of one stream.
#[derive(Debug)]
pub struct Packer {
    settings: StreamSettings,
    memory: Arc<EventMemory>,
    random: fastrand::Rng,
    file: Option<PackedFile>,
    files: u64,
    /// Buffer of the chunk that is being filled.
    filling: Option<Buffer>,
    /// Bytes that this chunk still takes.
    room: usize,
    /// Buffers for the rest of an event.
    spare: Vec<Buffer>,
    appended: Position,
    packed: VecDeque<Packed>,
    _room: StreamRoom,
}

/// Returns the longest chunk that begins at a place of a file.
fn chunk_room(offset: u64, buffer_bytes: usize) -> usize {
    (BLOCK_BYTES - (offset % BLOCK_BYTES as u64) as usize).min(buffer_bytes)
}

impl Packer {
    /// Makes a packer; none if there is too little memory for another stream. The seed gives the
    /// identities of its files.
    pub fn new(settings: StreamSettings, memory: Arc<EventMemory>, seed: u64) -> Option<Self> {
        let room = memory.add_stream()?;
        let mut settings = settings;
        let files = match settings.names {
            FileNames::Numbered(first) => first,
            FileNames::Single => {
                (settings.file_bytes_max, settings.file_events_max) = (FILE_BYTES_MAX, u64::MAX);
                settings.file_ms_max = u64::MAX;
                0
            }
        };
        settings.file_bytes_max = settings.file_bytes_max.min(FILE_BYTES_MAX);
        Some(Packer {
            settings,
            memory,
            random: fastrand::Rng::with_seed(seed),
            file: None,
            files,
            filling: None,
            room: 0,
            spare: Vec::new(),
            appended: Position::default(),
            packed: VecDeque::new(),
            _room: room,
        })
    }

    /// Returns the place behind the last event.
    pub fn appended(&self) -> Position {
        self.appended
    }

    /// Returns the bytes of the longest event.
    pub fn event_bytes_max(&self) -> usize {
        // The first piece may be short: the event needs a buffer more than its bytes.
        let buffers = self.memory.bytes_max() / self.memory.buffer_bytes();
        EVENT_BYTES_MAX.min(buffers.saturating_sub(1) * self.memory.buffer_bytes())
    }

    /// Says whether there are results to take.
    pub fn has_packed(&self) -> bool {
        !self.packed.is_empty()
    }

    /// Returns the next result. The caller takes all of them after each call of another method.
    pub fn next_packed(&mut self) -> Option<Packed> {
        self.packed.pop_front()
    }

    /// Appends an event; all of it or nothing. Returns the file that has it.
    pub fn append(&mut self, event: &[u8], now: u64) -> Result<FileId, NotAppended> {
        let settings = &self.settings;
        // The usual event: a copy, and a few numbers.
        if let (Some(file), Some(filling)) = (&mut self.file, &mut self.filling)
            && event.len() < self.room
            && file.length + (event.len() as u64) <= settings.file_bytes_max
            && file.events < settings.file_events_max
            && !filling.bytes.is_empty()
            && !event.is_empty()
        {
            filling.bytes.extend_from_slice(event);
            self.room -= event.len();
            file.length += event.len() as u64;
            file.events += 1;
            file.filling_events += 1;
            self.appended.bytes += event.len() as u64;
            self.appended.events += 1;
            return Ok(file.id);
        }
        self.append_pieces(event, now)
    }

    fn append_pieces(&mut self, event: &[u8], now: u64) -> Result<FileId, NotAppended> {
        if event.is_empty() {
            return Err(NotAppended::Empty);
        }
        if event.len() > self.event_bytes_max() {
            return Err(NotAppended::TooLarge);
        }
        if self.file.as_ref().is_some_and(|file| self.is_full(file, event.len() as u64)) {
            if self.settings.names == FileNames::Single {
                return Err(NotAppended::FileEnded);
            }
            self.end_file();
        }
        let from = self.file.as_ref().map_or(0, |file| file.length);
        let needed = self.buffers_for(from, event.len());
        let mut spare = std::mem::take(&mut self.spare);
        let is_taken = needed == 0 || self.memory.take(needed, &mut spare);
        self.spare = spare;
        let begun = if is_taken { self.begin_file(now) } else { Err(NotAppended::Full) };
        if let Err(reason) = begun {
            self.spare.clear();
            return Err(reason);
        }
        self.copy(event, now);
        // One more was taken than needed if a short chunk left its buffer.
        self.spare.clear();
        self.appended.bytes += event.len() as u64;
        self.appended.events += 1;
        self.file.as_ref().map(|file| file.id).ok_or(NotAppended::Full)
    }

    /// Says whether the next event belongs to another file.
    fn is_full(&self, file: &PackedFile, length: u64) -> bool {
        let is_long = file.length + length > self.settings.file_bytes_max && file.length > 0;
        is_long || file.events >= self.settings.file_events_max || file.chunks >= FILE_CHUNKS_MAX
    }

    /// Counts the buffers that an event needs beside the one that is being filled.
    fn buffers_for(&self, from: u64, length: usize) -> usize {
        let buffer_bytes = self.memory.buffer_bytes();
        let (mut at, mut left, mut count) = (from, length, 0);
        if self.filling.is_some() {
            let first = self.room_at(at).min(left);
            (at, left) = (at + first as u64, left - first);
        }
        while left > 0 {
            let next = chunk_room(at, buffer_bytes).min(left);
            (at, left, count) = (at + next as u64, left - next, count + 1);
        }
        count
    }

    /// Returns the room of the present chunk: what is left of it, or all of an empty one.
    fn room_at(&self, offset: u64) -> usize {
        match &self.filling {
            Some(filling) if !filling.bytes.is_empty() => self.room,
            _ => chunk_room(offset, self.memory.buffer_bytes()),
        }
    }

    fn begin_file(&mut self, now: u64) -> Result<(), NotAppended> {
        if self.file.is_some() {
            return Ok(());
        }
        let mut description = self.settings.description.clone();
        match self.settings.names {
            FileNames::Single if self.files > 0 => return Err(NotAppended::FileEnded),
            FileNames::Single => {}
            FileNames::Numbered(_) => {
                let name = format!("{}.{:06}", description.lfn, self.files);
                description.lfn = Lfn::parse(&name).map_err(|_| NotAppended::FileEnded)?;
            }
        }
        let room = self.memory.add_file().ok_or(NotAppended::Full)?;
        let id = FileId(self.random.u128(..).to_be_bytes());
        self.files += 1;
        self.file = Some(PackedFile {
            id,
            length: 0,
            events: 0,
            chunks: 0,
            adler32: ADLER32_OF_NOTHING,
            begun: now,
            filling_events: 0,
            filling_since: now,
        });
        self.packed.push_back(Packed::Begin(id, description, room));
        Ok(())
    }

    fn copy(&mut self, event: &[u8], now: u64) {
        let mut rest = event;
        while !rest.is_empty() {
            let Some(offset) = self.file.as_ref().map(|file| file.length) else { return };
            if self.filling.is_none() {
                self.filling = self.spare.pop();
            }
            self.room = self.room_at(offset);
            let (Some(file), Some(filling)) = (&mut self.file, &mut self.filling) else { return };
            if filling.bytes.is_empty() {
                file.filling_since = now;
            }
            let (piece, behind) = rest.split_at(self.room.min(rest.len()));
            filling.bytes.extend_from_slice(piece);
            self.room -= piece.len();
            file.length += piece.len() as u64;
            rest = behind;
            if rest.is_empty() {
                file.filling_events += 1;
                file.events += 1;
            }
            if self.room == 0 {
                self.end_chunk();
            }
        }
    }

    /// Ends the chunk that is being filled.
    fn end_chunk(&mut self) {
        let Some(file) = &mut self.file else { return };
        let Some(filling) = self.filling.take_if(|filling| !filling.bytes.is_empty()) else { return };
        // A short chunk gets memory of its size, and the buffer goes on.
        let is_short = filling.bytes.len() <= self.memory.buffer_bytes() / 2;
        let copy = if is_short { self.memory.copy(&filling.bytes) } else { None };
        let full = match copy {
            Some(copy) => {
                let mut filling = filling;
                filling.bytes.clear();
                self.filling = Some(filling);
                copy
            }
            None => filling,
        };
        let bytes = Bytes::from_owner(full);
        let chunk = Chunk {
            file: file.id,
            sequence: file.chunks,
            offset: file.length - bytes.len() as u64,
            events: std::mem::take(&mut file.filling_events),
            crc32c: crc32c(&bytes),
            adler32: adler32(&bytes),
            bytes,
        };
        self.room = 0;
        file.chunks += 1;
        file.adler32 = adler32_of_both(file.adler32, chunk.adler32, chunk.bytes.len() as u64);
        self.packed.push_back(Packed::Chunk(chunk));
    }

    /// Ends the chunk that is being filled, and asks the service to write it at once.
    pub fn flush(&mut self) {
        self.end_chunk();
        if let Some(file) = &self.file {
            self.packed.push_back(Packed::Flush(file.id));
        }
    }

    /// Ends the file; the next event begins another.
    pub fn end_file(&mut self) {
        self.end_chunk();
        // Other streams may need the buffer.
        self.filling = None;
        if let Some(file) = self.file.take() {
            let PackedFile { id, length, events, chunks, adler32, .. } = file;
            self.packed.push_back(Packed::End(FileEnd { file: id, length, events, chunks, adler32 }));
        }
    }

    /// Ends a file, if it is the present one and another may follow.
    pub fn roll_over(&mut self, file: FileId) {
        let is_present = self.file.as_ref().is_some_and(|of| of.id == file);
        if is_present && self.settings.names != FileNames::Single {
            self.end_file();
        }
    }

    /// Lets time pass: ends what is old enough.
    pub fn tick(&mut self, now: u64) {
        let Some(file) = &self.file else { return };
        if now.saturating_sub(file.begun) >= self.settings.file_ms_max {
            self.end_file();
            return;
        }
        // Another stream may need a buffer that is empty.
        drop(self.filling.take_if(|filling| filling.bytes.is_empty()));
        if self.filling.is_some() && now.saturating_sub(file.filling_since) >= self.settings.linger_ms {
            self.end_chunk();
        }
    }

    /// Ends the chunk that is being filled, and gives its buffer back, because memory is short.
    pub fn give_way(&mut self) {
        self.end_chunk();
        self.filling = None;
    }
}
