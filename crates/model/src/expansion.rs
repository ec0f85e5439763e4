//! Expands wildcards in a path: `*`, `?`, `[…]` and `{a,b}` in its names match entries that exist.
//!
//! The expansion does no I/O. Its caller carries out each [`Step`] and passes on the entries that
//! it read.

use std::collections::VecDeque;

use crate::{Error, ErrorKind, Kind, Lfn, Matcher, Name, Pattern, Result};

/// Maximum entries that one path may expand to, and directories that one expansion may list.
pub const EXPANDED_MAX: usize = 100_000;

/// Expansion of a path, from the root down to the entries that match.
#[derive(Debug)]
pub struct Expansion {
    names: VecDeque<PathName>,
    directories_only: bool,
    /// Paths that match the names so far. They are unchecked if the last of these names was
    /// literal, or one is a link.
    matching: Vec<Lfn>,
    is_checked: bool,
    /// Directories to list for the current wildcard.
    to_list: VecDeque<Lfn>,
    listed: Option<(Lfn, NameMatcher)>,
}

/// One name of the path.
#[derive(Clone, Debug)]
enum PathName {
    Literal(Name),
    Wildcard(NameMatcher),
}

#[derive(Clone, Debug)]
struct NameMatcher {
    matcher: Matcher,
    /// True for a pattern that begins with a dot; only such a pattern matches names that do.
    matches_hidden: bool,
}

/// One read that the caller carries out, or the result.
#[derive(Debug, PartialEq)]
pub enum Step {
    /// List this directory, and pass each entry to [`Expansion::listed`]. If listing fails with an
    /// error that [`is_no_match`] accepts, the directory counts as empty.
    List(Lfn),
    /// Read these entries, and pass those that exist to [`Expansion::checked`].
    Check {
        /// The entries.
        lfns: Vec<Lfn>,
        /// Follow links.
        follow: bool,
    },
    /// The entries that match, directory by directory in the order of their names.
    Done(Vec<Lfn>),
}

/// Says whether a name or path has characters of a shell pattern.
pub fn has_wildcard(text: &str) -> bool {
    text.contains(['*', '?', '[']) || has_alternatives(text)
}

/// Says whether one name has `{a,b}`. Braces without a comma are literal, as in a shell.
fn has_alternatives(text: &str) -> bool {
    text.split('/').any(|name| {
        let inside = name.split_once('{').and_then(|(_, rest)| rest.rsplit_once('}'));
        inside.is_some_and(|(inside, _)| inside.contains(','))
    })
}

/// Says whether an error means that nothing matches in a directory. As in a shell, this holds for
/// one that vanished or is closed.
pub fn is_no_match(error: &Error) -> bool {
    matches!(error.kind, ErrorKind::NotDirectory | ErrorKind::NotFound | ErrorKind::Denied)
}

impl Expansion {
    /// Begins the expansion of a path with wildcards; none for a path without. Refuses a bad
    /// pattern.
    pub fn of(path: &Lfn, directories_only: bool) -> Result<Option<Self>> {
        if !has_wildcard(path.as_str()) {
            return Ok(None);
        }
        let names = path.components().map(PathName::of).collect::<Result<_>>()?;
        Ok(Some(Expansion {
            names,
            directories_only,
            matching: vec![Lfn::root()],
            is_checked: true,
            to_list: VecDeque::new(),
            listed: None,
        }))
    }

    /// Returns the next read to carry out. An expansion that returned [`Step::Done`] has ended.
    pub fn step(&mut self) -> Step {
        loop {
            if let Some(directory) = self.to_list.pop_front() {
                if let Some((listed, _)) = &mut self.listed {
                    listed.clone_from(&directory);
                }
                return Step::List(directory);
            }
            self.listed = None;
            match self.names.front() {
                Some(PathName::Literal(name)) => {
                    self.matching = self.matching.iter().map(|lfn| lfn.join(name)).collect();
                    self.is_checked = false;
                    self.names.pop_front();
                }
                // A literal name may be missing, or name a file, which has no entries to list.
                _ if !self.is_checked => {
                    return Step::Check { lfns: self.matching.clone(), follow: !self.names.is_empty() };
                }
                Some(PathName::Wildcard(matcher)) => {
                    self.listed = Some((Lfn::root(), matcher.clone()));
                    self.to_list = std::mem::take(&mut self.matching).into();
                    self.names.pop_front();
                }
                None => return Step::Done(std::mem::take(&mut self.matching)),
            }
        }
    }

    /// Takes in an entry of the directory being listed. Refuses more than [`EXPANDED_MAX`].
    pub fn listed(&mut self, name: &Name, kind: Kind) -> Result<()> {
        let Some((directory, matcher)) = &self.listed else { return Ok(()) };
        let is_last = self.names.is_empty();
        let is_wanted = match kind {
            Kind::Directory => true,
            // A link may point to a directory.
            Kind::Link => !is_last || !self.directories_only,
            Kind::File | Kind::Collection => is_last && !self.directories_only,
        };
        if is_wanted && matcher.matches(name.as_str()) {
            if self.matching.len() >= EXPANDED_MAX {
                let what = "the number of entries that a path with wildcards stands for";
                return Err(Error::limit(what, self.matching.len() + 1, EXPANDED_MAX));
            }
            self.matching.push(directory.join(name));
            self.is_checked &= is_last || kind == Kind::Directory;
        }
        Ok(())
    }

    /// Takes in the existing entries of a [`Step::Check`], with the kind of each.
    pub fn checked(&mut self, existing: impl IntoIterator<Item = (Lfn, Kind)>) {
        let directories_only = self.directories_only || !self.names.is_empty();
        let existing = existing.into_iter();
        let wanted = existing.filter(|(_, kind)| !directories_only || *kind == Kind::Directory);
        self.matching = wanted.map(|(lfn, _)| lfn).collect();
        self.is_checked = true;
    }
}

impl PathName {
    fn of(name: &str) -> Result<Self> {
        if !has_wildcard(name) {
            return Ok(PathName::Literal(Name::parse(name)?));
        }
        let matcher = Pattern::Glob(name.to_owned()).compile()?;
        Ok(PathName::Wildcard(NameMatcher { matcher, matches_hidden: name.starts_with('.') }))
    }
}

impl NameMatcher {
    fn matches(&self, name: &str) -> bool {
        (self.matches_hidden || !name.starts_with('.')) && self.matcher.matches(name, || name.to_owned())
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    /// Expands in a tree of paths with their kinds; returns the number of reads too.
    fn expand(tree: &BTreeMap<&str, Kind>, path: &str, directories_only: bool) -> (Vec<String>, usize) {
        let mut expansion = Expansion::of(&Lfn::parse(path).unwrap(), directories_only).unwrap().unwrap();
        let mut reads = 0;
        loop {
            reads += 1;
            match expansion.step() {
                Step::List(directory) => {
                    let above = if directory.is_root() { "" } else { directory.as_str() };
                    for (path, kind) in tree {
                        if let Some((parent, name)) = path.rsplit_once('/')
                            && parent == above
                        {
                            expansion.listed(&Name::parse(name).unwrap(), *kind).unwrap();
                        }
                    }
                }
                Step::Check { lfns, follow } => {
                    let there = lfns.into_iter().filter_map(|lfn| {
                        let kind = *tree.get(lfn.as_str())?;
                        let is_followed = follow && kind == Kind::Link;
                        Some((lfn, if is_followed { Kind::Directory } else { kind }))
                    });
                    expansion.checked(there.collect::<Vec<_>>());
                }
                Step::Done(lfns) => return (lfns.iter().map(Lfn::to_string).collect(), reads),
            }
        }
    }

    fn tree() -> BTreeMap<&'static str, Kind> {
        use Kind::{Directory, File, Link};
        BTreeMap::from([
            ("/a", Directory),
            ("/a/1.root", File),
            ("/a/2.root", File),
            ("/a/.hidden", File),
            ("/a/d1", Directory),
            ("/a/d1/x", File),
            ("/a/d1/y", File),
            ("/a/d2", Directory),
            ("/a/d2/x", File),
            ("/a/f", File),
            ("/a/link", Link),
        ])
    }

    #[test]
    fn wildcards_match_names_of_existing_entries() {
        let tree = tree();
        let found = |path: &str| expand(&tree, path, false).0;
        assert_eq!(found("/a/*.root"), ["/a/1.root", "/a/2.root"]);
        assert_eq!(found("/a/[2-9].root"), ["/a/2.root"]);
        assert_eq!(found("/a/{1,3}.root"), ["/a/1.root"]);
        assert_eq!(found("/a/d?/x"), ["/a/d1/x", "/a/d2/x"]);
        assert_eq!(found("/a/d?/y"), ["/a/d1/y"]);
        assert_eq!(found("/*/d?/*"), ["/a/d1/x", "/a/d1/y", "/a/d2/x"]);
        assert_eq!(found("/a/.h*"), ["/a/.hidden"]);
        assert_eq!(found("/a/l*"), ["/a/link"]);
        assert_eq!(found("/nosuch/*"), [""; 0]);
        assert_eq!(found("/a/q*"), [""; 0]);
    }

    #[test]
    fn directories_only_leaves_out_files() {
        assert_eq!(expand(&tree(), "/a/*", true).0, ["/a/d1", "/a/d2"]);
        assert_eq!(expand(&tree(), "/*/d1", true).0, ["/a/d1"]);
        assert_eq!(expand(&tree(), "/*/f", true).0, [""; 0]);
    }

    #[test]
    fn file_behind_a_literal_name_is_not_listed() {
        // The two reads are the check of `/a/f` and the end. Listing a file would return the file
        // itself.
        assert_eq!(expand(&tree(), "/a/f/*", false), (vec![], 2));
    }

    #[test]
    fn link_before_a_wildcard_is_followed() {
        let mut tree = tree();
        tree.insert("/a/link/z", Kind::File);
        assert_eq!(expand(&tree, "/a/l*/z", false).0, ["/a/link/z"]);
        assert_eq!(expand(&tree, "/a/l*/*", false).0, ["/a/link/z"]);
    }

    #[test]
    fn path_without_wildcards_and_bad_patterns_are_not_expanded() {
        assert!(Expansion::of(&Lfn::parse("/a/{b}").unwrap(), false).unwrap().is_none());
        assert!(Expansion::of(&Lfn::parse("/a/b").unwrap(), false).unwrap().is_none());
        let bad = Expansion::of(&Lfn::parse("/a/[b").unwrap(), false);
        assert_eq!(bad.unwrap_err().kind, ErrorKind::Invalid);
    }

    #[test]
    fn more_than_the_limit_is_refused() {
        let mut expansion = Expansion::of(&Lfn::parse("/*").unwrap(), false).unwrap().unwrap();
        assert_eq!(expansion.step(), Step::List(Lfn::root()));
        let name = Name::parse("a").unwrap();
        for _ in 0..EXPANDED_MAX {
            expansion.listed(&name, Kind::File).unwrap();
        }
        assert_eq!(expansion.listed(&name, Kind::File).unwrap_err().kind, ErrorKind::Limit);
    }
}
