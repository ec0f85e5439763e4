//! Who asks, and what that allows: the one place where permission is judged.

use std::sync::Arc;

use exacat_model::{
    AccountName, Entry, Error, ErrorKind, Fingerprint, GroupId, Lfn, Mode, RecordKey, Result, Revision, Role,
    TimeMs, TokenId, User, UserId,
};
use exacat_store::{Gate, Judged, JudgedEntry};

use crate::judgement::Judgement;

/// Read, as in mode bits.
pub(crate) const READ: u16 = 4;
/// Write, as in mode bits.
pub(crate) const WRITE: u16 = 2;
/// Pass through, as in mode bits.
pub(crate) const PASS: u16 = 1;

/// Who asks: an account, what its token allows, or nobody.
#[derive(Clone, Debug)]
pub struct Caller {
    known: Arc<Known>,
    /// Takes down what permission is judged by, while a request is prepared.
    judgement: Option<Arc<Judgement>>,
    /// Fingerprint of the operation it asks for; unknown while it asks for none.
    asks: Fingerprint,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Known {
    user: Option<UserId>,
    name: Option<AccountName>,
    group: GroupId,
    groups: Vec<GroupId>,
    roles: Vec<Role>,
    scope: Lfn,
    write: bool,
    token: Option<(TokenId, TimeMs)>,
    original: Option<UserId>,
    /// The versions of the records that it is known by.
    records: Vec<(RecordKey, Revision)>,
}

impl PartialEq for Caller {
    fn eq(&self, other: &Self) -> bool {
        self.known == other.known
    }
}

impl Eq for Caller {}

impl Caller {
    fn new(known: Known) -> Self {
        Caller { known: Arc::new(known), judgement: None, asks: Fingerprint::UNKNOWN }
    }

    /// Someone without credentials: sees what modes give to others, if settings allow, and changes nothing.
    pub fn anonymous() -> Self {
        Caller::new(Known {
            user: None,
            name: None,
            group: GroupId::ADMIN,
            groups: Vec::new(),
            roles: Vec::new(),
            scope: Lfn::root(),
            write: false,
            token: None,
            original: None,
            records: Vec::new(),
        })
    }

    /// This user, within `scope`, and changing things only if `write`.
    pub fn of(user: &User, scope: Lfn, write: bool) -> Self {
        let mut groups = user.groups.clone();
        groups.push(user.group);
        Caller::new(Known {
            user: Some(user.id),
            name: Some(user.name.clone()),
            group: user.group,
            groups,
            roles: user.roles.clone(),
            scope,
            write,
            token: None,
            original: None,
            records: Vec::new(),
        })
    }

    fn with(self, change: impl FnOnce(&mut Known)) -> Self {
        let mut known = Arc::unwrap_or_clone(self.known);
        change(&mut known);
        Caller { known: Arc::new(known), ..self }
    }

    /// The same, known by this token until it expires.
    pub(crate) fn by_token(self, token: TokenId, expires: TimeMs) -> Self {
        self.with(|known| known.token = Some((token, expires)))
    }

    /// The same, whom this user acts as.
    pub(crate) fn instead_of(self, original: UserId) -> Self {
        self.with(|known| known.original = Some(original))
    }

    /// The same, known by these versions of records as well.
    pub(crate) fn by_records(self, records: impl IntoIterator<Item = (RecordKey, Revision)>) -> Self {
        self.with(|known| known.records.extend(records))
    }

    /// The versions of the records that it is known by.
    pub(crate) fn records(&self) -> &[(RecordKey, Revision)] {
        &self.known.records
    }

    /// The same, for one try at an operation that changes something: what permission is judged by is
    /// taken down. All that is judged by is read after `since` was.
    pub(crate) fn judging(&self, since: Revision) -> Self {
        Caller { judgement: Some(Arc::new(Judgement::new(since))), ..self.clone() }
    }

    /// Facts that permission was judged by so far; none if they are not taken down.
    pub(crate) fn judged(&self) -> Option<Judged> {
        let entries = (!self.is_admin()).then_some(());
        let judgement = self.judgement.as_ref()?;
        let entries = entries.map(|()| judgement.entries());
        Some(Judged { since: judgement.since(), records: self.known.records.clone(), entries })
    }

    /// The same, of what is changed in one directory only, to which these gates lead.
    pub(crate) fn judged_for(&self, gates: &[Gate]) -> Option<Judged> {
        let judgement = self.judgement.as_ref()?;
        let entries = (!self.is_admin()).then(|| {
            let mut entries: Vec<JudgedEntry> = gates.iter().map(JudgedEntry::from).collect();
            entries.sort_by_key(|entry| entry.id);
            entries
        });
        Some(Judged { since: judgement.since(), records: self.known.records.clone(), entries })
    }

    /// The store says that it would be judged otherwise by now.
    pub(crate) fn set_outdated(&self) {
        if let Some(judgement) = &self.judgement {
            judgement.set_outdated();
        }
    }

    /// Did the store say so?
    pub(crate) fn is_outdated(&self) -> bool {
        self.judgement.as_ref().is_some_and(|judgement| judgement.is_outdated())
    }

    /// Takes an entry down that permission is judged by.
    fn judges(&self, entry: impl FnOnce() -> JudgedEntry) {
        if let Some(judgement) = &self.judgement
            && !self.is_admin()
        {
            judgement.judges(entry());
        }
    }

    /// Takes directories down above what is changed by a right that does not depend on them.
    pub(crate) fn passes_by(&self, gates: &[Gate]) {
        gates.iter().for_each(|gate| self.judges(|| JudgedEntry::from(gate)));
    }

    /// The same, asking for the operation of this fingerprint.
    pub(crate) fn asking(&self, operation: Fingerprint) -> Self {
        Caller { asks: operation, ..self.clone() }
    }

    /// The fingerprint of the operation it asks for.
    pub(crate) fn asks(&self) -> Fingerprint {
        self.asks
    }

    /// Whose credentials these are, if the user acts as another.
    pub(crate) fn original(&self) -> Option<UserId> {
        self.known.original
    }

    /// The token it showed; none if it is known otherwise.
    pub fn token(&self) -> Option<TokenId> {
        self.known.token.map(|(token, _)| token)
    }

    /// Until when it is who it is; none for as long as its account is.
    pub fn expires(&self) -> Option<TimeMs> {
        self.known.token.map(|(_, expires)| expires)
    }

    /// Refuses someone whose token has expired by `now`.
    pub(crate) fn check_not_expired(&self, now: TimeMs) -> Result<()> {
        match self.known.token {
            Some((_, expires)) if expires <= now => {
                Err(Error::new(ErrorKind::Unauthenticated, "the token has expired: get a new one"))
            }
            _ => Ok(()),
        }
    }

    /// The user; none if anonymous.
    pub fn user(&self) -> Option<UserId> {
        self.known.user
    }

    /// The user's name; none if anonymous.
    pub fn name(&self) -> Option<&AccountName> {
        self.known.name.as_ref()
    }

    /// The group new entries get.
    pub fn group(&self) -> GroupId {
        self.known.group
    }

    /// Valid for this subtree only.
    pub fn scope(&self) -> &Lfn {
        &self.known.scope
    }

    /// May it change anything?
    pub fn may_write(&self) -> bool {
        self.known.write
    }

    /// Is it an admin?
    pub fn is_admin(&self) -> bool {
        self.known.roles.contains(&Role::Admin)
    }

    /// May it run the service?
    pub fn is_operator(&self) -> bool {
        self.is_admin() || self.known.roles.contains(&Role::Operator)
    }

    /// Is it in this group?
    pub fn is_in(&self, group: GroupId) -> bool {
        self.known.user.is_some() && self.known.groups.contains(&group)
    }

    /// Who changes are recorded under. Anonymous callers change nothing, so the value is never recorded for them.
    pub(crate) fn acting_user(&self) -> UserId {
        self.known.user.unwrap_or(UserId(u32::MAX))
    }

    /// Do the mode bits give all of `wanted`? An admin has everything.
    pub(crate) fn has(&self, owner: UserId, group: GroupId, mode: Mode, wanted: u16) -> bool {
        if self.is_admin() {
            return true;
        }
        let bits = if self.known.user == Some(owner) {
            mode.bits() >> 6
        } else if self.is_in(group) {
            mode.bits() >> 3
        } else {
            mode.bits()
        };
        bits & wanted == wanted
    }

    /// Do the entry's mode bits give all of `wanted`?
    pub(crate) fn has_entry(&self, entry: &Entry, wanted: u16) -> bool {
        self.judges(|| JudgedEntry::from(entry));
        self.has(entry.owner, entry.group, entry.mode, wanted)
    }

    /// Do the directory's mode bits give all of `wanted`?
    pub(crate) fn has_gate(&self, gate: &Gate, wanted: u16) -> bool {
        self.judges(|| JudgedEntry::from(gate));
        self.has(gate.owner, gate.group, gate.mode, wanted)
    }

    /// Is it the owner, or an admin?
    pub(crate) fn owns(&self, entry: &Entry) -> bool {
        self.judges(|| JudgedEntry::from(entry));
        self.is_admin() || self.known.user == Some(entry.owner)
    }

    /// Refuses a path outside of the token's subtree.
    pub(crate) fn check_scope(&self, lfn: &Lfn) -> Result<()> {
        if self.known.scope.contains(lfn) {
            return Ok(());
        }
        Err(Error::denied(format!("{lfn}: this token is valid below {} only", self.known.scope)))
    }

    /// Refuses someone without credentials.
    pub(crate) fn check_known(&self) -> Result<UserId> {
        self.known.user.ok_or_else(|| {
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
}
