//! Connections to services: address, TCP, and TLS where it is wanted.

use std::io;
use std::time::Duration;

use rustls::pki_types::ServerName;
use socket2::{SockRef, TcpKeepalive};
use tokio::io::{AsyncRead, AsyncWrite, ReadHalf, WriteHalf};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

use crate::security::Security;

/// Idle time after which the system asks whether the other side is there. The protocol's pings are the usual
/// way; this one ends what no task watches.
const KEEP_ALIVE: Duration = Duration::from_secs(15);

/// A stream of bytes in both directions.
pub(crate) trait Both: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> Both for T {}

/// Halves of a connection.
pub(crate) type Halves = (ReadHalf<Box<dyn Both>>, WriteHalf<Box<dyn Both>>);

/// Connects to an address, `HOST:PORT`.
pub(crate) async fn dial(address: &str, security: &Security) -> io::Result<Halves> {
    let stream = TcpStream::connect(address).await?;
    stream.set_nodelay(true)?;
    SockRef::from(&stream).set_tcp_keepalive(&TcpKeepalive::new().with_time(KEEP_ALIVE))?;
    let both: Box<dyn Both> = match security {
        Security::Plain => Box::new(stream),
        Security::Tls(config) => {
            let host = address.rsplit_once(':').map_or(address, |(host, _)| host);
            let host = host.trim_start_matches('[').trim_end_matches(']').to_owned();
            let name = ServerName::try_from(host).map_err(io::Error::other)?;
            Box::new(TlsConnector::from(config.clone()).connect(name, stream).await?)
        }
    };
    Ok(tokio::io::split(both))
}
