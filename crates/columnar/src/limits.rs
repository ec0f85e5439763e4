//! Limits of tables: name, value, and reason for each value.

/// Rows that are passed to the library at once. Large enough that its work for a batch costs little.
pub(crate) const BATCH_ROWS: usize = 8192;
/// Bytes of texts at which a batch ends early: offsets of a batch have 31 bits, and a row is far smaller.
pub(crate) const BATCH_BYTES: usize = 8 << 20;
/// Rows of a row group. Each one costs some kilobytes of the metadata, which is in memory until the end:
/// 4000 row groups hold a thousand million rows.
pub(crate) const ROW_GROUP_ROWS: usize = 256 << 10;
/// Bytes at which a row group ends early. Bounds the memory of a writer.
pub(crate) const ROW_GROUP_BYTES: usize = 128 << 20;
/// Rows of a page: a reader of few rows decodes one or two.
pub(crate) const PAGE_ROWS: usize = 16 << 10;
/// Bytes of the distinct values of a column in a row group, beyond which the library stores them one by one.
pub(crate) const DICTIONARY_BYTES: usize = 1 << 20;
/// Bytes of the distinct words of a column, at which a row group ends early. A reader of any row reads them.
pub(crate) const WORDS_BYTES: usize = 8 << 20;
/// Bytes of the texts that statistics of a row group hold.
pub(crate) const STATISTICS_BYTES: usize = 128;
/// Bytes written to a file at once.
pub(crate) const WRITE_BYTES: usize = 1 << 20;
/// Rows that a reader decodes at once: rows may be large.
pub(crate) const READ_ROWS: usize = 1024;
