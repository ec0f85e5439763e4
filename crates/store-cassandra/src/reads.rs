//! What is answered from rows that are known, or that are fetched because they are asked for here.

use exacat_model::limits::READ_BATCH_MAX;
use exacat_model::{At, Entry, EntryId, Error, Lfn, Name, Result, Revision, TrashId, TrashItem, Usage};
use exacat_store::rules::{Top, Trashed, View};
use exacat_store::{Account, Gate, Gates, Located, Place, UsageOf, Walk, WalkEnd};

use crate::working::{Look, Rows, counted, entry_at, place_of};

/// More keys than may be asked for at once are refused.
pub(crate) fn within_batch(keys: usize) -> Result<()> {
    if keys > READ_BATCH_MAX {
        return Err(Error::limit("the number of items asked for at once", keys, READ_BATCH_MAX));
    }
    Ok(())
}

fn root(look: &Look<'_>) -> Entry {
    // It is always there; while it is fetched this stands in for it.
    let at = At { parent: exacat_model::DirId::ROOT, name: Name::root() };
    entry_at(look, &at).unwrap_or_else(exacat_store::rules::new_root)
}

pub(crate) fn walk(look: &Look<'_>, path: &Lfn) -> Walk {
    let mut gates = Gates::new();
    let mut here = root(look);
    for (components, component) in path.components().enumerate() {
        let Some(gate) = Gate::of(&here) else {
            return Walk { gates, end: WalkEnd::Stopped { entry: Box::new(here), components } };
        };
        gates.push(gate);
        let child = Name::parse(component).ok().map(|name| At { parent: gate.id, name });
        match child.and_then(|at| entry_at(look, &at)) {
            Some(next) => here = next,
            None => return Walk { gates, end: WalkEnd::Missing { components } },
        }
    }
    Walk { gates, end: WalkEnd::Found(Box::new(here)) }
}

pub(crate) fn locate(look: &Look<'_>, id: EntryId) -> Option<Located> {
    let (entry, trash) = look.find(id)?;
    if let Some(trash) = trash {
        return Some(Located { entry, place: Place::Trash(trash), gates: Gates::new() });
    }
    if id == EntryId::Directory(exacat_model::DirId::ROOT) {
        return Some(Located { entry, place: Place::Tree(Lfn::root()), gates: Gates::new() });
    }
    let (mut way, top) = look.way_up(entry.at.parent);
    way.reverse();
    let place = match top {
        Top::Root => {
            let names = way.iter().skip(1).chain([&entry]).map(|above| above.at.name.as_str());
            Place::Tree(Lfn::from_names(names))
        }
        Top::Trash(trash) => Place::Trash(trash),
        // Only while something is fetched; the audit would say so otherwise.
        Top::Nowhere => return None,
    };
    let gates = way.iter().filter_map(Gate::of).collect();
    Some(Located { entry, place, gates })
}

/// Is there such a directory, in the tree or in the trash?
pub(crate) fn is_directory(look: &Look<'_>, directory: exacat_model::DirId) -> bool {
    place_of(look, EntryId::Directory(directory)).is_some()
}

pub(crate) fn account(look: &Look<'_>, of: UsageOf) -> Account {
    match of {
        UsageOf::Deletions(se) => {
            let usage = counted(look, UsageOf::Se(se)).deletions;
            Account { usage, reserved: Usage::default() }
        }
        UsageOf::User(_) | UsageOf::Group(_) => {
            let counted = counted(look, of);
            Account { usage: counted.usage, reserved: counted.reserved }
        }
        UsageOf::Directory(_) | UsageOf::Se(_) => {
            Account { usage: counted(look, of).usage, reserved: Usage::default() }
        }
    }
}

pub(crate) fn trash_item(look: &Look<'_>, id: TrashId, item: &Trashed) -> TrashItem {
    let mut usage = Usage::of(&item.entry);
    if let Some(directory) = item.entry.directory() {
        usage.add(&counted(look, UsageOf::Directory(directory)).usage);
    }
    TrashItem {
        id,
        lfn: item.lfn.clone(),
        entry: item.entry.clone(),
        removed_by: item.removed_by,
        removed: item.removed,
        usage,
    }
}

/// The stretch of the log that has the change after this one: the last that begins no later.
pub(crate) fn stretch_of(stretches: &[u64], after: Revision) -> Option<usize> {
    let next = after.0.saturating_add(1);
    stretches.partition_point(|first| *first <= next).checked_sub(1)
}

/// Every record of a kind, in the order of keys, after one.
pub(crate) fn records_after(
    look: &Look<'_>,
    kind: exacat_model::RecordKind,
    after: Option<exacat_model::RecordKey>,
) -> Vec<exacat_model::RecordKey> {
    let mut keys = Vec::new();
    look.each_record(&mut |key, _| {
        if key.kind() == kind && after.is_none_or(|after| key > after) {
            keys.push(key);
        }
    });
    keys.sort_unstable();
    keys
}
