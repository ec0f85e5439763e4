//! Long answers as streams of pages, across lost connections.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use exacat_model::codec::Encode;
use exacat_model::{Answer, Cursor, Error, ErrorKind, LogPosition, Operation, OperationId, Result};
use futures::Stream;
use futures::stream::{BoxStream, StreamExt};
use tokio::time::{Instant, sleep, timeout_at};

use crate::connection::{Connection, OpenStream};
use crate::inner::Inner;
use crate::retry::{Backoff, RetryState};
use crate::slots::{Outcome, StreamItem};

/// Pages of a long answer, in order. An error ends the stream.
pub struct AnswerStream {
    pages: BoxStream<'static, Result<Answer>>,
}

impl AnswerStream {
    /// Streams the pages of `operation`; if `follow`, continues for ever beyond the present end of
    /// the history.
    pub(crate) fn new(inner: Arc<Inner>, operation: Operation, follow: bool) -> Self {
        let pages = Pages::new(inner, operation, follow);
        let pages = futures::stream::unfold(Some(pages), |pages| async {
            let mut pages = pages?;
            match pages.next().await {
                None => None,
                Some(Ok(page)) => Some((Ok(page), Some(pages))),
                Some(Err(error)) => Some((Err(error), None)),
            }
        });
        AnswerStream { pages: pages.boxed() }
    }
}

impl Stream for AnswerStream {
    type Item = Result<Answer>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.pages.poll_next_unpin(cx)
    }
}

impl std::fmt::Debug for AnswerStream {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("AnswerStream").finish_non_exhaustive()
    }
}

struct Pages {
    inner: Arc<Inner>,
    /// The operation with the cursor of the next page.
    operation: Operation,
    /// Operation id of a write until its next page: a retried step is the same step.
    operation_id: Option<OperationId>,
    /// The stream, and its connection.
    open: Option<(OpenStream, Arc<Connection>)>,
    rest: Rest,
    /// True if the present end of the history does not end the stream.
    follow: bool,
}

/// State after the pages so far.
enum Rest {
    More,
    Nothing,
    Error(Error),
}

impl Pages {
    fn new(inner: Arc<Inner>, operation: Operation, follow: bool) -> Self {
        let rest = if operation.has_pages() {
            Rest::More
        } else {
            Rest::Error(Error::invalid(format!("{} has no pages to stream", operation.name())))
        };
        Pages { inner, operation, operation_id: None, open: None, rest, follow }
    }

    async fn next(&mut self) -> Option<Result<Answer>> {
        match std::mem::replace(&mut self.rest, Rest::Nothing) {
            Rest::More => {}
            Rest::Nothing => return None,
            Rest::Error(error) => return Some(Err(error)),
        }
        let page = self.page().await;
        if let Ok(page) = &page {
            self.rest = self.resume(page);
        }
        Some(page)
    }

    /// Returns the state after a page.
    fn resume(&mut self, page: &Answer) -> Rest {
        let next = page.next().cloned();
        if next.is_none() {
            self.open = None;
        }
        let next = match page {
            Answer::Changes { next: None, up_to, timeline, .. } if self.follow => {
                let resumes = LogPosition { revision: *up_to, timeline: Some(timeline.whole()) };
                Some(Cursor(resumes.to_bytes()))
            }
            _ => next,
        };
        let Some(cursor) = next else { return Rest::Nothing };
        self.operation_id = None;
        match self.operation.resumed(cursor) {
            Some(operation) => {
                self.operation = operation;
                Rest::More
            }
            None => Rest::Error(Error::new(
                ErrorKind::Internal,
                format!("internal error: the cursor of the server does not fit {}", self.operation.name()),
            )),
        }
    }

    async fn page(&mut self) -> Result<Answer> {
        // An open stream may be silent for long, and the connection itself notices a dead peer. So
        // the deadline runs only from when there was no stream until a page arrives.
        let within = self.inner.settings().deadline;
        let mut deadline = None;
        let mut backoff: Option<Backoff> = None;
        if self.operation.writes() && self.operation_id.is_none() {
            self.operation_id = Some(self.inner.new_operation_id()?);
        }
        let mut asked = RetryState::new(self.operation_id);
        loop {
            if let Some((open, connection)) = &mut self.open {
                match open.next().await {
                    StreamItem::Part(page) => return Ok(page),
                    StreamItem::Failed(error) if !error.kind.is_retryable() => {
                        return Err(asked.refused(error));
                    }
                    StreamItem::Failed(error) => {
                        self.inner.pool.leave_for(&error, connection);
                        asked.lost(error.kind == ErrorKind::Unknown, error);
                    }
                    StreamItem::Lost(error) => asked.lost(true, error),
                    StreamItem::End => asked.lost(
                        true,
                        Error::new(ErrorKind::Unavailable, "the server ended a stream before its last page"),
                    ),
                }
                self.open = None;
            }
            let until = *deadline.get_or_insert_with(|| Instant::now() + within);
            if let Some(backoff) = &mut backoff {
                let pause = backoff.pause(&self.inner.jitter);
                if Instant::now() + pause >= until {
                    let name = self.operation.name();
                    return Err(asked.give_up(&format!("{name} gave no page within {within:?}")));
                }
                sleep(pause).await;
            } else {
                backoff = Some(self.inner.backoff());
            }
            self.reopen(until, &mut asked).await?;
        }
    }

    /// Tries once to open the stream at the present cursor; an error if retries cannot help.
    async fn reopen(&mut self, until: Instant, asked: &mut RetryState) -> Result<()> {
        let late = || Error::new(ErrorKind::Unavailable, "no connection to the server within the time limit");
        let connection = match timeout_at(until, self.inner.pool.connection()).await {
            Ok(Ok(connection)) => connection,
            Ok(Err(failure)) if failure.is_final => return Err(asked.refused(failure.error)),
            Ok(Err(failure)) => {
                asked.lost(false, failure.error);
                return Ok(());
            }
            Err(_) => {
                asked.lost(false, late());
                return Ok(());
            }
        };
        if self.operation.writes()
            && let Some(error) = self.inner.pool.hold_back(&connection)
        {
            asked.lost(false, error);
            return Ok(());
        }
        let window = self.inner.settings().stream_credit;
        let opened = connection.stream(&self.operation, self.operation_id, window);
        match timeout_at(until, opened).await {
            Ok(Outcome::Answered(open)) => {
                self.open = Some((open.map_err(|error| asked.refused(error))?, connection));
            }
            Ok(Outcome::Lost { sent, error }) => asked.lost(sent, error),
            Err(_) => asked.lost(false, late()),
        }
        Ok(())
    }
}
