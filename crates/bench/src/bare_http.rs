//! Bare HTTP server: answers each request with the same bytes, from the library that the server uses. The
//! cost of a request beyond this is the catalogue's.

use std::convert::Infallible;
use std::net::SocketAddr;

use bytes::Bytes;
use exacat_model::{Error, ErrorKind};
use http_body_util::Full;
use hyper::header::{CONTENT_TYPE, HeaderValue};
use hyper::service::service_fn;
use hyper::{Request, Response, body::Incoming};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::TcpListener;

/// Bytes of the head of an answer.
const HEAD_BYTES: usize =
    b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 999\r\ndate: Thu, 01 Jan 1970 00:00:00 GMT\r\n\r\n".len();

/// Listens at `address`, and answers with so many bytes, head and body, until it is killed.
pub async fn serve(address: SocketAddr, answer_bytes: usize) -> Result<(), Error> {
    let failed =
        |error: std::io::Error| Error::new(ErrorKind::Unavailable, format!("a bare HTTP server: {error}"));
    let body = Bytes::from(vec![b'x'; answer_bytes.saturating_sub(HEAD_BYTES)]);
    let listener = TcpListener::bind(address).await.map_err(failed)?;
    loop {
        let (stream, _) = listener.accept().await.map_err(failed)?;
        stream.set_nodelay(true).map_err(failed)?;
        let body = body.clone();
        let answer = service_fn(move |_: Request<Incoming>| {
            let mut response = Response::new(Full::new(body.clone()));
            response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
            async move { Ok::<_, Infallible>(response) }
        });
        let connection = hyper::server::conn::http1::Builder::new()
            .timer(TokioTimer::new())
            .serve_connection(TokioIo::new(stream), answer);
        // The client sees the end of a connection; this server ignores it.
        tokio::spawn(async move { connection.await.ok() });
    }
}
