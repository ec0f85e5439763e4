//! Bytes on their way to a socket, written from where they are.

use std::collections::VecDeque;
use std::io::IoSlice;

use bytes::{Buf, Bytes};
use parking_lot::Mutex;
use tokio::sync::Notify;

/// Pieces in one write: the most that tokio passes on.
const PIECES_MAX: usize = 64;

/// Queue of a connection. Its chunks are in the bounded memory of the writer, each at most once, and its
/// other frames are a few for each file.
#[derive(Debug, Default)]
pub(crate) struct Outgoing {
    pieces: Mutex<VecDeque<Bytes>>,
    added: Notify,
}

impl Outgoing {
    /// Adds pieces of frames.
    pub(crate) fn push(&self, pieces: impl IntoIterator<Item = Bytes>) {
        self.pieces.lock().extend(pieces);
        self.added.notify_one();
    }

    /// Waits for pieces, and adds some of them to those that are being sent.
    pub(crate) async fn take(&self, sending: &mut Sending) {
        loop {
            {
                let mut pieces = self.pieces.lock();
                let count = pieces.len().min(PIECES_MAX);
                sending.0.extend(pieces.drain(..count));
            }
            if sending.has_remaining() {
                return;
            }
            self.added.notified().await;
        }
    }
}

/// Pieces that are being sent, as one buffer.
#[derive(Debug, Default)]
pub(crate) struct Sending(VecDeque<Bytes>);

impl Buf for Sending {
    fn remaining(&self) -> usize {
        self.0.iter().map(Bytes::len).sum()
    }

    fn chunk(&self) -> &[u8] {
        self.0.front().map_or(&[], |first| first)
    }

    fn chunks_vectored<'a>(&'a self, into: &mut [IoSlice<'a>]) -> usize {
        let pairs = into.iter_mut().zip(&self.0);
        pairs.map(|(slice, piece)| *slice = IoSlice::new(piece)).count()
    }

    fn advance(&mut self, mut count: usize) {
        while let Some(first) = self.0.front_mut() {
            let of_first = count.min(first.len());
            first.advance(of_first);
            count -= of_first;
            if !first.is_empty() {
                return;
            }
            // Its memory is free from here on, unless the chunk is kept for another try.
            self.0.pop_front();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Property: however the pieces are advanced, the bytes come in order, each once.
    #[test]
    fn pieces_are_one_buffer() {
        let mut random = fastrand::Rng::with_seed(5);
        for _ in 0..200 {
            let pieces: Vec<Vec<u8>> = (0..random.usize(..9))
                .map(|_| (0..1 + random.usize(..7)).map(|_| random.u8(..)).collect())
                .collect();
            let mut sending = Sending(pieces.iter().map(|piece| Bytes::copy_from_slice(piece)).collect());
            let mut read = Vec::new();
            while sending.has_remaining() {
                let mut slices = [IoSlice::new(&[]); 4];
                let count = sending.chunks_vectored(&mut slices);
                let front: Vec<u8> = slices[..count].iter().flat_map(|slice| slice.to_vec()).collect();
                let taken = 1 + random.usize(..front.len());
                read.extend_from_slice(&front[..taken]);
                sending.advance(taken);
            }
            assert_eq!(read, pieces.concat());
        }
    }
}
