//! Yardstick of the disk: repeatedly overwrites 4 KiB and syncs them, beside the measurement. The
//! machine and its disk may be shared: a stall of both is the disk's.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{RecvTimeoutError, SyncSender, sync_channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use exacat_model::{Error, ErrorKind, Result};
use hdrhistogram::Histogram;
use parking_lot::Mutex;

use crate::measure::{histogram, record};

/// Interval of syncs.
const EVERY: Duration = Duration::from_millis(20);
/// Places of the file, written in turn.
const PLACES: u64 = 64;
const BYTES: usize = 4096;

/// Longest sync of each second, microseconds.
type Seconds = Arc<Mutex<Vec<u64>>>;

/// Measures until it is ended.
pub(crate) struct Yardstick {
    path: PathBuf,
    end: SyncSender<()>,
    thread: JoinHandle<io::Result<Histogram<u64>>>,
    seconds: Seconds,
}

fn failed(error: &dyn std::fmt::Display) -> Error {
    Error::new(ErrorKind::Unavailable, format!("cannot measure the disk: {error}"))
}

impl Yardstick {
    /// Begins to measure, in a file of this name.
    pub(crate) fn begin(path: PathBuf) -> Result<Self> {
        let file = blank(&path).map_err(|error| failed(&error))?;
        let (latency, seconds) = (histogram()?, Seconds::default());
        let (end, ended) = sync_channel(1);
        let told = Arc::clone(&seconds);
        let thread = std::thread::Builder::new().name("disk-yardstick".to_owned()).spawn(move || {
            let (mut latency, start) = (latency, Instant::now());
            let mut places = (0..PLACES).cycle();
            while matches!(ended.recv_timeout(EVERY), Err(RecvTimeoutError::Timeout)) {
                let place = places.next().unwrap_or_default();
                let sent = Instant::now();
                file.write_all_at(&[1; BYTES], place * BYTES as u64)?;
                file.sync_data()?;
                let took = sent.elapsed();
                record(&mut latency, took);
                let mut seconds = told.lock();
                let second = start.elapsed().as_secs() as usize;
                let length = seconds.len().max(second + 1);
                seconds.resize(length, 0);
                seconds[second] = seconds[second].max(u64::try_from(took.as_micros()).unwrap_or(u64::MAX));
            }
            Ok(latency)
        });
        let thread = thread.map_err(|error| failed(&error))?;
        Ok(Yardstick { path, end, thread, seconds })
    }

    /// Ends it, and returns all syncs, and the longest of each second.
    pub(crate) fn end(self) -> Result<(Histogram<u64>, Vec<u64>)> {
        let Yardstick { path, end, thread, seconds } = self;
        // If nobody receives this, the thread has ended, and its result says why.
        let _ended_already = end.try_send(());
        let latency = thread.join().map_err(|_| failed(&"internal error: its thread ended"))?;
        let latency = latency.map_err(|error| failed(&error))?;
        std::fs::remove_file(&path).map_err(|error| failed(&error))?;
        let seconds = std::mem::take(&mut *seconds.lock());
        Ok((latency, seconds))
    }
}

/// Makes a file whose bytes all exist already, to be overwritten.
fn blank(path: &Path) -> io::Result<File> {
    let file = File::create(path)?;
    file.write_all_at(&vec![0; PLACES as usize * BYTES], 0)?;
    file.sync_all()?;
    Ok(file)
}
