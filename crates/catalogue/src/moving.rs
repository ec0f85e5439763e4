//! Moves and removals: one change each, whatever lies below.

use exacat_model::limits::LFN_BYTES_MAX;
use exacat_model::{
    Answer, At, Body, Entry, Error, ErrorKind, Kind, Lfn, Mutation, Name, OperationId, Result, TrashId,
};
use exacat_store::{Ancestor, Outcome, UsageOf};

use crate::Catalogue;
use crate::caller::Caller;
use crate::directories::vacant;
use crate::resolve::{
    Resolved, Spot, check_parent_writable, check_removable, is_sticky_to, may_empty_of_own,
};
use crate::trailing::check_free_name;

impl Catalogue {
    /// Moves like `mv -T`, or like `mv` if `to` is an existing directory: then the entry goes into
    /// it under its own name. Moves a link itself. Takes w and x on both directories.
    pub(crate) async fn move_entry(
        &self,
        caller: &Caller,
        id: OperationId,
        from: Lfn,
        to: Lfn,
    ) -> Result<Answer> {
        let planned = self.plan_move(caller, &from, &to).await;
        let outcome = self.apply_planned(caller, id, format!("{from} to {to}"), planned).await?;
        Ok(Answer::Done { revision: self.revision_of(&outcome).await? })
    }

    async fn plan_move(&self, caller: &Caller, from: &Lfn, to: &Lfn) -> Result<Mutation> {
        let source = self.resolve(caller, from, false).await?;
        let Some(name) = source.lfn.file_name() else {
            return Err(Error::invalid("the root cannot be moved"));
        };
        check_removable(caller, source.parent_ancestor(), &source.entry, &source.lfn)?;
        let expect = caller.expect(source.entry.id());
        let to = match self.spot(caller, to, to.must_be_directory()).await? {
            // The entry has this name already: the store answers that nothing changes.
            Spot::Taken(target) if target.entry.id() == source.entry.id() => source.entry.at.clone(),
            spot => self.destination(caller, to, &name, source.entry.kind(), spot).await?,
        };
        Ok(Mutation::Move { from: source.entry.at, expect, to })
    }

    /// Returns the destination for an entry with target `to`: under `name` in the directory `to` if
    /// it exists, otherwise `to` itself. `spot` is the entry at `to`, without following a final
    /// link.
    pub(crate) async fn destination(
        &self,
        caller: &Caller,
        to: &Lfn,
        name: &Name,
        kind: Kind,
        spot: Spot,
    ) -> Result<At> {
        let exists = || Err(Error::new(ErrorKind::Exists, format!("{to} is there already")));
        let directory = match spot {
            Spot::Vacant(_) => {
                check_free_name(to, kind)?;
                let (vacancy, at) = vacant(spot, to)?;
                if vacancy.lfn != *to && to.must_be_directory() {
                    // A dangling link has the name.
                    return exists();
                }
                check_parent_writable(caller, vacancy.ancestors.last(), &vacancy.lfn)?;
                check_length(&vacancy.lfn)?;
                return Ok(at);
            }
            Spot::Taken(taken) if matches!(taken.entry.body, Body::Link { .. }) => {
                match self.resolve(caller, to, true).await {
                    Ok(target) => target,
                    Err(error) if error.kind == ErrorKind::NotFound => return exists(),
                    Err(error) => return Err(error),
                }
            }
            Spot::Taken(taken) => *taken,
        };
        let Resolved { lfn, entry, .. } = directory;
        let Some(ancestor) = Ancestor::of(&entry) else { return exists() };
        let target = lfn.join(name);
        check_parent_writable(caller, Some(&ancestor), &target)?;
        check_length(&target)?;
        Ok(At { parent: ancestor.id, name: name.clone() })
    }

    /// Removes an entry into the trash. Takes w and x on its directory; for a non-empty directory
    /// of another owner also on itself. It does not check entries further below. So removing takes
    /// the same time whatever the size. The trash keeps the entry whole until it is purged.
    pub(crate) async fn remove(
        &self,
        caller: &Caller,
        id: OperationId,
        lfn: Lfn,
        recursive: bool,
        directory: bool,
    ) -> Result<Answer> {
        let planned = self.plan_remove(caller, &lfn, recursive, directory).await;
        let outcome = match self.apply_planned(caller, id, &lfn, planned).await {
            // The directory was empty when it was read, and no longer is: judge whether the caller
            // may empty it.
            Err(error) if recursive && error.kind == ErrorKind::NotEmpty => {
                caller.set_outdated();
                Err(error)
            }
            outcome => outcome,
        };
        match outcome? {
            Outcome::Applied { revision, .. } => {
                Ok(Answer::Removed { id: self.store.timelines().name(TrashId(revision)) })
            }
            _ => Err(Error::new(ErrorKind::Internal, format!("{lfn}: nothing was removed"))),
        }
    }

    async fn plan_remove(
        &self,
        caller: &Caller,
        lfn: &Lfn,
        recursive: bool,
        directory: bool,
    ) -> Result<Mutation> {
        let Resolved { lfn: found, entry, ancestors } = self.resolve(caller, lfn, false).await?;
        if found.is_root() {
            return Err(Error::invalid("the root cannot be removed"));
        }
        check_removable(caller, ancestors.last(), &entry, &found)?;
        let mut only_empty = entry.directory().is_some() && !recursive;
        match entry.directory() {
            None if directory => {
                return Err(Error::new(ErrorKind::NotDirectory, format!("{lfn} is no directory")));
            }
            Some(number) if recursive && !may_empty(caller, &entry) => {
                let account = self.store.usage(&[UsageOf::Directory(number)]).await?.pop();
                if account.is_none_or(|account| !account.usage.is_empty()) {
                    return Err(Error::denied(format!("you may not empty {lfn} (no w, no x, or sticky)")));
                }
                only_empty = true;
            }
            _ => {}
        }
        let expect = caller.expect(entry.id());
        Ok(Mutation::Remove { at: entry.at, expect, only_empty, lfn: found })
    }
}

/// True if the caller may remove all entries of a directory, whoever owns them.
fn may_empty(caller: &Caller, directory: &Entry) -> bool {
    may_empty_of_own(caller, directory) && !is_sticky_to(caller, directory)
}

/// Refuses a destination too long to be requested as an LFN. Entries below it may get longer LFNs;
/// they are listed, and can be moved back.
fn check_length(lfn: &Lfn) -> Result<()> {
    match lfn.as_str().len() {
        bytes if bytes > LFN_BYTES_MAX => {
            Err(Error::limit("the length of an LFN in bytes", bytes, LFN_BYTES_MAX))
        }
        _ => Ok(()),
    }
}
