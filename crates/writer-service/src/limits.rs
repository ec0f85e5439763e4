//! Limits of the writer service on a machine.

use std::time::Duration;

/// Threads that begin and end parts, and remove them.
pub const NAME_THREADS: usize = 16;
/// Bytes of frames that wait to be sent on one connection. A peer that lets more pile up is cut off.
pub const OUTGOING_BYTES_MAX: usize = 4 << 20;
/// Longest time for a peer to take bytes.
pub const SEND_TIME_MAX: Duration = Duration::from_secs(20);
/// Longest time for a TLS handshake.
pub const TLS_TIME_MAX: Duration = Duration::from_secs(10);
/// Bytes of one read that is not into the bytes of a chunk. Small, because they are copied.
pub const READ_BYTES: usize = 16 << 10;
/// Bytes of one read into the bytes of a chunk. They fit into the cache of a processor, where they are
/// summed.
pub const PIECE_BYTES: usize = 256 << 10;
/// Frames of other services that wait for the service. Their links then read no more.
pub const RECEIVED_FRAMES_MAX: usize = 256;
/// Producers whose credential is remembered.
pub const SHOWN_MAX: usize = 16 << 10;
/// Certificates of one producer: its own, and those between it and an authority.
pub const SHOWN_CERTIFICATES_MAX: usize = 10;
/// Commits on their way to the catalogue.
pub const COMMITS_MAX: usize = 64;
/// Bookings on their way to the catalogue.
pub const BOOKINGS_MAX: usize = 64;
/// Producers whose connections to the catalogue are kept.
pub const CALLERS_MAX: usize = 256;
/// Time for which the account and the roles of a caller are not asked for again.
pub const CALLER_KEPT: Duration = Duration::from_secs(30);
/// Time before a subject that no account has is looked for again.
pub const SUBJECTS_AGAIN: Duration = Duration::from_secs(1);
/// Time between two looks at the clock of the service.
pub const TICK: Duration = Duration::from_millis(5);
/// Time between two looks at the free space of volumes.
pub const FREE_SPACE_EVERY: Duration = Duration::from_secs(1);
/// Time between two looks at the shared directory, for services that are gone or back.
pub const TAKEOVER_LOOK_EVERY: Duration = Duration::from_secs(1);
/// Blocks of a service that is run for another machine. It takes no files, and needs few.
pub const TAKEOVER_BLOCKS: usize = 8;
/// Names in a shared directory that are looked at.
pub const SHARED_VOLUMES_MAX: usize = 1024;
/// Longest wait of a service that is back for its volumes.
pub const RETURN_TIME_MAX: Duration = Duration::from_secs(60);
/// Time between two attempts of such a service to open them.
pub const RETURN_LOOK_EVERY: Duration = Duration::from_millis(250);
/// Connections of HTTP.
pub const HTTP_CONNECTIONS_MAX: usize = 256;
/// Connections of HTTP from one address.
pub const HTTP_CONNECTIONS_PER_ADDRESS_MAX: usize = 64;
/// Bytes of the body of a request of HTTP.
pub const HTTP_BODY_BYTES_MAX: usize = 64 << 10;
/// Time for which a verdict of the catalogue about a caller of HTTP counts.
pub const RIGHTS_TIME: Duration = Duration::from_secs(5);
/// Verdicts of the catalogue that are kept.
pub const RIGHTS_MAX: usize = 1024;
/// Files in one page of the list of files.
pub const FILES_PAGE_MAX: usize = 1000;
/// Time after which a chunk that is timed and was not acknowledged gives way to another.
pub const SAMPLE_TIME_MAX: Duration = Duration::from_secs(60);
/// Longest time between two pieces of content from another service.
pub const REMOTE_STALL_MAX: Duration = Duration::from_secs(30);
/// Bytes of content that are read and sent at a time. An answer has about three such pieces in memory.
pub const PIECE_BYTES_MAX: u64 = 1 << 20;
/// Answers with the content of files at once.
pub const CONTENT_ANSWERS_MAX: usize = 16;
/// Answers with parts to other services at once. They have a bound of their own, so that two services that
/// read from each other cannot wait for each other.
pub const PART_ANSWERS_MAX: usize = 32;
/// Searches for the service that has a file at once. Each asks all other services.
pub const CONTENT_SEARCHES_MAX: usize = 8;
/// Services that one such search asks at once.
pub const SEARCH_ASKS_MAX: usize = 16;
/// Longest time for another service to begin an answer; also that of a search.
pub const REMOTE_TIME_MAX: Duration = Duration::from_secs(10);
/// Certified files that a look for copies takes; the others wait for the next one.
pub const STAGE_CANDIDATES_MAX: usize = 1024;
/// Files that are copied at once, unless the settings say otherwise.
pub const STAGE_FILES: usize = 4;
/// Copies that wait or go on. A further order is refused: its operator comes again.
pub const STAGE_ORDERS_MAX: usize = 64;
/// Longest wait of an order for its copy. The copy goes on, and the operator comes again.
pub const STAGE_ORDER_WAIT: Duration = Duration::from_secs(2);
/// Time between two looks for files to be copied.
pub const STAGE_LOOK_EVERY: Duration = Duration::from_secs(1);
/// Time before the second attempt to copy a file; it doubles with each further one.
pub const STAGE_RETRY_MIN: Duration = Duration::from_secs(1);
/// Longest time between two attempts to copy a file.
pub const STAGE_RETRY_MAX: Duration = Duration::from_secs(300);
/// Longest time in which a program that copies takes or gives no byte.
pub const CARRIER_STALL_MAX: Duration = Duration::from_secs(300);
/// Bytes that are kept of the output of a program that copies.
pub const CARRIER_SAID_BYTES_MAX: usize = 64 << 10;

// Discovery.

/// Time between two announcements.
pub const ANNOUNCE_EVERY: Duration = Duration::from_secs(1);
/// Time after which a service that goes on announcing itself is passed on again.
pub const FOUND_AGAIN_AFTER: Duration = Duration::from_secs(10);
/// Announcements a second that count from one sender; as many may come at once.
pub const ANNOUNCEMENTS_PER_SENDER: u32 = 16;
/// Datagrams that are read before the reader rests. The kernel drops further ones, so that a flood costs a
/// bounded share of one processor.
pub const DATAGRAMS_PER_TURN: u32 = 1000;
/// Rest of the reader after so many datagrams.
pub const DATAGRAMS_REST: Duration = Duration::from_millis(100);
/// Bytes of datagrams that the kernel keeps.
pub const DATAGRAM_BUFFER_BYTES: usize = 256 << 10;
/// Time without any announcement, not even its own, after which a service joins the group again.
pub const REJOIN_AFTER: Duration = Duration::from_secs(10);
/// Seeds of a service.
pub const SEEDS_MAX: usize = 64;
/// Addresses of one seed.
pub const SEED_ADDRESSES_MAX: usize = 16;
/// First pause before a seed is resolved again. It doubles each time.
pub const SEED_PAUSE_MIN: Duration = Duration::from_millis(250);
/// Longest pause before a seed is resolved again.
pub const SEED_PAUSE_MAX: Duration = Duration::from_secs(15);
/// Longest wait for the resolution of a name.
pub const RESOLUTION_MAX: Duration = Duration::from_secs(5);

// Links between services.

/// Frames in the queue of a link. A further one takes the place of the oldest.
pub const LINK_FRAMES_MAX: usize = 1024;
/// Bytes in the queue of a link.
pub const LINK_BYTES_MAX: usize = 4 << 20;
/// Addresses of a service that only announcements name. A further one takes the place of the oldest.
pub const ANNOUNCED_ADDRESSES_MAX: usize = 2;
/// Addresses that are asked for their service at the same time.
pub const PROBES_MAX: usize = 16;
/// Longest wait for a connection and its greeting.
pub const GREETING_MAX: Duration = Duration::from_secs(5);
/// Silence after which a link ends; also the longest wait for a peer that takes no bytes.
pub const LINK_SILENCE_MAX: Duration = Duration::from_secs(5);
/// First pause before a link is made again. It doubles each time.
pub const LINK_PAUSE_MIN: Duration = Duration::from_millis(100);
/// Longest pause before a link is made again.
pub const LINK_PAUSE_MAX: Duration = Duration::from_secs(5);
/// Bytes that a link writes at once.
pub const LINK_WRITE_BYTES: usize = 256 << 10;
/// Least time between two pings, whatever the peer asks for.
pub const PING_EVERY_MIN: Duration = Duration::from_millis(100);
/// Addresses of one name that a link tries.
pub const NAME_ADDRESSES_MAX: usize = 4;
/// Time for which an address is known to be the service's own.
pub const OWN_ADDRESS_LASTS: Duration = Duration::from_secs(60);
/// Longest wait for the ends of all tasks at a stop.
pub const LINKS_STOP_MAX: Duration = Duration::from_secs(1);
