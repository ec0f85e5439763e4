//! Datagrams that give a number to a client or path, and those that say which server sends.

use super::fstream::Head;

/// Bytes of the head, and of the number behind it.
const HEAD_BYTES: usize = 8;
const NUMBER_BYTES: usize = 4;

/// Codes of these datagrams.
pub mod code {
    /// Identity of the server.
    pub const IDENTITY: u8 = b'=';
    /// A client.
    pub const USER: u8 = b'u';
    /// A path.
    pub const PATH: u8 = b'd';
}

/// A number with its text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Map<'a> {
    /// The number.
    pub number: u32,
    /// Client that it is of, or the server.
    pub user: UserId<'a>,
    /// Rest: fields of a client or server, or a path.
    pub text: &'a str,
}

/// Identity of a client on a server: `protocol/user.process:server@host`. That of a server has no protocol.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct UserId<'a> {
    /// Protocol.
    pub protocol: &'a str,
    /// Name that the client gives.
    pub user: &'a str,
    /// Number of the process.
    pub process: u64,
    /// Number of the server. It stays the same when the server starts again.
    pub server: u64,
    /// Host.
    pub host: &'a str,
}

impl<'a> UserId<'a> {
    /// Reads an identity; none for any other text.
    fn parse(text: &'a str) -> Option<Self> {
        // A name of a client may have any of the signs, so the last ones count.
        let (rest, host) = text.rsplit_once('@')?;
        let (rest, server) = rest.rsplit_once(':')?;
        let (rest, process) = rest.rsplit_once('.')?;
        let (protocol, user) = rest.split_once('/').unwrap_or(("", rest));
        Some(UserId { protocol, user, process: process.parse().ok()?, server: server.parse().ok()?, host })
    }
}

impl<'a> Map<'a> {
    /// Reads a datagram.
    ///
    /// # Errors
    /// It is no such datagram, or is cut off.
    pub fn read(datagram: &'a [u8]) -> Result<Self, &'static str> {
        let head = Head::read(datagram).ok_or("the datagram is too short")?;
        let body = datagram.get(HEAD_BYTES..usize::from(head.length)).ok_or("the datagram is cut off")?;
        let (number, text) = body.split_first_chunk::<NUMBER_BYTES>().ok_or("the datagram is too short")?;
        let end = text.iter().position(|byte| *byte == 0).unwrap_or(text.len());
        let text = std::str::from_utf8(&text[..end]).map_err(|_| "the text of the datagram is not UTF-8")?;
        let (user, text) = text.split_once('\n').unwrap_or((text, ""));
        let user = UserId::parse(user).ok_or("the datagram names no client of a server")?;
        Ok(Map { number: u32::from_be_bytes(*number), user, text })
    }

    /// Returns a field of the text, such as `&pgm=xrootd`.
    pub fn field(&self, name: &str) -> Option<&'a str> {
        self.text.split('&').find_map(|field| field.strip_prefix(name)?.strip_prefix('='))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn datagram(code: u8, text: &str) -> Vec<u8> {
        let length = (HEAD_BYTES + NUMBER_BYTES + text.len()) as u16;
        [&[code, 1][..], &length.to_be_bytes(), &17_u32.to_be_bytes(), &9_u32.to_be_bytes(), text.as_bytes()]
            .concat()
    }

    #[test]
    fn clients_paths_and_servers_are_read() {
        let bytes =
            datagram(code::USER, "xroot/root.20032:18501@[::ffff:127.0.0.1]\n&R=v5.5.3&x=xrdcp&y=&I=4");
        let map = Map::read(&bytes).unwrap();
        let user = UserId {
            protocol: "xroot",
            user: "root",
            process: 20032,
            server: 18501,
            host: "[::ffff:127.0.0.1]",
        };
        assert_eq!((map.number, map.user), (9, user));
        assert_eq!((map.field("x"), map.field("y"), map.field("z")), (Some("xrdcp"), Some(""), None));
        let bytes = datagram(code::PATH, "xroot/a.b:c@d.1:2@host\n/data/f");
        let map = Map::read(&bytes).unwrap();
        assert_eq!((map.user.user, map.user.host, map.text), ("a.b:c@d", "host", "/data/f"));
        let bytes =
            datagram(code::IDENTITY, "xrootd.7:18501@cache\n&site=A&port=1094&inst=xc&pgm=xrootd&ver=v5.5.3");
        let map = Map::read(&bytes).unwrap();
        assert_eq!((map.user.protocol, map.field("site"), map.field("port")), ("", Some("A"), Some("1094")));
    }

    /// Property: no bytes make it panic, and a cut datagram is an error.
    #[test]
    fn garbage_is_refused() {
        let whole = datagram(code::USER, "xroot/root.20032:18501@host\n&x=y");
        for at in 0..whole.len() {
            assert!(Map::read(&whole[..at]).is_err(), "cut at {at}");
        }
        for text in ["", "xroot/root", "root.x:1@h", "root.1:x@h", "root.1:-1@h", "\0root.1:1@h"] {
            assert!(Map::read(&datagram(code::USER, text)).is_err(), "{text:?}");
        }
        let mut bytes = datagram(code::USER, "root.1:1@h");
        let last = bytes.len() - 1;
        bytes[last] = 0xff;
        assert!(Map::read(&bytes).is_err());
    }
}
