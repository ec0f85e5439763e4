//! Any bytes of a peer of the writer protocol give messages or an error, the same in any pieces. A
//! message encodes to the bytes that it came from. So does an announcement.
#![no_main]

use exacat_wire::writer::{Announcement, Frame, FrameDecoder, FrameType, Received, encode, encode_chunk};
use libfuzzer_sys::fuzz_target;

/// Messages, bytes of chunks, and the error at the end as text.
type Outcome = (Vec<Received>, Vec<Vec<u8>>, Option<String>);

fn run(mut decoder: FrameDecoder, pieces: &[&[u8]]) -> (Outcome, bool) {
    let (mut messages, mut chunks): (Vec<Received>, Vec<Vec<u8>>) = (Vec::new(), Vec::new());
    for piece in pieces {
        decoder.feed(piece);
        loop {
            let mut some = [0; 64];
            let count = decoder.take_chunk_bytes(&mut some);
            if let Some(last) = chunks.last_mut() {
                last.extend_from_slice(&some[..count]);
            }
            if count > 0 {
                continue;
            }
            match decoder.next_message() {
                Ok(Some(message)) => {
                    if matches!(message, Received::Chunk(_)) {
                        chunks.push(Vec::new());
                    }
                    messages.push(message);
                }
                Ok(None) => break,
                Err(error) => return ((messages, chunks, Some(error.to_string())), false),
            }
        }
    }
    ((messages, chunks, None), decoder.is_between_frames())
}

fuzz_target!(|input: (bool, u8, &[u8])| {
    let (is_accepted, piece, bytes) = input;
    if let Ok(announcement) = Announcement::decode(bytes) {
        assert_eq!(announcement.encode(), bytes);
    }
    let decoder = || if is_accepted { FrameDecoder::of_accepted() } else { FrameDecoder::of_begun() };
    let (whole, is_ended) = run(decoder(), &[bytes]);
    let pieces: Vec<&[u8]> = bytes.chunks(usize::from(piece) + 1).collect();
    assert_eq!(run(decoder(), &pieces).0, whole);
    if !is_ended {
        return;
    }
    let mut again = Vec::new();
    let mut chunks = whole.1.iter();
    for message in &whole.0 {
        match message {
            // A hello may have more in it than is known here.
            Received::Frame(Frame::Hello(_)) => {
                let length = u32::from_le_bytes(bytes[..4].try_into().expect("a length")) as usize + 4;
                assert_eq!(bytes[4], FrameType::Hello as u8);
                again.extend_from_slice(&bytes[..length]);
            }
            Received::Frame(frame) => encode(&mut again, frame),
            Received::Chunk(head) => encode_chunk(&mut again, head, chunks.next().expect("its bytes")),
        }
    }
    assert_eq!(again, bytes);
});
