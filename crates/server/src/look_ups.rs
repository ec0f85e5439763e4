//! Log of look-ups: a line for each file that a client was sent to, or whose replicas it was told. `exacat
//! replay import` reads it.

use std::fmt::Write as _;

use exacat_model::answer::Whereis;
use exacat_model::{AccountName, Answer, ChecksumAlgorithm, Checksums, FileRef, Lfn, TimeMs};
use exacat_store::{Clock as _, SystemClock};

use crate::service::Service;
use crate::settings::LookUpLog;

/// First line of a log of look-ups: the names of its columns.
pub const LOOK_UPS_HEAD: &str = "time\tname\tsize\tadler32\tsite\n";

/// Adds a line. A file without a size has none in its line, and the import says so.
fn put_line(
    lines: &mut String,
    lfn: &Lfn,
    (size, checksums): (Option<u64>, &Checksums),
    (time, site): (TimeMs, Option<&AccountName>),
) {
    // A tab or an end of line would make another row of it.
    if lfn.as_str().chars().any(char::is_control) {
        return;
    }
    let _ = write!(lines, "{}\t{lfn}\t", time.0);
    if let Some(size) = size {
        let _ = write!(lines, "{size}");
    }
    lines.push('\t');
    if let Some(sum) = checksums.get(ChecksumAlgorithm::Adler32) {
        sum.digest().iter().for_each(|byte| {
            let _ = write!(lines, "{byte:02x}");
        });
    }
    let _ = writeln!(lines, "\t{}", site.map_or("", AccountName::as_str));
}

/// Lines of the files of one `whereis`, in the order of its answers; nothing without a log. They count once
/// it is answered whole: a look-up that is too large is repeated in parts.
#[derive(Default)]
pub(crate) struct WhereisLines {
    log: Option<LookUpLog>,
    /// Paths that were not answered yet, the next one last; none where a GUID was given.
    left: Vec<Option<Lfn>>,
    site: Option<AccountName>,
    time: TimeMs,
    lines: String,
}

impl WhereisLines {
    /// Takes the size and checksums of the next file, if it was found.
    pub(crate) fn next(&mut self, found: Option<(Option<u64>, &Checksums)>) {
        if let (Some(Some(lfn)), Some(of)) = (self.left.pop(), found) {
            put_line(&mut self.lines, &lfn, of, (self.time, self.site.as_ref()));
        }
    }

    /// Takes the files of an answer.
    pub(crate) fn all(&mut self, answer: &Answer) {
        if let Answer::Whereis(items) = answer {
            items.iter().for_each(|of| self.next(of.as_ref().ok().map(|of| (of.size, &of.checksums))));
        }
    }

    /// Writes the lines.
    pub(crate) fn write(self) {
        if let Some(log) = self.log.filter(|_| !self.lines.is_empty()) {
            (log.write)(self.lines.as_bytes());
        }
    }
}

impl Service {
    /// Notes in the log of look-ups, if there is one, that a client was sent to a file.
    pub(crate) fn looked_up(&self, lfn: &Lfn, of: &Whereis, site: Option<&AccountName>) {
        if let Some(log) = self.look_ups.get() {
            let mut line = String::new();
            put_line(&mut line, lfn, (of.size, &of.checksums), (SystemClock.now(), site));
            (log.write)(line.as_bytes());
        }
    }

    /// Begins the lines of a `whereis`.
    pub(crate) fn whereis_lines(&self, files: &[FileRef], site: Option<&AccountName>) -> WhereisLines {
        let Some(log) = self.look_ups.get() else { return WhereisLines::default() };
        let left = files.iter().rev().map(|file| file.lfn().cloned()).collect();
        let (log, site, time) = (Some(log.clone()), site.cloned(), SystemClock.now());
        WhereisLines { log, left, site, time, lines: String::new() }
    }
}
