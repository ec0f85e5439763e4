//! Frames of a client: authentication, requests, and frames that are out of place.

use std::sync::Arc;
use std::time::Instant;

use exacat_model::{Error, ErrorKind};
use exacat_wire::native::{
    Authenticate, Frame, FrameError, Hello, HelloAck, PROTOCOL_VERSION, PROTOCOL_VERSION_MIN, RawFrame,
    encode_authenticated, encode_error, encode_hello_ack, encode_pong, features,
};
use tokio::io::{AsyncRead, AsyncWrite};

use super::{Closing, Connection, InFlight, Patience, Stage};
use crate::access::Session;
use crate::faces::native::lookups::Lookups;
use crate::faces::native::tasks;
use crate::instruments::count;
use crate::service::Cancel;

impl<S: AsyncRead + AsyncWrite + Unpin> Connection<S> {
    /// Handles the complete frames in the buffer, as long as there is room for answers.
    pub(super) async fn take_frames(&mut self, received: Instant) {
        if !self.revalidate().await {
            return;
        }
        let mut lookups = Lookups::default();
        loop {
            if self.output_is_full() || lookups.items() >= self.service.limits.coalesced_items() {
                self.look_up(&mut lookups, received);
                if self.output_is_full() {
                    return;
                }
            }
            match self.decoder.next_frame() {
                Ok(Some(raw)) => self.take_frame(raw, received, &mut lookups).await,
                Ok(None) => {
                    self.backlog = false;
                    break;
                }
                Err(error) => {
                    self.look_up(&mut lookups, received);
                    self.refuse_frame(&error);
                    break;
                }
            }
            if !self.backlog {
                break;
            }
        }
        self.look_up(&mut lookups, received);
    }

    /// Checks the credentials again if that is due. Returns false if they are no longer valid; then
    /// the connection ends after the requests in flight.
    async fn revalidate(&mut self) -> bool {
        let Stage::Open(session) = &mut self.stage else {
            return true;
        };
        if !self.service.must_check_again(&session.checked) {
            return true;
        }
        match session.check_again(&self.service).await {
            // The entry has the user of before.
            Ok(()) => {
                self.lookup_entry = None;
                true
            }
            // The store cannot tell now. The next request checks again, and the store refuses this
            // one anyway.
            Err(error) if error.kind.is_retryable() => true,
            Err(error) => {
                count(&self.service.instruments.counts.revalidations_refused);
                tracing::info!(peer = %self.peer, %error, "credentials ceased to be valid");
                for request in self.in_flight.values() {
                    request.cancel.cancel();
                }
                encode_error(&mut self.output, 0, &error);
                self.close(Closing::Finish);
                false
            }
        }
    }

    pub(super) fn look_up(&mut self, lookups: &mut Lookups, received: Instant) {
        if lookups.is_empty() {
            return;
        }
        self.tell_behind();
        let Stage::Open(session) = &self.stage else {
            return;
        };
        let out = (&mut self.output, &mut self.lookup_entry);
        let taken = lookups.look_up(&session.requester, &self.outbox, received, out);
        for request in taken.begun {
            let cancel = Arc::new(Cancel::default());
            if let Some(bytes) = self.request_bytes.take(0).zip(self.service.admission.request_bytes.take(0))
            {
                self.in_flight.entry(request).or_insert(InFlight {
                    cancel,
                    patience: Patience::None,
                    credit: None,
                    _bytes: bytes,
                });
            }
        }
        for request in taken.ended {
            self.in_flight.remove(&request);
        }
        self.tell_output();
    }

    /// Reports bytes that are no valid frames of this conversation, and ends it.
    pub(super) fn refuse_frame(&mut self, error: &FrameError) {
        count(&self.service.instruments.counts.frames_refused);
        tracing::info!(peer = %self.peer, %error, "not the native protocol");
        self.refuse(Error::from(error.clone()));
    }

    pub(super) fn refuse(&mut self, error: Error) {
        encode_error(&mut self.output, 0, &error);
        self.close(Closing::Finish);
    }

    async fn take_frame(&mut self, raw: RawFrame, received: Instant, lookups: &mut Lookups) {
        let (request, bytes) = (raw.request, raw.body.len());
        let frame = match raw.decode() {
            Ok(frame) => frame,
            Err(error) => {
                match error.answerable_request() {
                    Some(request) if matches!(self.stage, Stage::Open(_)) => {
                        count(&self.service.instruments.counts.frames_refused);
                        encode_error(&mut self.output, request, &Error::from(error));
                    }
                    _ => self.refuse_frame(&error),
                }
                return;
            }
        };
        let (consistency, past) = match &frame {
            Frame::Request(asked) => (asked.options.consistency, asked.options.past),
            Frame::Batch(batch) => (batch.consistency, batch.past),
            _ => (None, None),
        };
        for (is_said, feature, what) in [
            (consistency.is_some(), features::CONSISTENCY, "consistency"),
            (past.is_some(), features::PAST, "past state"),
        ] {
            if is_said && self.features & feature == 0 {
                count(&self.service.instruments.counts.frames_refused);
                let why =
                    format!("a {what} is said, and the feature for it is not in force on this connection");
                return self.refuse(Error::invalid(why));
            }
        }
        match (&self.stage, frame) {
            (Stage::Hello, Frame::Hello(hello)) => self.take_hello(&hello),
            (Stage::Authenticate, Frame::Authenticate(authenticate)) => {
                self.take_authenticate(authenticate).await;
            }
            (_, Frame::Ping(echo)) => encode_pong(&mut self.output, echo),
            (_, Frame::Pong(_)) => {}
            (_, Frame::Goodbye { .. }) => self.close(Closing::Finish),
            (Stage::Open(_), Frame::Request(asked)) => {
                self.take_request(request, asked, bytes, received, lookups);
            }
            (Stage::Open(_), Frame::Batch(batch)) => {
                self.take_batch(request, batch, bytes, received, lookups);
            }
            // Both may arrive after the request has ended, and are ignored then.
            (Stage::Open(_), Frame::Credit { parts }) => {
                if let Some(credit) = self.in_flight.get(&request).and_then(|request| request.credit.as_ref())
                {
                    tasks::grant(credit, parts);
                }
            }
            (Stage::Open(_), Frame::Cancel) => {
                if let Some(in_flight) = self.in_flight.get(&request) {
                    in_flight.cancel.cancel();
                }
            }
            (Stage::Open(_), Frame::Error(_)) => self.close(Closing::Finish),
            (Stage::Hello | Stage::Authenticate, Frame::Request(_) | Frame::Batch(_)) => {
                count(&self.service.instruments.counts.authentications_refused);
                self.refuse(Error::new(ErrorKind::Unauthenticated, "say who you are before you ask"));
            }
            (_, frame) => {
                count(&self.service.instruments.counts.frames_refused);
                let name = frame.frame_type().name();
                self.refuse(Error::invalid(format!("a {name} frame has no place here")));
            }
        }
    }

    fn take_hello(&mut self, hello: &Hello) {
        let Some(version) = hello.choose_version() else {
            self.refuse(Error::invalid(format!(
                "the client speaks versions {} to {} of the protocol, this server {PROTOCOL_VERSION_MIN} to \
                 {PROTOCOL_VERSION}: update the older of the two",
                hello.version_min, hello.version_max
            )));
            return;
        };
        tracing::debug!(peer = %self.peer, program = hello.client, version, "hello");
        self.features = hello.common_features();
        if self.service.catalogue.store().following().is_none() {
            self.features &= !(features::FOLLOWER | features::BEHIND);
        }
        let limits = &self.service.limits;
        let saturated = |value: usize| u32::try_from(value).unwrap_or(u32::MAX);
        let ack = HelloAck {
            version,
            features: self.features,
            limits: exacat_wire::native::Limits {
                frame_bytes_max: saturated(limits.frame_bytes_max),
                requests_in_flight_max: saturated(limits.requests_per_connection_max),
                batch_operations_max: saturated(limits.batch_operations_max()),
                idle_ms_max: u32::try_from(limits.idle_time.as_millis()).unwrap_or(u32::MAX),
            },
            server: concat!("exacat/", env!("CARGO_PKG_VERSION")).to_owned(),
            catalogue: self.service.catalogue_id,
            timeline: self.service.catalogue.store().timelines().current(),
            authentication_required: !self.service.anonymous_reads,
            time: self.service.catalogue.now(),
        };
        encode_hello_ack(&mut self.output, &ack);
        self.stage = Stage::Authenticate;
    }

    async fn take_authenticate(&mut self, authenticate: Authenticate) {
        match Session::open(&self.service, &self.peer, authenticate).await {
            Ok(session) => {
                tracing::debug!(peer = %self.peer, user = ?session.identity().user, "authenticated");
                encode_authenticated(&mut self.output, &session.identity());
                self.decoder.set_frame_bytes_max(self.service.limits.frame_bytes_max);
                if session.requester.caller.user().is_some() {
                    self.slot.known();
                }
                self.stage = Stage::Open(Box::new(session));
            }
            Err(error) => {
                count(&self.service.instruments.counts.authentications_refused);
                tracing::info!(peer = %self.peer, %error, "authentication refused");
                self.refuse(error);
            }
        }
    }
}
