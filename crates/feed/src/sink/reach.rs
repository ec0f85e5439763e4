//! Finds the addresses of a host, and which of them a feed may connect to.

use std::net::SocketAddr;
use std::sync::Arc;

use exacat_model::Result;
use tokio_rustls::TlsConnector;

use super::address::is_private;
use super::trouble::Trouble;

/// Makes connectors for TLS.
pub type TlsSource = Arc<dyn Fn() -> Result<TlsConnector> + Send + Sync>;

/// Returns the addresses of a host.
pub(crate) async fn addresses(host: &str, port: u16) -> std::io::Result<Vec<SocketAddr>> {
    Ok(tokio::net::lookup_host((host, port)).await?.collect())
}

/// Returns those addresses that a feed may connect to.
pub(crate) fn permitted(found: &[SocketAddr], allow_private: bool) -> Vec<SocketAddr> {
    found.iter().copied().filter(|address| allow_private || !is_private(address.ip())).collect()
}

/// Makes the trouble of a host that a feed may not connect to.
pub(crate) fn refused(host: &str) -> Trouble {
    Trouble::later(format!(
        "{host} is on a loopback, private or link-local network: if that is meant, make the feed again with \
         --allow-private"
    ))
}
