//! The other end of a connection.

use std::fmt;
use std::net::SocketAddr;

/// The other end of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Peer {
    /// A host on the network, over TLS.
    Network(SocketAddr),
    /// A process on this machine, over the Unix socket, with the uid that the kernel reports.
    Local {
        /// Its uid.
        uid: u32,
    },
}

impl fmt::Display for Peer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Peer::Network(address) => fmt::Display::fmt(address, f),
            Peer::Local { uid } => write!(f, "uid:{uid}"),
        }
    }
}
