//! Time of a run: it passes while the run is running and its service is there.

/// Clock of a run, in microseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RunTime {
    /// Time that had passed when it was last set.
    elapsed_us: u64,
    /// The caller's time then; none while the clock stands.
    since_us: Option<u64>,
}

impl RunTime {
    /// Makes a clock that stands.
    pub fn standing(elapsed_us: u64) -> Self {
        RunTime { elapsed_us, since_us: None }
    }

    /// Returns the time of the run.
    pub fn elapsed_us(&self, now_us: u64) -> u64 {
        let passed = self.since_us.map_or(0, |since| now_us.saturating_sub(since));
        self.elapsed_us.saturating_add(passed)
    }

    /// Lets the time pass.
    pub fn start(&mut self, now_us: u64) {
        self.since_us.get_or_insert(now_us);
    }

    /// Lets the clock stand.
    pub fn stop(&mut self, now_us: u64) {
        *self = RunTime::standing(self.elapsed_us(now_us));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_passes_only_between_start_and_stop() {
        let mut time = RunTime::standing(5);
        assert_eq!(time.elapsed_us(100), 5);
        time.start(100);
        time.start(150);
        assert_eq!((time.elapsed_us(160), time.elapsed_us(90)), (65, 5), "a clock that goes back stops it");
        time.stop(170);
        assert_eq!(time.elapsed_us(1000), 75);
    }
}
