//! Pure codecs of the protocols: bytes to messages and back. No sockets, no clock, no tasks; whoever owns a
//! connection feeds bytes in and takes bytes out, so that every codec can be tested and fuzzed on its own.

pub mod jalien;
pub mod native;
pub mod xrootd;
