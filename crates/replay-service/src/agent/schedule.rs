//! Items that wait in an agent: in the order of their times, and for one file in the order of their numbers.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use exacat_replay::run::shapes::ReplayItem;
use exacat_replay::trace::reads::Reads;
use hashbrown::HashMap;
use tokio::time::Instant;

use super::access::Access;

/// Item with its times on this machine's clock.
#[derive(Clone, Debug)]
pub(crate) struct PlannedItem {
    /// Number in the run.
    pub item: u64,
    /// Number of the attempt.
    pub attempt: u32,
    /// The access.
    pub access: Access,
    /// Intended begin.
    pub due: Instant,
    /// End of the lease.
    pub lease_end: Instant,
}

impl PlannedItem {
    /// Places an item on this machine's clock, from the time of the answer that had it.
    ///
    /// # Errors
    /// Says what is wrong with the bytes to read.
    pub(crate) fn new(item: &ReplayItem, answered: Instant) -> Result<PlannedItem, &'static str> {
        let reads = Reads::parse(&item.reads)?;
        // A time that no clock can show counts as the time of the answer: the item begins at once.
        let after = |us: u64| answered.checked_add(Duration::from_micros(us)).unwrap_or(answered);
        let due = match u64::try_from(item.due_us) {
            Ok(us) => after(us),
            Err(_) => {
                let before = Duration::from_micros(item.due_us.unsigned_abs());
                answered.checked_sub(before).unwrap_or(answered)
            }
        };
        let name = item.name.as_str().into();
        let access = Access { name, size: item.size, adler32: item.adler32, reads };
        let (item, attempt, lease_end) = (item.item, item.attempt, after(item.lease_us));
        Ok(PlannedItem { item, attempt, access, due, lease_end })
    }
}

/// Item that waits for its time.
struct Waiting {
    planned: PlannedItem,
    /// True if its time has come, and an earlier item of its file still waits.
    is_due: bool,
}

/// Time of a waiting item: its begin, number, attempt and file.
type Entry = Reverse<(Instant, u64, u32, Arc<str>)>;

/// Items that wait.
#[derive(Default)]
pub(crate) struct Schedule {
    /// Times of items. An entry whose item has another attempt now stands for nothing.
    times: BinaryHeap<Entry>,
    files: HashMap<Arc<str>, BTreeMap<u64, Waiting>>,
    /// Items whose time has come, in the order in which they begin.
    ready: VecDeque<PlannedItem>,
    waiting: usize,
    expired: u64,
}

impl Schedule {
    /// Adds an item. A later attempt takes the place of an earlier one, whose lease the service ended.
    pub(crate) fn add(&mut self, planned: PlannedItem) {
        let items = self.files.entry(Arc::clone(&planned.access.name)).or_default();
        match items.get(&planned.item) {
            Some(known) if known.planned.attempt >= planned.attempt => return,
            Some(_) => self.expired += 1,
            None => self.waiting += 1,
        }
        let name = Arc::clone(&planned.access.name);
        self.times.push(Reverse((planned.due, planned.item, planned.attempt, name)));
        items.insert(planned.item, Waiting { planned, is_due: false });
    }

    /// Returns the number of items that wait, for their time or for room.
    pub(crate) fn len(&self) -> usize {
        self.waiting + self.ready.len()
    }

    /// Returns the time of the next item.
    pub(crate) fn next_due(&self) -> Option<Instant> {
        self.times.peek().map(|Reverse((due, ..))| *due)
    }

    /// Returns the number of items that did not begin because their lease had ended.
    pub(crate) fn expired(&self) -> u64 {
        self.expired
    }

    /// Moves the items whose time has come to those that begin.
    pub(crate) fn release(&mut self, now: Instant) {
        while let Some(Reverse((due, ..))) = self.times.peek()
            && *due <= now
        {
            let Some(Reverse((_, item, attempt, name))) = self.times.pop() else { return };
            let Some(items) = self.files.get_mut(&name) else { continue };
            match items.get_mut(&item) {
                Some(waiting) if waiting.planned.attempt == attempt => waiting.is_due = true,
                _ => continue,
            }
            // An item begins behind all earlier ones of its file.
            while let Some(first) = items.first_entry()
                && first.get().is_due
            {
                self.ready.push_back(first.remove().planned);
                self.waiting -= 1;
            }
            if items.is_empty() {
                self.files.remove(&name);
            }
        }
    }

    /// Takes the next item that begins. Items whose lease has ended are dropped: the service hands them out
    /// again.
    pub(crate) fn take(&mut self, now: Instant) -> Option<PlannedItem> {
        while let Some(planned) = self.ready.pop_front() {
            if now < planned.lease_end {
                return Some(planned);
            }
            self.expired += 1;
        }
        None
    }

    /// Drops all items, and returns their number.
    pub(crate) fn clear(&mut self) -> usize {
        let count = self.len();
        *self = Schedule { expired: self.expired, ..Schedule::default() };
        count
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const US: u64 = 1;
    const SECOND: u64 = 1_000_000 * US;

    fn item(item: u64, name: &str, due_us: i64) -> ReplayItem {
        ReplayItem {
            item,
            attempt: 1,
            due_us,
            lease_us: 60 * SECOND,
            name: name.to_owned(),
            size: 1,
            adler32: None,
            reads: "-".to_owned(),
            site: String::new(),
        }
    }

    struct Clock(Instant);

    impl Clock {
        fn add(&self, schedule: &mut Schedule, one: ReplayItem) {
            schedule.add(PlannedItem::new(&one, self.0).unwrap());
        }

        /// Returns the numbers of the items that begin at a time.
        fn taken(&self, schedule: &mut Schedule, us: u64) -> Vec<u64> {
            let now = self.0 + Duration::from_micros(us);
            schedule.release(now);
            std::iter::from_fn(|| schedule.take(now)).map(|planned| planned.item).collect()
        }
    }

    fn new() -> (Clock, Schedule) {
        (Clock(Instant::now()), Schedule::default())
    }

    /// Property: items begin in the order of their times, those of one time in that of their numbers.
    #[test]
    fn items_begin_in_the_order_of_their_times() {
        let (clock, mut schedule) = new();
        for (number, due) in [(5, 30), (3, 10), (4, 30), (1, -5), (2, 20)] {
            clock.add(&mut schedule, item(number, &format!("/{number}"), due));
        }
        assert_eq!(schedule.len(), 5);
        assert_eq!(clock.taken(&mut schedule, 0), [1]);
        assert_eq!(schedule.next_due(), Some(clock.0 + Duration::from_micros(10)));
        assert_eq!(clock.taken(&mut schedule, 29), [3, 2]);
        assert_eq!(clock.taken(&mut schedule, 30), [4, 5]);
        assert_eq!((schedule.len(), schedule.next_due()), (0, None));
    }

    /// Property: an item waits for the earlier ones of its file, even if its own time comes first.
    #[test]
    fn items_of_one_file_begin_in_the_order_of_their_numbers() {
        let (clock, mut schedule) = new();
        clock.add(&mut schedule, item(7, "/a", 10));
        clock.add(&mut schedule, item(8, "/a", 11));
        clock.add(&mut schedule, item(9, "/b", 12));
        // Handed out again, behind them.
        clock.add(&mut schedule, item(6, "/a", 20));
        assert_eq!(clock.taken(&mut schedule, 15), [9]);
        assert_eq!(schedule.len(), 3);
        assert_eq!(clock.taken(&mut schedule, 20), [6, 7, 8]);
    }

    /// Property: an item whose lease has ended does not begin; at the last microsecond it does.
    #[test]
    fn items_do_not_begin_behind_their_lease() {
        let (clock, mut schedule) = new();
        for number in [1, 2] {
            clock.add(&mut schedule, ReplayItem { lease_us: 9 + number, ..item(number, "/a", 5) });
        }
        assert_eq!(clock.taken(&mut schedule, 10), [2]);
        assert_eq!((schedule.expired(), schedule.len()), (1, 0));
    }

    /// Property: an attempt is made once; a later one replaces it.
    #[test]
    fn attempts_are_made_once() {
        let (clock, mut schedule) = new();
        clock.add(&mut schedule, item(1, "/a", 10));
        clock.add(&mut schedule, item(1, "/a", 5));
        assert_eq!(schedule.len(), 1);
        clock.add(&mut schedule, ReplayItem { attempt: 2, ..item(1, "/a", 30) });
        assert_eq!((schedule.len(), schedule.expired()), (1, 1));
        assert_eq!(clock.taken(&mut schedule, 29), [] as [u64; 0]);
        assert_eq!(clock.taken(&mut schedule, 30), [1]);
        assert_eq!(clock.taken(&mut schedule, 99), [] as [u64; 0]);
    }

    /// Property: times that no clock has, and reads that are none, do no harm.
    #[test]
    fn items_of_a_broken_service_do_no_harm() {
        let (clock, mut schedule) = new();
        for (number, due_us) in [(1, i64::MIN), (2, i64::MAX)] {
            clock.add(&mut schedule, ReplayItem { lease_us: u64::MAX, ..item(number, "/a", due_us) });
        }
        assert!(
            PlannedItem::new(&ReplayItem { reads: "x".to_owned(), ..item(3, "/a", 0) }, clock.0).is_err()
        );
        schedule.release(clock.0 + Duration::from_secs(1));
        assert_eq!(schedule.len(), 2);
        assert_eq!(schedule.clear(), 2);
        assert_eq!((schedule.len(), schedule.next_due()), (0, None));
    }
}
