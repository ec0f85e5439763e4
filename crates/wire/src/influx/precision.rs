//! Units of times in requests.

/// Unit of the times of a write, or of an answer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Precision {
    /// 10⁻⁹ s.
    #[default]
    Nanoseconds,
    /// 10⁻⁶ s.
    Microseconds,
    /// 10⁻³ s.
    Milliseconds,
    /// 1 s.
    Seconds,
    /// 60 s.
    Minutes,
    /// 3600 s.
    Hours,
}

/// A precision that its path does not know. The text is InfluxDB's.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("invalid precision {name:?} (use {choice})")]
pub struct InvalidPrecision {
    name: String,
    choice: &'static str,
}

impl Precision {
    /// Reads the parameter `precision` of `/write`. An empty one is nanoseconds.
    pub fn of_v1(name: &str) -> Result<Self, InvalidPrecision> {
        match name {
            "" | "n" | "ns" => Ok(Precision::Nanoseconds),
            "u" => Ok(Precision::Microseconds),
            "ms" => Ok(Precision::Milliseconds),
            "s" => Ok(Precision::Seconds),
            "m" => Ok(Precision::Minutes),
            "h" => Ok(Precision::Hours),
            _ => Err(InvalidPrecision { name: name.into(), choice: "n, u, ms, s, m or h" }),
        }
    }

    /// Reads the parameter `precision` of `/api/v2/write`. An empty one is nanoseconds.
    pub fn of_v2(name: &str) -> Result<Self, InvalidPrecision> {
        match name {
            "" | "ns" => Ok(Precision::Nanoseconds),
            "us" => Ok(Precision::Microseconds),
            "ms" => Ok(Precision::Milliseconds),
            "s" => Ok(Precision::Seconds),
            _ => Err(InvalidPrecision { name: name.into(), choice: "ns, us, ms or s" }),
        }
    }

    /// Reads the parameter `epoch` of `/query`: none if it is empty, so that times are texts. InfluxDB
    /// takes an unknown one for nanoseconds.
    pub fn of_epoch(name: &str) -> Option<Self> {
        let name = name.trim();
        (!name.is_empty()).then(|| Self::of_v1(name).unwrap_or_default())
    }

    /// Returns the nanoseconds of one unit.
    pub const fn nanoseconds(self) -> i64 {
        match self {
            Precision::Nanoseconds => 1,
            Precision::Microseconds => 1_000,
            Precision::Milliseconds => 1_000_000,
            Precision::Seconds => 1_000_000_000,
            Precision::Minutes => 60_000_000_000,
            Precision::Hours => 3_600_000_000_000,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Each path knows its own names, and says them when it refuses another.
    #[test]
    fn precision_is_read_by_the_names_of_its_path() {
        assert_eq!(Precision::of_v1("u"), Ok(Precision::Microseconds));
        assert_eq!(Precision::of_v2("us"), Ok(Precision::Microseconds));
        assert_eq!(
            (Precision::of_v1(""), Precision::of_v2("")),
            (Ok(Precision::default()), Ok(Precision::default()))
        );
        let texts = [Precision::of_v1("x"), Precision::of_v2("m")].map(|one| one.unwrap_err().to_string());
        assert_eq!(texts[0], "invalid precision \"x\" (use n, u, ms, s, m or h)");
        assert_eq!(texts[1], "invalid precision \"m\" (use ns, us, ms or s)");
        assert_eq!(Precision::of_epoch(""), None);
        assert_eq!(Precision::of_epoch("ms"), Some(Precision::Milliseconds));
        assert_eq!(Precision::of_epoch("fortnight"), Some(Precision::Nanoseconds));
    }
}
