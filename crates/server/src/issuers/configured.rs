//! The file of issuers: what the operator trusts.

use std::fmt;
use std::path::{Path, PathBuf};

use exacat_model::{AccountName, Error, ErrorKind, Lfn, Result};
use exacat_wire::jwt;
use exacat_wire::jwt::discovery::check_issuer;
use serde::{Deserialize, Serialize};

use crate::directory::{read, write_private};

/// Most issuers.
const ISSUERS_MAX: usize = 64;
/// Most audiences of an issuer.
const AUDIENCES_MAX: usize = 16;

/// The rules for the claims of an issuer's tokens.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Profile {
    /// The WLCG token profile: rights by storage scopes.
    Wlcg,
    /// SciTokens: rights by their scopes.
    SciTokens,
    /// OpenID Connect: a user with the account's own rights.
    Oidc,
}

impl Profile {
    /// All profiles.
    pub const ALL: [Profile; 3] = [Profile::Wlcg, Profile::SciTokens, Profile::Oidc];

    /// Returns the name.
    pub fn name(self) -> &'static str {
        match self {
            Profile::Wlcg => "wlcg",
            Profile::SciTokens => "scitokens",
            Profile::Oidc => "oidc",
        }
    }
}

/// An issuer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct IssuerSettings {
    /// URL, as in the claim `iss`.
    pub url: String,
    /// Accepted audiences; a token must name one.
    pub audiences: Vec<String>,
    /// Directory that the paths in scopes are below.
    pub base_path: String,
    /// Rules for the claims.
    pub profile: Profile,
    /// Account of tokens whose subject no account has; none refuses them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub user: Option<String>,
    /// Authorities that may have signed the issuer's certificate; none for those of the system.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ca: Option<PathBuf>,
    /// Client with which people sign in to the pages; none if they cannot at this issuer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub client: Option<IssuerClient>,
}

/// A client that an issuer knows this server as.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct IssuerClient {
    /// Its id, which is an accepted audience.
    pub id: String,
    /// Its secret; none for a public client.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub secret: Option<String>,
}

impl fmt::Debug for IssuerClient {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("IssuerClient").field("id", &self.id).finish_non_exhaustive()
    }
}

impl IssuerSettings {
    /// Returns the account of tokens whose subject no account has.
    pub(super) fn account(&self) -> Result<Option<AccountName>> {
        self.user.as_deref().map(AccountName::parse).transpose()
    }

    /// Returns the rules for its tokens.
    pub(super) fn rules(&self, skew_seconds: u64) -> Result<jwt::Issuer> {
        check(self)?;
        Ok(jwt::Issuer {
            url: self.url.clone(),
            audiences: self.audiences.clone(),
            base_path: Lfn::parse(&self.base_path)?,
            profile: match self.profile {
                Profile::Wlcg => jwt::Profile::Wlcg,
                Profile::SciTokens => jwt::Profile::SciTokens,
                Profile::Oidc => jwt::Profile::Oidc,
            },
            skew_seconds,
        })
    }
}

/// Refuses settings that could never accept a token, or that are not safe.
pub fn check(settings: &IssuerSettings) -> Result<()> {
    check_issuer(&settings.url, false)?;
    Lfn::parse(&settings.base_path)?;
    settings.account()?;
    if settings.audiences.is_empty() || settings.audiences.iter().any(String::is_empty) {
        return Err(Error::invalid("an issuer needs at least one audience, and none that is empty"));
    }
    if let Some(client) = &settings.client {
        if settings.profile != Profile::Oidc {
            return Err(Error::invalid("people sign in at an issuer with the profile oidc only"));
        }
        if !settings.audiences.contains(&client.id) {
            return Err(Error::invalid("the id of the client is not among the accepted audiences"));
        }
    }
    if settings.audiences.len() > AUDIENCES_MAX {
        return Err(Error::limit("the number of audiences", settings.audiences.len(), AUDIENCES_MAX));
    }
    Ok(())
}

/// Reads the file; a missing one has no issuers.
pub fn list(path: &Path) -> Result<Vec<IssuerSettings>> {
    let Some(text) = read(path)? else { return Ok(Vec::new()) };
    let all: Vec<IssuerSettings> = serde_json::from_str(&text)
        .map_err(|error| Error::new(ErrorKind::Corrupt, format!("{}: {error}", path.display())))?;
    all.iter().try_for_each(check)?;
    Ok(all)
}

/// Writes the file.
pub fn save(path: &Path, all: &[IssuerSettings]) -> Result<()> {
    all.iter().try_for_each(check)?;
    if all.len() > ISSUERS_MAX {
        return Err(Error::limit("the number of issuers", all.len(), ISSUERS_MAX));
    }
    let text = serde_json::to_vec_pretty(all)
        .map_err(|error| Error::new(ErrorKind::Internal, format!("the issuers have no JSON: {error}")))?;
    write_private(path, &text)
}
