//! Times of the server's threads by role, from the kernel's counters.

use std::collections::{BTreeMap, HashMap};
use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

/// Times of the threads of one role since the first reading.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct RoleTimes {
    /// Threads at the last reading.
    pub threads: u64,
    /// On a processor.
    pub cpu: Duration,
    /// Ready to run, without a free processor.
    pub queue: Duration,
    /// Waiting for something else.
    pub wait: Duration,
}

/// Counters of one thread at the last reading.
struct Seen {
    role: String,
    cpu: Duration,
    queue: Duration,
    at: Instant,
}

/// Sums over threads, also over those that ended. What a thread did after its last reading is not in
/// them.
#[derive(Default)]
pub(crate) struct ThreadTimes {
    threads: HashMap<u32, Seen>,
    roles: BTreeMap<String, RoleTimes>,
}

impl ThreadTimes {
    /// Reads the counters of all threads.
    pub(crate) fn read(&mut self) {
        self.read_from(Path::new("/proc/self/task"), Instant::now());
    }

    fn read_from(&mut self, tasks: &Path, now: Instant) {
        let mut before = std::mem::take(&mut self.threads);
        self.roles.values_mut().for_each(|role| role.threads = 0);
        let Ok(listed) = fs::read_dir(tasks) else { return };
        for task in listed.flatten() {
            let Some(id) = task.file_name().to_str().and_then(|name| name.parse().ok()) else { continue };
            // A thread may end between the list and the reading.
            let Some((cpu, queue)) = schedule(&task.path()) else { continue };
            let known = before.remove(&id);
            let known = known.filter(|seen| seen.cpu <= cpu && seen.queue <= queue);
            let seen = match known {
                Some(seen) => seen,
                None => {
                    let Ok(role) = fs::read_to_string(task.path().join("comm")) else { continue };
                    let role = role.trim_end().to_owned();
                    Seen {
                        role,
                        cpu: Duration::ZERO,
                        queue: Duration::ZERO,
                        at: now - (cpu + queue).min(SECOND),
                    }
                }
            };
            let role = self.roles.entry(seen.role.clone()).or_default();
            let (on_cpu, queued) = (cpu.saturating_sub(seen.cpu), queue.saturating_sub(seen.queue));
            role.threads += 1;
            role.cpu += on_cpu;
            role.queue += queued;
            role.wait += now.saturating_duration_since(seen.at).saturating_sub(on_cpu + queued);
            self.threads.insert(id, Seen { role: seen.role, cpu, queue, at: now });
        }
    }

    /// Returns the sums of each role.
    pub(crate) fn roles(&self) -> &BTreeMap<String, RoleTimes> {
        &self.roles
    }
}

/// Longest life that a thread is given at its first reading.
const SECOND: Duration = Duration::from_secs(1);

/// Returns the time of a thread on a processor, and in the queue for one.
fn schedule(task: &Path) -> Option<(Duration, Duration)> {
    let text = fs::read_to_string(task.join("schedstat")).ok()?;
    let mut nanos = text.split_ascii_whitespace().map_while(|number| number.parse().ok());
    Some((Duration::from_nanos(nanos.next()?), Duration::from_nanos(nanos.next()?)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn thread(tasks: &Path, id: &str, role: &str, cpu_ms: u64, queue_ms: u64) {
        fs::create_dir_all(tasks.join(id)).unwrap();
        fs::write(tasks.join(id).join("comm"), format!("{role}\n")).unwrap();
        let text = format!("{} {} 7\n", cpu_ms * 1_000_000, queue_ms * 1_000_000);
        fs::write(tasks.join(id).join("schedstat"), text).unwrap();
    }

    /// The three times of a role add up to the lives of its threads; those of ended threads stay, and a
    /// number that the kernel gives to another thread is that thread's.
    #[test]
    fn times_of_a_role_are_the_lives_of_its_threads() {
        let tasks = tempfile::tempdir().unwrap();
        let (tasks, mut times, start) = (tasks.path(), ThreadTimes::default(), Instant::now());
        thread(tasks, "1", "writer", 100, 0);
        thread(tasks, "2", "reader", 0, 0);
        thread(tasks, "3", "reader", 0, 0);
        fs::write(tasks.join("note"), "no thread").unwrap();
        times.read_from(tasks, start);
        thread(tasks, "1", "writer", 400, 200);
        thread(tasks, "2", "reader", 1_000, 0);
        fs::remove_dir_all(tasks.join("3")).unwrap();
        times.read_from(tasks, start + SECOND);
        let ms = |role: &str| {
            let role = &times.roles()[role];
            (role.threads, role.cpu.as_millis(), role.queue.as_millis(), role.wait.as_millis())
        };
        assert_eq!(ms("writer"), (1, 400, 200, 500));
        assert_eq!(ms("reader"), (1, 1_000, 0, 0));
        thread(tasks, "2", "writer", 10, 0);
        times.read_from(tasks, start + 2 * SECOND);
        let role = |role: &str| times.roles()[role].clone();
        assert_eq!((role("reader").threads, role("reader").cpu.as_millis()), (0, 1_000));
        assert_eq!((role("writer").threads, role("writer").cpu.as_millis()), (2, 410));
    }

    /// The kernel has the counters of the threads of this process.
    #[test]
    fn threads_of_this_process_are_read() {
        let mut times = ThreadTimes::default();
        times.read();
        assert!(times.roles().values().map(|role| role.threads).sum::<u64>() >= 1);
    }
}
