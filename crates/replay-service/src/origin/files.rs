//! Files of the origin: names and sizes, of a list or by a pattern.

use std::borrow::Cow;

use exacat_model::{Error, Result};
use exacat_replay::limits::{FILES_MAX, NAME_BYTES_MAX, SIZE_MAX};
use exacat_replay::trace::Trace;
use exacat_replay::trace::names::Names;

use super::limits::PATTERNS_MAX;

/// Files that exist by their names: all below a directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FilePattern {
    /// The directory.
    pub below: String,
    /// Bytes of each file; none if the name ends with them, such as `x.64MiB` or `run-7_1000000`.
    pub size: Option<u64>,
}

/// A file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OriginFile<'a> {
    /// Name; the content follows from it.
    pub name: Cow<'a, str>,
    /// Bytes.
    pub size: u64,
}

/// Files of an origin. One takes about 16 bytes and its name.
#[derive(Default)]
pub struct OriginFileList {
    names: Names,
    sizes: Vec<u64>,
    patterns: Vec<FilePattern>,
}

impl OriginFileList {
    /// Makes a list of the files of a trace.
    ///
    /// # Errors
    /// A file has a name or size that no file can have.
    pub fn of_trace(trace: &Trace) -> Result<Self> {
        let mut list = OriginFileList::default();
        for (number, facts) in trace.files().iter().enumerate() {
            list.add(trace.name(u32::try_from(number).unwrap_or(u32::MAX)), facts.size)?;
        }
        Ok(list)
    }

    /// Adds a file. One that is there already keeps its size.
    ///
    /// # Errors
    /// The name is empty or too long, the file is too large, or the list is full.
    pub fn add(&mut self, name: &str, size: u64) -> Result<()> {
        if name.is_empty() || name.len() > NAME_BYTES_MAX {
            return Err(Error::invalid(format!(
                "the name of a file has {} bytes: 1 to {NAME_BYTES_MAX} are possible",
                name.len()
            )));
        }
        if size > SIZE_MAX {
            return Err(Error::invalid(format!("{name} has {size} bytes: the most is {SIZE_MAX}")));
        }
        if self.sizes.len() >= FILES_MAX {
            return Err(Error::limit("the number of files of the origin", self.sizes.len() + 1, FILES_MAX));
        }
        if self.names.add(name).1 {
            self.sizes.push(size);
        }
        Ok(())
    }

    /// Adds a pattern.
    ///
    /// # Errors
    /// Its directory is no absolute path, its size is too large, or there are too many.
    pub fn add_pattern(&mut self, pattern: FilePattern) -> Result<()> {
        if self.patterns.len() >= PATTERNS_MAX {
            return Err(Error::limit("the number of patterns", self.patterns.len() + 1, PATTERNS_MAX));
        }
        if !pattern.below.starts_with('/') {
            return Err(Error::invalid(format!(
                "the directory {:?} does not begin with a slash",
                pattern.below
            )));
        }
        if pattern.size.is_some_and(|size| size > SIZE_MAX) {
            return Err(Error::invalid(format!("files of a pattern have at most {SIZE_MAX} bytes")));
        }
        self.patterns.push(FilePattern { below: folded(&pattern.below).into_owned(), size: pattern.size });
        Ok(())
    }

    /// Returns the number of files in the list.
    pub fn len(&self) -> usize {
        self.sizes.len()
    }

    /// Says whether the origin has no files at all.
    pub fn is_empty(&self) -> bool {
        self.sizes.is_empty() && self.patterns.is_empty()
    }

    /// Returns the file of a path, as a client sends it: after one slash or two. Names of a list may have
    /// none in front.
    pub fn find<'a>(&'a self, path: &'a str) -> Option<OriginFile<'a>> {
        let path = folded(path);
        let known = self.names.find(&path).or_else(|| self.names.find(path.strip_prefix('/')?));
        if let Some(number) = known {
            let size = self.sizes.get(number as usize).copied()?;
            return Some(OriginFile { name: Cow::Borrowed(self.names.get(number)), size });
        }
        if path.len() > NAME_BYTES_MAX || path.ends_with('/') {
            return None;
        }
        let size = self.patterns.iter().find_map(|pattern| {
            let name = path.strip_prefix(pattern.below.as_str())?;
            let is_below = pattern.below.ends_with('/') || name.starts_with('/');
            if !is_below { None } else { pattern.size.or_else(|| size_in(name)) }
        })?;
        Some(OriginFile { name: path, size })
    }

    /// Says whether a path is the root, or the directory of a pattern.
    pub fn is_directory(&self, path: &str) -> bool {
        let path = folded(path);
        let path = path.trim_end_matches('/');
        path.is_empty() || self.patterns.iter().any(|pattern| pattern.below.trim_end_matches('/') == path)
    }
}

/// Returns a path with single slashes.
fn folded(path: &str) -> Cow<'_, str> {
    if !path.contains("//") {
        return Cow::Borrowed(path);
    }
    let mut out = String::with_capacity(path.len());
    for letter in path.chars() {
        if letter != '/' || !out.ends_with('/') {
            out.push(letter);
        }
    }
    Cow::Owned(out)
}

/// Returns the size at the end of a name.
fn size_in(name: &str) -> Option<u64> {
    let last = name.rsplit(['.', '_', '-', '/']).next()?;
    let digits = last.find(|letter: char| !letter.is_ascii_digit()).unwrap_or(last.len());
    let number: u64 = last[..digits].parse().ok()?;
    let unit = match &last[digits..] {
        "" | "B" => 1,
        "K" | "KiB" => 1 << 10,
        "M" | "MiB" => 1 << 20,
        "G" | "GiB" => 1 << 30,
        "T" | "TiB" => 1_u64 << 40,
        _ => return None,
    };
    number.checked_mul(unit).filter(|size| *size <= SIZE_MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn list() -> OriginFileList {
        let mut list = OriginFileList::default();
        list.add("/a/b", 10).unwrap();
        list.add("scope/c", 20).unwrap();
        list.add_pattern(FilePattern { below: "/sized".to_owned(), size: None }).unwrap();
        list.add_pattern(FilePattern { below: "//fixed/".to_owned(), size: Some(7) }).unwrap();
        list
    }

    /// Property: a path is found as clients write it, and a name of a list as it stands in a trace.
    #[test]
    fn files_are_found_by_their_paths() {
        let list = list();
        let size = |path: &str| list.find(path).map(|file| (file.name.into_owned(), file.size));
        let found = |name: &str, size: u64| Some((name.to_owned(), size));
        assert_eq!(size("/a/b"), found("/a/b", 10));
        assert_eq!(size("//a//b"), found("/a/b", 10));
        assert_eq!(size("//scope/c"), found("scope/c", 20));
        assert_eq!((size("/a"), size("/a/b/"), size("")), (None, None, None));
        assert!(list.is_directory("/") && list.is_directory("//sized/") && !list.is_directory("/a/b"));
    }

    #[test]
    fn sizes_of_patterns_are_in_their_names() {
        let list = list();
        let size = |path: &str| list.find(path).map(|file| file.size);
        let sizes = ["/sized/x.64MiB", "/sized//d/run-7_1000", "/sized/5K", "/sized/a.16TiB", "/fixed/any"];
        assert_eq!(sizes.map(size), [Some(64 << 20), Some(1000), Some(5 << 10), Some(16 << 40), Some(7)]);
        let none =
            ["/sized/x", "/sized/x.17TiB", "/sized/x.5MB", "/sized7", "/fixed", "/fixed/d/", "/sized/.."];
        assert_eq!(none.map(size), [None; 7]);
        assert_eq!(size("/sized/x.99999999999999999999"), None);
    }

    #[test]
    fn names_and_sizes_have_limits() {
        let mut list = OriginFileList::default();
        let long = "x".repeat(NAME_BYTES_MAX);
        assert!(list.add(&long, SIZE_MAX).is_ok());
        assert!(list.add(&format!("{long}x"), 1).is_err() && list.add("", 1).is_err());
        assert!(list.add("/a", SIZE_MAX + 1).is_err());
        assert!(list.add_pattern(FilePattern { below: "a".to_owned(), size: None }).is_err());
        assert!(list.add_pattern(FilePattern { below: "/a".to_owned(), size: Some(SIZE_MAX + 1) }).is_err());
        for _ in 0..PATTERNS_MAX {
            list.add_pattern(FilePattern { below: "/a".to_owned(), size: None }).unwrap();
        }
        assert!(list.add_pattern(FilePattern { below: "/a".to_owned(), size: None }).is_err());
    }
}
