//! Open files of a connection.

use exacat_replay::content::ContentName;
use exacat_wire::xrootd::FileHandle;

use super::counts::FileBytes;
use super::limits::FILES_OPEN_MAX;

/// An open file.
#[derive(Clone, Debug)]
pub(super) struct OpenFile {
    /// Name of its bytes.
    pub content: ContentName,
    /// Number of the file, for its stat.
    pub id: u64,
    /// Bytes.
    pub size: u64,
    /// Counter of its bytes.
    pub bytes: Option<FileBytes>,
}

/// Open files by their handles.
#[derive(Debug, Default)]
pub(super) struct Handles {
    files: Vec<Option<OpenFile>>,
    free: Vec<u32>,
}

fn place(handle: FileHandle) -> usize {
    u32::from_be_bytes(handle.0) as usize
}

impl Handles {
    /// Returns the number of open files.
    pub(super) fn count(&self) -> usize {
        self.files.len() - self.free.len()
    }

    /// Adds a file; none if too many are open.
    pub(super) fn add(&mut self, file: OpenFile) -> Option<FileHandle> {
        let number = match self.free.pop() {
            Some(number) => number,
            None if self.files.len() >= FILES_OPEN_MAX => return None,
            None => {
                self.files.push(None);
                u32::try_from(self.files.len() - 1).ok()?
            }
        };
        *self.files.get_mut(number as usize)? = Some(file);
        Some(FileHandle(number.to_be_bytes()))
    }

    /// Returns an open file.
    pub(super) fn get(&self, handle: FileHandle) -> Option<&OpenFile> {
        self.files.get(place(handle))?.as_ref()
    }

    /// Closes a file; false if it is not open.
    pub(super) fn close(&mut self, handle: FileHandle) -> bool {
        let was = self.files.get_mut(place(handle)).and_then(Option::take);
        if was.is_some() {
            self.free.push(u32::from_be_bytes(handle.0));
        }
        was.is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Property: a handle is that of its file until it is closed, once; and there are not too many.
    #[test]
    fn handles_are_reused_and_bounded() {
        let mut handles = Handles::default();
        let file = |id| OpenFile { content: ContentName::of("/a"), id, size: 1, bytes: None };
        let all: Vec<FileHandle> =
            (0..FILES_OPEN_MAX as u64).map(|id| handles.add(file(id)).unwrap()).collect();
        assert_eq!((handles.count(), handles.add(file(0))), (FILES_OPEN_MAX, None));
        assert_eq!(handles.get(all[77]).map(|file| file.id), Some(77));
        assert!(handles.close(all[77]) && !handles.close(all[77]));
        assert!(handles.get(all[77]).is_none());
        assert_eq!(handles.add(file(5)), Some(all[77]));
        assert!(handles.get(FileHandle([0xff; 4])).is_none() && !handles.close(FileHandle([0xff; 4])));
    }
}
