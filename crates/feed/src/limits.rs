//! Limits of feeds: name, value, and reason for each value.

use std::time::Duration;

/// Feeds of one server. Each takes a thread, a part of the log's read speed, and a cache of directories.
pub const FEEDS_MAX: usize = 64;
/// Changes read at once: a page of the store.
pub const PAGE_CHANGES: usize = 10_000;
/// Bytes of events after which a batch goes to the sink, at the end of a request.
pub const BATCH_BYTES: usize = 1 << 20;
/// Directories whose places a feed keeps. At about 200 bytes each they take 50 MB.
pub const DIRECTORIES_MAX: usize = 1 << 18;
/// Bytes of the file of a cursor: an LFN and a URL, both escaped, are the longest parts.
pub const CURSOR_BYTES_MAX: u64 = 128 << 10;
/// Restores whose undone changes a feed still has to send; of more it leaves out the first ones.
pub const UNDONE_MAX: usize = 16;
/// Bytes of a sink's address.
pub const SINK_BYTES_MAX: usize = 2048;
/// Bytes of a secret. A shorter one could be guessed, a longer one is another file.
pub const SECRET_BYTES: std::ops::RangeInclusive<usize> = 16..=4096;
/// Events of one request to a webhook.
pub const POST_EVENTS: usize = 1000;
/// Bytes of events in one request to a webhook, apart from a single longer event.
pub const POST_BYTES: usize = 1 << 20;
/// Longest time for the answer of a webhook, or of the brokers of a topic.
pub const ANSWER_TIME: Duration = Duration::from_secs(30);
/// Longest pause that a webhook may ask for with `Retry-After`.
pub const RETRY_AFTER_MAX: Duration = Duration::from_secs(3600);
/// Bytes of the answer of a webhook that are read, to use the connection again.
pub const ANSWER_BYTES_MAX: usize = 64 << 10;
/// Bootstrap hosts in the address of a Kafka topic. A cluster needs a few; each is looked up.
#[cfg(feature = "kafka")]
pub const KAFKA_HOSTS_MAX: usize = 16;
/// Bytes of the name of a topic, as Kafka permits.
#[cfg(feature = "kafka")]
pub const KAFKA_TOPIC_BYTES_MAX: usize = 249;
/// Records of one request to a topic.
#[cfg(feature = "kafka")]
pub const KAFKA_RECORDS: usize = 2000;
/// Bytes of one request to a topic before they are compressed, apart from a single longer event. Brokers
/// take 1 MiB (`message.max.bytes`) unless they are configured otherwise.
#[cfg(feature = "kafka")]
pub const KAFKA_BYTES: usize = 900 << 10;
/// Bytes of an answer of a broker. The longest one lists all topics of the cluster, with about 40 bytes for
/// each partition.
#[cfg(feature = "kafka")]
pub const KAFKA_ANSWER_BYTES_MAX: usize = 16 << 20;
/// Age of the last answer at which the connection to brokers is made anew. Brokers end idle connections
/// after 10 minutes, some services after 4.
#[cfg(feature = "kafka")]
pub const KAFKA_IDLE_MAX: Duration = Duration::from_secs(180);
/// Days of delay at which a feed is lost, unless its owner names another number.
pub const DAYS_DEFAULT: u32 = 30;
/// Bytes of delay at which a feed is lost, unless its owner names another number.
pub const BYTES_DEFAULT: u64 = 1 << 40;
/// Bytes of segments in a directory at which a feed waits, unless its owner names another number.
pub const ROOM_DEFAULT: u64 = 10 << 30;

/// Times and sizes that decide how soon a sink gets its events.
#[derive(Clone, Copy, Debug)]
pub struct Pace {
    /// Bytes of a segment at which it ends. Larger ones gain no speed and are slower to hand on.
    pub segment_bytes: u64,
    /// Age of a segment at which it ends. It bounds the delay of a directory.
    pub segment_age: Duration,
    /// Interval of marks while no event matches.
    pub mark_every: Duration,
    /// Interval at which a cursor is written. A crash repeats at most this much.
    pub save_every: Duration,
    /// First pause after a failure.
    pub retry_min: Duration,
    /// Longest pause after failures in a row.
    pub retry_max: Duration,
}

impl Default for Pace {
    fn default() -> Self {
        Pace {
            segment_bytes: 64 << 20,
            segment_age: Duration::from_secs(5),
            mark_every: Duration::from_secs(5),
            save_every: Duration::from_secs(1),
            retry_min: Duration::from_millis(500),
            retry_max: Duration::from_secs(60),
        }
    }
}
