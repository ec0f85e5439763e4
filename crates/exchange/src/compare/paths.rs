//! Paths on a storage element: from the lines of a dump and from PFNs to one form, and back.
//!
//! The form is the absolute path of a file on its storage, without scheme and host. Several doors of
//! one storage element then have the same paths.

use std::borrow::Cow;

use exacat_model::Se;

/// Returns the path in a URL, or the text itself if it is no URL; repeated slashes are one.
pub fn path_of(text: &str) -> Cow<'_, str> {
    let Some(rest) = after_scheme(text) else { return folded(text) };
    let path = match memchr::memchr(b'/', rest.as_bytes()) {
        None => "/",
        Some(slash) => {
            let path = &rest[slash..];
            let query = memchr::memchr(b'?', path.as_bytes()).map_or("", |query| &path[query..]);
            query.split_once("?SFN=").map_or(path, |(_, path)| path)
        }
    };
    folded(path)
}

/// Returns the part of a URL after its scheme; none if the text is no URL.
fn after_scheme(text: &str) -> Option<&str> {
    // The first slash of a URL is one of the two after its scheme.
    let colon = memchr::memchr(b'/', text.as_bytes())?.checked_sub(1)?;
    text.get(colon..)?.strip_prefix("://")
}

/// Makes a path absolute, and its repeated slashes one.
fn folded(mut path: &str) -> Cow<'_, str> {
    // The path in a URL of XRootD begins with two.
    while path.starts_with("//") {
        path = &path[1..];
    }
    // No early exit, so that the compiler compares many bytes in one step.
    let bytes = path.as_bytes();
    let pairs = bytes.iter().zip(bytes.get(1..).unwrap_or_default());
    let repeats = pairs.fold(false, |found, (one, next)| found | ((*one == b'/') & (*next == b'/')));
    if path.starts_with('/') && !repeats {
        return Cow::Borrowed(path);
    }
    let mut text = String::with_capacity(path.len() + 1);
    for part in path.split('/').filter(|part| !part.is_empty()) {
        text.push('/');
        text.push_str(part);
    }
    if path.ends_with('/') || text.is_empty() {
        text.push('/');
    }
    Cow::Owned(text)
}

/// Rules from the paths of a dump to the paths of the catalogue.
#[derive(Clone, Debug)]
pub struct PathRules {
    /// Beginning of the dump's paths to remove; lines without it are of another space.
    strip: Option<String>,
    /// Beginning to put before the rest; none for the path of the storage element's prefix.
    add: Option<String>,
    /// PFN of the root of the storage: scheme and host.
    root: String,
    /// Path of the storage element's prefix, without a slash at its end.
    base: String,
    /// Prefix of the storage element; empty if its place is unknown.
    prefix: String,
}

impl PathRules {
    /// Makes the rules of a storage element.
    pub fn new(se: &Se, strip: Option<&str>, add: Option<&str>) -> Self {
        let prefix = if se.is_place_known() { se.prefix.as_str() } else { "" };
        let base = if prefix.is_empty() { String::new() } else { path_of(prefix).into_owned() };
        let root = match prefix.find("://") {
            None => String::new(),
            Some(at) => {
                let host = at + 3 + prefix[at + 3..].find('/').unwrap_or(prefix.len() - at - 3);
                let double = prefix[host..].starts_with("//");
                format!("{}{}", &prefix[..host], if double { "/" } else { "" })
            }
        };
        PathRules {
            strip: strip.map(str::to_owned),
            add: add.map(|add| path_of(add).into_owned()),
            root,
            base: base.trim_end_matches('/').to_owned(),
            prefix: prefix.to_owned(),
        }
    }

    /// Returns the path of a line of a dump; none if the line is of another space.
    pub fn of_line<'a>(&self, text: &'a str) -> Option<Cow<'a, str>> {
        let Some(strip) = &self.strip else {
            return Some(match &self.add {
                Some(add) => below(add, &path_of(text)),
                None if text.starts_with('/') || after_scheme(text).is_some() => path_of(text),
                None => below(&self.base, text),
            });
        };
        let rest = text.strip_prefix(strip.as_str())?;
        // `/data` is no beginning of `/database`.
        if !(strip.ends_with('/') || rest.is_empty() || rest.starts_with('/')) {
            return None;
        }
        Some(below(self.add.as_ref().unwrap_or(&self.base), rest))
    }

    /// Returns the PFN of a path.
    pub fn pfn(&self, path: &str) -> String {
        match path.strip_prefix(&self.base).filter(|rest| rest.starts_with('/')) {
            Some(rest) if !self.prefix.is_empty() => format!("{}{rest}", self.prefix),
            _ => format!("{}{path}", self.root),
        }
    }

    /// Returns the path below the storage element's prefix, if it is there.
    pub fn below_prefix<'a>(&self, path: &'a str) -> Option<&'a str> {
        if self.prefix.is_empty() {
            return None;
        }
        path.strip_prefix(&self.base).filter(|rest| rest.starts_with('/'))
    }
}

fn below(base: &str, rest: &str) -> Cow<'static, str> {
    Cow::Owned(folded(&format!("{base}/{rest}")).into_owned())
}

#[cfg(test)]
mod tests {
    use exacat_model::{SeName, SeNumber, SeStatus};

    use super::*;

    fn se(prefix: &str) -> Se {
        Se {
            number: SeNumber(1),
            name: SeName::parse("A").unwrap(),
            prefix: prefix.to_owned(),
            qos: Vec::new(),
            status: SeStatus::Online,
            distances: Vec::new(),
            https: String::new(),
        }
    }

    /// All forms of PFNs of one file have one path.
    #[test]
    fn path_of_a_pfn_has_no_scheme_host_or_repeated_slash() {
        for (pfn, path) in [
            ("root://h:1094//data/x", "/data/x"),
            ("root://h/data//x", "/data/x"),
            ("https://h/data/x", "/data/x"),
            ("srm://h:8443/srm/managerv2?SFN=/pnfs/x", "/pnfs/x"),
            ("gsiftp://h:2811/dune:/x y", "/dune:/x y"),
            ("/data/x", "/data/x"),
            ("/data/x://h/y", "/data/x:/h/y"),
            ("data/x://h/y", "/data/x:/h/y"),
            ("root://h/x?a=/b?SFN=/c", "/c"),
            ("é://h/x", "/x"),
            ("é", "/é"),
            ("data/x", "/data/x"),
            ("root://h", "/"),
            ("", "/"),
            ("//", "/"),
            ("///", "/"),
            ("///d///x//", "/d/x/"),
            ("/d/", "/d/"),
        ] {
            assert_eq!(path_of(pfn), path, "{pfn}");
        }
    }

    /// A dump has absolute paths, or paths below the prefix of the storage element.
    #[test]
    fn line_without_rules_is_absolute_or_below_the_prefix() {
        let rules = PathRules::new(&se("root://h//eos/x"), None, None);
        for line in ["/eos/x/a/b", "a/b", "root://other//eos/x/a/b", "./a/b".trim_start_matches("./")] {
            assert_eq!(rules.of_line(line).unwrap(), "/eos/x/a/b", "{line}");
        }
        assert_eq!(rules.pfn("/eos/x/a"), "root://h//eos/x/a");
        assert_eq!(rules.pfn("/eos/xy"), "root://h//eos/xy");
        assert_eq!(rules.below_prefix("/eos/x/a"), Some("/a"));
        assert_eq!(rules.below_prefix("/eos/xy"), None);
        assert_eq!(PathRules::new(&se("https://h:1/d"), None, None).pfn("/e"), "https://h:1/e");
        for unknown in ["", "unknown://A"] {
            let rules = PathRules::new(&se(unknown), None, None);
            assert_eq!((rules.of_line("a").unwrap().as_ref(), rules.pfn("/a").as_str()), ("/a", "/a"));
            assert_eq!(rules.below_prefix("/a"), None);
        }
    }

    /// A prefix is removed at a slash only, and another one may be added.
    #[test]
    fn prefixes_are_removed_and_added_and_other_spaces_are_none() {
        let eos = se("root://h//eos/x");
        let rules = PathRules::new(&eos, Some("/pnfs/site"), None);
        assert_eq!(rules.of_line("/pnfs/site/a").unwrap(), "/eos/x/a");
        assert_eq!(rules.of_line("/pnfs/site2/a"), None);
        assert_eq!(rules.of_line("/other/a"), None);
        let rules = PathRules::new(&eos, Some("/pnfs/"), Some("/new"));
        assert_eq!(rules.of_line("/pnfs/a").unwrap(), "/new/a");
        let rules = PathRules::new(&eos, None, Some("root://h//eos/y"));
        assert_eq!(rules.of_line("a").unwrap(), "/eos/y/a");
        assert_eq!(rules.of_line("/a").unwrap(), "/eos/y/a");
    }
}
