//! `promote`: makes a follower the source.

use std::fs::{File, TryLockError};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use exacat_model::{Error, ErrorKind};
use exacat_store::{Store, SystemClock};
use exacat_store_embedded::{EmbeddedSettings, EmbeddedStore, FollowerFiles, on_blocking_thread};
use serde::Serialize;
use utoipa::ToSchema;

use super::serve::shown;
use crate::args::Connection;
use crate::connect::data_directory;
use crate::failure::{Failure, say};
use crate::offline::lock_file;
use crate::output::{Out, Style};
use crate::parse;

/// File by which a running follower is asked to become the source.
const WISH: &str = "promote.wish";
/// File that a running follower has locked.
const LOCK: &str = "follow.lock";
/// Pause between two looks at the other process.
const PAUSE: Duration = Duration::from_millis(50);
/// Longest wait for a follower that runs.
const TIME: Duration = Duration::from_secs(60);

/// Returns the file by which a running follower is asked to become the source.
pub(super) fn wish(directory: &Path) -> PathBuf {
    directory.join(WISH)
}

/// Waits until somebody wishes that the follower becomes the source.
pub(super) async fn wished(directory: &Path) {
    while !wish(directory).exists() {
        tokio::time::sleep(PAUSE).await;
    }
}

/// Locks a follower for this process; none if another one runs it.
pub(super) fn lock(directory: &Path) -> Result<Option<File>, Failure> {
    let path = directory.join(LOCK);
    let file = lock_file(&path)?;
    match exacat_disk::lock_exclusively(&file) {
        Ok(()) => Ok(Some(file)),
        Err(TryLockError::WouldBlock) => Ok(None),
        Err(TryLockError::Error(error)) => {
            Err(Failure::local(format!("cannot lock {}: {error}", path.display())))
        }
    }
}

/// `exacat promote`
pub(crate) async fn promote(connection: &Connection, style: Style) -> Result<u8, Failure> {
    let directory = data_directory(connection)?;
    let about = |error| Failure::about(directory.display().to_string(), error);
    let files = Arc::new(FollowerFiles::at(&directory.join("store")));
    let none = || about(Error::not_found("there is no follower here that could be promoted"));
    let following = files.following().map_err(about)?.ok_or_else(none)?;
    following.check_promotable().map_err(about)?;
    if let Some(_lock) = lock(&directory)? {
        offline(&directory, &files).await.map_err(about)?;
        return tell(&directory, false, style);
    }
    let time = match &connection.timeout {
        Some(text) => Duration::from_millis(parse::some_time_ms(text)?),
        None => TIME,
    };
    let (wish, until) = (wish(&directory), Instant::now() + time);
    let wished = std::fs::write(&wish, b"");
    wished.map_err(|error| Failure::local(format!("cannot write {}: {error}", wish.display())))?;
    while wish.exists() || files.following().map_err(about)?.is_some() {
        if Instant::now() >= until {
            let what = "the follower did not become the source in time; it still tries: look at its log";
            return Err(about(Error::new(ErrorKind::Unavailable, what)));
        }
        tokio::time::sleep(PAUSE).await;
    }
    tell(&directory, true, style)
}

/// Follower that became the source.
#[derive(Serialize, ToSchema)]
#[schema(as = Promoted)]
pub(crate) struct PromotedView {
    /// Data directory.
    data: String,
    /// True if it runs, and takes changes now; otherwise it is to be started.
    running: bool,
}

fn tell(directory: &Path, running: bool, style: Style) -> Result<u8, Failure> {
    let mut out = Out::new(style);
    if style.json {
        out.json(&PromotedView { data: shown(directory), running })?;
        out.flush()?;
    } else if !style.quiet {
        let next = if running { "it goes on as the source" } else { "start it with 'exacat serve'" };
        say(&format!("exacat: promoted: {next}"));
    }
    Ok(0)
}

/// Promotes a follower that does not run.
async fn offline(directory: &Path, files: &Arc<FollowerFiles>) -> exacat_model::Result<()> {
    let (files, settings) = (Arc::clone(files), EmbeddedSettings::at(directory.join("store")));
    let opened = on_blocking_thread(move || {
        files.prepare()?;
        let source = files.following()?.map(|following| following.source);
        let settings = EmbeddedSettings { follows: source, archive: false, ..settings };
        Ok((EmbeddedStore::open(settings, Arc::new(SystemClock))?, files))
    });
    let (store, files) = opened.await?;
    let last = store.log_end().await?.revision;
    store.close().await?;
    drop(store);
    on_blocking_thread(move || files.promote(last).map(|_| ())).await
}
