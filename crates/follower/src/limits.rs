//! Limits of followers: name, value, and reason for each value.

use std::time::Duration;

/// Longest time that a source lets a follower wait for changes. The follower knows after it that there
/// were none.
pub const WAIT: Duration = Duration::from_millis(500);
/// Longest wait that a source grants, whatever a follower asks for.
pub const WAIT_MAX: Duration = Duration::from_secs(10);
/// Bytes of a piece of the log, about. Both sides hold one, and a follower a second one.
pub const PIECE_BYTES: usize = 4 << 20;
/// Most bytes of a piece: one record can have 64 MiB, and others come before it.
pub const PIECE_BYTES_MAX: usize = 80 << 20;
/// Changes that a filtered follower gets at once; a page of rows has as many, or fewer for their bytes.
pub const CHANGES_MAX: usize = 10_000;
/// Directories that a filtered follower asks for at once, so that many small ones take few requests.
pub const DIRECTORIES_MAX: usize = 256;
/// Most bytes of rows or changes in an answer: a page has 8 MiB in memory and one more item, and its
/// canonical form is shorter.
pub const ROWS_BYTES_MAX: usize = 32 << 20;
/// Time between two pages that a filtered follower compares with its source: 10 000 rows a second at most,
/// which take each side about a hundredth of a core.
pub const COMPARED_PAGE_EVERY: Duration = Duration::from_secs(1);
/// Time between the begins of two comparisons of a small directory. A large one is compared all the time.
pub const COMPARED_EVERY: Duration = Duration::from_secs(3600);
/// Answers of the source that must show a difference: the second one shows that the row does not change, and
/// the third one that the follower was not ahead.
pub const COMPARED_TIMES: usize = 3;
/// Differences from the source that are named in the log.
pub const DIFFERENCES_SHOWN_MAX: usize = 5;
/// Time after which a filtered follower notes its position, if no change in its directory did.
pub const NOTE_AFTER: Duration = Duration::from_secs(60);
/// Bytes of a file that a source reads, and a follower writes, at once.
pub const FILE_PIECE_BYTES: usize = 1 << 20;
/// Longest time without a byte of an answer.
pub const STALL_TIME: Duration = Duration::from_secs(30);
/// Longest time for an answer to begin: fixing files copies up to one segment.
pub const ANSWER_TIME: Duration = Duration::from_secs(30);
/// Shortest and longest pause before a source that failed is asked again.
pub const PAUSE: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(5));
/// Followers that a source remembers; the one not seen for longest is forgotten.
pub const FOLLOWERS_MAX: usize = 64;
/// Time after which a follower that does not ask any more counts as away.
pub const AWAY_AFTER: Duration = Duration::from_secs(5);
/// Time after which a source forgets a follower.
pub const FORGOTTEN_AFTER: Duration = Duration::from_secs(24 * 3600);
/// Copies that a source holds for followers at once: each keeps files from being removed.
pub const COPIES_MAX: usize = 8;
/// Time without a request after which a source lets the files of a copy go.
pub const COPY_IDLE: Duration = Duration::from_secs(600);
