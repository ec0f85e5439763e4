//! `writer adopt`: gives the volume of a service that is lost to another service.

use std::os::unix::fs::{MetadataExt, chown};
use std::path::Path;
use std::sync::Arc;

use exacat_disk::RealDisk;
use exacat_model::Error;
use exacat_store_embedded::on_blocking_thread;
use exacat_wire::writer::ServiceId;
use exacat_writer::{FileStage, IDENTITY_FILE, StageContent, VolumeContent, VolumeInspection, owner_of};
use serde::Serialize;
use utoipa::ToSchema;

use super::offline::lock;
use crate::args::WriterAdoptArgs;
use crate::failure::Failure;
use crate::output::human::plural;
use crate::output::{Align, Out, Style, Table};

/// Digits of the id of a service.
const SERVICE_ID_DIGITS: usize = 32;

/// Files of a volume at one stage.
#[derive(Serialize, ToSchema)]
#[schema(as = VolumeStage)]
pub(crate) struct StageView {
    /// Files with a part on the volume.
    files: u64,
    /// Their bytes on the volume.
    bytes: u64,
}

impl StageView {
    fn of(content: StageContent) -> Self {
        StageView { files: content.files, bytes: content.bytes }
    }
}

/// Content of a volume, by the stages of files.
#[derive(Serialize, ToSchema)]
#[schema(as = VolumeContent)]
pub(crate) struct ContentView {
    open: StageView,
    closed: StageView,
    certified: StageView,
    staged: StageView,
    removed: StageView,
    failed: StageView,
}

impl ContentView {
    fn of(content: &VolumeContent) -> Self {
        let at = |stage| StageView::of(content.at(stage));
        ContentView {
            open: at(FileStage::Open),
            closed: at(FileStage::Closed),
            certified: at(FileStage::Certified),
            staged: at(FileStage::Staged),
            removed: at(FileStage::Removed),
            failed: at(FileStage::Failed),
        }
    }

    fn rows(&self) -> [(&'static str, &StageView); 6] {
        [
            ("open", &self.open),
            ("closed", &self.closed),
            ("certified", &self.certified),
            ("staged", &self.staged),
            ("removed", &self.removed),
            ("failed", &self.failed),
        ]
    }
}

/// Volume of the writer that is given to another service.
#[derive(Serialize, ToSchema)]
#[schema(as = AdoptedVolume)]
pub(crate) struct AdoptedView {
    /// Directory.
    volume: String,
    /// Service that it belonged to.
    from: String,
    /// Service that it belongs to now.
    to: String,
    /// False if nothing was changed.
    adopted: bool,
    content: ContentView,
}

/// Returns a service by its id, or by one of its volumes.
fn service_of(text: &str) -> Result<ServiceId, Failure> {
    let is_id = text.len() == SERVICE_ID_DIGITS && text.bytes().all(|byte| byte.is_ascii_hexdigit());
    if let Some(id) = u128::from_str_radix(text, 16).ok().filter(|_| is_id) {
        return Ok(ServiceId(id.to_be_bytes()));
    }
    let none = || {
        let what = "no volume is here yet: start the service once, or give its id (exacat writer status)";
        Failure::about(text, Error::not_found(what))
    };
    owner_of(&RealDisk, Path::new(text)).map_err(|error| Failure::about(text, error))?.ok_or_else(none)
}

/// `exacat writer adopt`
pub(super) async fn adopt(args: WriterAdoptArgs, style: Style) -> Result<u8, Failure> {
    let to = service_of(&args.service_of)?;
    let _lock = lock(&args.volume)?;
    let about = |error: Error| Failure::about(args.volume.display().to_string(), error);
    // The file is replaced, and the service must be able to read it whoever runs this command.
    let identity = args.volume.join(IDENTITY_FILE);
    let owner = std::fs::metadata(&identity).ok();
    let (root, yes) = (args.volume.clone(), args.yes);
    let adopted = on_blocking_thread(move || {
        let inspected = VolumeInspection::read(Arc::new(RealDisk), &root)?;
        let (from, content) = (inspected.service(), inspected.content());
        let is_new = from != to;
        if is_new && yes {
            inspected.hand_over(to)?;
        }
        Ok((from, content, is_new))
    });
    let (from, content, is_new) = adopted.await.map_err(about)?;
    if let Some(owner) = owner.filter(|owner| {
        std::fs::metadata(&identity).is_ok_and(|now| (now.uid(), now.gid()) != (owner.uid(), owner.gid()))
    }) {
        chown(&identity, Some(owner.uid()), Some(owner.gid())).map_err(|error| {
            let what = "the volume is handed over, but its owner is not restored: do it by chown";
            Failure::local(format!("{}: {error}; {what}", identity.display()))
        })?;
    }
    let view = AdoptedView {
        volume: args.volume.display().to_string(),
        from: from.to_string(),
        to: to.to_string(),
        adopted: is_new && yes,
        content: ContentView::of(&content),
    };
    let mut out = Out::new(style);
    show(&mut out, &view, is_new)?;
    out.flush()?;
    match is_new && !yes {
        true => Err(Failure::local(
            "nothing was changed: say --yes too to hand the volume over; its former service must not run any more",
        )),
        false => Ok(0),
    }
}

fn show(out: &mut Out, view: &AdoptedView, is_new: bool) -> Result<(), Failure> {
    if out.style.json {
        return out.json(view);
    }
    if out.style.quiet {
        return Ok(());
    }
    let mut table = Table::headed([("stage", Align::Left), ("files", Align::Right), ("bytes", Align::Right)]);
    for (stage, content) in view.content.rows() {
        table.row([stage.to_owned(), content.files.to_string(), out.size(content.bytes.into())]);
    }
    out.table(&table)?;
    let all = view.content.rows().iter().map(|(_, content)| content.files).sum();
    let (volume, files) = (out.name(&view.volume).to_string(), plural(all, "file"));
    let line = match (is_new, view.adopted) {
        (false, _) => format!("{volume}: {files}; it belongs to service {} already", view.to),
        (true, false) => format!("{volume}: {files} of service {}", view.from),
        (true, true) => format!(
            "{volume}: {files}; it belonged to service {} and now to {}: add it to that service's --volume",
            view.from, view.to
        ),
    };
    out.line(line)
}
