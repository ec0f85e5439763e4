//! Sums of the states of cached files: a second view of a cache, from its own disk.

use exacat_wire::xrdmon::cinfo::{Cinfo, CinfoAccess};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// Sums over the files of a cache.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(default)]
pub struct CinfoSums {
    /// Files.
    pub files: u64,
    /// Files of which all blocks are in the cache.
    pub files_complete: u64,
    /// Bytes of the files.
    pub bytes_of_files: u64,
    /// Blocks of the files.
    pub blocks: u64,
    /// Blocks in the cache.
    pub blocks_done: u64,
    /// Bytes in the cache.
    pub bytes_done: u64,
    /// Accesses of all time.
    pub accesses: u64,
    /// Bytes that clients got from the cache.
    pub bytes_hit: u64,
    /// Bytes that clients got, and the cache did not have.
    pub bytes_miss: u64,
    /// Bytes that went by the cache.
    pub bytes_bypass: u64,
    /// First time at which the cache saw one of the files, in seconds since 1970.
    pub first_created: Option<u64>,
    /// Last end of an access, in seconds since 1970.
    pub last_detached: Option<u64>,
    /// States that are damaged, or of another version.
    pub damaged: u64,
    /// Some of these: the file and the fault.
    pub damaged_files: Vec<String>,
    /// States that could not be read, and directories; those that a purge removes meanwhile are among them.
    pub unread: u64,
    /// True if there is more than is read at once.
    pub is_incomplete: bool,
}

impl CinfoSums {
    /// Adds the state of a file.
    pub fn add(&mut self, file: &Cinfo) {
        let sum = |of: fn(&CinfoAccess) -> u64| file.records.iter().map(of).fold(0_u64, u64::saturating_add);
        let sums = [
            (&mut self.files, 1),
            (&mut self.files_complete, u64::from(file.is_complete())),
            (&mut self.bytes_of_files, file.file_bytes),
            (&mut self.blocks, file.blocks()),
            (&mut self.blocks_done, file.blocks_done()),
            (&mut self.bytes_done, file.bytes_done()),
            (&mut self.accesses, file.accesses),
            (&mut self.bytes_hit, sum(|access| access.bytes_hit)),
            (&mut self.bytes_miss, sum(|access| access.bytes_miss)),
            (&mut self.bytes_bypass, sum(|access| access.bytes_bypass)),
        ];
        for (sum, more) in sums {
            *sum = sum.saturating_add(more);
        }
        self.first_created = [self.first_created, Some(file.created)].into_iter().flatten().min();
        let last = file.records.iter().filter_map(|access| access.detached).max();
        self.last_detached = self.last_detached.max(last);
    }
}
