//! Content of envelopes: a signed token in the WLCG profile, as a stock xrootd server checks it.
//! The client treats it as opaque text.

use exacat_model::{Checksum, Guid, Lfn, Result, SeName, TimeMs};
use serde_json::{Value, json};

use super::keys::Keys;
use crate::randomness;

/// Audience of envelopes: any storage element. The path in an envelope is that of one file.
const AUDIENCE: &str = "https://wlcg.cern.ch/jwt/v1/any";
/// Validity before the time of issue, because clocks differ.
const CLOCKS_DIFFER_SECONDS: u64 = 60;

/// The right that an envelope gives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Access {
    /// Read the file.
    Read,
    /// Write the file, which does not exist yet.
    Write,
}

impl Access {
    fn scope(self, path: &str) -> String {
        match self {
            Access::Read => format!("storage.read:{path}"),
            // The client requests the size of the file it wrote.
            Access::Write => format!("storage.create:{path} storage.read:{path}"),
        }
    }

    fn name(self) -> &'static str {
        match self {
            Access::Read => "read",
            Access::Write => "write",
        }
    }
}

/// One file on one storage element.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Subject<'a> {
    pub lfn: &'a Lfn,
    pub guid: Guid,
    pub se: &'a SeName,
    pub pfn: &'a str,
    pub size: u64,
    pub md5: Option<&'a Checksum>,
}

/// Issuer, user and lifetime of an envelope.
#[derive(Clone, Copy, Debug)]
pub(super) struct Issue<'a> {
    pub issuer: &'a str,
    pub user: &'a str,
    pub now: TimeMs,
    pub seconds: u64,
}

/// True if the file of this GUID, and nothing else, is stored there. Only such a place may get an
/// envelope. Users chose all other places, which may hold another's file.
pub(crate) fn is_own_place(pfn: &str, prefix: &str, guid: Guid) -> bool {
    let derived = format!("{prefix}{}", guid.storage_path().as_str());
    match pfn.strip_prefix(&derived) {
        None => false,
        Some("") => !prefix.is_empty(),
        // A copy rewritten while an older one waits for deletion has such an ending.
        Some(rest) => rest.strip_prefix('.').is_some_and(|ending| {
            !prefix.is_empty()
                && ending.len() == ENDING_DIGITS
                && ending.bytes().all(|byte| byte.is_ascii_hexdigit())
        }),
    }
}

/// Digits in the ending of a rewritten copy.
const ENDING_DIGITS: usize = 12;

/// Seals an envelope.
pub(super) fn seal(keys: &Keys, issue: Issue<'_>, access: Access, of: &Subject<'_>) -> Result<String> {
    let now = issue.now.0 / 1000;
    keys.sign(&json!({
        "wlcg.ver": "1.0",
        "iss": issue.issuer,
        "sub": issue.user,
        "aud": AUDIENCE,
        "iat": now,
        "nbf": now.saturating_sub(CLOCKS_DIFFER_SECONDS),
        "exp": now.saturating_add(issue.seconds),
        "jti": Guid(randomness::bytes()?).to_string(),
        "scope": access.scope(path_of(of.pfn)),
        "exacat": {
            "access": access.name(),
            "lfn": of.lfn.as_str(),
            "guid": of.guid.to_string(),
            "se": of.se.as_str(),
            "size": of.size,
            "md5": of.md5.map(md5_text),
        },
    }))
}

/// Returns a checksum's digits.
pub(crate) fn md5_text(checksum: &Checksum) -> String {
    checksum.digest().iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The rights of an envelope for writing. The time of sealing does not count: the upload
/// reservation outlasts the envelope, and a large file takes long to write.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Sealed {
    pub lfn: Lfn,
    pub guid: Guid,
    pub se: SeName,
    pub size: u64,
    pub md5: Option<String>,
}

/// Opens an envelope for writing that we sealed; none for any other.
pub(super) fn open_written(keys: &Keys, text: &str) -> Option<Sealed> {
    let claims = keys.check(text)?;
    let own = claims.get("exacat")?;
    let field = |name: &str| own.get(name).and_then(Value::as_str);
    if field("access")? != Access::Write.name() {
        return None;
    }
    Some(Sealed {
        lfn: Lfn::parse(field("lfn")?).ok()?,
        guid: Guid::parse(field("guid")?).ok()?,
        se: SeName::parse(field("se")?).ok()?,
        size: own.get("size")?.as_u64()?,
        md5: field("md5").map(str::to_owned),
    })
}

/// Returns the path of a PFN, with one slash at its start: `root://host:1094//data/x` has
/// `/data/x`.
fn path_of(pfn: &str) -> &str {
    let after_host = match pfn.split_once("://") {
        Some((_, rest)) => rest.find('/').map_or("", |at| &rest[at..]),
        None => pfn,
    };
    let end = after_host.find(['?', '#']).unwrap_or(after_host.len());
    let path = &after_host[..end];
    let slashes = path.len() - path.trim_start_matches('/').len();
    match slashes {
        0 => "/",
        _ => &path[slashes - 1..],
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use exacat_testkit::TestClock;

    #[test]
    fn an_envelope_is_for_one_file_and_for_one_thing() {
        let directory = tempfile::tempdir().unwrap();
        let keys = Keys::open(directory.path().to_owned(), TestClock::new().shared()).unwrap();
        let md5 = Checksum::parse("md5:3e8381becc0ec67e19f76f1b6aadb675").unwrap();
        let (lfn, se) = (Lfn::parse("/a/b c").unwrap(), SeName::parse("A::B::C").unwrap());
        let guid = Guid::parse("5d9a8f1e-5607-11ee-90f9-6c02e09897e9").unwrap();
        let pfn = "root://h:1094//data/06/x?a=b#m";
        let of = Subject { lfn: &lfn, guid, se: &se, pfn, size: 11, md5: Some(&md5) };
        let issue =
            Issue { issuer: "https://c.example", user: "jdoe", now: TimeMs(1_000_000_000), seconds: 600 };
        let write = seal(&keys, issue, Access::Write, &of).unwrap();
        assert!(!write.contains([' ', '&', '#', '?', '=']), "it stands in a URL: {write}");
        let claims = keys.check(&write).unwrap();
        assert_eq!(claims["scope"], "storage.create:/data/06/x storage.read:/data/06/x");
        assert_eq!((claims["exp"].as_u64(), claims["nbf"].as_u64()), (Some(1_000_600), Some(999_940)));
        let sealed = open_written(&keys, &write).unwrap();
        assert_eq!(
            sealed,
            Sealed { lfn: lfn.clone(), guid, se: se.clone(), size: 11, md5: Some(md5_text(&md5)) }
        );
        let read = seal(&keys, issue, Access::Read, &of).unwrap();
        assert_eq!(keys.check(&read).unwrap()["scope"], "storage.read:/data/06/x");
        assert_eq!(open_written(&keys, &read), None, "it is no leave to register anything");
    }

    #[test]
    fn only_the_place_that_follows_from_the_guid_is_the_files_own() {
        let guid = Guid::parse("5d9a8f1e-5607-11ee-90f9-6c02e09897e9").unwrap();
        let own = format!("root://h//data{}", guid.storage_path().as_str());
        let prefix = "root://h//data";
        assert!(is_own_place(&own, prefix, guid));
        assert!(is_own_place(&format!("{own}.0123456789ab"), prefix, guid));
        let other = Guid::parse("6d9a8f1e-5607-11ee-90f9-6c02e09897e9").unwrap();
        assert!(!is_own_place(&own, prefix, other));
        assert!(!is_own_place("root://h//data/secret", prefix, guid));
        assert!(!is_own_place(&own, "root://elsewhere//data", guid));
        for tail in ["/x", "/../secret", ".", ".0123", " storage.read:/", ".0123456789a/", "."] {
            assert!(!is_own_place(&format!("{own}{tail}"), prefix, guid), "{tail}");
        }
        assert!(!is_own_place(guid.storage_path().as_str(), "", guid), "nowhere in particular");
    }

    #[test]
    fn the_path_of_a_pfn_has_one_slash() {
        for (pfn, path) in [
            ("root://h:1//a/b", "/a/b"),
            ("root://h:1/a/b", "/a/b"),
            ("root://h:1///a//b", "/a//b"),
            ("https://h/a?x=/y", "/a"),
            ("/a/b", "/a/b"),
            ("root://h:1", "/"),
        ] {
            assert_eq!(path_of(pfn), path, "{pfn}");
        }
    }
}
