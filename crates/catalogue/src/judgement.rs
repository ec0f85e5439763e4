//! Facts behind the permissions of one attempt at an operation. At the instant of commit the store
//! uses them to tell whether the judgement would be the same.

use std::sync::atomic::{AtomicBool, Ordering};

use exacat_model::{EntryId, Revision};
use exacat_store::JudgedEntry;
use parking_lot::Mutex;

/// Slots for the entries recorded last, which detect repeats: most entries are ancestor
/// directories.
const RECENT: usize = 64;

/// The entries that one attempt at an operation judged.
#[derive(Debug)]
pub(crate) struct Judgement {
    since: Revision,
    seen: Mutex<Seen>,
    outdated: AtomicBool,
}

#[derive(Debug)]
struct Seen {
    entries: Vec<JudgedEntry>,
    /// Positions in `entries`, by the number modulo `RECENT`.
    recent: [u32; RECENT],
}

impl Judgement {
    /// Starts with no entries. All entries recorded later are read after `since`.
    pub(crate) fn new(since: Revision) -> Self {
        let seen = Mutex::new(Seen { entries: Vec::new(), recent: [u32::MAX; RECENT] });
        Judgement { since, seen, outdated: AtomicBool::new(false) }
    }

    pub(crate) fn since(&self) -> Revision {
        self.since
    }

    /// Records an entry.
    pub(crate) fn judges(&self, entry: JudgedEntry) {
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

    /// Returns the recorded entries, sorted, each once. Keeps the first version of an entry that
    /// changed between two reads: the store then finds that it no longer holds.
    pub(crate) fn entries(&self) -> Vec<JudgedEntry> {
        let mut entries = self.seen.lock().entries.clone();
        entries.sort_by_key(|entry| entry.id);
        entries.dedup_by_key(|entry| entry.id);
        entries
    }

    pub(crate) fn set_outdated(&self) {
        self.outdated.store(true, Ordering::Release);
    }

    pub(crate) fn is_outdated(&self) -> bool {
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
