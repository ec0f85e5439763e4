//! Changes of an older release: they do not name their predecessor, so each page reads a bounded
//! part of the log for them.

use exacat_model::{Answer, At, Change, DirId, Effect, EntryId, Lfn, Result, Revision};
use exacat_store::PageInProgress;

use super::position::{Chain, Position, READ_CHANGES, Stood, Subject, never_there};
use crate::Catalogue;
use crate::caller::Caller;

impl Catalogue {
    /// Follows the names of a path through a bounded part of the log. Returns an empty page and the
    /// next position.
    pub(super) async fn seek(
        &self,
        caller: &Caller,
        (asked, lfn): (&Lfn, &Lfn),
        mut up_to: Revision,
        until: Revision,
        mut stood: Stood,
    ) -> Result<Answer> {
        let names: Vec<&str> = lfn.components().collect();
        if stood.ids.len() != names.len() {
            return Err(exacat_model::Error::invalid("the cursor is of another name: start again without"));
        }
        let mut reads_left = self.settings.find_scan_entries.max(1);
        while reads_left > 0 && up_to < until {
            let page = self.store.changes(up_to, READ_CHANGES.min(reads_left)).await?;
            for change in &page.changes {
                follow(&names, &mut stood, change);
                reads_left = reads_left.saturating_sub(1);
            }
            if page.up_to <= up_to {
                break;
            }
            up_to = page.up_to;
        }
        if reads_left == 0 && up_to < until {
            let next = Position::Seeking { up_to, until, stood };
            return Ok(self.log_page(Vec::new(), Some(next), up_to, false));
        }
        let Some(id) = stood.ids.last().copied().flatten() else { return Err(never_there(asked)) };
        let subject = Subject { id, purged: stood.purged };
        let last = match subject.purged {
            Some(purged) => Some(purged),
            None => {
                let located = self.store.locate(&[id]).await?.pop().flatten();
                located.map(|found| found.entry.revision)
            }
        };
        let Some(last) = last else { return Err(never_there(asked)) };
        self.check_may_tell(caller, asked, subject).await?;
        let next = Position::at_last(subject, last);
        Ok(self.log_page(Vec::new(), Some(next), Revision(0), false))
    }

    /// Returns a page of the entry's changes up to `until`, found by reading all changes; then the
    /// chain.
    pub(super) async fn tell_older(
        &self,
        caller: &Caller,
        lfn: &Lfn,
        (subject, mut up_to, until, chain): (Subject, Revision, Revision, Chain),
        limit: usize,
    ) -> Result<Answer> {
        let stands = self.check_may_tell(caller, lfn, subject).await?;
        let mut reads_left = self.settings.find_scan_entries.max(1);
        let (mut changes, begins, mut cut) = (PageInProgress::new(limit, 0), up_to == Revision(0), false);
        'pages: while reads_left > 0 && up_to < until {
            let page = self.store.changes(up_to, READ_CHANGES.min(reads_left)).await?;
            if page.up_to <= up_to {
                break;
            }
            cut |= begins && page.oldest > Revision(1);
            for change in page.changes {
                if change.revision > until {
                    break;
                }
                up_to = change.revision;
                reads_left = reads_left.saturating_sub(1);
                if change.effect.changed_entry() == Some(subject.id) {
                    changes.push(change);
                    if changes.is_full() {
                        break 'pages;
                    }
                }
            }
            up_to = page.up_to.min(until);
        }
        let items = self.shown(caller, stands, changes.end(true).items).await?;
        let next = if up_to < until {
            Position::Older { subject, up_to, until, chain }
        } else {
            Position::Telling { subject, after: Revision(0), chain }
        };
        Ok(self.log_page(items, Some(next), up_to, cut))
    }
}

/// Tracks the entries that last took the name of each component of a path.
fn follow(names: &[&str], stood: &mut Stood, change: &Change) {
    let Stood { ids, purged } = stood;
    let came: Option<(&At, EntryId)> = match &change.effect {
        Effect::Created { entry } => Some((&entry.at, entry.id())),
        Effect::Moved { id, to, .. } | Effect::Restored { id, to, .. } => Some((to, *id)),
        Effect::Committed { guid, at, created: Some(_), .. } => Some((at, EntryId::Object(*guid))),
        // The entry stood where it left, however it came there.
        Effect::Removed { id, at, .. } => Some((at, *id)),
        Effect::Purged { entry, .. } if ids.last() == Some(&Some(entry.id())) => {
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
                Some(above) => match ids[above] {
                    Some(EntryId::Directory(directory)) => Some(directory),
                    _ => None,
                },
            };
            if directory == Some(at.parent) && names[level] == at.name.as_str() {
                if level + 1 == names.len() && ids[level] != Some(id) {
                    *purged = None;
                }
                ids[level] = Some(id);
            }
        }
    }
}
