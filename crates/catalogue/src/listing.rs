//! Lookups and listings: entries by path, children of a directory, paths of GUIDs, usage of
//! entries.

use std::collections::BTreeSet;

use exacat_model::answer::Stat;
use exacat_model::limits::{PAGE_MEMORY_MAX, READ_BATCH_MAX};
use exacat_model::{Answer, Body, Cursor, Entry, Error, ErrorKind, Guid, Lfn, Name, Replica, Result, Usage};
use exacat_store::{ResolutionEnd, UsageOf};

use crate::Catalogue;
use crate::caller::{Caller, PASS, READ};
use crate::cursor::{self, CursorOf};
use crate::registry::Names;
use crate::resolve::{Resolved, check_passage};

/// Describes an entry for `caller`. Shows replicas only to a caller who may read the file.
pub(crate) fn stat_of(names: &Names, caller: &Caller, lfn: Lfn, mut entry: Entry) -> Stat {
    if let Body::File(file) = &mut entry.body
        && !file.replicas.is_empty()
        && !caller.has(entry.owner, entry.group, entry.mode, READ)
    {
        file.replicas = Vec::new();
    }
    Stat { lfn, owner: names.user_name(entry.owner), group: names.group_name(entry.group), entry }
}

/// Makes a page of entries, with the names of the storage elements in it.
pub(crate) fn entries(names: &Names, items: Vec<Stat>, next: Option<Cursor>) -> Answer {
    let files = items.iter().filter_map(|stat| stat.entry.file());
    let mut numbers = BTreeSet::new();
    let mut before: &[Replica] = &[];
    for file in files {
        // Files of one directory are mostly on the same storage elements.
        let same = file.replicas.iter().map(|replica| replica.se).eq(before.iter().map(|replica| replica.se));
        if !same {
            numbers.extend(file.replicas.iter().map(|replica| replica.se));
            before = &file.replicas;
        }
    }
    let named = numbers.into_iter().filter_map(|number| names.ses.get(&number));
    let ses = named.map(|se| (se.number.0, se.name.clone())).collect();
    Answer::Entries { items, ses, next }
}

/// Refuses a caller who may not list a directory. As in `ls -l`, r gives the names of the children
/// and x their metadata.
pub(crate) fn check_listable(caller: &Caller, directory: &Entry, lfn: &Lfn) -> Result<()> {
    if caller.has_entry(directory, READ | PASS) {
        return Ok(());
    }
    Err(Error::denied(format!("you may not list {lfn} (no r or no x)")))
}

impl Catalogue {
    pub(crate) async fn stat(&self, caller: &Caller, lfns: Vec<Lfn>, follow: bool) -> Result<Answer> {
        if lfns.len() > READ_BATCH_MAX {
            return Err(Error::limit("the number of paths in one request", lfns.len(), READ_BATCH_MAX));
        }
        let resolutions = self.store.resolve(&lfns).await?;
        let names = self.names_seen().await?;
        let mut stats = Vec::with_capacity(lfns.len());
        for (lfn, resolution) in lfns.into_iter().zip(resolutions) {
            // As in POSIX, a slash behind a link means the directory that it leads to.
            let slash = lfn.must_be_directory();
            let follow = follow || slash;
            stats.push(match resolution.end {
                ResolutionEnd::Found(entry)
                    if !slash && (!follow || !matches!(entry.body, Body::Link { .. })) =>
                {
                    caller
                        .check_scope(&lfn)
                        .and_then(|()| check_passage(caller, &resolution.ancestors, &lfn))
                        .map(|()| stat_of(&names, caller, lfn, *entry))
                }
                _ => self
                    .resolve_from(caller, lfn, resolution, follow)
                    .await
                    .map(|resolved| stat_of(&names, caller, resolved.lfn, resolved.entry)),
            });
        }
        Ok(Answer::Stats(stats))
    }

    pub(crate) async fn lfns(&self, caller: &Caller, guids: &[Guid]) -> Result<Answer> {
        let found = self.resolve_guids(caller, guids).await?;
        Ok(Answer::Lfns(found.into_iter().map(|resolved| resolved.map(|resolved| resolved.lfn)).collect()))
    }

    /// Lists a directory, also through a link. Any other link, even a dangling one, is listed
    /// itself.
    pub(crate) async fn list(
        &self,
        caller: &Caller,
        lfn: &Lfn,
        cursor: &Cursor,
        limit: usize,
    ) -> Result<Answer> {
        let after: Option<Name> = cursor::read(CursorOf::List, cursor)?;
        let mut resolved = self.resolve(caller, lfn, lfn.must_be_directory()).await?;
        let names = self.names_seen().await?;
        if matches!(resolved.entry.body, Body::Link { .. })
            && let Ok(target) = self.resolve(caller, lfn, true).await
            && target.entry.directory().is_some()
        {
            resolved = target;
        }
        let Some(directory) = resolved.entry.directory() else {
            if after.is_some() {
                return Err(Error::new(ErrorKind::NotDirectory, format!("{lfn} is no directory any more")));
            }
            let Resolved { lfn, entry, .. } = resolved;
            return Ok(entries(&names, vec![stat_of(&names, caller, lfn, entry)], None));
        };
        check_listable(caller, &resolved.entry, lfn)?;
        // Each item repeats the directory's path.
        let limit = limit.min(PAGE_MEMORY_MAX / resolved.lfn.as_str().len());
        let page = self
            .store
            .list(directory, after.as_ref(), limit)
            .await?
            .ok_or_else(|| Error::not_found(format!("{lfn} is not there any more")))?;
        let last = page.items.last().filter(|_| page.more);
        let next = last.map(|entry| cursor::write(CursorOf::List, &entry.at.name));
        let children = page.items.into_iter().map(|entry| {
            let path = resolved.lfn.join(&entry.at.name);
            stat_of(&names, caller, path, entry)
        });
        Ok(entries(&names, children.collect(), next))
    }

    /// Returns usage: for a directory everything below it without itself, from the store's
    /// counters; for any other entry its own. Follows links.
    pub(crate) async fn du(&self, caller: &Caller, lfns: &[Lfn]) -> Result<Answer> {
        let resolved = self.resolve_all(caller, lfns, true).await?;
        let mut directories = Vec::new();
        let mut usages: Vec<Result<Usage>> = Vec::with_capacity(lfns.len());
        for (index, (resolved, lfn)) in resolved.into_iter().zip(lfns).enumerate() {
            usages.push(resolved.and_then(|Resolved { entry, .. }| match entry.directory() {
                None => Ok(Usage::of(&entry)),
                Some(directory) => {
                    check_listable(caller, &entry, lfn)?;
                    directories.push((index, directory));
                    Ok(Usage::default())
                }
            }));
        }
        if !directories.is_empty() {
            let of: Vec<UsageOf> = directories.iter().map(|(_, id)| UsageOf::Directory(*id)).collect();
            let accounts = self.store.usage(&of).await?;
            for ((index, _), account) in directories.into_iter().zip(accounts) {
                usages[index] = Ok(account.usage);
            }
        }
        Ok(Answer::Usages(usages))
    }
}
