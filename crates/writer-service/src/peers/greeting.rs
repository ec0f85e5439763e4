//! Connects to a service, and learns which one it is.

use std::net::SocketAddr;
use std::time::Duration;

use exacat_wire::writer::{
    Frame, FrameDecoder, Hello, HelloAck, PROTOCOL_VERSION, Received, Role, ServiceId, encode,
};
use rustls::pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;

use crate::limits::{GREETING_MAX, READ_BYTES};
use crate::trust::Trust;

/// Bytes in both directions, over TLS or not.
pub(super) trait Duplex: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> Duplex for T {}

/// Connection to a service that was greeted.
pub(super) struct Greeted {
    pub address: SocketAddr,
    pub service: ServiceId,
    /// Silence after which the service closes the connection.
    pub idle: Duration,
    pub stream: Box<dyn Duplex>,
    /// Has bytes that came after the greeting.
    pub decoder: FrameDecoder,
}

/// Identity of this service in its greetings.
#[derive(Clone, Debug)]
pub(super) struct Greeter {
    pub service: ServiceId,
    pub name: String,
    pub trust: Trust,
}

impl Greeter {
    /// Connects to an address and greets the service there.
    pub(super) async fn greet(&self, address: SocketAddr) -> Result<Greeted, String> {
        match timeout(GREETING_MAX, self.greet_in_time(address)).await {
            Ok(greeted) => greeted,
            Err(_) => Err(format!("no greeting within {} s", GREETING_MAX.as_secs())),
        }
    }

    async fn greet_in_time(&self, address: SocketAddr) -> Result<Greeted, String> {
        let tls = self.trust.way_to(address.ip())?;
        let tcp = TcpStream::connect(address).await.map_err(|error| error.to_string())?;
        // Messages are small, and answers wait for them.
        tcp.set_nodelay(true).map_err(|error| error.to_string())?;
        let mut stream: Box<dyn Duplex> = match tls {
            None => Box::new(tcp),
            Some(config) => {
                let name = ServerName::IpAddress(address.ip().into());
                let stream = TlsConnector::from(config).connect(name, tcp).await;
                Box::new(stream.map_err(|error| format!("TLS: {error}"))?)
            }
        };
        let hello = Frame::Hello(Hello::new(Role::Service(self.service), self.name.clone(), None));
        let mut bytes = Vec::new();
        encode(&mut bytes, &hello);
        stream.write_all(&bytes).await.map_err(|error| error.to_string())?;
        stream.flush().await.map_err(|error| error.to_string())?;
        let mut decoder = FrameDecoder::of_begun();
        let ack = read_ack(&mut stream, &mut decoder).await?;
        if ack.version != PROTOCOL_VERSION {
            return Err(format!(
                "the service speaks version {} of the protocol, and this one {PROTOCOL_VERSION}: upgrade the older one",
                ack.version
            ));
        }
        let idle = Duration::from_millis(u64::from(ack.idle_ms_max));
        Ok(Greeted { address, service: ack.service, idle, stream, decoder })
    }
}

async fn read_ack(stream: &mut Box<dyn Duplex>, decoder: &mut FrameDecoder) -> Result<HelloAck, String> {
    loop {
        match decoder.next_message().map_err(|error| error.to_string())? {
            Some(Received::Frame(Frame::HelloAck(ack))) => return Ok(ack),
            Some(Received::Frame(Frame::Refusal(refusal))) => {
                return Err(format!("refused: {}", refusal.reason));
            }
            Some(_) => return Err("the service did not answer the greeting".to_owned()),
            None => {}
        }
        decoder.buffer_mut().reserve(READ_BYTES);
        match stream.read_buf(decoder.buffer_mut()).await {
            Ok(0) => return Err("closed before the greeting was answered".to_owned()),
            Ok(_) => {}
            Err(error) => return Err(error.to_string()),
        }
    }
}
