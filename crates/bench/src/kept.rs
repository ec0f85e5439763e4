//! Connection to a server's HTTP that is kept, with one request at a time: generators of load share the
//! machine with the server, and spend little on their side.

use std::io::{Error, ErrorKind, Read as _, Result, Write as _};
use std::net::TcpStream;
use std::time::Duration;

/// Longest wait for an answer.
const ANSWER_TIME: Duration = Duration::from_secs(120);
/// Room for one receive, in bytes.
const RECEIVE_BYTES: usize = 64 << 10;
/// Bytes of an answer that a generator takes.
const ANSWER_BYTES_MAX: usize = 256 << 20;

/// See the module.
pub struct KeptConnection {
    stream: TcpStream,
    /// Host and token, as each request has them.
    headers: String,
    answer: Vec<u8>,
}

/// Request to be sent.
#[derive(Clone, Copy, Debug)]
pub struct KeptRequest<'r> {
    /// `GET` or `POST`.
    pub method: &'r str,
    /// Path, and what is behind its `?`.
    pub path: &'r str,
    /// Type of the body.
    pub content_type: &'r str,
    /// Body.
    pub body: &'r [u8],
}

fn wrong(what: String) -> Error {
    Error::new(ErrorKind::InvalidData, what)
}

impl KeptConnection {
    /// Connects to `http://HOST:PORT`. `token` is shown with each request.
    ///
    /// # Errors
    /// The server does not accept the connection.
    pub fn open(url: &str, token: Option<&str>) -> Result<Self> {
        let host = url.trim_start_matches("http://").trim_end_matches('/');
        let stream = TcpStream::connect(host)?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(ANSWER_TIME))?;
        let token = token.map_or_else(String::new, |token| format!("Authorization: Bearer {token}\r\n"));
        let headers = format!("Host: {host}\r\n{token}\r\n");
        Ok(KeptConnection { stream, headers, answer: vec![0; 2 * RECEIVE_BYTES] })
    }

    /// Sends a request. Returns the status and the body of its answer.
    ///
    /// # Errors
    /// The connection ended, or the answer is none of HTTP/1.1.
    pub fn ask(&mut self, request: KeptRequest<'_>) -> Result<(u16, &[u8])> {
        let KeptRequest { method, path, content_type, body } = request;
        let head = format!(
            "{method} {path} HTTP/1.1\r\nContent-Type: {content_type}\r\nContent-Length: {}\r\n{}",
            body.len(),
            self.headers
        );
        self.stream.write_all(&[head.as_bytes(), body].concat())?;
        let mut have = 0;
        let head = loop {
            have += self.more(have)?;
            if let Some(end) = self.answer[..have].windows(4).position(|four| four == b"\r\n\r\n") {
                break end + 4;
            }
        };
        let text = String::from_utf8_lossy(&self.answer[..head]).to_ascii_lowercase();
        let status = text.split(' ').nth(1).and_then(|word| word.parse().ok());
        let status = status.ok_or_else(|| wrong(format!("no status in {text:?}")))?;
        let field = |name: &str| Some(text.split_once(name)?.1.split("\r\n").next()?.trim().to_owned());
        let length = field("\r\ncontent-length:").map(|length| length.parse::<usize>()).transpose();
        let length = length.map_err(|error| wrong(format!("content-length: {error}")))?;
        let is_chunked = field("\r\ntransfer-encoding:").is_some_and(|coding| coding == "chunked");
        loop {
            let is_whole = match length {
                Some(length) => have - head >= length,
                None if is_chunked => self.answer[head..have].ends_with(b"0\r\n\r\n"),
                None => true,
            };
            if is_whole {
                return Ok((status, &self.answer[head..have]));
            }
            have += self.more(have)?;
        }
    }

    /// Receives some bytes behind those of the answer so far.
    fn more(&mut self, have: usize) -> Result<usize> {
        if have >= ANSWER_BYTES_MAX {
            return Err(wrong(format!("the answer has more than {ANSWER_BYTES_MAX} bytes")));
        }
        if self.answer.len() - have < RECEIVE_BYTES {
            self.answer.resize(self.answer.len() * 2, 0);
        }
        match self.stream.read(&mut self.answer[have..])? {
            0 => Err(Error::new(ErrorKind::UnexpectedEof, "the server closed the connection")),
            read => Ok(read),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Answers requests on one connection, each with the next text.
    fn server(answers: &'static [&'static str]) -> String {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            for answer in answers {
                let mut request = [0; 4096];
                let count = stream.read(&mut request).unwrap();
                assert!(request[..count].ends_with(b"body"), "{:?}", String::from_utf8_lossy(&request));
                stream.write_all(answer.as_bytes()).unwrap();
            }
        });
        url
    }

    /// Property: answers of one connection are told apart, by their length or by their last chunk.
    #[test]
    fn answers_of_a_kept_connection_are_told_apart() {
        let url = server(&[
            "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nfirst",
            "HTTP/1.1 503 Busy\r\ncontent-length: 0\r\n\r\n",
            "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n",
        ]);
        let mut connection = KeptConnection::open(&url, Some("t")).unwrap();
        let request = KeptRequest { method: "POST", path: "/", content_type: "text/plain", body: b"body" };
        assert_eq!(connection.ask(request).unwrap(), (200, &b"first"[..]));
        assert_eq!(connection.ask(request).unwrap(), (503, &b""[..]));
        assert_eq!(connection.ask(request).unwrap(), (200, &b"3\r\nabc\r\n0\r\n\r\n"[..]));
        assert!(connection.ask(request).is_err(), "the server has gone");
    }

    #[test]
    fn answers_that_are_none_are_errors() {
        for answer in [&["nonsense\r\n\r\n"], &["HTTP/1.1 200 OK\r\nContent-Length: x\r\n\r\n"]] {
            let mut connection = KeptConnection::open(&server(answer), None).unwrap();
            let request = KeptRequest { method: "POST", path: "/", content_type: "", body: b"body" };
            assert!(connection.ask(request).is_err(), "{answer:?}");
        }
    }
}
