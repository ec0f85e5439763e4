//! Bounded queue of a link. The oldest frames are lost first.

use std::collections::VecDeque;
use std::sync::Arc;

use exacat_wire::writer::{Frame, encode};

use crate::limits::{LINK_BYTES_MAX, LINK_FRAMES_MAX};

/// Encoded frames that wait for a link.
#[derive(Default)]
pub(super) struct LinkQueue {
    /// Newest table. An older one that was not sent has no use.
    table: Option<Arc<[u8]>>,
    /// Number of the ping to answer.
    pong: Option<u64>,
    frames: VecDeque<Vec<u8>>,
    bytes: usize,
}

impl LinkQueue {
    /// Adds a frame. Returns the number of frames that were lost for it.
    pub(super) fn push(&mut self, frame: &Frame) -> u64 {
        let mut bytes = Vec::new();
        encode(&mut bytes, frame);
        self.bytes += bytes.len();
        self.frames.push_back(bytes);
        let mut lost = 0;
        while self.frames.len() > LINK_FRAMES_MAX || self.bytes > LINK_BYTES_MAX {
            let Some(oldest) = self.frames.pop_front() else { break };
            self.bytes -= oldest.len();
            lost += 1;
        }
        lost
    }

    pub(super) fn set_table(&mut self, table: Arc<[u8]>) {
        self.table = Some(table);
    }

    /// Asks for the answer to a ping; only the last one counts.
    pub(super) fn answer(&mut self, ping: u64) {
        self.pong = Some(ping);
    }

    /// Moves frames to the end of `out`, until it has at least `bytes_enough` bytes. Returns their number.
    pub(super) fn take(&mut self, out: &mut Vec<u8>, bytes_enough: usize) -> u64 {
        let mut taken = 0;
        if let Some(number) = self.pong.take() {
            encode(out, &Frame::Pong(number));
            taken += 1;
        }
        if let Some(table) = self.table.take() {
            out.extend_from_slice(&table);
            taken += 1;
        }
        while out.len() < bytes_enough
            && let Some(frame) = self.frames.pop_front()
        {
            self.bytes -= frame.len();
            out.extend_from_slice(&frame);
            taken += 1;
        }
        taken
    }

    /// Forgets everything. Returns the number of lost frames, without tables and pongs.
    pub(super) fn clear(&mut self) -> u64 {
        let lost = self.frames.len() as u64;
        *self = LinkQueue::default();
        lost
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(bytes: usize) -> Frame {
        Frame::Goodbye { reason: "x".repeat(bytes) }
    }

    fn taken(queue: &mut LinkQueue) -> Vec<u8> {
        let mut out = Vec::new();
        queue.take(&mut out, usize::MAX);
        out
    }

    /// Property: the queue holds its limits of frames and bytes, and loses the oldest for the next.
    #[test]
    fn full_queue_loses_the_oldest() {
        let mut queue = LinkQueue::default();
        let lost: u64 = (0..LINK_FRAMES_MAX as u64).map(|number| queue.push(&Frame::Ping(number))).sum();
        assert_eq!(lost, 0, "the limit itself fits");
        assert_eq!(queue.push(&Frame::Ping(7)), 1);
        let (mut second, all) = (Vec::new(), taken(&mut queue));
        encode(&mut second, &Frame::Ping(1));
        assert!(all.starts_with(&second), "the first one is lost");

        let report = |chunks| {
            use exacat_wire::writer::{ChunkRecord, FileId, PartReport, PartState};
            let chunk = ChunkRecord { sequence: 1, offset: 1, length: 1, events: 1, crc32c: 1, adler32: 1 };
            let (file, state) = (FileId([1; 16]), PartState::Sealed);
            let chunks = vec![chunk; chunks];
            Frame::PartReport(PartReport { file, epoch: 1, state, from: 0, chunks, more: false })
        };
        let mut size = Vec::new();
        encode(&mut size, &report(4096));
        let fit = LINK_BYTES_MAX / size.len();
        let lost: u64 = (0..fit).map(|_| queue.push(&report(4096))).sum();
        assert_eq!(lost, 0);
        assert_eq!(queue.push(&report(4096)), 1);
        assert!(queue.bytes <= LINK_BYTES_MAX);
        assert_eq!(queue.clear(), fit as u64);
        assert!(taken(&mut queue).is_empty());
    }

    #[test]
    fn newest_table_and_pong_go_first() {
        let mut queue = LinkQueue::default();
        queue.push(&text(3));
        queue.set_table(Arc::from(&b"old"[..]));
        queue.set_table(Arc::from(&b"new"[..]));
        queue.answer(1);
        queue.answer(2);
        let mut wanted = Vec::new();
        encode(&mut wanted, &Frame::Pong(2));
        wanted.extend_from_slice(b"new");
        encode(&mut wanted, &text(3));
        assert_eq!(taken(&mut queue), wanted);
        queue.push(&text(1));
        queue.push(&text(1));
        let mut out = Vec::new();
        assert_eq!(queue.take(&mut out, 1), 1, "no more than enough");
    }
}
