//! Client of a service's HTTP, for the command line and for other services.

use bytes::{Buf, Bytes, BytesMut};
use exacat_http::{HttpClient, HttpClientSettings, OpenAnswer};
use exacat_model::{Error, ErrorKind, Result};
use exacat_wire::writer::limits::CHUNK_BYTES_MAX;
use exacat_wire::writer::{ByteRange, FileId};
use exacat_writer::PartKey;
use exacat_writer::sums::crc32c;
use http_body_util::BodyExt;
use hyper::body::Incoming;
use hyper::header::{CONTENT_LENGTH, LOCATION, RANGE};
use hyper::{Method, StatusCode};
use serde::de::DeserializeOwned;
use tokio::sync::mpsc;

use crate::catalogue::Readable;
use crate::limits::REMOTE_STALL_MAX;
use crate::shapes::{
    API, REDIRECTED, WriterCopy, WriterFile, WriterFiles, WriterStatus, WriterTable, file_id_of,
};

/// Client of one service. Each request has a connection of its own.
#[derive(Clone)]
pub struct Remote(HttpClient);

/// Content of a file as it comes.
pub struct RemoteContent {
    /// The file.
    pub file: FileId,
    /// Bytes of the answer.
    pub length: u64,
    /// Adler-32 of the whole file; none if it is still written.
    pub adler32: Option<u32>,
    body: Incoming,
    left: u64,
    _connection: Box<dyn Send + Sync>,
}

/// Chunks of a part as they come.
pub(crate) struct RemotePart {
    content: RemoteContent,
    buffer: BytesMut,
}

fn unavailable(what: impl Into<String>) -> Error {
    Error::new(ErrorKind::Unavailable, what)
}

impl Remote {
    /// Makes a client. Nothing is sent yet.
    pub fn new(settings: HttpClientSettings) -> Result<Remote> {
        HttpClient::new(settings).map(Remote)
    }

    /// Returns the state of the service.
    pub async fn status(&self) -> Result<WriterStatus> {
        self.json(Method::GET, "status").await
    }

    /// Returns the services that it knows.
    pub async fn table(&self) -> Result<WriterTable> {
        self.json(Method::GET, "table").await
    }

    /// Returns a page of files: of a stage, behind an id, at most so many.
    pub async fn files(
        &self,
        stage: Option<&str>,
        after: Option<FileId>,
        limit: Option<u64>,
    ) -> Result<WriterFiles> {
        let mut fields: Vec<String> = Vec::new();
        fields.extend(stage.map(|stage| format!("stage={}", HttpClient::escaped(stage))));
        fields.extend(after.map(|after| format!("after={after}")));
        fields.extend(limit.map(|limit| format!("limit={limit}")));
        self.json(Method::GET, &format!("files?{}", fields.join("&"))).await
    }

    /// Returns a file.
    pub async fn file(&self, file: FileId) -> Result<WriterFile> {
        self.json(Method::GET, &format!("files/{file}")).await
    }

    /// Lets the service take no more files.
    pub async fn drain(&self) -> Result<WriterStatus> {
        self.json(Method::POST, "drain").await
    }

    /// Lets the service take files again.
    pub async fn resume(&self) -> Result<WriterStatus> {
        self.json(Method::POST, "resume").await
    }

    /// Notes that a file was copied to another storage element, and that the catalogue knows it: its bytes
    /// here may go by the policy of the service.
    pub async fn staged(&self, file: FileId) -> Result<WriterFile> {
        self.json(Method::POST, &format!("files/{file}/staged")).await
    }

    /// Copies a certified file to a storage element. The answer comes within seconds: while its state is
    /// *running*, ask again.
    ///
    /// # Errors
    /// See the failure of the copy, which the next call makes again.
    pub async fn stage_out(&self, file: FileId, se: &str) -> Result<WriterCopy> {
        let path = format!("files/{file}/stage-out?se={}", HttpClient::escaped(se));
        self.json(Method::POST, &path).await
    }

    /// Removes the bytes of a file from the service.
    pub async fn remove(&self, file: FileId) -> Result<WriterFile> {
        self.json(Method::POST, &format!("files/{file}/remove")).await
    }

    /// Returns the content of a file from a place on; of a file that is still written, if `open`, its
    /// durable beginning. A service that does not have the file names one that does: that one is asked once.
    pub async fn content(&self, what: &Readable, from: u64, open: bool) -> Result<RemoteContent> {
        let path = match what {
            Readable::File(file) => format!("content/{file}?open={open}"),
            Readable::Name(lfn) => format!("content?lfn={}&open={open}", HttpClient::escaped(lfn.as_str())),
        };
        let range = (from > 0).then(|| format!("bytes={from}-"));
        let answer = self.request(Method::GET, &path, range.as_deref()).await?;
        if answer.response.status() != StatusCode::TEMPORARY_REDIRECT {
            return self.streamed(answer).await;
        }
        let location = answer.response.headers().get(LOCATION).and_then(|value| value.to_str().ok());
        let (remote, path) = self.redirected(location)?;
        remote.streamed(remote.request(Method::GET, &path, range.as_deref()).await?).await
    }

    /// Reads a redirect: the service, and the path there.
    fn redirected(&self, location: Option<&str>) -> Result<(Remote, String)> {
        let from = self.0.address();
        let strange = || unavailable(format!("{from} redirects, but not to a writer service"));
        let (address, path) = location.and_then(|location| location.split_once(API)).ok_or_else(strange)?;
        let other = self.0.beside(address).map_err(|error| {
            Error::new(error.kind, format!("{from} redirects to {address}: {}", error.message))
        })?;
        Ok((Remote(other), path.to_owned()))
    }

    /// Says whether the service itself answers for the content of a certified file.
    pub(crate) async fn has_content(&self, file: FileId) -> Result<bool> {
        let path = format!("content/{file}?{REDIRECTED}=true");
        let answer = self.request(Method::HEAD, &path, None).await?;
        match answer.response.status() {
            StatusCode::OK => Ok(true),
            // It has nothing of the file; or a part only; or does not know yet that the file is certified.
            StatusCode::NOT_FOUND | StatusCode::CONFLICT => Ok(false),
            _ => Err(self.0.problem(answer).await),
        }
    }

    /// Returns the chunks of a part that lie in a range.
    pub(crate) async fn part(&self, part: PartKey, range: ByteRange) -> Result<RemotePart> {
        let path = format!("parts/{}/{}?from={}&to={}", part.file, part.epoch, range.from, range.to);
        let content = self.streamed(self.request(Method::GET, &path, None).await?).await?;
        Ok(RemotePart { content, buffer: BytesMut::new() })
    }

    async fn streamed(&self, answer: OpenAnswer) -> Result<RemoteContent> {
        if !matches!(answer.response.status(), StatusCode::OK | StatusCode::PARTIAL_CONTENT) {
            return Err(self.0.problem(answer).await);
        }
        let headers = answer.response.headers();
        let header = |name: &str| headers.get(name).and_then(|value| value.to_str().ok());
        let strange = || unavailable("the answer is not that of a writer service");
        let length =
            header(CONTENT_LENGTH.as_str()).and_then(|text| text.parse().ok()).ok_or_else(strange)?;
        let file = header("exacat-file").map(file_id_of).ok_or_else(strange)??;
        let adler32 = header("digest").and_then(|text| text.strip_prefix("adler32="));
        let adler32 = adler32.and_then(|text| u32::from_str_radix(text, 16).ok());
        let (body, connection) = answer.into_body();
        Ok(RemoteContent { file, length, adler32, body, left: length, _connection: Box::new(connection) })
    }

    async fn json<T: DeserializeOwned>(&self, method: Method, path: &str) -> Result<T> {
        self.0.json(method, &format!("{API}{path}")).await
    }

    async fn request(&self, method: Method, path: &str, range: Option<&str>) -> Result<OpenAnswer> {
        let headers: Vec<_> = range.map(|range| (RANGE, range)).into_iter().collect();
        self.0.open(method, &format!("{API}{path}"), &headers).await
    }
}

impl RemoteContent {
    /// Returns the next bytes; none at the end. An answer that ends early is an error.
    pub async fn next(&mut self) -> Result<Option<Bytes>> {
        loop {
            let frame = tokio::time::timeout(REMOTE_STALL_MAX, self.body.frame()).await;
            let frame = frame.map_err(|_| unavailable("the service sends nothing more"))?;
            let broken = || {
                let what = "the service ended the answer early: a part is damaged or missing; its log has the reason";
                Error::new(ErrorKind::Corrupt, what)
            };
            match frame {
                None if self.left == 0 => return Ok(None),
                None | Some(Err(_)) => return Err(broken()),
                Some(Ok(frame)) => {
                    if let Ok(bytes) = frame.into_data()
                        && !bytes.is_empty()
                    {
                        self.left = self.left.checked_sub(bytes.len() as u64).ok_or_else(broken)?;
                        return Ok(Some(bytes));
                    }
                }
            }
        }
    }
}

impl RemoteContent {
    /// Passes the bytes on as they come.
    pub(crate) fn into_pieces(mut self) -> mpsc::Receiver<std::io::Result<Bytes>> {
        let (to, pieces) = mpsc::channel(1);
        tokio::spawn(async move {
            loop {
                let piece = match self.next().await {
                    Ok(None) => return,
                    Ok(Some(bytes)) => Ok(bytes),
                    Err(error) => Err(std::io::Error::other(error.to_string())),
                };
                let is_end = piece.is_err();
                if to.send(piece).await.is_err() || is_end {
                    return;
                }
            }
        });
        pieces
    }
}

impl RemotePart {
    /// Returns the next chunk and its place; none at the end. Its bytes are those of its checksum.
    pub(crate) async fn next(&mut self) -> Result<Option<(u64, Bytes)>> {
        const HEAD: usize = 16;
        let broken = |what: &str| Error::new(ErrorKind::Corrupt, format!("the other service sends {what}"));
        loop {
            if self.buffer.len() >= HEAD {
                let mut head = &self.buffer[..HEAD];
                let (offset, length, sum) =
                    (head.get_u64_le(), head.get_u32_le() as usize, head.get_u32_le());
                if length == 0 || length > CHUNK_BYTES_MAX {
                    return Err(broken("no chunks"));
                }
                if self.buffer.len() >= HEAD + length {
                    self.buffer.advance(HEAD);
                    let bytes = self.buffer.split_to(length).freeze();
                    if crc32c(&bytes) != sum {
                        return Err(broken("a damaged chunk"));
                    }
                    return Ok(Some((offset, bytes)));
                }
            }
            match self.content.next().await? {
                Some(bytes) => self.buffer.extend_from_slice(&bytes),
                None if self.buffer.is_empty() => return Ok(None),
                None => return Err(broken("a part of a chunk")),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    /// Property: a redirect is followed to a writer service only.
    #[test]
    fn redirect_leads_to_a_writer_service() {
        let (address, time) = ("http://a:1".to_owned(), Duration::from_secs(1));
        let settings = HttpClientSettings { address, token: None, tls: None, time };
        let remote = Remote::new(settings).unwrap();
        let location = "http://b:2/api/v1/writer/content/0?redirected=true";
        let (other, path) = remote.redirected(Some(location)).unwrap();
        assert_eq!((other.0.address(), path.as_str()), ("http://b:2", "content/0?redirected=true"));
        for strange in [None, Some(""), Some("http://b:2/elsewhere"), Some("/api/v1/writer/content/0")] {
            assert!(remote.redirected(strange).is_err(), "{strange:?}");
        }
    }
}
