//! Paths as users of the grid type them: relative to a directory, with `~`, `.` and `..`, or after
//! a scheme.

use exacat_model::{Error, Lfn, Result};

/// Schemes that may precede a path.
const SCHEMES: [&str; 2] = ["alien://", "alien:"];

/// Says whether the current directory affects the meaning of a path.
pub fn is_relative(text: &str) -> bool {
    let text = SCHEMES.iter().find_map(|scheme| text.strip_prefix(scheme)).unwrap_or(text);
    let is_home = text.strip_prefix('~').is_some_and(|rest| rest.is_empty() || rest.starts_with('/'));
    !is_home && !text.starts_with('/')
}

/// Resolves a typed path with the current directory and the home directory. `..` removes a name, as
/// in JAliEn, and stops at the root. A slash, `.` or `..` at the end requires a directory.
pub fn resolve(text: &str, current: &Lfn, home: &Lfn) -> Result<Lfn> {
    let text = SCHEMES.iter().find_map(|scheme| text.strip_prefix(scheme)).unwrap_or(text);
    let (mut names, rest): (Vec<&str>, &str) = match text.strip_prefix('~') {
        Some(rest) if rest.is_empty() || rest.starts_with('/') => (home.components().collect(), rest),
        _ if text.starts_with('/') => (Vec::new(), text),
        _ => (current.components().collect(), text),
    };
    for name in rest.split('/') {
        match name {
            "" | "." => {}
            ".." => {
                names.pop();
            }
            name => names.push(name),
        }
    }
    if text.is_empty() {
        return Err(Error::invalid("a path is empty"));
    }
    // Parsed again, because names and length are limited.
    let lfn = Lfn::parse(Lfn::from_names(names).as_str())?;
    let last = rest.rsplit('/').next().unwrap_or_default();
    Ok(if matches!(last, "" | "." | "..") { lfn.of_directory() } else { lfn })
}

/// Returns a directory's path in the form for clients, with a slash at its end.
pub fn directory_text(lfn: &Lfn) -> String {
    let mut text = lfn.as_str().to_owned();
    if !text.ends_with('/') {
        text.push('/');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use exacat_model::limits::LFN_BYTES_MAX;

    fn resolved(text: &str) -> Result<String> {
        let home = Lfn::parse("/alice/cern.ch/user/j/jdoe").unwrap();
        let current = Lfn::parse("/data/2026").unwrap();
        resolve(text, &current, &home).map(|lfn| lfn.to_string())
    }

    #[test]
    fn paths_mean_what_they_mean_in_jalien() {
        for (text, path) in [
            ("/a//b/./c/../d/", "/a/b/d"),
            ("x", "/data/2026/x"),
            (".", "/data/2026"),
            ("..", "/data"),
            ("../../../..", "/"),
            ("~", "/alice/cern.ch/user/j/jdoe"),
            ("~/x", "/alice/cern.ch/user/j/jdoe/x"),
            ("~x", "/data/2026/~x"),
            ("alien:///a", "/a"),
            ("alien:/a", "/a"),
            ("alien:x", "/data/2026/x"),
            ("/", "/"),
            ("%2e%2e/x", "/data/2026/%2e%2e/x"),
        ] {
            assert_eq!(resolved(text).unwrap(), path, "{text}");
        }
        let (root, current) = (Lfn::root(), Lfn::parse("/d").unwrap());
        for (text, must_be_directory) in
            [("x", false), ("x/", true), ("x/.", true), ("x/..", true), ("x/y/..", true), ("/a//", true)]
        {
            let lfn = resolve(text, &current, &root).unwrap();
            assert_eq!(lfn.must_be_directory(), must_be_directory, "{text}");
        }
        assert!(resolved("").is_err());
        assert!(resolved("a\0b").is_err());
        assert!(resolved(&"x/".repeat(LFN_BYTES_MAX)).is_err());
        assert!(resolved(&"x".repeat(256)).is_err());
    }

    #[test]
    fn directories_end_in_a_slash() {
        assert_eq!(directory_text(&Lfn::root()), "/");
        assert_eq!(directory_text(&Lfn::parse("/a").unwrap()), "/a/");
    }
}
