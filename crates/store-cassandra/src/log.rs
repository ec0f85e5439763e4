//! The log: where changes are decided to have happened.
//!
//! A stretch of it is one partition. Its static `head` is the last change; an append is one conditional batch, `IF head` is what it was,
//! that puts a group of changes there and moves the head. So changes have one order, whichever servers append, and a group is there wholly or not at
//! all. The last row of a group has the images: what the group made of rows. A full stretch is sealed by the append that fills it:
//! it gets a static `next`, and nothing can be appended to it any more.

use exacat_model::codec::{Decode, Encode};
use exacat_model::{Change, Error, ErrorKind, Result, Revision};

use crate::cluster::{Cluster, failed, moment};
use crate::known::Group;
use crate::limits::{ATTEMPT_PAUSE, ATTEMPTS_MAX};
use crate::rows::Image;
use crate::tables::{Bound, Columns, big, blob, corrupt, text, time};

/// Compression of images: they repeat themselves, and speed counts.
const LEVEL: i32 = 1;
/// Bytes the images of a group may have.
const IMAGES_BYTES_MAX: usize = 256 << 20;

/// Where the log ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Position {
    /// The stretch the next change goes into.
    pub stretch: u64,
    /// The last change.
    pub head: Revision,
    /// Everything up to here is in the tables.
    pub settled: Revision,
}

/// What became of an append.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Appended {
    Done,
    /// Another server's came first.
    Lost,
}

struct Statics {
    head: Option<u64>,
    next: Option<u64>,
    settled: u64,
}

async fn statics(cluster: &Cluster, stretch: u64, serial: bool) -> Result<Statics> {
    let bound = Bound {
        text: "SELECT head, next, settled FROM log WHERE stretch = ? LIMIT 1",
        values: vec![big(stretch)],
    };
    Ok(match cluster.read_one(&bound, serial).await? {
        Some(mut row) => {
            Statics { head: row.maybe_big()?, next: row.maybe_big()?, settled: row.maybe_big()?.unwrap_or(0) }
        }
        None => Statics { head: None, next: None, settled: 0 },
    })
}

/// Where the log ends now; looked for from a stretch that is there.
pub(crate) async fn position(cluster: &Cluster, stretch: u64, serial: bool) -> Result<Position> {
    let (mut stretch, mut settled) = (stretch, 0);
    loop {
        let found = statics(cluster, stretch, serial).await?;
        settled = settled.max(found.settled);
        match (found.head, found.next) {
            (_, Some(next)) => {
                begin(cluster, next).await?;
                stretch = next;
            }
            (Some(head), None) => {
                return Ok(Position { stretch, head: Revision(head), settled: Revision(settled) });
            }
            (None, None) => {
                return Err(Error::new(
                    ErrorKind::Corrupt,
                    format!("the log has no stretch that begins with {stretch}"),
                ));
            }
        }
    }
}

/// Begins a stretch, if nobody has.
pub(crate) async fn begin(cluster: &Cluster, stretch: u64) -> Result<()> {
    let list = Bound {
        text: "INSERT INTO stretches (id, first) VALUES (?, ?)",
        values: vec![scylla::value::CqlValue::Int(0), big(stretch)],
    };
    for attempt in 0..ATTEMPTS_MAX {
        if statics(cluster, stretch, attempt > 0).await?.head.is_some() {
            // What is listed begins somewhere: so the first is the list.
            return Ok(());
        }
        let listed = cluster.write(&list, moment(Revision(stretch), false)).await;
        let insert = Bound {
            text: "INSERT INTO log (stretch, head) VALUES (?, ?) IF NOT EXISTS",
            values: vec![big(stretch), big(stretch.saturating_sub(1))],
        };
        if listed.is_ok() && cluster.conditional(&[insert]).await.is_ok() {
            return Ok(());
        }
        tokio::time::sleep(ATTEMPT_PAUSE).await;
    }
    Err(failed("begin a stretch of the log", "it does not answer"))
}

/// The firsts of all stretches, in order.
pub(crate) async fn stretches(cluster: &Cluster) -> Result<Vec<u64>> {
    let bound = Bound {
        text: "SELECT first FROM stretches WHERE id = ?",
        values: vec![scylla::value::CqlValue::Int(0)],
    };
    let rows = cluster.read(&bound).await?;
    rows.into_iter().map(|row| Columns::new(row).big()).collect()
}

/// A group on its way into the log.
pub(crate) struct Appending {
    bounds: Vec<Bound>,
    id: [u8; 16],
    position: Position,
    last: Revision,
    sealed: bool,
}

impl Appending {
    /// Puts a group into words: its changes, and what it makes of rows.
    pub fn new(
        position: Position,
        changes: &[Change],
        images: &[Image],
        stretch_changes: u64,
    ) -> Result<Self> {
        let (Some(first), Some(last)) = (changes.first(), changes.last()) else {
            return Err(Error::new(ErrorKind::Invalid, "a group has changes"));
        };
        let mut id = [0; 16];
        getrandom::fill(&mut id).map_err(|error| failed("be asked: no randomness", error))?;
        let sealed = last.revision.0 + 1 >= position.stretch.saturating_add(stretch_changes);
        let condition = if sealed {
            Bound {
                text: "UPDATE log SET head = ?, next = ? WHERE stretch = ? IF head = ? AND next = null",
                values: vec![
                    big(last.revision.0),
                    big(last.revision.0 + 1),
                    big(position.stretch),
                    big(position.head.0),
                ],
            }
        } else {
            Bound {
                text: "UPDATE log SET head = ? WHERE stretch = ? IF head = ? AND next = null",
                values: vec![big(last.revision.0), big(position.stretch), big(position.head.0)],
            }
        };
        let mut bounds = vec![condition];
        for change in changes {
            let mut values = vec![
                big(position.stretch),
                big(change.revision.0),
                time(change.time),
                big(u64::from(change.who.0)),
                blob(change.operation.0.to_vec()),
                scylla::value::CqlValue::Int(change.index as i32),
                text(change.effect.name()),
                blob(change.to_bytes()),
            ];
            let mut words = "INSERT INTO log (stretch, revision, time, who, operation, position, effect, change) VALUES (?, ?, ?, ?, ?, ?, ?, ?)";
            if change.revision == last.revision {
                let mut bytes = Vec::new();
                images.encode(&mut bytes);
                let packed = zstd::bulk::compress(&bytes, LEVEL).map_err(corrupt)?;
                values.extend([blob(id.to_vec()), big(first.revision.0), blob(packed)]);
                words = "INSERT INTO log (stretch, revision, time, who, operation, position, effect, change, append, first, images) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)";
            }
            bounds.push(Bound { text: words, values });
        }
        Ok(Appending { bounds, id, position, last: last.revision, sealed })
    }

    /// Does it fill its stretch? Then the next one begins after it.
    pub fn sealed(&self) -> bool {
        self.sealed
    }

    /// Appends it. Whatever the cluster says or does not say, it is found out what became of it: the same words can be sent again, for they
    /// hold only where the head is what it was; and whose changes follow that head can be read. An error means that it could not be found out.
    pub async fn append(&self, cluster: &Cluster) -> Result<Appended> {
        let mut error = failed("append to the log", "it does not answer");
        for attempt in 0..ATTEMPTS_MAX {
            if attempt > 0 {
                tokio::time::sleep(ATTEMPT_PAUSE).await;
            }
            match cluster.conditional(&self.bounds).await {
                Ok(true) => return Ok(Appended::Done),
                Ok(false) => {}
                Err(why) => {
                    cluster.figures.unknown();
                    tracing::warn!(%why, "it is not known what became of an append, it is looked up");
                    error = why;
                }
            }
            // Not applied: then the head is another. Or an attempt before was applied, though it did not say so.
            match self.fate(cluster).await {
                Ok(Some(fate)) => return Ok(fate),
                Ok(None) => {}
                Err(why) => error = why,
            }
        }
        Err(error)
    }

    /// What became of it; none if nothing did yet.
    async fn fate(&self, cluster: &Cluster) -> Result<Option<Appended>> {
        let found = statics(cluster, self.position.stretch, true).await?;
        if found.head == Some(self.position.head.0) && found.next.is_none() {
            return Ok(None);
        }
        let bound = Bound {
            text: "SELECT append FROM log WHERE stretch = ? AND revision = ?",
            values: vec![big(self.position.stretch), big(self.last.0)],
        };
        let ours = match cluster.read_one(&bound, true).await? {
            Some(mut row) => row.blob()? == self.id,
            None => false,
        };
        Ok(Some(if ours { Appended::Done } else { Appended::Lost }))
    }
}

/// Groups of a stretch after a revision, in order.
pub(crate) async fn groups(cluster: &Cluster, stretch: u64, after: Revision) -> Result<Vec<Group>> {
    let bound = Bound {
        text: "SELECT revision, first, images FROM log WHERE stretch = ? AND revision > ?",
        values: vec![big(stretch), big(after.0)],
    };
    let mut groups = Vec::new();
    for row in cluster.read(&bound).await? {
        groups.extend(group_of(Columns::new(row))?);
    }
    Ok(groups)
}

/// The last group of a stretch.
pub(crate) async fn last_group(cluster: &Cluster, stretch: u64) -> Result<Option<Group>> {
    let bound = Bound {
        text: "SELECT revision, first, images FROM log WHERE stretch = ? ORDER BY revision DESC LIMIT 1",
        values: vec![big(stretch)],
    };
    match cluster.read_one(&bound, true).await? {
        Some(row) => group_of(row),
        None => Ok(None),
    }
}

/// None if the row is not the last of its group, or if it is that of a stretch without changes.
fn group_of(mut row: Columns) -> Result<Option<Group>> {
    let Some(last) = row.maybe_big()? else { return Ok(None) };
    let Some(first) = row.maybe_big()? else { return Ok(None) };
    let bytes = zstd::bulk::decompress(&row.blob()?, IMAGES_BYTES_MAX).map_err(corrupt)?;
    let images = Vec::<Image>::from_bytes(&bytes).map_err(corrupt)?;
    Ok(Some(Group { first: Revision(first), last: Revision(last), images }))
}

/// Changes of a stretch after a revision, at most so many.
pub(crate) async fn changes(
    cluster: &Cluster,
    stretch: u64,
    after: Revision,
    limit: usize,
) -> Result<Vec<Change>> {
    let bound = Bound {
        text: "SELECT change FROM log WHERE stretch = ? AND revision > ?",
        values: vec![big(stretch), big(after.0)],
    };
    let (mut found, mut state) = (Vec::new(), None);
    loop {
        let slice = cluster.slice(&bound, state).await?;
        for row in slice.rows {
            let bytes = Columns::new(row).blob()?;
            // A stretch without changes is a row without a change.
            if !bytes.is_empty() && found.len() < limit {
                found.push(Change::from_bytes(&bytes).map_err(corrupt)?);
            }
        }
        state = slice.next;
        if state.is_none() || found.len() >= limit {
            return Ok(found);
        }
    }
}

/// Says that everything up to this change is in the tables, so that other servers need not see to it.
pub(crate) async fn settled(cluster: &Cluster, stretch: u64, up_to: Revision) -> Result<()> {
    let bound = Bound {
        text: "UPDATE log SET settled = ? WHERE stretch = ?",
        values: vec![big(up_to.0), big(stretch)],
    };
    cluster.write(&bound, moment(up_to, false)).await
}
