//! A disk that fails: the service keeps new files away from it, and tries it again later.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

mod rig;

use exacat_wire::writer::{ByteRange, ChunkHead, Close, Frame, PartOwner, RefusalClass, ServiceState};
use exacat_writer::Fault;
use exacat_writer::limits::{PART_FAULTS_MAX, VOLUME_REST_MS};
use exacat_writer::sums::adler32;

use rig::{Rig, SERVICE, acked, asked_file, class_of, head, is_opened, open_of};

fn volume_of(rig: &Rig) -> (bool, String) {
    let volume = rig.service.status().volumes.remove(0);
    assert!(!volume.is_read_only);
    assert_eq!(volume.is_writable, !volume.is_resting);
    (volume.is_resting, volume.reason)
}

/// Writes a file, and closes it if that works.
fn write(rig: &mut Rig, number: u64) -> bool {
    let file = asked_file(number);
    assert!(is_opened(&rig.tell(1, open_of(number, 2))), "{number}");
    let sent = rig.chunk(1, ChunkHead { file, ..head(0, 0, b"bytes") }, b"bytes");
    if acked(&sent) != [ByteRange { from: 0, to: 5 }] {
        assert_eq!(class_of(&sent), Some(RefusalClass::RetryElsewhere), "{number}");
        return false;
    }
    let parts = vec![PartOwner { epoch: 2, service: SERVICE }];
    let adler32 = adler32(b"bytes");
    rig.tell(1, Frame::Close(Close { file, epoch: 2, length: 5, chunks: 1, events: 1, adler32, parts }));
    true
}

/// Property: after a few parts that failed the volume takes no new ones for a while. Then one more failure
/// makes it rest again, and a file that was written whole makes it as good as new.
#[test]
fn volume_whose_parts_fail_rests() {
    let mut rig = Rig::with_blocks(64);
    rig.connect(1, 1, 1);
    let fault = Fault { is_full: false, reason: "input/output error".to_owned() };
    rig.fault = Some(fault.clone());
    for number in 0..u64::from(PART_FAULTS_MAX) {
        assert_eq!(volume_of(&rig), (false, String::new()));
        assert_eq!(rig.service.status().state, ServiceState::Up);
        assert!(!write(&mut rig, number));
    }
    assert_eq!(volume_of(&rig), (true, fault.reason.clone()));
    // Files in the middle go on: the service is not one to leave at once.
    assert_eq!(rig.service.status().state, ServiceState::Draining);
    assert_eq!(class_of(&rig.tell(1, open_of(10, 2))), Some(RefusalClass::RetryElsewhere));

    rig.now += VOLUME_REST_MS;
    rig.sent(1);
    assert_eq!(volume_of(&rig), (false, String::new()));
    assert!(!write(&mut rig, 11));
    assert!(volume_of(&rig).0, "one more is enough");

    rig.now += VOLUME_REST_MS;
    rig.fault = None;
    rig.sent(1);
    assert!(write(&mut rig, 12));
    rig.fault = Some(Fault { is_full: true, ..fault.clone() });
    for number in 20..30 {
        assert!(!write(&mut rig, number), "a full disk is no broken one");
        rig.service.free_bytes(0, 1 << 40);
    }
    assert!(!volume_of(&rig).0);
    rig.fault = Some(fault);
    for number in 1..u64::from(PART_FAULTS_MAX) {
        assert!(!write(&mut rig, 30 + number));
    }
    assert!(!volume_of(&rig).0, "failures before the whole file do not count");
}
