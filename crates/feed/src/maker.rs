//! Makes the events of changes, in order: finds places, judges what they mean, and copies entries that
//! come into sight.

use std::sync::Arc;

use exacat_model::{At, Change, Effect, EntryId, Result, Revision};
use exacat_store::Store;

use crate::batch::Batch;
use crate::event::{EventPlace, EventWriter, Places};
use crate::names::Names;
use crate::places::seen;
use crate::scope::{Kinds, Meaning, Scope, Sight};
use crate::tree::{Path, Seen, Tree};

/// Rows that must follow a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RowsOf {
    /// The entry, with everything below it.
    Entry(EntryId),
    /// The feed's whole directory.
    Scope,
}

/// Makes events.
pub(crate) struct Maker {
    pub store: Arc<dyn Store>,
    pub names: Names,
    pub writer: EventWriter,
    tree: Tree,
    kinds: Kinds,
}

/// A place of a change, as far as it is in the tree.
struct Placed<'a> {
    path: Option<Path>,
    at: &'a At,
    sight: Sight,
}

impl Placed<'_> {
    /// Returns the place for an event; none in the trash.
    fn shown(&self) -> Option<EventPlace<'_>> {
        let path = self.path.as_ref()?;
        Some(EventPlace { directory: &path.text, parent: self.at.parent.0, name: self.at.name.as_str() })
    }
}

impl Maker {
    pub(crate) fn new(store: Arc<dyn Store>, writer: EventWriter, scope: Scope, kinds: Kinds) -> Self {
        Maker { store, names: Names::default(), writer, tree: Tree::new(scope), kinds }
    }

    /// Returns the feed's directory.
    pub(crate) fn scope(&self) -> &Scope {
        self.tree.scope()
    }

    /// Prepares for changes after another position.
    pub(crate) async fn begin(&mut self) -> Result<()> {
        self.tree.clear();
        self.names.load(&*self.store).await
    }

    /// Adds the event of a change, if the feed shows it, and follows the change. `must_copy` is true if
    /// a mirror may lack entries that were there before. Returns what rows must follow.
    pub(crate) async fn change(
        &mut self,
        batch: &mut Batch,
        change: &Change,
        must_copy: bool,
    ) -> Result<Option<RowsOf>> {
        if let Effect::Recorded { after: Some(record), .. } = &change.effect {
            self.names.learn(record);
        }
        let rows = match self.kinds.show(&change.effect) {
            true => self.event(batch, change, must_copy).await?,
            false => None,
        };
        self.tree.apply(&change.effect);
        Ok(rows)
    }

    async fn event(&mut self, batch: &mut Batch, change: &Change, must_copy: bool) -> Result<Option<RowsOf>> {
        let position = Revision(change.revision.0.saturating_sub(1));
        let effect = &change.effect;
        let (meaning, now, before) = match effect {
            Effect::Created { entry } => {
                let placed = self.placed(&entry.at, position).await?;
                (Meaning::created(placed.sight, must_copy), Some(placed), None)
            }
            Effect::Updated { at, .. } | Effect::Committed { at, created: None, .. } => {
                let placed = self.placed(at, position).await?;
                (Meaning::updated(placed.sight), Some(placed), None)
            }
            Effect::Committed { at, created: Some(_), .. } => {
                let placed = self.placed(at, position).await?;
                (Meaning::created(placed.sight, must_copy), Some(placed), None)
            }
            Effect::Removed { at, .. } => {
                let placed = self.placed(at, position).await?;
                (Meaning::removed(placed.sight), Some(placed), None)
            }
            Effect::Moved { from, to, .. } => {
                let before = self.placed(from, position).await?;
                let after = self.placed(to, position).await?;
                let meaning = Meaning::moved(before.sight, after.sight, must_copy);
                match meaning {
                    // The consumer knows the former place only.
                    Meaning::Gone | Meaning::AllGone => (meaning, Some(before), None),
                    _ if before.sight == Sight::Inside => (meaning, Some(after), Some(before)),
                    _ => (meaning, Some(after), None),
                }
            }
            Effect::Restored { to, .. } => {
                let after = self.placed(to, position).await?;
                (Meaning::moved(Sight::Outside, after.sight, true), Some(after), None)
            }
            Effect::Reserved { reservation, .. } | Effect::Released { reservation, .. } => {
                let sight = self.scope().sight(reservation.lfn.as_str());
                (if sight == Sight::Inside { Meaning::Other } else { Meaning::Hidden }, None, None)
            }
            Effect::Purged { .. } | Effect::Dequeued { .. } | Effect::Recorded { .. } => {
                (if self.scope().is_all() { Meaning::Other } else { Meaning::Hidden }, None, None)
            }
        };
        let places = Places {
            now: now.as_ref().and_then(Placed::shown),
            before: before.as_ref().and_then(Placed::shown),
            is_above: meaning == Meaning::AllGone
                || now.as_ref().is_some_and(|now| now.sight == Sight::Above),
        };
        if let Effect::Created { entry } | Effect::Committed { created: Some(entry), .. } = effect
            && meaning == Meaning::Created
            && !self.names.know(entry)
        {
            self.names.load(&*self.store).await?;
        }
        self.writer.change(batch, &self.names, change, meaning, places);
        Ok(match (meaning, &now, effect.entry_id()) {
            (Meaning::Arrived, Some(now), _) if now.sight == Sight::Above => Some(RowsOf::Scope),
            (Meaning::Arrived | Meaning::Appeared, _, Some(id)) => Some(RowsOf::Entry(id)),
            _ => None,
        })
    }

    /// Finds a place as it was after the change `position`.
    async fn placed<'a>(&mut self, at: &'a At, position: Revision) -> Result<Placed<'a>> {
        let seen = match self.tree.see(at.parent) {
            Seen::Missing(_) => seen(&mut self.tree, &*self.store, at.parent, position).await?,
            known => known,
        };
        Ok(match seen {
            Seen::Path(path) => {
                let sight = self.tree.sight(&path, &at.name);
                Placed { path: Some(path), at, sight }
            }
            Seen::Trash | Seen::Missing(_) => Placed { path: None, at, sight: Sight::Outside },
        })
    }
}
