//! Journal of a run: a thread makes what requests append durable, several of them together.

use std::sync::Arc;
use std::thread::JoinHandle;

use exacat_log::content_log::ContentLog;
use exacat_model::{Error, ErrorKind, Result, TimeMs};
use tokio::sync::{mpsc, oneshot};

use super::clock::ReplayClock;
use crate::limits::{JOURNAL_GROUP_BYTES_MAX, JOURNAL_WAITING_MAX};

/// Bytes to make durable, and the request that waits for it. Without bytes it waits for those before it.
struct Appended {
    content: Vec<u8>,
    done: oneshot::Sender<Result<()>>,
}

/// See the module.
pub(crate) struct Journal {
    /// None once the journal was closed.
    to: Option<mpsc::Sender<Appended>>,
    thread: Option<JoinHandle<()>>,
}

/// Wait for bytes to be durable.
pub(crate) struct Durable(oneshot::Receiver<Result<()>>);

impl Durable {
    /// Waits. After an error nobody knows whether the bytes are durable.
    pub(crate) async fn wait(self) -> Result<()> {
        self.0.await.unwrap_or_else(|_| Err(ended()))
    }
}

fn ended() -> Error {
    Error::new(ErrorKind::Unavailable, "the journal of the run has ended: the outcome is unknown, ask again")
}

impl Journal {
    /// Starts the thread of a log.
    pub(crate) fn start(log: ContentLog, clock: Arc<dyn ReplayClock>) -> Result<Self> {
        let (to, waiting) = mpsc::channel(JOURNAL_WAITING_MAX);
        let thread = std::thread::Builder::new()
            .name("replay-journal".to_owned())
            .spawn(move || append_all(log, waiting, &*clock))
            .map_err(|error| Error::new(ErrorKind::Unavailable, format!("cannot start a thread: {error}")))?;
        Ok(Journal { to: Some(to), thread: Some(thread) })
    }

    /// Appends bytes. The order of these calls is that of the log.
    ///
    /// # Errors
    /// *Unavailable* if the journal has ended.
    pub(crate) fn append(&self, content: Vec<u8>) -> Result<Durable> {
        let (done, durable) = oneshot::channel();
        let to = self.to.as_ref().ok_or_else(ended)?;
        to.try_send(Appended { content, done }).map_err(|_| ended())?;
        Ok(Durable(durable))
    }
}

impl Drop for Journal {
    fn drop(&mut self) {
        // The thread ends behind the last request.
        self.to = None;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn append_all(mut log: ContentLog, mut waiting: mpsc::Receiver<Appended>, clock: &dyn ReplayClock) {
    while let Some(first) = waiting.blocking_recv() {
        let Appended { mut content, done } = first;
        let mut requests = vec![done];
        while content.len() < JOURNAL_GROUP_BYTES_MAX
            && let Ok(next) = waiting.try_recv()
        {
            content.extend_from_slice(&next.content);
            requests.push(next.done);
        }
        let now = TimeMs(clock.now().date_us / 1000);
        let appended = match content.is_empty() {
            true if log.has_failed() => Err(ended()),
            true => Ok(()),
            false => log.append(&content, now).map(|_| ()),
        };
        if let Err(error) = &appended {
            tracing::error!(%error, "the journal of a run cannot be written: its requests fail until a restart");
        }
        for done in requests {
            let result = appended.as_ref().copied().map_err(|error| {
                let what = format!("{}: the outcome is unknown, ask again after a restart", error.message);
                Error::new(ErrorKind::Unavailable, what)
            });
            // A client that has gone needs no answer.
            let _ = done.send(result);
        }
    }
}
