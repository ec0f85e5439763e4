//! Uploads in progress, as files in the data directory: after a restart the server continues to
//! track them.

use std::path::PathBuf;

use exacat_model::{AccountName, Checksums, Error, ErrorKind, Guid, Lfn, Result, SeName, TimeMs};
use serde_json::{Value, json};

use crate::directory::{failed, read, remove, write_private};

/// One replica that a client was redirected to write.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Written {
    pub guid: Guid,
    pub lfn: Lfn,
    pub se: SeName,
    pub pfn: String,
    /// Owner of the upload reservation.
    pub owner: AccountName,
    pub size: u64,
    /// Checksums in the reservation.
    pub checksums: Checksums,
    pub expires: TimeMs,
}

impl Written {
    fn to_json(&self) -> Value {
        json!({
            "guid": self.guid.to_string(),
            "lfn": self.lfn.as_str(),
            "se": self.se.as_str(),
            "pfn": self.pfn,
            "owner": self.owner.as_str(),
            "size": self.size,
            "checksums": self.checksums.iter().map(ToString::to_string).collect::<Vec<_>>(),
            "expires": self.expires.0,
        })
    }

    fn of(value: &Value) -> Result<Self> {
        let missing = |name: &str| Error::invalid(format!("there is no {name}"));
        let text = |name: &str| value[name].as_str().ok_or_else(|| missing(name));
        let number = |name: &str| value[name].as_u64().ok_or_else(|| missing(name));
        let mut checksums = Checksums::none();
        for one in value["checksums"].as_array().ok_or_else(|| missing("checksums"))? {
            checksums.add(exacat_model::Checksum::parse(one.as_str().unwrap_or_default())?)?;
        }
        Ok(Written {
            guid: Guid::parse(text("guid")?)?,
            lfn: Lfn::parse(text("lfn")?)?,
            se: SeName::parse(text("se")?)?,
            pfn: text("pfn")?.to_owned(),
            owner: AccountName::parse(text("owner")?)?,
            size: number("size")?,
            checksums,
            expires: TimeMs(number("expires")?),
        })
    }
}

/// Directory of the uploads, with a file for each.
pub(super) struct Kept {
    place: PathBuf,
}

impl Kept {
    pub(crate) fn at(place: PathBuf) -> Self {
        Kept { place }
    }

    fn path(&self, guid: Guid) -> PathBuf {
        self.place.join(format!("{guid}{ENDING}"))
    }

    /// Stores one, in place of another with the same GUID.
    pub(crate) fn put(&self, written: &Written) -> Result<()> {
        write_private(&self.path(written.guid), format!("{:#}\n", written.to_json()).as_bytes())
    }

    /// Removes one, which may be missing.
    pub(crate) fn forget(&self, guid: Guid) -> Result<()> {
        remove(&self.path(guid))
    }

    /// Returns all stored uploads.
    pub(crate) fn all(&self) -> Result<Vec<Written>> {
        let files = std::fs::read_dir(&self.place).map_err(|error| failed("list", &self.place, &error))?;
        let mut all = Vec::new();
        for file in files {
            let path = file.map_err(|error| failed("list", &self.place, &error))?.path();
            if !path.to_string_lossy().ends_with(ENDING) {
                continue;
            }
            let Some(text) = read(&path)? else { continue };
            let bad = |why: String| Error::new(ErrorKind::Corrupt, format!("{}: {why}", path.display()));
            let value = serde_json::from_str(&text).map_err(|error| bad(error.to_string()))?;
            all.push(Written::of(&value).map_err(|error| bad(error.message))?);
        }
        Ok(all)
    }
}

/// Ending of the files' names.
const ENDING: &str = ".json";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_kept_is_the_same_after_a_restart() {
        let place = tempfile::tempdir().unwrap();
        let kept = Kept::at(place.path().to_owned());
        let mut written = Written {
            guid: Guid::parse("5d9a8f1e-5607-11ee-90f9-6c02e09897e9").unwrap(),
            lfn: Lfn::parse("/a/b \"c\" ż").unwrap(),
            se: SeName::parse("A::B::C").unwrap(),
            pfn: "root://h//data/x?y=z".to_owned(),
            owner: AccountName::parse("jdoe").unwrap(),
            size: u64::MAX,
            checksums: Checksums::one(exacat_model::Checksum::parse("adler32:e222ea89").unwrap()),
            expires: TimeMs(5),
        };
        kept.put(&written).unwrap();
        assert_eq!(kept.all().unwrap(), [written.clone()]);
        written.se = SeName::parse("A::B::D").unwrap();
        kept.put(&written).unwrap();
        assert_eq!(kept.all().unwrap(), [written.clone()]);
        std::fs::write(place.path().join("x.json"), "{}").unwrap();
        assert_eq!(kept.all().unwrap_err().kind, ErrorKind::Corrupt);
        std::fs::remove_file(place.path().join("x.json")).unwrap();
        kept.forget(written.guid).unwrap();
        kept.forget(written.guid).unwrap();
        assert!(kept.all().unwrap().is_empty());
    }
}
