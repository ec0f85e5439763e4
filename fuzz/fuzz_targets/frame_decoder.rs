//! Any bytes, in any pieces, give frames or an error, the same ones; what decodes has one encoding.
#![no_main]

use exacat_wire::native::limits::{FRAME_BYTES_MAX, FRAME_BYTES_MAX_LEAST, HEADER_BYTES};
use exacat_wire::native::{FrameDecoder, FrameType, RawFrame, encode_frame};
use libfuzzer_sys::fuzz_target;

fn decoder() -> FrameDecoder {
    let mut decoder = FrameDecoder::new();
    decoder.set_frame_bytes_max(FRAME_BYTES_MAX_LEAST);
    decoder
}

/// Checks that the meaning of a body has these bytes only.
fn body(raw: &RawFrame) {
    let Ok(frame) = raw.decode() else { return };
    // A hello may have more in it than is known here, and the message of an error is cut when sent.
    if matches!(raw.frame_type, FrameType::Hello | FrameType::Error | FrameType::AnswerBatch) {
        return;
    }
    let mut again = Vec::new();
    encode_frame(&mut again, FRAME_BYTES_MAX, raw.request, &frame).expect("it came in a frame");
    assert_eq!(again[5], raw.flags);
    assert_eq!(&again[HEADER_BYTES..], &raw.body[..], "{frame:?}");
}

fn stream(piece: u8, bytes: &[u8]) {
    let mut whole = decoder();
    whole.feed(bytes);
    let mut frames: Vec<RawFrame> = Vec::new();
    let end = loop {
        match whole.next_frame() {
            Ok(Some(raw)) => frames.push(raw),
            Ok(None) => break None,
            Err(error) => break Some(error),
        }
    };
    let mut pieces = decoder();
    let mut in_pieces = Vec::new();
    for piece in bytes.chunks(usize::from(piece) + 1) {
        pieces.feed(piece);
        while let Ok(Some(raw)) = pieces.next_frame() {
            in_pieces.push(raw);
        }
    }
    assert_eq!(in_pieces, frames);
    assert_eq!(pieces.next_frame().err(), end);
    if end.is_none() {
        assert_eq!(pieces.finish(), whole.finish());
    }
    frames.iter().for_each(body);
}

fuzz_target!(|data: &[u8]| match data {
    // A stream of bytes in pieces of some size.
    [0, piece, bytes @ ..] => stream(*piece, bytes),
    // The body of a frame whose header is right, so that it is reached at once.
    [number, flags, bytes @ ..] => {
        if let Some(frame_type) = FrameType::from_number(*number) {
            let flags = flags & frame_type.flags_allowed();
            let request = u64::from(!frame_type.admits_request(0));
            body(&RawFrame { frame_type, flags, request, body: bytes.to_vec().into() });
        }
    }
    _ => {}
});
