//! Exporter: sends spans to a collector over HTTP, in the JSON of OTLP. A collector that is down, slow or
//! full costs spans and nothing else.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use bytes::Bytes;
use exacat_model::{Error, ErrorKind, Result};
use http_body_util::{BodyExt, Full, Limited};
use hyper::header::{CONTENT_TYPE, HOST};
use hyper::{Request, Uri};
use hyper_util::rt::TokioIo;
use rustls::pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::sync::{mpsc, watch};
use tokio_rustls::TlsConnector;

use super::span::{Span, document};
use crate::instruments::Instruments;
use crate::phase::Phase;

/// Most spans of one request.
const SPANS_TOGETHER_MAX: usize = 512;
/// Interval of requests to the collector, while there are spans.
const INTERVAL: Duration = Duration::from_secs(1);
/// Longest time of one request.
const EXPORT_TIME: Duration = Duration::from_secs(10);
/// Longest time of the last request, while the server stops.
const LAST_TIME: Duration = Duration::from_secs(1);
/// Most bytes of an answer that are read.
const ANSWER_BYTES_MAX: usize = 64 << 10;

/// Sends spans to a collector.
pub(super) struct Exporter {
    uri: Uri,
    /// None for plain HTTP.
    tls: Option<TlsConnector>,
    instruments: Arc<Instruments>,
}

trait Stream: AsyncRead + AsyncWrite + Unpin + Send {}
impl<T: AsyncRead + AsyncWrite + Unpin + Send> Stream for T {}

fn failed(message: impl std::fmt::Display) -> Error {
    Error::new(ErrorKind::Unavailable, message.to_string())
}

impl Exporter {
    /// Checks the collector's URL.
    pub(super) fn new(url: &str, instruments: Arc<Instruments>) -> Result<Self> {
        let bad = || {
            Error::invalid(
                "the URL of the collector is http://HOST[:PORT]/v1/traces or https://…, without a user",
            )
        };
        let uri: Uri = url.parse().map_err(|_| bad())?;
        let authority =
            uri.authority().filter(|authority| !authority.as_str().contains('@')).ok_or_else(bad)?;
        let tls = match uri.scheme_str() {
            Some("http") => None,
            Some("https") => Some(crate::tls::connector(None)?),
            _ => return Err(bad()),
        };
        if authority.host().is_empty() {
            return Err(bad());
        }
        Ok(Exporter { uri, tls, instruments })
    }

    /// Exports until the server has ended, and once more then.
    pub(super) async fn run(self, mut waiting: mpsc::Receiver<Span>, mut phase: watch::Receiver<Phase>) {
        let mut is_failing = false;
        loop {
            let ended = tokio::select! {
                _ = phase.wait_for(|now| *now >= Phase::Ended) => true,
                () = tokio::time::sleep(INTERVAL) => false,
            };
            let time = if ended { LAST_TIME } else { EXPORT_TIME };
            while !waiting.is_empty() {
                let mut spans = Vec::new();
                waiting.recv_many(&mut spans, SPANS_TOGETHER_MAX).await;
                let number = spans.len();
                let sent = match tokio::time::timeout(time, self.post(document(spans))).await {
                    Ok(sent) => sent,
                    Err(_) => Err(failed("no answer in time")),
                };
                if let Err(error) = &sent {
                    let lost = &self.instruments.counts.trace_spans_lost;
                    lost.fetch_add(number as u64, Ordering::Relaxed);
                    if !is_failing {
                        tracing::warn!(%error, spans = number, "the collector of traces takes no spans: they are lost");
                    }
                }
                if is_failing && sent.is_ok() {
                    tracing::info!("the collector of traces takes spans again");
                }
                is_failing = sent.is_err();
                if is_failing {
                    break;
                }
            }
            if ended {
                return;
            }
        }
    }

    async fn post(&self, body: String) -> Result<()> {
        let authority = self.uri.authority().ok_or_else(|| failed("no host"))?;
        let host = authority.host().trim_start_matches('[').trim_end_matches(']').to_owned();
        let port = authority.port_u16().unwrap_or(if self.tls.is_some() { 443 } else { 80 });
        let stream = TcpStream::connect((host.as_str(), port)).await.map_err(failed)?;
        let stream: Box<dyn Stream> = match &self.tls {
            None => Box::new(stream),
            Some(tls) => {
                let name = ServerName::try_from(host).map_err(failed)?;
                Box::new(tls.connect(name, stream).await.map_err(failed)?)
            }
        };
        let (mut sender, connection) =
            hyper::client::conn::http1::handshake(TokioIo::new(stream)).await.map_err(failed)?;
        let path = self.uri.path_and_query().map_or("/", |path| path.as_str());
        let request = Request::post(path)
            .header(HOST, authority.as_str())
            .header(CONTENT_TYPE, "application/json")
            .body(Full::<Bytes>::from(body))
            .map_err(failed)?;
        let asking = async {
            let response = sender.send_request(request).await.map_err(failed)?;
            if !response.status().is_success() {
                return Err(failed(format!("status {}", response.status().as_u16())));
            }
            Limited::new(response.into_body(), ANSWER_BYTES_MAX).collect().await.map_err(failed)?;
            Ok(())
        };
        tokio::pin!(asking, connection);
        tokio::select! {
            sent = &mut asking => sent,
            ended = &mut connection => {
                ended.map_err(failed)?;
                asking.await
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn url_of_a_collector_is_checked() {
        let new = |url| Exporter::new(url, Arc::new(Instruments::new())).map(|_| ());
        new("http://collector:4318/v1/traces").unwrap();
        for bad in
            ["", "collector:4318", "ftp://collector/", "http://user:word@collector/v1/traces", "/v1/traces"]
        {
            let error = new(bad).unwrap_err();
            assert!(!error.message.contains("word"), "{bad}: {error}");
        }
    }
}
