//! JSON of listings: imported, verified, exported, generated.

use std::borrow::Cow;
use std::collections::BTreeMap;

use serde::Serialize;

/// Listing that was read by `exacat import --dry-run`.
#[derive(Serialize)]
pub(super) struct ExaminedView<'a> {
    pub(super) file: Cow<'a, str>,
    pub(super) dry_run: bool,
    pub(super) rows: u64,
    pub(super) accepted: u64,
    pub(super) rejected: u64,
    pub(super) reasons: BTreeMap<&'static str, u64>,
}

/// Row that an import rejected.
#[derive(Serialize)]
pub(super) struct RejectView<'a> {
    pub(super) line: u64,
    pub(super) reason: &'static str,
    pub(super) detail: &'a str,
}

/// Listing that was imported.
#[derive(Serialize)]
pub(super) struct ImportView<'a> {
    pub(super) file: Cow<'a, str>,
    pub(super) rows: u64,
    pub(super) created: u64,
    pub(super) unchanged: u64,
    pub(super) merged: u64,
    pub(super) members_added: u64,
    pub(super) members_unchanged: u64,
    pub(super) collections_made: u64,
    pub(super) ses_registered: u64,
    pub(super) accounts_made: u64,
    pub(super) rejected: u64,
    pub(super) partial: u64,
    pub(super) reasons: BTreeMap<&'static str, u64>,
    pub(super) rejects: Vec<RejectView<'a>>,
    pub(super) resumed_from: Option<u64>,
    pub(super) changed: bool,
    pub(super) notes: &'a [String],
    pub(super) seconds: f64,
}

/// Difference between a listing and the catalogue.
#[derive(Serialize)]
pub(super) struct DifferenceView<'a> {
    pub(super) line: u64,
    pub(super) lfn: &'a str,
    pub(super) what: &'a str,
    pub(super) given: &'a str,
    pub(super) found: &'a str,
}

/// Listing that was compared with the catalogue.
#[derive(Serialize)]
pub(super) struct VerifyView<'a> {
    pub(super) file: Cow<'a, str>,
    pub(super) rows: u64,
    pub(super) same: u64,
    pub(super) different: u64,
    pub(super) missing: u64,
    pub(super) rejected: u64,
    pub(super) reasons: BTreeMap<&'static str, u64>,
    pub(super) differences: Vec<DifferenceView<'a>>,
    pub(super) holds: bool,
    pub(super) seconds: f64,
}

/// Listing that was exported.
#[derive(Serialize)]
pub(super) struct ExportView<'a> {
    pub(super) file: Cow<'a, str>,
    pub(super) entries: u64,
    pub(super) files: u64,
    pub(super) members: u64,
    pub(super) bytes: u64,
    pub(super) catalogue: Option<&'a str>,
    pub(super) revision: Option<u64>,
    pub(super) timeline: Option<String>,
    pub(super) notes: &'a [String],
    pub(super) seconds: f64,
}

/// Sample that was generated.
#[derive(Serialize)]
pub(super) struct GeneratedView<'a> {
    pub(super) place: &'a str,
    pub(super) entries: u64,
    pub(super) files: u64,
    pub(super) members: u64,
    pub(super) created: u64,
    pub(super) unchanged: u64,
    pub(super) seconds: f64,
}
