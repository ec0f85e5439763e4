//! Form of log lines. Each line of a request has its number, its user and its client.

use std::fmt::{self, Write as _};

use exacat_server::current_request;
use jiff::Timestamp;
use serde_json::{Map, Value, json};
use tracing::field::{Field, Visit};
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::{FmtContext, FormatEvent, FormatFields};
use tracing_subscriber::registry::LookupSpan;

use crate::quoting::harmless;

/// Name of the field with the number of a request.
const REQUEST: &str = "request";

/// Formats log lines.
pub(super) struct Lines {
    pub is_json: bool,
    pub colours: bool,
}

impl<S, N> FormatEvent<S, N> for Lines
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
{
    fn format_event(
        &self,
        _context: &FmtContext<'_, S, N>,
        mut writer: Writer<'_>,
        event: &Event<'_>,
    ) -> fmt::Result {
        let mut fields = Fields::default();
        event.record(&mut fields);
        // A line about a request that is not the current one names it itself.
        if event.metadata().fields().field(REQUEST).is_none()
            && let Some(request) = current_request()
        {
            fields.put(REQUEST, request.number().into());
            fields.put("user", request.user().into());
            if let Some(client) = request.client() {
                fields.put("client", client.to_string().into());
            }
        }
        // Microseconds, with all digits, so that lines have columns.
        let now = format!("{:.6}", Timestamp::now());
        let (level, target) = (event.metadata().level(), event.metadata().target());
        if self.is_json {
            let level = level.as_str();
            let fields: Map<String, Value> =
                fields.0.into_iter().map(|(name, value)| (name.to_owned(), value)).collect();
            let line = json!({"timestamp": now, "level": level, "fields": fields, "target": target});
            return writeln!(writer, "{line}");
        }
        let (colour, end) = if self.colours { (colour(level), "\x1b[0m") } else { ("", "") };
        writeln!(writer, "{now} {colour}{level:>5}{end} {target}: {}", harmless(&fields.text()))
    }
}

fn colour(level: &Level) -> &'static str {
    match *level {
        Level::ERROR => "\x1b[31m",
        Level::WARN => "\x1b[33m",
        Level::INFO => "\x1b[32m",
        Level::DEBUG => "\x1b[34m",
        Level::TRACE => "\x1b[35m",
    }
}

/// Name of the field with the text of an event.
const MESSAGE: &str = "message";

/// The fields of an event, in their order.
#[derive(Default)]
struct Fields(Vec<(&'static str, Value)>);

impl Fields {
    fn put(&mut self, name: &'static str, value: Value) {
        self.0.push((name, value));
    }

    /// Returns the message, and the other fields as `name=value`.
    fn text(&self) -> String {
        let message = self.0.iter().find(|(name, _)| *name == MESSAGE);
        let mut text = message.and_then(|(_, text)| text.as_str()).unwrap_or_default().to_owned();
        for (name, value) in self.0.iter().filter(|(name, _)| *name != MESSAGE) {
            let _ = match value {
                Value::String(value) if is_bare(value) => write!(text, " {name}={value}"),
                value => write!(text, " {name}={value}"),
            };
        }
        text
    }
}

/// True if a value needs no quotes.
fn is_bare(value: &str) -> bool {
    !value.is_empty()
        && !value.contains(|one: char| one.is_whitespace() || one.is_control() || "\"=\\".contains(one))
}

impl Visit for Fields {
    fn record_u64(&mut self, field: &Field, value: u64) {
        self.put(field.name(), value.into());
    }

    fn record_i64(&mut self, field: &Field, value: i64) {
        self.put(field.name(), value.into());
    }

    fn record_bool(&mut self, field: &Field, value: bool) {
        self.put(field.name(), value.into());
    }

    fn record_f64(&mut self, field: &Field, value: f64) {
        self.put(field.name(), value.into());
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.put(field.name(), value.into());
    }

    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.put(field.name(), format!("{value:?}").into());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Property: a value can forge neither a second line nor a second field.
    #[test]
    fn line_is_one_line_whatever_its_values_are() {
        let mut fields = Fields::default();
        fields.put(MESSAGE, "done".into());
        fields.put("lfn", "/a\nERROR x\u{202e} request=7".into());
        fields.put("user", "alice".into());
        fields.put("empty", "".into());
        fields.put("count", 3.into());
        let text = harmless(&fields.text()).to_string();
        assert_eq!(text, "done lfn=\"/a\\nERROR x\\u{202e} request=7\" user=alice empty=\"\" count=3");
    }
}
