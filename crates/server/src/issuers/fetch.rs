//! Fetches the keys of an issuer: its configuration first, then the document that it names. HTTPS
//! only, verified, without redirections, bounded in bytes and time.

use std::path::Path;
use std::time::Duration;

use bytes::Bytes;
use exacat_model::{Error, ErrorKind, Result};
use exacat_wire::jwt::KeySet;
use exacat_wire::jwt::discovery::{discovery_urls, jwks_uri};
use exacat_wire::jwt::limits::{DISCOVERY_BYTES_MAX, JWKS_BYTES_MAX};
use http_body_util::{BodyExt, Empty, Limited};
use hyper::header::{ACCEPT, HOST};
use hyper::{Request, Uri};
use hyper_util::rt::TokioIo;
use rustls::pki_types::ServerName;
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

/// Longest time for one document.
const FETCH_TIME: Duration = Duration::from_secs(10);

fn failed(message: impl std::fmt::Display) -> Error {
    Error::new(ErrorKind::Unavailable, message.to_string())
}

/// Returns the present keys of an issuer.
pub(super) async fn keys(issuer: &str, ca: Option<&Path>) -> Result<KeySet> {
    let ca = ca.map(Path::to_owned);
    let connecting = tokio::task::spawn_blocking(move || crate::tls::connector(ca.as_deref()));
    let connector = connecting.await.map_err(failed)??;
    let mut last = failed("it has no configuration");
    for url in discovery_urls(issuer) {
        let found = match get(&connector, &url, DISCOVERY_BYTES_MAX).await {
            Ok(document) => jwks_uri(&document, issuer, false),
            Err(error) => Err(error),
        };
        match found {
            Ok(uri) => return KeySet::parse(&get(&connector, &uri, JWKS_BYTES_MAX).await?),
            Err(error) => last = error,
        }
    }
    Err(last)
}

async fn get(connector: &TlsConnector, url: &str, most: usize) -> Result<Vec<u8>> {
    let about = |error: &dyn std::fmt::Display| failed(format!("{url}: {error}"));
    match tokio::time::timeout(FETCH_TIME, fetch(connector, url, most)).await {
        Ok(Ok(document)) => Ok(document),
        Ok(Err(error)) => Err(about(&error)),
        Err(_) => Err(about(&"no answer in time")),
    }
}

async fn fetch(connector: &TlsConnector, url: &str, most: usize) -> Result<Vec<u8>> {
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
    let request = Request::get(path)
        .header(HOST, authority.as_str())
        .header(ACCEPT, "application/json")
        .body(Empty::<Bytes>::new())
        .map_err(failed)?;
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
