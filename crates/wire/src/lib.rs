//! Pure codecs of the protocols: bytes to messages and back. They have no sockets, no clock and no
//! tasks. The owner of a connection feeds bytes in and takes bytes out, so each codec can be tested
//! and fuzzed on its own.

mod bounded;
pub mod element_csv;
pub mod influx;
pub mod jalien;
pub mod json;
pub mod jwt;
pub mod native;
pub mod percent;
pub mod subject;
pub mod webdav;
pub mod writer;
pub mod xrdmon;
pub mod xrootd;
