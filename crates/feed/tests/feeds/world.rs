//! A store with feeds, and short helpers.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use exacat_feed::limits::Pace;
use exacat_feed::{Feeds, FeedsSettings};
use exacat_model::{
    AfterRestore, Error, ErrorKind, Feed, FeedAction, FeedName, FeedSpec, FeedStart, FeedState, Guid, Lfn,
    Result, Revision,
};
use exacat_store::Store;
use exacat_testkit::TestClock;
use exacat_testkit::waiting::{eventually_so, soon};
use tokio_rustls::TlsConnector;

/// Feeds of a store, with their directories.
pub(crate) struct World {
    pub store: Arc<dyn Store>,
    pub clock: TestClock,
    pub place: tempfile::TempDir,
    pub feeds: Arc<Feeds>,
}

/// Times so short that a test sees each of them.
pub(crate) fn pace() -> Pace {
    Pace {
        segment_bytes: 16 << 10,
        segment_age: Duration::from_millis(15),
        mark_every: Duration::from_millis(20),
        save_every: Duration::from_millis(10),
        retry_min: Duration::from_millis(5),
        retry_max: Duration::from_millis(20),
    }
}

pub(crate) fn name(text: &str) -> FeedName {
    FeedName::parse(text).unwrap()
}

/// Opens the feeds in a directory.
pub(crate) fn open(store: &Arc<dyn Store>, clock: &TestClock, place: &Path, pace: Pace) -> Arc<Feeds> {
    open_trusting(store, clock, place, (pace, None))
}

/// Opens the feeds in a directory, with what webhooks over TLS are trusted by.
fn open_trusting(
    store: &Arc<dyn Store>,
    clock: &TestClock,
    place: &Path,
    (pace, tls): (Pace, Option<TlsConnector>),
) -> Arc<Feeds> {
    let clock = clock.shared();
    let none = || Error::new(ErrorKind::Unavailable, "no TLS in this test");
    Feeds::open(FeedsSettings {
        directory: place.join("feeds"),
        forbidden: place.join("store"),
        catalogue: Guid([7; 16]),
        store: Arc::clone(store),
        now: Arc::new(move || clock.trusted()),
        tls: Arc::new(move || tls.clone().ok_or_else(none)),
        pace,
    })
    .unwrap()
}

impl World {
    pub(crate) fn new(store: Arc<dyn Store>, clock: &TestClock) -> Self {
        let place = tempfile::tempdir().unwrap();
        let feeds = open(&store, clock, place.path(), pace());
        World { store, clock: clock.clone(), place, feeds }
    }

    /// Makes a world whose webhooks are trusted by this.
    pub(crate) fn trusting(store: Arc<dyn Store>, clock: &TestClock, tls: TlsConnector) -> Self {
        let place = tempfile::tempdir().unwrap();
        let feeds = open_trusting(&store, clock, place.path(), (pace(), Some(tls)));
        World { store, clock: clock.clone(), place, feeds }
    }

    /// Stops the feeds and opens them again.
    pub(crate) async fn reopen(&mut self) {
        soon("the feeds stop", self.feeds.close()).await;
        self.feeds = open(&self.store, &self.clock, self.place.path(), pace());
    }

    /// Returns the directory of a feed's segments.
    pub(crate) fn segments(&self, feed: &str) -> PathBuf {
        self.place.path().join(feed)
    }

    /// Returns the file of a feed.
    pub(crate) fn file(&self, feed: &str) -> PathBuf {
        self.place.path().join("feeds").join(format!("{feed}.feed"))
    }

    /// Returns the description of a feed into a directory of its name.
    pub(crate) fn spec(&self, feed: &str, under: &str, start: FeedStart) -> FeedSpec {
        FeedSpec {
            sink: format!("dir:{}", self.segments(feed).display()),
            under: (under != "/").then(|| Lfn::parse(under).unwrap()),
            kinds: Vec::new(),
            start,
            days: 30,
            bytes: 1 << 40,
            room: 1 << 40,
            copy_when_lost: false,
            after_restore: AfterRestore::Copy,
            allow_private: false,
            secret: None,
        }
    }

    pub(crate) async fn create(&self, feed: &str, spec: FeedSpec) {
        self.feeds.create(name(feed), spec, "admin".to_owned()).await.unwrap();
    }

    pub(crate) async fn control(&self, feed: &str, action: FeedAction) -> Result<()> {
        self.feeds.control(name(feed), action).await
    }

    pub(crate) async fn feed(&self, feed: &str) -> Feed {
        self.feeds.list(Some(&name(feed))).await.unwrap().remove(0)
    }

    /// Waits until a feed has delivered everything, and a mirror of it is exact.
    pub(crate) async fn caught_up(&self, feed: &str) {
        let head = self.store.revision().await.unwrap();
        eventually_so(&format!("feed {feed} catches up"), async || {
            let one = self.feed(feed).await;
            assert_eq!(one.state, FeedState::Running, "{}", one.reason);
            one.revision >= head && !one.copying
        })
        .await;
    }

    pub(crate) async fn in_state(&self, feed: &str, state: FeedState) -> Feed {
        eventually_so(&format!("feed {feed} is {}", state.name()), async || {
            self.feed(feed).await.state == state
        })
        .await;
        self.feed(feed).await
    }

    pub(crate) async fn head(&self) -> Revision {
        self.store.revision().await.unwrap()
    }
}
