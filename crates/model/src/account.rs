//! Accounts: users, groups, roles, tokens, quotas.

use std::fmt;

use crate::error::{Error, Result};
use crate::lfn::Lfn;
use crate::limits::ACCOUNT_NAME_BYTES_MAX;
use crate::time::TimeMs;
use crate::{canonical_enum, canonical_newtype, canonical_struct, canonical_text};

/// A user's number. Entries carry numbers; names are looked up in the registry.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct UserId(pub u32);

/// A group's number.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct GroupId(pub u32);

/// A token's public number; its secret is kept only as a hash.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TokenId(pub u64);

canonical_newtype!(UserId, GroupId, TokenId);

impl UserId {
    /// The user made with the catalogue; owns the root directory.
    pub const ADMIN: UserId = UserId(0);
}

impl GroupId {
    /// The group made with the catalogue.
    pub const ADMIN: GroupId = GroupId(0);
}

/// Name of a user, group, site or quality of service: 1 to 64 of `A-Z a-z 0-9 . _ - @ +`, no
/// leading `-`.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct AccountName(std::sync::Arc<str>);

impl AccountName {
    /// Checks `text` and converts it to a name.
    pub fn parse(text: &str) -> Result<Self> {
        if text.len() > ACCOUNT_NAME_BYTES_MAX {
            return Err(Error::limit("the length of a name in bytes", text.len(), ACCOUNT_NAME_BYTES_MAX));
        }
        let good = |byte: u8| byte.is_ascii_alphanumeric() || b"._-@+".contains(&byte);
        if text.is_empty() || text.starts_with('-') || !text.bytes().all(good) {
            return Err(Error::invalid(format!(
                "not a valid account, group, site or QoS name (letters, digits, . _ - @ +): {text:.100?}"
            )));
        }
        Ok(AccountName(text.into()))
    }

    /// Returns the name as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for AccountName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for AccountName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.0, f)
    }
}

canonical_text!(AccountName, "not a valid account name");

/// Right of a user beyond ownership and mode bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum Role {
    /// Every right, on every entry.
    Admin = 1,
    /// Runs the service: storage elements, quotas, deletion queues, all trash, fsck. An operator
    /// has no right to read or change entries beyond their mode bits.
    Operator = 2,
}

canonical_enum!(Role { 1 => Admin, 2 => Operator });

impl Role {
    /// All roles.
    pub const ALL: [Role; 2] = [Role::Admin, Role::Operator];

    /// Returns the name on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Role::Admin => "admin",
            Role::Operator => "operator",
        }
    }

    /// Returns the role of that name.
    pub fn parse(text: &str) -> Result<Self> {
        Self::ALL
            .into_iter()
            .find(|role| role.name() == text)
            .ok_or_else(|| Error::invalid(format!("not a role (admin, operator): {text:.100?}")))
    }
}

/// A user.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct User {
    /// Its number, for ever.
    pub id: UserId,
    /// Its name, unique.
    pub name: AccountName,
    /// Group of the entries that it creates.
    pub group: GroupId,
    /// Further groups of the user.
    pub groups: Vec<GroupId>,
    /// Its roles.
    pub roles: Vec<Role>,
    /// Accounts it may act as.
    pub may_become: Vec<UserId>,
    /// Certificate subjects and other outside names of this user.
    pub subjects: Vec<String>,
    /// Its home directory.
    pub home: Option<Lfn>,
    /// True if logins are refused; its entries stay.
    pub disabled: bool,
}

canonical_struct!(User { id, name, group, groups, roles, may_become, subjects, home, disabled });

/// A group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Group {
    /// Its number, for ever.
    pub id: GroupId,
    /// Its name, unique.
    pub name: AccountName,
}

canonical_struct!(Group { id, name });

/// Account that a quota applies to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum QuotaOf {
    /// A user's.
    User(UserId),
    /// A group's.
    Group(GroupId),
}

canonical_enum!(QuotaOf { 1 => User(id), 2 => Group(id) });

/// Limits on usage, each optional. Entries in the trash count until they are purged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Quota {
    /// User or group that the limits apply to.
    pub of: QuotaOf,
    /// Maximum number of entries other than directories.
    pub files: Option<u64>,
    /// Maximum logical bytes.
    pub bytes: Option<u64>,
    /// Maximum bytes of all replicas.
    pub replica_bytes: Option<u64>,
}

canonical_struct!(Quota { of, files, bytes, replica_bytes });

/// A bearer token, without its secret.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Token {
    /// Its public number.
    pub id: TokenId,
    /// SHA-256 of the secret.
    pub hash: [u8; 32],
    /// Owner of the token.
    pub user: UserId,
    /// Time of issue.
    pub issued: TimeMs,
    /// Time from which it is invalid.
    pub expires: TimeMs,
    /// Subtree to which it is limited.
    pub scope: Lfn,
    /// True if it may make changes.
    pub write: bool,
    /// Purpose, as free text.
    pub note: String,
}

canonical_struct!(Token { id, hash, user, issued, expires, scope, write, note });

/// POSIX permission bits: read 4, write 2, execute 1, for owner, group and others, and the sticky
/// bit of directories. There are no set-id bits.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Mode(u16);

impl Mode {
    /// `rwxr-xr-x`: directories.
    pub const DIRECTORY: Mode = Mode(0o755);
    /// `rw-r--r--`: everything else.
    pub const FILE: Mode = Mode(0o644);

    /// Sticky bit. In a directory with it, only the owner of the entry, the owner of the directory
    /// or an admin removes or moves a name. On other entries it has no meaning.
    pub const STICKY: u16 = 0o1000;

    /// Checks `bits`: the nine permission bits and the sticky bit. Refuses others.
    pub fn new(bits: u16) -> Result<Self> {
        if bits > 0o1777 {
            return Err(Error::invalid(format!("mode {bits:o} has bits beyond 1777")));
        }
        Ok(Mode(bits))
    }

    /// Says whether the sticky bit is set.
    pub fn is_sticky(self) -> bool {
        self.0 & Mode::STICKY != 0
    }

    /// Reads octal digits: `755`, `0644`.
    pub fn parse(text: &str) -> Result<Self> {
        let bad = || Error::invalid(format!("not an octal mode: {text:.20?}"));
        // `from_str_radix` would accept a sign.
        if !text.bytes().all(|byte| byte.is_ascii_digit()) {
            return Err(bad());
        }
        Mode::new(u16::from_str_radix(text, 8).map_err(|_| bad())?)
    }

    /// Returns the bits.
    pub fn bits(self) -> u16 {
        self.0
    }

    /// Returns the letters, as `rwxr-xr-x`. With the sticky bit `rwxrwxrwt`, or `T` where others
    /// may not execute.
    pub fn text(self) -> String {
        let letter = |bit: usize| match (self.0 & (0o400 >> bit) != 0, bit) {
            (true, 8) if self.is_sticky() => 't',
            (false, 8) if self.is_sticky() => 'T',
            (true, bit) => ['r', 'w', 'x'][bit % 3],
            (false, _) => '-',
        };
        (0..9).map(letter).collect()
    }
}

impl fmt::Display for Mode {
    /// Prints three octal digits, or four with the sticky bit.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Without a formatter of numbers, because exports print a mode for each entry.
        let digits = [9, 6, 3, 0].map(|bit| b'0' + (self.0 >> bit & 7) as u8);
        let shown = if self.is_sticky() { &digits[..] } else { &digits[1..] };
        // ASCII is UTF-8, so the default is never used.
        f.write_str(std::str::from_utf8(shown).unwrap_or_default())
    }
}

impl fmt::Debug for Mode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl crate::codec::Encode for Mode {
    fn encode(&self, out: &mut Vec<u8>) {
        self.0.encode(out);
    }
}
impl crate::codec::Decode for Mode {
    fn decode(reader: &mut crate::codec::Reader<'_>) -> std::result::Result<Self, crate::codec::DecodeError> {
        let bits = u16::decode(reader)?;
        Mode::new(bits).map_err(|_| reader.error("mode bits beyond 1777"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Each mode prints as octal digits, three at least, and is read from them.
    #[test]
    fn mode_is_its_octal_digits() {
        for bits in 0..=0o1777 {
            let mode = Mode::new(bits).unwrap();
            assert_eq!(mode.to_string(), format!("{bits:03o}"));
            assert_eq!(Mode::parse(&mode.to_string()).unwrap(), mode);
        }
        assert!(Mode::new(0o2000).is_err());
        assert!(Mode::parse("+44").is_err() && Mode::parse("8").is_err());
    }
}
