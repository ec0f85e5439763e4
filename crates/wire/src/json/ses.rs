//! Names of storage elements by the numbers in entries.

use std::borrow::Cow;
use std::collections::BTreeMap;

use exacat_model::answer::SeUsage;
use exacat_model::{Guid, Location, Replica, Se, SeName, SeNumber};

/// Known storage elements by number.
#[derive(Clone, Debug, Default)]
pub struct SeNames {
    ses: BTreeMap<SeNumber, Se>,
    names: BTreeMap<SeNumber, SeName>,
}

impl SeNames {
    /// Learns all storage elements.
    pub fn learn_all(&mut self, list: &[SeUsage]) {
        list.iter().for_each(|item| self.learn_one(&item.se));
    }

    /// Learns a storage element.
    pub fn learn_one(&mut self, se: &Se) {
        self.names.insert(se.number, se.name.clone());
        self.ses.insert(se.number, se.clone());
    }

    /// True if no name is known.
    pub fn is_empty(&self) -> bool {
        self.names.is_empty()
    }

    /// True if the name of this number is known.
    pub fn knows(&self, number: SeNumber) -> bool {
        self.names.contains_key(&number)
    }

    /// Learns names that came with an answer.
    pub fn learn(&mut self, names: &[(u16, SeName)]) {
        for (number, name) in names {
            self.names.entry(SeNumber(*number)).or_insert_with(|| name.clone());
        }
    }

    /// Returns the name, or the number if the name is not known.
    pub fn name(&self, number: SeNumber) -> Cow<'_, str> {
        match self.names.get(&number) {
            Some(name) => Cow::Borrowed(name.as_str()),
            None => Cow::Owned(format!("#{}", number.0)),
        }
    }

    /// Returns the number of this name, in any case of letters.
    pub fn number(&self, name: &SeName) -> Option<SeNumber> {
        self.names
            .iter()
            .find(|(_, known)| known.as_str().eq_ignore_ascii_case(name.as_str()))
            .map(|(number, _)| *number)
    }

    /// Returns the URL of a replica; empty if it follows from an unknown prefix.
    pub fn pfn(&self, guid: Guid, replica: &Replica) -> String {
        match (&replica.location, self.ses.get(&replica.se)) {
            (Location::Derived, None) => String::new(),
            (Location::Derived, Some(se)) if !se.is_place_known() => String::new(),
            (_, se) => replica.pfn(guid, se),
        }
    }
}
