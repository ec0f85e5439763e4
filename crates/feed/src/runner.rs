//! Runs a feed: reads the history, makes events, hands them to the sink, and moves the cursor after the
//! sink has them.

use std::sync::Arc;
use std::time::Duration;

use exacat_model::{Change, Error, ErrorKind, FeedState, OperationId, Result, Revision, TimeMs};
use exacat_store::{ChangePage, Store};
use tokio::sync::watch;
use tokio::time::Instant;

use crate::batch::{Batch, Op};
use crate::cursor::Cursor;
use crate::event::EventWriter;
use crate::json::{put_number, put_text};
use crate::limits::{BATCH_BYTES, PAGE_CHANGES};
use crate::maker::{Maker, RowsOf};
use crate::replaced::ReplacedTimeline;
use crate::scope::{Kinds, Scope};
use crate::sink::{Opened, Sink, SinkContext, Trouble};
use crate::state::FeedEntry;
use crate::walk::Walk;

/// Reads the time.
pub type Now = Arc<dyn Fn() -> TimeMs + Send + Sync>;

/// Longest time to tell a sink that its feed is lost: it may be the reason.
const LAST_WORDS: Duration = Duration::from_secs(5);

/// Context of all feeds of a server.
#[derive(Clone)]
pub(crate) struct RunContext {
    pub store: Arc<dyn Store>,
    pub now: Now,
    pub sink: SinkContext,
    pub replaced: Arc<ReplacedTimeline>,
}

/// End of an attempt to follow the history.
#[derive(Debug)]
pub(crate) enum Ended {
    /// The sink or the store has trouble.
    Trouble(Trouble),
    /// Changes that the sink lacks cannot or may not be sent.
    Lost(String),
}

impl From<Trouble> for Ended {
    fn from(trouble: Trouble) -> Self {
        Ended::Trouble(trouble)
    }
}

impl From<Error> for Ended {
    fn from(error: Error) -> Self {
        Ended::Trouble(error.into())
    }
}

/// A page that is read while the one before is sent.
struct Ahead(tokio::task::JoinHandle<Result<ChangePage>>);

impl Drop for Ahead {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// A sink with the events on their way to it.
pub(crate) struct Outlet {
    pub sink: Sink,
    pub batch: Batch,
    /// Events that the sink has taken, and has not acknowledged yet.
    pub waiting: u64,
}

impl Outlet {
    pub(crate) fn new(sink: Sink) -> Self {
        Outlet { sink, batch: Batch::default(), waiting: 0 }
    }
}

/// The position of a feed in the history while it runs.
struct Position {
    /// Last change that was read.
    read: Revision,
    /// Last change whose request was read to its end.
    whole: Revision,
    request: Option<OperationId>,
    /// Up to this revision a mirror may lack entries that change.
    window: Revision,
    /// The sink was told of a position at or after this one.
    told: Revision,
    told_at: Instant,
    /// True after the sink was told that a mirror is exact.
    is_exact_told: bool,
}

/// Runs one feed.
pub(crate) struct Runner {
    pub entry: Arc<FeedEntry>,
    pub context: RunContext,
}

impl Runner {
    pub(crate) fn new(entry: Arc<FeedEntry>, context: RunContext) -> Self {
        Runner { entry, context }
    }

    /// Delivers changes until it is told to stop, or the feed is lost or failed.
    pub(crate) async fn run(self, mut stop: watch::Receiver<bool>) {
        let pace = self.context.sink.pace;
        let mut pause = pace.retry_min;
        loop {
            let before = self.entry.cursor().revision;
            let ended = tokio::select! {
                biased;
                _ = stop.wait_for(|stop| *stop) => break,
                ended = self.attempt() => ended,
            };
            if self.entry.cursor().revision > before {
                pause = pace.retry_min;
            }
            let wait = match ended {
                Ended::Trouble(Trouble::Refused(why)) => {
                    self.entry.end(FeedState::Failed, why);
                    return;
                }
                Ended::Lost(why) => {
                    let telling = tokio::time::timeout(LAST_WORDS, self.tell_lost());
                    tokio::select! {
                        _ = telling => {}
                        _ = stop.wait_for(|stop| *stop) => {}
                    }
                    let mut progress = self.entry.progress.lock();
                    progress.forget_read();
                    if !progress.cursor.spec.copy_when_lost {
                        drop(progress);
                        self.entry.end(FeedState::Lost, why);
                        return;
                    }
                    tracing::warn!(feed = %progress.cursor.name, why, "a feed is lost and starts again with a copy");
                    progress.cursor.must_copy = true;
                    progress.trouble = why;
                    progress.is_unsaved = true;
                    pace.retry_min
                }
                Ended::Trouble(Trouble::Later { why, pause: asked }) => {
                    let wait = asked.unwrap_or(pause);
                    let mut progress = self.entry.progress.lock();
                    if progress.trouble != why {
                        tracing::warn!(feed = %progress.cursor.name, why, "a feed waits for its sink");
                    }
                    progress.failures += 1;
                    progress.trouble = why;
                    progress.forget_read();
                    pause = (pause * 2).min(pace.retry_max);
                    wait
                }
            };
            self.entry.save_changed();
            tokio::select! {
                _ = stop.wait_for(|stop| *stop) => break,
                () = tokio::time::sleep(wait) => {}
            }
        }
        self.entry.save_changed();
    }

    pub(crate) fn now(&self) -> TimeMs {
        (self.context.now)()
    }

    pub(crate) fn maker(&self, cursor: &Cursor) -> Result<Maker> {
        let writer = EventWriter::new(self.context.sink.catalogue, cursor.timeline);
        self.maker_of(cursor, Arc::clone(&self.context.store), writer)
    }

    /// Returns a maker of the feed's events from a store.
    pub(crate) fn maker_of(
        &self,
        cursor: &Cursor,
        store: Arc<dyn Store>,
        writer: EventWriter,
    ) -> Result<Maker> {
        let kinds = Kinds::parse(cursor.spec.kinds.iter().map(String::as_str))?;
        let scope = Scope::new(cursor.spec.under.as_ref());
        Ok(Maker::new(store, writer, scope, kinds))
    }

    /// Tells the sink that the feed is lost, if it listens.
    async fn tell_lost(&self) {
        let cursor = self.entry.cursor();
        let tell = async {
            let oldest = self.context.store.changes(cursor.revision, 1).await?.oldest;
            let (sink, _) = Sink::open(&cursor, &self.context.sink)?;
            let mut outlet = Outlet::new(sink);
            let mut fields = b",\"oldest\":".to_vec();
            put_number(&mut fields, oldest.0);
            let at = (cursor.revision, 0, self.now());
            self.maker(&cursor)?.writer.notice(&mut outlet.batch, Op::Lost, at, &fields);
            outlet.batch.mark_last();
            outlet.sink.put(&outlet.batch, Some(cursor.revision), self.now()).await?;
            outlet.sink.publish()
        };
        if let Err(trouble) = tell.await {
            tracing::debug!(?trouble, "a sink was not told that its feed is lost");
        }
    }

    /// Follows the history until something goes wrong.
    async fn attempt(&self) -> Ended {
        match self.follow().await {
            Ok(never) => match never {},
            Err(ended) => ended,
        }
    }

    async fn follow(&self) -> std::result::Result<std::convert::Infallible, Ended> {
        self.entry.progress.lock().forget_read();
        let store = &self.context.store;
        self.pass_parting().await?;
        self.send_undone().await?;
        let mut cursor = self.entry.cursor();
        if !cursor.must_copy {
            self.check_kept(cursor.revision).await?;
        }
        let (sink, opened) = Sink::open(&cursor, &self.context.sink)?;
        self.opened(opened)?;
        let mut outlet = Outlet::new(sink);
        let mut maker = self.maker(&cursor)?;
        maker.begin().await?;
        if cursor.must_copy {
            self.copy(&mut maker, &mut outlet).await?;
        } else {
            self.entry.progress.lock().acknowledge(opened.revision, 0);
            if opened.revision == Revision(0) && cursor.spec.kinds.is_empty() && maker.scope().is_all() {
                // The root was made with the catalogue, without a change.
                let at = (Revision(0), 0, self.now());
                Walk::begin(&mut maker, &mut outlet.batch, RowsOf::Scope, at).await?;
            }
        }
        cursor = self.entry.cursor();
        let mut position = Position {
            read: cursor.revision,
            whole: cursor.revision,
            request: None,
            window: cursor.window,
            told: cursor.revision,
            told_at: Instant::now(),
            // Without a copy there is nothing to tell.
            is_exact_told: cursor.window == Revision(0),
        };
        let mut ahead: Option<Ahead> = None;
        let mut save_at = Instant::now() + self.context.sink.pace.save_every;
        loop {
            let page = match ahead.take() {
                Some(mut ahead) => (&mut ahead.0).await.map_err(|error| {
                    Error::new(ErrorKind::Unavailable, format!("the history cannot be read: {error}"))
                })??,
                None => store.changes(position.read, PAGE_CHANGES).await?,
            };
            if page.oldest.0 > position.read.0.saturating_add(1) {
                return Err(Ended::Lost(not_kept(page.oldest)));
            }
            let head = store.revision().await?;
            let is_end = page.up_to >= head;
            if page.up_to > position.read {
                if !is_end {
                    let (store, after) = (Arc::clone(store), page.up_to);
                    let read = async move { store.changes(after, PAGE_CHANGES).await };
                    ahead = Some(Ahead(tokio::spawn(read)));
                }
                self.send_page(&mut maker, &mut outlet, &mut position, &page).await?;
                if is_end {
                    self.send_rest(&mut outlet, &mut position).await?;
                }
            }
            self.mark(&mut maker, &mut outlet, &mut position).await?;
            if outlet.sink.due().is_some_and(|due| due <= Instant::now()) {
                let has = outlet.sink.publish()?;
                self.acknowledged(&mut outlet, has);
            }
            if Instant::now() >= save_at {
                save_at = Instant::now() + self.context.sink.pace.save_every;
                self.entry.save_changed();
                self.check_limits(head)?;
            }
            if is_end {
                self.entry.progress.lock().caught_up(head);
                self.rest(&outlet, &position, save_at).await?;
            }
        }
    }

    /// Takes over what the sink knows and the cursor does not.
    fn opened(&self, opened: Opened) -> Result<()> {
        let mut progress = self.entry.progress.lock();
        let cursor = &mut progress.cursor;
        cursor.window = cursor.window.max(opened.window);
        if cursor.generation == opened.generation {
            return Ok(());
        }
        cursor.generation = opened.generation;
        drop(progress);
        self.entry.save()
    }

    /// Waits for a change, or for something that is due.
    async fn rest(
        &self,
        outlet: &Outlet,
        position: &Position,
        save_at: Instant,
    ) -> std::result::Result<(), Ended> {
        let pace = &self.context.sink.pace;
        let mark_at = (position.whole > position.told).then(|| position.told_at + pace.mark_every);
        let save_at = self.entry.progress.lock().is_unsaved.then_some(save_at);
        let due = [outlet.sink.due(), mark_at, save_at].into_iter().flatten().min();
        let change = self.context.store.changed(position.read);
        match due {
            Some(due) => {
                if let Ok(change) = tokio::time::timeout_at(due, change).await {
                    change?;
                }
            }
            None => change.await?,
        }
        // The store may wake early; let others run before reading again.
        tokio::task::yield_now().await;
        Ok(())
    }

    /// Refuses a position whose changes are no longer kept, or too old.
    async fn check_kept(&self, position: Revision) -> std::result::Result<(), Ended> {
        let page = self.context.store.changes(position, 1).await?;
        if page.oldest.0 > position.0.saturating_add(1) {
            return Err(Ended::Lost(not_kept(page.oldest)));
        }
        if let Some(change) = page.changes.first() {
            self.entry.progress.lock().note_time(change.revision, change.time);
        }
        self.check_limits(self.context.store.revision().await?)
    }

    fn check_limits(&self, head: Revision) -> std::result::Result<(), Ended> {
        let progress = self.entry.progress.lock();
        match progress.beyond_limits(head, (self.context.now)()) {
            Some(why) => Err(Ended::Lost(why)),
            None => Ok(()),
        }
    }

    /// Adds the events of a page, and sends them where requests end.
    async fn send_page(
        &self,
        maker: &mut Maker,
        outlet: &mut Outlet,
        position: &mut Position,
        page: &ChangePage,
    ) -> std::result::Result<(), Ended> {
        if let Some(first) = page.changes.first() {
            self.entry.progress.lock().note_time(first.revision, first.time);
        }
        // Events that wait since the page before go at the next end of a request.
        let mut must_send = !outlet.batch.is_empty();
        for change in &page.changes {
            if position.request.is_some_and(|request| request != change.operation) {
                outlet.batch.mark_last();
                position.whole = Revision(change.revision.0.saturating_sub(1));
                if must_send || outlet.batch.bytes.len() >= BATCH_BYTES {
                    must_send = false;
                    self.send(outlet, position, Some(position.whole)).await?;
                }
            }
            position.request = Some(change.operation);
            self.send_change(maker, outlet, position, change).await?;
        }
        position.read = page.up_to;
        self.entry.progress.lock().note_read(page.changes.len() as u64, 0);
        if outlet.batch.is_empty() && outlet.sink.pass(position.whole) {
            self.entry.progress.lock().acknowledge(position.whole, 0);
        }
        Ok(())
    }

    async fn send_change(
        &self,
        maker: &mut Maker,
        outlet: &mut Outlet,
        position: &mut Position,
        change: &Change,
    ) -> std::result::Result<(), Ended> {
        let must_copy = change.revision <= position.window;
        let Some(of) = maker.change(&mut outlet.batch, change, must_copy).await? else { return Ok(()) };
        self.send_rows(maker, outlet, position, (of, change.revision, change.time)).await
    }

    /// Sends the rows of entries that came into sight.
    async fn send_rows(
        &self,
        maker: &mut Maker,
        outlet: &mut Outlet,
        position: &mut Position,
        (of, revision, time): (RowsOf, Revision, TimeMs),
    ) -> std::result::Result<(), Ended> {
        let mut walk = Walk::begin(maker, &mut outlet.batch, of, (revision, 1, time)).await?;
        while walk.step(maker, &mut outlet.batch).await? {
            if outlet.batch.bytes.len() >= BATCH_BYTES {
                self.send(outlet, position, None).await?;
            }
        }
        position.window = position.window.max(self.context.store.revision().await?);
        position.is_exact_told = false;
        outlet.sink.note_window(position.window);
        let mut progress = self.entry.progress.lock();
        progress.cursor.window = position.window;
        progress.is_unsaved = true;
        drop(progress);
        // Before the sink can have the end of the request: after a crash the window must be known.
        self.entry.save()?;
        Ok(())
    }

    /// Sends everything that was read, at the end of the history.
    async fn send_rest(
        &self,
        outlet: &mut Outlet,
        position: &mut Position,
    ) -> std::result::Result<(), Ended> {
        outlet.batch.mark_last();
        position.request = None;
        position.whole = position.read;
        if !outlet.batch.is_empty() {
            return self.send(outlet, position, Some(position.whole)).await;
        }
        if outlet.sink.pass(position.whole) {
            self.entry.progress.lock().acknowledge(position.whole, 0);
        }
        Ok(())
    }

    async fn send(
        &self,
        outlet: &mut Outlet,
        position: &mut Position,
        whole: Option<Revision>,
    ) -> std::result::Result<(), Ended> {
        self.put(outlet, whole).await?;
        if let Some(whole) = whole {
            position.told = position.told.max(whole);
            position.told_at = Instant::now();
        }
        Ok(())
    }

    pub(crate) async fn put(
        &self,
        outlet: &mut Outlet,
        whole: Option<Revision>,
    ) -> std::result::Result<(), Ended> {
        if outlet.batch.is_empty() {
            return Ok(());
        }
        let has = outlet.sink.put(&outlet.batch, whole, self.now()).await?;
        outlet.waiting += outlet.batch.heads.len() as u64;
        self.entry.progress.lock().note_read(0, outlet.batch.bytes.len() as u64);
        outlet.batch.clear();
        self.acknowledged(outlet, has);
        Ok(())
    }

    pub(crate) fn acknowledged(&self, outlet: &mut Outlet, has: Option<Revision>) {
        if let Some(revision) = has {
            let events = std::mem::take(&mut outlet.waiting);
            self.entry.progress.lock().acknowledge(revision, events);
        }
    }

    /// Tells the sink how far it is, if nothing else did for a while, or if a mirror is exact now.
    async fn mark(
        &self,
        maker: &mut Maker,
        outlet: &mut Outlet,
        position: &mut Position,
    ) -> std::result::Result<(), Ended> {
        if !outlet.batch.is_empty() {
            return Ok(());
        }
        let is_exact = position.whole >= position.window;
        let is_news = is_exact && !position.is_exact_told;
        let is_due =
            position.whole > position.told && position.told_at.elapsed() >= self.context.sink.pace.mark_every;
        if !is_news && !is_due {
            return Ok(());
        }
        let exact: &[u8] = if is_exact { b",\"exact\":true" } else { b",\"exact\":false" };
        let at = (position.whole, 0, self.now());
        maker.writer.notice(&mut outlet.batch, Op::Mark, at, exact);
        outlet.batch.mark_last();
        position.is_exact_told |= is_exact;
        self.send(outlet, position, Some(position.whole)).await
    }

    /// Copies everything in sight. The changes made meanwhile follow, and make the copy right.
    async fn copy(&self, maker: &mut Maker, outlet: &mut Outlet) -> std::result::Result<(), Ended> {
        let store = Arc::clone(&self.context.store);
        let start = store.revision().await?;
        maker.begin().await?;
        let (mut fields, now) = (b",\"lfn\":".to_vec(), self.now());
        put_text(&mut fields, maker.scope().path());
        maker.writer.notice(&mut outlet.batch, Op::CopyBegins, (start, 0, now), &fields);
        let mut walk = Walk::begin(maker, &mut outlet.batch, RowsOf::Scope, (start, 1, now)).await?;
        while walk.step(maker, &mut outlet.batch).await? {
            if outlet.batch.bytes.len() >= BATCH_BYTES {
                self.put(outlet, None).await?;
            }
        }
        let window = store.revision().await?;
        outlet.sink.note_window(window);
        let mut fields = b",\"exact_from\":".to_vec();
        put_number(&mut fields, window.0);
        let at = (start, walk.index(), now);
        maker.writer.notice(&mut outlet.batch, Op::CopyEnds, at, &fields);
        outlet.batch.mark_last();
        let has = outlet.sink.put(&outlet.batch, Some(start), self.now()).await?;
        outlet.waiting += outlet.batch.heads.len() as u64;
        outlet.batch.clear();
        if has.is_none() {
            outlet.sink.publish()?;
        }
        let mut progress = self.entry.progress.lock();
        progress.cursor.must_copy = false;
        progress.cursor.window = window;
        progress.cursor.revision = start;
        progress.acknowledge(start, std::mem::take(&mut outlet.waiting));
        progress.is_unsaved = true;
        drop(progress);
        self.entry.save()?;
        Ok(())
    }
}

fn not_kept(oldest: Revision) -> String {
    format!(
        "changes before revision {} are not kept any more: rewind the feed to a copy or to a later position",
        oldest.0
    )
}
