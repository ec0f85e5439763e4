//! Conditions of requests: `If-Match` and `If-None-Match`, and the entity tags that they compare.
//!
//! The tag of an entry is its revision. The tag of an answer with more in it has the revision of its
//! entry, a point, and a digest of its content. `If-Match` compares the revision, at the commit;
//! `If-None-Match` of a read compares the whole tag.

use exacat_model::operation::FileRef;
use exacat_model::{Answer, Error, ErrorKind, Lfn, Operation, Result, Revision};
use exacat_store::Refusal;
use hyper::HeaderMap;
use hyper::header::{IF_MATCH, IF_NONE_MATCH};
use ring::digest::{SHA256, digest};

use super::super::call::{Call, text_of};

/// Returns the tag of an entry.
pub(super) fn entity_tag(revision: Revision) -> String {
    format!("\"{}\"", revision.0)
}

/// Returns the tag of an answer about an entry, with the first 8 bytes of the digest.
pub(super) fn content_tag(revision: Revision, content: &[u8]) -> String {
    let whole = digest(&SHA256, content);
    let short = whole.as_ref().first_chunk().map_or(0, |first| u64::from_be_bytes(*first));
    format!("\"{}.{short:016x}\"", revision.0)
}

/// Says whether a client has the answer with this tag already.
pub(super) fn is_unchanged(headers: &HeaderMap, tag: &str) -> bool {
    let given = text_of(headers, &IF_NONE_MATCH).ok().flatten();
    given.is_some_and(|given| {
        given == "*" || given.split(',').any(|one| one.trim().trim_start_matches("W/") == tag)
    })
}

/// Returns the entry that an answer with a digest in its tag is about.
pub(super) fn tagged(operation: &Operation) -> Option<&Lfn> {
    match operation {
        Operation::TagGet { lfns, .. } => lfns.first(),
        Operation::Whereis { files, .. } => files.first().and_then(FileRef::lfn),
        _ => None,
    }
}

/// Returns the revision of an entry, if the caller may see it.
pub(super) async fn revision_of(call: &mut Call, lfn: &Lfn, follow: bool) -> Result<Option<Revision>> {
    match call.ask(Operation::Stat { lfns: vec![lfn.clone()], follow }).await? {
        Answer::Stats(items) => {
            Ok(items.into_iter().next().and_then(Result::ok).map(|stat| stat.entry.revision))
        }
        _ => Ok(None),
    }
}

/// The conditions of a change.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Conditions {
    /// The entry must be as the client saw it.
    pub is_as_seen: bool,
    /// There must be no entry yet.
    pub is_new: bool,
}

impl Conditions {
    /// Reads the conditions of a change, and requires them of it.
    pub(crate) async fn require(
        call: &mut Call,
        headers: &HeaderMap,
        operation: &mut Operation,
    ) -> Result<Self> {
        let mut conditions = Conditions::default();
        if !operation.writes() {
            return Ok(conditions);
        }
        if let Some(given) = text_of(headers, &IF_NONE_MATCH)? {
            if given != "*" {
                return Err(Error::invalid("If-None-Match of a change can only be *"));
            }
            refuse_existing(operation)?;
            conditions.is_new = true;
        }
        if let Some(given) = text_of(headers, &IF_MATCH)? {
            let (lfn, follow) = changed(operation)?;
            if given != "*" && !given.split(',').all(|one| is_tag(one.trim_matches(' '))) {
                return Err(Error::invalid(
                    "If-Match is no list of ETags: give the ETag with its quotes, or *",
                ));
            }
            let versions: Vec<Revision> = given.split(',').filter_map(|one| version(one.trim())).collect();
            match (given, versions.as_slice()) {
                ("*", _) => return Ok(conditions),
                (_, [one]) => call.require(*one),
                // No entry has this version.
                (_, []) => call.require(Revision(u64::MAX)),
                (_, [first, ..]) => {
                    let lfn = lfn.clone();
                    let now = revision_of(call, &lfn, follow).await?;
                    call.require(now.filter(|now| versions.contains(now)).unwrap_or(*first));
                }
            }
            conditions.is_as_seen = true;
        }
        Ok(conditions)
    }

    /// Says whether an error is that of a condition which does not hold.
    pub(crate) fn failed(self, error: &Error) -> bool {
        match error.kind {
            ErrorKind::Exists => self.is_new,
            ErrorKind::Conflict => self.is_as_seen && error.message.ends_with(&Refusal::Stale.to_string()),
            _ => false,
        }
    }
}

/// Says whether a text has the form of an entity tag (RFC 9110), ours or not. No tag has a comma here.
fn is_tag(text: &str) -> bool {
    let bare = text.strip_prefix("W/").unwrap_or(text);
    let bare = bare.strip_prefix('"').and_then(|rest| rest.strip_suffix('"'));
    bare.is_some_and(|bare| bare.bytes().all(|byte| matches!(byte, b'!' | b'#'..=b'~')))
}

/// Reads the revision in a strong tag; none if we never gave such a tag.
fn version(tag: &str) -> Option<Revision> {
    let bare = tag.strip_prefix('"')?.strip_suffix('"')?;
    bare.split('.').next()?.parse().ok().map(Revision)
}

/// Makes an operation refuse a name that exists.
fn refuse_existing(operation: &mut Operation) -> Result<()> {
    match operation {
        Operation::Register { existing, .. } => *existing = exacat_model::operation::Existing::Refuse,
        Operation::Mkdir { parents: false, .. }
        | Operation::Link { .. }
        | Operation::CollectionCreate { .. } => {}
        Operation::Mkdir { .. } => {
            return Err(Error::invalid("parents accepts an existing directory, If-None-Match: * refuses it"));
        }
        _ => return Err(does_not_apply("If-None-Match")),
    }
    Ok(())
}

/// Returns the entry that an operation changes, and whether it follows a link there.
fn changed(operation: &Operation) -> Result<(&Lfn, bool)> {
    let found = match operation {
        Operation::SetAttributes { lfns, .. } | Operation::TagSet { lfns, .. } => {
            lfns.first().map(|lfn| (lfn, true))
        }
        Operation::SetReplicas { edits } => {
            edits.first().and_then(|(file, _)| file.lfn()).map(|lfn| (lfn, true))
        }
        Operation::CollectionEdit { lfn, .. } => Some((lfn, true)),
        Operation::Move { from, .. } => Some((from, false)),
        Operation::Remove { lfn, .. } => Some((lfn, false)),
        _ => None,
    };
    found.ok_or_else(|| does_not_apply("If-Match"))
}

/// Returns the error of a condition where there is nothing to compare.
pub(super) fn does_not_apply(header: &str) -> Error {
    Error::invalid(format!("{header} does not apply to this request: leave it out"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn version_is_read_from_strong_tags_of_both_forms() {
        assert_eq!(version("\"17\""), Some(Revision(17)));
        assert_eq!(version(&content_tag(Revision(17), b"x")), Some(Revision(17)));
        assert_eq!(content_tag(Revision(17), b"6"), "\"17.e7f6c011776e8db7\"");
        for none in ["W/\"17\"", "17", "\"\"", "\"x\"", "\"-1\"", "\"18446744073709551616\"", "*"] {
            assert_eq!(version(none), None, "{none}");
        }
    }
}
