//! The other parsers of the vocabulary: what is read prints as a form that reads as the same, and has one
//! encoding.
#![no_main]

use std::fmt::{Debug, Display};

use exacat_model::codec::{Decode, Encode};
use exacat_model::{
    AccountName, Checksum, Checksums, Error, Filter, Guid, Mode, Pattern, Pfn, Record, SeName, Tag,
    TagExpression, TagKey, TagValue, TimeMs,
};
use libfuzzer_sys::fuzz_target;

/// Text that is accepted comes back as the same value through print and parse, and through its bytes.
fn text<T>(given: &str, parse: impl Fn(&str) -> Result<T, Error>)
where
    T: Display + Debug + PartialEq + Encode + Decode,
{
    if let Ok(value) = parse(given) {
        assert_eq!(parse(&value.to_string()).as_ref(), Ok(&value), "{given:?}");
        encoded(&value);
    }
}

fn encoded<T: Debug + PartialEq + Encode + Decode>(value: &T) {
    assert_eq!(T::from_bytes(&value.to_bytes()).as_ref(), Ok(value));
}

/// Bytes that are accepted are the value's only ones.
fn bytes<T: Debug + Encode + Decode>(given: &[u8]) {
    if let Ok(value) = T::from_bytes(given) {
        assert_eq!(value.to_bytes(), given, "{value:?}");
    }
}

fuzz_target!(|data: &[u8]| {
    bytes::<Pfn>(data);
    bytes::<Checksums>(data);
    bytes::<Tag>(data);
    bytes::<TagExpression>(data);
    bytes::<Filter>(data);
    bytes::<Mode>(data);
    bytes::<Record>(data);

    let Ok(given) = std::str::from_utf8(data) else { return };
    text(given, Pfn::parse);
    text(given, Guid::parse);
    text(given, Checksum::parse);
    text(given, SeName::parse);
    text(given, AccountName::parse);
    text(given, TagKey::parse);
    if let Ok(guid) = Guid::parse(given) {
        let (sum, hash) = guid.storage_hash();
        assert!(sum < 16);
        let path = guid.storage_path();
        assert_eq!(path.as_str(), format!("/{sum:02}/{hash:05}/{guid}"));
        assert_eq!(Guid::of_storage_path(path.as_str()), Some(guid));
    }
    if let Ok(value) = TagValue::parse(given) {
        encoded(&value);
    }
    if let Ok(tag) = Tag::parse(given) {
        encoded(&tag);
    }
    if let Ok(expression) = TagExpression::parse(given) {
        encoded(&expression);
    }
    if let Ok(time) = TimeMs::parse(given) {
        assert_eq!(TimeMs::parse(&time.to_string()), Ok(time), "{given:?}");
    }
    let _ = Mode::parse(given);
    for pattern in [Pattern::Glob(given.to_owned()), Pattern::Regex(given.to_owned())] {
        if let Ok(matcher) = pattern.compile() {
            matcher.matches("AOD.root", || "/alice/AOD.root".to_owned());
        }
    }
});
