//! The table of error kinds in every protocol. `tests/golden/errors.txt` shows it.

use exacat_model::ErrorKind;

/// Returns the HTTP status of a kind of error.
pub fn http_status(kind: ErrorKind) -> u16 {
    match kind {
        ErrorKind::NotFound => 404,
        ErrorKind::Exists | ErrorKind::NotDirectory | ErrorKind::NotFile | ErrorKind::NotEmpty => 409,
        ErrorKind::Denied => 403,
        ErrorKind::Unauthenticated => 401,
        ErrorKind::Invalid => 400,
        ErrorKind::Conflict => 409,
        ErrorKind::Quota => 507,
        ErrorKind::Limit => 413,
        ErrorKind::Busy => 429,
        ErrorKind::Unavailable => 503,
        // A gateway's status for "no answer in time": a client must not read it as "not done".
        ErrorKind::Unknown => 504,
        ErrorKind::Corrupt | ErrorKind::Internal => 500,
    }
}

/// Returns the errno of a kind of error, by name and number as on Linux, for faces with file
/// semantics.
pub fn errno(kind: ErrorKind) -> (&'static str, i32) {
    match kind {
        ErrorKind::NotFound => ("ENOENT", libc::ENOENT),
        ErrorKind::Exists => ("EEXIST", libc::EEXIST),
        ErrorKind::NotDirectory => ("ENOTDIR", libc::ENOTDIR),
        ErrorKind::NotFile => ("EISDIR", libc::EISDIR),
        ErrorKind::NotEmpty => ("ENOTEMPTY", libc::ENOTEMPTY),
        ErrorKind::Denied => ("EACCES", libc::EACCES),
        ErrorKind::Unauthenticated => ("EPERM", libc::EPERM),
        ErrorKind::Invalid => ("EINVAL", libc::EINVAL),
        ErrorKind::Conflict => ("ESTALE", libc::ESTALE),
        ErrorKind::Quota => ("EDQUOT", libc::EDQUOT),
        ErrorKind::Limit => ("E2BIG", libc::E2BIG),
        ErrorKind::Busy => ("EAGAIN", libc::EAGAIN),
        ErrorKind::Unavailable => ("EBUSY", libc::EBUSY),
        ErrorKind::Unknown => ("ETIMEDOUT", libc::ETIMEDOUT),
        ErrorKind::Corrupt | ErrorKind::Internal => ("EIO", libc::EIO),
    }
}

/// Returns the number of a kind of error in XRootD's protocol; none if the client must ask again
/// later.
///
/// With none of these numbers does a client try another server, because no other server knows
/// better.
pub fn xrootd(kind: ErrorKind) -> Option<u32> {
    use exacat_wire::xrootd::numbers::error;
    Some(match kind {
        ErrorKind::NotFound => error::NOT_FOUND,
        ErrorKind::Exists | ErrorKind::NotEmpty => error::IT_EXISTS,
        ErrorKind::NotDirectory => error::NOT_FILE,
        ErrorKind::NotFile => error::IS_DIRECTORY,
        ErrorKind::Denied | ErrorKind::Unauthenticated => error::NOT_AUTHORIZED,
        ErrorKind::Invalid => error::ARG_INVALID,
        ErrorKind::Conflict => error::CONFLICT,
        ErrorKind::Quota => error::OVER_QUOTA,
        ErrorKind::Limit => error::ARG_TOO_LONG,
        ErrorKind::Busy => return None,
        ErrorKind::Unavailable => error::NO_SERVER,
        ErrorKind::Unknown => error::REQUEST_TIMED_OUT,
        ErrorKind::Corrupt => error::CHECKSUM_ERROR,
        ErrorKind::Internal => error::SERVER_ERROR,
    })
}

/// Returns the whole table as text, one line for each kind.
pub fn table() -> String {
    let mut text = format!(
        "{:<16} {:>4} {:>4} {:>5} {:<9} {:>6} {}\n",
        "kind", "wire", "exit", "http", "errno", "xrootd", "retry"
    );
    for kind in ErrorKind::ALL {
        text.push_str(&format!(
            "{:<16} {:>4} {:>4} {:>5} {:<9} {:>6} {}\n",
            kind.name(),
            kind as u8,
            kind.exit_status(),
            http_status(kind),
            errno(kind).0,
            xrootd(kind).map_or_else(|| "wait".to_owned(), |number| number.to_string()),
            if kind.is_retryable() { "yes" } else { "no" },
        ));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Compares the table with the agreed one: a change here changes every face, so the test shows
    /// it.
    #[test]
    fn the_table_is_the_one_agreed() {
        assert_eq!(table(), include_str!("../../tests/golden/errors.txt"));
    }

    #[test]
    fn the_numbers_of_the_wire_and_of_exit_are_each_used_once() {
        let exits: std::collections::BTreeSet<u8> =
            ErrorKind::ALL.into_iter().map(ErrorKind::exit_status).collect();
        assert_eq!(exits.len(), ErrorKind::ALL.len());
        assert!(!exits.contains(&0) && !exits.contains(&1));
        for kind in ErrorKind::ALL {
            assert_eq!(ErrorKind::from_number(kind as u8), Some(kind));
            assert!((400..600).contains(&http_status(kind)));
        }
    }
}
