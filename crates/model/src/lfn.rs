//! Logical file names: one component ([`Name`]) and the whole absolute path ([`Lfn`]).

use std::borrow::Borrow;
use std::cmp::Ordering;
use std::fmt;
use std::hash::{Hash, Hasher};

use crate::codec::{Decode, DecodeError, Encode, Reader, put_bytes};
use crate::error::{Error, Result};
use crate::limits::{DEPTH_MAX, LFN_BYTES_MAX, NAME_BYTES_MAX};

const SLASH_OR_NUL: &str = "a name holds '/' or NUL";

/// Checks a component: 1 to 255 bytes of UTF-8, no `/`, no NUL, not `.` or `..`.
fn check_name(text: &str) -> Result<()> {
    if text.is_empty() {
        return Err(Error::invalid("a name is empty"));
    }
    if text.len() > NAME_BYTES_MAX {
        return Err(Error::limit("the length of a name in bytes", text.len(), NAME_BYTES_MAX));
    }
    if text == "." || text == ".." {
        return Err(Error::invalid("'.' and '..' are no names in a logical path"));
    }
    if memchr::memchr2(b'/', 0, text.as_bytes()).is_some() {
        return Err(Error::invalid(SLASH_OR_NUL));
    }
    Ok(())
}

/// One component of an LFN. Compared by bytes: no case folding, no Unicode normalisation.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Name(Box<str>);

impl Name {
    /// Checks `text` and converts it to a name.
    pub fn parse(text: &str) -> Result<Self> {
        check_name(text)?;
        Ok(Name(text.into()))
    }

    /// Returns the name of the root, in itself. No other entry can have it.
    pub fn root() -> Self {
        Name("/".into())
    }

    /// Returns the name as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl Borrow<str> for Name {
    fn borrow(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.0, f)
    }
}

impl Encode for Name {
    fn encode(&self, out: &mut Vec<u8>) {
        put_bytes(out, self.0.as_bytes());
    }
}
impl Decode for Name {
    fn decode(reader: &mut Reader<'_>) -> std::result::Result<Self, DecodeError> {
        match reader.text()? {
            "/" => Ok(Name::root()),
            text => Name::parse(text).map_err(|_| reader.error("not a valid name")),
        }
    }
}

/// An absolute logical path in its one canonical form: `/`, or `/` and components joined by single
/// `/`.
///
/// A path in a request may end in a slash: the caller means a directory
/// ([`Lfn::must_be_directory`]). The slash is a condition and not part of the name. Comparisons,
/// text and components leave it out, and no entry, record or change stores it.
#[derive(Clone)]
pub struct Lfn(Box<str>);

/// Result of a check of a text whose components are all names.
struct Checked {
    depth: usize,
    /// True if the text is canonical: no repeated and no trailing slashes.
    canonical: bool,
}

/// Removes the slash that requires a directory.
fn without_slash(text: &str) -> &str {
    match text.strip_suffix('/') {
        Some(path) if path.len() > 1 => path,
        _ => text,
    }
}

impl Lfn {
    /// Returns the root of the catalogue.
    pub fn root() -> Self {
        Lfn("/".into())
    }

    /// Checks the components, but not the total length. It makes one pass over the bytes, because
    /// look-ups do this millions of times per second.
    fn check(text: &str) -> Result<Checked> {
        let Some(rest) = text.strip_prefix('/') else {
            return Err(Error::invalid(format!("an LFN starts with '/': {text:.200?}")));
        };
        let bytes = rest.as_bytes();
        let mut depth = 0;
        let mut canonical = true;
        let mut start = 0;
        let mut component = |end: usize| -> Result<()> {
            match &bytes[start..end] {
                [] => canonical = canonical && bytes.is_empty(),
                [b'.'] | [b'.', b'.'] => return check_name(&rest[start..end]),
                name if name.len() > NAME_BYTES_MAX => return check_name(&rest[start..end]),
                _ => depth += 1,
            }
            start = end + 1;
            Ok(())
        };
        for at in memchr::memchr2_iter(b'/', 0, bytes) {
            if bytes[at] == 0 {
                return Err(Error::invalid(SLASH_OR_NUL));
            }
            component(at)?;
        }
        component(bytes.len())?;
        Ok(Checked { depth, canonical })
    }

    /// Checks `text`. Folds repeated slashes and remembers a trailing one
    /// ([`Lfn::must_be_directory`]). Refuses `.` and `..`: a logical path has no working directory.
    pub fn parse(text: &str) -> Result<Self> {
        if text.len() > LFN_BYTES_MAX {
            return Err(Error::limit("the length of an LFN in bytes", text.len(), LFN_BYTES_MAX));
        }
        let Checked { depth, canonical } = Self::check(text)?;
        if depth > DEPTH_MAX {
            return Err(Error::limit("the number of components of an LFN", depth, DEPTH_MAX));
        }
        if canonical {
            return Ok(Lfn(text.into()));
        }
        let mut folded = String::with_capacity(text.len());
        for component in text.split('/').filter(|component| !component.is_empty()) {
            folded.push('/');
            folded.push_str(component);
        }
        if text.ends_with('/') {
            folded.push('/');
        }
        Ok(Lfn(folded.into()))
    }

    /// Says whether the path ends in a slash, so that only a directory is meant. Always false for
    /// the root.
    pub fn must_be_directory(&self) -> bool {
        self.0.len() > 1 && self.0.ends_with('/')
    }

    /// Returns the same path with a slash at its end, which requires a directory.
    pub fn of_directory(self) -> Lfn {
        if self.0.ends_with('/') {
            return self;
        }
        Lfn(format!("{}/", self.0).into())
    }

    /// Returns the same path without that requirement.
    pub fn of_anything(self) -> Lfn {
        if self.must_be_directory() { Lfn(self.as_str().into()) } else { self }
    }

    /// Joins names that were checked before, root first.
    ///
    /// The length is not checked: below a moved directory a path may exceed [`LFN_BYTES_MAX`]. Such
    /// an entry appears in listings and can be moved back, but no request can name its LFN.
    pub fn from_names<'a>(names: impl IntoIterator<Item = &'a str, IntoIter: Clone>) -> Self {
        let names = names.into_iter();
        // Reserves the exact size, so that the text is not reallocated.
        let mut text = String::with_capacity(names.clone().map(|name| 1 + name.len()).sum());
        for name in names {
            text.push('/');
            text.push_str(name);
        }
        if text.is_empty() {
            text.push('/');
        }
        Lfn(text.into())
    }

    /// Returns the path as text, without a slash at its end.
    pub fn as_str(&self) -> &str {
        without_slash(&self.0)
    }

    /// Says whether it is `/`.
    pub fn is_root(&self) -> bool {
        self.0.len() == 1
    }

    /// Iterates over the components, root first; the root has none.
    pub fn components(&self) -> impl DoubleEndedIterator<Item = &str> + Clone {
        self.as_str()[1..].split('/').filter(|component| !component.is_empty())
    }

    /// Returns the number of components.
    pub fn depth(&self) -> usize {
        self.components().count()
    }

    /// Returns the last component; none for the root.
    pub fn file_name(&self) -> Option<Name> {
        self.split_last().map(|(_, name)| Name(name.into()))
    }

    /// Returns the parent path; none for the root.
    pub fn parent(&self) -> Option<Lfn> {
        self.split_last().map(|(parent, _)| Lfn(parent.into()))
    }

    /// Returns the parent path and the last component, as text; none for the root.
    pub fn split_last(&self) -> Option<(&str, &str)> {
        if self.is_root() {
            return None;
        }
        let text = self.as_str();
        let slash = memchr::memrchr(b'/', text.as_bytes())?;
        Some((if slash == 0 { "/" } else { &text[..slash] }, &text[slash + 1..]))
    }

    /// Returns this path with one more component.
    pub fn join(&self, name: &Name) -> Lfn {
        Lfn::below(if self.is_root() { "" } else { self.as_str() }, name)
    }

    /// Returns the path of a name in a directory; `above` is the directory's path, empty for the
    /// root. The length is not checked, as in [`from_names`](Self::from_names).
    pub fn below(above: &str, name: &Name) -> Lfn {
        let mut text = String::with_capacity(above.len() + 1 + name.as_str().len());
        text.push_str(above);
        text.push('/');
        text.push_str(name.as_str());
        Lfn(text.into())
    }

    /// Says whether `self` is `other` or above it.
    pub fn contains(&self, other: &Lfn) -> bool {
        if self.is_root() {
            return true;
        }
        match other.as_str().strip_prefix(self.as_str()) {
            Some(rest) => rest.is_empty() || rest.starts_with('/'),
            None => false,
        }
    }
}

impl PartialEq for Lfn {
    fn eq(&self, other: &Self) -> bool {
        self.as_str() == other.as_str()
    }
}

impl Eq for Lfn {}

impl PartialOrd for Lfn {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Lfn {
    fn cmp(&self, other: &Self) -> Ordering {
        self.as_str().cmp(other.as_str())
    }
}

impl Hash for Lfn {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.as_str().hash(state);
    }
}

impl Borrow<str> for Lfn {
    fn borrow(&self) -> &str {
        self.as_str()
    }
}

impl fmt::Display for Lfn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl fmt::Debug for Lfn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.0, f)
    }
}

impl std::str::FromStr for Lfn {
    type Err = Error;
    fn from_str(text: &str) -> Result<Self> {
        Lfn::parse(text)
    }
}

impl Encode for Lfn {
    fn encode(&self, out: &mut Vec<u8>) {
        put_bytes(out, self.0.as_bytes());
    }
}
impl Decode for Lfn {
    fn decode(reader: &mut Reader<'_>) -> std::result::Result<Self, DecodeError> {
        let text = reader.text()?;
        // Only a request may have the slash that requires a directory.
        let path = if reader.lfns_limited() { without_slash(text) } else { text };
        let checked = Self::check(path).map_err(|_| reader.error("not a valid LFN"))?;
        if !checked.canonical {
            return Err(reader.error("an LFN is not in its canonical form"));
        }
        if reader.lfns_limited() && (text.len() > LFN_BYTES_MAX || checked.depth > DEPTH_MAX) {
            return Err(reader.error("an LFN is beyond the limits of length or depth"));
        }
        Ok(Lfn(text.into()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_lfn_has_one_canonical_form() {
        for (given, canonical) in [
            ("/", "/"),
            ("//", "/"),
            ("/a", "/a"),
            ("/a/", "/a"),
            ("//a///b//", "/a/b"),
            ("/ a b /c?d;e=%2e&f", "/ a b /c?d;e=%2e&f"),
            ("/żółć/\u{1F980}", "/żółć/\u{1F980}"),
            ("/...", "/..."),
        ] {
            assert_eq!(Lfn::parse(given).unwrap().as_str(), canonical, "{given}");
        }
        for bad in ["", "a", "a/b", "/a/./b", "/..", "/a/../b", "/a\0b"] {
            assert!(Lfn::parse(bad).is_err(), "{bad:?}");
        }
    }

    /// A trailing slash is a condition on the entry, and no part of the path.
    #[test]
    fn trailing_slash_marks_a_directory_and_changes_nothing_else() {
        let (plain, marked) = (Lfn::parse("/a/b").unwrap(), Lfn::parse("/a//b//").unwrap());
        assert!(marked.must_be_directory() && !plain.must_be_directory());
        assert!(!Lfn::parse("//").unwrap().must_be_directory(), "the root is a directory anyway");
        assert_eq!(marked, plain);
        assert_eq!(marked.cmp(&plain), Ordering::Equal);
        assert_eq!(std::collections::HashSet::from([marked.clone(), plain.clone()]).len(), 1);
        assert_eq!((marked.as_str(), marked.to_string().as_str()), ("/a/b", "/a/b"));
        assert_eq!(marked.split_last(), Some(("/a", "b")));
        assert!(!marked.parent().unwrap().must_be_directory());
        assert!(!marked.join(&Name::parse("c").unwrap()).must_be_directory());
        assert_eq!(marked.components().collect::<Vec<_>>(), ["a", "b"]);
        assert!(marked.contains(&plain) && plain.contains(&marked));
        assert!(!marked.contains(&Lfn::parse("/a/bc").unwrap()));
        assert!(!marked.clone().of_anything().must_be_directory());
        assert!(plain.of_directory().must_be_directory());
        assert_eq!(marked.of_directory().to_bytes(), "/a/b/".to_owned().to_bytes());
        assert!(!Lfn::root().of_directory().must_be_directory());
        let long = "/xxxxxxx".repeat(LFN_BYTES_MAX / 8);
        assert!(Lfn::parse(&format!("{}/", &long[..LFN_BYTES_MAX - 1])).unwrap().must_be_directory());
        assert!(Lfn::parse(&format!("{long}/")).is_err(), "the slash counts as a byte");
    }

    #[test]
    fn limits_hold_at_their_edges() {
        assert!(Name::parse(&"x".repeat(NAME_BYTES_MAX)).is_ok());
        assert!(Name::parse(&"x".repeat(NAME_BYTES_MAX + 1)).is_err());
        // The limit is in bytes, not characters.
        assert!(Name::parse(&"ż".repeat(127)).is_ok());
        assert!(Name::parse(&"ż".repeat(128)).is_err());
        let long = "/xxxxxxx".repeat(LFN_BYTES_MAX / 8);
        assert_eq!(long.len(), LFN_BYTES_MAX);
        assert!(Lfn::parse(&long).is_ok());
        assert!(Lfn::parse(&format!("{long}y")).is_err());
        assert!(Lfn::parse(&"/x".repeat(DEPTH_MAX)).is_ok());
        assert!(Lfn::parse(&"/x".repeat(DEPTH_MAX + 1)).is_err());
    }

    /// Each path has one encoding. A catalogue may return longer paths than a request may name.
    #[test]
    fn only_canonical_paths_decode_and_a_request_has_no_long_ones() {
        let encoded = |text: &str| text.to_owned().to_bytes();
        assert_eq!(Lfn::from_bytes(&encoded("/a/b")).unwrap().as_str(), "/a/b");
        assert!(Lfn::from_bytes(&encoded("/")).unwrap().is_root());
        for bad in ["", "a", "//", "/a//", "//a", "/a//b", "/a/../b", "/a\0"] {
            assert!(Lfn::from_bytes(&encoded(bad)).is_err(), "{bad:?}");
            assert!(Lfn::decode(&mut Reader::of_request(&encoded(bad))).is_err(), "{bad:?}");
        }
        // Stored bytes never have the slash that requires a directory; requests may.
        assert!(Lfn::from_bytes(&encoded("/a/")).is_err());
        let asked = Lfn::decode(&mut Reader::of_request(&encoded("/a/"))).unwrap();
        assert!(asked.must_be_directory());
        let long = vec!["xxxxxxx"; LFN_BYTES_MAX / 8 + 1];
        let deep = vec!["x"; DEPTH_MAX + 1];
        for names in [long, deep] {
            let lfn = Lfn::from_names(names);
            assert_eq!(Lfn::from_bytes(&lfn.to_bytes()).unwrap(), lfn);
            assert!(Lfn::decode(&mut Reader::of_request(&lfn.to_bytes())).is_err());
        }
    }

    #[test]
    fn parent_join_and_contains_agree() {
        let lfn = Lfn::parse("/a/b/c").unwrap();
        let parent = lfn.parent().unwrap();
        assert_eq!(parent.as_str(), "/a/b");
        assert_eq!(parent.join(&lfn.file_name().unwrap()), lfn);
        assert_eq!(Lfn::parse("/a").unwrap().parent().unwrap(), Lfn::root());
        assert!(Lfn::root().parent().is_none());
        assert!(parent.contains(&lfn) && parent.contains(&parent) && Lfn::root().contains(&lfn));
        assert!(!parent.contains(&Lfn::parse("/a/bc").unwrap()));
        assert_eq!(lfn.depth(), 3);
        assert_eq!(Lfn::root().depth(), 0);
    }
}
