//! Conditions that stop a run, and thresholds that decide its exit status: grammar and judgement.
//!
//! The text of a condition is `MEASURE>BOUND:WINDOW`, or with `<`, such as `errors>5%:60s`. A threshold
//! has no window: it is judged at the end, over the whole run.

use std::fmt;

use exacat_model::{Error, Result};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::recent::{Recent, Second};
use crate::limits::{CONDITION_BYTES_MAX, CONDITIONS_MAX, DURATION_US_MAX, WINDOW_SECONDS_MAX};
use crate::units;

/// Window of a condition that names none, in seconds.
const WINDOW_SECONDS: u64 = 60;
/// Growth of the load, in millionths, from which on the rate must grow, too.
const FLAT_GROWTH_PPM: u64 = 100_000;
/// Part of the growth of the load that the rate must reach at least: a fourth.
const FLAT_PART: i64 = 4;
/// Accesses that a share or a duration is judged by, at least.
const ACCESSES_MIN: u64 = 20;
/// All of something, in millionths.
const ALL_PPM: u64 = 1_000_000;

/// Quantity that is judged.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Measure {
    /// Share of accesses that failed.
    Errors,
    /// Duration from the intended begin that half of the accesses do not exceed.
    P50,
    /// The same of 90 in a hundred.
    P90,
    /// The same of 99 in a hundred.
    P99,
    /// The same of 999 in a thousand.
    P999,
    /// Lateness of the driver that 99 of a hundred accesses do not exceed.
    Late,
    /// Bytes a second that come to clients.
    Rate,
    /// Bytes a second that origins send.
    Origin,
    /// Share of the bytes that pass the cache by, because its disks or memory are busy.
    Bypass,
    /// Growth of the load, without that of the rate to clients.
    Flat,
    /// Distance of the share of requests that were hits from the one that the trace foretells.
    RequestsOff,
    /// Distance of the share of bytes that were hits from the one that the trace foretells.
    BytesOff,
}

/// Kind of a bound.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Unit {
    /// Millionths.
    Share,
    /// Microseconds.
    Time,
    /// Bytes a second.
    Rate,
}

/// Measures: name, unit, exit code, and what a crossed bound may mean.
const MEASURES: [(Measure, &str, Unit, u8, &str); 12] = [
    (Measure::Errors, "errors", Unit::Share, 31, "the cache, its origin or an agent fails"),
    (Measure::P50, "p50", Unit::Time, 32, "the cache or its origin is slow"),
    (Measure::P90, "p90", Unit::Time, 32, "the cache or its origin is slow"),
    (Measure::P99, "p99", Unit::Time, 32, "the cache or its origin is slow"),
    (Measure::P999, "p99.9", Unit::Time, 32, "the cache or its origin is slow"),
    (Measure::Flat, "flat", Unit::Share, 33, "something is full: network, disks, or processors"),
    (Measure::Rate, "rate", Unit::Rate, 34, "above: the network to clients is full; below: the cache stalls"),
    (Measure::Late, "late", Unit::Time, 35, "the agents are too few or too slow: what was measured is them"),
    (Measure::Origin, "origin", Unit::Rate, 36, "the link of the origin is full"),
    (Measure::Bypass, "bypass", Unit::Share, 37, "the disks of the cache are full of work"),
    (Measure::RequestsOff, "requests-off", Unit::Share, 38, "the cache does not do what its size must reach"),
    (Measure::BytesOff, "bytes-off", Unit::Share, 38, "the cache does not do what its size must reach"),
];

impl Measure {
    fn row(self) -> &'static (Measure, &'static str, Unit, u8, &'static str) {
        // Each measure has a row: a test checks it.
        MEASURES.iter().find(|row| row.0 == self).unwrap_or(&MEASURES[0])
    }

    /// Returns the name, as conditions have it.
    pub fn name(self) -> &'static str {
        self.row().1
    }

    /// Returns the exit code of a run that this measure stops or fails.
    pub fn exit_code(self) -> u8 {
        self.row().3
    }

    /// Says what a crossed bound may mean.
    pub(crate) fn meaning(self) -> &'static str {
        self.row().4
    }

    fn unit(self) -> Unit {
        self.row().2
    }

    /// Says whether it can be judged while a run goes on, and whether at its end.
    fn is_for(self, is_end: bool) -> bool {
        match self {
            Measure::Flat => !is_end,
            Measure::RequestsOff | Measure::BytesOff => is_end,
            _ => true,
        }
    }

    /// Formats a value of it.
    pub(crate) fn shown(self, value: u64) -> String {
        match self.unit() {
            Unit::Share => units::percent(value as f64 / ALL_PPM as f64),
            Unit::Time => units::duration(value),
            Unit::Rate => units::rate(value as f64),
        }
    }
}

/// Side on which a bound is crossed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Side {
    Above,
    Below,
}

/// Condition or threshold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Condition {
    pub(crate) measure: Measure,
    pub(crate) side: Side,
    /// Millionths, microseconds, or bytes a second.
    pub(crate) bound: u64,
    /// Seconds that it looks back; 0 for the whole run.
    pub(crate) window_s: u64,
}

/// Reads a decimal number, multiplied by a power of ten or of two. Digits behind the last unit are dropped.
fn decimal(text: &str, factor: u64) -> Option<u64> {
    let (whole, fraction) = text.split_once('.').unwrap_or((text, "0"));
    let is_digits =
        |text: &str| !text.is_empty() && text.len() <= 18 && text.bytes().all(|byte| byte.is_ascii_digit());
    if !is_digits(whole) || !is_digits(fraction) {
        return None;
    }
    let factor = u128::from(factor);
    let whole = whole.parse::<u128>().ok()?.checked_mul(factor)?;
    let part = fraction.parse::<u128>().ok()?.checked_mul(factor)? / 10_u128.pow(fraction.len() as u32);
    u64::try_from(whole.checked_add(part)?).ok()
}

/// Splits a number from its unit.
fn parts(text: &str) -> (&str, &str) {
    text.split_at(text.find(|letter: char| !letter.is_ascii_digit() && letter != '.').unwrap_or(text.len()))
}

/// Reads a duration of one unit, in microseconds.
fn time(text: &str) -> Option<u64> {
    let (number, unit) = parts(text);
    let factor = match unit {
        "us" => 1,
        "ms" => 1_000,
        "s" => 1_000_000,
        "m" | "min" => 60_000_000,
        "h" => 3_600_000_000,
        _ => return None,
    };
    decimal(number, factor)
}

/// Reads bytes a second.
fn rate(text: &str) -> Option<u64> {
    let (number, unit) = parts(text.strip_suffix("/s")?);
    let (prefix, base) = match unit.strip_suffix("iB") {
        Some(prefix) => (prefix, 1024_u64),
        None => (unit.strip_suffix('B')?, 1000),
    };
    let power = match prefix {
        "" if base == 1000 => 0,
        "k" | "K" => 1,
        "M" => 2,
        "G" => 3,
        "T" => 4,
        "P" => 5,
        _ => return None,
    };
    decimal(number, base.pow(power))
}

impl Condition {
    /// Reads a stop condition, such as `errors>5%:60s`, `p99>2s:60s`, `flat:5m`, `rate>10GB/s:60s`,
    /// `late>1s`. Without a window it looks back 60 s.
    ///
    /// # Errors
    /// Says what is wrong, and what may stand there.
    pub fn stop(text: &str) -> Result<Condition> {
        Condition::parse(text, false)
    }

    /// Reads a threshold, such as `errors>1%`, `p99>2s`, `rate<1GB/s`, `bytes-off>2%`.
    ///
    /// # Errors
    /// Says what is wrong, and what may stand there.
    pub fn threshold(text: &str) -> Result<Condition> {
        Condition::parse(text, true)
    }

    /// Reads several conditions, with commas between them.
    ///
    /// # Errors
    /// Says what is wrong with the first one that is.
    pub fn list(text: &str, of: fn(&str) -> Result<Condition>) -> Result<Vec<Condition>> {
        let mut all = Vec::new();
        for one in text.split(',').map(str::trim).filter(|one| !one.is_empty()) {
            if all.len() == CONDITIONS_MAX {
                return Err(Error::invalid(format!(
                    "a run has at most {CONDITIONS_MAX} conditions of a kind"
                )));
            }
            all.push(of(one)?);
        }
        Ok(all)
    }

    fn parse(text: &str, is_end: bool) -> Result<Condition> {
        let (kind, example) = match is_end {
            true => ("threshold", "errors>1%"),
            false => ("stop condition", "errors>5%:60s"),
        };
        let bad = |what: &str| Error::invalid(format!("{kind} {text:.64?}: {what}; one is {example}"));
        if text.len() > CONDITION_BYTES_MAX {
            return Err(bad("it is too long"));
        }
        let (rest, window) = match text.split_once(':') {
            Some((rest, window)) => (rest, Some(window)),
            None => (text, None),
        };
        let (name, side, bound) = match rest.find(['>', '<']) {
            Some(at) if rest[at..].starts_with('>') => (&rest[..at], Side::Above, Some(&rest[at + 1..])),
            Some(at) => (&rest[..at], Side::Below, Some(&rest[at + 1..])),
            None => (rest, Side::Above, None),
        };
        let names = || {
            let of = MEASURES.iter().filter(|row| row.0.is_for(is_end)).map(|row| row.1);
            of.collect::<Vec<_>>().join(", ")
        };
        let row = MEASURES.iter().find(|row| row.1 == name.trim() && row.0.is_for(is_end));
        let measure = row.ok_or_else(|| bad(&format!("the measure is one of {}", names())))?.0;
        let bound = match (bound, measure) {
            (Some(text), _) => Condition::bound(measure, text.trim()).map_err(|what| bad(&what))?,
            (None, Measure::Flat) => FLAT_GROWTH_PPM,
            (None, _) => return Err(bad("it has no bound")),
        };
        if measure == Measure::Flat && (side == Side::Below || bound == 0) {
            return Err(bad("flat>10%:5m stops if the load grew by more, and the rate did not"));
        }
        let window_s = match (window, is_end) {
            (Some(_), true) => return Err(bad("a threshold is judged over the whole run and has no window")),
            (None, true) => 0,
            (None, false) => WINDOW_SECONDS,
            (Some(text), false) => {
                let us = time(text.trim()).filter(|us| us % 1_000_000 == 0);
                let seconds = us.map(|us| us / 1_000_000);
                let least = if measure == Measure::Flat { 2 } else { 1 };
                let fits = seconds.filter(|seconds| (least..=WINDOW_SECONDS_MAX).contains(seconds));
                fits.ok_or_else(|| bad("the window is whole seconds (60s, 5m), at most an hour"))?
            }
        };
        Ok(Condition { measure, side, bound, window_s })
    }

    fn bound(measure: Measure, text: &str) -> std::result::Result<u64, String> {
        let (bound, most, what) = match measure.unit() {
            Unit::Share => {
                let share = text.strip_suffix('%').and_then(|text| decimal(text.trim(), ALL_PPM / 100));
                (
                    share,
                    if measure == Measure::Flat { u64::MAX } else { ALL_PPM },
                    "a share, such as 5% or 0.1%",
                )
            }
            Unit::Time => (time(text), DURATION_US_MAX, "a duration, such as 2s or 500ms, at most a day"),
            Unit::Rate => (rate(text), u64::MAX, "bytes a second, such as 10GB/s or 800MiB/s"),
        };
        bound.filter(|bound| *bound <= most).ok_or_else(|| format!("the bound is {what}"))
    }

    /// Returns the measure.
    pub fn measure(&self) -> Measure {
        self.measure
    }

    /// Says whether a value crosses the bound.
    pub(crate) fn is_crossed(&self, value: u64) -> bool {
        match self.side {
            Side::Above => value > self.bound,
            Side::Below => value < self.bound,
        }
    }

    /// Says how a value lies beside the bound.
    pub(crate) fn compared(&self, value: u64) -> String {
        let side = if self.side == Side::Above { "above" } else { "below" };
        let shown = self.measure.shown(value);
        match self.is_crossed(value) {
            true => format!("{shown}, {side} {}", self.measure.shown(self.bound)),
            false => format!("{shown}, not {side} {}", self.measure.shown(self.bound)),
        }
    }

    /// Returns the value of the last seconds; none if too little is known.
    fn measured(&self, of: &Second) -> Option<u64> {
        let enough = |value: Option<u64>| value.filter(|_| of.accesses >= ACCESSES_MIN);
        let share = |part: u64, all: u64| {
            let ppm = (u128::from(part) * u128::from(ALL_PPM)).checked_div(u128::from(all))?;
            u64::try_from(ppm).ok()
        };
        let each_second = |bytes: u64| bytes.checked_div(self.window_s);
        match self.measure {
            Measure::Errors => enough(share(of.errors, of.accesses)),
            Measure::P50 => enough(of.felt.quantile(0.5)),
            Measure::P90 => enough(of.felt.quantile(0.9)),
            Measure::P99 => enough(of.felt.quantile(0.99)),
            Measure::P999 => enough(of.felt.quantile(0.999)),
            Measure::Late => enough(of.late.quantile(0.99)),
            Measure::Rate => each_second(of.bytes),
            Measure::Origin => each_second(of.origin?),
            Measure::Bypass => of.cache.and_then(|(bytes, bypass)| share(bypass, bytes)),
            Measure::Flat | Measure::RequestsOff | Measure::BytesOff => None,
        }
    }

    /// Returns the reason to stop a run now, if this condition is one.
    fn judge(&self, recent: &mut Recent, (now_us, at_us): (u64, u64)) -> Option<StopReason> {
        let text = if self.measure == Measure::Flat {
            let growth = recent.growth(now_us, self.window_s)?;
            let bound = i64::try_from(self.bound).unwrap_or(i64::MAX);
            let is_flat =
                growth.load_ppm > bound && growth.rate_ppm.saturating_mul(FLAT_PART) < growth.load_ppm;
            let percent = |ppm: i64| format!("{:+.1} %", ppm as f64 / 1e4);
            is_flat
                .then(|| format!("load {}, rate {}", percent(growth.load_ppm), percent(growth.rate_ppm)))?
        } else {
            let value = self.measured(&recent.sums(now_us, self.window_s)?)?;
            self.is_crossed(value).then(|| format!("{} {}", self.measure.name(), self.compared(value)))?
        };
        Some(StopReason {
            condition: self.to_string(),
            measure: self.measure.name().to_owned(),
            at_us,
            text: format!("{text}, over {} s: {}", self.window_s, self.measure.meaning()),
            exit_code: self.measure.exit_code(),
        })
    }
}

impl fmt::Display for Condition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let side = if self.side == Side::Above { '>' } else { '<' };
        write!(f, "{}{side}", self.measure.name())?;
        let exact = |f: &mut fmt::Formatter<'_>, units: &[(u64, &str)]| {
            let fits = |unit: &&(u64, &str)| self.bound.is_multiple_of(unit.0) && self.bound >= unit.0;
            let (factor, unit) = units.iter().find(fits).copied().unwrap_or(units[units.len() - 1]);
            write!(f, "{}{unit}", self.bound / factor)
        };
        match self.measure.unit() {
            Unit::Share => {
                let fraction = format!("{:04}", self.bound % 10_000);
                let fraction = fraction.trim_end_matches('0');
                let point = if fraction.is_empty() { "" } else { "." };
                write!(f, "{}{point}{fraction}%", self.bound / 10_000)?;
            }
            Unit::Time => exact(f, &[(1_000_000, "s"), (1_000, "ms"), (1, "us")])?,
            Unit::Rate => exact(
                f,
                &[
                    (1_000_000_000_000, "TB/s"),
                    (1_000_000_000, "GB/s"),
                    (1_000_000, "MB/s"),
                    (1_000, "kB/s"),
                    (1, "B/s"),
                ],
            )?,
        }
        if self.window_s > 0 { write!(f, ":{}s", self.window_s) } else { Ok(()) }
    }
}

/// Conditions that stop a run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StopConditions {
    conditions: Vec<Condition>,
}

impl StopConditions {
    /// Reads conditions, with commas between them.
    ///
    /// # Errors
    /// Says what is wrong with the first one that is.
    pub fn parse(text: &str) -> Result<StopConditions> {
        Condition::list(text, Condition::stop).map(|conditions| StopConditions { conditions })
    }

    /// Returns the conditions.
    pub fn conditions(&self) -> &[Condition] {
        &self.conditions
    }

    /// Returns the reason to stop the run now: that of the first condition that is one. `now_us` is on the
    /// clock of `recent`, `at_us` is the time since the begin of the run.
    pub fn judge(&self, recent: &mut Recent, now_us: u64, at_us: u64) -> Option<StopReason> {
        self.conditions.iter().find_map(|condition| condition.judge(recent, (now_us, at_us)))
    }
}

impl fmt::Display for StopConditions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (number, condition) in self.conditions.iter().enumerate() {
            write!(f, "{}{condition}", if number == 0 { "" } else { "," })?;
        }
        Ok(())
    }
}

/// Reason why a condition stopped a run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(as = ReplayStop)]
pub struct StopReason {
    /// Condition.
    pub condition: String,
    /// Name of its measure.
    pub measure: String,
    /// Microseconds from the begin of the run.
    pub at_us: u64,
    /// Measured value, bound, and what that may mean.
    pub text: String,
    /// Exit code of commands that waited for the run.
    pub exit_code: u8,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::run::outcome::{AccessResult, Outcome};

    const SECOND: u64 = 1_000_000;

    /// Property: each measure has one row, its exit code is no other status of a command, and its name is
    /// its own.
    #[test]
    fn measures_have_names_and_exit_codes() {
        let all = [
            Measure::Errors,
            Measure::P50,
            Measure::P90,
            Measure::P99,
            Measure::P999,
            Measure::Late,
            Measure::Rate,
            Measure::Origin,
            Measure::Bypass,
            Measure::Flat,
            Measure::RequestsOff,
            Measure::BytesOff,
        ];
        for measure in all {
            assert_eq!(MEASURES.iter().filter(|row| row.0 == measure).count(), 1, "{measure:?}");
            assert_eq!(MEASURES.iter().filter(|row| row.1 == measure.name()).count(), 1, "{measure:?}");
            assert!((31..40).contains(&measure.exit_code()), "{measure:?}");
        }
    }

    /// Property: a condition that was read is printed in a form that reads as the same.
    #[test]
    fn conditions_are_printed_as_they_are_read() {
        let stops = [
            ("errors>5%:60s", "errors>5%:60s"),
            ("errors>0.25%", "errors>0.25%:60s"),
            ("p99>2s:60s", "p99>2s:60s"),
            ("p99.9>1500ms:1m", "p99.9>1500ms:60s"),
            (" late > 1.5s : 10s ", "late>1500ms:10s"),
            ("flat:5m", "flat>10%:300s"),
            ("flat>150%:1h", "flat>150%:3600s"),
            ("rate>10GB/s:60s", "rate>10GB/s:60s"),
            ("rate<1.5MiB/s:1s", "rate<1572864B/s:1s"),
            ("origin>12.5GB/s", "origin>12500MB/s:60s"),
            ("bypass>100%", "bypass>100%:60s"),
            ("p50>0s", "p50>0us:60s"),
        ];
        for (text, printed) in stops {
            let condition = Condition::stop(text.trim()).unwrap_or_else(|error| panic!("{text}: {error}"));
            assert_eq!(condition.to_string(), printed);
            assert_eq!(Condition::stop(printed).unwrap(), condition);
        }
        for text in ["errors>1%", "rate<1GB/s", "bytes-off>2%", "requests-off>2.5%", "p90<100us"] {
            assert_eq!(Condition::threshold(text).unwrap().to_string(), text);
        }
        let both = StopConditions::parse("errors>5%, p99>2s:30s,").unwrap();
        assert_eq!(both.to_string(), "errors>5%:60s,p99>2s:30s");
        assert_eq!(StopConditions::parse("").unwrap(), StopConditions::default());
    }

    /// Property: a text that is no condition is refused, and the error says what may stand there.
    #[test]
    fn texts_that_are_no_conditions_are_refused() {
        let bad = [
            ("", "measure is one of"),
            ("errors", "has no bound"),
            ("errors>5", "a share"),
            ("errors>101%", "a share"),
            ("errors>-1%", "a share"),
            ("errors>5%:0s", "window"),
            ("errors>5%:1500ms", "window"),
            ("errors>5%:3601s", "window"),
            ("errors>5%:", "window"),
            ("p99>2", "a duration"),
            ("p99>25h", "a duration"),
            ("p98>2s", "measure is one of errors, p50"),
            ("rate>10GB", "bytes a second"),
            ("rate>1.2.3GB/s", "bytes a second"),
            ("rate>99999999999PB/s", "bytes a second"),
            ("rate>B/s", "bytes a second"),
            ("flat<10%:5m", "flat>10%:5m"),
            ("flat>0%:5m", "flat>10%:5m"),
            ("flat:1s", "window"),
            ("bytes-off>2%:60s", "measure is one of"),
            ("é>5%", "measure is one of"),
        ];
        for (text, why) in bad {
            let error = Condition::stop(text).expect_err(text).to_string();
            assert!(error.contains(why), "{text}: {error}");
        }
        for (text, why) in
            [("errors>1%:60s", "no window"), ("flat", "measure is one of"), ("flat>10%", "measure")]
        {
            let error = Condition::threshold(text).expect_err(text).to_string();
            assert!(error.contains(why), "{text}: {error}");
        }
    }

    /// Property: number, length and window of conditions are bounded at their edges.
    #[test]
    fn limits_of_conditions_hold_at_their_edges() {
        let many = vec!["errors>5%"; CONDITIONS_MAX].join(",");
        assert_eq!(StopConditions::parse(&many).unwrap().conditions().len(), CONDITIONS_MAX);
        assert!(StopConditions::parse(&format!("{many},p99>1s")).is_err());
        let long = format!("errors>{}5%", "0".repeat(CONDITION_BYTES_MAX));
        assert!(Condition::stop(&long).unwrap_err().to_string().contains("too long"));
        let spaces = format!("errors{}>5%", " ".repeat(CONDITION_BYTES_MAX - "errors>5%".len()));
        assert!(Condition::stop(&spaces).is_ok());
        assert!(Condition::stop(&format!("errors>5%:{WINDOW_SECONDS_MAX}s")).is_ok());
        assert!(Condition::stop(&format!("errors>5%:{}s", WINDOW_SECONDS_MAX + 1)).is_err());
    }

    fn ended(outcome: Outcome, bytes: u64, duration_us: u64) -> AccessResult {
        AccessResult { outcome, bytes, duration_us, ..AccessResult::default() }
    }

    /// Returns the measure that stops a run of 20 s with ten accesses a second that `each` makes.
    fn stopped(conditions: &str, each: impl Fn(u64, u64) -> AccessResult) -> Option<StopReason> {
        let mut recent = Recent::new();
        recent.begin(0);
        for second in 0..20 {
            for number in 0..10 {
                recent.add(second * SECOND + number, &each(second, number));
            }
        }
        StopConditions::parse(conditions).unwrap().judge(&mut recent, 20 * SECOND, 21 * SECOND)
    }

    /// Property: each bound stops when it is passed, and not when it is met.
    #[test]
    fn bounds_stop_when_they_are_passed() {
        let one_fails = |_: u64, number: u64| {
            ended(if number == 0 { Outcome::Timeout } else { Outcome::Ok }, 1000, 1_000)
        };
        assert_eq!(stopped("errors>10%:10s", one_fails), None, "exactly 10 %");
        let reason = stopped("p99>2s:10s,errors>9.9%:10s", one_fails).unwrap();
        assert_eq!((reason.measure.as_str(), reason.exit_code, reason.at_us), ("errors", 31, 21 * SECOND));
        assert_eq!(
            reason.text,
            "errors 10.00 %, above 9.90 %, over 10 s: the cache, its origin or an agent fails"
        );
        assert_eq!(stopped("rate>10kB/s:10s", one_fails), None, "exactly 10 kB/s");
        assert_eq!(stopped("rate>9999B/s:10s", one_fails).unwrap().exit_code, 34);
        assert_eq!(stopped("rate<10001B/s:10s", one_fails).unwrap().measure, "rate");
        assert_eq!(stopped("errors>5%:21s", one_fails), None, "the run is not as long");
        let slow = |_: u64, number: u64| ended(Outcome::Ok, 1, if number == 0 { 3 * SECOND } else { 1000 });
        assert_eq!(stopped("p90>2s:10s", slow), None);
        assert_eq!(stopped("p99>2s:10s", slow).unwrap().exit_code, 32);
        let late = |_: u64, _: u64| AccessResult { late_us: 2 * SECOND, ..ended(Outcome::Ok, 1, 5) };
        assert_eq!(stopped("late>1s:10s", late).unwrap().exit_code, 35);
        assert!(stopped("p50>1900ms:10s", late).is_some(), "a job waits for a late agent, too");
    }

    /// Property: a share of few accesses stops nothing; the least number that counts does.
    #[test]
    fn few_accesses_are_no_share() {
        let judge = |count: u64| {
            let mut recent = Recent::new();
            recent.begin(0);
            (0..count).for_each(|_| recent.add(5, &ended(Outcome::Server, 0, 1)));
            StopConditions::parse("errors>50%:5s").unwrap().judge(&mut recent, 5 * SECOND, 0)
        };
        assert!(judge(ACCESSES_MIN - 1).is_none());
        assert!(judge(ACCESSES_MIN).is_some());
    }

    /// Property: a cache that answers nothing at all is noticed by its rate.
    #[test]
    fn silence_is_below_every_rate() {
        let mut recent = Recent::new();
        recent.begin(0);
        let silent = StopConditions::parse("errors>1%:10s,rate<1B/s:10s").unwrap();
        assert_eq!(silent.judge(&mut recent, 9 * SECOND, 0), None);
        assert_eq!(silent.judge(&mut recent, 10 * SECOND, 0).unwrap().measure, "rate");
    }

    /// Property: a flat rate stops a run only while the load grows.
    #[test]
    fn flat_rate_stops_only_under_growing_load() {
        let judge = |load: [u64; 2], bytes: [u64; 2]| {
            let mut recent = Recent::new();
            recent.begin(0);
            for second in 0..20_usize {
                recent.set_load(second as u64 * SECOND, load[second / 10]);
                recent.add(second as u64 * SECOND, &ended(Outcome::Ok, bytes[second / 10], 1));
            }
            StopConditions::parse("flat:20s").unwrap().judge(&mut recent, 20 * SECOND, 0)
        };
        let reason = judge([100, 140], [1000, 1050]).unwrap();
        assert_eq!(reason.exit_code, 33);
        assert!(reason.text.starts_with("load +40.0 %, rate +5.0 %, over 20 s"), "{}", reason.text);
        assert_eq!(judge([100, 140], [1000, 1400]), None, "the rate grows as well");
        assert_eq!(judge([100, 110], [1000, 1000]), None, "the load grows by the bound only");
        assert_eq!(judge([100, 100], [1000, 1000]), None);
        assert_eq!(judge([100, 200], [1000, 500]).unwrap().measure, "flat");
    }

    /// Property: figures of caches and origins are judged if somebody tells them.
    #[test]
    fn caches_and_origins_are_judged_if_they_tell() {
        let both = StopConditions::parse("bypass>20%:2s,origin>1kB/s:2s").unwrap();
        let mut recent = Recent::new();
        recent.begin(0);
        assert_eq!(both.judge(&mut recent, 2 * SECOND, 0), None, "nobody told");
        recent.add_origin(2 * SECOND, 2002);
        assert_eq!(both.judge(&mut recent, 4 * SECOND, 0).unwrap().exit_code, 36);
        recent.add_cache(4 * SECOND, 100, 20);
        assert_eq!(both.judge(&mut recent, 6 * SECOND, 0), None, "exactly 20 %");
        recent.add_cache(6 * SECOND, 100, 21);
        assert_eq!(both.judge(&mut recent, 8 * SECOND, 0).unwrap().exit_code, 37);
    }
}
