//! Where a path leads, and where an entry is: of one state, asked entry by entry.

use exacat_model::{At, DirId, EntryId, Lfn, Name};

use super::{Top, View, new_root};
use crate::{Gate, Gates, Located, Place, Walk, WalkEnd};

/// Where a path leads.
pub fn walk(state: &impl View, path: &Lfn) -> Walk {
    let mut gates = Gates::new();
    // The root is always there; a store that has to fetch it first goes on with this until it has it.
    let root = At { parent: DirId::ROOT, name: Name::root() };
    let mut here = state.at(&root).unwrap_or_else(new_root);
    for (components, component) in path.components().enumerate() {
        let Some(gate) = Gate::of(&here) else {
            return Walk { gates, end: WalkEnd::Stopped { entry: Box::new(here), components } };
        };
        gates.push(gate);
        let child = Name::parse(component).ok().map(|name| At { parent: gate.id, name });
        match child.and_then(|at| state.at(&at)) {
            Some(next) => here = next,
            None => return Walk { gates, end: WalkEnd::Missing { components } },
        }
    }
    Walk { gates, end: WalkEnd::Found(Box::new(here)) }
}

/// Where an entry is, in the tree or in the trash.
pub fn locate(state: &impl View, id: EntryId) -> Option<Located> {
    let (entry, trash) = state.find(id)?;
    if let Some(trash) = trash {
        return Some(Located { entry, place: Place::Trash(trash), gates: Gates::new() });
    }
    if id == EntryId::Directory(DirId::ROOT) {
        return Some(Located { entry, place: Place::Tree(Lfn::root()), gates: Gates::new() });
    }
    let (mut way, top) = state.way_up(entry.at.parent);
    way.reverse();
    let place = match top {
        Top::Root => {
            let names = way.iter().skip(1).chain([&entry]).map(|above| above.at.name.as_str());
            Place::Tree(Lfn::from_names(names))
        }
        Top::Trash(trash) => Place::Trash(trash),
        // Only while something is fetched; otherwise the state is not whole, and an audit says so.
        Top::Nowhere => return None,
    };
    let gates = way.iter().filter_map(Gate::of).collect();
    Some(Located { entry, place, gates })
}
