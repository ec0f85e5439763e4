//! Walk over the namespace of a cache: its `.cinfo` files, one by one.

use std::fs::{self, File};
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use exacat_model::{Error, ErrorKind, Result};
use exacat_replay::both_sides::cinfo::CinfoSums;
use exacat_wire::xrdmon::cinfo::{CINFO_BYTES_MAX, Cinfo};

use super::limits::{DAMAGED_NAMED_MAX, DEPTH_MAX, ENTRIES_MAX};

/// End of the names of states.
const SUFFIX: &str = ".cinfo";

/// Outcome of reading one state.
enum State {
    Good(Box<Cinfo>),
    Damaged(&'static str),
    /// It is gone, or may not be read.
    Unread,
}

fn bytes_of(path: &Path) -> io::Result<Option<Vec<u8>>> {
    let file = File::open(path)?;
    // A name in the namespace is a link; what it leads to has to be a file.
    if !file.metadata()?.is_file() {
        return Ok(None);
    }
    let mut bytes = Vec::new();
    file.take(CINFO_BYTES_MAX as u64 + 1).read_to_end(&mut bytes)?;
    Ok(Some(bytes))
}

fn state_of(path: &Path) -> State {
    let mut fault = "";
    // The cache may be writing it: then the second look finds it whole.
    for _ in 0..2 {
        match bytes_of(path) {
            Err(_) => return State::Unread,
            Ok(None) => return State::Damaged("it is no file"),
            Ok(Some(bytes)) if bytes.len() > CINFO_BYTES_MAX => return State::Damaged("it is too long"),
            Ok(Some(bytes)) => match Cinfo::read(&bytes) {
                Ok(cinfo) => return State::Good(Box::new(cinfo)),
                Err(why) => fault = why,
            },
        }
    }
    State::Damaged(fault)
}

/// Reads all states below the namespace of a cache (`oss.localroot`), gives each with the name of its file to
/// `each`, and returns their sums. It follows no link to a directory. It blocks: a large cache takes minutes.
///
/// # Errors
/// The directory cannot be read. What cannot be read below it is counted.
pub fn sum_up(namespace: &Path, each: &mut dyn FnMut(&str, &Cinfo)) -> Result<CinfoSums> {
    walk(namespace, ENTRIES_MAX, each)
}

fn walk(namespace: &Path, entries_max: u64, each: &mut dyn FnMut(&str, &Cinfo)) -> Result<CinfoSums> {
    let cannot = |error: &io::Error| {
        Error::new(
            ErrorKind::Unavailable,
            format!("the namespace of the cache {} cannot be read: {error}", namespace.display()),
        )
    };
    let mut sums = CinfoSums::default();
    let mut directories: Vec<(PathBuf, usize)> = vec![(namespace.to_owned(), 0)];
    let mut entries = 0;
    fs::read_dir(namespace).map_err(|error| cannot(&error))?;
    while let Some((directory, depth)) = directories.pop() {
        let Ok(listing) = fs::read_dir(&directory) else {
            sums.unread += 1;
            continue;
        };
        for entry in listing {
            let Ok((path, kind)) = entry.and_then(|entry| Ok((entry.path(), entry.file_type()?))) else {
                sums.unread += 1;
                continue;
            };
            entries += 1;
            if entries > entries_max {
                sums.is_incomplete = true;
                return Ok(sums);
            }
            if kind.is_dir() {
                match depth < DEPTH_MAX {
                    true => directories.push((path, depth + 1)),
                    false => sums.is_incomplete = true,
                }
                continue;
            }
            let Some(name) = name_of(namespace, &path) else { continue };
            match state_of(&path) {
                State::Good(cinfo) => {
                    sums.add(&cinfo);
                    each(&name, &cinfo);
                }
                State::Damaged(why) => {
                    sums.damaged += 1;
                    if sums.damaged_files.len() < DAMAGED_NAMED_MAX {
                        sums.damaged_files.push(format!("{name}: {why}"));
                    }
                }
                State::Unread => sums.unread += 1,
            }
        }
    }
    Ok(sums)
}

/// Returns the name of the file that a state is of; none for other entries.
fn name_of(namespace: &Path, path: &Path) -> Option<String> {
    let below = path.strip_prefix(namespace).ok()?.to_string_lossy();
    below.strip_suffix(SUFFIX).map(|name| format!("/{name}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Property: a walk that reaches a limit says so, and one that just fits does not.
    #[test]
    fn walks_are_bounded() {
        let root = tempfile::tempdir().unwrap();
        for number in 0..10 {
            fs::write(root.path().join(format!("{number}{SUFFIX}")), b"").unwrap();
        }
        let damaged =
            |most| walk(root.path(), most, &mut |_, _| {}).map(|sums| (sums.damaged, sums.is_incomplete));
        assert_eq!((damaged(10), damaged(9)), (Ok((10, false)), Ok((9, true))));
        let deep = tempfile::tempdir().unwrap();
        let path: PathBuf = std::iter::repeat_n("d", DEPTH_MAX).collect();
        fs::create_dir_all(deep.path().join(&path)).unwrap();
        assert!(!sum_up(deep.path(), &mut |_, _| {}).unwrap().is_incomplete);
        fs::create_dir_all(deep.path().join(&path).join("d")).unwrap();
        assert!(sum_up(deep.path(), &mut |_, _| {}).unwrap().is_incomplete);
    }
}
