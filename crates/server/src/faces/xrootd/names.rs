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

use super::asked::{Asking, Outcome, Refusal, Response, unexpected};
use crate::admission::busy;

/// What a stat says of what something is. Whether it may be read is judged when it is.
fn flags(kind: Kind) -> u32 {
    let may = flag::READABLE | flag::WRITABLE;
    match kind {
        Kind::Directory => flag::EXECUTABLE | flag::DIRECTORY | may,
        Kind::File => may,
        Kind::Collection | Kind::Link => flag::OTHER | flag::READABLE,
    }
}

/// A number for what stays the same when it is renamed.
fn number(id: EntryId) -> u64 {
    match id {
        EntryId::Directory(id) => id.0,
        EntryId::Object(guid) => {
            let mut last = [0; 8];
            last.copy_from_slice(&guid.0[8..]);
            // Clients take it for a signed one.
            u64::from_be_bytes(last) >> 1
        }
    }
}

fn told(stat: &Stat) -> response::Stat<'_> {
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

/// What stands under paths; a link's is what it stands for.
async fn stats(asking: &Asking, lfns: Vec<Lfn>, follow: bool) -> Outcome<Vec<exacat_model::Result<Stat>>> {
    match asking.ask(Operation::Stat { lfns, follow }).await? {
        Answer::Stats(stats) => Ok(stats),
        _ => Err(unexpected()),
    }
}

/// What stands under one path.
pub(super) async fn stat_of(asking: &Asking, lfn: Lfn, follow: bool) -> Outcome<Stat> {
    Ok(stats(asking, vec![lfn], follow).await?.pop().ok_or_else(unexpected)??)
}

pub(super) async fn stat(asking: &Asking, lfn: Lfn) -> Outcome {
    asking.written(&lfn).await;
    let stat = match stat_of(asking, lfn.clone(), true).await {
        Err(Refusal::Error(error::NOT_FOUND, _)) if written_below(asking, &lfn).await => {
            stat_of(asking, lfn, true).await?
        }
        found => found?,
    };
    Ok(Response::Text(told(&stat).to_string()))
}

/// Looks at all uploads below a directory that is not there yet: the first that is committed makes
/// it. False if there are none.
async fn written_below(asking: &Asking, directory: &Lfn) -> bool {
    let Some(uploads) = asking.uploads() else { return false };
    let below = uploads.below(directory);
    let any = !below.is_empty();
    uploads.asked_for(below).await;
    any
}

/// Looks at the uploads that a listing of a directory may come to show: those in it, and those
/// below directories in it that are not there yet.
async fn written_in(asking: &Asking, directory: &Lfn) -> Outcome<()> {
    let Some(uploads) = asking.uploads() else { return Ok(()) };
    Ok(uploads.before_listing(asking.asker(), directory).await?)
}

/// A byte for each path: what it is.
pub(super) async fn kinds(asking: &Asking, lfns: Vec<Lfn>) -> Outcome {
    if let Some(uploads) = asking.uploads() {
        uploads.asked_for(lfns.iter().flat_map(|lfn| uploads.named(lfn)).collect()).await;
    }
    let mut bytes = Vec::with_capacity(lfns.len());
    for found in stats(asking, lfns, true).await? {
        bytes.push(u8::try_from(flags(found?.entry.kind())).unwrap_or(u8::MAX));
    }
    Ok(Response::Bytes(bytes))
}

/// The checksum of an entry, as it stands in a listing.
fn listed_checksum(stat: &Stat, wanted: ChecksumAlgorithm) -> String {
    let known = stat.entry.file().and_then(|file| file.checksums.get(wanted));
    known.map_or_else(|| format!("{}:none", wanted.name()), ToString::to_string)
}

/// The names in a directory, sent as they are read.
pub(super) async fn list(
    asking: &Asking,
    lfn: Lfn,
    with_stats: bool,
    checksum: Option<ChecksumAlgorithm>,
) -> Outcome {
    let Some(held) = asking.with.listings.take(1) else {
        return Err(busy("directories listed at once on one connection").into());
    };
    written_in(asking, &lfn).await?;
    let mut listing = Listing::new(with_stats);
    let mut next = Some(Operation::List { lfn: lfn.clone(), cursor: Cursor::default(), limit: 0 });
    let mut first = true;
    let mut room = asking.room().await;
    while let Some(answer) = asking.page(&mut next, first, &room).await? {
        let Answer::Entries { items, .. } = answer else { return Err(unexpected()) };
        if std::mem::take(&mut first)
            && let [only] = items.as_slice()
            && only.lfn == lfn
        {
            // Of what is no directory the list is itself.
            return Err(Error::new(ErrorKind::NotDirectory, format!("{lfn} is no directory")).into());
        }
        let targets = if with_stats { targets(asking, &items).await? } else { HashMap::new() };
        for item in &items {
            if !listing.push(item.entry.at.name.as_str()) {
                continue;
            }
            if with_stats {
                let stat = targets.get(&item.lfn).unwrap_or(item);
                let checksum = checksum.map(|wanted| listed_checksum(stat, wanted));
                listing.push_stat(&told(stat), checksum.as_deref());
            }
        }
        // Nothing of the page is held while the client is waited for.
        drop((items, targets));
        let enough = if room.is_small() { 1 } else { PART_BYTES };
        if next.is_some() && listing.waiting() >= enough {
            asking.put(listing.part(asking.stream), room).await?;
            room = asking.room().await;
        }
    }
    drop(held);
    let last = listing.finish(asking.stream);
    room.turned_out(last.len());
    Ok(Response::Written(last, room))
}

/// What the links among entries stand for, by the links' own paths. Of one that leads nowhere there
/// is nothing.
async fn targets(asking: &Asking, items: &[Stat]) -> Outcome<HashMap<Lfn, Stat>> {
    let links = items.iter().filter(|item| item.entry.kind() == Kind::Link);
    let links: Vec<Lfn> = links.map(|link| link.lfn.clone()).collect();
    if links.is_empty() {
        return Ok(HashMap::new());
    }
    let found = stats(asking, links.clone(), true).await?;
    Ok(links.into_iter().zip(found).filter_map(|(link, stat)| Some((link, stat.ok()?))).collect())
}

async fn each_done(asking: &Asking, operation: Operation) -> Outcome {
    match asking.ask(operation).await? {
        Answer::EachDone(done) => {
            done.into_iter().collect::<Result<Vec<()>, Error>>()?;
            Ok(Response::Done)
        }
        Answer::Done { .. } | Answer::Removed { .. } => Ok(Response::Done),
        _ => Err(unexpected()),
    }
}

pub(super) async fn mkdir(asking: &Asking, lfn: Lfn, parents: bool, mode: u16) -> Outcome {
    // Who says nothing of a mode sends 0.
    let mode = if mode == 0 { None } else { Some(Mode::new(mode)?) };
    each_done(asking, Operation::Mkdir { lfns: vec![lfn], parents, mode }).await
}

/// To the trash, as all that is removed. A file that is being written is given up: clients remove
/// what they found to have another checksum, and tell nobody else.
pub(super) async fn remove(asking: &Asking, lfn: Lfn, directory: bool) -> Outcome {
    if directory {
        written_in(asking, &lfn).await?;
    } else {
        let given_up = give_up(asking, &lfn).await?;
        let stat = match stat_of(asking, lfn.clone(), false).await {
            Err(Refusal::Error(error::NOT_FOUND, _)) if given_up => return Ok(Response::Done),
            found => found?,
        };
        if stat.entry.kind() == Kind::Directory {
            return Err(Refusal::new(error::IS_DIRECTORY, format!("{lfn} is a directory: rmdir removes it")));
        }
    }
    each_done(asking, Operation::Remove { lfn, recursive: false, directory }).await
}

/// Gives up the uploads of a name that the caller may give up; false if there was none.
async fn give_up(asking: &Asking, lfn: &Lfn) -> Outcome<bool> {
    let Some(uploads) = asking.uploads() else { return Ok(false) };
    let mut any = false;
    for pending in uploads.named(lfn) {
        let (guid, se) = (pending.written.guid, Some(pending.written.se.clone()));
        match asking.ask(Operation::UploadAbort { guid, se }).await {
            Ok(_) => {
                any = true;
                uploads.given_up(&pending).await;
            }
            // It was committed meanwhile, or is somebody else's.
            Err(error) if matches!(error.kind, ErrorKind::NotFound | ErrorKind::Denied) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(any)
}

pub(super) async fn rename(asking: &Asking, from: Lfn, to: Lfn) -> Outcome {
    asking.written(&from).await;
    each_done(asking, Operation::Move { from, to }).await
}

pub(super) async fn chmod(asking: &Asking, lfn: Lfn, mode: u16) -> Outcome {
    asking.written(&lfn).await;
    let attributes = vec![Attribute::Mode(Mode::new(mode)?)];
    each_done(asking, Operation::SetAttributes { lfns: vec![lfn], attributes }).await
}
