//! Reads the place of a directory at a revision of the past: its present place, and its changes since.

use exacat_model::{At, DirId, Effect, EntryId, PurgeTarget, Result, Revision};
use exacat_store::{EntryLocation, Located, Store, Trace, TrailEnd};

use crate::tree::{Place, Seen, Tree};

/// Changes of a directory read at once.
const TRAIL_CHANGES: usize = 1000;

/// Returns the path of a directory at `position`, and reads what is missing for it.
pub(crate) async fn seen(tree: &mut Tree, store: &dyn Store, id: DirId, position: Revision) -> Result<Seen> {
    loop {
        match tree.see(id) {
            Seen::Missing(missing) => {
                let place = place_at(store, missing, position).await?;
                tree.insert(missing, place);
            }
            known => return Ok(known),
        }
    }
}

/// Returns the place of a directory after the change `position`; none if it did not exist.
async fn place_at(store: &dyn Store, id: DirId, position: Revision) -> Result<Option<Place>> {
    let id = EntryId::Directory(id);
    let located = store.locate(&[id]).await?.pop().flatten();
    let (mut place, mut next) = match located {
        Some(Located { entry, place, ancestors }) => {
            let is_item = matches!(place, EntryLocation::Trash(_)) && ancestors.is_empty();
            (Some(Place { at: entry.at, is_item }), entry.revision)
        }
        None => match store.traces(&[Trace::Ended(id)]).await?.found.pop().flatten() {
            Some(purged) => (None, purged),
            None => return Ok(None),
        },
    };
    while next > position {
        let trail = store.trail(id, next, TRAIL_CHANGES).await?;
        for change in &trail.changes {
            if change.revision <= position {
                return Ok(place);
            }
            before(&mut place, &change.effect);
        }
        match trail.end {
            TrailEnd::More(earlier) if earlier < next => next = earlier,
            // Its earlier changes are before the position, or do not move it.
            _ => break,
        }
    }
    Ok(place)
}

/// Undoes a change of a place.
fn before(place: &mut Option<Place>, effect: &Effect) {
    let in_tree = |at: &At| Some(Place { at: at.clone(), is_item: false });
    match effect {
        Effect::Created { .. } => *place = None,
        Effect::Moved { from, .. } => *place = in_tree(from),
        Effect::Removed { at, .. } => *place = in_tree(at),
        Effect::Restored { to, .. } => *place = Some(Place { at: to.clone(), is_item: true }),
        Effect::Purged { target: PurgeTarget::Below { at, .. }, .. } => *place = in_tree(at),
        Effect::Purged { entry, .. } => *place = Some(Place { at: entry.at.clone(), is_item: true }),
        _ => {}
    }
}
