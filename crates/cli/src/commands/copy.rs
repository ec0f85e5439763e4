//! `copy`: copies a whole catalogue into another store.

use std::sync::Arc;

use exacat_exchange::copy::{self, CopyReport, Same};
use exacat_model::{Change, Error, Result as ModelResult};
use exacat_store::{Store, SystemClock};
use exacat_store_cassandra::{CassandraStore, TakeOver};
use futures::future::BoxFuture;
use serde::Serialize;
use utoipa::ToSchema;

use super::exchange::{failure, rate};
use crate::args::{CopyArgs, Global, PlaceArg};
use crate::failure::Failure;
use crate::offline::Offline;
use crate::output::human::plural;
use crate::output::{Out, Style};
use crate::progress::Bar;

/// Open catalogue.
struct Open {
    name: String,
    store: Arc<dyn Store>,
    /// Lock that keeps servers out of a data directory; none for a cluster.
    offline: Option<Offline>,
}

impl Open {
    async fn at(place: &PlaceArg, make: bool) -> Result<Self, Failure> {
        match place {
            PlaceArg::Embedded(directory) => {
                let offline = Offline::open_at(directory.clone(), "stop it first", make).await?;
                let store = Arc::clone(&offline.store) as Arc<dyn Store>;
                Ok(Open { name: directory.display().to_string(), store, offline: Some(offline) })
            }
            PlaceArg::Cassandra(cluster) => {
                let opened = CassandraStore::open((**cluster).clone(), Arc::new(SystemClock)).await;
                let store = opened.map_err(|error| Failure::about(cluster.to_string(), error))?;
                Ok(Open { name: cluster.to_string(), store, offline: None })
            }
        }
    }

    fn about(&self, error: Error) -> Failure {
        Failure::about(self.name.clone(), error)
    }
}

/// Store that gets the changes.
enum Taker {
    Embedded(Arc<exacat_store_embedded::EmbeddedStore>),
    Cassandra(Box<TakeOver>),
}

impl Taker {
    async fn open(place: &PlaceArg, target: &Open) -> Result<Self, Failure> {
        match (place, &target.offline) {
            (PlaceArg::Cassandra(cluster), _) => {
                let opened = TakeOver::open(cluster, Arc::new(SystemClock)).await;
                Ok(Taker::Cassandra(Box::new(opened.map_err(|error| target.about(error))?)))
            }
            (PlaceArg::Embedded(_), Some(offline)) => Ok(Taker::Embedded(Arc::clone(&offline.store))),
            (PlaceArg::Embedded(_), None) => Err(Failure::local("the data directory is not open")),
        }
    }

    fn take(&mut self, changes: Vec<Change>) -> BoxFuture<'_, ModelResult<()>> {
        match self {
            Taker::Embedded(store) => Box::pin(store.take_over(changes)),
            Taker::Cassandra(taking) => Box::pin(async move { taking.take(&changes).await }),
        }
    }

    async fn finish(self) -> ModelResult<()> {
        match self {
            Taker::Embedded(_) => Ok(()),
            Taker::Cassandra(taking) => taking.finish().await,
        }
    }
}

/// `exacat copy`
pub(crate) async fn copy(args: CopyArgs, global: &Global, style: Style) -> Result<u8, Failure> {
    if args.from == args.to {
        return Err(Failure::local("--from and --to are the same catalogue"));
    }
    let (from, to) = (args.from.reached(&args.reach), args.to.reached(&args.reach));
    let source = Open::at(&from, false).await?;
    let target = Open::at(&to, true).await?;
    let mut into = Taker::open(&to, &target).await?;
    let mut bar = Bar::new(global, "changes");
    let taken = copy::copy(
        &*source.store,
        &*target.store,
        async |changes| into.take(changes).await,
        |progress| bar.show(progress),
    )
    .await;
    bar.end();
    let finished = into.finish().await;
    let report = taken.map_err(failure)?;
    finished.map_err(|error| target.about(error))?;
    let same = match args.no_compare {
        true => None,
        false => {
            let mut bar = Bar::new(global, "entries");
            let same = copy::compare(&source.store, &target.store, |progress| bar.show(progress)).await;
            bar.end();
            Some(same.map_err(failure)?)
        }
    };
    for open in [&source, &target] {
        open.store.close().await.map_err(|error| open.about(error))?;
    }
    let mut out = Out::new(style);
    show(&mut out, &report, same.as_ref())?;
    out.flush()?;
    Ok(0)
}

/// History that was copied.
#[derive(Serialize, ToSchema)]
#[schema(as = Copied)]
pub(crate) struct CopyView {
    /// Changes that this run copied.
    changes: u64,
    /// Changes that an interrupted run copied before.
    before: u64,
    /// The last change.
    revision: u64,
    /// Entries of both, if they were compared.
    #[schema(required)]
    entries: Option<u64>,
    /// Digest of both, if they were compared, 32 hex digits.
    #[schema(required)]
    digest: Option<String>,
    /// Duration in seconds.
    seconds: f64,
}

fn show(out: &mut Out, report: &CopyReport, same: Option<&Same>) -> Result<(), Failure> {
    if out.style.json {
        return out.json(&CopyView {
            changes: report.changes,
            before: report.before,
            revision: report.revision.0,
            entries: same.map(|same| same.entries),
            digest: same.map(|same| same.digest.to_string()),
            seconds: report.elapsed.as_secs_f64(),
        });
    }
    let before = match report.before {
        0 => String::new(),
        before => format!(" after the {before} that were there"),
    };
    out.line(format!(
        "{}{before} in {}",
        plural(report.changes, "change"),
        rate(report.changes, report.elapsed)
    ))?;
    match same {
        None => out.line("not compared"),
        Some(same) => out.line(format!(
            "both hold the same: {} with digest {}, {} beside them",
            plural(same.entries, "entry"),
            same.digest,
            plural(same.others, "item")
        )),
    }
}
