//! Trash items, uploads, snapshots, and results of changes.

use std::collections::BTreeMap;

use exacat_model::answer::{Audit, Finding, Upload};
use exacat_model::operation::Registered;
use exacat_model::snapshot::{BackupProgress, Difference, Snapshot, SnapshotCheck};
use exacat_model::{Body, Entry, File, Guid, HasRevision, Lfn, TimeMs, TimelineTag, TrashItem};
use serde::Serialize;
use utoipa::ToSchema;

use super::entries::{ChecksumsOut, Shown, UsageOut, entry_id, usage};

/// An item of the trash.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = TrashItem)]
pub struct TrashOut {
    /// Id for restore and purge: revision and first digits of the timeline.
    pub id: String,
    /// Former path.
    pub lfn: String,
    /// Kind of entry.
    pub kind: &'static str,
    /// GUID, or `directory:N`.
    pub entry: String,
    /// User that removed it.
    pub removed_by: String,
    /// Time of removal.
    pub removed: String,
    /// Usage.
    pub usage: UsageOut,
}

/// Converts an item of the trash.
pub fn trash(item: &TrashItem, who: &str, timeline: TimelineTag) -> TrashOut {
    TrashOut {
        id: item.id.on(timeline).to_string(),
        lfn: item.lfn.to_string(),
        kind: item.entry.kind().name(),
        entry: entry_id(item.entry.id()),
        removed_by: who.to_owned(),
        removed: item.removed.to_string(),
        usage: usage(&item.usage),
    }
}

/// An upload reservation.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Upload)]
pub struct UploadOut<'a> {
    /// GUID of the reservation and of the file.
    #[schema(value_type = String, format = "uuid")]
    pub guid: Shown<Guid>,
    /// Path of the file.
    pub lfn: &'a str,
    /// Its owner.
    pub owner: &'a str,
    /// Bytes to be written.
    pub size: u64,
    /// Checksums that the content will have.
    #[schema(value_type = Vec<String>)]
    pub checksums: ChecksumsOut<'a>,
    /// Time of the reservation.
    #[schema(value_type = String, format = "date-time")]
    pub created: Shown<TimeMs>,
    /// Time at which it ends by itself.
    #[schema(value_type = String, format = "date-time")]
    pub expires: Shown<TimeMs>,
    /// True if the file exists, and gets further replicas.
    pub exists: bool,
    /// Job that makes it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub job: Option<u64>,
    /// The places to write to.
    pub targets: Vec<TargetOut<'a>>,
}

/// A place to write to.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = UploadTarget)]
pub struct TargetOut<'a> {
    /// The storage element.
    pub se: &'a str,
    /// URL to write to.
    pub pfn: &'a str,
}

/// Converts an upload.
pub fn upload(upload: &Upload) -> UploadOut<'_> {
    let reservation = &upload.reservation;
    let targets = upload.targets.iter().map(|target| TargetOut { se: target.se.as_str(), pfn: &target.pfn });
    UploadOut {
        guid: Shown(reservation.guid),
        lfn: reservation.lfn.as_str(),
        owner: upload.owner.as_str(),
        size: reservation.size,
        checksums: ChecksumsOut(&reservation.checksums),
        created: Shown(reservation.created),
        expires: Shown(reservation.expires),
        exists: reservation.exists,
        job: reservation.job,
        targets: targets.collect(),
    }
}

/// A change without an answer of its own: `mkdir`, `touch`, `tag set`, `se set`, ….
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Done)]
pub struct DoneOut<'a> {
    /// Subject, as in the request.
    pub item: &'a str,
    /// True.
    pub done: bool,
}

/// Result of a registration.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Registered)]
pub struct RegisteredOut<'a> {
    /// LFN of the file.
    pub lfn: &'a str,
    /// `created`, `unchanged` or `merged`.
    pub result: &'static str,
    /// GUID of the file.
    #[schema(value_type = String, format = "uuid")]
    pub guid: Shown<Guid>,
}

/// Returns the word for a result of a registration, and the file's GUID.
pub fn registered(result: Registered) -> (&'static str, Guid) {
    match result {
        Registered::Created(guid) => ("created", guid),
        Registered::Unchanged(guid) => ("unchanged", guid),
        Registered::Merged(guid) => ("merged", guid),
    }
}

/// LFN of a file found by GUID.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = FileName)]
pub struct LfnOut<'a> {
    /// GUID of the request.
    #[schema(value_type = String, format = "uuid")]
    pub guid: Shown<Guid>,
    /// LFN of the file.
    pub lfn: &'a str,
}

/// Result of a move.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Moved)]
pub struct MovedOut<'a> {
    /// Former path.
    pub from: &'a str,
    /// New path.
    pub to: &'a str,
    /// Revision of the move.
    pub revision: u64,
}

/// Result of a removal.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Removed)]
pub struct RemovedOut<'a> {
    /// Path of the removed entry.
    pub lfn: &'a str,
    /// Id of the trash item, for a restore.
    pub trash: String,
}

/// Result of a restore from the trash.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Restored)]
pub struct RestoredOut<'a> {
    /// The item, as in the request.
    pub item: &'a str,
    /// Revision of the restore.
    pub revision: u64,
}

/// Result of a purge.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Purged)]
pub struct PurgedOut<'a> {
    /// Id of the item.
    pub id: &'a str,
    /// Number of purged entries.
    pub entries: u64,
}

/// Result of a change of a collection.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = CollectionEdited)]
pub struct EditedOut<'a> {
    /// The collection.
    pub lfn: &'a str,
    /// Number of added files.
    pub added: u64,
    /// Number of removed files.
    pub removed: u64,
}

/// A snapshot.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Snapshot)]
pub struct SnapshotOut<'a> {
    /// Name.
    pub name: &'a str,
    /// The last change in it.
    pub revision: u64,
    /// Timeline of that revision, if known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub timeline: Option<String>,
    /// Time at which it was taken.
    #[schema(value_type = String, format = "date-time")]
    pub time: Shown<TimeMs>,
    /// Number of entries.
    pub entries: u64,
    /// Digest of all entries, 32 hex digits.
    pub digest: String,
    /// Bytes of its files.
    pub bytes: u64,
    /// Bytes of the files that nothing else links.
    pub own_bytes: u64,
    /// Values of elements in it, if its server had a history of elements.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub elements: Option<SnapshotElementsOut>,
    /// The damage, if there is any.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub problem: Option<&'a str>,
}

/// Values of elements in a snapshot.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = SnapshotElements)]
pub struct SnapshotElementsOut {
    /// Last record of the log of values.
    pub revision: u64,
    /// Time of that record.
    #[schema(value_type = String, format = "date-time")]
    pub time: Shown<TimeMs>,
}

/// Converts the last record of values.
pub fn elements_at(revision: exacat_model::Revision, time: TimeMs) -> SnapshotElementsOut {
    SnapshotElementsOut { revision: revision.0, time: Shown(time) }
}

/// Converts a snapshot.
pub fn snapshot(snapshot: &Snapshot) -> SnapshotOut<'_> {
    SnapshotOut {
        name: snapshot.name.as_str(),
        revision: snapshot.revision.0,
        timeline: snapshot.timeline.map(|timeline| timeline.to_string()),
        time: Shown(snapshot.time),
        entries: snapshot.entries,
        digest: format!("{:032x}", u128::from_be_bytes(snapshot.digest)),
        bytes: snapshot.bytes,
        own_bytes: snapshot.own_bytes,
        elements: snapshot.elements.map(|elements| elements_at(elements.revision, elements.time)),
        problem: snapshot.problem.as_deref(),
    }
}

/// Result of the check of a snapshot.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = SnapshotCheck)]
pub struct SnapshotCheckOut<'a> {
    /// Name.
    pub name: &'a str,
    /// The last change in it.
    pub revision: u64,
    /// Sorted runs that the check read.
    pub runs: u64,
    /// Rows in these runs.
    pub rows: u64,
    /// Changes that the check read.
    pub changes: u64,
    /// Entries in the tree and the trash.
    pub entries: u64,
    /// Faults.
    pub problems: &'a [String],
}

/// Converts the check of a snapshot.
pub fn snapshot_check<'a>(name: &'a str, check: &'a SnapshotCheck) -> SnapshotCheckOut<'a> {
    SnapshotCheckOut {
        name,
        revision: check.revision.0,
        runs: check.runs,
        rows: check.rows,
        changes: check.changes,
        entries: check.entries,
        problems: &check.problems,
    }
}

/// Kinds of differences.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DifferenceKind {
    /// Only the later one has it.
    Created,
    /// Both have it, at the same place.
    Changed,
    /// Both have it, at different places.
    Moved,
    /// Only the earlier one has it.
    Removed,
}

impl DifferenceKind {
    /// The names of all kinds, in order.
    pub const NAMES: [&'static str; 4] = ["created", "changed", "moved", "removed"];

    /// Returns the kind of a difference.
    pub fn of(item: &Difference) -> Self {
        match (&item.before, &item.after) {
            (None, _) => DifferenceKind::Created,
            (_, None) => DifferenceKind::Removed,
            (Some(before), Some(after)) if before.entry.at == after.entry.at => DifferenceKind::Changed,
            _ => DifferenceKind::Moved,
        }
    }

    /// Returns its name.
    pub fn name(self) -> &'static str {
        Self::NAMES[self as usize]
    }
}

/// A difference between a snapshot and a later state.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Difference)]
pub struct DifferenceOut<'a> {
    /// `created`, `changed`, `moved` or `removed`.
    pub difference: &'static str,
    /// Path of the entry.
    pub lfn: &'a str,
    /// Former path of a moved entry.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub from: Option<&'a str>,
    /// Kind of entry.
    pub kind: &'static str,
    /// GUID, or `directory:N`.
    pub entry: String,
    /// Names of the different fields of an entry in both.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub changed: Option<Vec<&'static str>>,
}

/// Converts a difference; none if it has neither side.
pub fn difference(item: &Difference) -> Option<DifferenceOut<'_>> {
    let kind = DifferenceKind::of(item);
    let at = item.after.as_ref().or(item.before.as_ref())?;
    let from = item.before.as_ref().filter(|_| kind == DifferenceKind::Moved);
    let both = item.before.is_some() && item.after.is_some();
    Some(DifferenceOut {
        difference: kind.name(),
        lfn: at.lfn.as_str(),
        from: from.map(|from| from.lfn.as_str()),
        kind: at.entry.kind().name(),
        entry: entry_id(at.entry.id()),
        changed: both.then(|| changed_fields(item)),
    })
}

/// Returns the names of the fields of an entry that differ, without its place.
pub fn changed_fields(item: &Difference) -> Vec<&'static str> {
    let (Some(before), Some(after)) = (&item.before, &item.after) else { return Vec::new() };
    let (was, is) = (&before.entry, &after.entry);
    let mut fields = Vec::new();
    let mut field = |name: &'static str, differs: bool| {
        if differs {
            fields.push(name);
        }
    };
    field("owner", was.owner != is.owner);
    field("group", was.group != is.group);
    field("mode", was.mode != is.mode);
    field("created", was.created != is.created);
    field("modified", was.modified != is.modified);
    field("expires", was.expires != is.expires);
    field("tags", was.tags != is.tags);
    match (was.file(), is.file()) {
        (Some(was), Some(is)) => {
            let of = |part: fn(&File, &File) -> bool| part(was, is);
            field("size", of(|was, is| was.size != is.size));
            field("checksums", of(|was, is| was.checksums != is.checksums));
            field("job", of(|was, is| was.job != is.job));
            field("replicas", of(|was, is| was.replicas != is.replicas));
        }
        _ => field(content_name(is), was.body != is.body),
    }
    fields
}

/// Name of the body of an entry that is no file.
fn content_name(entry: &Entry) -> &'static str {
    match entry.body {
        Body::Collection { .. } => "members",
        Body::Link { .. } => "target",
        _ => "content",
    }
}

/// A finding of an audit.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Finding)]
pub struct FindingOut<'a> {
    /// Kind of the finding.
    pub what: &'a str,
    /// Subject.
    pub which: &'a str,
    /// Detail.
    pub detail: &'a str,
}

/// Converts findings.
pub fn findings(findings: &[Finding]) -> Vec<FindingOut<'_>> {
    findings
        .iter()
        .map(|item| FindingOut { what: &item.what, which: &item.which, detail: &item.detail })
        .collect()
}

/// Result of an audit.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Audit)]
pub struct AuditOut<'a> {
    /// Revision that it read.
    pub revision: u64,
    /// Number of checked items by kind.
    pub checked: BTreeMap<&'a str, u64>,
    /// The first findings.
    pub findings: Vec<FindingOut<'a>>,
    /// Number of all findings.
    pub findings_total: u64,
}

/// Converts an audit.
pub fn audit(audit: &Audit) -> AuditOut<'_> {
    AuditOut {
        revision: audit.revision.0,
        checked: audit.checked.iter().map(|(what, count)| (what.as_str(), *count)).collect(),
        findings: findings(&audit.findings),
        findings_total: audit.findings_total,
    }
}

/// A complete backup.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Backup)]
pub struct BackupOut<'a> {
    /// Directory of backups on the server's machine.
    pub directory: &'a str,
    /// Name in it.
    pub name: &'a str,
    /// The last change in it.
    pub revision: u64,
    /// Number of files.
    pub files: u64,
    /// Bytes of these files.
    pub bytes: u64,
    /// Bytes that this backup copied.
    pub copied: u64,
}

/// Converts a complete backup.
pub fn backup<'a>(directory: &'a str, progress: &'a BackupProgress) -> BackupOut<'a> {
    BackupOut {
        directory,
        name: &progress.name,
        revision: progress.revision.0,
        files: progress.files,
        bytes: progress.bytes,
        copied: progress.bytes_copied,
    }
}

/// Result of a change of one entry of several.
pub fn done(item: &Lfn) -> DoneOut<'_> {
    DoneOut { item: item.as_str(), done: true }
}

/// A new operation id.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = OperationId)]
pub struct NewIdOut {
    /// A UUID of version 7.
    #[schema(format = "uuid")]
    pub id: String,
}
