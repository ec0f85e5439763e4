//! Answers reads from cached rows, and notes the missing rows.

use exacat_model::{At, DirId, EntryId, Lfn, Name, Revision, TrashId, TrashItem, Usage};
use exacat_store::rules::{FoundEntry, Trashed, new_root};
use exacat_store::{
    Account, Ancestor, Ancestors, EntryLocation, Located, Resolution, ResolutionEnd, UsageOf,
};

use crate::rows::Key;
use crate::working::{CacheView, Rows, counted, entry_at, find, place_of};

/// Resolves a path. For a missing entry it also notes the rows that are probably below it, so that
/// one round fetches all of them. A wrong guess costs a read in vain.
pub(crate) fn resolve(view: &CacheView<'_>, path: &Lfn) -> Resolution {
    let resolution = resolve_cached(view, path);
    if let (ResolutionEnd::Missing { components }, Some(ancestor)) =
        (&resolution.end, resolution.ancestors.last())
    {
        let mut rest = path.components().skip(*components);
        if let Some(name) = rest.next().and_then(|component| Name::parse(component).ok()) {
            foresee(view, At { parent: ancestor.id, name }, rest);
        }
    }
    resolution
}

/// Resolves a path as far as rows are cached.
fn resolve_cached(view: &CacheView<'_>, path: &Lfn) -> Resolution {
    let mut ancestors = Ancestors::new();
    // Every state has a root. Until its row is fetched, this one stands for it.
    let root = At { parent: DirId::ROOT, name: Name::root() };
    let mut here = entry_at(view, &root).unwrap_or_else(new_root);
    for (components, component) in path.components().enumerate() {
        let Some(ancestor) = Ancestor::of(&here) else {
            return Resolution {
                ancestors,
                end: ResolutionEnd::Stopped { entry: Box::new(here), components },
            };
        };
        ancestors.push(ancestor);
        let child = Name::parse(component).ok().map(|name| At { parent: ancestor.id, name });
        match child.and_then(|at| entry_at(view, &at)) {
            Some(next) => here = next,
            None => return Resolution { ancestors, end: ResolutionEnd::Missing { components } },
        }
    }
    Resolution { ancestors, end: ResolutionEnd::Found(Box::new(here)) }
}

/// Locates an entry in the tree or in the trash.
pub(crate) fn locate(view: &CacheView<'_>, id: EntryId) -> Option<Located> {
    let FoundEntry { entry, trash } = find(view, id)?;
    if let Some(trash) = trash {
        return Some(Located { entry, place: EntryLocation::Trash(trash), ancestors: Ancestors::new() });
    }
    if id == EntryId::Directory(DirId::ROOT) {
        return Some(Located { entry, place: EntryLocation::Tree(Lfn::root()), ancestors: Ancestors::new() });
    }
    let (mut way, mut trash, mut next) = (Vec::new(), None, entry.at.parent);
    loop {
        // Nothing is above a directory only while a row is being fetched. Otherwise the state is
        // damaged, and an audit reports it.
        let above = find(view, EntryId::Directory(next))?;
        let parent = above.entry.at.parent;
        way.push(above.entry);
        trash = trash.or(above.trash);
        if next == DirId::ROOT || trash.is_some() {
            break;
        }
        next = parent;
    }
    way.reverse();
    let place = match trash {
        Some(trash) => EntryLocation::Trash(trash),
        None => {
            let names = way.iter().skip(1).chain([&entry]).map(|above| above.at.name.as_str());
            EntryLocation::Tree(Lfn::from_names(names))
        }
    };
    let ancestors = way.iter().filter_map(Ancestor::of).collect();
    Some(Located { entry, place, ancestors })
}

fn foresee<'a>(view: &CacheView<'_>, missing: At, rest: impl Iterator<Item = &'a str>) {
    if view.cache.get(&Key::Entry(missing.clone())).is_some() {
        return;
    }
    let mut here = view.cache.guess(&missing);
    for component in rest {
        let (Some(parent), Ok(name)) = (here, Name::parse(component)) else { return };
        let at = At { parent, name };
        here = match entry_at(view, &at) {
            Some(entry) => entry.directory(),
            None => view.cache.guess(&at),
        };
    }
}

/// Says whether there is such a directory, in the tree or in the trash.
pub(crate) fn is_directory(view: &CacheView<'_>, directory: DirId) -> bool {
    place_of(view, EntryId::Directory(directory)).is_some()
}

pub(crate) fn account(view: &CacheView<'_>, of: UsageOf) -> Account {
    match of {
        UsageOf::Deletions(se) => {
            let usage = counted(view, UsageOf::Se(se)).deletions;
            Account { usage, reserved: Usage::default() }
        }
        UsageOf::User(_) | UsageOf::Group(_) => {
            let counted = counted(view, of);
            Account { usage: counted.usage, reserved: counted.reserved }
        }
        UsageOf::Directory(_) | UsageOf::Se(_) => {
            Account { usage: counted(view, of).usage, reserved: Usage::default() }
        }
    }
}

pub(crate) fn trash_item(view: &CacheView<'_>, id: TrashId, item: &Trashed) -> TrashItem {
    let mut usage = Usage::of(&item.entry);
    if let Some(directory) = item.entry.directory() {
        usage.add(&counted(view, UsageOf::Directory(directory)).usage);
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

/// Place of the log segment that has the change after this one: the last that begins no later.
pub(crate) fn segment_of(segments: &[u64], after: Revision) -> Option<usize> {
    let next = after.0.saturating_add(1);
    segments.partition_point(|first| *first <= next).checked_sub(1)
}

/// Lists the keys of a kind after one, in order.
pub(crate) fn records_after(
    view: &CacheView<'_>,
    kind: exacat_model::RecordKind,
    after: Option<exacat_model::RecordKey>,
) -> Vec<exacat_model::RecordKey> {
    let mut keys = Vec::new();
    view.each_record(&mut |key, _| {
        if key.kind() == kind && after.is_none_or(|after| key > after) {
            keys.push(key);
        }
    });
    keys.sort_unstable();
    keys
}
