//! The machine that the server runs on: processors, load, memory, and the disk of its data.

use std::path::Path;

/// Times of all processors since the start of the machine, in ticks, as `/proc/stat` has them: user,
/// nice, system, idle, wait for the disk, interrupts, soft interrupts, stolen by the hypervisor.
pub(crate) type Ticks = [u64; 8];

/// Facts that stay as long as the server runs; empty where the system does not tell.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Machine {
    pub host: String,
    pub system: String,
    pub kernel: String,
    pub model: String,
    pub processors: u64,
}

/// A reading of the machine; 0 where the system does not tell.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Reading {
    pub up_seconds: u64,
    /// Average of tasks that ran or were ready in the last minute, in thousandths.
    pub load_milli: u64,
    /// Average over the processors.
    pub mhz: u64,
    pub ticks: Ticks,
    pub memory: Memory,
    pub disk: Disk,
}

/// Bytes of memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Memory {
    pub size: u64,
    pub free: u64,
    pub buffers: u64,
    pub cached: u64,
}

/// Bytes of the disk of the data directory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Disk {
    pub size: u64,
    /// Free for the server's user.
    pub free: u64,
}

impl Machine {
    /// Reads the facts.
    pub(crate) fn read() -> Self {
        let read = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
        let (release, model) = (read("/etc/os-release"), read("/proc/cpuinfo"));
        Machine {
            host: read("/proc/sys/kernel/hostname").trim().to_owned(),
            system: field(&release, "PRETTY_NAME=").trim_matches('"').to_owned(),
            kernel: read("/proc/sys/kernel/osrelease").trim().to_owned(),
            model: field(&model, "model name").trim_start_matches([' ', '\t', ':']).to_owned(),
            processors: std::thread::available_parallelism().map_or(0, |count| count.get() as u64),
        }
    }
}

impl Reading {
    /// Reads the machine, and the disk of a directory.
    pub(crate) fn now(data: &Path) -> Self {
        let read = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
        Reading {
            up_seconds: decimal(&read("/proc/uptime")) / 1000,
            load_milli: decimal(&read("/proc/loadavg")),
            mhz: mhz(&read("/proc/cpuinfo")),
            ticks: ticks(&read("/proc/stat")),
            memory: memory(&read("/proc/meminfo")),
            disk: Disk::of(data),
        }
    }
}

impl Disk {
    /// Reads the disk of a directory.
    pub(crate) fn of(directory: &Path) -> Self {
        rustix::fs::statvfs(directory).map_or_else(
            |_| Disk::default(),
            |space| Disk {
                size: space.f_blocks.saturating_mul(space.f_frsize),
                free: space.f_bavail.saturating_mul(space.f_frsize),
            },
        )
    }
}

/// Returns the rest of the first line that starts with a name; empty without one.
fn field<'a>(text: &'a str, name: &str) -> &'a str {
    text.lines().find_map(|line| line.strip_prefix(name)).unwrap_or_default().trim()
}

/// Returns the first number of a text in thousandths.
fn decimal(text: &str) -> u64 {
    let number: Option<f64> = text.split_ascii_whitespace().next().and_then(|first| first.parse().ok());
    number.map_or(0, |number| (number * 1000.0) as u64)
}

fn mhz(cpuinfo: &str) -> u64 {
    let all = cpuinfo.lines().filter_map(|line| line.strip_prefix("cpu MHz")?.split_once(':'));
    let all: Vec<f64> = all.filter_map(|(_, value)| value.trim().parse().ok()).collect();
    if all.is_empty() { 0 } else { (all.iter().sum::<f64>() / all.len() as f64) as u64 }
}

fn ticks(stat: &str) -> Ticks {
    let mut ticks = Ticks::default();
    let fields = field(stat, "cpu ").split_ascii_whitespace();
    ticks.iter_mut().zip(fields).for_each(|(tick, field)| *tick = field.parse().unwrap_or(0));
    ticks
}

fn memory(meminfo: &str) -> Memory {
    let bytes = |name: &str| {
        let kib: Option<u64> =
            field(meminfo, name).strip_suffix(" kB").and_then(|kib| kib.trim().parse().ok());
        kib.unwrap_or(0).saturating_mul(1024)
    };
    Memory {
        size: bytes("MemTotal:"),
        free: bytes("MemFree:"),
        buffers: bytes("Buffers:"),
        cached: bytes("Cached:"),
    }
}

/// Returns the share of each kind between two readings, in thousandths; all 0 if no time passed.
pub(crate) fn shares(before: &Ticks, now: &Ticks) -> Ticks {
    let mut spent = Ticks::default();
    spent.iter_mut().zip(now.iter().zip(before)).for_each(|(spent, (now, before))| {
        *spent = now.saturating_sub(*before);
    });
    let all: u64 = spent.iter().sum();
    spent.map(|one| one.saturating_mul(1000).checked_div(all).unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The texts of the kernel are read by their names, and a text of another form counts as nothing.
    #[test]
    fn texts_of_the_kernel_are_read() {
        assert_eq!(ticks("cpu  1 2 3 4 5 6 7 8 9 10\ncpu0 9 9\n"), [1, 2, 3, 4, 5, 6, 7, 8]);
        assert_eq!(ticks("cpu  1 x"), [1, 0, 0, 0, 0, 0, 0, 0]);
        let read = memory("MemTotal:  8 kB\nMemFree: 1 kB\nSwapCached: 9 kB\nBuffers: 2 kB\nCached: 3 kB\n");
        assert_eq!(read, Memory { size: 8192, free: 1024, buffers: 2048, cached: 3072 });
        assert_eq!(mhz("cpu MHz\t\t: 1000.5\nmodel name\t: x\ncpu MHz\t\t: 2000.5\n"), 1500);
        assert_eq!((decimal("1.25 0.5 0.1 1/2 3"), decimal(""), decimal("x")), (1250, 0, 0));
        for none in ["", "nonsense", "MemTotal: many kB"] {
            assert_eq!((ticks(none), memory(none), mhz(none)), Default::default(), "{none}");
        }
    }

    #[test]
    fn shares_are_of_the_time_between_two_readings() {
        let (before, now) = ([10, 0, 10, 100, 0, 0, 0, 0], [40, 0, 20, 160, 0, 0, 0, 0]);
        assert_eq!(shares(&before, &now), [300, 0, 100, 600, 0, 0, 0, 0]);
        assert_eq!(shares(&now, &now), Ticks::default());
        assert_eq!(shares(&now, &before), Ticks::default());
    }

    #[test]
    fn own_machine_is_read() {
        let (machine, reading) = (Machine::read(), Reading::now(Path::new("/")));
        assert!(
            !machine.host.is_empty() && !machine.kernel.is_empty() && machine.processors > 0,
            "{machine:?}"
        );
        assert!(reading.memory.size > 0 && reading.disk.size > 0 && reading.ticks[3] > 0, "{reading:?}");
    }
}
