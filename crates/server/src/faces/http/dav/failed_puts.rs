//! PUTs that failed lately. Some clients (rclone) send DELETE after one, which must not remove what was
//! there before.

use std::time::{Duration, Instant};

use exacat_model::Lfn;
use parking_lot::Mutex;

/// Time after a failed PUT in which the client's DELETE of the name is refused once.
const CLEAN_UP_TIME: Duration = Duration::from_secs(30);
/// Most failed PUTs that are remembered.
const FAILED_PUTS_MAX: usize = 4096;

/// Names whose PUT failed lately, with their users, the oldest first.
#[derive(Default)]
pub(crate) struct FailedPuts(Mutex<Vec<(Instant, String, Lfn)>>);

impl FailedPuts {
    pub fn add(&self, user: &str, lfn: Lfn) {
        let mut all = self.0.lock();
        all.retain(|(when, ..)| when.elapsed() < CLEAN_UP_TIME);
        if all.len() >= FAILED_PUTS_MAX {
            all.remove(0);
        }
        all.push((Instant::now(), user.to_owned(), lfn));
    }

    /// Forgets the failed PUT of a name by a user; false if there was none lately.
    pub fn take(&self, user: &str, lfn: &Lfn) -> bool {
        let mut all = self.0.lock();
        let is_it = |(when, who, name): &(Instant, String, Lfn)| {
            when.elapsed() < CLEAN_UP_TIME && who == user && name == lfn
        };
        let before = all.len();
        all.retain(|one| !is_it(one));
        all.len() < before
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failed_put_is_remembered_once_and_the_oldest_go_first() {
        let puts = FailedPuts::default();
        let lfn = |number: usize| Lfn::parse(&format!("/f{number}")).unwrap();
        puts.add("a", lfn(0));
        assert!(!puts.take("b", &lfn(0)) && !puts.take("a", &lfn(1)));
        assert!(puts.take("a", &lfn(0)));
        assert!(!puts.take("a", &lfn(0)));
        (0..=FAILED_PUTS_MAX).for_each(|number| puts.add("a", lfn(number)));
        assert!(!puts.take("a", &lfn(0)) && puts.take("a", &lfn(1)) && puts.take("a", &lfn(FAILED_PUTS_MAX)));
    }
}
