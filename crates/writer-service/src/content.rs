//! Content of files, put together from their parts: those here, and those on other services.
//!
//! Every chunk is checked against its CRC-32C before a byte of it leaves. A whole file is also checked
//! against its Adler-32 before its last bytes leave. A reader that falls short of the announced length
//! has met a damaged or missing part.

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;

use bytes::{BufMut, Bytes, BytesMut};
use exacat_http::HttpClientSettings;
use exacat_model::{Error, ErrorKind, Lfn, Result};
use exacat_wire::writer::{ByteRange, ChunkRecord, FileId, PartOwner, ServiceState};
use exacat_writer::sums::{ADLER32_OF_NOTHING, adler32, adler32_of_both, crc32c};
use exacat_writer::{FileStage, PartKey, ReadSegment, Service, Volume};
use tokio::sync::mpsc;

use crate::catalogue::Credential;
use crate::hub::Hub;
use crate::limits::{PIECE_BYTES_MAX, REMOTE_TIME_MAX, SEND_TIME_MAX};
use crate::remote::{Remote, RemotePart};

/// Pieces of content on their way.
pub(crate) type Pieces = mpsc::Receiver<io::Result<Bytes>>;

/// A file, as its readers need it.
pub(crate) struct FileView {
    pub file: FileId,
    /// Account that owns it, or will.
    pub owner: String,
    pub is_certified: bool,
    /// Bytes that can be read: all of a certified file, and the durable beginning of another.
    pub length: u64,
    /// Adler-32 of a certified file.
    pub adler32: Option<u32>,
    /// Places of these bytes, in order. None are known if another service certified the file.
    pub segments: Vec<ReadSegment>,
    /// Chunks of parts here that are not beside their bytes, by the epochs of the parts.
    chunks: BTreeMap<u32, Arc<[ChunkRecord]>>,
}

impl FileView {
    /// Looks a file up; none if nothing of it is here, or its bytes are removed.
    fn of(service: &Service, file: FileId, now: u64) -> Option<FileView> {
        let found = service.segments(file)?;
        let owner = service.file(file, now)?.owner;
        let is_certified = matches!(found.stage, FileStage::Certified | FileStage::Staged);
        let mut view = FileView {
            file,
            owner,
            is_certified,
            length: found.length.unwrap_or(0),
            adler32: found.adler32,
            segments: found.segments,
            chunks: BTreeMap::new(),
        };
        if !is_certified {
            view.cut_at_gap();
            for segment in &view.segments {
                let part = PartKey { file, epoch: segment.part.epoch };
                let chunks = service.durable_chunks(part).unwrap_or_default();
                view.chunks.entry(part.epoch).or_insert_with(|| chunks.into());
            }
        }
        Some(view)
    }

    /// Leaves the bytes from the first one on, up to the first gap.
    fn cut_at_gap(&mut self) {
        let mut end = 0;
        let whole = self.segments.iter().take_while(|segment| {
            let joins = segment.range.from == end;
            end = if joins { segment.range.to } else { end };
            joins
        });
        let whole = whole.count();
        self.segments.truncate(whole);
        self.length = end;
        self.adler32 = None;
    }

    /// Says whether the places of all bytes are known.
    pub(crate) fn is_known(&self) -> bool {
        self.length == 0 || !self.segments.is_empty()
    }
}

/// A part here, as another service needs it.
pub(crate) struct PartView {
    volume: usize,
    chunks: Option<Arc<[ChunkRecord]>>,
}

/// Ways to other services.
#[derive(Clone)]
pub(crate) struct Others {
    pub tls: Option<Arc<rustls::ClientConfig>>,
}

/// Reader of files.
pub(crate) struct Content {
    hub: Arc<Hub>,
    volumes: Arc<Vec<Volume>>,
    others: Others,
}

fn broken(error: Error) -> io::Error {
    io::Error::other(error.to_string())
}

/// Returns the bytes that two ranges share; none if they share no byte.
fn shared(one: ByteRange, other: ByteRange) -> Option<ByteRange> {
    let (from, to) = (one.from.max(other.from), one.to.min(other.to));
    (from < to).then_some(ByteRange { from, to })
}

/// Receiver of pieces, with the sum of those so far.
struct Sink {
    to: mpsc::Sender<io::Result<Bytes>>,
    /// Checksum of the whole file, if all of it is sent.
    expected: Option<u32>,
    sum: u32,
    left: u64,
}

impl Sink {
    /// Sends a piece. The last one goes only if the whole file is right.
    async fn send(&mut self, piece: Bytes) -> Result<()> {
        self.left = self.left.saturating_sub(piece.len() as u64);
        if let Some(expected) = self.expected {
            self.sum = adler32_of_both(self.sum, adler32(&piece), piece.len() as u64);
            if self.left == 0 && self.sum != expected {
                return Err(Error::new(ErrorKind::Corrupt, "the file fails its checksum"));
            }
        }
        let gone = || Error::new(ErrorKind::Unavailable, "the reader has gone, or takes nothing");
        match tokio::time::timeout(SEND_TIME_MAX, self.to.send(Ok(piece))).await {
            Ok(Ok(())) => Ok(()),
            _ => Err(gone()),
        }
    }
}

/// Reads a run of chunks on a disk, and checks each.
fn read_run(volume: &Volume, part: PartKey, run: &[ChunkRecord]) -> Result<Bytes> {
    let (Some(first), Some(last)) = (run.first(), run.last()) else { return Ok(Bytes::new()) };
    let bytes = volume.read(part, ByteRange { from: first.offset, to: last.end() })?;
    for chunk in run {
        let from = usize::try_from(chunk.offset - first.offset).unwrap_or(usize::MAX);
        let is_right = bytes
            .get(from..from.saturating_add(chunk.length as usize))
            .is_some_and(|bytes| crc32c(bytes) == chunk.crc32c);
        if !is_right {
            let what = format!("{}: the chunk at {} is damaged", volume.path(part).display(), chunk.offset);
            return Err(Error::new(ErrorKind::Corrupt, what));
        }
    }
    Ok(Bytes::from(bytes))
}

/// Returns the chunks from `from` on that lie side by side, up to the bytes of a piece.
fn run_of(chunks: &[ChunkRecord], from: usize) -> &[ChunkRecord] {
    let mut to = from;
    let mut length: u64 = 0;
    while let Some(chunk) = chunks.get(to) {
        let is_beside = to == from || chunks.get(to - 1).is_some_and(|before| before.end() == chunk.offset);
        length += u64::from(chunk.length);
        if !is_beside || (to > from && length > PIECE_BYTES_MAX) {
            break;
        }
        to += 1;
    }
    chunks.get(from..to).unwrap_or_default()
}

async fn blocking<T: Send + 'static>(work: impl FnOnce() -> Result<T> + Send + 'static) -> Result<T> {
    let stopped = |_| Error::new(ErrorKind::Internal, "internal error: a read stopped");
    tokio::task::spawn_blocking(work).await.map_err(stopped)?
}

impl Content {
    pub(crate) fn new(hub: Arc<Hub>, volumes: Arc<Vec<Volume>>, others: Others) -> Self {
        Content { hub, volumes, others }
    }

    /// Returns the service's own part of the work.
    pub(crate) fn hub(&self) -> &Arc<Hub> {
        &self.hub
    }

    /// Finds a file.
    pub(crate) fn find(&self, file: FileId) -> Option<FileView> {
        self.hub.with(|service, now| FileView::of(service, file, now))
    }

    /// Finds the file of this name that is not certified.
    pub(crate) fn find_uncertified(&self, lfn: &Lfn) -> Option<FileView> {
        let found = self.hub.with(|service, now| {
            let file = service.uncertified_file_of(lfn)?;
            FileView::of(service, file, now)
        });
        found.filter(|found| !found.is_certified)
    }

    /// Finds a part here.
    pub(crate) fn find_part(&self, key: PartKey) -> Option<PartView> {
        self.hub.with(|service, _| {
            let volume = service.volume_of(key)?;
            Some(PartView { volume, chunks: service.durable_chunks(key).map(Into::into) })
        })
    }

    /// Begins to read a range of a file. The pieces are as long as the range, or end with an error.
    pub(crate) fn open(self: &Arc<Self>, of: FileView, range: ByteRange, credential: Credential) -> Pieces {
        let (to, pieces) = mpsc::channel(1);
        let content = Arc::clone(self);
        tokio::spawn(async move {
            let is_whole = range == ByteRange { from: 0, to: of.length };
            let expected = of.adler32.filter(|_| is_whole);
            let left = range.to - range.from;
            let mut sink = Sink { to, expected, sum: ADLER32_OF_NOTHING, left };
            if let Err(error) = content.send_file(&of, range, &credential, &mut sink).await {
                if !sink.to.is_closed() {
                    content.hub.measures().http.content_broken.add(1);
                    tracing::warn!(file = %of.file, %error, "the content of a file ends early");
                }
                let _ = sink.to.try_send(Err(broken(error)));
            }
        });
        pieces
    }

    async fn send_file(
        &self,
        of: &FileView,
        range: ByteRange,
        credential: &Credential,
        sink: &mut Sink,
    ) -> Result<()> {
        let mut at = range.from;
        for segment in &of.segments {
            let Some(wanted) = shared(segment.range, range) else { continue };
            if wanted.from != at {
                break;
            }
            self.send_segment(of, ReadSegment { range: wanted, ..segment.clone() }, credential, sink).await?;
            at = wanted.to;
        }
        if at == range.to {
            return Ok(());
        }
        Err(Error::new(ErrorKind::Corrupt, format!("no known part has the bytes at {at}")))
    }

    async fn send_segment(
        &self,
        of: &FileView,
        segment: ReadSegment,
        credential: &Credential,
        sink: &mut Sink,
    ) -> Result<()> {
        let key = PartKey { file: of.file, epoch: segment.part.epoch };
        if segment.part.service != self.hub.service() {
            return self.send_remote(key, segment, credential, sink).await;
        }
        let missing = || Error::new(ErrorKind::Corrupt, format!("part {} is not here", segment.part.epoch));
        let volume = segment.volume.ok_or_else(missing)?;
        let known = of.chunks.get(&key.epoch).map(Arc::clone);
        let chunks = match self.chunks_of(key, volume, known).await {
            Ok(chunks) => chunks,
            // Sealed after a fault of the disk: the checksum of the whole file judges its bytes.
            Err(_) if sink.expected.is_some() => bare_chunks(segment.range),
            Err(error) => return Err(error),
        };
        let is_bare = chunks.first().is_some_and(|chunk| chunk.sequence == u64::MAX);
        let mut at = chunks.partition_point(|chunk| chunk.end() <= segment.range.from);
        let mut next = segment.range.from;
        while next < segment.range.to {
            let run = run_of(&chunks, at).to_vec();
            let first = run.first().map(|chunk| chunk.offset).filter(|offset| *offset <= next);
            let Some(first) = first else {
                let what = format!("part {} has no bytes at {next}", segment.part.epoch);
                return Err(Error::new(ErrorKind::Corrupt, what));
            };
            at += run.len();
            let volumes = Arc::clone(&self.volumes);
            let bytes = blocking(move || {
                let volume = volumes.get(volume).ok_or_else(|| Error::invalid("no such volume"))?;
                match is_bare {
                    false => read_run(volume, key, &run),
                    true => {
                        let to = run.last().map_or(first, ChunkRecord::end);
                        volume.read(key, ByteRange { from: first, to }).map(Bytes::from)
                    }
                }
            })
            .await?;
            let end = (first + bytes.len() as u64).min(segment.range.to);
            let place = |at: u64| usize::try_from(at - first).unwrap_or(usize::MAX);
            sink.send(bytes.slice(place(next)..place(end))).await?;
            next = end;
        }
        Ok(())
    }

    async fn chunks_of(
        &self,
        key: PartKey,
        volume: usize,
        known: Option<Arc<[ChunkRecord]>>,
    ) -> Result<Arc<[ChunkRecord]>> {
        if let Some(chunks) = known {
            return Ok(chunks);
        }
        let volumes = Arc::clone(&self.volumes);
        let read = move || match volumes.get(volume) {
            Some(volume) => volume.chunks_of(key),
            None => Err(Error::invalid("no such volume")),
        };
        Ok(blocking(read).await?.into())
    }

    async fn send_remote(
        &self,
        key: PartKey,
        segment: ReadSegment,
        credential: &Credential,
        sink: &mut Sink,
    ) -> Result<()> {
        let mut part = self.remote_part(key, &segment, credential).await?;
        let mut next = segment.range.from;
        while let Some((first, bytes)) = part.next().await? {
            let end = (first + bytes.len() as u64).min(segment.range.to);
            if first > next || end <= next {
                return Err(Error::new(
                    ErrorKind::Corrupt,
                    format!("the other service left out bytes at {next}"),
                ));
            }
            let place = |at: u64| usize::try_from(at - first).unwrap_or(usize::MAX);
            sink.send(bytes.slice(place(next)..place(end))).await?;
            next = end;
        }
        let is_whole = next == segment.range.to;
        let what = || Error::new(ErrorKind::Corrupt, format!("the other service ended at {next}"));
        if is_whole { Ok(()) } else { Err(what()) }
    }

    /// Begins to read a part from its service, or from another one that adopted its volume.
    async fn remote_part(
        &self,
        key: PartKey,
        segment: &ReadSegment,
        credential: &Credential,
    ) -> Result<RemotePart> {
        let part = segment.part;
        let mut failure = {
            let what = format!("part {} is on service {}, which is not known now", part.epoch, part.service);
            Error::new(ErrorKind::Unavailable, what)
        };
        for (is_named, address) in self.places_of(part) {
            let opened = async { self.remote(address, credential)?.part(key, segment.range).await };
            match opened.await {
                Ok(opened) => return Ok(opened),
                Err(error) if is_named => failure = error,
                // A service without the part says so; the failure of its own service says more.
                Err(_) => {}
            }
        }
        Err(failure)
    }

    /// Returns the URLs where a part may be: that of its service, then those of all others. A service that
    /// is gone comes last: it would only take time.
    fn places_of(&self, part: PartOwner) -> Vec<(bool, String)> {
        let own = self.hub.service();
        let table = self.hub.with(|service, _| service.table());
        let mut records = table.0;
        records.retain(|record| !record.http.is_empty() && record.service != own);
        records.retain(|record| record.service == part.service || record.state != ServiceState::Gone);
        records.sort_by_key(|record| (record.state == ServiceState::Gone, record.service != part.service));
        records.into_iter().map(|record| (record.service == part.service, record.http)).collect()
    }

    /// Makes a client of another service, with the credential of a reader.
    pub(crate) fn remote(&self, address: String, credential: &Credential) -> Result<Remote> {
        let token = match credential {
            Credential::Token(token) => Some(token.clone()),
            Credential::None | Credential::Certificate(_) => None,
        };
        let tls = self.others.tls.clone();
        Remote::new(HttpClientSettings { address, token, tls, time: REMOTE_TIME_MAX })
    }

    /// Begins to read the chunks of a part here that lie in a range. Returns the bytes to come.
    ///
    /// A chunk is its offset (u64 LE), length and CRC-32C (u32 LE each), and its bytes.
    pub(crate) async fn open_part(
        self: &Arc<Self>,
        key: PartKey,
        part: PartView,
        range: ByteRange,
    ) -> Result<(u64, Pieces)> {
        let chunks = self.chunks_of(key, part.volume, part.chunks.clone()).await?;
        let from = chunks.partition_point(|chunk| chunk.end() <= range.from);
        let to = chunks.partition_point(|chunk| chunk.offset < range.to);
        let wanted: Arc<[ChunkRecord]> = chunks.get(from..to).unwrap_or_default().into();
        let length = wanted.iter().map(|chunk| CHUNK_FRAME_BYTES + u64::from(chunk.length)).sum();
        let (sender, pieces) = mpsc::channel(1);
        let content = Arc::clone(self);
        tokio::spawn(async move {
            let mut sink = Sink { to: sender, expected: None, sum: 0, left: length };
            if let Err(error) = content.send_chunks(key, part.volume, &wanted, &mut sink).await {
                if !sink.to.is_closed() {
                    content.hub.measures().http.content_broken.add(1);
                    tracing::warn!(file = %key.file, epoch = key.epoch, %error, "a part ends early");
                }
                let _ = sink.to.try_send(Err(broken(error)));
            }
        });
        Ok((length, pieces))
    }

    async fn send_chunks(
        &self,
        key: PartKey,
        volume: usize,
        chunks: &[ChunkRecord],
        sink: &mut Sink,
    ) -> Result<()> {
        let mut at = 0;
        while at < chunks.len() {
            let run = run_of(chunks, at).to_vec();
            at += run.len();
            let volumes = Arc::clone(&self.volumes);
            let framed = blocking(move || {
                let volume = volumes.get(volume).ok_or_else(|| Error::invalid("no such volume"))?;
                let bytes = read_run(volume, key, &run)?;
                let heads = run.len() * CHUNK_FRAME_BYTES as usize;
                let mut framed = BytesMut::with_capacity(bytes.len() + heads);
                let mut rest = &bytes[..];
                for chunk in &run {
                    framed.put_u64_le(chunk.offset);
                    framed.put_u32_le(chunk.length);
                    framed.put_u32_le(chunk.crc32c);
                    let (own, behind) = rest.split_at(chunk.length as usize);
                    framed.put_slice(own);
                    rest = behind;
                }
                Ok(framed.freeze())
            })
            .await?;
            sink.send(framed).await?;
        }
        Ok(())
    }
}

/// Bytes before those of a chunk between services.
pub(crate) const CHUNK_FRAME_BYTES: u64 = 16;

/// Cuts a range whose chunks are unknown into pieces. Their sequence tells them apart from real chunks.
fn bare_chunks(range: ByteRange) -> Arc<[ChunkRecord]> {
    let mut pieces = Vec::new();
    let mut offset = range.from;
    while offset < range.to {
        let length = (range.to - offset).min(PIECE_BYTES_MAX);
        pieces.push(ChunkRecord {
            sequence: u64::MAX,
            offset,
            length: u32::try_from(length).unwrap_or(u32::MAX),
            events: 0,
            crc32c: 0,
            adler32: 0,
        });
        offset += length;
    }
    pieces.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chunk(offset: u64, length: u32) -> ChunkRecord {
        ChunkRecord { sequence: 0, offset, length, events: 0, crc32c: 0, adler32: 0 }
    }

    /// Property: runs have all chunks in order, without a gap, and at most a piece or one chunk.
    #[test]
    fn runs_are_bounded_and_without_gaps() {
        let half = (PIECE_BYTES_MAX / 2) as u32;
        let chunks =
            [chunk(0, half), chunk(half.into(), half), chunk(2 * u64::from(half), 1), chunk(1 << 30, 7)];
        let mut lengths = Vec::new();
        let mut at = 0;
        while at < chunks.len() {
            let run = run_of(&chunks, at);
            lengths.push(run.len());
            at += run.len();
        }
        assert_eq!(lengths, [2, 1, 1]);
        assert!(run_of(&chunks, 4).is_empty());
        let bare = bare_chunks(ByteRange { from: 5, to: 5 + 2 * PIECE_BYTES_MAX + 1 });
        assert_eq!((bare.len(), bare[2].length, bare[2].end()), (3, 1, 6 + 2 * PIECE_BYTES_MAX));
    }
}
