//! Checks that the page of the writer protocol describes the code: frames and limits are compared.

use exacat_wire::writer::limits::{
    ADDRESS_BYTES_MAX, ANNOUNCEMENT_BYTES_MAX, BODY_BYTES_MAX, CHUNK_HEAD_BYTES, CLUSTER_BYTES_MAX,
    FILE_BYTES_MAX, HANDSHAKE_BODY_BYTES_MAX, LABEL_BYTES_MAX, NAME_BYTES_MAX, PARTS_MAX, RANGES_MAX,
    REASON_BYTES_MAX, REPORT_CHUNKS_MAX, SERVICES_MAX, TAG_VALUE_BYTES_MAX, TAGS_MAX, TOKEN_BYTES_MAX,
};
use exacat_wire::writer::{ANNOUNCEMENT_MAGIC, ANNOUNCEMENT_VERSION, FrameType, MAGIC, PROTOCOL_VERSION};

const DOCUMENT: &str = include_str!("../../../../docs/internals/writer-protocol.md");

#[test]
fn the_table_of_frames_is_that_of_the_code() {
    let rows: Vec<&str> = DOCUMENT.lines().filter(|line| line.starts_with("| ")).collect();
    for frame_type in FrameType::ALL {
        let start = format!("| {} | {} |", frame_type as u8, frame_type.name());
        assert!(rows.iter().any(|row| row.starts_with(&start)), "no row {start}");
    }
}

#[test]
fn the_limits_are_those_of_the_code() {
    let flat = DOCUMENT.split_whitespace().collect::<Vec<_>>().join(" ");
    for said in [
        format!("Version {PROTOCOL_VERSION}."),
        format!("a head of {CHUNK_HEAD_BYTES} bytes"),
        format!("at most {} TiB", FILE_BYTES_MAX >> 40),
        format!("at most {HANDSHAKE_BODY_BYTES_MAX} bytes in a greeting"),
        format!("at most {BODY_BYTES_MAX} bytes in another frame"),
        format!("for logs, at most {NAME_BYTES_MAX} bytes"),
        format!("a token, at most {TOKEN_BYTES_MAX} bytes"),
        format!("run and stream: text, at most {LABEL_BYTES_MAX} bytes each"),
        format!("at most {TAGS_MAX} tags, a value at most {TAG_VALUE_BYTES_MAX} bytes"),
        format!("at most {RANGES_MAX} ranges"),
        format!("at most {PARTS_MAX} parts"),
        format!("at most {REPORT_CHUNKS_MAX} chunks"),
        format!("at most {SERVICES_MAX} services"),
        format!("an address of at most {ADDRESS_BYTES_MAX} bytes"),
        format!("a reason: text, at most {REASON_BYTES_MAX} bytes"),
        format!("at most {ANNOUNCEMENT_BYTES_MAX} bytes"),
        format!("version: u16, now {ANNOUNCEMENT_VERSION}"),
        format!("the cluster: text, at most {CLUSTER_BYTES_MAX} bytes"),
        ANNOUNCEMENT_MAGIC.map(|byte| format!("{byte:02x}")).join(" "),
        MAGIC.map(|byte| format!("{byte:02x}")).join(" "),
    ] {
        assert!(flat.contains(&said), "the page does not say: {said}");
    }
}
