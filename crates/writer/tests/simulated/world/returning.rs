//! A service of the simulated world that is away under load, and returns: the share of the load that it gets.

use super::World;

/// Time at which the first service ends, and at which it is back, in seconds.
const AWAY_AT: u64 = 20;
const BACK_AT: u64 = 30;
/// Time after its return within which the load must be even, in seconds.
const EVEN_WITHIN: u64 = 60;
/// Time over which loads are compared, in seconds.
const COMPARED: u64 = 10;
/// Distance from an even share that counts as even, in percent.
const EVEN_PERCENT: u64 = 20;

impl World {
    /// Runs until the first service was away, and back for a minute. Returns the seconds from its return to
    /// the begin of the first interval of [`COMPARED`] seconds in which the load was even.
    pub(crate) fn run_past_return(&mut self) -> u64 {
        while self.now < (BACK_AT + EVEN_WITHIN) * 1_000 {
            if self.now == AWAY_AT * 1_000 {
                self.kill(0, false);
                self.nodes[0].starts_at = BACK_AT * 1_000;
            }
            self.now += 1;
            self.step();
        }
        let is_even = self.is_even(AWAY_AT - COMPARED, COMPARED);
        assert!(is_even, "seed {}: even before the loss: {:?}", self.seed, self.arrived);
        assert_eq!(self.load(0, AWAY_AT + 1, BACK_AT - AWAY_AT - 1), 0, "it is away");
        assert!(self.load(1, AWAY_AT + 1, BACK_AT - AWAY_AT - 1) > 0, "the other one has the load");
        let ends = EVEN_WITHIN - COMPARED;
        let even = (0..=ends).find(|after| self.is_even(BACK_AT + after, COMPARED));
        let even = even.unwrap_or_else(|| panic!("seed {}: never even: {:?}", self.seed, self.arrived));
        let is_even = self.is_even(BACK_AT + ends, COMPARED);
        assert!(is_even, "seed {}: even at the end of the minute: {:?}", self.seed, self.arrived);
        for source in &mut self.sources {
            source.events_left = 0;
        }
        even
    }

    /// Returns the bytes that arrived at a service in an interval of seconds.
    fn load(&self, node: usize, from: u64, seconds: u64) -> u64 {
        (from..from + seconds).filter_map(|second| self.arrived.get(&(second, node))).sum()
    }

    fn is_even(&self, from: u64, seconds: u64) -> bool {
        let loads: Vec<u64> = (0..self.nodes.len()).map(|node| self.load(node, from, seconds)).collect();
        let all: u64 = loads.iter().sum();
        let is_even =
            |load: &u64| (load * loads.len() as u64 * 100).abs_diff(all * 100) <= all * EVEN_PERCENT;
        all > 0 && loads.iter().all(is_even)
    }
}
