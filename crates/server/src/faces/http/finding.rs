//! Operations of a search, from conditions that name accounts and storage elements.

use exacat_model::answer::UserInfo;
use exacat_model::{
    AccountName, Answer, Cursor, Error, ErrorKind, GroupId, Operation, Result, SeName, SeNumber, UserId,
};
use exacat_wire::json::search::{FindIn, Numbers};

use super::call::Call;

/// Makes the operation of a find; looks up the numbers of names in its conditions.
pub(super) async fn find_operation(
    call: &mut Call,
    conditions: FindIn,
    cursor: Cursor,
    limit: u32,
) -> Result<Operation> {
    let lfn = conditions.lfn.0.clone();
    let numbers = if conditions.needs_numbers() { Accounts::learn(call).await? } else { Accounts::default() };
    let filter = Box::new(conditions.filter(&numbers)?);
    Ok(Operation::Find { lfn, filter, cursor, limit })
}

/// Numbers of accounts and storage elements.
#[derive(Default)]
struct Accounts {
    users: Vec<UserInfo>,
    groups: Vec<(u32, AccountName)>,
    ses: Vec<(SeNumber, SeName)>,
}

impl Accounts {
    async fn learn(call: &mut Call) -> Result<Self> {
        let Answer::Accounts { users, groups } = call.ask(Operation::AccountList).await? else {
            return Err(Error::new(ErrorKind::Internal, "an answer that does not fit the request"));
        };
        let ses = call.storage_elements();
        let ses = ses.iter().map(|se| (se.number, se.name.clone())).collect();
        Ok(Accounts { users, groups, ses })
    }
}

impl Numbers for Accounts {
    fn user(&self, name: &AccountName) -> Result<UserId> {
        let found = self.users.iter().find(|user| user.name == *name);
        found.map(|user| UserId(user.id)).ok_or_else(|| Error::not_found(format!("user {name}")))
    }

    fn group(&self, name: &AccountName) -> Result<GroupId> {
        let found = self.groups.iter().find(|(_, group)| group == name);
        found.map(|(id, _)| GroupId(*id)).ok_or_else(|| Error::not_found(format!("group {name}")))
    }

    fn se(&self, name: &SeName) -> Result<SeNumber> {
        let found = self.ses.iter().find(|(_, se)| se.as_str().eq_ignore_ascii_case(name.as_str()));
        found.map(|(number, _)| *number).ok_or_else(|| Error::not_found(format!("storage element {name}")))
    }
}
