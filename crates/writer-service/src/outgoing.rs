//! Bytes that wait to be sent on a connection, in bounded memory.

use bytes::BytesMut;
use exacat_wire::writer::{Frame, encode};
use parking_lot::Mutex;
use tokio::sync::Notify;

use crate::limits::OUTGOING_BYTES_MAX;

#[derive(Debug, Default)]
struct State {
    bytes: BytesMut,
    /// True once nothing more is to be sent.
    is_ended: bool,
}

/// Frames on their way out.
#[derive(Debug, Default)]
pub(crate) struct Outgoing {
    state: Mutex<State>,
    changed: Notify,
    ended: Notify,
}

impl Outgoing {
    /// Adds a frame. False if the peer has let too much pile up.
    pub(crate) fn push(&self, frame: &Frame) -> bool {
        let mut state = self.state.lock();
        if state.is_ended {
            return true;
        }
        let mut bytes = Vec::new();
        encode(&mut bytes, frame);
        state.bytes.extend_from_slice(&bytes);
        let fits = state.bytes.len() <= OUTGOING_BYTES_MAX;
        drop(state);
        self.changed.notify_one();
        fits
    }

    /// Lets the connection end once everything is sent.
    pub(crate) fn end(&self) {
        self.state.lock().is_ended = true;
        self.changed.notify_one();
        self.ended.notify_one();
    }

    /// Waits until nothing more is to be sent.
    pub(crate) async fn ended(&self) {
        while !self.state.lock().is_ended {
            self.ended.notified().await;
        }
    }

    /// Waits for bytes to send; none at the end.
    pub(crate) async fn next(&self) -> Option<BytesMut> {
        loop {
            {
                let mut state = self.state.lock();
                if !state.bytes.is_empty() {
                    return Some(state.bytes.split());
                }
                if state.is_ended {
                    return None;
                }
            }
            self.changed.notified().await;
        }
    }
}
