//! Client of the HTTP face, for tests: sends bytes and reads answers of any framing.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::Duration;

use serde_json::Value;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::world::World;

/// Longest wait for an answer.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// An answer.
#[derive(Debug)]
pub(crate) struct Answer {
    pub status: u16,
    pub headers: BTreeMap<String, String>,
    /// Values of all headers that set cookies.
    pub cookies: Vec<String>,
    pub body: Vec<u8>,
}

impl Answer {
    pub(crate) fn header(&self, name: &str) -> &str {
        self.headers.get(name).map_or("", String::as_str)
    }

    pub(crate) fn text(&self) -> &str {
        std::str::from_utf8(&self.body).unwrap()
    }

    /// Returns the body, one JSON document.
    pub(crate) fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_else(|error| panic!("{error}: {}", self.text()))
    }

    /// Returns the body, JSON lines.
    pub(crate) fn lines(&self) -> Vec<Value> {
        self.text().lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }

    /// Returns the kind of error of a problem document.
    pub(crate) fn kind(&self) -> String {
        assert_eq!(self.header("content-type"), "application/problem+json", "{self:?}");
        let problem = self.json();
        assert_eq!(problem["status"], self.status, "{problem}");
        assert_eq!(problem["type"], format!("urn:exacat:error:{}", problem["kind"].as_str().unwrap()));
        assert!(!problem["detail"].as_str().unwrap().is_empty());
        problem["kind"].as_str().unwrap().to_owned()
    }
}

/// A connection.
pub(crate) struct Web {
    pub stream: TcpStream,
    pub token: Option<String>,
    /// Bytes that were read beyond the last answer.
    pub rest: Vec<u8>,
}

impl Web {
    /// Connects without credentials.
    pub(crate) async fn anonymous(world: &World) -> Self {
        Self::at(world.server.addresses.http.unwrap()).await
    }

    pub(crate) async fn at(address: SocketAddr) -> Self {
        Web { stream: TcpStream::connect(address).await.unwrap(), token: None, rest: Vec::new() }
    }

    /// Connects as the administrator, with little space for answers that are not read.
    pub(crate) async fn lazy(world: &World) -> Self {
        let socket = tokio::net::TcpSocket::new_v4().unwrap();
        socket.set_recv_buffer_size(8 << 10).unwrap();
        let stream = socket.connect(world.server.addresses.http.unwrap()).await.unwrap();
        Web { stream, token: Some(world.token("admin", 3600).await.1), rest: Vec::new() }
    }

    /// Connects as the administrator.
    pub(crate) async fn admin(world: &World) -> Self {
        let token = world.token("admin", 3600).await.1;
        Web { token: Some(token), ..Self::anonymous(world).await }
    }

    /// Connects as a new user.
    pub(crate) async fn user(world: &World, name: &str) -> Self {
        let token = world.new_user(name).await;
        Web { token: Some(token), ..Self::anonymous(world).await }
    }

    /// Sends bytes.
    pub(crate) async fn send(&mut self, bytes: &[u8]) {
        self.stream.write_all(bytes).await.unwrap();
    }

    /// Sends the head of a request.
    pub(crate) async fn begin(&mut self, method: &str, target: &str, headers: &[(&str, &str)]) {
        let mut head = format!("{method} {target} HTTP/1.1\r\nHost: localhost\r\n");
        if let Some(token) = &self.token {
            head.push_str(&format!("Authorization: Bearer {token}\r\n"));
        }
        for (name, value) in headers {
            head.push_str(&format!("{name}: {value}\r\n"));
        }
        head.push_str("\r\n");
        self.send(head.as_bytes()).await;
    }

    /// Sends a request and returns the answer.
    pub(crate) async fn ask(
        &mut self,
        method: &str,
        target: &str,
        headers: &[(&str, &str)],
        body: &str,
    ) -> Answer {
        let length = body.len().to_string();
        let mut headers = headers.to_vec();
        if !body.is_empty() {
            headers.push(("Content-Length", &length));
        }
        self.begin(method, target, &headers).await;
        self.send(body.as_bytes()).await;
        self.answer(method == "HEAD").await
    }

    pub(crate) async fn get(&mut self, target: &str) -> Answer {
        self.ask("GET", target, &[], "").await
    }

    /// Sends a request with a JSON body.
    pub(crate) async fn json(&mut self, method: &str, target: &str, body: Value) -> Answer {
        self.ask(method, target, &[("Content-Type", "application/json")], &body.to_string()).await
    }

    async fn more(&mut self) -> bool {
        let mut part = vec![0; 64 << 10];
        let read =
            tokio::time::timeout(PATIENCE, self.stream.read(&mut part)).await.expect("an answer in time");
        let read = read.unwrap_or(0);
        self.rest.extend_from_slice(&part[..read]);
        read > 0
    }

    async fn until(&mut self, end: &[u8]) -> Vec<u8> {
        loop {
            if let Some(at) = self.rest.windows(end.len()).position(|window| window == end) {
                let taken = self.rest.drain(..at + end.len()).collect::<Vec<u8>>();
                return taken[..at].to_vec();
            }
            assert!(self.more().await, "the connection ended in {:?}", String::from_utf8_lossy(&self.rest));
        }
    }

    /// Reads bytes up to the next line end.
    pub(crate) async fn line(&mut self) -> String {
        String::from_utf8(self.until(b"\r\n").await).unwrap()
    }

    /// Reads one chunk of an answer in chunks; none at the end.
    pub(crate) async fn chunk(&mut self) -> Option<Vec<u8>> {
        let size = usize::from_str_radix(&self.line().await, 16).unwrap();
        while self.rest.len() < size + 2 {
            assert!(self.more().await, "the connection ended in a chunk");
        }
        let bytes: Vec<u8> = self.rest.drain(..size + 2).collect();
        (size > 0).then(|| bytes[..size].to_vec())
    }

    /// Reads the head of an answer.
    pub(crate) async fn head(&mut self) -> Answer {
        let head = String::from_utf8(self.until(b"\r\n\r\n").await).unwrap();
        let mut lines = head.split("\r\n");
        let status = lines.next().unwrap().split(' ').nth(1).unwrap().parse().unwrap();
        let headers: Vec<(String, String)> = lines
            .map(|line| {
                let (name, value) = line.split_once(':').unwrap();
                (name.to_ascii_lowercase(), value.trim().to_owned())
            })
            .collect();
        let cookies = headers.iter().filter(|(name, _)| name == "set-cookie").map(|(_, value)| value.clone());
        let cookies = cookies.collect();
        Answer { status, headers: headers.into_iter().collect(), cookies, body: Vec::new() }
    }

    /// Reads an answer.
    pub(crate) async fn answer(&mut self, head_only: bool) -> Answer {
        let mut answer = self.head().await;
        if head_only || matches!(answer.status, 204 | 304) {
            return answer;
        }
        if answer.header("transfer-encoding") == "chunked" {
            while let Some(chunk) = self.chunk().await {
                answer.body.extend(chunk);
            }
            return answer;
        }
        let length: usize = answer.header("content-length").parse().unwrap();
        while self.rest.len() < length {
            assert!(self.more().await, "the connection ended in a body");
        }
        answer.body = self.rest.drain(..length).collect();
        answer
    }

    /// True if the server closes the connection.
    pub(crate) async fn is_closed(&mut self) -> bool {
        while self.more().await {}
        true
    }
}
