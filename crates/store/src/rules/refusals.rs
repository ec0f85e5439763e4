//! Refusals with a text. Every store takes them from here, so that a client reads the same text
//! whichever store it uses. Each store checks the conditions itself.

use exacat_model::limits::{
    DEPTH_MAX, EDITS_PER_UPDATE_MAX, FILE_BYTES_MAX, GROUPS_PER_USER_MAX, REPLICAS_PER_FILE_MAX,
    REPLICAS_PER_RESERVATION_MAX, RESERVATIONS_PER_USER_MAX, TAGS_PER_ENTRY_MAX,
};
use exacat_model::{Error, ErrorKind, RecordKind};

use crate::Refusal;

/// Metrics that a quota limits, in the order of its fields: files, bytes, bytes of replicas.
pub const QUOTA_METRICS: [&str; 3] = ["files", "bytes", "bytes of replicas"];

/// Converts the error of a failed check of the vocabulary.
pub fn invalid(error: Error) -> Refusal {
    match error.kind {
        ErrorKind::Limit => Refusal::Limit(error.message),
        _ => Refusal::Invalid(error.message),
    }
}

/// Converts the error of a checksum that a file cannot get.
pub fn checksum(error: Error) -> Refusal {
    match error.kind {
        ErrorKind::Limit => Refusal::Limit(error.message),
        _ => Refusal::Mismatch(error.message),
    }
}

fn limit(what: &str, got: usize, max: usize) -> Refusal {
    invalid(Error::limit(what, got, max))
}

fn invalid_because(why: &str) -> Refusal {
    Refusal::Invalid(why.to_owned())
}

/// A path has too many components.
pub fn too_deep(depth: usize) -> Refusal {
    limit("the number of components of the path", depth, DEPTH_MAX)
}

/// An entry has too many tags.
pub fn too_many_tags(tags: usize) -> Refusal {
    limit("the number of tags of an entry", tags, TAGS_PER_ENTRY_MAX)
}

/// A file has too many replicas.
pub fn too_many_replicas(replicas: usize) -> Refusal {
    limit("the number of replicas of a file", replicas, REPLICAS_PER_FILE_MAX)
}

/// An update has too many edits.
pub fn too_many_edits(edits: usize) -> Refusal {
    limit("the number of edits of an update", edits, EDITS_PER_UPDATE_MAX)
}

/// An upload reservation has too many replicas.
pub fn too_many_reserved(replicas: usize) -> Refusal {
    limit("the number of replicas of an upload", replicas, REPLICAS_PER_RESERVATION_MAX)
}

/// A user has too many unfinished uploads.
pub fn too_many_uploads(uploads: usize) -> Refusal {
    limit("the number of unfinished uploads of a user", uploads, RESERVATIONS_PER_USER_MAX)
}

/// A request names too many deletions.
pub fn too_many_deletions(deletions: usize) -> Refusal {
    limit("the number of deletions of a request", deletions, EDITS_PER_UPDATE_MAX)
}

/// A user is in too many groups.
pub fn too_many_groups(groups: usize) -> Refusal {
    limit("the number of groups of a user", groups, GROUPS_PER_USER_MAX)
}

/// A file is too large.
pub fn too_large(size: u64) -> Refusal {
    Refusal::Limit(format!("the size of a file is {size}, the limit is {FILE_BYTES_MAX}"))
}

/// An entry other than the root has the root's name.
pub fn root_name() -> Refusal {
    invalid_because("'/' is the root's name, no other entry can have it")
}

/// The root is to be removed.
pub fn root_stays() -> Refusal {
    invalid_because("the root cannot be removed")
}

/// Tags are not in order.
pub fn unsorted_tags() -> Refusal {
    invalid_because("tags are not sorted by key, or a key is there twice")
}

/// A file has two replicas on one storage element.
pub fn two_replicas_on_one_se() -> Refusal {
    invalid_because("a file has at most one replica on each SE")
}

/// A file inside an archive has another replica.
pub fn replica_beside_member() -> Refusal {
    invalid_because("a file inside an archive has no replica of its own beside")
}

/// An upload names no storage element.
pub fn upload_without_se() -> Refusal {
    invalid_because("an upload reserves a replica on at least one SE")
}

/// An upload names a storage element twice.
pub fn upload_twice_on_one_se() -> Refusal {
    invalid_because("an upload reserves at most one replica on each SE")
}

/// An upload names the storage element of archive members.
pub fn upload_to_no_se() -> Refusal {
    invalid_because("an upload goes to an SE")
}

/// An upload has the place of an archive member.
pub fn upload_into_archive() -> Refusal {
    invalid_because("an upload cannot go into an archive")
}

/// A file has another size than the upload.
pub fn other_size(known: Option<u64>, uploaded: u64) -> Refusal {
    let known = known.map_or("not known".to_owned(), |size| size.to_string());
    Refusal::Mismatch(format!("the file's size is {known}, not {uploaded}"))
}

/// A known size is to change.
pub fn known_size(known: u64, new: u64) -> Refusal {
    Refusal::Mismatch(format!("the size is {known}, not {new}"))
}

/// A file has another checksum than the upload.
pub fn other_checksum() -> Refusal {
    Refusal::Mismatch("the file has another checksum".to_owned())
}

/// Another number of bytes was written than reserved.
pub fn other_size_written(reserved: u64, written: u64) -> Refusal {
    Refusal::Mismatch(format!("the reserved size is {reserved}, {written} were written"))
}

/// The written bytes have another checksum than reserved.
pub fn other_checksum_written() -> Refusal {
    Refusal::Mismatch("the checksum is not the one of the reservation".to_owned())
}

/// Another record of the kind has the name.
pub fn name_in_use(kind: RecordKind, name: &str) -> Refusal {
    Refusal::InUse(format!("another {} is called {name:?}", kind.name()))
}

/// Reasons why a record cannot be dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RecordUse {
    /// The user that administers the catalogue.
    AdminUser,
    /// The group of that user.
    AdminGroup,
    /// A user that owns entries or uploads.
    Owner,
    /// A group that owns entries or uploads.
    OwningGroup,
    /// A group with users.
    GroupOfUsers,
    /// A storage element that holds something.
    StorageElement,
}

/// A record is in use.
pub fn in_use(reason: RecordUse) -> Refusal {
    let text = match reason {
        RecordUse::AdminUser => "the admin user cannot be dropped",
        RecordUse::AdminGroup => "the admin group cannot be dropped",
        RecordUse::Owner => "the user owns entries or has uploads in flight",
        RecordUse::OwningGroup => "entries or uploads in flight belong to the group",
        RecordUse::GroupOfUsers => "users are in the group",
        RecordUse::StorageElement => "the SE has replicas, deletions or upload reservations",
    };
    Refusal::InUse(text.to_owned())
}
