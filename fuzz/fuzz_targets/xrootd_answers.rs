//! Any bytes of a server of XRootD give answers or an error, the same in one piece and in several. No more
//! bytes come out than went in.
#![no_main]

use exacat_wire::xrootd::client::answer::{ChecksumAnswer, LoginAnswer, OpenAnswer, ProtocolAnswer};
use exacat_wire::xrootd::client::{Answer, Answers, Redirect};
use exacat_wire::xrootd::vector::VectorAnswer;
use exacat_wire::xrootd::{FileHandle, FileRange};
use libfuzzer_sys::fuzz_target;

/// Returns the answers as text, the bytes of bodies joined, and the number of bytes that came out.
fn run(pieces: &[&[u8]]) -> (Vec<String>, usize) {
    let mut decoder = Answers::new();
    let (mut told, mut body, mut count) = (Vec::new(), Vec::new(), 0);
    for piece in pieces {
        decoder.buffer().extend_from_slice(piece);
        loop {
            let answer = match decoder.answer() {
                Ok(Some(Answer::Body { stream, bytes })) => {
                    assert!(!bytes.is_empty());
                    count += bytes.len();
                    body.extend_from_slice(&bytes);
                    told.pop_if(|last: &mut String| last.starts_with("body"));
                    told.push(format!("body {stream:?} {body:?}"));
                    continue;
                }
                Ok(Some(answer)) => answer,
                Ok(None) => break,
                Err(error) => {
                    told.push(error.to_string());
                    return (told, count);
                }
            };
            if let Answer::Page { bytes, .. } = &answer {
                count += bytes.len();
            }
            if let Answer::Redirect { port, place, .. } = &answer
                && let Some(Redirect::Host { host, fields, .. }) = Redirect::parse(*port, place)
            {
                assert!(!host.is_empty() && host.len() + fields.len() <= place.len());
            }
            body.clear();
            told.push(format!("{answer:?}"));
        }
    }
    (told, count)
}

fuzz_target!(|input: (u8, &[u8])| {
    let (cut, bytes) = input;
    let (first, second) = bytes.split_at(usize::from(cut).min(bytes.len()));
    let whole = run(&[bytes]);
    assert!(whole.1 <= bytes.len());
    assert_eq!(whole, run(&[first, second]));

    let _ = ProtocolAnswer::read(bytes);
    let _ = OpenAnswer::read(bytes);
    let _ = ChecksumAnswer::read(bytes);
    if let Some(login) = LoginAnswer::read(bytes) {
        assert!(login.methods().count() <= bytes.len());
    }
    let asked = vec![FileRange { handle: FileHandle([0; 4]), length: 8, offset: 0 }; 2];
    let vector = |pieces: &[&[u8]]| {
        let (mut answer, mut data) = (VectorAnswer::new(asked.clone()), Vec::new());
        let fed = pieces.iter().try_for_each(|piece| {
            answer.feed(piece, |at, bytes| data.extend((at..).zip(bytes.iter().copied())))
        });
        (fed, fed.is_ok() && answer.is_complete(), data)
    };
    assert_eq!(vector(&[bytes]), vector(&[first, second]));
});
