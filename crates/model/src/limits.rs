//! Limits of the catalogue: name, value, and reason for each value.
//!
//! Every limit is defined here and nowhere else. [`Error::limit`](crate::error::Error::limit) names
//! an exceeded limit; the refused request changes nothing.

/// Bytes of one path component, as every file system and grid client accepts.
pub const NAME_BYTES_MAX: usize = 255;
/// Bytes of a whole LFN, as POSIX `PATH_MAX`.
pub const LFN_BYTES_MAX: usize = 4096;
/// Components of an LFN. Bounds the path to the root, which every change updates.
pub const DEPTH_MAX: usize = 512;
/// Bytes of an explicit PFN.
pub const PFN_BYTES_MAX: usize = 4096;
/// Bytes of the name of an archive member.
pub const MEMBER_NAME_BYTES_MAX: usize = 1024;
/// Bytes of one file: 1 EiB. Keeps every sum of sizes exact.
pub const FILE_BYTES_MAX: u64 = 1 << 60;
/// Replicas of one file. Real files have up to 13.
pub const REPLICAS_PER_FILE_MAX: usize = 64;
/// Checksums of one file, each of another algorithm.
pub const CHECKSUMS_PER_FILE_MAX: usize = 5;
/// Tags set on one entry; inherited tags do not count.
pub const TAGS_PER_ENTRY_MAX: usize = 128;
/// Bytes of a tag's key.
pub const TAG_KEY_BYTES_MAX: usize = 64;
/// Bytes of a tag's text value.
pub const TAG_TEXT_BYTES_MAX: usize = 8192;
/// Nesting of a tag expression.
pub const TAG_EXPRESSION_DEPTH_MAX: usize = 16;
/// Terms of a tag expression.
pub const TAG_EXPRESSION_TERMS_MAX: usize = 256;
/// Bytes of a storage element's name.
pub const SE_NAME_BYTES_MAX: usize = 128;
/// Bytes of a storage element's PFN prefix.
pub const SE_PREFIX_BYTES_MAX: usize = 1024;
/// Quality-of-service labels of one storage element.
pub const QOS_PER_SE_MAX: usize = 16;
/// Site distances kept with one storage element.
pub const DISTANCES_PER_SE_MAX: usize = 4096;
/// Bytes of a user, group, site or quality-of-service name.
pub const ACCOUNT_NAME_BYTES_MAX: usize = 64;
/// Groups of one user.
pub const GROUPS_PER_USER_MAX: usize = 256;
/// Accounts one user may act as.
pub const BECOMES_PER_USER_MAX: usize = 256;
/// Outside names of one user.
pub const SUBJECTS_PER_USER_MAX: usize = 64;
/// Bytes of an outside name: certificate subjects of the grid have up to a few hundred.
pub const SUBJECT_BYTES_MAX: usize = 1024;
/// Tokens of one user that have not expired.
pub const TOKENS_PER_USER_MAX: usize = 1000;
/// Bytes of a token's note.
pub const TOKEN_NOTE_BYTES_MAX: usize = 1024;
/// Timelines of one catalogue that are remembered; older ones are unknown.
pub const TIMELINES_MAX: usize = 256;
/// Bytes of a snapshot's name.
pub const SNAPSHOT_NAME_BYTES_MAX: usize = 64;
/// Bytes of a feed's name, which is the name of its file.
pub const FEED_NAME_BYTES_MAX: usize = 64;
/// Bytes of the path of a directory on the server's machine, as for a backup.
pub const DIRECTORY_PATH_BYTES_MAX: usize = 4096;
/// Mutations in one request to the store.
pub const BATCH_MUTATIONS_MAX: usize = 10_000;
/// Encoded bytes of one request to the store.
pub const BATCH_BYTES_MAX: usize = 8 << 20;
/// Edits in one update, and so members added to a collection at once.
pub const EDITS_PER_UPDATE_MAX: usize = 10_000;
/// Paths, GUIDs or items in one read.
pub const READ_BATCH_MAX: usize = 10_000;
/// Items in one page of any listing.
pub const PAGE_ITEMS_MAX: usize = 10_000;
/// Memory in bytes of the items in one page of any listing: the item that reaches it is its last.
/// Half a frame, so that with the largest item a page still fits into one. Entries without tags
/// reach [`PAGE_ITEMS_MAX`] before.
pub const PAGE_MEMORY_MAX: usize = 8 << 20;
/// Memory in bytes of the entries that one read by paths, GUIDs or places finds. A read that finds
/// more is refused. Twice a frame: an entry takes more bytes in memory than in a frame.
pub const READ_MEMORY_MAX: usize = 32 << 20;
/// Storage elements of one upload reservation.
pub const REPLICAS_PER_RESERVATION_MAX: usize = 16;
/// Unfinished uploads of one user.
pub const RESERVATIONS_PER_USER_MAX: usize = 100_000;
/// Applied requests that a store remembers: the requests of 11 s at 90 000 per second.
pub const OPERATIONS_REMEMBERED: usize = 1 << 20;
/// Maximum age of an operation id. Up to it, a store knows whether the request was applied; an
/// older id is refused. Clients retry for a minute.
pub const OPERATION_AGE_MAX_MS: u64 = 15 * 60_000;
/// Maximum time that an operation id may be ahead of the server's clock. Clients add the difference
/// of the clocks, which the handshake tells. Less than the time that [`OPERATIONS_REMEMBERED`]
/// spans at full rate, so a new id is always newer than those that only the log has.
pub const OPERATION_AHEAD_MAX_MS: u64 = 10_000;
/// Bytes of one frame of the native protocol, in both directions.
pub const FRAME_BYTES_MAX: usize = 16 << 20;
/// Parts of the time for which one request asks where it went: a day in parts of six minutes.
pub const ACTIVITY_PARTS_MAX: u32 = 240;
/// Bytes of the name of a group of elements.
pub const HISTORY_GROUP_NAME_BYTES_MAX: usize = 64;
/// Memory in bytes for the lists of one request, without the content of their items. Ten times the
/// need of the longest request that is accepted.
pub const REQUEST_MEMORY_MAX: usize = 64 << 20;
/// Bytes of a glob or regular expression.
pub const PATTERN_BYTES_MAX: usize = 1024;
/// Links followed while one path is resolved.
pub const LINKS_FOLLOWED_MAX: usize = 16;
/// Bytes of one line of line protocol, without its newline.
pub const HISTORY_LINE_BYTES_MAX: usize = 1 << 20;
/// Bytes of the key of an element, and of a key with the name of a field and 4 bytes, as InfluxDB.
pub const HISTORY_KEY_BYTES_MAX: usize = 65_535;
/// Tags in the key of an element.
pub const HISTORY_TAGS_MAX: usize = 256;
/// Fields of one line.
pub const HISTORY_FIELDS_MAX: usize = 4096;
/// Bytes of a text value, before escapes are resolved. InfluxDB documents this limit.
pub const HISTORY_TEXT_BYTES_MAX: usize = 64 << 10;
/// Bytes of the text of one query in InfluxQL, with all its statements.
pub const INFLUX_QUERY_BYTES_MAX: usize = 64 << 10;
/// Bytes that parameters may add to a query in InfluxQL.
pub const INFLUX_PARAMETERS_BYTES_MAX: usize = 1 << 20;
/// Statements of one query in InfluxQL.
pub const INFLUX_STATEMENTS_MAX: usize = 64;
/// Nesting of the parentheses in a condition of InfluxQL.
pub const INFLUX_NESTING_MAX: usize = 32;
/// Regular expressions of one query in InfluxQL.
pub const INFLUX_PATTERNS_MAX: usize = 64;
/// Memory in bytes of a short regular expression of InfluxQL, compiled.
pub const INFLUX_PATTERN_MEMORY_MAX: usize = 1 << 20;
/// Memory in bytes that each byte of a regular expression adds to [`INFLUX_PATTERN_MEMORY_MAX`]. Dashboards
/// send lists of hundreds of names, which take 80 bytes for each of theirs.
pub const INFLUX_PATTERN_MEMORY_PER_BYTE: usize = 256;
