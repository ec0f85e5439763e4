//! The protocol of JAliEn's central services as `alien.py` speaks it. Each request and each answer
//! is one JSON text in messages of a websocket, strictly in order. `docs/compat/jalien.md`
//! describes it.
//!
//! [`Request`] reads a client's request, [`Options`] the options of one command, and [`path`] the
//! paths in them. [`AnswerWriter`] writes answers, also in parts, so that a long one is never in
//! memory as a whole.

mod answer;
pub mod errno;
pub mod limits;
mod options;
pub mod path;
mod request;

pub use answer::{AnswerWriter, Field, Item, Metadata};
pub use options::{BadOption, OptionSet, Options};
pub use request::{BadRequest, Request, Style};
