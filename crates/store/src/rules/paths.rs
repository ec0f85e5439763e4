//! Path resolution and the location of entries, on one state that is read entry by entry.

use exacat_model::{At, DirId, EntryId, Lfn, Name};

use super::{Top, View, new_root};
use crate::{Ancestor, Ancestors, EntryLocation, Located, Resolution, ResolutionEnd};

/// Resolves a path.
pub fn resolve(state: &impl View, path: &Lfn) -> Resolution {
    let mut ancestors = Ancestors::new();
    // Every state has a root. A store that must fetch it first continues with this one until then.
    let root = At { parent: DirId::ROOT, name: Name::root() };
    let mut here = state.at(&root).unwrap_or_else(new_root);
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
            Some(next) => here = next,
            None => return Resolution { ancestors, end: ResolutionEnd::Missing { components } },
        }
    }
    Resolution { ancestors, end: ResolutionEnd::Found(Box::new(here)) }
}

/// Locates an entry in the tree or in the trash.
pub fn locate(state: &impl View, id: EntryId) -> Option<Located> {
    let (entry, trash) = state.find(id)?;
    if let Some(trash) = trash {
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
        // Happens only while a row is being fetched. Otherwise the state is damaged, and an audit
        // reports it.
        Top::Nowhere => return None,
    };
    let ancestors = way.iter().filter_map(Ancestor::of).collect();
    Some(Located { entry, place, ancestors })
}
