//! Table of the metrics of a replay service. `docs/reference/replay-metrics.md` is made from it.

exacat_store::metrics! {
    UP Gauge Seconds "exacat_replay_up_seconds" [] "" "Time since the start";
    BUILD Gauge Count "exacat_replay_build_info" ["version"] "" "1, with the version of the program";
    STATE Gauge Count "exacat_replay_run_state" ["run", "state"] "" "1 for the present state of a run: planned, running, paused, done or stopped";
    PLANNED Gauge Count "exacat_replay_accesses_planned" ["run"] "" "Accesses of the plan of a run";
    ENDED Gauge Count "exacat_replay_accesses_ended" ["run"] "" "Accesses of a run that have their result, also from before a restart";
    FAILED Gauge Count "exacat_replay_accesses_failed" ["run"] "" "Those that failed";
    IN_FLIGHT Gauge Count "exacat_replay_accesses_in_flight" ["run"] "" "Accesses that are handed out and have no result yet";
    READ Gauge Bytes "exacat_replay_read_bytes" ["run"] "" "Bytes that clients read";
    ELAPSED Gauge Seconds "exacat_replay_elapsed_seconds" ["run"] "" "Time for which a run was running";
    AGENTS Gauge Count "exacat_replay_agents" ["run"] "" "Agents that asked for accesses";
    EXPIRED Gauge Count "exacat_replay_leases_expired" ["run"] "" "Leases that ended without a result";
    LATE Gauge Count "exacat_replay_results_late" ["run"] "" "Results that came after another attempt had ended the access";
    REFUSED Gauge Count "exacat_replay_results_refused" ["run"] "" "Results that were refused";
    CACHE Gauge Bytes "exacat_replay_cache_bytes" ["run", "cache", "kind"] "" "Bytes that a cache told of, by kind: hit, miss or bypass";
    ORIGIN Gauge Bytes "exacat_replay_origin_bytes" ["run", "origin"] "" "Bytes that an origin sent";
    DATAGRAMS Counter Count "exacat_replay_datagrams" [] "" "Datagrams of caches that came";
    DATAGRAMS_LOST Counter Count "exacat_replay_datagrams_lost" [] "" "Datagrams of caches that are missing, by the gaps in their numbers";
    DATAGRAMS_BAD Counter Count "exacat_replay_datagrams_bad" [] "" "Datagrams and records that could not be read";
    CONNECTIONS Gauge Count "exacat_replay_http_connections" [] "" "Connections of HTTP";
    CONNECTIONS_REFUSED Counter Count "exacat_replay_http_connections_refused" [] "" "Connections that were refused, because there were too many";
    JOURNAL_FAULTS Counter Count "exacat_replay_journal_faults" [] "" "Requests that failed because the journal of their run could not be written";
}
