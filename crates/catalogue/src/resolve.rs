//! Path resolution: finds entries, follows links, and checks the right to pass each directory on
//! the way.

use exacat_model::limits::{LFN_BYTES_MAX, LINKS_FOLLOWED_MAX, READ_BATCH_MAX};
use exacat_model::{At, Body, DirId, Entry, EntryId, Error, ErrorKind, Guid, Lfn, Name, Result};
use exacat_store::{Ancestor, Ancestors, EntryLocation, Located, Resolution, ResolutionEnd};

use crate::Catalogue;
use crate::caller::{Caller, PASS, WRITE};
use crate::trailing::no_directory;

/// An entry with its path (links followed) and the permissions of the directories above, root
/// first.
#[derive(Clone, Debug)]
pub(crate) struct Resolved {
    pub lfn: Lfn,
    pub entry: Entry,
    pub ancestors: Ancestors,
}

impl Resolved {
    /// Returns the directory of the entry. The root stands in itself.
    pub(crate) fn parent_ancestor(&self) -> Option<&Ancestor> {
        self.ancestors.last()
    }
}

/// A place for a new entry: an existing directory and a name that was free when it was read.
#[derive(Clone, Debug)]
pub(crate) struct Vacancy {
    /// The path, links followed.
    pub lfn: Lfn,
    /// Ancestor permissions down to the existing directory, root first; never empty.
    pub ancestors: Ancestors,
    /// The missing names below that directory: one if only the entry is missing, more if
    /// directories are.
    pub missing: Vec<Name>,
}

/// The result of path resolution: an entry, or the names that are missing.
#[derive(Clone, Debug)]
#[allow(
    clippy::large_enum_variant,
    reason = "lives as long as one batch; a box for each free name costs more"
)]
pub(crate) enum Spot {
    Taken(Box<Resolved>),
    Vacant(Vacancy),
}

impl Catalogue {
    /// Resolves each path. Follows links in the middle always, a link at the end only if `follow`.
    /// A caller without the right to pass a directory learns nothing of its contents.
    pub(crate) async fn spots(
        &self,
        caller: &Caller,
        lfns: &[Lfn],
        follow: bool,
    ) -> Result<Vec<Result<Spot>>> {
        if lfns.len() > READ_BATCH_MAX {
            return Err(Error::limit("the number of paths in one request", lfns.len(), READ_BATCH_MAX));
        }
        let resolutions = self.store.resolve(lfns).await?;
        let mut spots = Vec::with_capacity(lfns.len());
        for (lfn, resolution) in lfns.iter().zip(resolutions) {
            spots.push(self.finish_resolution(caller, lfn.clone(), resolution, follow).await);
        }
        Ok(spots)
    }

    /// Resolves one path.
    pub(crate) async fn spot(&self, caller: &Caller, lfn: &Lfn, follow: bool) -> Result<Spot> {
        match self.spots(caller, std::slice::from_ref(lfn), follow).await?.pop() {
            Some(spot) => spot,
            None => Err(Error::new(ErrorKind::Internal, "the store gave no path resolution")),
        }
    }

    /// Returns the entry of each path.
    pub(crate) async fn resolve_all(
        &self,
        caller: &Caller,
        lfns: &[Lfn],
        follow: bool,
    ) -> Result<Vec<Result<Resolved>>> {
        let spots = self.spots(caller, lfns, follow).await?;
        Ok(spots.into_iter().zip(lfns).map(|(spot, lfn)| taken(spot?, lfn)).collect())
    }

    /// Returns the entry of one path.
    pub(crate) async fn resolve(&self, caller: &Caller, lfn: &Lfn, follow: bool) -> Result<Resolved> {
        taken(self.spot(caller, lfn, follow).await?, lfn)
    }

    /// Returns a directory, following a link to one.
    pub(crate) async fn resolve_directory(&self, caller: &Caller, lfn: &Lfn) -> Result<(Resolved, DirId)> {
        let resolved = self.resolve(caller, lfn, true).await?;
        match resolved.entry.directory() {
            Some(id) => Ok((resolved, id)),
            None => Err(Error::new(ErrorKind::NotDirectory, format!("{lfn} is no directory"))),
        }
    }

    /// Finds entries by identity for the catalogue's own needs, and passes each to `each`. Takes as many
    /// reads as their number and their bytes need.
    pub(crate) async fn locate_each(
        &self,
        mut ids: &[EntryId],
        mut each: impl FnMut(EntryId, Option<Located>) + Send,
    ) -> Result<()> {
        let mut count = READ_BATCH_MAX;
        while !ids.is_empty() {
            let part = &ids[..count.min(ids.len())];
            match self.store.locate(part).await {
                Err(error) if error.kind == ErrorKind::Limit && part.len() > 1 => count = part.len() / 2,
                found => {
                    part.iter().zip(found?).for_each(|(id, found)| each(*id, found));
                    ids = &ids[part.len()..];
                }
            }
        }
        Ok(())
    }

    /// Finds entries in the tree by GUID. Checks that the caller may pass all directories above
    /// each.
    pub(crate) async fn resolve_guids(
        &self,
        caller: &Caller,
        guids: &[Guid],
    ) -> Result<Vec<Result<Resolved>>> {
        if guids.len() > READ_BATCH_MAX {
            return Err(Error::limit("the number of GUIDs in one request", guids.len(), READ_BATCH_MAX));
        }
        let ids: Vec<EntryId> = guids.iter().map(|guid| EntryId::Object(*guid)).collect();
        let located = self.store.locate(&ids).await?;
        Ok(guids.iter().zip(located).map(|(guid, found)| self.admit_located(caller, guid, found)).collect())
    }

    fn admit_located(&self, caller: &Caller, guid: &Guid, found: Option<Located>) -> Result<Resolved> {
        match found {
            // A GUID does not reveal its path. A caller who may not pass there must not learn the
            // path, nor that the entry exists.
            Some(Located { entry, place: EntryLocation::Tree(lfn), ancestors })
                if caller
                    .check_scope(&lfn)
                    .and_then(|()| check_passage(caller, &ancestors, &lfn))
                    .is_ok() =>
            {
                Ok(Resolved { lfn, entry, ancestors })
            }
            Some(Located { entry, place: EntryLocation::Trash(_), .. }) if caller.owns(&entry) => {
                Err(Error::not_found(format!("{guid} is in the trash")))
            }
            _ => match (self.store.under(), self.store.following()) {
                (Some(under), Some(source)) => {
                    let what =
                        format!("no entry in {under}, all that this follower has, has the GUID {guid}");
                    Err(Error::invalid(format!("{what}: ask {source}")))
                }
                _ => Err(Error::not_found(format!("no entry that you may see has the GUID {guid}"))),
            },
        }
    }

    /// Continues a path resolution of the store: follows links, and returns the entry.
    pub(crate) async fn resolve_from(
        &self,
        caller: &Caller,
        lfn: Lfn,
        resolution: Resolution,
        follow: bool,
    ) -> Result<Resolved> {
        let asked = lfn.clone();
        taken(self.finish_resolution(caller, lfn, resolution, follow).await?, &asked)
    }

    /// Continues a path resolution. A path that ends in a slash leads to a directory, or to
    /// nothing.
    async fn finish_resolution(
        &self,
        caller: &Caller,
        lfn: Lfn,
        resolution: Resolution,
        follow: bool,
    ) -> Result<Spot> {
        let must_be_directory = lfn.must_be_directory();
        let spot = self.follow_resolution(caller, lfn.of_anything(), resolution, follow).await?;
        match &spot {
            Spot::Taken(taken) if must_be_directory && taken.entry.directory().is_none() => {
                Err(no_directory(&taken.lfn, taken.entry.kind()))
            }
            _ => Ok(spot),
        }
    }

    async fn follow_resolution(
        &self,
        caller: &Caller,
        lfn: Lfn,
        resolution: Resolution,
        follow: bool,
    ) -> Result<Spot> {
        let mut lfn = lfn;
        let mut resolution = resolution;
        for _ in 0..=LINKS_FOLLOWED_MAX {
            // A link may lead out of the token's subtree, so check the scope after every step.
            caller.check_scope(&lfn)?;
            check_passage(caller, &resolution.ancestors, &lfn)?;
            let next = match resolution.end {
                ResolutionEnd::Found(entry) => match (&entry.body, follow) {
                    (Body::Link { target, .. }, true) => target.clone(),
                    _ => {
                        return Ok(Spot::Taken(Box::new(Resolved {
                            lfn,
                            entry: *entry,
                            ancestors: resolution.ancestors,
                        })));
                    }
                },
                ResolutionEnd::Elsewhere(error) => return Err(*error),
                ResolutionEnd::Missing { components } => {
                    let missing: Result<Vec<Name>> =
                        lfn.components().skip(components).map(Name::parse).collect();
                    return Ok(Spot::Vacant(Vacancy {
                        missing: missing?,
                        ancestors: resolution.ancestors,
                        lfn,
                    }));
                }
                ResolutionEnd::Stopped { entry, components } => match &entry.body {
                    Body::Link { target, .. } => {
                        let rest = lfn.components().skip(components);
                        let joined =
                            target.components().chain(rest).map(|name| name.len() + 1).sum::<usize>();
                        if joined > LFN_BYTES_MAX {
                            return Err(Error::limit(
                                "the length of an LFN behind links",
                                joined,
                                LFN_BYTES_MAX,
                            ));
                        }
                        Lfn::from_names(target.components().chain(lfn.components().skip(components)))
                    }
                    _ => {
                        let stop = Lfn::from_names(lfn.components().take(components));
                        return Err(Error::new(ErrorKind::NotDirectory, format!("{stop} is no directory")));
                    }
                },
            };
            resolution = self
                .store
                .resolve(std::slice::from_ref(&next))
                .await?
                .pop()
                .ok_or_else(|| Error::new(ErrorKind::Internal, "the store gave no path resolution"))?;
            lfn = next;
        }
        Err(Error::invalid(format!(
            "{lfn}: more than {LINKS_FOLLOWED_MAX} links on the way; do they form a loop?"
        )))
    }
}

fn taken(spot: Spot, lfn: &Lfn) -> Result<Resolved> {
    match spot {
        Spot::Taken(resolved) => Ok(*resolved),
        Spot::Vacant(_) => Err(Error::not_found(format!("{lfn} is not there"))),
    }
}

/// Refuses a caller who may not pass one of the directories on the way.
pub(crate) fn check_passage(caller: &Caller, ancestors: &[Ancestor], lfn: &Lfn) -> Result<()> {
    match ancestors.iter().position(|ancestor| !caller.is_granted_by(ancestor, PASS)) {
        None => Ok(()),
        Some(depth) => {
            let closed = Lfn::from_names(lfn.components().take(depth));
            Err(Error::denied(format!("you may not pass {closed} (no x)")))
        }
    }
}

/// Refuses a caller who may not create or remove names in a directory.
pub(crate) fn check_parent_writable(caller: &Caller, ancestor: Option<&Ancestor>, lfn: &Lfn) -> Result<()> {
    match ancestor {
        Some(ancestor) if caller.is_granted_by(ancestor, WRITE | PASS) => Ok(()),
        Some(_) => Err(Error::denied(format!("{lfn}: you may not change the directory it is in (no w)"))),
        None => Err(Error::denied("the root stands in no directory")),
    }
}

/// Refuses a caller who may not remove an entry's name. The checks are [`check_parent_writable`]
/// and, in a sticky directory, ownership of the entry or the directory.
pub(crate) fn check_removable(
    caller: &Caller,
    ancestor: Option<&Ancestor>,
    entry: &Entry,
    lfn: &Lfn,
) -> Result<()> {
    check_parent_writable(caller, ancestor, lfn)?;
    match ancestor {
        Some(ancestor)
            if ancestor.mode.is_sticky() && caller.user() != Some(ancestor.owner) && !caller.owns(entry) =>
        {
            Err(Error::denied(format!(
                "{lfn}: in a sticky directory only the owner of an entry, or of the directory, may take it away"
            )))
        }
        _ => Ok(()),
    }
}

/// True if the caller may remove its own entries from a directory; without a sticky bit all
/// entries. The tree and the trash have the same rule.
pub(crate) fn may_empty_of_own(caller: &Caller, directory: &Entry) -> bool {
    caller.owns(directory) || caller.has_entry(directory, WRITE | PASS)
}

/// True if a directory is sticky and another's, so that the caller may not remove others' entries.
pub(crate) fn is_sticky_to(caller: &Caller, directory: &Entry) -> bool {
    directory.mode.is_sticky() && !caller.owns(directory)
}

/// Returns the place of the first missing name of a vacancy.
pub(crate) fn first_place(vacancy: &Vacancy) -> Result<At> {
    match (vacancy.ancestors.last(), vacancy.missing.first()) {
        (Some(ancestor), Some(name)) => Ok(At { parent: ancestor.id, name: name.clone() }),
        _ => Err(Error::new(ErrorKind::Internal, "a vacancy without a place")),
    }
}
