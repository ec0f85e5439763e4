//! Queue of requests, of this server's clients and of other servers, bounded in bytes.

use std::sync::Arc;

use exacat_store::{ApplyError, Request};
use parking_lot::Mutex;
use tokio::sync::{Semaphore, mpsc, oneshot};

use crate::cluster::Cluster;
use crate::deciding::{Answered, Waiting};
use crate::follower::Follower;
use crate::limits::{QUEUE_BYTES_MAX, QUEUE_REQUESTS_MAX};
use crate::spent::Spent;

/// Entrance of the queue; see the module.
#[derive(Clone)]
pub(crate) struct Intake {
    follower: Arc<Follower>,
    /// None once it is closed.
    requests: Arc<Mutex<Option<mpsc::Sender<Waiting>>>>,
    /// Kilobytes of requests that may still be queued.
    room: Arc<Semaphore>,
}

impl Intake {
    /// Makes the queue. Returns its receiver too, and a sender that can queue a request again while
    /// the queue is open.
    pub(crate) fn new(follower: Arc<Follower>) -> (Self, mpsc::Receiver<Waiting>, mpsc::WeakSender<Waiting>) {
        let (requests, queue) = mpsc::channel(QUEUE_REQUESTS_MAX);
        let again = requests.downgrade();
        let requests = Arc::new(Mutex::new(Some(requests)));
        let room = Arc::new(Semaphore::new(QUEUE_BYTES_MAX / 1024));
        (Intake { follower, requests, room }, queue, again)
    }

    /// Queues a request that another server forwarded.
    pub(crate) async fn accept(&self, request: Request) -> Result<oneshot::Receiver<Answered>, ApplyError> {
        self.follower.cluster.metrics.forwarded_in();
        self.send(request).await
    }

    /// Queues a request and returns the receiver of its answer.
    pub(crate) async fn send(&self, request: Request) -> Result<oneshot::Receiver<Answered>, ApplyError> {
        let bytes = request.weigh()?;
        let closed = || {
            let why = self.follower.closed().unwrap_or_else(|| "the store is closed".to_owned());
            ApplyError::Unavailable(why)
        };
        let queue = self.requests.lock().clone().ok_or_else(closed)?;
        if self.follower.closed().is_some() {
            return Err(closed());
        }
        // Released once the request is answered.
        let room = u32::try_from(bytes.div_ceil(1024)).unwrap_or(u32::MAX);
        let room = self.room.clone().acquire_many_owned(room).await.map_err(|_| closed())?;
        let (answered, answer) = oneshot::channel();
        let (outcomes, spent) = (Vec::new(), Spent::default());
        let waiting = Waiting { request, outcomes, answered, spent, forwarded: false, _room: room };
        queue.send(waiting).await.map_err(|_| closed())?;
        Ok(answer)
    }

    /// Connection to the cluster, for looking up servers that forward requests.
    pub(crate) fn cluster(&self) -> &Cluster {
        &self.follower.cluster
    }

    /// Closes the queue for new requests.
    pub(crate) fn close(&self) {
        drop(self.requests.lock().take());
    }
}
