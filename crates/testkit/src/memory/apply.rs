//! Applies a change to the state by the rules of the reference ([`super::rules`]).

use exacat_model::{Change, Error, ErrorKind, Result};
use exacat_store::Outcome;
use exacat_store::rules::changes_credentials;

use super::rules;
use super::state::State;

fn corrupt(change: &Change, what: &str) -> Error {
    Error::new(
        ErrorKind::Corrupt,
        format!("change {} ({}) does not follow: {what}", change.revision.0, change.effect.name()),
    )
}

/// Applies a change. Refuses a change that does not fit the state as corrupt, because no history
/// contains it.
pub(super) fn apply(state: &mut State, change: Change) -> Result<()> {
    if change.revision.0 != state.revision.0 + 1 {
        return Err(corrupt(&change, "it is not the next"));
    }
    if change.time < state.time {
        return Err(corrupt(&change, "its time is before the last one's"));
    }
    rules::perform(state, &change).ok_or_else(|| corrupt(&change, "what it names is not as it was"))?;
    state.revision = change.revision;
    state.time = change.time;
    state.credentials += u64::from(changes_credentials(&change.effect));
    let outcome = Outcome::Applied { revision: change.revision, id: change.effect.entry_id() };
    state.remember(change.operation, change.index, outcome);
    state.changes.push(change);
    Ok(())
}
