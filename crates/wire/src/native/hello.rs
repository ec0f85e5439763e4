//! Handshake: agreement on version and limits, and authentication of the client.

use std::fmt;

use exacat_model::codec::{Decode, DecodeError, Encode, Reader, put_bytes};
use exacat_model::{AccountName, Guid, Lfn, Revision, TimeMs, TimelineId, canonical_struct};

use crate::bounded::{clipped, text};

use super::limits::{FRAME_BYTES_MAX_LEAST, PEER_NAME_BYTES_MAX, SECRET_BYTES_MAX};

/// First bytes of a hello's body, in both directions. A peer of another protocol that connects by
/// mistake learns it at once.
pub const MAGIC: [u8; 8] = *b"exacat\r\n";

/// Newest version of the protocol that this codec speaks. A version fixes the frames and the
/// canonical bytes of everything in them.
pub const PROTOCOL_VERSION: u16 = 1;
/// Oldest version that this codec speaks.
pub const PROTOCOL_VERSION_MIN: u16 = 1;

/// Optional features within one version, one bit each. A feature is in force if the client knows it
/// and the server names it in its answer.
pub mod features {
    /// A request or batch may state the permitted age of the state behind its answer.
    pub const CONSISTENCY: u64 = 0x01;
    /// The server follows another one, and takes no changes. A server that takes them never names this.
    pub const FOLLOWER: u64 = 0x02;
    /// A request or batch may be about a past state.
    pub const PAST: u64 = 0x04;
    /// The server, a follower, says with its answers how far it is behind its source.
    pub const BEHIND: u64 = 0x08;
    /// All features that this codec knows.
    pub const ALL: u64 = CONSISTENCY | FOLLOWER | PAST | BEHIND;
}

/// First message of a client. Bytes after the known fields are ignored, so that later clients can
/// add some.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hello {
    /// Oldest version that the client speaks.
    pub version_min: u16,
    /// Newest version that the client speaks.
    pub version_max: u16,
    /// [`features`] that the client knows; unknown bits are ignored.
    pub features: u64,
    /// Program and version of the client, for logs: `exacat-cli/0.1.0`.
    pub client: String,
}

impl Hello {
    /// Makes the hello of this version of the codec; a name too long is cut.
    pub fn new(client: &str) -> Self {
        Hello {
            version_min: PROTOCOL_VERSION_MIN,
            version_max: PROTOCOL_VERSION,
            features: features::ALL,
            client: clipped(client, PEER_NAME_BYTES_MAX).to_owned(),
        }
    }

    /// Returns the features that both sides know.
    pub fn common_features(&self) -> u64 {
        self.features & features::ALL
    }

    /// Returns the newest version that both sides speak, if there is one.
    pub fn choose_version(&self) -> Option<u16> {
        let newest = self.version_max.min(PROTOCOL_VERSION);
        (newest >= self.version_min.max(PROTOCOL_VERSION_MIN)).then_some(newest)
    }
}

fn magic(reader: &mut Reader<'_>) -> Result<(), DecodeError> {
    if <[u8; 8]>::decode(reader)? == MAGIC {
        Ok(())
    } else {
        Err(reader.error("the peer does not speak this protocol"))
    }
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
            client: text(reader, PEER_NAME_BYTES_MAX, "the client's name is too long")?,
        };
        if hello.version_min > hello.version_max {
            return Err(reader.error("a range of versions is empty"));
        }
        reader.take(reader.remaining())?;
        Ok(hello)
    }
}

/// Limits that the server enforces, and the client should respect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Maximum bytes of one frame, its length field included, in both directions after
    /// authentication.
    pub frame_bytes_max: u32,
    /// Maximum unanswered requests of one connection; further ones are refused as busy. A batch
    /// counts as one.
    pub requests_in_flight_max: u32,
    /// Maximum operations in one batch.
    pub batch_operations_max: u32,
    /// Idle time after which the server closes a connection; the client pings more often. 0
    /// disables it.
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

/// Answer of a server to a hello.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HelloAck {
    /// Version spoken from here on.
    pub version: u16,
    /// Features of the hello that are in force.
    pub features: u64,
    /// Limits that the server enforces.
    pub limits: Limits,
    /// Program and version of the server.
    pub server: String,
    /// Id of the catalogue; the same on all its servers, and different for every other catalogue.
    pub catalogue: Guid,
    /// Timeline of its revisions; a restore begins another one.
    pub timeline: TimelineId,
    /// True if the server refuses anonymous clients.
    pub authentication_required: bool,
    /// Time of the server, which clients use for operation ids.
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
            server: text(reader, PEER_NAME_BYTES_MAX, "the server's name is too long")?,
            catalogue: Decode::decode(reader)?,
            timeline: Decode::decode(reader)?,
            authentication_required: Decode::decode(reader)?,
            time: Decode::decode(reader)?,
        })
    }
}

/// Secret of a token. Never printed, not even by `Debug`.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(String);

impl Secret {
    /// Wraps `secret`.
    pub fn new(secret: impl Into<String>) -> Self {
        Secret(secret.into())
    }

    /// Returns the secret itself.
    pub fn expose(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(…)")
    }
}

/// Credentials of a client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Credentials {
    /// No credentials.
    Anonymous,
    /// User of the operating system at the other end of a Unix socket; the server asks the kernel.
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
            2 => Credentials::Token(Secret(text(reader, SECRET_BYTES_MAX, "a token's secret is too long")?)),
            _ => return Err(reader.error("unknown kind of credentials")),
        })
    }
}

/// Credentials of the client, and the account that it wants to act as.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Authenticate {
    /// Credentials of the client.
    pub credentials: Credentials,
    /// Account to act as, which the user must be permitted to.
    pub act_as: Option<AccountName>,
}

canonical_struct!(Authenticate { credentials, act_as });

/// Identity that the server accepts for the client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    /// The user; none if anonymous.
    pub user: Option<AccountName>,
    /// Subtree to which it is limited.
    pub scope: Lfn,
    /// True if it may make changes.
    pub write: bool,
}

canonical_struct!(Identity { user, scope, write });

/// Distance of a follower to its source.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Behind {
    /// The last change that the follower has.
    pub revision: Revision,
    /// Changes that the source is known to have, and the follower has not.
    pub changes: u64,
    /// Time for which the follower may be out of date, in ms.
    pub ms: u64,
}

canonical_struct!(Behind { revision, changes, ms });
