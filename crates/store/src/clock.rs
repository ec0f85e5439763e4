//! Clocks: the machine's, and one that rejects a jump ahead.
//!
//! A clock that is ahead would date changes ahead, which no later change can undo, and end entries
//! that have not expired. So dates and expiry use [`Clock::trusted`]. It starts at the time of the
//! last known change and adds the time that has really passed since, as the kernel counts it. The
//! machine's clock is trusted as long as it is at most [`CLOCK_JUMP`] ahead of that, or once an
//! operator confirms it. A file keeps the trusted time for the next start (`kept_time.rs`).

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use exacat_model::TimeMs;
use parking_lot::Mutex;

use crate::kept_time::KeptTime;

/// Default maximum lead of a clock over the time that has really passed, in milliseconds: a day.
pub const CLOCK_JUMP: u64 = 24 * 3600 * 1000;

/// Range that an operator may set it to.
pub const CLOCK_JUMP_RANGE: std::ops::RangeInclusive<u64> = 60_000..=365 * 24 * 3600 * 1000;

/// A clock. All time enters the catalogue through this trait, so that a test can control it.
pub trait Clock: Send + Sync + 'static {
    /// Returns the time of the machine's clock, right or wrong. Only for uses where an error ends
    /// something too early but destroys nothing, like tokens.
    fn now(&self) -> TimeMs;

    /// Returns the time for the dates of changes, and for expiry, purge and retention. It is behind
    /// the machine's clock while that is ahead without a reason.
    fn trusted(&self) -> TimeMs {
        self.now()
    }

    /// Takes in the time of the last change of a catalogue that is opened.
    fn opened(&self, last_change: TimeMs) {
        let _ = last_change;
    }

    /// Loads the time that an earlier process kept in this file, and makes [`Clock::keep`] write
    /// there. Callers use it before they open a catalogue.
    fn keep_in(&self, file: &Path) {
        let _ = file;
    }

    /// Saves the trusted time durably for the next start, if [`Clock::keep_in`] named a file.
    fn keep(&self) -> io::Result<()> {
        Ok(())
    }

    /// Takes in the time of a change by another server of the catalogue.
    fn witness(&self, change: TimeMs) {
        let _ = change;
    }

    /// Returns the lead of the machine's clock over the trusted time; none if the clock is trusted.
    fn jump(&self) -> Option<ClockJump> {
        None
    }

    /// Trusts the machine's clock from now on. Returns the jump that it confirmed, if there was
    /// one.
    fn confirm(&self) -> Option<ClockJump> {
        None
    }
}

/// The lead of a clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClockJump {
    /// The machine's clock.
    pub machine: TimeMs,
    /// The trusted time.
    pub trusted: TimeMs,
}

impl ClockJump {
    /// Returns the lead in milliseconds.
    pub fn ahead_ms(&self) -> u64 {
        self.machine.0.saturating_sub(self.trusted.0)
    }
}

impl std::fmt::Display for ClockJump {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let ClockJump { machine, trusted } = self;
        let hours = self.ahead_ms() / 3_600_000;
        write!(
            out,
            "the machine's clock says {machine}, {hours} hours ahead of {trusted}, the time of the last change and the time that passed since: changes are dated with the latter, and purge, expiry and retention wait"
        )
    }
}

/// The machine's clock.
#[derive(Clone, Copy, Debug, Default)]
pub struct SystemClock;

impl Clock for SystemClock {
    #[allow(clippy::disallowed_methods, reason = "the one place where real time enters")]
    fn now(&self) -> TimeMs {
        let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
        TimeMs(u64::try_from(since.as_millis()).unwrap_or(u64::MAX))
    }
}

/// A counter of the time that really passes; nobody can set it.
pub trait Uptime: Send + Sync + 'static {
    /// Returns milliseconds since some moment, including those in which the machine slept.
    fn elapsed_ms(&self) -> u64;

    /// Names that moment; counts with different names are not comparable.
    fn boot(&self) -> Option<String> {
        None
    }
}

/// The kernel's count since the machine started.
#[derive(Clone, Copy, Debug, Default)]
pub struct SystemUptime;

impl Uptime for SystemUptime {
    fn elapsed_ms(&self) -> u64 {
        let time = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
        let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
        seconds.saturating_mul(1000).saturating_add(u64::try_from(time.tv_nsec).unwrap_or(0) / 1_000_000)
    }

    fn boot(&self) -> Option<String> {
        let id = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").ok()?;
        let id = id.trim();
        (!id.is_empty() && id.len() <= 64 && !id.contains(char::is_whitespace)).then(|| id.to_owned())
    }
}

/// A pair of trusted time and kernel count.
#[derive(Clone, Copy, Debug)]
struct Anchor {
    time: TimeMs,
    elapsed_ms: u64,
    /// True once a lead of the machine's clock was logged.
    warned: bool,
}

/// A clock that trusts the machine's clock up to a limit beyond the time that has really passed.
pub struct WatchedClock {
    machine: Arc<dyn Clock>,
    uptime: Arc<dyn Uptime>,
    jump_ms: u64,
    /// None before the first use.
    anchor: Mutex<Option<Anchor>>,
    /// File that keeps the time, and the time that an earlier process kept there, carried forward
    /// to now.
    kept: Mutex<Option<(PathBuf, Option<TimeMs>)>>,
}

impl WatchedClock {
    /// Watches `machine`, which may be ahead by `jump_ms`.
    pub fn new(machine: Arc<dyn Clock>, uptime: Arc<dyn Uptime>, jump_ms: u64) -> Self {
        WatchedClock { machine, uptime, jump_ms, anchor: Mutex::new(None), kept: Mutex::new(None) }
    }

    /// Watches the machine's clock by the kernel's count.
    pub fn of_system(jump_ms: u64) -> Self {
        Self::new(Arc::new(SystemClock), Arc::new(SystemUptime), jump_ms)
    }

    /// Returns the machine's clock; and, if that is too far ahead, the time to trust instead.
    fn read(&self) -> (TimeMs, Option<TimeMs>) {
        let (machine, elapsed_ms) = (self.machine.now(), self.uptime.elapsed_ms());
        let mut held = self.anchor.lock();
        let anchor = held.get_or_insert(Anchor { time: machine, elapsed_ms, warned: false });
        let expected = anchor.time.plus_ms(elapsed_ms.saturating_sub(anchor.elapsed_ms));
        let ahead = machine > expected.plus_ms(self.jump_ms);
        if ahead != anchor.warned {
            anchor.warned = ahead;
            if ahead {
                let jump = ClockJump { machine, trusted: expected };
                tracing::warn!(%jump, "the clock jumped ahead; if it is right: exacat clock confirm");
            } else {
                tracing::info!(%machine, "the clock is no longer ahead of the time that has passed");
            }
        }
        (machine, ahead.then_some(expected))
    }

    fn set(&self, time: TimeMs) {
        let elapsed_ms = self.uptime.elapsed_ms();
        let mut held = self.anchor.lock();
        let warned = held.is_some_and(|anchor| anchor.warned);
        *held = Some(Anchor { time, elapsed_ms, warned });
    }
}

impl Clock for WatchedClock {
    fn now(&self) -> TimeMs {
        self.machine.now()
    }

    fn trusted(&self) -> TimeMs {
        let (machine, expected) = self.read();
        expected.unwrap_or(machine)
    }

    fn opened(&self, last_change: TimeMs) {
        let machine = self.machine.now();
        let kept = self.kept.lock().as_ref().and_then(|(_, kept)| *kept);
        let last_known = kept.map_or(last_change, |kept| kept.max(last_change));
        let jumped = machine > last_known.plus_ms(self.jump_ms);
        if last_change > machine.plus_ms(self.jump_ms) {
            tracing::warn!(
                %last_change, %machine,
                "the last change is dated far ahead of the machine's clock: later changes get its time until then"
            );
        }
        // A clock that is behind now and corrected later does not jump then, because the last known
        // time confirms the corrected one.
        self.set(if jumped { last_known } else { machine.max(last_known) });
        self.read();
    }

    fn keep_in(&self, file: &Path) {
        let kept = match KeptTime::load(file) {
            Ok(kept) => kept,
            Err(error) => {
                // The last change still bounds the clock.
                tracing::warn!(file = %file.display(), %error, "the kept time cannot be read");
                None
            }
        };
        let carried = kept.map(|kept| kept.carried(self.uptime.boot().as_deref(), self.uptime.elapsed_ms()));
        *self.kept.lock() = Some((file.to_owned(), carried));
    }

    fn keep(&self) -> io::Result<()> {
        // Held during the write: two writers would share the fresh file.
        let kept = self.kept.lock();
        let Some((file, _)) = kept.as_ref() else { return Ok(()) };
        let time = self.trusted();
        let boot = self.uptime.boot().map(|boot| (boot, self.uptime.elapsed_ms()));
        KeptTime { time, boot }.save(file)
    }

    fn witness(&self, change: TimeMs) {
        let machine = self.machine.now();
        // Another server, which checks its own clock, reads about the same time.
        if machine <= change.plus_ms(self.jump_ms) && self.jump().is_some() {
            self.set(machine);
            self.read();
        }
    }

    fn jump(&self) -> Option<ClockJump> {
        let (machine, expected) = self.read();
        expected.map(|trusted| ClockJump { machine, trusted })
    }

    fn confirm(&self) -> Option<ClockJump> {
        let jump = self.jump()?;
        self.set(jump.machine);
        self.read();
        Some(jump)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering};

    use super::*;

    const DAY: u64 = 24 * 3600 * 1000;
    const START: u64 = 20_000 * DAY;

    /// A clock and a kernel count that the test sets.
    #[derive(Clone, Default)]
    struct Turned {
        machine: Arc<AtomicU64>,
        uptime: Arc<AtomicU64>,
        boots: Arc<AtomicU64>,
    }

    impl Clock for Turned {
        fn now(&self) -> TimeMs {
            TimeMs(self.machine.load(Ordering::SeqCst))
        }
    }

    impl Uptime for Turned {
        fn elapsed_ms(&self) -> u64 {
            self.uptime.load(Ordering::SeqCst)
        }

        fn boot(&self) -> Option<String> {
            Some(self.boots.load(Ordering::SeqCst).to_string())
        }
    }

    impl Turned {
        fn new() -> (Self, WatchedClock) {
            let turned = Turned::default();
            turned.machine.store(START, Ordering::SeqCst);
            turned.uptime.store(7 * DAY, Ordering::SeqCst);
            let clock = turned.watched();
            (turned, clock)
        }

        fn watched(&self) -> WatchedClock {
            WatchedClock::new(Arc::new(self.clone()), Arc::new(self.clone()), CLOCK_JUMP)
        }

        /// Starts a process that finds the file of an earlier one.
        fn restarted(&self, file: &Path, last_change: TimeMs) -> WatchedClock {
            let clock = self.watched();
            clock.keep_in(file);
            clock.opened(last_change);
            clock
        }

        /// Restarts the machine: its count begins at a low value again.
        fn reboot(&self) {
            self.boots.fetch_add(1, Ordering::SeqCst);
            self.uptime.store(1000, Ordering::SeqCst);
        }

        fn pass(&self, ms: u64) {
            self.machine.fetch_add(ms, Ordering::SeqCst);
            self.uptime.fetch_add(ms, Ordering::SeqCst);
        }

        fn set_ahead(&self, ms: u64) {
            self.machine.fetch_add(ms, Ordering::SeqCst);
        }
    }

    /// Goal: the limit is exact. Beyond it, trusted time follows the time that really passes until
    /// the clock is right again.
    #[test]
    fn clock_ahead_by_more_than_the_limit_is_not_trusted() {
        let (turned, clock) = Turned::new();
        clock.opened(TimeMs(START - 5));
        turned.set_ahead(CLOCK_JUMP);
        assert_eq!((clock.trusted(), clock.jump()), (TimeMs(START + DAY), None));
        turned.set_ahead(1);
        assert_eq!(clock.trusted(), TimeMs(START));
        assert_eq!(clock.jump().map(|jump| jump.ahead_ms()), Some(DAY + 1));
        turned.pass(3 * DAY);
        assert_eq!((clock.trusted(), clock.now()), (TimeMs(START + 3 * DAY), TimeMs(START + 4 * DAY + 1)));
        turned.machine.store(START + 3 * DAY + 9, Ordering::SeqCst);
        assert_eq!((clock.trusted(), clock.jump()), (TimeMs(START + 3 * DAY + 9), None));
    }

    /// Goal: small jumps do not add up to a large one.
    #[test]
    fn clock_that_jumps_often_is_not_trusted_beyond_the_limit() {
        let (turned, clock) = Turned::new();
        clock.opened(TimeMs(START));
        for _ in 0..50 {
            turned.set_ahead(CLOCK_JUMP / 4);
            turned.pass(10);
            clock.trusted();
        }
        assert_eq!(clock.trusted(), TimeMs(START + 500));
    }

    /// Goal: if the clock is ahead at opening, the last change holds it back until an operator
    /// confirms it.
    #[test]
    fn clock_ahead_at_opening_is_held_back_until_it_is_confirmed() {
        let (turned, clock) = Turned::new();
        clock.opened(TimeMs(START - 45 * DAY));
        turned.pass(1000);
        assert_eq!(clock.trusted(), TimeMs(START - 45 * DAY + 1000));
        let jump = clock.jump().unwrap();
        assert_eq!((jump.machine, jump.ahead_ms()), (TimeMs(START + 1000), 45 * DAY));
        assert_eq!(clock.confirm(), Some(jump));
        assert_eq!((clock.trusted(), clock.jump(), clock.confirm()), (TimeMs(START + 1000), None, None));
    }

    /// Goal: a machine that starts with its clock far behind, and then corrects it, has no jump
    /// ahead.
    #[test]
    fn clock_that_starts_behind_and_is_put_right_is_trusted() {
        let (turned, clock) = Turned::new();
        turned.machine.store(START - 45 * DAY, Ordering::SeqCst);
        clock.opened(TimeMs(START));
        assert_eq!((clock.trusted(), clock.jump()), (TimeMs(START - 45 * DAY), None));
        turned.machine.store(START + 10, Ordering::SeqCst);
        assert_eq!((clock.trusted(), clock.jump()), (TimeMs(START + 10), None));
    }

    /// Goal: trusted time follows a step back; the way forward again is no jump.
    #[test]
    fn clock_that_steps_back_is_followed_there_and_back() {
        let (turned, clock) = Turned::new();
        clock.opened(TimeMs(START));
        turned.machine.store(START - 45 * DAY, Ordering::SeqCst);
        assert_eq!((clock.trusted(), clock.jump()), (TimeMs(START - 45 * DAY), None));
        turned.machine.store(START + 10, Ordering::SeqCst);
        assert_eq!((clock.trusted(), clock.jump()), (TimeMs(START + 10), None));
    }

    /// Goal: a sleeping machine or a stopped process causes no jump.
    #[test]
    fn pause_that_the_kernel_counted_is_no_jump() {
        let (turned, clock) = Turned::new();
        clock.opened(TimeMs(START));
        turned.pass(40 * DAY);
        assert_eq!((clock.trusted(), clock.jump()), (TimeMs(START + 40 * DAY), None));
    }

    /// Goal: another server's change confirms the clock; a change from before the limit does not.
    #[test]
    fn change_of_another_server_vouches_for_the_clock() {
        let (_turned, clock) = Turned::new();
        clock.opened(TimeMs(START - 45 * DAY));
        clock.witness(TimeMs(START - 2 * DAY));
        assert!(clock.jump().is_some());
        clock.witness(TimeMs(START - DAY));
        assert_eq!((clock.jump(), clock.trusted()), (None, TimeMs(START)));
    }

    /// Goal: an idle or long stopped server needs no confirmation at its next start if the kernel
    /// counted the time.
    #[test]
    fn idle_time_that_was_counted_is_no_jump_at_the_next_start() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("clock");
        let (turned, _) = Turned::new();
        let last_change = TimeMs(START);
        let clock = turned.restarted(&file, last_change);
        turned.pass(40 * DAY);
        clock.keep().unwrap();
        // Stopped for 30 days while the machine runs.
        turned.pass(30 * DAY);
        let clock = turned.restarted(&file, last_change);
        assert_eq!((clock.jump(), clock.trusted()), (None, TimeMs(START + 70 * DAY)));
        clock.keep().unwrap();
        // The machine restarts within the limit, and then beyond it.
        turned.reboot();
        turned.machine.fetch_add(DAY, Ordering::SeqCst);
        assert_eq!(turned.restarted(&file, last_change).jump(), None);
        turned.machine.fetch_add(1, Ordering::SeqCst);
        assert!(turned.restarted(&file, last_change).jump().is_some());
    }

    /// Goal: a confirmed clock, and nothing else, is trusted after a restart.
    #[test]
    fn confirmed_clock_is_believed_after_a_restart() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("clock");
        let (turned, _) = Turned::new();
        let last_change = TimeMs(START - 45 * DAY);
        let clock = turned.restarted(&file, last_change);
        clock.keep().unwrap();
        turned.reboot();
        let clock = turned.restarted(&file, last_change);
        assert!(clock.jump().is_some(), "a start alone confirms nothing");
        clock.confirm();
        clock.keep().unwrap();
        turned.reboot();
        let clock = turned.restarted(&file, last_change);
        assert_eq!((clock.jump(), clock.trusted()), (None, TimeMs(START)));
        // A damaged file counts as no file.
        std::fs::write(&file, "exacat clock\n").unwrap();
        assert!(turned.restarted(&file, last_change).jump().is_some());
    }

    /// Goal: a clock that is ahead never confirms itself, however often the time is kept.
    #[test]
    fn clock_that_is_ahead_is_never_kept() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("clock");
        let (turned, _) = Turned::new();
        for start in 0..5 {
            turned.machine.store(START + 45 * DAY, Ordering::SeqCst);
            turned.reboot();
            let clock = turned.restarted(&file, TimeMs(START));
            clock.keep().unwrap();
            assert_eq!(clock.trusted(), TimeMs(START), "start {start}");
        }
    }

    #[test]
    fn count_of_the_kernel_does_not_go_back() {
        let first = SystemUptime.elapsed_ms();
        assert!(first > 0 && SystemUptime.elapsed_ms() >= first);
    }
}
