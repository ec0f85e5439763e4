//! Ways to read pages and blocks of runs: from memory, from the disk, or only from memory. A reader
//! that holds a contended lock uses the last way, which notes the missing parts.
//!
//! ```text
//!   under the lock:   look up ─ not in memory? ─► noted, no answer
//!   without it:       noted parts are read, and held until there is an answer
//!   under the lock:   look up again, in the state of that moment
//! ```
//! So no thread waits for a disk behind a lock, and each answer is of one state. Each attempt holds
//! the parts that earlier ones read, so the loop ends.

use std::collections::HashMap;
use std::sync::Arc;

use exacat_model::Error;
use parking_lot::Mutex;

use super::cache::{Bytes, Cache, CachedBytes};
use super::file::{Key, Run, RunPart};
use crate::defect::Defect;

/// Parts held by a reader that never waits for the disk, and parts that it lacks.
#[derive(Default)]
pub(crate) struct Held {
    parts: Mutex<HashMap<Key, Bytes>>,
    wanted: Mutex<Vec<(Arc<Run>, RunPart)>>,
}

impl Held {
    /// Reads the noted parts. Fails if a part is unreadable or damaged.
    pub(crate) fn read(&self, cache: &Cache) -> Result<(), Error> {
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

    /// Says whether nothing is noted.
    pub(crate) fn is_content(&self) -> bool {
        self.wanted.lock().is_empty()
    }
}

/// Way of reading.
#[derive(Clone, Copy)]
pub(crate) struct Reading<'r> {
    /// None: parts are not cached, because they are not needed again soon.
    cache: Option<&'r Cache>,
    /// Held parts of a reader that never waits for the disk. None: it waits.
    held: Option<&'r Held>,
}

impl<'r> Reading<'r> {
    /// Reads and waits for the disk.
    pub(crate) fn waiting(cache: &'r Cache) -> Self {
        Reading { cache: Some(cache), held: None }
    }

    /// Reads and waits for the disk, but caches nothing: for readers that read everything once.
    pub(crate) fn in_passing() -> Self {
        Reading { cache: None, held: None }
    }

    /// Reads without waiting for the disk, and notes missing parts.
    pub(crate) fn hurried(cache: &'r Cache, held: &'r Held) -> Self {
        Reading { cache: Some(cache), held: Some(held) }
    }

    pub(super) fn get<'p>(&self, run: &'p Arc<Run>, part: RunPart) -> Result<CachedBytes<'p>, Defect> {
        let Some(cache) = self.cache else { return Ok(CachedBytes::Own(run.read(part)?)) };
        if let Some(found) = run.cached(cache, part) {
            cache.hit(part.kind());
            return Ok(found);
        }
        if let Some(held) = self.held {
            if let Some(found) = held.parts.lock().get(&run.key(part)?) {
                return Ok(CachedBytes::Own(Arc::clone(found)));
            }
            held.wanted.lock().push((Arc::clone(run), part));
            return Err(Defect::NotInMemory);
        }
        Ok(CachedBytes::Own(run.read_into(cache, part)?))
    }

    /// Notes that these pages are needed too, if they are not in memory.
    pub(super) fn note_pages(&self, run: &Arc<Run>, pages: impl Iterator<Item = usize>) {
        let (Some(cache), Some(held)) = (self.cache, self.held) else { return };
        for page in pages {
            let part = RunPart::Page(page);
            let Ok(key) = run.key(part) else { return };
            if run.cached(cache, part).is_none() && !held.parts.lock().contains_key(&key) {
                held.wanted.lock().push((Arc::clone(run), part));
            }
        }
    }

    /// Loads the slot of a page into the processor's cache; the result has no meaning.
    #[inline]
    pub(crate) fn touch(&self, run: &Run, page: usize) -> u8 {
        self.cache.map_or(0, |cache| run.touch_slot(cache, page))
    }
}
