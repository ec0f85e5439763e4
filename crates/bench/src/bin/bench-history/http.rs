//! A connection to a server that takes InfluxDB's line protocol over HTTP.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::time::Duration;

use crate::Client;
use crate::reads::{Read, Reader};
use crate::rows::Rows;

/// Longest wait for an answer.
const ANSWER_TIME: Duration = Duration::from_secs(120);

/// A connection that sends a request and waits for its answer.
pub(crate) struct Http {
    stream: TcpStream,
    host: String,
    reader: Reader,
    group: String,
    authorization: String,
    answer: Vec<u8>,
}

impl Http {
    pub(crate) fn open(url: &str, reader: Reader, group: String) -> Self {
        let host = url.trim_start_matches("http://").trim_end_matches('/').to_owned();
        let stream = TcpStream::connect(&host).unwrap_or_else(|error| panic!("{host}: {error}"));
        stream.set_nodelay(true).unwrap();
        stream.set_read_timeout(Some(ANSWER_TIME)).unwrap();
        let authorization = std::env::var("EXACAT_TOKEN")
            .map_or_else(|_| String::new(), |token| format!("Authorization: Bearer {token}\r\n"));
        Http { stream, host, reader, group, authorization, answer: vec![0; 4096] }
    }

    /// Creates the group.
    pub(crate) fn create(&mut self) {
        let path = format!("/query?q=CREATE+DATABASE+%22{}%22", self.group);
        self.ask("POST", &path, b"");
    }

    /// Sends a request. Returns the status and the body of its answer.
    fn ask(&mut self, method: &str, path: &str, body: &[u8]) -> (u16, Vec<u8>) {
        let head = format!(
            "{method} {path} HTTP/1.1\r\nHost: {}\r\nContent-Type: text/plain\r\nContent-Length: {}\r\n{}\r\n",
            self.host,
            body.len(),
            self.authorization
        );
        self.stream.write_all(head.as_bytes()).unwrap();
        self.stream.write_all(body).unwrap();
        let mut have = 0;
        let head = loop {
            have += self.more(have);
            if let Some(end) = self.answer[..have].windows(4).position(|four| four == b"\r\n\r\n") {
                break end + 4;
            }
        };
        let text = String::from_utf8_lossy(&self.answer[..head]).to_ascii_lowercase();
        let status = text.split(' ').nth(1).and_then(|word| word.parse().ok()).unwrap_or(0);
        let field = |name: &str| Some(text.split_once(name)?.1.split("\r\n").next()?.trim().to_owned());
        let length = field("content-length:").map(|length| length.parse::<usize>().unwrap());
        let is_chunked = field("transfer-encoding:").is_some_and(|coding| coding == "chunked");
        loop {
            let body = &self.answer[head..have];
            let is_whole = match length {
                Some(length) => body.len() >= length,
                None if is_chunked => body.ends_with(b"0\r\n\r\n"),
                None => true,
            };
            if is_whole {
                let body = body.to_vec();
                assert!(status < 300 || status == 503, "{text}{}", String::from_utf8_lossy(&body));
                return (status, body);
            }
            have += self.more(have);
        }
    }

    fn more(&mut self, have: usize) -> usize {
        if self.answer.len() - have < 4096 {
            self.answer.resize(self.answer.len() * 2, 0);
        }
        let read = self.stream.read(&mut self.answer[have..]).unwrap();
        assert!(read > 0, "the server closed the connection");
        read
    }
}

impl Client for Http {
    fn put(&self, rows: &Rows, batch: &[(u64, u64)], out: &mut Vec<u8>) {
        for (element, step) in batch {
            rows.put_line(out, *element, *step);
        }
    }

    fn send(&mut self, body: &[u8]) -> bool {
        let path = format!("/write?db={}&precision=ms", self.group);
        self.ask("POST", &path, body).0 != 503
    }

    fn settle(&mut self) {
        if self.reader == Reader::Victoria {
            self.ask("GET", "/internal/force_flush", b"");
        }
    }

    fn read(&mut self, read: &Read) -> u64 {
        let path = self.reader.path(&self.group, read);
        let (status, body) = self.ask("GET", &path, b"");
        assert_eq!(status, 200, "{}", String::from_utf8_lossy(&body));
        self.reader.rows(&body)
    }
}
