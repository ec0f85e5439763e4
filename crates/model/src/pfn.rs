//! PFNs: the URL of one physical copy.

use std::fmt;

use crate::canonical_text;
use crate::error::{Error, Result};
use crate::limits::PFN_BYTES_MAX;

/// URL of one physical copy, kept byte for byte: 1 to 4096 bytes of UTF-8, no control characters.
/// It is not parsed as a URL, because real ones break the rules (`srm://…?SFN=/…`,
/// `gsiftp://host:2811/dune:/…`).
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Pfn(Box<str>);

impl Pfn {
    /// Checks `text` and converts it to a PFN.
    pub fn parse(text: &str) -> Result<Self> {
        Self::check(text)?;
        Ok(Pfn(text.into()))
    }

    fn check(text: &str) -> Result<()> {
        if text.is_empty() {
            return Err(Error::invalid("a PFN is empty"));
        }
        if text.len() > PFN_BYTES_MAX {
            return Err(Error::limit("the length of a PFN in bytes", text.len(), PFN_BYTES_MAX));
        }
        // No early exit, so the compiler can check many bytes in one step: imports parse PFNs by
        // the million.
        if text.bytes().fold(false, |found, byte| found | (byte < b' ') | (byte == 0x7f)) {
            return Err(Error::invalid(format!("a PFN holds a control character: {text:.100?}")));
        }
        Ok(())
    }

    /// Returns the PFN as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Converts the PFN to text without a copy.
    pub fn into_string(self) -> String {
        self.0.into()
    }
}

impl TryFrom<String> for Pfn {
    type Error = Error;

    /// Checks a text as [`Pfn::parse`] does, and takes it without a copy.
    fn try_from(text: String) -> Result<Self> {
        Self::check(&text)?;
        Ok(Pfn(text.into()))
    }
}

impl fmt::Display for Pfn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for Pfn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.0, f)
    }
}

canonical_text!(Pfn, "not a valid PFN");

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn real_pfns_are_kept_and_broken_ones_refused() {
        for good in [
            "root://eospublic.cern.ch//eos/opendata/x y%3f?C=D;O=A",
            "gsiftp://host.example:2811/dune:/protodune/f.root",
            "srm://host.example:8443/srm/managerv2?SFN=/pnfs/f.root",
        ] {
            assert_eq!(Pfn::parse(good).unwrap().as_str(), good);
        }
        assert!(Pfn::parse("").is_err());
        assert!(Pfn::parse("root://h/\n").is_err());
        assert!(Pfn::parse(&"x".repeat(PFN_BYTES_MAX)).is_ok());
        assert!(Pfn::parse(&"x".repeat(PFN_BYTES_MAX + 1)).is_err());
    }
}
