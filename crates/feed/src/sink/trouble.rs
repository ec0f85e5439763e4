//! Failure of a sink, by what a feed does about it.

use std::time::Duration;

use exacat_model::Error;

/// Failure of a sink.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Trouble {
    /// It may go well later.
    Later {
        why: String,
        /// Pause that the sink asks for.
        pause: Option<Duration>,
    },
    /// The sink wants no more events.
    Refused(String),
}

impl Trouble {
    pub(crate) fn later(why: impl Into<String>) -> Self {
        Trouble::Later { why: why.into(), pause: None }
    }
}

impl From<Error> for Trouble {
    fn from(error: Error) -> Self {
        Trouble::later(error.message)
    }
}
