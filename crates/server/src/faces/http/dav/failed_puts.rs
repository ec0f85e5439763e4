//! PUTs that failed lately. Some clients (rclone) send DELETE after one, which must not remove what was
//! there before.

use std::time::{Duration, Instant};

use exacat_model::Lfn;
use parking_lot::Mutex;

/// Time after a failed PUT in which the client's DELETE of the name is refused once.
const CLEAN_UP_TIME: Duration = Duration::from_secs(30);
/// Most failed PUTs that are remembered, about 5 KiB each.
const FAILED_PUTS_MAX: usize = 4096;
/// Most of them of one user, so that nobody makes the server forget those of others.
const FAILED_PUTS_PER_USER_MAX: usize = 256;

/// Names whose PUT failed lately, with their users, the oldest first.
#[derive(Default)]
pub(crate) struct FailedPuts(Mutex<Vec<(Instant, String, Lfn)>>);

impl FailedPuts {
    pub(crate) fn add(&self, user: &str, lfn: Lfn) {
        let mut all = self.0.lock();
        all.retain(|(when, ..)| when.elapsed() < CLEAN_UP_TIME);
        let is_own = |(_, who, _): &(Instant, String, Lfn)| who == user;
        if all.iter().filter(|one| is_own(one)).count() >= FAILED_PUTS_PER_USER_MAX
            && let Some(oldest) = all.iter().position(is_own)
        {
            all.remove(oldest);
        }
        if all.len() >= FAILED_PUTS_MAX {
            all.remove(0);
        }
        all.push((Instant::now(), user.to_owned(), lfn));
    }

    /// Forgets the failed PUT of a name by a user; false if there was none lately.
    pub(crate) fn take(&self, user: &str, lfn: &Lfn) -> bool {
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
        let user = |number: usize| format!("u{}", number / FAILED_PUTS_PER_USER_MAX);
        (0..=FAILED_PUTS_MAX).for_each(|number| puts.add(&user(number), lfn(number)));
        let take = |number: usize| puts.take(&user(number), &lfn(number));
        assert!(!take(0) && take(1) && take(FAILED_PUTS_MAX));
    }

    #[test]
    fn user_with_many_failed_puts_displaces_only_its_own() {
        let puts = FailedPuts::default();
        let lfn = |number: usize| Lfn::parse(&format!("/f{number}")).unwrap();
        puts.add("b", lfn(0));
        (0..=FAILED_PUTS_PER_USER_MAX).for_each(|number| puts.add("a", lfn(number)));
        assert!(!puts.take("a", &lfn(0)) && puts.take("a", &lfn(1)));
        assert_eq!(puts.0.lock().len(), FAILED_PUTS_PER_USER_MAX, "b's and the others of a");
        assert!(puts.take("b", &lfn(0)));
    }
}
