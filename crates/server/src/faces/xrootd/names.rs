//! Requests about names.

use std::collections::HashMap;

use exacat_model::answer::Stat;
use exacat_model::operation::Attribute;
use exacat_model::{
    Answer, ChecksumAlgorithm, Cursor, EntryId, Error, ErrorKind, Kind, Lfn, Mode, Operation,
};
use exacat_wire::xrootd::limits::PART_BYTES;
use exacat_wire::xrootd::numbers::{error, flag};
use exacat_wire::xrootd::response::{self, Listing};

use super::request::{Outcome, Refusal, RequestContext, Response, unexpected};
use crate::admission::busy;

/// Returns the stat flags of a kind. The server judges the right to read at the read itself.
fn flags(kind: Kind) -> u32 {
    let may = flag::READABLE | flag::WRITABLE;
    match kind {
        Kind::Directory => flag::EXECUTABLE | flag::DIRECTORY | may,
        Kind::File => may,
        Kind::Collection | Kind::Link => flag::OTHER | flag::READABLE,
    }
}

/// Returns a number that a rename does not change.
fn number(id: EntryId) -> u64 {
    match id {
        EntryId::Directory(id) => id.0,
        EntryId::Object(guid) => {
            let mut last = [0; 8];
            last.copy_from_slice(&guid.0[8..]);
            // Clients read it as a signed number.
            u64::from_be_bytes(last) >> 1
        }
    }
}

fn stat_text(stat: &Stat) -> response::Stat<'_> {
    let entry = &stat.entry;
    response::Stat {
        id: number(entry.id()),
        size: entry.size().unwrap_or(0),
        flags: flags(entry.kind()),
        modified: entry.modified.0 / 1000,
        created: entry.created.0 / 1000,
        mode: entry.mode.bits(),
        owner: stat.owner.as_str(),
        group: stat.group.as_str(),
    }
}

/// Returns the entries of paths, with `follow` the targets of links.
async fn stats(
    context: &RequestContext,
    lfns: Vec<Lfn>,
    follow: bool,
) -> Outcome<Vec<exacat_model::Result<Stat>>> {
    match context.ask(Operation::Stat { lfns, follow }).await? {
        Answer::Stats(stats) => Ok(stats),
        _ => Err(unexpected()),
    }
}

/// Returns the entry of one path.
pub(super) async fn stat_of(context: &RequestContext, lfn: Lfn, follow: bool) -> Outcome<Stat> {
    Ok(stats(context, vec![lfn], follow).await?.pop().ok_or_else(unexpected)??)
}

pub(super) async fn stat(context: &RequestContext, lfn: Lfn) -> Outcome {
    context.written(&lfn).await;
    let stat = match stat_of(context, lfn.clone(), true).await {
        Err(Refusal::Error(error::NOT_FOUND, _)) if written_below(context, &lfn).await => {
            stat_of(context, lfn, true).await?
        }
        found => found?,
    };
    Ok(Response::Text(stat_text(&stat).to_string()))
}

/// Checks all uploads below a missing directory: the first commit makes it. False if there are
/// none.
async fn written_below(context: &RequestContext, directory: &Lfn) -> bool {
    let Some(uploads) = context.uploads() else { return false };
    let below = uploads.below(directory);
    let any = !below.is_empty();
    uploads.check(below).await;
    any
}

/// Checks the uploads that a listing of a directory may include: those in it, and those below
/// missing directories in it.
async fn written_in(context: &RequestContext, directory: &Lfn) -> Outcome<()> {
    let Some(uploads) = context.uploads() else { return Ok(()) };
    Ok(uploads.before_listing(context.requester(), directory).await?)
}

/// Returns a byte for each path: its kind.
pub(super) async fn kinds(context: &RequestContext, lfns: Vec<Lfn>) -> Outcome {
    if let Some(uploads) = context.uploads() {
        uploads.check(lfns.iter().flat_map(|lfn| uploads.named(lfn)).collect()).await;
    }
    let mut bytes = Vec::with_capacity(lfns.len());
    for found in stats(context, lfns, true).await? {
        bytes.push(u8::try_from(flags(found?.entry.kind())).unwrap_or(u8::MAX));
    }
    Ok(Response::Bytes(bytes))
}

/// Returns the checksum of an entry, in the form of a listing.
fn listed_checksum(stat: &Stat, wanted: ChecksumAlgorithm) -> String {
    let known = stat.entry.file().and_then(|file| file.checksums.get(wanted));
    known.map_or_else(|| format!("{}:none", wanted.name()), ToString::to_string)
}

/// Lists the names in a directory, and sends them as they are read.
pub(super) async fn list(
    context: &RequestContext,
    lfn: Lfn,
    with_stats: bool,
    checksum: Option<ChecksumAlgorithm>,
) -> Outcome {
    let Some(held) = context.with.listings.take(1) else {
        return Err(busy("directories listed at once on one connection").into());
    };
    written_in(context, &lfn).await?;
    let mut listing = Listing::new(with_stats);
    let mut next = Some(Operation::List { lfn: lfn.clone(), cursor: Cursor::default(), limit: 0 });
    let mut first = true;
    let mut room = context.room().await;
    while let Some(answer) = context.page(&mut next, first, &room).await? {
        let Answer::Entries { items, .. } = answer else { return Err(unexpected()) };
        if std::mem::take(&mut first)
            && let [only] = items.as_slice()
            && only.lfn == lfn
        {
            // The catalogue lists an entry that is no directory as itself.
            return Err(Error::new(ErrorKind::NotDirectory, format!("{lfn} is no directory")).into());
        }
        let targets = if with_stats { targets(context, &items).await? } else { HashMap::new() };
        for item in &items {
            if !listing.push(item.entry.at.name.as_str()) {
                continue;
            }
            if with_stats {
                let stat = targets.get(&item.lfn).unwrap_or(item);
                let checksum = checksum.map(|wanted| listed_checksum(stat, wanted));
                listing.push_stat(&stat_text(stat), checksum.as_deref());
            }
        }
        // Hold nothing of the page while waiting for the client.
        drop((items, targets));
        let enough = if room.is_small() { 1 } else { PART_BYTES };
        if next.is_some() && listing.waiting() >= enough {
            context.put(listing.part(context.stream), room).await?;
            room = context.room().await;
        }
    }
    drop(held);
    let last = listing.finish(context.stream);
    room.turned_out(last.len());
    Ok(Response::Written(last, room))
}

/// Returns the targets of the links among entries, by the links' own paths. Dangling links have
/// none.
async fn targets(context: &RequestContext, items: &[Stat]) -> Outcome<HashMap<Lfn, Stat>> {
    let links = items.iter().filter(|item| item.entry.kind() == Kind::Link);
    let links: Vec<Lfn> = links.map(|link| link.lfn.clone()).collect();
    if links.is_empty() {
        return Ok(HashMap::new());
    }
    let found = stats(context, links.clone(), true).await?;
    Ok(links.into_iter().zip(found).filter_map(|(link, stat)| Some((link, stat.ok()?))).collect())
}

async fn each_done(context: &RequestContext, operation: Operation) -> Outcome {
    match context.ask(operation).await? {
        Answer::EachDone(done) => {
            done.into_iter().collect::<Result<Vec<()>, Error>>()?;
            Ok(Response::Done)
        }
        Answer::Done { .. } | Answer::Removed { .. } => Ok(Response::Done),
        _ => Err(unexpected()),
    }
}

pub(super) async fn mkdir(context: &RequestContext, lfn: Lfn, parents: bool, mode: u16) -> Outcome {
    // A client that gives no mode sends 0.
    let mode = if mode == 0 { None } else { Some(Mode::new(mode)?) };
    each_done(context, Operation::Mkdir { lfns: vec![lfn], parents, mode }).await
}

/// Removes an entry to the trash, and aborts uploads of the name. Clients remove files with a wrong
/// checksum, and do not report them otherwise.
pub(super) async fn remove(context: &RequestContext, lfn: Lfn, directory: bool) -> Outcome {
    if directory {
        written_in(context, &lfn).await?;
    } else {
        let given_up = give_up(context, &lfn).await?;
        let stat = match stat_of(context, lfn.clone(), false).await {
            Err(Refusal::Error(error::NOT_FOUND, _)) if given_up => return Ok(Response::Done),
            found => found?,
        };
        if stat.entry.kind() == Kind::Directory {
            return Err(Refusal::new(error::IS_DIRECTORY, format!("{lfn} is a directory: rmdir removes it")));
        }
    }
    each_done(context, Operation::Remove { lfn, recursive: false, directory }).await
}

/// Aborts the uploads of a name that the caller may abort; false if there was none.
async fn give_up(context: &RequestContext, lfn: &Lfn) -> Outcome<bool> {
    let Some(uploads) = context.uploads() else { return Ok(false) };
    let mut any = false;
    for pending in uploads.named(lfn) {
        let (guid, se) = (pending.written.guid, Some(pending.written.se.clone()));
        match context.ask(Operation::UploadAbort { guid, se }).await {
            Ok(_) => {
                any = true;
                uploads.given_up(&pending).await;
            }
            // It was committed meanwhile, or belongs to another user.
            Err(error) if matches!(error.kind, ErrorKind::NotFound | ErrorKind::Denied) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(any)
}

pub(super) async fn rename(context: &RequestContext, from: Lfn, to: Lfn) -> Outcome {
    context.written(&from).await;
    each_done(context, Operation::Move { from, to }).await
}

pub(super) async fn chmod(context: &RequestContext, lfn: Lfn, mode: u16) -> Outcome {
    context.written(&lfn).await;
    let attributes = vec![Attribute::Mode(Mode::new(mode)?)];
    each_done(context, Operation::SetAttributes { lfns: vec![lfn], attributes }).await
}
