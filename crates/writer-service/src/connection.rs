//! One connection: frames and chunks in, frames out.

use std::io;
use std::net::IpAddr;
use std::sync::Arc;

use exacat_wire::writer::{Frame, FrameDecoder, Hello, Received, Role};
use exacat_writer::sums::{RunningSums, place_in_block};
use exacat_writer::{Block, ConnectionId};
use rustls::pki_types::CertificateDer;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

use crate::catalogue::Credential;
use crate::hub::Hub;
use crate::limits::{PIECE_BYTES, READ_BYTES, SEND_TIME_MAX};
use crate::outgoing::Outgoing;
use crate::trust::Trust;

/// The other side of a connection, as the network shows it.
pub(crate) struct Caller {
    pub(crate) address: IpAddr,
    /// Certificates that it showed; none over plain TCP.
    pub(crate) certificates: Option<Vec<CertificateDer<'static>>>,
    /// Trust in services; none if this one is alone.
    pub(crate) trust: Option<Trust>,
    /// Credential by its certificates, if it is a producer; the reason, if they do not verify.
    pub(crate) shown: Result<Credential, String>,
}

impl Caller {
    fn judge(&self, hello: &Hello) -> Result<(), String> {
        match &self.trust {
            Some(trust) => {
                let judged = trust.judge_service(hello, self.certificates.as_deref(), self.address);
                judged.map_err(|reason| format!("{reason}: admit it by --plain or by certificates"))
            }
            None => Err("this service has no links to others: start it with --seeds or --group".to_owned()),
        }
    }

    /// Returns the credential of a producer. A token counts before a certificate, also before a bad one.
    fn credential(&self, hello: &Hello) -> Result<Credential, String> {
        match &hello.token {
            Some(token) => Ok(Credential::Token(token.expose().to_owned())),
            None => self.shown.clone(),
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
    let mut room: Option<Block> = None;
    let received = tokio::select! {
        received = receive(&hub, (connection, &caller), reader, &mut room) => received,
        () = outgoing.ended() => Ok(()),
    };
    if let Err(error) = received {
        tracing::debug!(connection, %error, "a connection breaks");
    }
    hub.disconnect(connection);
    if let Some(block) = room {
        hub.with(|service, now| service.return_block(block, now));
    }
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
    room: &mut Option<Block>,
) -> io::Result<()> {
    let mut decoder = FrameDecoder::of_accepted();
    loop {
        loop {
            match decoder.next_message() {
                Ok(Some(Received::Frame(frame))) => take_frame(hub, (connection, caller), frame),
                Ok(Some(Received::Chunk(head))) => {
                    if room.is_none() {
                        *room = hub.with(|service, _| service.lend_block(connection));
                    }
                    // Nobody has a block who is no producer, and has ended by now.
                    let (Some(block), Some(place)) = (room.as_mut(), place_in_block(&head)) else {
                        hub.refuse(connection, "a chunk at the wrong moment".to_owned());
                        return Ok(());
                    };
                    let sums = read_chunk(&mut reader, &mut decoder, &mut block.bytes_mut()[place]).await?;
                    hub.chunk(connection, &head, (block, &sums));
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

/// Reads the bytes of a chunk: those that are there, and the rest past the buffer of the decoder. Each piece
/// is summed while it is in the cache.
async fn read_chunk<R: AsyncRead + Unpin>(
    reader: &mut R,
    decoder: &mut FrameDecoder,
    bytes: &mut [u8],
) -> io::Result<RunningSums> {
    let mut sums = RunningSums::default();
    let mut at = decoder.take_chunk_bytes(bytes);
    sums.add(&bytes[..at]);
    while at < bytes.len() {
        let end = bytes.len().min(at + PIECE_BYTES);
        let count = reader.read(&mut bytes[at..end]).await?;
        if count == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        decoder.skip_chunk_bytes(count);
        sums.add(&bytes[at..at + count]);
        at += count;
    }
    Ok(sums)
}

fn take_frame(hub: &Arc<Hub>, (connection, caller): (ConnectionId, &Caller), frame: Frame) {
    if let Frame::Hello(hello) = &frame {
        if matches!(hello.role, Role::Service(_))
            && let Err(reason) = caller.judge(hello)
        {
            hub.measures().refused_links.note(caller.address, &reason);
            tracing::warn!(address = %caller.address, reason, "a connection of a service is refused");
            hub.refuse(connection, reason);
            return;
        }
        if let Role::Producer { writer, .. } = hello.role {
            let refusal = match caller.credential(hello) {
                Ok(credential) if hub.identify(connection, writer, credential.clone()) => None,
                Ok(_) => Some("another producer has this identity, with another credential".to_owned()),
                Err(reason) => Some(reason),
            };
            if let Some(reason) = refusal {
                tracing::warn!(address = %caller.address, reason, "a connection of a producer is refused");
                hub.refuse(connection, reason);
                return;
            }
        }
    }
    hub.with(|service, now| service.message(connection, frame, now));
}
