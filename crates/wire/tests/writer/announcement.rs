//! Announcements: golden bytes, limits at their edges, and datagrams of others.

use std::net::SocketAddr;

use exacat_wire::writer::limits::{ANNOUNCEMENT_BYTES_MAX, CLUSTER_BYTES_MAX};
use exacat_wire::writer::{Announcement, AnnouncementError};

use crate::golden::{from_hex, hex};
use crate::samples::SERVICE;

fn announcement(address: &str) -> Announcement {
    let address: SocketAddr = address.parse().unwrap();
    Announcement { cluster: "lhcb".to_owned(), service: SERVICE, incarnation: 300, address }
}

#[test]
fn announcements_are_byte_for_byte_as_committed() {
    for (address, golden) in [
        (
            "192.0.2.7:7430",
            "6578616361745741 01 046c686362 612d7772697465722d73657276696365 ac02 \
             00000000000000000000ffffc0000207 863a",
        ),
        (
            "[2001:db8::7]:7430",
            "6578616361745741 01 046c686362 612d7772697465722d73657276696365 ac02 \
             20010db8000000000000000000000007 863a",
        ),
        (
            "[::]:7430",
            "6578616361745741 01 046c686362 612d7772697465722d73657276696365 ac02 \
             00000000000000000000000000000000 863a",
        ),
    ] {
        let bytes = announcement(address).encode();
        assert_eq!(hex(&bytes), hex(&from_hex(golden)), "{address}");
        assert_eq!(Announcement::decode(&bytes), Ok(announcement(address)));
    }
    assert_eq!(announcement("0.0.0.0:1").encode(), announcement("[::]:1").encode(), "one form of any sender");
}

/// Property: the largest name of a cluster is accepted and one byte more is not, nor a longer datagram.
#[test]
fn announcements_end_at_their_limits() {
    let named = |bytes: usize| {
        let cluster = "x".repeat(bytes);
        Announcement { cluster, ..announcement("192.0.2.7:7430") }.encode()
    };
    assert!(Announcement::decode(&named(CLUSTER_BYTES_MAX)).is_ok());
    assert!(matches!(
        Announcement::decode(&named(CLUSTER_BYTES_MAX + 1)),
        Err(AnnouncementError::Body(reason)) if reason.contains("too long")
    ));
    let mut long = announcement("192.0.2.7:7430").encode();
    long.resize(ANNOUNCEMENT_BYTES_MAX, 0);
    assert!(
        matches!(Announcement::decode(&long), Err(AnnouncementError::Body(_))),
        "further bytes are a fault"
    );
    long.push(0);
    assert_eq!(Announcement::decode(&long), Err(AnnouncementError::Length(ANNOUNCEMENT_BYTES_MAX + 1)));
}

/// Property: other bytes are refused with their reason, and none of any length panics.
#[test]
fn foreign_datagrams_are_refused() {
    let good = announcement("192.0.2.7:7430").encode();
    for end in 0..good.len() {
        assert!(Announcement::decode(&good[..end]).is_err(), "{end} bytes");
    }
    assert_eq!(Announcement::decode(b""), Err(AnnouncementError::Length(0)));
    assert_eq!(Announcement::decode(b"M-SEARCH * HTTP/1.1\r\n"), Err(AnnouncementError::Magic));
    let mut later = good;
    later[8] = 2;
    assert_eq!(Announcement::decode(&later), Err(AnnouncementError::Version(2)));
    for address in ["192.0.2.7:0", "239.255.77.1:7430", "255.255.255.255:7430", "[ff02::1]:7430"] {
        let bytes = announcement(address).encode();
        assert!(matches!(Announcement::decode(&bytes), Err(AnnouncementError::Body(_))), "{address}");
    }
    let mut mapped = announcement("192.0.2.7:7430").encode();
    let ip = mapped.len() - 6;
    mapped[ip..ip + 4].fill(0);
    assert!(Announcement::decode(&mapped).is_err(), "0.0.0.0 has another form");
}
