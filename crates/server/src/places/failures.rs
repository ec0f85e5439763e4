//! Storage elements where clients had failures. A client's report is no proof. So it only ranks a
//! storage element behind others for a while, and never excludes it.

use std::collections::HashMap;
use std::net::IpAddr;
use std::time::{Duration, Instant};

use exacat_model::SeNumber;
use parking_lot::Mutex;

/// Failures within `WINDOW` that make a storage element doubtful.
const MANY: usize = 3;
/// Time in which failures count.
const WINDOW: Duration = Duration::from_secs(300);
/// Time in which a second failure of the same client does not count.
const SAME: Duration = Duration::from_secs(5);

/// The last failures at each storage element, the oldest first.
#[derive(Default)]
pub(super) struct Failures {
    // At most MANY for each storage element.
    last: Mutex<HashMap<SeNumber, Vec<(Instant, IpAddr)>>>,
}

impl Failures {
    pub(crate) fn add(&self, se: SeNumber, client: IpAddr, now: Instant) {
        let mut all = self.last.lock();
        let last = all.entry(se).or_default();
        let said = last.iter().any(|(when, who)| *who == client && now.duration_since(*when) < SAME);
        if said {
            return;
        }
        if last.len() >= MANY {
            last.remove(0);
        }
        last.push((now, client));
        if last.len() == MANY && Self::many(last, now) {
            tracing::warn!(
                se = se.0,
                "clients meet with failure at a storage element: others are tried first"
            );
        }
    }

    pub(crate) fn are_many(&self, se: SeNumber, now: Instant) -> bool {
        self.last.lock().get(&se).is_some_and(|last| Self::many(last, now))
    }

    fn many(last: &[(Instant, IpAddr)], now: Instant) -> bool {
        last.len() >= MANY && last.iter().all(|(when, _)| now.duration_since(*when) < WINDOW)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn several_failures_put_a_storage_element_behind_others_for_a_while() {
        let failures = Failures::default();
        let (se, other) = (SeNumber(1), SeNumber(2));
        let client = |number: u8| IpAddr::from([10, 0, 0, number]);
        let start = Instant::now();
        let at = |seconds: u64| start + Duration::from_secs(seconds);
        failures.add(se, client(1), start);
        failures.add(se, client(1), at(1));
        failures.add(se, client(1), at(4));
        failures.add(se, client(2), at(4));
        assert!(!failures.are_many(se, at(4)), "one client says it once in a while");
        failures.add(se, client(1), at(5));
        assert!(failures.are_many(se, at(5)) && !failures.are_many(other, at(5)));
        assert!(failures.are_many(se, at(WINDOW.as_secs() - 1)));
        assert!(!failures.are_many(se, at(WINDOW.as_secs())), "it is given another chance");
        failures.add(se, client(3), at(WINDOW.as_secs()));
        assert!(failures.are_many(se, at(WINDOW.as_secs())), "which it did not use");
        for number in 0..100 {
            failures.add(se, client(number), at(500));
        }
        assert_eq!(failures.last.lock()[&se].len(), MANY);
    }
}
