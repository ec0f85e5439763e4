//! The registry: small records beside the entries that change slowly. They are users, groups,
//! storage elements, quotas and tokens.

use crate::account::{Group, GroupId, Quota, QuotaOf, Token, TokenId, User, UserId};
use crate::canonical_enum;
use crate::se::{Se, SeNumber};

/// One record of the registry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Record {
    /// A user.
    User(User),
    /// A group.
    Group(Group),
    /// A storage element.
    Se(Se),
    /// Limits of a user or group.
    Quota(Quota),
    /// A bearer token.
    Token(Token),
}

canonical_enum!(Record { 1 => User(user), 2 => Group(group), 3 => Se(se), 4 => Quota(quota), 5 => Token(token) });

/// Key of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum RecordKey {
    /// The user of this number.
    User(UserId),
    /// The group of this number.
    Group(GroupId),
    /// The storage element of this number.
    Se(SeNumber),
    /// The limits of this user or group.
    Quota(QuotaOf),
    /// The token of this number.
    Token(TokenId),
}

impl QuotaOf {
    /// Returns the key of the user or group that the quota applies to.
    pub fn owner_key(self) -> RecordKey {
        match self {
            QuotaOf::User(user) => RecordKey::User(user),
            QuotaOf::Group(group) => RecordKey::Group(group),
        }
    }
}

canonical_enum!(RecordKey { 1 => User(id), 2 => Group(id), 3 => Se(number), 4 => Quota(of), 5 => Token(id) });

impl Record {
    /// Returns the key.
    pub fn key(&self) -> RecordKey {
        match self {
            Record::User(user) => RecordKey::User(user.id),
            Record::Group(group) => RecordKey::Group(group.id),
            Record::Se(se) => RecordKey::Se(se.number),
            Record::Quota(quota) => RecordKey::Quota(quota.of),
            Record::Token(token) => RecordKey::Token(token.id),
        }
    }

    /// Returns the name that no other record of the kind may have.
    pub fn unique_name(&self) -> Option<&str> {
        match self {
            Record::User(user) => Some(user.name.as_str()),
            Record::Group(group) => Some(group.name.as_str()),
            Record::Se(se) => Some(se.name.as_str()),
            Record::Quota(_) | Record::Token(_) => None,
        }
    }

    /// Returns the key of the record that must exist for it.
    pub fn refers_to(&self) -> Option<RecordKey> {
        match self {
            Record::User(user) => Some(RecordKey::Group(user.group)),
            Record::Token(token) => Some(RecordKey::User(token.user)),
            Record::Quota(quota) => Some(match quota.of {
                QuotaOf::User(user) => RecordKey::User(user),
                QuotaOf::Group(group) => RecordKey::Group(group),
            }),
            Record::Group(_) | Record::Se(_) => None,
        }
    }
}

impl RecordKey {
    /// Returns the kind, as a number per kind, so that a range of keys holds one kind.
    pub fn kind(self) -> RecordKind {
        match self {
            RecordKey::User(_) => RecordKind::User,
            RecordKey::Group(_) => RecordKind::Group,
            RecordKey::Se(_) => RecordKind::Se,
            RecordKey::Quota(_) => RecordKind::Quota,
            RecordKey::Token(_) => RecordKind::Token,
        }
    }
}

/// The kinds of records.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum RecordKind {
    /// Users.
    User = 1,
    /// Groups.
    Group = 2,
    /// Storage elements.
    Se = 3,
    /// Quotas.
    Quota = 4,
    /// Tokens.
    Token = 5,
}

canonical_enum!(RecordKind { 1 => User, 2 => Group, 3 => Se, 4 => Quota, 5 => Token });

impl RecordKind {
    /// All kinds.
    pub const ALL: [RecordKind; 5] =
        [RecordKind::User, RecordKind::Group, RecordKind::Se, RecordKind::Quota, RecordKind::Token];

    /// Returns the name.
    pub fn name(self) -> &'static str {
        match self {
            RecordKind::User => "user",
            RecordKind::Group => "group",
            RecordKind::Se => "SE",
            RecordKind::Quota => "quota",
            RecordKind::Token => "token",
        }
    }
}
