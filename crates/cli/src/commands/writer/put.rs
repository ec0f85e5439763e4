//! `writer put`: writes one file by the writer service.

use std::io::Read;
use std::path::Path;

use exacat_writer::FileNames;
use exacat_writer_client::{FileOutcome, Outcome, StreamSettings, Writer};
use serde::Serialize;
use utoipa::ToSchema;

use super::services;
use crate::args::{Connection, WriterPutArgs};
use crate::failure::Failure;
use crate::output::{Out, Style};
use crate::parse;

/// A file that was written, as JSON.
#[derive(Serialize, ToSchema)]
#[schema(as = WrittenFile)]
pub(crate) struct WrittenView {
    lfn: String,
    bytes: u64,
    events: u64,
    adler32: String,
    duplicates: u64,
    parts: usize,
}

/// `exacat writer put`
pub(super) async fn put(args: WriterPutArgs, connection: &Connection, style: Style) -> Result<u8, Failure> {
    let settings = services::settings(&args.to, connection, "exacat writer put")?;
    let event = parse::bytes(&args.event).map_err(|error| Failure::local(format!("--event: {error}")))?;
    let event = usize::try_from(event).unwrap_or(usize::MAX);
    if event == 0 || event > exacat_writer::limits::EVENT_BYTES_MAX {
        return Err(Failure::local("--event: an event has 1 byte to 16 MiB"));
    }
    let mut of = StreamSettings::new(args.to.run.as_str(), args.stream.as_str(), args.lfn.as_str());
    (of.names, of.file_bytes_max) = (FileNames::Single, u64::MAX);
    for tag in &args.tag {
        let (key, value) =
            tag.split_once('=').ok_or_else(|| Failure::local(format!("--tag: KEY=VALUE, not {tag:?}")))?;
        of.tags.push((key.to_owned(), value.to_owned()));
    }
    let lfn = args.lfn.clone();
    let written = tokio::task::spawn_blocking(move || write(&args, settings, of, event));
    let outcome = written.await.map_err(|error| Failure::local(error.to_string()))??;
    let mut out = Out::new(style);
    let Some(FileOutcome { outcome, .. }) = outcome else {
        return Err(Failure::local(format!("{lfn}: there was no byte to write, so no file was made")));
    };
    match outcome {
        Outcome::Certified { bytes, events, adler32, duplicates, parts } => {
            let adler32 = format!("{adler32:08x}");
            if style.json {
                out.json(&WrittenView { lfn, bytes, events, adler32, duplicates, parts })?;
            } else if !style.quiet {
                out.line(format_args!(
                    "{lfn}: {} in {events} events, adler32:{adler32}",
                    out.size(bytes.into())
                ))?;
            }
            out.flush()?;
            Ok(0)
        }
        Outcome::Failed { reason } => Err(Failure::local(format!("{lfn}: not written: {reason}"))),
        Outcome::Unknown { reason } => {
            let what = format!("{lfn} is not certified yet, and may still be: {reason}");
            let error = exacat_model::Error::new(exacat_model::ErrorKind::Unknown, what);
            Err(Failure::about(lfn, error))
        }
    }
}

fn write(
    args: &WriterPutArgs,
    settings: exacat_writer_client::WriterSettings,
    of: StreamSettings,
    event: usize,
) -> Result<Option<FileOutcome>, Failure> {
    let failed = |error: exacat_writer_client::Error| Failure::local(error.to_string());
    let unread = |error| Failure::local(format!("cannot read {}: {error}", args.file.display()));
    let mut source: Box<dyn Read> = match args.file == Path::new("-") {
        true => Box::new(std::io::stdin()),
        false => Box::new(std::fs::File::open(&args.file).map_err(unread)?),
    };
    let writer = Writer::connect(settings).map_err(failed)?;
    let stream = writer.open_stream(of).map_err(failed)?;
    let mut bytes = Vec::with_capacity(event);
    loop {
        // Whole events, also from a pipe that gives less at a time.
        bytes.clear();
        (&mut source).take(event as u64).read_to_end(&mut bytes).map_err(unread)?;
        if bytes.is_empty() {
            break;
        }
        stream.append(&bytes).map_err(failed)?;
    }
    let mut outcomes = stream.close();
    writer.close();
    Ok(outcomes.pop())
}
