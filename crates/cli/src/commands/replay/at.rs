//! The replay service that a command speaks to.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use exacat_http::{HttpClient, HttpClientSettings};
use exacat_replay_service::service::ReplayRemote;

use crate::args::AtReplay;
use crate::connect::read_small_file;
use crate::failure::Failure;

/// Time for an answer: a report of millions of accesses takes some seconds at first.
const TIME: Duration = Duration::from_secs(60);
/// Bytes of a file with a token.
const TOKEN_BYTES_MAX: u64 = 16 << 10;

/// Reads a token from a file.
pub(super) fn token_in(file: Option<&Path>) -> Result<Option<String>, Failure> {
    let Some(file) = file else { return Ok(None) };
    let text = read_small_file(file, TOKEN_BYTES_MAX)?.trim().to_owned();
    match text.is_empty() || text.chars().any(|one| one.is_control() || one == ' ') {
        true => Err(Failure::local(format!("{}: this is no token: one line of text", file.display()))),
        false => Ok(Some(text)),
    }
}

/// Returns the trust in the certificate of a service, if its URL is https.
pub(super) fn trust(url: &str, ca: Option<&Path>) -> Result<Option<Arc<rustls::ClientConfig>>, Failure> {
    match (ca, url.starts_with("https:")) {
        (Some(ca), true) => Ok(Some(Arc::new(exacat_server::trusting(ca)?))),
        (None, true) => Err(Failure::local("https needs the authority to trust: --service-ca FILE")),
        (_, false) => Ok(None),
    }
}

/// Makes a client of the service.
pub(super) fn client(at: &AtReplay) -> Result<HttpClient, Failure> {
    let tls = trust(&at.service, at.service_ca.as_deref())?;
    let token = token_in(at.service_token_file.as_deref())?;
    Ok(HttpClient::new(HttpClientSettings { address: at.service.clone(), token, tls, time: TIME })?)
}

/// Makes a client of the service.
pub(super) fn remote(at: &AtReplay) -> Result<ReplayRemote, Failure> {
    client(at).map(ReplayRemote::new)
}
