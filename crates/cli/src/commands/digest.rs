//! `digest`: proves that two catalogues have the same below a directory, or names the differences.

use std::fs::File;
use std::io::{BufReader, BufWriter, Write};
use std::path::Path;

use exacat_exchange::catalogue::Catalogue;
use exacat_exchange::digest::{self, Comparison, Difference, Subtree, file};
use exacat_model::{Answer, Error, ErrorKind, Lfn, Operation};
use serde::Serialize;
use utoipa::ToSchema;

use super::exchange::{failure, of_output, open_output, rate};
use crate::args::{DigestArgs, Global};
use crate::failure::{Failure, OnInterrupt, say};
use crate::output::Out;
use crate::output::human::plural;
use crate::parse;
use crate::progress::Bar;
use crate::source::Source;

/// Maximum directories shown: more go into a file.
const SHOWN_MAX: usize = 100_000;

fn cannot(what: &'static str, path: &Path) -> impl Fn(std::io::Error) -> Failure {
    let path = path.to_owned();
    move |error| Failure::local(format!("cannot {what} {}: {error}", path.display()))
}

/// `exacat digest`
///
/// Returns the differences from the given digests as an error about the directory.
pub(crate) async fn digest(
    source: &Source,
    out: &mut Out,
    args: DigestArgs,
    global: &Global,
) -> Result<Option<(Lfn, Error)>, Failure> {
    let under = parse::lfn(&args.directory).map_err(|error| Failure::about(&args.directory, error))?;
    // Refuse digests that cannot be compared before the work, not after it.
    let theirs = args.against.as_deref().map(|path| open(path, &under)).transpose()?;
    let output = match &args.output {
        Some(path) => Some((path, open_output(path).await?)),
        None => None,
    };
    let spool = theirs.is_some().then(Spool::somewhere).transpose()?;
    let before = revision(source).await?;
    let mut writing = Vec::new();
    if let Some(spool) = &spool {
        writing.push((Path::new("a temporary file"), spool.writer()?));
    }
    if let Some((path, file)) = &output {
        writing.push((path.as_path(), BufWriter::with_capacity(1 << 20, file.writer().map_err(failure)?)));
    }
    for (path, out) in &mut writing {
        file::write_head(out, &under).map_err(cannot("write", path))?;
    }
    let level = under.components().count();
    let mut shown: Vec<Subtree> = Vec::new();
    let mut left_out = 0u64;
    let each = |subtree: &Subtree| {
        if subtree.lfn.components().count() - level <= args.depth {
            if shown.len() < SHOWN_MAX { shown.push(subtree.clone()) } else { left_out += 1 }
        }
        writing.iter_mut().try_for_each(|(_, out)| file::write_subtree(out, subtree))
    };
    let mut bar = Bar::new(global, "entries");
    let interrupted = OnInterrupt::maybe(output.as_ref().map(|(_, file)| file.if_interrupted()).as_deref());
    let digested = digest::digest(source, &under, each, |progress| bar.show(progress)).await;
    bar.end();
    interrupted.over();
    let named = |error| match &args.output {
        Some(path) => of_output(error, path),
        None => failure(error),
    };
    let report = digested.map_err(named)?;
    for (path, mut out) in writing {
        out.flush().map_err(cannot("write", path))?;
    }
    let after = revision(source).await?;
    if before != after {
        say(&format!(
            "the catalogue changed meanwhile (revision {before} to {after}): this is of no one state; digest a \
             snapshot for an exact answer"
        ));
    }
    let comparison = match (theirs, &spool) {
        (Some(theirs), Some(spool)) => {
            let ours = file::Reader::open(spool.reader()?).map_err(failure)?;
            Some(digest::compare(ours, theirs).map_err(failure)?)
        }
        _ => None,
    };
    if let Some((path, file)) = output {
        file.finish().map_err(|error| of_output(error, path))?;
    }
    if let Some(comparison) = comparison {
        let there = args.against.unwrap_or_default();
        return show_comparison(out, &under, &there, &comparison);
    }
    shown.sort_by(|a, b| a.lfn.components().cmp(b.lfn.components()));
    for subtree in &shown {
        show(out, subtree)?;
    }
    if left_out > 0 {
        say(&format!("{left_out} further directories are not shown: write them to a file (-o)"));
    }
    if out.style.verbose {
        out.line(format!(
            "{} in {} ({})",
            plural(report.root.entries, "entry"),
            plural(report.directories, "directory"),
            rate(report.root.entries, report.elapsed)
        ))?;
    }
    Ok(None)
}

/// Temporary file of digests until they are compared.
struct Spool(tempfile::NamedTempFile);

impl Spool {
    fn somewhere() -> Result<Self, Failure> {
        tempfile::NamedTempFile::new().map(Spool).map_err(cannot("write", Path::new("a temporary file")))
    }

    fn writer(&self) -> Result<BufWriter<File>, Failure> {
        let file = self.0.as_file().try_clone().map_err(cannot("write", self.0.path()))?;
        Ok(BufWriter::with_capacity(1 << 20, file))
    }

    fn reader(&self) -> Result<BufReader<File>, Failure> {
        self.0.reopen().map(BufReader::new).map_err(cannot("read", self.0.path()))
    }
}

fn open(path: &Path, under: &Lfn) -> Result<file::Reader<BufReader<File>>, Failure> {
    let opened = File::open(path).map_err(cannot("read", path))?;
    let reader = file::Reader::open(BufReader::new(opened)).map_err(failure)?;
    if reader.under != *under {
        return Err(Failure::local(format!(
            "{} has the digests of {}, not of {under}: give that directory",
            path.display(),
            reader.under
        )));
    }
    Ok(reader)
}

async fn revision(source: &Source) -> Result<u64, Failure> {
    let Answer::Status(parts) = source.call(Operation::Status).await? else {
        return Err(Failure::local("the server gave no status"));
    };
    let mut metrics = parts.into_iter().flat_map(|part| part.metrics);
    Ok(metrics.find(|(name, _)| name == "revision").map_or(0, |(_, value)| value))
}

/// Digest of a directory.
#[derive(Serialize, ToSchema)]
#[schema(as = SubtreeDigest)]
pub(crate) struct SubtreeView<'a> {
    /// The directory.
    lfn: &'a str,
    /// Digest of everything below it, 32 hex digits.
    digest: String,
    /// Digest of the entries in it.
    own: String,
    /// Entries below it.
    entries: u64,
}

/// Directory that differs between two catalogues, with the number of its entries in each.
#[derive(Serialize, ToSchema)]
#[schema(as = SubtreeDifference)]
pub(crate) struct DifferenceView<'a> {
    /// The directory.
    lfn: &'a str,
    /// `entries`, `only-here` or `only-there`.
    what: &'static str,
    /// Entries below it in this catalogue; null if it is missing.
    #[schema(required)]
    here: Option<u64>,
    /// Entries below it in the other catalogue; null if it is missing.
    #[schema(required)]
    there: Option<u64>,
}

fn show(out: &mut Out, subtree: &Subtree) -> Result<(), Failure> {
    if out.style.json {
        return out.json(&SubtreeView {
            lfn: subtree.lfn.as_str(),
            digest: subtree.whole.to_string(),
            own: subtree.own.to_string(),
            entries: subtree.entries,
        });
    }
    let name = out.name(subtree.lfn.as_str()).to_string();
    out.line(format!("{} {:>12} {name}", subtree.whole, subtree.entries))
}

fn show_comparison(
    out: &mut Out,
    under: &Lfn,
    there: &Path,
    comparison: &Comparison,
) -> Result<Option<(Lfn, Error)>, Failure> {
    for difference in &comparison.differences {
        let lfn = difference.lfn();
        if out.style.json {
            let (what, here, there) = match difference {
                Difference::Entries(here, there) => ("entries", Some(here.entries), Some(there.entries)),
                Difference::OnlyHere(here) => ("only-here", Some(here.entries), None),
                Difference::OnlyThere(there) => ("only-there", None, Some(there.entries)),
            };
            out.json(&DifferenceView { lfn: lfn.as_str(), what, here, there })?;
            continue;
        }
        let name = out.name(lfn.as_str()).to_string();
        out.line(match difference {
            Difference::Entries(..) => format!("{name}: entries in it differ"),
            Difference::OnlyHere(here) => {
                format!("{name}: only here, with {}", plural(here.entries, "entry"))
            }
            Difference::OnlyThere(there) => {
                format!("{name}: only there, with {}", plural(there.entries, "entry"))
            }
        })?;
    }
    let directories = plural(comparison.directories, "directory");
    if comparison.differences.is_empty() {
        if !out.style.json && !out.style.quiet {
            out.line(format!("the same, {directories}"))?;
        }
        return Ok(None);
    }
    let differ = plural(comparison.differences.len() as u64, "difference");
    let message = format!("{differ} to {} in {directories}", there.display());
    Ok(Some((under.clone(), Error::new(ErrorKind::Conflict, message))))
}
