//! Limits of traces, runs and reports: name, value, and reason for each value.

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
/// Bytes of the name of a run, which is the name of its directory too.
pub const RUN_NAME_BYTES_MAX: usize = 64;
/// Least and greatest factor of the time of a run.
pub const SPEED_MIN: f64 = 1e-3;
/// See [`SPEED_MIN`].
pub const SPEED_MAX: f64 = 1e6;
/// Accesses in flight of all agents of a run.
pub const IN_FLIGHT_MAX: u32 = 1 << 20;
/// Seconds of a lease: a day.
pub const LEASE_SECONDS_MAX: u32 = 86_400;
/// Agents of a run. A test of a site has hundreds.
pub const AGENTS_MAX: usize = 4096;
/// Time for which items are handed out before they are due: agents must not wait for the service.
pub const AHEAD_US: u64 = 5_000_000;
/// Time of the items that one request gets at most ahead of all others, where several agents ask: a tenth of
/// a second of work goes to each in turn.
pub const SLICE_US: u64 = 100_000;
/// Least items that an agent has beside those in flight, if their number is bounded: those that it begins
/// while a request to the service is under way.
pub const AHEAD_ITEMS_MIN: u32 = 32;
/// Items that it has beside those in flight, as many as are in flight, before it has shown a pace.
pub const AHEAD_SHARE_MAX: u32 = 256;
/// Time of its pace: it has as many items beside those in flight as it ends in this time. A pause between
/// two requests and two syncs of the journal fit in.
pub const PACE_US: u64 = 250_000;
/// Items that it has beside those in flight, however fast it is: 80 000 accesses a second.
pub const AHEAD_ITEMS_MAX: u32 = 20_000;
/// Time after its last request for which an agent counts.
pub const AGENT_ACTIVE_US: u64 = 10_000_000;
/// Items that wait for agents with earlier accesses to their files. They take about 40 bytes each.
pub const WAITING_ITEMS_MAX: usize = 200_000;
/// Items that one request looks at, those that then wait for other agents too.
pub const LOOKED_AT_MAX: usize = 20_000;
/// Items of one request of an agent.
pub const ITEMS_MAX: u32 = 10_000;
/// Results of one request of an agent.
pub const RESULTS_MAX: usize = 10_000;
/// Least and most milliseconds after which an agent asks again.
pub const AGAIN_MS_LEAST: u64 = 5;
/// See [`AGAIN_MS_LEAST`].
pub const AGAIN_MS_MOST: u64 = 1000;
/// Points of a series over time of a report: two pixels of a chart each. A longer run has wider ones.
pub const SERIES_POINTS_MAX: usize = 512;
/// Width of a point of a series, in microseconds, as long as the run is short: 2 min 8 s.
pub const SERIES_WIDTH_US: u64 = 250_000;
/// Longest duration or lateness that a report tells apart: a day. Longer ones count as this, so that a
/// wrong one does not stretch the series of a run.
pub const DURATION_US_MAX: u64 = 86_400_000_000;
/// Names of one kind (sites, datasets, agents) with figures of their own in a tally, as many as a trace
/// has sites. They take about 1 KiB each.
pub const NAMES_MAX: usize = 1 << 16;
/// Caches of a run with figures of their own: each takes up to 1 MiB, for hits told apart by first bytes.
pub const CACHES_MAX: usize = 64;
/// Drivers of a run with figures of their own: there are three.
pub const DRIVERS_MAX: usize = 16;
/// First error number that is counted together with all higher ones. XRootD has 3000 to 3041, HTTP up to
/// 599, exit codes up to 255.
pub const ERROR_NUMBERS_MAX: u32 = 4096;
/// Rows of a table of names in a report. The rest is one row.
pub const REPORT_ROWS_MAX: usize = 1000;
/// Error numbers that a report names for an outcome.
pub const REPORT_NUMBERS_MAX: usize = 20;
/// Seconds that a stop condition looks back: an hour.
pub const WINDOW_SECONDS_MAX: u64 = 3600;
/// Stop conditions or thresholds of a run.
pub const CONDITIONS_MAX: usize = 16;
/// Bytes of the text of a condition.
pub const CONDITION_BYTES_MAX: usize = 64;

// Figures of caches.

/// Servers whose datagrams are taken. A site has tens of caches.
pub const SERVERS_MAX: usize = 1024;
/// Streams of datagrams that are told apart: each server has up to eight.
pub const STREAMS_MAX: usize = 8 * SERVERS_MAX;
/// Numbers of datagrams of a stream that are remembered, to tell late ones from doubled ones.
pub const SEQUENCE_WINDOW: u32 = 64;
/// Open files of f-streams that are remembered: further ones take the place of the oldest.
pub const SESSIONS_OPEN_MAX: usize = 1 << 18;
/// Clients of f-streams that are remembered: further ones take the place of the oldest.
pub const CLIENTS_MAX: usize = 1 << 17;
/// Characters that are kept of the name of a server or client.
pub const SENDER_NAME_MAX: usize = 255;
/// Seconds between the starts that the summary and the other streams of a server tell for one start.
pub const START_DIFFERENCE_MAX: u64 = 60;
/// Files of a cache whose blocks are remembered. Each takes about 100 bytes and its name.
pub const CACHED_FILES_MAX: usize = 1 << 20;
