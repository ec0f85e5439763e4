//! Sides of a copy: a local file, or an LFN and the wanted places of its replicas.

use std::path::PathBuf;

use exacat_model::limits::REPLICAS_PER_RESERVATION_MAX;
use exacat_model::{AccountName, Error, Lfn, SeName};

use crate::failure::Failure;
use crate::parse;

/// Prefix of local files.
const LOCAL: &str = "file:";

/// One side of a copy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Side {
    Local(PathBuf),
    Catalogue(Lfn, Spec),
}

/// Wanted place of one replica.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Wish {
    /// Chosen by the catalogue.
    Any,
    Se(SeName),
    Label(AccountName),
}

/// Wanted places of replicas, in order, and excluded ones.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Spec {
    pub wishes: Vec<Wish>,
    pub never: Vec<SeName>,
}

impl Spec {
    fn none() -> Self {
        Spec { wishes: vec![Wish::Any], never: Vec::new() }
    }

    /// True if nothing is specified.
    pub(crate) fn is_empty(&self) -> bool {
        *self == Spec::none()
    }

    /// Parses `disk:2,VO::SITE::SE,!VO::OTHER::SE`.
    fn parse(text: &str) -> exacat_model::Result<Self> {
        let mut spec = Spec { wishes: Vec::new(), never: Vec::new() };
        for one in text.split([',', ';']).map(str::trim) {
            if let Some(never) = one.strip_prefix('!') {
                spec.never.push(SeName::parse(never)?);
            } else if one.contains("::") {
                spec.wishes.push(Wish::Se(SeName::parse(one)?));
            } else {
                let (label, count) = one.split_once([':', '=']).unwrap_or((one, "1"));
                let label = AccountName::parse(label)?;
                let count: u32 = count.parse().map_err(|_| {
                    Error::invalid(format!("neither a storage element nor LABEL:COUNT: {one:.100}"))
                })?;
                let room = REPLICAS_PER_RESERVATION_MAX.saturating_sub(spec.wishes.len());
                if count as usize > room {
                    return Err(Error::limit(
                        "the number of replicas of a copy",
                        spec.wishes.len().saturating_add(count as usize),
                        REPLICAS_PER_RESERVATION_MAX,
                    ));
                }
                spec.wishes.extend((0..count).map(|_| Wish::Label(label.clone())));
            }
        }
        if spec.wishes.is_empty() {
            spec.wishes.push(Wish::Any);
        }
        Ok(spec)
    }
}

impl Side {
    /// Parses one side. The text behind the last `@` names the places if it can be parsed so;
    /// otherwise it is part of the name.
    pub(crate) fn parse(text: &str) -> Result<Self, Failure> {
        if let Some(path) = text.strip_prefix(LOCAL) {
            let path = path.strip_prefix("//").filter(|path| path.starts_with('/')).unwrap_or(path);
            if path.is_empty() {
                return Err(Failure::local(format!("{text}: no path")));
            }
            return Ok(Side::Local(PathBuf::from(path)));
        }
        let (name, spec) = match text.rsplit_once('@') {
            Some((name, spec)) if spec.contains([':', '!']) => {
                let spec = Spec::parse(spec).map_err(|error| Failure::about(text, error))?;
                (name, spec)
            }
            _ => (text, Spec::none()),
        };
        if !name.starts_with('/') {
            return Err(Failure::local(format!(
                "{text}: neither an LFN, which begins with '/', nor a local file, which is written file:PATH"
            )));
        }
        Ok(Side::Catalogue(parse::lfn(name).map_err(|error| Failure::about(text, error))?, spec))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spec(text: &str) -> Spec {
        match Side::parse(text).unwrap() {
            Side::Catalogue(_, spec) => spec,
            Side::Local(path) => panic!("{path:?}"),
        }
    }

    #[test]
    fn sides_are_read() {
        let local = |path: &str| Side::Local(PathBuf::from(path));
        assert_eq!(Side::parse("file:a/b").unwrap(), local("a/b"));
        assert_eq!(Side::parse("file:///a").unwrap(), local("/a"));
        assert_eq!(Side::parse("file:/a@disk:2").unwrap(), local("/a@disk:2"));
        assert!(spec("/a/b").is_empty());
        assert!(spec("/a/me@home").is_empty(), "part of the name");
        let label = Wish::Label(AccountName::parse("disk").unwrap());
        let se = SeName::parse("A::B::C").unwrap();
        assert_eq!(spec("/a@disk:2").wishes, [label.clone(), label.clone()]);
        assert_eq!(
            spec("/a@disk:1,A::B::C,!A::B::D"),
            Spec { wishes: vec![label, Wish::Se(se)], never: vec![SeName::parse("A::B::D").unwrap()] }
        );
        assert_eq!(spec("/a@!A::B::C").wishes, [Wish::Any]);
        for bad in ["a", "", "file:", "/a@disk:x", "/a@disk:100000"] {
            assert!(Side::parse(bad).is_err(), "{bad}");
        }
    }
}
