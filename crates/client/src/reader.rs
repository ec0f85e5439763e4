//! The reader of a connection: takes what comes to those who wait for it, and notices when nothing comes.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use exacat_model::{Error, TimeMs};
use exacat_wire::native::{Frame, FrameDecoder};
use tokio::io::{AsyncRead, AsyncReadExt};
use tokio::time::timeout;

use crate::connection::{Control, Life, Shared};
use crate::settings::limits::READ_BYTES;

/// Reads until the connection ends, one way or the other.
pub(crate) async fn run<R: AsyncRead + Unpin>(shared: Arc<Shared>, reader: R, decoder: FrameDecoder) {
    let error = read(&shared, reader, decoder).await;
    tracing::debug!(endpoint = %shared.endpoint, %error, "connection ended");
    shared.fail(error);
}

async fn read<R: AsyncRead + Unpin>(shared: &Shared, mut reader: R, mut decoder: FrameDecoder) -> Error {
    let mut life = shared.life.subscribe();
    loop {
        loop {
            let raw = match decoder.next_frame() {
                Ok(Some(raw)) => raw,
                Ok(None) => break,
                Err(error) => return broken(shared, error),
            };
            let request = raw.request;
            match raw.decode() {
                Ok(frame) => {
                    if let Err(error) = take(shared, request, frame) {
                        return error;
                    }
                }
                Err(error) => return broken(shared, error),
            }
        }
        shared.note_answered();
        decoder.buffer_mut().reserve(READ_BYTES);
        let read = tokio::select! {
            read = timeout(shared.dead_after, reader.read_buf(decoder.buffer_mut())) => read,
            _ = life.wait_for(|life| *life == Life::Closed) => return shared.lost("it was closed"),
        };
        match read {
            Ok(Ok(0)) => {
                return match decoder.finish() {
                    Ok(()) => shared.lost("the server closed it"),
                    Err(error) => shared.lost(error),
                };
            }
            Ok(Ok(_)) => shared.note_received(),
            Ok(Err(error)) => return shared.lost(error),
            Err(_) => {
                return shared.lost(format!("nothing came for {:?}, not even a pong", shared.dead_after));
            }
        }
    }
}

fn broken(shared: &Shared, error: impl std::fmt::Display) -> Error {
    tracing::error!(endpoint = %shared.endpoint, %error, "the server broke the protocol");
    shared.lost(format!("the server broke the protocol: {error}"))
}

fn take(shared: &Shared, request: u64, frame: Frame) -> Result<(), Error> {
    match frame {
        Frame::Ping(echo) => {
            // A ping of a server says its time.
            shared.greeting.clock.told(TimeMs(echo));
            shared.tell(Control::Pong { echo });
        }
        Frame::Pong(_) => {}
        Frame::Goodbye { reason } => {
            tracing::debug!(endpoint = %shared.endpoint, reason, "the server says goodbye");
            shared.said_goodbye.store(true, Ordering::Relaxed);
            shared.end(&format!("{} is going down: {reason}", shared.endpoint));
        }
        Frame::Error(error) if request == 0 => return Err(error),
        frame => {
            shared.table.lock().deliver(request, frame).map_err(|violation| broken(shared, violation.0))?
        }
    }
    Ok(())
}
