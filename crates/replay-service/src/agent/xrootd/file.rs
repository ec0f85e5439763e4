//! Open file: reads its bytes by several requests at once, checks them, and closes it.

use std::collections::VecDeque;

use exacat_model::checksum::adler32_of_both;
use exacat_replay::run::outcome::Outcome;
use exacat_replay::trace::reads::{ReadRange, Reads};
use exacat_wire::xrootd::client::Answer;
use exacat_wire::xrootd::client::answer::OpenAnswer;
use exacat_wire::xrootd::client::request::{write_close, write_page_read, write_read, write_vector_read};
use exacat_wire::xrootd::limits::{SEGMENT_BYTES_MAX, SEGMENT_HEADER_BYTES, SEGMENTS_MAX};
use exacat_wire::xrootd::numbers::{error, role};
use exacat_wire::xrootd::vector::VectorAnswer;
use exacat_wire::xrootd::{FileHandle, FileRange, StreamId};
use simd_adler32::Adler32;

use super::session::{Session, Short, nonsense, pause};
use crate::agent::access::{Access, Failure, Reading, Verifier};
use crate::agent::limits::{VECTOR_BYTES_MAX, VECTORS_AHEAD};
use crate::agent::settings::{CacheSettings, ReadMethod};

/// Open file, on a session that nobody else uses meanwhile.
pub(super) struct OpenFile<'a> {
    session: Session,
    handle: FileHandle,
    access: &'a Access,
    verifier: &'a Verifier,
    /// Bytes of the file as the server says, if it does.
    size: Option<u64>,
    read_bytes: u32,
    reads_ahead: usize,
    has_pages: bool,
    /// Requests under way, in the order of the file.
    requests: VecDeque<ReadRequest>,
    /// Adler-32 of the bytes before them, if all of the file is read.
    sum: Option<u32>,
}

/// Request under way.
struct ReadRequest {
    stream: StreamId,
    asked: Asked,
    is_done: bool,
}

/// Bytes that a request asks for.
enum Asked {
    Piece(Piece),
    Vector(VectorAnswer),
}

/// Bytes from a place on.
struct Piece {
    offset: u64,
    length: u32,
    received: u32,
    /// Bytes that had come before the request was sent again for the rest.
    before: u32,
    sum: Adler32,
}

impl Piece {
    /// Returns the bytes that are missing.
    fn rest(&self, handle: FileHandle) -> FileRange {
        let offset = self.offset + u64::from(self.received);
        FileRange { handle, length: self.length - self.received, offset }
    }
}

/// Splits a range into reads.
fn pieces(range: ReadRange, read_bytes: u32) -> impl Iterator<Item = Asked> {
    let step = u64::from(read_bytes.max(1));
    (0..range.length.div_ceil(step)).map(move |number| {
        let offset = range.offset + number * step;
        let length = (range.offset + range.length - offset).min(step) as u32;
        Asked::Piece(Piece { offset, length, received: 0, before: 0, sum: Adler32::new() })
    })
}

/// Splits ranges into vector reads, each within the limits of servers.
fn vectors(ranges: Vec<ReadRange>, handle: FileHandle) -> impl Iterator<Item = Asked> {
    let step = u64::from(SEGMENT_BYTES_MAX);
    let cut = move |range: ReadRange| {
        (0..range.length.div_ceil(step)).map(move |number| {
            let offset = range.offset + number * step;
            let length = (range.offset + range.length - offset).min(step) as u32;
            FileRange { handle, length, offset }
        })
    };
    let mut segments = ranges.into_iter().flat_map(cut).peekable();
    std::iter::from_fn(move || {
        let (mut vector, mut bytes) = (Vec::new(), 0);
        while let Some(next) = segments.peek()
            && vector.len() < SEGMENTS_MAX
            && (vector.is_empty() || bytes + u64::from(next.length) <= VECTOR_BYTES_MAX)
        {
            bytes += u64::from(next.length);
            vector.extend(segments.next());
        }
        (!vector.is_empty()).then(|| Asked::Vector(VectorAnswer::new(vector)))
    })
}

impl<'a> OpenFile<'a> {
    pub(super) fn new(
        session: Session,
        file: OpenAnswer,
        access: &'a Access,
        settings: &CacheSettings,
        verifier: &'a Verifier,
    ) -> Self {
        OpenFile {
            has_pages: settings.method == ReadMethod::Pages && session.roles & role::PAGES != 0,
            session,
            handle: file.handle,
            access,
            verifier,
            size: file.stat.map(|stat| stat.size),
            read_bytes: settings.read_bytes,
            reads_ahead: settings.reads_ahead,
            requests: VecDeque::new(),
            sum: None,
        }
    }

    /// Reads the bytes of the access.
    pub(super) async fn read(&mut self, reading: &mut Reading) -> Result<(), Failure> {
        let (size, handle) = (self.access.size, self.handle);
        if self.access.reads == Reads::Whole {
            // Of no bytes the checksum is 1.
            self.sum = Some(1);
            self.read_all(pieces(ReadRange { offset: 0, length: size }, self.read_bytes), reading).await?;
            let sum = self.sum.unwrap_or_default();
            return reading.compare(self.access, sum);
        }
        let ranges = self.access.reads.ranges(size);
        match ranges[..] {
            [] => Ok(()),
            [range] => self.read_all(pieces(range, self.read_bytes), reading).await,
            _ => {
                self.reads_ahead = VECTORS_AHEAD;
                self.read_all(vectors(ranges, handle), reading).await
            }
        }
    }

    /// Reads pieces or vectors, several at once.
    async fn read_all(
        &mut self,
        mut asked: impl Iterator<Item = Asked>,
        reading: &mut Reading,
    ) -> Result<(), Failure> {
        loop {
            while self.requests.len() < self.reads_ahead
                && let Some(asked) = asked.next()
            {
                let stream = self.ask(&asked)?;
                self.requests.push_back(ReadRequest { stream, asked, is_done: false });
            }
            self.session.send().await?;
            if self.requests.is_empty() {
                return Ok(());
            }
            let answer = self.session.answer().await?;
            self.take(answer, reading).await?;
            while self.requests.front().is_some_and(|first| first.is_done) {
                if let Some(ReadRequest { asked: Asked::Piece(piece), .. }) = self.requests.pop_front()
                    && let Some(sum) = &mut self.sum
                {
                    *sum = adler32_of_both(*sum, piece.sum.finish(), u64::from(piece.length));
                }
            }
        }
    }

    /// Writes a request.
    fn ask(&mut self, asked: &Asked) -> Result<StreamId, Failure> {
        let (handle, has_pages) = (self.handle, self.has_pages);
        let bytes = match asked {
            Asked::Piece(piece) => u64::from(piece.length - piece.received),
            Asked::Vector(vector) => {
                let of = |one: &FileRange| u64::from(one.length) + SEGMENT_HEADER_BYTES as u64;
                vector.segments().iter().map(of).sum()
            }
        };
        self.session.expect(bytes);
        let (stream, out) = self.session.request();
        match asked {
            Asked::Piece(piece) if has_pages => write_page_read(out, stream, &piece.rest(handle)),
            Asked::Piece(piece) => write_read(out, stream, &piece.rest(handle)),
            Asked::Vector(vector) => write_vector_read(out, stream, vector.segments())
                .map_err(|error| Failure::new(Outcome::Agent, error.message))?,
        }
        Ok(stream)
    }

    /// Takes an answer, or a part of one.
    async fn take(&mut self, answer: Answer, reading: &mut Reading) -> Result<(), Failure> {
        let stream = answer.stream();
        let place = self.requests.iter().position(|request| request.stream == stream && !request.is_done);
        let place = place.ok_or_else(|| nonsense("an answer to no request"))?;
        let (name, verifier, is_summed) = (&*self.access.name, self.verifier, self.sum.is_some());
        let request = &mut self.requests[place];
        // After these the server sends nothing more to the request.
        request.is_done = matches!(
            answer,
            Answer::Done { .. } | Answer::Error { .. } | Answer::Redirect { .. } | Answer::Wait { .. }
        );
        match (answer, &mut request.asked) {
            (Answer::Body { bytes, .. }, Asked::Piece(piece)) => {
                piece.add(name, &bytes, is_summed, verifier)?;
                reading.came(bytes.len());
            }
            (Answer::Page { bytes, offset, .. }, Asked::Piece(piece)) => {
                if offset != piece.offset + u64::from(piece.received) {
                    return Err(nonsense("pages of another place than asked for"));
                }
                piece.add(name, &bytes, is_summed, verifier)?;
                reading.came(bytes.len());
            }
            (Answer::Body { bytes, .. }, Asked::Vector(vector)) => {
                let mut checked = Ok(());
                let data = |offset: u64, bytes: &[u8]| {
                    reading.came(bytes.len());
                    if checked.is_ok() {
                        checked = verifier.check(name, offset, bytes);
                    }
                };
                vector.feed(&bytes, data).map_err(nonsense)?;
                checked?;
            }
            (Answer::DamagedPage { offset, .. }, Asked::Piece(_)) => {
                let why = format!("a page at {offset} has another checksum than its bytes");
                return Err(Failure::numbered(Outcome::Checksum, error::CHECKSUM_ERROR, why));
            }
            (Answer::Done { .. }, Asked::Piece(piece)) => {
                if piece.received < piece.length && piece.received > piece.before {
                    // A server may send less at once; at the end of the file it sends nothing.
                    piece.before = piece.received;
                    self.ask_again(place)?;
                } else if piece.received < piece.length {
                    let at = piece.offset + u64::from(piece.received);
                    return Err(self.short(at));
                }
            }
            (Answer::Done { .. }, Asked::Vector(vector)) => {
                if !vector.is_complete() {
                    return Err(Failure::new(
                        Outcome::Short,
                        "a vector read gives fewer bytes than asked for",
                    ));
                }
                request.is_done = true;
            }
            (Answer::Wait { seconds, .. }, _) => {
                pause(seconds).await;
                self.ask_again(place)?;
            }
            (Answer::Later { .. }, _) => {}
            (Answer::Error { number, text, .. }, Asked::Vector(_))
                if self.size.is_some_and(|size| size < self.access.size) =>
            {
                let failure = self.short(self.size.unwrap_or_default());
                return Err(Failure { number, why: format!("{}: {text}", failure.why), ..failure });
            }
            (Answer::Error { number, text, .. }, _) => return Err(Failure::of_xrootd(number, &text)),
            (Answer::Redirect { .. }, _) => {
                let why = "the server redirects from a file that is open";
                return Err(Failure::new(Outcome::Server, why));
            }
            _ => return Err(nonsense("an answer of another kind than the request")),
        }
        Ok(())
    }

    /// Sends a request again, for the bytes that are missing.
    fn ask_again(&mut self, place: usize) -> Result<(), Failure> {
        let Some(mut request) = self.requests.remove(place) else { return Ok(()) };
        if let Asked::Vector(vector) = &request.asked {
            request.asked = Asked::Vector(VectorAnswer::new(vector.segments().to_vec()));
        }
        request.stream = self.ask(&request.asked)?;
        request.is_done = false;
        self.requests.insert(place, request);
        Ok(())
    }

    fn short(&self, at: u64) -> Failure {
        let why = format!("the file ends after {at} of {} bytes", self.access.size);
        Failure::new(Outcome::Short, why)
    }

    /// Says whether no request is under way, so that the file can be closed.
    pub(super) fn is_quiet(&self) -> bool {
        self.requests.iter().all(|request| request.is_done) && self.session.is_clean()
    }

    /// Closes the file.
    pub(super) async fn close(mut self) -> Result<Session, Failure> {
        let handle = self.handle;
        let closed = self.session.short(|out, stream| {
            write_close(out, stream, handle);
            Ok(())
        });
        match closed.await? {
            Short::Body(_) => Ok(self.session),
            Short::Redirect { .. } => Err(nonsense("a redirection of a close")),
        }
    }
}

impl Piece {
    /// Takes the next bytes.
    fn add(&mut self, name: &str, bytes: &[u8], is_summed: bool, verifier: &Verifier) -> Result<(), Failure> {
        let length = u32::try_from(bytes.len()).ok().filter(|length| *length <= self.length - self.received);
        let length = length.ok_or_else(|| nonsense("more bytes than asked for"))?;
        verifier.check(name, self.offset + u64::from(self.received), bytes)?;
        if is_summed {
            self.sum.write(bytes);
        }
        self.received += length;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Property: reads cover a range once, in its order, none longer than wanted.
    #[test]
    fn reads_cover_a_range_once() {
        for (offset, length, step) in [(0, 0, 5), (0, 1, 5), (3, 10, 5), (3, 11, 5), (7, 4, u32::MAX)] {
            let mut at = offset;
            for asked in pieces(ReadRange { offset, length }, step) {
                let Asked::Piece(piece) = asked else { panic!("a vector") };
                assert!(piece.offset == at && piece.length > 0 && piece.length <= step);
                at += u64::from(piece.length);
            }
            assert_eq!(at, offset + length);
        }
    }

    /// Property: vector reads have all bytes of their ranges in order, and stay within each limit.
    #[test]
    fn vector_reads_stay_within_their_limits() {
        let many: Vec<ReadRange> = (0..2500).map(|at| ReadRange { offset: at * 10, length: 3 }).collect();
        let long = vec![
            ReadRange { offset: 1, length: 3 * VECTOR_BYTES_MAX + 5 },
            ReadRange { offset: 0, length: 1 },
        ];
        for (ranges, expected) in [(many, 3), (long, 4)] {
            let bytes: u64 = ranges.iter().map(|range| range.length).sum();
            let (mut count, mut seen) = (0, 0);
            for asked in vectors(ranges, FileHandle([0; 4])) {
                let Asked::Vector(vector) = asked else { panic!("a piece") };
                let of = |segment: &FileRange| u64::from(segment.length);
                let sum: u64 = vector.segments().iter().map(of).sum();
                assert!(vector.segments().len() <= SEGMENTS_MAX && sum <= VECTOR_BYTES_MAX);
                assert!(vector.segments().iter().all(|segment| segment.length <= SEGMENT_BYTES_MAX));
                (count, seen) = (count + 1, seen + sum);
            }
            assert_eq!(seen, bytes);
            assert_eq!(count, expected);
        }
    }
}
