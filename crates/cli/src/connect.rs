//! Connection to the server: its address, the credentials, and advice if it does not answer.

use std::io::Read;
use std::path::{Path, PathBuf};
use std::time::Duration;

use exacat_client::{
    AnswerStream, CallOptions, Client, ClientSettings, Credentials, Endpoint, Target, Trust,
};
use exacat_exchange::catalogue::Catalogue;
use exacat_model::{
    AccountName, Answer, Error, ErrorKind, Lfn, LogPosition, Operation, Past, PastPoint, Result, Revision,
};
use futures::StreamExt;

use crate::args::Connection;
use crate::failure::{Failure, say};
use crate::parse;

/// Bytes of a file with a token.
const TOKEN_FILE_BYTES_MAX: u64 = 64 << 10;
/// Bytes of the file with a server's addresses.
const ADDRESSES_BYTES_MAX: u64 = 64 << 10;
/// Port of the XRootD protocol.
const XROOTD_PORT: u16 = 1094;
/// Pause between two looks at the revision of the server.
const AT_LEAST_PAUSE: Duration = Duration::from_millis(20);
/// Default time limit of a request.
const TIMEOUT: Duration = Duration::from_secs(60);
/// Default time limit of an audit: the longest that a server grants a request.
const TIMEOUT_LONG: Duration = Duration::from_secs(300);
/// The client's messages for an untrusted certificate, and for no certificate to trust.
const UNTRUSTED: &str = "invalid peer certificate";
const NOTHING_TRUSTED: &str = "a certificate or a fingerprint to trust is needed";
/// Changes that a server reads for a past state in less than a second. More are told beforehand.
const PAST_CHANGES_UNTOLD: u64 = 300_000;
/// Parts of the server's refusal to read more changes than a request allows.
const PAST_REFUSED: [&str; 2] = [" is ", ", and the request allows "];
/// Distance of a follower to its source that needs no word, in ms.
const BEHIND_UNTOLD_MS: u64 = 5_000;
/// Environment variable with a token.
const TOKEN_VARIABLE: &str = "EXACAT_TOKEN";
/// Environment variable with the path of a token file.
const TOKEN_FILE_VARIABLE: &str = "EXACAT_TOKEN_FILE";

/// Returns the data directory: the given one, or the user's.
pub(crate) fn data_directory(connection: &Connection) -> std::result::Result<PathBuf, Failure> {
    if let Some(directory) = &connection.data {
        return Ok(directory.clone());
    }
    // The XDG base directory specification says to ignore a relative path there.
    let absolute = |name: &str| std::env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    if let Some(home) = absolute("XDG_DATA_HOME") {
        return Ok(home.join("exacat"));
    }
    match absolute("HOME") {
        Some(home) => Ok(home.join(".local/share/exacat")),
        None => Err(Failure::local("no data directory: give --data DIR (there is no HOME)")),
    }
}

/// Connection to the server.
#[derive(Clone, Debug)]
pub(crate) struct Session {
    client: Client,
    /// Client of the past state that reads are about; none for the present one.
    past: Option<Client>,
    target: Target,
    credentials: Credentials,
    timeout_given: bool,
}

impl Session {
    /// Connects by the options and the environment.
    pub(crate) async fn open(connection: &Connection) -> std::result::Result<Self, Failure> {
        let target = target(connection)?;
        let credentials = credentials(connection, &target)?;
        let deadline = match &connection.timeout {
            Some(text) => Duration::from_millis(
                parse::some_time_ms(text).map_err(|error| Failure::local(format!("--timeout: {error}")))?,
            ),
            None => TIMEOUT,
        };
        let settings = ClientSettings {
            name: concat!("exacat/", env!("CARGO_PKG_VERSION")).to_owned(),
            deadline,
            consistency: connection.consistency,
            ..ClientSettings::default()
        };
        match Client::connect(target.clone(), credentials.clone(), settings).await {
            Ok(client) => {
                let timeout_given = connection.timeout.is_some();
                Ok(Session { client, past: None, target, credentials, timeout_given })
            }
            Err(error) => {
                let hint = hint(&target, &error).map(str::to_owned);
                Err(Failure::Catalogue { subject: None, error, hint })
            }
        }
    }

    /// Returns the client, for callers that use it directly.
    pub(crate) fn client(&self) -> &Client {
        &self.client
    }

    /// Makes all reads be about a past state. Tells beforehand if the server has to read many changes
    /// for it, unless `is_quiet`.
    pub(crate) async fn enter_past(&mut self, point: PastPoint, is_quiet: bool) -> Result<()> {
        let first = if is_quiet { u64::MAX } else { PAST_CHANGES_UNTOLD };
        self.past = Some(match self.at_past(Past { point, changes_max: first }).await {
            Err(error) if error.kind == ErrorKind::Limit && told(&error).is_some() => {
                say(&format!("exacat: reading {}", told(&error).unwrap_or_default()));
                self.at_past(Past::at(point)).await?
            }
            other => other?,
        });
        Ok(())
    }

    /// Connects for reads of a past state, and opens that.
    async fn at_past(&self, past: Past) -> Result<Client> {
        let settings = ClientSettings { past: Some(past), ..self.client.settings().clone() };
        let client = Client::connect(self.target.clone(), self.credentials.clone(), settings).await?;
        // Whatever the answer about the root is, the state is open then.
        let operation = Operation::Stat { lfns: vec![Lfn::root()], follow: false };
        let deadline = (!self.timeout_given).then_some(TIMEOUT_LONG);
        client.call_with(operation, CallOptions { deadline, ..CallOptions::default() }).await?;
        Ok(client)
    }

    /// Returns the client for an operation: that of the past for what can be about it.
    fn client_for(&self, operation: &Operation) -> &Client {
        self.past.as_ref().filter(|_| Past::admits(operation)).unwrap_or(&self.client)
    }

    /// Sends an operation.
    pub(crate) async fn call(&self, operation: Operation) -> Result<Answer> {
        self.client_for(&operation).call(operation).await
    }

    /// Sends a long operation, with the longest time a server grants, unless the user set a limit.
    pub(crate) async fn call_long(&self, operation: Operation) -> Result<Answer> {
        let deadline = (!self.timeout_given).then_some(TIMEOUT_LONG);
        self.client.call_with(operation, CallOptions { deadline, ..CallOptions::default() }).await
    }

    /// Waits until the server has a revision, within the time limit of a request.
    pub(crate) async fn wait_for(&self, position: &str) -> std::result::Result<(), Failure> {
        let bad = |error: Error| Failure::local(format!("--at-least: {error}"));
        let position: LogPosition = position.parse().map_err(bad)?;
        let until = tokio::time::Instant::now() + self.client.settings().deadline;
        loop {
            // A revision that is still to come is on no timeline yet.
            let ask = Operation::Position { after: LogPosition::from(Revision(0)) };
            let up_to = match self.call(ask).await? {
                Answer::Changes { up_to, .. } => up_to,
                other => return Err(Failure::unexpected(&other)),
            };
            if up_to >= position.revision {
                break;
            }
            if tokio::time::Instant::now() >= until {
                let (now, wanted) = (up_to.0, position.revision.0);
                let what = format!("the server is at revision {now}, and did not reach {wanted} in time");
                return Err(Error::new(ErrorKind::Unavailable, what).into());
            }
            tokio::time::sleep(AT_LEAST_PAUSE).await;
        }
        if position.timeline.is_some() {
            self.call(Operation::Position { after: position }).await?;
        }
        Ok(())
    }

    /// Streams all pages of an answer.
    pub(crate) fn pages(&self, operation: Operation) -> Pages {
        Pages { stream: self.client_for(&operation).stream(operation) }
    }

    /// Says on standard error how far the follower that answered is behind, if that is much.
    pub(crate) fn tell_distance(&self) {
        if let Some(behind) = self.client.behind().filter(|behind| behind.ms >= BEHIND_UNTOLD_MS) {
            let (changes, seconds) = (behind.changes, behind.ms / 1000);
            say(&format!(
                "exacat: answered by a follower at revision {}, {changes} changes and {seconds} s behind its source",
                behind.revision.0
            ));
        }
    }

    /// Closes the connection.
    pub(crate) async fn close(&self) {
        if let Some(past) = &self.past {
            past.close().await;
        }
        self.client.close().await;
    }
}

impl Catalogue for Session {
    async fn call(&self, operation: Operation) -> Result<Answer> {
        Session::call(self, operation).await
    }
}

/// Returns the changes that a server did not read because the request did not allow them: their number,
/// and what they come after.
fn told(error: &Error) -> Option<&str> {
    let (before, _) = error.message.split_once(PAST_REFUSED[1])?;
    before.split_once(PAST_REFUSED[0]).map(|(_, changes)| changes)
}

/// Pages of a long answer.
#[derive(Debug)]
pub(crate) struct Pages {
    stream: AnswerStream,
}

impl Pages {
    /// Returns the next page; none at the end.
    pub(crate) async fn next(&mut self) -> Result<Option<Answer>> {
        self.stream.next().await.transpose()
    }
}

/// Returns the servers of the catalogue.
pub(crate) fn target(connection: &Connection) -> std::result::Result<Target, Failure> {
    let Some(server) = &connection.server else {
        let socket = data_directory(connection)?.join("exacat.sock");
        return Ok(Target::new(vec![Endpoint::Unix(socket)])?);
    };
    let target = Target::parse(server)?;
    let trust = match (&connection.ca, &connection.fingerprint) {
        (Some(file), _) => Trust::CertificateFile(file.clone()),
        (None, Some(fingerprint)) => Trust::fingerprint(fingerprint)?,
        // A server on this machine keeps its certificate in its data directory.
        (None, None) => match data_directory(connection).map(|directory| directory.join("server.crt")) {
            Ok(certificate) if certificate.exists() => Trust::CertificateFile(certificate),
            _ => Trust::Nothing,
        },
    };
    Ok(target.trusting(trust))
}

/// Returns the credentials to show.
pub(crate) fn credentials(
    connection: &Connection,
    target: &Target,
) -> std::result::Result<Credentials, Failure> {
    let over_socket = target.endpoints().iter().all(|endpoint| matches!(endpoint, Endpoint::Unix(_)));
    let shown = match token(connection)? {
        Some(token) => Credentials::token(token),
        None if over_socket => Credentials::local(),
        None => Credentials::anonymous(),
    };
    match &connection.act_as {
        Some(account) => Ok(shown.acting_as(AccountName::parse(account)?)),
        None => Ok(shown),
    }
}

/// Returns the token: of the option, else of the environment, else of the environment's file.
pub(crate) fn token(connection: &Connection) -> std::result::Result<Option<String>, Failure> {
    let file = match &connection.token_file {
        Some(file) => file.clone(),
        None => {
            let variable = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
            if let Some(token) = variable(TOKEN_VARIABLE) {
                return Ok(Some(token));
            }
            match variable(TOKEN_FILE_VARIABLE) {
                Some(file) => PathBuf::from(file),
                None => return Ok(None),
            }
        }
    };
    let text = read_small_file(&file, TOKEN_FILE_BYTES_MAX)?;
    let token = text.trim();
    if token.is_empty() {
        return Err(Failure::local(format!("{}: there is no token in it", file.display())));
    }
    Ok(Some(token.to_owned()))
}

/// Returns the certificate to trust: the given one, or that of a server on this machine.
pub(crate) fn certificate(connection: &Connection) -> Option<PathBuf> {
    if let Some(file) = &connection.ca {
        return Some(file.clone());
    }
    data_directory(connection).ok().map(|directory| directory.join("server.crt")).filter(|file| file.exists())
}

/// Returns the URL of the XRootD service: as a server on this machine says, or on the host of the
/// given one.
pub(crate) fn root_url(connection: &Connection) -> std::result::Result<String, Failure> {
    if let Some(server) = &connection.server {
        let host = Target::parse(server)?.endpoints().iter().find_map(|endpoint| match endpoint {
            Endpoint::Tls { host, .. } => Some(host.clone()),
            Endpoint::Unix(_) => None,
        });
        if let Some(host) = host {
            return Ok(format!("root://{host}:{XROOTD_PORT}"));
        }
    }
    let path = data_directory(connection)?.join("server.json");
    let text = read_small_file(&path, ADDRESSES_BYTES_MAX)?;
    let told: serde_json::Value = serde_json::from_str(&text)
        .map_err(|error| Failure::local(format!("{}: {error}", path.display())))?;
    let address: std::net::SocketAddr =
        told["xrootd"].as_str().and_then(|address| address.parse().ok()).ok_or_else(|| {
            Failure::local(
                "the server on this machine does not speak root://: serve with --xrootd, or give --root URL",
            )
        })?;
    // Its certificate names this machine so.
    let ip = address.ip();
    match ip.is_unspecified() || ip.is_loopback() {
        true => Ok(format!("root://localhost:{}", address.port())),
        false => Ok(format!("root://{address}")),
    }
}

/// Reads a file of at most `max` bytes as text.
pub(crate) fn read_small_file(path: &Path, max: u64) -> std::result::Result<String, Failure> {
    let failed = |error: std::io::Error| Failure::local(format!("cannot read {}: {error}", path.display()));
    let mut text = String::new();
    std::fs::File::open(path).map_err(failed)?.take(max + 1).read_to_string(&mut text).map_err(failed)?;
    if text.len() as u64 > max {
        return Err(Failure::local(format!("{}: more than {max} bytes", path.display())));
    }
    Ok(text)
}

/// Returns advice for a connection that failed.
fn hint(target: &Target, error: &Error) -> Option<&'static str> {
    let local = target.endpoints().iter().all(|endpoint| match endpoint {
        Endpoint::Unix(_) => true,
        Endpoint::Tls { host, .. } => matches!(host.as_str(), "localhost" | "127.0.0.1" | "::1"),
    });
    match error.kind {
        ErrorKind::Unavailable if local => Some(
            "is the service running? 'exacat serve' starts it ('make run' with a sample catalogue); --data or \
             --server say where it is",
        ),
        ErrorKind::Unavailable => Some("--server (or EXACAT_SERVER) says where the service is"),
        _ if error.message.contains(UNTRUSTED) || error.message.ends_with(NOTHING_TRUSTED) => Some(
            "--ca FILE trusts the certificates in a file (the server's is server.crt in its data directory); \
             --fingerprint HEX trusts the one with this SHA-256",
        ),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The refusal of the server is understood, and no other one.
    #[test]
    fn changes_of_a_refusal_are_told() {
        let limit = |message: &str| Error::new(ErrorKind::Limit, message);
        let refused = limit(
            "the state after revision 9 is 812000 changes after the snapshot daily-3, and the request allows 300000",
        );
        assert_eq!(told(&refused), Some("812000 changes after the snapshot daily-3"));
        let too_far = "the state after revision 9 is 12000000 changes after the snapshot old, and at most 10000000 are read";
        assert_eq!(told(&limit(too_far)), None);
    }
}
