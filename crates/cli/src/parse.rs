//! Parses sizes, times, durations, owners and the like from the command line.

use exacat_model::operation::Owner;
use exacat_model::{
    AccountName, DeletionId, Error, FileRef, Guid, Lfn, Mode, OnTimeline, PastPoint, Pfn, Result, SeName,
    Tag, TimeMs, TrashId,
};
use exacat_store::{Clock, SystemClock};
use exacat_store_embedded::HistoryKept;

/// Milliseconds of one unit of a duration. Months and years vary too much to be units.
const DURATIONS: [(&str, u64); 6] =
    [("ms", 1), ("s", 1_000), ("m", 60_000), ("h", 3_600_000), ("d", 86_400_000), ("w", 604_800_000)];

/// Powers of a size's unit, in order.
const SIZE_UNITS: [char; 6] = ['k', 'm', 'g', 't', 'p', 'e'];

/// Direction of a relative time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Direction {
    /// `2d` is two days ago.
    Past,
    /// `2d` is in two days.
    Future,
}

/// Returns the present time, by the machine's clock.
pub(crate) fn now() -> TimeMs {
    SystemClock.now()
}

/// Parses an LFN. The error for a relative one has advice.
pub(crate) fn lfn(text: &str) -> Result<Lfn> {
    if !text.starts_with('/') {
        return Err(Error::invalid("an LFN begins with '/': a catalogue has no working directory"));
    }
    Lfn::parse(text)
}

/// Parses an LFN or a GUID.
pub(crate) fn file(text: &str) -> Result<FileRef> {
    if text.starts_with('/') {
        return Ok(FileRef::Lfn(Lfn::parse(text)?));
    }
    Guid::parse(text).map(FileRef::Guid).map_err(|_| {
        Error::invalid(
            "neither an LFN (which begins with '/') nor a GUID (32 hex digits with or without hyphens)",
        )
    })
}

/// Parses a number of bytes: `1000`, `10k`, `1.5G` (powers of 1000), `1Gi` or `1GiB` (powers of
/// 1024).
pub(crate) fn bytes(text: &str) -> Result<u64> {
    let bad = || Error::invalid(format!("not a size (10, 10k, 1.5G, 1Gi): {text:.40?}"));
    let lower = text.trim().to_ascii_lowercase();
    let end = lower.find(|c: char| !c.is_ascii_digit() && c != '.' && c != '_').unwrap_or(lower.len());
    let (digits, unit) = lower.split_at(end);
    let digits = digits.replace('_', "");
    let unit = unit.trim_start();
    let (unit, binary) = match unit.strip_suffix("ib").or_else(|| unit.strip_suffix('i')) {
        Some(unit) => (unit, true),
        None => (unit.strip_suffix('b').unwrap_or(unit), false),
    };
    let base: u128 = if binary { 1024 } else { 1000 };
    let factor = match unit.chars().next() {
        None if !binary => 1,
        Some(letter) if unit.len() == 1 => {
            let power = SIZE_UNITS.iter().position(|unit| *unit == letter).ok_or_else(bad)?;
            base.pow(power as u32 + 1)
        }
        _ => return Err(bad()),
    };
    // Decimal fractions without floats: 1.1G is 1 100 000 000 exactly.
    let (whole, fraction) = digits.split_once('.').unwrap_or((&digits, ""));
    if (whole.is_empty() && fraction.is_empty())
        || fraction.len() > 18
        || (factor == 1 && !fraction.is_empty())
    {
        return Err(bad());
    }
    let number =
        |digits: &str| if digits.is_empty() { Ok(0) } else { digits.parse::<u128>().map_err(|_| bad()) };
    let scaled = number(whole)?.checked_mul(factor).ok_or_else(bad)?;
    let part = number(fraction)?.checked_mul(factor).ok_or_else(bad)? / 10u128.pow(fraction.len() as u32);
    u64::try_from(scaled.checked_add(part).ok_or_else(bad)?).map_err(|_| bad())
}

/// Parses a number, or `none` for no limit.
pub(crate) fn limit(text: &str, parse: impl Fn(&str) -> Result<u64>) -> Result<Option<u64>> {
    if text == "none" { Ok(None) } else { parse(text).map(Some) }
}

/// Parses a count: digits, or with a unit as sizes have (`10k`, `1M`).
pub(crate) fn count(text: &str) -> Result<u64> {
    bytes(text).map_err(|_| Error::invalid(format!("not a number (10, 10k, 1M): {text:.40?}")))
}

/// Parses a range of sizes, both ends included: `+1G` at least, `-10M` at most, `100` exactly,
/// `5k..1M` between (either end may be left out).
pub(crate) fn size_range(text: &str) -> Result<(Option<u64>, Option<u64>)> {
    if let Some((low, high)) = text.split_once("..") {
        let end = |text: &str| if text.is_empty() { Ok(None) } else { bytes(text).map(Some) };
        let (low, high) = (end(low)?, end(high)?);
        if low.is_none() && high.is_none() || low.zip(high).is_some_and(|(low, high)| low > high) {
            return Err(Error::invalid(format!("an empty range of sizes: {text:.40?}")));
        }
        return Ok((low, high));
    }
    if let Some(least) = text.strip_prefix('+') {
        return Ok((Some(bytes(least)?), None));
    }
    if let Some(most) = text.strip_prefix('-') {
        return Ok((None, Some(bytes(most)?)));
    }
    let exact = bytes(text)?;
    Ok((Some(exact), Some(exact)))
}

/// Parses a duration to milliseconds: `90s`, `15m`, `3h`, `2d`, `1w`, or several together: `1d12h`.
pub(crate) fn duration_ms(text: &str) -> Result<u64> {
    let bad = || Error::invalid(format!("not a duration (90s, 15m, 3h, 2d, 1w, 1d12h): {text:.40?}"));
    let mut rest = text.trim();
    let mut total = 0u64;
    if rest.is_empty() {
        return Err(bad());
    }
    while !rest.is_empty() {
        let digits = rest.find(|c: char| !c.is_ascii_digit()).filter(|at| *at > 0).ok_or_else(bad)?;
        let number: u64 = rest[..digits].parse().map_err(|_| bad())?;
        rest = &rest[digits..];
        let unit = rest.find(|c: char| c.is_ascii_digit()).unwrap_or(rest.len());
        let (_, ms) = DURATIONS.iter().find(|(name, _)| *name == &rest[..unit]).ok_or_else(bad)?;
        total = number.checked_mul(*ms).and_then(|part| total.checked_add(part)).ok_or_else(bad)?;
        rest = &rest[unit..];
    }
    Ok(total)
}

/// Parses a duration that is not zero, to milliseconds.
pub(crate) fn some_time_ms(text: &str) -> Result<u64> {
    match duration_ms(text)? {
        0 => Err(Error::invalid(format!("a duration of nothing ends at once: {text:.40?}"))),
        ms => Ok(ms),
    }
}

/// Parses a duration of a second or more, to seconds.
pub(crate) fn seconds(text: &str) -> Result<u64> {
    match duration_ms(text)? / 1000 {
        0 => Err(Error::invalid(format!("a duration of less than a second: {text:.40?}"))),
        seconds => Ok(seconds),
    }
}

/// Parses a future time, for an expiry.
pub(crate) fn time_to_come(text: &str) -> Result<TimeMs> {
    let now = now();
    let time = time_from(text, Direction::Future, now)?;
    if time <= now {
        return Err(Error::invalid(format!(
            "an expiry in the past ({time}); 'exacat rm' moves an entry to the trash now"
        )));
    }
    Ok(time)
}

/// Milliseconds of a day.
pub(crate) const DAY_MS: u64 = 86_400_000;

/// Parses the length of the history: `all`, whole days (`30d`, `4w`), or a size (`100GiB`).
pub(crate) fn history_kept(text: &str) -> Result<HistoryKept> {
    let bad = || Error::invalid(format!("not how much history to keep (all, 30d, 4w, 100GiB): {text:.40?}"));
    let text = text.trim();
    if text == "all" {
        return Ok(HistoryKept::All);
    }
    if text.ends_with(['d', 'w']) {
        // No size ends so.
        let ms = duration_ms(text).ok().filter(|ms| ms % DAY_MS == 0).ok_or_else(bad)?;
        return u32::try_from(ms / DAY_MS).map(HistoryKept::Days).map_err(|_| bad());
    }
    bytes(text).map(HistoryKept::Bytes).map_err(|_| bad())
}

/// Parses a time: as [`TimeMs::parse`] reads it, `now`, or a duration from now in `direction`.
pub(crate) fn time(text: &str, direction: Direction) -> Result<TimeMs> {
    time_from(text, direction, now())
}

/// Parses a point of the past: a revision (digits, or with a timeline), or a time as [`time`] reads it.
pub(crate) fn past(text: &str) -> Result<PastPoint> {
    if let Ok(point) = PastPoint::parse(text) {
        return Ok(point);
    }
    if text.trim() == "now" {
        return Err(Error::invalid("the present state comes without --at"));
    }
    time(text, Direction::Past).map(PastPoint::Time).map_err(|_| {
        Error::invalid(format!(
            "neither a revision (2315, or 2315.3f9a1c with its timeline) nor a time (RFC 3339, a date, or 2d for two \
             days ago): {text:.60?}"
        ))
    })
}

fn time_from(text: &str, direction: Direction, now: TimeMs) -> Result<TimeMs> {
    let trimmed = text.trim();
    if trimmed == "now" {
        return Ok(now);
    }
    let relative = match direction {
        Direction::Past => trimmed.strip_suffix("ago").map_or(trimmed, str::trim_end),
        Direction::Future => trimmed.strip_prefix('+').unwrap_or(trimmed),
    };
    if let Ok(ms) = duration_ms(relative) {
        return Ok(match direction {
            Direction::Past => TimeMs(now.0.saturating_sub(ms)),
            Direction::Future => now.plus_ms(ms),
        });
    }
    TimeMs::parse(trimmed).map_err(|_| {
        Error::invalid(format!(
            "not a time (RFC 3339, a date, seconds since 1970, or a duration such as 2d): {text:.60?}"
        ))
    })
}

/// Parses `user:NAME`, `group:NAME`, or a bare name for a user.
pub(crate) fn owner(text: &str) -> Result<Owner> {
    match text.split_once(':') {
        Some(("user", name)) => Ok(Owner::User(AccountName::parse(name)?)),
        Some(("group", name)) => Ok(Owner::Group(AccountName::parse(name)?)),
        Some(_) => Err(Error::invalid(format!("not an owner (NAME, user:NAME, group:NAME): {text:.60?}"))),
        None => Ok(Owner::User(AccountName::parse(text)?)),
    }
}

/// Parses `NAME` or `NAME=PFN`. SE names have no `=`, so the first one ends the name.
pub(crate) fn replica(text: &str) -> Result<(SeName, Option<Pfn>)> {
    match text.split_once('=') {
        Some((se, pfn)) => Ok((SeName::parse(se)?, Some(Pfn::parse(pfn)?))),
        None => Ok((SeName::parse(text)?, None)),
    }
}

/// Parses `NAME=NUMBER`; the number is `default` if left out.
pub(crate) fn counted(text: &str, default: Option<u32>) -> Result<(AccountName, u32)> {
    let bad = || Error::invalid(format!("not NAME=NUMBER: {text:.60?}"));
    match text.split_once('=') {
        Some((name, number)) => Ok((AccountName::parse(name)?, number.parse().map_err(|_| bad())?)),
        None => Ok((AccountName::parse(text)?, default.ok_or_else(bad)?)),
    }
}

/// Parses the archive of a file and its name there: `ARCHIVE?NAME`, the archive by LFN or GUID.
pub(crate) fn member(text: &str) -> Result<(FileRef, String)> {
    match text.rsplit_once('?') {
        Some((archive, name)) if !name.is_empty() => Ok((file(archive)?, name.to_owned())),
        _ => Err(Error::invalid(format!("not ARCHIVE?NAME: {text:.100?}"))),
    }
}

/// Parses a tag: `KEY=VALUE`.
pub(crate) fn tag(text: &str) -> Result<Tag> {
    Tag::parse(text)
}

/// Parses the id of an item of the trash, as `trash ls` prints it: `REVISION.TIMELINE`.
pub(crate) fn trash_id(text: &str) -> Result<OnTimeline<TrashId>> {
    text.parse()
}

/// Parses the id of a deletion, as `se deletions` prints it: `REVISION.INDEX.TIMELINE`.
pub(crate) fn deletion_id(text: &str) -> Result<OnTimeline<DeletionId>> {
    text.parse()
}

/// Change of a mode by `chmod`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ModeChange {
    /// Sets this mode.
    Set(Mode),
    /// Applies these clauses in order.
    Edit(Vec<ModeClause>),
}

/// One clause of a symbolic mode, such as `u+rw`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ModeClause {
    /// Mask of the bits: 0o700, 0o070, 0o007, and the sticky bit.
    who: u16,
    /// `+`, `-` or `=`.
    operator: char,
    /// Bits of the clause, repeated for all three.
    bits: u16,
    /// `X`: execute only for directories, and for files that someone may execute already.
    conditional: bool,
}

impl ModeChange {
    /// Parses octal digits (`644`) or clauses (`u+rw,go-w`, `a=rX`).
    pub(crate) fn parse(text: &str) -> Result<Self> {
        if text.starts_with(|c: char| c.is_ascii_digit()) {
            return Mode::parse(text).map(ModeChange::Set);
        }
        let bad = || Error::invalid(format!("not a mode (644, 1777, u+rw,go-w, a=rX, +t): {text:.40?}"));
        let mut clauses = Vec::new();
        for clause in text.split(',') {
            let at = clause.find(['+', '-', '=']).ok_or_else(bad)?;
            let mut who = 0;
            for letter in clause[..at].chars() {
                who |= match letter {
                    'u' => 0o700,
                    'g' => 0o070,
                    'o' => 0o007,
                    'a' => 0o777,
                    _ => return Err(bad()),
                };
            }
            if at == 0 {
                who = 0o777;
            }
            let mut rest = &clause[at..];
            while let Some(operator) = rest.chars().next() {
                let end = rest[1..].find(['+', '-', '=']).map_or(rest.len(), |found| found + 1);
                let (mut bits, mut conditional, mut sticky) = (0, false, false);
                for letter in rest[1..end].chars() {
                    match letter {
                        'r' => bits |= 0o444,
                        'w' => bits |= 0o222,
                        'x' => bits |= 0o111,
                        't' => sticky = true,
                        'X' => conditional = true,
                        _ => return Err(bad()),
                    }
                }
                // As in `chmod`, the sticky bit belongs to no class: `t` works with all, or with
                // none named.
                let all = who == 0o777;
                let (who, bits) = match (sticky && all, operator) {
                    (true, _) => (who | Mode::STICKY, bits | Mode::STICKY),
                    (false, '=') if all => (who | Mode::STICKY, bits),
                    (false, _) => (who, bits),
                };
                clauses.push(ModeClause { who, operator, bits, conditional });
                rest = &rest[end..];
            }
        }
        Ok(ModeChange::Edit(clauses))
    }

    /// Applies the change to `mode`.
    pub(crate) fn apply(&self, mode: Mode, is_directory: bool) -> Mode {
        let clauses = match self {
            ModeChange::Set(mode) => return *mode,
            ModeChange::Edit(clauses) => clauses,
        };
        let mut value = mode.bits();
        for clause in clauses {
            let execute = clause.conditional && (is_directory || value & 0o111 != 0);
            let bits = (clause.bits | if execute { 0o111 } else { 0 }) & clause.who;
            value = match clause.operator {
                '+' => value | bits,
                '-' => value & !bits,
                _ => value & !clause.who | bits,
            };
        }
        Mode::new(value).unwrap_or(mode)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_read_as_written() {
        for (text, value) in [
            ("0", 0),
            ("10", 10),
            ("10k", 10_000),
            ("10K", 10_000),
            ("1.1G", 1_100_000_000),
            ("1Gi", 1 << 30),
            ("1GiB", 1 << 30),
            ("1GB", 1_000_000_000),
            ("2.5Ki", 2560),
            ("1_000", 1000),
            ("1E", 1_000_000_000_000_000_000),
            ("18446744073709551615", u64::MAX),
            ("5b", 5),
            (".5k", 500),
        ] {
            assert_eq!(bytes(text).unwrap(), value, "{text}");
        }
        for bad in [
            "",
            "k",
            "1.5",
            "-1",
            "1x",
            "1kk",
            "1i",
            "1iB",
            "18446744073709551616",
            "99E",
            "1.2.3k",
            ".",
            "0x10",
        ] {
            assert!(bytes(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn ranges_of_sizes_include_their_ends() {
        assert_eq!(size_range("+1G").unwrap(), (Some(1_000_000_000), None));
        assert_eq!(size_range("-10M").unwrap(), (None, Some(10_000_000)));
        assert_eq!(size_range("5k..").unwrap(), (Some(5_000), None));
        assert_eq!(size_range("..5k").unwrap(), (None, Some(5_000)));
        assert_eq!(size_range("1..2").unwrap(), (Some(1), Some(2)));
        assert_eq!(size_range("7").unwrap(), (Some(7), Some(7)));
        for bad in ["..", "2..1", "+", "x"] {
            assert!(size_range(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn history_is_kept_by_days_or_by_size() {
        for (text, kept) in [
            ("all", HistoryKept::All),
            ("30d", HistoryKept::Days(30)),
            ("4w", HistoryKept::Days(28)),
            ("1w2d", HistoryKept::Days(9)),
            ("100GiB", HistoryKept::Bytes(100 << 30)),
            ("1.5T", HistoryKept::Bytes(1_500_000_000_000)),
            ("4294967295d", HistoryKept::Days(u32::MAX)),
        ] {
            assert_eq!(history_kept(text).unwrap(), kept, "{text}");
        }
        for bad in ["", "none", "12h", "12h1d", "d", "-1d", "4294967296d", "30 days", "1x"] {
            let error = history_kept(bad).unwrap_err();
            assert!(error.message.contains("100GiB"), "{bad}: {error}");
        }
    }

    #[test]
    fn durations_and_relative_times() {
        for (text, ms) in
            [("90s", 90_000), ("1d12h", 129_600_000), ("5ms", 5), ("2m", 120_000), ("1w", 604_800_000)]
        {
            assert_eq!(duration_ms(text).unwrap(), ms, "{text}");
        }
        for bad in ["", "d", "5", "1y", "1d 2h", "99999999999999999999d"] {
            assert!(duration_ms(bad).is_err(), "{bad}");
        }
        let now = TimeMs(1_000_000_000);
        assert_eq!(time_from("2d", Direction::Past, now).unwrap(), TimeMs(1_000_000_000 - 172_800_000));
        assert_eq!(time_from("2d ago", Direction::Past, now).unwrap(), TimeMs(1_000_000_000 - 172_800_000));
        assert_eq!(time_from("+2d", Direction::Future, now).unwrap(), TimeMs(1_000_000_000 + 172_800_000));
        assert_eq!(time_from("now", Direction::Past, now).unwrap(), now);
        assert_eq!(time_from("9999w", Direction::Past, now).unwrap(), TimeMs(0));
        assert_eq!(time_from("1970-01-02", Direction::Past, now).unwrap(), TimeMs(86_400_000));
        assert!(time_from("yesterday", Direction::Past, now).is_err());
    }

    #[test]
    fn durations_of_nothing_and_past_expiries_are_refused() {
        assert_eq!((some_time_ms("5ms").unwrap(), seconds("1m").unwrap()), (5, 60));
        assert!(some_time_ms("0s").is_err() && seconds("0s").is_err() && seconds("999ms").is_err());
        for past in ["now", "0s", "1970-01-02", "2001-01-01T00:00:00Z"] {
            assert!(time_to_come(past).unwrap_err().message.contains("in the past"), "{past}");
        }
        assert!(time_to_come("1d").unwrap() > now());
    }

    #[test]
    fn symbolic_modes_do_as_chmod_does() {
        let apply = |text: &str, mode: u16, directory: bool| {
            ModeChange::parse(text).unwrap().apply(Mode::new(mode).unwrap(), directory).bits()
        };
        assert_eq!(apply("640", 0o777, false), 0o640);
        assert_eq!(apply("u+x", 0o644, false), 0o744);
        assert_eq!(apply("go-rw", 0o666, false), 0o600);
        assert_eq!(apply("a=rX", 0o600, false), 0o444);
        assert_eq!(apply("a=rX", 0o700, false), 0o555);
        assert_eq!(apply("a=rX", 0o600, true), 0o555);
        assert_eq!(apply("+w", 0o444, false), 0o666);
        assert_eq!(apply("u=rwx,g=rx,o=", 0o000, false), 0o750);
        assert_eq!(apply("u+r-w", 0o200, false), 0o400);
        assert_eq!(apply("1777", 0o755, true), 0o1777);
        assert_eq!(apply("+t", 0o777, true), 0o1777);
        assert_eq!(apply("a-t", 0o1777, true), 0o777);
        assert_eq!(apply("u+t", 0o777, true), 0o777);
        assert_eq!(apply("g-w", 0o1777, true), 0o1757);
        assert_eq!(apply("a=rwx", 0o1755, true), 0o777);
        for bad in ["", "9", "2777", "4755", "u", "u*r", "z+r", "u+q", "u+r,"] {
            assert!(ModeChange::parse(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn relative_names_are_refused_with_what_to_do() {
        assert!(lfn("data/x").unwrap_err().message.contains("begins with '/'"));
        assert!(matches!(file("/a").unwrap(), FileRef::Lfn(_)));
        assert!(matches!(file("5d9a8f1e-5607-11ee-90f9-6c02e09897e9").unwrap(), FileRef::Guid(_)));
        assert!(file("a").unwrap_err().message.contains("GUID"));
    }

    #[test]
    fn parts_are_split_where_they_should() {
        let (se, pfn) = replica("A::B::C=root://h//x=y").unwrap();
        assert_eq!((se.as_str(), pfn.unwrap().as_str()), ("A::B::C", "root://h//x=y"));
        assert_eq!(replica("A::B::C").unwrap().1, None);
        assert_eq!(counted("disk", Some(1)).unwrap().1, 1);
        assert_eq!(counted("disk=3", None).unwrap().1, 3);
        assert!(counted("disk", None).is_err() && counted("disk=x", None).is_err());
        assert_eq!(owner("group:g").unwrap(), Owner::Group(AccountName::parse("g").unwrap()));
        assert!(owner("role:g").is_err());
        let id = deletion_id("12.3.3f9a1c").unwrap();
        assert_eq!(id.id, DeletionId { revision: exacat_model::Revision(12), index: 3 });
        assert_eq!(id.to_string(), "12.3.3f9a1c");
        for bad in ["12", "12.3"] {
            assert!(deletion_id(bad).is_err(), "{bad}");
        }
        let (archive, name) = member("/a?b?c.root").unwrap();
        assert_eq!((archive, name.as_str()), (FileRef::Lfn(Lfn::parse("/a?b").unwrap()), "c.root"));
    }
}
