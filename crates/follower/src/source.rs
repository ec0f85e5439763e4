//! A source, as a follower asks it.

use bytes::Bytes;
use exacat_http::{HttpClient, HttpConnection};
use exacat_model::{Error, ErrorKind, Result, Revision};
use http_body_util::BodyExt;
use hyper::body::Incoming;
use hyper::{Method, Response};
use serde::de::DeserializeOwned;
use std::time::Duration;

use crate::limits::{PIECE_BYTES_MAX, STALL_TIME};
use crate::protocol::{
    AGE, COPIES, CopyInfo, DIGEST, DURABLE, IDENTITY, LogQuery, SOURCE, SUPERSEDED, SourceInfo, Superseded,
    SupersededAnswer, UP_TO,
};

/// A source of a follower.
#[derive(Clone)]
pub struct Source {
    client: HttpClient,
}

/// A piece of the source's log.
pub(crate) struct PieceHeard {
    pub frames: Vec<u8>,
    pub up_to: Revision,
    pub durable: Revision,
    pub age: Duration,
    /// Digest of the source's state after `up_to`, if it had no later change.
    pub digest: Option<u128>,
    /// Hash of the identity of the source.
    pub identity: String,
}

fn broken(what: impl std::fmt::Display) -> Error {
    Error::new(ErrorKind::Unavailable, format!("the answer of the source breaks off: {what}"))
}

/// Returns the next bytes of a body; none at its end.
pub(crate) async fn next_bytes(body: &mut Incoming) -> Result<Option<Bytes>> {
    loop {
        let frame = tokio::time::timeout(STALL_TIME, body.frame()).await;
        let frame = frame.map_err(|_| broken("nothing comes any more"))?;
        match frame.transpose().map_err(broken)? {
            None => return Ok(None),
            Some(frame) => {
                if let Ok(bytes) = frame.into_data() {
                    return Ok(Some(bytes));
                }
            }
        }
    }
}

fn header<'a>(response: &'a Response<Incoming>, name: &str) -> Result<&'a str> {
    let value = response.headers().get(name).and_then(|value| value.to_str().ok());
    value.ok_or_else(|| broken(format!("it has no header {name}")))
}

fn number(response: &Response<Incoming>, name: &str) -> Result<u64> {
    header(response, name)?.parse().map_err(|_| broken(format!("its header {name} is no number")))
}

impl Source {
    /// Makes a source from a client of its HTTP.
    pub fn new(client: HttpClient) -> Self {
        Source { client }
    }

    /// Returns its address.
    pub fn address(&self) -> &str {
        self.client.address()
    }

    /// Returns its description.
    pub async fn describe(&self) -> Result<SourceInfo> {
        self.json(Method::GET, SOURCE).await
    }

    /// Lets it fix its files.
    pub(crate) async fn copy(&self) -> Result<CopyInfo> {
        self.json(Method::POST, COPIES).await
    }

    /// Lets it drop the files of a copy.
    pub(crate) async fn drop_copy(&self, copy: u64) -> Result<()> {
        self.client.bytes(Method::DELETE, &format!("{COPIES}/{copy}")).await.map(|_| ())
    }

    async fn json<T: DeserializeOwned>(&self, method: Method, target: &str) -> Result<T> {
        self.client.json(method, target).await
    }

    /// Tells it that a follower of it was promoted.
    pub async fn tell(&self, told: &Superseded) -> Result<SupersededAnswer> {
        self.client.send_json(Method::POST, SUPERSEDED, told).await
    }

    /// Opens a connection.
    pub(crate) async fn connect(&self) -> Result<HttpConnection> {
        self.client.connect().await
    }
}

/// Asks for the log.
pub(crate) async fn piece(connection: &mut HttpConnection, query: LogQuery) -> Result<PieceHeard> {
    let response = connection.send(Method::GET, &query.target()).await?;
    let mut heard = PieceHeard {
        frames: Vec::new(),
        up_to: Revision(number(&response, UP_TO)?),
        durable: Revision(number(&response, DURABLE)?),
        age: Duration::from_millis(number(&response, AGE)?),
        digest: match response.headers().contains_key(DIGEST) {
            false => None,
            true => {
                let digest = u128::from_str_radix(header(&response, DIGEST)?, 16);
                Some(digest.map_err(|_| broken(format!("its header {DIGEST} is no digest")))?)
            }
        },
        identity: header(&response, IDENTITY)?.to_owned(),
    };
    let mut body = response.into_body();
    while let Some(bytes) = next_bytes(&mut body).await? {
        if heard.frames.len() + bytes.len() > PIECE_BYTES_MAX {
            return Err(Error::limit(
                "the bytes of a piece of the log",
                PIECE_BYTES_MAX + 1,
                PIECE_BYTES_MAX,
            ));
        }
        heard.frames.extend_from_slice(&bytes);
    }
    Ok(heard)
}
