//! Verifies that each row of a listing is in the catalogue as given.
//!
//! Each given value must equal that of the entry: size, each checksum, each replica with its SE,
//! state and PFN, each tag, owner, group, mode, times, GUID, archive, target, membership. Values
//! that a row does not give are ignored; an entry may have more replicas, checksums and tags than
//! its row.

use std::collections::{HashMap, HashSet, VecDeque};
use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use exacat_model::answer::Stat;
use exacat_model::operation::{NewFile, NewReplica};
use exacat_model::{
    Answer, Cursor, Error as ModelError, ErrorKind, FileRef, Guid, Kind, Lfn, Location, Operation, Se,
};
use futures::{StreamExt, pin_mut};
use parking_lot::Mutex;
use tokio::task::JoinHandle;

use crate::batches::{self, Batch, Pass, Read, Reading, RowAt};
use crate::catalogue::Catalogue;
use crate::error::Error;
use crate::escape::push_field;
use crate::import::registered_ses;
use crate::input::BytesRead;
use crate::limits::{BATCH_ROWS_MAX, BATCHES_IN_FLIGHT_MAX, DIFFERENCES_SHOWN_MAX, MEMBERS_CACHED_MAX};
use crate::listing;
use crate::options::{ListingOptions, check_registered};
use crate::others::{Gap, gap};
use crate::output;
use crate::progress::Progress;
use crate::reject::{Reason, RejectSink};

use crate::sending::{call_with_retries, unexpected};

/// A difference between an entry and its row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Difference {
    /// Line of the row.
    pub line: u64,
    /// The entry.
    pub lfn: String,
    /// Kind of the difference: `missing`, `kind`, `size`, `checksum`, `replica`, `pfn`, `tag`,
    /// `member` …
    pub what: &'static str,
    /// Value in the row.
    pub given: String,
    /// Value in the catalogue.
    pub found: String,
}

/// Result of a verification.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct VerifyReport {
    /// Rows of the listing.
    pub rows: u64,
    /// Rows that are in the catalogue as given.
    pub same: u64,
    /// Rows whose entry exists and differs.
    pub different: u64,
    /// Rows whose entry does not exist.
    pub missing: u64,
    /// Rows that an import rejects without asking the catalogue, so they cannot be in it.
    pub rejected: u64,
    /// Rejects and left-out tags, by reason.
    pub rejects: Vec<(Reason, u64)>,
    /// The first differences.
    pub shown: Vec<Difference>,
    /// Duration of the run.
    pub elapsed: Duration,
}

impl VerifyReport {
    /// Says whether every row that could be imported is in the catalogue as given.
    pub fn holds(&self) -> bool {
        self.different + self.missing == 0
    }
}

/// Collector of differences beside the report: a TSV file with the columns `line`, `lfn`, `what`,
/// `given`, `found`, escaped as in exports.
struct Differences {
    file: Option<(PathBuf, BufWriter<File>)>,
    shown: Vec<Difference>,
}

impl Differences {
    fn create(path: Option<&Path>) -> Result<Self, Error> {
        let file = match path {
            None => None,
            Some(path) => {
                let mut writer = BufWriter::new(output::create_growing(path)?);
                let written = writer.write_all(b"line\tlfn\twhat\tgiven\tfound\n");
                written.map_err(|error| Error::file("write", path, error))?;
                Some((path.to_owned(), writer))
            }
        };
        Ok(Differences { file, shown: Vec::new() })
    }

    fn push(&mut self, difference: Difference) -> Result<(), Error> {
        if let Some((path, writer)) = &mut self.file {
            let mut line = difference.line.to_string().into_bytes();
            for field in [&difference.lfn, difference.what, &difference.given, &difference.found] {
                line.push(b'\t');
                push_field(&mut line, field);
            }
            line.push(b'\n');
            writer.write_all(&line).map_err(|error| Error::file("write", path, error))?;
        }
        if self.shown.len() < DIFFERENCES_SHOWN_MAX {
            self.shown.push(difference);
        }
        Ok(())
    }

    fn finish(self) -> Result<Vec<Difference>, Error> {
        if let Some((path, mut writer)) = self.file {
            writer.flush().map_err(|error| Error::file("write", &path, error))?;
        }
        Ok(self.shown)
    }
}

/// A batch in flight: the rows and bytes read by its end, and its task.
type Flight = (u64, u64, JoinHandle<Result<Verified, Error>>);

/// Compares a listing with the catalogue. The options are those of its import.
pub async fn verify<C: Catalogue>(
    catalogue: Arc<C>,
    path: &Path,
    options: &ListingOptions,
    differences: Option<&Path>,
    mut progress: impl FnMut(&Progress) + Send,
) -> Result<VerifyReport, Error> {
    let started = Instant::now();
    let mut listing = listing::open(path, options).await?;
    let ses = registered_ses(&*catalogue).await?;
    check_registered(options, &ses)?;
    listing.know_ses(ses);
    let listing = Arc::new(listing);
    let reading =
        Reading { from: (Pass::First, 0), two_passes: false, batch_rows: BATCH_ROWS_MAX, left: None };
    let mut reads = batches::read(Arc::clone(&listing), reading, BytesRead::default())?;
    let verifier = Arc::new(Verifier {
        catalogue,
        ses: Mutex::new(Arc::new(HashMap::new())),
        members: tokio::sync::Mutex::new(Members::default()),
    });
    verifier.learn_ses().await?;
    let path = differences.map(Path::to_owned);
    let opened = tokio::task::spawn_blocking(move || Differences::create(path.as_deref()));
    let mut differences = opened.await.map_err(|_| Error::Broken("opening a file"))??;
    // Rejects are only counted here; an import writes them.
    let mut rejects = RejectSink::counting();
    let mut report = VerifyReport::default();
    let mut flying: VecDeque<Flight> = VecDeque::new();
    let mut ended = false;
    while !ended || !flying.is_empty() {
        if !ended && flying.len() < BATCHES_IN_FLIGHT_MAX {
            match reads.recv().await {
                Some(Read::Batch(mut batch)) => {
                    for reject in std::mem::take(&mut batch.rejects) {
                        rejects.push(reject)?;
                    }
                    let verifier = Arc::clone(&verifier);
                    let (rows, bytes) = (batch.rows.end, batch.bytes_read);
                    flying.push_back((
                        rows,
                        bytes,
                        tokio::spawn(async move { verifier.batch(&batch).await }),
                    ));
                }
                Some(Read::Passed(_, rows)) => report.rows = rows,
                Some(Read::Failed(error)) => return Err(error),
                None => ended = true,
            }
            continue;
        }
        let Some((rows, bytes_read, task)) = flying.pop_front() else { break };
        let verified = task.await.map_err(|_| Error::Broken("verifying a batch"))??;
        report.same += verified.same;
        report.different += verified.different;
        report.missing += verified.missing;
        for difference in verified.differences {
            differences.push(difference)?;
        }
        progress(&Progress {
            rows,
            rows_now: rows,
            bytes_read,
            bytes_total: listing.input().size(),
            rows_total: None,
            rejected: rejects.rejected() + report.different + report.missing,
            second_pass: false,
            loading: false,
            elapsed: started.elapsed(),
        });
    }
    report.rejected = rejects.rejected();
    report.rejects = rejects.counts();
    report.shown = differences.finish()?;
    report.elapsed = started.elapsed();
    Ok(report)
}

#[derive(Default)]
struct Verified {
    same: u64,
    different: u64,
    missing: u64,
    differences: Vec<Difference>,
}

impl Verified {
    /// Records the result of one row.
    fn take(&mut self, row: &RowAt, lfn: &Lfn, gap: Gap) {
        if gap.contradictions.is_empty() && gap.missing_tags.is_empty() {
            self.same += 1;
            return;
        }
        if gap.contradictions.iter().any(|(what, ..)| *what == "missing") {
            self.missing += 1;
        } else {
            self.different += 1;
        }
        let tags = gap
            .missing_tags
            .into_iter()
            .map(|tag| ("tag", format!("{}={}", tag.key, tag.value), String::new()));
        for (what, given, found) in gap.contradictions.into_iter().chain(tags) {
            let lfn = lfn.as_str().to_owned();
            self.differences.push(Difference { line: row.line, lfn, what, given, found });
        }
    }
}

/// Members of the most recently read collections, by GUID.
#[derive(Default)]
struct Members {
    by_collection: HashMap<Lfn, Arc<HashSet<Guid>>>,
    held: usize,
}

struct Verifier<C> {
    catalogue: Arc<C>,
    ses: Mutex<Arc<HashMap<u16, Se>>>,
    members: tokio::sync::Mutex<Members>,
}

impl<C: Catalogue> Verifier<C> {
    async fn ask(&self, operation: Operation) -> Result<Answer, ModelError> {
        call_with_retries(&*self.catalogue, operation).await
    }

    async fn learn_ses(&self) -> Result<Arc<HashMap<u16, Se>>, Error> {
        let Answer::Ses(ses) = self.ask(Operation::SeList).await? else {
            return Err(unexpected("se-list").into());
        };
        let known: HashMap<u16, Se> = ses.into_iter().map(|usage| (usage.se.number.0, usage.se)).collect();
        let known = Arc::new(known);
        *self.ses.lock() = Arc::clone(&known);
        Ok(known)
    }

    async fn stat(&self, lfns: Vec<Lfn>) -> Result<Vec<Result<Stat, ModelError>>, Error> {
        let count = lfns.len();
        if count == 0 {
            return Ok(Vec::new());
        }
        match self.ask(Operation::Stat { lfns, follow: false }).await? {
            Answer::Stats(stats) if stats.len() == count => Ok(stats),
            _ => Err(unexpected("stat").into()),
        }
    }

    async fn batch(&self, batch: &Batch) -> Result<Verified, Error> {
        let mut verified = Verified::default();
        for group in &batch.groups {
            let stats = self.stat(group.files.iter().map(|file| file.lfn.clone()).collect()).await?;
            let mut ses = Arc::clone(&self.ses.lock());
            for (((file, row), collection), stat) in
                group.files.iter().zip(&group.rows).zip(&group.collections).zip(stats)
            {
                let mut gap = Gap::default();
                let stat = present(stat, &mut gap)?;
                if let Some(stat) = &stat {
                    if !all_known(stat, &ses) {
                        ses = self.learn_ses().await?;
                    }
                    file_gap(file, stat, &ses, &mut gap);
                }
                if let (Some(stat), Some(collection)) = (&stat, collection) {
                    self.member_gap(collection, stat.entry.guid(), &mut gap).await?;
                }
                verified.take(row, &file.lfn, gap);
            }
        }
        let stats = self.stat(batch.others.iter().map(|(_, other)| other.lfn.clone()).collect()).await?;
        for ((row, other), stat) in batch.others.iter().zip(stats) {
            let mut missing = Gap::default();
            let found = match present(stat, &mut missing)? {
                Some(stat) => gap(other, &stat),
                None => missing,
            };
            verified.take(row, &other.lfn, found);
        }
        self.members(batch, &mut verified).await?;
        verified.differences.sort_by_key(|difference| difference.line);
        Ok(verified)
    }

    async fn members(&self, batch: &Batch, verified: &mut Verified) -> Result<(), Error> {
        let lfns = batch.members.iter().filter_map(|(_, _, file)| match file {
            FileRef::Lfn(lfn) => Some(lfn.clone()),
            FileRef::Guid(_) => None,
        });
        let mut stats = self.stat(lfns.collect()).await?.into_iter();
        for (row, collection, file) in &batch.members {
            let mut gap = Gap::default();
            let guid = match file {
                FileRef::Guid(guid) => Some(*guid),
                FileRef::Lfn(_) => match stats.next() {
                    Some(stat) => present(stat, &mut gap)?.and_then(|stat| stat.entry.guid()),
                    None => return Err(unexpected("stat").into()),
                },
            };
            if gap.contradictions.is_empty() {
                self.member_gap(collection, guid, &mut gap).await?;
            }
            let lfn = match file {
                FileRef::Lfn(lfn) => lfn,
                FileRef::Guid(_) => collection,
            };
            verified.take(row, lfn, gap);
        }
        Ok(())
    }

    async fn member_gap(&self, collection: &Lfn, guid: Option<Guid>, gap: &mut Gap) -> Result<(), Error> {
        let found = match self.members_of(collection).await {
            Ok(members) if guid.is_some_and(|guid| members.contains(&guid)) => return Ok(()),
            Ok(_) => "no member".to_owned(),
            Err(Error::Catalogue(error))
                if matches!(error.kind, ErrorKind::NotFound | ErrorKind::NotFile | ErrorKind::Invalid) =>
            {
                error.message
            }
            Err(error) => return Err(error),
        };
        gap.contradictions.push(("member", collection.as_str().to_owned(), found));
        Ok(())
    }

    /// Returns all members of a collection; reads them once, as long as there is room to keep them.
    async fn members_of(&self, collection: &Lfn) -> Result<Arc<HashSet<Guid>>, Error> {
        // The lock is held during the read, so that other tasks that want the same collection wait
        // for its answer.
        let mut cached = self.members.lock().await;
        if let Some(members) = cached.by_collection.get(collection) {
            return Ok(Arc::clone(members));
        }
        let mut members = HashSet::new();
        let pages = self.catalogue.stream(Operation::CollectionMembers {
            lfn: collection.clone(),
            cursor: Cursor::default(),
            limit: 0,
        });
        pin_mut!(pages);
        while let Some(page) = pages.next().await {
            match page? {
                Answer::Members { items, .. } => members.extend(items.into_iter().map(|member| member.guid)),
                _ => return Err(unexpected("collection-members").into()),
            }
        }
        if cached.held + members.len() > MEMBERS_CACHED_MAX {
            *cached = Members::default();
        }
        cached.held += members.len();
        let members = Arc::new(members);
        cached.by_collection.insert(collection.clone(), Arc::clone(&members));
        Ok(members)
    }
}

/// Returns the entry, or records that it is missing. Other errors end the verification, because
/// they are not about the row.
fn present(stat: Result<Stat, ModelError>, gap: &mut Gap) -> Result<Option<Stat>, Error> {
    match stat {
        Ok(stat) => Ok(Some(stat)),
        Err(error) if matches!(error.kind, ErrorKind::NotFound | ErrorKind::NotDirectory) => {
            gap.contradictions.push(("missing", "an entry".to_owned(), error.message));
            Ok(None)
        }
        Err(error) => Err(error.into()),
    }
}

fn all_known(stat: &Stat, ses: &HashMap<u16, Se>) -> bool {
    stat.entry.file().is_none_or(|file| {
        file.replicas.iter().all(|replica| replica.is_member() || ses.contains_key(&replica.se.0))
    })
}

/// Compares a file with its row.
fn file_gap(given: &NewFile, found: &Stat, ses: &HashMap<u16, Se>, gap: &mut Gap) {
    let Some(file) = found.entry.file() else {
        let kind = found.entry.kind().name();
        gap.contradictions.push(("kind", Kind::File.name().to_owned(), kind.to_owned()));
        return;
    };
    gap.expect("guid", given.guid.as_ref(), Some(&file.guid));
    gap.expect("size", given.size.as_ref(), file.size.as_ref());
    for checksum in given.checksums.iter() {
        gap.expect("checksum", Some(checksum), file.checksums.get(checksum.algorithm()));
    }
    gap.expect("owner", given.owner.as_ref(), Some(&found.owner));
    gap.expect("group", given.group.as_ref(), Some(&found.group));
    gap.expect("mode", given.mode.as_ref(), Some(&found.entry.mode));
    gap.expect("mtime", given.modified.as_ref(), Some(&found.entry.modified));
    gap.expect("expires", given.expires.as_ref(), found.entry.expires.as_ref());
    gap.expect("job", given.job.as_ref(), file.job.as_ref());
    gap.expect_tags(&given.tags, &found.entry.tags);
    for replica in &given.replicas {
        replica_gap(replica, file, ses, gap);
    }
    if let Some((FileRef::Guid(archive), member)) = &given.member_of {
        let given = format!("guid:///{archive}?ZIP={member}");
        let pfn = file
            .replicas
            .iter()
            .find(|replica| replica.is_member())
            .map(|replica| replica.pfn(file.guid, None));
        gap.expect("archive", Some(&given), pfn.as_ref());
    }
}

fn replica_gap(given: &NewReplica, file: &exacat_model::File, ses: &HashMap<u16, Se>, gap: &mut Gap) {
    let on_se =
        |replica: &&exacat_model::Replica| ses.get(&replica.se.0).is_some_and(|se| se.name == given.se);
    let Some(replica) = file.replicas.iter().find(on_se) else {
        gap.contradictions.push(("replica", given.se.to_string(), "none there".to_owned()));
        return;
    };
    if replica.state != given.state {
        gap.contradictions.push((
            "state",
            format!("{} {}", given.se, given.state.name()),
            replica.state.name().to_owned(),
        ));
    }
    let pfn = replica.pfn(file.guid, ses.get(&replica.se.0));
    match &given.pfn {
        Some(given) if given.as_str() != pfn => {
            gap.contradictions.push(("pfn", given.as_str().to_owned(), pfn));
        }
        None if replica.location != Location::Derived => {
            gap.contradictions.push(("pfn", format!("the one {} derives", given.se), pfn));
        }
        _ => {}
    }
}
