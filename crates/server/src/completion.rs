//! Operations that the catalogue permits and the server answers.

use exacat_catalogue::Caller;
use exacat_model::operation::Owner;
use exacat_model::{Operation, TimeMs};

use crate::feeds::FeedCall;

/// Operations whose answers the server completes.
pub(crate) enum Completion {
    Status,
    Sessions,
    Slow,
    Kill(u64),
    Activity { from: Option<TimeMs>, to: Option<TimeMs>, seconds: u32, parts: u32 },
    ThrottleSet { owner: Option<Owner>, items_per_second: Option<u32> },
    Throttles,
    Drain { resume: bool },
    Feed(FeedCall),
}

impl Completion {
    /// Returns the completion of an operation that needs one.
    pub(crate) fn of(operation: &Operation, caller: &Caller) -> Option<Self> {
        match operation {
            Operation::Status => Some(Completion::Status),
            Operation::Sessions => Some(Completion::Sessions),
            Operation::SlowRequests => Some(Completion::Slow),
            Operation::SessionKill { id } => Some(Completion::Kill(*id)),
            Operation::Activity { from, to, seconds, parts } => {
                Some(Completion::Activity { from: *from, to: *to, seconds: *seconds, parts: *parts })
            }
            Operation::ThrottleSet { owner, items_per_second } => {
                Some(Completion::ThrottleSet { owner: owner.clone(), items_per_second: *items_per_second })
            }
            Operation::ThrottleList => Some(Completion::Throttles),
            Operation::Drain { resume } => Some(Completion::Drain { resume: *resume }),
            other => FeedCall::of(other, caller).map(Completion::Feed),
        }
    }
}
