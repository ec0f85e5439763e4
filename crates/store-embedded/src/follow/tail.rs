//! The end of a follower's log after a power cut.
//!
//! A follower writes many commit groups of its source at once, and syncs once. A power cut may therefore
//! leave a later group without an earlier one, which in any other log is damage. So a follower cuts its
//! log behind the last whole record before it reads it. The source has the rest. What the file END knows
//! to be durable is never cut.

use exacat_disk::{Disk, cannot_read, corrupt, read_whole};
use exacat_log::Form;
use exacat_log::log_end::{self, LogEnd, LogPosition};
use exacat_log::replay::list_segments;
use exacat_log::segment::{CatalogueId, Ending, HEADER_BYTES, Header, Records, seal_in};
use exacat_model::Result;

use crate::identity::Layout;

/// Cuts off the bytes behind the last whole record, if there are any.
pub(crate) fn cut_tail(disk: &dyn Disk, data: &Layout, catalogue: CatalogueId) -> Result<()> {
    let segments = list_segments(disk, &data.log(), false)?;
    let Some(last) = segments.last().filter(|last| *last.form() == Form::Plain) else { return Ok(()) };
    let name = last.path.display().to_string();
    let unreadable = |error: std::io::Error| cannot_read(&name, &error);
    let file = disk.open_to_read(&last.path).map_err(unreadable)?;
    let bytes = read_whole(&*file).map_err(unreadable)?;
    let header = Header::decode(&name, &bytes)?;
    let mut records = Records::new(&bytes, header.salt, HEADER_BYTES);
    while records.next_record().is_some() {}
    let offset = records.offset();
    let rest = bytes.get(offset..).unwrap_or_default();
    let torn = rest.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1);
    // A sealed segment has lost the one after it, which opening reports.
    if torn == 0 || seal_in(header.salt, offset, rest).is_some() {
        return Ok(());
    }
    if let Some(known) = log_end::read(disk, &data.log(), catalogue)?
        && (known.segment, known.salt) == (header.first_revision, header.salt)
        && known.offset > offset as u64
    {
        let what = format!("a log record is damaged: the log was durable up to byte {}", known.offset);
        return Err(corrupt(&name, offset as u64, what));
    }
    let end = LogEnd {
        position: LogPosition { segment: last.first_revision, offset: offset as u64 },
        ending: Ending::Torn(torn as u64),
        header,
        is_marked: false,
        bytes: bytes.len() as u64,
    };
    log_end::cut_off(disk, &data.log(), last, &end)?;
    tracing::info!(file = name, offset, "cut the end of the followed log; the source has it");
    Ok(())
}
