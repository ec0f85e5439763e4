//! Path resolution and the location of entries, on one state that is read entry by entry.

use exacat_model::{At, DirId, EntryId, Lfn, Name};
use exacat_store::rules::Top;
use exacat_store::{Ancestor, Ancestors, EntryLocation, Located, Resolution, ResolutionEnd};

use crate::memory::state::State;

/// Resolves a path.
pub(crate) fn resolve(state: &State, path: &Lfn) -> Resolution {
    let mut ancestors = Ancestors::new();
    let mut here = state.root.clone();
    for (components, component) in path.components().enumerate() {
        let Some(ancestor) = Ancestor::of(&here) else {
            return Resolution {
                ancestors,
                end: ResolutionEnd::Stopped { entry: Box::new(here), components },
            };
        };
        ancestors.push(ancestor);
        let child = Name::parse(component).ok().map(|name| At { parent: ancestor.id, name });
        match child.and_then(|at| state.at(&at)) {
            Some(next) => here = next.clone(),
            None => return Resolution { ancestors, end: ResolutionEnd::Missing { components } },
        }
    }
    Resolution { ancestors, end: ResolutionEnd::Found(Box::new(here)) }
}

/// Locates an entry in the tree or in the trash.
pub(crate) fn locate(state: &State, id: EntryId) -> Option<Located> {
    let entry = state.find(id)?.clone();
    if let Some(trash) = state.trash_of(id) {
        return Some(Located { entry, place: EntryLocation::Trash(trash), ancestors: Ancestors::new() });
    }
    if id == EntryId::Directory(DirId::ROOT) {
        return Some(Located { entry, place: EntryLocation::Tree(Lfn::root()), ancestors: Ancestors::new() });
    }
    let (mut way, top) = state.way_up(entry.at.parent);
    way.reverse();
    let place = match top {
        Top::Root => {
            let names = way.iter().skip(1).chain([&entry]).map(|above| above.at.name.as_str());
            EntryLocation::Tree(Lfn::from_names(names))
        }
        Top::Trash(trash) => EntryLocation::Trash(trash),
        // The state is damaged, and an audit reports it.
        Top::Nowhere => return None,
    };
    let ancestors = way.iter().filter_map(Ancestor::of).collect();
    Some(Located { entry, place, ancestors })
}
