//! `history adopt`: makes the history of a data directory the owner of its archive.

use std::sync::Arc;

use exacat_history::{Adopted, ArchiveSettings, History, HistorySettings};
use exacat_history_archive::{ParquetArchive, Place, day_text};
use exacat_model::{Error, ErrorKind};
use exacat_store::{CLOCK_JUMP, Clock, WatchedClock};
use exacat_store_embedded::{COMPANION, on_blocking_thread};
use serde::Serialize;
use utoipa::ToSchema;

use crate::args::{Connection, HistoryAdoptArgs};
use crate::connect::data_directory;
use crate::failure::{Failure, say};
use crate::offline::lock;
use crate::output::human::plural;
use crate::output::{Out, Style};

/// Day of a group that was merged.
#[derive(Serialize, ToSchema)]
#[schema(as = MergedDay)]
pub(crate) struct MergedDayView {
    /// Group.
    group: String,
    /// UTC day.
    #[schema(format = "date")]
    day: String,
    /// Rows of the archive that came into the history.
    rows: u64,
}

/// Archive that was adopted.
#[derive(Serialize, ToSchema)]
#[schema(as = Adopted)]
pub(crate) struct AdoptedView<'a> {
    /// True if the history owns the archive. Otherwise rows would be lost.
    done: bool,
    /// Directory of the former owner; null if the archive had none.
    #[schema(required)]
    former_directory: Option<&'a str>,
    /// Machine of the former owner.
    #[schema(required)]
    former_host: Option<&'a str>,
    /// Days with the same files on both sides.
    kept_days: u64,
    /// Days that the archive had in another version, or alone.
    merged: Vec<MergedDayView>,
    /// Days of the history that readers of the archive see again.
    shown_days: u64,
    /// Days beyond the retention of their group, which leave the archive.
    ended_days: u64,
    /// Rows that the history has newer than the archive, and kept.
    own_rows: u64,
    /// Rows that are lost, or would be.
    losses: &'a [String],
}

/// `exacat history adopt`
pub(crate) async fn adopt(
    args: HistoryAdoptArgs,
    connection: &Connection,
    style: Style,
) -> Result<u8, Failure> {
    let directory = data_directory(connection)?;
    let elements = directory.join(COMPANION);
    if !elements.is_dir() {
        let none = Error::not_found("no history of elements is here: give --data");
        return Err(Failure::about(directory.display().to_string(), none));
    }
    let _lock = lock(&directory, "stop it first")?;
    let clock = WatchedClock::of_system(CLOCK_JUMP);
    clock.keep_in(&directory.join("clock"));
    if let Some(jump) = clock.jump() {
        say(&format!("exacat: {jump}"));
    }
    let (place, accepts_loss) = (args.place.clone(), args.accept_loss);
    let adopted = on_blocking_thread(move || {
        let archive = Arc::new(ParquetArchive::new(Place::open(&place)?));
        // The age of days does not matter: an adoption archives those that differ.
        let archive = ArchiveSettings { archive, after_days: u32::MAX };
        let settings = HistorySettings::new(elements, Arc::new(move || clock.trusted()));
        let history = History::open(HistorySettings { archive: Some(archive), adopts: true, ..settings })?;
        let adopted = history.adopt_archive(accepts_loss);
        history.close();
        adopted
    });
    let adopted = adopted.await.map_err(|error| Failure::about(args.place.clone(), error))?;
    let mut out = Out::new(style);
    show(&mut out, &adopted)?;
    out.flush()?;
    match adopted.done {
        true => Ok(0),
        false => {
            let losses = plural(adopted.losses.len() as u64, "loss");
            let what =
                format!("not adopted, because of {losses}: follow the lines above, or add --accept-loss");
            Err(Failure::about(args.place, Error::new(ErrorKind::Conflict, what)))
        }
    }
}

fn show(out: &mut Out, adopted: &Adopted) -> Result<(), Failure> {
    let former = adopted.previous.as_ref();
    if out.style.json {
        let merged = adopted.merged.iter().map(|of| MergedDayView {
            group: of.group.to_string(),
            day: day_text(of.day),
            rows: of.rows,
        });
        return out.json(&AdoptedView {
            done: adopted.done,
            former_directory: former.map(|owner| owner.directory.as_str()),
            former_host: former.map(|owner| owner.host.as_str()),
            kept_days: adopted.kept_days,
            merged: merged.collect(),
            shown_days: adopted.shown_days,
            ended_days: adopted.ended_days,
            own_rows: adopted.own_rows,
            losses: &adopted.losses,
        });
    }
    let word = if adopted.done { "LOST" } else { "WOULD LOSE" };
    for loss in &adopted.losses {
        let line = format!("{word} {}", out.name(loss));
        out.line(line)?;
    }
    if !adopted.done || out.style.quiet {
        return Ok(());
    }
    if adopted.was_owner {
        return out.line("this history owns the archive already");
    }
    for of in &adopted.merged {
        let (day, rows) = (day_text(of.day), plural(of.rows, "row"));
        let line = format!("{} {day}: {rows} of the archive", out.name(of.group.as_str()));
        out.line(line)?;
    }
    let from = match former {
        Some(owner) => format!("{} on {}", owner.directory, owner.host),
        None => "nobody".to_owned(),
    };
    let from = out.name(&from);
    let (kept, merged) = (plural(adopted.kept_days, "day"), plural(adopted.merged.len() as u64, "day"));
    out.line(format!("adopted from {from}: {kept} kept, {merged} merged"))
}
