//! Table of the engine's metrics.

exacat_store::metrics! {
    DIRECTORIES Gauge Count "exacat_store_directories" [] "directories" "Directories, the root not counted";
    TRASH_ITEMS Gauge Count "exacat_store_trash_items" [] "trash_items" "Items in the trash";
    RESERVATIONS Gauge Count "exacat_store_reservations" [] "reservations" "Upload reservations";
    RECORDS Gauge Count "exacat_store_records" [] "records" "Accounts, storage elements, tokens and other records";
    MEMTABLE_ROWS Gauge Count "exacat_store_memtable_rows" [] "rows_in_memory" "Rows in the memtable that is not frozen yet";
    MEMTABLES_FROZEN Gauge Count "exacat_store_memtables_frozen" [] "memtables_being_written" "Frozen memtables that are not sorted runs yet";
    RUNS Gauge Count "exacat_store_runs" [] "runs" "Sorted runs";
    RUN_ROWS Gauge Count "exacat_store_run_rows" [] "rows_in_runs" "Rows in sorted runs";
    MEMORY Gauge Bytes "exacat_store_memory_bytes" ["part"] "memory_{}_bytes" "Memory of the store, by part";
    CACHE_LIMIT Gauge Bytes "exacat_store_cache_limit_bytes" [] "memory_cache_bytes_max" "Bound of the page cache";
    MEMORY_SUM Gauge Bytes "exacat_store_memory_sum_bytes" [] "memory_bytes" "Memory of the store, without that for remembered requests";
    LOG_SEGMENTS Gauge Count "exacat_store_log_segments" [] "log_files" "Segments of the log";
    LOG_SIZE Gauge Bytes "exacat_store_log_size_bytes" ["form"] "log_{}_bytes" "Size of the log on disk, by form of its segments";
    HISTORY_OLDEST Gauge Count "exacat_store_history_oldest_revision" [] "history_oldest_revision" "Oldest change in the history";
    TIER_RUNS Gauge Count "exacat_store_tier_runs" ["tier"] "tier_{}_runs" "Sorted runs, by tier";
    TIER_ROWS Gauge Count "exacat_store_tier_rows" ["tier"] "tier_{}_rows" "Rows in sorted runs, by tier";
    TIER_BYTES Gauge Bytes "exacat_store_tier_bytes" ["tier"] "tier_{}_bytes" "Size of sorted runs on disk, by tier";
    TIER_MERGING Gauge Count "exacat_store_tier_merging_runs" ["tier"] "tier_{}_merging" "Sorted runs that a compaction in progress merges into one, by tier";
    RUNS_BYTES Gauge Bytes "exacat_store_runs_bytes" [] "runs_bytes" "Size of all sorted runs on disk";
    DEBT Gauge Count "exacat_store_compaction_debt_runs" [] "compaction_debt_runs" "Sorted runs beyond those of a compactor that keeps up";
    DISK_FREE Gauge Bytes "exacat_store_disk_free_bytes" [] "disk_free_bytes" "Free bytes of the data directory's disk";
    QUEUE Gauge Count "exacat_store_queue_requests" [] "queue_requests" "Requests that wait for the writer";
    REMEMBERED Gauge Count "exacat_store_requests_remembered" [] "requests_remembered" "Requests whose outcomes memory keeps for repetitions";
    REQUESTS Counter Count "exacat_store_requests" [] "requests_total" "Requests of changes that the writer took up";
    CHANGES Counter Count "exacat_store_changes" [] "changes_total" "Committed changes";
    LOG_WRITTEN Counter Bytes "exacat_store_log_written_bytes" [] "log_written_bytes" "Bytes of records written to the log";
    LOADED Counter Count "exacat_store_files_loaded" [] "loaded_total" "Files of bulk loads";
    WORK_DONE Counter Count "exacat_store_background" ["work"] "{}_total" "Background work that was done: memtables flushed, compactions of sorted runs, log segments archived";
    WORK_ROWS Counter Count "exacat_store_background_rows" ["work"] "{}_rows_total" "Rows that background work wrote";
    WORK_BYTES Counter Bytes "exacat_store_background_written_bytes" ["work"] "{}_bytes_total" "Bytes that background work wrote; with the bytes of the log this is the write amplification";
    WORK_TIME Counter Millis "exacat_store_background_seconds" ["work"] "{}_ms_total" "Time of background work that was done";
    WORK_RUNNING Gauge Count "exacat_store_background_running" ["work"] "{}_running" "Background work in progress";
    STALLS Counter Count "exacat_store_backpressure_waits" ["cause"] "backpressure_{}_waits_total" "Waits of the writer for compaction (cause debt), or for room for a memtable (cause memtables)";
    STALL_TIME Counter Micros "exacat_store_backpressure_seconds" ["cause"] "backpressure_{}_us_total" "Time of these waits of the writer";
    CACHE_HITS Counter Count "exacat_store_cache_hits" ["cache"] "cache_{}_hits_total" "Pages of rows, and blocks of the GUID index, found in the page cache";
    CACHE_MISSES Counter Count "exacat_store_cache_misses" ["cache"] "cache_{}_misses_total" "Pages of rows, and blocks of the GUID index, read from the disk";
    SYNC Histogram Micros "exacat_store_log_sync_seconds" [] "sync_us" "Time to write a commit group to the log and sync it";
    GROUP Histogram Count "exacat_store_group_requests" [] "group_requests" "Requests of changes in a commit group";
}
