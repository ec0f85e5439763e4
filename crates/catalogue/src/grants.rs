//! Grants of tokens from other issuers: a second bound beside the rights of the account. They limit,
//! and never widen.
//!
//! Each operation needs one activity. The caller's grants must give it for every path that the
//! operation resolves, after links. An operation without such an activity is refused, because no
//! grant can give it.

use std::sync::Arc;

use exacat_model::operation::Existing;
use exacat_model::{Error, Lfn, Operation, Result};

/// Something that a grant allows below a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Activity {
    /// Read files; locate their replicas.
    Read,
    /// Make new files and directories.
    Create,
    /// Change, move and remove entries; includes [`Activity::Create`].
    Modify,
    /// Bring files to disk.
    Stage,
}

/// One grant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Grant {
    /// The activity that it allows.
    pub activity: Activity,
    /// The subtree that it is for.
    pub path: Lfn,
}

/// All grants of a caller.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Grants(pub Arc<[Grant]>);

/// The activity that an operation needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Need {
    /// Any grant for the path: size, checksum and name of an entry.
    Any,
    Read,
    Create,
    Modify,
    /// None: the operation is about no entry.
    Nothing,
}

impl Need {
    /// Returns the need of an operation; none if no grant allows it.
    pub(crate) fn of(operation: &Operation) -> Option<Need> {
        Some(match operation {
            Operation::Whoami
            | Operation::Position { .. }
            | Operation::QuotaGet { .. }
            | Operation::SeList => Need::Nothing,
            Operation::Stat { .. }
            | Operation::List { .. }
            | Operation::Find { .. }
            | Operation::Du { .. }
            | Operation::TagGet { .. }
            | Operation::Lfns { .. }
            | Operation::Log { .. }
            | Operation::CollectionMembers { .. }
            | Operation::ArchiveMembers { .. } => Need::Any,
            Operation::Whereis { .. } => Need::Read,
            Operation::Register { existing: Existing::Merge, .. } => Need::Modify,
            Operation::Mkdir { .. }
            | Operation::Register { .. }
            | Operation::Link { .. }
            | Operation::CollectionCreate { .. }
            | Operation::UploadReserve { .. }
            | Operation::UploadCommit { .. }
            | Operation::UploadAbort { .. } => Need::Create,
            Operation::SetAttributes { .. }
            | Operation::SetReplicas { .. }
            | Operation::Move { .. }
            | Operation::Remove { .. }
            | Operation::TagSet { .. }
            | Operation::CollectionEdit { .. } => Need::Modify,
            // A token of this catalogue would outlive the grants; the others are of no subtree.
            _ => return None,
        })
    }
}

impl Grants {
    /// True if any change is granted.
    pub(crate) fn may_write(&self) -> bool {
        self.0.iter().any(|grant| matches!(grant.activity, Activity::Create | Activity::Modify))
    }

    /// Refuses a path for which no grant gives the activity.
    pub(crate) fn check(&self, need: Need, lfn: &Lfn) -> Result<()> {
        let gives = |grant: &Grant| match need {
            Need::Any | Need::Nothing => true,
            Need::Read => grant.activity == Activity::Read,
            Need::Create => matches!(grant.activity, Activity::Create | Activity::Modify),
            Need::Modify => grant.activity == Activity::Modify,
        };
        if self.0.iter().any(|grant| gives(grant) && grant.path.contains(lfn)) {
            return Ok(());
        }
        Err(Error::denied(format!("{lfn}: the scopes of this token do not allow it")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn grants(given: &[(Activity, &str)]) -> Grants {
        let grant = |(activity, path): &(Activity, &str)| Grant {
            activity: *activity,
            path: Lfn::parse(path).unwrap(),
        };
        Grants(given.iter().map(grant).collect())
    }

    #[test]
    fn grant_covers_whole_components_and_its_own_activity() {
        let given =
            grants(&[(Activity::Read, "/john"), (Activity::Create, "/new"), (Activity::Modify, "/own")]);
        for (need, path, allowed) in [
            (Need::Read, "/john", true),
            (Need::Read, "/john/a/b", true),
            (Need::Read, "/johnathan", false),
            (Need::Read, "/", false),
            (Need::Create, "/john/a", false),
            (Need::Create, "/new/a", true),
            (Need::Modify, "/new/a", false),
            (Need::Create, "/own/a", true),
            (Need::Modify, "/own/a", true),
            (Need::Read, "/own/a", false),
            (Need::Any, "/own/a", true),
            (Need::Any, "/other", false),
        ] {
            assert_eq!(given.check(need, &Lfn::parse(path).unwrap()).is_ok(), allowed, "{need:?} {path}");
        }
        assert!(given.may_write());
        assert!(!grants(&[(Activity::Read, "/"), (Activity::Stage, "/")]).may_write());
        assert!(grants(&[]).check(Need::Any, &Lfn::root()).is_err());
    }
}
