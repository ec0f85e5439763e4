//! Contents of the catalogue at one moment.

use exacat_model::{TimeMs, Usage, canonical_struct};

/// Contents at one moment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Sample {
    pub at: TimeMs,
    /// Entries in the tree and the trash.
    pub entries: u64,
    /// The tree, without the trash.
    pub whole: Usage,
    /// Replicas on each storage element, by name.
    pub ses: Vec<(String, Usage)>,
    /// Usage of each user and group with a quota, as `user:NAME` and `group:NAME`.
    pub owners: Vec<(String, Usage)>,
}

canonical_struct!(Sample { at, entries, whole, ses, owners });

/// Part of the contents.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) enum Subject {
    #[default]
    Whole,
    Se(String),
    /// As in [`Sample::owners`].
    Owner(String),
}

/// Contents of one subject at one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Point {
    pub at: TimeMs,
    /// None for a subject that counts no entries of the trash.
    pub entries: Option<u64>,
    pub usage: Usage,
}

impl Sample {
    /// Returns the contents of a subject; none if it has none then.
    pub(crate) fn of(&self, subject: &Subject) -> Option<Point> {
        let named = |all: &[(String, Usage)], name: &str| {
            all.iter().find(|(known, _)| known == name).map(|(_, usage)| *usage)
        };
        let (entries, usage) = match subject {
            Subject::Whole => (Some(self.entries), Some(self.whole)),
            Subject::Se(name) => (None, named(&self.ses, name)),
            Subject::Owner(name) => (None, named(&self.owners, name)),
        };
        usage.map(|usage| Point { at: self.at, entries, usage })
    }
}
