//! Any bytes of a client of XRootD give requests or an error, the same in one piece and in several. Paths in
//! them are paths or none.
#![no_main]

use exacat_wire::xrootd::path::{escaped, unescaped};
use exacat_wire::xrootd::{Decoder, Frame, HANDSHAKE, Request};
use libfuzzer_sys::fuzz_target;

/// Takes the frames out as text, until there are no more.
fn drain(decoder: &mut Decoder, told: &mut Vec<String>) {
    loop {
        match decoder.frame() {
            Ok(Some(Frame::Handshake)) => {}
            Ok(Some(Frame::Request(header, carried))) => {
                let parsed = Request::parse(&header, &carried);
                if let Ok(Request::Stat { asked: Some(asked), .. } | Request::Rm(asked)) = &parsed
                    && let Ok(lfn) = asked.lfn()
                {
                    assert_eq!(unescaped(&escaped(lfn.as_str())).as_deref(), Some(lfn.as_str()));
                }
                told.push(format!("{header:?} {parsed:?}"));
            }
            Ok(None) => return,
            Err(error) => {
                told.push(error.to_string());
                return;
            }
        }
    }
}

fuzz_target!(|input: (u8, &[u8])| {
    let (cut, bytes) = input;
    let run = |pieces: &[&[u8]]| {
        let mut decoder = Decoder::new();
        let mut told = Vec::new();
        decoder.known();
        decoder.buffer().extend_from_slice(&HANDSHAKE);
        for piece in pieces {
            decoder.buffer().extend_from_slice(piece);
            drain(&mut decoder, &mut told);
        }
        // An error is told once for each time it was asked.
        told.dedup();
        told
    };
    let (first, second) = bytes.split_at(usize::from(cut).min(bytes.len()));
    assert_eq!(run(&[bytes]), run(&[first, second]));
});
