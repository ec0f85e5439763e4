//! A writer: the services, memory and connections that streams share.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc::sync_channel;
use std::time::{Duration, Instant};

use exacat_wire::native::Secret;
use exacat_wire::writer::WriterId;
use exacat_writer::{EventMemory, Packer, Producer, ProducerSettings, ServiceTable};
use tokio::runtime::{Builder, Runtime};

use crate::driver::drive;
use crate::error::{Error, Result};
use crate::outcome::FileOutcome;
use crate::seeds::follow;
use crate::settings::{StreamSettings, WriterSettings};
use crate::shared::Shared;
use crate::status::{Status, status};
use crate::stream::{Stream, end, finish};
use crate::stream_state::StreamState;

/// A writer. It runs on threads of its own.
///
/// Dropping it gives up all events that are not durable, and logs how many they are; [`Writer::close`] waits
/// for them.
pub struct Writer {
    shared: Arc<Shared>,
    runtime: Option<Runtime>,
    next_stream: AtomicU32,
}

fn random<const BYTES: usize>() -> Result<[u8; BYTES]> {
    let mut bytes = [0; BYTES];
    let outcome = getrandom::fill(&mut bytes);
    outcome.map_err(|error| Error::Settings(format!("the system gives no random numbers: {error}")))?;
    Ok(bytes)
}

fn milliseconds(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX).max(1)
}

impl Writer {
    /// Connects to the services. Returns once one of the seeds has answered.
    pub fn connect(settings: WriterSettings) -> Result<Writer> {
        settings.check()?;
        let of = ProducerSettings {
            // A new identity each time: nothing of an earlier run is continued.
            writer: WriterId(random()?),
            name: settings.name.clone(),
            token: settings.token.as_deref().map(Secret::new),
            silence_ms: milliseconds(settings.silence_timeout),
            connect_ms: milliseconds(settings.connect_timeout),
            retry_ms: milliseconds(settings.retry_pause),
            first_session: 1,
        };
        let producer = Producer::new(of, ServiceTable::default(), u64::from_le_bytes(random()?));
        let memory = EventMemory::new(settings.memory_bytes, settings.buffer_bytes);
        if settings.prepare_memory {
            memory.prepare();
        }
        let runtime = Builder::new_multi_thread()
            .worker_threads(settings.threads.max(1))
            .thread_name("exacat-writer-io")
            .enable_all()
            .build()
            .map_err(|error| Error::Settings(format!("cannot start threads: {error}")))?;
        let waited = settings.connect_timeout;
        let shared = Shared::new(settings, memory, producer)
            .ok_or_else(|| Error::Settings("internal error: no histogram".to_owned()))?;
        let shared = Arc::new(shared);
        let (first, answered) = sync_channel(1);
        runtime.spawn(follow(shared.clone(), first));
        runtime.spawn(drive(shared.clone()));
        let writer = Writer { shared, runtime: Some(runtime), next_stream: AtomicU32::new(1) };
        // A little longer, so that the reasons of the seeds are there.
        if answered.recv_timeout(waited + Duration::from_millis(200)).is_err() {
            let troubles = writer.shared.troubles();
            let reason_of = |seed: &String| {
                let trouble = troubles.iter().find(|(address, _)| address == seed);
                let reason = trouble.map_or("no answer yet", |(_, reason)| reason);
                format!("{seed}: {reason}")
            };
            let reasons: Vec<String> = writer.shared.settings.seeds.iter().map(reason_of).collect();
            return Err(Error::NoService { waited, reasons: reasons.join("; ") });
        }
        Ok(writer)
    }

    /// Opens a stream. Its first file begins with its first event.
    pub fn open_stream(&self, settings: StreamSettings) -> Result<Stream> {
        if self.shared.is_closed.load(Ordering::Acquire) {
            return Err(Error::Closed("writer"));
        }
        let settings = settings.checked(self.shared.settings.linger)?;
        let memory = self.shared.memory.clone();
        let packer = Packer::new(settings, memory, u64::from_le_bytes(random()?)).ok_or_else(|| {
            let (bytes, streams) = (self.shared.memory.bytes_max(), self.shared.memory.streams_max());
            Error::Settings(format!(
                "{bytes} bytes of memory are enough for {streams} streams: raise memory_bytes, or lower buffer_bytes"
            ))
        })?;
        let number = self.next_stream.fetch_add(1, Ordering::Relaxed);
        let state = Arc::new(StreamState::new(number, packer));
        self.shared.streams.lock().insert(number, state.clone());
        Ok(Stream { shared: self.shared.clone(), state })
    }

    /// Returns the state of the writer.
    pub fn status(&self) -> Status {
        status(&self.shared)
    }

    /// Returns the times from a full chunk to its acknowledgement in microseconds, to be added to those of
    /// other writers.
    pub fn latencies(&self) -> hdrhistogram::Histogram<u64> {
        self.shared.latencies.lock().clone()
    }

    /// Ends all streams, and waits for the certificates of their files, at most for the time of the settings.
    /// Returns the outcomes that no stream has given away.
    pub fn close(self) -> Vec<FileOutcome> {
        let time = self.shared.settings.close_timeout;
        self.close_within(time)
    }

    /// Ends all streams, and waits at most so long for the certificates of their files.
    pub fn close_within(mut self, time: Duration) -> Vec<FileOutcome> {
        self.shared.is_closed.store(true, Ordering::Release);
        let until = Instant::now() + time;
        let streams = self.shared.all_streams();
        streams.iter().for_each(|stream| end(&self.shared, stream));
        let outcomes = streams.iter().flat_map(|stream| finish(&self.shared, stream, until)).collect();
        self.shut();
        outcomes
    }

    fn shut(&mut self) {
        let Some(runtime) = self.runtime.take() else { return };
        self.shared.is_closed.store(true, Ordering::Release);
        let status = status(&self.shared);
        let bytes = status.appended.bytes.saturating_sub(status.settled.bytes);
        if bytes > 0 || !status.files.is_empty() {
            let events = status.appended.events.saturating_sub(status.settled.events);
            tracing::warn!(
                bytes,
                events,
                files = status.files.len(),
                "a writer ends before all its events are durable and its files certified"
            );
            for file in &status.files {
                tracing::warn!(file = %file.file, lfn = %file.description.lfn, reason = file.reason,
                    "a file is left uncertified");
            }
        }
        // It may be dropped by a thread of another runtime, which must not block.
        runtime.shutdown_background();
        self.shared.is_over.store(true, Ordering::Release);
        for stream in self.shared.all_streams() {
            // Under the lock, so that nobody looks just before it waits.
            drop(stream.progress.lock());
            stream.changed.notify_all();
        }
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        self.shut();
    }
}
