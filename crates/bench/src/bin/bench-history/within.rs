//! The history in this process, without HTTP.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Instant;

use exacat_history::{Group, History, HistorySettings, Ingest, Refused};
use exacat_model::{GroupName, GroupSettings, TimeMs};
use exacat_wire::influx::Precision;

use crate::Client;
use crate::reads::Read;
use crate::rows::{Rows, START_MS};

/// A history with one group.
#[derive(Clone)]
pub(crate) struct Within {
    history: Arc<History>,
    group: Arc<Group>,
    runtime: Arc<tokio::runtime::Runtime>,
}

impl Within {
    /// Opens a history. Its clock is after the last row.
    pub(crate) fn open(directory: PathBuf, span_s: u64) -> Self {
        let now = Arc::new(move || TimeMs(START_MS + span_s * 1000 + 3_600_000));
        let history = Arc::new(History::open(HistorySettings::new(directory, now)).unwrap());
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).build().unwrap();
        let name = GroupName::parse("bench").unwrap();
        let settings = GroupSettings::new(name, 2_000_000, TimeMs(0));
        let group = runtime.block_on(history.set_group(settings)).unwrap();
        Within { history, group, runtime: Arc::new(runtime) }
    }

    /// Writes what is in memory to runs. Returns the seconds.
    pub(crate) fn flush(&self) -> f64 {
        let begun = Instant::now();
        self.history.flush().unwrap();
        begun.elapsed().as_secs_f64()
    }
}

impl Client for Within {
    fn put(&self, rows: &Rows, batch: &[(u64, u64)], out: &mut Vec<u8>) {
        for (element, step) in batch {
            rows.put_line(out, *element, *step);
        }
    }

    fn send(&mut self, body: &[u8]) -> bool {
        let mut ingest = Ingest::new(&self.group, self.history.now_ns());
        let mut refused = Refused::default();
        let place = ingest.lines(body, 0, Precision::Milliseconds, &mut refused);
        let batch = ingest.finish();
        assert_eq!((refused.message(u64::from(batch.count())), place), (None, body.len()));
        self.runtime.block_on(self.history.commit(batch)).is_ok()
    }

    fn read(&mut self, _read: &Read) -> u64 {
        panic!("--reads needs --url or --sql")
    }
}
