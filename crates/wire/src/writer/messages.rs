//! Messages between a producer and a service: greeting, files, acknowledgements, refusals.

use exacat_model::codec::{Decode, DecodeError, Encode, Reader};
use exacat_model::{Lfn, TagKey, TimeMs};

use super::fields::epoch;
use super::ids::{FileId, ServiceId, WriterId};
use super::limits::{
    FILE_BYTES_MAX, LABEL_BYTES_MAX, NAME_BYTES_MAX, PARTS_MAX, RANGES_MAX, REASON_BYTES_MAX,
    TAG_VALUE_BYTES_MAX, TAGS_MAX, TOKEN_BYTES_MAX,
};
use super::parts::PartOwner;
use crate::bounded::{clipped, list, text};
use crate::native::Secret;

/// First bytes of a hello's body, in both directions.
pub const MAGIC: [u8; 8] = *b"exacatWR";

/// Version of the protocol that this codec speaks.
pub const PROTOCOL_VERSION: u16 = 2;

fn magic(reader: &mut Reader<'_>) -> Result<(), DecodeError> {
    if <[u8; 8]>::decode(reader)? == MAGIC {
        Ok(())
    } else {
        Err(reader.error("the peer does not speak the writer protocol"))
    }
}

/// Side of the protocol that connects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// A producer, with the number of this connection. A service believes only the latest one.
    Producer {
        /// Identity of the producer.
        writer: WriterId,
        /// Number of the connection, larger than that of all earlier ones of the producer.
        session: u64,
    },
    /// Another service.
    Service(ServiceId),
}

/// First message of the side that connects. Bytes after the known fields are ignored, so that later
/// versions can add some.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hello {
    /// Oldest version that the sender speaks.
    pub version_min: u16,
    /// Newest version that the sender speaks.
    pub version_max: u16,
    /// The sender.
    pub role: Role,
    /// Name of the sender, for logs.
    pub name: String,
    /// Token of the catalogue; none where the connection itself has an identity.
    pub token: Option<Secret>,
}

impl Hello {
    /// Makes the greeting of this version.
    pub fn new(role: Role, name: String, token: Option<Secret>) -> Self {
        Hello { version_min: PROTOCOL_VERSION, version_max: PROTOCOL_VERSION, role, name, token }
    }

    /// Says whether both sides speak a common version.
    pub fn is_understood(&self) -> bool {
        (self.version_min..=self.version_max).contains(&PROTOCOL_VERSION)
    }
}

impl Encode for Hello {
    fn encode(&self, out: &mut Vec<u8>) {
        MAGIC.encode(out);
        self.version_min.encode(out);
        self.version_max.encode(out);
        match self.role {
            Role::Producer { writer, session } => {
                out.push(0);
                writer.encode(out);
                session.encode(out);
            }
            Role::Service(service) => {
                out.push(1);
                service.encode(out);
            }
        }
        clipped(&self.name, NAME_BYTES_MAX).encode(out);
        self.token.as_ref().map(Secret::expose).encode(out);
    }
}

impl Decode for Hello {
    fn decode(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        magic(reader)?;
        let (version_min, version_max) = (Decode::decode(reader)?, Decode::decode(reader)?);
        let role = match reader.byte()? {
            0 => Role::Producer { writer: Decode::decode(reader)?, session: Decode::decode(reader)? },
            1 => Role::Service(Decode::decode(reader)?),
            _ => return Err(reader.error("unknown role of a peer")),
        };
        let name = text(reader, NAME_BYTES_MAX, "the name of the peer is too long")?;
        let token = match bool::decode(reader)? {
            true => Some(Secret::new(text(reader, TOKEN_BYTES_MAX, "a token is too long")?)),
            false => None,
        };
        if version_min > version_max {
            return Err(reader.error("a range of versions is empty"));
        }
        reader.take(reader.remaining())?;
        Ok(Hello { version_min, version_max, role, name, token })
    }
}

/// Answer of a service to a hello.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HelloAck {
    /// Version spoken from here on.
    pub version: u16,
    /// The service.
    pub service: ServiceId,
    /// Name of the service, for logs.
    pub name: String,
    /// Idle time after which the service closes the connection; the producer pings more often.
    pub idle_ms_max: u32,
    /// Time of the service.
    pub time: TimeMs,
}

impl Encode for HelloAck {
    fn encode(&self, out: &mut Vec<u8>) {
        MAGIC.encode(out);
        self.version.encode(out);
        self.service.encode(out);
        clipped(&self.name, NAME_BYTES_MAX).encode(out);
        self.idle_ms_max.encode(out);
        self.time.encode(out);
    }
}

impl Decode for HelloAck {
    fn decode(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        magic(reader)?;
        Ok(HelloAck {
            version: Decode::decode(reader)?,
            service: Decode::decode(reader)?,
            name: text(reader, NAME_BYTES_MAX, "the name of the peer is too long")?,
            idle_ms_max: Decode::decode(reader)?,
            time: Decode::decode(reader)?,
        })
    }
}

/// Bytes of a file from one place to before another; at least one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ByteRange {
    /// Place of the first byte.
    pub from: u64,
    /// Place behind the last byte.
    pub to: u64,
}

/// Appends ranges: the gap before each, and its length.
fn put_ranges(out: &mut Vec<u8>, ranges: &[ByteRange]) {
    (ranges.len() as u64).encode(out);
    let mut at = 0;
    for range in ranges {
        (range.from - at).encode(out);
        (range.to - range.from).encode(out);
        at = range.to;
    }
}

/// Reads ranges in ascending order, with a gap between two.
fn ranges(reader: &mut Reader<'_>) -> Result<Vec<ByteRange>, DecodeError> {
    let count = reader.length()?;
    if count > RANGES_MAX {
        return Err(reader.error("too many ranges"));
    }
    let mut ranges: Vec<ByteRange> = Vec::with_capacity(count);
    for _ in 0..count {
        let (gap, length) = (u64::decode(reader)?, u64::decode(reader)?);
        let before = ranges.last().map_or(0, |range| range.to);
        if length == 0 || (gap == 0 && !ranges.is_empty()) {
            return Err(reader.error("ranges that are empty or touch"));
        }
        let from = before.saturating_add(gap);
        let to = from.saturating_add(length);
        if to > FILE_BYTES_MAX {
            return Err(reader.error("a range ends beyond the largest file"));
        }
        ranges.push(ByteRange { from, to });
    }
    Ok(ranges)
}

/// Content of a file, as the catalogue will show it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Description {
    /// Run of the data taking.
    pub run: String,
    /// Name of the stream.
    pub stream: String,
    /// Name of the certified file.
    pub lfn: Lfn,
    /// Tags of the certified file.
    pub tags: Vec<(TagKey, String)>,
}

impl Encode for Description {
    fn encode(&self, out: &mut Vec<u8>) {
        self.run.encode(out);
        self.stream.encode(out);
        self.lfn.encode(out);
        self.tags.encode(out);
    }
}

/// A tag whose value is bounded.
struct Tag(TagKey, String);

impl Decode for Tag {
    fn decode(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let key = TagKey::decode(reader)?;
        Ok(Tag(key, text(reader, TAG_VALUE_BYTES_MAX, "the value of a tag is too long")?))
    }
}

impl Decode for Description {
    fn decode(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let run = text(reader, LABEL_BYTES_MAX, "the name of a run is too long")?;
        let stream = text(reader, LABEL_BYTES_MAX, "the name of a stream is too long")?;
        let lfn = Lfn::decode(reader)?;
        let tags: Vec<Tag> = list(reader, TAGS_MAX, "a file has too many tags")?;
        Ok(Description {
            run,
            stream,
            lfn,
            tags: tags.into_iter().map(|Tag(key, value)| (key, value)).collect(),
        })
    }
}

/// Begin of a part of a file, or its resumption on another connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Open {
    /// The file.
    pub file: FileId,
    /// Number that the producer gives to the stream.
    pub stream: u32,
    /// Epoch of the part. Each new part of the file has a higher one.
    pub epoch: u32,
    /// First byte that the producer does not know to be durable.
    pub from: u64,
    /// Content of the file.
    pub description: Description,
}

impl Encode for Open {
    fn encode(&self, out: &mut Vec<u8>) {
        self.file.encode(out);
        self.stream.encode(out);
        self.epoch.encode(out);
        self.from.encode(out);
        self.description.encode(out);
    }
}

impl Decode for Open {
    fn decode(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let (file, stream) = (Decode::decode(reader)?, Decode::decode(reader)?);
        let (epoch, from) = (epoch(reader)?, Decode::decode(reader)?);
        if from > FILE_BYTES_MAX {
            return Err(reader.error("a file begins beyond the largest file"));
        }
        Ok(Open { file, stream, epoch, from, description: Decode::decode(reader)? })
    }
}

/// Durable ranges of a part, and the place up to which the producer may send.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ack {
    /// The file.
    pub file: FileId,
    /// Epoch of the part.
    pub epoch: u32,
    /// Ranges that are on disk. Each ack has those since the one before.
    pub ranges: Vec<ByteRange>,
    /// Place in the file beyond which the producer must not send yet. It never falls.
    pub limit: u64,
}

impl Encode for Ack {
    fn encode(&self, out: &mut Vec<u8>) {
        self.file.encode(out);
        self.epoch.encode(out);
        put_ranges(out, &self.ranges);
        self.limit.encode(out);
    }
}

impl Decode for Ack {
    fn decode(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        Ok(Ack {
            file: Decode::decode(reader)?,
            epoch: epoch(reader)?,
            ranges: ranges(reader)?,
            limit: Decode::decode(reader)?,
        })
    }
}

/// Answer to an open: everything of the file that is durable at this service, in any part.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Opened(pub Ack);

impl Encode for Opened {
    fn encode(&self, out: &mut Vec<u8>) {
        self.0.encode(out);
    }
}

impl Decode for Opened {
    fn decode(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        Ok(Opened(Decode::decode(reader)?))
    }
}

/// End of a file: its measures as the producer counted them, and its parts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Close {
    /// The file.
    pub file: FileId,
    /// Epoch of the last part.
    pub epoch: u32,
    /// Bytes of the file.
    pub length: u64,
    /// Number of chunks.
    pub chunks: u64,
    /// Number of events.
    pub events: u64,
    /// Adler-32 of all bytes.
    pub adler32: u32,
    /// Parts in ascending order of their epochs, the last one included.
    pub parts: Vec<PartOwner>,
}

impl Encode for Close {
    fn encode(&self, out: &mut Vec<u8>) {
        self.file.encode(out);
        self.epoch.encode(out);
        self.length.encode(out);
        self.chunks.encode(out);
        self.events.encode(out);
        self.adler32.to_le_bytes().encode(out);
        self.parts.encode(out);
    }
}

impl Decode for Close {
    fn decode(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let close = Close {
            file: Decode::decode(reader)?,
            epoch: epoch(reader)?,
            length: Decode::decode(reader)?,
            chunks: Decode::decode(reader)?,
            events: Decode::decode(reader)?,
            adler32: u32::from_le_bytes(Decode::decode(reader)?),
            parts: list(reader, PARTS_MAX, "a file has too many parts")?,
        };
        if close.length > FILE_BYTES_MAX || close.chunks > close.length || close.events > close.length {
            return Err(reader.error("a file has more bytes, chunks or events than it can have"));
        }
        let ascending = close.parts.windows(2).all(|pair| pair[0].epoch < pair[1].epoch);
        if !ascending || close.parts.last().is_none_or(|last| last.epoch != close.epoch) {
            return Err(reader.error("the parts of a file are not in order up to the last"));
        }
        Ok(close)
    }
}

/// Remedy for a refused message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum RefusalClass {
    /// The service cannot, and another one or a new part can.
    RetryElsewhere = 1,
    /// Other bytes are at this place, or the epoch is over. The file must not continue like this.
    Conflict = 2,
    /// The message is wrong wherever it is sent.
    BadRequest = 3,
}

/// Refusal of a message. Nothing was changed by it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// Remedy.
    pub class: RefusalClass,
    /// File and epoch that the refusal concerns; none for the whole connection, which then ends.
    pub part: Option<(FileId, u32)>,
    /// Reason, for a person.
    pub reason: String,
}

impl Encode for Refusal {
    fn encode(&self, out: &mut Vec<u8>) {
        out.push(self.class as u8);
        self.part.encode(out);
        clipped(&self.reason, REASON_BYTES_MAX).encode(out);
    }
}

impl Decode for Refusal {
    fn decode(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let class = match reader.byte()? {
            1 => RefusalClass::RetryElsewhere,
            2 => RefusalClass::Conflict,
            3 => RefusalClass::BadRequest,
            _ => return Err(reader.error("unknown class of a refusal")),
        };
        let part = Decode::decode(reader)?;
        Ok(Refusal { class, part, reason: text(reader, REASON_BYTES_MAX, "a reason is too long")? })
    }
}
