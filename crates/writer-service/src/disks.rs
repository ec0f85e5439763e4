//! Threads that do the works of volumes: some for bytes, more for begins and ends of parts, and one for the
//! index of each volume.

use std::collections::VecDeque;
use std::sync::Arc;
use std::thread::JoinHandle;

use exacat_model::{Error, ErrorKind, Result};
use exacat_writer::limits::WORKS_AT_ONCE;
use exacat_writer::{Done, Volume, Work};
use parking_lot::{Condvar, Mutex};

use crate::limits::NAME_THREADS;

#[derive(Debug, Default)]
struct Waiting {
    works: VecDeque<(usize, Work)>,
    is_closed: bool,
}

/// Works in their order. A service has few for each part, and one commit for each volume.
#[derive(Debug, Default)]
struct Queue {
    waiting: Mutex<Waiting>,
    changed: Condvar,
}

impl Queue {
    fn push(&self, volume: usize, work: Work) {
        self.waiting.lock().works.push_back((volume, work));
        self.changed.notify_one();
    }

    fn close(&self) {
        self.waiting.lock().is_closed = true;
        self.changed.notify_all();
    }

    fn pop(&self) -> Option<(usize, Work)> {
        let mut waiting = self.waiting.lock();
        loop {
            if let Some(work) = waiting.works.pop_front() {
                return Some(work);
            }
            if waiting.is_closed {
                return None;
            }
            self.changed.wait(&mut waiting);
        }
    }
}

/// The threads.
pub(crate) struct Disks {
    bytes: Arc<Queue>,
    /// First and last works of parts, and removals: they wait for the journal of the file system, which
    /// serves many at once.
    names: Arc<Queue>,
    indices: Vec<Arc<Queue>>,
    threads: Mutex<Vec<JoinHandle<()>>>,
}

impl Disks {
    /// Makes the queues of volumes. Works wait until [`Disks::start`].
    pub(crate) fn new(volumes: usize) -> Self {
        Disks {
            bytes: Arc::default(),
            names: Arc::default(),
            indices: (0..volumes).map(|_| Arc::default()).collect(),
            threads: Mutex::default(),
        }
    }

    /// Starts the threads. Each outcome is given to `done`.
    pub(crate) fn start(
        &self,
        volumes: &Arc<Vec<Volume>>,
        done: &Arc<dyn Fn(usize, Done) + Send + Sync>,
    ) -> Result<()> {
        let bytes = (0..WORKS_AT_ONCE).map(|number| (format!("writer-bytes-{number}"), &self.bytes));
        let names = (0..NAME_THREADS).map(|number| (format!("writer-names-{number}"), &self.names));
        let indices =
            self.indices.iter().enumerate().map(|(volume, queue)| (format!("writer-index-{volume}"), queue));
        let mut threads = self.threads.lock();
        for (name, queue) in bytes.chain(names).chain(indices) {
            let (queue, volumes, done) = (Arc::clone(queue), Arc::clone(volumes), Arc::clone(done));
            threads.push(thread(name, move || {
                while let Some((volume, work)) = queue.pop() {
                    if let Some(of) = volumes.get(volume) {
                        done(volume, of.run(work, crate::clock::wall_time()));
                    }
                }
            })?);
        }
        Ok(())
    }

    /// Adds a work for a volume.
    pub(crate) fn push(&self, volume: usize, work: Work) {
        let queue = match &work {
            Work::Commit(_) => self.indices.get(volume).unwrap_or(&self.bytes),
            Work::Part(of) if !of.create && of.seal.is_none() => &self.bytes,
            Work::Part(_) | Work::Checkpoint | Work::Remove { .. } => &self.names,
        };
        queue.push(volume, work);
    }

    /// Ends the threads once they have done what waits.
    pub(crate) fn stop(&self) {
        self.bytes.close();
        self.names.close();
        self.indices.iter().for_each(|queue| queue.close());
        for thread in self.threads.lock().drain(..) {
            let _ = thread.join();
        }
    }
}

fn thread(name: String, body: impl FnOnce() + Send + 'static) -> Result<JoinHandle<()>> {
    std::thread::Builder::new()
        .name(name)
        .spawn(body)
        .map_err(|error| Error::new(ErrorKind::Unavailable, format!("no thread for a disk: {error}")))
}
