//! Slices of tables, the source of listings: their bounds, and the statements that read them.

use exacat_model::limits::PAGE_ITEMS_MAX;
use exacat_model::{DeletionId, DirId, EntryId, Guid, Name, Result, Revision, SeNumber, TimeMs, TrashId};

use crate::cluster::Cluster;
use crate::fetching::FetchedRows;
use crate::follower::Follower;
use crate::layout::{RESERVATION_SHARD_BITS, SE_SHARDS, all_buckets, shard_of_reservation};
use crate::reading::{PartitionRead, Reading};
use crate::rows::Key;
use crate::statement::cql;
use crate::tables::{self, Bound, Columns, DUE_ENTRY, DUE_RESERVATION, big, blob, bucket, int, text, uuid};
use crate::working::queue_bounds;

/// Kind of a listing, and the key after which it begins.
#[derive(Clone, Debug)]
pub(crate) enum Slice {
    Children(DirId, Option<Name>),
    Members(Guid, Option<Guid>),
    Trash(Option<TrashId>),
    Deletions(SeNumber, Option<DeletionId>),
    Reservations(Option<Guid>),
    OnSe(SeNumber, Option<(u8, Guid)>),
    /// Entries that expire by then.
    Due(TimeMs),
    /// Upload reservations that expire by then.
    ReservationsDue(TimeMs),
}

const LEAST: Guid = Guid([0; 16]);
const GREATEST: Guid = Guid([0xff; 16]);

impl Slice {
    /// Returns the key after which the slice begins, if any; its least and its greatest possible
    /// key.
    pub(crate) fn bounds(&self) -> (Option<Key>, Key, Key) {
        match self {
            Slice::Children(parent, after) => {
                let key = |name: &Name| Key::Entry(exacat_model::At { parent: *parent, name: name.clone() });
                let least = after.as_ref().map_or_else(|| least_child(*parent), key);
                (after.as_ref().map(key), least, least_child(DirId(parent.0.saturating_add(1))))
            }
            Slice::Members(collection, after) => {
                let key = |guid| Key::Member { collection: *collection, guid };
                (after.map(key), key(LEAST), key(GREATEST))
            }
            Slice::Trash(after) => {
                let key = |revision| Key::Trash(TrashId(Revision(revision)));
                (after.map(Key::Trash), key(0), key(u64::MAX))
            }
            Slice::Deletions(se, after) => {
                let (least, greatest) = queue_bounds(*se);
                (after.map(|id| Key::Deletion { se: *se, id }), least, greatest)
            }
            Slice::Reservations(after) => {
                (after.map(Key::Reservation), Key::Reservation(LEAST), Key::Reservation(GREATEST))
            }
            Slice::OnSe(se, after) => {
                let key = |(shard, guid)| Key::OnSe { se: *se, shard, guid };
                (after.map(key), key((0, LEAST)), key((u8::MAX, GREATEST)))
            }
            Slice::Due(now) => {
                let id = |directory| EntryId::Directory(DirId(directory));
                let least = Key::Due { expires: TimeMs(0), id: id(0) };
                (None, least, Key::Due { expires: *now, id: EntryId::Object(GREATEST) })
            }
            Slice::ReservationsDue(now) => {
                let key = |expires, guid| Key::ReservationDue { expires, guid };
                (None, key(TimeMs(0), LEAST), key(*now, GREATEST))
            }
        }
    }

    /// Says whether this key belongs to the slice.
    pub(crate) fn has(&self, key: &Key) -> bool {
        match (self, key) {
            (Slice::Children(parent, _), Key::Entry(at)) => at.parent == *parent && at.name != Name::root(),
            (Slice::Children(..), _) => false,
            _ => true,
        }
    }
}

/// Least possible key of a child of this directory; it follows all children of the directory
/// before.
fn least_child(parent: DirId) -> Key {
    // No name is less: none is empty, and none has a NUL.
    let name = Name::parse("\u{1}").unwrap_or_else(|_| Name::root());
    Key::Entry(exacat_model::At { parent, name })
}

async fn parts(follower: &Follower, slice: &Slice) -> Result<Vec<PartitionRead>> {
    let guid = |after: &Option<Guid>| blob(after.map(|guid| guid.0.to_vec()).unwrap_or_default());
    let head = bucket(follower.cache(|cache| cache.head()));
    let one = |words, values, read| vec![PartitionRead { bound: Bound { text: words, values }, read }];
    Ok(match slice {
        Slice::Children(parent, after) => {
            let name = after.as_ref().map(|name| name.as_str().to_owned()).unwrap_or_default();
            let part = |bucket: u32| PartitionRead {
                bound: Bound {
                    text: cql!("SELECT entry FROM children WHERE parent = ? AND bucket = ? AND name > ?"),
                    values: vec![big(parent.0), int(bucket), text(&name)],
                },
                read: tables::entry_row_of,
            };
            all_buckets(follower.cache(|cache| cache.level(*parent))).map(part).collect()
        }
        Slice::Members(collection, after) => one(
            cql!("SELECT collection, guid FROM members WHERE collection = ? AND guid > ?"),
            vec![uuid(*collection), guid(after)],
            tables::member_of,
        ),
        Slice::Reservations(after) => {
            let part = |shard: u32| PartitionRead {
                bound: Bound {
                    text: cql!(
                        "SELECT shard, guid, reservation FROM reservations WHERE shard = ? AND guid > ?"
                    ),
                    values: vec![int(shard), guid(after)],
                },
                read: tables::reservation_of,
            };
            (after.map_or(0, shard_of_reservation)..1 << RESERVATION_SHARD_BITS).map(part).collect()
        }
        Slice::Trash(after) => {
            let after = after.map_or(Revision(0), |id| id.0);
            let part = |bucket: u64| PartitionRead {
                bound: Bound {
                    text: cql!(
                        "SELECT bucket, trash, lfn, removed_by, removed, entry FROM trash WHERE bucket = ? AND trash > ?"
                    ),
                    values: vec![big(bucket), big(after.0)],
                },
                read: tables::trash_of,
            };
            (bucket(after)..=head).map(part).collect()
        }
        Slice::Deletions(se, after) => {
            let after = after.unwrap_or(DeletionId { revision: Revision(0), index: 0 });
            let part = |bucket: u64| PartitionRead {
                bound: Bound {
                    text: cql!(
                        "SELECT se, bucket, revision, position, guid, size, pfn, queued FROM deletions WHERE se = ? AND bucket = ? AND (revision, position) > (?, ?)"
                    ),
                    values: vec![int(u32::from(se.0)), big(bucket), big(after.revision.0), int(after.index)],
                },
                read: tables::deletion_of,
            };
            (bucket(after.revision)..=head).map(part).collect()
        }
        Slice::OnSe(se, after) => {
            let first = after.map_or(0, |(shard, _)| shard);
            let part = |shard: u8| PartitionRead {
                bound: Bound {
                    text: cql!("SELECT se, shard, guid FROM on_se WHERE se = ? AND shard = ? AND guid > ?"),
                    values: vec![
                        int(u32::from(se.0)),
                        int(u32::from(shard)),
                        guid(&after.filter(|(of, _)| *of == shard).map(|(_, guid)| guid)),
                    ],
                },
                read: tables::on_se_of,
            };
            (first..SE_SHARDS).map(part).collect()
        }
        Slice::Due(now) => due_parts(&follower.cluster, DUE_ENTRY, *now).await?,
        Slice::ReservationsDue(now) => due_parts(&follower.cluster, DUE_RESERVATION, *now).await?,
    })
}

async fn due_parts(cluster: &Cluster, kind: &str, now: TimeMs) -> Result<Vec<PartitionRead>> {
    let now = now.0.min(i64::MAX as u64);
    let days = Bound {
        text: cql!("SELECT day FROM due_days WHERE kind = ? AND day <= ?"),
        values: vec![text(kind), big(now / tables::DAY_MS)],
    };
    let mut parts = Vec::new();
    for row in cluster.read(&days).await? {
        let day = Columns::new(row).big()?;
        parts.push(PartitionRead {
            bound: Bound {
                text: cql!(
                    "SELECT kind, day, expires, id FROM due WHERE kind = ? AND day = ? AND expires <= ?"
                ),
                values: vec![text(kind), big(day), big(now)],
            },
            read: tables::due_of,
        });
    }
    Ok(parts)
}

/// Begins to read the rows of a slice.
pub(crate) async fn begin(follower: &Follower, slice: &Slice, limit: usize) -> Result<Reading> {
    let parts = parts(follower, slice).await?;
    Ok(match slice {
        // Names are spread over the partitions, so their orders are merged.
        Slice::Children(..) if parts.len() > 1 => Reading::merging(parts, limit),
        _ => Reading::in_turn(parts),
    })
}

/// Reads all rows of an SE's deletion queue from the table.
pub(crate) async fn whole_queue(follower: &Follower, se: SeNumber) -> Result<FetchedRows> {
    let mut reading = begin(follower, &Slice::Deletions(se, None), PAGE_ITEMS_MAX).await?;
    let mut all = Vec::new();
    while let Some(rows) = reading.next(&follower.cluster).await? {
        all.extend(rows.into_iter().map(|(key, row)| (key, Some(row))));
    }
    Ok(all)
}
