//! A raw echo: takes frames as the server does, and answers each with the same bytes. What a look-up costs more than
//! this is the catalogue's; the rest is the machine's.

use std::path::{Path, PathBuf};

use exacat_model::{AccountName, Answer, Error, ErrorKind, Guid, Lfn};
use exacat_wire::native::limits::{FRAME_BYTES_MAX, HEADER_BYTES};
use exacat_wire::native::{
    FrameDecoder, FrameType, HelloAck, Identity, Limits, PROTOCOL_VERSION, RawFrame, encode_answer,
    encode_authenticated, encode_hello_ack,
};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{UnixListener, UnixStream};
use tokio::runtime::{Builder, Runtime};

use super::frames::push_numbered;

/// What it says it keeps to; its only client keeps to less.
const LIMITS: Limits = Limits {
    frame_bytes_max: FRAME_BYTES_MAX as u32,
    requests_in_flight_max: 1024,
    batch_operations_max: 1,
    idle_ms_max: 0,
};
/// Room for what is read at once.
const READ_BYTES: usize = 64 << 10;

/// Echoes until it is dropped, on as many threads as there are cores.
pub struct Echo {
    runtime: Option<Runtime>,
    socket: PathBuf,
}

impl Echo {
    /// Listens at `socket`, and answers every request with `answer`.
    pub fn start(socket: &Path, answer: &Answer) -> Result<Self, Error> {
        let failed = |error: std::io::Error| {
            Error::new(ErrorKind::Unavailable, format!("cannot start an echo: {error}"))
        };
        let mut frame = Vec::new();
        encode_answer(&mut frame, FRAME_BYTES_MAX, 1, answer)?;
        let runtime = Builder::new_multi_thread().enable_io().build().map_err(failed)?;
        let listener = {
            let _here = runtime.enter();
            UnixListener::bind(socket).map_err(failed)?
        };
        runtime.spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let frame = frame.clone();
                // The end of a conversation is no concern of the echo: whoever talks to it sees it.
                tokio::spawn(async move { converse(stream, &frame).await.ok() });
            }
        });
        Ok(Echo { runtime: Some(runtime), socket: socket.to_owned() })
    }

    /// Where it listens.
    pub fn socket(&self) -> &Path {
        &self.socket
    }
}

impl Drop for Echo {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

async fn converse(mut stream: UnixStream, answer: &[u8]) -> Result<(), Error> {
    let failed = |error: std::io::Error| Error::new(ErrorKind::Unavailable, error.to_string());
    let (mut decoder, mut came, mut out) = (FrameDecoder::new(), vec![0; READ_BYTES], Vec::new());
    loop {
        out.clear();
        while let Some(frame) = decoder.next_frame()? {
            reply(&frame, answer, &mut out)?;
            if frame.frame_type == FrameType::Authenticate {
                decoder.set_frame_bytes_max(FRAME_BYTES_MAX);
            }
        }
        stream.write_all(&out).await.map_err(failed)?;
        match stream.read(&mut came).await.map_err(failed)? {
            0 => return Ok(()),
            read => decoder.feed(&came[..read]),
        }
    }
}

fn reply(frame: &RawFrame, answer: &[u8], out: &mut Vec<u8>) -> Result<(), Error> {
    match frame.frame_type {
        FrameType::Hello => encode_hello_ack(
            out,
            &HelloAck {
                version: PROTOCOL_VERSION,
                features: 0,
                limits: LIMITS,
                server: "exacat-echo".to_owned(),
                catalogue: Guid([0; 16]),
                authentication_required: false,
            },
        ),
        FrameType::Authenticate => encode_authenticated(
            out,
            &Identity { user: Some(AccountName::parse("admin")?), scope: Lfn::root(), write: false },
        ),
        _ => {
            debug_assert!(answer.len() > HEADER_BYTES);
            push_numbered(out, answer, frame.request);
        }
    }
    Ok(())
}
