//! Splits received bytes of XRootD's protocol, in any pieces, into answers.

use bytes::{Buf, Bytes, BytesMut};

use crate::xrootd::StreamId;
use crate::xrootd::limits::{
    ANSWER_BYTES_MAX, CHECKSUM_BYTES, ERROR_BYTES_MAX, RESPONSE_HEADER_BYTES, SHORT_ANSWER_BYTES_MAX,
};
use crate::xrootd::numbers::status;
use crate::xrootd::pages::{PAGE_HEADER_BYTES, PageError, PageHeader, page_bytes, paged_bytes};
use crate::xrootd::response::{DEFERRED, ResponseHeader};

/// Bytes before a late answer, in the unsolicited response that carries it: its kind, 4 reserved bytes, and
/// the header of the answer.
const DEFERRED_BYTES: usize = 8 + RESPONSE_HEADER_BYTES;

/// Reason why a connection cannot be read further.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AnswerError {
    /// An answer carries too many bytes.
    #[error("an answer carries {got} bytes, the limit is {max}")]
    TooLong {
        /// Bytes that it carries.
        got: u64,
        /// Maximum bytes.
        max: usize,
    },
    /// The server sent an answer of a kind that no client knows.
    #[error("an answer of the unknown kind {0}")]
    Unknown(u16),
    /// The body of an answer is not that of its kind.
    #[error("an answer of the kind {0} with a body of another one")]
    Malformed(u16),
    /// The header of pages is damaged or none.
    #[error(transparent)]
    Pages(#[from] PageError),
}

/// An answer, or a part of one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// Some bytes of a success; further ones follow, or its end.
    Body {
        /// Id of the request.
        stream: StreamId,
        /// The bytes.
        bytes: Bytes,
    },
    /// A page of a file, with the right checksum.
    Page {
        /// Id of the request.
        stream: StreamId,
        /// Place of the bytes in the file.
        offset: u64,
        /// The bytes.
        bytes: Bytes,
    },
    /// A page of a file, with a wrong checksum.
    DamagedPage {
        /// Id of the request.
        stream: StreamId,
        /// Place of its bytes in the file.
        offset: u64,
    },
    /// End of a success.
    Done {
        /// Id of the request.
        stream: StreamId,
    },
    /// A failure.
    Error {
        /// Id of the request.
        stream: StreamId,
        /// Number, one of [`error`](crate::xrootd::numbers::error).
        number: u32,
        /// Text, for people.
        text: String,
    },
    /// A redirection; [`Redirect`](super::Redirect) reads it.
    Redirect {
        /// Id of the request.
        stream: StreamId,
        /// Port; negative for a URL.
        port: i32,
        /// Host or URL.
        place: String,
    },
    /// The client has to send the request again.
    Wait {
        /// Id of the request.
        stream: StreamId,
        /// Seconds until then.
        seconds: u32,
    },
    /// The answer comes later.
    Later {
        /// Id of the request.
        stream: StreamId,
    },
    /// The server wants more credentials.
    AuthMore {
        /// Id of the request.
        stream: StreamId,
    },
}

impl Answer {
    /// Returns the id of the request.
    pub fn stream(&self) -> StreamId {
        match self {
            Answer::Body { stream, .. }
            | Answer::Page { stream, .. }
            | Answer::DamagedPage { stream, .. }
            | Answer::Done { stream }
            | Answer::Error { stream, .. }
            | Answer::Redirect { stream, .. }
            | Answer::Wait { stream, .. }
            | Answer::Later { stream }
            | Answer::AuthMore { stream } => *stream,
        }
    }
}

/// Place in the stream of answers.
#[derive(Clone, Copy, Debug, Default)]
enum Place {
    /// Before a header.
    #[default]
    Header,
    /// Within the body of a success.
    Body { stream: StreamId, left: usize, is_last: bool },
    /// Within pages.
    Pages { stream: StreamId, left: usize, offset: u64, is_last: bool },
    /// Within an unsolicited response.
    Unsolicited { left: usize },
}

/// Splits received bytes into answers. It keeps at most one short answer, or one page.
#[derive(Debug, Default)]
pub struct Answers {
    buffer: BytesMut,
    place: Place,
    broken: Option<AnswerError>,
}

impl Answers {
    /// Makes a decoder for a new connection.
    pub fn new() -> Self {
        Answers::default()
    }

    /// Returns the buffer for received bytes.
    pub fn buffer(&mut self) -> &mut BytesMut {
        &mut self.buffer
    }

    /// Says whether nothing is left of the answers that came.
    pub fn is_between_answers(&self) -> bool {
        matches!(self.place, Place::Header) && self.buffer.is_empty()
    }

    /// Returns the next answer or part of one; none until more bytes arrive. After an error it always
    /// returns that error.
    pub fn answer(&mut self) -> Result<Option<Answer>, AnswerError> {
        if let Some(error) = self.broken {
            return Err(error);
        }
        let taken = self.take();
        self.broken = taken.as_ref().err().copied();
        taken
    }

    fn take(&mut self) -> Result<Option<Answer>, AnswerError> {
        loop {
            match self.place {
                Place::Header => match self.header()? {
                    Some(answer) => return Ok(Some(answer)),
                    None if matches!(self.place, Place::Header) => return Ok(None),
                    None => {}
                },
                Place::Body { stream, left: 0, is_last } | Place::Pages { stream, left: 0, is_last, .. } => {
                    self.place = Place::Header;
                    if is_last {
                        return Ok(Some(Answer::Done { stream }));
                    }
                }
                Place::Body { stream, left, is_last } => {
                    if self.buffer.is_empty() {
                        return Ok(None);
                    }
                    let bytes = self.buffer.split_to(left.min(self.buffer.len())).freeze();
                    self.place = Place::Body { stream, left: left - bytes.len(), is_last };
                    return Ok(Some(Answer::Body { stream, bytes }));
                }
                Place::Pages { stream, left, offset, is_last } => {
                    let data = left.checked_sub(CHECKSUM_BYTES).filter(|data| *data > 0);
                    let data = data.ok_or(AnswerError::Malformed(status::STATUS))?;
                    let page = page_bytes(offset, data);
                    if self.buffer.len() < CHECKSUM_BYTES + page {
                        return Ok(None);
                    }
                    let checksum = self.buffer.get_u32();
                    let bytes = self.buffer.split_to(page).freeze();
                    self.place = Place::Pages {
                        stream,
                        left: data - page,
                        // The header is checked: its place is that of a file.
                        offset: offset.saturating_add(page as u64),
                        is_last,
                    };
                    return Ok(Some(match crc32c::crc32c(&bytes) == checksum {
                        true => Answer::Page { stream, offset, bytes },
                        false => Answer::DamagedPage { stream, offset },
                    }));
                }
                Place::Unsolicited { left } => {
                    let gone = left.min(self.buffer.len());
                    self.buffer.advance(gone);
                    if gone < left {
                        self.place = Place::Unsolicited { left: left - gone };
                        return Ok(None);
                    }
                    self.place = Place::Header;
                }
            }
        }
    }

    /// Takes a header, and the body of a short answer. None if more bytes are needed, or if the place is
    /// another one now.
    fn header(&mut self) -> Result<Option<Answer>, AnswerError> {
        let Some(header) = self.buffer.first_chunk::<RESPONSE_HEADER_BYTES>() else { return Ok(None) };
        let header = ResponseHeader::read(header);
        if header.status != status::ATTN {
            return self.answer_of(header, RESPONSE_HEADER_BYTES);
        }
        let bytes = bounded(header.bytes, ANSWER_BYTES_MAX + DEFERRED_BYTES)?;
        if bytes >= DEFERRED_BYTES {
            let body = &self.buffer[RESPONSE_HEADER_BYTES..];
            let Some(body) = body.first_chunk::<DEFERRED_BYTES>() else { return Ok(None) };
            let [k0, k1, k2, k3, _, _, _, _, late @ ..] = *body;
            if u32::from_be_bytes([k0, k1, k2, k3]) == DEFERRED {
                let late = ResponseHeader::read(&late);
                let is_whole = late.bytes as usize == bytes - DEFERRED_BYTES;
                if !is_whole || matches!(late.status, status::ATTN | status::STATUS | status::WAITRESP) {
                    return Err(AnswerError::Malformed(status::ATTN));
                }
                return self.answer_of(late, RESPONSE_HEADER_BYTES + DEFERRED_BYTES);
            }
        }
        self.buffer.advance(RESPONSE_HEADER_BYTES);
        self.place = Place::Unsolicited { left: bytes };
        Ok(None)
    }

    /// Takes the answer of a header, whose body begins at `body_at`.
    fn answer_of(&mut self, header: ResponseHeader, body_at: usize) -> Result<Option<Answer>, AnswerError> {
        let ResponseHeader { stream, status, bytes } = header;
        if matches!(status, status::OK | status::OKSOFAR) {
            let left = bounded(bytes, ANSWER_BYTES_MAX)?;
            self.buffer.advance(body_at);
            self.place = Place::Body { stream, left, is_last: status == status::OK };
            return Ok(None);
        }
        // Refuses an unknown kind before its body came.
        if status::name(status).is_none() {
            return Err(AnswerError::Unknown(status));
        }
        let bytes = bounded(bytes, SHORT_ANSWER_BYTES_MAX)?;
        let Some(carried) = self.buffer.get(body_at..body_at + bytes) else { return Ok(None) };
        let malformed = AnswerError::Malformed(status);
        if status == status::STATUS {
            let carried = carried.try_into().map_err(|_| malformed)?;
            let pages = PageHeader::read(carried)?;
            if pages.stream != stream {
                return Err(malformed);
            }
            let left = bounded(pages.bytes, paged_bytes(1, ANSWER_BYTES_MAX as u64) as usize)?;
            self.buffer.advance(body_at + PAGE_HEADER_BYTES);
            let PageHeader { is_last, offset, .. } = pages;
            self.place = Place::Pages { stream, left, offset, is_last };
            return Ok(None);
        }
        let number = carried.first_chunk().map(|number| u32::from_be_bytes(*number));
        let text = carried.get(4..).unwrap_or_default();
        let answer = match status {
            status::ERROR => Answer::Error { stream, number: number.ok_or(malformed)?, text: readable(text) },
            status::REDIRECT => {
                let port = number.ok_or(malformed)?.cast_signed();
                let end = text.iter().position(|byte| *byte == 0).unwrap_or(text.len());
                let place = std::str::from_utf8(&text[..end]).map_err(|_| malformed)?.to_owned();
                Answer::Redirect { stream, port, place }
            }
            status::WAIT => Answer::Wait { stream, seconds: number.ok_or(malformed)? },
            status::WAITRESP => Answer::Later { stream },
            status::AUTHMORE => Answer::AuthMore { stream },
            other => return Err(AnswerError::Unknown(other)),
        };
        self.buffer.advance(body_at + bytes);
        Ok(Some(answer))
    }
}

fn bounded(bytes: u32, max: usize) -> Result<usize, AnswerError> {
    let too_long = AnswerError::TooLong { got: u64::from(bytes), max };
    usize::try_from(bytes).ok().filter(|bytes| *bytes <= max).ok_or(too_long)
}

/// Returns a text of a server as it may be shown: without control characters, which terminals obey.
fn readable(bytes: &[u8]) -> String {
    let end = bytes.iter().position(|byte| *byte == 0).unwrap_or(bytes.len()).min(ERROR_BYTES_MAX);
    String::from_utf8_lossy(&bytes[..end]).chars().filter(|one| !one.is_control()).collect()
}
