//! The rules of the contract's table, for any state: deciding mutations, and applying changes.
//!
//! [`decide`] is a pure function from a state, seen through [`View`], to an effect. [`perform`]
//! applies an effect to a [`State`]. The embedded store and the store on a cluster use them, each
//! compiled for its own state. The memory store has rules of its own, because it is the oracle of
//! the tests (decision 0062).
//!
//! If a row is not in memory, a state may fail, or it may note the row and return any value. The
//! store then fetches the row and decides again. This is safe because deciding only reads.

mod checks;
mod create;
mod decide;
mod decision;
mod edit;
mod fields;
mod judged;
mod perform;
mod place;
mod quota;
pub mod refusals;
mod registry;
mod reservation;
mod state;
mod view;

use exacat_model::{
    AccountName, At, Body, DirId, Entry, Group, GroupId, Mode, Name, Record, Revision, Role, TimeMs, User,
    UserId,
};

pub use create::check_well_formed;
pub use decide::decide;
pub use decision::{Context, Decision, Declined, Misfit};
pub use judged::{changes_credentials, judged_the_same, places};
pub use perform::perform;
pub use quota::would_exceed;
pub use state::{Stamp, State};
pub use view::{FoundEntry, Top, Trashed, View, is_in_use, pfn};

/// Returns the root of a new store (clause N1).
pub fn new_root() -> Entry {
    Entry {
        at: At { parent: DirId::ROOT, name: Name::root() },
        owner: UserId::ADMIN,
        group: GroupId::ADMIN,
        mode: Mode::DIRECTORY,
        created: TimeMs(0),
        modified: TimeMs(0),
        revision: Revision(0),
        expires: None,
        tags: Vec::new(),
        body: Body::Directory(DirId::ROOT),
    }
}

/// Returns the records of a new store (clause N1), of revision 0.
#[allow(clippy::expect_used, reason = "the constant is a valid account name")]
pub fn new_records() -> [Record; 2] {
    let admin = AccountName::parse("admin").expect("admin is a valid name");
    let user = User {
        id: UserId::ADMIN,
        name: admin.clone(),
        group: GroupId::ADMIN,
        groups: Vec::new(),
        roles: vec![Role::Admin],
        may_become: Vec::new(),
        subjects: Vec::new(),
        home: None,
        disabled: false,
    };
    [Record::User(user), Record::Group(Group { id: GroupId::ADMIN, name: admin })]
}
