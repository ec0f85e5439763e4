//! Scopes of a token: activities, each on one path and everything below it.

use exacat_model::{Lfn, Name};
use serde_json::Value;

use super::limits::SCOPES_MAX;
use super::refusal::Refusal;
use crate::xrootd::path::unescaped;

/// Rules that an issuer follows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Profile {
    /// WLCG common JWT profile, version 1.
    Wlcg,
    /// SciTokens, versions 1.0 and 2.0.
    SciTokens,
    /// OpenID Connect, without rules for storage.
    Oidc,
}

/// Activity that a scope allows. Each of them also allows stat.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Activity {
    /// Read files.
    Read,
    /// Make files and directories, and missing directories above. No overwrite and no removal.
    Create,
    /// Make, overwrite, rename and remove files and directories.
    Modify,
    /// Bring files from tape to disk, and keep them there.
    Stage,
}

impl Activity {
    /// Says whether a scope for `self` also allows `wanted`.
    pub fn includes(self, wanted: Activity) -> bool {
        self == wanted || (self == Activity::Modify && wanted == Activity::Create)
    }
}

/// One activity on one path and everything below it. A grant is a bound and no permission: the
/// catalogue's own rules apply as well.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Grant {
    /// The activity.
    pub activity: Activity,
    /// Path in the catalogue. It ends in a slash if the scope's path does
    /// ([`Lfn::must_be_directory`]).
    pub path: Lfn,
}

impl Grant {
    /// Says whether a path is the grant's path or below it, by whole components.
    pub fn covers(&self, path: &Lfn) -> bool {
        self.path.contains(path)
    }

    /// Says whether a file at this path is covered. The scope `/a/b/` covers a directory `/a/b`,
    /// and no file of that name.
    pub fn covers_file(&self, path: &Lfn) -> bool {
        self.covers(path) && !(self.path.must_be_directory() && self.path == *path)
    }
}

/// Returns the grants of a token. None: it limits nothing, and the user's own rights apply.
pub(super) fn grants(
    scope: Option<&Value>,
    profile: Profile,
    base: &Lfn,
) -> Result<Option<Vec<Grant>>, Refusal> {
    let text = match scope {
        None => "",
        Some(Value::String(text)) => text.as_str(),
        Some(_) => return Err(Refusal::BadScope("the claim 'scope' is no text")),
    };
    let scopes = || text.split(' ').filter(|_| !text.is_empty());
    if scopes().count() > SCOPES_MAX {
        let what = "the number of scopes in a token";
        return Err(Refusal::Limit { what, got: scopes().count(), max: SCOPES_MAX });
    }
    // A token of a storage profile is for storage: without a scope for it, it allows nothing.
    let mut limits = profile != Profile::Oidc;
    let mut grants = Vec::new();
    for scope in scopes() {
        if scope.is_empty() {
            return Err(Refusal::BadScope("more than one space separates two scopes"));
        }
        let (name, path) = scope.split_once(':').unwrap_or((scope, ""));
        let Some(activities) = activities(name, profile) else { continue };
        let path = resolved(path, base)?;
        limits = true;
        grants.extend(activities.iter().map(|activity| Grant { activity: *activity, path: path.clone() }));
    }
    Ok(limits.then_some(grants))
}

/// Returns the activities of a storage scope; none for a scope of another kind. An unknown storage
/// scope, such as one of a later version, allows nothing but still limits.
fn activities(name: &str, profile: Profile) -> Option<&'static [Activity]> {
    match name {
        "storage.read" => Some(&[Activity::Read]),
        "storage.create" => Some(&[Activity::Create]),
        "storage.modify" => Some(&[Activity::Modify]),
        "storage.stage" => Some(&[Activity::Stage]),
        // Tape systems answer polls; the catalogue has nothing to allow.
        _ if name.starts_with("storage.") => Some(&[]),
        "read" if profile == Profile::SciTokens => Some(&[Activity::Read]),
        "write" if profile == Profile::SciTokens => {
            Some(&[Activity::Create, Activity::Modify, Activity::Stage])
        }
        _ => None,
    }
}

/// Returns the path in the catalogue of a scope's path. Never normalises: a path in another form
/// than the plain one means different files to different readers, and is refused.
fn resolved(path: &str, base: &Lfn) -> Result<Lfn, Refusal> {
    let Some(below) = path.strip_prefix('/') else {
        return Err(Refusal::BadScope("a storage scope has no absolute path"));
    };
    if below.is_empty() {
        return Ok(base.clone().of_directory());
    }
    if !below.bytes().all(|byte| byte.is_ascii_graphic()) {
        return Err(Refusal::BadScope("a path has characters that must be escaped"));
    }
    let mut text = if base.is_root() { String::new() } else { base.as_str().to_owned() };
    for component in below.strip_suffix('/').unwrap_or(below).split('/') {
        text.push('/');
        text.push_str(name(component)?.as_str());
    }
    if below.ends_with('/') {
        text.push('/');
    }
    Lfn::parse(&text).map_err(|_| Refusal::BadScope("a path is longer or deeper than the catalogue allows"))
}

/// Decodes one component of a scope's path.
fn name(component: &str) -> Result<Name, Refusal> {
    let escapes_point = component.as_bytes().windows(3).any(|part| part.eq_ignore_ascii_case(b"%2e"));
    let Some(text) = unescaped(component) else {
        return Err(Refusal::BadScope("a path has a malformed escape"));
    };
    let is_escape = |part: &[u8]| matches!(part, [b'%', rest @ ..] if rest.iter().all(u8::is_ascii_hexdigit));
    if escapes_point || text.as_bytes().windows(3).any(is_escape) {
        return Err(Refusal::BadScope("a path escapes a point, or escapes twice"));
    }
    Name::parse(&text).map_err(|_| Refusal::BadScope("a path has a component that is no name, such as '..'"))
}
