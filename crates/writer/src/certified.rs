//! Record of a certified file: all that a service keeps of it, in as few bytes as it can.

use std::sync::Arc;

use exacat_model::Lfn;
use exacat_model::codec::{Decode, DecodeError, Encode, Reader};
use exacat_wire::writer::limits::{LABEL_BYTES_MAX, PARTS_MAX};
use exacat_wire::writer::{ByteRange, Certified, Close, FileId, PartOwner, PartShare, ServiceId, WriterId};

use crate::certificate::{Certificate, Segment};
use crate::limits::SEGMENTS_MAX;
use crate::origin::{PartOrigin, account};

/// A certified file on one volume of a service.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CertifiedFile {
    /// The file.
    pub file: FileId,
    /// Its producer.
    pub writer: WriterId,
    /// Account that owns it.
    pub owner: String,
    /// Run of the data taking.
    pub run: String,
    /// Name of the stream.
    pub stream: String,
    /// Name in the catalogue.
    pub lfn: Lfn,
    /// Time at which its last part here began, in milliseconds of the service's clock.
    pub begun: u64,
    /// Bytes.
    pub length: u64,
    /// Number of events.
    pub events: u64,
    /// Adler-32 of all bytes.
    pub adler32: u32,
    /// Chunks that are durable in several parts.
    pub duplicates: u64,
    /// All parts in ascending order of their epochs, with the bytes that the file takes from each.
    pub shares: Vec<PartShare>,
    /// Places of the bytes. Empty if another service certified the file, and several parts have bytes.
    pub segments: Vec<Segment>,
    /// True if this service certified it: it tells the others of its stages.
    pub is_certifier: bool,
    /// Epochs of the parts on the volume.
    pub epochs: Vec<u32>,
}

impl CertifiedFile {
    /// Makes the record of a file that this service certified.
    pub(crate) fn of_certificate(certificate: &Certificate, close: &Close, begun: u64) -> Self {
        let shares = certificate.shares();
        let bytes_of =
            |part: &PartOwner| shares.iter().find(|share| share.part == *part).map_or(0, |share| share.bytes);
        let description = &certificate.description;
        CertifiedFile {
            file: certificate.file,
            writer: certificate.writer,
            owner: certificate.owner.clone(),
            run: description.run.clone(),
            stream: description.stream.clone(),
            lfn: description.lfn.clone(),
            begun,
            length: certificate.length,
            events: certificate.events,
            adler32: certificate.adler32,
            duplicates: certificate.duplicates,
            shares: close.parts.iter().map(|part| PartShare { part: *part, bytes: bytes_of(part) }).collect(),
            segments: certificate.segments.clone(),
            is_certifier: true,
            epochs: Vec::new(),
        }
    }

    /// Makes the record of a file that another service certified.
    pub(crate) fn of_news(news: Certified, origin: &PartOrigin) -> Self {
        let mut file = CertifiedFile {
            file: news.file,
            writer: origin.writer,
            owner: origin.owner.clone(),
            run: origin.description.run.clone(),
            stream: origin.description.stream.clone(),
            lfn: origin.description.lfn.clone(),
            begun: origin.begun,
            length: news.length,
            events: news.events,
            adler32: news.adler32,
            duplicates: news.duplicates,
            shares: news.parts,
            segments: Vec::new(),
            is_certifier: false,
            epochs: Vec::new(),
        };
        file.segments = file.only_segment();
        file
    }

    /// Returns the segment of a file whose bytes are all in one part.
    fn only_segment(&self) -> Vec<Segment> {
        let range = ByteRange { from: 0, to: self.length };
        let whole = self.shares.iter().filter(|share| share.bytes == self.length && self.length > 0);
        whole.take(1).map(|share| Segment { part: share.part, range }).collect()
    }

    /// Says whether the file names a service for any of these parts.
    pub(crate) fn names(&self, service: ServiceId, epochs: &[u32]) -> bool {
        let mut own = self.shares.iter().map(|share| share.part).filter(|part| part.service == service);
        own.any(|part| epochs.contains(&part.epoch))
    }

    /// Says whether the file takes bytes from any of these parts.
    pub(crate) fn has_bytes_of(&self, epochs: &[u32]) -> bool {
        self.shares.iter().any(|share| share.bytes > 0 && epochs.contains(&share.part.epoch))
    }

    /// Gives parts to a service that has them now. Returns whether any was another's.
    pub(crate) fn give(&mut self, epochs: &[u32], service: ServiceId) -> bool {
        let shares = self.shares.iter_mut().map(|share| &mut share.part);
        let parts = shares.chain(self.segments.iter_mut().map(|segment| &mut segment.part));
        let mut is_new = false;
        for part in parts.filter(|part| epochs.contains(&part.epoch) && part.service != service) {
            part.service = service;
            is_new = true;
        }
        is_new
    }

    /// Returns the news of it.
    pub(crate) fn news(&self) -> Certified {
        Certified {
            file: self.file,
            length: self.length,
            events: self.events,
            adler32: self.adler32,
            duplicates: self.duplicates,
            parts: self.shares.clone(),
        }
    }

    /// Returns the bytes to keep.
    pub fn pack(&self) -> CertifiedRecord {
        let mut bytes = Vec::with_capacity(256);
        self.encode(&mut bytes);
        CertifiedRecord(bytes.into())
    }
}

impl Encode for CertifiedFile {
    fn encode(&self, out: &mut Vec<u8>) {
        self.file.encode(out);
        self.writer.encode(out);
        self.owner.encode(out);
        self.run.encode(out);
        self.stream.encode(out);
        self.lfn.encode(out);
        for number in [self.begun, self.length, self.events, self.duplicates] {
            number.encode(out);
        }
        self.adler32.to_le_bytes().encode(out);
        self.shares.encode(out);
        self.is_certifier.encode(out);
        self.epochs.encode(out);
        // The usual file is in one part: its segment follows.
        let segments = if self.segments == self.only_segment() { &[] } else { self.segments.as_slice() };
        (segments.len() as u64).encode(out);
        for segment in segments {
            segment.part.epoch.encode(out);
            (segment.range.to - segment.range.from).encode(out);
        }
    }
}

/// Reads a bounded list.
fn list<T: Decode>(reader: &mut Reader<'_>, most: usize) -> Result<Vec<T>, DecodeError> {
    let count = reader.length()?;
    if count > most {
        return Err(reader.error("a certified file has a list that is too long"));
    }
    (0..count).map(|_| T::decode(reader)).collect()
}

/// Reads the name of a run or stream.
fn label(reader: &mut Reader<'_>) -> Result<String, DecodeError> {
    let name = String::decode(reader)?;
    let is_long = name.len() > LABEL_BYTES_MAX;
    if is_long { Err(reader.error("the name of a run or stream is too long")) } else { Ok(name) }
}

/// Part by its epoch, and a number of bytes from it.
struct Piece(u32, u64);

impl Decode for Piece {
    fn decode(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        Ok(Piece(Decode::decode(reader)?, Decode::decode(reader)?))
    }
}

impl Decode for CertifiedFile {
    fn decode(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let (file, writer) = (Decode::decode(reader)?, Decode::decode(reader)?);
        let (owner, run, stream) = (account(reader)?, label(reader)?, label(reader)?);
        let lfn = Decode::decode(reader)?;
        let (begun, length) = (Decode::decode(reader)?, Decode::decode(reader)?);
        let (events, duplicates) = (Decode::decode(reader)?, Decode::decode(reader)?);
        let adler32 = u32::from_le_bytes(Decode::decode(reader)?);
        let shares: Vec<PartShare> = list(reader, PARTS_MAX)?;
        let is_certifier = Decode::decode(reader)?;
        let epochs = list(reader, PARTS_MAX)?;
        let pieces: Vec<Piece> = list(reader, SEGMENTS_MAX)?;
        let mut segments = Vec::with_capacity(pieces.len());
        let mut from: u64 = 0;
        for Piece(epoch, bytes) in pieces {
            let part = shares.iter().map(|share| share.part).find(|part| part.epoch == epoch);
            let (Some(part), Some(to)) = (part, from.checked_add(bytes)) else {
                return Err(reader.error("a piece of a file that cannot be"));
            };
            segments.push(Segment { part, range: ByteRange { from, to } });
            from = to;
        }
        let mut of = CertifiedFile {
            file,
            writer,
            owner,
            run,
            stream,
            lfn,
            begun,
            length,
            events,
            adler32,
            duplicates,
            shares,
            segments,
            is_certifier,
            epochs,
        };
        if of.segments.is_empty() {
            of.segments = of.only_segment();
        }
        Ok(of)
    }
}

/// Bytes of a [`CertifiedFile`]. The index and the service share one copy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CertifiedRecord(Arc<[u8]>);

impl CertifiedRecord {
    /// Returns the bytes.
    pub(crate) fn bytes(&self) -> &[u8] {
        &self.0
    }

    /// Reads the file. A record was made or read by this program: none stands for a defect.
    pub fn unpack(&self) -> Option<CertifiedFile> {
        let mut reader = Reader::new(&self.0);
        let file = CertifiedFile::decode(&mut reader).ok();
        debug_assert!(file.is_some(), "a record that cannot be read");
        file
    }
}

impl Decode for CertifiedRecord {
    fn decode(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        Ok(CertifiedFile::decode(reader)?.pack())
    }
}
