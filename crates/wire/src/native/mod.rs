//! The native protocol: length-prefixed binary frames around the canonical bytes of the vocabulary.
//!
//! `docs/internals/native-protocol.md` describes every byte and the rules of the conversation. This
//! module is the codec, without the conversation. In short:
//!
//! - The client sends [`Hello`], the server [`HelloAck`].
//! - The client sends its credentials ([`Authenticate`]), the server the identity that it accepts
//!   ([`Identity`]).
//! - From then on requests travel one way and answers the other, each with the request's id, in any
//!   order.
//!
//! Reading: feed bytes to a [`FrameDecoder`], take [`RawFrame`]s out, and [`RawFrame::decode`]
//! them. A framing error is fatal to the connection. A body that does not decode concerns only its
//! request ([`FrameError::answerable_request`]).
//!
//! Writing: the `encode_*` functions append whole frames to a buffer, many frames before one write.

mod decoder;
mod encode;
mod frame;
mod hello;
pub mod limits;

pub use decoder::FrameDecoder;
pub use encode::{
    AnswerBatchWriter, BatchWriter, encode_answer, encode_answer_batch, encode_authenticate,
    encode_authenticated, encode_batch, encode_behind, encode_cancel, encode_credit, encode_encoded_request,
    encode_end, encode_error, encode_frame, encode_goodbye, encode_hello, encode_hello_ack, encode_outcome,
    encode_part, encode_ping, encode_pong, encode_request, set_request,
};
pub use frame::{
    AnswerBatch, Batch, BatchItem, Frame, FrameError, FrameType, RawFrame, Request, RequestOptions, flags,
};
pub use hello::{
    Authenticate, Behind, Credentials, Hello, HelloAck, Identity, Limits, MAGIC, PROTOCOL_VERSION,
    PROTOCOL_VERSION_MIN, Secret, features,
};
