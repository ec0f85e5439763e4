//! Repeated operations: the same id gives the same outcomes, also for several mutations.
//!
//! The store remembers outcomes by operation id and position in the request (clause A6), whatever
//! stands at that position the second time. So an operation derives the position of each mutation
//! from itself alone, never from the catalogue's state. Sometimes the state forbids a mutation: the
//! source of a move is gone, because the first request moved it. Then [`nothing`] takes the
//! position. The store refuses it if the operation is new, and returns the first outcome if it is
//! not.
//!
//! Each request carries the operation's fingerprint ([`fingerprint`]). A repeated id with another
//! operation, or from another user, is a conflict. The fingerprint covers the operation rather than
//! its mutations, which depend on the state of the catalogue.

use std::cell::RefCell;
use std::fmt::Display;

use exacat_model::codec::Encode;
use exacat_model::limits::{BATCH_MUTATIONS_MAX, OPERATION_AGE_MAX_MS, OPERATION_AHEAD_MAX_MS};
use exacat_model::{
    At, Cursor, DirId, EntryId, Error, ErrorKind, Expect, Fingerprint, Mutation, Name, Operation,
    OperationId, Result, Revision, TimeMs,
};
use exacat_store::{Outcome, Refusal};
use xxhash_rust::xxh3::xxh3_64_with_seed;

use crate::caller::Caller;
use crate::{Catalogue, step_id};

/// Most encoded bytes of one part of a long operation. Well below the store's limit, because the
/// sizes of mutations are estimates.
const PART_BYTES_MAX: usize = 4 << 20;

/// Most encoded bytes of all mutations of one operation. Bounds the writes that a short request can
/// cause.
const OPERATION_BYTES_MAX: usize = 64 << 20;

/// Generous limit in bytes for a mutation of one name without lists or texts.
pub(crate) const MUTATION_BYTES: usize = 400;

/// Distinguishes the parts of a long operation from its steps.
const PARTS: u64 = 1 << 32;

/// Returns a mutation that holds a position. Every store refuses it, because no directory has
/// number 0.
pub(crate) fn nothing() -> Mutation {
    Mutation::Update {
        at: At { parent: DirId(0), name: Name::root() },
        expect: Expect::ANY,
        edits: Vec::new(),
    }
}

/// Refuses an id ahead of the clock, or too old for a store to know whether it was applied.
pub(crate) fn check_id(id: OperationId, now: TimeMs) -> Result<()> {
    let made = id.made();
    if now.0.saturating_sub(made.0) > OPERATION_AGE_MAX_MS {
        return Err(Error::new(
            ErrorKind::Unknown,
            format!(
                "operation id {id:?} is too old: it was made at {made}, more than {} minutes before the \
                 server's time {now}; check the entries of the request, and send the rest under a new id",
                OPERATION_AGE_MAX_MS / 60_000
            ),
        ));
    }
    if made.0.saturating_sub(now.0) > OPERATION_AHEAD_MAX_MS {
        return Err(Error::invalid(format!(
            "operation id {id:?} says it was made at {made}, more than {} s after the server's time {now}: nothing was \
             done; an id begins with 48 bits of milliseconds since 1970 by the server's clock, which the handshake tells",
            OPERATION_AHEAD_MAX_MS / 1000
        )));
    }
    Ok(())
}

/// Returns the fingerprint of this caller's operation. All pages of one operation share it.
pub fn fingerprint(caller: &Caller, operation: &Operation) -> Fingerprint {
    /// Buffer capacity kept for the next call; most operations fit.
    const KEPT_BYTES: usize = 64 << 10;
    thread_local! {
        static ROOM: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
    }
    ROOM.with_borrow_mut(|room| {
        match operation.has_pages().then(|| operation.resumed(Cursor::default())).flatten() {
            Some(first) => first.encode(room),
            None => operation.encode(room),
        }
        let hash = xxh3_64_with_seed(room, u64::from(caller.acting_user().0));
        room.clear();
        room.shrink_to(KEPT_BYTES);
        Fingerprint::of_hash(hash)
    })
}

/// Refuses an operation that repeats one long item for too many entries.
pub(crate) fn check_bytes(items: usize, bytes_each: usize) -> Result<()> {
    match items.saturating_mul(bytes_each) {
        bytes if bytes > OPERATION_BYTES_MAX => Err(Error::limit(
            "the size of one request, in bytes written over all its entries,",
            bytes,
            OPERATION_BYTES_MAX,
        )),
        _ => Ok(()),
    }
}

/// Returns a refusal as an error about `what`.
pub(crate) fn refused(what: impl Display, refusal: Refusal) -> Error {
    Error::new(refusal.kind(), format!("{what}: {refusal}"))
}

impl Catalogue {
    /// Returns the first outcome of the operation, if it was applied before and is remembered.
    pub(crate) async fn recall(
        &self,
        caller: &Caller,
        operation: OperationId,
    ) -> Result<Option<(Revision, Option<EntryId>)>> {
        match self.apply(caller, operation, vec![nothing()]).await?.pop() {
            Some(Outcome::Applied { revision, id }) => Ok(Some((revision, id))),
            _ => Ok(None),
        }
    }

    /// Applies the one mutation of an operation. If planning failed, returns that error, unless the
    /// operation was applied before: then its first outcome.
    pub(crate) async fn apply_planned(
        &self,
        caller: &Caller,
        operation: OperationId,
        what: impl Display + Send,
        planned: Result<Mutation>,
    ) -> Result<Outcome> {
        let error = match planned {
            Ok(mutation) => {
                return match self.apply(caller, operation, vec![mutation]).await?.pop() {
                    Some(Outcome::Refused(refusal)) => Err(refused(what, refusal)),
                    Some(outcome) => Ok(outcome),
                    None => Err(Error::new(ErrorKind::Internal, "the store gave no outcome")),
                };
            }
            Err(error) => error,
        };
        if error.kind.is_retryable() {
            return Err(error);
        }
        match self.recall(caller, operation).await? {
            Some((revision, id)) => Ok(Outcome::Applied { revision, id }),
            None => Err(error),
        }
    }

    /// Applies one mutation per item. An item without a mutation gets its error, unless it was
    /// applied before. `bytes_each` is the most that one encoded mutation takes. It must follow
    /// from the operation alone, because it decides how a long list is split into requests. The
    /// function makes mutations one request at a time, so that copies of a large one do not fill
    /// memory.
    pub(crate) async fn apply_each(
        &self,
        caller: &Caller,
        operation: OperationId,
        items: impl IntoIterator<Item = Result<Mutation>, IntoIter: Send>,
        bytes_each: usize,
    ) -> Result<Vec<Result<Outcome>>> {
        let part_items = (PART_BYTES_MAX / bytes_each.max(1)).clamp(1, BATCH_MUTATIONS_MAX);
        let mut results = Vec::new();
        let mut items = items.into_iter();
        let mut part = 0;
        loop {
            let mut errors = Vec::new();
            let mut mutations = Vec::new();
            for item in items.by_ref().take(part_items) {
                let (mutation, error) = match item {
                    Ok(mutation) => (mutation, None),
                    // Hold the position: a repeat must find each mutation where it was.
                    Err(error) => (nothing(), Some(error)),
                };
                mutations.push(mutation);
                errors.push(error);
            }
            if mutations.is_empty() {
                return Ok(results);
            }
            let id = if part == 0 { operation } else { step_id(operation, PARTS + part) };
            let outcomes = self.apply(caller, id, mutations).await?;
            results.extend(outcomes.into_iter().zip(errors).map(|(outcome, error)| match (outcome, error) {
                // Applied despite an error: a repeat, with its first outcome.
                (outcome @ Outcome::Applied { .. }, _) | (outcome, None) => Ok(outcome),
                (_, Some(error)) => Err(error),
            }));
            part += 1;
        }
    }

    /// Applies one mutation per item like [`Catalogue::apply_each`], and reports only success or
    /// error. `what` names the item at a position.
    pub(crate) async fn apply_each_done<D: Display>(
        &self,
        caller: &Caller,
        operation: OperationId,
        items: impl IntoIterator<Item = Result<Mutation>, IntoIter: Send> + Send,
        bytes_each: usize,
        what: impl Fn(usize) -> D + Send,
    ) -> Result<Vec<Result<()>>> {
        let outcomes = self.apply_each(caller, operation, items, bytes_each).await?;
        let done = outcomes.into_iter().enumerate().map(|(position, outcome)| match outcome? {
            Outcome::Refused(refusal) => Err(refused(what(position), refusal)),
            Outcome::Applied { .. } | Outcome::Unchanged => Ok(()),
        });
        Ok(done.collect())
    }
}
