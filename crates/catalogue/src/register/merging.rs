//! Files that exist already: compares them with the request, and merges the difference.

use std::collections::HashMap;

use exacat_model::operation::{NewFile, Registered};
use exacat_model::{
    AccountName, Body, Edit, Entry, EntryId, Error, ErrorKind, Expect, File, Guid, Mode, Mutation, Replica,
    Result, Tag,
};

use super::call::{Call, about, replicas_of};
use crate::caller::WRITE;
use crate::registry::Names;
use crate::repeat::nothing;
use crate::resolve::Resolved;

/// Reports the file as unchanged if the entry has everything given, and refuses it otherwise.
pub(super) fn same(
    call: &Call<'_>,
    file: &NewFile,
    archive: Option<Guid>,
    entry: &Entry,
) -> Result<Registered> {
    let difference = differences(call, file, archive, entry)?;
    match (difference.contradictions.is_empty(), difference.edits.is_empty(), entry.guid()) {
        (true, true, Some(guid)) => Ok(Registered::Unchanged(guid)),
        (true, _, _) => Err(Error::new(
            ErrorKind::Exists,
            format!("{} exists and lacks some of the given fields", file.lfn),
        )),
        _ => Err(Error::new(
            ErrorKind::Exists,
            format!("{} exists and differs: {}", file.lfn, difference.contradictions.join("; ")),
        )),
    }
}

/// The difference between a given file and an existing entry.
#[derive(Default)]
struct Difference {
    /// The edits that the entry lacks.
    edits: Vec<Edit>,
    /// The contradictions, in words.
    contradictions: Vec<String>,
}

impl Difference {
    fn expect<T: PartialEq>(
        &mut self,
        what: &str,
        given: Option<&T>,
        there: &T,
        show: impl Fn(&T) -> String,
    ) {
        if let Some(given) = given
            && given != there
        {
            self.contradictions.push(format!("its {what} is {}, not {}", show(there), show(given)));
        }
    }
}

fn differences(call: &Call<'_>, file: &NewFile, archive: Option<Guid>, entry: &Entry) -> Result<Difference> {
    let names = &*call.names;
    let mut difference = Difference::default();
    let Body::File(there) = &entry.body else {
        difference.contradictions.push(format!("it is a {}", entry.kind().name()));
        return Ok(difference);
    };
    difference.expect("GUID", file.guid.as_ref(), &there.guid, Guid::to_string);
    difference.expect("owner", file.owner.as_ref(), &names.user_name(entry.owner), AccountName::to_string);
    difference.expect("group", file.group.as_ref(), &names.group_name(entry.group), AccountName::to_string);
    difference.expect("mode", file.mode.as_ref(), &entry.mode, Mode::to_string);
    difference.expect("modification time", file.modified.as_ref(), &entry.modified, |time| time.to_string());
    difference.expect("expiry", file.expires.map(Some).as_ref(), &entry.expires, |time| {
        time.map_or("none".to_owned(), |time| time.to_string())
    });
    match (file.size, there.size) {
        (Some(size), None) => difference.edits.push(Edit::Size(size)),
        (size, Some(known)) => difference.expect("size", size.as_ref(), &known, u64::to_string),
        (None, None) => {}
    }
    match (file.job, there.job) {
        (Some(job), None) => difference.edits.push(Edit::Job(Some(job))),
        (job, Some(known)) => difference.expect("job", job.as_ref(), &known, u64::to_string),
        (None, None) => {}
    }
    for checksum in file.checksums.iter() {
        match there.checksums.get(checksum.algorithm()) {
            None => difference.edits.push(Edit::Checksum(*checksum)),
            Some(known) => difference.expect("checksum", Some(checksum), known, |sum| sum.to_string()),
        }
    }
    for tag in &file.tags {
        match entry.tag(tag.key.as_str()) {
            None => difference.edits.push(Edit::SetTag(tag.clone())),
            Some(known) => difference
                .expect(&format!("tag {}", tag.key), Some(&tag.value), known, |value| value.to_string()),
        }
    }
    for replica in replicas_of(names, file, there.guid, archive).map_err(|error| about(&file.lfn, error))? {
        compare_replica(names, there, replica, &mut difference);
    }
    Ok(difference)
}

fn compare_replica(names: &Names, there: &File, replica: Replica, difference: &mut Difference) {
    let se = names.ses.get(&replica.se).map(|se| &**se);
    let on = se.map_or("an archive".to_owned(), |se| se.name.to_string());
    match there.replica(replica.se) {
        Some(known) => {
            if known.location != replica.location && known.pfn(there.guid, se) != replica.pfn(there.guid, se)
            {
                difference.contradictions.push(format!(
                    "its replica on {on} is {}, not {}",
                    known.pfn(there.guid, se),
                    replica.pfn(there.guid, se)
                ));
            } else if known.state != replica.state {
                difference.contradictions.push(format!(
                    "its replica on {on} is {}, not {}",
                    known.state.name(),
                    replica.state.name()
                ));
            }
        }
        None if replica.is_member() && !there.replicas.is_empty() => {
            difference
                .contradictions
                .push("it has replicas of its own, so it is inside no archive".to_owned());
        }
        None if there.is_member() => {
            difference
                .contradictions
                .push("it is inside an archive, so it has no replicas of its own".to_owned());
        }
        None => difference.edits.push(Edit::PutReplica(replica)),
    }
}

/// The state of one place of a merging request.
pub(super) enum MergePlace {
    /// An update of the entry with this GUID was sent.
    Sent(Guid),
    /// Nothing was sent, for this reason.
    Refused(Error),
    /// Nothing was sent yet: it must be compared again after an earlier place is done.
    Later,
}

/// A merging request in preparation, with as many places as the part has files.
pub(super) struct Merge {
    mutations: Vec<Mutation>,
    slots: Vec<Option<MergePlace>>,
    /// Entries changed by earlier places, as they will be: a call may name one file many times.
    edited: HashMap<Guid, Entry>,
}

impl Merge {
    pub(super) fn new(places: usize) -> Self {
        Merge {
            mutations: (0..places).map(|_| nothing()).collect(),
            slots: (0..places).map(|_| None).collect(),
            edited: HashMap::new(),
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.slots.iter().all(Option::is_none)
    }

    pub(super) fn into_request(self) -> (Vec<Mutation>, Vec<Option<MergePlace>>) {
        (self.mutations, self.slots)
    }

    /// Decides what to do about an existing file. A place always gets an update, even one without
    /// edits: if this is a repeat, the store returns its first outcome.
    pub(super) fn add(
        &mut self,
        call: &Call<'_>,
        place: usize,
        file: &NewFile,
        archive: Option<Guid>,
        resolved: Resolved,
    ) {
        self.slots[place] = Some(match self.try_add(call, place, file, archive, resolved) {
            Ok(slot) => slot,
            Err(error) => MergePlace::Refused(error),
        });
    }

    fn try_add(
        &mut self,
        call: &Call<'_>,
        place: usize,
        file: &NewFile,
        archive: Option<Guid>,
        resolved: Resolved,
    ) -> Result<MergePlace> {
        let read = resolved.entry;
        let earlier = read.guid().and_then(|guid| self.edited.remove(&guid));
        let is_second = earlier.is_some();
        let entry = earlier.unwrap_or(read);
        let Some(guid) = entry.guid() else {
            return Err(Error::new(ErrorKind::Conflict, format!("{} is a directory", file.lfn)));
        };
        let difference = differences(call, file, archive, &entry);
        let slot = match &difference {
            Err(error) => Err(error.clone()),
            Ok(difference) if !difference.contradictions.is_empty() => Err(Error::new(
                ErrorKind::Conflict,
                format!("{} exists and contradicts: {}", file.lfn, difference.contradictions.join("; ")),
            )),
            Ok(difference) if !difference.edits.is_empty() && !call.caller.has_entry(&entry, WRITE) => {
                Err(Error::denied(format!("{} exists, and you may not change it (no w)", file.lfn)))
            }
            // A tag replaces another, so it is sent only against a known version.
            Ok(difference)
                if is_second && difference.edits.iter().any(|edit| matches!(edit, Edit::SetTag(_))) =>
            {
                Ok(MergePlace::Later)
            }
            Ok(_) => Ok(MergePlace::Sent(guid)),
        };
        let mut entry = entry;
        if let (Ok(MergePlace::Sent(_)), Ok(difference)) = (&slot, difference) {
            let expect = if is_second || difference.edits.is_empty() {
                Expect::entry(EntryId::Object(guid))
            } else {
                Expect { id: Some(EntryId::Object(guid)), revision: Some(entry.revision) }
            };
            let changes = !difference.edits.is_empty();
            difference.edits.iter().for_each(|edit| preview(&mut entry, edit));
            self.mutations[place] =
                Mutation::Update { at: entry.at.clone(), expect, edits: difference.edits };
            if is_second || changes {
                self.edited.insert(guid, entry);
            }
        } else if is_second {
            self.edited.insert(guid, entry);
        }
        slot
    }
}

/// Applies an edit of a merge to a copy, which later places are compared with.
fn preview(entry: &mut Entry, edit: &Edit) {
    if let Edit::SetTag(Tag { key, value }) = edit {
        entry.tags.push(Tag { key: key.clone(), value: value.clone() });
        return;
    }
    let Body::File(file) = &mut entry.body else { return };
    match edit {
        Edit::Size(size) => file.size = Some(*size),
        Edit::Job(job) => file.job = *job,
        Edit::Checksum(checksum) => {
            // The algorithm is new for this file; if there are too many, the store refuses the
            // update.
            let _ = file.checksums.add(*checksum);
        }
        Edit::PutReplica(replica) => file.replicas.push(replica.clone()),
        _ => {}
    }
}
