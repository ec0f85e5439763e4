//! State of a server, with its machine and its rates, as it shows it to the other servers.
//!
//! A state is a small JSON object, so that servers of different releases read each other's: a missing
//! field counts as nothing, and an unknown one is left out.

use std::path::{Path, PathBuf};

use parking_lot::Mutex;
use serde::{Deserialize, Serialize};

use crate::data_disk::DataDisk;
use crate::machine::{Machine, Reading, Ticks, shares};

/// Most bytes of a state.
pub(crate) const STATE_BYTES_MAX: usize = 4096;

/// State of a server. Rates are of the last 10 s, in thousandths a second.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct ServerState {
    /// Its host, and the port of its first listener.
    pub name: String,
    pub version: String,
    /// `serving`, `drained`, `stopping`, or `log failed`.
    pub is: String,
    pub up_seconds: u64,
    pub requests_milli: u64,
    pub reads_milli: u64,
    pub changes_milli: u64,
    /// Time from receipt to answer that 99 % of the requests did not exceed.
    pub p99_us: u64,
    pub revision: u64,
    /// Age of the last look at the end of the log, on a cluster.
    pub revision_age_ms: u64,
    pub system: String,
    pub kernel: String,
    pub model: String,
    pub processors: u64,
    pub mhz: u64,
    pub machine_up_seconds: u64,
    pub load_milli: u64,
    /// Shares of the processors' time, in thousandths: see [`Ticks`].
    pub cpu: Ticks,
    pub memory_bytes: u64,
    pub memory_free_bytes: u64,
    pub memory_buffers_bytes: u64,
    pub memory_cached_bytes: u64,
    pub disk_bytes: u64,
    pub disk_free_bytes: u64,
}

impl ServerState {
    /// Returns the share of the processors' time that is neither idle nor a wait for the disk, in
    /// thousandths.
    pub(crate) fn busy(&self) -> u64 {
        let [user, nice, system, _, _, interrupts, soft, stolen] = self.cpu;
        user + nice + system + interrupts + soft + stolen
    }

    /// Returns the bytes of memory that programs use.
    pub(crate) fn memory_used(&self) -> u64 {
        let unused = [self.memory_free_bytes, self.memory_buffers_bytes, self.memory_cached_bytes];
        unused.into_iter().fold(self.memory_bytes, u64::saturating_sub)
    }

    /// Reads a state that another server has shown; none if it is none.
    pub(crate) fn read(bytes: &[u8]) -> Option<Self> {
        // A list would be read as the values of the fields in their order.
        let is_object = bytes.first() == Some(&b'{');
        serde_json::from_slice(bytes).ok().filter(|_| is_object && bytes.len() <= STATE_BYTES_MAX)
    }
}

/// This server's part.
pub(crate) struct Servers {
    machine: Machine,
    data: PathBuf,
    name: String,
    /// None if the kernel counts nothing of it.
    pub data_disk: Option<DataDisk>,
    /// Times of the processors at the last two readings.
    ticks: Mutex<(Ticks, Ticks)>,
}

impl Servers {
    /// Makes the part of a server with its data in a directory, and a listener at this port.
    pub(crate) fn new(data: PathBuf, port: Option<u16>, data_disk: Option<DataDisk>) -> Self {
        let machine = Machine::read();
        let name = match port {
            Some(port) => format!("{}:{port}", machine.host),
            None => machine.host.clone(),
        };
        let ticks = Reading::now(&data).ticks;
        Servers { machine, data, name, data_disk, ticks: Mutex::new((ticks, ticks)) }
    }

    /// Returns the directory of the server's data.
    pub(crate) fn data(&self) -> &Path {
        &self.data
    }

    /// Reads the processors at the end of an interval.
    pub(crate) fn tick(&self) {
        let ticks = Reading::now(&self.data).ticks;
        let mut last = self.ticks.lock();
        *last = (last.1, ticks);
    }

    /// Returns the part of the state that the machine tells.
    pub(crate) fn of_machine(&self) -> ServerState {
        let (machine, reading) = (self.machine.clone(), Reading::now(&self.data));
        let (before, last) = *self.ticks.lock();
        // Before the first interval is over: the time since the start.
        let cpu = if before == last { shares(&before, &reading.ticks) } else { shares(&before, &last) };
        ServerState {
            name: self.name.clone(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            system: machine.system,
            kernel: machine.kernel,
            model: machine.model,
            processors: machine.processors,
            mhz: reading.mhz,
            machine_up_seconds: reading.up_seconds,
            load_milli: reading.load_milli,
            cpu,
            memory_bytes: reading.memory.size,
            memory_free_bytes: reading.memory.free,
            memory_buffers_bytes: reading.memory.buffers,
            memory_cached_bytes: reading.memory.cached,
            disk_bytes: reading.disk.size,
            disk_free_bytes: reading.disk.free,
            ..ServerState::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A server reads the state of one of another release, and nothing that is none or is too long.
    #[test]
    fn states_of_other_releases_are_read() {
        let state = ServerState { name: "a:7420".to_owned(), cpu: [1; 8], ..ServerState::default() };
        let bytes = serde_json::to_vec(&state).unwrap();
        assert_eq!(ServerState::read(&bytes), Some(state));
        let newer = ServerState::read(br#"{"name": "b", "temperature": 4}"#).unwrap();
        assert_eq!((newer.name.as_str(), newer.revision), ("b", 0));
        let long = format!(r#"{{"name": "{}"}}"#, "x".repeat(STATE_BYTES_MAX));
        for bad in [&b""[..], b"[]", br#"{"name": 4}"#, br#"{"cpu": [1]}"#, long.as_bytes()] {
            assert_eq!(ServerState::read(bad), None, "{}", String::from_utf8_lossy(bad));
        }
        let largest = ServerState {
            name: "n".repeat(300),
            system: "s".repeat(300),
            kernel: "k".repeat(65),
            model: "m".repeat(300),
            memory_bytes: u64::MAX,
            ..newer
        };
        assert!(serde_json::to_vec(&largest).unwrap().len() <= STATE_BYTES_MAX);
    }

    #[test]
    fn used_is_neither_free_nor_a_cache() {
        let state = ServerState {
            memory_bytes: 100,
            memory_free_bytes: 10,
            memory_buffers_bytes: 5,
            memory_cached_bytes: 25,
            cpu: [100, 10, 50, 700, 100, 20, 10, 10],
            ..ServerState::default()
        };
        assert_eq!((state.memory_used(), state.busy()), (60, 200));
    }
}
