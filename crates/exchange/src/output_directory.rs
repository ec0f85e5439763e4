//! Output directories: files that appear under the directory's name together, or not at all.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use crate::error::Error;
use crate::limits::PARTIAL_NAME_BYTES_MAX;

/// Mode of a new directory, before the umask.
const DIRECTORY_MODE: u32 = 0o777;

/// A directory being written. Without [`finish`](OutputDirectory::finish) nothing of it remains.
#[derive(Debug)]
pub struct OutputDirectory {
    partial: tempfile::TempDir,
    target: PathBuf,
}

fn parent_of(path: &Path) -> &Path {
    path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// Says whether there is a directory without entries. An error says what else is there.
fn check_free(path: &Path) -> Result<(), Error> {
    let taken = |what: &str| {
        Error::options(format!("{} {what}: name a directory that does not exist or is empty", path.display()))
    };
    match fs::symlink_metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(Error::file("write", path, error)),
        Ok(found) if !found.is_dir() => Err(taken("is no directory")),
        Ok(_) => {
            let mut inside = fs::read_dir(path).map_err(|error| Error::file("read", path, error))?;
            if inside.next().is_some() { Err(taken("is not empty")) } else { Ok(()) }
        }
    }
}

impl OutputDirectory {
    /// Makes a temporary directory beside `path`, which must be free or an empty directory.
    pub fn create(path: &Path) -> Result<Self, Error> {
        check_free(path)?;
        let Some(name) = path.file_name() else {
            return Err(Error::options(format!(
                "{} is no name of a directory: name a new one",
                path.display()
            )));
        };
        let name = name.to_string_lossy();
        let name = &name[..name.floor_char_boundary(PARTIAL_NAME_BYTES_MAX)];
        let partial = tempfile::Builder::new()
            .prefix(&format!("{name}."))
            .suffix(".partial")
            .permissions(fs::Permissions::from_mode(DIRECTORY_MODE))
            .tempdir_in(parent_of(path))
            .map_err(|error| Error::file("write", path, error))?;
        Ok(OutputDirectory { partial, target: path.to_owned() })
    }

    /// Returns the place of a file until the directory has its name.
    pub fn place(&self, name: &str) -> PathBuf {
        self.partial.path().join(name)
    }

    /// Makes a new file in it.
    pub fn file(&self, name: &str) -> Result<File, Error> {
        let made = OpenOptions::new().write(true).create_new(true).open(self.place(name));
        made.map_err(|error| Error::file("write", &self.target.join(name), error))
    }

    /// Makes all files durable, and gives the directory its name.
    pub fn finish(self) -> Result<(), Error> {
        let cannot = |error| Error::file("write", &self.target, error);
        let partial = self.partial.path();
        for file in fs::read_dir(partial).map_err(cannot)? {
            let file = file.and_then(|file| File::open(file.path())).map_err(cannot)?;
            file.sync_all().map_err(cannot)?;
        }
        let sync = |directory: &Path| File::open(directory).and_then(|directory| directory.sync_all());
        // Some file systems cannot sync a directory.
        let _not_everywhere = sync(partial);
        check_free(&self.target)?;
        // An empty directory is replaced.
        fs::rename(partial, &self.target).map_err(|error| Error::file("rename to", &self.target, error))?;
        let _not_everywhere = sync(parent_of(&self.target));
        let _it_has_another_name_now = self.partial.keep();
        Ok(())
    }

    /// Returns, for a person, what an interruption leaves under the name.
    pub fn if_interrupted(&self) -> String {
        format!("{} was not written; nothing is left", self.target.display())
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::os::unix::fs::symlink;

    use super::*;

    fn names(directory: &Path) -> Vec<String> {
        let entries = fs::read_dir(directory).unwrap();
        let mut names: Vec<String> =
            entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }

    /// A directory appears whole or not at all, also in place of an empty one.
    #[test]
    fn output_directory_appears_when_it_is_complete() {
        let place = tempfile::tempdir().unwrap();
        let target = place.path().join("out");
        for made_before in [false, true] {
            let output = OutputDirectory::create(&target).unwrap();
            output.file("a").unwrap().write_all(b"1").unwrap();
            assert_eq!(names(place.path()).len(), if made_before { 2 } else { 1 });
            drop(output);
            assert_eq!(names(place.path()), if made_before { vec!["out"] } else { vec![] });
            fs::create_dir_all(&target).unwrap();
        }
        let output = OutputDirectory::create(&target).unwrap();
        output.file("a").unwrap().write_all(b"1").unwrap();
        assert!(output.file("a").is_err(), "a file is made once");
        output.finish().unwrap();
        assert_eq!(names(place.path()), ["out"]);
        assert_eq!(fs::read(target.join("a")).unwrap(), b"1");
    }

    /// Nothing that exists is replaced: not a file, a link, or a directory with content, whenever it came.
    #[test]
    fn output_directory_refuses_what_is_there() {
        let place = tempfile::tempdir().unwrap();
        let refused = |path: &Path| OutputDirectory::create(path).unwrap_err().to_string();
        let file = place.path().join("file");
        fs::write(&file, "kept").unwrap();
        assert!(refused(&file).contains("is no directory"), "{}", refused(&file));
        symlink("nowhere", place.path().join("link")).unwrap();
        assert!(refused(&place.path().join("link")).contains("is no directory"));
        assert!(refused(place.path()).contains("is not empty"));
        assert!(OutputDirectory::create(Path::new("/")).is_err());
        assert!(refused(&place.path().join("no/such")).contains("no/such"));
        let late = place.path().join("late");
        let output = OutputDirectory::create(&late).unwrap();
        output.file("a").unwrap();
        fs::create_dir(&late).unwrap();
        fs::write(late.join("theirs"), "kept").unwrap();
        assert!(output.finish().unwrap_err().to_string().contains("is not empty"));
        assert_eq!(names(place.path()), ["file", "late", "link"]);
    }
}
