//! Facts that permission is judged by in one try at an operation, kept so that the store can tell
//! at the instant of commit whether it would be judged the same.

use std::sync::atomic::{AtomicBool, Ordering};

use exacat_model::{EntryId, Revision};
use exacat_store::JudgedEntry;
use parking_lot::Mutex;

/// Entries taken down last, by which repeats are known: most are of the directories above.
const RECENT: usize = 64;

/// The entries that were looked at in one try at an operation.
#[derive(Debug)]
pub(crate) struct Judgement {
    since: Revision,
    seen: Mutex<Seen>,
    outdated: AtomicBool,
}

#[derive(Debug)]
struct Seen {
    entries: Vec<JudgedEntry>,
    /// Places in `entries`, by the last bits of the number.
    recent: [u32; RECENT],
}

impl Judgement {
    /// Nothing was looked at yet; all that will be is read after `since` was.
    pub fn new(since: Revision) -> Self {
        let seen = Mutex::new(Seen { entries: Vec::new(), recent: [u32::MAX; RECENT] });
        Judgement { since, seen, outdated: AtomicBool::new(false) }
    }

    pub fn since(&self) -> Revision {
        self.since
    }

    /// Takes an entry down.
    pub fn judges(&self, entry: JudgedEntry) {
        let number = match entry.id {
            EntryId::Directory(id) => id.0,
            EntryId::Object(guid) => guid.0.iter().fold(0, |sum, byte| (sum << 5) ^ u64::from(*byte)),
        };
        let place = usize::try_from(number % RECENT as u64).unwrap_or(0);
        let mut seen = self.seen.lock();
        let Seen { entries, recent } = &mut *seen;
        if entries.get(recent[place] as usize) == Some(&entry) {
            return;
        }
        recent[place] = u32::try_from(entries.len()).unwrap_or(u32::MAX);
        entries.push(entry);
    }

    /// Entries taken down, sorted, each once. One that changed between two looks is given as it
    /// was seen first: the store then says that it is so no more.
    pub fn entries(&self) -> Vec<JudgedEntry> {
        let mut entries = self.seen.lock().entries.clone();
        entries.sort_by_key(|entry| entry.id);
        entries.dedup_by_key(|entry| entry.id);
        entries
    }

    pub fn set_outdated(&self) {
        self.outdated.store(true, Ordering::Release);
    }

    pub fn is_outdated(&self) -> bool {
        self.outdated.load(Ordering::Acquire)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use exacat_model::{DirId, GroupId, Mode, UserId};

    fn entry(number: u64, mode: Mode) -> JudgedEntry {
        JudgedEntry { id: EntryId::Directory(DirId(number)), owner: UserId(1), group: GroupId(1), mode }
    }

    #[test]
    fn entries_are_kept_once_sorted_and_as_seen_first() {
        let judgement = Judgement::new(Revision(7));
        for number in [9, 1, 200, 1, 9, 65, 1, 129, 65] {
            judgement.judges(entry(number, Mode::DIRECTORY));
        }
        judgement.judges(entry(9, Mode::FILE));
        let found = judgement.entries();
        let expected: Vec<JudgedEntry> =
            [1, 9, 65, 129, 200].into_iter().map(|number| entry(number, Mode::DIRECTORY)).collect();
        assert_eq!(found, expected);
    }
}
