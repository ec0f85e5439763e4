//! Addresses of topics of Kafka.

use std::fmt;

use exacat_model::{Error, Result};

use crate::limits::{KAFKA_HOSTS_MAX, KAFKA_TOPIC_BYTES_MAX};

/// Port of brokers, unless the address has one.
const PORT: u16 = 9092;
/// The same over TLS.
const TLS_PORT: u16 = 9093;

/// Address of a topic: the hosts that are asked for its brokers, and its name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct KafkaAddress {
    pub is_tls: bool,
    /// Names or IP addresses with ports, an IPv6 address without brackets.
    pub hosts: Vec<(String, u16)>,
    pub topic: String,
}

impl fmt::Display for KafkaAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.is_tls { "kafkas://" } else { "kafka://" })?;
        for (at, (host, port)) in self.hosts.iter().enumerate() {
            let comma = if at > 0 { "," } else { "" };
            write!(f, "{comma}{}", authority(host, *port))?;
        }
        write!(f, "/{}", self.topic)
    }
}

/// Returns `HOST:PORT`.
pub(crate) fn authority(host: &str, port: u16) -> String {
    if host.contains(':') { format!("[{host}]:{port}") } else { format!("{host}:{port}") }
}

/// Reads `HOST` or `HOST:PORT`.
fn host(text: &str, default: u16) -> std::result::Result<(String, u16), &'static str> {
    let (host, rest) = match text.strip_prefix('[') {
        Some(inner) => {
            let (address, rest) = inner.split_once(']').ok_or("a bracket is not closed")?;
            if address.parse::<std::net::Ipv6Addr>().is_err() {
                return Err("brackets are for IPv6 addresses");
            }
            (address, rest)
        }
        None => {
            let (host, rest) = text.split_at(text.find(':').unwrap_or(text.len()));
            let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b".-_".contains(&byte);
            if host.is_empty() || !host.bytes().all(is_plain) {
                return Err("a host is no name and no IP address");
            }
            (host, rest)
        }
    };
    let port = match rest.strip_prefix(':') {
        None if rest.is_empty() => default,
        Some(port) if port.bytes().all(|byte| byte.is_ascii_digit()) => {
            port.parse().ok().filter(|port| *port > 0).ok_or("a port is not within 1 to 65535")?
        }
        _ => return Err("a port is no number"),
    };
    Ok((host.to_owned(), port))
}

impl KafkaAddress {
    /// Reads `kafka://HOST[:PORT][,HOST2[:PORT]…]/TOPIC`, or `kafkas://` for TLS.
    pub(crate) fn parse(text: &str) -> Result<Self> {
        let bad = |why: &str| {
            Error::invalid(format!(
                "{text:.100?} is no address of a Kafka topic ({why}): give kafka(s)://HOST[:PORT],…/TOPIC"
            ))
        };
        let (is_tls, rest) = match (text.strip_prefix("kafka://"), text.strip_prefix("kafkas://")) {
            (Some(rest), _) => (false, rest),
            (_, Some(rest)) => (true, rest),
            _ => return Err(bad("its scheme is neither kafka nor kafkas")),
        };
        let (hosts, topic) = rest.split_once('/').ok_or_else(|| bad("it has no topic"))?;
        if hosts.contains('@') {
            return Err(bad("a password would be seen by all who list feeds; use a secret file"));
        }
        let count = hosts.split(',').count();
        if count > KAFKA_HOSTS_MAX {
            return Err(Error::limit("the number of bootstrap hosts", count, KAFKA_HOSTS_MAX));
        }
        let default = if is_tls { TLS_PORT } else { PORT };
        let hosts: std::result::Result<Vec<_>, _> = hosts.split(',').map(|one| host(one, default)).collect();
        let hosts = hosts.map_err(bad)?;
        if is_tls && hosts.iter().any(|(host, _)| host.contains(':')) {
            return Err(bad("TLS needs a name or an IPv4 address"));
        }
        let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b".-_".contains(&byte);
        if topic.is_empty() || matches!(topic, "." | "..") || !topic.bytes().all(is_plain) {
            return Err(bad("the name of a topic has letters, digits, . _ - and is neither . nor .."));
        }
        if topic.len() > KAFKA_TOPIC_BYTES_MAX {
            return Err(Error::limit(
                "the length of a topic's name in bytes",
                topic.len(),
                KAFKA_TOPIC_BYTES_MAX,
            ));
        }
        Ok(KafkaAddress { is_tls, hosts, topic: topic.to_owned() })
    }

    /// True if the other address has the same topic, as far as the addresses tell.
    pub(crate) fn has_topic_of(&self, other: &KafkaAddress) -> bool {
        let host = |one: &(String, u16)| one.0.to_ascii_lowercase();
        self.topic == other.topic
            && self.hosts.iter().any(|one| other.hosts.iter().any(|another| host(one) == host(another)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> KafkaAddress {
        KafkaAddress::parse(text).unwrap()
    }

    /// Property: each form of an address is read, with the default port of its scheme, and prints the same
    /// address.
    #[test]
    fn addresses_are_read_with_their_default_ports() {
        let one = parse("kafka://broker/exacat.changes");
        assert_eq!((one.is_tls, one.topic.as_str()), (false, "exacat.changes"));
        assert_eq!(one.hosts, [("broker".to_owned(), 9092)]);
        let some = parse("kafka://a:1,10.0.0.1,[::1],[2001:db8::1]:65535/t");
        let hosts: Vec<_> = some.hosts.iter().map(|(host, port)| (host.as_str(), *port)).collect();
        assert_eq!(hosts, [("a", 1), ("10.0.0.1", 9092), ("::1", 9092), ("2001:db8::1", 65535)]);
        assert_eq!(some.to_string(), "kafka://a:1,10.0.0.1:9092,[::1]:9092,[2001:db8::1]:65535/t");
        assert_eq!(parse(&some.to_string()), some);
        let secure = parse("kafkas://broker-1.example.org/t");
        assert_eq!((secure.is_tls, secure.hosts[0].1), (true, 9093));
    }

    #[test]
    fn bad_addresses_are_refused_with_the_form() {
        for bad in [
            "kafka://",
            "kafka://h",
            "kafka://h/",
            "kafka:///t",
            "kafka://h,/t",
            "kafka://,h/t",
            "kafka://h:/t",
            "kafka://h:0/t",
            "kafka://h:65536/t",
            "kafka://h:+1/t",
            "kafka://h:x/t",
            "kafka://::1/t",
            "kafka://[::1/t",
            "kafka://[h]/t",
            "kafka://[::1]x/t",
            "kafka://h h/t",
            "kafka://user:pw@h/t",
            "kafka://h/.",
            "kafka://h/..",
            "kafka://h/a/b",
            "kafka://h/a b",
            "kafka://h/ä",
            "kafka://h/t?x=1",
            "kafkas://[::1]/t",
            "KAFKA://h/t",
        ] {
            let error = KafkaAddress::parse(bad).unwrap_err();
            assert!(error.message.contains("kafka(s)://HOST"), "{bad}: {error}");
        }
        assert!(KafkaAddress::parse("kafka://u:p@h/t").unwrap_err().message.contains("secret file"));
    }

    /// Property: both limits hold at their edges.
    #[test]
    fn hosts_and_the_name_of_the_topic_are_bounded() {
        let with = |hosts: usize, topic: usize| {
            let hosts = vec!["h"; hosts].join(",");
            KafkaAddress::parse(&format!("kafka://{hosts}/{}", "t".repeat(topic))).map_err(|error| error.kind)
        };
        assert!(with(KAFKA_HOSTS_MAX, KAFKA_TOPIC_BYTES_MAX).is_ok());
        assert_eq!(with(KAFKA_HOSTS_MAX + 1, 1), Err(exacat_model::ErrorKind::Limit));
        assert_eq!(with(1, KAFKA_TOPIC_BYTES_MAX + 1), Err(exacat_model::ErrorKind::Limit));
    }

    #[test]
    fn topic_of_another_feed_is_recognised() {
        let one = parse("kafka://a,b/t");
        for (other, same) in [
            ("kafka://B:9999/t", true),
            ("kafkas://a/t", true),
            ("kafka://c/t", false),
            ("kafka://a/u", false),
        ] {
            assert_eq!(one.has_topic_of(&parse(other)), same, "{other}");
        }
    }
}
