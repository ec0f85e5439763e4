//! What comes of a mutation: applied, unchanged or refused - or, for a whole request, unavailable or unknown.

use std::cell::RefCell;
use std::fmt;

use crate::Judged;
use exacat_model::codec::Encode;
use exacat_model::limits::{BATCH_BYTES_MAX, BATCH_MUTATIONS_MAX};
use exacat_model::{
    EntryId, Error, ErrorKind, Fingerprint, Mutation, OperationId, QuotaOf, Record, Revision, UserId,
    canonical_enum, canonical_struct,
};

/// Mutations to apply in order, each on its own: a refused one does not stop the others.
#[derive(Clone, Debug, PartialEq)]
pub struct Request {
    /// Names the request; sent again, it gets the first answer.
    pub operation: OperationId,
    /// Tells the same request sent again from another one under its id; unknown: nothing is compared.
    pub fingerprint: Fingerprint,
    /// Who asks; kept in the history.
    pub who: UserId,
    /// What to do; at most [`BATCH_MUTATIONS_MAX`](exacat_model::limits::BATCH_MUTATIONS_MAX).
    pub mutations: Vec<Mutation>,
    /// Facts that permission was judged by; none if nobody's permission matters.
    pub judged: Option<Box<Judged>>,
}

impl Request {
    /// A request without a fingerprint, for which nobody's permission matters: of a caller that never
    /// uses an id twice.
    pub fn new(operation: OperationId, who: UserId, mutations: Vec<Mutation>) -> Self {
        Request { operation, fingerprint: Fingerprint::UNKNOWN, who, mutations, judged: None }
    }

    /// The same request with its fingerprint.
    pub fn with(self, fingerprint: Fingerprint) -> Self {
        Request { fingerprint, ..self }
    }

    /// The same request, with what its caller's permission was judged by.
    pub fn judged(self, judged: Option<Judged>) -> Self {
        Request { judged: judged.map(Box::new), ..self }
    }

    /// Its bytes in canonical form; refused if it has more of them, or more mutations, than a request may (clause A8).
    pub fn weigh(&self) -> Result<usize, ApplyError> {
        let count = self.mutations.len();
        if count > BATCH_MUTATIONS_MAX {
            return Err(ApplyError::TooLarge(format!(
                "a request has {count} mutations, the limit is {BATCH_MUTATIONS_MAX}: send it in parts"
            )));
        }
        let bytes = self.encoded_bytes();
        if bytes > BATCH_BYTES_MAX {
            return Err(ApplyError::TooLarge(format!(
                "a request has {bytes} bytes, the limit is {BATCH_BYTES_MAX}: send it in parts"
            )));
        }
        Ok(bytes)
    }

    fn encoded_bytes(&self) -> usize {
        /// Room that is kept for the next: most requests fit.
        const KEPT_BYTES: usize = 1 << 20;
        thread_local! {
            static ROOM: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
        }
        ROOM.with_borrow_mut(|room| {
            self.encode(room);
            let bytes = room.len();
            room.clear();
            room.shrink_to(KEPT_BYTES);
            bytes
        })
    }
}

/// What came of one mutation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It was done; the change has this revision. `id` is the entry it made or touched, if any.
    Applied {
        /// The change.
        revision: Revision,
        /// The entry.
        id: Option<EntryId>,
    },
    /// All it asks for was so already: nothing was done, and no change made.
    Unchanged,
    /// A precondition did not hold: nothing was done.
    Refused(Refusal),
}

canonical_enum!(Outcome { 1 => Applied { revision, id }, 2 => Unchanged, 3 => Refused(refusal) });

/// Which precondition of a mutation did not hold. The order is that in which they are checked, so that every
/// store gives the same refusal where several could be given.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// The mutation contradicts itself or a limit: what is wrong with it.
    Invalid(String),
    /// A documented limit would be exceeded: which, and its value.
    Limit(String),
    /// The directory named as parent is not there, or is in the trash.
    ParentGone,
    /// Nothing is at that place, or no such item, booking, record, replica or member.
    NotFound,
    /// What is there is not the entry or version expected.
    Stale,
    /// The name is taken, by this entry.
    Exists(EntryId),
    /// The GUID is in use, in the tree, in the trash or by another's booking.
    GuidInUse,
    /// It is not a directory, or the edit is not for this kind of entry.
    WrongKind,
    /// The directory is not empty.
    NotEmpty,
    /// A directory cannot move below itself.
    Loop,
    /// The storage element is not in the registry, or may not be written now.
    NoSuchSe,
    /// The SE holds a replica of the file already.
    ReplicaExists,
    /// Size or checksum is not what is known or was booked: what differs.
    Mismatch(String),
    /// A quota would be exceeded: whose and which.
    Quota(String),
    /// The booking has expired.
    Expired,
    /// Another record has the name, or the record is in use.
    InUse(String),
    /// The facts that permission was judged by have changed since: judge again.
    Outdated,
}

canonical_enum!(Refusal {
    1 => Invalid(what),
    2 => Limit(what),
    3 => ParentGone,
    4 => NotFound,
    5 => Stale,
    6 => Exists(id),
    7 => GuidInUse,
    8 => WrongKind,
    9 => NotEmpty,
    10 => Loop,
    11 => NoSuchSe,
    12 => ReplicaExists,
    13 => Mismatch(what),
    14 => Quota(what),
    15 => Expired,
    16 => InUse(what),
    17 => Outdated,
});

impl Refusal {
    /// A quota would be exceeded. `owner` is the record of the user or group that has the quota.
    pub fn quota(of: QuotaOf, owner: Option<&Record>, figure: &str, limit: u64, would_be: u128) -> Self {
        let whose = match (owner, of) {
            (Some(Record::User(user)), _) => format!("user {}", user.name),
            (Some(Record::Group(group)), _) => format!("group {}", group.name),
            (_, QuotaOf::User(user)) => format!("user number {}", user.0),
            (_, QuotaOf::Group(group)) => format!("group number {}", group.0),
        };
        Refusal::Quota(format!(
            "the quota of {whose} is {limit} {figure}, and {would_be} would be used or reserved"
        ))
    }

    /// The kind of error a caller sees.
    pub fn kind(&self) -> ErrorKind {
        match self {
            Refusal::Invalid(_) | Refusal::Loop => ErrorKind::Invalid,
            Refusal::Limit(_) => ErrorKind::Limit,
            Refusal::ParentGone | Refusal::NotFound | Refusal::Expired | Refusal::NoSuchSe => {
                ErrorKind::NotFound
            }
            Refusal::Stale | Refusal::Mismatch(_) => ErrorKind::Conflict,
            Refusal::Exists(_) | Refusal::GuidInUse | Refusal::ReplicaExists | Refusal::InUse(_) => {
                ErrorKind::Exists
            }
            Refusal::WrongKind => ErrorKind::NotFile,
            Refusal::NotEmpty => ErrorKind::NotEmpty,
            Refusal::Quota(_) => ErrorKind::Quota,
            Refusal::Outdated => ErrorKind::Busy,
        }
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Refusal::Invalid(what)
            | Refusal::Limit(what)
            | Refusal::Mismatch(what)
            | Refusal::Quota(what)
            | Refusal::InUse(what) => f.write_str(what),
            Refusal::ParentGone => f.write_str("the directory it should be in is not there"),
            Refusal::NotFound => f.write_str("not found"),
            Refusal::Stale => f.write_str("it was changed or replaced since it was read"),
            Refusal::Exists(_) => f.write_str("the name is taken"),
            Refusal::GuidInUse => f.write_str("the GUID is in use"),
            Refusal::WrongKind => f.write_str("it is the wrong kind of entry for this"),
            Refusal::NotEmpty => f.write_str("the directory is not empty"),
            Refusal::Loop => f.write_str("a directory cannot be moved below itself"),
            Refusal::NoSuchSe => f.write_str("no such storage element, or it may not be written now"),
            Refusal::ReplicaExists => f.write_str("the storage element holds a replica already"),
            Refusal::Outdated => f.write_str(
                "owners, groups or modes on the way, or the account, kept changing meanwhile: nothing was done, send it \
                 again",
            ),
            Refusal::Expired => f.write_str("the booking has expired"),
        }
    }
}

impl From<Refusal> for Error {
    fn from(refusal: Refusal) -> Self {
        Error::new(refusal.kind(), refusal.to_string())
    }
}

/// Why a request as a whole has no outcomes.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ApplyError {
    /// The request exceeds a limit of requests; nothing was done.
    #[error("{0}")]
    TooLarge(String),
    /// Certainly nothing was done (disk full, closing, queue full): try again later.
    #[error("{0}")]
    Unavailable(String),
    /// Some, all or none of it was done: ask again with the same operation id.
    #[error("{0}")]
    Unknown(String),
    /// The operation id is that of another request, which was applied; nothing of this one was done.
    #[error("{0}")]
    Conflict(String),
}

impl ApplyError {
    /// The refusal of a request whose id another one has.
    pub fn conflict(operation: OperationId) -> Self {
        ApplyError::Conflict(format!(
            "operation id {operation:?} was used for another operation: nothing was done, send this one under an id \
             of its own"
        ))
    }
}

impl From<ApplyError> for Error {
    fn from(error: ApplyError) -> Self {
        let kind = match &error {
            ApplyError::TooLarge(_) => ErrorKind::Limit,
            ApplyError::Unavailable(_) => ErrorKind::Unavailable,
            ApplyError::Unknown(_) => ErrorKind::Unknown,
            ApplyError::Conflict(_) => ErrorKind::Conflict,
        };
        Error::new(kind, error.to_string())
    }
}

canonical_struct!(Request { operation, fingerprint, who, mutations, judged });
