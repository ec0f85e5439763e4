//! Opens connections: from an endpoint to a connection that may carry requests.

use std::sync::Arc;

use exacat_model::{Error, ErrorKind};
use exacat_wire::native::limits::{FRAME_BYTES_MAX, HANDSHAKE_FRAME_BYTES_MAX};
use exacat_wire::native::{
    Frame, FrameDecoder, Hello, PROTOCOL_VERSION, PROTOCOL_VERSION_MIN, encode_authenticate, encode_hello,
};
use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpStream, UnixStream};
use tokio_rustls::TlsConnector;

use crate::clock::ServerClock;
use crate::connection::Connection;
use crate::settings::ClientSettings;
use crate::shared::Greeting;
use crate::target::{Credentials, Endpoint};

/// Reason why there is no connection.
#[derive(Clone, Debug)]
pub(crate) struct ConnectError {
    pub error: Error,
    /// True if retries cannot help, because the server's certificate or the caller's identity was
    /// rejected.
    pub is_final: bool,
}

impl ConnectError {
    pub(crate) fn passing(what: impl Into<String>) -> Self {
        ConnectError { error: Error::new(ErrorKind::Unavailable, what), is_final: false }
    }

    fn lasting(error: Error) -> Self {
        ConnectError { error, is_final: true }
    }

    /// Makes the error that the server sent during the handshake.
    fn given(error: Error) -> Self {
        let is_final = !error.kind.is_retryable();
        ConnectError { error, is_final }
    }
}

/// Opens a connection and starts its driver. The caller bounds the time.
pub(crate) async fn open(
    endpoint: &Endpoint,
    credentials: &Credentials,
    settings: &ClientSettings,
    tls: Option<&Arc<ClientConfig>>,
    clock: &Arc<ServerClock>,
) -> Result<Arc<Connection>, ConnectError> {
    let unreachable =
        |error: std::io::Error| ConnectError::passing(format!("cannot connect to {endpoint}: {error}"));
    match endpoint {
        Endpoint::Unix(path) => {
            let stream = UnixStream::connect(path).await.map_err(unreachable)?;
            greet(stream, endpoint, credentials, settings, clock).await
        }
        Endpoint::Tls { host, port } => {
            let config = tls.ok_or_else(|| {
                ConnectError::lasting(Error::invalid(format!(
                    "to connect to {endpoint}, a certificate or a fingerprint to trust is needed"
                )))
            })?;
            let name = ServerName::try_from(host.clone()).map_err(|_| {
                ConnectError::lasting(Error::invalid(format!("not a host name: {host:.200?}")))
            })?;
            let stream = TcpStream::connect((host.as_str(), *port)).await.map_err(unreachable)?;
            stream.set_nodelay(true).map_err(unreachable)?;
            let stream = TlsConnector::from(config.clone()).connect(name, stream).await.map_err(|error| {
                // A rejected certificate stays rejected; a broken connection may recover.
                let is_final = error.kind() == std::io::ErrorKind::InvalidData;
                let error = Error::new(
                    if is_final { ErrorKind::Unauthenticated } else { ErrorKind::Unavailable },
                    format!("no secure connection to {endpoint}: {error}"),
                );
                ConnectError { error, is_final }
            })?;
            greet(stream, endpoint, credentials, settings, clock).await
        }
    }
}

async fn greet<S>(
    mut stream: S,
    endpoint: &Endpoint,
    credentials: &Credentials,
    settings: &ClientSettings,
    clock: &Arc<ServerClock>,
) -> Result<Arc<Connection>, ConnectError>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let mut decoder = FrameDecoder::new();
    let broken = |error: std::io::Error| {
        ConnectError::passing(format!("the connection to {endpoint} broke in the handshake: {error}"))
    };
    let unexpected = |frame: &Frame| {
        ConnectError::lasting(Error::new(
            ErrorKind::Internal,
            format!("{endpoint} sent a {} frame out of turn in the handshake", frame.frame_type().name()),
        ))
    };

    let mut out = Vec::new();
    encode_hello(&mut out, &Hello::new(&settings.name));
    stream.write_all(&out).await.map_err(broken)?;
    stream.flush().await.map_err(broken)?;
    let server = match next_frame(&mut stream, &mut decoder, endpoint).await? {
        Frame::HelloAck(ack) => {
            clock.told(ack.time);
            ack
        }
        Frame::Error(error) => return Err(ConnectError::given(error)),
        other => return Err(unexpected(&other)),
    };
    if !(PROTOCOL_VERSION_MIN..=PROTOCOL_VERSION).contains(&server.version) {
        return Err(ConnectError::lasting(Error::invalid(format!(
            "{endpoint} chose protocol version {}, which was not offered",
            server.version
        ))));
    }

    out.clear();
    encode_authenticate(&mut out, &credentials.0).map_err(ConnectError::lasting)?;
    stream.write_all(&out).await.map_err(broken)?;
    stream.flush().await.map_err(broken)?;
    let identity = match next_frame(&mut stream, &mut decoder, endpoint).await? {
        Frame::Authenticated(identity) => identity,
        Frame::Error(error) => return Err(ConnectError::given(error)),
        Frame::Goodbye { reason } => {
            return Err(ConnectError::passing(format!("{endpoint} is going down: {reason}")));
        }
        other => return Err(unexpected(&other)),
    };
    decoder.set_frame_bytes_max((server.limits.frame_bytes_max as usize).min(FRAME_BYTES_MAX));
    tracing::debug!(%endpoint, server = server.server, catalogue = %server.catalogue, "connected");
    let greeting = Greeting { server, identity, clock: Arc::clone(clock) };
    Ok(Connection::start(stream, decoder, endpoint, greeting, settings))
}

async fn next_frame<R: AsyncRead + Unpin>(
    reader: &mut R,
    decoder: &mut FrameDecoder,
    endpoint: &Endpoint,
) -> Result<Frame, ConnectError> {
    let stranger = |error| {
        ConnectError::lasting(Error::new(
            ErrorKind::Internal,
            format!("{endpoint} does not speak the native protocol: {error}"),
        ))
    };
    loop {
        if let Some(raw) = decoder.next_frame().map_err(stranger)? {
            return raw.decode().map_err(stranger);
        }
        decoder.buffer_mut().reserve(HANDSHAKE_FRAME_BYTES_MAX);
        let read = reader.read_buf(decoder.buffer_mut()).await;
        match read {
            Ok(0) => return Err(ConnectError::passing(format!("{endpoint} closed the connection"))),
            Ok(_) => {}
            Err(error) => {
                return Err(ConnectError::passing(format!("cannot read from {endpoint}: {error}")));
            }
        }
    }
}
