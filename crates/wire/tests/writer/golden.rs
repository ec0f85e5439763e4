//! One frame of each type, byte for byte as committed: the format cannot change unnoticed.
//!
//! A failure means that the protocol changed. Do not edit a line here; raise the protocol version.

use exacat_wire::writer::limits::HEADER_BYTES;
use exacat_wire::writer::{Frame, FrameDecoder, FrameType, Received, encode, encode_chunk};

use crate::samples::{frames, head};

const GOLDENS: [&str; 17] = [
    "2f000000 01 65786163617457520102007772697465722d6f662d612d66696c6509096275696c6465722d34 \
     0106736563726574",
    "27000000 01 6578616361745752010201612d7772697465722d73657276696365096275696c6465722d3400",
    "29000000 02 657861636174575201612d7772697465722d73657276696365056e6f646531b0ea01fbd8c1a2 \
     8c34",
    "52000000 03 66696c652d6f662d612d777269746572070280200772756e2d3131370b63616c696272617469 \
     6f6e1a2f646174612f3131372f63616c6962726174696f6e2e3030303101086465746563746f7203747063",
    "1d000000 04 66696c652d6f662d612d777269746572020200802088070180808002",
    "11000000 06 66696c652d6f662d612d777269746572",
    "1d000000 07 66696c652d6f662d612d777269746572020200802088070180808002",
    "40000000 08 66696c652d6f662d612d77726974657202f4a2048302ac024433221102010101010101010101 \
     010101010101010102612d7772697465722d73657276696365",
    "30000000 09 66696c652d6f662d612d777269746572f4a204ac0244332211030102612d7772697465722d73 \
     657276696365f4a204",
    "27000000 0a 010166696c652d6f662d612d777269746572021274686520766f6c756d652069732066756c6c",
    "49000000 0b 01612d7772697465722d73657276696365ac020a6e6f6465313a3734333012687474703a2f2f \
     6e6f6465313a32373738300202808080808020808080068080801880c6868f018002",
    "14000000 0c 66696c652d6f662d612d777269746572018020",
    "25000000 0d 66696c652d6f662d612d777269746572010300018202f0a2040401040302010500000001",
    "03000000 0e ac02",
    "03000000 0f ac02",
    "09000000 10 0772657374617274",
    "11000000 11 66696c652d6f662d612d777269746572",
];

const CHUNK: &str = "51000000 05 7772697465722d6f662d612d66696c6566696c652d6f662d612d777269746572020100000000 \
     0000050030000000000007000000020000000400000001000000589bbb05af010204fa965d9c6576656e";

pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

pub(crate) fn from_hex(text: &str) -> Vec<u8> {
    let digits: Vec<u8> = text.bytes().filter(|byte| !byte.is_ascii_whitespace()).collect();
    digits.chunks(2).map(|pair| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap()).collect()
}

/// Returns a decoder to which the frame is in its turn.
fn decoder(frame: &Frame) -> FrameDecoder {
    match frame {
        Frame::Hello(_) => FrameDecoder::of_accepted(),
        Frame::HelloAck(_) => FrameDecoder::of_begun(),
        _ => greeted(),
    }
}

/// Returns a decoder after the greeting.
pub(crate) fn greeted() -> FrameDecoder {
    let mut decoder = FrameDecoder::of_accepted();
    let mut hello = Vec::new();
    encode(&mut hello, &frames()[0]);
    decoder.feed(&hello);
    decoder.next_message().unwrap().unwrap();
    decoder
}

#[test]
fn each_frame_is_byte_for_byte_as_committed() {
    let mut wrong = Vec::new();
    for (frame, golden) in frames().into_iter().zip(GOLDENS) {
        let mut out = Vec::new();
        encode(&mut out, &frame);
        if out != from_hex(golden) {
            wrong.push(format!("{}: {}", frame.frame_type().name(), hex(&out)));
            continue;
        }
        let mut decoder = decoder(&frame);
        decoder.feed(&out);
        assert_eq!(decoder.next_message().unwrap(), Some(Received::Frame(frame)));
        assert!(decoder.is_between_frames());
    }
    assert_eq!(GOLDENS.len(), frames().len());
    assert!(wrong.is_empty(), "\n{}", wrong.join("\n"));
}

#[test]
fn a_chunk_is_byte_for_byte_as_committed() {
    let mut out = Vec::new();
    encode_chunk(&mut out, &head(), b"even");
    assert_eq!(hex(&out), hex(&from_hex(CHUNK)), "{}", hex(&out));
    let mut decoder = greeted();
    decoder.feed(&out);
    assert_eq!(decoder.next_message().unwrap(), Some(Received::Chunk(head())));
    let mut bytes = [0; 4];
    assert_eq!(decoder.take_chunk_bytes(&mut bytes), 4);
    assert_eq!(&bytes, b"even");
    assert!(decoder.is_between_frames());
}

#[test]
fn the_goldens_cover_every_type() {
    for frame_type in FrameType::ALL {
        let has_golden = frames().iter().any(|frame| frame.frame_type() == frame_type);
        assert!(has_golden || frame_type == FrameType::Chunk, "{} has no golden", frame_type.name());
    }
    assert_eq!(HEADER_BYTES, 5);
}
