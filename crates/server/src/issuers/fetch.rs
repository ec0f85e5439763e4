//! Fetches the keys of an issuer: its configuration first, then the document that it names. Exchanges the
//! code of a sign-in for tokens. HTTPS only, verified, without redirections, bounded in bytes and time.

use std::path::Path;
use std::time::Duration;

use bytes::Bytes;
use exacat_model::{Error, ErrorKind, Result};
use exacat_wire::jwt::KeySet;
use exacat_wire::jwt::discovery::{Endpoints, discovery_urls, endpoints, jwks_uri};
use exacat_wire::jwt::limits::{DISCOVERY_BYTES_MAX, JWKS_BYTES_MAX};
use http_body_util::{BodyExt, Full, Limited};
use hyper::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE, HOST, HeaderValue};
use hyper::{Method, Request, Uri};
use hyper_util::rt::TokioIo;
use rustls::pki_types::ServerName;
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

/// Content type of a form.
const FORM: &str = "application/x-www-form-urlencoded";

/// A form to send, and the credentials of its sender.
type Form = (String, Option<HeaderValue>);

/// Longest time for one document.
const FETCH_TIME: Duration = Duration::from_secs(10);

fn failed(message: impl std::fmt::Display) -> Error {
    Error::new(ErrorKind::Unavailable, message.to_string())
}

/// Returns the present keys of an issuer, and the places where people sign in, if it has any.
pub(super) async fn keys(issuer: &str, ca: Option<&Path>) -> Result<(KeySet, Option<Endpoints>)> {
    let connector = connector(ca).await?;
    let mut last = failed("it has no configuration");
    for url in discovery_urls(issuer) {
        let document = match get(&connector, &url, DISCOVERY_BYTES_MAX).await {
            Ok(document) => document,
            Err(error) => {
                last = error;
                continue;
            }
        };
        match jwks_uri(&document, issuer, false) {
            Ok(uri) => {
                let keys = KeySet::parse(&get(&connector, &uri, JWKS_BYTES_MAX).await?)?;
                return Ok((keys, endpoints(&document, issuer).ok()));
            }
            Err(error) => last = error,
        }
    }
    Err(last)
}

/// Sends a form to the place where a code becomes tokens, and returns the answer.
pub(super) async fn exchange(
    url: &str,
    ca: Option<&Path>,
    form: String,
    authorization: Option<HeaderValue>,
) -> Result<Vec<u8>> {
    let connector = connector(ca).await?;
    bounded(&connector, url, DISCOVERY_BYTES_MAX, Some((form, authorization))).await
}

async fn connector(ca: Option<&Path>) -> Result<TlsConnector> {
    let ca = ca.map(Path::to_owned);
    let connecting = tokio::task::spawn_blocking(move || crate::tls::connector(ca.as_deref()));
    connecting.await.map_err(failed)?
}

async fn get(connector: &TlsConnector, url: &str, most: usize) -> Result<Vec<u8>> {
    bounded(connector, url, most, None).await
}

async fn bounded(connector: &TlsConnector, url: &str, most: usize, form: Option<Form>) -> Result<Vec<u8>> {
    let about = |error: &dyn std::fmt::Display| failed(format!("{url}: {error}"));
    match tokio::time::timeout(FETCH_TIME, fetch(connector, url, most, form)).await {
        Ok(Ok(document)) => Ok(document),
        Ok(Err(error)) => Err(about(&error)),
        Err(_) => Err(about(&"no answer in time")),
    }
}

async fn fetch(connector: &TlsConnector, url: &str, most: usize, form: Option<Form>) -> Result<Vec<u8>> {
    let uri: Uri = url.parse().map_err(failed)?;
    let authority = uri.authority().ok_or_else(|| failed("no host"))?;
    if uri.scheme_str() != Some("https") {
        return Err(failed("not https"));
    }
    let host = authority.host().trim_start_matches('[').trim_end_matches(']').to_owned();
    let stream =
        TcpStream::connect((host.as_str(), authority.port_u16().unwrap_or(443))).await.map_err(failed)?;
    let name = ServerName::try_from(host).map_err(failed)?;
    let stream = connector.connect(name, stream).await.map_err(failed)?;
    let (mut sender, connection) =
        hyper::client::conn::http1::handshake(TokioIo::new(stream)).await.map_err(failed)?;
    let path = uri.path_and_query().map_or("/", |path| path.as_str());
    let request =
        Request::builder().uri(path).header(HOST, authority.as_str()).header(ACCEPT, "application/json");
    let request = match form {
        None => request.body(Full::<Bytes>::default()),
        Some((form, authorization)) => {
            let mut request = request.method(Method::POST).header(CONTENT_TYPE, FORM);
            if let (Some(authorization), Some(headers)) = (authorization, request.headers_mut()) {
                headers.insert(AUTHORIZATION, authorization);
            }
            request.body(Full::from(form))
        }
    };
    let request = request.map_err(failed)?;
    let asking = async {
        let response = sender.send_request(request).await.map_err(failed)?;
        if response.status() != hyper::StatusCode::OK {
            return Err(failed(format!("status {}", response.status().as_u16())));
        }
        let body = Limited::new(response.into_body(), most).collect().await.map_err(failed)?;
        Ok(body.to_bytes().to_vec())
    };
    tokio::pin!(asking, connection);
    tokio::select! {
        document = &mut asking => document,
        ended = &mut connection => {
            ended.map_err(failed)?;
            asking.await
        }
    }
}
