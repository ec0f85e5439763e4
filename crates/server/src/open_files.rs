//! Limit of open files: each connection is one. A server at the limit can accept no connection and
//! open no file of the store.

use exacat_model::{Error, Result};

/// Open files reserved for the store, its compactor, listeners and logs; connections leave these
/// alone.
pub const OPEN_FILES_KEPT: usize = 512;

/// Raises the limit of open files to the highest that the system allows, and returns it; none if
/// the system does not say.
pub fn raise_open_files() -> Option<usize> {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: the structure is valid, and lives as long as the call.
    if unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit) } != 0 {
        return None;
    }
    if limit.rlim_cur < limit.rlim_max {
        let raised = libc::rlimit { rlim_cur: limit.rlim_max, ..limit };
        // SAFETY: as above. A refusal leaves the limit as it was.
        if unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &raw const raised) } == 0 {
            limit = raised;
        }
    }
    Some(usize::try_from(limit.rlim_cur).unwrap_or(usize::MAX))
}

/// Returns the limit of open files; none if the system does not say.
pub(crate) fn open_files_max() -> Option<u64> {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: the structure is valid, and lives as long as the call.
    let result = unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit) };
    (result == 0).then_some(limit.rlim_cur)
}

/// Returns the number of connections that this many open files allow: `asked`, or an error if that
/// is too many. Without `asked`, as many as there are files for, up to the default.
pub fn connections_within(open_files: usize, asked: Option<usize>, default: usize) -> Result<usize> {
    let most = open_files.saturating_sub(OPEN_FILES_KEPT).max(1);
    match asked {
        Some(asked) if asked > most => Err(Error::invalid(format!(
            "{asked} connections at once need {} open files, and the system allows {open_files}: raise that \
             (ulimit -n, LimitNOFILE= of systemd), or take at most {most} connections",
            asked.saturating_add(OPEN_FILES_KEPT)
        ))),
        Some(asked) => Ok(asked),
        None => Ok(default.min(most)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connections_leave_files_for_the_store() {
        assert_eq!(connections_within(1512, Some(1000), 4096).unwrap(), 1000);
        let refused = connections_within(1512, Some(1001), 4096).unwrap_err();
        assert!(refused.message.contains("ulimit") && refused.message.contains("at most 1000"), "{refused}");
        assert_eq!(connections_within(1512, None, 4096).unwrap(), 1000);
        assert_eq!(connections_within(1 << 20, None, 4096).unwrap(), 4096);
        assert_eq!(connections_within(100, None, 4096).unwrap(), 1);
    }

    #[test]
    fn the_limit_is_raised_once_and_stays() {
        let raised = raise_open_files().unwrap();
        assert!(raised > 0);
        assert_eq!(raise_open_files(), Some(raised));
    }
}
