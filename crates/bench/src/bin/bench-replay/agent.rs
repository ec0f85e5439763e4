//! An agent that asks for items, and says at once that it read them.

use std::io::Write as _;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use exacat_bench::kept::{KeptConnection, KeptRequest};
use exacat_bench::scatter;
use hdrhistogram::Histogram;
use serde::Deserialize;
use serde::de::DeserializeOwned;

use crate::Asked;

/// Longest pause behind an answer without items.
const PAUSE_MAX_MS: u64 = 100;
/// Answers without items in a row, after which the run does not go on: a minute of pauses.
const EMPTY_MAX: u64 = 600;

/// Item, as far as a result needs it.
#[derive(Deserialize)]
struct Item {
    item: u64,
    attempt: u32,
    size: u64,
    #[serde(default)]
    adler32: Option<u32>,
}

/// Answer with items.
#[derive(Deserialize)]
struct Items {
    state: String,
    items: Vec<Item>,
    again_ms: u64,
}

/// Answer to results.
#[derive(Deserialize)]
struct Verdict {
    accepted: u64,
}

/// Work of agents.
pub(crate) struct Taken {
    /// Items with a durable result.
    pub items: u64,
    /// Answers without items while the run went on.
    pub empty: u64,
    /// Microseconds of requests for items.
    pub item_times: Histogram<u64>,
    /// Microseconds of requests with results.
    pub result_times: Histogram<u64>,
}

impl Default for Taken {
    fn default() -> Self {
        let times = || Histogram::new(3).unwrap();
        Taken { items: 0, empty: 0, item_times: times(), result_times: times() }
    }
}

impl Taken {
    /// Adds the work of another agent.
    pub(crate) fn with(mut self, other: Taken) -> Taken {
        self.items += other.items;
        self.empty += other.empty;
        self.item_times.add(other.item_times).unwrap();
        self.result_times.add(other.result_times).unwrap();
        self
    }
}

/// See the module.
pub(crate) struct Agent {
    connection: KeptConnection,
    name: String,
    run: String,
    batch: usize,
}

impl Agent {
    pub(crate) fn connect(asked: &Asked, number: u64) -> Self {
        let connection = KeptConnection::open(&asked.url, asked.token.as_deref());
        let connection = connection.unwrap_or_else(|error| panic!("{}: {error}", asked.url));
        Agent { connection, name: format!("bench-{number}"), run: asked.run.clone(), batch: asked.batch }
    }

    /// Sends a request of JSON. Returns its answer, and its microseconds.
    fn ask<T: DeserializeOwned>(&mut self, what: &str, body: &[u8]) -> (T, u64) {
        let path = format!("/api/v1/runs/{}/{what}", self.run);
        let begun = Instant::now();
        let request = KeptRequest { method: "POST", path: &path, content_type: "application/json", body };
        let (status, answer) = self.connection.ask(request).unwrap_or_else(|error| panic!("{what}: {error}"));
        let took = u64::try_from(begun.elapsed().as_micros()).unwrap();
        assert_eq!(status, 200, "{what}: {}", String::from_utf8_lossy(answer));
        let read = serde_json::from_slice(answer);
        (read.unwrap_or_else(|error| panic!("{what}: {error}: {}", String::from_utf8_lossy(answer))), took)
    }

    /// Takes items until the run ends, or none of `left` is left for all agents.
    pub(crate) fn work(mut self, left: &AtomicU64) -> Taken {
        let (mut taken, mut body, mut empty) = (Taken::default(), Vec::new(), 0);
        loop {
            let most = self.batch as u64;
            let claim = |left: u64| (left > 0).then(|| left.saturating_sub(most));
            let Ok(before) = left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, claim) else {
                return taken;
            };
            let count = before.min(most);
            let ask = serde_json::json!({
                "agent": self.name, "cache": "root://cache.example.org:1094", "driver": "xrootd", "count": count,
            });
            let (answer, took) = self.ask::<Items>("items", ask.to_string().as_bytes());
            left.fetch_add(count - answer.items.len() as u64, Ordering::Relaxed);
            if answer.items.is_empty() {
                if matches!(answer.state.as_str(), "done" | "stopped") {
                    return taken;
                }
                assert!(empty < EMPTY_MAX, "the run is {}, and hands nothing out", answer.state);
                (empty, taken.empty) = (empty + 1, taken.empty + 1);
                std::thread::sleep(Duration::from_millis(answer.again_ms.min(PAUSE_MAX_MS)));
                continue;
            }
            empty = 0;
            taken.item_times.record(took).unwrap();
            self.put_results(&answer.items, &mut body);
            let (verdict, took) = self.ask::<Verdict>("results", &body);
            taken.result_times.record(took).unwrap();
            assert_eq!(verdict.accepted, answer.items.len() as u64, "results that are not final");
            taken.items += verdict.accepted;
        }
    }

    fn put_results(&self, items: &[Item], body: &mut Vec<u8>) {
        body.clear();
        write!(body, "{{\"agent\":\"{}\",\"results\":[", self.name).unwrap();
        for (number, of) in items.iter().enumerate() {
            let random = scatter(of.item);
            let (late, first) = (random % 3000, 500 + (random >> 16) % 20_000);
            let comma = if number == 0 { "" } else { "," };
            write!(
                body,
                "{comma}{{\"item\":{},\"attempt\":{},\"outcome\":\"ok\",\"number\":0,\"late_us\":{late},\
                 \"first_byte_us\":{first},\"duration_us\":{},\"bytes\":{},\"adler32\":{},\"redirects\":0}}",
                of.item,
                of.attempt,
                first + (random >> 32) % 50_000,
                of.size,
                of.adler32.map_or_else(|| "null".to_owned(), |sum| sum.to_string())
            )
            .unwrap();
        }
        body.extend_from_slice(b"]}");
    }
}
