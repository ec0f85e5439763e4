//! Any text as the path or query of a URL: decoded once, to the same name in the REST API and in WebDAV,
//! and a name survives the way into a URL and back.
#![no_main]

use exacat_model::Lfn;
use exacat_model::limits::LFN_BYTES_MAX;
use exacat_wire::percent;
use exacat_wire::webdav::path;
use libfuzzer_sys::fuzz_target;

/// Encodes a text as a URL has it.
fn encoded(text: &str) -> String {
    let mut out = Vec::new();
    percent::push_encoded(&mut out, text);
    assert!(out.iter().all(|byte| byte.is_ascii_graphic() && !b"?#+&=\"<>\\".contains(byte)));
    String::from_utf8(out).expect("encoded text is ASCII")
}

/// Checks that a name is one below the root, and that it reads as itself.
fn check(lfn: &Lfn) {
    assert!(lfn.as_str().starts_with('/') && lfn.as_str().len() <= LFN_BYTES_MAX);
    assert!(lfn.components().all(|name| !name.is_empty() && name != "." && name != ".."));
    for prefix in ["", "/dav"] {
        let url = path::encode(lfn, prefix, lfn.must_be_directory());
        assert!(url.starts_with(prefix));
        let again = path::decode(&url, prefix).expect("an encoded path decodes");
        assert_eq!((&again, again.must_be_directory()), (lfn, lfn.must_be_directory()));
    }
}

fuzz_target!(|data: &[u8]| {
    let Ok(text) = std::str::from_utf8(data) else { return };
    // Whatever a text has in it, percent signs too: one encoding, one decoding.
    let once = encoded(text);
    assert_eq!(percent::decode(&once, false).as_deref(), Ok(text));
    assert_eq!(percent::decode(&once, true).as_deref(), Ok(text));
    assert_eq!(percent::decode(&encoded(&once), false).as_deref(), Ok(once.as_str()));
    for plus_is_blank in [false, true] {
        if let Ok(decoded) = percent::decode(text, plus_is_blank) {
            assert!(decoded.len() <= text.len());
        }
    }
    let rest = percent::lfn(&format!("/{text}")).ok();
    if let Some(lfn) = &rest {
        check(lfn);
    }
    // An encoded slash separates components in WebDAV only, and slashes may repeat in REST only.
    if let Ok(lfn) = path::decode(&format!("/dav/{text}"), "/dav") {
        check(&lfn);
        match &rest {
            Some(rest) => assert_eq!(rest, &lfn, "both front ends name the same entry"),
            None => assert!(text.to_ascii_lowercase().contains("%2f")),
        }
    }
    // The query of a request is split before it is decoded.
    for pair in text.split('&') {
        let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
        if let (Ok(key), Ok(value)) = (percent::decode(key, true), percent::decode(value, true)) {
            let again = format!("{}={}", encoded(&key), encoded(&value));
            let (first, second) = again.split_once('=').expect("encoded text has no '='");
            assert_eq!(percent::decode(first, true), Ok(key));
            assert_eq!(percent::decode(second, true), Ok(value));
        }
    }
});
