//! Requests of XRootD's protocol: read, and (for tests and our own measurements) written.

use exacat_model::{Error, Result};

use super::limits::{
    ABOUT_BYTES_MAX, CONFIG_NAMES_MAX, HANDSHAKE_BYTES, PATHS_MAX, REQUEST_HEADER_BYTES, TOKEN_BYTES_MAX,
};
use super::numbers::{self, request as id};
use super::path::RawPath;

/// The client's handshake: three zeros, 4, 2012.
pub const HANDSHAKE: [u8; HANDSHAKE_BYTES] =
    [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 4, 0, 0, 0x07, 0xdc];

/// Id of a request on a connection: chosen by the client, and returned with the response.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct StreamId(pub [u8; 2]);

/// Header of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RequestHeader {
    /// Id of the request.
    pub stream: StreamId,
    /// Kind of the request, one of [`numbers::request`].
    pub request: u16,
    /// Arguments that depend on the kind.
    pub body: [u8; 16],
    /// Bytes that follow, as sent: the number may be negative.
    pub bytes: i32,
}

impl RequestHeader {
    /// Reads a header.
    pub fn read(bytes: &[u8; REQUEST_HEADER_BYTES]) -> Self {
        let mut body = [0; 16];
        body.copy_from_slice(&bytes[4..20]);
        RequestHeader {
            stream: StreamId([bytes[0], bytes[1]]),
            request: u16::from_be_bytes([bytes[2], bytes[3]]),
            body,
            bytes: i32::from_be_bytes([bytes[20], bytes[21], bytes[22], bytes[23]]),
        }
    }

    /// Writes a header.
    pub fn write(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.stream.0);
        out.extend_from_slice(&self.request.to_be_bytes());
        out.extend_from_slice(&self.body);
        out.extend_from_slice(&self.bytes.to_be_bytes());
    }

    /// Returns the name of the request, for people.
    pub fn name(&self) -> &'static str {
        numbers::request::name(self.request).unwrap_or("UNKNOWN")
    }

    fn number(&self, at: usize) -> u16 {
        u16::from_be_bytes([self.body[at], self.body[at + 1]])
    }
}

/// Writes a request.
pub fn write_request(out: &mut Vec<u8>, stream: StreamId, request: u16, body: [u8; 16], carried: &[u8]) {
    let bytes = i32::try_from(carried.len()).unwrap_or(i32::MAX);
    RequestHeader { stream, request, body, bytes }.write(out);
    out.extend_from_slice(carried);
}

/// Request of a client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Request<'a> {
    /// Agrees on the protocol.
    Protocol {
        /// Version that the client speaks.
        version: u32,
        /// Bits of [`numbers::ability`].
        abilities: u8,
    },
    /// Logs in.
    Login {
        /// Number of the client's process.
        process: u32,
        /// Name that the client gives.
        user: String,
        /// Program and host of the client, for the log.
        about: String,
    },
    /// Shows credentials.
    Auth(Credentials<'a>),
    /// Asks whether the server is alive.
    Ping,
    /// Ends an earlier session.
    EndSession,
    /// Describes the client.
    Set,
    /// Returns the stat of a path.
    Stat {
        /// Asks about the file system instead of the path.
        vfs: bool,
        /// The path; none for an open file.
        asked: Option<RawPath<'a>>,
    },
    /// Returns the kinds of several paths.
    Statx {
        /// The paths.
        asked: Vec<RawPath<'a>>,
    },
    /// Lists a directory.
    Dirlist {
        /// Wants a stat of each name.
        stat: bool,
        /// Wants a checksum of each name.
        checksum: bool,
        /// The directory.
        asked: RawPath<'a>,
    },
    /// Locates a file.
    Locate {
        /// Asks for servers of any file, not only of this path.
        any: bool,
        /// The client opens the path at each server of the answer.
        sources: bool,
        /// The path.
        asked: RawPath<'a>,
    },
    /// Opens a file.
    Open {
        /// Bits of [`numbers::open`].
        options: u16,
        /// The path.
        asked: RawPath<'a>,
    },
    /// Returns a checksum.
    Checksum(RawPath<'a>),
    /// Returns the configuration.
    Config {
        /// Names of the settings.
        names: Vec<&'a str>,
    },
    /// Returns the space.
    Space(RawPath<'a>),
    /// A query that the server does not answer.
    OtherQuery(u16),
    /// Makes a directory.
    Mkdir {
        /// Makes missing parents too.
        parents: bool,
        /// Mode of the directory.
        mode: u16,
        /// The directory.
        asked: RawPath<'a>,
    },
    /// Removes a directory.
    Rmdir(RawPath<'a>),
    /// Removes a file.
    Rm(RawPath<'a>),
    /// Moves an entry.
    Mv {
        /// Path of the entry.
        from: RawPath<'a>,
        /// New path.
        to: RawPath<'a>,
    },
    /// Sets a mode.
    Chmod {
        /// The mode.
        mode: u16,
        /// The path.
        asked: RawPath<'a>,
    },
    /// An operation on an open file; none is ever open.
    OfOpenFile,
    /// A known request that the server does not support.
    Unsupported,
    /// A request with an unknown number.
    Unknown,
}

/// Credentials of a client.
#[derive(Clone, PartialEq, Eq)]
pub enum Credentials<'a> {
    /// A bearer token.
    Token(&'a str),
    /// Account that the client claims to run as.
    Unix(&'a str),
    /// Host of the client, which the server sees itself.
    Host,
    /// Another kind, by its name.
    Other(String),
}

impl std::fmt::Debug for Credentials<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // Tokens are never printed.
        match self {
            Credentials::Token(_) => f.write_str("Token(…)"),
            Credentials::Unix(user) => write!(f, "Unix({user:?})"),
            Credentials::Host => f.write_str("Host"),
            Credentials::Other(name) => write!(f, "Other({name:?})"),
        }
    }
}

/// Position of a token's length in a request that carries a token; the next constant is that of the
/// token.
pub(super) const TOKEN_LENGTH_AT: usize = 8;
pub(super) const TOKEN_AT: usize = 10;
/// Marker before a token.
pub(super) const TOKEN_FOLLOWS: u8 = b'T';

impl<'a> Credentials<'a> {
    /// Parses credentials of `kind`, four bytes.
    fn parse(kind: &[u8], carried: &'a [u8]) -> Result<Self> {
        let name = until_nul(kind);
        match name {
            b"ztn" => {
                let bad = || Error::invalid("not a token as the protocol ztn shows it");
                if carried.get(..4) != Some(b"ztn\0") || carried.get(5) != Some(&TOKEN_FOLLOWS) {
                    return Err(bad());
                }
                let length = carried.get(TOKEN_LENGTH_AT..TOKEN_AT).ok_or_else(bad)?;
                let length = usize::from(u16::from_be_bytes([length[0], length[1]]));
                let token = carried.get(TOKEN_AT..TOKEN_AT + length).ok_or_else(bad)?;
                let token = until_nul(token);
                if token.len() > TOKEN_BYTES_MAX {
                    return Err(Error::limit("the length of a token in bytes", token.len(), TOKEN_BYTES_MAX));
                }
                Ok(Credentials::Token(std::str::from_utf8(token).map_err(|_| bad())?.trim()))
            }
            b"unix" => {
                let bad = || Error::invalid("not an account as the protocol unix shows it");
                let who = carried.strip_prefix(b"unix\0").ok_or_else(bad)?;
                let who = std::str::from_utf8(until_nul(who)).map_err(|_| bad())?;
                Ok(Credentials::Unix(who.split(' ').next().unwrap_or_default()))
            }
            b"host" => Ok(Credentials::Host),
            other => Ok(Credentials::Other(String::from_utf8_lossy(other).into_owned())),
        }
    }
}

fn until_nul(bytes: &[u8]) -> &[u8] {
    bytes.iter().position(|byte| *byte == 0).map_or(bytes, |end| &bytes[..end])
}

/// Bits of a mode that count, as in Unix.
const MODE_BITS: u16 = 0o1777;

impl<'a> Request<'a> {
    /// Parses a request from its header and the bytes that it carries.
    pub fn parse(header: &RequestHeader, carried: &'a [u8]) -> Result<Self> {
        Ok(match header.request {
            id::PROTOCOL => {
                let [a, b, c, d, abilities, ..] = header.body;
                Request::Protocol { version: u32::from_be_bytes([a, b, c, d]), abilities }
            }
            id::LOGIN => {
                let [a, b, c, d, user @ .., _, _, _, _] = header.body;
                Request::Login {
                    process: u32::from_be_bytes([a, b, c, d]),
                    user: printable(until_nul(&user)),
                    about: about(carried),
                }
            }
            id::AUTH => Request::Auth(Credentials::parse(&header.body[12..], carried)?),
            id::PING => Request::Ping,
            id::ENDSESS => Request::EndSession,
            id::SET => Request::Set,
            id::STAT => {
                let asked = if carried.is_empty() { None } else { Some(RawPath::parse(carried)?) };
                Request::Stat { vfs: header.body[0] & numbers::STAT_VFS != 0, asked }
            }
            id::STATX => Request::Statx { asked: paths(carried)? },
            id::DIRLIST => {
                let options = header.body[15];
                let checksum = options & numbers::dirlist::CHECKSUM != 0;
                let stat = checksum || options & numbers::dirlist::STAT != 0;
                Request::Dirlist { stat, checksum, asked: one(carried)? }
            }
            id::LOCATE => {
                let any = carried.first() == Some(&b'*');
                let rest = if any { &carried[1..] } else { carried };
                // A `*` alone means any path.
                let rest = if any && rest.is_empty() { b"/".as_slice() } else { rest };
                let sources = header.number(0) & numbers::LOCATE_UNIQUE != 0;
                Request::Locate { any, sources, asked: one(rest)? }
            }
            id::OPEN => Request::Open { options: header.number(2), asked: one(carried)? },
            id::QUERY => match header.number(0) {
                numbers::query::CHECKSUM => Request::Checksum(one(carried)?),
                numbers::query::CONFIG => Request::Config { names: names(carried)? },
                numbers::query::SPACE => {
                    let nothing = until_nul(carried).is_empty();
                    Request::Space(one(if nothing { b"/" } else { carried })?)
                }
                other => Request::OtherQuery(other),
            },
            id::MKDIR => Request::Mkdir {
                parents: header.body[0] & numbers::MKDIR_PARENTS != 0,
                mode: header.number(14) & MODE_BITS,
                asked: one(carried)?,
            },
            id::RMDIR => Request::Rmdir(one(carried)?),
            id::RM => Request::Rm(one(carried)?),
            id::MV => {
                let (from, to) = two(usize::from(header.number(14)), carried)?;
                Request::Mv { from, to }
            }
            id::CHMOD => Request::Chmod { mode: header.number(14) & MODE_BITS, asked: one(carried)? },
            id::READ
            | id::READV
            | id::PGREAD
            | id::WRITE
            | id::WRITEV
            | id::PGWRITE
            | id::SYNC
            | id::CLOSE
            | id::CHKPOINT => Request::OfOpenFile,
            id::TRUNCATE | id::PREPARE | id::FATTR | id::BIND | id::SIGVER | id::GPFILE => {
                Request::Unsupported
            }
            _ => Request::Unknown,
        })
    }
}

fn one(carried: &[u8]) -> Result<RawPath<'_>> {
    if carried.is_empty() {
        return Err(Error::invalid("a path is missing"));
    }
    RawPath::parse(carried)
}

/// Parses two paths with a blank between them, the first of `first` bytes; if that is 0, up to the
/// first blank.
fn two(first: usize, carried: &[u8]) -> Result<(RawPath<'_>, RawPath<'_>)> {
    let missing = || Error::invalid("two paths are needed, with a blank between them");
    let at = match first {
        0 => carried.iter().position(|byte| *byte == b' ').ok_or_else(missing)?,
        first => first,
    };
    let to = match carried.get(at) {
        Some(b' ') => &carried[at + 1..],
        _ => return Err(missing()),
    };
    Ok((one(&carried[..at])?, one(to)?))
}

/// Parses paths, one per line.
fn paths(carried: &[u8]) -> Result<Vec<RawPath<'_>>> {
    let carried = carried.strip_suffix(&[0]).unwrap_or(carried);
    let carried = carried.strip_suffix(b"\n").unwrap_or(carried);
    let mut found = Vec::new();
    for line in carried.split(|byte| *byte == b'\n') {
        if found.len() >= PATHS_MAX {
            return Err(Error::limit("the number of paths of a request", found.len() + 1, PATHS_MAX));
        }
        found.push(one(line)?);
    }
    Ok(found)
}

/// Parses names, separated by blanks or line ends.
fn names(carried: &[u8]) -> Result<Vec<&str>> {
    let text = std::str::from_utf8(until_nul(carried)).map_err(|_| Error::invalid("names are UTF-8"))?;
    let names: Vec<&str> = text.split_ascii_whitespace().take(CONFIG_NAMES_MAX + 1).collect();
    if names.is_empty() {
        return Err(Error::invalid("a name is missing"));
    }
    if names.len() > CONFIG_NAMES_MAX {
        return Err(Error::limit("the number of names of a request", names.len(), CONFIG_NAMES_MAX));
    }
    Ok(names)
}

/// Removes control characters from a client's text before it is shown, because terminals obey them.
fn printable(bytes: &[u8]) -> String {
    let text = String::from_utf8_lossy(bytes);
    text.chars().filter(|one| !one.is_control()).take(ABOUT_BYTES_MAX).collect()
}

/// Returns the program and version of a client.
fn about(carried: &[u8]) -> String {
    let text = String::from_utf8_lossy(until_nul(carried));
    let fields = text.trim_start_matches('?');
    let field = |name: &str| super::path::Fields(fields).get(name).unwrap_or_default().to_owned();
    let told = format!("{} {}", field("xrd.appname"), field("xrd.rn"));
    printable(told.trim().as_bytes())
}
