//! `replay origin`: serves files that exist by name and size only.

use std::path::Path;
use std::time::Duration;

use exacat_exchange::input::BytesRead;
use exacat_replay::trace::store;
use exacat_replay_service::origin::{Faults, FilePattern, Origin, OriginFileList, OriginSettings};
use exacat_replay_service::origin_control::OriginControl;
use serde::Serialize;
use utoipa::ToSchema;

use crate::args::{self, ReplayOriginArgs};
use crate::commands::exchange::failure;
use crate::commands::serve::Signals;
use crate::failure::Failure;
use crate::log::ServiceLog;
use crate::output::{Align, Out, Style, Table};
use crate::parse;

/// Origin that began.
#[derive(Serialize, ToSchema)]
#[schema(as = ReplayOriginAddresses)]
pub(crate) struct OriginView {
    /// Address for caches.
    url: String,
    /// URL of its counters; null if it has none.
    control: Option<String>,
    /// Files that it has by name.
    files: u64,
}

fn files(trace: Option<&Path>, args: &ReplayOriginArgs) -> Result<OriginFileList, Failure> {
    let mut files = match trace {
        Some(path) => {
            let trace = store::read(path, &BytesRead::default()).map_err(failure)?;
            OriginFileList::of_trace(&trace)?
        }
        None => OriginFileList::default(),
    };
    for text in &args.any {
        let (below, size) = text.split_once('=').unwrap_or((text, ""));
        let size = match size {
            "" => None,
            size => Some(parse::bytes(size).map_err(|error| Failure::local(format!("--any: {error}")))?),
        };
        files.add_pattern(FilePattern { below: below.to_owned(), size })?;
    }
    match files.is_empty() && args.any.is_empty() {
        true => Err(Failure::local("an origin without a file: give --trace FILE or --any DIRECTORY=SIZE")),
        false => Ok(files),
    }
}

fn faults(args: &ReplayOriginArgs) -> Result<Faults, Failure> {
    let time = |name: &str, text: &str| -> Result<Duration, Failure> {
        let ms = parse::duration_ms(text).map_err(|error| Failure::local(format!("--{name}: {error}")))?;
        Ok(Duration::from_millis(ms))
    };
    Ok(Faults {
        seed: args.seed,
        open_delay: time("open-delay", &args.open_delay)?,
        read_delay: time("read-delay", &args.read_delay)?,
        failing_opens: args.failing_opens,
        failing_reads: args.failing_reads,
        absent_share: args.absent_share,
        absent: args.absent.iter().cloned().collect(),
        wrong_share: args.wrong_share,
        wrong: args.wrong.iter().cloned().collect(),
    })
}

/// `exacat replay origin`
pub(super) async fn origin(args: ReplayOriginArgs, style: Style) -> Result<u8, Failure> {
    let rate = |name: &str, text: &Option<String>| -> Result<Option<u64>, Failure> {
        let read =
            |text: &String| parse::bytes(text).map_err(|error| Failure::local(format!("--{name}: {error}")));
        text.as_ref().map(read).transpose()
    };
    let control =
        args::listener(&args.control).map_err(|error| Failure::local(format!("--control: {error}")))?;
    let of = args.clone();
    let list = tokio::task::spawn_blocking(move || files(of.trace.as_deref(), &of)).await;
    let list = list.map_err(|error| Failure::local(error.to_string()))??;
    let count = list.len() as u64;
    let mut settings = OriginSettings::new(args.listen, list);
    settings.faults = faults(&args)?;
    settings.bandwidth = rate("bandwidth", &args.bandwidth)?;
    settings.bandwidth_of_connection = rate("bandwidth-of-connection", &args.bandwidth_of_connection)?;
    let log = ServiceLog::start(&args.logging)?;
    tokio::spawn(log.follow_rotations());
    let mut signals = Signals::new()?;
    let origin = Origin::start(settings).await?;
    let url = format!("root://{}", origin.address());
    let control = OriginControl::start(origin, control).await?;
    let view = OriginView { url, control: control.address().map(|at| format!("http://{at}")), files: count };
    let mut out = Out::new(style);
    if style.json {
        out.json(&view)?;
    } else if !style.quiet {
        let mut table = Table::new([Align::Left, Align::Left]);
        table.row(["origin", &view.url].map(str::to_owned));
        if let Some(control) = &view.control {
            table.row(["  counters", control].map(str::to_owned));
        }
        table.row(["  files".to_owned(), view.files.to_string()]);
        out.table(&table)?;
    }
    out.flush()?;
    signals.next().await;
    control.stop().await;
    Ok(0)
}
