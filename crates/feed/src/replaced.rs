//! The replaced timeline that feeds read undone changes from.

use std::sync::{Arc, Weak};

use exacat_model::{Error, ErrorKind, Result, Revision, TimelineId};
use exacat_store::{Replaced, Store};
use tokio::sync::Mutex;

/// Replaced timeline that is open. It takes the memory of a catalogue, so there is one at a time.
#[derive(Default)]
pub(crate) struct ReplacedTimeline(Mutex<Option<Open>>);

struct Open {
    timeline: TimelineId,
    up_to: Revision,
    store: Weak<dyn Store>,
}

impl ReplacedTimeline {
    /// Opens a replaced timeline; none if no copy of it is kept.
    pub(crate) async fn open(&self, store: &dyn Store, timeline: TimelineId) -> Result<Option<Replaced>> {
        // Other feeds wait for the opening, which ends by itself.
        let mut open = self.0.lock().await;
        if let Some(Open { timeline: other, up_to, store }) = &*open
            && let Some(store) = store.upgrade()
        {
            if *other == timeline {
                return Ok(Some(Replaced { store, up_to: *up_to }));
            }
            let why = "another feed sends the undone changes of another timeline first";
            return Err(Error::new(ErrorKind::Unavailable, why));
        }
        let Some(past) = store.as_past_states() else { return Ok(None) };
        let replaced = past.replaced(timeline).await?;
        if let Some(Replaced { store, up_to }) = &replaced {
            *open = Some(Open { timeline, up_to: *up_to, store: Arc::downgrade(store) });
        }
        Ok(replaced)
    }
}
