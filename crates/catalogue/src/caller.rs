//! Callers and their rights: the one place that judges permission.

use std::sync::Arc;

use exacat_model::operation::Owner;
use exacat_model::{
    AccountName, Entry, EntryId, Error, ErrorKind, Expect, Fingerprint, GroupId, GroupSettings, Lfn, Mode,
    Operation, RecordKey, Result, Revision, Role, TimeMs, TokenId, User, UserId,
};
use exacat_store::{Ancestor, Judged, JudgedEntry};

use crate::grants::{Grant, Grants, Need};
use crate::judgement::Judgement;

/// Read, as in mode bits.
pub(crate) const READ: u16 = 4;
/// Write, as in mode bits.
pub(crate) const WRITE: u16 = 2;
/// Pass through, as in mode bits.
pub(crate) const PASS: u16 = 1;

/// A caller: an account with the limits of its token, or an anonymous client.
#[derive(Clone, Debug)]
pub struct Caller {
    facts: Arc<CallerFacts>,
    /// Records the facts that permission depends on, while a request is prepared.
    judgement: Option<Arc<Judgement>>,
    /// Fingerprint of the requested operation; unknown while there is none.
    asks: Fingerprint,
    /// Activity that the requested operation needs on each path; the strictest while there is none.
    needs: Need,
    /// Version that the entry of a change must have; none for any.
    version: Option<Revision>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct CallerFacts {
    user: Option<UserId>,
    name: Option<AccountName>,
    group: GroupId,
    groups: Vec<GroupId>,
    roles: Vec<Role>,
    scope: Lfn,
    write: bool,
    token: Option<TokenId>,
    /// End of the identity; none if it lasts as long as the account.
    expires: Option<TimeMs>,
    /// Bounds of a token of another issuer; none for everything that the account may.
    grants: Option<Grants>,
    original: Option<UserId>,
    /// Versions of the registry records that the caller's identity depends on.
    records: Vec<(RecordKey, Revision)>,
}

impl PartialEq for Caller {
    fn eq(&self, other: &Self) -> bool {
        self.facts == other.facts
    }
}

impl Eq for Caller {}

impl Caller {
    fn new(facts: CallerFacts) -> Self {
        Caller {
            facts: Arc::new(facts),
            judgement: None,
            asks: Fingerprint::UNKNOWN,
            needs: Need::Modify,
            version: None,
        }
    }

    /// Returns a caller without credentials. It sees what modes give to others, if the settings
    /// allow that, and changes nothing.
    pub fn anonymous() -> Self {
        Caller::new(CallerFacts {
            user: None,
            name: None,
            group: GroupId::ADMIN,
            groups: Vec::new(),
            roles: Vec::new(),
            scope: Lfn::root(),
            write: false,
            token: None,
            expires: None,
            grants: None,
            original: None,
            records: Vec::new(),
        })
    }

    /// Returns a caller for this user within `scope`; it changes things only if `write`.
    pub fn of(user: &User, scope: Lfn, write: bool) -> Self {
        let mut groups = user.groups.clone();
        groups.push(user.group);
        Caller::new(CallerFacts {
            user: Some(user.id),
            name: Some(user.name.clone()),
            group: user.group,
            groups,
            roles: user.roles.clone(),
            scope,
            write,
            token: None,
            expires: None,
            grants: None,
            original: None,
            records: Vec::new(),
        })
    }

    fn with(self, change: impl FnOnce(&mut CallerFacts)) -> Self {
        let mut facts = Arc::unwrap_or_clone(self.facts);
        change(&mut facts);
        Caller { facts: Arc::new(facts), ..self }
    }

    /// Adds the token that proves the caller's identity until it expires.
    pub(crate) fn by_token(self, token: TokenId, expires: TimeMs) -> Self {
        self.with(|facts| {
            facts.token = Some(token);
            facts.expires = Some(expires);
        })
    }

    /// Bounds the caller by the grants of a token of another issuer, until it expires. Replaces no
    /// bound by a wider one: the caller must have none yet.
    pub fn granted(self, grants: Option<Vec<Grant>>, expires: TimeMs) -> Self {
        self.with(|facts| {
            facts.expires = Some(expires);
            if let Some(grants) = grants {
                let grants = Grants(grants.into());
                facts.write &= grants.may_write();
                facts.grants = Some(grants);
            }
        })
    }

    /// Adds the bounds of another caller, on behalf of which this one acts.
    pub(crate) fn bounded_as(self, other: &Caller) -> Self {
        let CallerFacts { token, expires, grants, .. } = &*other.facts;
        self.with(|facts| {
            facts.token = *token;
            facts.expires = *expires;
            facts.grants.clone_from(grants);
        })
    }

    /// Sets the operation that the caller requests; refuses one that its grants never allow.
    pub(crate) fn requesting(&self, operation: &Operation) -> Result<Self> {
        if self.facts.grants.is_none() {
            return Ok(self.clone());
        }
        match Need::of(operation) {
            Some(needs) => Ok(Caller { needs, ..self.clone() }),
            None => Err(Error::denied(format!(
                "{}: no scope of a token allows it; use a token of this catalogue",
                operation.name()
            ))),
        }
    }

    /// Adds the user whose credentials these are; the caller acts as another user.
    pub(crate) fn instead_of(self, original: UserId) -> Self {
        self.with(|facts| facts.original = Some(original))
    }

    /// Adds versions of records that the caller's identity depends on.
    pub(crate) fn by_records(self, records: impl IntoIterator<Item = (RecordKey, Revision)>) -> Self {
        self.with(|facts| facts.records.extend(records))
    }

    /// Returns the versions of the records that the caller's identity depends on.
    pub(crate) fn records(&self) -> &[(RecordKey, Revision)] {
        &self.facts.records
    }

    /// Returns the caller for one attempt at a changing operation, which records the facts behind
    /// each permission. The operation reads all these facts after `since`.
    pub(crate) fn judging(&self, since: Revision) -> Self {
        Caller { judgement: Some(Arc::new(Judgement::new(since))), ..self.clone() }
    }

    /// Returns the facts that decided permission so far; none if they are not recorded.
    pub(crate) fn judged(&self) -> Option<Judged> {
        let entries = (!self.is_admin()).then_some(());
        let judgement = self.judgement.as_ref()?;
        let entries = entries.map(|()| judgement.entries());
        Some(Judged { since: judgement.since(), records: self.facts.records.clone(), entries })
    }

    /// Returns the facts for a change in one directory only; `ancestors` are its ancestor permissions.
    pub(crate) fn judged_for(&self, ancestors: &[Ancestor]) -> Option<Judged> {
        let judgement = self.judgement.as_ref()?;
        let entries = (!self.is_admin()).then(|| {
            let mut entries: Vec<JudgedEntry> = ancestors.iter().map(JudgedEntry::from).collect();
            entries.sort_by_key(|entry| entry.id);
            entries
        });
        Some(Judged { since: judgement.since(), records: self.facts.records.clone(), entries })
    }

    /// Notes the store's answer that permission may be judged differently by now.
    pub(crate) fn set_outdated(&self) {
        if let Some(judgement) = &self.judgement {
            judgement.set_outdated();
        }
    }

    /// True if the store answered that permission may be judged differently by now.
    pub(crate) fn is_outdated(&self) -> bool {
        self.judgement.as_ref().is_some_and(|judgement| judgement.is_outdated())
    }

    /// Records an entry that permission depends on.
    fn judges(&self, entry: impl FnOnce() -> JudgedEntry) {
        if let Some(judgement) = &self.judgement
            && !self.is_admin()
        {
            judgement.judges(entry());
        }
    }

    /// Records the ancestor permissions of a change whose right does not depend on them.
    pub(crate) fn passes_by(&self, ancestors: &[Ancestor]) {
        ancestors.iter().for_each(|ancestor| self.judges(|| JudgedEntry::from(ancestor)));
    }

    /// Requires a version of the entry that a change is about. The store compares it at the commit.
    pub fn requiring(&self, version: Option<Revision>) -> Self {
        Caller { version, ..self.clone() }
    }

    /// Returns the condition on an entry that is changed.
    pub(crate) fn expect(&self, id: EntryId) -> Expect {
        Expect { id: Some(id), revision: self.version }
    }

    /// Continues the request of another caller, which was judged again.
    pub(crate) fn in_place_of(self, other: &Caller) -> Self {
        Caller { asks: other.asks, needs: other.needs, version: other.version, ..self }
    }

    /// Sets the fingerprint of the requested operation.
    pub(crate) fn asking(&self, operation: Fingerprint) -> Self {
        Caller { asks: operation, ..self.clone() }
    }

    /// Returns the fingerprint of the requested operation.
    pub(crate) fn asks(&self) -> Fingerprint {
        self.asks
    }

    /// Returns the user whose credentials these are, if the caller acts as another user.
    pub(crate) fn original(&self) -> Option<UserId> {
        self.facts.original
    }

    /// Returns the token that the caller showed; none if it proved its identity otherwise.
    pub fn token(&self) -> Option<TokenId> {
        self.facts.token
    }

    /// Returns the expiry of the identity; none if it lasts as long as the account.
    pub fn expires(&self) -> Option<TimeMs> {
        self.facts.expires
    }

    /// Refuses a caller whose token has expired by `now`.
    pub(crate) fn check_not_expired(&self, now: TimeMs) -> Result<()> {
        match self.facts.expires {
            Some(expires) if expires <= now => {
                Err(Error::new(ErrorKind::Unauthenticated, "the token has expired: get a new one"))
            }
            _ => Ok(()),
        }
    }

    /// Returns the user; none if anonymous.
    pub fn user(&self) -> Option<UserId> {
        self.facts.user
    }

    /// Returns the user's name; none if anonymous.
    pub fn name(&self) -> Option<&AccountName> {
        self.facts.name.as_ref()
    }

    /// Returns the group that new entries get.
    pub fn group(&self) -> GroupId {
        self.facts.group
    }

    /// Returns the only subtree that the caller may use.
    pub fn scope(&self) -> &Lfn {
        &self.facts.scope
    }

    /// True if the caller may change anything at all.
    pub fn may_write(&self) -> bool {
        self.facts.write
    }

    /// True for an admin.
    pub fn is_admin(&self) -> bool {
        self.facts.roles.contains(&Role::Admin)
    }

    /// True for an operator or an admin.
    pub fn is_operator(&self) -> bool {
        self.is_admin() || self.facts.roles.contains(&Role::Operator)
    }

    /// True for a member of this group.
    pub fn is_in(&self, group: GroupId) -> bool {
        self.facts.user.is_some() && self.facts.groups.contains(&group)
    }

    /// Returns the principal of changes. Anonymous callers change nothing, so their value is never
    /// recorded.
    pub(crate) fn acting_user(&self) -> UserId {
        self.facts.user.unwrap_or(UserId(u32::MAX))
    }

    /// True if the mode bits give all of `wanted`; an admin has all rights.
    pub(crate) fn has(&self, owner: UserId, group: GroupId, mode: Mode, wanted: u16) -> bool {
        if self.is_admin() {
            return true;
        }
        let bits = if self.facts.user == Some(owner) {
            mode.bits() >> 6
        } else if self.is_in(group) {
            mode.bits() >> 3
        } else {
            mode.bits()
        };
        bits & wanted == wanted
    }

    /// True if the entry's mode bits give all of `wanted`.
    pub(crate) fn has_entry(&self, entry: &Entry, wanted: u16) -> bool {
        self.judges(|| JudgedEntry::from(entry));
        self.has(entry.owner, entry.group, entry.mode, wanted)
    }

    /// True if the directory's mode bits give all of `wanted`.
    pub(crate) fn is_granted_by(&self, ancestor: &Ancestor, wanted: u16) -> bool {
        self.judges(|| JudgedEntry::from(ancestor));
        self.has(ancestor.owner, ancestor.group, ancestor.mode, wanted)
    }

    /// True for the entry's owner and for admins.
    pub(crate) fn owns(&self, entry: &Entry) -> bool {
        self.judges(|| JudgedEntry::from(entry));
        self.is_admin() || self.facts.user == Some(entry.owner)
    }

    /// Refuses a path outside of the token's subtree.
    pub(crate) fn check_scope(&self, lfn: &Lfn) -> Result<()> {
        if self.facts.scope.contains(lfn) {
            return self.facts.grants.as_ref().map_or(Ok(()), |grants| grants.check(self.needs, lfn));
        }
        Err(Error::denied(format!("{lfn}: this token is valid below {} only", self.facts.scope)))
    }

    /// Refuses a caller without credentials.
    pub(crate) fn check_known(&self) -> Result<UserId> {
        self.facts.user.ok_or_else(|| {
            Error::new(ErrorKind::Unauthenticated, "present a token: this is not for anonymous callers")
        })
    }

    /// Refuses all but operators and admins whose token is for the whole catalogue.
    pub(crate) fn check_operator(&self, what: &str) -> Result<()> {
        self.check_known()?;
        self.check_scope(&Lfn::root())?;
        if self.is_operator() {
            Ok(())
        } else {
            Err(Error::denied(format!("{what} takes the role operator or admin")))
        }
    }

    /// Refuses all but admins whose token is for the whole catalogue.
    pub(crate) fn check_admin(&self, what: &str) -> Result<()> {
        self.check_known()?;
        self.check_scope(&Lfn::root())?;
        if self.is_admin() { Ok(()) } else { Err(Error::denied(format!("{what} takes the role admin"))) }
    }

    /// Refuses a caller who may not follow the catalogue: a follower gets everything, secrets too.
    pub fn check_may_follow(&self) -> Result<()> {
        self.check_admin("a copy of the whole catalogue")
    }

    /// Refuses a caller who may not use a group of elements in this way. `group_id` returns the number of
    /// a user group; none if there is none of the name.
    pub(crate) fn check_elements(
        &self,
        group: &GroupSettings,
        access: ElementAccess,
        anonymous_reads: bool,
        group_id: impl Fn(&AccountName) -> Option<GroupId>,
    ) -> Result<()> {
        let is_among = |owners: &[Owner]| {
            owners.iter().any(|owner| match owner {
                Owner::User(name) => self.facts.name.as_ref() == Some(name),
                Owner::Group(name) => group_id(name).is_some_and(|id| self.is_in(id)),
            })
        };
        let is_open = access == ElementAccess::Read && group.readers.is_empty();
        if !(is_open && anonymous_reads) {
            self.check_known()?;
        }
        // Scopes and grants are about paths of files, so a token that has any gives no right here.
        self.check_scope(&Lfn::root())?;
        if access != ElementAccess::Read && !self.may_write() {
            return Err(Error::denied("this token is for reading only"));
        }
        let owns = self.is_operator() || (group.owner.is_some() && self.facts.name == group.owner);
        let may = match access {
            ElementAccess::Read => is_open || is_among(&group.readers) || is_among(&group.writers),
            ElementAccess::Write => is_among(&group.writers),
            ElementAccess::Own => false,
        };
        let what = match access {
            ElementAccess::Read => "read",
            ElementAccess::Write => "write to",
            ElementAccess::Own => "change",
        };
        let name = &group.name;
        if owns || may { Ok(()) } else { Err(Error::denied(format!("group {name}: you may not {what} it"))) }
    }
}

/// Use of a group of elements.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ElementAccess {
    /// Read values, names and settings.
    Read,
    /// Write values.
    Write,
    /// Change settings, or remove the group.
    Own,
}
