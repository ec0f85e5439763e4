//! Conditions of a search, with names in place of numbers.

use exacat_model::query::{Filter, Pattern, TagExpression};
use exacat_model::{AccountName, Error, GroupId, Kind, Lfn, Result, SeName, SeNumber, TimeMs, UserId};
use utoipa::ToSchema;

use super::requests::{Parsed, all, bare};
use super::texts;

/// Numbers of accounts and storage elements by name.
pub trait Numbers {
    /// Returns the number of a user.
    fn user(&self, name: &AccountName) -> Result<UserId>;
    /// Returns the number of a group.
    fn group(&self, name: &AccountName) -> Result<GroupId>;
    /// Returns the number of a storage element.
    fn se(&self, name: &SeName) -> Result<SeNumber>;
}

/// Conditions on entries; all must hold.
#[derive(Debug, serde::Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = Find, examples(json!({"lfn": "/demo", "name": "*.root", "kinds": ["file"]})))]
pub struct FindIn {
    /// Base directory; not included itself.
    #[schema(value_type = texts::Lfn)]
    pub lfn: Parsed<Lfn>,
    /// Shell pattern of the last component: `*`, `?`, `[a-z]`, `{a,b}`.
    pub name: Option<String>,
    /// Regular expression anywhere in the LFN, in place of `name`.
    pub regex: Option<String>,
    /// `directory`, `file`, `collection`, `link`; empty for any.
    #[schema(value_type = Vec<texts::Kind>)]
    #[serde(default)]
    pub kinds: Vec<Parsed<Kind>>,
    /// Minimum bytes.
    pub size_min: Option<u64>,
    /// Maximum bytes.
    pub size_max: Option<u64>,
    /// True for only files whose size is unknown.
    #[serde(default)]
    pub size_unknown: bool,
    /// Earliest modification time.
    #[schema(value_type = Option<String>, format = "date-time")]
    pub modified_from: Option<Parsed<TimeMs>>,
    /// End of the modification time, exclusive.
    #[schema(value_type = Option<String>, format = "date-time")]
    pub modified_before: Option<Parsed<TimeMs>>,
    /// Earliest creation time.
    #[schema(value_type = Option<String>, format = "date-time")]
    pub created_from: Option<Parsed<TimeMs>>,
    /// End of the creation time, exclusive.
    #[schema(value_type = Option<String>, format = "date-time")]
    pub created_before: Option<Parsed<TimeMs>>,
    /// Owner.
    #[schema(value_type = Option<texts::Account>)]
    pub owner: Option<Parsed<AccountName>>,
    /// Group.
    #[schema(value_type = Option<texts::Account>)]
    pub group: Option<Parsed<AccountName>>,
    /// Storage element with a replica.
    #[schema(value_type = Option<texts::SeName>)]
    pub se: Option<Parsed<SeName>>,
    /// Job that made it.
    pub job: Option<u64>,
    /// Expression over tags, inherited ones included: `run >= 12 and campaign = "mc26"`.
    pub tags: Option<String>,
    /// Maximum levels below the base; 1 is the base's own children.
    pub depth_max: Option<u32>,
}

impl FindIn {
    /// True if a condition names an account or a storage element.
    pub fn needs_numbers(&self) -> bool {
        self.owner.is_some() || self.group.is_some() || self.se.is_some()
    }

    /// Returns the filter.
    pub fn filter(self, numbers: &dyn Numbers) -> Result<Filter> {
        let pattern = match (self.name, self.regex) {
            (Some(_), Some(_)) => return Err(Error::invalid("give one of name and regex")),
            (Some(glob), None) => Some(Pattern::Glob(glob)),
            (None, Some(regex)) => Some(Pattern::Regex(regex)),
            (None, None) => None,
        };
        if let Some(pattern) = &pattern {
            pattern.compile()?;
        }
        Ok(Filter {
            pattern,
            kinds: all(self.kinds),
            size_min: self.size_min,
            size_max: self.size_max,
            modified_from: bare(self.modified_from),
            modified_before: bare(self.modified_before),
            created_from: bare(self.created_from),
            created_before: bare(self.created_before),
            owner: self.owner.map(|Parsed(name)| numbers.user(&name)).transpose()?,
            group: self.group.map(|Parsed(name)| numbers.group(&name)).transpose()?,
            se: self.se.map(|Parsed(name)| numbers.se(&name)).transpose()?,
            job: self.job,
            tags: self.tags.as_deref().map(TagExpression::parse).transpose()?,
            depth_max: self.depth_max,
            size_unknown: self.size_unknown,
        })
    }
}
