//! The disk, as narrow as the engines need it: a test replaces it by one that fails or forgets.
//!
//! Every stored file of the catalogue and of the history is read and written through [`Disk`]. The
//! crate also has what all stored formats share: errors that name a file, checked headers, small
//! texts with a checksum, numbers at fixed places, and random numbers.
#![forbid(unsafe_code)]

mod disk;
mod file_error;
pub mod fixed;
pub mod header;
mod in_memory;
mod random;
mod titled_text;

pub use disk::{
    Disk, DiskFile, RealDisk, exists, list_if_there, lock_exclusively, read_text, read_whole, remove_tree,
    replace_small, write_small,
};
pub use file_error::{cannot_read, cannot_write, corrupt};
pub use in_memory::InMemory;
pub use random::{random_id, random_u64};
pub use titled_text::{TitledLines, hex_of, titled_text};
