//! Table of services: which there are, and how loaded each is.

use exacat_model::codec::{Decode, DecodeError, Encode, Reader};

use super::ids::ServiceId;
use super::limits::{ADDRESS_BYTES_MAX, SERVICES_MAX};
use crate::bounded::{clipped, list, text};

/// State of a service.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum ServiceState {
    /// It takes files.
    Up = 1,
    /// It ends the files that it has, and takes no others.
    Draining = 2,
    /// No volume can be written.
    ReadOnly = 3,
    /// It has not been heard of for a while.
    Gone = 4,
}

impl ServiceState {
    fn from_number(number: u8) -> Option<Self> {
        use ServiceState::{Draining, Gone, ReadOnly, Up};
        [Up, Draining, ReadOnly, Gone].into_iter().find(|state| *state as u8 == number)
    }
}

/// One service in the table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServiceRecord {
    /// The service.
    pub service: ServiceId,
    /// Version of this record, counted by the service itself. The higher one is newer.
    pub version: u64,
    /// Host and port for producers.
    pub address: String,
    /// URL of its HTTP, where its files can be read; empty if it has none.
    pub http: String,
    /// State.
    pub state: ServiceState,
    /// Volumes that can be written.
    pub volumes: u16,
    /// Free bytes of these volumes.
    pub free_bytes: u64,
    /// Bytes received that are not durable yet.
    pub queued_bytes: u64,
    /// Bytes that its producers may send and have not begun: their credits together.
    pub credit_bytes: u64,
    /// Bytes made durable in a second, over the last seconds.
    pub bytes_per_second: u64,
    /// Files being written.
    pub open_files: u32,
}

impl Encode for ServiceRecord {
    fn encode(&self, out: &mut Vec<u8>) {
        self.service.encode(out);
        self.version.encode(out);
        clipped(&self.address, ADDRESS_BYTES_MAX).encode(out);
        clipped(&self.http, ADDRESS_BYTES_MAX).encode(out);
        out.push(self.state as u8);
        self.volumes.encode(out);
        self.free_bytes.encode(out);
        self.queued_bytes.encode(out);
        self.credit_bytes.encode(out);
        self.bytes_per_second.encode(out);
        self.open_files.encode(out);
    }
}

impl Decode for ServiceRecord {
    fn decode(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        Ok(ServiceRecord {
            service: Decode::decode(reader)?,
            version: Decode::decode(reader)?,
            address: text(reader, ADDRESS_BYTES_MAX, "the address of a service is too long")?,
            http: text(reader, ADDRESS_BYTES_MAX, "the URL of a service is too long")?,
            state: ServiceState::from_number(reader.byte()?)
                .ok_or_else(|| reader.error("unknown state of a service"))?,
            volumes: Decode::decode(reader)?,
            free_bytes: Decode::decode(reader)?,
            queued_bytes: Decode::decode(reader)?,
            credit_bytes: Decode::decode(reader)?,
            bytes_per_second: Decode::decode(reader)?,
            open_files: Decode::decode(reader)?,
        })
    }
}

/// The table of services, in ascending order of their identities.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Table(pub Vec<ServiceRecord>);

impl Encode for Table {
    fn encode(&self, out: &mut Vec<u8>) {
        self.0.encode(out);
    }
}

impl Decode for Table {
    fn decode(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let records: Vec<ServiceRecord> = list(reader, SERVICES_MAX, "a table has too many services")?;
        if records.windows(2).all(|pair| pair[0].service < pair[1].service) {
            Ok(Table(records))
        } else {
            Err(reader.error("the services of a table are not in order"))
        }
    }
}
