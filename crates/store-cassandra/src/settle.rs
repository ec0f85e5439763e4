//! Writing what is in the log to the tables. Every write says of which moment of the log it is, so it can be done again, by
//! anyone, and late, and does no harm.

use std::collections::BTreeMap;

use exacat_model::{DirId, Result};
use futures::FutureExt;
use futures::future::BoxFuture;

use crate::cluster::{Cluster, moment};
use crate::known::Group;
use crate::limits::{ATTEMPT_PAUSE, ATTEMPTS_MAX, BATCH_BYTES_MAX, BATCH_ROWS_MAX};
use crate::rows::{Image, Key};
use crate::tables::{self, Bound};

/// Statements to be sent one after the other, or together if they are of one partition.
enum Work {
    InTurn(Vec<Bound>),
    Together(Vec<Bound>),
}

/// Writes all that a group made of rows.
pub(crate) async fn settle(cluster: &Cluster, group: &Group) -> Result<()> {
    let at = moment(group.last, false);
    let (whole, rows): (Vec<&Image>, Vec<&Image>) =
        group.images.iter().partition(|image| matches!(image.key, Key::Members(_)));
    let mut work = Vec::new();
    let mut children: BTreeMap<DirId, (Vec<Bound>, usize)> = BTreeMap::new();
    for Image { key, row } in rows {
        let bounds = tables::write(key, row.as_ref())?;
        let Key::Entry(place) = key else {
            work.push(Work::InTurn(bounds));
            continue;
        };
        let bytes = row.as_ref().map_or(0, |row| exacat_model::codec::Encode::to_bytes(row).len());
        let (batch, size) = children.entry(place.parent).or_default();
        if !batch.is_empty() && (batch.len() >= BATCH_ROWS_MAX || *size + bytes > BATCH_BYTES_MAX) {
            work.push(Work::Together(std::mem::take(batch)));
            *size = 0;
        }
        batch.extend(bounds);
        // A row is about twice its canonical bytes in a statement.
        *size += 2 * bytes + 64;
    }
    work.extend(children.into_values().map(|(batch, _)| Work::Together(batch)));
    let mut first: Vec<BoxFuture<'_, Result<()>>> = Vec::new();
    for image in whole {
        first.push(take_away(cluster, image, moment(group.last, true)).boxed());
    }
    Cluster::all(first).await?;
    let mut then: Vec<BoxFuture<'_, Result<()>>> = Vec::new();
    for work in &work {
        then.push(write(cluster, work, at).boxed());
    }
    Cluster::all(then).await?;
    Ok(())
}

async fn take_away(cluster: &Cluster, image: &Image, at: i64) -> Result<()> {
    for bound in tables::write(&image.key, None)? {
        insist(|| cluster.write(&bound, at).boxed()).await?;
    }
    Ok(())
}

async fn write(cluster: &Cluster, work: &Work, at: i64) -> Result<()> {
    match work {
        Work::InTurn(bounds) => {
            for bound in bounds {
                insist(|| cluster.write(bound, at).boxed()).await?;
            }
            Ok(())
        }
        Work::Together(bounds) => {
            let bounds: Vec<&Bound> = bounds.iter().collect();
            insist(|| cluster.write_together(&bounds, at).boxed()).await
        }
    }
}

/// Does it again if it fails: nothing here is harmed by being done twice.
async fn insist<'a>(work: impl Fn() -> BoxFuture<'a, Result<()>>) -> Result<()> {
    let mut attempt = 0;
    loop {
        match work().await {
            Ok(()) => return Ok(()),
            Err(error) if attempt + 1 >= ATTEMPTS_MAX => return Err(error),
            Err(error) => {
                tracing::warn!(%error, "a write to the tables failed, it is done again");
                attempt += 1;
                tokio::time::sleep(ATTEMPT_PAUSE).await;
            }
        }
    }
}
