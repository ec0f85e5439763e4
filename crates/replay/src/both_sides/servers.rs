//! Servers that send datagrams: their names, and their starts.

use std::sync::Arc;

use hashbrown::HashMap;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::limits::{SENDER_NAME_MAX, SERVERS_MAX, START_DIFFERENCE_MAX};

/// Server that sends datagrams.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(default)]
pub struct ServerInfo {
    /// Name, as events have it.
    pub name: String,
    /// Site, if it tells one.
    pub site: String,
    /// Instance, if it tells one.
    pub instance: String,
    /// Version, if it tells one.
    pub version: String,
    /// Last start, in seconds since 1970; 0 if it is not known.
    pub started: u64,
    /// Starts that were seen after the first.
    pub restarts: u64,
}

/// Description that a server gives of itself; empty texts are not known.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Description<'a> {
    pub host: &'a str,
    pub port: u32,
    pub site: &'a str,
    pub instance: &'a str,
    pub version: &'a str,
}

/// Stream that tells a start: each asks the clock for itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum StartOf {
    /// Records of files and clients.
    Records,
    /// Summaries.
    Summaries,
}

/// Starts of a server, in seconds since 1970; 0 if they are not known.
#[derive(Clone, Copy, Debug, Default)]
struct Starts {
    records: u64,
    summaries: u64,
    /// Last start that was counted as a restart, and the stream that told it.
    counted: Option<(StartOf, u64)>,
}

/// A known server.
#[derive(Debug)]
struct Server {
    starts: Starts,
    name: Arc<str>,
    info: ServerInfo,
    /// True if it told its name itself.
    is_named: bool,
    /// True if it has another name now.
    is_replaced: bool,
}

/// All servers.
#[derive(Debug, Default)]
pub(super) struct Servers {
    list: Vec<Server>,
    by_number: HashMap<u64, usize>,
    by_name: HashMap<Arc<str>, usize>,
}

/// Removes control characters from a text, and shortens it.
pub(super) fn printable(text: &str) -> String {
    text.chars().filter(|letter| !letter.is_control()).take(SENDER_NAME_MAX).collect()
}

impl Servers {
    fn add(&mut self, name: &str, is_named: bool) -> Option<usize> {
        if let Some(known) = self.by_name.get(name) {
            return Some(*known);
        }
        if self.list.len() >= SERVERS_MAX {
            return None;
        }
        let (name, place): (Arc<str>, usize) = (name.into(), self.list.len());
        let info = ServerInfo { name: name.to_string(), ..ServerInfo::default() };
        self.list.push(Server {
            name: Arc::clone(&name),
            info,
            is_named,
            is_replaced: false,
            starts: Starts::default(),
        });
        self.by_name.insert(name, place);
        Some(place)
    }

    /// Returns the server with a number; none if there are too many. Without a number its address stands
    /// for it.
    pub(super) fn by_number(&mut self, number: Option<u64>, address: &str) -> Option<usize> {
        let Some(number) = number else { return self.add(address, false) };
        if let Some(known) = self.by_number.get(&number) {
            return Some(*known);
        }
        let place = self.add(&format!("{address}#{number}"), false)?;
        self.by_number.insert(number, place);
        Some(place)
    }

    /// Returns the server with a description, and its name so far if it has another one now.
    pub(super) fn described(
        &mut self,
        number: Option<u64>,
        address: &str,
        of: &Description<'_>,
    ) -> Option<(usize, Option<Arc<str>>)> {
        let name = match (of.host, of.site, number) {
            ("", "", _) => return self.by_number(number, address).map(|place| (place, None)),
            ("", site, Some(number)) => format!("{}#{number}", printable(site)),
            ("", site, None) => printable(site),
            (host, ..) => format!("{}:{}", printable(host), of.port),
        };
        let before = number.and_then(|number| self.by_number.get(&number).copied());
        let place = match before.filter(|place| self.name(*place).as_ref() == name) {
            Some(place) => place,
            None => self.add(&name, true)?,
        };
        if let Some(number) = number {
            self.by_number.insert(number, place);
        }
        // Only a name that stood for an unknown one is given up.
        let was_unnamed = |place: &usize| self.list.get(*place).is_some_and(|server| !server.is_named);
        let renamed = before.filter(|before| *before != place && was_unnamed(before));
        if let Some(server) = renamed.and_then(|before| self.list.get_mut(before)) {
            server.is_replaced = true;
            let started = server.info.started;
            self.started(place, StartOf::Records, started);
        }
        let renamed = renamed.map(|before| self.name(before));
        if let Some(server) = self.list.get_mut(place) {
            server.is_named = true;
            let texts = [
                (&mut server.info.site, of.site),
                (&mut server.info.instance, of.instance),
                (&mut server.info.version, of.version),
            ];
            for (known, told) in texts {
                if !told.is_empty() {
                    *known = printable(told);
                }
            }
        }
        Some((place, renamed))
    }

    /// Returns the name of a server.
    pub(super) fn name(&self, place: usize) -> Arc<str> {
        self.list.get(place).map_or_else(|| "".into(), |server| Arc::clone(&server.name))
    }

    /// Takes the time of a server's start. True if it has started again.
    pub(super) fn started(&mut self, place: usize, of: StartOf, time: u64) -> bool {
        let Some(server) = self.list.get_mut(place) else { return false };
        let starts = &mut server.starts;
        let before = match of {
            StartOf::Records => &mut starts.records,
            StartOf::Summaries => &mut starts.summaries,
        };
        // An earlier start is that of a datagram which comes late.
        if time <= *before {
            return false;
        }
        let was_known = std::mem::replace(before, time) > 0;
        let is_near = |other: u64| other.abs_diff(time) <= START_DIFFERENCE_MAX;
        let was_counted = starts.counted.is_some_and(|(by, other)| by != of && is_near(other));
        let last = server.info.started;
        let is_other_start = was_known || (last > 0 && time > last && !is_near(last));
        server.info.started = last.max(time);
        if !is_other_start || was_counted {
            return false;
        }
        starts.counted = Some((of, time));
        server.info.restarts += 1;
        true
    }

    /// Returns all servers, without those that have another name now.
    pub(super) fn infos(&self) -> Vec<ServerInfo> {
        self.list.iter().filter(|server| !server.is_replaced).map(|server| server.info.clone()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Property: a server has one name, which is the one it tells, whatever came first.
    #[test]
    fn a_server_is_known_by_what_it_tells() {
        let mut servers = Servers::default();
        let first = servers.by_number(Some(7), "10.0.0.1").unwrap();
        assert_eq!(&*servers.name(first), "10.0.0.1#7");
        let of = Description { host: "cache", port: 1094, site: "A", instance: "xc", version: "v5" };
        let (place, renamed) = servers.described(Some(7), "10.0.0.1", &of).unwrap();
        assert_eq!((&*servers.name(place), renamed.as_deref()), ("cache:1094", Some("10.0.0.1#7")));
        assert_eq!(servers.by_number(Some(7), "10.0.0.2"), Some(place));
        assert_eq!(servers.described(Some(7), "10.0.0.1", &of), Some((place, None)));
        let summary = Description { site: "", version: "", ..of };
        assert_eq!(servers.described(None, "10.0.0.1", &summary), Some((place, None)));
        let infos = servers.infos();
        assert_eq!(infos.len(), 1);
        assert_eq!((infos[0].site.as_str(), infos[0].version.as_str()), ("A", "v5"));
        let site = Description { site: "B\n", ..Description::default() };
        let (place, _) = servers.described(Some(8), "10.0.0.1", &site).unwrap();
        assert_eq!(&*servers.name(place), "B#8");
    }

    #[test]
    fn later_starts_are_restarts() {
        let mut servers = Servers::default();
        let place = servers.by_number(None, "10.0.0.1:7").unwrap();
        let seen = [100, 100, 90, 120, 100, 121].map(|time| servers.started(place, StartOf::Records, time));
        assert_eq!(seen, [false, false, false, true, false, true]);
        assert_eq!((servers.infos()[0].restarts, servers.infos()[0].started), (2, 121));
    }

    /// Property: streams whose clocks differ by seconds tell one start once.
    #[test]
    fn a_start_that_two_streams_tell_counts_once() {
        let mut servers = Servers::default();
        let place = servers.by_number(None, "10.0.0.1:7").unwrap();
        let (records, summaries) = (StartOf::Records, StartOf::Summaries);
        let told = [
            (summaries, 1000),
            (records, 1005),
            (records, 2005),
            (summaries, 2000),
            (summaries, 3000),
            (records, 3000 + START_DIFFERENCE_MAX),
            (records, 5000),
        ];
        let seen = told.map(|(of, time)| servers.started(place, of, time));
        assert_eq!(seen, [false, false, true, false, true, false, true]);
        // A stream that begins after a restart.
        let other = servers.by_number(None, "10.0.0.1:8").unwrap();
        assert!(!servers.started(other, summaries, 1000));
        assert!(servers.started(other, records, 1001 + START_DIFFERENCE_MAX));
        assert!(!servers.started(other, summaries, 1001 + START_DIFFERENCE_MAX));
    }

    #[test]
    fn servers_are_bounded() {
        let mut servers = Servers::default();
        for number in 0..SERVERS_MAX as u64 {
            servers.by_number(Some(number), "a").unwrap();
        }
        assert_eq!(servers.by_number(Some(SERVERS_MAX as u64), "a"), None);
        assert!(servers.by_number(Some(5), "b").is_some());
        let of = Description { host: "h", ..Description::default() };
        assert_eq!(servers.described(Some(5), "a", &of), None);
    }
}
