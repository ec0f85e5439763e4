//! Counters of an origin: its own truth about what was read from it.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// Requests that an origin answered with an error, by reason.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(default)]
pub struct OriginErrors {
    /// The file is not there, or is absent on order.
    pub not_found: u64,
    /// Opens that failed on order.
    pub opens_on_order: u64,
    /// Reads that failed on order.
    pub reads_on_order: u64,
    /// Requests that would change something.
    pub writes: u64,
    /// Requests about files that are not open.
    pub not_open: u64,
    /// Requests that are malformed, or came before the login.
    pub bad_requests: u64,
    /// Requests that the origin does not know.
    pub unsupported: u64,
    /// Opens beyond the limit of open files.
    pub too_many_open: u64,
}

impl OriginErrors {
    /// Returns the number of all of them.
    pub fn all(&self) -> u64 {
        let OriginErrors {
            not_found,
            opens_on_order,
            reads_on_order,
            writes,
            not_open,
            bad_requests,
            unsupported,
            too_many_open,
        } = *self;
        [
            not_found,
            opens_on_order,
            reads_on_order,
            writes,
            not_open,
            bad_requests,
            unsupported,
            too_many_open,
        ]
        .into_iter()
        .fold(0, u64::saturating_add)
    }
}

/// Counters of an origin since its start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(default)]
pub struct OriginCounters {
    /// Start of the origin, in milliseconds since 1970. All counters begin at 0 then.
    pub started_ms: u64,
    /// Connections so far.
    pub connections: u64,
    /// Connections that are open.
    pub connections_open: u64,
    /// Connections beyond the limit, closed at once.
    pub connections_refused: u64,
    /// Connections cut because their client did not read.
    pub connections_stalled: u64,
    /// Connections cut because their bytes are not of the protocol, or no login came in time.
    pub connections_bad: u64,
    /// Logins.
    pub logins: u64,
    /// Successful opens.
    pub opens: u64,
    /// Closes by request; a connection that ends closes its files too.
    pub closes: u64,
    /// Files that are open.
    pub files_open: u64,
    /// Successful reads.
    pub reads: u64,
    /// Successful reads of pages.
    pub page_reads: u64,
    /// Successful vector reads.
    pub vector_reads: u64,
    /// Ranges of vector reads.
    pub ranges: u64,
    /// Stats of paths and open files.
    pub stats: u64,
    /// Checksums told.
    pub checksums: u64,
    /// Bytes of files that were given to the network.
    pub bytes_out: u64,
    /// All bytes that were given to the network: those of files, headers and checksums.
    pub bytes_sent: u64,
    /// Times that the origin went away on order.
    pub times_gone: u64,
    /// Requests answered with an error.
    pub errors: OriginErrors,
}

impl OriginCounters {
    /// Returns the number of reads of all kinds.
    pub fn all_reads(&self) -> u64 {
        self.reads.saturating_add(self.page_reads).saturating_add(self.vector_reads)
    }

    /// Returns what a counter grew by since earlier counters. Those of an origin that was started again count
    /// whole; what it did between the earlier ones and its end is not known.
    pub fn grown(&self, before: &OriginCounters, count: fn(&OriginCounters) -> u64) -> u64 {
        let earlier = if before.started_ms == self.started_ms { count(before) } else { 0 };
        count(self).saturating_sub(earlier)
    }
}

/// Bytes of one file that an origin gave out.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct OriginFileBytes {
    /// Name of the file.
    pub name: String,
    /// Bytes, counted when they are put together for the network.
    pub bytes: u64,
}

/// Bytes by file.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct OriginFiles {
    /// Files with bytes, in no order.
    pub files: Vec<OriginFileBytes>,
    /// Bytes of files that found no room in the table.
    pub others: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_of_an_origin_that_was_started_again_count_whole() {
        let of = |started_ms, reads| OriginCounters { started_ms, reads, ..OriginCounters::default() };
        for (before, now, grown) in [
            (of(1, 10), of(1, 17), 7),
            (of(1, 10), of(1, 10), 0),
            // More than before it was started again, and less.
            (of(1, 10), of(2, 17), 17),
            (of(1, 10), of(2, 3), 3),
        ] {
            assert_eq!(now.grown(&before, OriginCounters::all_reads), grown, "{before:?} {now:?}");
        }
    }
}
