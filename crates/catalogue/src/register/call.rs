//! Request to register files: the data that all of its files share, and the form of its
//! replicas.

use std::collections::HashMap;
use std::sync::Arc;

use exacat_model::operation::{Existing, NewFile};
use exacat_model::{
    DirId, Error, Guid, Lfn, Location, NewEntry, OperationId, Pfn, Replica, ReplicaState, Result, Se,
    SeNumber,
};
use exacat_store::{Ancestor, Ancestors};
use parking_lot::Mutex;

use crate::Catalogue;
use crate::caller::Caller;
use crate::registry::Names;

/// Most directories that a load remembers; an unordered listing returns to them again and again.
const CACHED_MAX: usize = 1 << 20;

/// Directories that a load found or made. Only for a load that owns the store and neither moves nor
/// removes entries, because it assumes that a directory found once still exists.
#[derive(Default)]
pub struct DirectoryCache(Mutex<HashMap<Lfn, Ancestor>>);

/// The common data of all files of a call.
pub(crate) struct Call<'a> {
    pub caller: &'a Caller,
    pub files: &'a [NewFile],
    pub parents: bool,
    pub existing: Existing,
    pub names: Arc<Names>,
    /// Directories that a load found before, which still exist.
    pub cache: Option<&'a DirectoryCache>,
    /// Records the ancestor permissions of each directory, with its own last, if the caller needs
    /// them.
    pub ways: Option<&'a Mutex<HashMap<DirId, Ancestors>>>,
}

/// Operation ids of one part.
pub(crate) struct PartIds {
    pub create: OperationId,
    pub merge: OperationId,
    pub parents: OperationId,
}

/// The plan for a file before the store is asked.
pub(crate) enum Plan {
    /// Create it in this directory.
    Create(Box<NewEntry>),
    /// Creation is refused, but the file may exist already.
    Closed(Error),
    /// The request is invalid.
    Refused(Error),
}

impl Catalogue {
    /// Returns the directories of these paths. Looks them up only if they are not remembered, and
    /// makes missing ones.
    pub(crate) async fn cached_directories(
        &self,
        call: &Call<'_>,
        cache: &DirectoryCache,
        ids: &PartIds,
        lfns: &[Lfn],
    ) -> Result<Vec<Result<Ancestor>>> {
        let mut found: Vec<Option<Result<Ancestor>>> = {
            let cached = cache.0.lock();
            lfns.iter().map(|lfn| cached.get(lfn).map(|ancestor| Ok(*ancestor))).collect()
        };
        let missing: Vec<usize> = (0..lfns.len()).filter(|number| found[*number].is_none()).collect();
        if !missing.is_empty() {
            let wanted: Vec<Lfn> = missing.iter().map(|number| lfns[*number].clone()).collect();
            let made = self.ensure_directories(call.caller, ids.parents, &wanted).await?;
            let mut cached = cache.0.lock();
            if cached.len() + wanted.len() > CACHED_MAX {
                cached.clear();
            }
            for ((number, lfn), made) in missing.into_iter().zip(wanted).zip(made) {
                if let Ok(directory) = &made {
                    cached.insert(lfn, directory.ancestor);
                }
                found[number] = Some(made.map(|directory| directory.ancestor));
            }
        }
        let absent = |lfn: &Lfn| Err(Error::not_found(format!("{lfn} is not there")));
        Ok(found
            .into_iter()
            .zip(lfns)
            .map(|(ancestor, lfn)| ancestor.unwrap_or_else(|| absent(lfn)))
            .collect())
    }
}

/// Returns the replicas of a file with this GUID, as the request gives them.
pub(super) fn replicas_of(
    names: &Names,
    file: &NewFile,
    guid: Guid,
    archive: Option<Guid>,
) -> Result<Vec<Replica>> {
    if let Some((_, member)) = &file.member_of {
        if !file.replicas.is_empty() {
            return Err(Error::invalid("a file inside an archive has no replicas of its own"));
        }
        let archive = archive.ok_or_else(|| Error::not_found("the archive it is inside is not there"))?;
        if archive == guid {
            return Err(Error::invalid("a file cannot be inside itself"));
        }
        let location = Location::Member { archive, member: member.clone() };
        let replica = Replica { se: SeNumber::NONE, state: ReplicaState::Available, location };
        replica.check()?;
        return Ok(vec![replica]);
    }
    let mut replicas = Vec::with_capacity(file.replicas.len());
    for new in &file.replicas {
        let se = names.se(&new.se)?;
        let location = location(new.pfn.as_ref(), guid, se)?;
        replicas.push(Replica { se: se.number, state: new.state, location });
    }
    Ok(replicas)
}

/// Returns the stored form of a replica's location: a PFN derived from storage element and GUID is
/// not stored.
pub(crate) fn location(pfn: Option<&Pfn>, guid: Guid, se: &Se) -> Result<Location> {
    let Some(pfn) = pfn else {
        if se.prefix.is_empty() {
            return Err(Error::invalid(format!(
                "{} has no prefix to derive a PFN from: give the PFN",
                se.name
            )));
        }
        return Ok(Location::Derived);
    };
    let text = pfn.as_str();
    if !se.prefix.is_empty()
        && text.len() == se.prefix.len() + Guid::STORAGE_PATH_BYTES
        && text.strip_prefix(&se.prefix) == Some(guid.storage_path().as_str())
    {
        return Ok(Location::Derived);
    }
    Ok(Location::Explicit(pfn.clone()))
}

/// Names the file in an error.
pub(super) fn about(lfn: &Lfn, error: Error) -> Error {
    Error::new(error.kind, format!("{lfn}: {}", error.message))
}
