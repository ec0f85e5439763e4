//! The history: of one name, and of everything.

use std::collections::HashMap;
use std::time::Duration;

use exacat_model::answer::ChangeInfo;
use exacat_model::codec::Encode;
use exacat_model::{
    Answer, At, Change, Cursor, DirId, Effect, EntryId, Error, ErrorKind, Lfn, Result, Revision,
    canonical_enum, canonical_struct,
};
use exacat_store::{ChangePage, Located, Place};

use crate::Catalogue;
use crate::caller::{Caller, READ};
use crate::cursor::{self, CursorOf};
use crate::registry::Names;
use crate::resolve::{Spot, check_passage};

/// Changes read from the store at once.
const READ_CHANGES: usize = 1000;

/// Whose history it is, for the pages of a log. A cursor comes from outside, so it says only where to look; whether the
/// caller may see it is judged anew for each page.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Subject {
    id: EntryId,
    /// The change that ended it, if one did: tells its last owner.
    purged: Option<Revision>,
}

canonical_struct!(Subject { id, purged });

/// Where a log goes on.
#[derive(Clone, Debug, PartialEq)]
enum Position {
    /// Nothing stands under the name now: looking for what stood there last. What was found so far for each component
    /// of the path.
    Seeking { up_to: Revision, stood: Vec<Option<EntryId>>, purged: Option<Revision> },
    /// Telling the history of this.
    Telling { up_to: Revision, subject: Subject },
}

canonical_enum!(Position {
    1 => Seeking { up_to, stood, purged },
    2 => Telling { up_to, subject },
});

impl Catalogue {
    /// The changes of the entry that stands under the name, also from before it stood there. Takes r on it. Where nothing
    /// stands now: of what stood there last, for who may still see it - where it is now if it was moved, its
    /// owner and operators if it is in the trash or was ended. An entry that came there inside a directory that was
    /// moved, and left in the same way, stood there without a change that says so: it is not found.
    pub(crate) async fn log(
        &self,
        caller: &Caller,
        lfn: &Lfn,
        cursor: &Cursor,
        limit: usize,
    ) -> Result<Answer> {
        let position = match cursor::read(CursorOf::Log, cursor)? {
            Some(position) => position,
            None => match self.spot(caller, lfn, false).await? {
                Spot::Taken(found) => {
                    let subject = Subject { id: found.entry.id(), purged: None };
                    Position::Telling { up_to: Revision(0), subject }
                }
                Spot::Vacant(_) => {
                    let stood = vec![None; lfn.depth()];
                    Position::Seeking { up_to: Revision(0), stood, purged: None }
                }
            },
        };
        match position {
            Position::Telling { up_to, subject } => self.tell(caller, lfn, up_to, subject, limit).await,
            Position::Seeking { up_to, stood, purged } => {
                // Who may not pass the directories that are there has no right to what was in them.
                self.spot(caller, lfn, false).await?;
                if stood.len() != lfn.depth() {
                    return Err(Error::invalid("the cursor is of another name: start again without"));
                }
                self.seek(caller, lfn, up_to, stood, purged).await
            }
        }
    }

    /// Follows the names of a path through a bounded part of the history: an empty page, and where to go on.
    async fn seek(
        &self,
        caller: &Caller,
        lfn: &Lfn,
        mut up_to: Revision,
        mut stood: Vec<Option<EntryId>>,
        mut purged: Option<Revision>,
    ) -> Result<Answer> {
        let names: Vec<&str> = lfn.components().collect();
        let end = self.store.revision().await?;
        let mut looks_left = self.settings.find_scan_entries.max(1);
        while looks_left > 0 && up_to < end {
            let page = self.store.changes(up_to, READ_CHANGES.min(looks_left)).await?;
            for change in &page.changes {
                follow(&names, &mut stood, &mut purged, change);
                looks_left -= 1;
            }
            if page.up_to <= up_to {
                break;
            }
            up_to = page.up_to;
        }
        if looks_left == 0 && up_to < end {
            let next = Position::Seeking { up_to, stood, purged };
            let next = Some(cursor::write(CursorOf::Log, &next));
            return Ok(Answer::Changes { items: Vec::new(), next, up_to });
        }
        let Some(id) = stood.last().copied().flatten() else {
            return Err(never_there(lfn));
        };
        let subject = Subject { id, purged };
        self.check_may_tell(caller, lfn, subject).await?;
        let next = Position::Telling { up_to: Revision(0), subject };
        let next = Some(cursor::write(CursorOf::Log, &next));
        Ok(Answer::Changes { items: Vec::new(), next, up_to: Revision(0) })
    }

    /// Where the subject is now, if the caller may see its history.
    async fn check_may_tell(&self, caller: &Caller, lfn: &Lfn, subject: Subject) -> Result<Option<Lfn>> {
        match self.store.locate(&[subject.id]).await?.pop().flatten() {
            Some(Located { entry, place: Place::Tree(stands), gates }) => {
                let open = caller.check_scope(&stands).and_then(|()| check_passage(caller, &gates, &stands));
                if open.is_err() {
                    return Err(never_there(lfn));
                }
                if !caller.has_entry(&entry, READ) {
                    return Err(Error::denied(format!("you may not read {lfn} (no r)")));
                }
                return Ok(Some(stands));
            }
            Some(Located { entry, .. }) if caller.is_operator() || caller.owns(&entry) => return Ok(None),
            Some(_) => return Err(never_there(lfn)),
            None => {}
        }
        let Some(purged) = subject.purged else { return Err(never_there(lfn)) };
        let page = self.store.changes(Revision(purged.0.saturating_sub(1)), 1).await?;
        match page.changes.first().map(|change| (change.revision, &change.effect)) {
            Some((revision, Effect::Purged { entry, .. }))
                if revision == purged
                    && entry.id() == subject.id
                    && (caller.is_operator() || caller.owns(entry)) =>
            {
                Ok(None)
            }
            _ => Err(never_there(lfn)),
        }
    }

    /// A page of the changes of one entry.
    async fn tell(
        &self,
        caller: &Caller,
        lfn: &Lfn,
        mut up_to: Revision,
        subject: Subject,
        limit: usize,
    ) -> Result<Answer> {
        let stands = self.check_may_tell(caller, lfn, subject).await?;
        let names = self.registry.names();
        let end = self.store.revision().await?;
        let mut looks_left = self.settings.find_scan_entries.max(1);
        let mut items = Vec::new();
        'pages: while looks_left > 0 && up_to < end {
            let page = self.store.changes(up_to, READ_CHANGES.min(looks_left)).await?;
            if page.up_to <= up_to {
                break;
            }
            for change in page.changes {
                up_to = change.revision;
                looks_left -= 1;
                if change.effect.entry_id() == Some(subject.id) {
                    items.push(told(&names, change, stands.clone()));
                    if items.len() == limit {
                        break 'pages;
                    }
                }
            }
            up_to = page.up_to;
        }
        let next = (up_to < end).then(|| {
            let next = Position::Telling { up_to, subject };
            cursor::write(CursorOf::Log, &next)
        });
        Ok(Answer::Changes { items, next, up_to })
    }

    /// The history from a revision on, for operators: it tells of everybody's entries.
    pub(crate) async fn changes(
        &self,
        caller: &Caller,
        after: Revision,
        under: Option<&Lfn>,
        limit: usize,
        wait: bool,
    ) -> Result<Answer> {
        caller.check_operator("reading the history of everything")?;
        let mut page = self.changes_page(after, limit).await?;
        if page.changes.is_empty() && wait {
            let wait_max = Duration::from_millis(self.settings.changes_wait_ms);
            // Without a change within the time, the empty page is the answer.
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
        let located = if ids.is_empty() { Vec::new() } else { self.store.locate(&ids).await? };
        let stands: HashMap<EntryId, Lfn> = ids
            .into_iter()
            .zip(located)
            .filter_map(|(id, located)| match located?.place {
                Place::Tree(lfn) => Some((id, lfn)),
                Place::Trash(_) => None,
            })
            .collect();
        let items = changes.into_iter().filter_map(|change| {
            let lfn = change.effect.entry_id().and_then(|id| stands.get(&id));
            let wanted = under.is_none_or(|under| lfn.is_some_and(|lfn| under.contains(lfn)));
            wanted.then(|| told(&names, change, lfn.cloned()))
        });
        let items = items.collect();
        Ok(Answer::Changes { items, next: more.then(|| Cursor(up_to.to_bytes())), up_to })
    }

    /// Waits for a change; bounded by whoever calls.
    async fn next_changes(&self, after: Revision, limit: usize) -> Result<ChangePage> {
        loop {
            self.store.changed(after).await?;
            let page = self.changes_page(after, limit).await?;
            if !page.changes.is_empty() || page.up_to > after {
                return Ok(page);
            }
            // The store may wake early; let others run before asking again.
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

fn told(names: &Names, change: Change, lfn: Option<Lfn>) -> ChangeInfo {
    let who = names.users.get(&change.who).map_or_else(String::new, |user| user.name.to_string());
    ChangeInfo { change, who, lfn }
}

fn never_there(lfn: &Lfn) -> Error {
    Error::not_found(format!("{lfn} is not there, and the history tells of nothing there that you may see"))
}

/// Keeps track of what last came to stand at each component of a path.
fn follow(names: &[&str], stood: &mut [Option<EntryId>], purged: &mut Option<Revision>, change: &Change) {
    let came: Option<(&At, EntryId)> = match &change.effect {
        Effect::Created { entry } => Some((&entry.at, entry.id())),
        Effect::Moved { id, to, .. } | Effect::Restored { id, to, .. } => Some((to, *id)),
        Effect::Committed { guid, at, created: Some(_), .. } => Some((at, EntryId::Object(*guid))),
        // It stood where it left, however it came there.
        Effect::Removed { id, at, .. } => Some((at, *id)),
        Effect::Purged { entry, .. } if stood.last() == Some(&Some(entry.id())) => {
            *purged = Some(change.revision);
            None
        }
        _ => None,
    };
    let left = match &change.effect {
        Effect::Moved { id, from, .. } => Some((from, *id)),
        _ => None,
    };
    // The root stands above the first name.
    for (at, id) in left.into_iter().chain(came) {
        for level in 0..names.len() {
            let directory = match level.checked_sub(1) {
                None => Some(DirId::ROOT),
                Some(above) => match stood[above] {
                    Some(EntryId::Directory(directory)) => Some(directory),
                    _ => None,
                },
            };
            if directory == Some(at.parent) && names[level] == at.name.as_str() {
                if level + 1 == names.len() && stood[level] != Some(id) {
                    *purged = None;
                }
                stood[level] = Some(id);
            }
        }
    }
}
