//! Link to one other service: its addresses, its queue, and the task that keeps it connected.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use exacat_wire::writer::{Frame, FrameDecoder, Received, ServiceId, encode};
use parking_lot::Mutex;
use tokio::io::{AsyncReadExt, AsyncWriteExt, ReadHalf, WriteHalf};
use tokio::sync::Notify;
use tokio::time::{sleep, sleep_until, timeout};

use super::greeting::{Duplex, Greeted};
use super::queue::LinkQueue;
use crate::limits::{
    ANNOUNCED_ADDRESSES_MAX, LINK_PAUSE_MAX, LINK_PAUSE_MIN, LINK_SILENCE_MAX, LINK_WRITE_BYTES,
    PING_EVERY_MIN, READ_BYTES,
};

/// State of a link, for people.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PeerStatus {
    /// The other service.
    pub service: ServiceId,
    /// Its address, from the last connection.
    pub address: Option<SocketAddr>,
    /// True if frames reach it now.
    pub is_connected: bool,
    /// Reason why it is not connected; empty if there is none.
    pub reason: String,
    /// Connections so far.
    pub connections: u64,
    /// Frames sent.
    pub sent: u64,
    /// Frames received on the link.
    pub received: u64,
    /// Frames lost: the link was not connected, or its queue was full.
    pub lost: u64,
}

/// Source of an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Source {
    /// A datagram, which anyone can send.
    Announcement,
    /// A table from a service.
    Table,
    /// The service answered there.
    Greeting,
}

/// Addresses of a service. Announced ones never take the place of the others.
#[derive(Default)]
struct Addresses {
    announced: VecDeque<String>,
    table: Option<String>,
    greeted: Option<String>,
}

impl Addresses {
    /// Adds an address. Says whether it is new.
    fn add(&mut self, address: &str, source: Source) -> bool {
        let is_new = !self.all().iter().any(|known| known == address);
        match source {
            Source::Announcement if is_new => {
                self.announced.push_front(address.to_owned());
                self.announced.truncate(ANNOUNCED_ADDRESSES_MAX);
            }
            Source::Announcement => {}
            Source::Table => self.table = Some(address.to_owned()),
            Source::Greeting => self.greeted = Some(address.to_owned()),
        }
        is_new
    }

    /// Returns all addresses, each once.
    fn all(&self) -> Vec<String> {
        let mut all: Vec<String> = Vec::new();
        for address in self.greeted.iter().chain(&self.table).chain(&self.announced) {
            if !all.contains(address) {
                all.push(address.clone());
            }
        }
        all
    }
}

struct LinkState {
    addresses: Addresses,
    queue: LinkQueue,
    status: PeerStatus,
    /// Number of the last ping.
    pings: u64,
}

/// Link to one service.
pub(super) struct Link {
    service: ServiceId,
    state: Mutex<LinkState>,
    /// There is something to send.
    filled: Notify,
    /// There is something new about the address.
    address_heard: Notify,
}

/// Parts of all links that one link uses.
pub(super) trait Surroundings: Send + Sync + 'static {
    /// Connects to an address, and greets the service there.
    fn greet(&self, address: String) -> impl Future<Output = Result<Greeted, String>> + Send;
    /// Another service than expected is at an address.
    fn found_other(self: &Arc<Self>, service: ServiceId, address: String);
    /// Returns the last table, encoded.
    fn table(&self) -> Option<Arc<[u8]>>;
    /// Takes a frame of a service. Says whether the receiver still wants any.
    fn received(self: &Arc<Self>, service: ServiceId, frame: Frame) -> impl Future<Output = bool> + Send;
}

impl Link {
    pub(super) fn new(service: ServiceId) -> Link {
        let status = PeerStatus {
            service,
            address: None,
            is_connected: false,
            reason: "not connected yet".to_owned(),
            connections: 0,
            sent: 0,
            received: 0,
            lost: 0,
        };
        let (addresses, queue) = (Addresses::default(), LinkQueue::default());
        let state = Mutex::new(LinkState { addresses, queue, status, pings: 0 });
        Link { service, state, filled: Notify::new(), address_heard: Notify::new() }
    }

    pub(super) fn status(&self) -> PeerStatus {
        self.state.lock().status.clone()
    }

    /// Notes an address. A link that waits tries again at once if there may be something new: an
    /// announcement is passed on only then.
    pub(super) fn add_address(&self, address: &str, source: Source) {
        let is_new = self.state.lock().addresses.add(address, source);
        if is_new || source == Source::Announcement {
            self.address_heard.notify_one();
        }
    }

    /// Queues a frame. Without a connection it is lost: the sender repeats what matters, and the peer has
    /// no use for old repetitions.
    pub(super) fn tell(&self, frame: &Frame) {
        let mut state = self.state.lock();
        let lost = if state.status.is_connected { state.queue.push(frame) } else { 1 };
        state.status.lost += lost;
        drop(state);
        self.filled.notify_one();
    }

    pub(super) fn set_table(&self, table: Arc<[u8]>) {
        let mut state = self.state.lock();
        if state.status.is_connected {
            state.queue.set_table(table);
            drop(state);
            self.filled.notify_one();
        }
    }

    /// Keeps the link connected until the task is aborted, or nobody wants frames any more.
    pub(super) async fn run(self: Arc<Self>, around: Arc<impl Surroundings>) {
        let mut pause = LINK_PAUSE_MIN;
        loop {
            let began = Instant::now();
            let reason = match self.connect(&around).await {
                Ok(greeted) => {
                    let ended = self.converse(greeted, &around).await;
                    if began.elapsed() >= LINK_PAUSE_MAX {
                        pause = LINK_PAUSE_MIN;
                    }
                    ended
                }
                Err(reason) => Some(reason),
            };
            let Some(reason) = reason else { return };
            self.failed(reason);
            tokio::select! {
                () = sleep(pause.mul_f64(0.5 + fastrand::f64())) => {
                    pause = (pause * 2).min(LINK_PAUSE_MAX);
                }
                // Not more often than the shortest pause, whatever others announce.
                () = self.address_heard.notified() => sleep(LINK_PAUSE_MIN).await,
            }
        }
    }

    /// Tries all addresses at once, and takes the first at which the service answers. A false address so
    /// delays nothing.
    async fn connect(&self, around: &Arc<impl Surroundings>) -> Result<Greeted, String> {
        let addresses = self.state.lock().addresses.all();
        let mut attempts = tokio::task::JoinSet::new();
        for address in addresses {
            let around = Arc::clone(around);
            attempts.spawn(async move {
                let greeted = around.greet(address.clone()).await;
                (address, greeted)
            });
        }
        let mut reasons = Vec::new();
        while let Some(attempt) = attempts.join_next().await {
            match attempt {
                Ok((address, Ok(greeted))) if greeted.service == self.service => {
                    self.connected(&address, greeted.address, around.table());
                    return Ok(greeted);
                }
                Ok((address, Ok(greeted))) => {
                    reasons.push(format!("{address}: service {} is there", greeted.service));
                    around.found_other(greeted.service, address);
                }
                Ok((address, Err(reason))) => reasons.push(format!("{address}: {reason}")),
                Err(error) => reasons.push(format!("internal error: {error}")),
            }
        }
        Err(reasons.join("; "))
    }

    fn connected(&self, address: &str, resolved: SocketAddr, table: Option<Arc<[u8]>>) {
        let mut state = self.state.lock();
        state.addresses.add(address, Source::Greeting);
        state.status.address = Some(resolved);
        state.status.is_connected = true;
        state.status.connections += 1;
        state.status.reason.clear();
        table.into_iter().for_each(|table| state.queue.set_table(table));
        drop(state);
        tracing::info!(service = %self.service, address, "connected to a writer service");
    }

    fn failed(&self, reason: String) {
        let mut state = self.state.lock();
        state.status.lost += state.queue.clear();
        let was_connected = std::mem::replace(&mut state.status.is_connected, false);
        // An address that is tried for hours is not told each time.
        let is_new = state.status.reason != reason;
        state.status.reason.clone_from(&reason);
        drop(state);
        if was_connected || is_new {
            tracing::warn!(service = %self.service, reason, "not connected to a writer service");
        }
    }

    /// Exchanges frames. Returns the reason of the end; none if nobody wants frames any more.
    async fn converse(&self, greeted: Greeted, around: &Arc<impl Surroundings>) -> Option<String> {
        let Greeted { idle, stream, decoder, .. } = greeted;
        let ping_every = (LINK_SILENCE_MAX.min(idle) / 3).max(PING_EVERY_MIN);
        let (reader, writer) = tokio::io::split(stream);
        // Two futures: a peer that takes no bytes does not keep this side from reading.
        tokio::select! {
            ended = self.read(reader, decoder, around) => ended,
            reason = self.write(writer, ping_every) => Some(reason),
        }
    }

    /// Takes bytes to write, with a ping first if one is due.
    fn take_bytes(&self, bytes: &mut Vec<u8>, is_ping_due: bool) {
        let mut state = self.state.lock();
        if is_ping_due {
            state.pings += 1;
            encode(bytes, &Frame::Ping(state.pings));
        }
        state.status.sent += state.queue.take(bytes, LINK_WRITE_BYTES);
    }

    async fn write(&self, mut writer: WriteHalf<Box<dyn Duplex>>, ping_every: Duration) -> String {
        let mut ping_at = tokio::time::Instant::now();
        let mut bytes = Vec::new();
        loop {
            bytes.clear();
            // Also between many other frames: only the answers show that the peer lives.
            let is_ping_due = tokio::time::Instant::now() >= ping_at;
            self.take_bytes(&mut bytes, is_ping_due);
            if bytes.is_empty() {
                tokio::select! {
                    () = self.filled.notified() => {}
                    () = sleep_until(ping_at) => {}
                }
                continue;
            }
            if is_ping_due {
                ping_at = tokio::time::Instant::now() + ping_every;
            }
            let written = async {
                writer.write_all(&bytes).await?;
                writer.flush().await
            };
            match timeout(LINK_SILENCE_MAX, written).await {
                Ok(Ok(())) => {}
                Ok(Err(error)) => return error.to_string(),
                Err(_) => return format!("it took no bytes for {} s", LINK_SILENCE_MAX.as_secs()),
            }
        }
    }

    async fn read(
        &self,
        mut reader: ReadHalf<Box<dyn Duplex>>,
        mut decoder: FrameDecoder,
        around: &Arc<impl Surroundings>,
    ) -> Option<String> {
        loop {
            loop {
                match decoder.next_message() {
                    Ok(None) => break,
                    Ok(Some(Received::Frame(frame))) => match self.take(frame, around).await {
                        Ok(true) => {}
                        Ok(false) => return None,
                        Err(reason) => return Some(reason),
                    },
                    Ok(Some(Received::Chunk(_))) => return Some("it sent a chunk".to_owned()),
                    Err(error) => return Some(error.to_string()),
                }
            }
            decoder.buffer_mut().reserve(READ_BYTES);
            match timeout(LINK_SILENCE_MAX, reader.read_buf(decoder.buffer_mut())).await {
                Ok(Ok(0)) => return Some("it closed the connection".to_owned()),
                Ok(Ok(_)) => {}
                Ok(Err(error)) => return Some(error.to_string()),
                Err(_) => return Some(format!("it was silent for {} s", LINK_SILENCE_MAX.as_secs())),
            }
        }
    }

    /// Takes a frame. Returns false if nobody wants further ones, and the reason if it ends the connection.
    async fn take(&self, frame: Frame, around: &Arc<impl Surroundings>) -> Result<bool, String> {
        match frame {
            Frame::Ping(number) => {
                self.state.lock().queue.answer(number);
                self.filled.notify_one();
                Ok(true)
            }
            Frame::Pong(_) => Ok(true),
            Frame::Table(_)
            | Frame::PartQuery(_)
            | Frame::PartReport(_)
            | Frame::Certified(_)
            | Frame::Remove { .. } => {
                self.state.lock().status.received += 1;
                Ok(around.received(self.service, frame).await)
            }
            Frame::Goodbye { reason } => Err(format!("it said goodbye: {reason}")),
            Frame::Refusal(refusal) => Err(format!("it refused: {}", refusal.reason)),
            other => Err(format!("it sent a frame {}", other.frame_type().name())),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Property: however many addresses are announced, those of the table and of the last connection stay.
    #[test]
    fn announced_addresses_are_bounded_and_hide_no_other() {
        let mut addresses = Addresses::default();
        assert!(addresses.add("greeted:1", Source::Greeting));
        assert!(addresses.add("table:1", Source::Table));
        for port in 1..100 {
            assert!(addresses.add(&format!("10.0.0.9:{port}"), Source::Announcement));
        }
        assert!(!addresses.add("10.0.0.9:99", Source::Announcement), "it is known");
        assert_eq!(addresses.all(), ["greeted:1", "table:1", "10.0.0.9:99", "10.0.0.9:98"]);
        assert!(addresses.add("table:2", Source::Table));
        assert_eq!(addresses.all().len(), 2 + ANNOUNCED_ADDRESSES_MAX);
    }
}
