//! Tags: set on entries, in force for everything below.

use std::collections::{HashMap, HashSet};

use exacat_model::answer::TagInForce;
use exacat_model::limits::TAGS_PER_ENTRY_MAX;
use exacat_model::{Answer, DirId, Edit, EntryId, Error, Lfn, Mutation, OperationId, Result, Tag, TagKey};
use exacat_store::{Located, ReadBytes};

use crate::Catalogue;
use crate::attributes::check_writable;
use crate::caller::Caller;
use crate::repeat::{MUTATION_BYTES, check_bytes};
use crate::resolve::Resolved;

impl Catalogue {
    /// Sets and removes tags of entries, following links: for each entry all or none. Takes w on
    /// the entry.
    pub(crate) async fn tag_set(
        &self,
        caller: &Caller,
        id: OperationId,
        lfns: &[Lfn],
        set: &[Tag],
        unset: &[TagKey],
    ) -> Result<Answer> {
        for count in [set.len(), unset.len()] {
            if count > TAGS_PER_ENTRY_MAX {
                return Err(Error::limit("the number of tags in one request", count, TAGS_PER_ENTRY_MAX));
            }
        }
        let keys = set.iter().map(|tag| &tag.key).chain(unset);
        check_distinct(keys)?;
        let mut bytes = MUTATION_BYTES;
        for tag in set {
            tag.value.check()?;
            bytes += exacat_model::codec::Encode::to_bytes(tag).len() + 2;
        }
        bytes += unset.iter().map(|key| key.as_str().len() + 4).sum::<usize>();
        check_bytes(lfns.len(), bytes)?;
        // Remove first, so that the limit of tags applies to the result.
        let (unset, set) = (unset.iter().cloned(), set.iter().cloned());
        let edits: Vec<Edit> = unset.map(Edit::UnsetTag).chain(set.map(Edit::SetTag)).collect();

        let found = self.resolve_all(caller, lfns, true).await?;
        let items = found.into_iter().map(|resolved| {
            let Resolved { lfn, entry, .. } = resolved?;
            check_writable(caller, &entry, &lfn)?;
            let expect = caller.expect(entry.id());
            Ok(Mutation::Update { at: entry.at, expect, edits: edits.clone() })
        });
        let done = self.apply_each_done(caller, id, items, bytes, |index| lfns[index].clone()).await?;
        Ok(Answer::EachDone(done))
    }

    /// Returns the tags in force for entries, following links, by key, with the path of the entry
    /// that has each. The nearest tag counts. A caller who may find an entry may see its tags, like
    /// everything except where its bytes are.
    pub(crate) async fn tag_get(&self, caller: &Caller, lfns: &[Lfn], own: bool) -> Result<Answer> {
        let found = self.resolve_all(caller, lfns, true).await?;
        let mut above: HashMap<DirId, Vec<Tag>> = HashMap::new();
        if !own {
            let ancestors =
                found.iter().flatten().flat_map(|resolved| &resolved.ancestors).map(|ancestor| ancestor.id);
            let distinct: HashSet<DirId> = ancestors.collect();
            let ids: Vec<EntryId> = distinct.into_iter().map(EntryId::Directory).collect();
            let (mut bytes, mut within) = (ReadBytes::default(), Ok(()));
            let take = |id, found: Option<Located>| {
                let (EntryId::Directory(id), Some(Located { entry, .. })) = (id, found) else { return };
                if !entry.tags.is_empty() && within.is_ok() {
                    within = bytes.add(Some(&entry));
                    above.insert(id, entry.tags);
                }
            };
            self.locate_each(&ids, take).await?;
            within?;
        }
        // Every entry below a directory shows the directory's tags again.
        let mut bytes = ReadBytes::default();
        let mut answers = Vec::with_capacity(found.len());
        for resolved in found {
            let Resolved { lfn, entry, ancestors } = match resolved {
                Ok(resolved) => resolved,
                Err(error) => {
                    answers.push(Err(error));
                    continue;
                }
            };
            let mut in_force: Vec<TagInForce> =
                entry.tags.into_iter().map(|tag| TagInForce { tag, from: lfn.clone() }).collect();
            for (depth, ancestor) in ancestors.iter().enumerate().rev() {
                let Some(tags) = above.get(&ancestor.id) else { continue };
                let from = Lfn::from_names(lfn.components().take(depth));
                for tag in tags {
                    if !in_force.iter().any(|known| known.tag.key == tag.key) {
                        in_force.push(TagInForce { tag: tag.clone(), from: from.clone() });
                    }
                }
            }
            in_force.sort_by(|a, b| a.tag.key.cmp(&b.tag.key));
            in_force.iter().try_for_each(|one| bytes.add(Some(one)))?;
            answers.push(Ok(in_force));
        }
        Ok(Answer::Tags(answers))
    }
}

/// Refuses a repeated key, because its meaning is ambiguous.
pub(crate) fn check_distinct<'a>(keys: impl Iterator<Item = &'a TagKey>) -> Result<()> {
    let mut seen = HashSet::new();
    for key in keys {
        if !seen.insert(key) {
            return Err(Error::invalid(format!("the tag {key} is given twice")));
        }
    }
    Ok(())
}
