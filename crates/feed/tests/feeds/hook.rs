//! A receiver of webhooks: as small as HTTP permits, and as unreliable as a test wants.

use std::collections::VecDeque;
use std::sync::Arc;

use parking_lot::Mutex;
use serde_json::Value;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;

/// Answer to a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reply {
    /// This status.
    Status(u16),
    /// This status, with `Retry-After` in seconds.
    After(u16, u64),
    /// The request is taken, and the connection ends without an answer.
    Lost,
    /// No answer, ever.
    Silence,
}

/// A request that came.
#[derive(Clone, Debug)]
pub(crate) struct Got {
    pub head: String,
    pub body: Vec<u8>,
    /// True if the answer was that it is done.
    pub is_taken: bool,
}

impl Got {
    /// Returns the data of its events.
    pub(crate) fn events(&self) -> Vec<Value> {
        let batch: Vec<Value> = serde_json::from_slice(&self.body).unwrap();
        batch
    }

    /// Returns the value of a header.
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.head.lines().find_map(|line| {
            let (own, value) = line.split_once(':')?;
            own.eq_ignore_ascii_case(name).then(|| value.trim())
        })
    }
}

#[derive(Default)]
struct Shared {
    got: Vec<Got>,
    replies: VecDeque<Reply>,
    /// Requests with this text are refused for now.
    refused: Option<&'static str>,
}

/// The receiver.
pub(crate) struct Hook {
    pub url: String,
    shared: Arc<Mutex<Shared>>,
    task: tokio::task::JoinHandle<()>,
}

impl Drop for Hook {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Hook {
    /// Starts a receiver, whose first answers are these; the others are 204.
    pub(crate) async fn start(replies: &[Reply]) -> Hook {
        Hook::begin(replies, None).await
    }

    /// Starts a receiver over TLS, under the name `localhost`.
    pub(crate) async fn start_secured(acceptor: TlsAcceptor) -> Hook {
        Hook::begin(&[], Some(acceptor)).await
    }

    async fn begin(replies: &[Reply], acceptor: Option<TlsAcceptor>) -> Hook {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let url = match &acceptor {
            None => format!("http://{address}/hook?x=1"),
            Some(_) => format!("https://localhost:{}/hook", address.port()),
        };
        let shared = Arc::new(Mutex::new(Shared { replies: replies.to_vec().into(), ..Shared::default() }));
        let of_task = Arc::clone(&shared);
        let task = tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let (shared, acceptor) = (Arc::clone(&of_task), acceptor.clone());
                tokio::spawn(async move {
                    match acceptor {
                        None => serve(stream, shared).await,
                        // A client that does not trust the certificate ends here.
                        Some(acceptor) => {
                            if let Ok(stream) = acceptor.accept(stream).await {
                                serve(stream, shared).await;
                            }
                        }
                    }
                });
            }
        });
        Hook { url, shared, task }
    }

    /// Refuses requests with a text from now on, or takes all.
    pub(crate) fn refuse(&self, text: Option<&'static str>) {
        self.shared.lock().refused = text;
    }

    /// Returns the requests so far, the unanswered ones too.
    pub(crate) fn got(&self) -> Vec<Got> {
        self.shared.lock().got.clone()
    }
}

async fn serve(mut stream: impl AsyncRead + AsyncWrite + Unpin, shared: Arc<Mutex<Shared>>) {
    let mut bytes = Vec::new();
    loop {
        let head_end = loop {
            if let Some(at) = bytes.windows(4).position(|four| four == b"\r\n\r\n") {
                break at + 4;
            }
            if stream.read_buf(&mut bytes).await.unwrap_or(0) == 0 {
                return;
            }
        };
        let head = String::from_utf8(bytes[..head_end].to_vec()).unwrap();
        let got = Got { head, body: Vec::new(), is_taken: false };
        let length: usize = got.header("content-length").unwrap().parse().unwrap();
        while bytes.len() < head_end + length {
            if stream.read_buf(&mut bytes).await.unwrap_or(0) == 0 {
                return;
            }
        }
        let body = bytes[head_end..head_end + length].to_vec();
        bytes.drain(..head_end + length);
        let reply = {
            let mut shared = shared.lock();
            let is_refused = shared
                .refused
                .is_some_and(|text| body.windows(text.len()).any(|part| part == text.as_bytes()));
            let reply = shared.replies.pop_front();
            let reply = reply.unwrap_or(Reply::Status(if is_refused { 500 } else { 204 }));
            shared.got.push(Got { body, is_taken: reply == Reply::Status(204), ..got });
            reply
        };
        let answer = match reply {
            Reply::Status(204) => "HTTP/1.1 204 No Content\r\n\r\n".to_owned(),
            Reply::Status(status) => format!("HTTP/1.1 {status} X\r\ncontent-length: 2\r\n\r\nno"),
            Reply::After(status, seconds) => {
                format!("HTTP/1.1 {status} X\r\nretry-after: {seconds}\r\ncontent-length: 0\r\n\r\n")
            }
            Reply::Lost => return,
            Reply::Silence => {
                std::future::pending::<()>().await;
                return;
            }
        };
        if stream.write_all(answer.as_bytes()).await.is_err() {
            return;
        }
    }
}
