//! Address and settings of a catalogue: `cassandra://host1,host2:9043/keyspace`.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use exacat_model::{Error, Result};

use crate::access::ClusterAccess;
use crate::limits::{
    AUDIT_PARTITION_ROWS, AUDIT_ROWS_PER_SECOND, CACHE_ROWS_MAX, FILTER_BYTES, FLUSH_CHANGES,
    PARTITION_ROWS_MAX, SEGMENT_CHANGES, STALE_MAX,
};

/// Bytes of a keyspace's name in Cassandra.
const KEYSPACE_BYTES_MAX: usize = 48;
/// Contact nodes; the driver finds the others.
const HOSTS_MAX: usize = 64;
/// Default port.
const PORT: u16 = 9042;

/// Address where other servers of the catalogue reach this one to forward requests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PeersAt {
    /// None: it neither takes requests of others nor forwards its own.
    #[default]
    Nowhere,
    /// Its address towards the cluster's nodes, at any free port.
    Anywhere,
    /// This address and port.
    Here(SocketAddr),
}

impl std::str::FromStr for PeersAt {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        match text {
            "off" => Ok(PeersAt::Nowhere),
            "auto" => Ok(PeersAt::Anywhere),
            address => match address.parse::<SocketAddr>() {
                // Other servers get this address, so it must not be a wildcard.
                Ok(address) if !address.ip().is_unspecified() => Ok(PeersAt::Here(address)),
                _ => Err(Error::invalid(format!(
                    "{text:.100?}: servers reach each other at an address and a port, as 192.0.2.7:4100, or auto, or off"
                ))),
            },
        }
    }
}

impl std::fmt::Display for PeersAt {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            PeersAt::Nowhere => f.write_str("off"),
            PeersAt::Anywhere => f.write_str("auto"),
            PeersAt::Here(address) => address.fmt(f),
        }
    }
}

/// Settings of a catalogue on a cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CassandraSettings {
    /// Contact nodes, each with its port.
    pub hosts: Vec<String>,
    /// Keyspace of the catalogue.
    pub keyspace: String,
    /// Approximate rows in the row cache.
    pub cache_rows: usize,
    /// Bytes of the filter of existing keys; 0 for none.
    pub filter_bytes: usize,
    /// Approximate changes of one log segment. Servers of one catalogue need not agree on it, nor
    /// on the values below.
    pub segment_changes: u64,
    /// Changes after which a server flushes.
    pub flush_changes: u64,
    /// Children of a directory per partition.
    pub partition_rows: u64,
    /// Time that the history is kept, in milliseconds; none for ever.
    pub history_kept_ms: Option<u64>,
    /// Rows an audit reads a second at most; 0 for no limit.
    pub audit_rows_per_second: u64,
    /// Rows an audit compares in memory together.
    pub audit_partition_rows: u64,
    /// Directory of an audit's spill files; the system's directory for temporary files if none.
    pub work_directory: Option<PathBuf>,
    /// Age of the row cache that suffices for a bounded-staleness answer.
    pub stale_max: Duration,
    /// Credentials of this server, and the authorities it trusts.
    pub access: ClusterAccess,
    /// Address where other servers reach this one.
    pub peers: PeersAt,
    /// Datacenter of this server: it prefers these nodes, and `local-quorum` means them. None if
    /// there is only one.
    pub datacenter: Option<String>,
}

impl CassandraSettings {
    /// Scheme of the address of a catalogue on a cluster.
    pub const SCHEME: &'static str = "cassandra://";
    /// Bytes of the filter at most: its arithmetic allows no more, and no catalogue has files for
    /// more.
    pub const FILTER_BYTES_MAX: usize = 64 << 30;

    /// Makes settings for these nodes and this keyspace.
    pub fn new(hosts: &str, keyspace: &str) -> Result<Self> {
        let bad = |what: &str| {
            Err(Error::invalid(format!("{what}: a cluster is given as cassandra://host1,host2/keyspace")))
        };
        let mut list = Vec::new();
        for host in hosts.split(',') {
            let well_formed = host
                .bytes()
                .all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'-' | b':' | b'_'));
            if host.is_empty() || !well_formed {
                return bad(&format!("not a host: {host:.100?}"));
            }
            list.push(if host.contains(':') { host.to_owned() } else { format!("{host}:{PORT}") });
        }
        if list.len() > HOSTS_MAX {
            return bad(&format!("{} hosts, at most {HOSTS_MAX} are named", list.len()));
        }
        let begins = keyspace.bytes().next().is_some_and(|byte| byte.is_ascii_lowercase());
        let well_formed =
            keyspace.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_');
        if !begins || !well_formed || keyspace.len() > KEYSPACE_BYTES_MAX {
            return bad(&format!(
                "not a keyspace (small letters, digits and _, at most {KEYSPACE_BYTES_MAX}): {keyspace:.100?}"
            ));
        }
        Ok(CassandraSettings {
            hosts: list,
            keyspace: keyspace.to_owned(),
            cache_rows: CACHE_ROWS_MAX,
            filter_bytes: FILTER_BYTES,
            segment_changes: SEGMENT_CHANGES,
            flush_changes: FLUSH_CHANGES,
            partition_rows: PARTITION_ROWS_MAX,
            history_kept_ms: None,
            audit_rows_per_second: AUDIT_ROWS_PER_SECOND,
            audit_partition_rows: AUDIT_PARTITION_ROWS,
            work_directory: None,
            stale_max: STALE_MAX,
            access: ClusterAccess::default(),
            peers: PeersAt::Nowhere,
            datacenter: None,
        })
    }

    /// Parses `cassandra://host1,host2/keyspace`.
    pub fn parse(text: &str) -> Result<Self> {
        let rest = text.strip_prefix(Self::SCHEME).unwrap_or(text);
        let (hosts, keyspace) = rest.split_once('/').unwrap_or((rest, ""));
        Self::new(hosts, keyspace)
    }
}

impl std::fmt::Display for CassandraSettings {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}{}/{}", Self::SCHEME, self.hosts.join(","), self.keyspace)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;

    #[test]
    fn where_servers_reach_each_other_is_read() {
        for (text, at) in [("off", PeersAt::Nowhere), ("auto", PeersAt::Anywhere)] {
            assert_eq!(text.parse::<PeersAt>().unwrap(), at);
            assert_eq!(at.to_string(), text);
        }
        assert_eq!("[::1]:7".parse::<PeersAt>().unwrap().to_string(), "[::1]:7");
        for bad in ["", "on", "192.0.2.7", "0.0.0.0:4100", "[::]:4100", "a.b:4100"] {
            assert!(bad.parse::<PeersAt>().is_err(), "{bad}");
        }
    }

    #[test]
    fn addresses_are_read() {
        let settings = CassandraSettings::parse("cassandra://a.b,127.0.0.2:9043/exacat_1").unwrap();
        assert_eq!(settings.hosts, ["a.b:9042", "127.0.0.2:9043"]);
        assert_eq!(settings.keyspace, "exacat_1");
        assert_eq!(settings.to_string(), "cassandra://a.b:9042,127.0.0.2:9043/exacat_1");
        assert_eq!(CassandraSettings::parse(&settings.to_string()).unwrap(), settings);
        let longest = "k".repeat(KEYSPACE_BYTES_MAX);
        assert!(CassandraSettings::new("h", &longest).is_ok());
        assert!(CassandraSettings::new("h", &format!("{longest}k")).is_err());
        let hosts = vec!["h"; HOSTS_MAX].join(",");
        assert!(CassandraSettings::new(&hosts, "k").is_ok());
        assert!(CassandraSettings::new(&format!("{hosts},h"), "k").is_err());
        for bad in
            ["", "cassandra://", "cassandra://h", "cassandra://h/", "h/K", "h,/k", "h/1k", "h/k-k", "h h/k"]
        {
            assert!(CassandraSettings::parse(bad).is_err(), "{bad}");
        }
    }
}
