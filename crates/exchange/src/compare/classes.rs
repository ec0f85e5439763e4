//! Classes of a comparison: the outcome for one path, from the facts about it.
//!
//! The rule is of three states: the catalogue before the dump, the dump, the catalogue after it. A copy
//! is lost only if the catalogue had it in both, and dark only if neither had it. Everything else that
//! differs is on the way.

use exacat_model::{Checksum, Guid, ReplicaState, TimeMs};

use super::record::{CatalogueCopy, Fact, StoredFile, WaitingDeletion};
use crate::limits::COMPARE_COPIES_OF_A_PATH_MAX;

macro_rules! classes {
    ($( $(#[$doc:meta])* $variant:ident $name:literal ),* $(,)?) => {
        /// Outcome for a path.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum Class { $( $(#[$doc])* $variant, )* }

        impl Class {
            /// All classes.
            pub const ALL: [Class; [$($name),*].len()] = [$(Class::$variant),*];

            /// Returns the name in reports and of listings.
            pub fn name(self) -> &'static str {
                match self { $( Class::$variant => $name, )* }
            }
        }
    };
}

classes! {
    /// The storage has the copy as the catalogue describes it.
    Same "same",
    /// The catalogue had the copy before and after the dump, and the storage does not have it.
    Lost "lost",
    /// The storage has a file that the catalogue knew neither before nor after.
    Dark "dark",
    /// Both have the copy, and its size differs.
    WrongSize "wrong-size",
    /// Both have the copy, and a checksum differs.
    WrongChecksum "wrong-checksum",
    /// The catalogue says that the copy is lost, and the storage has it.
    Found "found",
    /// The catalogue says that the copy is lost, and the storage does not have it.
    KnownLost "known-lost",
    /// The copy waits for its deletion, and the storage does not have it any more.
    Deleted "deleted",
    /// The copy changed during the window, is being written, or waits for its deletion.
    OnTheWay "on-the-way",
    /// The state before the dump is unknown, so that it may be lost, dark, or on the way.
    Undecided "undecided",
}

/// Knowledge about the state before the dump.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Earlier {
    /// All copies of an earlier state are known.
    State,
    /// All changes since an earlier state are known.
    Changes,
    /// Nothing is known.
    Unknown,
}

/// Facts about one path.
#[derive(Debug, Default)]
pub(crate) struct Facts {
    pub(crate) dump: Option<StoredFile>,
    /// Lines of the dump with this path, beyond the first.
    pub(crate) repeats: u64,
    pub(crate) after: Vec<CatalogueCopy>,
    /// Copies beyond the limit of copies of a path.
    pub(crate) copies_dropped: u64,
    before: Vec<(Guid, ReplicaState)>,
    touched: bool,
    deletion: Option<WaitingDeletion>,
    deletion_before: bool,
    upload: bool,
}

impl Facts {
    /// Forgets the facts of the path before.
    pub(crate) fn clear(&mut self) {
        self.dump = None;
        self.repeats = 0;
        self.after.clear();
        self.copies_dropped = 0;
        self.before.clear();
        self.touched = false;
        self.deletion = None;
        self.deletion_before = false;
        self.upload = false;
    }

    /// Adds a fact.
    pub(crate) fn add(&mut self, fact: Fact) {
        match fact {
            Fact::Dump(file) => match &mut self.dump {
                None => self.dump = Some(file),
                Some(known) => {
                    self.repeats += 1;
                    known.size = known.size.or(file.size);
                    known.checksum = known.checksum.or(file.checksum);
                }
            },
            Fact::After(_) if self.after.len() >= COMPARE_COPIES_OF_A_PATH_MAX => self.copies_dropped += 1,
            Fact::After(copy) => self.after.push(copy),
            // A copy that is not among these counts as changed, which is the safe side.
            Fact::Before(..) if self.before.len() >= COMPARE_COPIES_OF_A_PATH_MAX => {}
            Fact::Before(guid, state) => self.before.push((guid, state)),
            Fact::Touched => self.touched = true,
            Fact::Deletion(deletion) => self.deletion = Some(deletion),
            Fact::DeletionBefore => self.deletion_before = true,
            Fact::Upload => self.upload = true,
        }
    }
}

/// Outcome for one copy, or for a file that the catalogue does not have.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Outcome<'a> {
    pub(crate) class: Class,
    /// Copy of the catalogue, if it has one.
    pub(crate) copy: Option<&'a CatalogueCopy>,
    /// File of the dump, if it has one.
    pub(crate) stored: Option<&'a StoredFile>,
    /// Deletion that waits, if one does.
    pub(crate) deletion: Option<&'a WaitingDeletion>,
}

impl Outcome<'_> {
    /// Returns the bytes, by the storage or else by the catalogue.
    pub(crate) fn bytes(&self) -> u64 {
        let stored = self.stored.and_then(|file| file.size);
        let known = self.copy.and_then(|copy| copy.size);
        let waiting = self.deletion.and_then(|deletion| deletion.size);
        stored.or(known).or(waiting).unwrap_or(0)
    }
}

/// Rules by which paths are classified.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Judge {
    pub(crate) earlier: Earlier,
    /// Beginning of the window; deletions queued before it are done if the file is gone.
    pub(crate) from: Option<TimeMs>,
    /// True if the catalogue has copies that could not be listed, so that nothing is surely dark.
    pub(crate) hidden: bool,
}

/// Says whether a copy of the earlier state is the same one, as readable or as lost as now.
fn is_same((guid, state): (Guid, ReplicaState), copy: &CatalogueCopy) -> bool {
    let lost = |state| state == ReplicaState::Lost;
    guid == copy.guid && state != ReplicaState::Copying && lost(state) == lost(copy.state)
}

impl Judge {
    /// Passes the outcome for each copy of a path to `take`.
    pub(crate) fn judge<'a>(&self, facts: &'a Facts, mut take: impl FnMut(Outcome<'a>)) {
        let stored = facts.dump.as_ref();
        for copy in &facts.after {
            let class = self.of_copy(facts, copy, stored);
            take(Outcome { class, copy: Some(copy), stored, deletion: None });
        }
        if !facts.after.is_empty() {
            return;
        }
        let deletion = facts.deletion.as_ref();
        if stored.is_some() {
            take(Outcome { class: self.without_copy(facts), copy: None, stored, deletion });
        } else if let Some(waiting) = deletion
            && (facts.deletion_before || self.from.is_some_and(|from| waiting.queued < from))
            && !facts.touched
        {
            take(Outcome { class: Class::Deleted, copy: None, stored, deletion });
        }
    }

    /// Says whether the catalogue had this very copy during the whole window; none if unknown.
    fn stood(&self, facts: &Facts, copy: &CatalogueCopy) -> Option<bool> {
        match self.earlier {
            Earlier::State => {
                Some(!facts.touched && facts.before.iter().any(|before| is_same(*before, copy)))
            }
            Earlier::Changes => Some(!facts.touched),
            Earlier::Unknown => None,
        }
    }

    fn of_copy(&self, facts: &Facts, copy: &CatalogueCopy, stored: Option<&StoredFile>) -> Class {
        if copy.state == ReplicaState::Copying || facts.upload {
            return Class::OnTheWay;
        }
        let class = match (stored, copy.state) {
            (None, ReplicaState::Lost) => return Class::KnownLost,
            (None, _) => Class::Lost,
            (Some(_), ReplicaState::Lost) => Class::Found,
            (Some(file), _) => match difference(copy, file) {
                None => return Class::Same,
                Some(class) => class,
            },
        };
        match self.stood(facts, copy) {
            Some(true) => class,
            Some(false) => Class::OnTheWay,
            None => Class::Undecided,
        }
    }

    fn without_copy(&self, facts: &Facts) -> Class {
        let known = facts.deletion.is_some() || facts.deletion_before || facts.upload;
        if known || facts.touched || !facts.before.is_empty() {
            return Class::OnTheWay;
        }
        match self.earlier {
            Earlier::State | Earlier::Changes if !self.hidden => Class::Dark,
            _ => Class::Undecided,
        }
    }
}

/// Returns the difference between a copy and its file on the storage.
fn difference(copy: &CatalogueCopy, file: &StoredFile) -> Option<Class> {
    if let (Some(known), Some(found)) = (copy.size, file.size)
        && known != found
    {
        return Some(Class::WrongSize);
    }
    let found = file.checksum.as_ref()?;
    let known: &Checksum = copy.checksums.get(found.algorithm())?;
    (known != found).then_some(Class::WrongChecksum)
}
