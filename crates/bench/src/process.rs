//! CPU time and memory of this process and of others.

/// CPU time of this process so far, user and system, seconds.
pub fn own_cpu_s() -> f64 {
    process_cpu_s("self")
}

/// CPU time of a process so far, seconds; 0 if it cannot be read.
pub fn process_cpu_s(pid: &str) -> f64 {
    // Fields 14 and 15 of /proc/PID/stat, counted from behind the command's name, which may hold
    // blanks. Linux gives them in ticks of 1/100 s to user space, whatever the kernel counts in.
    let Ok(stat) = std::fs::read_to_string(format!("/proc/{pid}/stat")) else { return 0.0 };
    let Some((_, fields)) = stat.rsplit_once(')') else { return 0.0 };
    let ticks =
        |index: usize| fields.split_whitespace().nth(index).and_then(|field| field.parse::<f64>().ok());
    (ticks(11).unwrap_or(0.0) + ticks(12).unwrap_or(0.0)) / 100.0
}

/// CPU time of the threads that a process has now, seconds, by the scheduler's clock of nanoseconds.
pub fn threads_cpu_s(pid: &str) -> f64 {
    let tasks = std::fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    let nanos = tasks.filter_map(|task| {
        let text = std::fs::read_to_string(task.path().join("schedstat")).ok()?;
        text.split_whitespace().next()?.parse::<u64>().ok()
    });
    nanos.sum::<u64>() as f64 / 1e9
}

/// CPU time of a process, of its children, and of those that ended, seconds; 0 if it cannot be read.
pub fn tree_cpu_s(pid: &str) -> f64 {
    let Ok(stat) = std::fs::read_to_string(format!("/proc/{pid}/stat")) else { return 0.0 };
    let fields = stat.rsplit_once(')').map_or("", |(_, fields)| fields);
    // Fields 14 to 17: its own time, and that of children it has waited for.
    let own: f64 =
        fields.split_whitespace().skip(11).take(4).filter_map(|field| field.parse::<f64>().ok()).sum();
    let children = std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap_or_default();
    own / 100.0 + children.split_whitespace().map(process_cpu_s).sum::<f64>()
}

/// Resident memory of a process, bytes; 0 if it cannot be read.
pub fn process_memory_bytes(pid: &str) -> u64 {
    let Ok(status) = std::fs::read_to_string(format!("/proc/{pid}/status")) else { return 0 };
    status
        .lines()
        .find_map(|line| line.strip_prefix("VmRSS:")?.trim().strip_suffix("kB")?.trim().parse::<u64>().ok())
        .map_or(0, |kib| kib * 1024)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workload::scatter;

    /// CPU time of this process grows when it works, and that of none is 0.
    #[test]
    fn cpu_time_is_read() {
        let before = own_cpu_s();
        let mut number = 1u64;
        while own_cpu_s() - before < 0.02 {
            number = (0..100_000).fold(number, |number, _| scatter(number));
        }
        assert_ne!(number, 1);
        assert_eq!(process_cpu_s("0"), 0.0);
        assert!(threads_cpu_s("self") > 0.0);
        assert_eq!(threads_cpu_s("0"), 0.0);
    }
}
