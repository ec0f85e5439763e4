//! Metrics of the process, under the names that every Prometheus client uses.

use exacat_store::Sample;

use crate::metric_table as table;
use crate::open_files::open_files_max;

/// Fields of `/proc/self/stat` behind the name, by their numbers in proc(5) less 3.
const USER_TICKS: usize = 11;
const SYSTEM_TICKS: usize = 12;
const THREADS: usize = 17;
const START_TICKS: usize = 19;
const VIRTUAL_BYTES: usize = 20;
const RESIDENT_PAGES: usize = 21;

/// Returns the metrics of this process; fewer where the system does not tell.
pub(crate) fn samples() -> Vec<Sample> {
    let mut samples = Vec::new();
    if let Ok(stat) = std::fs::read_to_string("/proc/self/stat") {
        samples.extend(of_stat(&stat, boot_seconds()));
    }
    if let Ok(files) = std::fs::read_dir("/proc/self/fd") {
        samples.push(table::PROCESS_FILES.is(files.count() as u64));
    }
    let processors = std::thread::available_parallelism();
    samples.extend(processors.ok().map(|number| table::PROCESSORS.is(number.get() as u64)));
    samples.extend(memory_limit().map(|bytes| table::MEMORY_LIMIT.is(bytes)));
    samples.extend(open_files_max().map(|most| table::PROCESS_FILES_MAX.is(most)));
    samples
}

/// Reads the line of `/proc/self/stat`. `boot` is the start of the machine, in seconds since 1970.
fn of_stat(stat: &str, boot: Option<u64>) -> Vec<Sample> {
    // The name of the program may have spaces and parentheses.
    let fields: Vec<u64> = stat.rsplit_once(')').map_or_else(Vec::new, |(_, rest)| {
        rest.split_ascii_whitespace().map(|field| field.parse().unwrap_or(0)).collect()
    });
    let ticks_to_ms = |ticks: u64| ticks.saturating_mul(1000) / ticks_per_second();
    let field = |number: usize| fields.get(number).copied();
    let mut samples = Vec::new();
    if let (Some(user), Some(system)) = (field(USER_TICKS), field(SYSTEM_TICKS)) {
        samples.push(table::PROCESS_CPU.is(ticks_to_ms(user.saturating_add(system))));
    }
    samples.extend(field(THREADS).map(|threads| table::PROCESS_THREADS.is(threads)));
    if let (Some(start), Some(boot)) = (field(START_TICKS), boot) {
        samples.push(table::PROCESS_START.is(boot.saturating_mul(1000).saturating_add(ticks_to_ms(start))));
    }
    samples.extend(field(VIRTUAL_BYTES).map(|bytes| table::PROCESS_VIRTUAL.is(bytes)));
    let resident = field(RESIDENT_PAGES).map(|pages| pages.saturating_mul(page_bytes()));
    samples.extend(resident.map(|bytes| table::PROCESS_RESIDENT.is(bytes)));
    samples
}

/// Returns the ticks of the kernel in a second, at least 1.
pub(crate) fn ticks_per_second() -> u64 {
    configured(libc::_SC_CLK_TCK)
}

fn page_bytes() -> u64 {
    configured(libc::_SC_PAGESIZE)
}

/// Returns a property of the system, at least 1.
fn configured(name: libc::c_int) -> u64 {
    // SAFETY: the call has no requirements.
    let value = unsafe { libc::sysconf(name) };
    u64::try_from(value).unwrap_or(1).max(1)
}

/// Returns the memory of the machine, or the bound of the process's control group if that is lower.
fn memory_limit() -> Option<u64> {
    let machine = std::fs::read_to_string("/proc/meminfo").ok().and_then(|text| memory_total(&text));
    let group = std::fs::read_to_string("/proc/self/cgroup").ok().and_then(|text| {
        // The line of version 2; version 1 has one line for each controller.
        let path = text.lines().find_map(|line| line.strip_prefix("0::/"))?.to_owned();
        std::fs::read_to_string(format!("/sys/fs/cgroup/{path}/memory.max")).ok()?.trim().parse::<u64>().ok()
    });
    machine.into_iter().chain(group).min()
}

fn memory_total(meminfo: &str) -> Option<u64> {
    let line = meminfo.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
    line.trim().strip_suffix(" kB")?.parse::<u64>().ok()?.checked_mul(1024)
}

/// Returns the start of the machine, in seconds since 1970.
fn boot_seconds() -> Option<u64> {
    let stat = std::fs::read_to_string("/proc/stat").ok()?;
    stat.lines().find_map(|line| line.strip_prefix("btime ")?.trim().parse().ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn value(samples: &[Sample], name: &str) -> Option<exacat_store::MetricValue> {
        samples.iter().find(|sample| sample.metric.name == name).map(|sample| sample.value.clone())
    }

    /// The name of a program may look like the fields behind it.
    #[test]
    fn fields_begin_behind_the_name() {
        let stat =
            "7 (a) S 1 (b) R 2 3 4 5 6 7 8 9 10 11 120 30 0 0 20 0 4 0 200 8192 3 18446744073709551615";
        let samples = of_stat(stat, Some(1_000));
        let ms = |ticks: u64| ticks * 1000 / ticks_per_second();
        let number = |value| Some(exacat_store::MetricValue::Number(value));
        assert_eq!(value(&samples, "process_cpu_seconds"), number(ms(150)));
        assert_eq!(value(&samples, "process_threads"), number(4));
        assert_eq!(value(&samples, "process_start_time_seconds"), number(1_000_000 + ms(200)));
        assert_eq!(value(&samples, "process_virtual_memory_bytes"), number(8192));
        assert_eq!(value(&samples, "process_resident_memory_bytes"), number(3 * page_bytes()));
        assert!(of_stat("", None).is_empty());
        assert_eq!(memory_total("MemTotal:  8 kB\nMemFree: 1 kB\n"), Some(8192));
    }

    #[test]
    fn own_process_has_all_metrics() {
        let own = samples();
        assert_eq!(own.len(), 9, "{own:?}");
    }
}
