//! Attributes of events as CloudEvents 1.0, for the sinks that send them so.

use exacat_model::{Guid, TimelineId};

use crate::batch::{Head, Op};
use crate::json::put_number;

/// Version of the specification.
pub(crate) const SPEC_VERSION: &str = "1.0";
/// Type of the data of an event.
pub(crate) const DATA_TYPE: &str = "application/json";

/// Attributes that events of a feed have in common.
#[derive(Clone, Default)]
pub(crate) struct Attributes {
    /// Source of all events.
    pub source: String,
    /// Beginning of all ids.
    prefix: String,
}

impl Attributes {
    pub(crate) fn new(catalogue: Guid, timeline: TimelineId) -> Self {
        Attributes { source: format!("/exacat/{catalogue}"), prefix: format!("{catalogue}.{timeline}.") }
    }

    /// Adds the id of an event, which only its repetitions share.
    pub(crate) fn put_id(&self, out: &mut Vec<u8>, head: &Head) {
        out.extend_from_slice(self.prefix.as_bytes());
        put_number(out, head.revision.0);
        out.push(b'.');
        put_number(out, head.index);
        if head.op == Op::Row {
            // A row is known by its version too: a copy that is sent again may have later ones.
            out.push(b'.');
            put_number(out, head.version);
        } else if head.index == 0 {
            // A notice may have the revision of a change.
            out.push(b'.');
            out.extend_from_slice(head.op.name().as_bytes());
        }
    }
}

/// Adds the type of an event.
pub(crate) fn put_type(out: &mut Vec<u8>, op: &str) {
    out.extend_from_slice(b"exacat.");
    out.extend_from_slice(op.as_bytes());
}
