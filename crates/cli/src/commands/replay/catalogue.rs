//! Files of a trace as the catalogue has them, before the trace is replayed.

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::time::Instant;

use exacat_disk::{Disk as _, RealDisk};
use exacat_exchange::input::BytesRead;
use exacat_exchange::{Error, Progress};
use exacat_model::answer::Stat;
use exacat_model::{Body, ChecksumAlgorithm, ErrorKind, Lfn};
use exacat_replay::limits::SIZE_MAX;
use exacat_replay::trace::{Trace, store};
use futures::{StreamExt as _, TryStreamExt as _, stream};
use serde::Serialize;
use utoipa::ToSchema;

use super::trace::beside;
use crate::args::{Connection, Global, ReplayServeArgs};
use crate::commands::exchange::{failure, of_output, open_output};
use crate::connect::Session;
use crate::failure::Failure;
use crate::progress::Bar;

/// Names that one request asks for.
const NAMES_OF_REQUEST: usize = 1000;
/// Requests on their way at once.
const REQUESTS_AT_ONCE: usize = 8;

/// Size and checksum of a file, or the reason why the trace cannot have it.
type Facts = Result<(u64, Option<u32>), &'static str>;

/// Counts of a trace in the catalogue.
#[derive(Clone, Debug, Serialize, ToSchema)]
#[schema(as = TraceInCatalogue)]
pub(crate) struct InCatalogueView {
    /// Files of the trace that the catalogue has.
    pub found: u64,
    /// Files that it does not have, or that can not be read as files.
    pub missing: u64,
    /// Accesses to these, which are left out.
    pub left_out: u64,
    /// Files with another size or checksum than in the trace: those of the catalogue count.
    pub differing: u64,
}

/// Trace whose files are those of the catalogue.
pub(super) struct OfCatalogue {
    /// File of the trace. It goes when this is dropped.
    pub trace: PathBuf,
    pub view: InCatalogueView,
}

impl Drop for OfCatalogue {
    fn drop(&mut self) {
        // The service has a copy.
        let _ = std::fs::remove_file(&self.trace);
    }
}

fn facts_of(stat: &Stat) -> Facts {
    let Body::File(file) = &stat.entry.body else { return Err("it is no file") };
    let size = file.size.ok_or("its size is not known")?;
    if size == 0 || size > SIZE_MAX {
        return Err("its size is 0, or more than an access can read");
    }
    let sum = file.checksums.get(ChecksumAlgorithm::Adler32);
    let sum = sum.and_then(|sum| <[u8; 4]>::try_from(sum.digest()).ok()).map(u32::from_be_bytes);
    Ok((size, sum))
}

/// Asks the catalogue for files.
async fn ask(session: &Session, names: Vec<String>) -> Result<Vec<Facts>, Failure> {
    // A name that the catalogue cannot have is missing there.
    let (mut all, mut lfns) = (vec![Err("no file can have this name"); names.len()], Vec::new());
    let mut places = Vec::new();
    for (place, name) in names.iter().enumerate() {
        if let Ok(lfn) = Lfn::parse(name) {
            lfns.push(lfn);
            places.push(place);
        }
    }
    if lfns.is_empty() {
        return Ok(all);
    }
    for (place, stat) in places.into_iter().zip(session.client().stats(lfns, true).await?) {
        all[place] = match stat {
            Ok(stat) => facts_of(&stat),
            Err(error) if error.kind == ErrorKind::NotFound => Err("the catalogue does not have it"),
            Err(error) if error.kind == ErrorKind::Denied => Err("the account of the token may not see it"),
            Err(error) => return Err(error.into()),
        };
    }
    Ok(all)
}

/// Reads the trace, asks the catalogue for its files, and writes the trace of those that it has.
pub(super) async fn resolve(
    args: &ReplayServeArgs,
    (trace, url): (&Path, &str),
    directory: &Path,
    global: &Global,
) -> Result<OfCatalogue, Failure> {
    let connection = Connection {
        server: Some(url.to_owned()),
        token_file: args.catalogue_token_file.clone(),
        ca: args.catalogue_ca.clone(),
        ..global.connection.clone()
    };
    let session = Session::open(&connection).await?;
    let path = trace.to_owned();
    let mut trace = beside(move || store::read(&path, &BytesRead::default()).map_err(failure)).await?;
    trace.sort();
    let (begun, total) = (Instant::now(), trace.files().len());
    let mut bar = Bar::new(global, "files");
    let mut facts: Vec<Facts> = Vec::with_capacity(total);
    {
        let batches = (0..total).step_by(NAMES_OF_REQUEST).map(|first| {
            let end = (first + NAMES_OF_REQUEST).min(total);
            (first..end).map(|file| trace.name(file as u32).to_owned()).collect::<Vec<_>>()
        });
        let mut answers = stream::iter(batches).map(|names| ask(&session, names)).buffered(REQUESTS_AT_ONCE);
        while let Some(answer) = answers.try_next().await? {
            facts.extend(answer);
            let rows = facts.len() as u64;
            bar.show(&Progress { rows, rows_now: rows, elapsed: begun.elapsed(), ..Progress::default() });
        }
    }
    bar.end();
    session.close().await;
    if let Some(file) = &args.missing {
        write_missing(file, &trace, &facts).await?;
    }
    let differs = |(file, facts): (usize, &Facts)| {
        let known = trace.file(file as u32);
        facts.is_ok_and(|(size, sum)| size != known.size || (sum.is_some() && sum != known.adler32))
    };
    let differing = facts.iter().enumerate().filter(|of| differs(*of)).count() as u64;
    let facts: Vec<_> = facts.into_iter().map(Result::ok).collect();
    let found = facts.iter().flatten().count() as u64;
    let left_out = trace.take_files(&facts);
    if trace.accesses().is_empty() {
        let what = format!("the catalogue {url} has no file of the trace: check --catalogue and the trace");
        return Err(Failure::local(what));
    }
    let view = InCatalogueView { found, missing: total as u64 - found, left_out, differing };
    let file = directory.join(".of-catalogue.zst");
    let directory = directory.to_owned();
    beside(move || {
        let cannot = |error| Failure::local(format!("cannot make {}: {error}", directory.display()));
        RealDisk.create_directory(&directory).map_err(cannot)?;
        // The names of the catalogue are for this account only, from the first byte.
        RealDisk.make_private(&directory, false).map_err(cannot)?;
        store::write(&trace, &file).map_err(|error| of_output(error, &file))?;
        Ok(OfCatalogue { trace: file, view })
    })
    .await
}

async fn write_missing(path: &Path, trace: &Trace, facts: &[Facts]) -> Result<(), Failure> {
    let output = open_output(path).await?;
    let mut file = std::io::BufWriter::new(output.writer().map_err(failure)?);
    let cannot = |error| of_output(Error::file("write", path, error), path);
    for (number, facts) in facts.iter().enumerate() {
        if let Err(reason) = facts {
            writeln!(file, "{}\t{reason}", trace.name(number as u32)).map_err(cannot)?;
        }
    }
    file.flush().map_err(cannot)?;
    drop(file);
    output.finish().map_err(|error| of_output(error, path))
}
