//! Memory that items take. Pages and batches of reads are bounded by it.

use crate::answer::{Answer, ChangeInfo, DeletionAt, Member, Stat, TagInForce, Upload};
use crate::change::{Change, Deletion, Effect, FieldChange, TrashItem};
use crate::element::{Element, ElementAggregates, ElementRows, ElementState, ElementValue};
use crate::entry::{Body, Entry, File, Location, Replica};
use crate::guid::Guid;
use crate::history::FieldValue;
use crate::lfn::Lfn;
use crate::mutation::Reservation;
use crate::registry::Record;
use crate::snapshot::Difference;
use crate::tag::{Tag, TagValue};
use crate::whereis::Whereis;

/// An item whose memory can be summed up cheaply.
pub trait Measured {
    /// Returns the approximate memory of the item in bytes, with all texts and lists in it.
    fn bytes(&self) -> usize;
}

fn sum<T: Measured>(items: &[T]) -> usize {
    items.iter().map(Measured::bytes).sum()
}

impl Measured for Guid {
    fn bytes(&self) -> usize {
        size_of::<Guid>()
    }
}

impl Measured for Lfn {
    fn bytes(&self) -> usize {
        size_of::<Lfn>() + self.as_str().len()
    }
}

impl Measured for TagValue {
    fn bytes(&self) -> usize {
        let text = if let TagValue::Text(text) = self { text.len() } else { 0 };
        size_of::<TagValue>() + text
    }
}

impl Measured for Tag {
    fn bytes(&self) -> usize {
        size_of::<Tag>() - size_of::<TagValue>() + self.key.as_str().len() + self.value.bytes()
    }
}

/// Returns the bytes of a location's texts.
fn texts_of(location: &Location) -> usize {
    match location {
        Location::Derived => 0,
        Location::Explicit(pfn) => pfn.as_str().len(),
        Location::Member { member, .. } => member.len(),
    }
}

impl Measured for Replica {
    fn bytes(&self) -> usize {
        size_of::<Replica>() + texts_of(&self.location)
    }
}

impl Measured for File {
    fn bytes(&self) -> usize {
        size_of::<File>() + sum(&self.replicas)
    }
}

impl Measured for Entry {
    fn bytes(&self) -> usize {
        let body = match &self.body {
            Body::File(file) => sum(&file.replicas),
            Body::Link { target, .. } => target.as_str().len(),
            Body::Directory(_) | Body::Collection { .. } => 0,
        };
        size_of::<Entry>() + self.at.name.as_str().len() + sum(&self.tags) + body
    }
}

impl Measured for TrashItem {
    fn bytes(&self) -> usize {
        size_of::<TrashItem>() - size_of::<Entry>() + self.lfn.as_str().len() + self.entry.bytes()
    }
}

impl Measured for Deletion {
    fn bytes(&self) -> usize {
        size_of::<Deletion>() + texts_of(&self.location)
    }
}

impl Measured for Reservation {
    fn bytes(&self) -> usize {
        let pending = self.pending.iter().map(|one| size_of_val(one) + texts_of(&one.location));
        size_of::<Reservation>() + self.lfn.as_str().len() + pending.sum::<usize>()
    }
}

impl Measured for Record {
    fn bytes(&self) -> usize {
        let lists = match self {
            Record::User(user) => {
                let subjects = user.subjects.iter().map(|subject| size_of_val(subject) + subject.len());
                size_of_val(&user.groups[..])
                    + size_of_val(&user.may_become[..])
                    + subjects.sum::<usize>()
                    + user.home.as_ref().map_or(0, |home| home.as_str().len())
            }
            Record::Se(se) => {
                let distances = se.distances.iter().map(|one| size_of_val(one) + one.0.as_str().len());
                se.prefix.len() + se.https.len() + distances.sum::<usize>()
            }
            Record::Token(token) => token.scope.as_str().len() + token.note.len(),
            Record::Group(_) | Record::Quota(_) => 0,
        };
        size_of::<Record>() + lists
    }
}

impl Measured for FieldChange {
    fn bytes(&self) -> usize {
        let more = match self {
            FieldChange::Tag { before, after, .. } => {
                [before, after].into_iter().flatten().map(Measured::bytes).sum()
            }
            FieldChange::Replica { before, after, .. } => {
                [before, after].into_iter().flatten().map(Measured::bytes).sum()
            }
            _ => 0,
        };
        size_of::<FieldChange>() + more
    }
}

impl Measured for Change {
    fn bytes(&self) -> usize {
        let effect = match &self.effect {
            Effect::Created { entry } | Effect::Purged { entry, .. } => entry.bytes(),
            Effect::Updated { fields, .. } => sum(fields),
            Effect::Removed { lfn, .. } => lfn.as_str().len(),
            Effect::Reserved { reservation, before } => {
                reservation.bytes() + before.as_ref().map_or(0, |before| before.bytes())
            }
            Effect::Released { reservation, .. } => reservation.bytes(),
            Effect::Committed { created, replica, .. } => {
                created.as_ref().map_or(0, |entry| entry.bytes()) + replica.bytes()
            }
            Effect::Dequeued { done, .. } => size_of_val(&done[..]),
            Effect::Recorded { before, after, .. } => {
                [before, after].into_iter().flatten().map(|record| record.bytes()).sum()
            }
            Effect::Moved { .. } | Effect::Restored { .. } => 0,
        };
        size_of::<Change>() + effect
    }
}

impl Measured for Stat {
    fn bytes(&self) -> usize {
        size_of::<Stat>() - size_of::<Entry>() + self.lfn.as_str().len() + self.entry.bytes()
    }
}

impl Measured for TagInForce {
    fn bytes(&self) -> usize {
        self.tag.bytes() + self.from.bytes()
    }
}

impl Measured for Member {
    fn bytes(&self) -> usize {
        size_of::<Member>() + self.stat.as_ref().map_or(0, Measured::bytes)
    }
}

impl Measured for Upload {
    fn bytes(&self) -> usize {
        let targets = self.targets.iter().map(|target| size_of_val(target) + target.pfn.len());
        size_of::<Upload>() + self.reservation.bytes() + targets.sum::<usize>()
    }
}

impl Measured for DeletionAt {
    fn bytes(&self) -> usize {
        size_of::<DeletionAt>() + self.pfn.len()
    }
}

impl Measured for ChangeInfo {
    fn bytes(&self) -> usize {
        let directories = self.directories.iter().map(|(_, lfn)| lfn.bytes());
        let lfn = self.lfn.as_ref().map_or(0, Measured::bytes);
        size_of::<ChangeInfo>() + self.change.bytes() + lfn + directories.sum::<usize>()
    }
}

impl Measured for Whereis {
    fn bytes(&self) -> usize {
        let replicas = self.replicas.iter().map(|replica| size_of_val(replica) + replica.pfn.len());
        size_of::<Whereis>() + replicas.sum::<usize>()
    }
}

impl Measured for Difference {
    fn bytes(&self) -> usize {
        let entries = [&self.before, &self.after].into_iter().flatten();
        size_of::<Difference>() + entries.map(|one| one.lfn.bytes() + one.entry.bytes()).sum::<usize>()
    }
}

impl Measured for FieldValue {
    fn bytes(&self) -> usize {
        size_of::<FieldValue>() + if let FieldValue::Text(text) = self { text.len() } else { 0 }
    }
}

impl Measured for Element {
    fn bytes(&self) -> usize {
        let fields = self.fields.iter().map(|field| size_of_val(field) + field.0.len());
        size_of::<Element>() + self.key.len() + self.name.len() + fields.sum::<usize>()
    }
}

impl Measured for ElementState {
    fn bytes(&self) -> usize {
        let values =
            self.values.iter().map(|of| size_of::<ElementValue>() + of.field.len() + of.value.bytes());
        size_of::<ElementState>() + self.key.len() + self.name.len() + values.sum::<usize>()
    }
}

impl Measured for ElementRows {
    fn bytes(&self) -> usize {
        let value =
            |value: &Option<FieldValue>| value.as_ref().map_or(size_of::<FieldValue>(), Measured::bytes);
        let columns = self.columns.iter().map(|column| {
            size_of_val(column) + column.field.len() + column.values.iter().map(value).sum::<usize>()
        });
        let times = size_of_val(self.times.as_slice());
        size_of::<ElementRows>() + self.key.len() + self.name.len() + times + columns.sum::<usize>()
    }
}

impl Measured for ElementAggregates {
    fn bytes(&self) -> usize {
        let texts = self.key.len() + self.name.len() + self.field.len();
        size_of::<ElementAggregates>() + texts + size_of_val(self.intervals.as_slice())
    }
}

/// The bytes of a list without its answers for errors, which are short.
fn sum_of_found<T: Measured, E>(items: &[Result<T, E>]) -> usize {
    items.iter().map(|item| size_of_val(item) + item.as_ref().map_or(0, Measured::bytes)).sum()
}

impl Measured for Answer {
    fn bytes(&self) -> usize {
        let items = match self {
            Answer::Stats(items) => sum_of_found(items),
            Answer::Whereis(items) => sum_of_found(items),
            Answer::Lfns(items) => sum_of_found(items),
            Answer::Entries { items, .. } => sum(items),
            Answer::Trash { items, .. } => items.iter().map(|(item, who)| item.bytes() + who.len()).sum(),
            Answer::Tags(items) => items.iter().flatten().flatten().map(Measured::bytes).sum(),
            Answer::Members { items, .. } => sum(items),
            Answer::Upload(upload) => upload.bytes(),
            Answer::Uploads { items, .. } => sum(items),
            Answer::Deletions { items, .. } => sum(items),
            Answer::Changes { items, .. } => sum(items),
            Answer::Differences { items, .. } => sum(items),
            Answer::Elements { items, .. } => sum(items),
            Answer::ElementValues { items, .. } => sum(items),
            Answer::ElementRows { items, .. } => sum(items),
            Answer::ElementAggregates { items, .. } => sum(items),
            // Answers of a fixed size, and those that no user's data makes long.
            _ => 0,
        };
        size_of::<Answer>() + items
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tag::TagKey;
    use crate::time::TimeMs;
    use crate::{AccountName, At, DirId, GroupId, Mode, Name, Pfn, ReplicaState, Revision, SeNumber, UserId};

    /// Texts of an entry count, wherever they are: what a page is bounded by cannot grow unseen.
    #[test]
    fn bytes_of_an_entry_grow_with_each_of_its_texts() {
        let file = File {
            guid: Guid([1; 16]),
            size: None,
            checksums: crate::Checksums::none(),
            job: None,
            replicas: Vec::new(),
        };
        let plain = Entry {
            at: At { parent: DirId(1), name: Name::parse("a").unwrap() },
            owner: UserId(0),
            group: GroupId(0),
            mode: Mode::FILE,
            created: TimeMs(0),
            modified: TimeMs(0),
            revision: Revision(1),
            expires: None,
            tags: Vec::new(),
            body: Body::File(file.clone()),
        };
        let mut tagged = plain.clone();
        let key = TagKey::parse("k").unwrap();
        tagged.tags.push(Tag { key, value: TagValue::Text("v".repeat(1000)) });
        assert_eq!(tagged.bytes() - plain.bytes(), size_of::<Tag>() + 1 + 1000);
        let pfn = Pfn::parse(&format!("root://host//{}", "p".repeat(987))).unwrap();
        let location = Location::Explicit(pfn);
        let replica = Replica { se: SeNumber(1), state: ReplicaState::Available, location };
        let mut placed = plain.clone();
        placed.body = Body::File(File { replicas: vec![replica], ..file });
        assert_eq!(placed.bytes() - plain.bytes(), size_of::<Replica>() + 1000);
        let lfn = Lfn::parse("/a").unwrap();
        let stat = |entry: &Entry| Stat {
            lfn: lfn.clone(),
            owner: AccountName::parse("u").unwrap(),
            group: AccountName::parse("g").unwrap(),
            entry: entry.clone(),
        };
        let answer = |entry| Answer::Stats(vec![Ok(stat(entry))]).bytes();
        assert_eq!(answer(&tagged) - answer(&plain), tagged.bytes() - plain.bytes());
    }
}
