//! `writer stage-out`: certified files of a service to another storage element, now.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use exacat_model::{Error, ErrorKind, Lfn, SeName};
use exacat_wire::writer::FileId;
use exacat_writer_service::Remote;
use exacat_writer_service::shapes::{WriterCopy, WriterFile, file_id_of};
use futures::{StreamExt, stream};
use serde::Serialize;
use utoipa::ToSchema;

use super::look::{PAGE_FILES, remote};
use crate::args::{Global, WriterStageOutArgs};
use crate::failure::{Failure, report, status_of};
use crate::output::human::{plural, size};
use crate::output::{Align, Out, Style, Table};
use crate::progress::Bar;

/// Orders that the command has with the service at once. The service has its own bound of copies.
const ORDERS_AT_ONCE: usize = 16;
/// Time between two shows of the progress.
const SHOW_EVERY: Duration = Duration::from_secs(1);
/// Stages of files that the service may copy.
const CERTIFIED: [&str; 2] = ["certified", "staged"];

/// A file and its copy on another storage element, as JSON.
#[derive(Serialize, ToSchema)]
#[schema(as = StagedOutFile)]
pub(crate) struct StagedOutView {
    file: String,
    /// Name when it was certified; null if the service has no part of it.
    lfn: Option<String>,
    /// `copied`, `there` (an earlier copy is whole), `failed`, or `left` (the service does not copy it).
    result: &'static str,
    bytes: u64,
    se: String,
    /// Place of the copy; null if there is none.
    pfn: Option<String>,
    /// Reason why it failed or is left; empty otherwise.
    reason: String,
}

/// Files to be copied.
struct Wanted {
    ids: Vec<FileId>,
    /// Each is the name of a file, or a directory that files are below. True once a file has it.
    names: Vec<(Lfn, bool)>,
}

impl Wanted {
    fn parse(files: &[String]) -> Result<Wanted, Failure> {
        let mut wanted = Wanted { ids: Vec::new(), names: Vec::new() };
        for file in files {
            let about = |error| Failure::about(file, error);
            match file.starts_with('/') {
                true => wanted.names.push((Lfn::parse(file).map_err(about)?, false)),
                false => wanted.ids.push(file_id_of(file).map_err(about)?),
            }
        }
        Ok(wanted)
    }

    fn is_all(&self) -> bool {
        self.ids.is_empty() && self.names.is_empty()
    }

    /// Says whether a file is named, and notes that.
    fn has(&mut self, file: &WriterFile) -> bool {
        let Some(lfn) = &file.lfn else { return false };
        let mut has = false;
        for (name, is_met) in &mut self.names {
            let rest = lfn.strip_prefix(name.as_str().trim_end_matches('/'));
            if rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/')) {
                (*is_met, has) = (true, true);
            }
        }
        has
    }
}

/// Numbers of files by their results.
#[derive(Default)]
struct Done {
    copied: u64,
    there: u64,
    failed: u64,
    left: u64,
    bytes: u64,
}

struct Run {
    remote: Remote,
    se: String,
    out: Out,
    bar: Bar,
    /// Bytes that the service has read for the copies.
    carried: Arc<AtomicU64>,
    is_headed: bool,
    done: Done,
    /// Exit status: that of the first file that is wanted, and not on the storage element.
    status: u8,
}

/// `exacat writer stage-out`
pub(super) async fn stage_out(
    args: WriterStageOutArgs,
    global: &Global,
    style: Style,
) -> Result<u8, Failure> {
    let mut wanted = Wanted::parse(&args.files)?;
    let mut run = Run {
        remote: remote(&args.at, &global.connection)?,
        se: SeName::parse(&args.to)?.to_string(),
        out: Out::new(style),
        bar: Bar::new(global, "files"),
        carried: Arc::default(),
        is_headed: false,
        done: Done::default(),
        status: 0,
    };
    run.show_progress();
    let ended = run.all(&mut wanted).await;
    run.bar.end();
    if !style.json && !style.quiet {
        let Done { copied, there, failed, left, bytes } = run.done;
        let bytes = run.out.size(bytes.into());
        run.out.line(format_args!(
            "{} ({bytes}) copied to {}, {there} there, {failed} failed, {left} left",
            plural(copied, "file"),
            run.se
        ))?;
    }
    run.out.flush()?;
    ended.map(|()| run.status)
}

impl Run {
    async fn all(&mut self, wanted: &mut Wanted) -> Result<(), Failure> {
        let mut named = Vec::new();
        for id in &wanted.ids {
            match self.remote.file(*id).await {
                Ok(file) => named.push(file),
                Err(error) if error.kind == ErrorKind::NotFound => {
                    self.note_missing(&id.to_string(), &error);
                }
                Err(error) => return Err(error.into()),
            }
        }
        self.copy(named, true).await?;
        if wanted.is_all() || !wanted.names.is_empty() {
            self.listed(wanted).await?;
        }
        for (name, _) in wanted.names.iter().filter(|(_, is_met)| !is_met) {
            let what = "this service has no bytes of a file with this name or below it; one that was renamed \
                        since its certificate is known by its id ('exacat writer files --stage certified')";
            self.note_missing(name.as_str(), &Error::not_found(what));
        }
        Ok(())
    }

    /// Copies the wanted files, page by page. One list has all stages: a file that is copied meanwhile is in
    /// it once.
    async fn listed(&mut self, wanted: &mut Wanted) -> Result<(), Failure> {
        let (is_all, mut after) = (wanted.is_all(), None);
        loop {
            let page = self.remote.files(None, after, Some(PAGE_FILES as u64)).await?;
            let mut files = page.files;
            files.retain(|file| match file.stage.as_str() {
                "removed" => false,
                // It is elsewhere already: it is looked at again where somebody names it.
                "staged" if is_all => false,
                _ => is_all || wanted.has(file),
            });
            self.copy(files, !is_all).await?;
            after = match page.next.as_deref() {
                Some(next) => Some(file_id_of(next)?),
                None => return Ok(()),
            };
        }
    }

    fn note_missing(&mut self, name: &str, error: &Error) {
        report(Some(name), error, None);
        self.note_status(error.kind);
    }

    fn note_status(&mut self, kind: ErrorKind) {
        if self.status == 0 {
            self.status = status_of(kind);
        }
    }

    /// Copies files, and shows them. Those that are left count as failures if somebody named them.
    async fn copy(&mut self, files: Vec<WriterFile>, is_named: bool) -> Result<(), Failure> {
        let (remote, se, carried) = (self.remote.clone(), self.se.clone(), Arc::clone(&self.carried));
        let begun = files.into_iter().map(|file| {
            let (remote, se, carried) = (&remote, &se, &carried);
            async move {
                let outcome = match CERTIFIED.contains(&file.stage.as_str()) {
                    true => copied(remote, &file, se, carried).await,
                    false => Ok(None),
                };
                (file, outcome)
            }
        });
        let mut ended = std::pin::pin!(stream::iter(begun).buffer_unordered(ORDERS_AT_ONCE));
        let mut shown = Vec::new();
        loop {
            let next = tokio::select! {
                next = ended.next() => next,
                () = tokio::time::sleep(SHOW_EVERY) => {
                    self.show_progress();
                    continue;
                }
            };
            let Some((file, outcome)) = next else { break };
            let (result, pfn, reason) = match outcome {
                Ok(Some(copy)) if copy.state == "there" => ("there", Some(copy.pfn), String::new()),
                Ok(Some(copy)) => {
                    self.done.bytes += copy.bytes;
                    ("copied", Some(copy.pfn), String::new())
                }
                Ok(None) => {
                    if is_named {
                        self.note_status(ErrorKind::Conflict);
                    }
                    ("left", None, reason_of(&file))
                }
                Err(error) => {
                    if error.kind == ErrorKind::Unavailable {
                        // The target, or the service itself: without it nothing more can be done.
                        self.show(std::mem::take(&mut shown))?;
                        self.remote.status().await?;
                    }
                    self.note_status(error.kind);
                    ("failed", None, error.to_string())
                }
            };
            let done = &mut self.done;
            *match result {
                "copied" => &mut done.copied,
                "there" => &mut done.there,
                "left" => &mut done.left,
                _ => &mut done.failed,
            } += 1;
            self.show_progress();
            let (bytes, se) = (file.bytes, self.se.clone());
            shown.push(StagedOutView { file: file.file, lfn: file.lfn, result, bytes, se, pfn, reason });
        }
        self.show(shown)
    }

    fn show_progress(&mut self) {
        let Done { copied, there, failed, .. } = self.done;
        let (files, bytes) = (plural(copied + there, "file"), self.carried.load(Ordering::Relaxed));
        self.bar.show_text(&format!("{files} there, {} copied, {failed} failed", size(bytes.into())));
    }

    fn show(&mut self, files: Vec<StagedOutView>) -> Result<(), Failure> {
        if self.out.style.json {
            return files.iter().try_for_each(|file| self.out.json(file));
        }
        if files.is_empty() {
            return Ok(());
        }
        let columns = [
            ("result", Align::Left),
            ("bytes", Align::Right),
            ("file", Align::Left),
            ("reason", Align::Left),
        ];
        let mut table = Table::headed(columns).headed_once(&mut self.is_headed);
        for of in files {
            let name = of.lfn.as_deref().unwrap_or(&of.file);
            let name = self.out.name(name).to_string();
            table.row([of.result.to_owned(), self.out.size(of.bytes.into()), name, of.reason]);
        }
        self.out.table(&table)
    }
}

/// Returns the reason why a service does not copy a file.
fn reason_of(file: &WriterFile) -> String {
    match CERTIFIED.contains(&file.stage.as_str()) {
        true => "another service certified it, and copies it: ask that one (--at)".to_owned(),
        false => format!("{}: {}", file.stage, file.reason),
    }
}

/// Orders a copy, and waits for its end; none if the service does not copy this file. The bytes that are read
/// for it are counted.
async fn copied(
    remote: &Remote,
    file: &WriterFile,
    se: &str,
    carried: &AtomicU64,
) -> Result<Option<WriterCopy>, Error> {
    let id = file_id_of(&file.file)?;
    if !file.is_certifier {
        return Ok(None);
    }
    let mut before = 0;
    loop {
        let copy = remote.stage_out(id, se).await?;
        carried.fetch_add(copy.carried_bytes.saturating_sub(before), Ordering::Relaxed);
        before = before.max(copy.carried_bytes);
        if copy.state != "running" {
            // One that ended between two questions is there by now.
            let is_new = before > 0 || copy.state == "copied";
            let state = if is_new { "copied" } else { "there" }.to_owned();
            return Ok(Some(WriterCopy { state, ..copy }));
        }
    }
}
