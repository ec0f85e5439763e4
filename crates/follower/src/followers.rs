//! Followers as their source sees them, and the files that it holds for them. None of it outlives the
//! process, and none of it holds the source back: a follower that is gone costs nothing.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use exacat_model::{Error, ErrorKind, Result, Revision};
use exacat_store::FixedFiles;
use parking_lot::Mutex;

use crate::limits::{AWAY_AFTER, COPIES_MAX, COPY_IDLE, FOLLOWERS_MAX, FORGOTTEN_AFTER};

/// A follower, as its source saw it last.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FollowerSeen {
    /// Its id.
    pub id: [u8; 16],
    /// Its host.
    pub host: String,
    /// The last change that is durable there.
    pub durable: Revision,
    /// Time since its last request.
    pub unseen: Duration,
}

/// Digits of a follower's id that people see.
const ID_DIGITS: usize = 8;

impl FollowerSeen {
    /// Returns the first digits of its id.
    pub fn name(&self) -> String {
        let mut name = exacat_disk::hex_of(self.id);
        name.truncate(ID_DIGITS);
        name
    }

    /// Says whether it does not ask any more.
    pub fn is_away(&self) -> bool {
        self.unseen >= AWAY_AFTER
    }
}

struct Seen {
    host: String,
    durable: Revision,
    at: Instant,
}

struct Held {
    files: Arc<dyn FixedFiles>,
    used: Instant,
}

/// Followers of a source.
#[derive(Default)]
pub struct Followers {
    seen: Mutex<BTreeMap<[u8; 16], Seen>>,
    copies: Mutex<(u64, BTreeMap<u64, Held>)>,
}

impl Followers {
    /// Notes a request of a follower that has everything up to `durable`.
    pub fn note(&self, id: [u8; 16], host: &str, durable: Revision) {
        let mut seen = self.seen.lock();
        let now = Instant::now();
        if !seen.contains_key(&id) {
            seen.retain(|_, one| now.saturating_duration_since(one.at) < FORGOTTEN_AFTER);
            while seen.len() >= FOLLOWERS_MAX {
                let oldest = seen.iter().min_by_key(|(_, one)| one.at).map(|(id, _)| *id);
                oldest.and_then(|oldest| seen.remove(&oldest));
            }
        }
        seen.insert(id, Seen { host: host.to_owned(), durable, at: now });
    }

    /// Returns the followers, in the order of their ids.
    pub fn list(&self) -> Vec<FollowerSeen> {
        let now = Instant::now();
        let shown = |(id, one): (&[u8; 16], &Seen)| FollowerSeen {
            id: *id,
            host: one.host.clone(),
            durable: one.durable,
            unseen: now.saturating_duration_since(one.at),
        };
        self.seen.lock().iter().map(shown).collect()
    }

    /// Holds the files of a copy, and returns its number. They are let go some time after they were used
    /// last.
    pub fn hold(self: &Arc<Self>, files: Arc<dyn FixedFiles>) -> Result<u64> {
        let number = {
            let mut copies = self.copies.lock();
            if copies.1.len() >= COPIES_MAX {
                let what = format!("{COPIES_MAX} followers copy the catalogue now: try again later");
                return Err(Error::new(ErrorKind::Busy, what));
            }
            copies.0 += 1;
            let number = copies.0;
            copies.1.insert(number, Held { files, used: Instant::now() });
            number
        };
        let followers = Arc::downgrade(self);
        tokio::spawn(async move {
            let mut left = COPY_IDLE;
            while !left.is_zero() {
                tokio::time::sleep(left).await;
                let Some(followers) = followers.upgrade() else { return };
                left = followers.idle_left(number);
            }
            if let Some(followers) = followers.upgrade() {
                followers.drop_copy(number);
            }
        });
        Ok(number)
    }

    /// Returns the time until a copy is let go; zero if that is now.
    fn idle_left(&self, number: u64) -> Duration {
        let copies = self.copies.lock();
        copies.1.get(&number).map_or(Duration::ZERO, |held| COPY_IDLE.saturating_sub(held.used.elapsed()))
    }

    /// Returns the files of a copy.
    pub fn copy(&self, number: u64) -> Result<Arc<dyn FixedFiles>> {
        let mut copies = self.copies.lock();
        let held = copies.1.get_mut(&number);
        let held = held.ok_or_else(|| Error::not_found("this copy is not held any more: begin another"))?;
        held.used = Instant::now();
        Ok(Arc::clone(&held.files))
    }

    /// Lets the files of a copy go.
    pub fn drop_copy(&self, number: u64) {
        let held = self.copies.lock().1.remove(&number);
        // Its links are removed here, without the lock.
        drop(held);
    }

    /// Returns the number of copies that are held.
    pub fn copies(&self) -> usize {
        self.copies.lock().1.len()
    }
}

#[cfg(test)]
mod tests {
    use exacat_store::FixedFile;

    use super::*;

    struct Nothing;

    impl FixedFiles for Nothing {
        fn revision(&self) -> Revision {
            Revision(0)
        }

        fn files(&self) -> &[FixedFile] {
            &[]
        }

        fn read(&self, _: usize, _: u64, _: &mut [u8]) -> Result<usize> {
            Ok(0)
        }
    }

    /// Property: a source remembers a bounded number of followers, and forgets the one unseen for longest.
    #[test]
    fn followers_beyond_the_limit_are_forgotten_oldest_first() {
        let followers = Followers::default();
        for number in 0..=FOLLOWERS_MAX {
            let mut id = [0; 16];
            id[..8].copy_from_slice(&(number as u64).to_be_bytes());
            followers.note(id, "host", Revision(number as u64));
        }
        let listed = followers.list();
        assert_eq!(listed.len(), FOLLOWERS_MAX);
        assert_eq!((listed[0].durable, listed[0].is_away()), (Revision(1), false));
    }

    /// Property: copies have a limit, at its edge, and those that nobody uses are let go.
    #[tokio::test(start_paused = true)]
    async fn unused_copies_are_let_go() {
        let followers = Arc::new(Followers::default());
        let numbers: Vec<u64> = (0..COPIES_MAX).map(|_| followers.hold(Arc::new(Nothing)).unwrap()).collect();
        assert_eq!(followers.hold(Arc::new(Nothing)).unwrap_err().kind, ErrorKind::Busy);
        followers.drop_copy(numbers[0]);
        assert!(followers.hold(Arc::new(Nothing)).is_ok());
        assert_eq!(followers.copy(numbers[0]).err().map(|error| error.kind), Some(ErrorKind::NotFound));
        // The clock of the test does not move the time of use, so make it long ago.
        for held in followers.copies.lock().1.values_mut() {
            held.used = Instant::now().checked_sub(COPY_IDLE).unwrap();
        }
        tokio::task::yield_now().await;
        tokio::time::advance(2 * COPY_IDLE).await;
        for _ in 0..100 {
            tokio::task::yield_now().await;
        }
        assert_eq!(followers.copies(), 0);
    }
}
