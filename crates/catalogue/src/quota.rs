//! Quotas: limits of users and groups, and their usage. The store enforces them at each commit.

use exacat_model::answer::QuotaInfo;
use exacat_model::limits::{GROUPS_PER_USER_MAX, READ_BATCH_MAX};
use exacat_model::operation::Owner;
use exacat_model::{
    Answer, Error, ErrorKind, ExpectRecord, Mutation, OperationId, Quota, QuotaOf, Record, RecordKey,
    RecordKind, Result, Usage,
};
use exacat_store::{Outcome, Refusal, UsageOf};

use crate::Catalogue;
use crate::accounts::{check_not_gone, is_gone};
use crate::caller::Caller;
use crate::registry::Names;
use crate::repeat::refused;

/// Limits of a quota; none leaves a figure unlimited.
pub(crate) struct QuotaLimits {
    pub(crate) files: Option<u64>,
    pub(crate) bytes: Option<u64>,
    pub(crate) replica_bytes: Option<u64>,
}

impl Catalogue {
    pub(crate) async fn quota_set(
        &self,
        caller: &Caller,
        id: OperationId,
        owner: Owner,
        limits: QuotaLimits,
    ) -> Result<Answer> {
        let QuotaLimits { files, bytes, replica_bytes } = limits;
        caller.check_operator("to set a quota")?;
        let names = self.registry.names();
        let of = match quota_of(&names, &owner) {
            Ok(of) => of,
            Err(error) => {
                return match self.recall(caller, id).await? {
                    Some((revision, _)) => Ok(Answer::Done { revision }),
                    None => Err(error),
                };
            }
        };
        let unlimited = files.is_none() && bytes.is_none() && replica_bytes.is_none();
        let mutation = if unlimited {
            Mutation::DropRecord { key: RecordKey::Quota(of), expect: ExpectRecord::Any }
        } else {
            let record = Box::new(Record::Quota(Quota { of, files, bytes, replica_bytes }));
            Mutation::SetRecord { record, expect: ExpectRecord::Any }
        };
        let outcome = match self.apply(caller, id, vec![mutation]).await?.pop() {
            // No limits were set, so nothing changes.
            Some(Outcome::Refused(Refusal::NotFound)) if unlimited => Outcome::Unchanged,
            Some(Outcome::Refused(refusal)) => return Err(refused(show(&owner), refusal)),
            Some(outcome) => outcome,
            None => return Err(Error::new(ErrorKind::Internal, "the store gave no outcome")),
        };
        Ok(Answer::Done { revision: self.revision_of(&outcome).await? })
    }

    /// Returns the account with this name.
    pub fn account_of(&self, owner: &Owner) -> Result<QuotaOf> {
        quota_of(&self.registry.names(), owner)
    }

    /// Returns the usage of at most so many users and groups that have a quota.
    pub async fn limited_usage(&self, owners_max: usize) -> Result<Vec<(Owner, Usage)>> {
        let names = self.registry.names();
        let (mut owners, mut after) = (Vec::new(), None);
        while owners.len() < owners_max {
            let page = self.store.records(RecordKind::Quota, after, READ_BATCH_MAX).await?;
            after = page.items.last().map(|entry| entry.key);
            for entry in &page.items {
                let Record::Quota(quota) = &entry.record else { continue };
                owners.extend(match quota.of {
                    QuotaOf::User(id) => {
                        names.users.get(&id).map(|user| (Owner::User(user.name.clone()), UsageOf::User(id)))
                    }
                    QuotaOf::Group(id) => names
                        .groups
                        .get(&id)
                        .map(|group| (Owner::Group(group.name.clone()), UsageOf::Group(id))),
                });
            }
            if !page.more || page.items.is_empty() {
                break;
            }
        }
        owners.truncate(owners_max);
        let mut all = Vec::with_capacity(owners.len());
        for some in owners.chunks(READ_BATCH_MAX) {
            let of: Vec<UsageOf> = some.iter().map(|(_, of)| *of).collect();
            let usage = self.store.usage(&of).await?.into_iter().map(|account| account.usage);
            all.extend(some.iter().map(|(owner, _)| owner.clone()).zip(usage));
        }
        Ok(all)
    }

    pub(crate) async fn quota_get(&self, caller: &Caller, owners: Vec<Owner>) -> Result<Answer> {
        let me = caller.check_known()?;
        if owners.len() > READ_BATCH_MAX {
            return Err(Error::limit("the number of quotas in one request", owners.len(), READ_BATCH_MAX));
        }
        let names = self.registry.names();
        let owners = if owners.is_empty() { own(&names, caller) } else { owners };
        let mut of = Vec::with_capacity(owners.len());
        for owner in &owners {
            let one = quota_of(&names, owner)?;
            let is_own = match one {
                QuotaOf::User(id) => id == me,
                QuotaOf::Group(id) => caller.is_in(id),
            };
            if !is_own && !caller.is_operator() {
                return Err(Error::denied(format!("the quota of {} is not yours to see", show(owner))));
            }
            of.push(one);
        }
        let usage_of: Vec<UsageOf> = of
            .iter()
            .map(|of| match of {
                QuotaOf::User(id) => UsageOf::User(*id),
                QuotaOf::Group(id) => UsageOf::Group(*id),
            })
            .collect();
        let accounts = self.store.usage(&usage_of).await?;
        let mut items = Vec::with_capacity(owners.len());
        for ((owner, of), account) in owners.into_iter().zip(of).zip(accounts) {
            let quota = match self.store.record(RecordKey::Quota(of)).await? {
                Some((Record::Quota(quota), _)) => quota,
                _ => Quota { of, files: None, bytes: None, replica_bytes: None },
            };
            items.push(QuotaInfo {
                owner,
                files: quota.files,
                bytes: quota.bytes,
                replica_bytes: quota.replica_bytes,
                used: account.usage,
                reserved: account.reserved,
            });
        }
        Ok(Answer::Quotas(items))
    }
}

/// Returns the caller and its groups.
fn own(names: &Names, caller: &Caller) -> Vec<Owner> {
    let mut owners: Vec<Owner> = caller.name().cloned().map(Owner::User).into_iter().collect();
    let groups =
        names.groups.values().filter(|group| caller.is_in(group.id) && !is_gone(group.name.as_str()));
    owners.extend(groups.take(GROUPS_PER_USER_MAX + 1).map(|group| Owner::Group(group.name.clone())));
    owners
}

fn quota_of(names: &Names, owner: &Owner) -> Result<QuotaOf> {
    match owner {
        Owner::User(name) => {
            check_not_gone(name.as_str())?;
            Ok(QuotaOf::User(names.user(name)?.id))
        }
        Owner::Group(name) => {
            check_not_gone(name.as_str())?;
            Ok(QuotaOf::Group(names.group(name)?.id))
        }
    }
}

fn show(owner: &Owner) -> String {
    match owner {
        Owner::User(name) => format!("the user {name}"),
        Owner::Group(name) => format!("the group {name}"),
    }
}
