//! Any text gives a request or an error, and so do its options and paths. Every answer to it is JSON.
#![no_main]

use exacat_model::Lfn;
use exacat_wire::jalien::{AnswerWriter, Item, OptionSet, Metadata, Options, Request, path};
use libfuzzer_sys::fuzz_target;

const KNOWN: OptionSet = OptionSet { flags: &["l", "a", "F", "bulk"], valued: &["s", "x", "site"] };

fuzz_target!(|text: &str| {
    let home = Lfn::parse("/home").expect("a path");
    if let Ok(lfn) = path::resolve(text, &home, &home) {
        assert_eq!(path::resolve(lfn.as_str(), &home, &home).expect("it is one"), lfn);
    }
    let Ok(request) = Request::parse(text) else { return };
    let mut writer = AnswerWriter::new(request.style);
    writer.push(&Item::new().with("command", request.shown_command()).saying(&*request.command));
    let error = match Options::parse(KNOWN, request.options) {
        Ok(options) => options.rest.concat(),
        Err(error) => error.to_string(),
    };
    let answer = writer.finish(&Metadata { error: error.clone(), ..Metadata::default() });
    let again: serde_json::Value = serde_json::from_slice(&answer).expect("an answer is JSON");
    assert_eq!(again["metadata"]["error"], error);
});
