//! Settings of a run: how fast its items come, in which order, and what a cache must reach.

use exacat_model::{Error, Result};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::limits::{
    CONDITIONS_MAX, IN_FLIGHT_MAX, LABEL_BYTES_MAX, LEASE_SECONDS_MAX, RUN_NAME_BYTES_MAX, SIZE_MAX,
    SPEED_MAX, SPEED_MIN,
};

/// Speed of a run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(tag = "kind", rename_all = "snake_case", deny_unknown_fields)]
pub enum RunMode {
    /// Each access begins at its time in the trace, so many times as fast. Agents that are late do not slow
    /// it down.
    Recorded {
        /// Factor of the time.
        speed: f64,
    },
    /// So many accesses are in flight at any time, whatever their times.
    InFlight {
        /// Accesses of all agents together.
        accesses: u32,
    },
    /// The accesses in flight grow, until there are `most` or a stop condition holds.
    Ramp {
        /// Accesses at the begin.
        from: u32,
        /// Accesses added each time.
        step: u32,
        /// Seconds from one time to the next.
        every_s: u32,
        /// Most accesses.
        most: u32,
    },
}

/// Order of the begins of accesses to one file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum RunOrder {
    /// As in the trace: while an agent has accesses to a file, it gets the next ones too.
    #[default]
    File,
    /// Any agent gets any access.
    Any,
}

/// Settings of a run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct RunSettings {
    /// Name: letters, digits, `-`, `_`, `.`.
    pub name: String,
    /// Speed.
    pub mode: RunMode,
    /// Order of accesses to one file.
    #[serde(default)]
    pub order: RunOrder,
    /// Accesses of the trace that are left out at its begin.
    #[serde(default)]
    pub skip: u64,
    /// Accesses after those; none for all.
    #[serde(default)]
    pub accesses: Option<u64>,
    /// Bytes of the cache, to say what it must reach; none if they are not known.
    #[serde(default)]
    pub cache_bytes: Option<u64>,
    /// Bytes of a block of the cache.
    #[serde(default)]
    pub block_bytes: Option<u64>,
    /// Seconds of a lease, beside the time of the file's bytes.
    #[serde(default = "lease_s")]
    pub lease_s: u32,
    /// Bytes each second that an access reaches at least.
    #[serde(default = "least_rate")]
    pub least_rate: u64,
    /// Conditions that stop the run.
    #[serde(default)]
    pub stop_when: Vec<String>,
    /// Conditions that fail it at its end.
    #[serde(default)]
    pub fail_when: Vec<String>,
    /// Remark of the operator.
    #[serde(default)]
    pub remark: String,
}

/// Seconds of a lease by default: an agent that is gone for longer is taken for dead.
fn lease_s() -> u32 {
    60
}

/// Bytes each second by default, as the clients of the first replays had.
fn least_rate() -> u64 {
    1_000_000
}

impl RunSettings {
    /// Makes the settings of a run with the defaults.
    pub fn new(name: &str, mode: RunMode) -> Self {
        RunSettings {
            name: name.to_owned(),
            mode,
            order: RunOrder::default(),
            skip: 0,
            accesses: None,
            cache_bytes: None,
            block_bytes: None,
            lease_s: lease_s(),
            least_rate: least_rate(),
            stop_when: Vec::new(),
            fail_when: Vec::new(),
            remark: String::new(),
        }
    }

    /// Refuses settings of which nothing could come.
    ///
    /// # Errors
    /// Says which one, and what it may be.
    pub fn check(&self) -> Result<()> {
        let wrong = |what: String| Err(Error::invalid(what));
        let fits = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
        let name = self.name.as_str();
        if name.is_empty() || name.len() > RUN_NAME_BYTES_MAX || name.starts_with('.') {
            return wrong(format!(
                "the name of a run has 1 to {RUN_NAME_BYTES_MAX} characters, and does not begin with a dot"
            ));
        }
        if !name.bytes().all(fits) {
            return wrong(format!("{name}: the name of a run has letters, digits, -, _ and . only"));
        }
        let in_flight = |count: u32| (1..=IN_FLIGHT_MAX).contains(&count);
        match self.mode {
            RunMode::Recorded { speed } if !(SPEED_MIN..=SPEED_MAX).contains(&speed) => {
                return wrong(format!("the speed is {SPEED_MIN} to {SPEED_MAX}, not {speed}"));
            }
            RunMode::InFlight { accesses } if !in_flight(accesses) => {
                return wrong(format!("1 to {IN_FLIGHT_MAX} accesses can be in flight, not {accesses}"));
            }
            RunMode::Ramp { from, step, every_s, most }
                if !in_flight(from) || !in_flight(most) || most < from || step == 0 || every_s == 0 =>
            {
                return wrong(format!(
                    "a ramp begins with 1 access or more, grows by 1 or more after 1 s or more, and ends with at most {IN_FLIGHT_MAX}"
                ));
            }
            _ => {}
        }
        if self.accesses == Some(0) {
            return wrong("a run has at least one access".to_owned());
        }
        if self.lease_s == 0 || self.lease_s > LEASE_SECONDS_MAX {
            return wrong(format!("a lease has 1 to {LEASE_SECONDS_MAX} seconds, not {}", self.lease_s));
        }
        if self.least_rate == 0 {
            return wrong("the least rate of an access is at least 1 byte a second".to_owned());
        }
        if self.block_bytes.is_some_and(|bytes| bytes == 0 || bytes > SIZE_MAX) {
            return wrong("a block of a cache has at least 1 byte".to_owned());
        }
        if self.stop_when.len() + self.fail_when.len() > CONDITIONS_MAX {
            return wrong(format!("a run has at most {CONDITIONS_MAX} conditions"));
        }
        if self.remark.len() > LABEL_BYTES_MAX {
            return wrong(format!("a remark has at most {LABEL_BYTES_MAX} bytes"));
        }
        Ok(())
    }

    /// Returns the accesses that may be in flight after so many microseconds; none for no bound.
    pub fn in_flight(&self, elapsed_us: u64) -> Option<u32> {
        match self.mode {
            RunMode::Recorded { .. } => None,
            RunMode::InFlight { accesses } => Some(accesses),
            RunMode::Ramp { from, step, every_s, most } => {
                let times = elapsed_us / (u64::from(every_s.max(1)) * 1_000_000);
                let added = times.saturating_mul(step.into());
                Some(u32::try_from(added.saturating_add(from.into())).unwrap_or(u32::MAX).min(most))
            }
        }
    }

    /// Returns the microseconds of a lease, from the intended begin of an access to a file of this size.
    pub fn lease_us(&self, size: u64) -> u64 {
        let bytes = u128::from(size) * 1_000_000 / u128::from(self.least_rate.max(1));
        u64::try_from(bytes).unwrap_or(u64::MAX).saturating_add(u64::from(self.lease_s) * 1_000_000)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_of_settings_hold_at_their_edges() {
        let recorded = |speed| RunSettings::new("a-B_1.x", RunMode::Recorded { speed });
        for good in [
            recorded(SPEED_MIN),
            recorded(SPEED_MAX),
            RunSettings::new(&"n".repeat(RUN_NAME_BYTES_MAX), RunMode::InFlight { accesses: IN_FLIGHT_MAX }),
            RunSettings { lease_s: LEASE_SECONDS_MAX, accesses: Some(1), ..recorded(1.0) },
        ] {
            assert_eq!(good.check(), Ok(()), "{good:?}");
        }
        let ramp =
            |from, step, every_s, most| RunSettings::new("r", RunMode::Ramp { from, step, every_s, most });
        for bad in [
            recorded(SPEED_MIN / 2.0),
            recorded(SPEED_MAX * 2.0),
            recorded(f64::NAN),
            RunSettings::new("", RunMode::InFlight { accesses: 1 }),
            RunSettings::new(".x", RunMode::InFlight { accesses: 1 }),
            RunSettings::new("a/b", RunMode::InFlight { accesses: 1 }),
            RunSettings::new(&"n".repeat(RUN_NAME_BYTES_MAX + 1), RunMode::InFlight { accesses: 1 }),
            RunSettings::new("r", RunMode::InFlight { accesses: 0 }),
            RunSettings::new("r", RunMode::InFlight { accesses: IN_FLIGHT_MAX + 1 }),
            ramp(0, 1, 1, 1),
            ramp(2, 1, 1, 1),
            ramp(1, 0, 1, 2),
            ramp(1, 1, 0, 2),
            RunSettings { lease_s: 0, ..recorded(1.0) },
            RunSettings { lease_s: LEASE_SECONDS_MAX + 1, ..recorded(1.0) },
            RunSettings { accesses: Some(0), ..recorded(1.0) },
            RunSettings { least_rate: 0, ..recorded(1.0) },
            RunSettings { block_bytes: Some(0), ..recorded(1.0) },
            RunSettings { stop_when: vec![String::new(); CONDITIONS_MAX + 1], ..recorded(1.0) },
            RunSettings { remark: "x".repeat(LABEL_BYTES_MAX + 1), ..recorded(1.0) },
        ] {
            assert!(bad.check().is_err(), "{bad:?}");
        }
    }

    #[test]
    fn ramp_grows_by_its_step_up_to_its_most() {
        let ramp = RunSettings::new("r", RunMode::Ramp { from: 4, step: 3, every_s: 2, most: 9 });
        let at = |seconds: u64| ramp.in_flight(seconds * 1_000_000);
        assert_eq!([at(0), at(1), at(2), at(4), at(1 << 40)], [4, 4, 7, 9, 9].map(Some));
        let lease = RunSettings { lease_s: 10, least_rate: 2_000_000, ..ramp };
        assert_eq!((lease.lease_us(0), lease.lease_us(4_000_000)), (10_000_000, 12_000_000));
    }
}
