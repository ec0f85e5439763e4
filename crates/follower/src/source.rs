//! A source, as a follower asks it.

use bytes::Bytes;
use exacat_http::{HttpClient, HttpConnection};
use exacat_model::codec::{Decode, Encode};
use exacat_model::{Error, ErrorKind, Result, Revision};
use http_body_util::BodyExt;
use hyper::body::Incoming;
use hyper::{Method, Response};
use serde::de::DeserializeOwned;
use std::time::Duration;

use crate::limits::{PIECE_BYTES_MAX, ROWS_BYTES_MAX, STALL_TIME};
use crate::protocol::{
    AGE, COPIES, ChangesQuery, CopyInfo, DIGEST, DURABLE, IDENTITY, LogQuery, ROWS, SOURCE, SUPERSEDED,
    SourceInfo, Superseded, SupersededAnswer, UP_TO, identity_number,
};
use crate::rows::{ChangesHeard, RowsAnswer, RowsQuery};

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

/// Returns the bytes of a body, with a limit.
async fn whole(mut body: Incoming, (what, most): (&'static str, usize)) -> Result<Vec<u8>> {
    let mut bytes = Vec::new();
    while let Some(part) = next_bytes(&mut body).await? {
        if bytes.len() + part.len() > most {
            return Err(Error::limit(what, most + 1, most));
        }
        bytes.extend_from_slice(&part);
    }
    Ok(bytes)
}

fn header<'a, B>(response: &'a Response<B>, name: &str) -> Result<&'a str> {
    let value = response.headers().get(name).and_then(|value| value.to_str().ok());
    value.ok_or_else(|| broken(format!("it has no header {name}")))
}

fn number<B>(response: &Response<B>, name: &str) -> Result<u64> {
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

/// A source, as a filtered follower asks it.
pub trait FilteredSource: Send {
    /// Returns the last durable change, and the hash of the source's identity.
    fn position(&mut self) -> impl Future<Output = Result<(Revision, u64)>> + Send;

    /// Returns changes after a position; none if there was none in time.
    fn changes(
        &mut self,
        after: Revision,
        wait: Duration,
    ) -> impl Future<Output = Result<ChangesHeard>> + Send;

    /// Returns rows of the present.
    fn rows(&mut self, query: &RowsQuery) -> impl Future<Output = Result<RowsAnswer>> + Send;
}

/// A source over HTTP.
pub struct HttpSource {
    source: Source,
    follower: [u8; 16],
    connection: Option<HttpConnection>,
}

impl HttpSource {
    pub(crate) fn new(source: Source, follower: [u8; 16]) -> Self {
        HttpSource { source, follower, connection: None }
    }

    /// Sends a request over a connection that stays open after an answer.
    async fn ask<T>(
        &mut self,
        (method, target, body): (Method, &str, Option<Bytes>),
        read: impl FnOnce(Response<()>, &[u8]) -> Result<T>,
    ) -> Result<T> {
        let mut connection = match self.connection.take() {
            Some(connection) => connection,
            None => self.source.connect().await?,
        };
        let (head, body) = connection.send_with(method, target, body).await?.into_parts();
        let bytes = whole(body, ("the bytes of rows", ROWS_BYTES_MAX)).await?;
        let answer = read(Response::from_parts(head, ()), &bytes)?;
        self.connection = Some(connection);
        Ok(answer)
    }
}

fn decoded<T: Decode>(bytes: &[u8]) -> Result<T> {
    T::from_bytes(bytes).map_err(broken)
}

impl FilteredSource for HttpSource {
    async fn position(&mut self) -> Result<(Revision, u64)> {
        let info = self.source.describe().await?;
        Ok((Revision(info.revision), identity_number(&info.identity)))
    }

    async fn changes(&mut self, after: Revision, wait: Duration) -> Result<ChangesHeard> {
        let wait_ms = u64::try_from(wait.as_millis()).unwrap_or(u64::MAX);
        let target = ChangesQuery { after, follower: self.follower, wait_ms }.target();
        self.ask((Method::GET, &target, None), |head, bytes| {
            let source = u64::from_str_radix(header(&head, IDENTITY)?, 16);
            Ok(ChangesHeard {
                changes: decoded(bytes)?,
                up_to: Revision(number(&head, UP_TO)?),
                durable: Revision(number(&head, DURABLE)?),
                age: Duration::from_millis(number(&head, AGE)?),
                source: source.map_err(|_| broken(format!("its header {IDENTITY} is no hash")))?,
            })
        })
        .await
    }

    async fn rows(&mut self, query: &RowsQuery) -> Result<RowsAnswer> {
        let body = Bytes::from(query.to_bytes());
        self.ask((Method::POST, ROWS, Some(body)), |_, bytes| decoded(bytes)).await
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
    heard.frames = whole(response.into_body(), ("the bytes of a piece of the log", PIECE_BYTES_MAX)).await?;
    Ok(heard)
}
