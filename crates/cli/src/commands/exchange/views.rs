//! JSON of listings: imported, verified, exported, generated.

use std::borrow::Cow;
use std::collections::BTreeMap;

use serde::Serialize;
use utoipa::ToSchema;

/// Listing that was read by `exacat import --dry-run`.
#[derive(Serialize, ToSchema)]
#[schema(as = Examined)]
pub(crate) struct ExaminedView<'a> {
    /// The listing.
    pub(super) file: Cow<'a, str>,
    /// True.
    pub(super) dry_run: bool,
    /// Rows of the listing.
    pub(super) rows: u64,
    /// Rows that an import would send to the catalogue.
    pub(super) accepted: u64,
    /// Rows that it would reject.
    pub(super) rejected: u64,
    /// Number of rejected rows and of parts left out, by reason.
    pub(super) reasons: BTreeMap<&'static str, u64>,
}

/// Row that an import rejected.
#[derive(Serialize, ToSchema)]
#[schema(as = RejectedRow)]
pub(crate) struct RejectView<'a> {
    /// Line of the listing.
    pub(super) line: u64,
    /// Reason, as in `reasons`.
    pub(super) reason: &'static str,
    /// Detail.
    pub(super) detail: &'a str,
}

/// Listing that was imported.
#[derive(Serialize, ToSchema)]
#[schema(as = Imported)]
pub(crate) struct ImportView<'a> {
    /// The listing.
    pub(super) file: Cow<'a, str>,
    /// Rows of the listing.
    pub(super) rows: u64,
    /// Entries created.
    pub(super) created: u64,
    /// Entries that existed with equal fields.
    pub(super) unchanged: u64,
    /// Entries that existed, to which missing fields were added.
    pub(super) merged: u64,
    /// Files added to collections.
    pub(super) members_added: u64,
    /// Files that were in their collections already.
    pub(super) members_unchanged: u64,
    /// Collections made because a row names them.
    pub(super) collections_made: u64,
    /// Storage elements registered because a row names them.
    pub(super) ses_registered: u64,
    /// Users and groups made for the rows.
    pub(super) accounts_made: u64,
    /// Rejected rows.
    pub(super) rejected: u64,
    /// Parts left out of accepted rows: a tag, or a second PFN on one storage element.
    pub(super) partial: u64,
    /// Number of rejected rows and of parts left out, by reason.
    pub(super) reasons: BTreeMap<&'static str, u64>,
    /// The first rejected rows.
    pub(super) rejects: Vec<RejectView<'a>>,
    /// First row of this run, if it resumed an interrupted import.
    #[schema(required)]
    pub(super) resumed_from: Option<u64>,
    /// True if the import changed the catalogue.
    pub(super) changed: bool,
    /// Notes for the user.
    pub(super) notes: &'a [String],
    /// Duration of this run in seconds.
    pub(super) seconds: f64,
}

/// Difference between a listing and the catalogue.
#[derive(Serialize, ToSchema)]
#[schema(as = DifferentRow)]
pub(crate) struct DifferenceView<'a> {
    /// Line of the listing.
    pub(super) line: u64,
    /// LFN of the row.
    pub(super) lfn: &'a str,
    /// Field that differs.
    pub(super) what: &'a str,
    /// Its value in the listing.
    pub(super) given: &'a str,
    /// Its value in the catalogue.
    pub(super) found: &'a str,
}

/// Listing that was compared with the catalogue.
#[derive(Serialize, ToSchema)]
#[schema(as = Verified)]
pub(crate) struct VerifyView<'a> {
    /// The listing.
    pub(super) file: Cow<'a, str>,
    /// Rows of the listing.
    pub(super) rows: u64,
    /// Rows that are in the catalogue as given.
    pub(super) same: u64,
    /// Rows whose entry exists and differs.
    pub(super) different: u64,
    /// Rows whose entry does not exist.
    pub(super) missing: u64,
    /// Rows that an import rejects, so they cannot be in the catalogue.
    pub(super) rejected: u64,
    /// Number of rejected rows and of parts left out, by reason.
    pub(super) reasons: BTreeMap<&'static str, u64>,
    /// The first differences.
    pub(super) differences: Vec<DifferenceView<'a>>,
    /// True if every row that can be imported is in the catalogue as given.
    pub(super) holds: bool,
    /// Duration in seconds.
    pub(super) seconds: f64,
}

/// Listing that was exported.
#[derive(Serialize, ToSchema)]
#[schema(as = Exported)]
pub(crate) struct ExportView<'a> {
    /// The new listing.
    pub(super) file: Cow<'a, str>,
    /// Entries written.
    pub(super) entries: u64,
    /// Files among them.
    pub(super) files: u64,
    /// Members of collections written.
    pub(super) members: u64,
    /// Bytes of the rows, before compression.
    pub(super) bytes: u64,
    /// Id of the catalogue.
    #[schema(required)]
    pub(super) catalogue: Option<&'a str>,
    /// End of the history when the export began.
    #[schema(required)]
    pub(super) revision: Option<u64>,
    /// First digits of the timeline of that revision.
    #[schema(required)]
    pub(super) timeline: Option<String>,
    /// Data that the columns could not hold.
    pub(super) notes: &'a [String],
    /// Duration in seconds.
    pub(super) seconds: f64,
}

/// Sample that was generated.
#[derive(Serialize, ToSchema)]
#[schema(as = Generated)]
pub(crate) struct GeneratedView<'a> {
    /// Base directory, or the new listing.
    pub(super) place: &'a str,
    /// Entries of the sample.
    pub(super) entries: u64,
    /// Files among them.
    pub(super) files: u64,
    /// Members of its collections.
    pub(super) members: u64,
    /// Entries created.
    pub(super) created: u64,
    /// Entries that existed.
    pub(super) unchanged: u64,
    /// Duration in seconds.
    pub(super) seconds: f64,
}
