//! Cache of names that rows of a listing repeat, so that each name is checked, and stored, once.

use std::cell::RefCell;
use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

use exacat_model::{AccountName, SeName};
use xxhash_rust::xxh3::xxh3_64_with_seed;

/// Maximum names of one kind. Listings with more are rare, and only slower.
const NAMES_MAX: usize = 1024;

/// Fast hashing of names, for tables that stay small with any listing.
pub(crate) type Quick = BuildHasherDefault<QuickHasher>;

/// Hash of the bytes written so far.
#[derive(Default)]
pub(crate) struct QuickHasher(u64);

impl Hasher for QuickHasher {
    fn write(&mut self, bytes: &[u8]) {
        self.0 = xxh3_64_with_seed(bytes, self.0);
    }
    fn write_u8(&mut self, value: u8) {
        self.0 = self.0.rotate_left(8) ^ u64::from(value);
    }
    fn finish(&self) -> u64 {
        self.0
    }
}

/// Names seen by one reader of a listing.
#[derive(Debug, Default)]
pub(crate) struct Memo {
    accounts: RefCell<HashMap<String, AccountName, Quick>>,
    ses: RefCell<HashMap<String, SeName, Quick>>,
    /// Names made up for locations.
    locations: RefCell<HashMap<String, SeName, Quick>>,
    /// Names made up for the hosts of PFNs.
    hosts: RefCell<HashMap<String, SeName, Quick>>,
}

fn kept<T: Clone, E>(
    names: &RefCell<HashMap<String, T, Quick>>,
    text: &str,
    make: impl FnOnce() -> Result<T, E>,
) -> Result<T, E> {
    let mut names = names.borrow_mut();
    if let Some(known) = names.get(text) {
        return Ok(known.clone());
    }
    let made = make()?;
    if names.len() >= NAMES_MAX {
        names.clear();
    }
    names.insert(text.to_owned(), made.clone());
    Ok(made)
}

impl Memo {
    /// Returns the account that `make` makes of this text, or made before.
    pub(crate) fn account<E>(
        &self,
        text: &str,
        make: impl FnOnce() -> Result<AccountName, E>,
    ) -> Result<AccountName, E> {
        kept(&self.accounts, text, make)
    }

    /// Returns the SE that `make` makes of this location, or made before.
    pub(crate) fn location<E>(
        &self,
        text: &str,
        make: impl FnOnce() -> Result<SeName, E>,
    ) -> Result<SeName, E> {
        kept(&self.locations, text, make)
    }

    /// Returns the SE that `make` makes of this host, or made before.
    pub(crate) fn host<E>(&self, text: &str, make: impl FnOnce() -> Result<SeName, E>) -> Result<SeName, E> {
        kept(&self.hosts, text, make)
    }

    /// Returns the SE that `make` makes of this name, or made before.
    pub(crate) fn se<E>(&self, text: &str, make: impl FnOnce() -> Result<SeName, E>) -> Result<SeName, E> {
        kept(&self.ses, text, make)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_made_once_and_an_error_every_time() {
        let memo = Memo::default();
        let make = || SeName::parse("S1");
        assert_eq!(memo.se("s", make).unwrap().as_str(), "S1");
        assert_eq!(memo.se("s", || Err::<SeName, ()>(())).unwrap().as_str(), "S1");
        assert!(memo.se("t", || Err::<SeName, ()>(())).is_err());
        for number in 0..2 * NAMES_MAX {
            memo.se(&number.to_string(), make).unwrap();
        }
        assert!(memo.ses.borrow().len() <= NAMES_MAX);
    }
}
