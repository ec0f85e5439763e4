//! Limits of traces: name, value, and reason for each value.

/// Accesses of a trace. A month of a large site has 10 million.
pub const ACCESSES_MAX: usize = 1 << 28;
/// Files of a trace.
pub const FILES_MAX: usize = 1 << 28;
/// Sites of a trace, and datasets: a number of each access, and of each file.
pub const SITES_MAX: usize = u16::MAX as usize;
/// Bytes of the name of a file, as in the catalogue.
pub const NAME_BYTES_MAX: usize = exacat_model::limits::LFN_BYTES_MAX;
/// Bytes of the name of a site or dataset.
pub const LABEL_BYTES_MAX: usize = 255;
/// Bytes of a file: 16 TiB, as the writer service has.
pub const SIZE_MAX: u64 = 16 << 40;
/// Ranges that one access reads. A vector read of XRootD has 1024.
pub const RANGES_MAX: usize = 1024;
/// Bytes of the description of a trace.
pub const DESCRIPTION_BYTES_MAX: usize = 64 << 10;
/// Bytes of one line of a trace.
pub const LINE_BYTES_MAX: usize = 1 << 16;
/// First and last time of an access: the years 1970 and 9999.
pub const TIME_US_MAX: u64 = 253_402_300_799_999_999;
/// Level of compression of a trace: much faster than it is read again.
pub const COMPRESSION_LEVEL: i32 = 3;
/// Files of a generated trace.
pub const GENERATED_FILES_MAX: u64 = 100_000_000;
/// Accesses of a generated trace.
pub const GENERATED_ACCESSES_MAX: u64 = 1_000_000_000;
