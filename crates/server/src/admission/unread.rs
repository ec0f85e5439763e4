//! Unread answers: bounds the bytes of answers that clients have not read yet, over all protocols.
//!
//! The server makes long answers part by part. Each part needs room before it is made. The room
//! comes from the bytes that all connections share. If these are used up, it comes from the one
//! place for a small part that every connection has. So a client that reads always gets on, if in
//! smaller steps, however much others leave unread. Short answers need no room.

use std::sync::Arc;

use exacat_model::Operation;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::{Admission, Bounded, Held};

/// The unread answers of one connection.
#[derive(Clone, Debug)]
pub(crate) struct Unread {
    all: Arc<Bounded>,
    own: Arc<Semaphore>,
    small_items: u32,
}

impl Unread {
    /// Starts with no unread answers.
    pub(crate) fn new(admission: &Admission) -> Self {
        Unread {
            all: Arc::clone(&admission.unread_bytes),
            own: Arc::new(Semaphore::new(1)),
            small_items: admission.limits.small_part_items_max,
        }
    }

    /// Waits for room for a part of about so many bytes. If others use up the shared bytes, a small
    /// part gets room once the client has read the connection's previous small part. Room ends with
    /// the connection, which drops its unread parts.
    pub(crate) async fn room(&self, bytes: usize) -> Room {
        match self.shared(bytes) {
            Some(held) => Room(Where::Shared { held }),
            None => Room(Where::Own { _place: Arc::clone(&self.own).acquire_owned().await.ok() }),
        }
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
            | Operation::Changes { limit, .. } => Some(limit),
            _ => None,
        }
    };
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
