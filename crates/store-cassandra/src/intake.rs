//! Where requests come in: of this server's clients, and of other servers. So many bytes of them wait or are being decided, and no more.

use std::sync::Arc;

use exacat_store::{ApplyError, Request};
use parking_lot::Mutex;
use tokio::sync::{Semaphore, mpsc, oneshot};

use crate::cluster::Cluster;
use crate::deciding::{Answer, Waiting};
use crate::engine::Engine;
use crate::limits::{QUEUE_BYTES_MAX, QUEUE_REQUESTS_MAX};

/// See the module.
#[derive(Clone)]
pub(crate) struct Intake {
    engine: Arc<Engine>,
    /// None once it is closed.
    requests: Arc<Mutex<Option<mpsc::Sender<Waiting>>>>,
    /// Kilobytes of requests that may still be taken in.
    room: Arc<Semaphore>,
}

impl Intake {
    /// With what takes requests out, and what puts one in again as long as it is open.
    pub fn new(engine: Arc<Engine>) -> (Self, mpsc::Receiver<Waiting>, mpsc::WeakSender<Waiting>) {
        let (requests, queue) = mpsc::channel(QUEUE_REQUESTS_MAX);
        let again = requests.downgrade();
        let requests = Arc::new(Mutex::new(Some(requests)));
        let room = Arc::new(Semaphore::new(QUEUE_BYTES_MAX / 1024));
        (Intake { engine, requests, room }, queue, again)
    }

    /// Takes one that another server has from a client.
    pub async fn take(&self, request: Request) -> Result<oneshot::Receiver<Answer>, ApplyError> {
        self.engine.cluster.figures.taken();
        self.send(request).await
    }

    /// Takes a request; what is given back is its answer to come.
    pub async fn send(&self, request: Request) -> Result<oneshot::Receiver<Answer>, ApplyError> {
        let bytes = request.weigh()?;
        let closed = || {
            let why = self.engine.closed().unwrap_or_else(|| "the store is closed".to_owned());
            ApplyError::Unavailable(why)
        };
        let queue = self.requests.lock().clone().ok_or_else(closed)?;
        if self.engine.closed().is_some() {
            return Err(closed());
        }
        // Given back once it is answered.
        let room = u32::try_from(bytes.div_ceil(1024)).unwrap_or(u32::MAX);
        let room = self.room.clone().acquire_many_owned(room).await.map_err(|_| closed())?;
        let (answer, answered) = oneshot::channel();
        let waiting = Waiting { request, outcomes: Vec::new(), answer, asked_elsewhere: false, _room: room };
        queue.send(waiting).await.map_err(|_| closed())?;
        Ok(answered)
    }

    /// Where those are looked up who bring requests.
    pub fn cluster(&self) -> &Cluster {
        &self.engine.cluster
    }

    /// Takes nothing any more.
    pub fn close(&self) {
        drop(self.requests.lock().take());
    }
}
