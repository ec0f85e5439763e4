//! LFNs: what is read prints as one form that reads as the same, and its parts make it up again.
#![no_main]

use exacat_model::codec::{Decode, Encode, Reader};
use exacat_model::limits::{DEPTH_MAX, LFN_BYTES_MAX, NAME_BYTES_MAX};
use exacat_model::{Lfn, Name, Operation};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    if let Ok(lfn) = Lfn::from_bytes(data) {
        assert_eq!(lfn.to_bytes(), data);
    }
    if let Ok(name) = Name::from_bytes(data) {
        assert_eq!(name.to_bytes(), data);
    }
    let Ok(text) = std::str::from_utf8(data) else { return };
    if let Ok(name) = Name::parse(text) {
        assert_eq!(name.as_str(), text);
        assert_eq!(Lfn::root().join(&name).file_name(), Some(name));
    }
    let Ok(lfn) = Lfn::parse(text) else { return };
    let canonical = lfn.as_str();
    assert!(canonical.starts_with('/') && !canonical.contains("//"));
    assert!(canonical.len() == 1 || !canonical.ends_with('/'));
    assert!(canonical.len() <= LFN_BYTES_MAX && lfn.depth() <= DEPTH_MAX);
    assert!(lfn.components().all(|name| !name.is_empty() && name.len() <= NAME_BYTES_MAX));
    assert!(lfn.components().all(|name| name != "." && name != ".."));
    assert_eq!(Lfn::parse(canonical).as_ref(), Ok(&lfn));
    assert_eq!(Lfn::from_names(lfn.components()), lfn);
    let bare = lfn.clone().of_anything();
    assert_eq!((bare.as_str(), bare.must_be_directory()), (canonical, false));
    assert_eq!(Lfn::from_bytes(&bare.to_bytes()).as_ref(), Ok(&bare));
    // Only a request keeps the slash that requires a directory.
    assert_eq!(Lfn::from_bytes(&lfn.to_bytes()).is_ok(), !lfn.must_be_directory());
    let request = Operation::Stat { lfns: vec![lfn.clone()], follow: false };
    match Operation::decode(&mut Reader::of_request(&request.to_bytes())) {
        Ok(Operation::Stat { lfns, .. }) => {
            assert_eq!(lfns, [lfn.clone()]);
            assert_eq!(lfns[0].must_be_directory(), lfn.must_be_directory());
        }
        other => panic!("a request for {lfn:?} decodes as {other:?}"),
    }
    assert!(Lfn::root().contains(&lfn) && lfn.contains(&lfn));
    match (lfn.parent(), lfn.file_name()) {
        (Some(parent), Some(name)) => {
            assert_eq!(parent.join(&name), lfn);
            assert!(parent.contains(&lfn) && !lfn.contains(&parent));
        }
        (None, None) => assert!(lfn.is_root()),
        other => panic!("half a path: {other:?}"),
    }
});
