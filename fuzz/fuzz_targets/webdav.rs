//! Any body, path or header of WebDAV gives a request or an error. Properties and paths survive the way
//! into the catalogue and back, and every answer is well-formed.
#![no_main]

use exacat_model::{Checksums, Tag, TagKey, TagValue, TimeMs};
use exacat_wire::webdav::headers::{
    depth, digest_header, overwrite, read_digest, read_repr_digest, repr_digest_header, want_digest,
    want_repr_digest,
};
use exacat_wire::webdav::request::{propfind, proppatch};
use exacat_wire::webdav::{
    Destination, Metalink, Multistatus, PropertyName, Propfind, Row, Update, Value, dead_property_key, path,
    property_of_key, status,
};
use libfuzzer_sys::fuzz_target;

/// Names in a request whose answer this target reads again. The reader has a limit of attributes, and
/// the answer declares a namespace for each name.
const NAMES_MAX: usize = 32;

/// Says whether the reader's limits allow a value inside of an answer, which adds depth and declarations.
fn fits(value: &TagValue) -> bool {
    let Value::Xml(xml) = Value::of_tag(value) else { return true };
    let declarations: String = (0..NAMES_MAX + 16).map(|n| format!(" xmlns:d{n}='u'")).collect();
    let inside = format!("xml:<a{declarations}>{}{xml}{}</a>", "<a>".repeat(8), "</a>".repeat(8));
    matches!(Value::of_tag(&TagValue::Text(inside)), Value::Xml(_))
}

/// Reads a document by way of a tag, whose value is XML only if it is well-formed.
fn check(document: &[u8]) {
    let text = std::str::from_utf8(document).expect("an answer is UTF-8");
    let (_, root) = text.split_once('\n').expect("an answer begins with its declaration");
    let value = Value::of_tag(&TagValue::Text(format!("xml:{root}")));
    assert!(matches!(value, Value::Xml(_)), "not well-formed: {text}");
}

fn answer(request: &Propfind, text: &str, tags: &[Tag]) {
    let mut writer = Multistatus::new(request);
    let mut out = Vec::new();
    writer.begin(&mut out);
    for is_directory in [false, true] {
        let row = Row {
            base: "/dav/",
            path: text,
            name: text,
            is_directory,
            size: Some(7),
            modified: TimeMs(u64::MAX),
            created: TimeMs(0),
            etag: text,
            quota_used: Some(u64::MAX),
            quota_available: None,
            owner: text,
            group: "",
            mode: u16::MAX,
            checksums: None,
            tags,
        };
        writer.response(&mut out, &row);
    }
    writer.end(&mut out);
    check(&out);
}

fuzz_target!(|data: &[u8]| {
    let shown = String::from_utf8_lossy(data);
    if let Ok(request) = propfind(data) {
        let names = match &request {
            Propfind::All { include: names } | Propfind::Properties(names) => names.as_slice(),
            Propfind::Names => &[],
        };
        if names.len() < NAMES_MAX {
            answer(&request, &shown, &[]);
        }
    }
    if let Ok(updates) = proppatch(data) {
        let mut tags = Vec::new();
        let mut outcomes: Vec<(PropertyName, u16)> = Vec::new();
        for update in updates {
            let key = dead_property_key(update.name());
            outcomes.push((update.name().clone(), if key.is_ok() { 200 } else { 403 }));
            let Ok(key) = key else { continue };
            assert_eq!(property_of_key(&key), *update.name());
            if let Update::Set(_, value) = update
                && let Ok(tag) = value.to_tag()
            {
                assert_eq!(Value::of_tag(&tag), value);
                if fits(&tag) {
                    tags.push(Tag { key, value: tag });
                }
            }
        }
        tags.sort_by(|one, other| one.key.cmp(&other.key));
        answer(&Propfind::All { include: Vec::new() }, "x", &tags);
        let mut out = Vec::new();
        status::proppatch(&mut out, "/dav/x", &outcomes);
        check(&out);
    }
    let Ok(text) = std::str::from_utf8(data) else { return };
    for prefix in ["", "/dav"] {
        if let Ok(lfn) = path::decode(text, prefix) {
            let encoded = path::encode(&lfn, prefix, lfn.must_be_directory());
            let again = path::decode(&encoded, prefix).expect("an encoded path decodes");
            assert_eq!((&again, again.must_be_directory()), (&lfn, lfn.must_be_directory()));
        }
    }
    let (destination, host) = text.split_once('\n').unwrap_or((text, "localhost"));
    for host in [host, "localhost"] {
        if let Ok(Destination::Here(lfn)) = Destination::parse(destination, host, "/dav") {
            // The same place by a path of its own, whatever scheme, host and query the header has.
            let path = path::encode(&lfn, "/dav", lfn.must_be_directory());
            assert_eq!(Destination::parse(&path, host, "/dav"), Ok(Destination::Here(lfn)));
        }
    }
    for checksum in read_digest(text).into_iter().chain(read_repr_digest(text)) {
        let algorithm = [checksum.algorithm()];
        let checksums = Checksums::one(checksum);
        let digest = digest_header(&checksums, &algorithm).expect("a known checksum");
        let repr = repr_digest_header(&checksums, &algorithm).expect("a known checksum");
        assert_eq!((read_digest(&digest), read_repr_digest(&repr)), (vec![checksum], vec![checksum]));
    }
    let (_, _) = (depth(Some(text)), overwrite(Some(text)));
    for wanted in [want_digest(text), want_repr_digest(text)] {
        assert!(wanted.len() <= 5);
        let none = Checksums::none();
        assert!(digest_header(&none, &wanted).is_none() && repr_digest_header(&none, &wanted).is_none());
    }
    let mut out = Vec::new();
    let urls = [text.to_owned()];
    Metalink { name: text, size: Some(7), checksums: &Checksums::none(), urls: &urls }.write(&mut out);
    check(&out);
    let value = TagValue::Text(text.to_owned());
    if fits(&value) {
        let tags = [Tag { key: TagKey::parse("t").expect("a key"), value }];
        answer(&Propfind::All { include: Vec::new() }, text, &tags);
    }
});
