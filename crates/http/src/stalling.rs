//! Stream that fails when its peer stops reading: HTTP itself has no limit for that.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Instant, Sleep};

/// A stream whose writes must progress.
pub struct Stalling<S> {
    stream: S,
    limit: Duration,
    /// Bytes that the peer must read within the limit, or all that wait.
    progress: usize,
    written: usize,
    /// Runs while bytes wait.
    timer: Option<Pin<Box<Sleep>>>,
}

impl<S> Stalling<S> {
    /// Wraps a stream: its peer reads `progress` bytes, or all that wait, within the limit.
    pub fn new(stream: S, limit: Duration, progress: usize) -> Self {
        Stalling { stream, limit, progress, written: 0, timer: None }
    }

    /// Notes the result of a write; fails if the peer has stalled.
    fn judged<T>(
        &mut self,
        context: &mut Context<'_>,
        polled: Poll<io::Result<T>>,
        bytes: impl FnOnce(&T) -> Option<usize>,
    ) -> Poll<io::Result<T>> {
        match polled {
            Poll::Ready(Ok(done)) => {
                match bytes(&done) {
                    Some(bytes) => {
                        self.written += bytes;
                        if self.written >= self.progress {
                            self.timer = None;
                        }
                    }
                    None => self.timer = None,
                }
                Poll::Ready(Ok(done))
            }
            Poll::Ready(Err(error)) => Poll::Ready(Err(error)),
            Poll::Pending => {
                let limit = self.limit;
                if self.timer.is_none() {
                    self.written = 0;
                }
                let timer = self
                    .timer
                    .get_or_insert_with(|| Box::pin(tokio::time::sleep_until(Instant::now() + limit)));
                match timer.as_mut().poll(context) {
                    Poll::Ready(()) => Poll::Ready(Err(io::ErrorKind::TimedOut.into())),
                    Poll::Pending => Poll::Pending,
                }
            }
        }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Stalling<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(context, buffer)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Stalling<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let polled = Pin::new(&mut self.stream).poll_write(context, bytes);
        self.judged(context, polled, |bytes| Some(*bytes))
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffers: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let polled = Pin::new(&mut self.stream).poll_write_vectored(context, buffers);
        self.judged(context, polled, |bytes| Some(*bytes))
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let polled = Pin::new(&mut self.stream).poll_flush(context);
        self.judged(context, polled, |()| None)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let polled = Pin::new(&mut self.stream).poll_shutdown(context);
        self.judged(context, polled, |()| None)
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn peer_that_does_not_read_fails_the_write_after_the_limit() {
        let (ours, mut theirs) = tokio::io::duplex(10);
        let mut stream = Stalling::new(ours, Duration::from_secs(60), 5);
        stream.write_all(&[0; 10]).await.unwrap();
        let began = Instant::now();
        let error = stream.write_all(&[0; 10]).await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
        assert_eq!(began.elapsed().as_secs(), 60);
        theirs.read_exact(&mut [0; 10]).await.unwrap();
    }

    #[tokio::test(start_paused = true)]
    async fn peer_that_reads_enough_in_time_is_waited_for() {
        let (ours, mut theirs) = tokio::io::duplex(10);
        let mut stream = Stalling::new(ours, Duration::from_secs(60), 5);
        let reading = tokio::spawn(async move {
            for _ in 0..20 {
                tokio::time::sleep(Duration::from_secs(50)).await;
                theirs.read_exact(&mut [0; 5]).await.unwrap();
            }
            theirs
        });
        stream.write_all(&[0; 100]).await.unwrap();
        drop(stream);
        assert_eq!(reading.await.unwrap().read(&mut [0; 1]).await.unwrap(), 0, "everything was read");
    }

    #[tokio::test(start_paused = true)]
    async fn peer_that_reads_a_byte_at_a_time_is_given_up() {
        let (ours, mut theirs) = tokio::io::duplex(10);
        let mut stream = Stalling::new(ours, Duration::from_secs(60), 50);
        let reading = tokio::spawn(async move {
            for _ in 0..100 {
                tokio::time::sleep(Duration::from_secs(10)).await;
                if theirs.read_exact(&mut [0; 1]).await.is_err() {
                    return;
                }
            }
        });
        assert_eq!(stream.write_all(&[0; 100]).await.unwrap_err().kind(), io::ErrorKind::TimedOut);
        reading.abort();
    }
}
