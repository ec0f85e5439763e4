//! Settings of users and storage elements that name one and change nothing else, for a test to add
//! to.

use exacat_model::operation::{SeSettings, UserSettings};
use exacat_model::{AccountName, SeName};

/// Settings that add a user, or leave it as it is.
pub fn user(name: &str) -> UserSettings {
    UserSettings {
        name: AccountName::parse(name).unwrap(),
        group: None,
        groups: None,
        roles: None,
        may_become: None,
        subjects: None,
        home: None,
        disabled: None,
        only_new: false,
    }
}

/// Settings that add a storage element, or leave it as it is.
pub fn se(name: &str) -> SeSettings {
    SeSettings {
        name: SeName::parse(name).unwrap(),
        number: None,
        prefix: None,
        qos: None,
        status: None,
        distances: Vec::new(),
        https: None,
        only_new: false,
    }
}
