//! One connection: frames and chunks in, frames out.

use std::io;
use std::sync::Arc;

use exacat_wire::writer::{Frame, FrameDecoder, Received, Role};
use exacat_writer::ConnectionId;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

use crate::catalogue::Credential;
use crate::core::Core;
use crate::limits::{READ_BYTES, SEND_TIME_MAX};
use crate::outgoing::Outgoing;

/// Serves a connection until it ends.
pub(crate) async fn serve<R, W>(core: Arc<Core>, reader: R, writer: W)
where
    R: AsyncRead + Unpin + Send,
    W: AsyncWrite + Unpin + Send + 'static,
{
    let outgoing = Arc::new(Outgoing::default());
    let connection = core.connect(Arc::clone(&outgoing));
    let sending = tokio::spawn(send(Arc::clone(&outgoing), writer));
    let received = tokio::select! {
        received = receive(&core, connection, reader) => received,
        () = outgoing.ended() => Ok(()),
    };
    if let Err(error) = received {
        tracing::debug!(connection, %error, "a connection breaks");
    }
    core.disconnect(connection);
    outgoing.end();
    let _ = sending.await;
}

/// Sends frames until there are no more, or the peer takes none.
async fn send<W: AsyncWrite + Unpin>(outgoing: Arc<Outgoing>, mut writer: W) {
    while let Some(bytes) = outgoing.next().await {
        match tokio::time::timeout(SEND_TIME_MAX, writer.write_all(&bytes)).await {
            Ok(Ok(())) => {}
            Ok(Err(_)) | Err(_) => break,
        }
    }
    outgoing.end();
    let _ = tokio::time::timeout(SEND_TIME_MAX, writer.shutdown()).await;
}

async fn receive<R: AsyncRead + Unpin>(
    core: &Arc<Core>,
    connection: ConnectionId,
    mut reader: R,
) -> io::Result<()> {
    let mut decoder = FrameDecoder::of_accepted();
    // The bytes of the present chunk. Its memory stays with the connection.
    let mut chunk: Vec<u8> = Vec::new();
    loop {
        loop {
            match decoder.next_message() {
                Ok(Some(Received::Frame(frame))) => take_frame(core, connection, frame),
                Ok(Some(Received::Chunk(head))) => {
                    let length = head.length as usize;
                    if chunk.len() < length {
                        chunk.resize(length, 0);
                    }
                    let bytes = &mut chunk[..length];
                    read_chunk(&mut reader, &mut decoder, bytes).await?;
                    core.chunk(connection, &head, bytes);
                }
                Ok(None) => break,
                Err(error) => {
                    core.refuse(connection, error.to_string());
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

fn take_frame(core: &Arc<Core>, connection: ConnectionId, frame: Frame) {
    if let Frame::Hello(hello) = &frame {
        if matches!(hello.role, Role::Service(_)) {
            // Services have links of their own, where both sides prove who they are.
            core.refuse(connection, "this address takes producers, no services".to_owned());
            return;
        }
        if let Some(token) = &hello.token {
            core.identify(connection, Credential::Token(token.expose().to_owned()));
        }
    }
    core.with(|service, now| service.message(connection, frame, now));
}
