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
use quick_cache::Weighter;

use super::reader::Run;
use crate::defect::Defect;

/// What a cached block weighs beside its bytes.
const CACHED_OVERHEAD_BYTES: u64 = 96;
/// How long a block is taken to be when the cache is laid out.
const CACHED_BYTES_ABOUT: u64 = 8 << 10;

#[derive(Clone)]
struct Weigh;

impl Weighter<Key, Arc<[u8]>> for Weigh {
    fn weight(&self, _: &Key, bytes: &Arc<[u8]>) -> u64 {
        bytes.len() as u64 + CACHED_OVERHEAD_BYTES
    }
}

/// A run's number, and where in it something begins.
pub(super) type Key = (u64, u64);

/// Pages and blocks that were read and checked, up to a number of bytes; of all runs together.
pub(crate) struct Cache(quick_cache::sync::Cache<Key, Arc<[u8]>, Weigh>);

impl Cache {
    /// One for so many bytes.
    pub fn new(bytes_max: u64) -> Self {
        let about = usize::try_from(bytes_max / CACHED_BYTES_ABOUT).unwrap_or(usize::MAX).max(16);
        Cache(quick_cache::sync::Cache::with_weighter(about, bytes_max, Weigh))
    }

    /// Bytes in it.
    pub fn bytes(&self) -> u64 {
        self.0.weight()
    }
}

/// A part of a run that is read at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Part {
    Page(usize),
    Block(u32),
}

/// What one who does not wait for the disk holds, and wants read.
#[derive(Default)]
pub(crate) struct Held {
    parts: Mutex<HashMap<Key, Arc<[u8]>>>,
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
            let bytes = match cache.0.get(&key) {
                Some(found) => found,
                None => {
                    let read = run.read(part)?;
                    cache.0.insert(key, Arc::clone(&read));
                    read
                }
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

    /// Does it not wait for the disk?
    pub fn is_hurried(&self) -> bool {
        self.held.is_some()
    }

    pub(super) fn get(&self, run: &Arc<Run>, part: Part) -> Result<Arc<[u8]>, Defect> {
        let key = run.key(part)?;
        if let Some(found) = self.cache.and_then(|cache| cache.0.get(&key)) {
            return Ok(found);
        }
        if let Some(held) = self.held {
            if let Some(found) = held.parts.lock().get(&key) {
                return Ok(Arc::clone(found));
            }
            held.wanted.lock().push((Arc::clone(run), part));
            return Err(Defect::NotInMemory);
        }
        let read = run.read(part)?;
        if let Some(cache) = self.cache {
            cache.0.insert(key, Arc::clone(&read));
        }
        Ok(read)
    }

    /// Notes that these pages are wanted too, if they are not in memory.
    pub(super) fn note_pages(&self, run: &Arc<Run>, pages: std::ops::Range<usize>) {
        let (Some(cache), Some(held)) = (self.cache, self.held) else { return };
        for page in pages {
            let Ok(key) = run.key(Part::Page(page)) else { return };
            if cache.0.get(&key).is_none() && !held.parts.lock().contains_key(&key) {
                held.wanted.lock().push((Arc::clone(run), Part::Page(page)));
            }
        }
    }
}
