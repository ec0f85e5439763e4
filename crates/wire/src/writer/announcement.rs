//! Announcements: datagrams by which writer services in one network find each other.
//!
//! An announcement carries no secret and proves nothing. A receiver believes it for the address only, and
//! judges the service there by its certificate.

use std::net::{IpAddr, Ipv6Addr, SocketAddr};

use exacat_model::codec::{Decode, DecodeError, Encode, Reader};

use super::ids::ServiceId;
use super::limits::{ANNOUNCEMENT_BYTES_MAX, CLUSTER_BYTES_MAX};
use crate::bounded::text;

/// First bytes of an announcement.
pub const ANNOUNCEMENT_MAGIC: [u8; 8] = *b"exacatWA";

/// Version of announcements. A receiver drops those of other versions.
pub const ANNOUNCEMENT_VERSION: u16 = 1;

/// Announcement of a service.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Announcement {
    /// Name of the installation. Services of another one ignore the announcement.
    pub cluster: String,
    /// The service.
    pub service: ServiceId,
    /// Number of this start of the service, larger than that of all earlier ones.
    pub incarnation: u64,
    /// Address of the service. An unspecified IP address stands for that of the sender.
    pub address: SocketAddr,
}

/// Reason why a datagram is no announcement.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AnnouncementError {
    /// It has no byte, or more than any announcement.
    #[error("a datagram of {0} bytes, which no announcement has")]
    Length(usize),
    /// It begins otherwise.
    #[error("a datagram of another protocol")]
    Magic,
    /// Its sender is of another release.
    #[error("an announcement of version {0}, which this release does not know")]
    Version(u16),
    /// Its content is wrong.
    #[error("announcement: {0}")]
    Body(&'static str),
}

impl From<DecodeError> for AnnouncementError {
    fn from(error: DecodeError) -> Self {
        AnnouncementError::Body(error.reason)
    }
}

impl Announcement {
    /// Encodes the announcement. The caller keeps the name of the cluster within its limit.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::new();
        ANNOUNCEMENT_MAGIC.encode(&mut out);
        ANNOUNCEMENT_VERSION.encode(&mut out);
        self.cluster.as_str().encode(&mut out);
        self.service.encode(&mut out);
        self.incarnation.encode(&mut out);
        let ip = match self.address.ip() {
            IpAddr::V4(ip) if ip.is_unspecified() => Ipv6Addr::UNSPECIFIED,
            IpAddr::V4(ip) => ip.to_ipv6_mapped(),
            IpAddr::V6(ip) => ip,
        };
        ip.octets().encode(&mut out);
        self.address.port().encode(&mut out);
        out
    }

    /// Decodes a datagram. The cluster may be another one.
    pub fn decode(datagram: &[u8]) -> Result<Self, AnnouncementError> {
        if datagram.is_empty() || datagram.len() > ANNOUNCEMENT_BYTES_MAX {
            return Err(AnnouncementError::Length(datagram.len()));
        }
        let body = datagram.strip_prefix(&ANNOUNCEMENT_MAGIC).ok_or(AnnouncementError::Magic)?;
        let mut reader = Reader::of_request(body);
        let version = u16::decode(&mut reader)?;
        if version != ANNOUNCEMENT_VERSION {
            return Err(AnnouncementError::Version(version));
        }
        let cluster = text(&mut reader, CLUSTER_BYTES_MAX, "the name of a cluster is too long")?;
        let (service, incarnation) = (Decode::decode(&mut reader)?, Decode::decode(&mut reader)?);
        let ip = Ipv6Addr::from(<[u8; 16]>::decode(&mut reader)?);
        let port = u16::decode(&mut reader)?;
        reader.finish()?;
        let ip = ip.to_canonical();
        if port == 0 || ip.is_multicast() || ip == IpAddr::from([0, 0, 0, 0]) || ip == IpAddr::from([255; 4])
        {
            return Err(AnnouncementError::Body("no service can be at this address"));
        }
        Ok(Announcement { cluster, service, incarnation, address: SocketAddr::new(ip, port) })
    }
}
