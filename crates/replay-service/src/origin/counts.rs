//! Counters of the origin, and of its files one by one.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use exacat_replay::both_sides::origin::{OriginCounters, OriginErrors, OriginFileBytes, OriginFiles};
use exacat_store::{Clock as _, SystemClock};
use hashbrown::HashMap;
use parking_lot::Mutex;

use super::limits::FILES_COUNTED_MAX;

/// Makes counters and their snapshot.
macro_rules! counts {
    ($($name:ident)* ; $($error:ident)*) => {
        /// Counters of the origin.
        #[derive(Debug)]
        pub(super) struct Counts {
            /// Start of the origin.
            started_ms: u64,
            $( pub $name: AtomicU64, )*
            $( pub $error: AtomicU64, )*
        }

        impl Counts {
            /// Makes counters at 0 that have the date of now.
            pub(super) fn new() -> Self {
                Counts {
                    started_ms: SystemClock.now().0,
                    $( $name: AtomicU64::default(), )*
                    $( $error: AtomicU64::default(), )*
                }
            }

            /// Returns the values now.
            pub(super) fn snapshot(&self) -> OriginCounters {
                OriginCounters {
                    $( $name: self.$name.load(Ordering::Relaxed), )*
                    errors: OriginErrors { $( $error: self.$error.load(Ordering::Relaxed), )* },
                    started_ms: self.started_ms,
                }
            }
        }
    };
}

counts! {
    connections connections_open connections_refused connections_stalled connections_bad
    logins opens closes files_open reads page_reads vector_reads ranges stats checksums
    bytes_out bytes_sent times_gone ;
    not_found opens_on_order reads_on_order writes not_open bad_requests unsupported too_many_open
}

/// Counts one.
pub(super) fn count(counter: &AtomicU64) {
    counter.fetch_add(1, Ordering::Relaxed);
}

/// Thing that is counted as long as it is there.
#[derive(Debug)]
pub(super) struct Gauge<'a>(&'a AtomicU64);

impl<'a> Gauge<'a> {
    pub(super) fn new(counter: &'a AtomicU64) -> Self {
        count(counter);
        Gauge(counter)
    }
}

impl Drop for Gauge<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Bytes of one file.
pub(super) type FileBytes = Arc<AtomicU64>;

/// Bytes by file.
#[derive(Default)]
pub(super) struct ByFile {
    files: Mutex<HashMap<Box<str>, FileBytes>>,
    others: FileBytes,
}

impl ByFile {
    /// Returns the counter of a file. Files beyond the limit share one.
    pub(super) fn of(&self, name: &str) -> FileBytes {
        let mut files = self.files.lock();
        match files.get(name) {
            Some(bytes) => Arc::clone(bytes),
            None if files.len() >= FILES_COUNTED_MAX => Arc::clone(&self.others),
            None => Arc::clone(files.entry(name.into()).or_default()),
        }
    }

    /// Returns the values now.
    pub(super) fn snapshot(&self) -> OriginFiles {
        let files = self.files.lock();
        let bytes = |counter: &FileBytes| counter.load(Ordering::Relaxed);
        OriginFiles {
            files: files
                .iter()
                .map(|(name, counter)| OriginFileBytes { name: name.to_string(), bytes: bytes(counter) })
                .collect(),
            others: bytes(&self.others),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Property: files have their own counter up to the limit, and the bytes of others are not lost.
    #[test]
    fn files_beyond_the_limit_share_a_counter() {
        let by_file = ByFile::default();
        for number in 0..FILES_COUNTED_MAX {
            by_file.of(&number.to_string());
        }
        by_file.of("7").fetch_add(5, Ordering::Relaxed);
        by_file.of("one more").fetch_add(3, Ordering::Relaxed);
        by_file.of("and another").fetch_add(4, Ordering::Relaxed);
        let snapshot = by_file.snapshot();
        assert_eq!((snapshot.files.len(), snapshot.others), (FILES_COUNTED_MAX, 7));
        let seventh = snapshot.files.iter().find(|file| file.name == "7");
        assert_eq!(seventh.map(|file| file.bytes), Some(5));
    }
}
