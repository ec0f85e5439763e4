//! The files every peer is given: shaped like an experiment's, the same in every run, in the same order.

use std::ops::Range;

use exacat_bench::scatter;

/// Files that a directory is filled with, as those of one job's output.
pub const FILES_PER_DIRECTORY: u64 = 100;
/// Directories with files in a directory of runs.
pub const DIRECTORIES_PER_RUN: u64 = 500;
/// Storage elements.
pub const SES: u16 = 30;
/// Files made durable together.
pub const GROUP: u64 = 1000;
/// Directories that files go into at the same time.
const OPEN_DIRECTORIES: u64 = 10_000;
/// Directories that are listed, and files in each.
pub const LISTED_DIRECTORIES: u64 = 50;
/// See [`LISTED_DIRECTORIES`].
pub const LISTED_FILES: u64 = 1000;
/// Files of the one directory that is listed as a whole, at most.
const SCANNED_FILES_MAX: u64 = 1_000_000;
/// Ways of making single files that one peer may have.
const SINGLE_RANGES: u64 = 2;
/// Single files made in each way, at most.
const SINGLES_MAX: u64 = 200_000;
/// Numbers of files that are asked for and not there.
const MISSING_FROM: u64 = 500_000;
/// When the first file was made.
const BEGIN_MS: u64 = 1_780_000_000_000;

/// One file: the directory it is in, by number, and its number there. All else follows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FileId {
    /// The directory.
    pub directory: u64,
    /// Its number in it.
    pub number: u64,
}

impl FileId {
    fn seed(self) -> u64 {
        self.directory << 21 | self.number
    }

    /// Its name: 28 bytes, as of a job's output.
    pub fn name(self) -> String {
        let FileId { directory, number } = self;
        format!("AO2D_{directory:08x}_{number:04}.{:04x}.root", scatter(self.seed()) as u16)
    }

    /// Its LFN.
    pub fn lfn(self) -> String {
        format!("{}/{}", directory_path(self.directory), self.name())
    }

    /// Its GUID.
    pub fn guid(self) -> [u8; 16] {
        sixteen(self.seed())
    }

    /// Its md5.
    pub fn md5(self) -> [u8; 16] {
        sixteen(scatter(self.seed()))
    }

    /// Its bytes.
    pub fn size(self) -> u64 {
        500_000_000 + scatter(self.seed()) % 3_000_000_000
    }

    /// The storage elements of its two replicas.
    pub fn ses(self) -> [u16; 2] {
        let first = (self.directory % u64::from(SES)) as u16;
        [1 + first, 1 + (first + 7) % SES]
    }

    /// The job that made it.
    pub fn job(self) -> u64 {
        1_000_000_000 + self.directory
    }

    /// When it was made.
    pub fn created_ms(self) -> u64 {
        BEGIN_MS + self.directory * 50 + scatter(self.seed()) % 20_000
    }

    /// A file of the same directory that is not there.
    pub fn missing(self) -> FileId {
        FileId { number: MISSING_FROM + self.number, ..self }
    }
}

fn sixteen(seed: u64) -> [u8; 16] {
    let mut bytes = [0; 16];
    bytes[..8].copy_from_slice(&scatter(seed).to_le_bytes());
    bytes[8..].copy_from_slice(&scatter(!seed).to_le_bytes());
    bytes
}

/// The directory of runs that a directory is in.
pub fn run_of(directory: u64) -> u64 {
    directory / DIRECTORIES_PER_RUN
}

/// Returns the name of a directory of runs, in `/data`.
pub fn run_name(run: u64) -> String {
    format!("{:09}", 526_000 + run)
}

/// The same once it is renamed.
pub fn run_name_moved(run: u64) -> String {
    format!("{}-moved", run_name(run))
}

/// Returns the name of a directory, in that of its run.
pub fn directory_name(directory: u64) -> String {
    format!("{:04}", directory % DIRECTORIES_PER_RUN)
}

/// The LFN of a directory.
pub fn directory_path(directory: u64) -> String {
    format!("/data/{}/{}", run_name(run_of(directory)), directory_name(directory))
}

/// Returns the name of a storage element.
pub fn se_name(number: u16) -> String {
    format!("BENCH::SITE{number:02}::DISK")
}

/// Returns the beginning of PFNs on it.
pub fn se_prefix(number: u16) -> String {
    format!("root://site{number:02}.example.org:1094//data")
}

/// Sizes of everything, and the purposes of directories. Every directory is made before the first file.
#[derive(Clone, Copy, Debug)]
pub struct Layout {
    /// Files that are made in groups, in random order.
    pub files: u64,
    /// Single files made in each way.
    pub singles: u64,
    /// Files in the directory that is listed as a whole.
    pub scanned_files: u64,
}

impl Layout {
    /// For about so many files.
    pub fn new(entries: u64) -> Layout {
        let files = entries.max(GROUP).next_multiple_of(GROUP);
        Layout {
            files,
            singles: (files / 10).clamp(GROUP, SINGLES_MAX).next_multiple_of(FILES_PER_DIRECTORY),
            scanned_files: (files / 10).clamp(GROUP, SCANNED_FILES_MAX).next_multiple_of(GROUP),
        }
    }

    /// Directories of [`Layout::files`].
    pub fn filled(&self) -> u64 {
        self.files / FILES_PER_DIRECTORY
    }

    /// The first directory of the single files made in the n-th way. What comes after the filled directories
    /// is in directories of runs of its own, so that those before have nothing else below them.
    fn single(&self, way: u64) -> u64 {
        self.filled().next_multiple_of(DIRECTORIES_PER_RUN) + way * (self.singles / FILES_PER_DIRECTORY)
    }

    /// The n-th single file made in a way.
    pub fn single_file(&self, way: u64, number: u64) -> FileId {
        FileId {
            directory: self.single(way) + number / FILES_PER_DIRECTORY,
            number: number % FILES_PER_DIRECTORY,
        }
    }

    /// Directories of [`LISTED_FILES`] each.
    pub fn listed(&self) -> Range<u64> {
        let first = self.single(SINGLE_RANGES);
        first..first + LISTED_DIRECTORIES
    }

    /// The directory of [`Layout::scanned_files`].
    pub fn scanned(&self) -> u64 {
        self.listed().end
    }

    /// All directories there are.
    pub fn directories(&self) -> u64 {
        self.scanned() + 1
    }

    /// Directories of runs.
    pub fn runs(&self) -> u64 {
        self.directories().div_ceil(DIRECTORIES_PER_RUN)
    }

    /// One of the files made in groups, by a random number.
    pub fn some_file(&self, random: u64) -> FileId {
        let at = scatter(random) % self.files;
        FileId { directory: at / FILES_PER_DIRECTORY, number: at % FILES_PER_DIRECTORY }
    }

    /// One of the first `hot` files of as many directories as there are: spread over everything, but few.
    pub fn hot_file(&self, random: u64, hot: u64) -> FileId {
        self.some_file(scatter(random) % hot.clamp(1, self.files) + (1 << 32))
    }

    /// Files below the first directory of runs.
    pub fn files_of_first_run(&self) -> u64 {
        self.filled().min(DIRECTORIES_PER_RUN) * FILES_PER_DIRECTORY
    }
}

/// The order in which files are made: each group across directories chosen at random among those open.
#[derive(Debug)]
pub struct Order {
    open: Vec<(u64, u64)>,
    next: u64,
    end: u64,
    random: u64,
}

impl Order {
    /// Makes the order of a layout's files.
    pub fn new(layout: &Layout) -> Order {
        let end = layout.filled();
        let next = end.min(OPEN_DIRECTORIES);
        Order { open: (0..next).map(|directory| (directory, 0)).collect(), next, end, random: 17 }
    }
}

impl Iterator for Order {
    type Item = Vec<FileId>;

    fn next(&mut self) -> Option<Vec<FileId>> {
        let mut group = Vec::with_capacity(GROUP as usize);
        while (group.len() as u64) < GROUP && !self.open.is_empty() {
            self.random = scatter(self.random.wrapping_add(0x9e37_79b9));
            let index = (self.random % self.open.len() as u64) as usize;
            let (directory, number) = self.open[index];
            group.push(FileId { directory, number });
            if number + 1 < FILES_PER_DIRECTORY {
                self.open[index].1 += 1;
            } else if self.next < self.end {
                self.open[index] = (self.next, 0);
                self.next += 1;
            } else {
                self.open.swap_remove(index);
            }
        }
        (!group.is_empty()).then_some(group)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    /// Every file of the layout is made once, in whole groups, with a GUID and a name of its own.
    #[test]
    fn the_order_has_every_file_once() {
        let layout = Layout::new(12_345);
        let (mut files, mut guids, mut names) = (HashSet::new(), HashSet::new(), HashSet::new());
        for group in Order::new(&layout) {
            assert_eq!(group.len() as u64, GROUP);
            for file in group {
                assert!(file.directory < layout.filled() && file.number < FILES_PER_DIRECTORY);
                assert!(files.insert(file) && guids.insert(file.guid()) && names.insert(file.lfn()));
            }
        }
        assert_eq!(files.len() as u64, layout.files);
        assert!(files.contains(&layout.some_file(7)) && files.contains(&layout.hot_file(7, 100)));
    }

    /// Directories of different use do not overlap, and hot files are as few as they should be.
    #[test]
    fn directories_have_one_use_each() {
        let layout = Layout::new(90_000);
        let singles = layout.single_file(1, layout.singles - 1).directory;
        assert_eq!(layout.single_file(0, 0).directory, 1000);
        assert_eq!(run_of(layout.filled() - 1) + 1, run_of(layout.single_file(0, 0).directory));
        assert_eq!(singles + 1, layout.listed().start);
        assert_eq!(layout.listed().end, layout.scanned());
        assert_eq!(layout.directories(), layout.scanned() + 1);
        let hot: HashSet<FileId> = (0..10_000).map(|random| layout.hot_file(random, 50)).collect();
        assert!((40..=50).contains(&hot.len()), "{}", hot.len());
        let [first, second] = layout.some_file(3).ses();
        assert!(first != second && first <= SES && second <= SES && first > 0 && second > 0);
    }
}
