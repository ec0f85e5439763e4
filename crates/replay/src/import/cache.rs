//! Records of a cache: one for each file session, which may have had several clients.

use exacat_exchange::error::Result;
use exacat_exchange::reject::{Complaint, Reason};
use exacat_wire::xrdmon::gstream::{FileClose, Line, parse_line};

use super::Taking;
use crate::trace::AccessRow;
use crate::trace::reads::{ReadRange, Reads};

/// Clients of one session, at most: more are one sum of bytes that nobody can tell apart.
const CLIENTS_MAX: u64 = 1024;

/// Reader of a g-stream.
#[derive(Default)]
pub(super) struct GStream {
    /// Site of the last header.
    site: String,
}

/// Returns what was read, and by how many clients. Where is not told, so reads of a part begin at the begin
/// of the file.
pub(super) fn reads_of(asked: u64, size: u64) -> (Reads, u64) {
    if size > 0 && asked >= size {
        return (Reads::Whole, (asked / size).min(CLIENTS_MAX));
    }
    (Reads::Ranges([ReadRange { offset: 0, length: asked }].into()), 1)
}

impl GStream {
    pub(super) fn take(&mut self, taking: &mut Taking<'_>, text: &str, place: (u64, &[u8])) -> Result<()> {
        // A datagram ends with a zero byte.
        if text.trim_matches('\0').trim().is_empty() {
            return Ok(());
        }
        match parse_line(text.as_bytes()) {
            Ok(Line::FileClose(record)) => self.take_session(taking, &record, place),
            Ok(Line::Header(header)) => {
                taking.counts.rows += 1;
                taking.counts.other += 1;
                if let Some(source) = header.src.filter(|source| !source.site.is_empty()) {
                    self.site = source.site;
                }
                Ok(())
            }
            Ok(Line::Other) => {
                taking.counts.rows += 1;
                taking.counts.other += 1;
                Ok(())
            }
            Err(what) => taking.take(Err(Complaint::new(Reason::BadRow, what)), 1, place),
        }
    }

    fn take_session(&self, taking: &mut Taking<'_>, of: &FileClose, place: (u64, &[u8])) -> Result<()> {
        if of.bytes_asked() == 0 {
            taking.counts.rows += 1;
            taking.counts.nothing_read += 1;
            return Ok(());
        }
        let (reads, clients) = reads_of(of.bytes_asked(), of.size);
        let time_us = of.attach_t.checked_mul(1_000_000);
        let row = time_us.ok_or_else(|| Complaint::new(Reason::BadTime, "the time is too large"));
        let row = row.map(|time_us| AccessRow {
            time_us,
            name: &of.lfn,
            size: of.size,
            site: &self.site,
            reads,
            ..AccessRow::default()
        });
        taking.take(row, clients, place)
    }
}
