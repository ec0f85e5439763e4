//! The part of the catalogue that a feed shows: which effects, and which directory.

use exacat_model::{Effect, Error, Lfn, Result};

/// Effects that a feed, or a request for changes, shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Kinds(u16);

impl Kinds {
    /// Reads the names of effects; none means all.
    pub fn parse<'n>(names: impl IntoIterator<Item = &'n str>) -> Result<Self> {
        let mut bits = 0;
        for name in names {
            let at = Effect::NAMES.iter().position(|kind| *kind == name).ok_or_else(|| {
                Error::invalid(format!(
                    "{name:.40?} is no kind of change: choose among {}",
                    Effect::NAMES.join(", ")
                ))
            })?;
            bits |= 1 << at;
        }
        Ok(Kinds(if bits == 0 { u16::MAX } else { bits }))
    }

    /// True if the feed shows this effect.
    pub fn show(self, effect: &Effect) -> bool {
        self.0 == u16::MAX
            || Effect::NAMES
                .iter()
                .position(|kind| *kind == effect.name())
                .is_some_and(|at| self.0 & (1 << at) != 0)
    }
}

/// Relation of a place to the directory of a feed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sight {
    /// The directory itself, or below it.
    Inside,
    /// A directory above it: what happens to it happens to all of the feed's directory.
    Above,
    /// Elsewhere, or in the trash.
    Outside,
}

/// The directory of a feed.
#[derive(Clone, Debug)]
pub(crate) struct Scope {
    /// Without a slash at the end; empty for all.
    under: Box<str>,
}

impl Scope {
    pub(crate) fn new(under: Option<&Lfn>) -> Self {
        Scope { under: under.map_or("", |lfn| lfn.as_str().trim_end_matches('/')).into() }
    }

    /// True if the feed shows everything.
    pub(crate) fn is_all(&self) -> bool {
        self.under.is_empty()
    }

    /// Returns the path; `/` for all.
    pub(crate) fn path(&self) -> &str {
        if self.is_all() { "/" } else { &self.under }
    }

    /// Judges a path.
    pub(crate) fn sight(&self, path: &str) -> Sight {
        let path = path.trim_end_matches('/');
        let is_below = |above: &str, below: &str| {
            below.strip_prefix(above).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
        };
        if is_below(&self.under, path) {
            Sight::Inside
        } else if is_below(path, &self.under) {
            Sight::Above
        } else {
            Sight::Outside
        }
    }
}

/// Meaning of a change for a mirror of the feed's directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Meaning {
    /// The feed does not show it.
    Hidden,
    /// An entry came to be.
    Created,
    /// An entry came to be, and may be elsewhere or gone by now; a copy must follow if it is in sight.
    Appeared,
    /// Fields of an entry changed.
    Updated,
    /// An entry has another place, with everything below it.
    Moved,
    /// An entry came into sight; a copy of it, with everything below, must follow.
    Arrived,
    /// An entry went out of sight, with everything below it.
    Gone,
    /// All that the feed shows went out of sight.
    AllGone,
    /// No entry of the tree changed.
    Other,
}

impl Meaning {
    /// Returns the meaning of a new place. `must_copy` is true if a mirror may lack directories above.
    pub(crate) fn created(after: Sight, must_copy: bool) -> Self {
        match (after, must_copy) {
            (Sight::Inside, false) => Meaning::Created,
            (Sight::Inside, true) => Meaning::Appeared,
            _ => Meaning::Hidden,
        }
    }

    /// Returns the meaning of changed fields.
    pub(crate) fn updated(at: Sight) -> Self {
        if at == Sight::Inside { Meaning::Updated } else { Meaning::Hidden }
    }

    /// Returns the meaning of a removal.
    pub(crate) fn removed(before: Sight) -> Self {
        match before {
            Sight::Inside => Meaning::Gone,
            Sight::Above => Meaning::AllGone,
            Sight::Outside => Meaning::Hidden,
        }
    }

    /// Returns the meaning of a move. `must_copy` is true if a mirror may lack the entry.
    pub(crate) fn moved(before: Sight, after: Sight, must_copy: bool) -> Self {
        match (before, after) {
            (Sight::Above, _) => Meaning::AllGone,
            (Sight::Inside, Sight::Inside) if !must_copy => Meaning::Moved,
            (_, Sight::Inside | Sight::Above) => Meaning::Arrived,
            (Sight::Inside, Sight::Outside) => Meaning::Gone,
            (Sight::Outside, Sight::Outside) => Meaning::Hidden,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Property: a path is inside by whole names only, and a directory above is told from a neighbour.
    #[test]
    fn paths_are_judged_by_whole_names() {
        let scope = Scope::new(Some(&Lfn::parse("/data/john/").unwrap()));
        for (path, sight) in [
            ("/data/john", Sight::Inside),
            ("/data/john/a/b", Sight::Inside),
            ("/data/johnathan", Sight::Outside),
            ("/data", Sight::Above),
            ("/", Sight::Above),
            ("/dat", Sight::Outside),
            ("/data/jo", Sight::Outside),
        ] {
            assert_eq!(scope.sight(path), sight, "{path}");
        }
        let all = Scope::new(None);
        assert!(all.is_all() && all.path() == "/");
        assert!(["/", "/a", "/a/b"].iter().all(|path| all.sight(path) == Sight::Inside));
        assert!(Scope::new(Some(&Lfn::root())).is_all());
    }

    /// Property: every pair of places before and after a move has the meaning that keeps a mirror right.
    #[test]
    fn moves_across_the_border_come_and_go_whole() {
        use Sight::{Above, Inside, Outside};
        for (before, after, copy, meaning) in [
            (Inside, Inside, false, Meaning::Moved),
            (Inside, Inside, true, Meaning::Arrived),
            (Inside, Outside, false, Meaning::Gone),
            (Inside, Outside, true, Meaning::Gone),
            (Outside, Inside, false, Meaning::Arrived),
            (Outside, Above, false, Meaning::Arrived),
            (Above, Outside, false, Meaning::AllGone),
            (Outside, Outside, true, Meaning::Hidden),
        ] {
            assert_eq!(Meaning::moved(before, after, copy), meaning, "{before:?} {after:?} {copy}");
        }
        assert_eq!(Meaning::removed(Above), Meaning::AllGone);
        assert_eq!(Meaning::created(Above, true), Meaning::Hidden);
        assert_eq!(Meaning::created(Inside, true), Meaning::Appeared);
    }

    #[test]
    fn unknown_kind_is_refused_with_the_list() {
        let error = Kinds::parse(["made"]).unwrap_err();
        assert!(error.message.contains("created, updated"), "{error}");
        let dequeued = Effect::Dequeued { se: exacat_model::SeNumber(1), done: Vec::new() };
        assert!(Kinds::parse([]).unwrap().show(&dequeued));
        assert!(Kinds::parse(["dequeued"]).unwrap().show(&dequeued));
        assert!(!Kinds::parse(["moved"]).unwrap().show(&dequeued));
    }
}
