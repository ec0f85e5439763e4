//! Log of look-ups: a line for each file that a client was sent to, which `exacat replay import` reads.

use std::fmt::Write as _;

use exacat_model::answer::Whereis;
use exacat_model::{AccountName, ChecksumAlgorithm, Lfn, TimeMs};
use exacat_store::{Clock as _, SystemClock};

use crate::service::Service;
use crate::settings::LookUpLog;

/// First line of a log of look-ups: the names of its columns.
pub const LOOK_UPS_HEAD: &str = "time\tname\tsize\tadler32\tsite\n";

impl LookUpLog {
    /// Adds a line. A file without a size has none in its line, and the import says so.
    fn note(&self, time: TimeMs, lfn: &Lfn, of: &Whereis, site: Option<&AccountName>) {
        // A tab or an end of line would make another row of it.
        if lfn.as_str().chars().any(char::is_control) {
            return;
        }
        let mut line = format!("{}\t{lfn}\t", time.0);
        if let Some(size) = of.size {
            let _ = write!(line, "{size}");
        }
        line.push('\t');
        if let Some(sum) = of.checksums.get(ChecksumAlgorithm::Adler32) {
            sum.digest().iter().for_each(|byte| {
                let _ = write!(line, "{byte:02x}");
            });
        }
        let _ = writeln!(line, "\t{}", site.map_or("", AccountName::as_str));
        (self.write)(line.as_bytes());
    }
}

impl Service {
    /// Notes in the log of look-ups, if there is one, that a client was sent to a file.
    pub(crate) fn looked_up(&self, lfn: &Lfn, of: &Whereis, site: Option<&AccountName>) {
        if let Some(log) = self.look_ups.get() {
            log.note(SystemClock.now(), lfn, of, site);
        }
    }
}
