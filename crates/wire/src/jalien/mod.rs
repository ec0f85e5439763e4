//! The protocol of JAliEn's central services as `alien.py` speaks it: one JSON text for each request, one for each
//! answer, strictly in order, in the messages of a websocket. `docs/compat/jalien.md` describes it.
//!
//! [`Request`] reads what a client sent, [`Options`] the options of one command, [`path`] the paths in them;
//! [`AnswerWriter`] writes answers, also in parts, so that a long one is never in memory as a whole.

mod answer;
pub mod errno;
pub mod limits;
mod options;
pub mod path;
mod request;

pub use answer::{AnswerWriter, Field, Item, Metadata};
pub use options::{BadOption, Known, Options};
pub use request::{BadRequest, Request, Style};
