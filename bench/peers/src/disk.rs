//! Sizes of files on disk.

use std::path::Path;

use exacat_model::Result;

use crate::peer::while_doing;

/// Bytes of the files in a directory whose name is `counted`; what is below it is not looked at.
pub fn bytes_in(directory: &Path, counted: impl Fn(&str) -> bool) -> Result<u64> {
    let doing = format!("cannot look at {}", directory.display());
    let mut bytes = 0;
    for file in std::fs::read_dir(directory).map_err(while_doing(&doing))? {
        let file = file.map_err(while_doing(&doing))?;
        // A file that goes away meanwhile is none.
        let Ok(about) = file.metadata() else { continue };
        if about.is_file() && counted(&file.file_name().to_string_lossy()) {
            bytes += about.len();
        }
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_files_that_count_are_counted() {
        let place = tempfile::tempdir().unwrap();
        std::fs::write(place.path().join("1.sst"), [0; 100]).unwrap();
        std::fs::write(place.path().join("2.log"), [0; 10]).unwrap();
        std::fs::create_dir(place.path().join("3.sst")).unwrap();
        assert_eq!(bytes_in(place.path(), |name| name.ends_with(".sst")).unwrap(), 100);
        assert_eq!(bytes_in(place.path(), |_| true).unwrap(), 110);
        assert!(bytes_in(&place.path().join("none"), |_| true).is_err());
    }
}
