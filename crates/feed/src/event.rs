//! Makes events of changes and of rows of a copy. `docs/reference/feed.md` describes them.
//!
//! Events are written as text at once: no value is built for them, and nothing that events have in
//! common is formatted twice.

use exacat_model::{
    Body, Change, Checksums, Effect, Entry, EntryId, FieldChange, Guid, Lfn, OperationId, Replica, Revision,
    TagValue, TimeMs, TimelineId,
};

use crate::batch::{Batch, Head, NOT_LAST, Op};
use crate::json::{Fields, TimeText, put_entry, put_escaped, put_number, put_shown, put_text};
use crate::names::Names;
use crate::scope::Meaning;

/// Place of an event's entry.
#[derive(Clone, Copy, Debug)]
pub(crate) struct EventPlace<'a> {
    /// Path of the directory, without a slash at the end.
    pub directory: &'a str,
    pub parent: u64,
    pub name: &'a str,
}

/// Places of a change at its time, as far as the feed's consumer may need them.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Places<'a> {
    pub now: Option<EventPlace<'a>>,
    pub before: Option<EventPlace<'a>>,
    /// True if the change is that of a directory above the feed's.
    pub is_above: bool,
}

/// Writes events.
pub(crate) struct EventWriter {
    /// Fields that all events end with.
    tail: Vec<u8>,
    times: TimeText,
    moments: TimeText,
    operation: Option<OperationId>,
    operation_text: Vec<u8>,
    /// Position that changes which a restore undid are sent at; none for other changes.
    undone_at: Option<Revision>,
}

impl EventWriter {
    pub(crate) fn new(catalogue: Guid, timeline: TimelineId) -> Self {
        let mut tail = b",\"catalogue\":".to_vec();
        put_shown(&mut tail, catalogue);
        tail.extend_from_slice(b",\"timeline\":");
        put_shown(&mut tail, timeline);
        tail.push(b',');
        tail.extend_from_slice(NOT_LAST);
        let (times, moments) = Default::default();
        EventWriter { tail, times, moments, operation: None, operation_text: Vec::new(), undone_at: None }
    }

    /// Makes a writer of changes that a restore undid.
    ///
    /// Their events have the position `at`, so that those of other changes still come after all of them.
    pub(crate) fn of_undone(catalogue: Guid, timeline: TimelineId, at: Revision) -> Self {
        EventWriter { undone_at: Some(at), ..EventWriter::new(catalogue, timeline) }
    }

    fn begin(out: &mut Vec<u8>, revision: Revision, index: u64, op: Op) {
        out.extend_from_slice(b"{\"revision\":");
        put_number(out, revision.0);
        out.extend_from_slice(b",\"index\":");
        put_number(out, index);
        out.extend_from_slice(b",\"op\":\"");
        out.extend_from_slice(op.name().as_bytes());
        out.push(b'"');
    }

    fn end(&self, batch: &mut Batch, head: Head) {
        batch.bytes.extend_from_slice(&self.tail);
        batch.heads.push(Head { end: batch.bytes.len(), ..head });
    }

    /// Adds the event of a change.
    pub(crate) fn change(
        &mut self,
        batch: &mut Batch,
        names: &Names,
        change: &Change,
        meaning: Meaning,
        places: Places<'_>,
    ) {
        let was = match meaning {
            Meaning::Hidden => return,
            Meaning::Created | Meaning::Appeared => Op::Created,
            Meaning::Updated => Op::Updated,
            Meaning::Moved | Meaning::Arrived => Op::Moved,
            Meaning::Gone | Meaning::AllGone => Op::Gone,
            Meaning::Other => Op::Other,
        };
        let (op, revision, index) = match self.undone_at {
            None => (was, change.revision, 0),
            Some(at) => (Op::Undone, at, change.revision.0.saturating_sub(at.0)),
        };
        let out = &mut batch.bytes;
        Self::begin(out, revision, index, op);
        if op == Op::Undone {
            out.extend_from_slice(b",\"undone_revision\":");
            put_number(out, change.revision.0);
            out.extend_from_slice(b",\"was\":\"");
            out.extend_from_slice(was.name().as_bytes());
            out.push(b'"');
        }
        out.extend_from_slice(b",\"effect\":\"");
        out.extend_from_slice(change.effect.name().as_bytes());
        out.extend_from_slice(b"\",\"time\":");
        self.times.put(out, change.time);
        out.extend_from_slice(b",\"who\":");
        names.put_user(out, change.who);
        out.extend_from_slice(b",\"operation\":\"");
        if self.operation != Some(change.operation) {
            self.operation = Some(change.operation);
            self.operation_text.clear();
            put_escaped(&mut self.operation_text, &format!("{:?}", change.operation));
        }
        out.extend_from_slice(&self.operation_text);
        out.extend_from_slice(b"\",\"part\":");
        put_number(out, u64::from(change.index));
        if let Some(id) = change.effect.entry_id() {
            out.extend_from_slice(b",\"entry\":");
            put_entry(out, id);
        }
        if let Some(now) = places.now {
            put_place(out, now);
        }
        if let Some(EventPlace { directory, name, .. }) = places.before {
            out.extend_from_slice(b",\"old_lfn\":");
            put_path(out, directory, name);
        }
        match meaning {
            Meaning::AllGone => out.extend_from_slice(b",\"all\":true"),
            Meaning::Arrived | Meaning::Appeared if op != Op::Undone => {
                out.extend_from_slice(b",\"rows\":true");
            }
            _ => {}
        }
        self.content(out, names, &change.effect, change.revision);
        let time = change.time;
        let is_of_row = !matches!(op, Op::Other | Op::Undone) && !places.is_above;
        let entry = change.effect.entry_id().filter(|_| is_of_row);
        self.end(batch, Head { end: 0, op, revision, index, time, version: 0, entry });
    }

    /// Adds a row of a copy.
    pub(crate) fn row(
        &mut self,
        batch: &mut Batch,
        names: &Names,
        (revision, index, time): (Revision, u64, TimeMs),
        (entry, place): (&Entry, EventPlace<'_>),
    ) {
        let out = &mut batch.bytes;
        Self::begin(out, revision, index, Op::Row);
        out.extend_from_slice(b",\"version\":");
        put_number(out, entry.revision.0);
        out.extend_from_slice(b",\"entry\":");
        put_entry(out, entry.id());
        put_place(out, place);
        out.extend_from_slice(b",\"after\":");
        self.entry(out, names, entry);
        let (version, entry) = (entry.revision.0, Some(entry.id()));
        self.end(batch, Head { end: 0, op: Op::Row, revision, index, time, version, entry });
    }

    /// Adds an event that is not about a change. Its other fields are numbers, truths and times that the
    /// caller wrote into `fields`, each with a comma before it.
    pub(crate) fn notice(
        &mut self,
        batch: &mut Batch,
        op: Op,
        (revision, index, time): (Revision, u64, TimeMs),
        fields: &[u8],
    ) {
        let out = &mut batch.bytes;
        Self::begin(out, revision, index, op);
        out.extend_from_slice(b",\"time\":");
        self.times.put(out, time);
        out.extend_from_slice(fields);
        self.end(batch, Head { end: 0, op, revision, index, time, version: 0, entry: None });
    }

    /// Adds the fields of an effect.
    fn content(&mut self, out: &mut Vec<u8>, names: &Names, effect: &Effect, revision: Revision) {
        match effect {
            Effect::Created { entry } => {
                out.extend_from_slice(b",\"after\":");
                self.entry(out, names, entry);
            }
            Effect::Purged { entry, .. } => {
                out.extend_from_slice(b",\"before\":");
                self.entry(out, names, entry);
            }
            Effect::Updated { id, fields, .. } => {
                out.extend_from_slice(b",\"before\":");
                self.fields(out, names, (*id, fields), Side::Before);
                out.extend_from_slice(b",\"after\":");
                self.fields(out, names, (*id, fields), Side::After);
            }
            Effect::Committed { created: Some(entry), .. } => {
                out.extend_from_slice(b",\"after\":");
                self.entry(out, names, entry);
            }
            Effect::Committed { guid, replica, checksums, created: None, .. } => {
                out.extend_from_slice(b",\"before\":{\"replicas\":{");
                names.put_se(out, replica.se);
                out.extend_from_slice(b":null}},\"after\":{\"replicas\":{");
                put_replica(out, names, *guid, replica);
                out.push(b'}');
                if !checksums.is_empty() {
                    out.extend_from_slice(b",\"checksums\":");
                    put_checksums(out, checksums);
                }
                out.push(b'}');
            }
            Effect::Removed { .. } => {
                // The trash names the item by the revision of its removal.
                out.extend_from_slice(b",\"trash\":");
                put_number(out, revision.0);
            }
            Effect::Restored { trash, .. } => {
                out.extend_from_slice(b",\"trash\":");
                put_number(out, trash.0.0);
            }
            Effect::Reserved { reservation, .. } | Effect::Released { reservation, .. } => {
                out.extend_from_slice(b",\"lfn\":");
                put_text(out, reservation.lfn.as_str());
                out.extend_from_slice(b",\"size\":");
                put_number(out, reservation.size);
            }
            Effect::Dequeued { se, done } => {
                out.extend_from_slice(b",\"se\":");
                names.put_se(out, *se);
                out.extend_from_slice(b",\"deletions\":");
                put_number(out, done.len() as u64);
            }
            Effect::Recorded { key, before, after } => {
                out.extend_from_slice(b",\"record\":\"");
                out.extend_from_slice(key.kind().name().as_bytes());
                out.push(b'"');
                let record = after.as_ref().or(before.as_ref());
                if let Some(name) = record.and_then(|record| record.unique_name()) {
                    out.extend_from_slice(b",\"record_name\":");
                    put_text(out, name);
                }
                let dropped: &[u8] =
                    if after.is_none() { b",\"dropped\":true" } else { b",\"dropped\":false" };
                out.extend_from_slice(dropped);
            }
            Effect::Moved { .. } => {}
        }
    }

    /// Adds an entry as an object, without its place and identity.
    fn entry(&mut self, out: &mut Vec<u8>, names: &Names, entry: &Entry) {
        out.extend_from_slice(b"{\"kind\":\"");
        out.extend_from_slice(entry.kind().name().as_bytes());
        out.extend_from_slice(b"\",\"owner\":");
        names.put_user(out, entry.owner);
        out.extend_from_slice(b",\"group\":");
        names.put_group(out, entry.group);
        out.extend_from_slice(b",\"mode\":");
        put_shown(out, entry.mode);
        out.extend_from_slice(b",\"created\":");
        self.moments.put(out, entry.created);
        out.extend_from_slice(b",\"modified\":");
        self.moments.put(out, entry.modified);
        if let Some(expires) = entry.expires {
            out.extend_from_slice(b",\"expires\":");
            put_shown(out, expires);
        }
        match &entry.body {
            Body::Directory(_) => {}
            Body::File(file) => {
                if let Some(size) = file.size {
                    out.extend_from_slice(b",\"size\":");
                    put_number(out, size);
                }
                if let Some(job) = file.job {
                    out.extend_from_slice(b",\"job\":");
                    put_number(out, job);
                }
                out.extend_from_slice(b",\"checksums\":");
                put_checksums(out, &file.checksums);
                out.extend_from_slice(b",\"replicas\":{");
                for (at, replica) in file.replicas.iter().enumerate() {
                    if at > 0 {
                        out.push(b',');
                    }
                    put_replica(out, names, file.guid, replica);
                }
                out.push(b'}');
            }
            Body::Collection { members, .. } => {
                out.extend_from_slice(b",\"member_count\":");
                put_number(out, *members);
            }
            Body::Link { target, .. } => {
                out.extend_from_slice(b",\"target\":");
                put_text(out, target.as_str());
            }
        }
        if !entry.tags.is_empty() {
            out.extend_from_slice(b",\"tags\":{");
            for (at, tag) in entry.tags.iter().enumerate() {
                if at > 0 {
                    out.push(b',');
                }
                put_text(out, tag.key.as_str());
                out.push(b':');
                put_tag(out, &tag.value);
            }
            out.push(b'}');
        }
        out.push(b'}');
    }

    /// Adds one side of changed fields, as a merge patch (RFC 7396).
    fn fields(
        &mut self,
        out: &mut Vec<u8>,
        names: &Names,
        (id, changes): (EntryId, &[FieldChange]),
        side: Side,
    ) {
        let mut fields = Fields::open(out);
        for (at, change) in changes.iter().enumerate() {
            if nested(change).is_some() || hidden(changes, at, side) {
                continue;
            }
            let time = |out: &mut Vec<u8>, time: Option<TimeMs>| match time {
                Some(time) => put_shown(out, time),
                None => out.extend_from_slice(b"null"),
            };
            let number = |out: &mut Vec<u8>, number: Option<u64>| match number {
                Some(number) => put_number(out, number),
                None => out.extend_from_slice(b"null"),
            };
            match change {
                FieldChange::Owner { before, after } => {
                    fields.name(out, "owner");
                    names.put_user(out, *side.of(before, after));
                }
                FieldChange::Group { before, after } => {
                    fields.name(out, "group");
                    names.put_group(out, *side.of(before, after));
                }
                FieldChange::Mode { before, after } => {
                    fields.name(out, "mode");
                    put_shown(out, side.of(before, after));
                }
                FieldChange::Modified { before, after } => {
                    fields.name(out, "modified");
                    time(out, Some(*side.of(before, after)));
                }
                FieldChange::Expires { before, after } => {
                    fields.name(out, "expires");
                    time(out, *side.of(before, after));
                }
                FieldChange::Job { before, after } => {
                    fields.name(out, "job");
                    number(out, *side.of(before, after));
                }
                FieldChange::Size { after } => {
                    fields.name(out, "size");
                    number(out, *side.of(&None, &Some(*after)));
                }
                _ => {}
            }
        }
        for group in ["checksums", "replicas", "tags", "members"] {
            let mut inner: Option<Fields> = None;
            for (at, change) in changes.iter().enumerate() {
                if nested(change) != Some(group) || hidden(changes, at, side) {
                    continue;
                }
                match &mut inner {
                    Some(_) => out.push(b','),
                    none => {
                        fields.name(out, group);
                        *none = Some(Fields::open(out));
                    }
                }
                put_nested(out, names, (id, change), side);
            }
            if let Some(inner) = inner {
                inner.close(out);
            }
        }
        fields.close(out);
    }
}

/// Side of a changed field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Side {
    Before,
    After,
}

impl Side {
    fn of<'a, T>(self, before: &'a T, after: &'a T) -> &'a T {
        if self == Side::Before { before } else { after }
    }
}

/// Returns the object that has a field, if it is inside of one.
fn nested(change: &FieldChange) -> Option<&'static str> {
    match change {
        FieldChange::Checksum { .. } => Some("checksums"),
        FieldChange::Replica { .. } => Some("replicas"),
        FieldChange::Tag { .. } => Some("tags"),
        FieldChange::Member { .. } => Some("members"),
        _ => None,
    }
}

/// True if another change of the same field says it: the last one has the value after, the first one
/// the value before.
fn hidden(changes: &[FieldChange], at: usize, side: Side) -> bool {
    let Some(this) = changes.get(at) else { return true };
    let others = match side {
        Side::Before => changes.get(..at),
        Side::After => changes.get(at + 1..),
    };
    others.unwrap_or_default().iter().any(|other| is_same_field(this, other))
}

fn is_same_field(one: &FieldChange, other: &FieldChange) -> bool {
    let se = |before: &Option<Replica>, after: &Option<Replica>| {
        before.as_ref().or(after.as_ref()).map(|replica| replica.se)
    };
    match (one, other) {
        (FieldChange::Checksum { after: one }, FieldChange::Checksum { after: other }) => {
            one.algorithm() == other.algorithm()
        }
        (
            FieldChange::Replica { before, after, .. },
            FieldChange::Replica { before: others_before, after: others_after, .. },
        ) => se(before, after) == se(others_before, others_after),
        (FieldChange::Tag { key: one, .. }, FieldChange::Tag { key: other, .. }) => one == other,
        (FieldChange::Member { guid: one, .. }, FieldChange::Member { guid: other, .. }) => one == other,
        _ => std::mem::discriminant(one) == std::mem::discriminant(other),
    }
}

/// Adds the key and one side of a field inside of an object; null if it is not there.
fn put_nested(out: &mut Vec<u8>, names: &Names, (id, change): (EntryId, &FieldChange), side: Side) {
    match change {
        FieldChange::Checksum { after } => {
            put_text(out, after.algorithm().name());
            out.push(b':');
            match side {
                Side::Before => out.extend_from_slice(b"null"),
                Side::After => put_hex(out, after.digest()),
            }
        }
        FieldChange::Replica { before, after, .. } => match (side.of(before, after), before, after) {
            (Some(replica), ..) => {
                put_replica(out, names, id.object().unwrap_or(Guid([0; 16])), replica);
            }
            (None, Some(other), _) | (None, _, Some(other)) => {
                names.put_se(out, other.se);
                out.extend_from_slice(b":null");
            }
            (None, None, None) => out.extend_from_slice(b"\"\":null"),
        },
        FieldChange::Tag { key, before, after } => {
            put_text(out, key.as_str());
            out.push(b':');
            match side.of(before, after) {
                Some(value) => put_tag(out, value),
                None => out.extend_from_slice(b"null"),
            }
        }
        FieldChange::Member { guid, added } => {
            put_shown(out, guid);
            let there = *added == (side == Side::After);
            out.extend_from_slice(if there { b":true" } else { b":null" });
        }
        _ => {}
    }
}

fn put_path(out: &mut Vec<u8>, directory: &str, name: &str) {
    out.push(b'"');
    put_escaped(out, directory);
    // The root stands in itself, under the name `/`.
    if name != "/" {
        out.push(b'/');
    }
    put_escaped(out, name);
    out.push(b'"');
}

fn put_place(out: &mut Vec<u8>, place: EventPlace<'_>) {
    out.extend_from_slice(b",\"lfn\":");
    put_path(out, place.directory, place.name);
    out.extend_from_slice(b",\"parent\":\"directory:");
    put_number(out, place.parent);
    out.extend_from_slice(b"\",\"name\":");
    put_text(out, place.name);
}

fn put_hex(out: &mut Vec<u8>, bytes: &[u8]) {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let digit = |value: u8| DIGITS.get(usize::from(value)).copied().unwrap_or(b'0');
    out.push(b'"');
    for byte in bytes {
        out.extend_from_slice(&[digit(byte >> 4), digit(byte & 15)]);
    }
    out.push(b'"');
}

fn put_checksums(out: &mut Vec<u8>, checksums: &Checksums) {
    out.push(b'{');
    for (at, checksum) in checksums.iter().enumerate() {
        if at > 0 {
            out.push(b',');
        }
        put_text(out, checksum.algorithm().name());
        out.push(b':');
        put_hex(out, checksum.digest());
    }
    out.push(b'}');
}

/// Adds `"SE":{"state":…,"pfn":…}`. The PFN is left out if the place of the storage element is unknown.
fn put_replica(out: &mut Vec<u8>, names: &Names, guid: Guid, replica: &Replica) {
    names.put_se(out, replica.se);
    out.extend_from_slice(b":{\"state\":\"");
    out.extend_from_slice(replica.state.name().as_bytes());
    out.push(b'"');
    let se = names.se(replica.se);
    let is_derived = matches!(replica.location, exacat_model::Location::Derived);
    if !is_derived || se.is_some_and(|se| se.is_place_known()) {
        out.extend_from_slice(b",\"pfn\":");
        put_text(out, &replica.pfn(guid, se));
    }
    out.push(b'}');
}

fn put_tag(out: &mut Vec<u8>, value: &TagValue) {
    match value {
        TagValue::Text(text) => put_text(out, text),
        TagValue::Integer(number) => {
            if *number < 0 {
                out.push(b'-');
            }
            put_number(out, number.unsigned_abs());
        }
        // JSON has no infinity.
        TagValue::Real(number) if !number.is_finite() => put_shown(out, number),
        TagValue::Real(number) => out.extend_from_slice(format!("{number:?}").as_bytes()),
        TagValue::Time(time) => put_shown(out, time),
        TagValue::Boolean(truth) => out.extend_from_slice(if *truth { b"true" } else { b"false" }),
    }
}

/// Returns the directory and the name of a path.
pub(crate) fn split(lfn: &Lfn) -> (&str, &str) {
    match lfn.split_last() {
        Some(("/", name)) => ("", name),
        Some(parts) => parts,
        None => ("", "/"),
    }
}
