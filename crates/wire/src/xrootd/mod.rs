//! The protocol of XRootD, as a redirector speaks it. A [`Decoder`] returns the clients'
//! [`Request`]s; [`response`] writes the answers. No file is ever open here: the server redirects a
//! client that opens one to the file's storage element. The same codec writes and reads our own
//! requests to storage elements. `docs/compat/xrootd.md` describes it.

mod decoder;
pub mod limits;
pub mod numbers;
pub mod path;
mod request;
pub mod response;

pub use decoder::{Decoder, Frame, FrameError};
pub use path::{Fields, RawPath};
pub use request::{Credentials, HANDSHAKE, Request, RequestHeader, StreamId, write_request};
