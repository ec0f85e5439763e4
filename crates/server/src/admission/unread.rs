//! Unread answers: bounds the bytes of answers that clients have not read yet, over all protocols.
//!
//! The server makes long answers part by part. Each part needs room before it is made. The room
//! comes from the bytes that all connections share. If these are used up, it comes from the one
//! place for a small part that every connection has. So a client that reads always gets on, if in
//! smaller steps, however much others leave unread. Short answers need no room.

use std::sync::Arc;

use exacat_model::{Answer, Measured, Operation};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::{Admission, Bounded, Held};

/// The bound of unread answers, in the words of a refusal.
pub(crate) const UNREAD: &str = "bytes of answers that are not read yet";

/// The unread answers of one connection.
#[derive(Clone, Debug)]
pub(crate) struct Unread {
    all: Arc<Bounded>,
    own: Arc<Semaphore>,
    small_items: u32,
    small_bytes: usize,
}

impl Unread {
    /// Starts with no unread answers.
    pub(crate) fn new(admission: &Admission) -> Self {
        Unread {
            all: Arc::clone(&admission.unread_bytes),
            own: Arc::new(Semaphore::new(1)),
            small_items: admission.limits.small_part_items_max,
            small_bytes: admission.limits.own_unread_bytes_max,
        }
    }

    /// Waits for room for a part of about so many bytes. If others use up the shared bytes, a small
    /// part gets room once the client has read the connection's previous small part. Room ends with
    /// the connection, which drops its unread parts.
    pub(crate) async fn room(&self, bytes: usize) -> Room {
        match self.shared(bytes) {
            Some(held) => Room(Where::Shared { held }),
            None => self.small_room().await,
        }
    }

    /// Waits for room for a small part.
    pub(crate) async fn small_room(&self) -> Room {
        Room(Where::Own { _place: Arc::clone(&self.own).acquire_owned().await.ok() })
    }

    /// Corrects the room of a part to the bytes of the answer that was made for it. If the answer
    /// does not fit, returns the number of items that do. The caller then drops the answer, waits for
    /// a [`small_room`](Self::small_room), and makes a shorter one. One item always fits there.
    pub(crate) fn fewer(&self, room: &mut Room, answer: &Answer) -> Option<u32> {
        let held = if let Where::Shared { held } = &mut room.0 { Some(held) } else { None };
        self.fewer_in(held, answer)
    }

    /// Like [`fewer`](Self::fewer), for a page with room among the shared bytes, or without.
    pub(crate) fn fewer_in(&self, shared: Option<&mut Held>, answer: &Answer) -> Option<u32> {
        let (bytes, items) = (answer.bytes(), items_of(answer));
        let fits = match shared {
            Some(held) => held.fits(bytes),
            None => bytes <= self.small_bytes || items <= 1,
        };
        // An answer without items cannot be shorter.
        let fewer = (items as usize).saturating_mul(self.small_bytes) / bytes.max(1);
        (!fits && items > 0).then(|| u32::try_from(fewer).unwrap_or(u32::MAX).clamp(1, self.small_items))
    }

    /// Returns the items of a page that may have `items`, if each has about `item_bytes`.
    pub(crate) fn small_items(&self, items: u32, item_bytes: usize) -> u32 {
        let fit = u32::try_from(self.small_bytes / item_bytes.max(1)).unwrap_or(u32::MAX);
        items.min(fit.max(1))
    }

    /// Takes room among the shared bytes, if there is any.
    pub(crate) fn shared(&self, bytes: usize) -> Option<Held> {
        self.all.take(bytes)
    }

    /// Limits the operation's page to `items`, or to a small page if `is_small`.
    pub(crate) fn paged(&self, operation: Operation, items: u32, is_small: bool) -> Operation {
        with_limit(operation, if is_small { items.min(self.small_items) } else { items })
    }
}

/// Room for a part of an answer, from before it is made until the client has read it or has gone.
#[derive(Debug)]
pub(crate) struct Room(Where);

#[derive(Debug)]
enum Where {
    Shared { held: Held },
    Own { _place: Option<OwnedSemaphorePermit> },
}

impl Room {
    /// Takes room for an answer that was made already, if there is any among the shared bytes.
    pub(crate) fn of_made(admission: &Admission, bytes: usize) -> Option<Room> {
        admission.unread_bytes.take(bytes).map(|held| Room(Where::Shared { held }))
    }

    /// True if there is room for a small part only.
    pub(crate) fn is_small(&self) -> bool {
        matches!(self.0, Where::Own { .. })
    }

    /// Corrects the size of the part to `bytes`.
    pub(crate) fn turned_out(&mut self, bytes: usize) {
        if let Where::Shared { held } = &mut self.0 {
            held.turned_out(bytes);
        }
    }
}

/// The page limit in an operation, by reference: to read or to change it.
macro_rules! limit {
    ($operation:expr) => {
        match $operation {
            Operation::List { limit, .. }
            | Operation::Find { limit, .. }
            | Operation::TrashList { limit, .. }
            | Operation::TrashParts { limit, .. }
            | Operation::CollectionMembers { limit, .. }
            | Operation::ArchiveMembers { limit, .. }
            | Operation::UploadList { limit, .. }
            | Operation::SeFiles { limit, .. }
            | Operation::SeDeletions { limit, .. }
            | Operation::Log { limit, .. }
            | Operation::ElementList { limit, .. }
            | Operation::ElementValues { limit, .. }
            | Operation::ElementRows { limit, .. }
            | Operation::ElementAggregates { limit, .. }
            | Operation::Changes { limit, .. } => Some(limit),
            _ => None,
        }
    };
}

/// Returns the number of items of a page or a batch; 0 for other answers.
pub(crate) fn items_of(answer: &Answer) -> u32 {
    let items = match answer {
        Answer::Entries { items, .. } => items.len(),
        Answer::Trash { items, .. } => items.len(),
        Answer::Members { items, .. } => items.len(),
        Answer::Uploads { items, .. } => items.len(),
        Answer::Deletions { items, .. } => items.len(),
        Answer::Changes { items, .. } => items.len(),
        Answer::Elements { items, .. } => items.len(),
        Answer::ElementValues { items, .. } => items.len(),
        Answer::ElementRows { items, .. } => items.iter().map(|rows| rows.times.len()).sum(),
        Answer::ElementAggregates { items, .. } => items.iter().map(|of| of.intervals.len()).sum(),
        Answer::Stats(items) => items.len(),
        Answer::Whereis(items) => items.len(),
        Answer::Lfns(items) => items.len(),
        _ => 0,
    };
    u32::try_from(items).unwrap_or(u32::MAX)
}

/// Returns the requested page limit of the operation; 0 means the largest. None if it has no such
/// limit.
pub(crate) fn limit_of(operation: &Operation) -> Option<u32> {
    limit!(operation).copied()
}

/// Limits the operation to pages of at most `most` items.
fn with_limit(mut operation: Operation, most: u32) -> Operation {
    if let Some(limit) = limit!(&mut operation) {
        *limit = if *limit == 0 { most } else { most.min(*limit) };
    }
    operation
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settings::Limits;
    use exacat_model::{Cursor, Lfn};
    use futures::FutureExt;

    fn unread(bytes: usize) -> (Arc<Admission>, Unread, Unread) {
        let limits = Limits { unread_bytes_max: bytes, small_part_items_max: 7, ..Limits::default() };
        let admission = Admission::new(Arc::new(limits));
        let (one, two) = (Unread::new(&admission), Unread::new(&admission));
        (admission, one, two)
    }

    #[test]
    fn when_the_shared_bytes_are_used_up_each_connection_goes_on_by_small_parts() {
        let (admission, greedy, other) = unread(100);
        let mut kept = greedy.room(60).now_or_never().unwrap();
        assert!(!kept.is_small());
        kept.turned_out(100);
        assert_eq!(admission.unread_bytes.now(), 100);
        let small = other.room(1).now_or_never().unwrap();
        assert!(small.is_small());
        assert!(other.room(1).now_or_never().is_none(), "one small part at a time");
        assert!(greedy.room(1).now_or_never().unwrap().is_small(), "each connection has its own place");
        drop(small);
        assert!(other.room(1).now_or_never().unwrap().is_small());
        drop(kept);
        assert!(!other.room(100).now_or_never().unwrap().is_small(), "exactly as many as there are");
        assert!(other.room(101).now_or_never().unwrap().is_small());
        assert_eq!(admission.unread_bytes.now(), 0);
    }

    #[test]
    fn pages_are_no_larger_than_asked_for_nor_than_there_is_room() {
        let (_, unread, _) = unread(1);
        for (asked, is_small, got) in
            [(0, false, 1000), (10, false, 10), (1001, false, 1000), (0, true, 7), (5, true, 5), (8, true, 7)]
        {
            let list = Operation::List { lfn: Lfn::root(), cursor: Cursor::default(), limit: asked };
            match unread.paged(list, 1000, is_small) {
                Operation::List { limit, .. } => assert_eq!(limit, got),
                other => panic!("{other:?}"),
            }
        }
    }
}
