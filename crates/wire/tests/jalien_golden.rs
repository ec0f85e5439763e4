//! Answers byte for byte as `alien.py` 1.7.0 was seen to accept them, recorded on the wire.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use exacat_wire::jalien::{AnswerWriter, Item, Metadata, Style};

fn jdoe() -> Metadata {
    Metadata { user: "jdoe".into(), currentdir: "/alice/cern.ch/user/j/jdoe/".into(), ..Metadata::default() }
}

fn answer(style: Style, items: &[Item], metadata: &Metadata) -> String {
    let mut writer = AnswerWriter::new(style);
    for item in items {
        writer.push(item);
    }
    String::from_utf8(writer.finish(metadata)).unwrap()
}

#[test]
fn pwd() {
    let home = "/alice/cern.ch/user/j/jdoe/";
    assert_eq!(
        answer(Style::default(), &[Item::new().with("pwd", home).saying(home)], &jdoe()),
        r#"{"metadata": {"exitcode": "0", "error": "", "user": "jdoe", "currentdir": "/alice/cern.ch/user/j/jdoe/"}, "results": [{"pwd": "/alice/cern.ch/user/j/jdoe/", "message": "/alice/cern.ch/user/j/jdoe/"}]}"#
    );
}

#[test]
fn an_error() {
    assert_eq!(
        answer(Style::default(), &[], &jdoe().failed(2, "/nope")),
        r#"{"metadata": {"exitcode": "2", "error": "No such file or directory : /nope", "user": "jdoe", "currentdir": "/alice/cern.ch/user/j/jdoe/"}, "results": []}"#
    );
}

#[test]
fn fields_without_texts_and_with_the_time_it_took() {
    let items = [Item::new().with("lfn", "/a/b").with("size", "11").saying("File: /a/b")];
    let metadata = Metadata { timing_ms: Some(3), ..jdoe() };
    assert_eq!(
        answer(Style { no_message: true, no_keys: false }, &items, &metadata),
        r#"{"metadata": {"exitcode": "0", "error": "", "user": "jdoe", "currentdir": "/alice/cern.ch/user/j/jdoe/", "timing_ms": "3"}, "results": [{"lfn": "/a/b", "size": "11"}]}"#
    );
}
