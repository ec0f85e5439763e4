//! Frames and chunks in pieces of every size: the same messages come out.

use exacat_wire::writer::{FrameDecoder, Received, encode, encode_chunk};

use crate::samples::{frames, head};

/// Reads a connection in pieces of some size, chunks into their place.
fn read(bytes: &[u8], piece: usize) -> (Vec<Received>, Vec<u8>) {
    let mut decoder = FrameDecoder::of_accepted();
    let (mut messages, mut content) = (Vec::new(), Vec::new());
    for piece in bytes.chunks(piece) {
        decoder.feed(piece);
        loop {
            let mut some = [0; 3];
            let count = decoder.take_chunk_bytes(&mut some);
            content.extend_from_slice(&some[..count]);
            if count > 0 {
                continue;
            }
            match decoder.next_message().unwrap() {
                Some(message) => messages.push(message),
                None => break,
            }
        }
    }
    assert!(decoder.is_between_frames());
    (messages, content)
}

/// Property: the pieces in which bytes arrive change nothing.
#[test]
fn frames_in_any_pieces_are_the_same() {
    let mut bytes = Vec::new();
    let all = frames();
    encode(&mut bytes, &all[0]);
    for frame in &all[3..] {
        encode(&mut bytes, frame);
        encode_chunk(&mut bytes, &head(), b"even");
    }
    let whole = read(&bytes, bytes.len());
    assert_eq!(whole.0.len(), 1 + 2 * (all.len() - 3));
    assert_eq!(whole.1, b"even".repeat(all.len() - 3));
    for piece in 1..100 {
        assert_eq!(read(&bytes, piece), whole, "pieces of {piece} bytes");
    }
}

/// Property: a caller can read the bytes of a chunk past the decoder.
#[test]
fn bytes_of_a_chunk_that_bypass_the_buffer_are_counted() {
    let mut bytes = Vec::new();
    encode(&mut bytes, &frames()[0]);
    encode_chunk(&mut bytes, &head(), b"even");
    let mut decoder = FrameDecoder::of_accepted();
    decoder.feed(&bytes[..bytes.len() - 3]);
    assert!(matches!(decoder.next_message(), Ok(Some(Received::Frame(_)))));
    assert_eq!(decoder.next_message(), Ok(Some(Received::Chunk(head()))));
    let mut place = [0; 4];
    assert_eq!(decoder.take_chunk_bytes(&mut place), 1);
    assert_eq!((decoder.chunk_bytes_left(), decoder.next_message()), (3, Ok(None)));
    decoder.skip_chunk_bytes(3);
    assert!(decoder.is_between_frames());
}
