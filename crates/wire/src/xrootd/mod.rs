//! The protocol of XRootD, as a redirector speaks it. A [`Decoder`] returns the clients'
//! [`Request`]s; [`response`] writes the answers. No file is ever open at a redirector: it sends a
//! client that opens one to the file's storage element. A server that has files itself reads
//! [`FileRequest`]s, and writes the answers of [`file_response`]. The same codec writes and reads our own
//! requests to storage elements. `docs/compat/xrootd.md` describes it.
//!
//! [`client`] is the other side: it writes requests, also for open files, and takes answers apart.
//! [`pages`] and [`vector`] have the forms of data that both sides need.

pub mod client;
mod decoder;
mod file_request;
pub mod file_response;
pub mod limits;
pub mod numbers;
pub mod pages;
pub mod path;
mod request;
pub mod response;
mod url;
pub mod vector;

pub use decoder::{Decoder, Frame, FrameError};
pub use file_request::{Chunks, FileHandle, FileRange, FileRequest};
pub use path::{Fields, RawPath};
pub use request::{Credentials, HANDSHAKE, Request, RequestHeader, StreamId, write_request};
pub use url::RootUrl;
