//! Exports everything below a directory, and the history, as tables.
//!
//! One task reads the catalogue, and a thread that may block makes the rows. Pages between them are bounded.

use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use exacat_columnar::{TableWriter, Written};
use exacat_exchange::Error;
use exacat_exchange::catalogue::Catalogue;
use exacat_exchange::digest::{Digest, Fold};
use exacat_exchange::limits::CHANGES_PAGE_ITEMS;
use exacat_exchange::output_directory::OutputDirectory;
use exacat_exchange::progress::Progress;
use exacat_exchange::walk::{SesByNumber, Walked, end_of_history, walk};
use exacat_model::answer::{ChangeInfo, Stat};
use exacat_model::{
    Answer, Error as ModelError, ErrorKind, Filter, Guid, Lfn, LogPosition, Operation, Revision, TimelineId,
};
use exacat_wire::json::SeNames;
use tokio::sync::mpsc;

use crate::limits::PAGES_WAITING_MAX;
use crate::proof::Proof;
use crate::table::Table;
use crate::usage::UsageFold;
use crate::{rows_of_changes, rows_of_entries};

/// Options of an export as tables.
#[derive(Clone, Debug)]
pub struct TablesOptions {
    /// Base directory. The history is that of the whole catalogue.
    pub under: Lfn,
    /// Filter for the entries below it.
    pub filter: Filter,
    /// Tables to write.
    pub tables: Vec<Table>,
    /// Changes begin after this place in the history.
    pub after: LogPosition,
    /// Id of the catalogue, if it is known.
    pub catalogue: Option<String>,
}

/// Result of an export as tables.
#[derive(Clone, Debug)]
pub struct TablesReport {
    /// Tables with their files.
    pub tables: Vec<(Table, Written)>,
    /// Entries that were read.
    pub entries: u64,
    /// Digest of the entries; none if no entries were read.
    pub digest: Option<Digest>,
    /// End of the history when the export began. Changes end there.
    pub position: LogPosition,
    /// End of the history when the last entry was read. It is the same for a snapshot.
    pub end: Revision,
    /// Duration of the run.
    pub elapsed: Duration,
}

/// Names the file of a table in an error.
fn cannot(output: &OutputDirectory, table: Table) -> impl Fn(io::Error) -> Error {
    let path = output.place(&table.file_name());
    move |error| Error::file("write", &path, error)
}

fn begin(output: &OutputDirectory, table: Table) -> Result<TableWriter, Error> {
    let file = output.file(&table.file_name())?;
    TableWriter::new(Box::new(file), table.columns()).map_err(cannot(output, table))
}

/// Tables of entries in progress.
struct EntryTables {
    entries: Option<TableWriter>,
    replicas: Option<TableWriter>,
    members: Option<TableWriter>,
    usage: Option<(TableWriter, UsageFold)>,
    fold: Fold,
    /// The file before.
    last: Option<Guid>,
}

impl EntryTables {
    fn begin(output: &OutputDirectory, options: &TablesOptions) -> Result<Self, Error> {
        let wanted = |table: Table| options.tables.contains(&table).then(|| begin(output, table)).transpose();
        Ok(EntryTables {
            entries: wanted(Table::Entries)?,
            replicas: wanted(Table::Replicas)?,
            members: wanted(Table::Members)?,
            usage: wanted(Table::Usage)?.map(|writer| (writer, UsageFold::new(options.under.clone()))),
            fold: Fold::new(options.under.clone()),
            last: None,
        })
    }

    fn entry(&mut self, stat: &Stat, members: Option<Digest>, ses: &SesByNumber) -> io::Result<()> {
        // A file that moves meanwhile may come twice. A reader could not tell whose replicas follow.
        let file = stat.entry.file().map(|file| file.guid);
        if file.is_some() && file == self.last {
            return Ok(());
        }
        self.last = file;
        if let Some(out) = &mut self.entries {
            rows_of_entries::entry(out, stat)?;
        }
        if let Some(out) = &mut self.replicas {
            rows_of_entries::replicas(out, stat, ses)?;
        }
        if let Some((out, usage)) = &mut self.usage {
            usage.entry(stat, ses, out)?;
        }
        self.fold.entry(stat, members, ses, &mut |_| Ok(()))
    }

    fn add(&mut self, walked: Walked) -> io::Result<()> {
        match walked {
            Walked::Entries(items, ses) => items.iter().try_for_each(|stat| self.entry(stat, None, &ses)),
            Walked::Members(collection, items) => match &mut self.members {
                Some(out) => rows_of_entries::members(out, &collection, &items),
                None => Ok(()),
            },
            Walked::Collection(stat, digest, ses) => self.entry(&stat, Some(digest), &ses),
        }
    }

    /// Ends the files. `proof` has everything but the digest.
    fn finish(mut self, mut proof: Proof) -> io::Result<(Vec<(Table, Written)>, Digest)> {
        let root = self.fold.end(&mut |_| Ok(()))?;
        proof.digest = Some(root.whole);
        let mut written = Vec::new();
        let usage = match self.usage.take() {
            Some((mut out, usage)) => {
                usage.end(&mut out)?;
                Some(out)
            }
            None => None,
        };
        let tables = [
            (Table::Entries, self.entries),
            (Table::Replicas, self.replicas),
            (Table::Members, self.members),
            (Table::Usage, usage),
        ];
        for (table, out) in tables {
            if let Some(out) = out {
                written.push((table, out.finish(|rows| proof.metadata(table, rows))?));
            }
        }
        Ok((written, root.whole))
    }
}

/// Exports into a directory; the caller finishes it.
pub async fn export<C: Catalogue>(
    catalogue: &C,
    output: &OutputDirectory,
    options: &TablesOptions,
    progress: impl FnMut(&Progress) + Send,
) -> Result<TablesReport, Error> {
    let started = Instant::now();
    let position = end_of_history(catalogue).await?;
    let mut proof = Proof {
        catalogue: options.catalogue.clone(),
        position,
        end: position.revision,
        under: options.under.clone(),
        is_filtered: options.filter != Filter::default(),
        digest: None,
        after: options.after.revision,
        tables: options.tables.clone(),
    };
    let (mut tables, mut entries) = (Vec::new(), 0);
    if options.tables.iter().any(|table| *table != Table::Changes) {
        (entries, tables) = entry_tables(catalogue, output, options, &mut proof, progress).await?;
    }
    if options.tables.contains(&Table::Changes) {
        let written = changes(catalogue, output, options.after, &proof).await?;
        tables.push((Table::Changes, written));
    }
    let (digest, end, elapsed) = (proof.digest, proof.end, started.elapsed());
    Ok(TablesReport { tables, entries, digest, position, end, elapsed })
}

/// Writes the tables of entries, and completes the proof.
async fn entry_tables<C: Catalogue>(
    catalogue: &C,
    output: &OutputDirectory,
    options: &TablesOptions,
    proof: &mut Proof,
    progress: impl FnMut(&Progress) + Send,
) -> Result<(u64, Vec<(Table, Written)>), Error> {
    let mut making = EntryTables::begin(output, options)?;
    let (sender, mut receiver) = mpsc::channel(PAGES_WAITING_MAX);
    let writing = tokio::task::spawn_blocking(move || {
        while let Some(walked) = receiver.blocking_recv() {
            making.add(walked)?;
        }
        Ok::<_, io::Error>(making)
    });
    let walked = walk(catalogue, (&options.under, &options.filter), &sender, progress).await;
    drop(sender);
    let made = writing.await.map_err(|_| Error::Broken("writing the tables"))?;
    // The writer's error is the cause; the failure to send it pages is the consequence.
    let made = made.map_err(cannot(output, Table::Entries))?;
    let entries = walked?;
    proof.end = end_of_history(catalogue).await?.revision;
    let complete = proof.clone();
    let finished = tokio::task::spawn_blocking(move || made.finish(complete)).await;
    let finished = finished.map_err(|_| Error::Broken("writing the tables"))?;
    let (written, digest) = finished.map_err(cannot(output, Table::Entries))?;
    proof.digest = Some(digest);
    Ok((entries, written))
}

/// Writes the table of changes after a place in the history, up to the end in `proof`.
async fn changes<C: Catalogue>(
    catalogue: &C,
    output: &OutputDirectory,
    mut after: LogPosition,
    proof: &Proof,
) -> Result<Written, Error> {
    let unexpected = |asked: &str| {
        let message = format!("internal error: the catalogue's answer to {asked} is none to that");
        ModelError::new(ErrorKind::Internal, message)
    };
    let Answer::Ses(list) = catalogue.call(Operation::SeList).await? else {
        return Err(unexpected("se-list").into());
    };
    let mut ses = SeNames::default();
    ses.learn_all(&list);
    let end = proof.position.revision;
    let mut out = begin(output, Table::Changes)?;
    let (sender, mut receiver) = mpsc::channel::<(Vec<ChangeInfo>, TimelineId)>(PAGES_WAITING_MAX);
    let proof = Arc::new(proof.clone());
    let writing = tokio::task::spawn_blocking(move || {
        while let Some((items, timeline)) = receiver.blocking_recv() {
            for info in items.iter().filter(|info| info.change.revision <= end) {
                rows_of_changes::change(&mut out, info, timeline, &ses)?;
            }
        }
        Ok::<_, io::Error>(out)
    });
    let read = async {
        while after.revision < end {
            let ask = Operation::Changes { after, under: None, limit: CHANGES_PAGE_ITEMS, wait: false };
            let answer = catalogue.call(ask).await?;
            let Answer::Changes { items, up_to, timeline, .. } = answer else {
                return Err(unexpected("changes").into());
            };
            let last = items.last().map_or(Revision(0), |item| item.change.revision).max(up_to);
            if last <= after.revision {
                break;
            }
            if sender.send((items, timeline)).await.is_err() {
                break;
            }
            after = LogPosition { revision: last, timeline: Some(timeline.whole()) };
        }
        Ok::<(), Error>(())
    };
    let read = read.await;
    drop(sender);
    let made = writing.await.map_err(|_| Error::Broken("writing the tables"))?;
    let made = made.map_err(cannot(output, Table::Changes))?;
    read?;
    let finished =
        tokio::task::spawn_blocking(move || made.finish(|rows| proof.metadata(Table::Changes, rows)));
    let finished = finished.await.map_err(|_| Error::Broken("writing the tables"))?;
    finished.map_err(cannot(output, Table::Changes))
}

#[cfg(test)]
mod tests {
    use exacat_model::{
        AccountName, At, Body, DirId, Entry, File, GroupId, Location, Mode, Name, Replica, ReplicaState,
        SeNumber, TimeMs, UserId,
    };

    use super::*;

    fn file(path: &str, number: u8) -> Stat {
        let name = AccountName::parse("admin").unwrap();
        let (lfn, replica) = (Lfn::parse(path).unwrap(), |state| Replica {
            se: SeNumber(1),
            state,
            location: Location::Derived,
        });
        let replicas = vec![replica(ReplicaState::Available)];
        let (size, job, checksums) = (Some(5), None, Default::default());
        let entry = Entry {
            at: At { parent: DirId::ROOT, name: Name::parse(path.trim_start_matches('/')).unwrap() },
            owner: UserId(1),
            group: GroupId(1),
            mode: Mode::FILE,
            created: TimeMs(5),
            modified: TimeMs(6),
            revision: Revision(7),
            expires: None,
            tags: Vec::new(),
            body: Body::File(File { guid: Guid([number; 16]), size, checksums, job, replicas }),
        };
        Stat { lfn, owner: name.clone(), group: name, entry }
    }

    /// A file that comes twice in a row, since it moved meanwhile, is one row, and the export is proven.
    #[test]
    fn file_that_moves_meanwhile_is_one_row() {
        let place = tempfile::tempdir().unwrap();
        let output = OutputDirectory::create(&place.path().join("out")).unwrap();
        let options = TablesOptions {
            under: Lfn::root(),
            filter: Filter::default(),
            tables: Table::ALL[..4].to_vec(),
            after: Revision(0).into(),
            catalogue: None,
        };
        let mut making = EntryTables::begin(&output, &options).unwrap();
        let items = vec![file("/a", 1), file("/b", 1), file("/c", 2)];
        making.add(Walked::Entries(items, Arc::default())).unwrap();
        let proof = Proof {
            catalogue: None,
            position: Revision(7).into(),
            end: Revision(8),
            under: Lfn::root(),
            is_filtered: false,
            digest: None,
            after: Revision(0),
            tables: options.tables.clone(),
        };
        let (written, digest) = making.finish(proof).unwrap();
        assert_eq!(written.iter().map(|(_, file)| file.rows).collect::<Vec<_>>(), [2, 2, 0, 4]);
        output.finish().unwrap();
        let checked = crate::check(&place.path().join("out")).unwrap();
        assert_eq!((checked.problems, checked.digest), (Vec::new(), Some(digest)));
    }
}
