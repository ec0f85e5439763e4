//! Traffic of a server, from its summaries: what its counters grew by while somebody watched.

use exacat_wire::xrdmon::summary::Summary;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// Growth of the counters of a server between its first and its last summary.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(default)]
pub struct ServerTraffic {
    /// Summaries.
    pub samples: u64,
    /// Starts after the first summary. What the server did between its last summary and its end is not known.
    pub restarts: u64,
    /// Bytes received. Those of a connection may be added when it ends.
    pub bytes_in: u64,
    /// Bytes sent; the same holds.
    pub bytes_out: u64,
    /// Opens.
    pub opens: u64,
    /// Reads.
    pub reads: u64,
    /// Vector reads.
    pub vector_reads: u64,
    /// Requests answered with an error.
    pub errors: u64,
    /// Logins.
    pub logins: u64,
    /// Opens at the origin, of a cache.
    pub origin_opens: u64,
    /// Opens at the origin that failed.
    pub origin_open_errors: u64,
    /// Processor time, in microseconds.
    pub cpu_us: u64,
    /// Most connections at once, since the start of the server.
    pub links_max: u64,
    /// Time of the first summary, in seconds since 1970.
    pub first: Option<u64>,
    /// Time of the last summary, in seconds since 1970.
    pub last: Option<u64>,
}

/// Sum of the growth of a counter, and the counter in a summary.
type Growth<'a> = (&'a mut u64, fn(&Summary) -> u64);

/// Account of one server: adds the growth of its counters up, over its restarts.
#[derive(Clone, Debug, Default)]
pub struct TrafficAccount {
    traffic: ServerTraffic,
    last: Option<Summary>,
}

impl TrafficAccount {
    /// Returns the traffic so far.
    pub fn traffic(&self) -> ServerTraffic {
        self.traffic
    }

    /// Adds a summary. One that comes late is left out.
    pub fn add(&mut self, sample: &Summary) {
        let before = match &self.last {
            Some(last) if (sample.started, sample.taken) < (last.started, last.taken) => return,
            Some(last) if last.started == sample.started => last.clone(),
            // After a start all counters begin at 0.
            Some(_) => {
                self.traffic.restarts += 1;
                Summary::default()
            }
            None => sample.clone(),
        };
        let cpu = |of: &Summary| of.user_us.saturating_add(of.system_us);
        let counters: [Growth<'_>; 10] = [
            (&mut self.traffic.bytes_in, |of| of.bytes_in),
            (&mut self.traffic.bytes_out, |of| of.bytes_out),
            (&mut self.traffic.opens, |of| of.opens),
            (&mut self.traffic.reads, |of| of.reads),
            (&mut self.traffic.vector_reads, |of| of.vector_reads),
            (&mut self.traffic.errors, |of| of.errors),
            (&mut self.traffic.logins, |of| of.logins),
            (&mut self.traffic.origin_opens, |of| of.origin_opens),
            (&mut self.traffic.origin_open_errors, |of| of.origin_open_errors),
            (&mut self.traffic.cpu_us, cpu),
        ];
        for (sum, of) in counters {
            *sum = sum.saturating_add(of(sample).saturating_sub(of(&before)));
        }
        self.traffic.samples += 1;
        self.traffic.links_max = self.traffic.links_max.max(sample.links_max);
        self.traffic.first = self.traffic.first.or(Some(sample.taken));
        self.traffic.last = Some(sample.taken);
        self.last = Some(sample.clone());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(started: u64, taken: u64, bytes_out: u64) -> Summary {
        Summary { started, taken, bytes_out, opens: bytes_out / 10, user_us: bytes_out, ..Summary::default() }
    }

    /// Property: what was before the first summary does not count, and what is after a start does.
    #[test]
    fn growth_is_added_up_over_restarts() {
        let mut account = TrafficAccount::default();
        for (started, taken, bytes) in
            [(100, 200, 5000), (100, 205, 5100), (100, 205, 5100), (300, 305, 40), (300, 310, 90)]
        {
            account.add(&sample(started, taken, bytes));
        }
        let traffic = account.traffic();
        assert_eq!((traffic.bytes_out, traffic.opens, traffic.cpu_us), (190, 19, 190));
        assert_eq!((traffic.samples, traffic.restarts), (5, 1));
        assert_eq!((traffic.first, traffic.last), (Some(200), Some(310)));
    }

    /// Property: late summaries, and counters that go back, add nothing.
    #[test]
    fn late_summaries_are_left_out() {
        let mut account = TrafficAccount::default();
        for (started, taken, bytes) in
            [(100, 200, 50), (100, 195, 10), (90, 300, 1000), (100, 210, 20), (100, 220, u64::MAX)]
        {
            account.add(&sample(started, taken, bytes));
        }
        assert_eq!((account.traffic().bytes_out, account.traffic().samples), (u64::MAX - 20, 3));
    }
}
