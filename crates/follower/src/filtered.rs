//! The work of a filtered follower: one directory of the source, with everything below it.

use std::sync::Arc;
use std::time::{Duration, Instant};

use exacat_model::{DirId, EntryId, Error, ErrorKind, Lfn, Name, Result, Revision};
use exacat_store::Store;
use exacat_store_embedded::{EmbeddedStore, FilteredStep};

use crate::comparing::{Comparison, ComparisonPace};
use crate::following::Pauses;
use crate::limits::{NOTE_AFTER, WAIT};
use crate::rows::{ChangesHeard, ChildrenQuery, RowsAnswer, RowsQuery};
use crate::source::{FilteredSource, HttpSource, Source};
use crate::state::FollowState;
use crate::walk::Walk;

/// Everything that a filtered follower works with.
pub struct FilteredFollow<S> {
    store: Arc<EmbeddedStore>,
    source: S,
    state: Arc<FollowState>,
    /// Entry whose walk was interrupted in this process.
    unfinished: Option<EntryId>,
    /// Position that the log has, and the time of that.
    noted: (Revision, Instant),
    comparison: Comparison,
}

/// Refuses a directory that the source does not have.
pub async fn check_directory(source: &Source, under: &Lfn) -> Result<()> {
    // The id is told with requests for changes only.
    let (mut source, mut directory) = (HttpSource::new(source.clone(), [0; 16]), DirId::ROOT);
    for name in under.components() {
        let only = Some(Name::parse(name)?);
        let query = RowsQuery::Children(vec![ChildrenQuery { directory, after: None, only }]);
        let found = match source.rows(&query).await? {
            RowsAnswer::Children(mut pages) => pages.pop().and_then(|mut page| page.entries.pop()),
            _ => None,
        };
        let missing = || Error::invalid(format!("the source has no directory {under}: name another one"));
        directory = found.and_then(|entry| entry.directory()).ok_or_else(missing)?;
    }
    Ok(())
}

impl FilteredFollow<HttpSource> {
    /// Makes the work of a follower with this id whose store is open.
    pub fn over_http(
        store: Arc<EmbeddedStore>,
        source: Source,
        state: Arc<FollowState>,
        id: [u8; 16],
    ) -> Self {
        Self::new(store, HttpSource::new(source, id), state)
    }
}

impl<S: FilteredSource> FilteredFollow<S> {
    /// Makes the work of a follower whose store is open.
    pub fn new(store: Arc<EmbeddedStore>, source: S, state: Arc<FollowState>) -> Self {
        let noted = (store.filtered_mark().position, Instant::now());
        let comparison = Comparison::new(ComparisonPace::default());
        FilteredFollow { store, source, state, unfinished: None, noted, comparison }
    }

    /// Sets the pauses of the comparison in the background.
    #[must_use]
    pub fn compared_at(mut self, pace: ComparisonPace) -> Self {
        self.comparison = Comparison::new(pace);
        self
    }

    /// Returns the source.
    pub fn source(&self) -> &S {
        &self.source
    }

    /// Follows the source until the store fails. Everything that can pass is tried again for ever.
    pub async fn run(&mut self) {
        let mut pauses = Pauses::default();
        loop {
            let Err(error) = self.step(WAIT).await else {
                pauses = Pauses::default();
                continue;
            };
            if self.store.failure().is_some() {
                return;
            }
            if self.state.fails(&error.message) {
                let source = self.state.source();
                tracing::warn!(%error, source, "cannot follow the source; trying again");
            }
            pauses.pause().await;
        }
    }

    /// Does one part of the work: completes an interrupted walk, or applies the next changes. Then it
    /// compares a page with the source, if it is time for one.
    pub async fn step(&mut self, wait: Duration) -> Result<()> {
        let mark = self.store.filtered_mark();
        match self.unfinished {
            _ if mark.source == 0 => return self.copy(&mut |_| ()).await,
            Some(id) if mark.is_walking => self.fetch(id).await?,
            _ if mark.is_walking => return self.copy(&mut |_| ()).await,
            _ => {}
        }
        let began = Instant::now();
        self.state.waits(true);
        let heard = self.source.changes(mark.position, wait).await;
        self.state.waits(false);
        match heard {
            Ok(heard) if heard.source == mark.source => {
                self.apply(heard, began).await?;
                self.compare().await
            }
            Ok(_) => {
                tracing::warn!("the source has a new timeline; the directory is compared with it");
                self.copy(&mut |_| ()).await
            }
            Err(error) if matches!(error.kind, ErrorKind::NotFound | ErrorKind::Conflict) => {
                tracing::warn!(%error, "the directory is compared with the source, and served meanwhile as it is");
                self.copy(&mut |_| ()).await
            }
            Err(error) => Err(error),
        }
    }

    /// Makes the directory equal to that of the source, row by row. Calls `progress` with the rows so far.
    pub async fn copy(&mut self, progress: &mut (dyn FnMut(u64) + Send)) -> Result<()> {
        self.state.copies(true);
        let walked = self.copy_whole(progress).await;
        if walked.is_ok() {
            self.state.copies(false);
        }
        walked
    }

    async fn copy_whole(&mut self, progress: &mut (dyn FnMut(u64) + Send)) -> Result<()> {
        self.unfinished = None;
        // Changes after this one may be in the rows or not, and follow.
        let whole = self.source.position().await?;
        Walk::whole().copy(&self.store, &mut self.source, progress).await?;
        self.store.follow_filtered(FilteredStep::Walked { whole: Some(whole) }).await?;
        self.comparison.restart();
        self.noted = (whole.0, Instant::now());
        Ok(())
    }

    async fn apply(&mut self, heard: ChangesHeard, began: Instant) -> Result<()> {
        self.state.heard(heard.durable);
        let answered = if heard.changes.is_empty() { began } else { Instant::now() };
        let (mut changes, mut is_fetched) = (heard.changes, false);
        let position = loop {
            let up_to = heard.up_to;
            let step = FilteredStep::Changes { changes, up_to, is_fetched };
            let reached = self.store.follow_filtered(step).await?;
            let Some(id) = reached.fetch else { break reached.position };
            self.fetch(id).await?;
            (changes, is_fetched) = (reached.rest, true);
        };
        if position > self.noted.0 && self.noted.1.elapsed() >= NOTE_AFTER {
            self.store.follow_filtered(FilteredStep::Note).await?;
            self.noted = (position, Instant::now());
        }
        self.state.caught_up(answered, heard.age);
        Ok(())
    }

    async fn compare(&mut self) -> Result<()> {
        let wrong = match self.comparison.go_on(&self.store, &mut self.source, &self.state).await {
            Ok(wrong) if wrong.is_empty() => return Ok(()),
            Ok(wrong) => wrong.join(", "),
            // The next request for changes says whether the source is away.
            Err(error) if self.store.failure().is_none() => {
                match error.kind {
                    ErrorKind::Unavailable => tracing::debug!(%error, "a page was not compared: no answer"),
                    _ => {
                        self.comparison.skip();
                        tracing::warn!(%error, "a page cannot be compared; check the copy: exacat scrub");
                    }
                }
                return Ok(());
            }
            Err(error) => return Err(error),
        };
        tracing::error!(wrong, "the copy differs from its source; the directory is compared and mended");
        self.copy(&mut |_| ()).await
    }

    /// Reads an entry that came into the directory, with everything below it.
    async fn fetch(&mut self, id: EntryId) -> Result<()> {
        self.unfinished = Some(id);
        Walk::below(id).copy(&self.store, &mut self.source, &mut |_| ()).await?;
        self.store.follow_filtered(FilteredStep::Walked { whole: None }).await?;
        self.unfinished = None;
        Ok(())
    }
}
