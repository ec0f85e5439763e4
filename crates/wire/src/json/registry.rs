//! Storage elements, accounts, tokens, quotas, metrics.

use std::collections::BTreeMap;

use exacat_model::answer::{DeletionAt, QuotaInfo, SeUsage, StatusPart, Throttle, TokenInfo, UserInfo};
use exacat_model::operation::Owner;
use exacat_model::{AccountName, Guid, Lfn, TimeMs, TokenId};
use serde::Serialize;
use utoipa::ToSchema;

use super::entries::{Shown, UsageOut, usage};

/// A storage element and its usage.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = StorageElement)]
pub struct SeOut {
    /// Name.
    pub name: String,
    /// Number.
    pub number: u16,
    /// Beginning of derived PFNs.
    pub prefix: String,
    /// Beginning of the URLs for HTTPS clients.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub https: String,
    /// Quality-of-service labels.
    pub qos: Vec<String>,
    /// `online`, `read-only` or `offline`.
    pub status: &'static str,
    /// Distances by site.
    pub distances: BTreeMap<String, u32>,
    /// Usage.
    pub used: UsageOut,
    /// Pending deletions.
    pub deletions: UsageOut,
}

/// Converts a storage element.
pub fn se(item: &SeUsage) -> SeOut {
    SeOut {
        name: item.se.name.to_string(),
        number: item.se.number.0,
        prefix: item.se.prefix.clone(),
        https: item.se.https.clone(),
        qos: item.se.qos.iter().map(ToString::to_string).collect(),
        status: item.se.status.name(),
        distances: item.se.distances.iter().map(|(site, distance)| (site.to_string(), *distance)).collect(),
        used: usage(&item.used),
        deletions: usage(&item.deletions),
    }
}

/// A physical copy to delete.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Deletion)]
pub struct DeletionOut<'a> {
    /// Id, to report it as done.
    pub id: String,
    /// GUID of the file.
    #[schema(value_type = String, format = "uuid")]
    pub guid: Shown<Guid>,
    /// Its URL.
    pub pfn: &'a str,
    /// Time it came into the queue.
    #[schema(value_type = String, format = "date-time")]
    pub queued: Shown<TimeMs>,
    /// Bytes, if known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub size: Option<u64>,
}

/// Converts a physical copy to delete.
pub fn deletion(item: &DeletionAt) -> DeletionOut<'_> {
    DeletionOut {
        id: item.id.to_string(),
        guid: Shown(item.guid),
        pfn: &item.pfn,
        queued: Shown(item.queued),
        size: item.size,
    }
}

/// A user.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = User)]
pub struct UserOut<'a> {
    /// Name.
    pub user: &'a str,
    /// Number.
    pub id: u32,
    /// Primary group, which new entries get.
    pub group: &'a str,
    /// Further groups.
    pub groups: Vec<&'a str>,
    /// Roles.
    pub roles: Vec<&'static str>,
    /// Users that it may act as.
    pub may_become: Vec<&'a str>,
    /// Identities that log in as it.
    pub subjects: &'a [String],
    /// True if it may not log in.
    pub disabled: bool,
    /// Home directory.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub home: Option<&'a str>,
}

/// Converts a user.
pub fn user(user: &UserInfo) -> UserOut<'_> {
    UserOut {
        user: user.name.as_str(),
        id: user.id,
        group: user.group.as_str(),
        groups: user.groups.iter().map(AccountName::as_str).collect(),
        roles: user.roles.iter().map(|role| role.name()).collect(),
        may_become: user.may_become.iter().map(AccountName::as_str).collect(),
        subjects: &user.subjects,
        disabled: user.disabled,
        home: user.home.as_ref().map(Lfn::as_str),
    }
}

/// A token of exacat.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Token)]
pub struct TokenOut<'a> {
    /// Id, text of 16 hex digits.
    pub id: String,
    /// The user that it proves.
    pub user: &'a str,
    /// Time of issue.
    #[schema(value_type = String, format = "date-time")]
    pub issued: Shown<TimeMs>,
    /// Time of expiry.
    #[schema(value_type = String, format = "date-time")]
    pub expires: Shown<TimeMs>,
    /// The only subtree that it is valid for.
    pub scope: &'a str,
    /// True if it may make changes.
    pub write: bool,
    /// Purpose, as free text.
    pub note: &'a str,
    /// Its secret; only of a new token, unless it was written to a file.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub secret: Option<&'a str>,
}

/// Converts a token, without its secret.
pub fn token(token: &TokenInfo) -> TokenOut<'_> {
    TokenOut {
        id: token_id(token.id),
        user: token.user.as_str(),
        issued: Shown(token.issued),
        expires: Shown(token.expires),
        scope: token.scope.as_str(),
        write: token.write,
        note: &token.note,
        secret: None,
    }
}

/// Formats the id of a token, as it stands in its secret.
pub fn token_id(id: TokenId) -> String {
    format!("{:016x}", id.0)
}

/// Limits and usage.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Quota)]
pub struct QuotaOut {
    /// `user:NAME` or `group:NAME`.
    pub owner: String,
    /// Limits; one that is left out does not limit.
    pub limits: LimitsOut,
    /// Usage.
    pub used: UsageOut,
    /// Usage that upload reservations reserve.
    pub reserved: UsageOut,
}

/// Limits.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Limits)]
pub struct LimitsOut {
    /// Files, links and collections.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub files: Option<u64>,
    /// Logical bytes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bytes: Option<u64>,
    /// Bytes of replicas.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub replica_bytes: Option<u64>,
}

/// Formats `user:NAME` or `group:NAME`.
pub fn owner(owner: &Owner) -> String {
    match owner {
        Owner::User(name) => format!("user:{name}"),
        Owner::Group(name) => format!("group:{name}"),
    }
}

/// Text of all users that a throttle limits together.
pub const EVERYBODY: &str = "everybody";

/// Formats the users that a throttle limits: `user:NAME`, `group:NAME` or `everybody`.
pub fn throttled(owner: Option<&Owner>) -> String {
    owner.map_or_else(|| EVERYBODY.to_owned(), self::owner)
}

/// A throttle of a server.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Throttle)]
pub struct ThrottleOut {
    /// `user:NAME`, `group:NAME`, or `everybody` for all but operators together.
    pub owner: String,
    /// Maximum items per second.
    pub items_per_second: u32,
    /// Requests that wait for their turn now.
    pub waiting: u64,
    /// Requests that have waited.
    pub delayed: u64,
    /// Requests that were refused, because the wait would have been too long.
    pub refused: u64,
}

/// Converts a throttle.
pub fn throttle(throttle: &Throttle) -> ThrottleOut {
    ThrottleOut {
        owner: throttled(throttle.owner.as_ref()),
        items_per_second: throttle.items_per_second,
        waiting: throttle.waiting,
        delayed: throttle.delayed,
        refused: throttle.refused,
    }
}

/// Converts limits and usage.
pub fn quota(info: &QuotaInfo) -> QuotaOut {
    QuotaOut {
        owner: owner(&info.owner),
        limits: LimitsOut { files: info.files, bytes: info.bytes, replica_bytes: info.replica_bytes },
        used: usage(&info.used),
        reserved: usage(&info.reserved),
    }
}

/// A group of metrics.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = StatusPart)]
pub struct StatusOut<'a> {
    /// Part of the service.
    pub part: &'a str,
    /// Metrics by name; the last word of a name is the unit.
    pub metrics: BTreeMap<&'a str, u64>,
    /// Notes.
    pub notes: &'a [String],
}

/// Converts a group of metrics.
pub fn status(part: &StatusPart) -> StatusOut<'_> {
    let metrics = part.metrics.iter().map(|(name, value)| (name.as_str(), *value)).collect();
    StatusOut { part: &part.part, metrics, notes: &part.notes }
}

/// The client's identity and rights.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Whoami)]
pub struct WhoamiOut<'a> {
    /// The user; left out of an anonymous client.
    #[serde(flatten)]
    pub user: Option<UserOut<'a>>,
    /// True without credentials.
    pub anonymous: bool,
    /// The only subtree that the credentials are valid for.
    pub scope: &'a str,
    /// True if they allow changes.
    pub write: bool,
}

/// Converts the client's identity and rights.
pub fn whoami<'a>(info: Option<&'a UserInfo>, scope: &'a Lfn, write: bool) -> WhoamiOut<'a> {
    WhoamiOut { user: info.map(user), anonymous: info.is_none(), scope: scope.as_str(), write }
}

/// A group.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Group)]
pub struct GroupOut<'a> {
    /// Name.
    pub group: &'a str,
    /// Number.
    pub id: u32,
    /// Its users.
    pub users: Vec<&'a str>,
}

/// Converts a group; finds its users among all.
pub fn group<'a>(id: u32, name: &'a AccountName, users: &'a [UserInfo]) -> GroupOut<'a> {
    let of = |user: &&UserInfo| user.group == *name || user.groups.contains(name);
    let users = users.iter().filter(of).map(|user| user.name.as_str()).collect();
    GroupOut { group: name.as_str(), id, users }
}
