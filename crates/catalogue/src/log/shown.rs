//! The changes of an entry as a caller may see them: shows a name only to callers who may read its
//! directory.

use std::collections::{BTreeMap, BTreeSet};

use exacat_model::answer::ChangeInfo;
use exacat_model::{At, Change, DirId, Effect, EntryId, Lfn, Name, PurgeTarget, Result};
use exacat_store::{EntryLocation, Located};

use crate::Catalogue;
use crate::caller::{Caller, READ};
use crate::history::told;
use crate::resolve::check_passage;

/// The part of a directory that a caller may see.
enum Seen {
    /// The path, and the names in it.
    Path(Lfn),
    /// Only the names in it: the directory is in the trash, or gone.
    Names,
}

impl Catalogue {
    /// Returns the changes of an entry that now stands at `stands`, with names in place of numbers.
    pub(super) async fn shown(
        &self,
        caller: &Caller,
        stands: Option<Lfn>,
        mut changes: Vec<Change>,
    ) -> Result<Vec<ChangeInfo>> {
        let names = self.registry.names();
        let mut mentioned: BTreeSet<DirId> = BTreeSet::new();
        for change in &mut changes {
            each_place(&mut change.effect, |at| {
                mentioned.insert(at.parent);
            });
        }
        let seen = self.seen(caller, mentioned.into_iter().collect()).await?;
        let mut items = Vec::with_capacity(changes.len());
        for mut change in changes {
            let mut directories: BTreeMap<DirId, Lfn> = BTreeMap::new();
            each_place(&mut change.effect, |at| match seen.get(&at.parent) {
                Some(Seen::Path(path)) => drop(directories.insert(at.parent, path.clone())),
                Some(Seen::Names) => {}
                None => *at = At::withheld(),
            });
            if let Effect::Removed { at, lfn, .. } = &mut change.effect {
                show_path(caller, lfn, at, directories.get(&at.parent));
            }
            items.push(told(&names, change, stands.clone(), directories.into_iter().collect()));
        }
        Ok(items)
    }

    /// Returns the directories whose names the caller may read.
    async fn seen(&self, caller: &Caller, directories: Vec<DirId>) -> Result<BTreeMap<DirId, Seen>> {
        // Operators may read the history of everything.
        let sees_all = caller.check_operator("reading every name").is_ok();
        let mut seen = BTreeMap::new();
        let ids: Vec<EntryId> = directories.into_iter().map(EntryId::Directory).collect();
        let see = |id, located| {
            let shown = match located {
                Some(Located { entry, place: EntryLocation::Tree(path), ancestors }) => {
                    let open =
                        caller.check_scope(&path).and_then(|()| check_passage(caller, &ancestors, &path));
                    (sees_all || open.is_ok() && caller.has_entry(&entry, READ)).then_some(Seen::Path(path))
                }
                Some(Located { entry, .. }) => (sees_all || caller.owns(&entry)).then_some(Seen::Names),
                None => sees_all.then_some(Seen::Names),
            };
            if let (EntryId::Directory(id), Some(shown)) = (id, shown) {
                seen.insert(id, shown);
            }
        };
        self.locate_each(&ids, see).await?;
        Ok(seen)
    }
}

/// Shows a trash item's former path to operators only: its directories may have been renamed or
/// closed since. Others see the present path, or none.
fn show_path(caller: &Caller, lfn: &mut Lfn, at: &At, directory: Option<&Lfn>) {
    if caller.check_operator("reading every name").is_ok() {
        return;
    }
    *lfn = match directory {
        Some(directory) if !at.is_withheld() => {
            Lfn::from_names(directory.components().chain([at.name.as_str()]))
        }
        _ => Lfn::root(),
    };
}

/// Calls `each` for every place that an effect names.
fn each_place(effect: &mut Effect, mut each: impl FnMut(&mut At)) {
    let mut one = |at: &mut At| {
        // The root stands in no directory.
        if at.name != Name::root() {
            each(at);
        }
    };
    match effect {
        Effect::Created { entry } => one(&mut entry.at),
        Effect::Updated { at, .. } | Effect::Removed { at, .. } => one(at),
        Effect::Moved { from, to, .. } => {
            one(from);
            one(to);
        }
        Effect::Restored { to, .. } => one(to),
        Effect::Purged { target, entry } => {
            if let PurgeTarget::Below { at, .. } = target {
                one(at);
            }
            one(&mut entry.at);
        }
        Effect::Committed { at, created, .. } => {
            one(at);
            if let Some(entry) = created {
                one(&mut entry.at);
            }
        }
        Effect::Reserved { .. }
        | Effect::Released { .. }
        | Effect::Dequeued { .. }
        | Effect::Recorded { .. } => {}
    }
}
