//! Comparison of a filtered follower with its source, page by page in the background.
//!
//! A page of the source may be later than the state here. So a page that differs is asked for again, once
//! the follower has every change that the first answer may have. A difference in both answers, with the same
//! row of the source and the same revision here, is of something that was not changed in between.
//!
//! The state here may be later than its position, too: an entry that was read since may be gone already with
//! a directory above it, which a later change tells. So the page is compared [`COMPARED_TIMES`] times in all.

use std::time::{Duration, Instant};

use exacat_model::{Result, Revision};
use exacat_store_embedded::{EmbeddedStore, FilteredDifference, FilteredStep};

use crate::limits::{COMPARED_EVERY, COMPARED_PAGE_EVERY, COMPARED_TIMES, DIFFERENCES_SHOWN_MAX};
use crate::rows::RowsQuery;
use crate::source::FilteredSource;
use crate::state::FollowState;
use crate::walk::{Page, Walk, read};

/// A page that differs, and is asked for again.
struct Suspect {
    query: RowsQuery,
    found: Vec<FilteredDifference>,
    /// The source's last change after its last answer; none until it was asked for.
    until: Option<Revision>,
    /// Answers so far.
    times: usize,
}

/// Pauses of a comparison.
#[derive(Clone, Copy, Debug)]
pub struct ComparisonPace {
    /// Time from one page to the next.
    pub page_every: Duration,
    /// Time from the begin of a comparison to that of the next one, if it has ended by then.
    pub whole_every: Duration,
}

impl Default for ComparisonPace {
    fn default() -> Self {
        ComparisonPace { page_every: COMPARED_PAGE_EVERY, whole_every: COMPARED_EVERY }
    }
}

/// Comparison that goes on.
pub(crate) struct Comparison {
    pace: ComparisonPace,
    walk: Option<Walk>,
    suspect: Option<Suspect>,
    /// Begin of the comparison, or of the last one; none if there was none in this process.
    began: Option<Instant>,
    /// Time of the last page.
    last: Instant,
}

impl Comparison {
    pub(crate) fn new(pace: ComparisonPace) -> Self {
        Comparison { pace, walk: None, suspect: None, began: None, last: Instant::now() }
    }

    /// Begins anew: the directory was made equal to the source row by row.
    pub(crate) fn restart(&mut self) {
        *self = Comparison { began: Some(Instant::now()), ..Comparison::new(self.pace) };
    }

    /// Leaves a page that cannot be compared to the next round.
    pub(crate) fn skip(&mut self) {
        self.suspect = None;
    }

    /// Compares a page, if it is time for one. Returns what the follower has wrong.
    pub(crate) async fn go_on(
        &mut self,
        store: &EmbeddedStore,
        source: &mut impl FilteredSource,
        state: &FollowState,
    ) -> Result<Vec<String>> {
        if self.last.elapsed() < self.pace.page_every {
            return Ok(Vec::new());
        }
        if let Some(suspect) = &mut self.suspect {
            let until = match suspect.until {
                Some(until) => until,
                None => *suspect.until.insert(source.position().await?.0),
            };
            if store.filtered_mark().position < until {
                return Ok(Vec::new());
            }
            self.last = Instant::now();
            let Page { rows, .. } = read(source, &suspect.query).await?;
            let again = store.follow_filtered(FilteredStep::Compare(rows)).await?.differing;
            let is_there_again = |of: &FilteredDifference| again.iter().any(|one| one.hash == of.hash);
            suspect.found.retain(is_there_again);
            (suspect.until, suspect.times) = (None, suspect.times + 1);
            if !suspect.found.is_empty() && suspect.times < COMPARED_TIMES {
                return Ok(Vec::new());
            }
            let wrong = self.suspect.take().map(|suspect| suspect.found).unwrap_or_default();
            state.differs(wrong.len() as u64);
            return Ok(wrong.into_iter().take(DIFFERENCES_SHOWN_MAX).map(|one| one.what).collect());
        }
        let is_early = self.began.is_some_and(|began| began.elapsed() < self.pace.whole_every);
        if self.walk.is_none() && is_early {
            return Ok(Vec::new());
        }
        let walk = self.walk.get_or_insert_with(|| {
            self.began = Some(Instant::now());
            Walk::whole()
        });
        self.last = Instant::now();
        let Some((query, rows)) = walk.next(source).await? else {
            self.walk = None;
            state.compared_whole();
            return Ok(Vec::new());
        };
        let compared = store.follow_filtered(FilteredStep::Compare(rows)).await?;
        walk.enter(compared.inside);
        state.compared(walk.rows());
        if !compared.differing.is_empty() {
            self.suspect = Some(Suspect { query, found: compared.differing, until: None, times: 1 });
        }
        Ok(Vec::new())
    }
}
