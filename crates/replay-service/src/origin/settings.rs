//! Settings of the origin.

use std::net::SocketAddr;
use std::time::Duration;

use exacat_model::{Error, Result};

use super::faults::Faults;
use super::files::OriginFileList;
use super::limits::{BANDWIDTH_MIN, CONNECTIONS_MAX, IDLE_TIME_MAX, LOGIN_TIME_MAX, STALL_TIME_MAX};

/// Times after which an origin cuts a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OriginTimes {
    /// From the begin of a connection to its login.
    pub login: Duration,
    /// Silence of a client that waits for nothing.
    pub idle: Duration,
    /// Time in which a client takes some bytes of its answers.
    pub stall: Duration,
}

impl Default for OriginTimes {
    fn default() -> Self {
        OriginTimes { login: LOGIN_TIME_MAX, idle: IDLE_TIME_MAX, stall: STALL_TIME_MAX }
    }
}

/// Settings of an origin.
pub struct OriginSettings {
    /// Address to listen on; port 0 for any free one.
    pub listen: SocketAddr,
    /// Files.
    pub files: OriginFileList,
    /// Faults on order.
    pub faults: Faults,
    /// Bytes a second of all connections together; none for no bound.
    pub bandwidth: Option<u64>,
    /// Bytes a second of one connection; none for no bound.
    pub bandwidth_of_connection: Option<u64>,
    /// Counts bytes by file too.
    pub counts_files: bool,
    /// Connections at once.
    pub connections_max: usize,
    /// Times after which a connection is cut.
    pub times: OriginTimes,
}

impl OriginSettings {
    /// Makes settings without faults.
    pub fn new(listen: SocketAddr, files: OriginFileList) -> Self {
        OriginSettings {
            listen,
            files,
            faults: Faults::default(),
            bandwidth: None,
            bandwidth_of_connection: None,
            counts_files: false,
            connections_max: CONNECTIONS_MAX,
            times: OriginTimes::default(),
        }
    }

    /// Checks the settings.
    ///
    /// # Errors
    /// Names the setting that is none.
    pub fn check(&self) -> Result<()> {
        for rate in [self.bandwidth, self.bandwidth_of_connection].into_iter().flatten() {
            if rate < BANDWIDTH_MIN {
                return Err(Error::invalid(format!(
                    "the bandwidth is {rate} bytes a second: {BANDWIDTH_MIN} is the least"
                )));
            }
        }
        if self.connections_max == 0 || self.connections_max > CONNECTIONS_MAX {
            return Err(Error::invalid(format!(
                "{} connections at once: 1 to {CONNECTIONS_MAX} are possible",
                self.connections_max
            )));
        }
        let most = OriginTimes::default();
        let times =
            [(self.times.login, most.login), (self.times.idle, most.idle), (self.times.stall, most.stall)];
        if let Some((time, most)) = times.into_iter().find(|(time, most)| time.is_zero() || time > most) {
            return Err(Error::invalid(format!(
                "a time of connections is {time:?}: up to {most:?} is possible"
            )));
        }
        self.faults.check()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_that_are_none_are_refused() {
        let good = || OriginSettings::new(([127, 0, 0, 1], 0).into(), OriginFileList::default());
        assert!(good().check().is_ok());
        assert!(OriginSettings { bandwidth: Some(BANDWIDTH_MIN), ..good() }.check().is_ok());
        assert!(OriginSettings { bandwidth: Some(BANDWIDTH_MIN - 1), ..good() }.check().is_err());
        assert!(OriginSettings { bandwidth_of_connection: Some(0), ..good() }.check().is_err());
        assert!(OriginSettings { connections_max: CONNECTIONS_MAX + 1, ..good() }.check().is_err());
        assert!(OriginSettings { connections_max: 0, ..good() }.check().is_err());
        let times = OriginTimes { login: LOGIN_TIME_MAX + Duration::from_nanos(1), ..OriginTimes::default() };
        assert!(OriginSettings { times, ..good() }.check().is_err());
        let times = OriginTimes { stall: Duration::ZERO, ..OriginTimes::default() };
        assert!(OriginSettings { times, ..good() }.check().is_err());
        let faults = Faults { failing_opens: 2.0, ..Faults::default() };
        assert!(OriginSettings { faults, ..good() }.check().is_err());
    }
}
