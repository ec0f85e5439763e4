//! One connection: frames and chunks in, frames out.

use std::io;
use std::net::IpAddr;
use std::sync::Arc;

use exacat_wire::writer::{Frame, FrameDecoder, Hello, Received, Role};
use exacat_writer::ConnectionId;
use rustls::pki_types::CertificateDer;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

use crate::catalogue::Credential;
use crate::hub::Hub;
use crate::limits::{READ_BYTES, SEND_TIME_MAX};
use crate::outgoing::Outgoing;
use crate::trust::Trust;

/// The other side of a connection, as the network shows it.
pub(crate) struct Caller {
    pub(crate) address: IpAddr,
    /// Certificates that it showed; none over plain TCP.
    pub(crate) certificates: Option<Vec<CertificateDer<'static>>>,
    /// Trust in services; none if this one is alone.
    pub(crate) trust: Option<Trust>,
}

impl Caller {
    fn judge(&self, hello: &Hello) -> Result<(), String> {
        match &self.trust {
            Some(trust) => trust.judge_service(hello, self.certificates.as_deref(), self.address),
            None => Err("this service has no links to others: start it with seeds or a group".to_owned()),
        }
    }
}

/// Serves a connection until it ends.
pub(crate) async fn serve<R, W>(hub: Arc<Hub>, caller: Caller, reader: R, writer: W)
where
    R: AsyncRead + Unpin + Send,
    W: AsyncWrite + Unpin + Send + 'static,
{
    let outgoing = Arc::new(Outgoing::default());
    let connection = hub.connect(Arc::clone(&outgoing));
    let sending = tokio::spawn(send(Arc::clone(&outgoing), writer));
    let received = tokio::select! {
        received = receive(&hub, (connection, &caller), reader) => received,
        () = outgoing.ended() => Ok(()),
    };
    if let Err(error) = received {
        tracing::debug!(connection, %error, "a connection breaks");
    }
    hub.disconnect(connection);
    outgoing.end();
    let _ = sending.await;
}

/// Sends frames until there are no more, or the peer takes none.
async fn send<W: AsyncWrite + Unpin>(outgoing: Arc<Outgoing>, mut writer: W) {
    while let Some(bytes) = outgoing.next().await {
        let sent = async {
            writer.write_all(&bytes).await?;
            // TLS keeps the end of a record otherwise.
            writer.flush().await
        };
        match tokio::time::timeout(SEND_TIME_MAX, sent).await {
            Ok(Ok(())) => {}
            Ok(Err(_)) | Err(_) => break,
        }
    }
    outgoing.end();
    let _ = tokio::time::timeout(SEND_TIME_MAX, writer.shutdown()).await;
}

async fn receive<R: AsyncRead + Unpin>(
    hub: &Arc<Hub>,
    (connection, caller): (ConnectionId, &Caller),
    mut reader: R,
) -> io::Result<()> {
    let mut decoder = FrameDecoder::of_accepted();
    // The bytes of the present chunk. Its memory stays with the connection.
    let mut chunk: Vec<u8> = Vec::new();
    loop {
        loop {
            match decoder.next_message() {
                Ok(Some(Received::Frame(frame))) => take_frame(hub, (connection, caller), frame),
                Ok(Some(Received::Chunk(head))) => {
                    let length = head.length as usize;
                    if chunk.len() < length {
                        chunk.resize(length, 0);
                    }
                    let bytes = &mut chunk[..length];
                    read_chunk(&mut reader, &mut decoder, bytes).await?;
                    hub.chunk(connection, &head, bytes);
                }
                Ok(None) => break,
                Err(error) => {
                    hub.refuse(connection, error.to_string());
                    return Ok(());
                }
            }
        }
        decoder.buffer_mut().reserve(READ_BYTES);
        let mut limited = (&mut reader).take(READ_BYTES as u64);
        if limited.read_buf(decoder.buffer_mut()).await? == 0 {
            return Ok(());
        }
    }
}

/// Reads the bytes of a chunk: those that are there, and the rest past the buffer of the decoder.
async fn read_chunk<R: AsyncRead + Unpin>(
    reader: &mut R,
    decoder: &mut FrameDecoder,
    bytes: &mut [u8],
) -> io::Result<()> {
    let buffered = decoder.take_chunk_bytes(bytes);
    if buffered < bytes.len() {
        reader.read_exact(&mut bytes[buffered..]).await?;
        decoder.skip_chunk_bytes(bytes.len() - buffered);
    }
    Ok(())
}

fn take_frame(hub: &Arc<Hub>, (connection, caller): (ConnectionId, &Caller), frame: Frame) {
    if let Frame::Hello(hello) = &frame {
        if matches!(hello.role, Role::Service(_))
            && let Err(reason) = caller.judge(hello)
        {
            tracing::warn!(address = %caller.address, reason, "a connection of a service is refused");
            hub.refuse(connection, reason);
            return;
        }
        if let Role::Producer { writer, .. } = hello.role {
            let token = hello.token.as_ref().map(|token| token.expose().to_owned());
            let credential = token.map_or(Credential::None, Credential::Token);
            if !hub.identify(connection, writer, credential) {
                hub.refuse(connection, "another producer has this identity, with another token".to_owned());
                return;
            }
        }
    }
    hub.with(|service, now| service.message(connection, frame, now));
}
