//! Progress of an import, verification or export.

use std::time::Duration;

/// Snapshot of the progress of a long run.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Progress {
    /// Rows (or entries) done, including those of interrupted runs.
    pub rows: u64,
    /// Rows done by this run.
    pub rows_now: u64,
    /// Bytes of the file that the done rows come from.
    pub bytes_read: u64,
    /// Bytes of the file; none for a pipe, or if not known yet.
    pub bytes_total: Option<u64>,
    /// Total rows, if known while bytes are not.
    pub rows_total: Option<u64>,
    /// Number of rows that were rejected or differ.
    pub rejected: u64,
    /// True during the second reading of rows that refer to others.
    pub second_pass: bool,
    /// True if everything is read and the load is running.
    pub loading: bool,
    /// Time since the start of this run.
    pub elapsed: Duration,
}

impl Progress {
    /// Returns rows per second, over this run.
    pub fn rows_per_second(&self) -> f64 {
        let seconds = self.elapsed.as_secs_f64();
        if seconds > 0.0 { self.rows_now as f64 / seconds } else { 0.0 }
    }

    /// Returns the fraction done, from 0 to 1; none if the total is not known.
    pub fn fraction(&self) -> Option<f64> {
        let (done, total) = match (self.bytes_total, self.rows_total) {
            (Some(bytes), _) => (self.bytes_read, bytes),
            (None, Some(rows)) => (self.rows, rows),
            (None, None) => return None,
        };
        (total > 0).then(|| (done as f64 / total as f64).min(1.0))
    }

    /// Returns the time left at the rate of this run; none if it cannot be estimated yet.
    pub fn left(&self) -> Option<Duration> {
        let fraction = self.fraction().filter(|fraction| *fraction > 0.0)?;
        Duration::try_from_secs_f64(self.elapsed.as_secs_f64() * (1.0 - fraction) / fraction).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rate_and_time_left_follow_from_what_is_done() {
        let progress = Progress {
            rows: 300,
            rows_now: 200,
            bytes_read: 25,
            bytes_total: Some(100),
            elapsed: Duration::from_secs(10),
            ..Progress::default()
        };
        assert_eq!(progress.rows_per_second(), 20.0);
        assert_eq!(progress.left(), Some(Duration::from_secs(30)));
        assert_eq!(Progress::default().left(), None);
        assert_eq!(Progress::default().rows_per_second(), 0.0);
        assert_eq!(Progress { bytes_total: Some(0), ..progress.clone() }.fraction(), None);
        assert_eq!(Progress { bytes_total: None, rows_total: Some(600), ..progress }.fraction(), Some(0.5));
    }
}
