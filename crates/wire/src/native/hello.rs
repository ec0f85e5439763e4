//! The handshake: which version is spoken, what the limits are, and who the client is.

use std::fmt;

use exacat_model::codec::{Decode, DecodeError, Encode, Reader, put_bytes};
use exacat_model::{AccountName, Guid, Lfn, TimeMs, TimelineId, canonical_struct};

use super::limits::{FRAME_BYTES_MAX_LEAST, PEER_NAME_BYTES_MAX, SECRET_BYTES_MAX};

/// The first bytes of a hello's body, both ways: whoever else connects by mistake is told so at once.
pub const MAGIC: [u8; 8] = *b"exacat\r\n";

/// The newest version of the protocol spoken here. A version fixes the frames and the canonical bytes of
/// everything in them.
pub const PROTOCOL_VERSION: u16 = 1;
/// The oldest one.
pub const PROTOCOL_VERSION_MIN: u16 = 1;

/// What a peer may or may not know within one version, a bit each. In force is what the client knows and the server names in its answer.
pub mod features {
    /// A request or batch may say how old the state may be that is answered of.
    pub const CONSISTENCY: u64 = 0x01;
    /// All that this codec knows.
    pub const ALL: u64 = CONSISTENCY;
}

/// What a client says first. Bytes after the known fields are ignored, so that later clients can add some.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hello {
    /// The oldest version it speaks.
    pub version_min: u16,
    /// The newest version it speaks.
    pub version_max: u16,
    /// The [`features`] it knows; unknown bits are ignored.
    pub features: u64,
    /// Who it is, for logs: program and version, `exacat-cli/0.1.0`.
    pub client: String,
}

impl Hello {
    /// The hello of this version of the codec; a name too long is cut.
    pub fn new(client: &str) -> Self {
        Hello {
            version_min: PROTOCOL_VERSION_MIN,
            version_max: PROTOCOL_VERSION,
            features: features::ALL,
            client: clipped(client, PEER_NAME_BYTES_MAX).to_owned(),
        }
    }

    /// The features that both sides know.
    pub fn common_features(&self) -> u64 {
        self.features & features::ALL
    }

    /// The newest version both sides speak, if there is one.
    pub fn choose_version(&self) -> Option<u16> {
        let newest = self.version_max.min(PROTOCOL_VERSION);
        (newest >= self.version_min.max(PROTOCOL_VERSION_MIN)).then_some(newest)
    }
}

/// The longest start of `text` that has at most `bytes_max` bytes and ends between characters.
pub(super) fn clipped(text: &str, bytes_max: usize) -> &str {
    &text[..text.floor_char_boundary(bytes_max)]
}

fn magic(reader: &mut Reader<'_>) -> Result<(), DecodeError> {
    if <[u8; 8]>::decode(reader)? == MAGIC {
        Ok(())
    } else {
        Err(reader.error("the peer does not speak this protocol"))
    }
}

/// A text that has at most so many bytes.
pub(super) fn bounded_text(
    reader: &mut Reader<'_>,
    bytes_max: usize,
    reason: &'static str,
) -> Result<String, DecodeError> {
    let text = reader.text()?;
    if text.len() > bytes_max { Err(reader.error(reason)) } else { Ok(text.to_owned()) }
}

impl Encode for Hello {
    fn encode(&self, out: &mut Vec<u8>) {
        MAGIC.encode(out);
        self.version_min.encode(out);
        self.version_max.encode(out);
        self.features.encode(out);
        put_bytes(out, clipped(&self.client, PEER_NAME_BYTES_MAX).as_bytes());
    }
}

impl Decode for Hello {
    fn decode(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        magic(reader)?;
        let hello = Hello {
            version_min: Decode::decode(reader)?,
            version_max: Decode::decode(reader)?,
            features: Decode::decode(reader)?,
            client: bounded_text(reader, PEER_NAME_BYTES_MAX, "the client's name is too long")?,
        };
        if hello.version_min > hello.version_max {
            return Err(reader.error("a range of versions is empty"));
        }
        reader.take(reader.remaining())?;
        Ok(hello)
    }
}

/// What the server keeps to, and the client should too.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Bytes of one frame, its length field included, both ways, once authenticated.
    pub frame_bytes_max: u32,
    /// Requests of one connection not answered yet; further ones are refused as busy. A batch is one.
    pub requests_in_flight_max: u32,
    /// Operations in one batch.
    pub batch_operations_max: u32,
    /// The server closes a connection from which nothing came for so long; ping more often. 0: it does not.
    pub idle_ms_max: u32,
}

impl Encode for Limits {
    fn encode(&self, out: &mut Vec<u8>) {
        self.frame_bytes_max.encode(out);
        self.requests_in_flight_max.encode(out);
        self.batch_operations_max.encode(out);
        self.idle_ms_max.encode(out);
    }
}

impl Decode for Limits {
    fn decode(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let limits = Limits {
            frame_bytes_max: Decode::decode(reader)?,
            requests_in_flight_max: Decode::decode(reader)?,
            batch_operations_max: Decode::decode(reader)?,
            idle_ms_max: Decode::decode(reader)?,
        };
        if (limits.frame_bytes_max as usize) < FRAME_BYTES_MAX_LEAST
            || limits.requests_in_flight_max == 0
            || limits.batch_operations_max == 0
        {
            return Err(reader.error("limits under which no request could be sent"));
        }
        Ok(limits)
    }
}

/// What a server answers to a hello.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HelloAck {
    /// The version spoken from here on.
    pub version: u16,
    /// The features of the hello that are in force.
    pub features: u64,
    /// What it keeps to.
    pub limits: Limits,
    /// Who it is: program and version.
    pub server: String,
    /// Which catalogue it serves; the same on all its servers, another for every other catalogue.
    pub catalogue: Guid,
    /// The timeline of its revisions: another one after a restore.
    pub timeline: TimelineId,
    /// Whether an anonymous client will be refused.
    pub authentication_required: bool,
    /// The server's time: operation ids are made by it.
    pub time: TimeMs,
}

impl Encode for HelloAck {
    fn encode(&self, out: &mut Vec<u8>) {
        MAGIC.encode(out);
        self.version.encode(out);
        self.features.encode(out);
        self.limits.encode(out);
        put_bytes(out, clipped(&self.server, PEER_NAME_BYTES_MAX).as_bytes());
        self.catalogue.encode(out);
        self.timeline.encode(out);
        self.authentication_required.encode(out);
        self.time.encode(out);
    }
}

impl Decode for HelloAck {
    fn decode(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        magic(reader)?;
        Ok(HelloAck {
            version: Decode::decode(reader)?,
            features: Decode::decode(reader)?,
            limits: Decode::decode(reader)?,
            server: bounded_text(reader, PEER_NAME_BYTES_MAX, "the server's name is too long")?,
            catalogue: Decode::decode(reader)?,
            timeline: Decode::decode(reader)?,
            authentication_required: Decode::decode(reader)?,
            time: Decode::decode(reader)?,
        })
    }
}

/// A token's secret. Printed nowhere, not even by `Debug`.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(String);

impl Secret {
    /// Keeps `secret`.
    pub fn new(secret: impl Into<String>) -> Self {
        Secret(secret.into())
    }

    /// The secret itself.
    pub fn expose(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(…)")
    }
}

/// What a client shows for who it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Credentials {
    /// Nothing.
    Anonymous,
    /// The user of the operating system at the other end of a Unix socket, which the server asks the kernel.
    Local,
    /// A bearer token.
    Token(Secret),
}

impl Encode for Credentials {
    fn encode(&self, out: &mut Vec<u8>) {
        match self {
            Credentials::Anonymous => out.push(0),
            Credentials::Local => out.push(1),
            Credentials::Token(secret) => {
                out.push(2);
                secret.0.encode(out);
            }
        }
    }
}

impl Decode for Credentials {
    fn decode(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        Ok(match reader.byte()? {
            0 => Credentials::Anonymous,
            1 => Credentials::Local,
            2 => Credentials::Token(Secret(bounded_text(
                reader,
                SECRET_BYTES_MAX,
                "a token's secret is too long",
            )?)),
            _ => return Err(reader.error("unknown kind of credentials")),
        })
    }
}

/// Who the client is, and whom it wants to act as.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Authenticate {
    /// What it shows.
    pub credentials: Credentials,
    /// Act as this account, which the user must be allowed to.
    pub act_as: Option<AccountName>,
}

canonical_struct!(Authenticate { credentials, act_as });

/// Whom the server takes the client for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    /// The user; none if anonymous.
    pub user: Option<AccountName>,
    /// Valid for this subtree only.
    pub scope: Lfn,
    /// May it change anything?
    pub write: bool,
}

canonical_struct!(Identity { user, scope, write });
