//! Meaning of the short answers to a client: greeting, login, open, checksum.

use crate::xrootd::FileHandle;
use crate::xrootd::response::{FileStat, read_text};

/// Bytes of the id of a session.
const SESSION_BYTES: usize = 16;
/// Beginning of the name of each kind of credentials, in the answer to a login.
const METHOD: &str = "&P=";

/// Agreement on the protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProtocolAnswer {
    /// Version that the server speaks.
    pub version: u32,
    /// Bits of [`role`](crate::xrootd::numbers::role).
    pub roles: u32,
}

impl ProtocolAnswer {
    /// Reads an agreement; none for any other body. Requirements of signatures may follow it.
    pub fn read(carried: &[u8]) -> Option<Self> {
        let (version, rest) = carried.split_first_chunk()?;
        let (roles, _) = rest.split_first_chunk()?;
        Some(ProtocolAnswer { version: u32::from_be_bytes(*version), roles: u32::from_be_bytes(*roles) })
    }
}

/// Answer to a login.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LoginAnswer<'a> {
    methods: &'a str,
}

impl<'a> LoginAnswer<'a> {
    /// Reads the answer; none for any other body.
    pub fn read(carried: &'a [u8]) -> Option<Self> {
        if carried.is_empty() {
            return Some(LoginAnswer { methods: "" });
        }
        Some(LoginAnswer { methods: read_text(carried.get(SESSION_BYTES..)?)? })
    }

    /// Says whether the server wants no credentials.
    pub fn is_complete(&self) -> bool {
        self.methods.is_empty()
    }

    /// Iterates over the kinds of credentials that the server accepts.
    pub fn methods(&self) -> impl Iterator<Item = &'a str> {
        let named = self.methods.split(METHOD).skip(1);
        named.map(|method| method.split([',', '&']).next().unwrap_or_default())
    }
}

/// Answer to an open.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OpenAnswer {
    /// The file on this connection.
    pub handle: FileHandle,
    /// Stat of the file, if the client wanted it.
    pub stat: Option<FileStat>,
}

impl OpenAnswer {
    /// Reads the answer; none for any other body. A stat stands behind the size and the kind of a
    /// compression, 4 bytes each.
    pub fn read(carried: &[u8]) -> Option<Self> {
        let (handle, rest) = carried.split_first_chunk()?;
        let stat = rest.get(8..).filter(|text| !text.is_empty()).and_then(FileStat::read);
        Some(OpenAnswer { handle: FileHandle(*handle), stat })
    }
}

/// Answer to a question for a checksum.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChecksumAnswer<'a> {
    /// Name of the algorithm.
    pub algorithm: &'a str,
    /// The checksum in hexadecimal.
    pub value: &'a str,
}

impl<'a> ChecksumAnswer<'a> {
    /// Reads the answer; none for any other body.
    pub fn read(carried: &'a [u8]) -> Option<Self> {
        let mut words = read_text(carried)?.split_ascii_whitespace();
        let (algorithm, value) = (words.next()?, words.next()?);
        let is_hex = value.bytes().all(|byte| byte.is_ascii_hexdigit());
        (is_hex && words.next().is_none()).then_some(ChecksumAnswer { algorithm, value })
    }
}
