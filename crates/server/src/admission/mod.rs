//! Admission: decides whether a request starts now, waits in a bounded queue, or gets `busy` at
//! once.
//!
//! Every unanswered request counts towards three bounds: of its connection, of its user and of the
//! server. Beyond that its class decides:
//!
//! * **look-ups** of few items run at once, on the thread that read them, within a bound of items.
//!   They never queue.
//! * **small writes** run at once; they mostly wait for the store's next commit.
//! * **writes of values** of elements run at once too, and count towards bounds of their own: see [`Share`].
//! * **heavy reads** (pages of listings and searches) and **bulk writes** each have a `lane`: a
//!   bounded number of slots and a fair, bounded queue. A stream takes a slot for each page.
//! * **audits** of everything, and **waits** for a change, have bounds of their own, so that
//!   neither uses up the resources of others.
//!
//! Long answers are made in parts. Each part needs room among the answers that clients have not
//! read yet: see `unread`.

mod bounded;
mod connections;
mod lane;
mod throttle;
mod unread;

use std::collections::HashMap;
use std::sync::{Arc, Weak};

use exacat_model::operation::Extent;
use exacat_model::{AccountName, Error, ErrorKind, Operation};
use parking_lot::Mutex;

pub use bounded::{Bounded, Held};
pub(crate) use connections::network_of;
pub use connections::{ByAddress, ConnectionSlot, ConnectionSlots, Entrance, RefusalSlot};
pub use lane::{Entered, Lane, Step, Turn, UserKey};
pub(crate) use throttle::is_about_the_server;
pub use throttle::{THROTTLE_WAIT_MAX, THROTTLES_MAX, Throttles};
pub(crate) use unread::{Room, UNREAD, Unread, items_of, limit_of};

use crate::settings::Limits;

/// The class of an operation, which decides how it runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Class {
    /// Look-up of few items.
    Lookup {
        /// The number of items.
        items: usize,
    },
    /// Small write.
    Write,
    /// Write of values of elements, of any size: the queue of the history bounds it.
    ElementWrite,
    /// Read that may take long.
    Heavy,
    /// Write that may take long.
    Bulk,
    /// Check of the whole catalogue.
    Audit,
    /// Wait for a change.
    Wait,
}

impl Class {
    /// Returns the class of an operation.
    pub fn of(operation: &Operation, limits: &Limits) -> Class {
        if Share::of(operation) == Share::Elements {
            return Class::ElementWrite;
        }
        // The number of items decides, not the name: a look-up of 10 000 files may not run on the
        // thread that reads requests.
        let items = operation.items();
        match (operation.extent(), operation.writes()) {
            (Extent::Items, false) if items <= limits.lookup_items_per_request_max => Class::Lookup { items },
            (Extent::Items, true) if items <= limits.write_items_per_request_max => Class::Write,
            (Extent::Items | Extent::Long, false) => Class::Heavy,
            (Extent::Items | Extent::Long, true) => Class::Bulk,
            (Extent::Whole, _) => Class::Audit,
            (Extent::Wait, _) => Class::Wait,
        }
    }
}

/// The bounds that a request counts towards until it is answered. A stream of values and the changes of the
/// catalogue have bounds of their own, so that neither uses up those of the other.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Share {
    /// Those of requests for the catalogue, and of reads of values.
    #[default]
    Catalogue,
    /// Those of writes of values of elements.
    Elements,
}

impl Share {
    /// Returns the share of an operation.
    pub fn of(operation: &Operation) -> Share {
        match operation {
            Operation::ElementWrite { .. } => Share::Elements,
            _ => Share::Catalogue,
        }
    }
}

/// The bounds of a server.
#[derive(Debug)]
pub struct Admission {
    /// Slots of connections.
    pub connections: ConnectionSlots,
    /// Unanswered requests.
    pub requests: Arc<Bounded>,
    /// Bytes of unanswered requests.
    pub request_bytes: Arc<Bounded>,
    /// Unanswered writes of values of elements.
    pub element_writes: Arc<Bounded>,
    /// Bytes of unanswered writes of values of elements.
    pub element_bytes: Arc<Bounded>,
    /// Items of running look-ups.
    pub lookup_items: Arc<Bounded>,
    /// Checks of the whole catalogue.
    pub audits: Arc<Bounded>,
    /// Requests that wait for a change.
    pub waits: Arc<Bounded>,
    /// Open streams.
    pub streams: Arc<Bounded>,
    /// Bytes of long answers that the server is making, or that clients have not read yet.
    pub unread_bytes: Arc<Bounded>,
    /// Lane of heavy reads.
    pub heavy: Arc<Lane>,
    /// Lane of bulk writes.
    pub bulk: Arc<Lane>,
    /// Throttles of users.
    pub throttles: Throttles,
    limits: Arc<Limits>,
    users: Mutex<HashMap<UserKey, Weak<UserShare>>>,
}

/// The load of one user, over all its connections.
#[derive(Debug)]
pub struct UserShare {
    /// The user.
    pub user: UserKey,
    /// Weight of the user in the lanes.
    pub weight: u32,
    /// The user's unanswered requests.
    pub requests: Arc<Bounded>,
    /// The user's unanswered writes of values of elements.
    pub element_writes: Arc<Bounded>,
}

impl Admission {
    /// Makes the bounds in `limits`.
    pub fn new(limits: Arc<Limits>) -> Arc<Self> {
        Arc::new(Admission {
            connections: ConnectionSlots::new(&limits),
            requests: Bounded::new(limits.requests_max),
            request_bytes: Bounded::new(limits.request_bytes_max),
            element_writes: Bounded::new(limits.element_writes_max),
            element_bytes: Bounded::new(limits.element_bytes_max),
            lookup_items: Bounded::new(limits.lookup_items_max),
            audits: Bounded::new(limits.audits_max),
            waits: Bounded::new(limits.waits_max),
            streams: Bounded::new(limits.streams_max),
            unread_bytes: Bounded::new(limits.unread_bytes_max),
            heavy: Lane::new(limits.heavy_slots, limits.heavy_queue_max, limits.heavy_queue_per_user_max),
            bulk: Lane::new(limits.bulk_slots, limits.bulk_queue_max, limits.bulk_queue_per_user_max),
            throttles: Throttles::default(),
            limits,
            users: Mutex::new(HashMap::new()),
        })
    }

    /// Returns the share of this user, the same for all its connections.
    pub fn user(&self, user: UserKey, name: Option<&AccountName>) -> Arc<UserShare> {
        let mut users = self.users.lock();
        if let Some(share) = users.get(&user).and_then(Weak::upgrade) {
            return share;
        }
        // There are at most as many live shares as connections. This drops the shares of users who
        // left.
        users.retain(|_, share| share.strong_count() > 0);
        // An anonymous caller has no name: all of them together weigh as one user.
        let weight = name.and_then(|name| self.limits.user_weights.get(name)).copied().unwrap_or(1);
        let share = Arc::new(UserShare {
            user,
            weight,
            requests: Bounded::new(self.limits.requests_per_user_max),
            element_writes: Bounded::new(self.limits.element_writes_per_user_max),
        });
        // Weak: the connections of a user own its share, so it ends with the last of them.
        users.insert(user, Arc::downgrade(&share));
        share
    }

    /// Counts `count` requests as in flight, of the server and of the user.
    pub fn admit(&self, user: &UserShare, count: usize, share: Share) -> Result<(Held, Held), Error> {
        let (own, all, what) = match share {
            Share::Catalogue => (&user.requests, &self.requests, "requests"),
            Share::Elements => (&user.element_writes, &self.element_writes, "writes of values"),
        };
        let of_user = own.take(count);
        let of_user =
            of_user.ok_or_else(|| busy(&format!("{what} of one user that are not answered yet")))?;
        let of_all = all.take(count);
        Ok((of_user, of_all.ok_or_else(|| busy(&format!("{what} that are not answered yet")))?))
    }

    /// Takes room for bytes of requests.
    pub fn take_bytes(&self, bytes: usize, share: Share) -> Result<Held, Error> {
        let (bound, what) = match share {
            Share::Catalogue => (&self.request_bytes, "bytes of requests"),
            Share::Elements => (&self.element_bytes, "bytes of values to be written"),
        };
        bound.take(bytes).ok_or_else(|| busy(what))
    }

    /// Returns the number of users with a connection.
    pub fn users(&self) -> usize {
        self.users.lock().values().filter(|share| share.strong_count() > 0).count()
    }
}

/// Returns the error of a bound that was reached.
pub fn busy(what: &str) -> Error {
    Error::new(
        ErrorKind::Busy,
        format!("the server has reached its limit of {what}: send it again a little later"),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use exacat_model::operation::Existing;
    use exacat_model::{Cursor, GroupName, Lfn, UserId};

    #[test]
    fn the_number_of_items_decides_the_class() {
        let limits =
            Limits { lookup_items_per_request_max: 3, write_items_per_request_max: 2, ..Limits::default() };
        let stat = |count| Operation::Stat { lfns: vec![Lfn::root(); count], follow: true };
        assert_eq!(Class::of(&stat(3), &limits), Class::Lookup { items: 3 });
        assert_eq!(Class::of(&stat(4), &limits), Class::Heavy);
        let register = |count| Operation::Register {
            files: vec![exacat_model::operation::NewFile::named(Lfn::root()); count],
            parents: false,
            existing: Existing::Refuse,
        };
        assert_eq!(Class::of(&register(2), &limits), Class::Write);
        assert_eq!(Class::of(&register(3), &limits), Class::Bulk);
        let list = Operation::List { lfn: Lfn::root(), cursor: Cursor::default(), limit: 1 };
        assert_eq!(Class::of(&list, &limits), Class::Heavy);
        assert_eq!(Class::of(&Operation::Fsck, &limits), Class::Audit);
        assert_eq!(Class::of(&element_write(), &limits), Class::ElementWrite);
    }

    fn element_write() -> Operation {
        Operation::ElementWrite { group: GroupName::parse("dcs").unwrap(), rows: Vec::new() }
    }

    /// Writes of values and other requests use up bounds of their own only, of the server and of a user.
    #[test]
    fn values_and_changes_leave_room_for_each_other() {
        let limits = Limits {
            requests_per_user_max: 1,
            requests_max: 2,
            request_bytes_max: 10,
            element_writes_per_user_max: 1,
            element_writes_max: 2,
            element_bytes_max: 10,
            ..Limits::default()
        };
        let admission = Admission::new(Arc::new(limits));
        let users = [1, 2, 3].map(|number| admission.user(Some(UserId(number)), None));
        let shares = [Share::of(&Operation::Fsck), Share::of(&element_write())];
        for (mine, other) in [(shares[0], shares[1]), (shares[1], shares[0])] {
            let held = admission.admit(&users[0], 1, mine).unwrap();
            let of_user = admission.admit(&users[0], 1, mine).unwrap_err();
            assert!(of_user.message.contains("of one user"), "{of_user}");
            let more = admission.admit(&users[1], 1, mine).unwrap();
            assert_eq!(admission.admit(&users[2], 1, mine).unwrap_err().kind, ErrorKind::Busy);
            let bytes = admission.take_bytes(10, mine).unwrap();
            assert_eq!(admission.take_bytes(1, mine).unwrap_err().kind, ErrorKind::Busy);
            let of_other = (admission.admit(&users[0], 1, other), admission.take_bytes(10, other));
            assert!(of_other.0.is_ok() && of_other.1.is_ok());
            drop((held, more, bytes));
        }
    }

    #[test]
    fn a_user_has_one_share_while_it_is_connected() {
        let limits = Limits { requests_per_user_max: 2, ..Limits::default() };
        let admission = Admission::new(Arc::new(limits));
        let one = admission.user(Some(UserId(1)), None);
        let same = admission.user(Some(UserId(1)), None);
        let other = admission.user(None, None);
        assert!(Arc::ptr_eq(&one, &same) && !Arc::ptr_eq(&one, &other));
        let held = (one.requests.take(1).unwrap(), same.requests.take(1).unwrap());
        assert!(one.requests.take(1).is_none() && other.requests.take(1).is_some());
        drop(held);
        assert_eq!(admission.users(), 2);
        drop((one, same, other));
        assert_eq!(admission.users(), 0);
    }
}
