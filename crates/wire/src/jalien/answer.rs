//! Answers of JAliEn's protocol: JSON objects of `metadata` (exit code, user, directory) and
//! `results`.

use super::errno;
use super::request::Style;

/// Value of a field. All values are texts, as in JAliEn; clients rely on it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Field {
    /// A text.
    Text(String),
    /// Names and texts.
    Map(Vec<(String, String)>),
}

/// A result: fields for programs, and a text for people.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Item {
    fields: Vec<(&'static str, Field)>,
    message: Option<String>,
}

impl Item {
    /// Makes an empty result.
    pub fn new() -> Self {
        Item::default()
    }

    /// Makes a result with only a text for people.
    pub fn text(message: impl Into<String>) -> Self {
        Item { fields: Vec::new(), message: Some(message.into()) }
    }

    /// Adds a field.
    #[must_use]
    pub fn with(mut self, name: &'static str, value: impl Into<String>) -> Self {
        self.fields.push((name, Field::Text(value.into())));
        self
    }

    /// Adds a field of names and texts.
    #[must_use]
    pub fn with_map(mut self, name: &'static str, value: Vec<(String, String)>) -> Self {
        self.fields.push((name, Field::Map(value)));
        self
    }

    /// Sets the text for people.
    #[must_use]
    pub fn saying(mut self, message: impl Into<String>) -> Self {
        self.message = Some(message.into());
        self
    }
}

/// Fields of an answer beside its results. `Default` is a success without user and directory.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Metadata {
    /// 0, or the number of the error.
    pub exitcode: i32,
    /// Description of the fault; empty on success.
    pub error: String,
    /// Name of the user.
    pub user: String,
    /// Directory that relative paths now start from, with a slash at its end.
    pub currentdir: String,
    /// Duration, if the client asked for it.
    pub timing_ms: Option<u64>,
}

/// Writes one answer, whole or in parts.
#[derive(Debug)]
pub struct AnswerWriter {
    style: Style,
    results: Vec<u8>,
    items: u64,
    streams: bool,
}

impl AnswerWriter {
    /// Makes an answer without results.
    pub fn new(style: Style) -> Self {
        AnswerWriter { style, results: Vec::new(), items: 0, streams: false }
    }

    /// Adds a result. Omits it if the client wants none of its content.
    pub fn push(&mut self, item: &Item) {
        let fields: &[_] = if self.style.no_keys { &[] } else { &item.fields };
        let message = item.message.as_deref().filter(|_| !self.style.no_message);
        if fields.is_empty() && message.is_none() {
            return;
        }
        self.results.extend_from_slice(if self.items == 0 { b"{" } else { b", {" });
        self.items += 1;
        let mut first = true;
        for (name, value) in fields {
            self.name(name, &mut first);
            match value {
                Field::Text(text) => string(&mut self.results, text),
                Field::Map(entries) => {
                    self.results.push(b'{');
                    let mut first = true;
                    for (name, value) in entries {
                        self.name(name, &mut first);
                        string(&mut self.results, value);
                    }
                    self.results.push(b'}');
                }
            }
        }
        if let Some(message) = message {
            self.name("message", &mut first);
            string(&mut self.results, message.trim_end_matches('\n'));
        }
        self.results.push(b'}');
    }

    fn name(&mut self, name: &str, first: &mut bool) {
        if !std::mem::take(first) {
            self.results.extend_from_slice(b", ");
        }
        string(&mut self.results, name);
        self.results.extend_from_slice(b": ");
    }

    /// Returns the bytes of results that no part has taken yet.
    pub fn waiting(&self) -> usize {
        self.results.len()
    }

    /// Takes the present bytes as a part of the answer. The answer then does not begin with
    /// `metadata`.
    pub fn take_part(&mut self) -> Vec<u8> {
        let results = std::mem::take(&mut self.results);
        if std::mem::replace(&mut self.streams, true) {
            return results;
        }
        let mut part = b"{\"results\": [".to_vec();
        part.extend_from_slice(&results);
        part
    }

    /// Says whether a part was taken.
    pub fn streams(&self) -> bool {
        self.streams
    }

    /// Returns the answer, or its last part if parts were taken.
    pub fn finish(mut self, metadata: &Metadata) -> Vec<u8> {
        let mut end = Vec::new();
        if self.streams {
            end.append(&mut self.results);
            end.extend_from_slice(b"], \"metadata\": ");
            write_metadata(&mut end, metadata);
        } else {
            end.reserve(self.results.len() + 256);
            end.extend_from_slice(b"{\"metadata\": ");
            write_metadata(&mut end, metadata);
            end.extend_from_slice(b", \"results\": [");
            end.append(&mut self.results);
            end.push(b']');
        }
        end.push(b'}');
        end
    }
}

impl Metadata {
    /// Marks the answer as failed, with the number of the error and a description of the fault.
    #[must_use]
    pub fn failed(mut self, number: i32, detail: &str) -> Self {
        self.exitcode = number;
        self.error = errno::described(number, detail);
        self
    }
}

fn write_metadata(out: &mut Vec<u8>, metadata: &Metadata) {
    let exitcode = metadata.exitcode.to_string();
    let timing = metadata.timing_ms.map(|ms| ms.to_string());
    let members = [
        ("exitcode", Some(&exitcode)),
        ("error", Some(&metadata.error)),
        ("user", Some(&metadata.user)),
        ("currentdir", Some(&metadata.currentdir)),
        ("timing_ms", timing.as_ref()),
    ];
    for (index, (name, value)) in members.into_iter().enumerate() {
        let Some(value) = value else { continue };
        out.extend_from_slice(if index == 0 { b"{" } else { b", " });
        string(out, name);
        out.extend_from_slice(b": ");
        string(out, value);
    }
    out.push(b'}');
}

/// Appends a JSON string.
fn string(out: &mut Vec<u8>, text: &str) {
    // Neither a write to memory nor the conversion of a text to JSON can fail.
    let written = serde_json::to_writer(&mut *out, text);
    debug_assert!(written.is_ok());
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn read(bytes: &[u8]) -> Value {
        serde_json::from_slice(bytes).unwrap()
    }

    fn metadata() -> Metadata {
        Metadata { user: "jdoe".into(), currentdir: "/home/".into(), ..Metadata::default() }
    }

    #[test]
    fn whole_and_in_parts_an_answer_is_the_same() {
        let item = Item::new().with("name", "a\"b\u{1}ü").saying("line\n\n");
        let mut whole = AnswerWriter::new(Style::default());
        let mut parts = AnswerWriter::new(Style::default());
        let mut bytes = Vec::new();
        for round in 0..3 {
            whole.push(&item);
            parts.push(&item);
            assert!(parts.waiting() > 0);
            if round != 1 {
                bytes.append(&mut parts.take_part());
            }
        }
        assert!(parts.streams() && !whole.streams());
        bytes.append(&mut parts.finish(&metadata()));
        let whole = whole.finish(&metadata());
        assert!(whole.starts_with(b"{\"metadata\": "));
        assert_eq!(read(&whole), read(&bytes));
        assert_eq!(read(&whole)["results"][0], json!({"name": "a\"b\u{1}ü", "message": "line"}));
    }

    #[test]
    fn clients_get_what_they_want() {
        let both = Item::new().with("pwd", "/").with_map("se", vec![("A".into(), "b".into())]).saying("/");
        let answers = |style| {
            let mut writer = AnswerWriter::new(style);
            writer.push(&both);
            writer.push(&Item::text("text"));
            writer.push(&Item::new().with("key", "value"));
            read(&writer.finish(&metadata()))["results"].clone()
        };
        assert_eq!(
            answers(Style { no_message: true, no_keys: false }),
            json!([{"pwd": "/", "se": {"A": "b"}}, {"key": "value"}])
        );
        assert_eq!(
            answers(Style { no_message: false, no_keys: true }),
            json!([{"message": "/"}, {"message": "text"}])
        );
        assert_eq!(answers(Style { no_message: true, no_keys: true }), json!([]));
    }

    #[test]
    fn an_empty_answer_in_parts_is_whole() {
        let mut writer = AnswerWriter::new(Style::default());
        let mut bytes = writer.take_part();
        bytes.append(&mut writer.finish(&metadata().failed(2, "/nope")));
        assert_eq!(
            read(&bytes),
            json!({"results": [], "metadata": {"exitcode": "2", "user": "jdoe", "currentdir": "/home/",
                "error": "No such file or directory : /nope"}})
        );
    }
}
