//! One connection of the producer: dialled, then frames in both directions until it ends.

use std::io;
use std::sync::Arc;

use exacat_wire::writer::{Frame, FrameDecoder, Received};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

use crate::dial::dial;
use crate::outgoing::{Outgoing, Sending};
use crate::shared::Shared;

/// Bytes of one read.
const READ_BYTES: usize = 64 << 10;

/// A connection under its number, and the addresses of its service.
pub(crate) struct Connection {
    pub number: u64,
    pub addresses: Vec<String>,
    pub outgoing: Arc<Outgoing>,
}

/// Serves a connection from its begin to its end.
pub(crate) async fn serve(shared: Arc<Shared>, connection: Connection) {
    let number = connection.number;
    let mut last = ("".to_owned(), "the service has no address".to_owned());
    for address in &connection.addresses {
        let dialled =
            tokio::time::timeout(shared.settings.connect_timeout, dial(address, &shared.settings.security));
        let outcome = match dialled.await {
            Ok(Ok((reader, writer))) => {
                shared.producer.lock().connected(number);
                shared.wake.notify_one();
                let outgoing = &connection.outgoing;
                tokio::select! {
                    outcome = receive(&shared, number, address, reader) => outcome,
                    outcome = send(outgoing, writer) => outcome,
                }
            }
            Ok(Err(error)) => {
                last = (address.clone(), error.to_string());
                continue;
            }
            Err(_) => {
                last = (address.clone(), "no connection in time".to_owned());
                continue;
            }
        };
        let reason = outcome
            .err()
            .map_or_else(|| "the service ended the connection".to_owned(), |error| error.to_string());
        last = (address.clone(), reason);
        break;
    }
    shared.note_trouble(&last.0, last.1);
    shared.producer.lock().disconnected(number, shared.now());
    shared.wake.notify_one();
}

/// Sends what the driver puts into the queue.
async fn send<W: AsyncWrite + Unpin>(outgoing: &Outgoing, mut writer: W) -> io::Result<()> {
    let mut sending = Sending::default();
    loop {
        outgoing.take(&mut sending).await;
        // Vectored: heads and chunks are written from where they are.
        writer.write_buf(&mut sending).await?;
        writer.flush().await?;
    }
}

/// Takes frames until the service ends the connection.
async fn receive<R: AsyncRead + Unpin>(
    shared: &Shared,
    number: u64,
    address: &str,
    mut reader: R,
) -> io::Result<()> {
    let mut decoder = FrameDecoder::of_begun();
    loop {
        decoder.buffer_mut().reserve(READ_BYTES);
        if reader.read_buf(decoder.buffer_mut()).await? == 0 {
            return Ok(());
        }
        let now = shared.now();
        let mut refusal = None;
        {
            let mut producer = shared.producer.lock();
            while let Some(received) = decoder.next_message().map_err(io::Error::other)? {
                let Received::Frame(frame) = received else {
                    return Err(io::Error::other("the service sent a chunk"));
                };
                match &frame {
                    Frame::Refusal(of) if of.part.is_none() => refusal = Some(of.reason.clone()),
                    Frame::Goodbye { reason } => refusal = Some(reason.clone()),
                    Frame::HelloAck(_) => shared.forget_trouble(address),
                    _ => {}
                }
                producer.message(number, frame, now);
            }
        }
        shared.wake.notify_one();
        if let Some(reason) = refusal {
            return Err(io::Error::other(reason));
        }
    }
}
