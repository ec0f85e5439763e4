//! Maps PFNs and locations of a listing to SEs: the SE map, and the rule for made-up names.

use std::collections::BTreeMap;

use exacat_model::SeName;
use exacat_model::limits::SE_NAME_BYTES_MAX;

use crate::error::Error;
use crate::limits::SE_RULES_MAX;

/// Result of a rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mapped {
    /// The SE.
    pub se: SeName,
    /// Prefix of a location without PFNs: the PFN is this and the row's LFN. None if it follows
    /// from the GUID.
    pub pfn_prefix: Option<String>,
    /// Text removed from the start of the LFN before the prefix is put before it.
    pub strip: String,
}

/// Rules `PATTERN=SE`, which map PFNs and locations to SEs.
///
/// A pattern with `://` is the beginning of PFNs; the longest match counts. Any other pattern is a
/// PFN's host (with or without its port) or a location as the listing names it, and must match as a
/// whole. PFN beginnings have priority over `host:port`, which has priority over the host alone.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SeMap {
    /// Longest first.
    beginnings: Vec<(String, Mapped)>,
    names: BTreeMap<String, Mapped>,
}

impl SeMap {
    /// Adds a rule as on the command line: `PATTERN=SE`. The last `=` counts, because PFNs may
    /// contain some.
    pub fn add_rule(&mut self, text: &str) -> Result<(), Error> {
        let (pattern, se) = text
            .rsplit_once('=')
            .ok_or_else(|| Error::options(format!("not an SE rule (PATTERN=SE): {text:.200?}")))?;
        self.add(pattern, se, None, "")
    }

    /// Adds the rules of a file, one per line, with fields separated by tabs. The fields are
    /// pattern and SE. Locations whose PFNs are a prefix and the LFN have two more: the prefix, and
    /// the text to remove from the LFN first. Lines that are empty or begin with `#` are skipped; a
    /// line without a tab is `PATTERN=SE`.
    pub fn add_file(&mut self, content: &str) -> Result<(), Error> {
        for (index, line) in content.lines().enumerate() {
            if line.trim().is_empty() || line.starts_with('#') {
                continue;
            }
            let fields: Vec<&str> = line.split('\t').collect();
            let added = match fields[..] {
                [_] => self.add_rule(line),
                [pattern, se] => self.add(pattern, se, None, ""),
                [pattern, se, prefix] => self.add(pattern, se, Some(prefix), ""),
                [pattern, se, prefix, strip] => self.add(pattern, se, Some(prefix), strip),
                _ => Err(Error::options("an SE rule has at most four fields")),
            };
            added.map_err(|error| Error::options(format!("line {} of the SE map: {error}", index + 1)))?;
        }
        Ok(())
    }

    fn add(&mut self, pattern: &str, se: &str, prefix: Option<&str>, strip: &str) -> Result<(), Error> {
        if pattern.is_empty() {
            return Err(Error::options("the pattern of an SE rule is empty"));
        }
        if self.beginnings.len() + self.names.len() >= SE_RULES_MAX {
            return Err(Error::options(format!("more than {SE_RULES_MAX} SE rules")));
        }
        let se = SeName::parse(se.trim()).map_err(|error| Error::options(error.message))?;
        let pfn_prefix = prefix.filter(|prefix| !prefix.is_empty()).map(str::to_owned);
        let mapped = Mapped { se, pfn_prefix, strip: strip.to_owned() };
        if pattern.contains("://") {
            self.beginnings.push((pattern.to_owned(), mapped));
            self.beginnings.sort_by(|(a, _), (b, _)| b.len().cmp(&a.len()).then(a.cmp(b)));
        } else {
            self.names.insert(pattern.to_owned(), mapped);
        }
        Ok(())
    }

    /// Says whether there are no rules.
    pub fn is_empty(&self) -> bool {
        self.beginnings.is_empty() && self.names.is_empty()
    }

    /// Returns the SE of a PFN.
    pub fn of_pfn(&self, pfn: &str) -> Option<&Mapped> {
        if let Some((_, mapped)) = self.beginnings.iter().find(|(beginning, _)| pfn.starts_with(beginning)) {
            return Some(mapped);
        }
        if self.names.is_empty() {
            return None;
        }
        let endpoint = endpoint(pfn)?;
        self.names.get(endpoint).or_else(|| self.names.get(host(endpoint)))
    }

    /// Returns the SE of a location of the listing.
    pub fn of_location(&self, location: &str) -> Option<&Mapped> {
        self.names.get(location)
    }

    /// Iterates over the SEs that the rules name.
    pub fn ses(&self) -> impl Iterator<Item = &SeName> {
        self.beginnings
            .iter()
            .map(|(_, mapped)| &mapped.se)
            .chain(self.names.values().map(|mapped| &mapped.se))
    }
}

/// Returns `host:port` of a URL, without the part before an `@`.
pub fn endpoint(pfn: &str) -> Option<&str> {
    let after = pfn.split_once("://")?.1;
    let authority = after.split(['/', '?', '#']).next()?;
    let endpoint = authority.rsplit_once('@').map_or(authority, |(_, endpoint)| endpoint);
    (!endpoint.is_empty()).then_some(endpoint)
}

/// Returns the host of `host:port` or `[v6]:port`.
fn host(endpoint: &str) -> &str {
    match endpoint.rsplit_once(':') {
        Some((host, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => host,
        _ => endpoint,
    }
}

/// Makes up the name of a PFN's SE: its host, in lower case. None if it has no host.
pub fn name_of_pfn(pfn: &str) -> Option<SeName> {
    name_of_location(&host(endpoint(pfn)?).to_ascii_lowercase())
}

/// Makes up the name of a location's SE: the location, with `_` for each character that an SE's
/// name cannot have.
pub fn name_of_location(location: &str) -> Option<SeName> {
    let good = |character: char| character.is_ascii_alphanumeric() || "._-:".contains(character);
    let name: String =
        location.trim().chars().map(|character| if good(character) { character } else { '_' }).collect();
    if name.is_empty() || name.len() > SE_NAME_BYTES_MAX {
        return None;
    }
    SeName::parse(&name).or_else(|_| SeName::parse(&format!("_{name}"))).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn map(rules: &[&str]) -> SeMap {
        let mut map = SeMap::default();
        for rule in rules {
            map.add_rule(rule).unwrap();
        }
        map
    }

    #[test]
    fn the_most_precise_rule_counts() {
        let map = map(&[
            "root://h.example/=A",
            "root://h.example//special/=B",
            "h.example:2811=C",
            "h.example=D",
            "srm://s.example/managerv2?SFN=/pnfs=E",
            "loc-1=F",
        ]);
        for (pfn, se) in [
            ("root://h.example//eos/f", Some("A")),
            ("root://h.example//special/f", Some("B")),
            ("gsiftp://h.example:2811/dune:/f", Some("C")),
            ("gsiftp://u@h.example:2812/f", Some("D")),
            ("https://h.example?x", Some("D")),
            ("srm://s.example/managerv2?SFN=/pnfs/f", Some("E")),
            ("root://other/f", None),
            ("file:///f", None),
            ("loc-1", None),
        ] {
            assert_eq!(map.of_pfn(pfn).map(|mapped| mapped.se.as_str()), se, "{pfn}");
        }
        assert_eq!(map.of_location("loc-1").unwrap().se.as_str(), "F");
        assert!(map.of_location("loc-2").is_none());
    }

    #[test]
    fn a_file_of_rules_is_read_or_refused_by_line() {
        let mut map = SeMap::default();
        map.add_file(
            "# which is which\n\nh.example=A\nse-1\tB\nse-2\tC\thttps://x/ds\t/ds\nroot://q/?a=b\tD\n",
        )
        .unwrap();
        let mapped = map.of_location("se-2").unwrap();
        assert_eq!((mapped.pfn_prefix.as_deref(), mapped.strip.as_str()), (Some("https://x/ds"), "/ds"));
        assert_eq!(map.of_pfn("root://q/?a=b/c").unwrap().se.as_str(), "D");
        assert_eq!(map.ses().count(), 4);
        let many = |count: usize| (0..count).map(|rule| format!("h{rule}=A\n")).collect::<String>();
        assert!(SeMap::default().add_file(&many(SE_RULES_MAX)).is_ok());
        assert!(SeMap::default().add_file(&many(SE_RULES_MAX + 1)).is_err());
        for bad in ["x", "=A", "a=", "a=b c", "a\tB\tc\td\te"] {
            let error = SeMap::default().add_file(&format!("# 1\n{bad}\n")).unwrap_err().to_string();
            assert!(error.contains("line 2"), "{error}");
        }
    }

    #[test]
    fn names_are_made_of_hosts_and_locations() {
        for (pfn, name) in [
            ("root://EOS.example.org:1094//f", Some("eos.example.org")),
            ("https://user@h.example/x", Some("h.example")),
            ("https://[::1]:80/x", Some("_::1_")),
            ("file:///x", None),
            ("nothing", None),
        ] {
            assert_eq!(name_of_pfn(pfn).as_ref().map(SeName::as_str), name, "{pfn}");
        }
        assert_eq!(name_of_location("-x y/z").unwrap().as_str(), "_-x_y_z");
        assert!(name_of_location("").is_none());
        assert!(name_of_location(&"x".repeat(SE_NAME_BYTES_MAX + 1)).is_none());
    }
}
