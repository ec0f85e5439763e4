//! Outcomes of files, with their texts as C reads them.

use std::ffi::{CString, c_char, c_int};

use exacat_writer_client::{FileOutcome, Outcome};

/// One outcome: `exw_outcome`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct RawOutcome {
    state: c_int,
    adler32: u32,
    bytes: u64,
    events: u64,
    duplicates: u64,
    lfn: *const c_char,
    reason: *const c_char,
}

/// Outcomes of some files.
#[derive(Debug)]
pub struct Outcomes(Vec<(FileOutcome, CString, CString)>);

fn c_text(text: &str) -> CString {
    CString::new(text.replace('\0', " ")).unwrap_or_default()
}

impl Outcomes {
    pub(crate) fn new(outcomes: Vec<FileOutcome>) -> Self {
        let with_texts = |of: FileOutcome| {
            let reason = match &of.outcome {
                Outcome::Certified { .. } => "",
                Outcome::Failed { reason } | Outcome::Unknown { reason } => reason,
            };
            let (lfn, reason) = (c_text(&of.lfn), c_text(reason));
            (of, lfn, reason)
        };
        Outcomes(outcomes.into_iter().map(with_texts).collect())
    }

    pub(crate) fn count(&self) -> usize {
        self.0.len()
    }

    pub(crate) fn get(&self, index: usize) -> Option<RawOutcome> {
        let (of, lfn, reason) = self.0.get(index)?;
        let (lfn, reason) = (lfn.as_ptr(), reason.as_ptr());
        let none = RawOutcome { state: 0, adler32: 0, bytes: 0, events: 0, duplicates: 0, lfn, reason };
        Some(match of.outcome {
            Outcome::Certified { bytes, events, adler32, duplicates, .. } => {
                RawOutcome { adler32, bytes, events, duplicates, ..none }
            }
            Outcome::Failed { .. } => RawOutcome { state: 1, ..none },
            Outcome::Unknown { .. } => RawOutcome { state: 2, ..none },
        })
    }
}
