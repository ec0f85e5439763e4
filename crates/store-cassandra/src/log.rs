//! The log: an append to it is the commit point of its changes.
//!
//! A log segment is one partition. Its static `head` is the last change. An append is one
//! conditional batch, `IF head` is unchanged. It writes a group of changes as one row, and moves
//! the head. So changes have one order, whichever servers append, and a group is there as a whole
//! or not at all. A group has its changes and its row after-images. The append that fills a segment
//! seals it: it sets a static `next`, and nothing can be appended to the segment any more.
//!
//! Each group names the one `before` it, and the static `tail` is the last group. An append is
//! conditional on the tail as well, so no server appends to another branch of the history than the
//! one it has read.

use std::collections::BTreeMap;

use exacat_model::codec::{Decode, Encode};
use exacat_model::{Change, Consistency, Error, ErrorKind, Measured, Result, Revision, TimeMs};

use crate::cluster::{Cluster, Pages, failed, moment};
use crate::limits::{ATTEMPTS_MAX, GROUP_UNPACKED_MAX, GROUPS_PER_PAGE};
use crate::retry::Attempts;
use crate::row_cache::{Group, GroupId, NO_GROUP, Tail};
use crate::rows::AfterImage;
use crate::statement::cql;
use crate::tables::{Bound, Columns, big, blob, corrupt, text, time};

/// Compression level of groups: they repeat themselves, and speed counts.
const LEVEL: i32 = 1;

/// Timestamp after all others: it outranks late writes into a dropped segment.
pub(crate) const FOREVER: i64 = i64::MAX / 2;

/// End of the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Position {
    /// Segment of the next change.
    pub segment: u64,
    /// Last change.
    pub head: Revision,
    /// Flushed position: the tables are complete up to here.
    pub flushed: Revision,
    /// Tail at the head; none if it was not read.
    pub tail: Option<Tail>,
}

/// Result of an append.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Appended {
    Done,
    /// Another server's append came first.
    Lost,
}

struct Statics {
    head: Option<u64>,
    next: Option<u64>,
    flushed: u64,
    tail: Tail,
}

async fn statics(cluster: &Cluster, segment: u64, serial: bool) -> Result<Statics> {
    let bound = Bound {
        text: cql!("SELECT head, next, flushed, tail FROM log WHERE segment = ? LIMIT 1"),
        values: vec![big(segment)],
    };
    Ok(match cluster.read_one(&bound, serial).await? {
        Some(mut row) => Statics {
            head: row.maybe_big()?,
            next: row.maybe_big()?,
            flushed: row.maybe_big()?.unwrap_or(0),
            tail: group_id(&row.blob()?)?,
        },
        None => Statics { head: None, next: None, flushed: 0, tail: None },
    })
}

/// Parses the id of a group; none if the column is empty.
fn group_id(bytes: &[u8]) -> Result<Option<GroupId>> {
    match bytes {
        [] => Ok(None),
        bytes => bytes.try_into().map(Some).map_err(|_| corrupt("the id of a group has another length")),
    }
}

/// Reads the flushed position from the last segment that has one.
pub(crate) async fn flushed_in(cluster: &Cluster, segments: &[u64]) -> Result<Revision> {
    for segment in segments.iter().rev() {
        let flushed = statics(cluster, *segment, true).await?.flushed;
        if flushed > 0 {
            return Ok(Revision(flushed));
        }
    }
    // Nothing was ever flushed: the whole log must be read. A segment that was dropped would have
    // named a position before the present first change.
    Ok(Revision(segments.first().map_or(0, |first| first.saturating_sub(1))))
}

/// Finds the end of the log, from a segment that exists.
pub(crate) async fn position(cluster: &Cluster, segment: u64, serial: bool) -> Result<Position> {
    let (mut segment, mut flushed) = (segment, 0);
    loop {
        let found = statics(cluster, segment, serial).await?;
        flushed = flushed.max(found.flushed);
        match (found.head, found.next) {
            (_, Some(next)) => {
                // The server that filled the segment may have ended before it began the next one.
                // Any reader does it then, because the log could not continue otherwise.
                begin(cluster, next, found.tail).await?;
                segment = next;
            }
            (Some(head), None) => {
                let (head, flushed) = (Revision(head), Revision(flushed));
                return Ok(Position { segment, head, flushed, tail: Some(found.tail) });
            }
            (None, None) => {
                return Err(Error::new(
                    ErrorKind::Corrupt,
                    format!(
                        "the log has no segment that begins with change {segment} any more: this server was away for longer than the history is kept, start it again"
                    ),
                ));
            }
        }
    }
}

/// Reads the head of a log segment at this level. None if the segment is full, or the replicas that
/// answered have nothing of it.
pub(crate) async fn read_head(
    cluster: &Cluster,
    segment: u64,
    level: Consistency,
) -> Result<Option<Revision>> {
    let bound = Bound {
        text: cql!("SELECT head, next FROM log WHERE segment = ? LIMIT 1"),
        values: vec![big(segment)],
    };
    let Some(mut row) = cluster.read_one_at(&bound, level).await? else { return Ok(None) };
    let (head, next) = (row.maybe_big()?, row.maybe_big()?);
    Ok(head.filter(|_| next.is_none()).map(Revision))
}

/// Begins a segment after this tail, if no server has.
pub(crate) async fn begin(cluster: &Cluster, segment: u64, tail: Tail) -> Result<()> {
    let list = Bound {
        text: cql!("INSERT INTO segments (id, first) VALUES (?, ?)"),
        values: vec![scylla::value::CqlValue::Int(0), big(segment)],
    };
    let mut attempts = Attempts::of(ATTEMPTS_MAX);
    loop {
        // A plain read may miss an insert under way: the later attempts read serially.
        if statics(cluster, segment, attempts.failed() > 0).await?.head.is_some() {
            // The listing was written first, so this segment is listed already.
            return Ok(());
        }
        let listed = cluster.write(&list, moment(Revision(segment), false)).await;
        let insert = Bound {
            text: match tail {
                Some(_) => cql!("INSERT INTO log (segment, head, tail) VALUES (?, ?, ?) IF NOT EXISTS"),
                None => cql!("INSERT INTO log (segment, head) VALUES (?, ?) IF NOT EXISTS"),
            },
            values: [big(segment), big(segment.saturating_sub(1))]
                .into_iter()
                .chain(tail.map(|tail| blob(tail.to_vec())))
                .collect(),
        };
        if listed.is_ok() && cluster.conditional(&[insert]).await.is_ok() {
            return Ok(());
        }
        attempts.after(failed("begin a segment of the log", "it does not answer")).await?;
    }
}

/// Lists the first revisions of all segments, in order.
pub(crate) async fn segments(cluster: &Cluster) -> Result<Vec<u64>> {
    let bound = Bound {
        text: cql!("SELECT first FROM segments WHERE id = ?"),
        values: vec![scylla::value::CqlValue::Int(0)],
    };
    let rows = cluster.read(&bound).await?;
    rows.into_iter().map(|row| Columns::new(row).big()).collect()
}

/// A group on its way into the log. Its id begins with that of its server.
pub(crate) struct Appending {
    bounds: Vec<Bound>,
    id: GroupId,
    position: Position,
    tail: Tail,
    last: Revision,
    after_images_bytes: usize,
    sealed: bool,
}

fn packed(bytes: &[u8]) -> Result<Vec<u8>> {
    zstd::bulk::compress(bytes, LEVEL).map_err(corrupt)
}

fn unpacked(bytes: &[u8]) -> Result<Vec<u8>> {
    zstd::bulk::decompress(bytes, GROUP_UNPACKED_MAX).map_err(corrupt)
}

/// Summary of a group for a person who looks at the table: `create 12, update 3`.
fn summary(changes: &[Change]) -> String {
    let mut kinds: BTreeMap<&str, usize> = BTreeMap::new();
    for change in changes {
        *kinds.entry(change.effect.name()).or_default() += 1;
    }
    let kinds: Vec<String> = kinds.into_iter().map(|(kind, count)| format!("{kind} {count}")).collect();
    kinds.join(", ")
}

impl Appending {
    /// Builds the statements of an append from changes and after-images.
    pub(crate) fn new(
        position: Position,
        tail: Tail,
        by: u64,
        changes: &[Change],
        after_images: &[AfterImage],
        segment_changes: u64,
    ) -> Result<Self> {
        let (Some(first), Some(last)) = (changes.first(), changes.last()) else {
            return Err(Error::new(ErrorKind::Invalid, "a group has changes"));
        };
        // A random id of its own per append: a server that lost the answer finds out whose group it
        // is.
        let mut id = [0; 16];
        let (server, random) = id.split_at_mut(8);
        server.copy_from_slice(&by.to_be_bytes());
        getrandom::fill(random).map_err(|error| failed("be appended to: no randomness", error))?;
        let sealed = last.revision.0 + 1 >= position.segment.saturating_add(segment_changes);
        // `next = null`: a sealed segment takes nothing. The tail: no append to a branch that was
        // not read.
        let text_of_condition = match (sealed, tail) {
            (true, Some(_)) => {
                cql!(
                    "UPDATE log SET head = ?, tail = ?, next = ? WHERE segment = ? IF head = ? AND next = null AND tail = ?"
                )
            }
            (false, Some(_)) => {
                cql!(
                    "UPDATE log SET head = ?, tail = ? WHERE segment = ? IF head = ? AND next = null AND tail = ?"
                )
            }
            (true, None) => {
                cql!(
                    "UPDATE log SET head = ?, tail = ?, next = ? WHERE segment = ? IF head = ? AND next = null AND tail = null"
                )
            }
            (false, None) => {
                cql!(
                    "UPDATE log SET head = ?, tail = ? WHERE segment = ? IF head = ? AND next = null AND tail = null"
                )
            }
        };
        let mut values = vec![big(last.revision.0), blob(id.to_vec())];
        values.extend(sealed.then(|| big(last.revision.0 + 1)));
        values.extend([big(position.segment), big(position.head.0)]);
        values.extend(tail.map(|tail| blob(tail.to_vec())));
        let condition = Bound { text: text_of_condition, values };
        let mut bytes = Vec::new();
        after_images.encode(&mut bytes);
        let after_images_bytes = bytes.len();
        let packed_after_images = packed(&bytes)?;
        bytes.clear();
        changes.encode(&mut bytes);
        let packed_changes = packed(&bytes)?;
        let values = vec![
            big(position.segment),
            big(last.revision.0),
            big(first.revision.0),
            time(last.time),
            text(&summary(changes)),
            blob(id.to_vec()),
            blob(packed_changes),
            blob(packed_after_images),
            blob(tail.unwrap_or(NO_GROUP).to_vec()),
        ];
        let group = Bound {
            text: cql!(
                "INSERT INTO log (segment, last, first, time, what, append, changes, after_images, before) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)"
            ),
            values,
        };
        let bounds = vec![condition, group];
        Ok(Appending { bounds, id, position, tail, last: last.revision, after_images_bytes, sealed })
    }

    /// Returns the group's id, and that of the group before it.
    pub(crate) fn link(&self) -> (GroupId, GroupId) {
        (self.id, self.tail.unwrap_or(NO_GROUP))
    }

    /// Bytes of the after-images.
    pub(crate) fn after_images_bytes(&self) -> usize {
        self.after_images_bytes
    }

    /// True if the append fills its segment. The next segment begins after it.
    pub(crate) fn sealed(&self) -> bool {
        self.sealed
    }

    /// Appends the group, and resolves an unknown outcome. It may send the same batch again, which
    /// holds only where the head is the same. It reads which group follows that head. An error
    /// means that the outcome stays unknown.
    pub(crate) async fn append(&self, cluster: &Cluster) -> Result<Appended> {
        let mut error = failed("append to the log", "it does not answer");
        let mut attempts = Attempts::of(ATTEMPTS_MAX);
        loop {
            match cluster.conditional(&self.bounds).await {
                Ok(true) => return Ok(Appended::Done),
                Ok(false) => {
                    // "Not applied" may answer a repeated batch. The group that stood against it
                    // was committed before this answer, so a plain read finds it.
                    if let Ok(Some(fate)) = self.plain_fate(cluster).await {
                        return Ok(fate);
                    }
                }
                Err(why) => {
                    cluster.metrics.unknown();
                    tracing::warn!(%why, "the outcome of an append is unknown, the server reads it");
                    error = why;
                }
            }
            // The head has moved, or an earlier attempt was applied without an answer.
            match self.fate(cluster).await {
                Ok(Some(fate)) => return Ok(fate),
                Ok(None) => {}
                Err(why) => error = why,
            }
            attempts.after(error.clone()).await?;
        }
    }

    /// Reads which group follows the expected head; none if a plain read does not show any.
    async fn plain_fate(&self, cluster: &Cluster) -> Result<Option<Appended>> {
        let bound = Bound {
            text: cql!("SELECT first, append FROM log WHERE segment = ? AND last > ? LIMIT 1"),
            values: vec![big(self.position.segment), big(self.position.head.0)],
        };
        let Some(mut row) = cluster.read_one(&bound, false).await? else { return Ok(None) };
        // A partition without such a row still returns its statics.
        let Some(first) = row.maybe_big()? else { return Ok(None) };
        let follows = first == self.position.head.0 + 1;
        let ours = row.blob()? == self.id;
        Ok(follows.then_some(if ours { Appended::Done } else { Appended::Lost }))
    }

    /// Reads the outcome of the append; none if there is none yet.
    async fn fate(&self, cluster: &Cluster) -> Result<Option<Appended>> {
        let found = statics(cluster, self.position.segment, true).await?;
        // With another tail the condition never holds: the log is not the one that was read.
        if found.head == Some(self.position.head.0) && found.next.is_none() && found.tail == self.tail {
            return Ok(None);
        }
        let bound = Bound {
            text: cql!("SELECT append FROM log WHERE segment = ? AND last = ?"),
            values: vec![big(self.position.segment), big(self.last.0)],
        };
        let ours = match cluster.read_one(&bound, true).await? {
            Some(mut row) => row.blob()? == self.id,
            None => false,
        };
        Ok(Some(if ours { Appended::Done } else { Appended::Lost }))
    }
}

/// Groups of a segment after a revision, page by page.
pub(crate) struct Groups(Pages<Bound>);

impl Groups {
    pub(crate) fn of(segment: u64, after: Revision) -> Self {
        let bound = Bound {
            text: cql!(
                "SELECT last, first, append, before, after_images FROM log WHERE segment = ? AND last > ?"
            ),
            values: vec![big(segment), big(after.0)],
        };
        Groups(Pages::of(bound, GROUPS_PER_PAGE))
    }

    /// Returns the next page; none at the end.
    pub(crate) async fn next(&mut self, cluster: &Cluster) -> Result<Option<Vec<Group>>> {
        let Some(rows) = self.0.next(cluster).await? else { return Ok(None) };
        let groups: Result<Vec<Option<Group>>> =
            rows.into_iter().map(|row| group_of(Columns::new(row))).collect();
        Ok(Some(groups?.into_iter().flatten().collect()))
    }
}

/// Parses a group; none if the row is that of a segment without changes.
fn group_of(mut row: Columns) -> Result<Option<Group>> {
    let Some(last) = row.maybe_big()? else { return Ok(None) };
    let first = Revision(row.big()?);
    let id = row.blob()?;
    let by = server_of(&id).unwrap_or(0);
    let id = group_id(&id)?.unwrap_or_default();
    let before = group_id(&row.blob()?)?;
    let bytes = unpacked(&row.blob()?)?;
    let after_images = Vec::<AfterImage>::from_bytes(&bytes).map_err(corrupt)?;
    Ok(Some(Group { first, last: Revision(last), id, before, by, after_images, bytes: bytes.len() }))
}

/// Reads changes of a segment after a revision: at most `limit`, and up to one that brings them to
/// `bytes_max`.
pub(crate) async fn changes(
    cluster: &Cluster,
    segment: u64,
    after: Revision,
    (limit, bytes_max): (usize, usize),
) -> Result<Vec<Change>> {
    let bound = Bound {
        text: cql!("SELECT changes FROM log WHERE segment = ? AND last > ?"),
        values: vec![big(segment), big(after.0)],
    };
    let mut pages = Pages::of(bound, GROUPS_PER_PAGE);
    let (mut found, mut bytes) = (Vec::new(), 0);
    while found.len() < limit
        && bytes < bytes_max
        && let Some(rows) = pages.next(cluster).await?
    {
        for row in rows {
            let group = Columns::new(row).blob()?;
            // A segment without changes has one row without any.
            if group.is_empty() {
                continue;
            }
            let changes = Vec::<Change>::from_bytes(&unpacked(&group)?).map_err(corrupt)?;
            for change in changes.into_iter().filter(|change| change.revision > after) {
                if found.len() >= limit || bytes >= bytes_max {
                    return Ok(found);
                }
                bytes += change.bytes();
                found.push(change);
            }
        }
    }
    Ok(found)
}

/// Server of the last group of a segment; none if it has no group.
pub(crate) async fn last_by(cluster: &Cluster, segment: u64) -> Result<Option<u64>> {
    let bound = Bound {
        text: cql!("SELECT append FROM log WHERE segment = ? ORDER BY last DESC LIMIT 1"),
        values: vec![big(segment)],
    };
    let found = cluster.read_one(&bound, false).await?;
    found.map(|mut row| Ok(server_of(&row.blob()?))).transpose().map(Option::flatten)
}

/// Server number at the begin of a group's id.
fn server_of(id: &[u8]) -> Option<u64> {
    id.first_chunk().copied().map(u64::from_be_bytes)
}

/// Time of the last change of a segment; none if it has none.
pub(crate) async fn ended(cluster: &Cluster, segment: u64) -> Result<Option<TimeMs>> {
    let bound = Bound {
        text: cql!("SELECT time FROM log WHERE segment = ? ORDER BY last DESC LIMIT 1"),
        values: vec![big(segment)],
    };
    match cluster.read_one(&bound, false).await? {
        Some(mut row) => row.maybe_time(),
        None => Ok(None),
    }
}

/// Drops a segment with one tombstone, of the whole partition. Its listing goes first, so that
/// every listed segment exists.
pub(crate) async fn drop_segment(cluster: &Cluster, segment: u64) -> Result<()> {
    let name = Bound {
        text: cql!("DELETE FROM segments WHERE id = ? AND first = ?"),
        values: vec![scylla::value::CqlValue::Int(0), big(segment)],
    };
    cluster.write(&name, FOREVER).await?;
    let all = Bound { text: cql!("DELETE FROM log WHERE segment = ?"), values: vec![big(segment)] };
    cluster.write(&all, FOREVER).await
}

/// Records the flushed position, so that other servers need not flush the same changes.
pub(crate) async fn flushed(cluster: &Cluster, segment: u64, up_to: Revision) -> Result<()> {
    let bound = Bound {
        text: cql!("UPDATE log SET flushed = ? WHERE segment = ?"),
        values: vec![big(up_to.0), big(segment)],
    };
    cluster.write(&bound, moment(up_to, false)).await
}
