//! `/write` and `/api/v2/write`: lines of values, made durable before they are answered.

use std::io::Read;
use std::sync::Arc;

use bytes::Bytes;
use exacat_activity::{RequestState, phase};
use exacat_catalogue::ElementAccess;
use exacat_history::{Group, Ingest, Refused};
use exacat_model::{Error, ErrorKind, Result};
use exacat_wire::influx::Precision;
use flate2::read::MultiGzDecoder;
use hyper::body::Incoming;
use hyper::header::CONTENT_ENCODING;
use hyper::{Method, Response, StatusCode};

use super::super::answers::{Body, empty};
use super::super::call::{BodyRoom, Call, whole_in};
use super::{Asked, Refusal, WRITE, counted};
use crate::admission::Share;
use crate::elements::{apart, commit};

/// Bytes of a body of lines, as InfluxDB 1.8 has it; inflated ones as well.
const BODY_BYTES_MAX: usize = 25_000_000;
/// Bytes of a body that the thread of the connection turns into rows itself; larger ones take another.
const BODY_BYTES_AT_ONCE: usize = 512 << 10;

/// Form of a request: names of its parameters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Form {
    V1,
    V2,
}

impl Asked<'_> {
    /// Writes the lines of a body.
    pub(super) async fn write(
        &self,
        body: &mut Option<Incoming>,
        form: Form,
    ) -> std::result::Result<Response<Body>, Refusal> {
        if self.head.method != Method::POST {
            return Err(Refusal::new(StatusCode::METHOD_NOT_ALLOWED, "a write is a POST"));
        }
        let parameters = self.parameters()?;
        let precision = parameters.get("precision").unwrap_or_default();
        let (name, precision) = match form {
            Form::V1 => (parameters.get("db").unwrap_or_default(), Precision::of_v1(precision)),
            Form::V2 => (parameters.get("bucket").unwrap_or_default(), Precision::of_v2(precision)),
        };
        let bad = |text: String| Refusal::new(StatusCode::BAD_REQUEST, text);
        if name.is_empty() {
            let missing = if form == Form::V1 { "database is required" } else { "bucket is required" };
            return Err(bad(missing.to_owned()));
        }
        let (name, policy) = match (form, name.split_once('/')) {
            (Form::V2, Some((name, policy))) => (name, policy),
            _ => (name, parameters.get("rp").unwrap_or_default()),
        };
        let precision = precision.map_err(|error| bad(error.to_string()))?;
        let call = self.call(&parameters, Share::Elements).await?;
        let group = self.group(name)?;
        call.service.catalogue.check_elements(call.caller(), &group.settings(), ElementAccess::Write)?;
        if !matches!(policy, "" | "autogen" | "default") {
            return Err(bad(format!("retention policy not found: {policy}")));
        }
        let Some(body) = body.take() else { return Ok(empty(StatusCode::NO_CONTENT)) };
        let work = async {
            let mut rows = 0;
            let outcome = self.take_lines(&call, &group, (body, precision), &mut rows).await;
            (rows, outcome)
        };
        counted(&call, WRITE, work).await
    }

    /// Makes the lines of a body durable, and counts them.
    async fn take_lines(
        &self,
        call: &Call,
        group: &Arc<Group>,
        (body, precision): (Incoming, Precision),
        written: &mut u64,
    ) -> std::result::Result<Response<Body>, Refusal> {
        let bad = |text: String| Refusal::new(StatusCode::BAD_REQUEST, text);
        let (bytes, mut room) =
            whole_in(&call.service, Share::Elements, body, BODY_BYTES_MAX).await.map_err(too_large)?;
        let encoding = self.head.headers.get(CONTENT_ENCODING).map(|value| value.as_bytes());
        let bytes = match encoding {
            None | Some(b"identity") => bytes,
            Some(b"gzip") => {
                // The inflated bytes take their place before they are made: as many as there may be.
                room.fit(&call.service, bytes.len() + BODY_BYTES_MAX.min(bytes.len() * INFLATION_EXPECTED))?;
                inflate(call, bytes, &mut room).await.map_err(too_large)?
            }
            Some(other) => {
                let text = format!(
                    "the content encoding {:.40?} is not known here: gzip is",
                    String::from_utf8_lossy(other)
                );
                return Err(bad(text));
            }
        };
        let now = self.history.now_ns();
        let (mut refused, mut place) = (Refused::default(), 0);
        while place < bytes.len() {
            let (group, bytes, is_long) =
                (Arc::clone(group), bytes.clone(), bytes.len() > BODY_BYTES_AT_ONCE);
            let turned = move || {
                phase(RequestState::Decode);
                let mut ingest = Ingest::new(&group, now);
                let next = ingest.lines(&bytes, place, precision, &mut refused);
                Ok((ingest.finish(), next, refused))
            };
            let batch;
            (batch, place, refused) = match is_long {
                true => apart(turned).await?,
                false => turned()?,
            };
            phase(RequestState::Execute);
            *written += u64::from(batch.count());
            call.throttled(u64::from(batch.count())).await?;
            commit(&self.history, batch).await?;
        }
        let message = refused.message(*written);
        drop(room);
        match message {
            None => Ok(empty(StatusCode::NO_CONTENT)),
            Some(text) => Err(bad(text)),
        }
    }
}

/// Times that lines become larger when they are inflated: names repeat.
const INFLATION_EXPECTED: usize = 8;

fn too_large(error: Error) -> Refusal {
    match error.kind {
        ErrorKind::Limit => Refusal::new(StatusCode::PAYLOAD_TOO_LARGE, "Request Entity Too Large"),
        _ => Refusal::of(&error),
    }
}

/// Inflates a body, up to the most bytes that a body may have.
async fn inflate(call: &Call, bytes: Bytes, room: &mut BodyRoom) -> Result<Bytes> {
    let inflate = move || {
        let mut inflated = Vec::new();
        let most = BODY_BYTES_MAX as u64 + 1;
        match MultiGzDecoder::new(&*bytes).take(most).read_to_end(&mut inflated) {
            Ok(_) if inflated.len() > BODY_BYTES_MAX => {
                Err(Error::limit("the length of the inflated body in bytes", inflated.len(), BODY_BYTES_MAX))
            }
            Ok(_) => Ok(Bytes::from(inflated)),
            Err(error) => Err(Error::invalid(format!("the body is no gzip: {error}"))),
        }
    };
    let inflated = apart(inflate).await?;
    room.fit(&call.service, inflated.len())?;
    Ok(inflated)
}
