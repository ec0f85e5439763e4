//! Faults on order: delays, errors, absent files, and files whose bytes contradict their checksum.

use std::time::Duration;

use exacat_model::{Error, Result};
use exacat_replay::content::ContentName;
use hashbrown::HashSet;

use super::limits::DELAY_MAX;

/// Faults of an origin. The same seed gives the same absent and wrong files.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Faults {
    /// Seed of all lots.
    pub seed: u64,
    /// Time before the answer to an open.
    pub open_delay: Duration,
    /// Time before the answer to a read. Reads that come together wait together.
    pub read_delay: Duration,
    /// Share of opens that fail, from 0 to 1.
    pub failing_opens: f64,
    /// Share of reads that fail, from 0 to 1.
    pub failing_reads: f64,
    /// Share of files that are not there, from 0 to 1.
    pub absent_share: f64,
    /// Files that are not there.
    pub absent: HashSet<String>,
    /// Share of files whose bytes contradict their checksum, from 0 to 1.
    pub wrong_share: f64,
    /// Files whose bytes contradict their checksum.
    pub wrong: HashSet<String>,
}

/// Lots of one seed are apart.
const ABSENT: u64 = 0xab5e_9700_0000_0001;
const WRONG: u64 = 0x3209_6000_0000_0002;
const OPEN: u64 = 0x09e9_0000_0000_0003;
const READ: u64 = 0x9ead_0000_0000_0004;

impl Faults {
    /// Checks shares and delays.
    ///
    /// # Errors
    /// Names the setting that is none.
    pub fn check(&self) -> Result<()> {
        let shares = [
            ("failing opens", self.failing_opens),
            ("failing reads", self.failing_reads),
            ("absent files", self.absent_share),
            ("wrong files", self.wrong_share),
        ];
        for (name, share) in shares {
            if !(0.0..=1.0).contains(&share) {
                return Err(Error::invalid(format!("the share of {name} is {share}: 0 to 1 are possible")));
            }
        }
        match self.open_delay.max(self.read_delay) > DELAY_MAX {
            true => Err(Error::invalid(format!("a delay is longer than {} s", DELAY_MAX.as_secs()))),
            false => Ok(()),
        }
    }

    /// Draws a lot for a number.
    fn hits(&self, kind: u64, number: u64, share: f64) -> bool {
        let mut random =
            fastrand::Rng::with_seed(self.seed ^ kind ^ number.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        share > 0.0 && random.f64() < share
    }

    /// Says whether a file is not there.
    pub(super) fn is_absent(&self, name: &str) -> bool {
        let lot = || self.hits(ABSENT, ContentName::of(name).number(), self.absent_share);
        self.absent.contains(name) || lot()
    }

    /// Says whether a file has other bytes than its checksum says.
    pub(super) fn is_wrong(&self, name: &str) -> bool {
        let lot = || self.hits(WRONG, ContentName::of(name).number(), self.wrong_share);
        self.wrong.contains(name) || lot()
    }

    /// Says whether the open with a number fails.
    pub(super) fn open_fails(&self, number: u64) -> bool {
        self.hits(OPEN, number, self.failing_opens)
    }

    /// Says whether the read with a number fails.
    pub(super) fn read_fails(&self, number: u64) -> bool {
        self.hits(READ, number, self.failing_reads)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Property: lots hit the share that was ordered, the same for one seed, and others for another.
    #[test]
    fn lots_hit_their_share() {
        let faults = Faults {
            seed: 7,
            failing_opens: 0.1,
            failing_reads: 0.1,
            absent_share: 0.2,
            ..Faults::default()
        };
        let opens: Vec<bool> = (0..20_000).map(|number| faults.open_fails(number)).collect();
        let count = opens.iter().filter(|fails| **fails).count();
        assert!((1800..2200).contains(&count), "{count}");
        assert!((0..20_000).all(|number| faults.open_fails(number) == opens[number as usize]));
        assert!((0..20_000).any(|number| faults.read_fails(number) != opens[number as usize]));
        let other = Faults { seed: 8, ..faults.clone() };
        assert!((0..20_000).any(|number| other.open_fails(number) != opens[number as usize]));
        let absent = (0..10_000).filter(|number| faults.is_absent(&format!("/f{number}"))).count();
        assert!((1800..2200).contains(&absent), "{absent}");
    }

    #[test]
    fn a_share_of_nothing_and_of_everything_are_exact() {
        let none = Faults { seed: 1, ..Faults::default() };
        let all = Faults { failing_opens: 1.0, wrong_share: 1.0, ..none.clone() };
        assert!((0..1000).all(|number| !none.open_fails(number) && all.open_fails(number)));
        assert!(
            (0..1000).all(|number| all.is_wrong(&number.to_string()) && !none.is_wrong(&number.to_string()))
        );
        let listed = Faults { absent: ["/a".to_owned()].into(), ..none };
        assert!(listed.is_absent("/a") && !listed.is_absent("/b"));
    }

    #[test]
    fn settings_that_are_none_are_refused() {
        let good = Faults { failing_opens: 1.0, open_delay: DELAY_MAX, ..Faults::default() };
        assert!(good.check().is_ok());
        assert!(Faults { failing_reads: 1.1, ..good.clone() }.check().is_err());
        assert!(Faults { wrong_share: f64::NAN, ..good.clone() }.check().is_err());
        assert!(Faults { absent_share: -0.1, ..good.clone() }.check().is_err());
        assert!(Faults { read_delay: DELAY_MAX + Duration::from_nanos(1), ..good }.check().is_err());
    }
}
