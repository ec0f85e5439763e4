//! `writer status`, `table`, `files`, `cat`, `drain`, `resume`: a service by its HTTP.

use std::io::Write;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use exacat_disk::RealDisk;
use exacat_model::Lfn;
use exacat_writer_service::shapes::{WriterFile, WriterStatus, file_id_of};
use exacat_writer_service::{Readable, Remote, RemoteSettings};
use serde::Serialize;
use utoipa::ToSchema;

use super::services::{here, token_of};
use crate::args::{AtService, Connection};
use crate::connect::certificate;
use crate::failure::Failure;
use crate::output::{Align, Out, Style, Table};

/// Time for an answer to begin.
const TIME: Duration = Duration::from_secs(20);
/// Files of one page.
pub(super) const PAGE_FILES: usize = 1000;
/// Stages of files that are not in the catalogue.
const UNCERTIFIED: [&str; 3] = ["open", "closed", "failed"];
const LEFT: Align = Align::Left;
const RIGHT: Align = Align::Right;

pub(super) fn remote(at: &AtService, connection: &Connection) -> Result<Remote, Failure> {
    let address = match &at.at {
        Some(url) => url.clone(),
        None => here(connection)?["http"].as_str().map(str::to_owned).ok_or_else(|| {
            Failure::local("the writer service of this machine has no HTTP: serve with --http")
        })?,
    };
    let tls = match certificate(connection) {
        Some(file) if address.starts_with("https:") => Some(Arc::new(exacat_server::trusting(&file)?)),
        // For a redirect to a service with TLS.
        Some(file) => exacat_server::trusting(&file).ok().map(Arc::new),
        None => None,
    };
    Ok(Remote::new(RemoteSettings { address, token: token_of(connection)?, tls, time: TIME })?)
}

/// `exacat writer status`
pub(super) async fn status(at: &AtService, connection: &Connection, style: Style) -> Result<u8, Failure> {
    let status = remote(at, connection)?.status().await?;
    show(&status, style)
}

/// `exacat writer drain`, `exacat writer resume`
pub(super) async fn drain(
    begins: bool,
    at: &AtService,
    connection: &Connection,
    style: Style,
) -> Result<u8, Failure> {
    let remote = remote(at, connection)?;
    let status = if begins { remote.drain().await? } else { remote.resume().await? };
    show(&status, style)
}

fn show(status: &WriterStatus, style: Style) -> Result<u8, Failure> {
    let mut out = Out::new(style);
    if style.json {
        out.json(status)?;
        out.flush()?;
        return Ok(0);
    }
    let mut table = Table::new([LEFT, LEFT]);
    let mut row = |name: &str, text: String| table.row([name.to_owned(), text]);
    let size = |bytes: u64| out.size(bytes.into());
    row("service", format!("{} ({})", status.service, status.name));
    row("state", status.state.clone());
    row("producers", format!("{} connected, at {}", status.connections, status.address));
    let files = &status.files;
    row(
        "files",
        format!(
            "{} open, {} closed, {} certified, {} staged, {} failed",
            files.open, files.closed, files.certified, files.staged, files.failed
        ),
    );
    let waiting = &status.waiting;
    row(
        "closed files wait for",
        format!(
            "the catalogue {}, parts elsewhere {}, missing bytes {}, other reasons {}",
            waiting.commit, waiting.parts, waiting.missing, waiting.other
        ),
    );
    row(
        "bytes",
        format!(
            "{} received, {} durable, {} on the way",
            size(status.received_bytes),
            size(status.durable_bytes),
            size(status.queued_bytes)
        ),
    );
    row("chunks", format!("{} with {} events, {} twice", status.chunks, status.events, status.duplicates));
    row(
        "memory",
        format!("{} MiB: {} used, {} reserved", status.blocks, status.blocks_used, status.blocks_reserved),
    );
    let refusals = &status.refusals;
    row(
        "refusals",
        format!(
            "{} to try elsewhere, {} conflicts, {} faults of producers",
            refusals.retry_elsewhere, refusals.conflict, refusals.bad_request
        ),
    );
    let refused = &status.refused_links;
    if refused.count > 0 {
        let (address, reason) = (&refused.last_address, &refused.last_reason);
        row(
            "links refused",
            format!("{} of other services, the last from {address}: {reason}", refused.count),
        );
    }
    for (name, calls) in [("bookings", &status.bookings), ("commits", &status.commits)] {
        let failure =
            if calls.last_failure.is_empty() { String::new() } else { format!("; {}", calls.last_failure) };
        row(
            name,
            format!("{} done, {} running, {} failed{failure}", calls.done, calls.running, calls.failed),
        );
    }
    for volume in &status.volumes {
        let reason = if volume.reason.is_empty() { String::new() } else { format!(": {}", volume.reason) };
        row("volume", format!("{} {}{reason}, {} free", volume.path, volume.state, size(volume.free_bytes)));
    }
    for volume in status.volumes.iter().filter(|volume| volume.buffered_parts > 0) {
        let text = "parts: its file system refuses O_DIRECT, which costs CPU";
        row("without O_DIRECT", format!("{} {} {text}", volume.path, volume.buffered_parts));
    }
    if let Some(staged) = &status.stage_out {
        row(
            "copies",
            format!(
                "to {}: {} done, {} running, {} waiting",
                staged.se, staged.files, staged.running, staged.waiting
            ),
        );
        if !staged.last_failure.is_empty() {
            row("copies fail", format!("{} times; {}", staged.failures, staged.last_failure));
        }
    }
    for of in &status.takeovers {
        row(
            "runs for a lost machine",
            format!("service {} at {}, since {}", of.service, of.address, of.since),
        );
    }
    out.table(&table)?;
    out.flush()?;
    Ok(0)
}

/// `exacat writer table`
pub(super) async fn table(at: &AtService, connection: &Connection, style: Style) -> Result<u8, Failure> {
    let told = remote(at, connection)?.table().await?;
    let mut out = Out::new(style);
    if style.json {
        for service in &told.services {
            out.json(service)?;
        }
    } else {
        let columns = [
            ("address", LEFT),
            ("state", LEFT),
            ("files", RIGHT),
            ("queued", RIGHT),
            ("credit", RIGHT),
            ("rate", RIGHT),
            ("free", RIGHT),
        ];
        let mut table = Table::headed(columns);
        for of in &told.services {
            table.row([
                of.address.clone(),
                of.state.clone(),
                of.open_files.to_string(),
                out.size(of.queued_bytes.into()),
                out.size(of.credit_bytes.into()),
                format!("{}/s", out.size(of.bytes_per_second.into())),
                out.size(of.free_bytes.into()),
            ]);
        }
        out.table(&table)?;
    }
    out.flush()?;
    Ok(0)
}

/// `exacat writer files`
pub(super) async fn files(
    stage: Option<&str>,
    limit: usize,
    at: &AtService,
    (connection, style): (&Connection, Style),
) -> Result<u8, Failure> {
    let remote = remote(at, connection)?;
    let stages = match &stage {
        Some(stage) => std::slice::from_ref(stage),
        None => UNCERTIFIED.as_slice(),
    };
    let mut out = Out::new(style);
    let mut is_headed = false;
    let mut left = limit;
    for stage in stages {
        let mut after = None;
        while left > 0 {
            let asked = left.min(PAGE_FILES) as u64;
            let page = remote.files(Some(stage), after, Some(asked)).await?;
            left -= page.files.len().min(left);
            show_files(&mut out, &page.files, &mut is_headed, style)?;
            after = match page.next.as_deref() {
                Some(next) => Some(file_id_of(next)?),
                None => break,
            };
        }
    }
    out.flush()?;
    Ok(0)
}

fn show_files(
    out: &mut Out,
    files: &[WriterFile],
    is_headed: &mut bool,
    style: Style,
) -> Result<(), Failure> {
    if style.json {
        return files.iter().try_for_each(|file| out.json(file));
    }
    if files.is_empty() {
        return Ok(());
    }
    let columns = [("file", LEFT), ("stage", LEFT), ("bytes", RIGHT), ("reason", LEFT)];
    let mut table = Table::headed(columns).headed_once(is_headed);
    for file in files {
        let bytes = out.size(file.bytes.into());
        table.row([file.file.clone(), file.stage.clone(), bytes, file.reason.clone()]);
    }
    out.table(&table)
}

fn readable(file: &str) -> Result<Readable, Failure> {
    Ok(match file.starts_with('/') {
        true => Readable::Name(Lfn::parse(file).map_err(|error| Failure::about(file, error))?),
        false => Readable::File(file_id_of(file)?),
    })
}

/// A local copy of a file, as JSON.
#[derive(Serialize, ToSchema)]
#[schema(as = MergedFile)]
pub(crate) struct MergedView {
    file: String,
    path: String,
    bytes: u64,
    adler32: String,
}

/// `exacat writer merge`
pub(super) async fn merge(
    file: &str,
    to: &Path,
    at: &AtService,
    (connection, style): (&Connection, Style),
) -> Result<u8, Failure> {
    let remote = remote(at, connection)?;
    let merged = exacat_writer_service::merge(&remote, &readable(file)?, to, Arc::new(RealDisk)).await;
    let merged = merged.map_err(|error| Failure::about(file, error))?;
    let (path, adler32) = (to.display().to_string(), format!("{:08x}", merged.adler32));
    let mut out = Out::new(style);
    if style.json {
        out.json(&MergedView { file: merged.file.to_string(), path, bytes: merged.size, adler32 })?;
    } else if !style.quiet {
        out.line(format_args!("{path}: {}, adler32:{adler32}", out.size(merged.size.into())))?;
    }
    out.flush()?;
    Ok(0)
}

/// `exacat writer rm`
pub(super) async fn remove(
    file: &str,
    at: &AtService,
    connection: &Connection,
    style: Style,
) -> Result<u8, Failure> {
    let removed = remote(at, connection)?.remove(file_id_of(file)?).await;
    let removed = removed.map_err(|error| Failure::about(file, error))?;
    let mut out = Out::new(style);
    show_files(&mut out, &[removed], &mut false, style)?;
    out.flush()?;
    Ok(0)
}

/// `exacat writer cat`
pub(super) async fn cat(
    file: &str,
    (from, open): (u64, bool),
    at: &AtService,
    connection: &Connection,
) -> Result<u8, Failure> {
    let what = readable(file)?;
    let about = |error| Failure::about(file, error);
    let mut content = remote(at, connection)?.content(&what, from, open).await.map_err(about)?;
    let mut stdout = std::io::stdout().lock();
    while let Some(bytes) = content.next().await.map_err(about)? {
        match stdout.write_all(&bytes) {
            Ok(()) => {}
            Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => {
                return Err(Failure::OutputClosed);
            }
            Err(error) => return Err(Failure::local(format!("cannot write: {error}"))),
        }
    }
    match stdout.flush() {
        Ok(()) => Ok(0),
        Err(error) => Err(Failure::local(format!("cannot write: {error}"))),
    }
}
