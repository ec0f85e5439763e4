//! The last entry under a name that is free now.

use exacat_model::{At, DirId, EntryId, Lfn, Name, Result, Revision};
use exacat_store::{Trace, Traces};

use super::position::{Position, Stood, Subject};
use crate::Catalogue;

/// Most places examined for one path: for each component the present entry, then the one that left
/// last.
const PLACES_MAX: usize = 64;

impl Catalogue {
    /// Returns the start of the log of the last entry under the name; none if the history has no
    /// entry.
    pub(super) async fn former(&self, lfn: &Lfn) -> Result<Option<Position>> {
        let names: Vec<Name> = lfn.components().map(Name::parse).collect::<Result<_>>()?;
        let mut since = Revision(0);
        // A stack: the present entry is examined first, because it came later than the one that
        // left.
        let mut waiting = vec![(DirId::ROOT, 0)];
        for _ in 0..PLACES_MAX {
            let Some((parent, level)) = waiting.pop() else { break };
            let Some(name) = names.get(level) else { continue };
            let at = At { parent, name: name.clone() };
            let Traces { found, since: kept_since } = self.store.traces(&[Trace::Left(at.clone())]).await?;
            since = kept_since;
            let left = match found.first().copied().flatten() {
                Some(revision) => self.left(&at, revision).await?.map(|id| (id, revision)),
                None => None,
            };
            let stands = self.store.standing(std::slice::from_ref(&at)).await?.pop().flatten();
            if level + 1 < names.len() {
                let ids = [left.map(|(id, _)| id), stands.map(|entry| entry.id())];
                for id in ids.into_iter().flatten() {
                    if let EntryId::Directory(directory) = id {
                        waiting.push((directory, level + 1));
                    }
                }
                continue;
            }
            if let Some(entry) = stands {
                // The entry stands in a directory that was moved away or removed.
                let subject = Subject { id: entry.id(), purged: None };
                return Ok(Some(Position::at_last(subject, entry.revision)));
            }
            if let Some((id, revision)) = left {
                return self.since_it_left(id, revision).await;
            }
        }
        let oldest = self.store.changes(Revision(0), 1).await?.oldest;
        let is_older = since >= oldest;
        Ok(is_older.then(|| Position::Seeking { up_to: Revision(0), until: since, stood: Stood::of(&names) }))
    }

    /// Returns the entry that this change took from the place, if it did.
    async fn left(&self, at: &At, revision: Revision) -> Result<Option<EntryId>> {
        let page = self.store.changes(Revision(revision.0.saturating_sub(1)), 1).await?;
        let change = page.changes.into_iter().next().filter(|change| change.revision == revision);
        Ok(change.filter(|change| change.effect.vacated() == Some(at)).and_then(|one| one.effect.entry_id()))
    }

    /// Returns the last change of an entry that left a name by this change.
    async fn since_it_left(&self, id: EntryId, revision: Revision) -> Result<Option<Position>> {
        let ended = self.store.traces(&[Trace::Ended(id)]).await?.found.pop().flatten();
        if let Some(purged) = ended.filter(|purged| *purged >= revision) {
            return Ok(Some(Position::at_last(Subject { id, purged: Some(purged) }, purged)));
        }
        let located = self.store.locate(&[id]).await?.pop().flatten();
        Ok(located.map(|found| Position::at_last(Subject { id, purged: None }, found.entry.revision)))
    }
}
