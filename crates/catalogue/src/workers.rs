//! Background work: expires reservations and entries, purges old trash, drops expired tokens.
//!
//! Each step does a bounded amount and says whether there is more; the server schedules the steps.
//! An interrupted step keeps what it did and leaves the rest to the next one. Two concurrent steps
//! do nothing twice, because each mutation names what it expects.

use exacat_model::limits::PAGE_MEMORY_MAX;
use exacat_model::{
    EntryId, Error, ErrorKind, Expect, ExpectRecord, Lfn, Measured, Mutation, RecordKey, Result, TimeMs,
    UserId,
};
use exacat_store::{EntryLocation, Outcome};
use futures::future::BoxFuture;

use crate::Catalogue;
use crate::caller::Caller;
use crate::execute::boxed;

/// Reservations, entries or tokens of one step.
const STEP_ITEMS_MAX: usize = 500;
/// Items of the trash examined for one step of purging.
const TRASH_EXAMINED_MAX: usize = 100;
/// Time that an expired token is still shown to its user, in milliseconds, so that "expired"
/// differs from "unknown".
const EXPIRED_TOKENS_KEPT_MS: u64 = 7 * 24 * 3600 * 1000;

/// The result of a step.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StepReport {
    /// Reservations released, entries removed or purged, tokens dropped.
    pub done: u64,
    /// True if there is more to do now.
    pub more: bool,
    /// Pause before the next step, in milliseconds, so that users are not slowed.
    pub pause_ms: u64,
}

impl Catalogue {
    /// Releases expired reservations: returns their quota, and queues possibly written copies for
    /// deletion.
    pub fn expired_reservations_step(&self) -> BoxFuture<'_, Result<StepReport>> {
        boxed(self.release_expired())
    }

    async fn release_expired(&self) -> Result<StepReport> {
        let due = self.store.due(self.clock.trusted(), STEP_ITEMS_MAX).await?;
        let releases: Vec<Mutation> = due
            .reservations
            .iter()
            .map(|reservation| Mutation::Release { guid: reservation.guid, se: None, only_expired: true })
            .collect();
        self.step(releases, fills_a_step(&due.reservations)).await
    }

    /// Moves expired entries to the trash. An entry whose expiry was changed meanwhile stays.
    pub fn expired_entries_step(&self) -> BoxFuture<'_, Result<StepReport>> {
        boxed(self.remove_expired())
    }

    async fn remove_expired(&self) -> Result<StepReport> {
        let due = self.store.due(self.clock.trusted(), STEP_ITEMS_MAX).await?;
        let ids: Vec<EntryId> = due.entries.iter().map(exacat_model::Entry::id).collect();
        let located = self.store.locate(&ids).await?;
        let mut removals = Vec::with_capacity(due.entries.len());
        for (entry, found) in due.entries.iter().zip(located) {
            let Some(EntryLocation::Tree(lfn)) = found.map(|found| found.place) else { continue };
            if lfn.is_root() {
                tracing::warn!("the root directory has an expiry, and stays: take the expiry away");
                continue;
            }
            removals.push(Mutation::Remove {
                at: entry.at.clone(),
                expect: Expect { id: Some(entry.id()), revision: Some(entry.revision) },
                only_empty: false,
                lfn,
            });
        }
        self.step(removals, fills_a_step(&due.entries)).await
    }

    /// Purges items that were in the trash for longer than
    /// [`Settings::trash_seconds`](crate::Settings), oldest first.
    pub fn trash_purge_step(&self) -> BoxFuture<'_, Result<StepReport>> {
        boxed(self.purge_old())
    }

    async fn purge_old(&self) -> Result<StepReport> {
        let Some(seconds) = self.settings.trash_seconds else { return Ok(StepReport::default()) };
        let now = self.clock.trusted();
        let is_due = |removed: TimeMs| removed.plus_ms(seconds.saturating_mul(1000)) <= now;
        let service = self.service()?;
        let entries_max = self.settings.purge_step_entries.max(1) as u64;
        let mut report = StepReport::default();
        let mut after = None;
        let (mut examined, mut failed) = (0, 0);
        'pages: while examined < TRASH_EXAMINED_MAX {
            let page = self.store.trash(after, TRASH_EXAMINED_MAX).await?;
            after = page.items.last().map(|item| item.id);
            for item in page.items {
                if !is_due(item.removed) {
                    break 'pages;
                }
                if report.done >= entries_max {
                    report.more = true;
                    break 'pages;
                }
                examined += 1;
                let left = usize::try_from(entries_max - report.done).unwrap_or(usize::MAX);
                match self.purge_step(&service, None, &item, left).await {
                    Ok(step) => {
                        report.done += step.entries;
                        report.more |= !step.done;
                    }
                    Err(error) if is_the_items(&error) => {
                        // An item that cannot be purged must not block the others.
                        failed += 1;
                        tracing::warn!(item = item.id.0.0, %error, "an item of the trash cannot be purged");
                    }
                    Err(error) => return Err(error),
                }
            }
            if !page.more || after.is_none() {
                break;
            }
            report.more = true;
        }
        // Without progress, an immediate retry would only spin.
        report.more &= report.done > 0 || failed == 0;
        report.pause_ms = report.done.saturating_mul(1000) / self.settings.purge_entries_per_second.max(1);
        Ok(report)
    }

    /// Drops tokens that expired a while ago.
    pub fn expired_tokens_step(&self) -> BoxFuture<'_, Result<StepReport>> {
        boxed(self.forget_expired())
    }

    async fn forget_expired(&self) -> Result<StepReport> {
        let now = self.clock.trusted();
        let mut expired = self.tokens(|token| token.expires.plus_ms(EXPIRED_TOKENS_KEPT_MS) <= now).await?;
        let more = expired.len() > STEP_ITEMS_MAX;
        expired.truncate(STEP_ITEMS_MAX);
        let drops: Vec<Mutation> = expired
            .iter()
            .map(|token| Mutation::DropRecord { key: RecordKey::Token(token.id), expect: ExpectRecord::Any })
            .collect();
        self.step(drops, more).await
    }

    /// Applies the mutations of a step. A refused one lost a race; a later step reads it again if
    /// it is still due. `more` says that more is due beyond these.
    async fn step(&self, mutations: Vec<Mutation>, more: bool) -> Result<StepReport> {
        if mutations.is_empty() {
            return Ok(StepReport::default());
        }
        let operation = self.new_operation_id()?;
        let outcomes = self.apply(&self.service()?, operation, mutations).await?;
        let done =
            outcomes.iter().filter(|outcome| matches!(outcome, Outcome::Applied { .. })).count() as u64;
        // Without progress, an immediate retry would only spin.
        Ok(StepReport { done, more: more && done > 0, pause_ms: 0 })
    }

    /// Returns the principal of background work: the account `admin`.
    fn service(&self) -> Result<Caller> {
        match self.registry.names().users.get(&UserId::ADMIN) {
            Some(admin) => Ok(Caller::of(admin, Lfn::root(), true)),
            None => Err(Error::new(ErrorKind::Corrupt, "the user number 0 is not in the registry")),
        }
    }
}

/// True if these are as many as one step takes, so that there may be more.
fn fills_a_step(due: &[impl Measured]) -> bool {
    due.len() >= STEP_ITEMS_MAX || due.iter().map(Measured::bytes).sum::<usize>() >= PAGE_MEMORY_MAX
}

/// True if the error concerns this item only, and not the store as a whole.
fn is_the_items(error: &Error) -> bool {
    !error.kind.is_retryable() && error.kind != ErrorKind::Internal
}
