//! Table of this store's metrics.

exacat_store::metrics! {
    TRASH_ITEMS Gauge Count "exacat_store_trash_items" [] "trash_items" "Items in the trash";
    RESERVATIONS Gauge Count "exacat_store_reservations" [] "reservations" "Upload reservations";
    DELETIONS Gauge Count "exacat_store_deletions" [] "deletions" "Replicas in the deletion queues";
    ROWS_CACHED Gauge Count "exacat_store_cached_rows" [] "rows_cached" "Rows in the row cache";
    ROWS_CACHED_LIMIT Gauge Count "exacat_store_cache_limit_rows" [] "rows_cached_max" "Approximate bound of the row cache";
    CACHE_HITS Counter Count "exacat_store_cache_hits" ["cache"] "cache_{}_hits_total" "Rows found in the row cache, by kind of row";
    CACHE_MISSES Counter Count "exacat_store_cache_misses" ["cache"] "cache_{}_misses_total" "Rows that the row cache did not know, by kind of row";
    NOT_FLUSHED Gauge Count "exacat_store_unflushed_changes" [] "changes_not_flushed" "Changes that may be in the log alone";
    FILTER_KEYS Gauge Count "exacat_store_filter_keys" [] "filter_keys" "Keys in the filter of existing keys";
    FILTER_LIMIT Gauge Count "exacat_store_filter_limit_keys" [] "filter_keys_max" "Keys that the filter has room for";
    FILTER_IN_USE Gauge Count "exacat_store_filter_in_use" [] "filter_in_use" "1 while the filter has every key, and answers";
    SPREAD Gauge Count "exacat_store_directories_spread" [] "directories_spread" "Directories spread over several partitions";
    STATEMENTS_SENT Counter Count "exacat_store_statements" ["kind"] "statements_{}" "Statements sent to the cluster, by kind";
    STATEMENT_TIME Histogram Micros "exacat_store_statement_seconds" ["kind"] "" "Time of a statement, with the driver's retries, by kind";
    STATEMENT_ERRORS Counter Count "exacat_store_statement_errors" ["error"] "statement_errors_{}" "Failed attempts of statements: node timed out, replicas unavailable, overloaded, connection broken, other; and statements without an answer in time (error gave_up)";
    READS_REPEATED Counter Count "exacat_store_reads_repeated" [] "reads_repeated" "Reads that failed and were repeated";
    ROUNDS Counter Count "exacat_store_fetch_rounds" [] "rounds_fetched" "Rounds of fetches: all rows that an answer needs at once";
    APPENDS Counter Count "exacat_store_append_events" ["event"] "appends_{}" "Appends that lost against another server's, had an unknown outcome, waited for a flush, or backed off";
    GROUPS Counter Count "exacat_store_groups" [] "groups" "Commit groups of this server in the log";
    CHANGES Counter Count "exacat_store_changes" [] "changes" "Committed changes of this server";
    GROUP Histogram Count "exacat_store_group_changes" [] "" "Changes in a commit group of this server";
    FLUSHES Counter Count "exacat_store_flushes" [] "flushes" "Flushes of the log to the tables";
    FORWARDED Counter Count "exacat_store_forwarded_requests" ["direction"] "requests_forwarded_{}" "Requests of changes forwarded to another server (out), or from one (in)";
    DIVERGED Counter Count "exacat_store_log_divergences" [] "log_diverged" "Logs that turned out to be another branch of the history";
    FSCK_ROWS Gauge Count "exacat_store_fsck_rows" [] "fsck_rows_read" "Rows that the last check of the catalogue read";
    DRIVER_STATEMENTS Counter Count "exacat_store_driver_statements" [] "statements" "Statements given to the driver";
    RETRIED Counter Count "exacat_store_statements_retried" [] "statements_retried" "Attempts of statements that failed and that the driver retried";
    SPECULATIVE Counter Count "exacat_store_statements_speculative" [] "statements_speculative" "Statements sent to a second node because the first one was slow";
    UNRESPONSIVE Gauge Count "exacat_store_nodes_unresponsive" [] "nodes_unresponsive" "Nodes that got a statement and have answered nothing for a while";
    ANSWERS Histogram Micros "exacat_store_node_answer_seconds" [] "answer_us" "Time of a node's answer to an attempt of a statement";
    ANSWERED Counter Count "exacat_store_answers" ["level"] "answers_{}" "Answers, by level of consistency";
    WITHOUT_HEAD Counter Count "exacat_store_answers_without_head_read" [] "answers_without_head_read" "Answers from the row cache without a read of the log head";
    WEAK_HEAD Counter Count "exacat_store_head_reads_below_quorum" [] "head_reads_below_quorum" "Reads of the log head from fewer replicas than a quorum";
    STALE_LIMIT Gauge Millis "exacat_store_stale_limit_seconds" [] "stale_max_ms" "Age of the log head up to which a bounded-staleness answer needs no read";
    HEAD_AGE Gauge Millis "exacat_store_head_age_seconds" [] "head_age_ms" "Age of the last read of the log head at QUORUM";
    CLOCK_DIFFERENCE Gauge Millis "exacat_store_clock_difference_seconds" [] "clock_difference_ms" "Difference of the machine's clock and that of a node, either way, beyond the time of the answer";
    NODES Gauge Count "exacat_store_nodes" [] "nodes" "Nodes of the cluster";
    NODES_AWAY Gauge Count "exacat_store_nodes_away" [] "nodes_away" "Nodes that this server is not connected to";
    NODE_STATEMENTS Counter Count "exacat_store_node_statements" ["node"] "node_{}_statements" "Attempts of statements, by node; the first 64 nodes";
    NODE_FAILURES Counter Count "exacat_store_node_failures" ["node"] "node_{}_failed" "Attempts that failed, by node";
    NODE_TIME Histogram Micros "exacat_store_node_seconds" ["node"] "node_{}_us" "Time of an answer, by node";
}
