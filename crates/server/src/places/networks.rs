//! Networks and their sites: lines `NETWORK SITE` of a file, such as `10.1.0.0/16 CERN`. The
//! narrowest network of a client counts.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr};
use std::path::PathBuf;
use std::str::FromStr;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use exacat_model::{AccountName, Error, Result};
use parking_lot::Mutex;

use crate::directory::{failed, read};

/// Interval at which the file is checked for changes.
const CHECKED_EVERY: Duration = Duration::from_secs(60);
/// Most lines that are read.
const LINES_MAX: usize = 100_000;

/// A network: an address and its number of significant bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Network {
    address: IpAddr,
    bits: u8,
}

/// Returns an IPv4-mapped IPv6 address as IPv4, and others unchanged.
fn plain(address: IpAddr) -> IpAddr {
    address.to_canonical()
}

/// Returns the first `bits` bits of an address.
fn masked(address: IpAddr, bits: u8) -> IpAddr {
    match address {
        IpAddr::V4(v4) => {
            let mask = u32::MAX.checked_shl(32 - u32::from(bits.min(32))).unwrap_or(0);
            IpAddr::V4(Ipv4Addr::from_bits(v4.to_bits() & mask))
        }
        IpAddr::V6(v6) => {
            let mask = u128::MAX.checked_shl(128 - u32::from(bits.min(128))).unwrap_or(0);
            IpAddr::V6((v6.to_bits() & mask).into())
        }
    }
}

impl Network {
    /// True if the network contains this address.
    pub fn contains(&self, address: IpAddr) -> bool {
        let address = plain(address);
        address.is_ipv4() == self.address.is_ipv4() && masked(address, self.bits) == self.address
    }
}

impl FromStr for Network {
    type Err = Error;

    /// Reads `ADDRESS/BITS`, or an address alone.
    fn from_str(text: &str) -> Result<Self> {
        let bad = || Error::invalid(format!("not a network (as 10.1.0.0/16 or 2001:db8::/32): {text:.100?}"));
        let (address, bits) = match text.split_once('/') {
            Some((address, bits)) => (address, Some(bits)),
            None => (text, None),
        };
        let address: IpAddr = address.parse().map_err(|_| bad())?;
        let all = if address.is_ipv4() { 32 } else { 128 };
        let bits = match bits {
            None => all,
            Some(bits) => bits.parse().ok().filter(|bits| *bits <= all).ok_or_else(bad)?,
        };
        if masked(address, bits) != address {
            return Err(Error::invalid(format!(
                "{text}: the address has bits beyond those that count; {}/{bits} is the network",
                masked(address, bits)
            )));
        }
        Ok(Network { address, bits })
    }
}

impl fmt::Display for Network {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.address, self.bits)
    }
}

/// Networks and their sites, the narrowest first.
type Table = Vec<(Network, AccountName)>;

fn parse(text: &str) -> Result<Table> {
    let mut table = Table::new();
    for (number, line) in text.lines().enumerate() {
        let line = line.split('#').next().unwrap_or_default().trim();
        if line.is_empty() {
            continue;
        }
        if table.len() >= LINES_MAX {
            return Err(Error::limit("the number of networks", table.len() + 1, LINES_MAX));
        }
        let one = || -> Result<(Network, AccountName)> {
            let mut words = line.split_ascii_whitespace();
            match (words.next(), words.next(), words.next()) {
                (Some(network), Some(site), None) => Ok((network.parse()?, AccountName::parse(site)?)),
                _ => Err(Error::invalid("a line is NETWORK SITE")),
            }
        };
        table.push(one().map_err(|error| Error::invalid(format!("line {}: {error}", number + 1)))?);
    }
    table.sort_by_key(|(network, _)| (std::cmp::Reverse(network.bits), *network));
    if let Some(pair) = table.windows(2).find(|pair| pair[0].0 == pair[1].0 && pair[0].1 != pair[1].1) {
        let [(network, one), (_, other)] = pair else { return Ok(table) };
        return Err(Error::invalid(format!("{network} is said to be at {one} and at {other}")));
    }
    Ok(table)
}

/// The parsed file, and the times of reading and change.
struct NetworkTable {
    table: Arc<Table>,
    checked_at: Instant,
    changed: Option<SystemTime>,
}

/// The file's networks, read again when it changes.
pub(super) struct Networks {
    path: Option<PathBuf>,
    state: Mutex<NetworkTable>,
}

impl Networks {
    pub(crate) fn open(path: Option<PathBuf>) -> Result<Self> {
        let mut state = NetworkTable { table: Arc::default(), checked_at: Instant::now(), changed: None };
        if let Some(path) = &path {
            state.changed = changed(path);
            state.table = Arc::new(load(path)?);
        }
        Ok(Networks { path, state: Mutex::new(state) })
    }

    pub(crate) fn site_of(&self, client: IpAddr, now: Instant) -> Option<AccountName> {
        let table = self.table(now);
        table.iter().find(|(network, _)| network.contains(client)).map(|(_, site)| site.clone())
    }

    fn table(&self, now: Instant) -> Arc<Table> {
        let mut state = self.state.lock();
        let Some(path) = &self.path else { return Arc::clone(&state.table) };
        if now.saturating_duration_since(state.checked_at) >= CHECKED_EVERY {
            state.checked_at = now;
            let changed = changed(path);
            if changed != state.changed {
                state.changed = changed;
                match load(path) {
                    Ok(table) => state.table = Arc::new(table),
                    // Keep the old table: it is better than none.
                    Err(error) => tracing::error!(%error, "the networks of sites stay as they were"),
                }
            }
        }
        Arc::clone(&state.table)
    }
}

fn changed(path: &std::path::Path) -> Option<SystemTime> {
    std::fs::metadata(path).and_then(|about| about.modified()).ok()
}

fn load(path: &std::path::Path) -> Result<Table> {
    let missing = || failed("read", path, &std::io::Error::from(std::io::ErrorKind::NotFound));
    let text = read(path)?.ok_or_else(missing)?;
    parse(&text).map_err(|error| Error::invalid(format!("{}: {error}", path.display())))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    #[test]
    fn a_network_has_what_is_in_it() {
        for (network, inside, outside) in [
            ("10.1.0.0/16", "10.1.255.255", "10.2.0.0"),
            ("10.1.0.0/16", "::ffff:10.1.2.3", "::10.1.2.3"),
            ("0.0.0.0/0", "255.1.2.3", "::1"),
            ("::/0", "2001:db8::1", "10.0.0.1"),
            ("192.0.2.1", "192.0.2.1", "192.0.2.2"),
            ("2001:db8::/33", "2001:db8:7fff::1", "2001:db8:8000::1"),
        ] {
            let parsed: Network = network.parse().unwrap();
            assert!(parsed.contains(address(inside)), "{network} {inside}");
            assert!(!parsed.contains(address(outside)), "{network} {outside}");
        }
        for bad in
            ["", "10.1.0.0/33", "10.1.0.0/-1", "10.1.0.1/16", "::/129", "10.1/16", "x/8", "10.0.0.0/8/8"]
        {
            assert!(bad.parse::<Network>().is_err(), "{bad}");
        }
    }

    #[test]
    fn the_narrowest_network_counts() {
        let table = parse("# sites\n10.0.0.0/8 WIDE\n\n10.1.0.0/16 NARROW # a comment\n::/0 SIX\n").unwrap();
        let networks = Networks {
            path: None,
            state: Mutex::new(NetworkTable {
                table: Arc::new(table),
                checked_at: Instant::now(),
                changed: None,
            }),
        };
        let site = |text: &str| networks.site_of(address(text), Instant::now()).map(|site| site.to_string());
        assert_eq!(site("10.1.2.3").as_deref(), Some("NARROW"));
        assert_eq!(site("10.2.2.3").as_deref(), Some("WIDE"));
        assert_eq!(site("fe80::1").as_deref(), Some("SIX"));
        assert_eq!(site("11.0.0.1"), None);
        for bad in ["10.0.0.0/8", "10.0.0.0/8 A B", "x CERN", "10.0.0.0/8 A\n10.0.0.0/8 B"] {
            assert!(parse(bad).unwrap_err().message.contains("line") || bad.contains('\n'), "{bad}");
        }
        parse("10.0.0.0/8 A\n10.0.0.0/8 A").unwrap();
    }

    #[test]
    fn the_file_is_read_again_when_it_changes_and_a_bad_one_is_not_taken() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("networks");
        assert!(Networks::open(Some(path.clone())).is_err(), "it is not there");
        let write = |text: &str, seconds: u64| {
            std::fs::write(&path, text).unwrap();
            let when = SystemTime::UNIX_EPOCH + Duration::from_secs(seconds);
            std::fs::File::options().write(true).open(&path).unwrap().set_modified(when).unwrap();
        };
        write("10.0.0.0/8 A", 1);
        let networks = Networks::open(Some(path.clone())).unwrap();
        let mut now = Instant::now();
        let mut site = |later: Duration| {
            now += later;
            networks.site_of(address("10.0.0.1"), now).map(|site| site.to_string())
        };
        assert_eq!(site(Duration::ZERO).as_deref(), Some("A"));
        write("10.0.0.0/8 B", 2);
        assert_eq!(site(CHECKED_EVERY / 2).as_deref(), Some("A"), "not checked yet");
        assert_eq!(site(CHECKED_EVERY).as_deref(), Some("B"));
        write("nonsense", 3);
        assert_eq!(site(CHECKED_EVERY).as_deref(), Some("B"));
        write("10.0.0.0/8 C", 4);
        assert_eq!(site(CHECKED_EVERY).as_deref(), Some("C"));
    }
}
