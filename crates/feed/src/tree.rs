//! Paths of directories as they were at the position of a feed. Pure: `places` reads missing directories.
//!
//! A change names places by directory number and name. Its path is that of its own time, so a feed
//! follows the moves of directories itself, from one change to the next.

use std::sync::Arc;

use exacat_model::{At, DirId, Effect, EntryId, Name};
use hashbrown::HashMap;

use crate::limits::DIRECTORIES_MAX;
use crate::scope::{Scope, Sight};

/// Place of a directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    /// Its directory and name; of an item of the trash, those before the removal.
    pub at: At,
    /// True for an item of the trash: it is in no directory.
    pub is_item: bool,
}

/// Path of a directory.
#[derive(Clone, Debug)]
pub(crate) struct Path {
    /// Without a slash at the end; empty for the root.
    pub text: Arc<str>,
    /// Relation to the feed's directory.
    pub sight: Sight,
}

/// Result of a look for a directory.
#[derive(Clone, Debug)]
pub(crate) enum Seen {
    /// In the tree.
    Path(Path),
    /// In the trash, or gone.
    Trash,
    /// This directory, or one above, must be read first.
    Missing(DirId),
}

struct Node {
    /// None for a directory that no longer exists.
    place: Option<Place>,
    /// Path at an epoch.
    path: Option<(u64, Path)>,
}

/// Directories that were needed lately.
pub(crate) struct Tree {
    scope: Scope,
    nodes: HashMap<DirId, Node>,
    /// Grows when a directory moves: paths from before are no longer valid.
    epoch: u64,
    directories_max: usize,
}

impl Tree {
    /// Makes an empty tree.
    pub(crate) fn new(scope: Scope) -> Self {
        Tree { scope, nodes: HashMap::new(), epoch: 0, directories_max: DIRECTORIES_MAX }
    }

    /// Returns the feed's directory.
    pub(crate) fn scope(&self) -> &Scope {
        &self.scope
    }

    /// Forgets everything, as when the position jumps.
    pub(crate) fn clear(&mut self) {
        self.nodes.clear();
        self.epoch += 1;
    }

    /// Adds a directory that was read: its place at the position; none if it does not exist there.
    pub(crate) fn insert(&mut self, id: DirId, place: Option<Place>) {
        if self.nodes.len() >= self.directories_max {
            // Those in use come back at once, and the others would only take memory.
            self.nodes.clear();
        }
        self.nodes.insert(id, Node { place, path: None });
    }

    /// Returns the path of a directory.
    pub(crate) fn see(&mut self, id: DirId) -> Seen {
        if id == DirId::ROOT {
            return Seen::Path(Path { text: "".into(), sight: self.scope.sight("/") });
        }
        let Some(node) = self.nodes.get(&id) else { return Seen::Missing(id) };
        if let Some((epoch, path)) = &node.path
            && *epoch == self.epoch
        {
            return Seen::Path(path.clone());
        }
        // The chain of directories up to one whose path is known.
        let (mut chain, mut next): (Vec<(DirId, Name)>, _) = (Vec::new(), id);
        let mut path = loop {
            if next == DirId::ROOT {
                break String::new();
            }
            let Some(node) = self.nodes.get(&next) else { return Seen::Missing(next) };
            if let Some((epoch, path)) = &node.path
                && *epoch == self.epoch
            {
                break path.text.as_ref().to_owned();
            }
            let Some(Place { at, is_item: false }) = &node.place else { return Seen::Trash };
            chain.push((next, at.name.clone()));
            if chain.len() > self.nodes.len() {
                // A circle cannot come from a history: better no path than no end.
                return Seen::Trash;
            }
            next = at.parent;
        };
        let mut found = Seen::Trash;
        for (id, name) in chain.into_iter().rev() {
            path.push('/');
            path.push_str(name.as_str());
            let shown = Path { text: path.as_str().into(), sight: self.scope.sight(&path) };
            if let Some(node) = self.nodes.get_mut(&id) {
                node.path = Some((self.epoch, shown.clone()));
            }
            found = Seen::Path(shown);
        }
        found
    }

    /// Judges a place in a directory of this path.
    pub(crate) fn sight(&self, path: &Path, name: &Name) -> Sight {
        match path.sight {
            Sight::Above => self.scope.sight(&format!("{}/{}", path.text, name.as_str())),
            same => same,
        }
    }

    /// Follows a change.
    pub(crate) fn apply(&mut self, effect: &Effect) {
        match effect {
            Effect::Created { entry } => {
                if let Some(id) = entry.directory() {
                    self.insert(id, Some(Place { at: entry.at.clone(), is_item: false }));
                }
            }
            Effect::Moved { id: EntryId::Directory(id), to, .. }
            | Effect::Restored { id: EntryId::Directory(id), to, .. } => {
                self.change(*id, Some(Place { at: to.clone(), is_item: false }));
            }
            Effect::Removed { id: EntryId::Directory(id), at, .. } => {
                self.change(*id, Some(Place { at: at.clone(), is_item: true }));
            }
            Effect::Purged { entry, .. } => {
                if let Some(id) = entry.directory() {
                    self.change(id, None);
                }
            }
            _ => {}
        }
    }

    fn change(&mut self, id: DirId, place: Option<Place>) {
        self.epoch += 1;
        self.insert(id, place);
    }
}

#[cfg(test)]
mod tests {
    use exacat_model::{Lfn, Revision, TrashId};

    use super::*;

    fn at(parent: u64, name: &str) -> At {
        At { parent: DirId(parent), name: Name::parse(name).unwrap() }
    }

    fn placed(parent: u64, name: &str) -> Option<Place> {
        Some(Place { at: at(parent, name), is_item: false })
    }

    fn path(tree: &mut Tree, id: u64) -> String {
        match tree.see(DirId(id)) {
            Seen::Path(path) => path.text.to_string(),
            Seen::Trash => "trash".to_owned(),
            Seen::Missing(id) => format!("missing {}", id.0),
        }
    }

    fn tree(under: &str) -> Tree {
        let mut tree = Tree::new(Scope::new(Some(&Lfn::parse(under).unwrap())));
        tree.insert(DirId(2), placed(1, "a"));
        tree.insert(DirId(3), placed(2, "b"));
        tree.insert(DirId(4), placed(3, "c"));
        tree
    }

    /// Property: the path of a directory follows each move, removal and return of a directory above it.
    #[test]
    fn paths_follow_the_moves_of_directories_above() {
        let mut tree = tree("/");
        let previous = None;
        assert_eq!(path(&mut tree, 4), "/a/b/c");
        let id = EntryId::Directory(DirId(2));
        tree.apply(&Effect::Moved { id, from: at(1, "a"), to: at(1, "z"), previous });
        assert_eq!(path(&mut tree, 4), "/z/b/c");
        let lfn = Lfn::parse("/z").unwrap();
        tree.apply(&Effect::Removed { id, at: at(1, "z"), lfn, previous });
        assert_eq!(path(&mut tree, 4), "trash");
        let trash = TrashId(Revision(9));
        tree.apply(&Effect::Restored { trash, id, to: at(1, "back"), previous });
        assert_eq!(path(&mut tree, 4), "/back/b/c");
        assert_eq!(path(&mut tree, 9), "missing 9");
        tree.insert(DirId(9), placed(8, "x"));
        assert_eq!(path(&mut tree, 9), "missing 8");
        assert_eq!(path(&mut tree, 1), "");
        tree.clear();
        assert_eq!(path(&mut tree, 4), "missing 4");
    }

    /// Property: a full cache forgets, and never answers with a path that it does not know.
    #[test]
    fn full_cache_forgets_and_asks_again() {
        let mut tree = tree("/");
        tree.directories_max = 3;
        tree.insert(DirId(5), placed(4, "d"));
        assert_eq!(path(&mut tree, 5), "missing 4");
    }

    #[test]
    fn directory_above_the_feed_leads_to_its_root_only() {
        let mut tree = tree("/a/b");
        let Seen::Path(above) = tree.see(DirId(2)) else { panic!("it is known") };
        assert_eq!(above.sight, Sight::Above);
        assert_eq!(tree.sight(&above, &Name::parse("b").unwrap()), Sight::Inside);
        assert_eq!(tree.sight(&above, &Name::parse("bb").unwrap()), Sight::Outside);
        let Seen::Path(inside) = tree.see(DirId(4)) else { panic!("it is known") };
        assert_eq!(tree.sight(&inside, &Name::parse("x").unwrap()), Sight::Inside);
    }

    #[test]
    fn circle_of_directories_ends() {
        let mut tree = tree("/");
        tree.insert(DirId(2), placed(4, "a"));
        assert_eq!(path(&mut tree, 4), "trash");
    }
}
