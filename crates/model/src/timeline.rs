//! Timelines: the histories of one catalogue, one of which a revision belongs to.
//!
//! A restore to an earlier point, a repair with loss and a torn end of the log all assign revisions
//! a second time. Each begins a new timeline, with a random id, that parts from another timeline
//! after a revision. A revision alone is then ambiguous; a revision with its timeline is not.
//!
//! ```text
//!   3f9a1c…  1 ─────── 2265 ─── 2315        restored to 2265: 2266 to 2315 were replaced
//!                        └───── 2266 ───►   d07be2…, the current timeline
//! ```

use std::fmt;
use std::str::FromStr;

use crate::codec::{Decode, DecodeError, Encode, Reader};
use crate::entry::Revision;
use crate::error::{Error, ErrorKind, Result};
use crate::limits::TIMELINES_MAX;
use crate::mutation::{DeletionId, TrashId};
use crate::{canonical_newtype, canonical_struct};

/// Hexadecimal digits of a timeline that people type.
const TAG_DIGITS: u8 = 6;
/// Hexadecimal digits of a whole id.
const ID_DIGITS: u8 = 32;

/// Id of a timeline: random, and never assigned twice.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TimelineId(pub [u8; 16]);

canonical_newtype!(TimelineId);

impl TimelineId {
    /// Returns the timeline of a catalogue that recorded none; it follows from the catalogue's own
    /// id.
    pub fn of_catalogue(catalogue: [u8; 16]) -> Self {
        let mut id = *b"exacat timeline\0";
        id.iter_mut().zip(catalogue).for_each(|(byte, other)| *byte ^= other);
        TimelineId(id)
    }

    /// Reads 32 hexadecimal digits.
    pub fn parse(text: &str) -> Result<Self> {
        let tag = TimelineTag::parse(text)?;
        if tag.digits != ID_DIGITS {
            return Err(Error::invalid(format!("a timeline's id has {ID_DIGITS} digits: {text:.100?}")));
        }
        Ok(TimelineId(tag.bits.to_be_bytes()))
    }

    /// Returns the first digits, for people.
    pub fn tag(self) -> TimelineTag {
        self.first_digits(TAG_DIGITS)
    }

    /// Returns all digits, for programs.
    pub fn whole(self) -> TimelineTag {
        self.first_digits(ID_DIGITS)
    }

    fn first_digits(self, digits: u8) -> TimelineTag {
        let bits = u128::from_be_bytes(self.0);
        TimelineTag { digits, bits: bits & mask(digits) }
    }
}

impl fmt::Display for TimelineId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", u128::from_be_bytes(self.0))
    }
}

impl fmt::Debug for TimelineId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// Returns a mask of the first `digits` hexadecimal digits.
fn mask(digits: u8) -> u128 {
    let rest = 4 * u32::from(ID_DIGITS.saturating_sub(digits));
    u128::MAX.checked_shl(rest).unwrap_or(0)
}

/// The first 6 to 32 hexadecimal digits of a timeline's id: `3f9a1c`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TimelineTag {
    bits: u128,
    digits: u8,
}

impl TimelineTag {
    /// Reads 6 to 32 hexadecimal digits.
    pub fn parse(text: &str) -> Result<Self> {
        let wrong = || {
            Error::invalid(format!(
                "not a timeline, which has {TAG_DIGITS} to {ID_DIGITS} hexadecimal digits: {text:.100?}"
            ))
        };
        let digits = u8::try_from(text.len()).map_err(|_| wrong())?;
        if !(TAG_DIGITS..=ID_DIGITS).contains(&digits) || !text.bytes().all(|byte| byte.is_ascii_hexdigit()) {
            return Err(wrong());
        }
        let bits = u128::from_str_radix(text, 16).map_err(|_| wrong())?;
        Ok(TimelineTag { bits: bits << (4 * u32::from(ID_DIGITS - digits)), digits })
    }

    fn names(self, id: TimelineId) -> bool {
        u128::from_be_bytes(id.0) & mask(self.digits) == self.bits
    }
}

impl fmt::Display for TimelineTag {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let rest = 4 * u32::from(ID_DIGITS.saturating_sub(self.digits));
        let width = usize::from(self.digits);
        write!(f, "{:0width$x}", self.bits >> rest)
    }
}

impl fmt::Debug for TimelineTag {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl Encode for TimelineTag {
    fn encode(&self, out: &mut Vec<u8>) {
        self.digits.encode(out);
        self.bits.to_be_bytes().encode(out);
    }
}

impl Decode for TimelineTag {
    fn decode(reader: &mut Reader<'_>) -> std::result::Result<Self, DecodeError> {
        let digits = u8::decode(reader)?;
        let bits = u128::from_be_bytes(<[u8; 16]>::decode(reader)?);
        if !(TAG_DIGITS..=ID_DIGITS).contains(&digits) || bits & mask(digits) != bits {
            return Err(reader.error("not a timeline"));
        }
        Ok(TimelineTag { bits, digits })
    }
}

/// An id that contains a revision, with the timeline of that revision: `2266.3f9a1c`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct OnTimeline<Id> {
    /// The id.
    pub id: Id,
    /// Timeline on which it was assigned, or a later one that continues that.
    pub timeline: TimelineTag,
}

impl<Id: Encode> Encode for OnTimeline<Id> {
    fn encode(&self, out: &mut Vec<u8>) {
        self.id.encode(out);
        self.timeline.encode(out);
    }
}

impl<Id: Decode> Decode for OnTimeline<Id> {
    fn decode(reader: &mut Reader<'_>) -> std::result::Result<Self, DecodeError> {
        Ok(OnTimeline { id: Id::decode(reader)?, timeline: TimelineTag::decode(reader)? })
    }
}

/// Ids that contain a revision, which only a timeline makes unambiguous.
pub trait HasRevision: Sized {
    /// Returns the revision in it.
    fn revision(&self) -> Revision;

    /// Returns the id with its timeline.
    fn on(self, timeline: TimelineTag) -> OnTimeline<Self> {
        OnTimeline { id: self, timeline }
    }
}

impl HasRevision for Revision {
    fn revision(&self) -> Revision {
        *self
    }
}

impl HasRevision for TrashId {
    fn revision(&self) -> Revision {
        self.0
    }
}

impl HasRevision for DeletionId {
    fn revision(&self) -> Revision {
        self.revision
    }
}

impl fmt::Display for OnTimeline<Revision> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.id.0, self.timeline)
    }
}

impl fmt::Display for OnTimeline<TrashId> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.id.0.0, self.timeline)
    }
}

impl fmt::Display for OnTimeline<DeletionId> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}.{}", self.id.revision.0, self.id.index, self.timeline)
    }
}

impl FromStr for OnTimeline<TrashId> {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let parts = text.split_once('.');
        let number = parts.and_then(|(number, _)| number.parse().ok());
        let (Some(number), Some((_, tag))) = (number, parts) else {
            return Err(Error::invalid(format!(
                "not an id of the trash, which is a revision and a timeline (2266.3f9a1c): {text:.100?}"
            )));
        };
        Ok(TrashId(Revision(number)).on(TimelineTag::parse(tag)?))
    }
}

impl FromStr for OnTimeline<DeletionId> {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let mut parts = text.splitn(3, '.');
        let revision = parts.next().and_then(|number| number.parse().ok());
        let index = parts.next().and_then(|number| number.parse().ok());
        let (Some(revision), Some(index), Some(tag)) = (revision, index, parts.next()) else {
            return Err(Error::invalid(format!(
                "not an id of a deletion, which is a revision, a number and a timeline (2266.0.3f9a1c): {text:.100?}"
            )));
        };
        Ok(DeletionId { revision: Revision(revision), index }.on(TimelineTag::parse(tag)?))
    }
}

/// A place in the history: after a revision, on a timeline if that is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct LogPosition {
    /// The last change before it.
    pub revision: Revision,
    /// Timeline of that change; without one a replaced revision cannot be recognised.
    pub timeline: Option<TimelineTag>,
}

canonical_struct!(LogPosition { revision, timeline });

impl From<Revision> for LogPosition {
    fn from(revision: Revision) -> Self {
        LogPosition { revision, timeline: None }
    }
}

impl fmt::Display for LogPosition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.timeline {
            Some(timeline) => fmt::Display::fmt(&self.revision.on(timeline), f),
            None => write!(f, "{}", self.revision.0),
        }
    }
}

impl FromStr for LogPosition {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let (number, tag) = text.split_once('.').map_or((text, None), |(number, tag)| (number, Some(tag)));
        let revision = number.parse().map(Revision).map_err(|_| {
            Error::invalid(format!(
                "not a revision, with a timeline or without (2315 or 2315.3f9a1c): {text:.100?}"
            ))
        })?;
        Ok(LogPosition { revision, timeline: tag.map(TimelineTag::parse).transpose()? })
    }
}

/// A timeline, and the point where it parted from another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timeline {
    /// Its id.
    pub id: TimelineId,
    /// The timeline before it, and the last revision that both have; none for the first of a
    /// catalogue.
    pub parted: Option<(TimelineId, Revision)>,
}

/// Remembered timelines of a catalogue, replaced ones too. The last one is the current one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Timelines {
    all: Vec<Timeline>,
}

impl Timelines {
    /// Makes the list of a new catalogue: one timeline from the first revision on.
    pub fn new(id: TimelineId) -> Self {
        Timelines { all: vec![Timeline { id, parted: None }] }
    }

    /// Restores remembered timelines, the current one last; none if the list is empty, is longer than
    /// [`TIMELINES_MAX`], or has an id twice.
    pub fn from_parts(all: Vec<Timeline>) -> Option<Self> {
        let unique = |at: usize| all[..at].iter().all(|other| other.id != all[at].id);
        let good = !all.is_empty() && all.len() <= TIMELINES_MAX && (0..all.len()).all(unique);
        good.then_some(Timelines { all })
    }

    /// Returns the timelines, the current one last.
    pub fn all(&self) -> &[Timeline] {
        &self.all
    }

    /// Returns the timeline of new revisions.
    pub fn current(&self) -> TimelineId {
        self.all.last().map_or(TimelineId([0; 16]), |timeline| timeline.id)
    }

    fn get(&self, id: TimelineId) -> Option<&Timeline> {
        self.all.iter().find(|timeline| timeline.id == id)
    }

    /// Iterates over a timeline and those before it, each with its last revision that the timeline
    /// contains.
    fn line(&self, id: TimelineId) -> impl Iterator<Item = (TimelineId, Revision)> {
        let mut next = Some((id, Revision(u64::MAX)));
        let steps = self.all.len();
        std::iter::from_fn(move || {
            let (id, last) = next?;
            let parted = self.get(id).and_then(|timeline| timeline.parted);
            next = parted.map(|(before, after)| (before, after.min(last)));
            Some((id, last))
        })
        .take(steps)
    }

    /// Returns the timeline on which a revision of the current history was assigned.
    pub fn at(&self, revision: Revision) -> TimelineId {
        let line = self.line(self.current()).take_while(|(_, last)| revision <= *last);
        line.last().map_or(self.current(), |(id, _)| id)
    }

    /// Begins a timeline after a revision of `before`, as the current one. Forgets the oldest
    /// beyond [`TIMELINES_MAX`].
    pub fn begin(&mut self, id: TimelineId, before: TimelineId, after: Revision) {
        self.all.retain(|timeline| timeline.id != id);
        self.all.push(Timeline { id, parted: Some((before, after)) });
        self.forget_oldest();
    }

    /// Adds the timelines of another copy of the catalogue. The current one stays.
    pub fn remember(&mut self, other: &Timelines) {
        let known: Vec<Timeline> = std::mem::take(&mut self.all);
        let is_new = |timeline: &&Timeline| known.iter().all(|own| own.id != timeline.id);
        self.all = other.all.iter().filter(is_new).copied().collect();
        self.all.extend(known);
        self.forget_oldest();
    }

    fn forget_oldest(&mut self) {
        let excess = self.all.len().saturating_sub(TIMELINES_MAX);
        self.all.drain(..excess);
    }

    /// Returns the last revision that a timeline and the current one share: `Revision(u64::MAX)`
    /// for the current one itself, none for an unknown one. If a tag names several, the earliest
    /// point counts.
    pub fn parting_point(&self, tag: TimelineTag) -> Option<Revision> {
        let named = self.all.iter().filter(|timeline| tag.names(timeline.id));
        named.map(|timeline| self.parted_after(timeline.id)).min()
    }

    fn parted_after(&self, id: TimelineId) -> Revision {
        for (common, last) in self.line(id) {
            if let Some((_, own)) = self.line(self.current()).find(|(own, _)| *own == common) {
                return last.min(own);
            }
        }
        Revision(0)
    }

    /// Refuses a revision that is not in the current history; the error names the point where the
    /// timelines part. The start, revision 0, is the same on all.
    pub fn check(&self, revision: Revision, timeline: TimelineTag) -> Result<()> {
        if revision == Revision(0) {
            return Ok(());
        }
        let current = self.current();
        match self.parting_point(timeline) {
            Some(point) if revision <= point => Ok(()),
            Some(point) => Err(Error::new(
                ErrorKind::Conflict,
                format!(
                    "revision {} of timeline {timeline} was replaced: the timelines part after {}; start again from {}",
                    revision.0,
                    point.0,
                    point.on(current.tag())
                ),
            )),
            None => Err(Error::new(
                ErrorKind::Conflict,
                format!(
                    "timeline {timeline} of revision {} is unknown here, where the timeline is {current}: start again from 0",
                    revision.0
                ),
            )),
        }
    }

    /// Checks a place in the history. Without a timeline, it refuses a revision that several
    /// timelines may have assigned. `Revision(u64::MAX)` means the end, whatever it is.
    pub fn check_position(&self, position: LogPosition) -> Result<()> {
        match position.timeline {
            Some(timeline) => self.check(position.revision, timeline),
            None => self.check_bare(position.revision),
        }
    }

    fn check_bare(&self, revision: Revision) -> Result<()> {
        let current = self.current();
        let others = self.all.iter().filter(|timeline| timeline.id != current);
        let parted = others.map(|other| (self.parted_after(other.id), other.id)).min();
        match parted {
            Some((point, other)) if revision > point && revision != Revision(u64::MAX) => Err(Error::new(
                ErrorKind::Conflict,
                format!(
                    "revision {} may be of a replaced timeline: {} and {} part after revision {}; give {} if it is of today's, else start again from {}",
                    revision.0,
                    other.tag(),
                    current.tag(),
                    point.0,
                    revision.on(current.tag()),
                    point.on(current.tag())
                ),
            )),
            _ => Ok(()),
        }
    }

    /// Returns the id, unless its revision was replaced.
    pub fn resolve<Id: HasRevision>(&self, what: &str, named: OnTimeline<Id>) -> Result<Id> {
        match self.check(named.id.revision(), named.timeline) {
            Ok(()) => Ok(named.id),
            Err(error) => Err(Error::new(
                error.kind,
                format!("{}; list {what} again for its ids of today", error.message),
            )),
        }
    }

    /// Adds the timeline to an id of the current history, for clients.
    pub fn name<Id: HasRevision>(&self, id: Id) -> OnTimeline<Id> {
        let timeline = self.at(id.revision());
        id.on(timeline.tag())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(byte: u8) -> TimelineId {
        TimelineId([byte; 16])
    }

    /// Timelines of a catalogue restored to 2265 (b), then to 2100 (c): b and the end of a are
    /// replaced.
    fn restored_twice() -> Timelines {
        let mut timelines = Timelines::new(id(0xa));
        timelines.begin(id(0xb), id(0xa), Revision(2265));
        timelines.begin(id(0xc), id(0xa), Revision(2100));
        timelines
    }

    #[test]
    fn revision_that_was_replaced_is_refused_with_the_parting_point() {
        let mut timelines = Timelines::new(id(0xa));
        timelines.begin(id(0xb), id(0xa), Revision(2265));
        assert_eq!(timelines.check(Revision(2265), id(0xa).tag()), Ok(()));
        let refused = timelines.check(Revision(2315), id(0xa).tag()).unwrap_err();
        assert_eq!(refused.kind, ErrorKind::Conflict);
        assert_eq!(
            refused.message,
            "revision 2315 of timeline 0a0a0a was replaced: the timelines part after 2265; start again from 2265.0b0b0b"
        );
        assert_eq!(timelines.check(Revision(2315), id(0xb).whole()), Ok(()));
        assert_eq!(timelines.check(Revision(0), id(0xf).tag()), Ok(()), "the start is that of all");
        assert_eq!(timelines.check(Revision(1), id(0xf).tag()).unwrap_err().kind, ErrorKind::Conflict);
    }

    #[test]
    fn bare_revision_after_a_parting_point_is_refused() {
        let bare = |timelines: &Timelines, revision| timelines.check_position(Revision(revision).into());
        assert_eq!(bare(&Timelines::new(id(0xa)), 2315), Ok(()));
        let timelines = restored_twice();
        assert_eq!(bare(&timelines, 2100), Ok(()));
        assert_eq!(bare(&timelines, u64::MAX), Ok(()), "the end");
        let refused = bare(&timelines, 2101).unwrap_err();
        assert_eq!(refused.kind, ErrorKind::Conflict);
        assert_eq!(
            refused.message,
            "revision 2101 may be of a replaced timeline: 0a0a0a and 0c0c0c part after revision 2100; give 2101.0c0c0c if it is of today's, else start again from 2100.0c0c0c"
        );
        assert_eq!(timelines.check_position("2101.0c0c0c".parse().unwrap()), Ok(()));
    }

    #[test]
    fn timelines_of_two_restores_part_where_the_earlier_one_was() {
        let timelines = restored_twice();
        for (tag, point) in [(0xa, 2100), (0xb, 2100), (0xc, u64::MAX)] {
            assert_eq!(timelines.parting_point(id(tag).tag()), Some(Revision(point)), "{tag:x}");
        }
        assert_eq!(timelines.at(Revision(2100)), id(0xa));
        assert_eq!(timelines.at(Revision(2101)), id(0xc));
    }

    /// Goal: a tag that names two timelines never admits a revision that one of them refuses.
    #[test]
    fn tag_of_two_timelines_parts_at_the_earlier_point() {
        let mut other = id(0xa);
        other.0[15] = 1;
        let mut timelines = Timelines::new(id(0xa));
        timelines.begin(other, id(0xa), Revision(7));
        assert_eq!(timelines.parting_point(other.tag()), Some(Revision(7)));
        assert_eq!(timelines.parting_point(other.whole()), Some(Revision(u64::MAX)));
    }

    #[test]
    fn timelines_beyond_the_limit_forget_the_oldest() {
        let mut timelines = Timelines::new(id(0));
        for number in 1..=TIMELINES_MAX as u64 {
            let mut next = id(1);
            next.0[..8].copy_from_slice(&number.to_be_bytes());
            timelines.begin(next, timelines.current(), Revision(number));
        }
        assert_eq!(timelines.all().len(), TIMELINES_MAX);
        assert_eq!(timelines.parting_point(id(0).whole()), None);
        assert!(Timelines::from_parts(timelines.all().to_vec()).is_some());
        let mut more = timelines.all().to_vec();
        more.push(Timeline { id: id(0), parted: None });
        assert_eq!(Timelines::from_parts(more), None);
    }

    #[test]
    fn remembered_timelines_come_before_the_own_ones() {
        let mut timelines = Timelines::new(id(0xa));
        timelines.remember(&restored_twice());
        assert_eq!(timelines.current(), id(0xa));
        assert_eq!(timelines.parting_point(id(0xc).tag()), Some(Revision(2100)));
    }

    #[test]
    fn ids_with_a_timeline_are_read_as_printed() {
        let tag = TimelineId::of_catalogue([7; 16]).tag();
        let trash = TrashId(Revision(2266)).on(tag);
        assert_eq!(trash.to_string().parse::<OnTimeline<TrashId>>().unwrap(), trash);
        let deletion = DeletionId { revision: Revision(2266), index: 3 }.on(tag);
        assert_eq!(deletion.to_string().parse::<OnTimeline<DeletionId>>().unwrap(), deletion);
        for text in ["2315", "2315.3f9a1c", "0.0123456789abcdef0123456789abcdef"] {
            assert_eq!(text.parse::<LogPosition>().unwrap().to_string(), text);
        }
        for bad in ["", "2266", "2266.", "2266.3f9a1", "2266.3f9a1g", "x.3f9a1c", "2266.+f9a1c"] {
            assert!(bad.parse::<OnTimeline<TrashId>>().is_err(), "{bad:?}");
        }
        let long = format!("1.{}", "a".repeat(33));
        assert!(long.parse::<LogPosition>().is_err());
        let whole = id(0xb).whole();
        assert_eq!(TimelineId::parse(&whole.to_string()).unwrap(), id(0xb));
        assert!(TimelineId::parse("3f9a1c").is_err());
    }

    #[test]
    fn encoded_timelines_are_read_again() {
        let named = TrashId(Revision(5)).on(id(3).tag());
        assert_eq!(OnTimeline::from_bytes(&named.to_bytes()), Ok(named));
        let position = LogPosition { revision: Revision(9), timeline: Some(id(3).whole()) };
        assert_eq!(LogPosition::from_bytes(&position.to_bytes()), Ok(position));
        let mut bytes = Vec::new();
        id(3).tag().encode(&mut bytes);
        let last = bytes.len() - 1;
        bytes[last] = 1;
        assert!(TimelineTag::decode(&mut Reader::new(&bytes)).is_err(), "bits beyond the digits");
    }
}
