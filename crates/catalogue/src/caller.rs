//! Who asks, and what that allows: the one place where permission is judged.

use exacat_model::{
    AccountName, Entry, Error, ErrorKind, GroupId, Lfn, Mode, Result, Role, TimeMs, TokenId, User, UserId,
};
use exacat_store::Gate;

/// Read, as in mode bits.
pub(crate) const READ: u16 = 4;
/// Write, as in mode bits.
pub(crate) const WRITE: u16 = 2;
/// Pass through, as in mode bits.
pub(crate) const PASS: u16 = 1;

/// Who asks: an account, what its token allows, or nobody.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Caller {
    user: Option<UserId>,
    name: Option<AccountName>,
    group: GroupId,
    groups: Vec<GroupId>,
    roles: Vec<Role>,
    scope: Lfn,
    write: bool,
    token: Option<(TokenId, TimeMs)>,
    original: Option<UserId>,
}

impl Caller {
    /// Someone without credentials: sees what modes give to others, if settings allow, and changes nothing.
    pub fn anonymous() -> Self {
        Caller {
            user: None,
            name: None,
            group: GroupId::ADMIN,
            groups: Vec::new(),
            roles: Vec::new(),
            scope: Lfn::root(),
            write: false,
            token: None,
            original: None,
        }
    }

    /// This user, within `scope`, and changing things only if `write`.
    pub fn of(user: &User, scope: Lfn, write: bool) -> Self {
        let mut groups = user.groups.clone();
        groups.push(user.group);
        Caller {
            user: Some(user.id),
            name: Some(user.name.clone()),
            group: user.group,
            groups,
            roles: user.roles.clone(),
            scope,
            write,
            token: None,
            original: None,
        }
    }

    /// The same, known by this token until it expires.
    pub(crate) fn by_token(self, token: TokenId, expires: TimeMs) -> Self {
        Caller { token: Some((token, expires)), ..self }
    }

    /// The same, whom this user acts as.
    pub(crate) fn instead_of(self, original: UserId) -> Self {
        Caller { original: Some(original), ..self }
    }

    /// Whose credentials these are, if the user acts as another.
    pub(crate) fn original(&self) -> Option<UserId> {
        self.original
    }

    /// The token it showed; none if it is known otherwise.
    pub fn token(&self) -> Option<TokenId> {
        self.token.map(|(token, _)| token)
    }

    /// Until when it is who it is; none for as long as its account is.
    pub fn expires(&self) -> Option<TimeMs> {
        self.token.map(|(_, expires)| expires)
    }

    /// Refuses someone whose token has expired by `now`.
    pub(crate) fn check_not_expired(&self, now: TimeMs) -> Result<()> {
        match self.token {
            Some((_, expires)) if expires <= now => {
                Err(Error::new(ErrorKind::Unauthenticated, "the token has expired: get a new one"))
            }
            _ => Ok(()),
        }
    }

    /// The user; none if anonymous.
    pub fn user(&self) -> Option<UserId> {
        self.user
    }

    /// The user's name; none if anonymous.
    pub fn name(&self) -> Option<&AccountName> {
        self.name.as_ref()
    }

    /// The group new entries get.
    pub fn group(&self) -> GroupId {
        self.group
    }

    /// Valid for this subtree only.
    pub fn scope(&self) -> &Lfn {
        &self.scope
    }

    /// May it change anything?
    pub fn may_write(&self) -> bool {
        self.write
    }

    /// Is it an admin?
    pub fn is_admin(&self) -> bool {
        self.roles.contains(&Role::Admin)
    }

    /// May it run the service?
    pub fn is_operator(&self) -> bool {
        self.is_admin() || self.roles.contains(&Role::Operator)
    }

    /// Is it in this group?
    pub fn is_in(&self, group: GroupId) -> bool {
        self.user.is_some() && self.groups.contains(&group)
    }

    /// Who changes are recorded under. Anonymous callers change nothing, so the value is never recorded for them.
    pub(crate) fn acting_user(&self) -> UserId {
        self.user.unwrap_or(UserId(u32::MAX))
    }

    /// Do the mode bits give all of `wanted`? An admin has everything.
    pub(crate) fn has(&self, owner: UserId, group: GroupId, mode: Mode, wanted: u16) -> bool {
        if self.is_admin() {
            return true;
        }
        let bits = if self.user == Some(owner) {
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
        self.has(entry.owner, entry.group, entry.mode, wanted)
    }

    /// Do the directory's mode bits give all of `wanted`?
    pub(crate) fn has_gate(&self, gate: &Gate, wanted: u16) -> bool {
        self.has(gate.owner, gate.group, gate.mode, wanted)
    }

    /// Is it the owner, or an admin?
    pub(crate) fn owns(&self, entry: &Entry) -> bool {
        self.is_admin() || self.user == Some(entry.owner)
    }

    /// Refuses a path outside of the token's subtree.
    pub(crate) fn check_scope(&self, lfn: &Lfn) -> Result<()> {
        if self.scope.contains(lfn) {
            return Ok(());
        }
        Err(Error::denied(format!("{lfn}: this token is valid below {} only", self.scope)))
    }

    /// Refuses someone without credentials.
    pub(crate) fn check_known(&self) -> Result<UserId> {
        self.user.ok_or_else(|| {
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
