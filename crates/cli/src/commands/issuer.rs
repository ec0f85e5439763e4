//! `issuer`: the issuers of tokens that a server trusts, in its data directory.

use std::path::PathBuf;

use exacat_model::{AccountName, Error, Lfn};
use exacat_server::issuers::{IssuerClient, IssuerSettings, Profile, check, list, save};
use serde::Serialize;
use utoipa::ToSchema;

use crate::args::{Connection, IssuerCommand, ProfileArg};
use crate::connect::data_directory;
use crate::failure::Failure;
use crate::output::{Align, Out, Style, Table};

/// File of issuers in the data directory.
const FILE: &str = "issuers.json";

/// `exacat issuer`
pub(crate) fn issuer(command: IssuerCommand, connection: &Connection, style: Style) -> Result<u8, Failure> {
    let directory = data_directory(connection)?;
    if !directory.is_dir() {
        return Err(Failure::about(
            directory.display().to_string(),
            Error::not_found("there is no such data directory: start a server with it first, or give --data"),
        ));
    }
    let path = directory.join(FILE);
    let about = |error: Error| Failure::about(path.display().to_string(), error);
    let mut all = list(&path).map_err(about)?;
    let mut out = Out::new(style);
    match command {
        IssuerCommand::Add { url, mut audience, base, profile, user, ca, client_id, client_secret_file } => {
            let secret = client_secret_file.map(secret_in).transpose()?;
            let client = client_id.map(|id| IssuerClient { id, secret });
            if let Some(client) = client.as_ref().filter(|client| !audience.contains(&client.id)) {
                audience.push(client.id.clone());
            }
            let settings = IssuerSettings {
                url,
                audiences: audience,
                base_path: Lfn::parse(&base)?.to_string(),
                profile: match profile {
                    ProfileArg::Wlcg => Profile::Wlcg,
                    ProfileArg::Scitokens => Profile::SciTokens,
                    ProfileArg::Oidc => Profile::Oidc,
                },
                user: user.map(|user| AccountName::parse(&user).map(|name| name.to_string())).transpose()?,
                ca: ca.map(absolute).transpose()?,
                client,
            };
            check(&settings)?;
            if all.iter().any(|known| known.url == settings.url) {
                let error = Error::new(exacat_model::ErrorKind::Exists, "it is configured: remove it first");
                return Err(Failure::about(settings.url, error));
            }
            let url = settings.url.clone();
            all.push(settings);
            save(&path, &all).map_err(about)?;
            done(&mut out, &url)?;
        }
        IssuerCommand::Rm { url } => {
            let before = all.len();
            all.retain(|known| known.url != url);
            if all.len() == before {
                return Err(Failure::about(
                    url,
                    Error::not_found("no such issuer; 'exacat issuer ls' lists them"),
                ));
            }
            save(&path, &all).map_err(about)?;
            done(&mut out, &url)?;
        }
        IssuerCommand::Ls => show(&mut out, &all)?,
    }
    out.flush()?;
    Ok(0)
}

/// Reads a secret from a file.
fn secret_in(path: PathBuf) -> Result<String, Failure> {
    let text = std::fs::read_to_string(&path)
        .map_err(|error| Failure::local(format!("{}: {error}", path.display())))?;
    Ok(text.trim().to_owned())
}

/// Returns an absolute path: the server may run elsewhere.
fn absolute(path: PathBuf) -> Result<PathBuf, Failure> {
    std::fs::canonicalize(&path).map_err(|error| Failure::local(format!("{}: {error}", path.display())))
}

fn done(out: &mut Out, url: &str) -> Result<(), Failure> {
    if out.style.json {
        return out.json(&exacat_wire::json::DoneOut { item: url, done: true });
    }
    Ok(())
}

/// Configured issuer of tokens.
#[derive(Serialize, ToSchema)]
#[schema(as = Issuer)]
pub(crate) struct IssuerView<'a> {
    /// URL.
    issuer: &'a str,
    /// `wlcg`, `scitokens` or `oidc`.
    profile: &'static str,
    /// Accepted audiences; a token must name one.
    audiences: &'a [String],
    /// Directory that the paths in scopes are below.
    base: &'a str,
    /// User of tokens whose subject no user has; null to refuse them.
    #[schema(required)]
    user: Option<&'a str>,
    /// File of authorities that may have signed its certificate; null for those of the system.
    #[schema(required)]
    ca: Option<String>,
    /// Id of the client with which people sign in to the web pages; left out without one.
    #[serde(skip_serializing_if = "Option::is_none")]
    client: Option<&'a str>,
}

fn show(out: &mut Out, all: &[IssuerSettings]) -> Result<(), Failure> {
    if out.style.json {
        return all.iter().try_for_each(|issuer| {
            out.json(&IssuerView {
                issuer: &issuer.url,
                profile: issuer.profile.name(),
                audiences: &issuer.audiences,
                base: &issuer.base_path,
                user: issuer.user.as_deref(),
                ca: issuer.ca.as_ref().map(|path| path.display().to_string()),
                client: issuer.client.as_ref().map(|client| client.id.as_str()),
            })
        });
    }
    if all.is_empty() {
        return Ok(());
    }
    let mut table = Table::headed([
        ("ISSUER", Align::Left),
        ("PROFILE", Align::Left),
        ("BASE", Align::Left),
        ("USER", Align::Left),
        ("AUDIENCES", Align::Left),
    ]);
    for issuer in all {
        table.row([
            issuer.url.clone(),
            issuer.profile.name().to_owned(),
            issuer.base_path.clone(),
            issuer.user.clone().unwrap_or_else(|| "-".to_owned()),
            issuer.audiences.join(" "),
        ]);
    }
    out.table(&table)
}
