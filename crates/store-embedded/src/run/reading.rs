//! How pages and blocks of runs are come by: from memory, from the disk, or - for who holds a lock that others wait for -
//! only from memory, with a note of what is to be read before asking again.
//!
//! ```text
//!   under the lock:   ask ─ not in memory? ─► noted, no answer
//!   without it:       what was noted is read, and held until there is an answer
//!   under the lock:   ask again, of the state as it is then
//! ```
//! So nobody waits for a disk behind a lock, and each answer is of one state. Each asking holds what those before it
//! read, so it comes to an end.

use std::collections::HashMap;
use std::sync::Arc;

use exacat_model::Error;
use parking_lot::Mutex;

use super::cache::{Bytes, Cache, Found};
use super::reader::Run;
use crate::defect::Defect;

/// A run's number, and where in it something begins.
pub(super) type Key = (u64, u64);

/// A part of a run that is read at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Part {
    Page(usize),
    Block(u32),
}

/// What one who does not wait for the disk holds, and wants read.
#[derive(Default)]
pub(crate) struct Held {
    parts: Mutex<HashMap<Key, Bytes>>,
    wanted: Mutex<Vec<(Arc<Run>, Part)>>,
}

impl Held {
    /// Reads what was noted. An error if a part cannot be read or is damaged.
    pub fn read(&self, cache: &Cache) -> Result<(), Error> {
        let wanted = std::mem::take(&mut *self.wanted.lock());
        for (run, part) in wanted {
            let key = run.key(part)?;
            if self.parts.lock().contains_key(&key) {
                continue;
            }
            let found = run.cached(cache, part).map(|found| found.keep());
            let bytes = match found {
                Some(found) => found,
                None => run.read_into(cache, part)?,
            };
            self.parts.lock().insert(key, bytes);
        }
        Ok(())
    }

    /// Is nothing noted?
    pub fn is_content(&self) -> bool {
        self.wanted.lock().is_empty()
    }
}

/// How someone reads.
#[derive(Clone, Copy)]
pub(crate) struct Reading<'r> {
    /// None: what is read is not kept, as it is not soon asked for again.
    cache: Option<&'r Cache>,
    /// What is not waited for. None: the disk is waited for.
    held: Option<&'r Held>,
}

impl<'r> Reading<'r> {
    /// Waits for the disk.
    pub fn waiting(cache: &'r Cache) -> Self {
        Reading { cache: Some(cache), held: None }
    }

    /// Waits for the disk, and keeps nothing: for who reads everything once.
    pub fn in_passing() -> Self {
        Reading { cache: None, held: None }
    }

    /// Does not wait for the disk, but notes what is to be read.
    pub fn hurried(cache: &'r Cache, held: &'r Held) -> Self {
        Reading { cache: Some(cache), held: Some(held) }
    }

    pub(super) fn get<'p>(&self, run: &'p Arc<Run>, part: Part) -> Result<Found<'p>, Defect> {
        let Some(cache) = self.cache else { return Ok(Found::Own(run.read(part)?)) };
        if let Some(found) = run.cached(cache, part) {
            return Ok(found);
        }
        if let Some(held) = self.held {
            if let Some(found) = held.parts.lock().get(&run.key(part)?) {
                return Ok(Found::Own(Arc::clone(found)));
            }
            held.wanted.lock().push((Arc::clone(run), part));
            return Err(Defect::NotInMemory);
        }
        Ok(Found::Own(run.read_into(cache, part)?))
    }

    /// Notes that these pages are wanted too, if they are not in memory.
    pub(super) fn note_pages(&self, run: &Arc<Run>, pages: impl Iterator<Item = usize>) {
        let (Some(cache), Some(held)) = (self.cache, self.held) else { return };
        for page in pages {
            let part = Part::Page(page);
            let Ok(key) = run.key(part) else { return };
            if run.cached(cache, part).is_none() && !held.parts.lock().contains_key(&key) {
                held.wanted.lock().push((Arc::clone(run), part));
            }
        }
    }

    /// Brings in where a page would be in memory; what it gives means nothing.
    #[inline]
    pub fn touch(&self, run: &Run, page: usize) -> u8 {
        self.cache.map_or(0, |cache| run.touch_slot(cache, page))
    }
}
