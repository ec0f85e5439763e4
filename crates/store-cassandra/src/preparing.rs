//! Statements that are prepared when a server opens, before anything needs them: each is prepared on all nodes, and the driver waits for all of
//! them, also for one that is stuck. What was first needed then would wait until the node is given up.

use exacat_model::{
    Booking, Checksums, Deletion, DeletionId, DirId, EntryId, Guid, Lfn, Location, Mode, OperationId, Record,
    RecordKey, Revision, SeNumber, TimeMs, TrashId, UserId,
};
use exacat_store::UsageOf;
use exacat_store::rules::{Trashed, new_records, new_root};

use crate::cluster::Cluster;
use crate::rows::{Counted, Key, Remembered, Row, Totals, Where};
use crate::tables;

const GUID: Guid = Guid([0; 16]);

/// A row of every kind, of which only the kind matters.
fn rows() -> Vec<(Key, Row)> {
    let id = DeletionId { revision: Revision(1), index: 0 };
    let root = new_root();
    let place = Where::At(root.at.clone());
    let item = Trashed { lfn: Lfn::root(), entry: root.clone(), removed_by: UserId(0), removed: TimeMs(0) };
    let deletion = Deletion { id, guid: GUID, size: None, location: Location::Derived, queued: TimeMs(0) };
    let booking = Booking {
        guid: GUID,
        lfn: Lfn::root(),
        owner: root.owner,
        group: root.group,
        mode: Mode::FILE,
        size: 0,
        checksums: Checksums::none(),
        job: None,
        created: TimeMs(0),
        expires: TimeMs(0),
        pending: Vec::new(),
        exists: false,
    };
    let mut all = vec![
        (Key::Totals, Row::Totals(Totals::default())),
        (Key::Place(EntryId::Directory(DirId::ROOT)), Row::Place(place.clone())),
        (Key::Place(EntryId::Object(GUID)), Row::Place(place)),
        (Key::Trash(TrashId(Revision(1))), Row::Trash(item)),
        (Key::booking_due(&booking), Row::There),
        (Key::Booking(GUID), Row::Booking(booking)),
        (Key::Member { collection: GUID, guid: GUID }, Row::There),
        (Key::Deletion { se: SeNumber(1), id }, Row::Deletion(deletion)),
        (Key::Copy { se: SeNumber(1), copy: String::new() }, Row::Copies(Vec::new())),
        (Key::Account(UsageOf::User(UserId(0))), Row::Account(Counted::default())),
        (
            Key::Operation(OperationId([0; 16])),
            Row::Operation(Remembered { ordinal: 1, outcomes: Vec::new() }),
        ),
        (Key::on_se(SeNumber(1), GUID), Row::There),
        (Key::due(TimeMs(0), EntryId::Object(GUID)), Row::There),
        (Key::Layout(DirId::ROOT), Row::Layout(1)),
        (Key::Entry(root.at.clone()), Row::Entry(root)),
    ];
    all.extend(new_records().into_iter().take(1).map(|record: Record| {
        let key: RecordKey = record.key();
        (Key::Record(key), Row::Record { record, revision: Revision(0) })
    }));
    all
}

/// The words of every statement about a row: how each is read, written, and taken away.
fn texts() -> Vec<&'static str> {
    let mut all = Vec::new();
    for (key, row) in rows() {
        all.extend(tables::select(&key, 0, 0).into_iter().flatten().map(|bound| bound.text));
        for row in [Some(&row), None] {
            let written = tables::write(&key, row, 0).unwrap_or_default();
            all.extend(written.into_iter().map(|written| written.bound.text));
        }
    }
    let gone = tables::write(&Key::Members(GUID), None, 0).unwrap_or_default();
    all.extend(gone.into_iter().map(|written| written.bound.text));
    all.sort_unstable();
    all.dedup();
    all
}

/// Prepares them. What cannot be prepared now is when it is needed.
pub(crate) async fn prepare_all(cluster: &Cluster) {
    for text in texts() {
        if let Err(error) = cluster.prepare(text).await {
            tracing::warn!(%error, "statements could not all be prepared: the first of each kind may be late");
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: every kind of row that is read, written or taken away is among them.
    #[test]
    fn every_statement_about_rows_is_there() {
        let texts = texts();
        let count = |word: &str| texts.iter().filter(|text| text.starts_with(word)).count();
        assert!(count("SELECT") >= 12, "{}", count("SELECT"));
        // Places in two tables, entries and what is due by day in two statements.
        assert!(count("INSERT") >= 16, "{}", count("INSERT"));
        assert!(count("DELETE") >= 14, "{}", count("DELETE"));
        for table in
            ["children", "objects", "directories", "trash", "bookings", "records", "members", "deletions"]
        {
            for word in ["SELECT", "INSERT", "DELETE"] {
                assert!(
                    texts.iter().any(|text| text.starts_with(word) && text.contains(&format!(" {table} "))),
                    "{word} {table}"
                );
            }
        }
    }
}
