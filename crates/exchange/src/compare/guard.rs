//! Limits of an application: what stops a mass change by mistake.

use super::classes::Class;
use super::join::Counts;
use super::reading::DumpCounts;
use crate::error::Error;
use crate::limits::{COMPARE_APPLY_COUNT_MAX, COMPARE_APPLY_MILLIONTHS_MAX};

/// Limits of an application.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ApplyLimits {
    /// Maximum copies.
    pub count: u64,
    /// Maximum fraction of the copies, in millionths.
    pub millionths: u64,
    /// Maximum rejected lines of the dump, any of which could be a copy.
    pub rejects: u64,
}

impl Default for ApplyLimits {
    fn default() -> Self {
        ApplyLimits { count: COMPARE_APPLY_COUNT_MAX, millionths: COMPARE_APPLY_MILLIONTHS_MAX, rejects: 0 }
    }
}

/// Refuses a comparison that can only be a mistake: an empty dump, or one of another storage element.
pub(crate) fn check_sane(
    dump: &DumpCounts,
    (matched, expected): (u64, u64),
    examples: &(Option<String>, Option<String>),
    se: &str,
) -> Result<(), Error> {
    if dump.files == 0 {
        let why = match (dump.lines, dump.outside, dump.rejects()) {
            (0, ..) => "it is empty".to_owned(),
            (_, outside, 0) if outside > 0 => {
                format!("none of its {outside} lines begins with --strip-prefix")
            }
            (lines, _, rejected) if rejected > 0 => {
                format!("{rejected} of its {lines} lines were rejected: name its form with --format")
            }
            (lines, ..) => format!("its {lines} lines are directories and comments"),
        };
        return Err(Error::options(format!("the dump has no files: {why}; nothing was changed")));
    }
    if matched == 0 && expected > 0 {
        let (stored, known) =
            (examples.0.as_deref().unwrap_or("none"), examples.1.as_deref().unwrap_or("none"));
        return Err(Error::options(format!(
            "no path of the dump is one of {se}: the dump has {stored:.300?} and the catalogue {known:.300?}; is it \
             the dump of another storage element, or do --strip-prefix and --add-prefix have to make one of the \
             other? Nothing was changed"
        )));
    }
    Ok(())
}

/// Refuses an application beyond its limits.
pub(crate) fn check_apply(
    class: Class,
    counts: &Counts,
    dump: &DumpCounts,
    expected: u64,
    limits: ApplyLimits,
) -> Result<(), Error> {
    let refused = |why: String| Err(Error::options(format!("{why}; nothing was changed")));
    let count = counts.count(class);
    if count == 0 {
        return Ok(());
    }
    if dump.cut_off {
        return refused(
            "the last line of the dump has no line end, so the dump may be cut off: get it again, or end its last \
             line"
                .to_owned(),
        );
    }
    if dump.rejects() > limits.rejects {
        return refused(format!(
            "{} lines of the dump were rejected, and any of them may be a copy: mend them, or permit them with \
             --max-rejects",
            dump.rejects()
        ));
    }
    if count > limits.count {
        return refused(format!(
            "{count} copies are {}, more than {}: look at the listing, and permit it with --max-count",
            class.name(),
            limits.count
        ));
    }
    let (of, what) = match class {
        Class::Dark => (dump.files, "files of the dump"),
        _ => (expected, "copies that the storage should have"),
    };
    if u128::from(count) * 1_000_000 > u128::from(of) * u128::from(limits.millionths) {
        return refused(format!(
            "{count} of {of} {what} are {}, more than {} %: is the dump whole, and of this storage element? Look at \
             the listing, and permit it with --max-fraction",
            class.name(),
            limits.millionths as f64 / 10_000.0
        ));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn dump(files: u64) -> DumpCounts {
        DumpCounts { lines: files, files, ..DumpCounts::default() }
    }

    /// An empty dump, one without files, and one without a common path are refused with what to do.
    #[test]
    fn comparison_that_can_only_be_a_mistake_is_refused() {
        let none = (None, None);
        let said = |dump: &DumpCounts| check_sane(dump, (0, 1), &none, "A").unwrap_err().to_string();
        assert!(said(&dump(0)).contains("empty"));
        assert!(said(&DumpCounts { lines: 3, outside: 3, ..dump(0) }).contains("--strip-prefix"));
        let rejected = [("other-form", 3)].into_iter().collect();
        assert!(said(&DumpCounts { lines: 3, rejected, ..dump(0) }).contains("--format"));
        assert!(said(&DumpCounts { lines: 3, directories: 3, ..dump(0) }).contains("directories"));
        let examples = (Some("/x".to_owned()), Some("/y".to_owned()));
        let error = check_sane(&dump(1), (0, 1), &examples, "A").unwrap_err().to_string();
        assert!(
            error.contains("\"/x\"") && error.contains("\"/y\"") && error.contains("--add-prefix"),
            "{error}"
        );
        assert!(check_sane(&dump(1), (1, 1), &none, "A").is_ok());
        // A new storage element has no copies yet.
        assert!(check_sane(&dump(1), (0, 0), &none, "A").is_ok());
    }

    /// Each limit permits its value, and refuses one more.
    #[test]
    fn limits_of_an_application_hold_at_their_edges() {
        let limits = ApplyLimits { count: 10, millionths: 100_000, rejects: 2 };
        let lost = |count| Counts::of_class(Class::Lost, count);
        let check = |count, expected, dump: &DumpCounts| {
            check_apply(Class::Lost, &lost(count), dump, expected, limits).map_err(|error| error.to_string())
        };
        assert_eq!(check(10, 100, &dump(90)), Ok(()));
        assert!(check(11, 1000, &dump(90)).unwrap_err().contains("--max-count"));
        assert!(check(10, 99, &dump(90)).unwrap_err().contains("--max-fraction"));
        let cut = DumpCounts { cut_off: true, ..dump(90) };
        assert!(check(1, 100, &cut).unwrap_err().contains("cut off"));
        assert_eq!(check(0, 100, &cut), Ok(()));
        for (rejects, good) in [(2, true), (3, false)] {
            let dump = DumpCounts { rejected: [("bad-size", rejects)].into_iter().collect(), ..dump(90) };
            assert_eq!(check(1, 100, &dump).is_ok(), good, "{rejects}");
        }
        let dark = Counts::of_class(Class::Dark, 9);
        assert!(check_apply(Class::Dark, &dark, &dump(90), 0, limits).is_ok());
        assert!(check_apply(Class::Dark, &dark, &dump(89), 1_000_000, limits).is_err());
    }
}
