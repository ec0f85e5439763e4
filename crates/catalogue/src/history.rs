//! The history of the whole catalogue, for operators. `log` has that of one entry.

use std::collections::{BTreeSet, HashMap};
use std::time::Duration;

use exacat_activity::{RequestState, on};
use exacat_model::answer::ChangeInfo;
use exacat_model::codec::Encode;
use exacat_model::{
    Answer, Change, Cursor, DirId, Effect, EntryId, Error, ErrorKind, FieldChange, Lfn, LogPosition, Result,
    Revision,
};
use exacat_store::{ChangePage, EntryLocation, Located};

use crate::Catalogue;
use crate::caller::Caller;
use crate::registry::Names;

impl Catalogue {
    /// Returns the history after a revision, for operators, because it covers everybody's entries.
    /// Refuses a position whose revision was replaced with `conflict`.
    pub(crate) async fn changes(
        &self,
        caller: &Caller,
        after: LogPosition,
        under: Option<&Lfn>,
        limit: usize,
        wait: bool,
    ) -> Result<Answer> {
        caller.check_operator("reading the history of everything")?;
        let timelines = self.store.timelines();
        timelines.check_position(after)?;
        let after = after.revision;
        let mut page = self.changes_page(after, limit).await?;
        if page.changes.is_empty() && wait {
            let wait_max = Duration::from_millis(self.settings.changes_wait_ms);
            // Without a change in time, the answer is the empty page.
            if let Ok(came) = tokio::time::timeout(wait_max, self.next_changes(after, limit)).await {
                page = came?;
            }
        }
        let ChangePage { changes, up_to, .. } = page;
        let more = up_to < self.store.revision().await?;

        let names = self.registry.names();
        let mut ids: Vec<EntryId> = changes.iter().filter_map(|change| change.effect.entry_id()).collect();
        ids.sort_unstable();
        ids.dedup();
        let mut stands: HashMap<EntryId, Lfn> = HashMap::new();
        let stand = |id, located: Option<Located>| {
            if let Some(Located { place: EntryLocation::Tree(lfn), .. }) = located {
                stands.insert(id, lfn);
            }
        };
        self.locate_each(&ids, stand).await?;
        let items = changes.into_iter().filter_map(|change| {
            let lfn = change.effect.entry_id().and_then(|id| stands.get(&id));
            let wanted = under.is_none_or(|under| lfn.is_some_and(|lfn| under.contains(lfn)));
            wanted.then(|| told(&names, change, lfn.cloned(), Vec::new()))
        });
        let items = items.collect();
        let resumes = LogPosition { revision: up_to, timeline: Some(timelines.current().whole()) };
        let next = more.then(|| Cursor(resumes.to_bytes()));
        Ok(Answer::Changes { items, next, up_to, timeline: timelines.current(), cut: false })
    }

    /// Checks a position in the history and returns the history's end, for any caller. A client
    /// that wrote keeps the answer to find out later whether a restore undid its change.
    pub(crate) async fn position(&self, after: LogPosition) -> Result<Answer> {
        let timelines = self.store.timelines();
        timelines.check_position(after)?;
        let up_to = self.store.revision().await?;
        let timeline = timelines.current();
        Ok(Answer::Changes { items: Vec::new(), next: None, up_to, timeline, cut: false })
    }

    /// Waits for a change. The caller bounds the time.
    async fn next_changes(&self, after: Revision, limit: usize) -> Result<ChangePage> {
        loop {
            on(RequestState::Change, self.store.changed(after)).await?;
            let page = self.changes_page(after, limit).await?;
            if !page.changes.is_empty() || page.up_to > after {
                return Ok(page);
            }
            // The store may wake early; let others run before reading again.
            tokio::task::yield_now().await;
        }
    }

    async fn changes_page(&self, after: Revision, limit: usize) -> Result<ChangePage> {
        let page = self.store.changes(after, limit).await?;
        if after.0.saturating_add(1) < page.oldest.0 {
            let oldest = page.oldest.0;
            return Err(Error::new(
                ErrorKind::NotFound,
                format!("changes before {oldest} are not kept any more: start from a copy of the catalogue"),
            ));
        }
        Ok(page)
    }
}

/// Describes a change with names in place of numbers.
pub(crate) fn told(
    names: &Names,
    change: Change,
    lfn: Option<Lfn>,
    directories: Vec<(DirId, Lfn)>,
) -> ChangeInfo {
    let who = names.users.get(&change.who).map_or_else(String::new, |user| user.name.to_string());
    let (mut users, mut groups) = (BTreeSet::new(), BTreeSet::new());
    match &change.effect {
        Effect::Created { entry } | Effect::Purged { entry, .. } => {
            users.insert(entry.owner);
            groups.insert(entry.group);
        }
        Effect::Updated { fields, .. } => {
            for field in fields {
                match field {
                    FieldChange::Owner { before, after } => users.extend([*before, *after]),
                    FieldChange::Group { before, after } => groups.extend([*before, *after]),
                    _ => {}
                }
            }
        }
        _ => {}
    }
    let users = users.into_iter().map(|id| (id, names.user_name(id).to_string())).collect();
    let groups = groups.into_iter().map(|id| (id, names.group_name(id).to_string())).collect();
    ChangeInfo { change, who, lfn, users, groups, directories }
}
