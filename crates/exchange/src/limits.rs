//! Limits of the importer and exporter: name, value, and reason for each value.

/// Rows of one batch, and so files of one `Register`. Large enough that the round trip costs
/// little; small enough that a batch takes milliseconds and progress is steady.
pub const BATCH_ROWS_MAX: usize = 1000;
/// Bytes of one batch, estimated for the wire. Well below the catalogue's
/// [`BATCH_BYTES_MAX`](exacat_model::limits::BATCH_BYTES_MAX), which limits the resulting request
/// to the store.
pub const BATCH_BYTES_MAX: usize = 2 << 20;
/// Batches in flight to the catalogue.
pub const BATCHES_IN_FLIGHT_MAX: usize = 8;
/// Batches read ahead of those in flight.
pub const BATCHES_READ_AHEAD_MAX: usize = 4;
/// Calls in flight for rows that take a call each (collections, links), within one batch.
pub const CALLS_IN_FLIGHT_MAX: usize = 64;
/// Bytes of one row; real ones are below 16 KiB. A row of an export may be longer if it uses every
/// limit of the catalogue; it is refused with its line.
pub const ROW_BYTES_MAX: usize = 1 << 20;
/// Columns of one row.
pub const COLUMNS_MAX: usize = 1024;
/// Bytes of the first part of a listing, which determines its compression and format.
pub const HEAD_BYTES: usize = 64 << 10;
/// Time that an import stopping on an error waits for the end of the history, to record its
/// progress.
pub const POSITION_WAIT: std::time::Duration = std::time::Duration::from_secs(5);
/// Rows that may be sent between two writes of a state file, and so rows that a resumed import must
/// repeat.
pub const ROWS_PER_STATE: u64 = 50_000;
/// Rejects kept in the report, for users without a reject file.
pub const REJECTS_SHOWN_MAX: usize = 20;
/// Differences kept in the report of a verification.
pub const DIFFERENCES_SHOWN_MAX: usize = 20;
/// Retries of an item after an answer that leaves its outcome open.
pub const RETRIES_MAX: u32 = 3;
/// Milliseconds before the first retry; doubled for each further one.
pub const RETRY_DELAY_MS: u64 = 100;
/// Members of collections held in memory by a verification: 16 bytes each, so 64 MiB at most.
pub const MEMBERS_CACHED_MAX: usize = 4 << 20;
/// Entries of one page of a stream. Larger ones do not fit the caches of a processor.
pub const EXPORT_PAGE_ITEMS: u32 = 512;
/// Changes of one page. Each page is a request of its own, so few are better.
pub const CHANGES_PAGE_ITEMS: u32 = 4096;
/// Pages that a catalogue opened in this process prepares ahead of their use.
pub const LOCAL_PAGES_AHEAD_MAX: usize = 4;
/// Pages of an export that wait to be written.
pub const EXPORT_PAGES_WAITING_MAX: usize = 4;
/// Bytes of a bad row's copy in a reject file; a longer one is cut, with a note.
pub const REJECT_ROW_BYTES_MAX: usize = 64 << 10;
/// Rules of an SE map.
pub const SE_RULES_MAX: usize = 65_535;
/// Nesting of JSON that is flattened into tags.
pub const JSON_DEPTH_MAX: usize = 32;
/// Bytes of a key in JSON that is flattened, with the keys around it.
pub const JSON_KEY_BYTES_MAX: usize = 1024;
/// Changes that one step of a catalogue's copy passes to the store, which logs them together.
pub const CHANGES_OF_A_PIECE: usize = 2000;
/// Symbolic links followed to the target of an output file, as many as Linux follows.
pub const SYMLINKS_MAX: usize = 40;
/// Bytes of an output file's name that its temporary file repeats. With the rest of the temporary
/// name they are below the 255 of a name.
pub const PARTIAL_NAME_BYTES_MAX: usize = 200;
/// Left-out PFNs of one row that its report names, because another one of the same SE is kept.
pub const SECOND_PFNS_SHOWN_MAX: usize = 8;
/// Bytes of records that a comparison with a storage dump sorts in memory. Large enough that a run of
/// sorted records holds millions of lines; small enough for a machine that also serves.
pub const COMPARE_MEMORY: usize = 256 << 20;
/// Smallest value of that memory: some hundreds of the longest records.
pub const COMPARE_MEMORY_MIN: usize = 4 << 20;
/// Largest value of that memory: positions in it have 32 bits.
pub const COMPARE_MEMORY_MAX: usize = 2 << 30;
/// Sorted runs of a comparison, merged in one pass. With the memory above, they hold a terabyte.
pub const COMPARE_RUNS_MAX: usize = 4096;
/// Bytes of one read from a sorted run, so that all runs together take as much memory as one.
pub const COMPARE_RUN_READ_BYTES: usize = 64 << 10;
/// Bytes of records that the reader of the catalogue sends to the sorting thread at once.
pub const COMPARE_BATCH_BYTES: usize = 256 << 10;
/// Batches of records that wait for the sorting thread.
pub const COMPARE_BATCHES_WAITING_MAX: usize = 4;
/// Copies of the catalogue with one path that are compared one by one. More of them share an outcome
/// only in a damaged catalogue.
pub const COMPARE_COPIES_OF_A_PATH_MAX: usize = 64;
/// Copies read at once from a store in the same process. Larger pages are new memory each time.
pub const COMPARE_STORE_PAGE: usize = 512;
/// Copies that one request of an application changes.
pub const COMPARE_APPLY_BATCH: usize = 500;
/// Default limit of copies that an application changes, of one class.
pub const COMPARE_APPLY_COUNT_MAX: u64 = 10_000;
/// Default limit of the fraction of copies that an application changes, in millionths: 1 %.
pub const COMPARE_APPLY_MILLIONTHS_MAX: u64 = 10_000;
/// Keys of changes since the later state that an application of dark data remembers, 8 bytes each.
pub const COMPARE_TOUCHED_MAX: usize = 8 << 20;
/// Bytes of the rows of one class that a comparison sorts in memory; most classes are small.
pub const COMPARE_LISTING_MEMORY: usize = 8 << 20;
/// Milliseconds between two reports of the progress of a comparison.
pub const COMPARE_PROGRESS_MS: u64 = 200;
/// Entries whose changes a difference of two moments folds in memory, about 300 bytes each.
pub const HISTORY_DIFF_ENTRIES_MAX: usize = 1_000_000;
/// Moved entries whose own history such a difference reads for a former path. Others show their former
/// name only if a change told the path of its directory.
pub const HISTORY_DIFF_LOOKUPS_MAX: usize = 1000;
