//! Names of storage elements by the numbers in entries.

use std::collections::HashMap;

use exacat_model::answer::SeUsage;
use exacat_model::{Guid, Location, Replica, Se, SeName, SeNumber};

/// Known storage elements by number.
#[derive(Clone, Debug, Default)]
pub struct SeNames {
    ses: HashMap<SeNumber, Se>,
    names: HashMap<SeNumber, SeName>,
}

impl SeNames {
    /// Learns all storage elements.
    pub fn learn_all(&mut self, list: &[SeUsage]) {
        for item in list {
            self.names.insert(item.se.number, item.se.name.clone());
            self.ses.insert(item.se.number, item.se.clone());
        }
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
    pub fn name(&self, number: SeNumber) -> String {
        match self.names.get(&number) {
            Some(name) => name.to_string(),
            None => format!("#{}", number.0),
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
