//! Client of XRootD's protocol: its requests, and the servers' answers.
//!
//! [`request`] writes requests, those for open files too. [`Answers`] splits received bytes into answers, in
//! any pieces: the bytes of a read come out as they arrive, short answers come out whole. [`answer`] has the
//! meaning of short answers.

pub mod answer;
mod answers;
mod redirect;
pub mod request;

pub use answers::{Answer, AnswerError, Answers};
pub use redirect::Redirect;
