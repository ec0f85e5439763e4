//! Raw echo server: takes frames as the server does, and answers each with the same bytes. The cost
//! of a look-up beyond this is the catalogue's; the rest is the machine's.

use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use exacat_model::{AccountName, Answer, Error, ErrorKind, Guid, Lfn, TimelineId};
use exacat_store::{Clock, SystemClock};
use exacat_wire::native::limits::{FRAME_BYTES_MAX, HEADER_BYTES};
use exacat_wire::native::{
    FrameDecoder, FrameType, HelloAck, Identity, Limits, PROTOCOL_VERSION, RawFrame, encode_answer,
    encode_authenticated, encode_hello_ack,
};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{UnixListener, UnixStream};

use super::frames::push_numbered;
use super::target::Target;

/// Limits that it announces; its only client stays below them.
const LIMITS: Limits = Limits {
    frame_bytes_max: FRAME_BYTES_MAX as u32,
    requests_in_flight_max: 1024,
    batch_operations_max: 1,
    idle_ms_max: 0,
};
/// Buffer size of a read.
const READ_BYTES: usize = 64 << 10;

/// Attempts to connect to it, with a pause in between.
const ASKED_MAX: u32 = 5000;

/// Process with an echo server, as the server is a process. Ends when dropped.
pub struct Echo {
    child: Child,
    socket: PathBuf,
}

impl Echo {
    /// Starts one that listens at `socket` and answers every request with `answer`.
    pub async fn start(socket: &Path, answer: &Answer) -> Result<Self, Error> {
        let mut frame = Vec::new();
        encode_answer(&mut frame, FRAME_BYTES_MAX, 1, answer)?;
        let child = Command::new(std::env::current_exe().map_err(failed)?)
            .args(["bench", "--echo"])
            .arg(socket)
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .spawn()
            .map_err(failed)?;
        let mut echo = Echo { child, socket: socket.to_owned() };
        if let Some(mut stdin) = echo.child.stdin.take() {
            stdin.write_all(&frame).map_err(failed)?;
        }
        for _ in 0..ASKED_MAX {
            if UnixStream::connect(socket).await.is_ok() {
                return Ok(echo);
            }
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
        Err(Error::new(ErrorKind::Unavailable, "the echo does not answer"))
    }

    /// Target of a load, for its CPU time.
    pub fn target(&self) -> Arc<Target> {
        Arc::new(Target::Network { clients: Vec::new(), pid: Some(self.child.id()) })
    }

    /// Socket of the echo server.
    pub fn socket(&self) -> &Path {
        &self.socket
    }
}

impl Drop for Echo {
    fn drop(&mut self) {
        // It may have ended already; then there is nothing to do.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn failed(error: std::io::Error) -> Error {
    Error::new(ErrorKind::Unavailable, format!("an echo: {error}"))
}

/// Runs the process: listens at `socket`, and answers every request with the frame from standard
/// input, until it is killed.
pub async fn serve(socket: &Path) -> Result<(), Error> {
    let mut answer = Vec::new();
    std::io::stdin().read_to_end(&mut answer).map_err(failed)?;
    let listener = UnixListener::bind(socket).map_err(failed)?;
    loop {
        let (stream, _) = listener.accept().await.map_err(failed)?;
        let answer = answer.clone();
        // The client sees the end of a connection; the echo server ignores it.
        tokio::spawn(async move { converse(stream, &answer).await.ok() });
    }
}

async fn converse(mut stream: UnixStream, answer: &[u8]) -> Result<(), Error> {
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
                timeline: TimelineId([0; 16]),
                authentication_required: false,
                time: SystemClock.now(),
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
