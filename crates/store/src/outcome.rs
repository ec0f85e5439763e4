//! Outcomes: applied, unchanged or refused for a mutation; for a whole request also unavailable or
//! unknown.

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
    /// Id of the request; the same id sent again gets the first answer.
    pub operation: OperationId,
    /// Distinguishes the same request sent again from another one under its id; an unknown one is
    /// not compared.
    pub fingerprint: Fingerprint,
    /// User that makes the request; recorded in the history.
    pub who: UserId,
    /// Mutations; at most [`BATCH_MUTATIONS_MAX`](exacat_model::limits::BATCH_MUTATIONS_MAX).
    pub mutations: Vec<Mutation>,
    /// Facts that permission was judged by; none if no permission is needed.
    pub judged: Option<Box<Judged>>,
}

impl Request {
    /// Makes a request without a fingerprint that needs no permission, for a caller that never
    /// reuses an id.
    pub fn new(operation: OperationId, who: UserId, mutations: Vec<Mutation>) -> Self {
        Request { operation, fingerprint: Fingerprint::UNKNOWN, who, mutations, judged: None }
    }

    /// Adds the fingerprint.
    pub fn with(self, fingerprint: Fingerprint) -> Self {
        Request { fingerprint, ..self }
    }

    /// Adds the facts that the caller's permission was judged by.
    pub fn judged(self, judged: Option<Judged>) -> Self {
        Request { judged: judged.map(Box::new), ..self }
    }

    /// Returns its encoded bytes. Refuses a request with too many bytes or mutations (clause A8).
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
        /// Capacity kept for the next request; most requests fit.
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

/// Outcome of one mutation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The mutation was applied; the change has this revision. `id` is the entry that it made or
    /// changed, if any.
    Applied {
        /// The change.
        revision: Revision,
        /// The entry.
        id: Option<EntryId>,
    },
    /// The requested state held already: nothing was done, and no change made.
    Unchanged,
    /// A precondition did not hold: nothing was done.
    Refused(Refusal),
}

canonical_enum!(Outcome { 1 => Applied { revision, id }, 2 => Unchanged, 3 => Refused(refusal) });

/// Precondition of a mutation that did not hold. The order is that of the checks, so that every
/// store returns the same refusal if several apply.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// The mutation is malformed; the text names the fault.
    Invalid(String),
    /// A documented limit would be exceeded; the text names it and its value.
    Limit(String),
    /// The parent directory does not exist, or is in the trash.
    ParentGone,
    /// The place is empty, or there is no such item, upload reservation, record, replica or member.
    NotFound,
    /// The entry there is not the expected entry or version.
    Stale,
    /// This entry has the name.
    Exists(EntryId),
    /// The GUID is in use, in the tree, in the trash or by another owner's upload reservation.
    GuidInUse,
    /// The entry is no directory, or the edit does not suit its kind.
    WrongKind,
    /// The directory is not empty.
    NotEmpty,
    /// A directory cannot move below itself.
    Loop,
    /// The storage element is not in the registry, or closed to writes now.
    NoSuchSe,
    /// The SE holds a replica of the file already.
    ReplicaExists,
    /// Size or checksum contradicts the known or reserved one; the text names the difference.
    Mismatch(String),
    /// A quota would be exceeded; the text names the account and the quota.
    Quota(String),
    /// The upload reservation has expired.
    Expired,
    /// Another record has the name, or the record is in use.
    InUse(String),
    /// The facts that permission was judged by have changed: judge again.
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
    /// Makes the refusal for an exceeded quota. `owner` is the record of the user or group that has
    /// the quota.
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

    /// Returns the kind of error for the caller.
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
            Refusal::Expired => f.write_str("the reservation has expired"),
        }
    }
}

impl From<Refusal> for Error {
    fn from(refusal: Refusal) -> Self {
        Error::new(refusal.kind(), refusal.to_string())
    }
}

/// Reason why a request as a whole has no outcomes.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ApplyError {
    /// The request exceeds a limit of requests; nothing was done.
    #[error("{0}")]
    TooLarge(String),
    /// Certainly nothing was done (disk full, closing, queue full): retry later.
    #[error("{0}")]
    Unavailable(String),
    /// Some, all or none of it was done: retry with the same operation id.
    #[error("{0}")]
    Unknown(String),
    /// Another request with this operation id was applied; nothing of this one was done.
    #[error("{0}")]
    Conflict(String),
}

impl ApplyError {
    /// Makes the refusal of a request whose id another one has.
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
