//! Trailing slashes: a path that ends in one means a directory, for every caller and protocol.
//!
//! Path resolution ([`Catalogue::spots`]) checks paths of existing entries, and [`check_free_name`]
//! the destination of a move. This module handles the rest before the operation runs. It refuses
//! names of new entries that are no directories. It strips the slash from paths that need not
//! exist, so that none is stored.
//!
//! [`Catalogue::spots`]: crate::Catalogue::spots

use exacat_model::{Error, ErrorKind, Kind, Lfn, Operation, Result};

/// Checks or strips the slashes of an operation's paths that are not resolved.
pub(crate) fn apply(operation: &mut Operation) -> Result<()> {
    match operation {
        Operation::Link { lfn, target } => {
            strip(target);
            check_new_name(lfn)
        }
        Operation::CollectionCreate { lfn, .. } | Operation::UploadReserve { lfn, .. } => check_new_name(lfn),
        Operation::Mkdir { lfns, .. } => {
            lfns.iter_mut().for_each(strip);
            Ok(())
        }
        Operation::UserSet(settings) => {
            settings.home.iter_mut().for_each(strip);
            Ok(())
        }
        Operation::TokenIssue { scope, .. } => {
            strip(scope);
            Ok(())
        }
        Operation::Changes { under, .. } => {
            under.iter_mut().for_each(strip);
            Ok(())
        }
        _ => Ok(()),
    }
}

/// Refuses a slash at the end of a new entry's name, unless the entry is a directory.
pub(crate) fn check_new_name(lfn: &Lfn) -> Result<()> {
    if !lfn.must_be_directory() {
        return Ok(());
    }
    let message = format!("{lfn}/ names a directory: leave out the slash at its end, or add a name");
    Err(Error::new(ErrorKind::NotDirectory, message))
}

/// Refuses a free name with a trailing slash as the destination of an entry that is no directory.
pub(crate) fn check_free_name(to: &Lfn, kind: Kind) -> Result<()> {
    if !to.must_be_directory() || kind == Kind::Directory {
        return Ok(());
    }
    let message = format!("{to}/ is not there: make the directory first, or leave out the slash at its end");
    Err(Error::not_found(message))
}

/// Returns the error for a path that ends in a slash and leads to no directory.
pub(crate) fn no_directory(lfn: &Lfn, kind: Kind) -> Error {
    let message = format!("{lfn} is a {}, not a directory: leave out the slash at its end", kind.name());
    Error::new(ErrorKind::NotDirectory, message)
}

fn strip(lfn: &mut Lfn) {
    if lfn.must_be_directory() {
        *lfn = lfn.clone().of_anything();
    }
}
