//! Connections to caches and to the service: TCP, and TLS where it is wanted.

use std::io;
use std::path::Path;
use std::sync::Arc;

use exacat_model::{Error, ErrorKind, Result};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use socket2::{SockRef, TcpKeepalive};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use super::limits::KEEP_ALIVE;

/// Authorities of the system, as Debian and most others have them.
const SYSTEM_AUTHORITIES: &str = "/etc/ssl/certs/ca-certificates.crt";

/// A stream of bytes in both directions.
pub(crate) trait Both: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> Both for T {}

/// Returns the trust in the authorities of a PEM file; without one, in those of the system.
///
/// # Errors
/// The file cannot be read, or has no authority in it.
pub fn trusting(authorities: Option<&Path>) -> Result<Arc<ClientConfig>> {
    let path = authorities.unwrap_or_else(|| Path::new(SYSTEM_AUTHORITIES));
    let bad = |error: &dyn std::fmt::Display| {
        Error::new(ErrorKind::Unavailable, format!("{}: {error}", path.display()))
    };
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_file_iter(path).map_err(|error| bad(&error))? {
        // A system may have authorities of kinds that rustls does not know.
        let _ = roots.add(certificate.map_err(|error| bad(&error))?);
    }
    if roots.is_empty() {
        return Err(bad(&"no authority in it"));
    }
    let config = ClientConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
        .with_safe_default_protocol_versions()
        .map_err(|error| bad(&error))?;
    Ok(Arc::new(config.with_root_certificates(roots).with_no_client_auth()))
}

/// Returns a host without the brackets of an address.
pub(crate) fn bare(host: &str) -> &str {
    host.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')).unwrap_or(host)
}

/// Connects to a port of a host.
pub(crate) async fn tcp(host: &str, port: u16) -> io::Result<TcpStream> {
    let stream = TcpStream::connect((bare(host), port)).await?;
    stream.set_nodelay(true)?;
    SockRef::from(&stream).set_tcp_keepalive(&TcpKeepalive::new().with_time(KEEP_ALIVE))?;
    Ok(stream)
}

/// Continues in TLS. The certificate must be that of the host.
pub(crate) async fn secured<S: Both>(
    config: &Arc<ClientConfig>,
    host: &str,
    stream: S,
) -> io::Result<TlsStream<S>> {
    let name = ServerName::try_from(bare(host).to_owned()).map_err(io::Error::other)?;
    TlsConnector::from(Arc::clone(config)).connect(name, stream).await
}
