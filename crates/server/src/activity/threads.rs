//! Times of the server's threads by role, from the kernel's counters.

use std::collections::{BTreeMap, HashMap};
use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use exacat_activity::Recorded;

use crate::process::ticks_per_second;

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
    /// Waiting for a block device, a part of `wait`; 0 unless the kernel counts it.
    pub io: Duration,
    /// Times at which one of them was put on a processor.
    pub stretches: u64,
    /// Microseconds of the stretches on a processor, and of those off it. The kernel has no length of each
    /// stretch, so these are means of a thread between two readings, as often as it had stretches.
    pub on: Recorded,
    pub off: Recorded,
}

/// Counters of a thread, as the kernel has them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Schedule {
    cpu: Duration,
    queue: Duration,
    /// 0 unless the kernel counts it.
    io: Duration,
    stretches: u64,
}

/// Counters of one thread at the last reading.
struct Seen {
    role: String,
    schedule: Schedule,
    at: Instant,
}

impl RoleTimes {
    /// Adds what a thread did since it was seen.
    fn add(&mut self, seen: &Seen, now_at: Schedule, now: Instant) {
        let on = now_at.cpu.saturating_sub(seen.schedule.cpu);
        let queue = now_at.queue.saturating_sub(seen.schedule.queue);
        let off = now.saturating_duration_since(seen.at).saturating_sub(on);
        self.cpu += on;
        self.queue += queue;
        let wait = off.saturating_sub(queue);
        self.wait += wait;
        // The kernel adds it at the end of a wait, which may have begun before the last reading.
        self.io += now_at.io.saturating_sub(seen.schedule.io).min(wait);
        let stretches = now_at.stretches.saturating_sub(seen.schedule.stretches);
        self.stretches += stretches;
        if stretches > 0 {
            let mean = |time: Duration| u64::try_from(time.as_micros()).unwrap_or(u64::MAX) / stretches;
            self.on.record(mean(on), stretches);
            self.off.record(mean(off), stretches);
        }
    }
}

/// Sums over threads, also over those that ended. What a thread did after its last reading is not in
/// them.
#[derive(Default)]
pub(crate) struct ThreadTimes {
    threads: HashMap<u32, Seen>,
    roles: BTreeMap<String, RoleTimes>,
    counts_io: bool,
}

impl ThreadTimes {
    /// Reads the counters of all threads.
    pub(crate) fn read(&mut self) {
        // An operator may change it while the server runs.
        let setting = fs::read_to_string("/proc/sys/kernel/task_delayacct");
        self.counts_io = setting.is_ok_and(|setting| setting.trim_ascii() == "1");
        self.read_from(Path::new("/proc/self/task"), Instant::now());
    }

    /// True if the kernel counts waits for block devices.
    pub(crate) fn counts_io(&self) -> bool {
        self.counts_io
    }

    fn read_from(&mut self, tasks: &Path, now: Instant) {
        let mut before = std::mem::take(&mut self.threads);
        self.roles.values_mut().for_each(|role| role.threads = 0);
        let Ok(listed) = fs::read_dir(tasks) else { return };
        for task in listed.flatten() {
            let Some(id) = task.file_name().to_str().and_then(|name| name.parse().ok()) else { continue };
            // A thread may end between the list and the reading.
            let Some(mut now_at) = schedule(&task.path()) else { continue };
            if self.counts_io {
                let Ok(stat) = fs::read_to_string(task.path().join("stat")) else { continue };
                now_at.io = io_wait(&stat, ticks_per_second());
            }
            let known = before.remove(&id);
            // A number that the kernel gave to another thread has smaller counters.
            let known = known.filter(|Seen { schedule: Schedule { cpu, queue, stretches, .. }, .. }| {
                *cpu <= now_at.cpu && *queue <= now_at.queue && *stretches <= now_at.stretches
            });
            let seen = match known {
                Some(seen) => seen,
                None => {
                    let Ok(role) = fs::read_to_string(task.path().join("comm")) else { continue };
                    let at = now - (now_at.cpu + now_at.queue).min(SECOND);
                    let schedule = Schedule::default();
                    Seen { role: role.trim_end().to_owned(), schedule, at }
                }
            };
            let role = self.roles.entry(seen.role.clone()).or_default();
            role.threads += 1;
            role.add(&seen, now_at, now);
            self.threads.insert(id, Seen { role: seen.role, schedule: now_at, at: now });
        }
    }

    /// Returns the sums of each role.
    pub(crate) fn roles(&self) -> &BTreeMap<String, RoleTimes> {
        &self.roles
    }
}

/// Longest life that a thread is given at its first reading.
const SECOND: Duration = Duration::from_secs(1);

/// Returns the counters of a thread.
fn schedule(task: &Path) -> Option<Schedule> {
    let text = fs::read_to_string(task.join("schedstat")).ok()?;
    let mut numbers = text.split_ascii_whitespace().map_while(|number| number.parse().ok());
    let mut time = || numbers.next().map(Duration::from_nanos);
    let (cpu, queue) = (time()?, time()?);
    Some(Schedule { cpu, queue, stretches: numbers.next()?, io: Duration::ZERO })
}

/// Field `delayacct_blkio_ticks` of a thread's `stat` behind the name, by its number in proc(5) less 3.
const IO_TICKS: usize = 39;

/// Returns the time in which a thread waited for block devices; none in a text of another form.
fn io_wait(stat: &str, ticks_per_second: u64) -> Duration {
    // The name of a thread may have spaces and parentheses.
    let field = stat.rsplit_once(')').and_then(|(_, rest)| rest.split_ascii_whitespace().nth(IO_TICKS));
    let ticks: u64 = field.and_then(|field| field.parse().ok()).unwrap_or(0);
    Duration::from_millis(ticks.saturating_mul(1000) / ticks_per_second)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn thread(tasks: &Path, id: &str, role: &str, cpu_ms: u64, queue_ms: u64) {
        thread_with(tasks, id, role, (cpu_ms, queue_ms, 7));
    }

    fn thread_with(tasks: &Path, id: &str, role: &str, (cpu_ms, queue_ms, stretches): (u64, u64, u64)) {
        fs::create_dir_all(tasks.join(id)).unwrap();
        fs::write(tasks.join(id).join("comm"), format!("{role}\n")).unwrap();
        let text = format!("{} {} {stretches}\n", cpu_ms * 1_000_000, queue_ms * 1_000_000);
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

    /// Stretches count as often as there were, with their mean in a second; a thread without one has none.
    #[test]
    fn stretches_are_means_of_a_second() {
        let tasks = tempfile::tempdir().unwrap();
        let (tasks, mut times, start) = (tasks.path(), ThreadTimes::default(), Instant::now());
        thread_with(tasks, "1", "busy", (0, 0, 0));
        thread_with(tasks, "2", "idle", (0, 0, 0));
        times.read_from(tasks, start);
        thread_with(tasks, "1", "busy", (400, 100, 100));
        times.read_from(tasks, start + SECOND);
        let busy = &times.roles()["busy"];
        assert_eq!((busy.stretches, busy.on.count(), busy.off.count()), (100, 100, 100));
        assert_eq!((busy.on.sum_us(), busy.off.sum_us()), (400_000, 600_000));
        assert!((4000..=4600).contains(&busy.on.quantile_us(0.5)), "4 ms each");
        assert!((6000..=6900).contains(&busy.off.max_us()), "6 ms between two of them");
        let idle = &times.roles()["idle"];
        assert_eq!((idle.stretches, idle.on.count(), idle.wait), (0, 0, SECOND));
    }

    /// Waits for block devices are a part of the wait, and never more; a kernel that does not count them has
    /// none, whatever its text says.
    #[test]
    fn waits_for_the_disk_are_a_part_of_the_wait() {
        assert_eq!(
            io_wait(&format!("7 (x) S {}", "1 ".repeat(38) + "250 9"), 100),
            Duration::from_millis(2500)
        );
        assert_eq!(
            io_wait(&format!("7 (x y) z) S {}", "1 ".repeat(38) + "250"), 1000),
            Duration::from_millis(250)
        );
        for none in ["", "7 (x) S 1 2 3", "no parenthesis", &format!("7 (x) S {}", "1 ".repeat(38) + "x")] {
            assert_eq!(io_wait(none, 100), Duration::ZERO, "{none}");
        }
        for (counts_io, expected_ms) in [(true, [300, 700]), (false, [0, 0])] {
            let tasks = tempfile::tempdir().unwrap();
            let start = Instant::now();
            let mut times = ThreadTimes { counts_io, ..ThreadTimes::default() };
            let write = |cpu_ms, ticks: u64| {
                thread(tasks.path(), "1", "writer", cpu_ms, 0);
                let stat = format!("1 (writer) D {}{ticks} 0 0", "0 ".repeat(IO_TICKS - 1));
                fs::write(tasks.path().join("1/stat"), stat).unwrap();
            };
            let ticks = |ms: u64| ms * ticks_per_second() / 1000;
            write(0, ticks(500));
            times.read_from(tasks.path(), start);
            let first = times.roles()["writer"].io;
            write(100, ticks(800));
            times.read_from(tasks.path(), start + SECOND);
            assert_eq!((times.roles()["writer"].io - first).as_millis(), expected_ms[0]);
            // The kernel tells ten seconds at the end of one wait: those before are gone.
            write(400, ticks(10_800));
            times.read_from(tasks.path(), start + 2 * SECOND);
            assert_eq!((times.roles()["writer"].io - first).as_millis(), expected_ms[0] + expected_ms[1]);
        }
    }

    /// The kernel has the counters of the threads of this process.
    #[test]
    fn threads_of_this_process_are_read() {
        let mut times = ThreadTimes::default();
        times.read();
        assert!(times.roles().values().map(|role| role.threads).sum::<u64>() >= 1);
    }
}
