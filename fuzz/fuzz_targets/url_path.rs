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
    // The REST API parses the decoded rest of a path, WebDAV the path below its prefix.
    let rest = percent::decode(text, false).ok().and_then(|decoded| Lfn::parse(&format!("/{decoded}")).ok());
    if let Some(lfn) = &rest {
        check(lfn);
    }
    if let Ok(lfn) = path::decode(&format!("/dav/{text}"), "/dav") {
        check(&lfn);
        assert_eq!(rest.as_ref(), Some(&lfn), "both front ends name the same entry");
    }
});
