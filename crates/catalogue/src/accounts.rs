//! Users and groups: listing, adding, changing and dropping them. Also how any registry record is
//! changed.
//!
//! An account's number is never reused, because the history names accounts by number. A new account
//! gets the highest number plus one. So if the account with the highest number is dropped, a hidden
//! record without rights takes its place. It is named `gone-number` and keeps the number taken.

use std::fmt::Display;
use std::sync::Arc;

use exacat_model::answer::UserInfo;
use exacat_model::limits::{BECOMES_PER_USER_MAX, SUBJECT_BYTES_MAX, SUBJECTS_PER_USER_MAX};
use exacat_model::operation::UserSettings;
use exacat_model::{
    AccountName, Answer, Error, ErrorKind, ExpectRecord, Group, GroupId, Mutation, OperationId, Record,
    RecordKey, Result, Revision, Role, User, UserId,
};
use exacat_store::{Outcome, Refusal};

use crate::caller::Caller;
use crate::registry::Names;
use crate::repeat::refused;
use crate::{Catalogue, step_id};

/// Most attempts to change a record while others change records.
const RECORD_TRIES_MAX: usize = 16;
/// Name prefix of records that keep the number of a dropped account or storage element.
const GONE: &str = "gone-";

/// Returns the name of the record that keeps a dropped number.
pub(crate) fn gone_name(number: u32) -> String {
    format!("{GONE}{number}")
}

/// True if the name stands for a dropped account or storage element.
pub(crate) fn is_gone(name: &str) -> bool {
    name.strip_prefix(GONE).is_some_and(|number| number.bytes().all(|byte| byte.is_ascii_digit()))
}

/// Refuses names that stand for dropped records.
pub(crate) fn check_not_gone(name: &str) -> Result<()> {
    if is_gone(name) {
        return Err(Error::invalid(format!(
            "names such as {name} stand for dropped accounts: choose another name"
        )));
    }
    Ok(())
}

/// A record to set, and the version it was made from.
pub(crate) struct RecordPlan {
    record: Record,
    /// The record that the store must still have; none for a new one.
    from: Option<Record>,
}

impl RecordPlan {
    /// Plans a record that does not exist yet.
    pub(crate) fn new(record: Record) -> Self {
        RecordPlan { record, from: None }
    }

    /// Plans a record that replaces `from`.
    pub(crate) fn change(from: Record, record: Record) -> Self {
        RecordPlan { record, from: Some(from) }
    }
}

fn account_gone() -> Error {
    Error::new(ErrorKind::Unauthenticated, "your account was disabled or dropped")
}

impl Catalogue {
    /// Refuses a caller whose account was disabled or dropped since it authenticated: its new
    /// entries would belong to nobody.
    pub(crate) fn check_account(&self, caller: &Caller) -> Result<()> {
        let id = caller.check_known()?;
        match self.registry.names().users.get(&id) {
            Some(user) if !user.disabled => Ok(()),
            _ => Err(account_gone()),
        }
    }

    pub(crate) async fn whoami(&self, caller: &Caller) -> Result<Answer> {
        let names = self.registry.names();
        let user = match caller.user() {
            None => None,
            Some(id) => match names.users.get(&id) {
                Some(user) if !user.disabled => Some(Box::new(user_info(&names, user, true))),
                _ => return Err(account_gone()),
            },
        };
        Ok(Answer::Whoami { user, scope: caller.scope().clone(), write: caller.may_write() })
    }

    pub(crate) async fn account_list(&self, caller: &Caller) -> Result<Answer> {
        let me = caller.check_known()?;
        let names = self.registry.names();
        let users = names.users.values().filter(|user| !is_gone(user.name.as_str()));
        let users =
            users.map(|user| user_info(&names, user, caller.is_operator() || user.id == me)).collect();
        let groups = names.groups.values().filter(|group| !is_gone(group.name.as_str()));
        let groups = groups.map(|group| (group.id.0, group.name.clone())).collect();
        Ok(Answer::Accounts { users, groups })
    }

    pub(crate) async fn user_set(
        &self,
        caller: &Caller,
        id: OperationId,
        settings: UserSettings,
    ) -> Result<Answer> {
        caller.check_admin("to add or change a user")?;
        check_not_gone(settings.name.as_str())?;
        check_subjects(settings.subjects.as_deref().unwrap_or_default())?;
        self.registry.refresh(&*self.store).await?;
        let names = self.registry.names();
        if settings.group.is_none()
            && names.user(&settings.name).is_err()
            && names.group(&settings.name).is_err()
        {
            let made = self.make_group(caller, step_id(id, 1), &settings.name).await;
            // A group that another request made at the same moment is just as good.
            if let Err(error) = made
                && error.kind != ErrorKind::Exists
            {
                return Err(error);
            }
        }
        let what = settings.name.clone();
        let revision = self.set_record(caller, id, &what, |names| match names.user(&settings.name) {
            Ok(_) if settings.only_new => {
                Err(Error::new(ErrorKind::Exists, format!("the user {} exists", settings.name)))
            }
            Ok(known) => {
                let changed = changed_user(names, known, &settings)?;
                Ok(RecordPlan::change(Record::User((**known).clone()), Record::User(changed)))
            }
            Err(_) => Ok(RecordPlan::new(Record::User(new_user(names, &settings)?))),
        });
        Ok(Answer::Done { revision: revision.await? })
    }

    pub(crate) async fn user_drop(
        &self,
        caller: &Caller,
        id: OperationId,
        name: AccountName,
    ) -> Result<Answer> {
        caller.check_admin("to drop a user")?;
        check_not_gone(name.as_str())?;
        let revision = self.drop_record(caller, id, &name, |names| {
            let user = names.user(&name)?;
            let stays = Record::User(User {
                id: user.id,
                name: AccountName::parse(&gone_name(user.id.0))?,
                group: GroupId::ADMIN,
                groups: Vec::new(),
                roles: Vec::new(),
                may_become: Vec::new(),
                subjects: Vec::new(),
                home: None,
                disabled: true,
            });
            let is_last = names.users.keys().next_back() == Some(&user.id);
            Ok((RecordKey::User(user.id), is_last.then_some(stays)))
        });
        Ok(Answer::Done { revision: revision.await? })
    }

    pub(crate) async fn group_add(
        &self,
        caller: &Caller,
        id: OperationId,
        name: AccountName,
    ) -> Result<Answer> {
        caller.check_admin("to add a group")?;
        check_not_gone(name.as_str())?;
        Ok(Answer::Done { revision: self.make_group(caller, id, &name).await? })
    }

    pub(crate) async fn group_drop(
        &self,
        caller: &Caller,
        id: OperationId,
        name: AccountName,
    ) -> Result<Answer> {
        caller.check_admin("to drop a group")?;
        check_not_gone(name.as_str())?;
        let revision = self.drop_record(caller, id, &name, |names| {
            let group = names.group(&name)?;
            let stays =
                Record::Group(Group { id: group.id, name: AccountName::parse(&gone_name(group.id.0))? });
            let is_last = names.groups.keys().next_back() == Some(&group.id);
            Ok((RecordKey::Group(group.id), is_last.then_some(stays)))
        });
        Ok(Answer::Done { revision: revision.await? })
    }

    async fn make_group(&self, caller: &Caller, id: OperationId, name: &AccountName) -> Result<Revision> {
        self.set_record(caller, id, name, |names| {
            if names.group(name).is_ok() {
                return Err(Error::new(ErrorKind::Exists, format!("the group {name} exists")));
            }
            let last = names.groups.keys().next_back().map_or(0, |id| id.0);
            let group = Group { id: GroupId(next_number(last, "groups")?), name: name.clone() };
            Ok(RecordPlan::new(Record::Group(group)))
        })
        .await
    }

    /// Sets a record of the registry by a plan made on the current records. Plans again if they
    /// change before the commit. If no plan can be made, this may be a repeated request: then it
    /// gets its first outcome.
    pub(crate) async fn set_record(
        &self,
        caller: &Caller,
        id: OperationId,
        what: &impl Display,
        plan: impl Fn(&Names) -> Result<RecordPlan>,
    ) -> Result<Revision> {
        let mut last = Error::new(ErrorKind::Conflict, format!("{what} kept changing meanwhile: try again"));
        for _ in 0..RECORD_TRIES_MAX {
            self.registry.refresh(&*self.store).await?;
            let names = self.registry.names();
            let RecordPlan { record, from } = match plan(&names) {
                Ok(plan) => plan,
                Err(error) => {
                    return match self.recall(caller, id).await? {
                        Some((revision, _)) => Ok(revision),
                        None => Err(error),
                    };
                }
            };
            let expect = match from {
                None => ExpectRecord::Absent,
                Some(from) => match self.store.record(record.key()).await? {
                    Some((now, revision)) if now == from => ExpectRecord::Version(revision),
                    _ => continue,
                },
            };
            let mutation = Mutation::SetRecord { record: Box::new(record), expect };
            match self.apply(caller, id, vec![mutation]).await?.pop() {
                Some(Outcome::Refused(Refusal::Stale)) => {}
                // Another request took the name: the next plan finds it.
                Some(Outcome::Refused(refusal @ Refusal::InUse(_))) => last = refused(what, refusal),
                Some(Outcome::Refused(refusal)) => return Err(refused(what, refusal)),
                Some(outcome) => {
                    self.registry.refresh(&*self.store).await?;
                    return self.revision_of(&outcome).await;
                }
                None => return Err(Error::new(ErrorKind::Internal, "the store gave no outcome")),
            }
        }
        Err(last)
    }

    /// Drops a record of the registry. The plan names it, and the record that keeps its number
    /// taken.
    pub(crate) async fn drop_record(
        &self,
        caller: &Caller,
        id: OperationId,
        what: &impl Display,
        plan: impl Fn(&Names) -> Result<(RecordKey, Option<Record>)>,
    ) -> Result<Revision> {
        self.registry.refresh(&*self.store).await?;
        let (key, stays) = match plan(&self.registry.names()) {
            Ok(plan) => plan,
            Err(error) => {
                return match self.recall(caller, id).await? {
                    Some((revision, _)) => Ok(revision),
                    None => Err(error),
                };
            }
        };
        let mut mutations = vec![Mutation::DropRecord { key, expect: ExpectRecord::Any }];
        // If the store refuses the drop, the old record still exists, so it refuses this mutation
        // too.
        mutations.extend(
            stays
                .map(|record| Mutation::SetRecord { record: Box::new(record), expect: ExpectRecord::Absent }),
        );
        let outcome = self.apply(caller, id, mutations).await?.into_iter().next();
        self.registry.refresh(&*self.store).await?;
        match outcome {
            Some(Outcome::Refused(refusal)) => Err(refused(what, refusal)),
            Some(outcome) => self.revision_of(&outcome).await,
            None => Err(Error::new(ErrorKind::Internal, "the store gave no outcome")),
        }
    }
}

/// Describes a user with names in place of numbers; `all` includes the fields that not everyone may
/// see.
pub(crate) fn user_info(names: &Names, user: &User, all: bool) -> UserInfo {
    UserInfo {
        id: user.id.0,
        name: user.name.clone(),
        group: names.group_name(user.group),
        groups: user.groups.iter().map(|group| names.group_name(*group)).collect(),
        roles: user.roles.clone(),
        may_become: user.may_become.iter().filter(|_| all).map(|id| names.user_name(*id)).collect(),
        subjects: user.subjects.iter().filter(|_| all).cloned().collect(),
        home: user.home.clone(),
        disabled: user.disabled,
    }
}

/// Returns the next number. The greatest number of all stands for anonymous callers.
fn next_number(last: u32, of: &str) -> Result<u32> {
    match last.checked_add(1) {
        Some(next) if next < u32::MAX => Ok(next),
        _ => Err(Error::new(ErrorKind::Limit, format!("the numbers of {of} are used up"))),
    }
}

fn new_user(names: &Names, settings: &UserSettings) -> Result<User> {
    let last = names.users.keys().next_back().map_or(0, |id| id.0);
    let id = UserId(next_number(last, "users")?);
    // Unless another is given, the user's group is the one of the same name.
    let group = names.group(settings.group.as_ref().unwrap_or(&settings.name))?.id;
    let user = User {
        id,
        name: settings.name.clone(),
        group,
        groups: Vec::new(),
        roles: Vec::new(),
        may_become: Vec::new(),
        subjects: Vec::new(),
        home: None,
        disabled: false,
    };
    changed_user(names, &user, settings)
}

fn changed_user(names: &Names, known: &User, settings: &UserSettings) -> Result<User> {
    let mut user = known.clone();
    if let Some(group) = &settings.group {
        user.group = names.group(group)?.id;
    }
    if let Some(groups) = &settings.groups {
        user.groups = groups.iter().map(|name| Ok(names.group(name)?.id)).collect::<Result<_>>()?;
        user.groups.sort();
        user.groups.dedup();
    }
    if let Some(roles) = &settings.roles {
        user.roles.clone_from(roles);
        user.roles.sort();
        user.roles.dedup();
    }
    if let Some(others) = &settings.may_become {
        user.may_become = others.iter().map(|name| Ok(names.user(name)?.id)).collect::<Result<_>>()?;
        user.may_become.sort();
        user.may_become.dedup();
        if user.may_become.len() > BECOMES_PER_USER_MAX {
            let count = user.may_become.len();
            return Err(Error::limit(
                "the number of accounts a user may become",
                count,
                BECOMES_PER_USER_MAX,
            ));
        }
    }
    if let Some(subjects) = &settings.subjects {
        let other = |subject: &&String| {
            names.users.values().any(|other| other.id != user.id && other.subjects.contains(subject))
        };
        if let Some(subject) = subjects.iter().find(other) {
            return Err(Error::new(ErrorKind::Exists, format!("another user has the subject {subject:?}")));
        }
        user.subjects.clone_from(subjects);
        user.subjects.sort();
        user.subjects.dedup();
    }
    if let Some(home) = &settings.home {
        user.home = Some(home.clone());
    }
    user.disabled = settings.disabled.unwrap_or(user.disabled);
    if user.id == UserId::ADMIN && (user.disabled || !user.roles.contains(&Role::Admin)) {
        return Err(Error::invalid(format!(
            "{} stays enabled and keeps the role admin: nobody could give it back",
            user.name
        )));
    }
    Ok(user)
}

fn check_subjects(subjects: &[String]) -> Result<()> {
    if subjects.len() > SUBJECTS_PER_USER_MAX {
        return Err(Error::limit("the number of subjects of a user", subjects.len(), SUBJECTS_PER_USER_MAX));
    }
    for subject in subjects {
        if subject.len() > SUBJECT_BYTES_MAX {
            return Err(Error::limit("the length of a subject in bytes", subject.len(), SUBJECT_BYTES_MAX));
        }
        if subject.trim().is_empty() || subject.chars().any(char::is_control) {
            return Err(Error::invalid("a subject is blank or has control characters"));
        }
    }
    Ok(())
}

impl Names {
    /// Returns the user that an outside name stands for.
    pub(crate) fn user_of_subject(&self, subject: &str) -> Option<&Arc<User>> {
        self.users.values().find(|user| user.subjects.iter().any(|known| known == subject))
    }
}
