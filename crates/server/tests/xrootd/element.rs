//! Storage element for tests: has the given files, and answers like a stock server.

use std::collections::HashMap;
use std::sync::Arc;

use exacat_wire::xrootd::numbers::{error, flag, open, request, status};
use exacat_wire::xrootd::{Decoder, Fields, Frame, Request, RequestHeader, response};
use parking_lot::Mutex;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

/// A file on the storage element.
#[derive(Clone, Debug, Default)]
pub(crate) struct There {
    pub size: u64,
    pub modified: u64,
    /// True if a client has it open for writing.
    pub open: bool,
    /// The reported checksum: `adler32 e222ea89`.
    pub checksum: Option<&'static str>,
}

/// The behaviour of the storage element.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Manner {
    /// Correct.
    #[default]
    Good,
    /// Claims in its answers a length of four gigabytes.
    Endless,
    /// Sends nonsense.
    Nonsense,
    /// Closes the connection.
    Gone,
    /// Computes a checksum while the client waits, and keeps it for no other.
    Later,
    /// Loses a checksum that it promised, until it is requested again; then it answers twice.
    Forgetful,
    /// Redirects requests for checksums to another server.
    ChecksumsElsewhere,
}

#[derive(Default)]
pub(crate) struct State {
    pub files: HashMap<String, There>,
    pub manner: Manner,
    /// Number of connections.
    pub visits: u64,
    /// URL fields that clients sent, request by request.
    pub shown: Vec<String>,
    /// Number of requests for checksums.
    pub checksums: u64,
    /// Contents of files that are read or were written whole.
    pub contents: HashMap<String, Vec<u8>>,
}

pub(crate) struct Element {
    pub port: u16,
    pub state: Arc<Mutex<State>>,
}

impl Element {
    pub(crate) async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let state = Arc::new(Mutex::new(State::default()));
        let shared = Arc::clone(&state);
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                shared.lock().visits += 1;
                tokio::spawn(serve(stream, Arc::clone(&shared)));
            }
        });
        Element { port, state }
    }

    pub(crate) fn put(&self, path: &str, there: There) {
        self.state.lock().files.insert(path.to_owned(), there);
    }

    /// Adds a file with content.
    pub(crate) fn hold(&self, path: &str, content: &[u8]) {
        self.put(path, There { size: content.len() as u64, modified: 5, ..There::default() });
        self.state.lock().contents.insert(path.to_owned(), content.to_vec());
    }

    pub(crate) fn behave(&self, manner: Manner) {
        self.state.lock().manner = manner;
    }
}

async fn serve(mut stream: TcpStream, state: Arc<Mutex<State>>) {
    let mut decoder = Decoder::new();
    decoder.known();
    let mut opened = String::new();
    loop {
        let mut out = Vec::new();
        while let Ok(Some(frame)) = decoder.frame() {
            match frame {
                Frame::Handshake => response::write_handshake(&mut out),
                Frame::Request(header, carried)
                    if matches!(header.request, request::READ | request::WRITE) =>
                {
                    content(&mut out, &header, &carried, &opened, &state);
                }
                Frame::Request(header, carried) => {
                    let request = Request::parse(&header, &carried).unwrap();
                    if let Request::Open { options, asked } = &request {
                        opened = asked.path.to_owned();
                        let mut state = state.lock();
                        if options & open::NEW != 0 && !state.files.contains_key(asked.path) {
                            state.files.insert(opened.clone(), There::default());
                            state.contents.insert(opened.clone(), Vec::new());
                        }
                    }
                    answer(&mut out, header.stream, request, &state);
                }
            }
        }
        let manner = state.lock().manner;
        match manner {
            Manner::Good | Manner::Later | Manner::Forgetful | Manner::ChecksumsElsewhere => {}
            Manner::Endless => out = [vec![0, 1, 0, 0], vec![0xff; 4], vec![b'x'; 1000]].concat(),
            Manner::Nonsense => out = b"HTTP/1.1 400 Bad Request\r\n\r\n".to_vec(),
            Manner::Gone => return,
        }
        if stream.write_all(&out).await.is_err() {
            return;
        }
        match stream.read_buf(decoder.buffer()).await {
            Ok(read) if read > 0 => {}
            _ => return,
        }
    }
}

/// Reads or writes a part of the open file.
fn content(out: &mut Vec<u8>, header: &RequestHeader, carried: &[u8], opened: &str, state: &Mutex<State>) {
    let mut state = state.lock();
    let at = u64::from_be_bytes(header.body[4..12].try_into().unwrap()) as usize;
    let content = state.contents.entry(opened.to_owned()).or_default();
    if header.request == request::WRITE {
        assert_eq!(at, content.len(), "a file is written in order");
        content.extend_from_slice(carried);
        let size = content.len() as u64;
        state.files.insert(opened.to_owned(), There { size, ..There::default() });
        return response::write_ok(out, header.stream, b"");
    }
    let bytes = u32::from_be_bytes(header.body[12..].try_into().unwrap()) as usize;
    let end = (at + bytes).min(content.len());
    let told = content.get(at..end).unwrap_or_default();
    // In two parts, as a server may.
    let (first, second) = told.split_at(told.len() / 2);
    response::write(out, header.stream, status::OKSOFAR, first);
    response::write_ok(out, header.stream, second);
}

fn answer(
    out: &mut Vec<u8>,
    stream: exacat_wire::xrootd::StreamId,
    request: Request<'_>,
    state: &Mutex<State>,
) {
    let mut state = state.lock();
    let asked = match &request {
        Request::Stat { asked: Some(asked), .. } | Request::Open { asked, .. } | Request::Checksum(asked) => {
            *asked
        }
        Request::Login { .. } => return response::write_login(out, stream, [0; 16], ""),
        _ => return response::write_ok(out, stream, b""),
    };
    let Fields(fields) = asked.fields;
    state.shown.push(fields.to_owned());
    let Some(there) = state.files.get(asked.path) else {
        return response::write_error(out, stream, error::NOT_FOUND, "no such file");
    };
    match request {
        Request::Stat { .. } => {
            let flags = flag::READABLE | flag::WRITABLE;
            response::write_text(out, stream, &format!("1 {} {flags} {}", there.size, there.modified));
        }
        Request::Open { .. } if there.open => {
            response::write_error(out, stream, error::FILE_LOCKED, "already opened by 1 writer");
        }
        Request::Open { .. } => response::write_ok(out, stream, &[7, 0, 0, 0]),
        _ if state.manner == Manner::ChecksumsElsewhere => {
            response::write_redirect_host(out, stream, "127.0.0.1", 1, "");
        }
        _ => match there.checksum {
            Some(checksum) if matches!(state.manner, Manner::Later | Manner::Forgetful) => {
                let header = |status: u16, bytes: usize| {
                    [&stream.0[..], &status.to_be_bytes(), &(bytes as u32).to_be_bytes()].concat()
                };
                let mut answer = Vec::new();
                response::write_text(&mut answer, stream, checksum);
                let later = [&5008u32.to_be_bytes()[..], &[0; 4], &answer].concat();
                out.extend(header(status::WAITRESP, 0));
                state.checksums += 1;
                if state.manner == Manner::Forgetful && state.checksums == 1 {
                    return;
                }
                // An unrelated message, before it.
                out.extend([header(status::ATTN, 4), 5002u32.to_be_bytes().to_vec()].concat());
                let later = [header(status::ATTN, later.len()), later].concat();
                let times = if state.manner == Manner::Forgetful { 2 } else { 1 };
                out.extend(later.repeat(times));
            }
            Some(checksum) => response::write_text(out, stream, checksum),
            None => response::write_error(out, stream, error::UNSUPPORTED, "no checksums here"),
        },
    }
}
