//! Errors inside an answer.

use exacat_model::{Answer, Error, Result};

/// Calls `see` for each error inside an answer.
pub(crate) fn for_each_error(answer: &mut Answer, see: &mut impl FnMut(&mut Error)) {
    fn all<T>(items: &mut [Result<T>], see: &mut impl FnMut(&mut Error)) {
        for item in items {
            if let Err(error) = item {
                see(error);
            }
        }
    }
    match answer {
        Answer::EachDone(items) => all(items, see),
        Answer::Stats(items) => all(items, see),
        Answer::Whereis(items) => all(items, see),
        Answer::Lfns(items) => all(items, see),
        Answer::Usages(items) => all(items, see),
        Answer::Registered(items) => all(items, see),
        Answer::Tags(items) => all(items, see),
        Answer::CollectionEdited { refused, .. } => refused.iter_mut().for_each(|(_, error)| see(error)),
        Answer::Done { .. }
        | Answer::Whoami { .. }
        | Answer::Entries { .. }
        | Answer::Removed { .. }
        | Answer::Trash { .. }
        | Answer::Purged { .. }
        | Answer::Members { .. }
        | Answer::Upload(_)
        | Answer::Uploads { .. }
        | Answer::Ses(_)
        | Answer::Deletions { .. }
        | Answer::Accounts { .. }
        | Answer::TokenIssued { .. }
        | Answer::Tokens(_)
        | Answer::Quotas(_)
        | Answer::Changes { .. }
        | Answer::Fsck(_)
        | Answer::Status(_)
        | Answer::Requests(_)
        | Answer::Activity(_)
        | Answer::Throttles(_)
        | Answer::Feeds(_)
        | Answer::ElementGroups(_)
        | Answer::Elements { .. }
        | Answer::ElementValues { .. }
        | Answer::ElementRows { .. }
        | Answer::ElementAggregates { .. }
        | Answer::ElementsWritten { .. }
        | Answer::Snapshot(_)
        | Answer::Snapshots(_)
        | Answer::SnapshotChecked(_)
        | Answer::Differences { .. }
        | Answer::BackedUp { .. } => {}
    }
}
