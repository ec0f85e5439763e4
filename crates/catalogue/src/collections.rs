//! Collections: named sets of files; and the files inside an archive.

use exacat_model::Effect;
use exacat_model::answer::Member;
use exacat_model::limits::{EDITS_PER_UPDATE_MAX, TAGS_PER_ENTRY_MAX};
use exacat_model::{
    Answer, Body, Cursor, Edit, Entry, EntryId, Error, ErrorKind, FieldChange, FileRef, Guid, Lfn, Mode,
    Mutation, NewBody, NewEntry, OperationId, Result, Revision, Tag,
};
use exacat_store::{EntryLocation, Located, Outcome, PageInProgress, Refusal};

use crate::Catalogue;
use crate::attributes::{check_writable, file_of};
use crate::caller::{Caller, READ};
use crate::cursor::{self, CursorOf};
use crate::directories::vacant;
use crate::listing::stat_of;
use crate::resolve::{Resolved, check_parent_writable, check_passage};
use crate::tags::check_distinct;

/// Most attempts at an edit, if a file is purged while it is added.
const ATTEMPTS_MAX: usize = 3;
/// Members of a page that are located together.
const MEMBERS_LOCATED: usize = 1000;

impl Catalogue {
    /// Creates an empty collection, mode 644. Takes w and x on its directory.
    pub(crate) async fn collection_create(
        &self,
        caller: &Caller,
        id: OperationId,
        lfn: Lfn,
        mut tags: Vec<Tag>,
    ) -> Result<Answer> {
        if tags.len() > TAGS_PER_ENTRY_MAX {
            return Err(Error::limit("the number of tags of an entry", tags.len(), TAGS_PER_ENTRY_MAX));
        }
        check_distinct(tags.iter().map(|tag| &tag.key))?;
        for tag in &tags {
            tag.value.check()?;
        }
        tags.sort_by(|a, b| a.key.cmp(&b.key));
        let planned = self.plan_collection(caller, &lfn, tags).await;
        let outcome = self.apply_planned(caller, id, &lfn, planned).await?;
        Ok(Answer::Done { revision: self.revision_of(&outcome).await? })
    }

    async fn plan_collection(&self, caller: &Caller, lfn: &Lfn, tags: Vec<Tag>) -> Result<Mutation> {
        let (vacancy, at) = vacant(self.spot(caller, lfn, false).await?, lfn)?;
        check_parent_writable(caller, vacancy.ancestors.last(), lfn)?;
        Ok(Mutation::Create(Box::new(NewEntry {
            at,
            owner: caller.acting_user(),
            group: caller.group(),
            mode: Mode::FILE,
            created: None,
            modified: None,
            expires: None,
            tags,
            body: NewBody::Collection { guid: self.new_guid()? },
        })))
    }

    /// Adds and removes members. Takes w on the collection, and r on each added file. A file that
    /// is missing or unreadable gets a refusal of its own; one change applies all others. Adding a
    /// member again or removing a non-member changes nothing, is no error, and does not count.
    pub(crate) async fn collection_edit(
        &self,
        caller: &Caller,
        id: OperationId,
        lfn: &Lfn,
        add: &[FileRef],
        remove: &[FileRef],
    ) -> Result<Answer> {
        let asked = add.len() + remove.len();
        if asked > EDITS_PER_UPDATE_MAX {
            return Err(Error::limit("the number of files in one request", asked, EDITS_PER_UPDATE_MAX));
        }
        for _ in 0..ATTEMPTS_MAX {
            let mut refused = Vec::new();
            let planned = self.plan_members(caller, lfn, add, remove, &mut refused).await;
            let outcome = match planned {
                // The store refuses the whole change if a file is purged between the read and the
                // commit. The next read refuses just that file.
                Ok(mutation) => match self.apply(caller, id, vec![mutation]).await?.pop() {
                    Some(Outcome::Refused(Refusal::NotFound)) => continue,
                    Some(Outcome::Refused(refusal)) => return Err(crate::repeat::refused(lfn, refusal)),
                    Some(outcome) => outcome,
                    None => return Err(Error::new(ErrorKind::Internal, "the store gave no outcome")),
                },
                Err(error) => self.apply_planned(caller, id, lfn, Err(error)).await?,
            };
            let (added, removed) = match outcome {
                Outcome::Applied { revision, .. } => self.count_members(revision).await?,
                _ => (0, 0),
            };
            return Ok(Answer::CollectionEdited { added, removed, refused });
        }
        Err(Error::new(
            ErrorKind::Conflict,
            format!("{lfn}: files went away while they were added: try again"),
        ))
    }

    async fn plan_members(
        &self,
        caller: &Caller,
        lfn: &Lfn,
        add: &[FileRef],
        remove: &[FileRef],
        refused: &mut Vec<(FileRef, Error)>,
    ) -> Result<Mutation> {
        let Resolved { lfn: found, entry, .. } = self.resolve(caller, lfn, true).await?;
        check_collection(&entry, &found)?;
        check_writable(caller, &entry, &found)?;
        let mut edits = Vec::with_capacity(add.len() + remove.len());
        let files = self.resolve_files(caller, add).await?;
        for (file, resolved) in add.iter().zip(files) {
            let admitted = resolved.and_then(|Resolved { lfn, entry, .. }| {
                let guid = file_of(&entry, &lfn)?.guid;
                match caller.has_entry(&entry, READ) {
                    true => Ok(guid),
                    false => Err(Error::denied(format!("you may not read {lfn} (no r)"))),
                }
            });
            match admitted {
                Ok(guid) => edits.push(Edit::AddMember(guid)),
                Err(error) => refused.push((file.clone(), error)),
            }
        }
        // A file that is gone can still be removed by its GUID.
        let paths: Vec<Lfn> = remove.iter().filter_map(FileRef::lfn).cloned().collect();
        let mut resolved = self.resolve_all(caller, &paths, true).await?.into_iter();
        for file in remove {
            let guid = match file {
                FileRef::Guid(guid) => Ok(*guid),
                FileRef::Lfn(lfn) => match resolved.next() {
                    Some(Ok(resolved)) => file_of(&resolved.entry, lfn).map(|file| file.guid),
                    Some(Err(error)) => Err(error),
                    None => Err(Error::new(ErrorKind::Internal, "the store gave too few answers")),
                },
            };
            match guid {
                Ok(guid) => edits.push(Edit::RemoveMember(guid)),
                Err(error) => refused.push((file.clone(), error)),
            }
        }
        let expect = caller.expect(entry.id());
        Ok(Mutation::Update { at: entry.at, expect, edits })
    }

    /// Counts the members that a change added and removed.
    async fn count_members(&self, revision: Revision) -> Result<(u64, u64)> {
        let page = self.store.changes(Revision(revision.0.saturating_sub(1)), 1).await?;
        let (mut came, mut went) = (0, 0);
        for change in page.changes.iter().filter(|change| change.revision == revision) {
            let Effect::Updated { fields, .. } = &change.effect else { continue };
            for field in fields {
                match field {
                    FieldChange::Member { added: true, .. } => came += 1,
                    FieldChange::Member { added: false, .. } => went += 1,
                    _ => {}
                }
            }
        }
        Ok((came, went))
    }

    /// Lists the members. Takes r on the collection. Members that the caller may not find appear by
    /// GUID alone.
    pub(crate) async fn collection_members(
        &self,
        caller: &Caller,
        lfn: &Lfn,
        cursor: &Cursor,
        limit: usize,
    ) -> Result<Answer> {
        let after: Option<Guid> = cursor::read(CursorOf::CollectionMembers, cursor)?;
        let Resolved { lfn: found, entry, .. } = self.resolve(caller, lfn, true).await?;
        let guid = check_collection(&entry, &found)?;
        if !caller.has_entry(&entry, READ) {
            return Err(Error::denied(format!("you may not read {found} (no r)")));
        }
        let gone = || Error::not_found(format!("{found} is not there any more"));
        let page = self.store.members(guid, after, limit).await?.ok_or_else(gone)?;
        let names = self.registry.names();
        let describe = |guid, located: Option<Located>| {
            let stat = match located {
                Some(Located { entry, place: EntryLocation::Tree(lfn), ancestors })
                    if caller
                        .check_scope(&lfn)
                        .and_then(|()| check_passage(caller, &ancestors, &lfn))
                        .is_ok() =>
                {
                    Some(stat_of(&names, caller, lfn, entry))
                }
                _ => None,
            };
            Member { guid, stat }
        };
        // The page ends early if the members' entries have many bytes.
        let mut items = PageInProgress::new(limit, page.items.len());
        for guids in page.items.chunks(MEMBERS_LOCATED) {
            let ids: Vec<EntryId> = guids.iter().map(|guid| EntryId::Object(*guid)).collect();
            let take = |id: EntryId, located| {
                if let Some(guid) = id.object().filter(|_| !items.is_full()) {
                    items.push(describe(guid, located));
                }
            };
            self.locate_each(&ids, take).await?;
            if items.is_full() {
                break;
            }
        }
        let more = page.more || items.items().len() < page.items.len();
        let next = items.items().last().filter(|_| more);
        let next = next.map(|member| cursor::write(CursorOf::CollectionMembers, &member.guid));
        Ok(Answer::Members { items: items.end(more).items, next })
    }

    /// Lists the files below `under` that are registered as members of an archive. Takes r on the
    /// archive.
    pub(crate) async fn archive_members(
        &self,
        caller: &Caller,
        archive: &FileRef,
        under: &Lfn,
        cursor: &Cursor,
        limit: usize,
    ) -> Result<Answer> {
        let found = self.resolve_files(caller, std::slice::from_ref(archive)).await?.pop();
        let Some(found) = found else {
            return Err(Error::new(ErrorKind::Internal, "the store gave too few answers"));
        };
        let Resolved { lfn, entry, .. } = found?;
        let guid = file_of(&entry, &lfn)?.guid;
        if !caller.has_entry(&entry, READ) {
            return Err(Error::denied(format!("you may not read {lfn} (no r)")));
        }
        self.members_of_archive(caller, guid, under, cursor, limit).await
    }
}

/// Returns the cursor of a collection's members at a file: the first member after it is the file, if that is
/// one.
pub fn members_from(guid: Guid) -> Cursor {
    match u128::from_be_bytes(guid.0).checked_sub(1) {
        Some(before) => cursor::write(CursorOf::CollectionMembers, &Guid(before.to_be_bytes())),
        None => Cursor::default(),
    }
}

/// Returns the GUID of a collection, and refuses other entries.
fn check_collection(entry: &Entry, lfn: &Lfn) -> Result<Guid> {
    match &entry.body {
        Body::Collection { guid, .. } => Ok(*guid),
        _ => Err(Error::invalid(format!("{lfn} is a {}, not a collection", entry.kind().name()))),
    }
}
