//! Span of a request: its facts and states, in the JSON of OTLP.

use std::net::IpAddr;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use exacat_activity::{RequestState, Times};
use exacat_model::Result;
use serde_json::{Value, json};

use super::context::TraceContext;
use crate::instruments::{Ended, OperationIndex};
use crate::randomness;

/// A request that ended now.
pub(crate) struct EndedSpan<'a> {
    pub context: Option<TraceContext>,
    pub operation: OperationIndex,
    /// Number in lists and log lines.
    pub request: u64,
    pub items: u64,
    pub user: &'a str,
    pub client: Option<IpAddr>,
    /// None if nobody waited for its end.
    pub outcome: Option<Ended>,
    pub times: &'a Times,
    pub life: Duration,
}

/// A span to export.
#[derive(Debug)]
pub(super) struct Span(Value);

/// Kind of a span: a server answers a client.
const KIND_SERVER: u32 = 2;
/// Status of a span that failed.
const STATUS_ERROR: u32 = 2;

fn text(key: &str, value: impl Into<Value>) -> Value {
    json!({"key": key, "value": {"stringValue": value.into()}})
}

fn number(key: &str, value: impl ToString) -> Value {
    // OTLP writes integers of 64 bits as text.
    json!({"key": key, "value": {"intValue": value.to_string()}})
}

impl Span {
    /// Makes the span of a request.
    pub(super) fn of(ended: &EndedSpan<'_>) -> Result<Self> {
        let end = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let start = end.saturating_sub(ended.life);
        let trace = match ended.context {
            Some(context) => context.trace,
            None => u128::from_le_bytes(randomness::bytes()?),
        };
        let mut attributes =
            vec![number("exacat.request", ended.request), number("exacat.items", ended.items)];
        if !ended.user.is_empty() {
            attributes.push(text("enduser.id", ended.user));
        }
        if let Some(client) = ended.client {
            attributes.push(text("client.address", client.to_string()));
        }
        if let Some(outcome) = ended.outcome {
            attributes.push(text("exacat.outcome", outcome.name()));
        }
        let states = RequestState::ALL.iter().zip(ended.times).filter(|(_, time)| **time > 0);
        attributes.extend(states.map(|(state, ns)| number(&format!("exacat.state.{}_ns", state.name()), ns)));
        let mut span = json!({
            "traceId": format!("{trace:032x}"),
            "spanId": format!("{:016x}", u64::from_le_bytes(randomness::bytes()?)),
            "name": ended.operation.name(),
            "kind": KIND_SERVER,
            "startTimeUnixNano": start.as_nanos().to_string(),
            "endTimeUnixNano": end.as_nanos().to_string(),
            "attributes": attributes,
        });
        if let Some(context) = ended.context {
            span["parentSpanId"] = format!("{:016x}", context.parent).into();
        }
        if let Some(Ended::Failed(kind)) = ended.outcome {
            span["status"] = json!({"code": STATUS_ERROR, "message": kind.name()});
        }
        Ok(Span(span))
    }
}

/// Returns the body of a request to a collector.
pub(super) fn document(spans: Vec<Span>) -> String {
    let spans: Vec<Value> = spans.into_iter().map(|span| span.0).collect();
    let version = env!("CARGO_PKG_VERSION");
    let resource = [
        text("service.name", "exacat"),
        text("service.version", version),
        number("process.pid", std::process::id()),
    ];
    json!({"resourceSpans": [{
        "resource": {"attributes": resource},
        "scopeSpans": [{"scope": {"name": "exacat", "version": version}, "spans": spans}],
    }]})
    .to_string()
}
