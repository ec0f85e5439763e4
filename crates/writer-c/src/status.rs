//! Codes and messages of failures, and counts, as the header has them.

use std::cell::RefCell;
use std::ffi::{CString, c_char, c_int};
use std::panic::{AssertUnwindSafe, catch_unwind};

use exacat_writer_client::{Error, Status};

thread_local! {
    static MESSAGE: RefCell<CString> = RefCell::default();
}

/// Code and reason of a failure.
#[derive(Debug)]
pub(crate) struct Failure {
    code: c_int,
    reason: String,
}

impl Failure {
    pub(crate) fn argument(reason: impl Into<String>) -> Self {
        Failure { code: 1, reason: reason.into() }
    }

    pub(crate) fn shed() -> Self {
        Failure { code: 5, reason: "no memory for the event: it is shed".to_owned() }
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        let code = match &error {
            Error::Settings(_) => 2,
            Error::NoService { .. } => 3,
            Error::EmptyEvent | Error::EventTooLarge { .. } => 4,
            Error::MemoryFull { .. } => 5,
            Error::FileEnded => 6,
            Error::Closed(_) => 7,
            Error::FlushTimeout { .. } => 8,
            Error::Lost { .. } => 9,
            _ => 10,
        };
        Failure { code, reason: error.to_string() }
    }
}

/// Runs a function of the library. A failure or panic becomes a code, and its reason the message.
pub(crate) fn guarded(act: impl FnOnce() -> Result<(), Failure>) -> c_int {
    let outcome = catch_unwind(AssertUnwindSafe(act));
    let internal =
        || Err(Failure { code: 10, reason: "internal error: a panic in exacat_writer".to_owned() });
    match outcome.unwrap_or_else(|_| internal()) {
        Ok(()) => 0,
        Err(failure) => {
            let text = CString::new(failure.reason.replace('\0', " ")).unwrap_or_default();
            // The message of a thread that ends has no reader.
            let _ = MESSAGE.try_with(|message| message.replace(text));
            failure.code
        }
    }
}

/// Returns the last message of this thread.
pub(crate) fn message() -> *const c_char {
    MESSAGE.try_with(|message| message.borrow().as_ptr()).unwrap_or(c"".as_ptr())
}

/// Counts of a writer: `exw_counts`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Counts {
    appended: [u64; 2],
    settled: [u64; 2],
    lost: [u64; 2],
    shed: [u64; 2],
    memory: [u64; 2],
    files: u64,
    ack_us: [u64; 3],
}

impl From<&Status> for Counts {
    fn from(status: &Status) -> Self {
        let of = |position: exacat_writer_client::Position| [position.events, position.bytes];
        let latencies = &status.latencies;
        let times = [latencies.p50, latencies.p99, latencies.max];
        Counts {
            appended: of(status.appended),
            settled: of(status.settled),
            lost: of(status.lost),
            shed: of(status.shed),
            memory: [status.memory_bytes.0 as u64, status.memory_bytes.1 as u64],
            files: status.files.len() as u64,
            ack_us: times.map(|time| u64::try_from(time.as_micros()).unwrap_or(u64::MAX)),
        }
    }
}
