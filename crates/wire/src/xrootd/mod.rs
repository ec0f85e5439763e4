//! The protocol of XRootD, as a redirector speaks it: what clients ask ([`Request`], out of a [`Decoder`]), and what they
//! are answered ([`response`]). No file is ever open here: a client that opens one is sent to where its bytes are. What we ask
//! storage elements ourselves is written and read by the same codec.
//! `docs/compat/xrootd.md` describes it.

mod decoder;
pub mod limits;
pub mod numbers;
pub mod path;
mod request;
pub mod response;

pub use decoder::{Decoder, Frame, FrameError};
pub use path::{Asked, Fields};
pub use request::{Credentials, HANDSHAKE, Request, RequestHeader, StreamId, write_request};
