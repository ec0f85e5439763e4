//! The table of operations: for each its name, its items, its access and its pages.

use crate::codec::Decode;
use crate::cursor::Cursor;
use crate::operation::{Extent, Operation};
use crate::timeline::LogPosition;

/// The table of operations. A line has the variant, its fields that list items (with none it has one
/// item), its name, whether it changes anything, its extent, whether it is a look-up or about elements,
/// and the field with the place where a page starts.
macro_rules! operations {
    ($(
        $variant:ident [$($list:ident)*] $name:literal $access:ident $extent:ident $class:ident $page:ident
    ),* $(,)?) => {
        impl Operation {
            /// The names of all operations, in order.
            pub const NAMES: [&'static str; [$($name),*].len()] = [$($name),*];

            /// Whether each of them changes anything, in the same order.
            pub const CHANGING: [bool; Self::NAMES.len()] = [$(operations!(@ $access)),*];

            /// Returns the name in metrics, logs and tables.
            pub fn name(&self) -> &'static str {
                match self { $( Operation::$variant { .. } => $name, )* }
            }

            /// Says whether it changes anything. Changing operations carry an operation id and need
            /// a token that may write.
            pub fn writes(&self) -> bool {
                match self { $( Operation::$variant { .. } => operations!(@ $access), )* }
            }

            /// Returns the number of items that it names.
            pub fn items(&self) -> usize {
                match self {
                    $( operations!(@fields $variant $($list)*) => operations!(@count $($list)*), )*
                }
            }

            /// Returns the amount of its work.
            pub fn extent(&self) -> Extent {
                match self {
                    Operation::Changes { wait: true, .. } => Extent::Wait,
                    $( Operation::$variant { .. } => Extent::$extent, )*
                }
            }

            /// True for the most frequent reads. Such an operation reads the accounts together with
            /// the entries, or needs none.
            pub fn is_look_up(&self) -> bool {
                match self { $( Operation::$variant { .. } => operations!(@ $class), )* }
            }

            /// True for operations on elements, which the history answers.
            pub fn is_about_elements(&self) -> bool {
                match self { $( Operation::$variant { .. } => operations!(@history $class), )* }
            }

            /// Says whether its answer has pages.
            pub fn has_pages(&self) -> bool {
                match self { $( Operation::$variant { .. } => operations!(@ $page), )* }
            }

            /// Returns the same operation from the cursor `next` on; none if it has no pages.
            pub fn resumed(&self, next: Cursor) -> Option<Operation> {
                let mut resumed = self.clone();
                $( operations!(@resume $page $variant resumed next); )*
                None
            }
        }
    };
    (@ reads) => { false };
    (@ writes) => { true };
    (@ look_up) => { true };
    (@ element) => { false };
    (@ other) => { false };
    (@history element) => { true };
    (@history $other:ident) => { false };
    (@ whole) => { false };
    (@ cursor) => { true };
    (@ after) => { true };
    (@fields $variant:ident) => { Operation::$variant { .. } };
    (@fields $variant:ident $($list:ident)+) => { Operation::$variant { $($list,)+ .. } };
    (@count) => { 1 };
    (@count $($list:ident)+) => { 0 $(+ $list.len())+ };
    (@resume whole $variant:ident $resumed:ident $next:ident) => {};
    (@resume cursor $variant:ident $resumed:ident $next:ident) => {
        if let Operation::$variant { cursor, .. } = &mut $resumed {
            *cursor = $next;
            return Some($resumed);
        }
    };
    (@resume after $variant:ident $resumed:ident $next:ident) => {
        if let Operation::$variant { after, .. } = &mut $resumed {
            *after = LogPosition::from_bytes(&$next.0).ok()?;
            return Some($resumed);
        }
    };
}

operations! {
    Whoami []                          "whoami"              reads  Items look_up whole,
    Stat [lfns]                        "stat"                reads  Items look_up whole,
    Whereis [files]                    "whereis"             reads  Items look_up whole,
    Lfns [guids]                       "lfns"                reads  Items look_up whole,
    List []                            "list"                reads  Long  look_up cursor,
    Find []                            "find"                reads  Long  other   cursor,
    Du [lfns]                          "du"                  reads  Items look_up whole,
    Mkdir [lfns]                       "mkdir"               writes Items other   whole,
    Register [files]                   "register"            writes Items other   whole,
    Link []                            "link"                writes Items other   whole,
    SetAttributes [lfns]               "set-attributes"      writes Items other   whole,
    SetReplicas [edits]                "set-replicas"        writes Items other   whole,
    Move []                            "move"                writes Items other   whole,
    Remove []                          "remove"              writes Items other   whole,
    TrashList []                       "trash-list"          reads  Long  other   cursor,
    TrashRestore []                    "trash-restore"       writes Items other   whole,
    TrashPurge []                      "trash-purge"         writes Long  other   cursor,
    TagSet [lfns]                      "tag-set"             writes Items other   whole,
    TagGet [lfns]                      "tag-get"             reads  Items look_up whole,
    CollectionCreate []                "collection-create"   writes Items other   whole,
    CollectionEdit [add remove]        "collection-edit"     writes Items other   whole,
    CollectionMembers []               "collection-members"  reads  Long  other   cursor,
    ArchiveMembers []                  "archive-members"     reads  Long  other   cursor,
    UploadReserve []                      "upload-reserve"         writes Items other   whole,
    UploadCommit []                    "upload-commit"       writes Items other   whole,
    UploadAbort []                     "upload-abort"        writes Items other   whole,
    UploadList []                      "upload-list"         reads  Long  other   cursor,
    SeSet []                           "se-set"              writes Items other   whole,
    SeDrop []                          "se-drop"             writes Items other   whole,
    SeList []                          "se-list"             reads  Long  other   whole,
    SeFiles []                         "se-files"            reads  Long  other   cursor,
    SeDeletions []                     "se-deletions"        reads  Long  other   cursor,
    SeDeleted [done]                   "se-deleted"          writes Items other   whole,
    UserSet []                         "user-set"            writes Items other   whole,
    UserDrop []                        "user-drop"           writes Items other   whole,
    GroupAdd []                        "group-add"           writes Items other   whole,
    GroupDrop []                       "group-drop"          writes Items other   whole,
    AccountList []                     "account-list"        reads  Long  other   whole,
    TokenIssue []                      "token-issue"         writes Items other   whole,
    TokenRevoke []                     "token-revoke"        writes Items other   whole,
    TokenList []                       "token-list"          reads  Long  other   whole,
    QuotaSet []                        "quota-set"           writes Items other   whole,
    QuotaGet [owners]                  "quota-get"           reads  Items other   whole,
    Log []                             "log"                 reads  Long  other   cursor,
    Changes []                         "changes"             reads  Long  other   after,
    Fsck []                            "fsck"                reads  Whole other   whole,
    Status []                          "status"              reads  Items other   whole,
    SnapshotCreate []                  "snapshot-create"     writes Long  other   whole,
    SnapshotList []                    "snapshot-list"       reads  Long  other   whole,
    SnapshotDrop []                    "snapshot-drop"       writes Long  other   whole,
    SnapshotVerify []                  "snapshot-verify"     reads  Whole other   whole,
    SnapshotDiff []                    "snapshot-diff"       reads  Long  other   cursor,
    Backup []                          "backup"              writes Long  other   cursor,
    ClockConfirm []                    "clock-confirm"       reads  Items other   whole,
    Position []                        "position"            reads  Items other   whole,
    TrashParts []                      "trash-parts"         reads  Long  other   cursor,
    TrashRestorePart []                "trash-restore-part"  writes Items other   whole,
    Sessions []                        "sessions"            reads  Items other   whole,
    SessionKill []                     "session-kill"        reads  Items other   whole,
    SlowRequests []                    "slow-requests"       reads  Items other   whole,
    Activity []                        "activity"            reads  Items other   whole,
    ThrottleSet []                     "throttle-set"        reads  Items other   whole,
    ThrottleList []                    "throttle-list"       reads  Items other   whole,
    Drain []                           "drain"               reads  Items other   whole,
    ElementGroups []                   "element-groups"      reads  Long  element whole,
    ElementGroupSet []                 "element-group-set"   reads  Items element whole,
    ElementGroupDrop []                "element-group-drop"  reads  Items element whole,
    ElementList []                     "element-list"        reads  Long  element cursor,
    ElementValues []                   "element-values"      reads  Long  element cursor,
    ElementRows []                     "element-rows"        reads  Long  element cursor,
    ElementAggregates []               "element-aggregates"  reads  Long  element cursor,
    ElementWrite [rows]                "element-write"       reads  Items element whole,
    FeedCreate []                      "feed-create"         reads  Items other   whole,
    FeedList []                        "feed-list"           reads  Items other   whole,
    FeedControl []                     "feed-control"        reads  Items other   whole,
}
