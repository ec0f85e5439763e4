//! Monitoring of XRootD servers and caches: what they send about their files, as datagrams.
//!
//! [`gstream`] has the records of a cache (`xrootd.mongstream pfc`), [`fstream`] those of any server
//! (`xrootd.monitor … fstat`), [`maps`] the numbers of clients and paths in them. [`summary`] has the
//! counters of a server (`xrd.report`). [`cinfo`] reads the files in which a cache keeps the state of its
//! files. Nothing here trusts a length or a number: they come over UDP, or from another program's disk.

pub mod cinfo;
pub mod fstream;
pub mod gstream;
pub mod maps;
pub mod summary;

/// Bytes of a datagram, at most: the most that UDP carries.
pub const DATAGRAM_BYTES_MAX: usize = 65_535;
