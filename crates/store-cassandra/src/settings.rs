//! Where the catalogue is: `cassandra://host1,host2:9043/keyspace`.

use exacat_model::{Error, Result};

use crate::limits::{ROWS_KNOWN_MAX, STRETCH_CHANGES};

/// Bytes of a keyspace's name that Cassandra takes.
const KEYSPACE_BYTES_MAX: usize = 48;
/// Nodes named to begin with; the others are found.
const HOSTS_MAX: usize = 64;
/// The port if none is said.
const PORT: u16 = 9042;

/// What opens a catalogue on a cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CassandraSettings {
    /// Nodes to begin with, each with its port.
    pub hosts: Vec<String>,
    /// The catalogue's keyspace.
    pub keyspace: String,
    /// Rows known in memory, about.
    pub rows_known: usize,
    /// Changes of one stretch of the log, about. Servers of one catalogue need not agree on it.
    pub stretch_changes: u64,
}

impl CassandraSettings {
    /// What begins the address of a catalogue on a cluster.
    pub const SCHEME: &'static str = "cassandra://";

    /// These nodes and this keyspace.
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
            rows_known: ROWS_KNOWN_MAX,
            stretch_changes: STRETCH_CHANGES,
        })
    }

    /// Reads `cassandra://host1,host2/keyspace`.
    pub fn parse(text: &str) -> Result<Self> {
        let rest = text.strip_prefix(Self::SCHEME).unwrap_or(text);
        let (hosts, keyspace) = rest.split_once('/').unwrap_or((rest, ""));
        Self::new(hosts, keyspace)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;

    #[test]
    fn addresses_are_read() {
        let settings = CassandraSettings::parse("cassandra://a.b,127.0.0.2:9043/exacat_1").unwrap();
        assert_eq!(settings.hosts, ["a.b:9042", "127.0.0.2:9043"]);
        assert_eq!(settings.keyspace, "exacat_1");
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
