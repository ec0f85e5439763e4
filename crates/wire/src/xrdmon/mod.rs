//! Monitoring of XRootD servers and caches: what they send about their files, as datagrams.
//!
//! [`gstream`] has the records of a cache (`xrootd.mongstream pfc`), [`fstream`] those of any server
//! (`xrootd.monitor … fstat`). Nothing here trusts a length or a number: both come over UDP.

pub mod fstream;
pub mod gstream;

/// Bytes of a datagram, at most: the most that UDP carries.
pub const DATAGRAM_BYTES_MAX: usize = 65_535;
