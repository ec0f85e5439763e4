//! Work of an agent: asks for items, begins each at its time, brings the results to the service.

#[cfg(test)]
mod tests;

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use exacat_model::{Error, ErrorKind, Result};
use exacat_replay::run::outcome::{AccessResult, Outcome};
use exacat_replay::run::shapes::{ItemsRequest, ReplayItem, ResultsAnswer, ResultsRequest, RunState};
use exacat_replay::trace::reads::Reads;
use tokio::sync::watch;
use tokio::task::{JoinError, JoinSet};
use tokio::time::Instant;

use crate::agent::access::{Access, Failure, Reading};
use crate::agent::limits::{
    AGAIN_FIRST, AGAIN_MAX, EMPTY_PAUSE_MAX, EMPTY_PAUSE_MIN, ITEMS_PER_REQUEST_MAX, STATE_ASKED_EVERY,
};
use crate::agent::link::{ReceivedItems, ServiceLink};
use crate::agent::outbox::Outbox;
use crate::agent::schedule::{PlannedItem, Schedule};
use crate::agent::settings::{AccessTime, AgentSettings, DriverKind};
use crate::agent::summary::AgentSummary;

/// Longest time without anything to do.
const IDLE_WAKE: Duration = Duration::from_secs(3600);
/// Items that wait, at least, above which an agent asks for no more, where the service bounds the accesses at
/// once. It bounds the items of the agent too.
const ENOUGH_MIN: usize = 8;

/// Way to read a file.
pub(crate) trait Driver: Send + Sync + 'static {
    /// Reads the bytes of an access. `reading` has them also if the access is given up.
    fn read(
        &self,
        access: &Access,
        reading: &mut Reading,
    ) -> impl Future<Output = std::result::Result<(), Failure>> + Send;
}

/// Access that ended.
struct Ended {
    result: AccessResult,
    why: Option<String>,
}

fn micros(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}

/// Makes one access within its time.
async fn make<D: Driver>(driver: Arc<D>, planned: PlannedItem, time: AccessTime) -> Ended {
    let begun = Instant::now();
    let PlannedItem { item, attempt, access, due, .. } = planned;
    let mut reading = Reading::new(begun);
    let longest = time.of(access.reads.bytes(access.size));
    let failure = match tokio::time::timeout(longest, driver.read(&access, &mut reading)).await {
        Ok(Ok(())) => None,
        Ok(Err(failure)) => Some(failure),
        Err(_) => Some(Failure::new(Outcome::Timeout, format!("not done within {longest:?}"))),
    };
    let result = AccessResult {
        item,
        attempt,
        outcome: failure.as_ref().map_or(Outcome::Ok, |failure| failure.outcome),
        number: failure.as_ref().map_or(0, |failure| failure.number),
        late_us: micros(begun.saturating_duration_since(due)),
        first_byte_us: reading.first_byte.map(micros),
        duration_us: micros(begun.elapsed()),
        bytes: reading.bytes,
        adler32: reading.adler32,
        redirects: reading.redirects,
    };
    let why = failure.map(|failure| format!("{}: {}", access.name, failure.why));
    Ended { result, why }
}

/// Answer of the service.
enum Heard {
    Items(Result<ReceivedItems>),
    Results(Result<ResultsAnswer>),
}

/// Repetition of requests to the service.
struct Repetition {
    /// Time of the next request.
    at: Instant,
    pause: Duration,
    failing_since: Option<Instant>,
}

impl Repetition {
    fn new(now: Instant) -> Self {
        Repetition { at: now, pause: AGAIN_FIRST, failing_since: None }
    }

    /// Continues behind an answer.
    fn succeeded(&mut self, at: Instant) {
        *self = Repetition::new(at);
    }

    /// Continues behind a failure, a little at random: many agents lost the service at once.
    fn failed(&mut self, now: Instant) {
        self.failing_since.get_or_insert(now);
        self.at = now + self.pause.mul_f64(0.5 + fastrand::f64() / 2.0);
        self.pause = (self.pause * 2).min(AGAIN_MAX);
    }
}

/// End of the work, when the results have reached the service.
struct Ending {
    /// Time after which results are given up.
    until: Option<Instant>,
    /// Reason, if the agent failed.
    error: Option<Error>,
}

/// Work of an agent.
pub(crate) struct Work<L, D> {
    settings: AgentSettings,
    link: Arc<L>,
    driver: Arc<D>,
    schedule: Schedule,
    outbox: Outbox,
    running: JoinSet<Ended>,
    asked: JoinSet<Heard>,
    is_asking: bool,
    is_sending: bool,
    items: Repetition,
    results: Repetition,
    /// Time of the last answer of the service.
    heard_at: Instant,
    /// Most accesses at once, as the service permits now.
    in_flight: usize,
    /// Items that wait, above which the agent asks for no more.
    enough: usize,
    /// Number of the last answer with items.
    number: Option<u64>,
    ending: Option<Ending>,
    summary: AgentSummary,
    begun: Instant,
    progress_at: Instant,
}

impl<L: ServiceLink, D: Driver> Work<L, D> {
    pub(crate) fn new(settings: AgentSettings, link: L, driver: D) -> Self {
        let now = Instant::now();
        Work {
            in_flight: settings.in_flight,
            enough: settings.prefetch / 2,
            progress_at: now + settings.progress_every,
            settings,
            link: Arc::new(link),
            driver: Arc::new(driver),
            schedule: Schedule::default(),
            outbox: Outbox::default(),
            running: JoinSet::new(),
            asked: JoinSet::new(),
            is_asking: false,
            is_sending: false,
            items: Repetition::new(now),
            results: Repetition::new(now),
            heard_at: now,
            number: None,
            ending: None,
            summary: AgentSummary::default(),
            begun: now,
        }
    }

    /// Works until the run ends, the caller stops it, or the service is lost.
    pub(crate) async fn run(mut self, mut stop: watch::Receiver<bool>) -> Result<AgentSummary> {
        loop {
            let now = Instant::now();
            self.begin_due(now);
            self.talk(now);
            self.tell_progress(now);
            if let Some(error) = self.lost(now) {
                self.end(Some(now), Some(error)).await;
            }
            if let Some(ending) = self.ending.take() {
                let is_over = ending.until.is_some_and(|until| until <= now);
                if is_over || self.outbox.len() == 0 {
                    return self.finish(ending.error);
                }
                self.ending = Some(ending);
            }
            let wake = self.next_wake(now);
            tokio::select! {
                biased;
                () = stopped(&mut stop), if self.ending.is_none() => {
                    let until = Instant::now() + self.settings.finish_time;
                    self.end(Some(until), None).await;
                }
                Some(heard) = self.asked.join_next(), if !self.asked.is_empty() => self.heard(heard).await,
                Some(ended) = self.running.join_next(), if !self.running.is_empty() => {
                    self.ended(ended);
                    while let Some(ended) = self.running.try_join_next() {
                        self.ended(ended);
                    }
                }
                () = tokio::time::sleep_until(wake) => {}
            }
        }
    }

    /// Begins the accesses whose time has come, as far as there is room.
    fn begin_due(&mut self, now: Instant) {
        self.schedule.release(now);
        while self.running.len() < self.in_flight
            && let Some(planned) = self.schedule.take(now)
        {
            if self.settings.driver == DriverKind::Xrdcp && planned.access.reads != Reads::Whole {
                self.summary.read_whole += 1;
            }
            self.running.spawn(make(Arc::clone(&self.driver), planned, self.settings.access_time));
        }
    }

    /// Sends the requests to the service whose time has come.
    fn talk(&mut self, now: Instant) {
        if !self.is_sending && self.sending_at().is_some_and(|at| at <= now) {
            self.is_sending = true;
            let agent = self.settings.name.clone();
            let request = ResultsRequest { agent, results: self.outbox.message() };
            let link = Arc::clone(&self.link);
            self.asked.spawn(async move { Heard::Results(link.results(request).await) });
        }
        if !self.is_asking && self.asking_at().is_some_and(|at| at <= now) {
            self.is_asking = true;
            let room = match self.wants_items() {
                true => self.settings.prefetch.saturating_sub(self.schedule.len()).min(ITEMS_PER_REQUEST_MAX),
                false => 0,
            };
            let request = ItemsRequest {
                agent: self.settings.name.clone(),
                cache: self.settings.cache.address.clone(),
                driver: self.settings.driver.name().to_owned(),
                count: u32::try_from(room).unwrap_or(u32::MAX),
                number: self.number,
            };
            let link = Arc::clone(&self.link);
            self.asked.spawn(async move { Heard::Items(link.items(request).await) });
        }
    }

    /// Says whether the agent takes further items.
    fn wants_items(&self) -> bool {
        self.ending.is_none() && !self.outbox.is_full() && self.schedule.len() <= self.enough
    }

    /// Returns the time of the next request for items. Without room for any the agent asks for the state of
    /// the run: it may have ended.
    fn asking_at(&self) -> Option<Instant> {
        let at = match self.wants_items() {
            true => self.items.at,
            false => self.items.at.max(self.heard_at + STATE_ASKED_EVERY),
        };
        Some(at).filter(|_| self.ending.is_none())
    }

    /// Returns the time of the next message with results.
    fn sending_at(&self) -> Option<Instant> {
        // Without work nothing fills a message further.
        let is_idle = self.running.is_empty() && self.schedule.len() == 0;
        self.outbox.due(is_idle || self.ending.is_some()).map(|due| due.max(self.results.at))
    }

    /// Returns the time of the next thing to do without an event.
    fn next_wake(&self, now: Instant) -> Instant {
        let has_room = self.running.len() < self.in_flight;
        let patience = self.settings.service_patience;
        let failing = [&self.items, &self.results].map(|one| one.failing_since);
        let times = [
            self.schedule.next_due().filter(|_| has_room),
            self.asking_at().filter(|_| !self.is_asking),
            self.sending_at().filter(|_| !self.is_sending),
            self.ending.as_ref().and_then(|ending| ending.until),
            failing.into_iter().flatten().min().and_then(|since| since.checked_add(patience)),
            self.settings.progress.as_ref().map(|_| self.progress_at),
        ];
        times.into_iter().flatten().fold(now + IDLE_WAKE, Instant::min)
    }

    /// Returns the error of a service that did not answer for too long.
    fn lost(&self, now: Instant) -> Option<Error> {
        let patience = self.settings.service_patience;
        let is_lost = [&self.items, &self.results]
            .into_iter()
            .filter_map(|one| one.failing_since)
            .any(|since| now.saturating_duration_since(since) >= patience);
        is_lost.then(|| {
            let (service, waiting) = (&self.settings.service, self.outbox.len());
            let what = format!(
                "{service} did not answer for {patience:?}; {waiting} results are not reported, and the \
                 service hands their items out again"
            );
            Error::new(ErrorKind::Unavailable, what)
        })
    }

    async fn heard(&mut self, heard: std::result::Result<Heard, JoinError>) {
        let now = Instant::now();
        match heard {
            Ok(Heard::Items(answer)) => {
                self.is_asking = false;
                match answer {
                    Ok(received) => self.take_items(received, now).await,
                    Err(error) => self.not_answered(error, now, |work| &mut work.items).await,
                }
            }
            Ok(Heard::Results(answer)) => {
                self.is_sending = false;
                match answer {
                    Ok(answer) => self.acknowledged(answer, now).await,
                    Err(error) => self.not_answered(error, now, |work| &mut work.results).await,
                }
            }
            Err(error) if error.is_cancelled() => {}
            // A request panicked: it was one of the two, and both may be sent again.
            Err(error) => {
                tracing::error!(%error, "internal error: a request to the service");
                (self.is_asking, self.is_sending) = (false, false);
                self.asked.abort_all();
                self.items.failed(now);
                self.results.failed(now);
            }
        }
    }

    async fn not_answered(&mut self, error: Error, now: Instant, of: fn(&mut Self) -> &mut Repetition) {
        if error.kind.is_retryable() {
            tracing::debug!(%error, "the service did not answer");
            of(self).failed(now);
            self.summary.service_retries += 1;
        } else if self.ending.as_ref().is_none_or(|ending| ending.error.is_none()) {
            let until = now + self.settings.finish_time;
            of(self).failed(now);
            self.end(Some(until), Some(error)).await;
        } else {
            // The service refuses items and results alike: nothing is left to be done.
            self.end(Some(now), None).await;
        }
    }

    async fn take_items(&mut self, received: ReceivedItems, now: Instant) {
        let ReceivedItems { at, answer } = received;
        self.heard_at = now;
        if self.ending.is_some() {
            return;
        }
        self.number = Some(answer.number);
        let pause = Duration::from_millis(answer.again_ms).min(EMPTY_PAUSE_MAX);
        let pause = if answer.items.is_empty() { pause.max(EMPTY_PAUSE_MIN) } else { pause };
        self.items.succeeded(now + pause);
        let permitted = answer.in_flight.map(|count| usize::try_from(count).unwrap_or(usize::MAX));
        self.in_flight =
            permitted.map_or(self.settings.in_flight, |max| max.clamp(1, self.settings.in_flight));
        // A request goes out at the latest when half of the last answer is used up.
        let most = self.settings.prefetch / 2;
        self.enough = match permitted {
            None => most,
            Some(_) => self.in_flight.max(ENOUGH_MIN).max(answer.items.len() / 2).min(most),
        };
        for item in &answer.items {
            match PlannedItem::new(item, at) {
                Ok(planned) => self.schedule.add(planned),
                Err(why) => self.unreadable(item, why, now),
            }
        }
        self.learn(answer.state).await;
    }

    /// Ends an item that no agent can read.
    fn unreadable(&mut self, item: &ReplayItem, why: &str, now: Instant) {
        let ReplayItem { item, attempt, .. } = *item;
        let result = AccessResult { item, attempt, outcome: Outcome::Agent, ..AccessResult::default() };
        self.summary.add(&result, Some(why));
        self.outbox.add(now, result);
    }

    async fn acknowledged(&mut self, answer: ResultsAnswer, now: Instant) {
        self.heard_at = now;
        self.results.succeeded(now);
        self.outbox.acknowledge();
        let ResultsAnswer { accepted, known, late, refused, state } = answer;
        self.summary.accepted += accepted;
        self.summary.known += known;
        self.summary.superseded += late;
        self.summary.refused += refused.len() as u64;
        if let Some(first) = refused.first() {
            tracing::warn!(
                item = first.item,
                reason = first.reason,
                count = refused.len(),
                "refused results"
            );
        }
        if let Some(state) = state {
            self.learn(state).await;
        }
    }

    /// Ends the work if the run has ended. Accesses that still run are those of items with a result.
    async fn learn(&mut self, state: RunState) {
        if matches!(state, RunState::Done | RunState::Stopped) && self.ending.is_none() {
            self.end(None, None).await;
        }
    }

    /// Takes over an access that ended.
    fn ended(&mut self, ended: std::result::Result<Ended, JoinError>) {
        match ended {
            Ok(Ended { result, why }) => {
                if let Some(why) = &why {
                    tracing::debug!(
                        item = result.item,
                        outcome = result.outcome.name(),
                        why,
                        "access failed"
                    );
                }
                self.summary.add(&result, why.as_deref());
                self.outbox.add(Instant::now(), result);
            }
            Err(error) => {
                if error.is_panic() {
                    tracing::error!(%error, "internal error: an access");
                }
                self.summary.abandoned += 1;
            }
        }
    }

    /// Gives up the items that wait and the accesses that run. Their results until now remain to be sent.
    async fn end(&mut self, until: Option<Instant>, error: Option<Error>) {
        self.summary.abandoned += self.schedule.clear() as u64;
        self.running.abort_all();
        while let Some(ended) = self.running.join_next().await {
            self.ended(ended);
        }
        let error = self.ending.take().and_then(|before| before.error).or(error);
        self.ending = Some(Ending { until, error });
    }

    fn tell_progress(&mut self, now: Instant) {
        if now < self.progress_at {
            return;
        }
        self.progress_at = now + self.settings.progress_every.max(Duration::from_millis(1));
        if let Some(progress) = self.settings.progress.clone() {
            self.count();
            progress(&self.summary);
        }
    }

    /// Brings the summary up to date.
    fn count(&mut self) {
        self.summary.elapsed = self.begun.elapsed();
        self.summary.expired = self.schedule.expired();
        self.summary.unreported = self.outbox.len() as u64;
    }

    fn finish(mut self, error: Option<Error>) -> Result<AgentSummary> {
        self.count();
        match error {
            Some(error) => Err(error),
            None => Ok(self.summary),
        }
    }
}

/// Waits until the caller stops the agent.
async fn stopped(stop: &mut watch::Receiver<bool>) {
    if stop.wait_for(|is_stopped| *is_stopped).await.is_err() {
        // The caller dropped its side, and cannot stop the agent any more.
        std::future::pending::<()>().await;
    }
}
