//! Reads everything below a directory once, for an export in another form than a listing.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Instant;

use exacat_model::answer::{Member, Stat};
use exacat_model::{Cursor, Filter, Kind, Lfn, LogPosition, Operation, Revision, Se};
use futures::pin_mut;
use tokio::sync::mpsc;

use crate::catalogue::Catalogue;
use crate::digest::{Digest, MembersSum};
use crate::error::Error;
use crate::export::{known_ses, members_of, next_entries, next_members};
use crate::import::position;
use crate::limits::EXPORT_PAGE_ITEMS;
use crate::progress::Progress;

/// The storage elements by number.
pub type SesByNumber = HashMap<u16, Se>;

/// A part of the content, in the order of a find.
#[derive(Debug)]
pub enum Walked {
    /// Entries that are no collections, and the storage elements that they name.
    Entries(Vec<Stat>, Arc<SesByNumber>),
    /// Members of the collection that follows.
    Members(Arc<Stat>, Vec<Member>),
    /// A collection, and the digest of its members.
    Collection(Arc<Stat>, Digest, Arc<SesByNumber>),
}

/// Returns the end of the history.
pub async fn end_of_history<C: Catalogue>(catalogue: &C) -> Result<LogPosition, Error> {
    position(catalogue, Revision(0).into()).await
}

/// Sends everything below a directory that a filter selects, and returns the number of entries. The
/// receiver's end is an error only if it came early.
pub async fn walk<C: Catalogue>(
    catalogue: &C,
    (under, filter): (&Lfn, &Filter),
    out: &mpsc::Sender<Walked>,
    mut progress: impl FnMut(&Progress) + Send,
) -> Result<u64, Error> {
    let started = Instant::now();
    let closed = |_| Error::Broken("writing the export");
    let mut ses = known_ses(catalogue).await?;
    let find = Operation::Find {
        lfn: under.clone(),
        filter: Box::new(filter.clone()),
        cursor: Cursor::default(),
        limit: EXPORT_PAGE_ITEMS,
    };
    let (mut entries, pages) = (0, catalogue.stream(find));
    pin_mut!(pages);
    while let Some((items, page_ses)) = next_entries(&mut pages).await? {
        if page_ses.iter().any(|number| !ses.contains_key(number)) {
            ses = known_ses(catalogue).await?;
        }
        entries += items.len() as u64;
        let mut rest = items;
        while let Some(at) = rest.iter().position(|stat| stat.entry.kind() == Kind::Collection) {
            let after = rest.split_off(at + 1);
            let Some(stat) = rest.pop() else { break };
            if !rest.is_empty() {
                out.send(Walked::Entries(rest, Arc::clone(&ses))).await.map_err(closed)?;
            }
            rest = after;
            let (collection, mut sum) = (Arc::new(stat), MembersSum::default());
            let listing = catalogue.stream(members_of(collection.lfn.clone()));
            pin_mut!(listing);
            while let Some(members) = next_members(&mut listing).await? {
                for member in &members {
                    sum.add(member.stat.as_ref().map(|stat| &stat.lfn), member.guid);
                }
                out.send(Walked::Members(Arc::clone(&collection), members)).await.map_err(closed)?;
            }
            let whole = Walked::Collection(collection, sum.digest(), Arc::clone(&ses));
            out.send(whole).await.map_err(closed)?;
        }
        // Most pages have no collection, and are passed on as they are.
        if !rest.is_empty() {
            out.send(Walked::Entries(rest, Arc::clone(&ses))).await.map_err(closed)?;
        }
        progress(&Progress {
            rows: entries,
            rows_now: entries,
            elapsed: started.elapsed(),
            ..Progress::default()
        });
    }
    Ok(entries)
}
