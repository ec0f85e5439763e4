//! Locations of a row's file: its replicas, from PFNs, locations, the SE map and the options.

use std::borrow::Cow;
use std::collections::HashMap;

use exacat_model::limits::REPLICAS_PER_FILE_MAX;
use exacat_model::operation::NewReplica;
use exacat_model::{FileRef, Guid, Pfn, ReplicaState, SeName};
use smallvec::SmallVec;

use crate::limits::SECOND_PFNS_SHOWN_MAX;
use crate::memo::{Memo, Quick};
use crate::options::ListingOptions;
use crate::reject::{Checked, Complaint, Reason};
use crate::se_rules::{self, Mapped, SeMap};

/// Unregistered SEs that a row names; rarely many.
pub(crate) type NewSes = SmallVec<[SeName; 2]>;

/// A listing's rules for the locations of files.
#[derive(Clone, Debug)]
pub(crate) struct Placement {
    se: Option<SeName>,
    se_auto: bool,
    pfn_same: Option<String>,
    map: SeMap,
    /// Registered SEs.
    pub(crate) registered: HashMap<String, SeName, Quick>,
    /// True if any column gives the location of files.
    has_columns: bool,
}

impl Placement {
    pub(crate) fn new(options: &ListingOptions, has_columns: bool) -> Self {
        Placement {
            se: options.se.clone(),
            se_auto: options.se_auto,
            pfn_same: options.pfn_same.clone(),
            map: options.se_map.clone(),
            registered: HashMap::default(),
            has_columns,
        }
    }
}

/// A replica as in the row.
pub(crate) struct DraftReplica<'a> {
    /// The SE, or a location in the SE map.
    pub(crate) location: Cow<'a, str>,
    /// Its PFN, if given.
    pub(crate) pfn: Option<Cow<'a, str>>,
    /// State of the replica.
    pub(crate) state: ReplicaState,
}

/// Locations of the file as in the row.
#[derive(Default)]
pub(crate) struct Places<'a> {
    /// PFNs without an SE.
    pub(crate) pfns: SmallVec<[Cow<'a, str>; 1]>,
    /// Replicas on a named SE or location.
    pub(crate) replicas: SmallVec<[DraftReplica<'a>; 2]>,
    /// The SE of the row.
    pub(crate) se: Option<Cow<'a, str>>,
}

/// Locations of the file as in the request to the catalogue.
#[derive(Default)]
pub(crate) struct Placed {
    pub(crate) replicas: Vec<NewReplica>,
    pub(crate) member_of: Option<(FileRef, String)>,
    /// SEs among them to register.
    pub(crate) new_ses: NewSes,
    /// PFNs left out, because another one is kept on the same SE.
    second: Vec<(SeName, Pfn)>,
}

impl Placed {
    /// Returns a report of the PFNs left out.
    pub(crate) fn complaint(&self) -> Option<Complaint> {
        let (se, _) = self.second.first()?;
        let kept = self.replicas.iter().find(|replica| replica.se == *se)?;
        let kept = kept.pfn.as_ref().map_or("", Pfn::as_str);
        let shown = self.second.iter().take(SECOND_PFNS_SHOWN_MAX);
        let mut detail = format!("kept on {se}: {kept}; left out:");
        for (other, pfn) in shown {
            if other == se {
                detail.push_str(&format!(" {pfn}"));
            } else {
                detail.push_str(&format!(" {pfn} (on {other})"));
            }
        }
        if self.second.len() > SECOND_PFNS_SHOWN_MAX {
            detail.push_str(&format!(" and {} more", self.second.len() - SECOND_PFNS_SHOWN_MAX));
        }
        Some(Complaint::new(Reason::SeTwice, detail))
    }
}

/// Returns the rank of a replica among several on one SE, of which a file has one. The lowest is
/// kept, among equals the first. Clients of the catalogue read by `root://`; sources list further
/// protocols of the same copy.
fn worth(pfn: &Pfn, state: ReplicaState) -> (u8, bool) {
    let state = match state {
        ReplicaState::Available => 0,
        ReplicaState::Suspect => 1,
        ReplicaState::Copying => 2,
        ReplicaState::Lost => 3,
    };
    let xrootd = ["root://", "roots://", "xroot://"].iter().any(|scheme| pfn.as_str().starts_with(scheme));
    (state, !xrootd)
}

/// Determines the replicas. `given` is the LFN as in the row; `places` is emptied.
pub(crate) fn place(
    placement: &Placement,
    memo: &Memo,
    given: &str,
    places: &mut Places<'_>,
) -> Checked<Placed> {
    let mut placing = Placing { placement, memo, given, placed: Placed::default() };
    for replica in places.replicas.drain(..) {
        let (se, mapped) = placing.location(&replica.location)?;
        let pfn = match replica.pfn {
            Some(pfn) => Some(placing.pfn(&pfn)?),
            None => placing.mapped_pfn(mapped)?,
        };
        placing.add(se, pfn, replica.state);
    }
    let own_se = match places.se.take() {
        Some(location) => Some(placing.location(&location)?),
        None => None,
    };
    let alone = places.pfns.is_empty();
    for text in places.pfns.drain(..) {
        if let Some((archive, member)) = archive_member(&text)? {
            placing.placed.member_of = Some((FileRef::Guid(archive), member));
            continue;
        }
        let pfn = placing.pfn(&text)?;
        let se = match &own_se {
            Some((se, _)) => se.clone(),
            None => placing.se_of_pfn(pfn.as_str())?,
        };
        placing.add(se, Some(pfn), ReplicaState::Available);
    }
    if alone {
        if let Some((se, mapped)) = own_se {
            let pfn = placing.mapped_pfn(mapped)?;
            placing.add(se, pfn, ReplicaState::Available);
        } else if let (Some(se), false) = (&placement.se, placement.has_columns) {
            let se = placing.registered(se.as_str())?;
            placing.add(se, None, ReplicaState::Available);
        }
    }
    let placed = placing.placed;
    if placed.member_of.is_some() && !placed.replicas.is_empty() {
        return Err(Complaint::new(
            Reason::BadReplica,
            "a file inside an archive has no replicas of its own",
        ));
    }
    if placed.replicas.len() > REPLICAS_PER_FILE_MAX {
        return Err(Complaint::new(
            Reason::TooManyReplicas,
            format!("{} replicas, the limit is {REPLICAS_PER_FILE_MAX}", placed.replicas.len()),
        ));
    }
    Ok(placed)
}

struct Placing<'p> {
    placement: &'p Placement,
    memo: &'p Memo,
    given: &'p str,
    placed: Placed,
}

impl<'p> Placing<'p> {
    /// Adds a replica. Duplicates count once; a PFN completes a replica without one. Of two PFNs on
    /// one SE the better one is kept, and the other recorded.
    fn add(&mut self, se: SeName, pfn: Option<Pfn>, state: ReplicaState) {
        let Some(known) = self.placed.replicas.iter_mut().find(|replica| replica.se == se) else {
            self.placed.replicas.push(NewReplica { se, pfn, state });
            return;
        };
        match (&mut known.pfn, pfn) {
            (_, None) => {}
            (place @ None, Some(pfn)) => *place = Some(pfn),
            (Some(known), Some(pfn)) if *known == pfn => {}
            (Some(first), Some(mut pfn)) => {
                if worth(&pfn, state) < worth(first, known.state) {
                    known.state = state;
                    std::mem::swap(first, &mut pfn);
                }
                self.placed.second.push((se, pfn));
            }
        }
    }

    /// Returns the SE of a location as the listing names it, and the rule that maps it.
    fn location(&mut self, location: &str) -> Checked<(SeName, Option<&'p Mapped>)> {
        if let Some(mapped) = self.placement.map.of_location(location) {
            return Ok((self.registered(mapped.se.as_str())?, Some(mapped)));
        }
        if let Some(se) = self.placement.registered.get(location) {
            return Ok((se.clone(), None));
        }
        let bad = || Complaint::new(Reason::BadReplica, format!("not the name of an SE: {location:.200?}"));
        if self.placement.se_auto {
            let name =
                self.memo.location(location, || se_rules::name_of_location(location).ok_or_else(bad))?;
            if !self.placement.registered.contains_key(name.as_str()) {
                self.placed.new_ses.push(name.clone());
            }
            return Ok((name, None));
        }
        SeName::parse(location).map_err(|_| bad())?;
        Ok((self.registered(location)?, None))
    }

    /// Returns the SE of that name, if it is registered or will be.
    fn registered(&mut self, name: &str) -> Checked<SeName> {
        if let Some(se) = self.placement.registered.get(name) {
            return Ok(se.clone());
        }
        if !self.placement.se_auto {
            let what = format!("{name} is not registered: add it, or say --se-auto, or map it with --se-map");
            return Err(Complaint::new(Reason::UnknownSe, what));
        }
        let make = || SeName::parse(name).map_err(|error| Complaint::new(Reason::BadReplica, error.message));
        let se = self.memo.se(name, make)?;
        self.placed.new_ses.push(se.clone());
        Ok(se)
    }

    fn se_of_pfn(&mut self, pfn: &str) -> Checked<SeName> {
        if let Some(mapped) = self.placement.map.of_pfn(pfn) {
            return self.registered(mapped.se.as_str());
        }
        if let Some(se) = &self.placement.se {
            return self.registered(se.as_str());
        }
        if self.placement.se_auto
            && let Some(endpoint) = se_rules::endpoint(pfn)
            && let Ok(name) = self.memo.host(endpoint, || se_rules::name_of_pfn(pfn).ok_or(()))
        {
            return self.registered(name.as_str());
        }
        let what = format!("which SE holds it? Say --se, --se-map or --se-auto: {pfn:.200}");
        Err(Complaint::new(Reason::NoSe, what))
    }

    fn pfn(&self, text: &str) -> Checked<Pfn> {
        let parsed = match (text, &self.placement.pfn_same) {
            ("=", Some(prefix)) => Pfn::parse(&format!("{prefix}{}", self.given)),
            ("=", None) => {
                return Err(Complaint::new(
                    Reason::BadPfn,
                    "the PFN is '=': give the part before the LFN with --pfn-same",
                ));
            }
            (text, _) => Pfn::parse(text),
        };
        parsed.map_err(|error| Complaint::new(Reason::BadPfn, error.message))
    }

    fn mapped_pfn(&self, mapped: Option<&Mapped>) -> Checked<Option<Pfn>> {
        let Some((mapped, prefix)) = mapped.and_then(|mapped| Some((mapped, mapped.pfn_prefix.as_ref()?)))
        else {
            return Ok(None);
        };
        let rest = self.given.strip_prefix(mapped.strip.as_str()).unwrap_or(self.given);
        Pfn::parse(&format!("{prefix}{rest}"))
            .map(Some)
            .map_err(|error| Complaint::new(Reason::BadPfn, error.message))
    }
}

/// Returns the archive and the name in it, if a PFN means a file inside an archive:
/// `guid:///GUID?ZIP=name`.
fn archive_member(pfn: &str) -> Checked<Option<(Guid, String)>> {
    let Some((guid, member)) = pfn.strip_prefix("guid:///").and_then(|rest| rest.split_once("?ZIP=")) else {
        return Ok(None);
    };
    let guid = Guid::parse(guid).map_err(|error| Complaint::new(Reason::BadPfn, error.message))?;
    Ok(Some((guid, member.to_owned())))
}
