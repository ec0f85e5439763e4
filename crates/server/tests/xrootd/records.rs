//! TLS records as the client's socket delivers them. XrdCl reads one message per event of its
//! socket. No event reports a second message in a record that it has already decrypted.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll};

use exacat_wire::xrootd::numbers::{ability, request, role, status};
use exacat_wire::xrootd::{StreamId, write_request};
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt, ReadBuf};

use crate::client::Stream;
use crate::root::{Root, world};

/// Bytes before the content of a TLS record.
const RECORD_HEADER_BYTES: usize = 5;
/// Requests of each kind that are sent ahead.
const AHEAD: u16 = 32;

/// A connection that counts the TLS records it receives.
struct Tap {
    inner: Box<dyn Stream>,
    records: Arc<AtomicUsize>,
    header: Vec<u8>,
    content: usize,
}

impl Tap {
    fn count(&mut self, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            if self.content > 0 {
                let taken = self.content.min(bytes.len());
                self.content -= taken;
                bytes = &bytes[taken..];
                continue;
            }
            self.header.push(bytes[0]);
            bytes = &bytes[1..];
            if self.header.len() == RECORD_HEADER_BYTES {
                self.content = usize::from(u16::from_be_bytes([self.header[3], self.header[4]]));
                self.header.clear();
                self.records.fetch_add(1, Ordering::SeqCst);
            }
        }
    }
}

impl AsyncRead for Tap {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let tap = self.get_mut();
        let before = buffer.filled().len();
        let done = Pin::new(&mut tap.inner).poll_read(context, buffer);
        let received = buffer.filled()[before..].to_vec();
        tap.count(&received);
        done
    }
}

impl AsyncWrite for Tap {
    fn poll_write(self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.get_mut().inner).poll_write(context, bytes)
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().inner).poll_flush(context)
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().inner).poll_shutdown(context)
    }
}

/// Connects as the administrator over TLS; also returns the count of records received so far.
async fn tapped(world: &crate::world::World) -> (Root, Arc<AtomicUsize>) {
    let (_, token) = world.token("admin", 3600).await;
    let mut root = Root::raw(world).await;
    let roles = root.greet(ability::TLS | ability::WANT_TLS).await;
    assert_ne!(roles & role::GO_TO_TLS, 0);
    let records = Arc::new(AtomicUsize::new(0));
    let inner = std::mem::replace(&mut root.stream, Box::new(tokio::io::empty()));
    root.stream = Box::new(Tap { inner, records: Arc::clone(&records), header: Vec::new(), content: 0 });
    let mut root = root.secure(world).await;
    assert_eq!(root.login().await.status, status::OK);
    assert_eq!(root.show(b"ztn\0", &Root::ztn(&token)).await.status, status::OK);
    (root, records)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pipelined_requests_over_tls_are_answered_in_one_record_each() {
    let world = world().await;
    world.files("/d", 3).await;
    let (mut root, records) = tapped(&world).await;
    let mut ahead = Vec::new();
    for number in 0..AHEAD {
        write_request(&mut ahead, StreamId(number.to_be_bytes()), request::PING, [0; 16], b"");
        let stream = StreamId((AHEAD + number).to_be_bytes());
        write_request(&mut ahead, stream, request::STAT, [0; 16], b"/d/f000001");
    }
    let before = records.load(Ordering::SeqCst);
    root.stream.write_all(&ahead).await.unwrap();
    root.stream.flush().await.unwrap();
    let mut answered: Vec<u16> = Vec::new();
    for _ in 0..2 * AHEAD {
        let answer = root.answer().await.unwrap();
        assert_eq!(answer.status, status::OK, "{answer:?}");
        answered.push(u16::from_be_bytes(answer.stream.0));
    }
    answered.sort_unstable();
    assert_eq!(answered, (0..2 * AHEAD).collect::<Vec<_>>());
    assert_eq!(records.load(Ordering::SeqCst) - before, usize::from(2 * AHEAD), "one record per answer");
}
